"""Each way a process can end comes back as a value, and nothing is left running."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from msnb import isolate
from msnb.isolate import IsolatedError, Outcome, Worker, run, run_many


@dataclass
class Point:
    x: int


def add(a: int, b: int = 0) -> int:
    return a + b


def shift(point: Point) -> Point:
    return Point(add(point.x, 1))  # a helper and a class of this module travel too


def fail(text: str) -> None:
    print("before")
    raise LookupError(text)


def crash() -> None:
    import ctypes

    ctypes.string_at(0)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def spin() -> None:
    while True:
        pass


def start_sleepers(folder: str, then: str) -> None:
    """A child, a grandchild, and a daemon in a session of its own; then sleep, return or die."""
    inner = "import subprocess, time; subprocess.Popen(['sleep', '300']); time.sleep(300)"
    child = subprocess.Popen([sys.executable, "-c", inner])
    daemon = subprocess.Popen(["sh", "-c", "setsid sleep 301 & echo $! > daemon"], cwd=folder)
    daemon.wait()
    while not (children := psutil.Process(child.pid).children()):
        time.sleep(0.02)
    with open(os.path.join(folder, "pids"), "w") as file:
        file.write(f"{os.getpid()} {child.pid} {children[0].pid}")
    if then == "sleep":
        time.sleep(300)
    if then == "die":
        os._exit(3)


def eat(megabytes: int) -> None:
    hoard = []
    for _ in range(megabytes // 20):
        hoard.append(b"x" * 20_000_000)
        time.sleep(0.02)
    time.sleep(30)


def chatter() -> int:
    import ctypes

    for _ in range(5):
        print("y" * 1_000_000)
    print("last word of Python")
    ctypes.CDLL(None).puts(b"last word of C")
    os.write(2, b"raw stderr\n")
    return 5


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def assert_gone(folder: Path) -> None:
    pids = [int(pid) for name in ("pids", "daemon") for pid in (folder / name).read_text().split()]
    assert len(pids) == 4
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if alive(pid)] == []


def test_value_and_shipping() -> None:
    lock_free = 7
    outcome = run(add, 1, b=2)
    assert (outcome.status, outcome.value, outcome.result()) == ("ok", 3, 3)
    assert outcome.seconds > 0
    assert run(lambda: lock_free * 6).result() == 42
    assert run(functools.partial(add, 1), 5).result() == 6
    moved = run(shift, Point(1)).result()
    assert isinstance(moved, Point)
    assert moved.x == 2
    assert run(os.getpid).result() != os.getpid()


def test_exception_has_the_childs_traceback() -> None:
    outcome = run(fail, "no such layer")
    assert outcome.status == "raised"
    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.message) == ("LookupError", "no such layer")
    assert "in fail" in outcome.error.traceback
    assert "_answer" not in outcome.error.traceback
    assert outcome.stdout == "before\n"
    with pytest.raises(IsolatedError, match="fail raised LookupError: no such layer") as caught:
        outcome.result()
    assert "raise LookupError(text)" in str(caught.value)
    assert caught.value.outcome is outcome
    assert run(sys.exit, 4).error.type == "SystemExit"  # type: ignore[union-attr]


def test_source_of_a_notebook_cell_travels() -> None:
    import inspect
    import linecache

    text = "def cell(x):\n    inner = lambda: x  # the source\n    raise KeyError(x)\n"
    file = "<no such file: cell 1>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile(text, file, "exec"), space)
    cell = space["cell"]
    assert run(lambda: inspect.getsource(cell)).result() == text  # type: ignore[arg-type]
    outcome = run(cell, 1)  # type: ignore[arg-type]
    assert "raise KeyError(x)" in str(outcome.error and outcome.error.traceback)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def speechless() -> None:
    raise Mute


def test_an_exception_whose_message_cannot_be_had_is_named_all_the_same() -> None:
    outcome = run(speechless)
    assert outcome.error is not None
    assert (outcome.status, outcome.exitcode, outcome.error.type) == ("raised", None, "Mute")
    assert outcome.error.message == "(its message cannot be had: __str__ raises RuntimeError)"
    assert "raise Mute" in outcome.error.traceback


@pytest.mark.parametrize(
    ("env", "error", "text"),
    [
        ({"A": 1}, TypeError, "env maps names to texts, or to None to remove one, not 'A' to 1"),
        ({1: "A"}, TypeError, "not 1 to 'A'"),
        ("A=1", TypeError, "env maps names to texts, not 'A=1'"),
        ({"A=B": "1"}, ValueError, "no environment holds 'A=B' with the value '1'"),
        ({"A": "\0"}, ValueError, "no environment holds 'A' with the value"),
    ],
)
def test_an_env_that_is_none_is_refused(env: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(abs, -1, env=env)
    with pytest.raises(error, match=text):
        Worker(env=env)


def test_ends_of_the_process() -> None:
    left, crashed, killed = run_many([(os._exit, 3), crash, kill_myself])
    assert (left.status, left.exitcode) == ("raised", 3)
    with pytest.raises(IsolatedError, match="exit code 3 before _exit returned"):
        left.result()
    assert (crashed.status, crashed.signal) == ("signal", signal.SIGSEGV)
    assert "in crash" in crashed.stderr  # where it happened
    with pytest.raises(IsolatedError, match="crash was killed by SIGSEGV"):
        crashed.result()
    assert (killed.status, killed.signal) == ("signal", signal.SIGKILL)


def test_endless_loop_and_output_flood() -> None:
    outcome = run(spin, timeout=1.5)
    assert outcome.status == "timeout"
    with pytest.raises(IsolatedError, match=r"spin did not return within 1.5 s and was killed"):
        outcome.result()
    flood = run(lambda: [print("z" * 100_000) for _ in iter(int, 1)], timeout=1.5)
    assert flood.status == "timeout"
    assert len(flood.stdout) < 1.1 * 2**20


@pytest.mark.parametrize("then", ["sleep", "return", "die"])
def test_nothing_is_left_running(then: str, tmp_path: Path) -> None:
    outcome = run(start_sleepers, str(tmp_path), then, timeout=6 if then == "sleep" else 60)
    assert outcome.status == {"sleep": "timeout", "return": "ok", "die": "raised"}[then]
    assert_gone(tmp_path)


def test_memory() -> None:
    outcome = run(eat, 2000, memory=300_000_000)
    assert outcome.status == "memory"
    with pytest.raises(IsolatedError, match="eat used more than 300 MB of memory"):
        outcome.result()
    assert run(add, 1, memory=300_000_000).value == 1


def test_output_is_kept_apart_and_bounded() -> None:
    outcome = run(chatter)
    assert outcome.value == 5
    assert "bytes dropped" in outcome.stdout.splitlines()[0]
    assert 2**20 <= len(outcome.stdout) < 2**20 + 100
    assert "last word of Python" in outcome.stdout
    assert "last word of C" in outcome.stdout
    assert outcome.stderr == "raw stderr\n"


def test_result_that_cannot_travel() -> None:
    outcome = run(threading.Lock)
    assert outcome.status == "raised"
    assert outcome.error is not None
    assert "the result, a lock, cannot travel back" in outcome.error.message
    assert "NumPy arrays" in outcome.error.message


def test_big_arguments_and_results() -> None:
    blob = os.urandom(20_000_000)
    assert run(lambda b: b[::-1], blob).result() == blob[::-1]


def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "with space 中文"
    folder.mkdir()
    (folder / "overlaid.py").write_text("value = 'from the overlay'")
    monkeypatch.setenv("MSNB_TEST_GONE", "1")

    def look() -> tuple[str, bool, str | None]:
        import overlaid

        return overlaid.value, "MSNB_TEST_GONE" in os.environ, os.environ.get("MSNB_TEST_NEW")

    env = {"PYTHONPATH": str(folder), "MSNB_TEST_GONE": None, "MSNB_TEST_NEW": "新"}
    assert run(look, env=env).result() == ("from the overlay", False, "新")


def test_run_many_keeps_the_order() -> None:
    def nap(seconds: float, name: str) -> str:
        time.sleep(seconds)
        return name

    calls = [(nap, 1.0, "a"), (nap, 0.0, "b"), functools.partial(nap, 0.0, name="c")]
    assert [outcome.value for outcome in run_many(calls, jobs=2)] == ["a", "b", "c"]
    assert run_many([]) == []


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="needs a function, not int 3"):
        run(3)  # type: ignore[arg-type]
    for timeout in (0, -1, float("nan"), "5", True):
        with pytest.raises(ValueError, match="timeout is a positive number of seconds, not"):
            run(add, 1, timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="memory is a positive number of bytes or None, not 0"):
        run(add, 1, memory=0)
    with pytest.raises(ValueError, match=r"jobs is .* 1 or more, not 0"):
        run_many([add], jobs=0)
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"<lambda> cannot travel .*create that object inside"):
        run(lambda: lock.locked())


def test_worker_is_warm_and_replaced() -> None:
    with Worker() as worker:
        first = worker.run(os.getpid).result()
        raised = worker.run(fail, "once")
        assert raised.status == "raised"
        assert raised.stdout == "before\n"
        again = worker.run(os.getpid)
        assert (again.value, again.stdout, worker.started) == (first, "", 1)

        assert worker.run(kill_myself).signal == signal.SIGKILL
        second = worker.run(os.getpid).result()
        assert second != first
        assert worker.started == 2

        assert worker.run(spin, timeout=0.5).status == "timeout"
        assert not alive(second)
        third = worker.run(os.getpid).result()
        assert worker.started == 3

        os.kill(third, signal.SIGKILL)  # dies between two calls
        deadline = time.monotonic() + 10
        while alive(third) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        last = worker.run(os.getpid).result()
        assert last != third
    assert not alive(last)
    worker.close()
    with pytest.raises(RuntimeError, match="this Worker is closed"):
        worker.run(os.getpid)


def test_poisoned_worker_is_replaced() -> None:
    """A stand-in for MindSpore whose error sticks; the real one is in the slow test below."""

    def poison(sticky: bool) -> int:
        import types

        def synchronize() -> None:
            if sticky:
                raise RuntimeError("kernel launch failed")

        class Tensor(list):  # type: ignore[type-arg]
            __add__ = lambda self, other: Tensor(x + other for x in self)  # noqa: E731
            asnumpy = lambda self: self  # noqa: E731
            sum = lambda self: sum(iter(self))  # noqa: E731

        executor = types.SimpleNamespace(sync=synchronize)
        sys.modules["mindspore.common.api"] = types.SimpleNamespace(  # type: ignore[assignment]
            _pynative_executor=executor
        )
        sys.modules["mindspore"] = types.SimpleNamespace(  # type: ignore[assignment]
            Tensor=lambda values, dtype: Tensor(values), float32=None
        )
        return os.getpid()

    with Worker() as worker:
        assert worker.run(poison, False).status == "ok"
        assert worker.run(fail, "harmless").status == "raised"
        assert worker.started == 1
        late = worker.run(poison, True)
        assert late.status == "raised"  # the call that caused it, not the next
        assert late.error is not None
        assert late.error.message == "kernel launch failed"
        assert worker.run(add, 1).value == 1
        assert worker.started == 2


SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
import test_isolate
from msnb.isolate import Worker, run, run_many
call = (test_isolate.start_sleepers, {folder!r}, "sleep")
{line}
"""


