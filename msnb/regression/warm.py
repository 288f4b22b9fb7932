"""Kernels forked from a process that has imported the frameworks already, offered to Jupyter.

Importing MindSpore and PyTorch takes longer than most small notebooks. A *nursery* imports both
once, runs nothing (a process that has run an operation cannot be forked: its children hang), and
forks a process for each request. ``Provisioner`` is Jupyter's own extension point for this: with
``JUPYTER_DEFAULT_PROVISIONER_NAME=msnb-warm`` papermill, nbclient and nbval run as they are.

A forked process is what a fresh one would be, or it is not made: whatever an interpreter or a
framework reads when it starts (the environment, the interpreter, its options) has to be what the
nursery was started with. Otherwise, and where the nursery is gone or does not answer, the kernel
is an ordinary one, and the reason is noted. What a fork cannot renew is the secret behind
``hash`` of a text: sets of texts have one order in all that a nursery forks, another in the next.

``python -m msnb.regression.warm SOCKET MODULE...`` is the nursery itself. It ends, with all that it
forked, when its standard input does.
"""

# ruff: noqa: SIM112  (GLOG_v and its kind are spelt as MindSpore reads them)

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.abc
import json
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jupyter_client.provisioning import LocalProvisioner

ADDRESS = "MSNB_NURSERY"  # the path of the socket, for the provisioner
NOTES = "MSNB_NURSERY_NOTES"  # a file: why a kernel is an ordinary one, a line each
PRELOADED = (
    "ipykernel.kernelapp",
    "papermill",
    "nbclient",
    "psutil",
    "matplotlib.axes",  # not pyplot, which looks for IPython when it is imported
    "matplotlib.backends.backend_agg",
    "msnb.context",
    "mindspore",
    "torch",
)

UNFIT = 86  # the exit code of a kernel that found out that it should have been a fresh one
# What packages read when they are imported: of the environment all, or what begins with these; and
# files in the working folder.
_FRAMEWORKS = ("mindspore", "torch")
_READ_BY = {
    "matplotlib": ("MPL", "XDG_", "HOME"),
    "numpy": ("NPY_", "NUMPY_", "OMP_", "OPENBLAS_", "MKL_"),
    "scipy": ("SCIPY_", "OMP_", "OPENBLAS_", "MKL_"),
    "tqdm": ("TQDM_",),
}
_FILES_READ_BY = {"matplotlib": ("matplotlibrc",)}
_ANSWER = 5.0  # seconds a nursery may take to fork
_GRACE = 3.0  # seconds that what it forked may take to end
_START = 120.0  # seconds it may take to import
_HEADER = 8
_INLINE = (
    "module://matplotlib_inline.backend_inline"  # ipykernel's, read when Matplotlib is imported
)
# Read when they are needed, or set for each kernel by Jupyter, by the runner, by ipykernel itself.
_READ_LATE = {
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "GIT_PAGER",
    "PAGER",
    "PYDEVD_USE_FRAME_EVAL",
    "TERM",
    "IPYTHONDIR",
    "JPY_PARENT_PID",
    "MSNB_KERNELS",
    "MSNB_PRELOAD",
    "JPY_SESSION_NAME",
    "JUPYTER_DEFAULT_PROVISIONER_NAME",
    "JUPYTER_RUNTIME_DIR",
    "MS_OM_PATH",
    "MSNB_NURSERY",
    "MSNB_NURSERY_NOTES",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "TMPDIR",
    "_",
}
_READ_LATE_PREFIXES = ("MSNB_RUN_",)
# A variable of the nursery, as long as the runner's marks: a fork writes its own over it.
_UNMARKED = f"MSNB_RUN_{'0' * 32}"
# What msnb.setup() sets before it imports MindSpore; the nursery imported MindSpore with these.
_LOG = {"GLOG_v": "2", "GLOG_logtostderr": "0", "GLOG_stderrthreshold": "4"}


class Refused(Exception):
    """A process cannot be forked; the message says why."""


class Hung(Refused):
    """The nursery does not answer; it may hold descriptors that were sent to it."""


