"""The run as a whole: refuse or plan, execute some at a time, judge, keep, leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import IO, Any

from msnb.regression import catalog, results
from msnb.regression.catalog import Notebook, Refused
from msnb.regression.progress import Progress
from msnb.regression.results import NotebookResult, Results
from msnb.targets import canonical_target

_GRACE = 10.0  # seconds between asking an executing process to stop and killing it
_LITTER = {"__pycache__", ".ipynb_checkpoints"}  # Python's and Jupyter's own, ignored by git
_SMALL = 1_000_000  # bytes of a file that is copied for a notebook; a larger one is linked
_COPIED = 20_000_000  # bytes that are copied for one notebook in all
_ENTRIES = 1_000  # files and folders below one entry that are looked at
_PACKAGES = (
    "msnb",
    "mindspore",
    "torch",
    "numpy",
    "papermill",
    "nbclient",
    "nbformat",
    "jupyter_client",
    "ipykernel",
)


@dataclass(frozen=True)
class Limits:
    """Seconds a notebook may take: to start its kernel, for one cell, and in all."""

    start: float = 60
    cell: float = 300
    total: float = 900

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("cell", self.cell), ("total", self.total)):
            if not (math.isfinite(value) and value >= 1):
                raise Refused(
                    f"the {name} time limit is 1 second or more, and finite, not {value:g}"
                )


@dataclass(frozen=True)
class Job:
    """One notebook as it will run; ``name`` is its name in the run folder."""

    name: str
    notebook: Notebook
    overrides: dict[str, Any]

    @property
    def effective(self) -> dict[str, Any]:
        defaults = {p.name: p.default for p in self.notebook.parameters.values()}
        return {**defaults, **self.overrides}

    @property
    def injected(self) -> dict[str, Any]:
        """The overrides that change something: without any, no cell is injected."""
        parameters = self.notebook.parameters
        return {
            name: value
            for name, value in self.overrides.items()
            if (type(value), value) != (type(parameters[name].default), parameters[name].default)
        }


@dataclass(frozen=True)
class Plan:
    """What will be run, checked as far as it can be without running it."""

    jobs: tuple[Job, ...]
    device: str
    base: Path
    notes: tuple[str, ...] = ()


def plan(
    wanted: Sequence[str] = (),
    *,
    device_target: str | None = None,
    parameters: Sequence[str] = (),
    start: Path | None = None,
) -> Plan:
    """Find, read and check the notebooks; ``parameters`` are ``name=value``.

    Raises ``Refused``, with a sentence for each notebook that cannot be run.
    """
    given = {assignment.partition("=")[0].strip(): assignment for assignment in parameters}
    if device_target is not None and "device_target" in given:
        raise Refused(
            f"--device-target {device_target} and -p {given['device_target']} both name the device;"
            " give one of them"
        )
    if given.get("device_target", "=").count("=") == 0:
        raise Refused("a parameter is given as name=value, not 'device_target'")
    if "device_target" in given:
        device_target = given["device_target"].partition("=")[2]
    try:
        device = canonical_target("CPU" if device_target is None else device_target)
    except ValueError as error:
        raise Refused(str(error)) from None
    rest = [text for text in parameters if text.partition("=")[0].strip() != "device_target"]

    notebooks: list[Notebook] = []
    wrong: list[str] = []
    for path in catalog.select(wanted, start):
        try:
            notebook = catalog.read(path)
            catalog.check_kernel(notebook.kernel)
            notebooks.append(notebook)
        except Refused as refusal:
            wrong.append(str(refusal))
    if wrong:
        raise Refused("\n".join(dict.fromkeys(wrong)))

    values = catalog.assign(notebooks, [f"device_target={device}", *rest])
    names: list[str] = []
    for notebook in notebooks:
        name, count = notebook.name, 2
        while name in names:
            name, count = f"{notebook.name}-{count}", count + 1
        names.append(name)
    notes = []
    for text in rest:
        parameter = text.partition("=")[0].strip()
        without = [n.name for n in notebooks if parameter not in n.parameters]
        if without:
            notes.append(f"without parameter {parameter}: {', '.join(without)}")
    try:
        base = catalog.find_folder(start).parent
    except Refused:
        base = start or Path.cwd()
    jobs = tuple(
        Job(name, notebook, own)
        for name, notebook, own in zip(names, notebooks, values, strict=True)
    )
    return Plan(jobs, device, base, tuple(notes))


def open_folder(plan: Plan, out: Path | None = None) -> Path:
    """The new, empty folder that takes the results: ``out``, else ``runs/<time>``.

    Raises ``Refused`` where it holds something already or cannot be written.
    """
    try:
        if out is not None:
            folder = out.expanduser().absolute()
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise Refused(f"--out {out} is not empty; name a new folder, or remove that one")
        else:
            folder = _new_folder(plan.base / "runs", datetime.now().strftime("%Y-%m-%d-%H%M%S"))
        with (folder / results.FILE).open("x"):  # taken: a second run into it is refused
            pass
    except FileExistsError:
        raise Refused(f"{folder} is a file, or another run has just taken it") from None
    except OSError as error:
        raise Refused(
            f"the results cannot be written: {error.strerror}: {error.filename}"
        ) from None
    return folder


def run_notebooks(
    plan: Plan,
    folder: Path,
    *,
    jobs: int = 1,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> tuple[Results, int]:
    """Run ``plan`` into ``folder``, ``jobs`` notebooks at a time.

    Returns the results and the signal (0: none) that ended the run early. ``results.json`` is
    rewritten after each notebook; after SIGINT or SIGTERM what runs is stopped and reported, after
    a second one killed.
    """
    run = _Run(plan, folder, max(1, jobs), limits or Limits(), progress)
    return run.run()


def environment(plan: Plan) -> dict[str, Any]:
    """Versions and machine facts that a later reader of the results needs."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    return {
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "versions": versions,
        "revision": _revision(plan.base),
    }


