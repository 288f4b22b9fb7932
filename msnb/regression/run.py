"""The run as a whole: refuse or plan, execute some at a time, judge, keep, leave nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
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

from msnb.regression import catalog, moved, results, shares
from msnb.regression.catalog import Notebook, Refused
from msnb.regression.hidden import Hidden
from msnb.regression.progress import Progress
from msnb.regression.results import NotebookResult, Results
from msnb.targets import canonical_target

_GRACE = 10.0  # seconds between asking an executing process to stop and killing it
_LITTER = {"__pycache__", ".ipynb_checkpoints"}  # Python's and Jupyter's own, ignored by git
_SMALL = 1_000_000  # bytes of a file that is copied for a notebook; a larger one is linked
_COPIED = 20_000_000  # bytes that are copied for one notebook in all
_ENTRIES = 1_000  # files and folders below one entry that are looked at
_LOG = 1_000_000  # characters of a log that are kept, from its end
_FULL = 0.9  # of the memory: what all notebooks may take together
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
    """What a notebook may take: seconds to start its kernel, for one cell and in all; memory.

    ``memory`` is in GB, of the kernel and all that it started; without it, nine tenths of what the
    machine or container has are the limit of all notebooks together.
    """

    start: float = 60
    cell: float = 300
    total: float = 900
    memory: float | None = None

    def __post_init__(self) -> None:
        if self.memory is not None and not 0.1 <= self.memory < math.inf:
            raise Refused(f"the memory limit is 0.1 GB or more, and finite, not {self.memory:g}")
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
    devices: tuple[int, ...] = ()  # Ascend devices to share out; empty: leave them alone


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
    devices: tuple[int, ...] = ()
    if device in ("Ascend", "auto"):
        try:
            devices = shares.devices()
        except ValueError as error:
            raise Refused(str(error)) from None
    return Plan(jobs, device, base, tuple(notes), devices)


@dataclass
class RunFolder:
    """The folder that takes a run's results, held by this process alone, and what was in it."""

    path: Path
    former: Results | None = None
    lock: int = -1


def open_folder(plan: Plan, out: Path | None = None, *, resume: bool = False) -> RunFolder:
    """The folder that takes the results: ``out``, else ``runs/<time>``, new and empty.

    With ``resume`` it is ``out`` again, else the newest run of the same notebooks with the same
    parameters; where there is none, a new one.

    Raises ``Refused`` where it holds something else, another run writes to it, or it cannot be
    written.
    """
    try:
        if out is not None:
            folder = out.expanduser().absolute()
            folder.mkdir(parents=True, exist_ok=True)
        else:
            earlier = _newest_like(plan) if resume else None
            folder = earlier or _new_folder(
                plan.base / "runs", datetime.now().strftime("%Y-%m-%d-%H%M%S")
            )
        opened = RunFolder(folder, lock=_lock(folder))
        if resume and any(folder.iterdir()):
            opened.former = _former(plan, folder)
            for torn in folder.glob(".*.tmp"):  # left by a run that was killed as it wrote
                torn.unlink()
        elif any(folder.iterdir()):
            raise Refused(
                f"--out {out} is not empty; name a new folder, or type --resume to go on with the "
                "run in it"
            )
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, os.strerror(13), str(folder))
    except (FileExistsError, NotADirectoryError):
        raise Refused(f"{folder} is a file") from None
    except OSError as error:
        raise Refused(
            f"the results cannot be written: {error.strerror}: {error.filename}"
        ) from None
    return opened


