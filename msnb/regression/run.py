"""The run as a whole: execute some at a time, judge, keep, leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import IO, Any

from msnb.regression import beside, machine, moved, results, shares, warm
from msnb.regression.catalog import kernelspec
from msnb.regression.folder import (
    RunFolder,
    decisive,
    fingerprint,
    seconds_before,
    still_valid,
)
from msnb.regression.planning import Job, Limits, Plan
from msnb.regression.progress import Progress
from msnb.regression.results import NotebookResult, Results

_GRACE = 10.0  # seconds between asking an executing process to stop and killing it
_LOG = 1_000_000  # characters of a log that are kept, from its end
_FULL = 0.9  # of the memory: what all notebooks may take together


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its results, the signal (0: none) that ended it, and what broke it."""

    results: Results
    signal: int = 0
    trouble: str = ""


def run_notebooks(
    plan: Plan,
    folder: RunFolder,
    *,
    jobs: int = 1,
    limits: Limits | None = None,
    progress: Progress | None = None,
    kernels: str = "auto",
) -> Outcome:
    """Run ``plan`` into ``folder``, ``jobs`` notebooks at a time.

    ``kernels`` are ``fresh`` processes, or ``warm``: forked from one that has imported the
    frameworks. ``auto`` is warm on the CPU, where more notebooks wait than can run at a time.

    ``results.json`` is rewritten after each notebook. What an earlier run into the folder found is
    kept where notebook, parameters and environment are still the same. After SIGINT or SIGTERM what
    runs is stopped and reported, after a second one killed. Where the results cannot be written
    any more, it ends with ``trouble``; the file then holds what it held before.
    """
    run = _Run(plan, folder, max(1, jobs), limits or Limits(), progress, kernels)
    return run.run()


@dataclass
class _Active:
    """A notebook that is running."""

    job: Job
    result: NotebookResult
    process: subprocess.Popen[bytes] | warm.Forked
    request: IO[bytes]  # its standard input: it ends when we do
    pipe: IO[bytes]
    private: Path
    devices: tuple[int, ...]
    mirrored: beside.State
    marker: str
    began: float
    received: bytes = b""
    end: dict[str, Any] | None = None
    cell: int | None = None
    moments: dict[str, float] = field(default_factory=dict)
    why: str = ""
    kill_at: float = math.inf
    memory: str = ""  # what it took, where that was too much
    kernels: list[int] = field(default_factory=list)

    @property
    def sessions(self) -> set[int]:
        """Those of its processes: each kernel, and what executes it, leads one."""
        return {self.process.pid, *self.kernels}


