"""One rank: run the script as ``__main__`` and tell the watcher how it failed.

The watcher starts ``python bootstrap.py FD WATCHER SCRIPT ARGUMENTS...`` (``-`` for the scheduler's
script). An unhandled exception goes to the pipe FD as one line of JSON at once, since the process
itself may then wait in MindSpore's exit for ranks that never end. SIGUSR1 writes the Python stack
of all threads to standard error. Nothing of ours is imported: the script finds the interpreter as
``python SCRIPT`` would have left it.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path[:1] == [__file__.rpartition("/")[0]]:
    sys.path.pop(0)  # nothing beside this file may shadow what the script imports

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import time
import traceback
import types
from typing import Any

_LIMIT = 20_000  # characters of a message or a frame's list: the pipe holds 64 KB
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run it; an unhandled exception ends the process with exit code 1, as in ``python``."""
    channel, watcher, script = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != watcher:
        os._exit(1)
    os.set_inheritable(channel, False)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if script == "-":
        _scheduler()
        return
    sys.argv[:] = sys.argv[3:]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    own = os.getpid()
    module: Any = types.ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = __builtins__
    sys.modules["__bootstrap__"] = sys.modules["__main__"]  # its globals are these functions'
    sys.modules["__main__"] = module
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec")
        exec(code, module.__dict__)
    except SystemExit as end:
        if end.code not in (None, 0) and os.getpid() == own:
            _tell(channel, end)
        raise
    except BaseException as error:
        if os.getpid() == own:  # not in a child that the script forked
            _tell(channel, error)
        trace = error.__traceback__
        with contextlib.suppress(OSError):  # a full disk
            traceback.print_exception(type(error), error, trace and trace.tb_next)
        raise SystemExit(1) from None


def _scheduler() -> None:
    from mindspore.communication import init

    init()  # returns once the cluster is built, and ends with the process's exit


def _tell(channel: int, error: BaseException) -> None:
    now = time.time()
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be had)"
    trace = error.__traceback__ and error.__traceback__.tb_next
    frames = [
        {"file": f.filename, "line": f.lineno, "name": f.name, "text": _text(f.line)}
        for f in traceback.extract_tb(trace)[-40:]
    ]
    if isinstance(error, SyntaxError):
        frames.append(
            {
                "file": error.filename,
                "line": error.lineno,
                "name": "<module>",
                "text": _text(error.text),
            }
        )
    record = {
        "type": type(error).__name__,
        "message": _text(message[:_LIMIT]),
        "errno": getattr(error, "errno", None) if isinstance(error, OSError) else None,
        "frames": frames,
        "time": now,
    }
    with contextlib.suppress(OSError):
        os.write(channel, json.dumps(record).encode() + b"\n")


def _text(text: str | None) -> str | None:
    """Half a surrogate pair cannot be printed, and a Report has to be."""
    return text and text.encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    main()