def _lock(folder: Path) -> int:
    """Hold ``folder`` until this process ends, however it does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Refused(f"another run is writing to {folder}") from None
    except OSError:  # a network disk without locks: the check for an empty folder remains
        pass
    return handle


def _former(plan: Plan, folder: Path) -> Results | None:
    """The results of the earlier run in ``folder``; ``None`` where it came to none."""
    if not (folder / results.FILE).exists():
        if [path for path in folder.iterdir() if not path.name.startswith(f".{results.FILE}.")]:
            raise Refused(f"{folder} holds no results.json: it is not the folder of a run")
        return None
    try:
        former = Results.read(folder)
    except ValueError as error:
        raise Refused(f"cannot go on with that run: {error}") from None
    if not _alike(plan, former):
        were = ", ".join(result.notebook for result in former.notebooks)
        raise Refused(
            f"the run in {folder} was of {were} on {former.device}, with other notebooks or "
            "parameters than now: name the same, or a new folder"
        )
    return former


def _newest_like(plan: Plan) -> Path | None:
    for folder in sorted((plan.base / "runs").glob("*/"), reverse=True):
        with contextlib.suppress(ValueError):
            if _alike(plan, Results.read(folder)):
                return folder
    return None


def _alike(plan: Plan, former: Results) -> bool:
    """Whether ``former`` is a run of the same notebooks on the same device, set up alike."""
    hidden = _hidden(plan)
    now = [(_source(plan, job), hidden.in_parameters(job.effective)) for job in plan.jobs]
    then = [(result.source, result.parameters) for result in former.notebooks]
    return plan.device == former.device and now == then


def _hidden(plan: Plan) -> Hidden:
    given: dict[str, Any] = {}
    for job in plan.jobs:  # all have the same values from the command line; defaults may differ
        for name, value in job.effective.items():
            given[name] = [*given.get(name, []), value]
    return Hidden(given)


def _source(plan: Plan, job: Job) -> str:
    return os.path.relpath(job.notebook.path, plan.base)


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
) -> Outcome:
    """Run ``plan`` into ``folder``, ``jobs`` notebooks at a time.

    ``results.json`` is rewritten after each notebook. What an earlier run into the folder found is
    kept where notebook, parameters and environment are still the same. After SIGINT or SIGTERM what
    runs is stopped and reported, after a second one killed. Where the results cannot be written
    any more, it ends with ``trouble``; the file then holds what it held before.
    """
    run = _Run(plan, folder, max(1, jobs), limits or Limits(), progress)
    return run.run()


def environment(plan: Plan) -> dict[str, Any]:
    """The doctor's facts and those of the run that a later reader of the results needs."""
    from msnb.environment.facts import gather

    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    revision, dirty = _revision(plan.base)
    facts = _without_the_account(gather(plan.device, probe=False))
    return {
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "platform": platform.platform(),
        "cores": shares.cores(),
        "memory": _memory(),
        "versions": versions,
        "revision": revision,
        "dirty": dirty,
        "package": _package(),
        "facts": facts,
    }


_TOLD = ("schema", "target", "python", "distributions", "requirements", "kernelspecs")
_TOLD_OF_ASCEND = ("cann", "driver", "firmware", "npu_smi", "nodes", "container", "accepted")


def _without_the_account(facts: dict[str, Any]) -> dict[str, Any]:
    """Of the doctor's facts those that say nothing of who ran it, and no variable's value."""
    told = {name: facts[name] for name in _TOLD if name in facts}
    ascend = facts.get("ascend") or {}
    told["ascend"] = {name: ascend[name] for name in _TOLD_OF_ASCEND if name in ascend}
    told["variables"] = sorted(facts.get("variables") or ())
    return told


def still_valid(result: NotebookResult, job: Job, folder: Path, beside: str) -> str:
    """Why what an earlier run found for ``job`` does not hold; empty where it does."""
    if not result.decided:
        return result.reason
    if result.fingerprint != _fingerprint(job, beside):
        return "the notebook, or a file beside it, changed"
    if result.executed and not (folder / result.executed).is_file():
        return f"{result.executed} is gone"
    return ""


_State = dict[str, tuple[int, int]]  # path -> size in bytes, time of the last change in ns


@dataclass
class _Active:
    """A notebook that is running."""

    job: Job
    result: NotebookResult
    process: subprocess.Popen[bytes]
    pipe: IO[bytes]
    private: Path
    devices: tuple[int, ...]
    mirrored: _State
    marker: str
    began: float
    received: bytes = b""
    end: dict[str, Any] | None = None
    cell: int | None = None
    moments: dict[str, float] = field(default_factory=dict)
    why: str = ""
    kill_at: float = math.inf
    memory: str = ""  # what it took, where that was too much