_State = dict[str, tuple[int, int]]  # path -> size in bytes, time of the last change in ns


@dataclass
class _Active:
    """A notebook that is running."""

    job: Job
    result: NotebookResult
    process: subprocess.Popen[bytes]
    pipe: IO[bytes]
    private: Path
    mirrored: _State
    marker: str
    began: float
    received: bytes = b""
    end: dict[str, Any] | None = None
    cell: int | None = None
    moments: dict[str, float] = field(default_factory=dict)
    why: str = ""
    kill_at: float = math.inf


class _Run:
    def __init__(
        self, plan: Plan, folder: Path, jobs: int, limits: Limits, progress: Progress | None
    ) -> None:
        self.plan, self.folder, self.jobs, self.limits = plan, folder, jobs, limits
        self.progress = progress or Progress([job.name for job in plan.jobs])
        self._interrupts: list[int] = []
        self._active: list[_Active] = []
        self._began = time.monotonic()
        self.results = Results(
            plan.device,
            environment(plan),
            datetime.now().astimezone().isoformat(timespec="seconds"),
            [
                NotebookResult(
                    job.name,
                    os.path.relpath(job.notebook.path, plan.base),
                    job.effective,
                    kernel=job.notebook.kernel,
                    cells=len(job.notebook.cells),
                )
                for job in plan.jobs
            ],
            notes=list(plan.notes),
        )

    def run(self) -> tuple[Results, int]:
        waiting = list(zip(self.plan.jobs, self.results.notebooks, strict=True))
        self._write()
        with _signals(self._interrupts.append), selectors.DefaultSelector() as selector:
            try:
                with self.progress.shown():
                    while self._active or (waiting and not self._interrupts):
                        while waiting and len(self._active) < self.jobs and not self._interrupts:
                            active = self._start(*waiting.pop(0))
                            self._active.append(active)
                            selector.register(active.pipe, selectors.EVENT_READ, active)
                        self._step(selector)
            finally:  # only an error of ours comes here with something running
                for active in self._active:
                    self._kill(active)
                    shutil.rmtree(active.private, ignore_errors=True)
        for _, result in waiting:
            result.reason = "not started: the run was interrupted"
        self.results.complete = not self._interrupts
        self._write()
        return self.results, self._interrupts[0] if self._interrupts else 0

    def _step(self, selector: selectors.BaseSelector) -> None:
        for key, _ in selector.select(timeout=0.2):
            active: _Active = key.data
            chunk = os.read(active.pipe.fileno(), 1 << 16)
            if chunk:
                self._receive(active, chunk)
            else:
                selector.unregister(active.pipe)
                active.pipe.close()
        now = time.monotonic()
        for active in list(self._active):
            if active.pipe.closed and active.process.poll() is not None:
                self._active.remove(active)
                self._finish(active)
                continue
            if now - active.began > self.limits.total and not active.why:
                self._stop(active, "timeout")
            if self._interrupts and not active.why:
                self._stop(active, "interrupted")
            if now > active.kill_at or len(self._interrupts) > 1:
                self._kill(active)

    def _start(self, job: Job, result: NotebookResult) -> _Active:
        private = Path(tempfile.mkdtemp(prefix="msnb-run-"))
        marker = f"MSNB_RUN_{uuid.uuid4().hex}"
        written = (self.folder, self.plan.base / "runs")
        mirrored = _mirror(job.notebook.path.parent, private / "work", written)
        for name in ("tmp", "runtime", "ipython"):
            (private / name).mkdir()
        result.log = f"{job.name}.log"
        request = {
            "notebook": str(job.notebook.path),
            "partial": str(self._partial(job)),
            "parameters": job.injected,
            "kernel": job.notebook.kernel,
            "cwd": str(private / "work"),
            "private": str(private),
            "runtime": str(private / "runtime"),
            "start_timeout": math.ceil(self.limits.start),
            "cell_timeout": math.ceil(self.limits.cell),
            # Nobody needs what a kernel does on its way out, but a device other than the CPU may
            # have to be given back.
            "shutdown": "immediate" if self.plan.device == "CPU" else "graceful",
        }
        surroundings = {
            **os.environ,
            marker: "1",
            "TMPDIR": str(private / "tmp"),
            "JUPYTER_RUNTIME_DIR": str(private / "runtime"),
            "IPYTHONDIR": str(private / "ipython"),
        }
        if self.jobs > 1:
            share = max(1, (os.cpu_count() or 1) // self.jobs)
            surroundings.setdefault("OMP_NUM_THREADS", str(share))
        reading, writing = os.pipe()
        with (self.folder / result.log).open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "msnb.regression.execute",
                    str(writing),
                    str(os.getpid()),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=surroundings,
                cwd=private / "tmp",  # -m puts it first on sys.path, where nothing may shadow
                pass_fds=(writing,),
                start_new_session=True,  # a Ctrl-C in the terminal reaches the runner alone
            )
        os.close(writing)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(request).encode())
        self.progress.started(job.name, len(job.notebook.cells))
        pipe = os.fdopen(reading, "rb", buffering=0)
        return _Active(job, result, process, pipe, private, mirrored, marker, time.monotonic())

    def _partial(self, job: Job) -> Path:
        return self.folder / f".{job.name}.partial.ipynb"

    def _receive(self, active: _Active, chunk: bytes) -> None:
        *lines, active.received = (active.received + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            kind = event.pop("event")
            active.moments[kind] = time.monotonic()
            if kind == "cell":
                active.cell = event["number"]
                self.progress.at_cell(active.job.name, event["number"] or 0)
            elif kind == "end":
                active.end = event

    def _stop(self, active: _Active, why: str) -> None:
        active.why = why
        active.kill_at = time.monotonic() + _GRACE
        with contextlib.suppress(ProcessLookupError):
            active.process.terminate()

    def _kill(self, active: _Active) -> None:
        active.kill_at = math.inf
        with contextlib.suppress(ProcessLookupError):
            active.process.kill()
        _kill_marked(active.marker, patience=0)

    def _finish(self, active: _Active) -> None:
        ended = time.monotonic()
        _kill_marked(active.marker)
        job, result = active.job, active.result
        result.seconds = round(ended - active.began, 3)
        result.phases = _phases(active, ended)
        result.left, result.changed = _differences(active.private / "work", active.mirrored)
        shutil.rmtree(active.private, ignore_errors=True)
        end = active.end or {"status": "vanished", "cell": active.cell}
        if active.why and end["status"] != "completed":
            end = {**end, "status": "stopped", "why": active.why}
        document = self._keep(active, end)
        log = self.folder / str(result.log)
        if log.stat().st_size == 0:
            log.unlink()
            result.log = None
        limits = {"cell": math.ceil(self.limits.cell), "total": self.limits.total}
        results.judge(result, document, end, job.notebook.cells, limits)
        self.progress.finished(result)
        self._write()

    def _keep(self, active: _Active, end: dict[str, Any]) -> dict[str, Any] | None:
        """Put the executed notebook in its place, with what papermill says of it put right."""
        partial = self._partial(active.job)
        try:
            document: dict[str, Any] = json.loads(partial.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        finally:
            partial.unlink(missing_ok=True)
        name = f"{active.job.name}.ipynb"
        about = document["metadata"].setdefault("papermill", {})
        about.update(input_path=active.result.source, output_path=name)
        failing = None if end["status"] == "completed" else end.get("cell")
        reached = True
        for number, cell in results.numbered(document):
            told = cell["metadata"].get("papermill", {})
            if failing is not None and reached and number == failing:
                reached, about["exception"] = False, True
                told.update(status="failed", exception=True)
            elif not reached:
                told["status"] = "pending"
        text = json.dumps(document, indent=1, ensure_ascii=False)
        results.write_whole(self.folder / name, text + "\n")
        active.result.executed = name
        return document

    def _write(self) -> None:
        self.results.seconds = round(time.monotonic() - self._began, 3)
        self.results.write(self.folder)


@contextlib.contextmanager
def _signals(note: Callable[[int], None]) -> Iterator[None]:
    """SIGINT and SIGTERM are noted instead of raised, where this is the main thread."""

    def handler(signum: int, frame: FrameType | None) -> None:
        note(signum)

    before = {}
    with contextlib.suppress(ValueError):
        for signum in (signal.SIGINT, signal.SIGTERM):
            before[signum] = signal.signal(signum, handler)
    try:
        yield
    finally:
        for signum, former in before.items():
            signal.signal(signum, former)


_UNSEEN = (-1, -1)  # the state of what is there and not watched


def _mirror(folder: Path, work: Path, written: Sequence[Path] = ()) -> _State:
    """Make ``work`` with all that lies in ``folder``, and return its state.

    A notebook finds the files beside it, as it does in JupyterLab, and what it leaves is its own,
    even where several run at once. Files below 1 MB are copied, 20 MB in all: the reader's own stay
    as they are whatever the notebook does to its copy. Larger ones, and folders that hold one, are
    links: written through, they do change, and the notebook fails by their name. Hidden folders and
    those that hold a path in ``written``, which the runner itself changes, are not watched.
    """
    work.mkdir(parents=True)
    room = _COPIED
    unseen = set()
    entries = [entry for entry in os.scandir(folder) if entry.name not in _LITTER]
    for entry in sorted(entries, key=lambda entry: (entry.is_dir(), entry.name)):
        source, target = Path(entry.path), work / entry.name
        hidden = entry.is_dir() and entry.name.startswith(".")
        if hidden or any(path.resolve().is_relative_to(source.resolve()) for path in written):
            unseen.add(entry.name)
            target.symlink_to(source)
            continue
        size = _size(source, room)
        if size is None:
            target.symlink_to(source)
            continue
        try:
            if entry.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_LITTER))
            else:
                shutil.copy2(source, target)
            room -= size
        except OSError:  # shutil.Error, too: what cannot be read is the notebook's to meet
            shutil.rmtree(target, ignore_errors=True)
            target.unlink(missing_ok=True)
            target.symlink_to(source)
    return _state(work, unseen)


