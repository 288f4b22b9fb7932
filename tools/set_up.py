"""Make or update ``.venv``: what every ``make`` target does first.

Standard library only, and plain enough for an old ``python3`` to run it and say what is missing.
Nothing of the caller's Python leaks in: child interpreters run isolated (``-I``).
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

NAME = "msnb"  # of the kernel and of the conda environment alike: editors match the two
SUPPORTED = ((3, 11), (3, 12), (3, 10))  # in order of preference; 3.11 is what is tested
PINNED_SINCE = (3, 11)  # some versions in constraints.txt have dropped Python 3.10
NEEDED_GB = 6  # .venv has 4.1 GB with the CPU build of torch, 7.9 with CUDA; and pip's downloads

_ALONE = ("-I", "-X", "utf8")  # no PYTHON* variable, no user site, no current folder
_LOOK = (
    "import importlib.util as u, json, sys;"
    "print(json.dumps([list(sys.version_info[:3]), getattr(sys, '_base_executable', ''),"
    "[m for m in ('venv', 'ensurepip') if u.find_spec(m) is None]]))"
)
# Every file that pip recorded is there in its recorded size; byte code is rewritten at will.
_INTACT = """
import importlib.metadata as metadata, os, pip
for dist in metadata.distributions():
    name = dist.metadata["Name"]
    if not name or dist.files is None:
        raise SystemExit(f"{name or dist} is half installed")
    for file in dist.files:
        path = os.fspath(file.locate())
        if path.endswith(".pyc"):
            continue
        if not os.path.exists(path) or file.size not in (None, os.path.getsize(path)):
            raise SystemExit(f"{name} is half installed ({file})")
"""


class SetUpError(Exception):
    """What is missing and what to type, in a sentence."""


class Python(NamedTuple):
    """An interpreter: the command that starts it, its version, and what it lacks for a venv."""

    command: str
    version: tuple[int, ...]
    missing: tuple[str, ...] = ()

    @property
    def minor(self) -> tuple[int, ...]:
        return self.version[:2]

    def __str__(self) -> str:
        return f"Python {_dotted(self.version)} ({self.command})"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def look_at(command: str) -> Python | None:
    """The interpreter behind ``command``, or None where it does not start."""
    try:
        answer = subprocess.run(
            [command, "-I", "-c", _LOOK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=60,
        )
        version, base, missing = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Python(base or command, tuple(version), tuple(missing))


def find_python(asked: str = "", look: Callable[[str], Python | None] = look_at) -> Python:
    """The interpreter to build ``.venv`` from: ``asked``, or the best one on PATH.

    Raises ``SetUpError`` where there is none, or where it lacks venv or ensurepip.
    """
    wanted = "Python 3.11 (3.10 and 3.12 work too)"
    if asked:
        python = look(asked)
        if python is None:
            raise SetUpError(
                f"PYTHON={asked} does not start; name an interpreter of {wanted}, "
                "for example: make setup PYTHON=/usr/bin/python3.11"
            )
        if python.minor not in SUPPORTED:
            raise SetUpError(
                f"PYTHON={asked} is Python {_dotted(python.version)}; it takes {wanted}"
            )
        found = [python]
    else:
        names = [f"python{_dotted(minor)}" for minor in SUPPORTED]
        seen = [python for name in [*names, "python3", "python"] if (python := look(name))]
        found = [python for minor in SUPPORTED for python in seen if python.minor == minor]
        if not found:
            have = ", ".join(dict.fromkeys(map(str, seen)))
            raise SetUpError(
                f"{wanted} is needed and not on PATH{f' (found: {have})' if have else ''}; "
                "on Debian or Ubuntu: sudo apt install python3.11 python3.11-venv; elsewhere: "
                "make setup PYTHON=/path/to/python3.11"
            )
    for python in found:
        if not python.missing:
            return python
    python = found[0]
    raise SetUpError(
        f"{python} has no {' and no '.join(python.missing)}; on Debian or Ubuntu: "
        f"sudo apt install python{_dotted(python.minor)}-venv"
    )


def conda_prefix(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of the active conda environment, where that is the one named ``msnb``."""
    prefix = Path(environ.get("CONDA_PREFIX") or "/nonexistent")
    named = environ.get("CONDA_DEFAULT_ENV") == NAME
    return prefix if named and os.access(str(prefix / "bin" / "python"), os.X_OK) else None