class _Run:
    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        jobs: int,
        limits: Limits,
        progress: Progress | None,
    ) -> None:
        self.plan, self.folder, self.jobs, self.limits = plan, folder.path, jobs, limits
        self.hidden = _hidden(plan)
        self._interrupts: list[int] = []
        self._active: list[_Active] = []
        self._began = time.monotonic()
        self._looked = self._began
        self._memory = _memory()
        self._free = list(plan.devices)
        beside = {job.notebook.path.parent: "" for job in plan.jobs}
        self._beside = {path: _beside(path) for path in beside}
        found = self.hidden.in_json(environment(plan))
        self.results = Results(
            plan.device,
            found,
            datetime.now().astimezone().isoformat(timespec="seconds"),
            [
                NotebookResult(
                    job.name,
                    _source(plan, job),
                    self.hidden.in_parameters(job.effective),
                    kernel=job.notebook.kernel,
                    cells=len(job.notebook.cells),
                    fingerprint=_fingerprint(job, self._beside[job.notebook.path.parent]),
                )
                for job in plan.jobs
            ],
            notes=list(plan.notes),
        )
        if folder.former is not None:
            self._keep_former(folder.former)
        names = [result.notebook for result in self.results.notebooks if not result.kept]
        self.progress = progress or Progress(names)

    def _keep_former(self, former: Results) -> None:
        """Take over what still holds of an earlier run, and say what does not, and why."""
        changes = moved.facts(*map(_decisive, (former.environment, self.results.environment)))
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

    def run(self) -> Outcome:
        waiting = [
            pair
            for pair in zip(self.plan.jobs, self.results.notebooks, strict=True)
            if not pair[1].kept
        ]
        trouble = ""
        with _signals(self._interrupts.append), selectors.DefaultSelector() as selector:
            try:
                self._write()
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
                    shutil.rmtree(active.private, ignore_errors=True)
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
        for key, _ in selector.select(timeout=0.2):
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
        used = {id(active): _resident(active.process.pid) for active in self._active}
        allowed = self.limits.memory
        greedy = [a for a in self._active if allowed is not None and used[id(a)] > allowed * 1e9]
        said = f"more than {allowed:g} GB of memory" if allowed is not None else ""
        if not greedy and self._memory and sum(used.values()) > _FULL * self._memory:
            greedy = [max(self._active, key=lambda active: used[id(active)])]
            said = f"{used[id(greedy[0])] / 1e9:.1f} of {self._memory / 1e9:.1f} GB of memory"
        for active in greedy:
            if not active.why:
                active.memory = said
                self._stop(active, "memory")

    def _start(self, job: Job, result: NotebookResult, devices: tuple[int, ...]) -> _Active:
        private = Path(tempfile.mkdtemp(prefix="msnb-run-"))
        marker = f"MSNB_RUN_{uuid.uuid4().hex}"
        written = (self.folder, self.plan.base / "runs")
        mirrored = _mirror(job.notebook.path.parent, private / "work", written)
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
            **os.environ,
            marker: "1",
            "TMPDIR": str(private / "tmp"),
            "JUPYTER_RUNTIME_DIR": str(private / "runtime"),
            "IPYTHONDIR": str(private / "ipython"),
        }
        if self.jobs > 1 and self.plan.device == "CPU":
            together = min(self.jobs, len(self.plan.jobs))
            result.share = {"threads": shares.threads(together)}
            for name in shares.THREADS:
                surroundings.setdefault(name, str(result.share["threads"]))
        if devices:
            result.share = {"devices": list(devices)}
            surroundings[shares.VISIBLE] = ",".join(map(str, devices))
        reading, writing = os.pipe()
        with (private / "log").open("wb") as log:
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
        began = time.monotonic()
        return _Active(job, result, process, pipe, private, devices, mirrored, marker, began)

    def _receive(self, active: _Active, chunk: bytes) -> None:
        *lines, active.received = (active.received + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            kind = event.pop("event")
            active.moments[kind] = time.monotonic()
            if kind == "cell":
                active.cell = event["number"]
                self.progress.at_cell(active.job.name, event["number"] or 0)
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
        _kill_marked(active.marker, patience=0)

    def _finish(self, active: _Active) -> None:
        ended = time.monotonic()
        _kill_marked(active.marker)
        job, result = active.job, active.result
        result.seconds = round(ended - active.began, 3)
        result.phases = _phases(active, ended)
        result.left, result.changed = _differences(active.private / "work", active.mirrored)
        end = active.end or {"status": "vanished", "cell": active.cell}
        if active.why and end["status"] != "completed":
            end = {**end, "status": "stopped", "why": active.why, "memory": active.memory}
        end = self.hidden.in_json(end)
        document = self._document(active)
        limits = {"cell": math.ceil(self.limits.cell), "total": self.limits.total}
        results.judge(result, document, end, job.notebook.cells, limits)
        self.progress.finished(result)
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


def _revision(folder: Path) -> tuple[str, bool | None]:
    """The git revision of ``folder``, and whether files differ from it; empty without git."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**clean, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return "", None


def _package() -> str:
    """A fingerprint of msnb itself: what judged a notebook, and what the notebook imported."""
    folder = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _beside(folder: Path) -> str:
    """A fingerprint of the files beside a notebook that is not one: small ones by content."""
    found = hashlib.sha256()
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name in _LITTER or entry.suffix == ".ipynb":
            continue
        for path in sorted(_below(entry) or [entry]):
            if not path.is_file():
                continue
            about = path.stat()
            small = about.st_size < _SMALL
            content = path.read_bytes() if small else str(about.st_mtime_ns).encode()
            found.update(f"{path.relative_to(folder)}\0{about.st_size}\0".encode() + content)
    return found.hexdigest()


def _fingerprint(job: Job, beside: str) -> str:
    return hashlib.sha256(f"{job.notebook.fingerprint} {beside}".encode()).hexdigest()


def _decisive(environment: dict[str, Any]) -> dict[str, Any]:
    """What of an environment has to be the same for an earlier result to hold."""
    return {
        "environment": moved.stable(environment.get("facts", {})),
        **{name: environment.get(name) for name in ("python", "interpreter", "versions")},
        "msnb": environment.get("package"),
    }


def _memory() -> int:
    """Bytes of memory that this machine, or this container, has."""
    import psutil

    found = int(psutil.virtual_memory().total)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            found = min(found, int(Path("/sys/fs/cgroup", name).read_text()))
    return found


def _resident(pid: int) -> int:
    """Bytes of memory that a process and its descendants hold."""
    import psutil

    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss
    return total
