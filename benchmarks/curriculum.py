"""`msnb run` over our own notebooks, beside plain Python scripts of the same cells, two at a time.

Both run all of them to the end: wall, and CPU seconds of everything they started. The ways take
turns.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Row
from benchmarks.regression import PR_SET_CHILD_SUBREAPER, Cost, as_scripts, run

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("0[1-8]_*.ipynb"))
TURNS = 3


def rows() -> Iterator[Row]:
    if sys.platform != "linux":
        yield Row("our notebooks", skipped="CPU seconds are read as Linux has them")
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    ours = [sys.executable, "-m", "msnb.cli", "run", *map(str, NOTEBOOKS), "--jobs", "2"]
    with tempfile.TemporaryDirectory() as name:
        commands = [ours, as_scripts(NOTEBOOKS, Path(name))]
        costs: list[list[Cost]] = [[run(command) for command in commands] for _ in range(TURNS)]
    wall, cpu = (
        [tuple(float(getattr(turn[way], kind)) for turn in costs) for way in (0, 1)]
        for kind in ("wall", "cpu")
    )
    yield Row("our notebooks, wall", *wall, "plain scripts", limit=210, ratio_limit=1.0)
    yield Row("our notebooks, CPU", *cpu, "plain scripts")