class Forked:
    """A forked process, with what ``subprocess.Popen`` has of methods.

    It runs ``python -m MODULE ARGUMENT...`` as ``command`` says, in a session of its own, and is
    killed, with its process group, when this object's process ends.

    Raises ``Refused``, with the reason, and ``OSError`` where there is no nursery.
    """

    stdin = stdout = stderr = None

    def __init__(
        self,
        address: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str],
        descriptors: Mapping[int, int],
    ) -> None:
        self.args = list(command)
        self.returncode: int | None = None
        self._ended = math.inf  # when it was first seen to have ended
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_ANSWER)
            _connect(self._socket, address)
            request = {
                "command": self.args,
                "env": dict(env),
                "cwd": os.fspath(cwd),
                "descriptors": list(descriptors),
            }
            body = json.dumps(request).encode()
            header = len(body).to_bytes(_HEADER, "big")
            socket.send_fds(self._socket, [header], list(descriptors.values()))
            self._socket.sendall(body)
            answer = self._line()
            if answer is None:
                raise Refused("the nursery ended")
            if "refused" in answer:
                raise Refused(answer["refused"])
            self.pid: int = answer["pid"]
            self._socket.setblocking(False)
        except TimeoutError:
            self._socket.close()
            raise Hung(f"the nursery did not answer within {_ANSWER:g} s") from None
        except BaseException:
            self._socket.close()
            raise

    def _line(self) -> dict[str, Any] | None:
        """The nursery's next line; ``None`` where it has ended."""
        received = b""
        while not received.endswith(b"\n"):
            try:
                chunk = self._socket.recv(1)
            except ConnectionError:
                chunk = b""
            if not chunk:
                return None
            received += chunk
        line: dict[str, Any] = json.loads(received)
        return line

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                line = self._line()
            except BlockingIOError:
                if _alive(self.pid):
                    return None
                if time.monotonic() < self._ended + _ANSWER:  # the nursery is about to tell
                    self._ended = min(self._ended, time.monotonic())
                    return None
                line = None
            if line is not None:
                self.returncode = line["exit"]
            elif not _alive(self.pid):
                self.returncode = 255  # only the nursery could have told
            if self.returncode is not None:
                self._socket.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.001
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return code

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _connect(client: socket.socket, address: str) -> None:
    """Connect to a socket whose path may be longer than the 107 bytes of an address."""
    folder = os.open(os.path.dirname(address), os.O_RDONLY | os.O_DIRECTORY)
    try:
        client.connect(f"/proc/self/fd/{folder}/{os.path.basename(address)}")
    finally:
        os.close(folder)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Provisioner(LocalProvisioner):  # type: ignore[misc]
    """Jupyter's local provisioner, whose kernels are forked where that changes nothing."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        address = os.environ.get(ADDRESS)
        if not address:
            return await super().launch_kernel(cmd, **kwargs)
        env = kwargs.get("env") or dict(os.environ)
        cwd = kwargs.get("cwd") or os.getcwd()
        try:
            with open(os.devnull, "rb") as nothing:
                standard = {0: nothing.fileno(), 1: 1, 2: 2}
                self.process = Forked(address, cmd, env=env, cwd=cwd, descriptors=standard)
        except (Refused, OSError) as why:
            _note(str(why))
            return await super().launch_kernel(cmd, **kwargs)
        self.pid = self.pgid = self.process.pid
        self.cwd = cwd
        return self.connection_info


def _note(why: str) -> None:
    if path := os.environ.get(NOTES):
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as notes:
            notes.write(f"an ordinary kernel: {why}\n")


def notes(file: Path) -> list[str]:
    """Why kernels are ordinary ones, each reason once, from the file that ``NOTES`` names."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError:
        return []
    return list(dict.fromkeys(lines))


class Nursery:
    """The nursery as the runner holds it: started in the background, stopped with all it forked.

    ``folder`` is where its socket and MindSpore's log lie; ``env`` is what its kernels get. It
    imports ``preload``: by default what ``MSNB_PRELOAD`` names, with commas, else what notebooks
    here import.

    >>> with Nursery(folder, sys.executable) as nursery:  # doctest: +SKIP
    ...     os.environ.update(nursery.variables)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        preload: Sequence[str] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.address = self.folder / "nursery"
        if sys.platform != "linux":
            raise Refused(
                f"forking after these imports was tried on Linux only, not {sys.platform}"
            )
        surroundings = {**(os.environ if env is None else env), _UNMARKED: "1"}
        if preload is None:
            chosen = surroundings.get("MSNB_PRELOAD")
            preload = chosen.split(",") if chosen else PRELOADED
        with (self.folder / "nursery.log").open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", "msnb.regression.warm", str(self.address), *preload],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=surroundings,
                cwd=self.folder,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._began = time.monotonic()
        self.variables = {
            ADDRESS: str(self.address),
            NOTES: str(self.folder / "notes"),
            "JUPYTER_DEFAULT_PROVISIONER_NAME": "msnb-warm",
        }

    @property
    def ready(self) -> bool:
        """Whether it has imported all; raises ``Refused`` where it ended or takes too long."""
        if self.address.exists():
            return True
        if self._process.poll() is not None:
            last = (self.folder / "nursery.log").read_text(errors="replace").strip()
            raise Refused(f"the nursery ended: {last.splitlines()[-1] if last else 'no word'}")
        if time.monotonic() > self._began + _START:
            raise Refused(f"the nursery was not ready within {_START:g} s")
        return False

    def wait_until_ready(self) -> None:
        """Wait for its imports; raises ``Refused`` as ``ready`` does."""
        while not self.ready:
            time.sleep(0.02)

    def stop(self, *, kill: bool = False) -> None:
        """End it; with all that it forked, unless it is to be killed."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(0 if kill else 2 * _GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