class _Run:
    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        jobs: int,
        limits: Limits,
        progress: Progress | None,
        kernels: str = "auto",
    ) -> None:
        self.plan, self.folder, self.jobs, self.limits = plan, folder.path, jobs, limits
        self.hidden = plan.hidden()
        self._interrupts: list[int] = []
        self._active: list[_Active] = []
        self._began = time.monotonic()
        self._looked = self._began
        self._memory = machine.memory()
        self._free = list(plan.devices)
        folders = {job.notebook.path.parent for job in plan.jobs}
        self._beside = {path: beside.fingerprint(path) for path in folders}
        found = self.hidden.in_json(machine.environment(plan.device, plan.base))
        self.results = Results(
            plan.device,
            found,
            datetime.now().astimezone().isoformat(timespec="seconds"),
            [
                NotebookResult(
                    job.name,
                    plan.source(job),
                    self.hidden.in_parameters(job.effective),
                    kernel=job.notebook.kernel,
                    cells=len(job.notebook.cells),
                    fingerprint=fingerprint(job, self._beside[job.notebook.path.parent]),
                )
                for job in plan.jobs
            ],
            notes=list(plan.notes),
        )
        if folder.former is not None:
            self._keep_former(folder.former)
        for job, result in zip(plan.jobs, self.results.notebooks, strict=True):
            if why := job.notebook.too_old(str(found["versions"].get("mindspore", ""))):
                result.verdict, result.reason = "skipped", why
        names = [result.notebook for result in self.results.notebooks if result.waits]
        self.progress = progress or Progress(names)
        self.warm = kernels == "warm" or (
            kernels == "auto" and plan.device == "CPU" and len(names) > jobs
        )
        self._nursery: warm.Nursery | None = None
        self._nursery_folder: Path | None = None

    def _keep_former(self, former: Results) -> None:
        """Take over what still holds of an earlier run, and say what does not, and why."""
        changes = moved.facts(*map(decisive, (former.environment, self.results.environment)))
        again = []
        for position, (job, old) in enumerate(zip(self.plan.jobs, former.notebooks, strict=True)):
            why = still_valid(
                old, job, self.folder, self._beside[job.notebook.path.parent]
            ) or ", ".join(f"{change.where} changed" for change in changes[:3])
            if why:
                again.append(f"again {job.name}: {why}")
                for name in {old.executed, old.log} - {None}:
                    (self.folder / str(name)).unlink(missing_ok=True)
            else:
                old.kept = True
                self.results.notebooks[position] = old
        kept = [result.notebook for result in self.results.notebooks if result.kept]
        self.results.notes += [f"kept from before: {', '.join(kept)}"] * bool(kept) + again

    def _longest_first(self, waiting: list[tuple[Job, NotebookResult]]) -> None:
        """By what they took in an earlier run, else by how many cells they have."""
        known = seconds_before(self.plan)
        measured = [result for _, result in waiting if result.source in known]
        cells = sum(result.cells for result in measured)
        a_cell = sum(known[result.source] for result in measured) / cells if cells else 1.0
        waiting.sort(key=lambda pair: -known.get(pair[1].source, a_cell * pair[1].cells))

    def run(self) -> Outcome:
        waiting = [
            pair
            for pair in zip(self.plan.jobs, self.results.notebooks, strict=True)
            if pair[1].waits
        ]
        trouble = ""
        with _signals(self._interrupts.append), selectors.DefaultSelector() as selector:
            try:
                self._write()
                for note in self.results.notes[len(self.plan.notes) :]:
                    self.progress.note(note)
                self._open_nursery(waiting)
                if self.jobs > 1:
                    self._longest_first(waiting)
                with self.progress.shown():
                    while self._active or (waiting and not self._interrupts):
                        self._start_what_fits(waiting, selector)
                        self._step(selector)
            except OSError as error:
                where = error.filename or self.folder
                trouble = f"the results cannot be written: {error.strerror}: {where}"
            finally:  # only trouble and an error of ours come here with something running
                for active in self._active:
                    self._kill(active)
                    if not active.result.decided:
                        active.result.reason = "stopped: the run ended early"
                    active.request.close()
                    shutil.rmtree(active.private, ignore_errors=True)
                self._close_nursery()
        why = "the run was interrupted" if self._interrupts else "the run ended early"
        for _, result in waiting:
            result.reason = f"not started: {why}"
        self.results.complete = not self._interrupts and not trouble
        try:
            self._write()
        except OSError as error:
            where = error.filename or self.folder
            trouble = trouble or f"the results cannot be written: {error.strerror}: {where}"
        return Outcome(self.results, self._interrupts[0] if self._interrupts else 0, trouble)

    def _start_what_fits(
        self, waiting: list[tuple[Job, NotebookResult]], selector: selectors.BaseSelector
    ) -> None:
        if not self._nursery_settled():
            return
        while waiting and len(self._active) < self.jobs and not self._interrupts:
            position, devices = 0, tuple[int, ...]()
            if self.plan.devices and self.jobs > 1:
                needs = [shares.needed(job.effective) for job, _ in waiting]
                placed = shares.place(needs, self._free, len(self.plan.devices))
                if placed is None:
                    return
                position, devices = placed
                self._free = [device for device in self._free if device not in devices]
            active = self._start(*waiting[position], devices)
            del waiting[position]
            self._active.append(active)
            selector.register(active.pipe, selectors.EVENT_READ, active)

    def _step(self, selector: selectors.BaseSelector) -> None:
        for key, _ in selector.select(timeout=0.2 if self._active else 0.02):
            active: _Active = key.data
            chunk = os.read(active.pipe.fileno(), 1 << 16)
            if chunk:
                self._receive(active, chunk)
            else:
                selector.unregister(active.pipe)
                active.pipe.close()
        now = time.monotonic()
        if now - self._looked > 0.5:
            self._looked = now
            self._look_at_memory()
        for active in list(self._active):
            if active.pipe.closed and active.process.poll() is not None:
                if (active.end or {}).get("status") == "unfit" and not active.why:
                    self._again(active, selector)
                    self._active.remove(active)
                    continue
                self._finish(active)
                self._active.remove(active)
                self._free = sorted({*self._free, *active.devices}, key=self.plan.devices.index)
                continue
            if now - active.began > self.limits.total and not active.why:
                self._stop(active, "timeout")
            if self._interrupts and not active.why:
                self._stop(active, "interrupted")
            if now > active.kill_at or len(self._interrupts) > 1:
                self._kill(active)

    def _look_at_memory(self) -> None:
        allowed = self.limits.memory
        least = min(1e9 * (allowed or math.inf), _FULL * (self._memory or math.inf))
        used = {id(active): machine.resident(*active.sessions) for active in self._active}
        if sum(used.values()) <= least:
            return
        used = {
            id(active): machine.resident(*active.sessions, exact=True) for active in self._active
        }
        greedy = [a for a in self._active if allowed is not None and used[id(a)] > allowed * 1e9]
        said = f"more than {allowed:g} GB of memory" if allowed is not None else ""
        if not greedy and self._memory and sum(used.values()) > _FULL * self._memory:
            greedy = [max(self._active, key=lambda active: used[id(active)])]
            said = f"{used[id(greedy[0])] / 1e9:.1f} of {self._memory / 1e9:.1f} GB of memory"
        for active in greedy:
            if not active.why:
                active.memory = said
                self._stop(active, "memory")

    def _again(self, active: _Active, selector: selectors.BaseSelector) -> None:
        """From the start, with a fresh kernel, in a folder that the forked one has not touched."""
        active.request.close()
        machine.kill_marked(active.marker, active.sessions)
        for note in warm.notes(active.private / _NOTES):
            self._note(f"{active.job.name}: {note}")
        shutil.rmtree(active.private, ignore_errors=True)
        fresh = self._start(active.job, active.result, active.devices, fresh=True)
        self._active.append(fresh)
        selector.register(fresh.pipe, selectors.EVENT_READ, fresh)

    def _start(
        self,
        job: Job,
        result: NotebookResult,
        devices: tuple[int, ...],
        *,
        fresh: bool = False,
    ) -> _Active:
        private = Path(tempfile.mkdtemp(prefix="msnb-run-"))
        marker = f"MSNB_RUN_{uuid.uuid4().hex}"
        written = (self.folder, self.plan.base / "runs")
        mirrored = beside.mirror(job.notebook.path.parent, private / "work", written)
        for name in ("tmp", "runtime", "ipython"):
            (private / name).mkdir()
        request = {
            "notebook": str(job.notebook.path),
            "partial": str(private / _PARTIAL),
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
            **self._shared_environment(),
            marker: "1",
            "TMPDIR": str(private / "tmp"),
            "JUPYTER_RUNTIME_DIR": str(private / "runtime"),
            "IPYTHONDIR": str(private / "ipython"),
        }
        if fresh:
            surroundings.pop(warm.ADDRESS, None)
        if self._nursery is not None:
            surroundings[warm.NOTES] = str(private / _NOTES)
        if self._threads is not None:
            result.share = {"threads": self._threads}
        if devices:
            result.share = {"devices": list(devices)}
            surroundings[shares.VISIBLE] = ",".join(map(str, devices))
        reading, writing = os.pipe()
        # -m puts the working folder first on sys.path, where nothing may shadow
        process, asking = self._execute(surroundings, private / "tmp", private / "log", writing)
        os.close(writing)
        with contextlib.suppress(BrokenPipeError):
            asking.write(json.dumps(request).encode() + b"\n")
        self.progress.started(job.name, len(job.notebook.cells))
        pipe = os.fdopen(reading, "rb", buffering=0)
        began = time.monotonic()
        return _Active(
            job, result, process, asking, pipe, private, devices, mirrored, marker, began
        )

    @property
    def _threads(self) -> int | None:
        """The threads of each notebook, where several share the cores."""
        if self.jobs == 1 or self.plan.device not in ("CPU", "auto") or self.plan.devices:
            return None
        return shares.threads(min(self.jobs, len(self.plan.jobs)))

    def _shared_environment(self) -> dict[str, str]:
        """What all notebooks find in their environment."""
        surroundings = dict(os.environ)
        if self._threads is not None:
            for name in shares.THREADS:
                surroundings.setdefault(name, str(self._threads))
        if self._nursery is not None:
            surroundings |= self._nursery.variables
        return surroundings

    def _execute(
        self, env: dict[str, str], cwd: Path, log: Path, writing: int
    ) -> tuple[subprocess.Popen[bytes] | warm.Forked, IO[bytes]]:
        """Start the process that executes one notebook, and the pipe to ask it through."""
        command = [sys.executable, "-m", "msnb.regression.execute"]
        answering, asking = os.pipe()
        request = os.fdopen(asking, "wb", buffering=0)
        try:
            with log.open("wb") as file:
                if self._nursery is not None:
                    try:
                        descriptors = {0: answering, 1: file.fileno(), 2: file.fileno(), 3: writing}
                        return (
                            warm.Forked(
                                str(self._nursery.address),
                                [*command, "3"],
                                env=env,
                                cwd=cwd,
                                descriptors=descriptors,
                            ),
                            request,
                        )
                    except (warm.Refused, OSError) as why:
                        self._note(f"a fresh process: {why}")
                        if isinstance(why, warm.Hung | OSError):
                            self._close_nursery(kill=True)
                            env = {k: v for k, v in env.items() if k != warm.ADDRESS}
                return (
                    subprocess.Popen(
                        [*command, str(writing)],
                        stdin=answering,
                        stdout=file,
                        stderr=file,
                        env=env,
                        cwd=cwd,
                        pass_fds=(writing,),
                        start_new_session=True,  # Ctrl-C in the terminal reaches the runner alone
                    ),
                    request,
                )
        finally:
            os.close(answering)

    def _open_nursery(self, waiting: list[tuple[Job, NotebookResult]]) -> None:
        if not self.warm or not waiting:
            return
        try:
            self._nursery_folder = Path(tempfile.mkdtemp(prefix="msnb-nursery-"))
            spec = kernelspec(waiting[0][0].notebook.kernel)
            env = self._shared_environment() | spec.env
            self._nursery = warm.Nursery(self._nursery_folder, spec.argv[0], env)
        except (warm.Refused, OSError) as why:
            self._note(f"fresh kernels: {why}")
            self._close_nursery()

    def _nursery_settled(self) -> bool:
        """Whether notebooks can start: the nursery is ready, or there is none."""
        if self._nursery is None:
            return True
        try:
            return self._nursery.ready
        except warm.Refused as why:
            self._note(f"fresh kernels: {why}")
            self._close_nursery()
            return True

    def _close_nursery(self, *, kill: bool = False) -> None:
        if self._nursery is not None:
            self._nursery.stop(kill=kill)
            self._nursery = None
        if self._nursery_folder is not None:
            shutil.rmtree(self._nursery_folder, ignore_errors=True)
            self._nursery_folder = None

    def _note(self, text: str) -> None:
        if text not in self.results.notes:
            self.results.notes.append(text)
            self.progress.note(text)

    def _receive(self, active: _Active, chunk: bytes) -> None:
        *lines, active.received = (active.received + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            kind = event.pop("event")
            active.moments[kind] = time.monotonic()
            if kind == "cell":
                active.cell = event["number"]
                self.progress.at_cell(active.job.name, event["number"] or 0)
            elif kind == "kernel":
                active.kernels.append(event["pid"])
                active.result.forked = event["forked"]
            elif kind == "ready":
                active.result.interpreter = event["interpreter"]
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
        machine.kill_marked(active.marker, active.sessions, patience=0)

    def _finish(self, active: _Active) -> None:
        ended = time.monotonic()
        active.request.close()
        machine.kill_marked(active.marker, active.sessions)
        job, result = active.job, active.result
        result.seconds = round(ended - active.began, 3)
        result.phases = _phases(active, ended)
        result.left, result.changed = beside.differences(active.private / "work", active.mirrored)
        end = active.end or {"status": "vanished", "cell": active.cell}
        if active.why and end["status"] != "completed":
            end = {**end, "status": "stopped", "why": active.why, "memory": active.memory}
        end = self.hidden.in_json(end)
        document = self._document(active)
        limits = {"cell": math.ceil(self.limits.cell), "total": self.limits.total}
        results.judge(result, document, end, job.notebook.cells, limits)
        self.progress.finished(result)
        for note in warm.notes(active.private / _NOTES):
            self._note(note)
        try:
            if document is not None:
                self._keep(active, document, end)
            self._keep_log(active)
        finally:
            shutil.rmtree(active.private, ignore_errors=True)
        self._write()

    def _document(self, active: _Active) -> dict[str, Any] | None:
        """The executed notebook, with what is to be hidden hidden; ``None`` where it has none."""
        try:
            text = (active.private / _PARTIAL).read_text(encoding="utf-8")
            document: dict[str, Any] = self.hidden.in_json(json.loads(text))
        except (OSError, ValueError):
            return None
        for cell in document["cells"]:
            if {"parameters", "injected-parameters"} & set(cell["metadata"].get("tags", ())):
                source = cell["source"]
                source = source if isinstance(source, str) else "".join(source)
                cell["source"] = self.hidden.in_source(source)
        return document

    def _keep_log(self, active: _Active) -> None:
        with (active.private / "log").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG))
            text = file.read().decode("utf-8", "replace")
        if text.strip():
            name = f"{active.job.name}.log"
            results.write_whole(self.folder / name, self.hidden.in_text(text))
            active.result.log = name

    def _keep(self, active: _Active, document: dict[str, Any], end: dict[str, Any]) -> None:
        """Put the executed notebook in its place, with what papermill says of it put right."""
        name = f"{active.job.name}.ipynb"
        about = document["metadata"].setdefault("papermill", {})
        about.update(input_path=active.result.source, output_path=name)
        if "parameters" in about:
            about["parameters"] = self.hidden.in_parameters(about["parameters"])
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


_PARTIAL = "executed.ipynb"
_NOTES = "notes"


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