def _below(entry: Path) -> list[Path] | None:
    """``entry`` and all that lies in it, litter apart; ``None`` where that is too much to watch."""
    found = [entry]
    for root, folders, files in os.walk(entry, followlinks=True):
        folders[:] = [name for name in folders if name not in _LITTER]
        found += [Path(root, name) for name in (*folders, *files)]
        if len(found) > _ENTRIES:
            return None
    return found


def _size(entry: Path, room: int) -> int | None:
    """The bytes to copy for a file or a folder; ``None`` where it is to be linked instead."""
    total = 0
    for path in _below(entry) or [Path(os.devnull)]:
        if path.is_symlink() and path != entry:
            return None
        if path.is_dir() and os.access(path, os.W_OK):  # else the copy could not be removed
            continue
        if not path.is_file() or path.stat().st_size >= _SMALL:
            return None
        total += path.stat().st_size
    return total if total <= room else None


def _state(work: Path, unseen: Collection[str] = ()) -> _State:
    """The files and folders in ``work`` and behind its links; of a large folder, itself alone."""
    state = dict.fromkeys(unseen, _UNSEEN)
    for entry in os.scandir(work):
        if entry.name in _LITTER or entry.name in state:
            continue
        below = _below(Path(entry.path))
        for path in below or [Path(entry.path)]:
            about = path.stat() if path.exists() else path.lstat()
            times = below and path.is_dir()  # Python adds a __pycache__ to what it imports
            name = str(path.relative_to(work))
            state[name] = (0, 0) if times else (about.st_size, about.st_mtime_ns)
    return state


