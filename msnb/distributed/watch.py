"""The watcher: it starts scheduler and ranks as its children, and outlives none of them.

A process of its own between the caller (a notebook's kernel, a terminal) and the ranks. It knows
each exit code at once, ends everything when one rank fails, when a limit is reached, when it is
told to or when the caller dies, even of ``kill -9``. The ranks die with it in their turn. It judges
nothing: what happened goes to standard output as lines of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from msnb.distributed.hosts import Hosts, Lost
from msnb.isolate import end_children

_TICK = 0.05  # seconds between two looks
_RAISED = 1.5  # seconds a rank that raised has to exit, and others to raise as well
_TERM = 1.0  # seconds between SIGTERM and SIGKILL
_STACK = 0.5  # seconds a rank has to write its stack
_TAIL = 20_000  # bytes of standard error that are looked at
_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")


def main() -> None:
    """Read the request from standard input, watch the job, say how it ended."""
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans of a rank become our children
    for signum in (signal.SIGINT, signal.SIGHUP):  # the caller decides what an interrupt means
        signal.signal(signum, lambda *_: None)  # and to the ranks it is what it was
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # inherited: harmless before it shows the stack
    request = json.loads(sys.stdin.buffer.readline())
    watch = _Watch(request)
    signal.signal(signal.SIGTERM, lambda *_: watch.stop("stopped"))
    try:
        end = watch.run()
    finally:
        end_children()
    _say(event="end", **end)


def _say(**event: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


@dataclass
class _Process:
    """A rank, or the scheduler (rank ``None``)."""

    rank: int | None
    popen: subprocess.Popen[bytes]
    channel: int
    stderr: Path
    received: bytes = b""
    raised: dict[str, Any] | None = None
    failed_at: float = math.inf  # seconds since the start
    ended_at: float | None = None
    stopped: bool = False  # it was still running when the job was ended
    joined: bool = False
    stack: str = ""

    @property
    def code(self) -> int | None:
        return self.popen.returncode


@dataclass
class _Watch:
    request: dict[str, Any]
    ranks: list[_Process] = field(default_factory=list)
    scheduler: _Process | None = None
    hosts: Hosts | None = None
    why: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    listening: bool = False
    first_joined: float = math.inf

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.offset = time.time() - self.began
        self.folder = Path(self.request["log_dir"])
        self.next_look = self.looked = 0.0

    def now(self) -> float:
        return time.monotonic() - self.began

    def stop(self, why: str, **detail: Any) -> None:
        if not self.why:
            self.why, self.detail = why, detail

    def run(self) -> dict[str, Any]:
        try:
            self._meet()
            if not self.why:
                self._start()
            while not self.why:
                self._look()
        except Lost as lost:
            self.stop("host", **lost.detail)
        except OSError as error:
            said = f"{error.strerror}: {error.filename or ''}".rstrip(": ")
            self.stop("system", error=said, errno=error.errno)
        seconds = self.now()
        if self.hosts is not None:
            self.hosts.close("" if self.why == "done" else self._in_short())
        if self.why in ("timeout", "start"):
            self._stacks([p for p in self.ranks if p.code is None])
        self._end_all()
        return {
            "why": self.why,
            **self.detail,
            "seconds": seconds,
            "began": self.began + self.offset,
            "ranks": {str(p.rank): self._record(p) for p in self.ranks},
            "scheduler": self._record(self.scheduler) if self.scheduler else None,
        }

    def _meet(self) -> None:
        """Wait for the other hosts: nothing starts before all are there."""
        told = self.request["hosts"]
        if told is None:
            return
        agreed = {"world_size": told["world_size"], "hosts": told["names"]}
        self.hosts = Hosts(told["names"], told["node"], told["address"], told["port"], agreed)
        limit = self.began + self.request["start_timeout"]
        while not self.why and not self.hosts.meet(limit):
            self._wait()
        _say(event="met")

    def _in_short(self) -> str:
        """Why it ended here, for the other hosts."""
        first = self.detail.get("first")
        if self.why == "failed":
            process = next(p for p in self.ranks if p.rank == first)
            if process.raised:
                lines = process.raised["message"].strip().splitlines() or [""]
                return f"rank {first} raised {process.raised['type']}: {lines[0][:300]}"
            return f"rank {first} ended with exit code {process.code}"
        if self.why == "host":
            return f"it lost {self.detail['host']}: {self.detail['said']}"
        known = {
            "timeout": f"the job's limit of {self.request['timeout']:g} s was reached",
            "start": f"ranks {self.detail.get('missing')} did not come to init()",
            "scheduler": "the scheduler failed",
        }
        return known.get(self.why, "it was stopped there")

    def _start(self) -> None:
        if self.request["scheduler"] is not None:
            self.scheduler = self._spawn(None, self.request["scheduler"], ["-"])
        for rank, environ in self.request["ranks"].items():
            command = [self.request["script"], *self.request["args"]]
            self.ranks.append(self._spawn(int(rank), environ, command))
        _say(event="started", pids=[p.popen.pid for p in self.ranks])

    def _spawn(self, rank: int | None, environ: dict[str, str], command: list[str]) -> _Process:
        name = "scheduler" if rank is None else f"rank_{rank}"
        out, err = (self.folder / f"{name}.{kind}" for kind in ("out", "err"))
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        python = [self.request["python"], "-u", str(_BOOTSTRAP)]
        try:
            with out.open("wb") as stdout, err.open("wb") as stderr:
                popen = subprocess.Popen(
                    [*python, str(writing), str(os.getpid()), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=environ,
                    cwd=self.request["cwd"],
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        finally:
            os.close(writing)
        return _Process(rank, popen, reading, err)

    def _look(self) -> None:
        """One look at everything; what is new becomes a ``stop``."""
        self._wait()
        if self.why:
            return
        now = self.now()
        self._receive(now)
        if self.hosts is not None:
            self.hosts.look()
        failed = [p for p in self.ranks if p.failed_at < math.inf]
        if failed:
            first = min(failed, key=lambda p: p.failed_at)
            if all(p.code is not None for p in failed) or now > first.failed_at + _RAISED:
                self.stop("failed", first=first.rank)
            return
        if all(p.code == 0 for p in self.ranks) and (not self.hosts or self.hosts.finish()):
            self.stop("done")
            return
        if now > self.request["timeout"]:
            self.stop("timeout")
            return
        if now >= self.next_look:
            self.next_look = now + 5 * _TICK
            self._look_at_cluster(now)

    def _wait(self) -> None:
        """A tick; the end of standard input is the end of the caller, or of its patience."""
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _TICK)
        if ready and not os.read(sys.stdin.fileno(), 1 << 12):
            self.stop("stopped")

    def _receive(self, now: float) -> None:
        for process in (*self.ranks, *([self.scheduler] if self.scheduler else [])):
            ended = process.ended_at is None and process.popen.poll() is not None
            with contextlib.suppress(BlockingIOError):
                process.received += os.read(process.channel, 1 << 16)
            if process.raised is None and b"\n" in process.received:
                process.raised = json.loads(process.received)
                process.failed_at = min(process.raised["time"] - self.offset - self.began, now)
            if ended:
                process.ended_at = now
                if process.code:  # after the last look, perhaps at once
                    process.failed_at = min(process.failed_at, self.looked)
        self.looked = now

    def _look_at_cluster(self, now: float) -> None:
        """Has everyone joined? The connections to the scheduler's port tell, whatever is logged."""
        scheduler, limit = self.scheduler, self.request["start_timeout"]
        if scheduler is not None:
            if scheduler.code:
                self.stop("scheduler")
                return
            if not self.listening and scheduler.code is None:
                self.listening = any(
                    c.status == "LISTEN" and c.laddr.port == self.request["port"]
                    for c in _connections(scheduler.popen.pid)
                )
                if not self.listening:
                    if b"Failed to call bind" in _tail(scheduler.stderr):
                        self.stop("scheduler")
                    return
        for process in self.ranks:
            if not process.joined and process.code is None:
                process.joined = any(
                    c.status == "ESTABLISHED" and c.raddr.port == self.request["port"]
                    for c in _connections(process.popen.pid)
                )
                if process.joined:
                    self.first_joined = min(self.first_joined, now)
                    _say(event="joined", rank=process.rank)
        missing = [p.rank for p in self.ranks if not p.joined]
        if missing and now > self.first_joined + limit:
            self.stop("start", missing=missing)

    def _stacks(self, processes: list[_Process]) -> None:
        starts = {}
        for process in processes:
            with contextlib.suppress(OSError):
                starts[id(process)] = process.stderr.stat().st_size
            process.popen.send_signal(signal.SIGUSR1)
        time.sleep(_STACK)
        for process in processes:
            with contextlib.suppress(OSError), process.stderr.open("rb") as file:
                file.seek(starts.get(id(process), 0))
                process.stack = file.read(_TAIL).decode("utf-8", "replace")
            if process.popen.poll() == -signal.SIGUSR1:  # it had taken our handler away
                process.stopped = True

    def _end_all(self) -> None:
        running = [p for p in self.ranks if p.popen.poll() is None]
        for process in running:
            process.stopped = True
            process.popen.terminate()
        deadline = time.monotonic() + _TERM
        while time.monotonic() < deadline and any(p.popen.poll() is None for p in running):
            time.sleep(_TICK)
        self._receive(self.now())
        everyone = [*self.ranks, *([self.scheduler] if self.scheduler else [])]
        for process in everyone:
            if process.popen.poll() is None:
                process.popen.kill()
                process.popen.wait()
            os.close(process.channel)

    def _record(self, process: _Process) -> dict[str, Any]:
        return {
            "pid": process.popen.pid,
            "exit": process.code,
            "seconds": process.ended_at,
            "raised": process.raised,
            "failed_at": None if process.failed_at == math.inf else process.failed_at,
            "stopped": process.stopped and process.raised is None,
            "joined": process.joined,
            "stack": process.stack,
        }


def _connections(pid: int) -> list[Any]:
    import psutil

    try:
        process = psutil.Process(pid)
        look = getattr(process, "net_connections", None) or process.connections
        return list(look("tcp"))
    except psutil.Error:
        return []


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            _seek_tail(file)
            return file.read()
    except OSError:
        return b""


def _seek_tail(file: IO[bytes]) -> None:
    file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
