"""From PyTorch to MindSpore and Ascend, with proof at every step.

``import msnb`` imports neither framework: each public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # not from typing: the doctor must be able to find a file of that name

__version__ = "0.1.0"

_HOME = {
    "Check": "msnb.report",
    "Report": "msnb.report",
    "StepGuard": "msnb.guard",
    "TrainLog": "msnb.log",
    "check_export": "msnb.deploy",
    "check_migration": "msnb.parity",
    "check_ranks": "msnb.distributed.ranks",
    "compare": "msnb.parity",
    "copy_weights": "msnb.parity",
    "data": "",
    "doctor": "msnb.environment",
    "explain": "msnb.hints",
    "export": "msnb.deploy",
    "launch": "msnb.distributed.job",
    "load_checkpoint": "msnb.checkpoint",
    "load_exported": "msnb.deploy",
    "nets": "",
    "probe": "msnb.parity",
    "save_checkpoint": "msnb.checkpoint",
    "setup": "msnb.context",
}

if TYPE_CHECKING:
    from typing import Any

    import msnb.data as data  # noqa: F401
    import msnb.nets as nets  # noqa: F401
    from msnb.checkpoint import load_checkpoint as load_checkpoint
    from msnb.checkpoint import save_checkpoint as save_checkpoint
    from msnb.context import setup as setup
    from msnb.deploy import check_export as check_export
    from msnb.deploy import export as export
    from msnb.deploy import load_exported as load_exported
    from msnb.distributed.job import launch as launch
    from msnb.distributed.ranks import check_ranks as check_ranks
    from msnb.environment import doctor as doctor
    from msnb.guard import StepGuard as StepGuard
    from msnb.hints import explain as explain
    from msnb.log import TrainLog as TrainLog
    from msnb.parity import check_migration as check_migration
    from msnb.parity import compare as compare
    from msnb.parity import copy_weights as copy_weights
    from msnb.parity import probe as probe
    from msnb.report import Check as Check
    from msnb.report import Report as Report

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from difflib import get_close_matches

        near = get_close_matches(name, _HOME, n=1)
        hint = f"; did you mean msnb.{near[0]}?" if near else f"; it has {', '.join(__all__)}"
        raise AttributeError(f"msnb has no {name!r}{hint}")
    home = _HOME[name]
    value = getattr(import_module(home), name) if home else import_module(f"msnb.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
