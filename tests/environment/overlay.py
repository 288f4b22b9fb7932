"""A throw-away environment: links to every installed package of this one, a pip of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
OWN = ("pip", "setuptools", "_distutils_hack", "distutils-precedence", "msnb", "_editable_impl")


def build(folder: Path, without: tuple[str, ...] = ()) -> Path:
    """Make it in ``folder``, without packages called ``without*``; return its interpreter."""
    site = bare(folder)
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        left_out = entry.name.startswith((*OWN, *without))
        if not left_out and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    (site / "repository.pth").write_text(f"{REPO}\n", encoding="utf-8")
    return folder / "bin" / "python"


def bare(folder: Path) -> Path:
    """An environment with nothing but pip, hard-linked: ensurepip takes seconds."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, timeout=120)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = folder / "lib" / version / "site-packages"
    for part in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if part.name == "pip" or part.name.startswith("pip-"):
            shutil.copytree(part, site / part.name, copy_function=link)
    return site


def link(one: str, other: str) -> None:
    """A hard link, or a copy where the folders are on two file systems."""
    try:
        os.link(one, other)
    except OSError:
        shutil.copy2(one, other)


def script(python: Path, name: str, source: str) -> Path:
    """A console script beside ``python``, with the head that pip writes for paths with spaces."""
    file = python.parent / name
    file.unlink(missing_ok=True)
    head = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
    file.write_text(f"{head}{source}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def install(python: Path, *what: str) -> subprocess.CompletedProcess[str]:
    """pip install, without dependencies."""
    return subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", *what],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
