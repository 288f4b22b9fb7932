"""From the text of an error to what it means and what to type.

What is known lies in ``kinds/*.yaml``, one entry a kind of error; ``kinds/README.md`` says how an
entry is written. Nothing here imports MindSpore or PyTorch.
"""

from msnb.hints.explaining import LIMIT as LIMIT
from msnb.hints.explaining import Hint as Hint
from msnb.hints.explaining import best as best
from msnb.hints.explaining import explain as explain
from msnb.hints.explaining import find as find
from msnb.hints.table import Kind as Kind
from msnb.hints.table import kinds as kinds

__all__ = ["LIMIT", "Hint", "Kind", "best", "explain", "find", "kinds"]
