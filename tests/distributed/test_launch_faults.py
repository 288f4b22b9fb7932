"""Real jobs that go wrong: each within its limit, with its cause named, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from faults import MINDSPORE, RANK, run, write

from msnb.distributed import causes, verdict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GROUP = MINDSPORE + (
    "init()\n"
    "all_reduce, x = ops.AllReduce(), ms.Tensor([1.0 + rank])\n"
    "assert all_reduce(x).asnumpy() == [3.0]\n"
)
DIES = "print('dies at', time.time(), flush=True)\n"


@dataclass(frozen=True)
class Fault:
    """``limit`` in seconds: from the moment a rank prints ``dies at``, else from the start.

    ``named`` is in the job's Check, or in that of ``check``.
    """

    name: str
    script: str
    limit: float
    named: str
    check: str = "job"
    options: dict[str, Any] = field(default_factory=dict)
    around: Callable[[dict[str, Any]], Any] | None = None
    found: str = ""


@contextlib.contextmanager
def somebody_listens(own: dict[str, Any]) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", own["master_port"])):
        yield


@contextlib.contextmanager
def somebody_listens_unseen(own: dict[str, Any]) -> Iterator[None]:
    """The port is taken between our look and the scheduler's start."""
    look, verdict.taken_port = verdict.taken_port, lambda *_: None
    try:
        with somebody_listens(own):
            yield
    finally:
        verdict.taken_port = look


@contextlib.contextmanager
def full_disk(own: dict[str, Any]) -> Iterator[None]:
    """Logs on a disk of 64 KB; a limit of files where none can be mounted."""
    folder: Path = own["log_dir"]
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def interrupted(after: float) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))  # is started without it
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


