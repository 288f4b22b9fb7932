"""Another version of MindSpore over the same environment, built once and kept.

MindSpore is a package without compiled dependents: a folder that holds it alone, first on
``PYTHONPATH``, replaces it for every process that is started so, and ``importlib.metadata`` sees
its version, too. The other requirements are those of the environment: they have to suit both.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msnb.regression.catalog import Refused

OLDEST = "2.7.2"  # what pyproject.toml supports; all versions from here on were tried
_STALE = 6 * 3600  # seconds after which what is not whole is no other process's work
_DONE = "complete"  # a file: pip came to its end


@dataclass(frozen=True)
class Overlay:
    """A version of MindSpore and the folder that holds it; no folder is the installed one."""

    version: str
    folder: Path | None

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` with this version first: for Python, and for ``msrun`` on ``PATH``."""
        env = dict(base)
        if self.folder is not None:
            before = env.get("PYTHONPATH")
            env["PYTHONPATH"] = os.pathsep.join([str(self.folder), *([before] if before else [])])
            path = env.get("PATH", os.defpath)
            env["PATH"] = os.pathsep.join([str(self.folder / "bin"), path])
        return env


def installed() -> str:
    """The version of MindSpore in this environment; empty without one."""
    try:
        return importlib.metadata.version("mindspore")
    except importlib.metadata.PackageNotFoundError:
        return ""


def cache() -> Path:
    """Where overlays are kept; ``MSNB_CACHE`` names another folder."""
    import platformdirs

    chosen = os.environ.get("MSNB_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_path("msnb", appauthor=False))


def get(version: str) -> Overlay:
    """The overlay for ``version``, built with pip the first time (0.8 GB are fetched, 2.5 kept).

    Raises ``Refused`` for what is no version, for one that pip does not find, and where this
    environment does not meet its requirements.

    >>> get("2.9.0").environment(os.environ)["PYTHONPATH"]  # doctest: +SKIP
    '/home/me/.cache/msnb/mindspore-2.9.0-cpython-311-x86_64-linux-gnu'
    """
    from packaging.version import InvalidVersion, Version

    try:
        asked = Version(version)
    except InvalidVersion:
        raise Refused(
            f"--mindspore {version}: that is no version; {OLDEST}, say, or {installed()}"
        ) from None
    if asked < Version(OLDEST):
        raise Refused(f"--mindspore {version}: msnb supports MindSpore {OLDEST} and later")
    if installed() and asked == Version(installed()):
        return Overlay(installed(), None)
    if not asked.is_prerelease and len(asked.release) < 3:
        asked = Version(".".join(map(str, (*asked.release, 0, 0)[:3])))  # 2.8 is 2.8.0
    tag = sysconfig.get_config_var("SOABI") or f"py{sys.version_info.major}{sys.version_info.minor}"
    folder = cache() / f"mindspore-{asked}-{tag}"
    if not (folder / _DONE).exists():
        _build(str(asked), folder)
    if missing := unmet(folder):
        raise Refused(
            f"--mindspore {asked}: this environment does not meet what it requires: "
            f"{'; '.join(missing)}. Use an environment of its own for that version"
        )
    return Overlay(str(asked), folder)


def _build(version: str, folder: Path) -> None:
    """Have pip put it beside ``folder``, then rename: a folder of that name is whole."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise Refused(
            f"{folder.parent}: {error.strerror}; MSNB_CACHE names another folder"
        ) from None
    for left in folder.parent.glob(f".{folder.name}-*"):  # by one that was killed, long ago
        with contextlib.suppress(FileNotFoundError):  # its owner is at work, and renamed it
            if left != work and time.time() - left.stat().st_mtime > _STALE:
                shutil.rmtree(left, ignore_errors=True)
    print(f"MindSpore {version}: fetching it for {folder}, once", file=sys.stderr, flush=True)
    try:
        built = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"),
                *("--disable-pip-version-check", "--target", str(work), f"mindspore=={version}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if built.returncode:
            raise Refused(f"--mindspore {version}: {_said(built.stdout)}")
        (work / _DONE).touch()
        if folder.exists():  # not whole, or another process was faster
            shutil.rmtree(folder, ignore_errors=True)
        try:
            work.rename(folder)
        except OSError:
            if not (folder / _DONE).exists():
                raise
    except OSError as error:
        where = error.filename or folder
        raise Refused(
            f"--mindspore {version}: {where}: {error.strerror}; MSNB_CACHE names another folder"
        ) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _said(output: str) -> str:
    """The line of pip's that says what is wrong."""
    if known := re.search(r"from versions: ([^)]*)\)", output):
        return f"pip finds no such version; it knows {known[1]}"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return f"pip could not install it: {(errors or lines or ['no word'])[-1]}"


def unmet(folder: Path) -> list[str]:
    """The requirements of the MindSpore in ``folder`` that this environment does not meet."""
    from packaging.requirements import Requirement

    faults = []
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        for text in distribution.requires or []:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            try:
                found = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                faults.append(f"{requirement}, which is not installed")
                continue
            if not requirement.specifier.contains(found, prereleases=True):
                faults.append(f"{requirement}, but {requirement.name} is {found}")
    return faults
