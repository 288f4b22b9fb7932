"""PyTorch against MindSpore: do both still agree, where not, and which side is off."""

from __future__ import annotations

from msnb.parity.arrays import compare as compare

__all__ = ["compare"]