# The nursery's own side


class _Server:
    def __init__(
        self,
        address: str,
        own: Mapping[str, str],
        added: Mapping[str, Mapping[str, str]],
        parked: Sequence[str] = (),
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.own = own  # the environment as the frameworks found it
        self.added = added  # by package: what it put into it when it was imported
        self.parked = parked  # the packages that a kernel has not imported when it starts
        self.limits = limits or {}  # of recursion: at first, and where a package set another
        self.children: dict[int, socket.socket] = {}
        self.doomed: dict[int, float] = {}  # those whose client has gone, and until when they may
        self.selector = selectors.DefaultSelector()
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.chdir(os.path.dirname(address))  # an address has at most 107 bytes
        self.listening.bind("new")
        self.listening.listen()
        waking, self.wakes = socket.socketpair()
        for end in (waking, self.wakes):
            end.setblocking(False)
        self.waking = waking
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.selector.register(0, selectors.EVENT_READ)
        self.selector.register(waking, selectors.EVENT_READ)
        self.selector.register(self.listening, selectors.EVENT_READ)
        os.rename("new", address)

    def run(self) -> None:
        while True:
            for key, _ in self.selector.select(0.2 if self.doomed else None):
                if key.fileobj == 0:
                    if not os.read(0, 1):
                        return
                elif key.fileobj is self.waking:
                    with contextlib.suppress(BlockingIOError):
                        self.waking.recv(4096)
                elif key.fileobj is self.listening:
                    self.answer(self.listening.accept()[0])
                else:  # a client's end: it says nothing more, so it has gone
                    self.gone(key.data)
            self.reap()
            self.kill_the_doomed()

    def answer(self, client: socket.socket) -> None:
        client.settimeout(_ANSWER)
        descriptors: list[int] = []
        try:
            header, descriptors, *_ = socket.recv_fds(client, _HEADER, 16)
            body = b""
            size = int.from_bytes(header, "big")
            while len(body) < size:
                body += client.recv(size - len(body)) or _cut_short()
            request = json.loads(body)
            if refusal := self.refusal(request):
                client.sendall(_json(refused=refusal))
                client.close()
                return
            pid = self.fork(request, descriptors, client)
            self.children[pid] = client
            self.selector.register(client, selectors.EVENT_READ, pid)
            with contextlib.suppress(OSError):  # it has gone: its end, which is read next, tells
                client.sendall(_json(pid=pid))
        except (OSError, ValueError):
            client.close()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def refusal(self, request: dict[str, Any]) -> str:
        """Why a fresh process would be another one than a fork; empty where it would not."""
        command = request["command"]
        if os.path.realpath(command[0]) != os.path.realpath(sys.executable) or (
            Path(command[0]).parent != Path(sys.executable).parent
        ):
            return f"it asks for the interpreter {command[0]}"
        if command[1:2] != ["-m"]:
            return f"it asks for {' '.join(command[1:3])}"
        if names := _differing(request["env"], self.own):
            return f"its environment differs in {', '.join(names)}"
        return ""

    def fork(self, request: dict[str, Any], descriptors: list[int], client: socket.socket) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            client.close()
            self.become(request, descriptors)
        except SystemExit as end:
            if end.code is not None and not isinstance(end.code, int):
                print(end.code, file=sys.stderr)
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 1
        else:
            code = 0
        atexit._run_exitfuncs()  # nothing of the nursery itself is registered
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    def become(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """In the child: what an interpreter started for ``request`` would be."""
        import runpy
        import tempfile

        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        self.selector.close()
        for held in (self.listening, self.waking, self.wakes, *self.children.values()):
            held.close()
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for descriptor in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        for target, source in zip(request["descriptors"], high, strict=True):
            os.dup2(source, target, inheritable=True)
            os.close(source)
        os.chdir(request["cwd"])
        _mark(request["env"])
        os.environ.clear()
        os.environ.update({"GLOG_log_dir": self.own["GLOG_log_dir"], **request["env"]})
        os.environ.pop("JPY_PARENT_PID", None)
        tempfile.tempdir = None
        if numpy := sys.modules.get("numpy"):  # Python's own generator does this itself
            numpy.random.seed()
        if torch := sys.modules.get("torch"):
            torch.default_generator.seed()
        if log := sys.modules.get("mindspore.log"):  # the name of its file has the process number
            vars(log)["GLOBAL_LOGGER"] = None
        sys.setrecursionlimit(self.limits.get("", sys.getrecursionlimit()))
        sys.meta_path.insert(0, _Parked(self.parked, self.own, self.added, self.limits))
        command = request["command"]
        module, arguments = command[2], command[3:]
        if module == "ipykernel_launcher":  # 1: told to end with no parent, and not talkative
            arguments = [*arguments, "--IPKernelApp.parent_handle=1"]
        sys.argv[:] = [module, *arguments]
        sys.path[0] = os.getcwd()
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    def reap(self) -> None:
        while self.children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            client = self.children.pop(pid, None)
            if client is not None:
                if self.doomed.pop(pid, None) is None:
                    self.selector.unregister(client)
                with contextlib.suppress(OSError):
                    client.sendall(_json(exit=os.waitstatus_to_exitcode(status)))
                client.close()

    def gone(self, pid: int) -> None:
        """Nobody waits for it any more: it may tidy up, then it is killed."""
        self.selector.unregister(self.children[pid])
        self.doomed[pid] = time.monotonic() + _GRACE

    def kill_the_doomed(self) -> None:
        now = time.monotonic()
        for pid, moment in self.doomed.items():
            if now > moment:
                _kill_with_group(pid)

    def end(self) -> None:
        """Kill what does not end by itself; what executes a notebook does, when it is tidy."""
        deadline = time.monotonic() + _GRACE
        while self.children and time.monotonic() < deadline:
            time.sleep(0.02)
            self.reap()
        for pid in self.children:
            _kill_with_group(pid)


def _kill_with_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # one that was forked just now leads no group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _json(**facts: object) -> bytes:
    return json.dumps(facts).encode() + b"\n"


def _cut_short() -> NoReturn:
    raise ValueError("the request was cut short")


class _Parked(importlib.abc.MetaPathFinder):
    """Packages that were imported before the fork and look as if they were not, until imported.

    What a package reads when it is imported, it read in the nursery. If the process has changed its
    environment before the import, a fresh one would be another: this one ends, unfit. A package of
    the same name that comes first on the path, such as a file beside the notebook, is imported.

    With the first of them come those that read nothing: the others may look for them.
    """

    def __init__(
        self,
        roots: Sequence[str],
        own: Mapping[str, str],
        added: Mapping[str, Mapping[str, str]],
        limits: Mapping[str, int],
    ) -> None:
        self.own, self.added, self.limits = dict(own), added, limits
        self.parked: dict[str, dict[str, Any]] = {root: {} for root in roots}
        for name in list(sys.modules):
            if (root := name.partition(".")[0]) in self.parked:
                self.parked[root][name] = sys.modules.pop(name)
        for root, found in self.parked.items():
            if root not in found:
                found.clear()  # what an import that failed has left: it is to fail again

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if not self.parked.get(name):
            return None
        spec = self.elsewhere(name)
        if name in self.parked:
            spec.loader = _Taken(self, spec.loader)
        return spec

    def elsewhere(self, name: str) -> Any:
        """What an ordinary import finds; where that is another package, it is parked no more."""
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, None) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.origin != self.parked[name][name].__spec__.origin:
            del self.parked[name]
        return spec

    def take(self, name: str) -> None:
        """Put a package where an import would have put it; end, unfit, where that is not the same.

        It takes the place of the module that the import system has made for it.
        """
        if name == "mindspore" and "GLOG_v" not in os.environ:
            _log_to_stderr(self.parked[name][name])  # as it does without msnb.setup()
        changed = _differing(os.environ, self.own)
        if name not in _FRAMEWORKS:
            read = _READ_BY.get(name, ())
            changed = [variable for variable in changed if variable.startswith(read)]
        if changed:
            self.unfit(f"it imported {name} after it had set {', '.join(changed)}")
        for file in _FILES_READ_BY.get(name, ()):
            if os.path.exists(file):
                self.unfit(f"it imported {name}, which reads {file}")
        added = self.added.get(name, {})
        os.environ.update(added)
        self.own |= added
        sys.setrecursionlimit(self.limits.get(name, sys.getrecursionlimit()))
        sys.modules.update(self.parked.pop(name))
        for other in self.parked.keys() - {*_FRAMEWORKS, *_READ_BY}:
            if self.parked[other]:
                self.elsewhere(other)
                sys.modules.update(self.parked.pop(other, {}))
        if self.parked.get("numpy"):  # all that read something use it
            importlib.import_module("numpy")

    def unfit(self, why: str) -> NoReturn:
        _note(why)
        os._exit(UNFIT)


class _Taken(importlib.abc.Loader):
    """The loader of a parked package: its own, for whoever asks, but what it loads is there."""

    def __init__(self, parked: _Parked, own: Any) -> None:
        self._parked, self._own = parked, own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        self._parked.take(module.__name__)


def _differing(asked: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """The variables that a fresh process would read otherwise than the nursery did."""
    asked = {**_LOG, "GLOG_log_dir": own["GLOG_log_dir"], "MPLBACKEND": _INLINE, **asked}
    return sorted(
        name
        for name in asked.keys() | own.keys()
        if name not in _READ_LATE
        and not name.startswith(_READ_LATE_PREFIXES)
        and asked.get(name) != own.get(name)
    )


def _packages(at_first: set[str]) -> list[str]:
    """What was imported since: packages by their own names, none of Python's."""
    found = set(_FRAMEWORKS)
    for name, module in sys.modules.items():
        new = name not in at_first and name not in sys.stdlib_module_names
        if new and "." not in name and getattr(module.__spec__, "name", None) == name:
            found.add(name)
    return sorted(found)


def _mark(env: Mapping[str, str]) -> None:
    """Let ``/proc`` show the runner's mark, as it does of a process started with ``env``.

    What this one forks is then found and ended, whatever session it is in. ``/proc`` shows the
    memory in which the nursery got its environment, not what was set since.
    """
    own = [name for name in env if name.startswith("MSNB_RUN_") and len(name) == len(_UNMARKED)]
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    value = getenv(_UNMARKED.encode())
    if own and value:
        ctypes.memmove(value - len(_UNMARKED) - 1, own[0].encode(), len(_UNMARKED))


def _log_to_stderr(mindspore: Any) -> None:
    for library in Path(mindspore.__file__).parent.glob("lib/lib*glog.so*"):
        with contextlib.suppress(OSError, ValueError):
            flag = ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), "_ZN3fLB17FLAGS_logtostderrE")
            flag.value = True


