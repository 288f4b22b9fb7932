"""Run a Python function in a process of its own: crash, hang and poison stay there.

A fresh interpreter, never a fork of the caller (forking after a MindSpore operation hangs). Linux
only. Two processes serve a call: a *runner* that executes the function, and above it a tiny
*warden* that adopts whatever the runner starts, ends all of it when told to, when the runner ends,
or when the caller dies, even of ``kill -9``, and then ends the way the runner ended.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import io
import linecache
import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import sysconfig
import threading
import time
import traceback
import types
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

T = TypeVar("T")
Status = Literal["ok", "raised", "signal", "timeout", "memory"]

_KEEP = 1 << 20  # bytes of each output stream that are kept: the last ones
_GRACE = 3.0  # seconds a runner has for its exit handlers
_HEAD = struct.Struct("<Q")


@dataclass(frozen=True)
class Error:
    """What was raised in the other process: type name, message and traceback, all text."""

    type: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class IsolatedError(RuntimeError):
    """An isolated call that has no value; ``outcome`` says why, the message shows it."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        super().__init__(outcome.describe())
        self.outcome = outcome

    def __reduce__(self) -> tuple[Any, ...]:
        return (IsolatedError, (self.outcome,))


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How an isolated call ended, as a value.

    ``status``: ``ok`` (``value`` holds the result), ``raised`` (``error``; also where the process
    ended by itself, ``exitcode``), ``signal`` (``signal``, for example ``signal.SIGSEGV``),
    ``timeout`` or ``memory``. ``seconds`` is wall-clock time, start of the interpreter included.
    ``stdout`` and ``stderr`` hold the last megabyte of what Python and C++ code printed.

    >>> Outcome("ok", value=4).result()
    4
    """

    status: Status
    value: T | None = None
    error: Error | None = None
    signal: int | None = None
    exitcode: int | None = None
    seconds: float = 0.0
    stdout: str = field(default="", repr=False)
    stderr: str = field(default="", repr=False)
    name: str = "the function"
    limit: float | None = None  # seconds or bytes: the limit that was hit

    def result(self) -> T:
        """The value; ``IsolatedError`` with the other process's traceback where there is none."""
        if self.status != "ok":
            raise IsolatedError(self)
        return cast(T, self.value)

    def describe(self) -> str:
        """What happened: one sentence, below it the traceback or the last lines of stderr."""
        more = ""
        if self.status == "ok":
            return f"{self.name} returned {type(self.value).__name__}"
        if self.status == "raised":
            said = f"{self.name} raised {self.error}"
            more = self.error.traceback if self.error else ""
        elif self.status == "signal":
            said = f"{self.name} was killed by {_signal_name(self.signal or 0)}"
        elif self.status == "timeout":
            said = f"{self.name} did not return within {self.limit:g} s and was killed"
        else:
            said = (
                f"{self.name} used more than {(self.limit or 0) / 1e6:.0f} MB of memory "
                "and was killed"
            )
        if not more and self.stderr.strip():
            more = "its last words on stderr:\n" + "\n".join(self.stderr.splitlines()[-20:])
        return f"{said}\n\n{more}".rstrip()


def run(
    function: Callable[..., T],
    /,
    *args: Any,
    timeout: float = 60.0,
    memory: int | None = None,
    env: Mapping[str, str | None] | None = None,
    **kwargs: Any,
) -> Outcome[T]:
    """Call ``function(*args, **kwargs)`` in a fresh interpreter and say how it ended.

    ``timeout`` is in seconds and covers the start of the interpreter. ``memory`` limits the
    resident set of the whole process tree, in bytes (a process that has imported MindSpore stands
    at 400 MB); it is measured every tenth of a second, so a quick function can overshoot. ``env``
    is laid over the caller's environment, ``None`` removes a variable; entries of a ``PYTHONPATH``
    in it come first on the child's ``sys.path``, the caller's ``sys.path`` follows.

    Function, arguments and result travel by cloudpickle: functions from notebook cells, lambdas and
    functions of modules that are not installed travel by value, with their source text, which
    ``ms.jit`` reads. When the call is over, nothing it started is left running.

    Raises ``TypeError`` for what is not callable or cannot travel, ``ValueError`` for a limit that
    is not positive. Whatever goes wrong in the function is in the Outcome.

    >>> run(divmod, 7, 2).result()
    (3, 1)
    """
    _check_limits(timeout, memory)
    payload = _pack(function, args, kwargs)
    helper = _Helper(env)
    try:
        outcome = helper.call(payload, timeout, memory, _name(function))
        helper.finish()
        return replace(outcome, stdout=helper.out.text(), stderr=helper.err.text())
    finally:
        helper.kill()