FAULTS = [
    Fault(
        "the port is taken",
        GROUP,
        5,
        "is taken (Address already in use)",
        around=somebody_listens,
    ),
    Fault(
        "the port is taken at the last moment",
        GROUP,
        30,
        "the scheduler could not open port",
        around=somebody_listens_unseen,
    ),
    Fault(
        "a rank never comes to init()",
        MINDSPORE + "if rank == 1:\n    time.sleep(600)\ninit()\n",
        30,
        "rank 1 did not come to init() within 4 s of the first that did; the others waited",
        options={"start_timeout": 4},
        found="in init",
    ),
    Fault(
        "a rank dies at its start",
        RANK + f"if rank == 1:\n    {DIES}    raise ImportError('no such package')\n"
        "time.sleep(600)\n",
        5,
        "rank 1 failed first: raised ImportError: no such package",
    ),
    Fault(
        "a rank dies between two steps",
        GROUP + "for step in range(2000):\n"
        f"    if rank == 1 and step == 5:\n        {DIES}        raise ValueError('sample 160')\n"
        "    all_reduce(x).asnumpy()\n",
        5,
        "rank 1 failed first: raised ValueError: sample 160",
    ),
    Fault(
        "a rank dies inside a collective",
        GROUP + "import threading\n\ndef die():\n    " + DIES + "    os._exit(9)\n\n"
        "if rank == 1:\n    threading.Timer(1, die).start()\n    time.sleep(600)\n"
        "all_reduce(x).asnumpy()\n",
        5,
        "rank 1 failed first: exit code 9",
    ),
    Fault(
        "a rank crashes",
        RANK + "import ctypes\n"
        f"if rank == 0:\n    {DIES}    ctypes.string_at(0)\ntime.sleep(600)\n",
        5,
        "rank 0 failed first: killed by SIGSEGV",
        check="job",
    ),
    Fault(
        "a rank ends early",
        GROUP + f"if rank == 0:\n    {DIES}    all_reduce(x).asnumpy()\n",
        30,
        "rank 1 had ended with exit code 0",
        options={"env": {"MS_CPU_COMM_OP_TIMEOUT": "5"}},
    ),
    Fault(
        "a collective that the CPU lacks",
        GROUP + DIES + "ops.AllReduce(ops.ReduceOp.MAX)(x).asnumpy()\n",
        10,
        "the CPU's collectives sum only",
    ),
    Fault(
        "a collective without init()",
        GROUP.replace("init()\n", "", 1),
        30,
        "it had not called init(), and a collective without it crashes",
        found="Fatal Python error: Segmentation fault",
    ),
    Fault(
        "a syntax error",
        "def broken(:\n",
        3,
        "line 1: SyntaxError: invalid syntax; nothing was started",
        check="script",
    ),
    Fault(
        "more ranks than devices",
        GROUP,
        3,
        "2 ranks on a machine with 0 Ascend devices; nothing was started",
        check="devices",
        options={"device_target": "Ascend"},
    ),
    Fault(
        "a rank hangs in Python",
        RANK + "def wait():\n    while rank == 1:\n        time.sleep(1)\n\nwait()\n",
        10,
        "still running after its limit of 3 s, and ended: rank 1; rank 0 had ended",
        options={"timeout": 3},
    ),
    Fault(
        "the disk of the logs is full",
        RANK + "while rank == 1:\n    print('x' * 1000)\ntime.sleep(600)\n",
        10,
        "the disk or the limit of a file is full",
        around=full_disk,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_ends_in_time_with_its_cause(tmp_path, monkeypatch, fault):
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    script = write(tmp_path, fault.script)
    folder = tmp_path / "目录"
    job, seconds = run(script, monkeypatch, folder, around=fault.around, **fault.options)
    ended = time.time()
    assert fault.named in job.report[fault.check].summary, job.report
    assert job.report[fault.check].status == "failed"
    if DIES in fault.script:
        died = [float(text.split()[-1]) for text in job.stdout.values() if "dies at" in text]
        seconds = ended - min(died)
    assert seconds < fault.limit
    if fault.found:
        assert any(fault.found in check.found for check in job.report), job.report


def test_there_are_at_least_twelve_faults():
    assert len(FAULTS) + 3 >= 12  # three more below


def test_an_interrupt_ends_everything(tmp_path, monkeypatch):
    script = write(tmp_path, GROUP + "time.sleep(600)\n")
    began = time.monotonic()
    with interrupted(3), pytest.raises(KeyboardInterrupt):
        run(script, monkeypatch, tmp_path / "目录")
    assert time.monotonic() - began < 3 + 5


def test_a_caller_that_is_killed_leaves_nothing(tmp_path):
    from faults import marked

    script = write(tmp_path, GROUP + "print('joined', flush=True)\ntime.sleep(600)\n")
    marker = f"MSNB_TEST_KILLED_{os.getpid()}"
    logs = tmp_path / "logs"
    code = (
        "from msnb.distributed.job import launch\n"
        f"launch({str(script)!r}, world_size=2, log_dir={str(logs)!r}, progress=False)"
    )
    environ = {**os.environ, marker: "1"}
    caller = subprocess.Popen([sys.executable, "-c", code], env=environ)
    try:
        deadline = time.monotonic() + 90
        outs = [logs / f"rank_{rank}.out" for rank in (0, 1)]
        while not all(out.exists() and "joined" in out.read_text() for out in outs):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert len(marked(marker)) == 5  # caller, watcher, scheduler, two ranks
        caller.kill()
        deadline = time.monotonic() + 5
        while left := marked(marker):
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    finally:
        caller.kill()
        caller.wait()


def test_plain_python_instead_of_a_launcher(tmp_path):
    script = write(tmp_path, "from mindspore.communication import init\ninit()\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MS_")}
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=environ
    )
    assert result.returncode == 1
    known = causes.explain(result.stderr)
    assert known is not None
    assert known.cause.startswith("init() without a launcher")
    assert known.remedy == "msnb launch SCRIPT --world-size 2"


def test_a_healthy_job_is_ok_and_leaves_nothing(tmp_path, monkeypatch):
    """The faults' common part alone: what they find is not in it."""
    script = write(tmp_path, GROUP + "print('sum', all_reduce(x).asnumpy())\n")
    job, _ = run(script, monkeypatch, tmp_path / "目录")
    job.report.require()
    assert [text.strip() for text in job.stdout.values()] == ["sum [3.]", "sum [3.]"]
    assert job.report["group"].summary == "2 of 2 joined the group"
    assert sorted(p.name for p in job.log_dir.iterdir()) == sorted(
        ["mindspore_log"]
        + [f"{n}.{kind}" for n in ("rank_0", "rank_1", "scheduler") for kind in ("out", "err")]
    )
    assert job.stderr == {0: "", 1: ""}  # MindSpore's log is in its own folder