def main(arguments: list[str]) -> None:
    """Import, listen, fork; returns when standard input ends."""
    address, *modules = arguments
    parent = os.getppid()
    for name, value in _LOG.items():
        os.environ.setdefault(name, value)
    if not os.environ.get("GLOG_log_dir"):
        folder = Path(address).parent / "log"
        folder.mkdir()
        os.environ["GLOG_log_dir"] = str(folder)
    os.environ.setdefault("MPLBACKEND", _INLINE)
    own = dict(os.environ)
    added: dict[str, dict[str, str]] = {}
    limits = {"": sys.getrecursionlimit()}
    at_first = set(sys.modules)
    for module in modules:
        root = module.partition(".")[0]
        before, limit = dict(os.environ), sys.getrecursionlimit()
        try:
            importlib.import_module(module)
        except Exception as error:  # a kernel meets it again, and says so
            print(f"{module} cannot be imported: {type(error).__name__}: {error}", flush=True)
        added.setdefault(root, {}).update(
            (name, value) for name, value in os.environ.items() if before.get(name) != value
        )
        if sys.getrecursionlimit() != limit:
            limits[root] = sys.getrecursionlimit()
        if root == "ipykernel":
            at_first = set(sys.modules)  # a kernel has these when it starts
    gc.collect()
    gc.freeze()  # what was imported stays on pages that the children share
    server = _Server(address, own, added, _packages(at_first), limits)
    try:
        server.run()
    finally:
        server.end()
        if os.getppid() != parent:  # it was killed: nobody else is left to tidy up
            shutil.rmtree(Path(address).parent, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # nothing is left to do, and tearing down what was imported takes a second
