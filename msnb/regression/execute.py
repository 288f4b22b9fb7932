"""One notebook through papermill, in a process of its own.

``python -m msnb.regression.execute FD``: the request comes as a line of JSON on standard input,
which ends when the runner does; what happens goes out as JSON lines on the file descriptor FD. The
process judges nothing and keeps nothing but papermill's output file: it says in which cell and how
the execution ended, because papermill's own metadata calls every cell ``completed`` after a dead
kernel or a timeout.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from msnb.regression import warm

_SOCKET_ROOM = 107 - len("/kernel-01234567-89ab-cdef-0123-456789abcdef.json-ipc-1")
_OUTPUT = 20_000_000  # characters of one cell: all of them are held in memory, then in a file
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class _Stopped(KeyboardInterrupt):
    """The runner asked this process to stop; asyncio lets through no other BaseException."""


def main(arguments: list[str]) -> None:
    """Execute what standard input asks for; every end, good or bad, is an event and exit code 0."""
    descriptor = int(arguments[0])
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner decides what an interrupt means
    signal.signal(signal.SIGTERM, _stop)
    request = json.loads(sys.stdin.readline())
    alone = threading.Event()
    threading.Thread(target=_outlived, args=(alone,), daemon=True).start()
    events = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)
    execution = _Execution(request, events)
    try:
        end = execution.run()
    except _Stopped:
        end = {"status": "stopped"}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    execution.kill_kernel()
    execution.save_the_rest()
    with contextlib.suppress(BrokenPipeError):
        execution.tell("end", **execution.where(), **end)
    if alone.is_set():  # nobody else is left to tidy up
        os.chdir("/")
        shutil.rmtree(request["private"], ignore_errors=True)
    sys.stderr.flush()
    os._exit(0)  # nothing is left to do, and tearing down zmq and its threads takes a second


def _outlived(alone: threading.Event) -> None:
    """Stop this process when the runner has ended, even by SIGKILL, and with it its end of stdin.

    Not PR_SET_PDEATHSIG: the parent may be a process from which this one was forked.
    """
    while os.read(0, 4096):
        pass
    alone.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _stop(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise _Stopped


class _Execution:
    def __init__(self, request: dict[str, Any], events: Any) -> None:
        self.request = request
        self._events = events
        self._numbers: dict[int, int] = {}  # position in the notebook -> In [number]; 0: injected
        self._position: int | None = None
        self._ran = 0
        self._ready = False
        self._written = 0  # characters of this cell's output
        self._unsaved: Callable[[], None] | None = None
        self._flooded: int | None = None  # the position of a cell that wrote too many
        self._kernel: Any = None  # its subprocess.Popen, or warm.Forked
        self._forked = False

    def tell(self, event: str, **facts: Any) -> None:
        self._events.write(json.dumps({"event": event, **facts}) + "\n")

    def where(self) -> dict[str, Any]:
        number = None if self._position is None else self._numbers.get(self._position)
        return {"cell": number, "ran": self._ran, "ready": self._ready}

    def run(self) -> dict[str, Any]:
        import papermill
        from nbclient.exceptions import CellTimeoutError, DeadKernelError
        from papermill.exceptions import PapermillExecutionError

        request = self.request
        self._limit_output()
        self._save_at_times()
        _steady_clock()
        try:
            papermill.execute_notebook(
                _literal_path(request["notebook"]),
                _literal_path(request["partial"]),
                parameters=request["parameters"],
                kernel_name=request["kernel"],
                language="python",
                progress_bar=False,
                cwd=request["cwd"],
                start_timeout=request["start_timeout"],
                execution_timeout=request["cell_timeout"],
                iopub_timeout=60,  # of 4 s, a busy machine makes time-outs that are none
                shutdown_kernel=request["shutdown"],
                kernel_manager_class=self._manager(),
                on_notebook_start=self._on_start,
                on_cell_execute=self._on_cell,
                on_cell_executed=self._on_executed,
            )
        except PapermillExecutionError as error:
            self._unsaved = None  # papermill has written all of it
            self._position = self._position_of(error)
            return {
                "status": "raised",
                "error": _error(error.ename, error.evalue, error.traceback),
            }
        except DeadKernelError:
            if self._forked and self._exit_status() == warm.UNFIT:
                return {"status": "unfit"}
            if self._flooded is not None:
                self._position = self._flooded
                said = f"more than {_OUTPUT // 10**6} MB of output from one cell"
                return {"status": "raised", "error": _error("TooMuchOutput", said, [])}
            return {"status": "died", "signal": self._exit_status()}
        except CellTimeoutError:
            return {"status": "timeout"}
        except Exception as error:
            import traceback

            traceback.print_exc()
            status = "internal" if self._ready else "no kernel"
            return {"status": status, "error": _error(type(error).__name__, str(error), [])}
        self._unsaved = None
        return {"status": "completed"}

    def kill_kernel(self) -> None:
        """Kill whatever is left of the kernel and its process group."""
        if self._kernel is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._kernel.pid, signal.SIGKILL)
            with contextlib.suppress(Exception):
                self._kernel.wait(5)

    def save_the_rest(self) -> None:
        """Write what ``_save_at_times`` held back from a notebook that did not come to its end."""
        if self._unsaved is not None:
            with contextlib.suppress(OSError):  # of a full disk the runner hears as it writes
                self._unsaved()

    def _save_at_times(self) -> None:
        """Let papermill write its file for at most a twentieth of the time.

        It writes all of it before and after each cell, which takes longer than most cells.
        """
        from papermill.engines import NotebookExecutionManager

        keep = NotebookExecutionManager.save
        rests_until = 0.0

        def save(manager: Any, **options: Any) -> None:
            nonlocal rests_until
            began = time.monotonic()
            if began < rests_until:
                self._unsaved = lambda: keep(manager, **options)
                return
            keep(manager, **options)
            self._unsaved = None
            rests_until = time.monotonic() + 20 * (time.monotonic() - began)

        NotebookExecutionManager.save = save  # this process executes one notebook

    def _limit_output(self) -> None:
        """Kill the kernel of a cell that writes without end, before memory or disk are full."""
        from nbclient import NotebookClient

        keep = NotebookClient.process_message

        def limited(client: Any, message: Any, cell: Any, cell_index: int) -> Any:
            content = message["content"]
            parts = [content.get("text", ""), *(content.get("data") or {}).values()]
            self._written += sum(len(part) for part in parts if isinstance(part, str))
            if self._written <= _OUTPUT or message["msg_type"] == "status":
                return keep(client, message, cell, cell_index)
            self._flooded = self._position if self._flooded is None else self._flooded
            if self._kernel is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._kernel.pid, signal.SIGKILL)
            return None

        NotebookClient.process_message = limited  # this process executes one notebook

    def _manager(self) -> type[Any]:
        from jupyter_client import AsyncKernelManager

        execution = self

        class Manager(AsyncKernelManager):  # type: ignore[misc]
            """Jupyter's own, over private sockets, which shows us the process it started."""

            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                if len(os.fsencode(execution.request["runtime"])) < _SOCKET_ROOM:
                    self.transport = "ipc"  # two runs may pick the same free TCP port

            async def _async_launch_kernel(self, kernel_cmd: list[str], **options: Any) -> None:
                await super()._async_launch_kernel(kernel_cmd, **options)
                execution._kernel = getattr(self.provisioner, "process", None)
                execution._forked = isinstance(execution._kernel, warm.Forked)
                if execution._kernel is not None:
                    pid, forked = execution._kernel.pid, execution._forked
                    execution.tell("kernel", pid=pid, forked=forked)

            _launch_kernel = _async_launch_kernel

        return Manager

    def _on_start(self, notebook: Any) -> None:
        number = 0
        for position, cell in enumerate(notebook.cells):
            if cell.cell_type != "code" or not cell.source.strip():
                continue
            if "injected-parameters" in cell.metadata.get("tags", []):
                self._numbers[position] = 0
            else:
                number += 1
                self._numbers[position] = number
        self._ready = True
        self.tell("ready", cells=number, interpreter=self._interpreter())

    def _on_cell(self, cell: Any, cell_index: int) -> None:
        self._position = cell_index
        self._written = 0
        self.tell("cell", number=self._numbers.get(cell_index))

    def _on_executed(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        if execute_reply["content"]["status"] == "ok" and self._numbers.get(cell_index):
            self._ran += 1

    def _position_of(self, error: Any) -> int | None:
        # A cell tagged raises-exception raises without ending the run; papermill fails it at the
        # end and says which one it was.
        return error.cell_index if error.cell_index in self._numbers else self._position

    def _interpreter(self) -> str:
        """What the kernel's process really runs, whatever its kernelspec says."""
        import psutil

        if self._kernel is None:
            return ""
        try:
            return str(psutil.Process(self._kernel.pid).cmdline()[0])
        except (psutil.Error, IndexError):
            return ""

    def _exit_status(self) -> int | None:
        if self._kernel is None:
            return None
        with contextlib.suppress(Exception):
            self._kernel.wait(2)
        code = self._kernel.returncode
        return int(code) if code is not None else None


def _steady_clock() -> None:
    """Let the wait for a kernel go by a clock that does not jump when the machine's is set."""
    import jupyter_client.channels
    import jupyter_client.client

    steady = SimpleNamespace(time=time.monotonic, monotonic=time.monotonic, sleep=time.sleep)
    for module in (jupyter_client.client, jupyter_client.channels):
        if getattr(module, "time", None) is time:
            module.time = steady


def _literal_path(path: str) -> str:
    """A path that papermill's ``str.format`` gives back unchanged."""
    return str(Path(path)).replace("{", "{{").replace("}", "}}")


def _error(name: str, message: str, traceback: list[str]) -> dict[str, str]:
    return {
        "name": name,
        "message": _ANSI.sub("", message),
        "traceback": _ANSI.sub("", "\n".join(traceback)),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
