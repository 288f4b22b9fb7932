"""From a net to a file that runs without it, with proof: export, check, load, inspect."""

from __future__ import annotations

from msnb.deploy.checking import check_export as check_export
from msnb.deploy.exporting import export as export
from msnb.deploy.loading import load_exported as load_exported

__all__ = ["check_export", "export", "load_exported"]
