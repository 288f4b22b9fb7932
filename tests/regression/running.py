"""Real runs of ``msnb`` in processes of their own, and what each may leave: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

from msnb.regression.results import NotebookResult, Results

LITTLE = "ipykernel.kernelapp,papermill,nbclient,psutil"  # the notebooks need no framework
COMMAND = Path(sys.executable).with_name("msnb")


def alive(token: str) -> list[str]:
    """The processes whose environment holds ``token``, but this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if token in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def gone(token: str, within: float) -> bool:
    end = time.monotonic() + within
    while alive(token) and time.monotonic() < end:
        time.sleep(0.1)
    return not alive(token)


class Ran:
    """A finished run: exit code, output, seconds, and results by notebook."""

    def __init__(self, out: Path, process: subprocess.Popen[str], began: float) -> None:
        self.out = out
        self.stdout, self.stderr = process.communicate(timeout=240)
        self.seconds = time.monotonic() - began
        self.code = process.returncode
        self.results = Results.read(out) if (out / "results.json").exists() else None

    def __getitem__(self, name: str) -> NotebookResult:
        assert self.results is not None, self.stderr
        return next(result for result in self.results.notebooks if result.notebook == name)


class Place:
    """A folder with notebooks from which ``msnb`` runs; what it starts and leaves is known."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.token = f"TOKEN_{uuid.uuid4().hex}"
        self.temporary = root / "tmp"
        self.temporary.mkdir(parents=True)
        self.sources: dict[Path, bytes] = {}
        self._began = 0.0

    def start(self, *arguments: str, **surroundings: str) -> subprocess.Popen[str]:
        """Start ``msnb run``, or what else ``arguments`` begin with."""
        words = arguments if arguments[:1] == ("report",) else ("run", *arguments)
        return self.popen([str(COMMAND), *words], **surroundings)

    def popen(self, command: list[str], **surroundings: Any) -> subprocess.Popen[str]:
        self._look()
        self._began = time.monotonic()
        return subprocess.Popen(
            command,
            cwd=self.root,
            env={
                **os.environ,
                self.token: "1",
                "TMPDIR": str(self.temporary),
                "MSNB_PRELOAD": LITTLE,
                **surroundings,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, out: str = "out", **surroundings: str) -> Ran:
        process = self.start(*arguments, "--out", out, **surroundings)
        return self.finish(process, out)

    def finish(self, process: subprocess.Popen[str], out: str = "out") -> Ran:
        return Ran(self.root / out, process, self._began)

    def until(self, path: Path, process: subprocess.Popen[str]) -> None:
        """Wait for a file that a notebook, or the runner, writes."""
        end = time.monotonic() + 90
        while not path.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, f"{path.name} was never written"
            time.sleep(0.05)

    def _look(self) -> None:
        notebooks = self.root / "notebooks"
        self.sources = {path: path.read_bytes() for path in notebooks.iterdir() if path.is_file()}

    def check(self, within: float = 20) -> None:
        """No process, so no port, no temporary file, and every source as it was."""
        assert gone(self.token, within), alive(self.token)
        left = [path.name for path in self.temporary.iterdir()]
        assert not left, f"left behind: {left}"
        changed = [path.name for path, was in self.sources.items() if path.read_bytes() != was]
        assert not changed, f"changed: {changed}"
