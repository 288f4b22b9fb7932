"""The table is packed with the package, and is not read before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_importing_reads_nothing() -> None:
    code = (
        "import sys, msnb.hints, msnb.context; from msnb.hints.table import kinds\n"
        "print('yaml' in sys.modules, kinds.cache_info().currsize)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "0"]


def test_no_file_of_the_table_is_ignored() -> None:
    # hatchling packs what lies in the package, but for what git ignores
    files = sorted((ROOT / "msnb/hints/kinds").glob("*.yaml"))
    command = ["git", "check-ignore", *map(str, files)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode == 128:
        pytest.skip("not a git checkout")
    assert (run.returncode, run.stdout) == (1, "")
    assert len(files) == 10
