"""This machine: what a reader of the results needs to know of it, its memory, its processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Container
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msnb.regression import shares

if TYPE_CHECKING:
    import psutil

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
_TOLD = ("schema", "target", "python", "distributions", "requirements", "kernelspecs")
_TOLD_OF_ASCEND = ("cann", "driver", "firmware", "npu_smi", "nodes", "container", "accepted")


def environment(device: str, base: Path) -> dict[str, Any]:
    """The doctor's facts and those of the run that a later reader of the results needs."""
    from msnb.environment.facts import gather

    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    revision, dirty = _revision(base)
    facts = _without_the_account(gather(device, probe=False))
    return {
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "platform": platform.platform(),
        "cores": shares.cores(),
        "memory": memory(),
        "versions": versions,
        "revision": revision,
        "dirty": dirty,
        "package": _package(),
        "facts": facts,
    }


def _without_the_account(facts: dict[str, Any]) -> dict[str, Any]:
    """Of the doctor's facts those that say nothing of who ran it, and no variable's value."""
    told = {name: facts[name] for name in _TOLD if name in facts}
    ascend = facts.get("ascend") or {}
    told["ascend"] = {name: ascend[name] for name in _TOLD_OF_ASCEND if name in ascend}
    told["variables"] = sorted(facts.get("variables") or ())
    return {name: _without_paths(value) for name, value in told.items()}


def _without_paths(value: Any) -> Any:
    """``value`` without the places where the doctor looked: a home folder names its owner."""
    if isinstance(value, dict):
        places = ("looked", "folder", "file", "path")
        return {key: _without_paths(inner) for key, inner in value.items() if key not in places}
    return [_without_paths(inner) for inner in value] if isinstance(value, list) else value


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


def memory() -> int:
    """Bytes of memory that this machine, or this container, has."""
    import psutil

    found = int(psutil.virtual_memory().total)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            found = min(found, int(Path("/sys/fs/cgroup", name).read_text()))
    return found


def resident(*pids: int, exact: bool = False) -> int:
    """Bytes of memory that processes and their descendants hold.

    ``exact`` divides what several processes hold together among them, which takes some ms for each.
    """
    import psutil

    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found |= {one.pid: one for one in (process, *process.children(recursive=True))}
    total = 0
    for one in found.values():
        with contextlib.suppress(psutil.Error):
            shared = one.memory_full_info() if exact else one.memory_info()
            total += getattr(shared, "pss", shared.rss)
    return total


def kill_marked(marker: str, sessions: Container[int] = (), patience: float = 2.0) -> None:
    """End the processes that inherited ``marker`` in their environment, whoever started them.

    And those in ``sessions``: what is forked keeps the environment that its parent began with.
    """
    import psutil

    def belongs(process: psutil.Process) -> bool:
        if marker in (process.info["environ"] or {}):
            return True
        try:
            return os.getsid(process.pid) in sessions
        except OSError:
            return False

    def marked() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["environ"]):
            with contextlib.suppress(psutil.Error):  # it ended while we looked
                if belongs(process) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    deadline = time.monotonic() + patience
    while (left := marked()) and time.monotonic() < deadline:
        time.sleep(0.05)  # resource trackers and pools end by themselves once their owner has
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