class SetUp:
    """The set-up of the checkout in ``root``, whatever state an earlier one left it in."""

    def __init__(self, root: Path, python: str = "", say: Callable[[str], None] = print) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.python = self.venv / "bin" / "python"
        self.stamp = self.venv / f".{NAME}-set-up.json"
        self.log = self.venv / f".{NAME}-set-up.log"
        self.asked = python
        self.say = say
        self._lock: int | None = None

    def inputs(self) -> dict[str, str]:
        """What the finished ``.venv`` depends on; equal to the stamp, nothing is left to do."""
        digest = hashlib.sha256()
        for name in ("pyproject.toml", "constraints.txt"):
            digest.update((self.root / name).read_bytes())
        return {
            "requirements": digest.hexdigest(),
            "root": str(self.root),
            "python": os.path.realpath(str(self.python)),
        }

    def done(self) -> bool:
        """Whether the last set-up ended well and nothing it depends on has changed since."""
        try:
            stamp = json.loads(self.stamp.read_text("utf-8"))
        except (OSError, ValueError):
            return False
        prefix = conda_prefix()
        if prefix and self.venv.is_symlink() and not self.venv.samefile(prefix):
            return False
        if not self._is_from_asked():
            return False
        kernel = self.venv / "share" / "jupyter" / "kernels" / NAME / "kernel.json"
        there = kernel.exists() and os.access(str(self.python), os.X_OK)
        return there and bool(stamp == self.inputs())

    def _is_from_asked(self) -> bool:
        if not self.asked or self.venv.is_symlink():
            return True
        asked = find_python(self.asked).command
        return os.path.realpath(asked) == os.path.realpath(str(self.python))

    def fault(self) -> str:
        """Why the ``.venv`` that is there cannot be kept; empty where it can be."""
        python = look_at(str(self.python))
        if python is None:
            return "its Python does not start"
        if python.minor not in SUPPORTED:
            return f"its Python is {_dotted(python.version)}"
        if self.venv.is_symlink():
            return ""  # an environment of the user's: pip updates it, nobody rebuilds it
        if not self._is_from_asked():
            return f"it was made from another Python than PYTHON={self.asked}"
        home = _home_of(self.venv / "bin" / "pip")
        if home is None:
            return "pip is missing"
        if not home.exists() or not home.samefile(self.venv / "bin"):
            return f"it was made in {home.parent}"
        intact = subprocess.run(
            [str(self.python), "-I", "-c", _INTACT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if intact.returncode:
            return (intact.stderr.strip().splitlines() or ["it cannot be inspected"])[-1]
        return ""

    def run(self) -> None:
        """Do what is missing; two at once wait for each other."""
        if self.done():
            return
        with open(str(self.root / ".venv.lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say("another set-up is at work here; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:
                pass  # a network file system without locks
            self._lock = lock.fileno()
            if not self.done():
                self._run()

    def _run(self) -> None:
        started = time.monotonic()
        if self.venv.exists() and not self.venv.is_dir():
            raise SetUpError(".venv is a file, and a folder goes there; type: rm .venv")
        if self.stamp.exists():
            self.stamp.unlink()  # from here until the end, .venv is not finished
        self._make_environment()
        self._install()
        self._register_kernel()
        self.stamp.write_text(json.dumps(self.inputs()), "utf-8")
        self.say(f".venv is ready ({time.monotonic() - started:.0f} s)")

    def _make_environment(self) -> None:
        prefix = conda_prefix()
        if self.venv.is_symlink():
            if prefix and not (self.venv.exists() and self.venv.samefile(prefix)):
                self.venv.unlink()
            elif not self.venv.exists():
                self.say(f".venv pointed to {os.readlink(str(self.venv))}, which is gone")
                self.venv.unlink()
        if self.venv.exists():
            fault = self.fault()
            if not fault:
                if prefix and not self.venv.is_symlink():
                    self.say(
                        f"keeping the .venv that is here; to use conda's {NAME} instead: "
                        "rm -r .venv, and again"
                    )
                return
            if self.venv.is_symlink():
                raise SetUpError(
                    f".venv is a link to {os.readlink(str(self.venv))}, but {fault}; repair that "
                    "environment, or type: rm .venv"
                )
            # The interpreter first: without one, a faulty .venv is still better than none.
            python = None if prefix else find_python(self.asked)
            self.say(f"making .venv anew: {fault}")
            shutil.rmtree(str(self.venv))
        else:
            python = None if prefix else find_python(self.asked)
        if python is None:
            self.say(f"linking .venv to the active conda environment {prefix}")
            self.venv.symlink_to(str(prefix), target_is_directory=True)
            fault = self.fault()
            if fault:
                self.venv.unlink()
                raise SetUpError(
                    f"the conda environment {prefix} is of no use here: {fault}; make it again: "
                    "conda env create --force -f environment.yml"
                )
            return
        free = shutil.disk_usage(str(self.root)).free / 1e9
        if free < NEEDED_GB:
            raise SetUpError(
                f"only {free:.1f} GB are free in {self.root}, and .venv needs about {NEEDED_GB} "
                "(12 with the CUDA build of torch); make room, then type the same again"
            )
        self.say(f"making .venv from {python}")
        self._child([python.command, *_ALONE, "-m", "venv", str(self.venv)], "python -m venv")

    def _install(self) -> None:
        python = look_at(str(self.python))
        if python is None:
            raise SetUpError(f"{self.python} does not start; type: rm -r .venv, and again")
        pins = ["-c", "constraints.txt"] if python.minor >= PINNED_SINCE else []
        if not pins:
            self.say(
                f"Python {_dotted(python.minor)}: constraints.txt is for {_dotted(PINNED_SINCE)}; "
                "taking the newest versions that pyproject.toml allows"
            )
        self.say("installing what pyproject.toml names (the first time this takes minutes) ...")
        command = [str(self.python), *_ALONE, "-m", "pip", "install", "--no-input", *pins]
        self._child([*command, "-e", ".[dev]"], "pip install")

    def _register_kernel(self) -> None:
        code = "from msnb.environment import fix; print(*fix.apply(), sep='\\n')"
        self._child([str(self.python), *_ALONE, "-c", code], "registering the kernel")

    def _child(self, command: list[str], what: str) -> None:
        """Run ``command`` with its output in a log; its last lines are shown where it fails."""
        # These would send files elsewhere than into .venv; the rest of PIP_* is the user's to set.
        astray = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN")
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in astray and not name.startswith("PYTHON")
        }
        env.update(PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
        lines: list[str] = []
        process = subprocess.Popen(
            command,
            cwd=str(self.root),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Should this process be killed, the next one waits until its pip has ended.
            pass_fds=[] if self._lock is None else [self._lock],
            encoding="utf-8",
            errors="replace",
        )
        assert process.stdout is not None
        for line in _progress(process.stdout):
            lines.append(line.rstrip())
        code = process.wait()
        if self.venv.is_dir():
            self.log.write_text("\n".join([*lines, ""]), "utf-8")
        if code:
            raise SetUpError(explain(what, code, lines))


def _home_of(script: Path) -> Path | None:
    """The folder of the interpreter that a console script starts, or None where it names none."""
    try:
        with open(str(script), "rb") as file:
            head = file.read(4096)
    except OSError:
        return None
    # Either `#!/path/bin/python`, or, where that has spaces or is long, `'''exec' "/path" "$0"`.
    match = re.match(rb"#!(?:/bin/sh\n'''exec' \"?)?(/[^\"\n]*?/python[\d.]*)[\" \n]", head)
    return Path(os.fsdecode(match.group(1))).parent if match else None


def _progress(lines: Iterable[str]) -> Iterator[str]:
    """Pass ``lines`` on; on a terminal, show pip's current step in one line that is overwritten."""
    live = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1
    for line in lines:
        step = re.match(r"\s*((Collecting|Downloading|Installing|Building|Preparing) .*)", line)
        if live and step:
            print(f"\r\x1b[K  {step.group(1)}"[: width + 4], end="", flush=True)
        yield line
    if live:
        print("\r\x1b[K", end="", flush=True)


def explain(what: str, code: int, lines: list[str]) -> str:
    """A failed child in its last lines, then the cause and what to type."""
    text = "\n".join(lines)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        remedy = (
            "the disk is full: make room in this folder and in the temporary one (TMPDIR), "
            "then type the same again"
        )
    elif re.search(
        r"NewConnectionError|NameResolutionError|Max retries|ProxyError|SSLError|ConnectTimeout"
        r"|ReadTimeout|timed out|Temporary failure in name resolution|Network is unreachable",
        text,
    ):
        remedy = (
            "pip cannot reach its package index: behind a proxy set HTTPS_PROXY; for a mirror: "
            "pip config set global.index-url URL; then type the same again"
        )
    elif re.search(r"No matching distribution found for (mindspore|torch)\b", text):
        remedy = (
            "there is no such wheel for this Python and machine: it takes Linux on x86_64 or "
            "aarch64 with Python 3.10 to 3.12"
        )
    elif "(from versions: none)" in text:
        remedy = (
            "pip cannot reach its package index, or that lacks this package: for a mirror: "
            "pip config set global.index-url URL; then type the same again"
        )
    elif "ensurepip" in text:
        remedy = "on Debian or Ubuntu: sudo apt install python3-venv, then type the same again"
    else:
        remedy = "mend what it says, then type the same again"
    shown = "\n".join(f"  | {line}" for line in [line for line in lines if line][-12:])
    return f"{what} ended with exit code {code}:\n{shown}\n{remedy}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make or update .venv.")
    parser.add_argument("--python", default="", metavar="COMMAND", help="build .venv from this one")
    asked = parser.parse_args(arguments).python
    root = Path(os.path.abspath(__file__)).parent.parent

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path the terminal's encoding lacks

    def say(line: str) -> None:
        print(f"set-up: {line}", flush=True)

    try:
        SetUp(root, asked, say).run()
    except SetUpError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"set-up: {error}; type the same again once that is mended", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nset-up: interrupted; the same command takes it up again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
