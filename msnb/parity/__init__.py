"""PyTorch against MindSpore: do both still agree, where not, and which side is off."""

from __future__ import annotations

from msnb.parity.arrays import compare as compare
from msnb.parity.migration import check_migration as check_migration
from msnb.parity.operators import probe as probe
from msnb.parity.weights import copy_weights as copy_weights

__all__ = ["check_migration", "compare", "copy_weights", "probe"]
