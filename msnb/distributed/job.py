"""``launch()``: a script on several ranks, watched, with a Report at the end.

The ranks are started directly, with the environment that MindSpore's own launcher ``msrun`` gives
them (its "dynamic cluster": a scheduler process, ``MS_ROLE``, ``MS_WORKER_NUM``, ``MS_SCHED_HOST``,
``MS_SCHED_PORT``, ``MS_NODE_ID``, ``MS_TOPO_TIMEOUT``; documented at mindspore.cn under "Dynamic
Cluster Startup" and the same from 2.7.2 to 2.10), not through ``msrun``: a direct child's exit code
is known at once, ``msrun`` hides it behind the scheduler's time-outs of 40 to 60 seconds, hangs on
a taken port, and takes the first ``python`` on PATH. A two-process job is also over in about half
the time, since the ranks retry their connections every second and nobody waits for the scheduler.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, SupportsFloat, TextIO

from msnb.distributed import script as scripts
from msnb.distributed import verdict
from msnb.isolate import checked_environment
from msnb.regression import shares
from msnb.report import Check, Report
from msnb.targets import canonical_target

PORT = 8118  # msrun's default, for several hosts, which must agree on one
_REPORTS, _LOGS = "reports", "mindspore_log"  # folders in the job's own
_KEPT = 1 << 20  # bytes of a rank's output that a Job holds: the last ones
_ENDING = 15.0  # seconds the watcher has to end everything


@dataclass(frozen=True)
class Job:
    """How a launched job ended.

    ``report`` judges it: a Check for each rank and for the job, and what the ranks' own checks
    found. ``log_dir`` holds ``rank_N.out``, ``rank_N.err`` and ``scheduler.err``. ``exit_codes``,
    ``stdout`` and ``stderr`` map a rank of this machine that was started to its exit code
    (negative: the signal that ended it) and to the last megabyte of its output. ``seconds`` is
    wall-clock time.
    """

    report: Report
    log_dir: Path
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    stdout: Mapping[int, str] = field(default_factory=dict, repr=False)
    stderr: Mapping[int, str] = field(default_factory=dict, repr=False)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the Report is ok."""
        return self.report.ok


