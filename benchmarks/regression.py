"""`msnb run` over the eight notebooks of `benchmarks/small`, beside what people would use instead.

Each way runs all of them in a process of its own: wall, CPU seconds of everything it started, and
the largest memory (proportional set size) it held at a time. The ways take turns. The floor is
plain Python scripts of the same cells, two at a time. A peer that is not installed is skipped.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks import Row

SMALL = sorted((Path(__file__).parent / "small").glob("*.ipynb"))
TURNS = 5
PR_SET_CHILD_SUBREAPER = 36

# Scripts and loops as one would write them, with the notebooks (or scripts) as arguments.
TWO_AT_A_TIME = """
import subprocess, sys
from concurrent.futures import ThreadPoolExecutor
run = lambda path: subprocess.run([sys.executable, path], check=True, stdout=subprocess.DEVNULL)
with ThreadPoolExecutor(2) as pool:
    list(pool.map(run, sys.argv[1:]))
"""
PAPERMILL_LOOP = """
import sys, papermill
for number, path in enumerate(sys.argv[1:]):
    papermill.execute_notebook(path, f"out{number}.ipynb", progress_bar=False)
"""
PAPERMILL_POOL = """
import sys, papermill
from concurrent.futures import ProcessPoolExecutor
def run(work):
    number, path = work
    papermill.execute_notebook(path, f"out{number}.ipynb", progress_bar=False)
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(run, enumerate(sys.argv[1:])))
"""


@dataclass(frozen=True)
class Cost:
    wall: float
    cpu: float
    memory: int


def as_scripts(notebooks: Sequence[Path], folder: Path) -> list[str]:
    """The command that runs the same cells as plain scripts, two at a time."""
    scripts = []
    for path in notebooks:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        script = folder / f"{path.stem}.py"
        script.write_text("\n\n".join(code) + "\n", encoding="utf-8")
        scripts.append(str(script))
    return [sys.executable, "-c", TWO_AT_A_TIME, *scripts]


def ways(folder: Path) -> dict[str, list[str]]:
    """The command of each way; ``folder`` gets the scripts."""
    notebooks = [str(path) for path in SMALL]
    python = sys.executable
    ours = [python, "-m", "msnb.cli"]
    pytest = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    pool = folder / "pool.py"
    pool.write_text(PAPERMILL_POOL, encoding="utf-8")
    found = {
        "plain scripts": as_scripts(SMALL, folder),
        "msnb run": [*ours, "run", *notebooks, "--jobs", "2"],
        "papermill loop": [python, "-c", PAPERMILL_LOOP, *notebooks],
        "papermill pool": [python, str(pool), *notebooks],
        "nbconvert": [
            *(python, "-m", "nbconvert", "--execute", "--to", "notebook", "--output-dir", "."),
            *notebooks,
        ],
        "nbval": [*pytest, "--dist", "loadscope", "--nbval-lax", "--nbval-current-env", *notebooks],
    }
    if find_spec("nbmake"):
        found["nbmake"] = [*pytest, "--nbmake", *notebooks]
    return found


def run(command: list[str]) -> Cost:
    """Run it to its end in an empty folder; raises ``RuntimeError`` with its output if it fails."""
    folder = tempfile.mkdtemp(prefix="bench-")
    plain = command[1] == "-c"
    env = {**os.environ, "MPLBACKEND": "agg"} if plain else None
    largest = 0
    over = threading.Event()
    before = _children_cpu()
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )

    def watch() -> None:
        nonlocal largest
        while not over.wait(0.3):
            largest = max(largest, _memory(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    wall = time.perf_counter() - started
    over.set()
    watcher.join()
    _reap()
    shutil.rmtree(folder, ignore_errors=True)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]} failed:\n{out[-2000:]}")
    return Cost(wall, _children_cpu() - before, largest)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reap() -> None:
    """Wait for what the command left behind, so that its CPU seconds count."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
        except ChildProcessError:
            return


def _memory(root: int) -> int:
    """Bytes that ``root`` and its descendants hold, shared pages divided among their holders."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        todo += parents.get(pid, [])
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in rollup.splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def rows() -> Iterator[Row]:
    if sys.platform != "linux":
        yield Row("msnb run", skipped="memory and CPU seconds are read as Linux has them")
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as name:
        commands = ways(Path(name))
        costs: dict[str, list[Cost]] = {way: [] for way in commands}
        for turn in range(TURNS + 1):
            for way, command in commands.items():
                cost = run(command)
                if turn:  # the first fills the caches
                    costs[way].append(cost)
    wall, cpu, memory = (
        {way: tuple(float(getattr(c, kind)) for c in costs[way]) for way in commands}
        for kind in ("wall", "cpu", "memory")
    )
    floor = "plain scripts"
    ours, loop = "msnb run", "papermill loop"
    yield Row(f"{ours}, wall", wall[ours], wall[floor], floor, ratio_limit=0.80)
    yield Row(f"{ours}, wall", wall[ours], wall[loop], loop, ratio_limit=0.55)
    yield Row(f"{ours}, CPU", cpu[ours], cpu[floor], floor, ratio_limit=0.85)
    for way in commands:
        if way not in (ours, floor):
            yield Row(f"{way}, wall", wall[way], wall[floor], floor)
    for way in commands:
        limit = 1.0 if way == ours and "nbmake" in commands else None
        against = "nbmake" if "nbmake" in commands else floor
        yield Row(
            f"{way}, memory", memory[way], memory[against], against, unit="B", ratio_limit=limit
        )
    if "nbmake" not in commands:
        yield Row("nbmake", skipped="it is not installed: pip install -r benchmarks/peers.txt")
