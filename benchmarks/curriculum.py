"""`msnb run` over our own notebooks, beside plain Python processes of the same cells, in pairs.

Both run all of them to the end: wall, and CPU seconds of everything they started. The ways take
turns. A plain process gives each cell to ``exec``, with its source where a traceback, and
MindSpore's compiler, look for it: as in a notebook, a class of ``__main__`` has no file.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Row
from benchmarks.regression import PR_SET_CHILD_SUBREAPER, TWO_AT_A_TIME, Cost, run

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("0[1-8]_*.ipynb"))
TURNS = 3
CELLS = """
import json, linecache, os, sys
def run(path):
    for number, cell in enumerate(json.load(open(path, encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            source, name = "".join(cell["source"]) + "\\n", f"<cell {number}>"
            linecache.cache[name] = len(source), None, source.splitlines(True), name
            exec(compile(source, name, "exec"), globals())
del __file__
sys.path[0] = os.getcwd()
run(sys.argv.pop(1))
"""


def rows() -> Iterator[Row]:
    if sys.platform != "linux":
        yield Row("our notebooks", skipped="CPU seconds are read as Linux has them")
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    ours = [sys.executable, "-m", "msnb.cli", "run", *map(str, NOTEBOOKS), "--jobs", "2"]
    with tempfile.TemporaryDirectory() as name:
        cells = Path(name) / "cells.py"
        cells.write_text(CELLS, encoding="utf-8")
        two = TWO_AT_A_TIME.replace(
            "[sys.executable, path]", f"[sys.executable, {str(cells)!r}, path]"
        )
        plain = [sys.executable, "-c", two, *map(str, NOTEBOOKS)]
        commands = [ours, plain]
        costs: list[list[Cost]] = [[run(command) for command in commands] for _ in range(TURNS)]
    wall, cpu = (
        [tuple(float(getattr(turn[way], kind)) for turn in costs) for way in (0, 1)]
        for kind in ("wall", "cpu")
    )
    yield Row("our notebooks, wall", *wall, "plain processes", limit=210, ratio_limit=1.0)
    yield Row("our notebooks, CPU", *cpu, "plain processes")
