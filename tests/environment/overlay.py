"""A throw-away environment: links to every installed package of this one, a pip of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
OWN = ("pip", "setuptools", "_distutils_hack", "distutils-precedence", "msnb", "_editable_impl")


def build(folder: Path, without: tuple[str, ...] = ()) -> Path:
    """Make it in ``folder``, without packages called ``without*``; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = folder / "lib" / version / "site-packages"
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        left_out = entry.name.startswith((*OWN, *without))
        if not left_out and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    (site / "repository.pth").write_text(f"{REPO}\n", encoding="utf-8")
    return folder / "bin" / "python"


def install(python: Path, *what: str) -> subprocess.CompletedProcess[str]:
    """pip install, without dependencies."""
    return subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", *what],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