def _differences(work: Path, before: _State) -> tuple[list[str], list[str]]:
    """What is new in ``work`` since its state was ``before``, and what changed or is gone."""
    unseen = {name for name, state in before.items() if state == _UNSEEN}
    now = _state(work, unseen)
    changed = sorted(name for name, state in before.items() if now.get(name) != state)
    return sorted(now.keys() - before.keys()), changed


def _kill_marked(marker: str, patience: float = 2.0) -> None:
    """End the processes that inherited ``marker`` in their environment, whoever started them."""
    import psutil

    def marked() -> list[psutil.Process]:
        return [
            process
            for process in psutil.process_iter(["environ"])
            if marker in (process.info["environ"] or {})
            and process.status() != psutil.STATUS_ZOMBIE
        ]

    deadline = time.monotonic() + patience
    while (left := _quietly(marked)) and time.monotonic() < deadline:
        time.sleep(0.05)  # resource trackers and pools end by themselves once their owner has
    for process in left or ():
        with contextlib.suppress(psutil.Error):
            process.kill()


def _quietly(look: Callable[[], list[Any]]) -> list[Any]:
    import psutil

    try:
        return look()
    except psutil.Error:  # a process ended while we looked
        return look()


def _phases(active: _Active, ended: float) -> dict[str, float]:
    ready = active.moments.get("ready")
    done = active.moments.get("end", ended)
    if ready is None:
        return {"start": round(done - active.began, 3)}
    return {
        "start": round(ready - active.began, 3),
        "cells": round(done - ready, 3),
        "end": round(ended - done, 3),
    }


def _new_folder(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    count = 1
    while True:
        folder = parent / (name if count == 1 else f"{name}-{count}")
        try:
            folder.mkdir()
        except FileExistsError:
            count += 1
            continue
        return folder


def _revision(folder: Path) -> str:
    """The git revision of ``folder``, with ``+`` where files differ from it; empty without git."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()