def launch(
    script: str | os.PathLike[str],
    *,
    world_size: int,
    device_target: str = "CPU",
    timeout: float = 300.0,
    start_timeout: float = 20.0,
    args: Sequence[str] = (),
    env: Mapping[str, str | None] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    hosts: Sequence[str] | None = None,
    node_rank: int | None = None,
    master_port: int | None = None,
    progress: bool = True,
) -> Job:
    """Run ``script`` on ``world_size`` ranks and say how it ended.

    Each rank is a process of this Python that sees what ``msrun`` would give it (``RANK_ID``,
    ``RANK_SIZE``, ``DEVICE_ID``, ``MS_ROLE``, ...) and ``MSNB_DEVICE_TARGET``, so that a script can
    begin with ``msnb.setup(os.environ["MSNB_DEVICE_TARGET"])``. ``timeout`` (seconds) ends the job
    and all that it started, whatever it does; ``start_timeout`` is how long ranks wait for each
    other in ``init()``. One failed rank ends the job within seconds. ``args`` are the script's
    arguments, ``env`` is laid over the caller's environment (``None`` removes a variable). The logs
    are kept in ``log_dir``, a new temporary folder where none is given; MindSpore's own log goes to
    ``mindspore_log`` in it where the script calls ``msnb.setup()``. ``progress`` is one line on
    standard error.

    Several machines: the same call on each, with the same ``hosts`` (the first one's scheduler is
    everybody's), its own ``node_rank`` and the same ``master_port`` (8118 where none is given);
    ``world_size`` counts all ranks of all hosts, evenly spread. Nothing starts before all hosts are
    there; a host that is lost ends the job on all others. The first host's ``master_port`` and the
    port after it have to be open to the others.

    Whatever goes wrong in the job, a script that cannot be compiled and a taken port included, is
    in the Job's Report. Raises ``ValueError``, ``TypeError`` or ``FileNotFoundError`` for arguments
    that make no job, and ``KeyboardInterrupt`` after everything was ended.

    >>> job = launch("train_dp.py", world_size=2, timeout=120)  # doctest: +SKIP
    >>> job.report.require()  # doctest: +SKIP
    """
    cwd = _working_folder()
    path = _script(script)
    target = canonical_target(device_target)
    world_size, node_rank, master_port = map(_plain, (world_size, node_rank, master_port))
    local = _world(world_size, hosts, node_rank)
    timeout = _seconds("timeout", timeout)
    start_timeout = _seconds("start_timeout", start_timeout)
    arguments = _arguments(args)
    overlay = checked_environment(env)
    port = _port(master_port)
    master = "127.0.0.1" if hosts is None else _address(hosts)
    folder = _folder(log_dir)
    title = f"launch {path.name}"

    with _alone(folder, shared=hosts is not None):
        findings, fatal = scripts.examine(path)
        findings += verdict.machine_notes(local, target)
        if fatal or any(check.status == "failed" for check in findings):
            return Job(Report(title, [*fatal, *findings]), folder)
        node = node_rank or 0
        ranks = range(node * local, (node + 1) * local)
        if port is None:
            port = PORT if hosts is not None else free_port()
        needed = [port] if hosts is None else [port, port + 1]
        taken = verdict.taken_port(master, needed) if node == 0 else None
        if taken is not None:
            return Job(Report(title, [taken, *findings]), folder)
        reports, logs = folder / _REPORTS, folder / _LOGS
        try:
            for made in (reports, logs):
                made.mkdir(exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"the logs cannot be written: {error.strerror}: {error.filename or folder}"
            ) from None
        base = {**_inherited(), **{k: v for k, v in overlay.items() if v is not None}}
        for name in (name for name, value in overlay.items() if value is None):
            base.pop(name, None)
        environ = cluster_environment(
            base, world_size=world_size, local=local, master=master, port=port, target=target
        )
        environ.update(
            MS_TOPO_TIMEOUT=str(math.ceil(min(start_timeout, 1e6)) + 10),
            MSNB_REPORT_DIR=str(reports),
        )
        for name in ("GLOG_log_dir", "MS_OM_PATH"):  # a killed rank would leave its temporary ones
            environ.setdefault(name, str(logs))
        request = {
            "python": sys.executable,
            "script": str(path),
            "args": arguments,
            "cwd": cwd,
            "log_dir": str(folder),
            "port": port,
            "timeout": timeout,
            "start_timeout": start_timeout,
            "hosts": hosts
            and {
                "names": list(hosts),
                "node": node,
                "address": master,
                "port": port + 1,
                "world_size": world_size,
            },
            "scheduler": scheduler_environment(environ) if node == 0 else None,
            "ranks": {
                rank: worker_environment(environ, rank, rank - node * local) for rank in ranks
            },
        }
        line = _Line(title, len(ranks), target, folder, timeout, enabled=progress)
        try:
            end = _watched(request, line)
        except BaseException:
            line.leave()
            raise
        outputs = {
            kind: {rank: _read(folder / f"rank_{rank}.{kind}") for rank in ranks}
            for kind in ("out", "err")
        }
        checks = verdict.judge(end, request, outputs["err"], folder)
        report = Report(title, _distinct([*checks, *findings, *_rank_reports(reports)]))
        for empty in (reports, logs):
            with contextlib.suppress(OSError):
                empty.rmdir()
        line.close(report, end["seconds"])
        return Job(
            report,
            folder,
            {int(rank): _exit_code(record) for rank, record in end["ranks"].items()},
            outputs["out"],
            outputs["err"],
            end["seconds"],
        )


# The environment of the dynamic cluster


def _inherited() -> dict[str, str]:
    """The caller's environment, without the log that its own ``msnb.setup()`` has set up."""
    environ = dict(os.environ)
    if os.path.basename(environ.get("GLOG_log_dir", "")).startswith("msnb-log-"):
        for name in ("v", "logtostderr", "stderrthreshold", "log_dir"):
            environ.pop(f"GLOG_{name}", None)
        environ.pop("MS_OM_PATH", None)
    return environ


def cluster_environment(
    base: Mapping[str, str],
    *,
    world_size: int,
    local: int,
    master: str,
    port: int,
    target: str,
) -> dict[str, str]:
    """What scheduler and ranks have in common."""
    environ = dict(base)
    environ.update(
        MS_WORKER_NUM=str(world_size),
        MS_SCHED_HOST=master,
        MS_SCHED_PORT=str(port),
        RANK_SIZE=str(world_size),
        MSNB_DEVICE_TARGET=target,
    )
    environ.setdefault("MS_RETRY_INTERVAL_LOWER", "1")  # seconds; 3 to 5 by default
    environ.setdefault("MS_RETRY_INTERVAL_UPPER", "1")
    if target == "CPU":
        environ.setdefault("OMP_NUM_THREADS", str(shares.threads(local)))
    return environ


def scheduler_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The scheduler's own part: it takes no device and no rank."""
    return {**environ, "MS_ROLE": "MS_SCHED", "RANK_ID": "0"}


def worker_environment(environ: Mapping[str, str], rank: int, device: int) -> dict[str, str]:
    """A rank's own part."""
    own = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank), "RANK_ID": str(rank)}
    return {**environ, **own, "DEVICE_ID": str(device)}


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# The watcher, from the caller's side