def run_many(
    calls: Iterable[Callable[[], T] | Sequence[Any]],
    jobs: int = 2,
    *,
    timeout: float = 60.0,
    memory: int | None = None,
    env: Mapping[str, str | None] | None = None,
) -> list[Outcome[T]]:
    """``run`` each call, ``jobs`` at a time; the Outcomes come in the order of the calls.

    A call is a callable without arguments (``functools.partial`` where it needs some) or a tuple
    ``(function, *arguments)``. The limits hold for each call. An interrupt ends all of them.

    >>> [outcome.result() for outcome in run_many([(abs, -1), (abs, -2)])]
    [1, 2]
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"jobs is the number of processes at a time, 1 or more, not {jobs!r}")
    _check_limits(timeout, memory)
    packed = []
    for call in calls:
        function, *arguments = (call,) if callable(call) else call
        packed.append((_pack(function, tuple(arguments), {}), _name(function)))
    live: set[_Helper] = set()
    stop = threading.Event()
    lock = threading.Lock()

    def one(payload: bytes, name: str) -> Outcome[T]:
        with lock:
            if stop.is_set():
                raise KeyboardInterrupt
            helper = _Helper(env)
            live.add(helper)
        try:
            outcome = helper.call(payload, timeout, memory, name, stop)
            helper.finish()
            return replace(outcome, stdout=helper.out.text(), stderr=helper.err.text())
        finally:
            helper.kill()
            live.discard(helper)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(one, payload, name) for payload, name in packed]
        try:
            return [future.result() for future in futures]
        except BaseException:
            with lock:
                stop.set()
            for future in futures:
                future.cancel()
            raise


class Worker:
    """A warm helper process that serves many calls with one import of MindSpore.

    It starts with the first call. A worker that died, hung, grew too large or carries a sticky
    asynchronous error of MindSpore is replaced before the next call; ``started`` counts the
    processes. Closed by ``close()``, by leaving the ``with`` block, or when Python ends. State that
    a call leaves behind (seeds, modes, processes) is there in the next: use ``run`` where that
    matters.

    >>> with Worker() as worker:
    ...     first, second = (worker.run(os.getpid).result() for _ in range(2))
    >>> first == second
    True
    """

    def __init__(self, env: Mapping[str, str | None] | None = None) -> None:
        self._env = checked_environment(env)
        self._helper: _Helper | None = None
        self._closed = False
        self._lock = threading.Lock()
        self.started = 0
        _WORKERS.add(self)

    def run(
        self,
        function: Callable[..., T],
        /,
        *args: Any,
        timeout: float = 60.0,
        memory: int | None = None,
        **kwargs: Any,
    ) -> Outcome[T]:
        """``isolate.run`` in the warm process; ``RuntimeError`` after ``close()``."""
        _check_limits(timeout, memory)
        payload = _pack(function, args, kwargs)
        with self._lock:
            if self._closed:
                raise RuntimeError("this Worker is closed; make a new one")
            if self._helper is None or not self._helper.usable():
                self._drop()
                self._helper = _Helper(self._env)
                self.started += 1
            helper = self._helper
            try:
                outcome: Outcome[T] = helper.call(payload, timeout, memory, _name(function))
            except BaseException:
                self._drop()
                raise
            outcome = replace(outcome, stdout=helper.out.text(), stderr=helper.err.text())
            helper.out.clear()
            helper.err.clear()
            if not helper.usable():
                self._drop()
            return outcome

    def _drop(self) -> None:
        if self._helper is not None:
            self._helper.kill()
            self._helper = None

    def close(self) -> None:
        """End the process; a second call does nothing."""
        with self._lock:
            self._closed = True
            if self._helper is not None and self._helper.usable():
                self._helper.finish()
            self._drop()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _close_workers() -> None:
    for worker in list(_WORKERS):
        worker.close()


# The caller's side


class _Tail:
    """The last bytes of a stream."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._kept = bytearray()
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        self._kept += chunk
        if len(self._kept) > 2 * _KEEP:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._kept) - _KEEP
        if excess > 0:
            del self._kept[:excess]
            self._dropped += excess

    def text(self) -> str:
        self._trim()
        head = f"[{self._dropped} bytes dropped]\n" if self._dropped else ""
        return head + self._kept.decode("utf-8", "replace")


