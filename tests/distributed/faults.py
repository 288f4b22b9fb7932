"""Jobs that go wrong: scripts, what to expect, and a look at what they leave."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from msnb.distributed.job import Job, free_port, launch

RANK = 'import os, sys, time\nrank = int(os.environ["RANK_ID"])\n'
MINDSPORE = RANK + (
    "import msnb\n"
    "msnb.setup(os.environ['MSNB_DEVICE_TARGET'])\n"
    "import mindspore as ms\n"
    "from mindspore import ops\n"
    "from mindspore.communication import init\n"
)


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def marked(marker: str) -> list[psutil.Process]:
    """The processes that have ``marker`` in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if marker in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def nothing_left(
    monkeypatch: Any, folder: Path, *, patience: float = 0.0
) -> Iterator[dict[str, Any]]:
    """A block whose jobs leave no process, no port and no temporary file behind.

    ``patience``: seconds they have to go.
    """
    marker, port = f"MSNB_TEST_{uuid.uuid4().hex}", free_port()
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield {"env": {marker: "1"}, "master_port": port, "log_dir": folder / "日志 logs"}
    deadline = time.monotonic() + patience
    while (left := marked(marker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == [], left
    assert not listening(port)
    files = [str(path) for path in temporary.rglob("*")]
    assert files == [], files


def run(script: Path, monkeypatch: Any, folder: Path, **options: Any) -> tuple[Job, float]:
    """The job, and the seconds it took; afterwards nothing is left of it."""
    options = {"world_size": 2, "progress": False, "timeout": 120, **options}
    around = options.pop("around", None)
    left = {name: options.pop(name) for name in ("patience",) if name in options}
    with nothing_left(monkeypatch, folder, **left) as own, ExitStack() as stack:
        own["env"].update(options.pop("env", {}))
        if around is not None:
            stack.enter_context(around(own))
        began = time.monotonic()
        job = launch(script, **{**own, **options})
        seconds = time.monotonic() - began
    return job, seconds