def _watched(request: dict[str, Any], line: _Line) -> dict[str, Any]:
    path = [entry for entry in sys.path if isinstance(entry, str)]
    home = str(Path(__file__).resolve().parents[2])
    path += [] if home in path else [home]
    code = f"import sys; sys.path[:] = {path!r}\nfrom msnb.distributed.watch import main\nmain()"
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C in the terminal reaches the caller alone
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    end: dict[str, Any] | None = None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        for text in process.stdout:
            event = json.loads(text)
            if event.pop("event") == "end":
                end = event
                break
            line.at(event)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # whatever still runs is ended now
        try:
            process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said = process.stderr.read().decode("utf-8", "replace").strip()
        process.stdout.close()
        process.stderr.close()
    if end is None:
        end = {"why": "vanished", "said": said, "exit": process.returncode, "ranks": {}}
        end["seconds"] = time.monotonic() - began
    return end


class _Line:
    """One line that says where the job is: rewritten in a terminal, written once elsewhere."""

    def __init__(
        self, title: str, count: int, target: str, folder: Path, limit: float, *, enabled: bool
    ) -> None:
        self._stream: TextIO = sys.stderr
        self._enabled = enabled
        self._live = enabled and self._stream.isatty()
        self._text = f"{title}: {count} {'rank' if count == 1 else 'ranks'} on {target}"
        self._folder, self._count, self._joined = folder, count, 0
        self._show(f"starting (limit {limit:g} s; logs: {folder})")

    def at(self, event: Mapping[str, Any]) -> None:
        if "rank" in event:
            self._joined += 1
            self._show(f"{self._joined} of {self._count} in the group")

    def _show(self, state: str) -> None:
        if self._live:
            print(f"\r\x1b[K{self._text}, {state}", end="", file=self._stream, flush=True)

    def leave(self) -> None:
        if self._live:
            print(file=self._stream)

    def close(self, report: Report, seconds: float) -> None:
        if self._enabled:
            state = "ok" if report.ok else report.worst
            head = "\r\x1b[K" if self._live else ""
            said = f"{self._text}, {state} after {seconds:.1f} s; logs: {self._folder}"
            print(f"{head}{said}", file=self._stream, flush=True)


# Arguments


def _script(script: str | os.PathLike[str]) -> Path:
    if not isinstance(script, (str, os.PathLike)) or not os.fspath(script):
        raise TypeError(f"script is the path of a Python file, not {script!r}")
    path = Path(script).expanduser()
    if path.is_dir():
        raise ValueError(f"script is a Python file, but {path} is a folder; name the file in it")
    if path.suffix == ".ipynb":
        raise ValueError(
            f"{path} is a notebook: each rank runs a Python file; write the training into a "
            "script, from a cell for example, and launch that"
        )
    if not path.exists():
        raise FileNotFoundError(f"no script {path} (working folder: {os.getcwd()})")
    if path.is_fifo():
        raise ValueError(f"{path} is a pipe, and every rank reads the script: write it to a file")
    return path.absolute()