def _start(line: str, folder: Path) -> subprocess.Popen[str]:
    script = textwrap.dedent(SCRIPT).format(
        tests=str(Path(__file__).parent), folder=str(folder), line=line
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (folder / "pids").exists() or not (folder / "pids").read_text():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("line", ["run(*call)", "run_many([call])", "Worker().run(*call)"])
def test_interrupt(line: str, tmp_path: Path) -> None:
    process = _start(line, tmp_path)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in stderr
    assert_gone(tmp_path)


def test_caller_killed(tmp_path: Path) -> None:
    process = _start("run(*call)", tmp_path)
    process.kill()
    process.communicate(timeout=60)
    assert_gone(tmp_path)


def test_worker_ends_with_python(tmp_path: Path) -> None:
    line = "worker = Worker(); worker.run(*call[:2], 'return'); print('done')"
    process = _start(line, tmp_path)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert_gone(tmp_path)


def test_limits_of_an_outcome() -> None:
    assert Outcome("ok", 1).describe() == "the function returned int"
    odd = Outcome("signal", signal=isolate._signal(40))
    assert odd.describe() == "the function was killed by signal 40"


@pytest.mark.slow
def test_mindspore_error_stays_in_its_call() -> None:
    def wrong() -> None:
        import mindspore as ms

        ms.ops.matmul(ms.ops.ones((2, 3), ms.float32), ms.ops.ones((4, 5), ms.float32))

    def right() -> float:
        import mindspore as ms

        return float(ms.ops.matmul(ms.ops.ones((2, 3)), ms.ops.ones((3, 2))).asnumpy().sum())

    with Worker() as worker:
        for _ in range(2):
            assert worker.run(wrong).status == "raised"
            assert worker.run(right).result() == 12.0


@pytest.mark.slow
def test_jit_of_a_shipped_function() -> None:
    def compile_here() -> float:
        import mindspore as ms

        @ms.jit
        def double(x):  # type: ignore[no-untyped-def]
            return x * 2

        return float(double(ms.Tensor(4.0, ms.float32)).asnumpy())

    assert run(compile_here).result() == 8.0
