"""The files beside a notebook: copied for it, watched while it runs, known by a fingerprint."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

_LITTER = {"__pycache__", ".ipynb_checkpoints"}  # Python's and Jupyter's own, ignored by git
_SMALL = 1_000_000  # bytes of a file that is copied for a notebook; a larger one is linked
_COPIED = 20_000_000  # bytes that are copied for one notebook in all
_ENTRIES = 1_000  # files and folders below one entry that are looked at
_UNSEEN = (-1, -1)  # the state of what is there and not watched
State = dict[str, tuple[int, int]]  # path -> size in bytes, time of the last change in ns


def mirror(folder: Path, work: Path, written: Sequence[Path] = ()) -> State:
    """Make ``work`` with all that lies in ``folder``, and return its state.

    A notebook finds the files beside it, as it does in JupyterLab, and what it leaves is its own,
    even where several run at once. Files below 1 MB are copied, 20 MB in all: the reader's own stay
    as they are whatever the notebook does to its copy. Larger ones, and folders that hold one, are
    links: written through, they do change, and the notebook fails by their name. Hidden folders and
    those that hold a path in ``written``, which the runner itself changes, are not watched.
    """
    work.mkdir(parents=True)
    room = _COPIED
    unseen = set()
    entries = [entry for entry in os.scandir(folder) if entry.name not in _LITTER]
    for entry in sorted(entries, key=lambda entry: (entry.is_dir(), entry.name)):
        source, target = Path(entry.path), work / entry.name
        hidden = entry.is_dir() and entry.name.startswith(".")
        if hidden or any(path.resolve().is_relative_to(source.resolve()) for path in written):
            unseen.add(entry.name)
            target.symlink_to(source)
            continue
        size = _size(source, room)
        if size is None:
            target.symlink_to(source)
            continue
        try:
            if entry.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_LITTER))
            else:
                shutil.copy2(source, target)
            room -= size
        except OSError:  # shutil.Error, too: what cannot be read is the notebook's to meet
            shutil.rmtree(target, ignore_errors=True)
            target.unlink(missing_ok=True)
            target.symlink_to(source)
    return _state(work, unseen)


def _below(entry: Path) -> list[Path] | None:
    """``entry`` and all that lies in it, litter apart; ``None`` where that is too much to watch."""
    found = [entry]
    for root, folders, files in os.walk(entry, followlinks=True):
        folders[:] = [name for name in folders if name not in _LITTER]
        found += [Path(root, name) for name in (*folders, *files)]
        if len(found) > _ENTRIES:
            return None
    return found


def _size(entry: Path, room: int) -> int | None:
    """The bytes to copy for a file or a folder; ``None`` where it is to be linked instead."""
    total = 0
    for path in _below(entry) or [Path(os.devnull)]:
        if path.is_symlink() and path != entry:
            return None
        if path.is_dir() and os.access(path, os.W_OK):  # else the copy could not be removed
            continue
        if not path.is_file() or path.stat().st_size >= _SMALL:
            return None
        total += path.stat().st_size
    return total if total <= room else None


def _state(work: Path, unseen: Collection[str] = ()) -> State:
    """The files and folders in ``work`` and behind its links; of a large folder, itself alone."""
    state = dict.fromkeys(unseen, _UNSEEN)
    for entry in os.scandir(work):
        if entry.name in _LITTER or entry.name in state:
            continue
        below = _below(Path(entry.path))
        for path in below or [Path(entry.path)]:
            about = path.stat() if path.exists() else path.lstat()
            times = below and path.is_dir()  # Python adds a __pycache__ to what it imports
            name = str(path.relative_to(work))
            state[name] = (0, 0) if times else (about.st_size, about.st_mtime_ns)
    return state


def differences(work: Path, before: State) -> tuple[list[str], list[str]]:
    """What is new in ``work`` since its state was ``before``, and what changed or is gone."""
    unseen = {name for name, state in before.items() if state == _UNSEEN}
    now = _state(work, unseen)
    changed = sorted(name for name, state in before.items() if now.get(name) != state)
    return sorted(now.keys() - before.keys()), changed


def fingerprint(folder: Path) -> str:
    """A fingerprint of the files beside a notebook that is not one: small ones by content."""
    found = hashlib.sha256()
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name in _LITTER or entry.suffix == ".ipynb":
            continue
        for path in sorted(_below(entry) or [entry]):
            try:
                if not path.is_file():
                    continue
                about = path.stat()
                small = about.st_size < _SMALL
                content = path.read_bytes() if small else str(about.st_mtime_ns).encode()
                size = about.st_size
            except OSError as error:  # what cannot be read is the notebook's to meet
                content, size = b"", -(error.errno or 1)
            found.update(os.fsencode(path.relative_to(folder)) + f"\0{size}\0".encode() + content)
    return found.hexdigest()