def _plain(value: Any) -> Any:
    """NumPy's integers as Python's."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return value
    return int(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _seconds(name: str, value: object) -> float:
    if isinstance(value, SupportsFloat) and not isinstance(value, bool):  # NumPy's numbers, too
        with contextlib.suppress(OverflowError):
            if 0 < float(value) < math.inf:
                return float(value)
    raise ValueError(f"{name} is a positive number of seconds, not {value!r}")


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError(
            "the working folder does not exist any more; change into one that does"
        ) from None


def _world(world_size: int, hosts: Sequence[str] | None, node_rank: int | None) -> int:
    """The number of ranks on this machine."""
    if not _is_count(world_size):
        raise TypeError(f"world_size is the number of ranks, an int, not {world_size!r}")
    if world_size < 1:
        raise ValueError(f"world_size is the number of ranks, 1 or more, not {world_size}")
    if hosts is None:
        if node_rank not in (None, 0):
            raise ValueError(
                f"node_rank={node_rank!r} says which of several hosts this is; give hosts, too"
            )
        return world_size
    if isinstance(hosts, str) or not isinstance(hosts, Sequence) or not hosts:
        raise TypeError(f"hosts is a list of host names or addresses, not {hosts!r}")
    for host in hosts:
        if not isinstance(host, str) or not host.strip():
            raise TypeError(f"hosts is a list of host names or addresses, not {hosts!r}")
    twice = sorted({host for host in hosts if list(hosts).count(host) > 1})
    if twice:
        raise ValueError(
            f"hosts names {', '.join(twice)} twice; name each host once: the ranks of a host are "
            "world_size / hosts"
        )
    if not _is_count(node_rank):
        raise TypeError(
            f"node_rank says which of the {len(hosts)} hosts this machine is, from 0 to "
            f"{len(hosts) - 1}, not {node_rank!r}"
        )
    assert node_rank is not None
    if not 0 <= node_rank < len(hosts):
        raise ValueError(
            f"node_rank says which of the {len(hosts)} hosts this machine is, from 0 to "
            f"{len(hosts) - 1}, not {node_rank}"
        )
    if world_size % len(hosts):
        raise ValueError(
            f"world_size {world_size} does not spread evenly over {len(hosts)} hosts; "
            f"take {world_size - world_size % len(hosts) or len(hosts)}"
        )
    return world_size // len(hosts)


def _address(hosts: Sequence[str]) -> str:
    """The first host's address, where the scheduler is."""
    first = hosts[0]
    try:
        address = str(socket.getaddrinfo(first, None, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise ValueError(
            f"hosts: {first!r} has no address here ({error.strerror}); write its IP address"
        ) from None
    if len(hosts) > 1 and address.startswith("127.") and first not in (address, "localhost"):
        raise ValueError(
            f"hosts: {first!r} is {address} here, where no other host can reach it; write the IP "
            "address by which they know it"
        )
    return address


def _arguments(args: Sequence[str]) -> list[str]:
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise TypeError(f"args is a list of texts, such as ['--epochs', '3'], not {args!r}")
    for each in args:
        if not isinstance(each, str):
            raise TypeError(f"args is a list of texts; write {str(each)!r} for {each!r}")
        if "\0" in each:
            raise ValueError(f"args: no argument of a process can hold a null byte: {each[:60]!r}")
    return list(args)


def _port(port: int | None) -> int | None:
    if port is not None and (not _is_count(port) or not 1024 <= port < 65535):
        raise ValueError(f"master_port is a port from 1024 to 65534, not {port!r}")
    return port


def _folder(log_dir: str | os.PathLike[str] | None) -> Path:
    if log_dir is None:
        try:
            return Path(tempfile.mkdtemp(prefix="msnb-launch-"))
        except OSError as error:
            raise ValueError(
                f"the logs cannot be written: {error.strerror}: {error.filename or ''}; give "
                "log_dir, or set TMPDIR"
            ) from None
    if not isinstance(log_dir, (str, os.PathLike)) or not os.fspath(log_dir):
        raise TypeError(f"log_dir is the path of a folder, not {log_dir!r}")
    folder = Path(log_dir).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"log_dir {folder} is a file; name a folder") from None
    except OSError as error:
        raise ValueError(
            f"the logs cannot be written: {error.strerror}: {error.filename or folder}"
        ) from None
    return folder


@contextlib.contextmanager
def _alone(folder: Path, *, shared: bool) -> Iterator[None]:
    """A block in which no other job of this machine writes to ``folder``, cleared of earlier ones.

    Several hosts may share a folder on a server: it is not locked then.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # where the file system has no locks
            try:
                if not shared:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"another job is running with log_dir {folder}; name another folder"
                ) from None
        try:
            for pattern in ("rank_*.out", "rank_*.err", "scheduler.*", f"{_REPORTS}/*.jsonl"):
                for stale in folder.glob(pattern):
                    stale.unlink()
        except OSError as error:
            raise ValueError(
                f"the logs cannot be written: {error.strerror}: {error.filename or folder}"
            ) from None
        yield
    finally:
        os.close(descriptor)


# What the ranks left


def _distinct(checks: Sequence[Check]) -> list[Check]:
    """A script may give its checks any title, ``job`` included."""
    found: dict[str, Check] = {}
    for check in checks:
        id = check.id
        while id in found:
            id += "'"
        found[id] = replace(check, id=id)
    return list(found.values())


def _exit_code(record: Mapping[str, Any]) -> int:
    """A rank that raised may be ended while it waits in MindSpore's exit: Python's own code, 1."""
    code: int = record["exit"]
    return 1 if record["raised"] and code in (-15, -9) else code


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _KEPT))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _rank_reports(folder: Path) -> list[Check]:
    """What ``check_ranks`` found, once: every rank writes the same.

    A row for each call in which all was well, else its rows that are not.
    """
    found: list[Check] = []
    written = [p for p in folder.glob("check_ranks.*.jsonl") if p.name.split(".")[1].isdecimal()]
    files = sorted(written, key=lambda p: int(p.name.split(".")[1]))
    for text in _read(files[0]).splitlines() if files else []:
        try:
            report = Report.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):  # torn by the rank's death
            continue
        if report.ok:
            counts = report.headline().rpartition(": ")[2]
            found.append(Check(report.title, "ok", counts))
        else:
            bad = [check for check in report if check.status in ("failed", "error")]
            found += Report("", [Report(report.title, bad or report)])
    return found