def checked_environment(env: Mapping[str, str | None] | None) -> dict[str, str | None]:
    overlay = {} if env is None else env
    if not isinstance(overlay, Mapping):
        raise TypeError(f"env maps names to texts, not {overlay!r}")
    for name, value in overlay.items():
        if not isinstance(name, str) or not isinstance(value, (str, type(None))):
            raise TypeError(
                f"env maps names to texts, or to None to remove one, not {name!r} to {value!r}"
            )
        if not name or "=" in name or "\0" in name + (value or ""):
            raise ValueError(f"no environment holds {name!r} with the value {value!r}")
    return dict(overlay)


class _Helper:
    """A warden with its runner, seen from the caller."""

    def __init__(self, env: Mapping[str, str | None] | None) -> None:
        self.out, self.err = _Tail(), _Tail()
        self._healthy = True
        self._lock = threading.Lock()
        overlay = checked_environment(env)
        environ = {**os.environ, **{k: v for k, v in overlay.items() if v is not None}}
        for key in (key for key, value in overlay.items() if value is None):
            environ.pop(key, None)
        path = [entry for entry in (overlay.get("PYTHONPATH") or "").split(os.pathsep) if entry]
        path += [entry for entry in sys.path if isinstance(entry, str) and entry not in path]
        home = str(Path(__file__).resolve().parent.parent)
        path += [] if home in path else [home]
        inbox, self._requests = os.pipe()
        self._responses, outbox = os.pipe()
        code = (
            f"import sys; sys.path[:] = {path!r}; sys.argv[:] = ['msnb.isolate']\n"
            f"from msnb.isolate import _warden\n_warden({inbox}, {outbox})"
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                pass_fds=(inbox, outbox),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._requests)
            os.close(self._responses)
            raise
        finally:
            os.close(inbox)
            os.close(outbox)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._streams = {
            self._process.stdout.fileno(): self.out,
            self._process.stderr.fileno(): self.err,
        }
        self._open = {self._requests, self._responses}
        for fd in (*self._streams, *self._open):
            os.set_blocking(fd, False)

    def usable(self) -> bool:
        return self._healthy and self._process.poll() is None

    def call(
        self,
        payload: bytes,
        timeout: float,
        memory: int | None,
        name: str,
        stop: threading.Event | None = None,
    ) -> Outcome[Any]:
        """Send one request and wait for its response, the end, or a limit."""
        start = time.monotonic()
        to_send = memoryview(_HEAD.pack(len(payload)) + payload)
        answer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_WRITE)
            selector.register(self._responses, selectors.EVENT_READ)
            for fd in self._streams:
                selector.register(fd, selectors.EVENT_READ)
            while True:
                if stop is not None and stop.is_set():
                    raise KeyboardInterrupt
                left = start + timeout - time.monotonic()
                status: Status = "timeout"
                limit: float | None = timeout
                if memory is not None and _resident(self._process.pid) > memory:
                    status, limit, left = "memory", memory, 0.0
                if left <= 0:
                    self._healthy = False
                    self.kill()
                    seconds = time.monotonic() - start
                    return Outcome(status, seconds=seconds, name=name, limit=limit)
                ended = self._process.poll() is not None
                for key, _ in selector.select(0 if ended else min(left, 0.1)):
                    fd = key.fd
                    if fd == self._requests:
                        try:
                            to_send = to_send[os.write(fd, to_send) :]
                        except BrokenPipeError:
                            to_send = to_send[:0]
                        if not to_send:
                            selector.unregister(fd)
                        continue
                    chunk = _read(fd)
                    if chunk == b"":
                        selector.unregister(fd)
                        ended = ended or fd == self._responses
                    elif chunk and fd == self._responses:
                        answer += chunk
                    elif chunk:
                        self._streams[fd].add(chunk)
                if len(answer) >= _HEAD.size:
                    (size,) = _HEAD.unpack_from(answer)
                    if len(answer) >= _HEAD.size + size:
                        break
                if ended:
                    return self._ended(name, start)
        self._drain()
        record = pickle.loads(memoryview(answer)[_HEAD.size :])
        self._healthy = record["healthy"]
        seconds = time.monotonic() - start
        if record["error"] is None:
            try:
                return Outcome("ok", pickle.loads(record["value"]), seconds=seconds, name=name)
            except Exception as error:
                record["error"] = (
                    type(error).__name__,
                    f"the result came back but cannot be rebuilt in the caller's process ({error});"
                    " return numbers, NumPy arrays or plain containers of them",
                    "",
                )
        return Outcome("raised", error=Error(*record["error"]), seconds=seconds, name=name)

    def _ended(self, name: str, start: float) -> Outcome[Any]:
        """The runner ended without a response."""
        self._healthy = False
        self.finish()
        self.kill()
        code = self._process.returncode
        seconds = time.monotonic() - start
        if code < 0:
            return Outcome("signal", signal=_signal(-code), seconds=seconds, name=name)
        said = f"the process ended with exit code {code} before {name} returned"
        return Outcome(
            "raised", error=Error("ProcessEnded", said), exitcode=code, seconds=seconds, name=name
        )

    def _drain(self) -> None:
        for fd, tail in self._streams.items():
            for _ in range(64):  # a left-over process may print for ever
                chunk = _read(fd)
                if not chunk:
                    break
                tail.add(chunk)

    def finish(self) -> None:
        """Let the runner leave by its own exit handlers, for a while."""
        self._close(self._requests)
        deadline = time.monotonic() + _GRACE
        while self._process.poll() is None and time.monotonic() < deadline:
            self._drain()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)

    def kill(self) -> None:
        """End everything at once; a second call does nothing."""
        with self._lock:
            if self._process.poll() is None:
                self._process.terminate()  # the warden ends all that the runner started
                try:
                    self._process.wait(10)
                except subprocess.TimeoutExpired:
                    _kill_tree(self._process.pid)
                    self._process.wait()
            if self._streams:
                self._drain()
                self._streams = {}
                for stream in (self._process.stdout, self._process.stderr):
                    assert stream is not None
                    stream.close()
            for fd in list(self._open):
                self._close(fd)

    def _close(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            os.close(fd)


def _check_limits(timeout: float, memory: int | None) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ValueError(f"timeout is a positive number of seconds, not {timeout!r}")
    if memory is not None and (
        isinstance(memory, bool) or not isinstance(memory, (int, float)) or not memory > 0
    ):
        raise ValueError(f"memory is a positive number of bytes or None, not {memory!r}")


_PACKING = threading.Lock()


def _pack(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    if not callable(function):
        raise TypeError(
            f"an isolated call needs a function, not {type(function).__name__} {function!r}"
        )
    try:
        with _PACKING, _by_value(function):
            blob, files = _dumps((function, args, kwargs))
        return pickle.dumps((blob, _sources(files)))
    except Exception as error:
        raise TypeError(
            f"{_name(function)} cannot travel to another process "
            f"({type(error).__name__}: {error}); create that object inside the function instead "
            "of capturing it or passing it in"
        ) from None


def _dumps(value: Any) -> tuple[bytes, set[str]]:
    """Cloudpickle that keeps the file names of code, and says which they are."""
    import cloudpickle

    files: set[str] = set()
    plain = cloudpickle.Pickler.dispatch_table
    buffer = io.BytesIO()

    def reduce_code(code: types.CodeType) -> tuple[Any, ...]:
        files.add(code.co_filename)
        _, arguments = plain[types.CodeType](code)
        return _code, (code.co_filename, arguments)

    table = {"dispatch_table": ChainMap({types.CodeType: reduce_code}, plain)}
    type("Pickler", (cloudpickle.Pickler,), table)(buffer).dump(value)
    return buffer.getvalue(), files


def _code(file: str, arguments: tuple[Any, ...]) -> types.CodeType:
    return types.CodeType(*arguments).replace(co_filename=file)


def _sources(files: set[str]) -> dict[str, str]:
    """The text of notebook cells, which are in no file that the child could open."""
    found = {file: "".join(linecache.getlines(file)) for file in files if not os.path.exists(file)}
    return {file: text for file, text in found.items() if text}


@contextlib.contextmanager
def _by_value(function: Any) -> Iterator[None]:
    """Ship the function's module by value where the child could not import it, or not alike."""
    import cloudpickle

    while isinstance(function, functools.partial):
        function = function.func
    module = sys.modules.get(getattr(function, "__module__", None) or type(function).__module__)
    registered = (
        module is not None and module.__name__ in cloudpickle.list_registry_pickle_by_value()
    )
    if module is None or registered or not _is_loose(module):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_loose(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if not file or module.__name__.partition(".")[0] in ("msnb", "__main__"):
        return False
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    return not any(Path(file).is_relative_to(folder) for folder in installed)


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _signal(number: int) -> int:
    try:
        return signal.Signals(number)
    except ValueError:
        return number


def _signal_name(number: int) -> str:
    return number.name if isinstance(number, signal.Signals) else f"signal {number}"


def _read(fd: int) -> bytes | None:
    """What is there: ``None`` for nothing yet, ``b""`` at the end."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return None


def _tree(pid: int) -> list[Any]:
    import psutil

    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _resident(pid: int) -> int:
    """Bytes of the process tree's resident sets.

    Not ``RLIMIT_AS``: MindSpore 2.10 on CPU maps far more than it uses. After one operation and one
    jit the resident set was 425 MB and the address space 2368 MB; under an ``RLIMIT_AS`` of 1500 MB
    its first operation failed with "Allocate memory failed".
    """
    import psutil

    total = 0
    for process in _tree(pid):
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def _kill_tree(pid: int) -> None:
    import psutil

    for process in reversed(_tree(pid)):
        with contextlib.suppress(psutil.Error):
            process.kill()


# The other side


def _warden(inbox: int, outbox: int) -> None:
    """Fork the runner, stay above it, and outlive nothing. Returns in the runner only."""
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans of the runner become our children
    caller, me = os.getppid(), os.getpid()
    watched = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    runner = os.fork()  # nothing but the standard library is loaded, and there are no threads
    if runner == 0:
        prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != me:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
        _runner(inbox, outbox)
        return
    os.close(inbox)
    os.close(outbox)
    code: int | None = None
    while code is None:
        told = signal.sigtimedwait(watched, 0.25)
        if os.getppid() != caller or (told is not None and told.si_signo == signal.SIGTERM):
            break
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == runner:
                    code = os.waitstatus_to_exitcode(status)
    end_children()
    if code is None or code >= 0:
        os._exit(1 if code is None else code)
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
    os.kill(me, -code)


def end_children() -> None:
    """Kill until none is left: children of the killed arrive here in their turn."""
    import psutil

    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.005)


def _runner(inbox: int, outbox: int) -> None:
    import faulthandler

    os.set_inheritable(inbox, False)
    os.set_inheritable(outbox, False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(  # type: ignore[union-attr]
            encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
    faulthandler.enable()  # a crash leaves its Python stack on stderr
    with open(inbox, "rb") as requests, open(outbox, "wb") as responses:
        while len(head := requests.read(_HEAD.size)) == _HEAD.size:
            payload = requests.read(*_HEAD.unpack(head))
            answer = pickle.dumps(_answer(payload))
            responses.write(_HEAD.pack(len(answer)) + answer)
            responses.flush()


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:
        return f"(its message cannot be had: __str__ raises {type(second).__name__})"


def _answer(payload: bytes) -> dict[str, Any]:
    """Execute one request."""
    import cloudpickle

    record: dict[str, Any] = {"value": None, "error": None, "healthy": True}
    try:
        blob, sources = pickle.loads(payload)
        for file, text in sources.items():
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        function, args, kwargs = pickle.loads(blob)
        value = function(*args, **kwargs)
        settle()  # an asynchronous error belongs to this call, not to the next
    except BaseException as error:
        trace = error.__traceback__
        record["error"] = (
            type(error).__qualname__,
            _said(error),
            "".join(traceback.format_exception(type(error), error, trace and trace.tb_next)),
        )
        record["healthy"] = _is_healthy()
    else:
        try:
            record["value"] = cloudpickle.dumps(value)
        except Exception as error:
            record["error"] = (
                "TypeError",
                f"the result, a {type(value).__name__}, cannot travel back to the caller "
                f"({type(error).__name__}: {error}); return numbers, NumPy arrays or plain "
                "containers of them",
                "",
            )
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # what C and C++ code still hold
    return record


def settle() -> None:
    """Wait for MindSpore's pending operations; an asynchronous error is raised here.

    ``ms.runtime.synchronize`` is no help on CPU: its first call logs an error and does nothing.
    """
    if (executor := pynative_executor()) is not None:
        executor.sync()


def pynative_executor() -> Any:
    """What executes MindSpore's operations in PyNative mode; None where it is not imported.

    It has moved in MindSpore 2.9; its old home warns when it is imported.
    """
    for home in ("mindspore.graph.api", "mindspore.common.api"):
        executor = getattr(sys.modules.get(home), "_pynative_executor", None)
        if executor is not None:
            return executor
    return None


def _is_healthy() -> bool:
    """Whether MindSpore, where loaded, still computes right after an error."""
    ms = sys.modules.get("mindspore")
    if ms is None or not hasattr(ms, "Tensor"):
        return True
    try:
        with contextlib.suppress(Exception):
            settle()
        settle()
        return float((ms.Tensor([1.0, 2.0], ms.float32) + 1.0).asnumpy().sum()) == 5.0
    except Exception:
        return False
