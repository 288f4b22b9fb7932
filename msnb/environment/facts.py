"""Facts of this machine, gathered without judging and without importing anything of third parties.

Whatever could crash is tried in a fresh interpreter with a time limit, several at a time; a crash
there is a fact. All file facts of the Ascend side are looked up below ``root``, so that a recorded
tree can stand in for a machine. The result is plain JSON values: it can be stored, sent and judged
elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from msnb.environment import ascend, way_in

Facts = dict[str, Any]

SCHEMA = 1
SECONDS = 60.0  # for one fresh process: importing MindSpore from a cold network disk is slow
KERNEL = "msnb"

DISTRIBUTIONS = (
    "mindspore",
    "mindspore-ascend",
    "mindspore-dev",
    "mindspore-gpu",
    "numpy",
    "torch",
    "protobuf",
    "ipykernel",
    "pip",
)

# Variables that change what Python and MindSpore do; rules.py says how.
VARIABLES = (
    *("PYTHONOPTIMIZE", "PYTHONHOME", "PYTHONWARNINGS", "LD_PRELOAD", "OMP_NUM_THREADS"),
    *("GLOG_v", "GLOG_stderrthreshold", "MS_SUBMODULE_LOG_v", "MS_JIT", "MS_COMPILER_CACHE_ENABLE"),
    *("MS_SIMULATION_LEVEL", "MINDSPORE_DUMP_CONFIG", "MS_ALLOC_CONF", "MS_DEV_RUNTIME_CONF"),
    *("MS_ROLE", "RANK_TABLE_FILE", "ASCEND_LAUNCH_BLOCKING", "ASCEND_GLOBAL_LOG_LEVEL"),
)

# Modules outside the standard library that the curriculum imports, by the name of the import.
_OURS = {
    *("cloudpickle", "google", "ipykernel", "IPython", "jupyter_client", "matplotlib"),
    *("mindspore", "nbclient", "nbformat", "numpy", "packaging", "papermill", "PIL", "psutil"),
    *("rich", "safetensors", "scipy", "sklearn", "torch", "traitlets", "typer"),
}
# In the standard library, but nothing imports them by accident; "test.py" is on every second disk.
_HARMLESS = {"antigravity", "idlelib", "lib2to3", "test", "this", "turtledemo", "__hello__"}

_MARK = "@msnb-probe@ "
_PROBE_HEAD = f"""
import json, sys
found = {{"python": sys.executable}}
def tell():
    print("\\n" + {_MARK!r} + json.dumps(found), flush=True)
"""
_PROBES = {
    "mindspore": """
import mindspore as ms
found["version"], found["file"] = ms.__version__, ms.__file__
import numpy
found["numpy"] = numpy.__version__
tell()
found["stage"] = "first operation"
try:
    ms.set_device("CPU")
    found["result"] = (ms.Tensor([1.0, 2.0]) + 1).asnumpy().tolist()
except BaseException as error:
    found["error"] = [type(error).__name__, str(error)]
tell()
""",
    "device": """
import mindspore as ms
tell()
try:
    ms.set_device(TARGET)
    found["device"] = ms.get_context("device_target")
    found["result"] = (ms.Tensor([1.0, 2.0]) + 1).asnumpy().tolist()
except BaseException as error:
    found["error"] = [type(error).__name__, str(error)]
tell()
""",
    "torch": """
import torch
found["version"], found["file"] = torch.__version__, torch.__file__
found["result"] = (torch.tensor([1.0, 2.0]) + 1).tolist()
tell()
""",
    "light": """
for name in ("numpy", "google.protobuf"):
    try:
        module = __import__(name, fromlist=["x"])
        found[name] = {"version": module.__version__, "file": module.__file__}
        if name == "google.protobuf":
            from google.protobuf import descriptor_pb2
    except BaseException as error:
        found.setdefault(name, {})["error"] = [type(error).__name__, str(error)]
tell()
""",
}


def gather(
    device_target: str = "CPU",
    *,
    root: str | os.PathLike[str] = "/",
    cwd: str | os.PathLike[str] | None = None,
    seconds: float = SECONDS,
    probe: bool = True,
) -> Facts:
    """What is there for ``device_target``, as plain JSON values.

    ``root`` is put before every path of the Ascend side, and a device is tried only where that is
    this machine's own; ``cwd`` is the working folder whose files may shadow modules. Each fresh
    process gets ``seconds``; without ``probe`` there is none, and ``probes`` is empty.

    >>> gather("CPU")["python"]["version"][0]
    3
    """
    folder = Path.cwd() if cwd is None else Path(cwd).absolute()
    repo = repository(folder)
    installed = {name: distribution(name) for name in DISTRIBUTIONS}
    side = ascend.gather(root, installed["mindspore"], ask=device_target != "CPU")
    tried = device_target if Path(root).resolve() == Path("/") else "CPU"
    probes = _probe_all(tried, folder, seconds) if probe else {}
    return {
        "schema": SCHEMA,
        "target": device_target,
        "python": _python(),
        "places": {
            "cwd": str(folder),
            "home": os.path.expanduser("~"),
            "repo": str(repo) if repo else None,
        },
        "active": _active(),
        "pip": _pip(installed),
        "in_kernel": _in_kernel(),
        "way_in": way_in.reached(os.environ, in_kernel=_in_kernel(), terminal=_has_terminal()),
        "settings": way_in.settings(repo),
        "notebooks": way_in.notebooks(repo, jupyter_folders()),
        "kernelspecs": kernelspecs(),
        ".venv": _dot_venv(repo),
        ".env": _dot_env(repo),
        "distributions": installed,
        "requirements": _requirements(repo),
        "shadows": _shadows(folder),
        "python_path": _python_path(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "resources": _resources(folder, installed["mindspore"]),
        "probes": probes,
        "ascend": side,
    }


# --- the interpreter and what starts it ----------------------------------------------------------


def _python() -> Facts:
    return {
        "executable": sys.executable,
        "version": list(sys.version_info[:3]),
        "prefix": sys.prefix,
        "real_prefix": os.path.realpath(sys.prefix),
        "base_prefix": sys.base_prefix,
        "kind": environment_kind(sys.prefix),
        "platform": sys.platform,
        "machine": os.uname().machine if hasattr(os, "uname") else "",
    }


def environment_kind(prefix: str) -> str:
    """``venv``, ``conda``, ``conda base`` or ``system``, from what lies in ``prefix``."""
    if os.path.isdir(os.path.join(prefix, "conda-meta")):
        return "conda base" if os.path.isdir(os.path.join(prefix, "condabin")) else "conda"
    return "venv" if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")) else "system"


def _active() -> Facts:
    """The environment that the shell has activated, if any; conda's base counts as none."""
    venv = os.environ.get("VIRTUAL_ENV")
    conda = os.environ.get("CONDA_PREFIX")
    if os.environ.get("CONDA_DEFAULT_ENV") == "base":
        conda = None
    prefix = venv or conda
    return {
        "prefix": prefix,
        "real_prefix": os.path.realpath(prefix) if prefix else None,
        "variable": "VIRTUAL_ENV" if venv else "CONDA_PREFIX",
    }


def _pip(installed: Facts) -> Facts:
    path = shutil.which("pip")
    return {
        "own": installed["pip"]["version"] if installed["pip"] else None,
        "on_path": path,
        "on_path_prefix": _shebang_prefix(path) if path else None,
    }


def _shebang_prefix(script: str) -> str | None:
    """The prefix of the Python that a script of its environment starts; None for other programs."""
    try:
        with open(script, "rb") as file:
            head = file.read(1024).decode("utf-8", "replace")
    except OSError:
        return None
    # pip writes the second form where the path has spaces or is long
    found = re.match(r"#!\s*(\S*python[\d.]*)\s", head) or re.match(
        r"#!/bin/sh\s*'''exec'\s+\"?(.*?python[\d.]*)\"?\s", head
    )
    return prefix_of(found[1]) if found and os.path.isabs(found[1]) else None


def prefix_of(python: str) -> str:
    """The real environment folder of an interpreter, which itself may be a link out of it."""
    return os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(python))))


def _in_kernel() -> bool:
    application = getattr(sys.modules.get("ipykernel.kernelapp"), "IPKernelApp", None)
    return bool(application and application.initialized())


def _has_terminal() -> bool:
    """Whether someone types: of the three streams a pipe or a file may have taken two."""
    return any(os.isatty(number) for number in (0, 1, 2))


def jupyter_folders() -> list[str]:
    """Jupyter's data folders, first wins, as a Jupyter of this environment orders them.

    Source: the documentation of ``jupyter_core.paths.jupyter_path``.
    """
    folders = [p.rstrip(os.sep) for p in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if p]
    user = [jupyter_data_folder()]
    if site.ENABLE_USER_SITE and site.USER_BASE:
        user.append(os.path.join(site.USER_BASE, "share", "jupyter"))
    own = [os.path.join(sys.prefix, "share", "jupyter")]
    folders += own + user if _environment_first() else user + own
    folders += ["/usr/local/share/jupyter", "/usr/share/jupyter"]
    return list(dict.fromkeys(folders))


def jupyter_data_folder() -> str:
    """The user's own, as ``jupyter_core.paths.jupyter_data_dir`` has it."""
    if named := os.environ.get("JUPYTER_DATA_DIR"):
        return named
    home = os.path.expanduser("~")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Jupyter")
    share = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    return os.path.join(share, "jupyter")


def _environment_first() -> bool:
    wish = os.environ.get("JUPYTER_PREFER_ENV_PATH")
    if wish is not None:
        return wish.lower() not in ("no", "n", "false", "off", "0", "0.0")
    try:
        owned = os.stat(sys.prefix).st_uid == os.geteuid() or os.access(sys.prefix, os.W_OK)
    except OSError:
        owned = False
    conda = os.environ.get("CONDA_PREFIX")
    in_conda = (
        conda is not None
        and sys.prefix.startswith(conda)
        and os.environ.get("CONDA_DEFAULT_ENV", "base") != "base"
    )
    return owned and (sys.prefix != sys.base_prefix or in_conda)


def kernelspecs() -> list[Facts]:
    """Every kernelspec called ``msnb``, in Jupyter's order: the first is the one it starts."""
    own = os.path.join(sys.prefix, "share", "jupyter", "kernels", KERNEL)
    found = []
    for data in jupyter_folders():
        folder = os.path.join(data, "kernels", KERNEL)
        if not os.path.isdir(folder):
            continue
        spec: Facts = {
            "folder": folder,
            "own": os.path.realpath(folder) == os.path.realpath(own),
            "python": None,
            "prefix": None,
            "there": False,
            "env": {},
        }
        try:
            with open(os.path.join(folder, "kernel.json"), encoding="utf-8") as file:
                loaded = json.load(file)
            spec["python"] = str(loaded["argv"][0])
            told = loaded.get("env") or {}
            spec["env"] = {name: str(told[name]) for name in ascend.VARIABLES if name in told}
            if os.path.isabs(spec["python"]):
                spec["prefix"] = prefix_of(spec["python"])
                spec["there"] = os.path.isfile(spec["python"])
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            spec["error"] = f"{type(error).__name__}: {error}"
        found.append(spec)
    return found


def repository(cwd: str | os.PathLike[str]) -> Path | None:
    """The folder with msnb's pyproject.toml: around the working folder, else around the package."""
    package = Path(__file__).resolve().parents[2]
    for folder in (Path(cwd), *Path(cwd).parents, package):
        try:
            text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if re.search(r'^name\s*=\s*"msnb"\s*$', text, re.MULTILINE):
            return folder
    return None


def _dot_venv(repo: Path | None) -> Facts | None:
    if repo is None:
        return None
    path = repo / ".venv"
    if path.is_symlink():
        kind = "link" if os.path.exists(path) else "dangling"
    else:
        kind = "folder" if os.path.isdir(path) else "missing"
    return {
        "path": str(path),
        "kind": kind,
        "prefix": os.path.realpath(path),
        "python": os.path.exists(path / "bin" / "python"),
    }


def _dot_env(repo: Path | None) -> Facts | None:
    """Of ``.env`` in the repository, which VS Code reads, the variables of CANN."""
    if repo is None or not os.path.isfile(repo / ".env"):  # it may be a pipe of a secret store
        return None
    try:
        text = (repo / ".env").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    told = ascend.pairs(text)
    return {name: told[name] for name in ascend.VARIABLES if name in told}


# --- packages ------------------------------------------------------------------------------------


def distribution(name: str) -> Facts | None:
    """An installed distribution's version and folder, from its metadata."""
    try:
        found = metadata.distribution(name)
        version: Any = found.version
    except (metadata.PackageNotFoundError, OSError, KeyError, ValueError):
        return None
    if not isinstance(version, str):  # a torn folder: metadata without a version
        return None
    return {
        "version": version,
        "folder": str(found.locate_file("")),
        "requires": [str(line) for line in found.requires or []] if name == "mindspore" else [],
    }


def _requirements(repo: Path | None) -> list[Facts]:
    """What msnb asks for and the version that is there.

    From pyproject.toml, since the metadata of an editable installation are as old as that is; from
    the metadata where there is no repository.
    """
    lines: list[str] = []
    if repo:
        text = (repo / "pyproject.toml").read_text(encoding="utf-8")
        listed = re.search(r"^dependencies\s*=\s*\[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
        lines = re.findall(r'"([^"]+)"', listed[1]) if listed else []
    else:
        with contextlib.suppress(metadata.PackageNotFoundError, OSError, ValueError):
            lines = [str(line) for line in metadata.requires("msnb") or []]
    found = []
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        if name and ";" not in line:
            have = distribution(name[0])
            wish = line[name.end() :].replace(" ", "").strip("()")
            found.append(
                {
                    "name": name[0],
                    "asks": wish,
                    "have": have["version"] if have else None,
                    "torn": have is None and _is_torn(name[0]),
                }
            )
    return found


def _is_torn(name: str) -> bool:
    """Whether an installation or removal that was broken off left a folder of metadata."""
    try:
        return not isinstance(metadata.distribution(name).version, str)
    except metadata.PackageNotFoundError:
        return False
    except (OSError, KeyError, ValueError):
        return True


def _python_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


def _shadows(cwd: Path) -> list[Facts]:
    """Files that an import finds before the module it means, and through which folder."""
    modules = _OURS | set(getattr(sys, "stdlib_module_names", ()))
    modules -= {*sys.builtin_module_names, *_HARMLESS}
    first = sys.path[0] if sys.path and sys.path[0] else str(cwd)
    found: dict[str, Facts] = {}
    for folder, through in (
        (str(cwd), "the working folder"),
        (first, "the working folder" if first == str(cwd) else "the folder of the script"),
        *((part, "PYTHONPATH") for part in _python_path()),
    ):
        real = os.path.realpath(folder)
        if _belongs_to_python(real) or _is_overlay(real):
            continue
        # a toolkit may bring parts of its own through PYTHONPATH: only whole packages count there
        names = _OURS - {"google"} if through == "PYTHONPATH" else modules
        try:
            entries = sorted(os.listdir(real))
        except OSError:
            continue
        for entry in entries:
            name, extension = os.path.splitext(entry)
            path = os.path.join(real, entry)
            if name in names and (
                (extension == ".py" and os.path.isfile(path))
                or (not extension and os.path.isfile(os.path.join(path, "__init__.py")))
            ):
                found.setdefault(
                    path, {"module": name, "path": path, "folder": folder, "through": through}
                )
    return list(found.values())


def _is_overlay(folder: str) -> bool:
    """Whether msnb put another version of MindSpore there, to be imported in place of this one."""
    whole = os.path.isfile(os.path.join(folder, "complete"))
    return whole and os.path.basename(folder).startswith("mindspore-")


def _belongs_to_python(folder: str) -> bool:
    own = os.path.realpath(sys.prefix) + os.sep
    standard = os.path.dirname(os.path.realpath(os.__file__))
    in_environment = os.path.basename(folder) == "bin" or "site-packages" in folder.split(os.sep)
    return folder.startswith(standard) or (folder.startswith(own) and in_environment)


# --- room ----------------------------------------------------------------------------------------


def _resources(cwd: Path, mindspore: Facts | None) -> Facts:
    """Free bytes of memory, disk and shared memory; what cannot be mapped, or written to."""
    places = {"working folder": str(cwd), "temporary files": tempfile.gettempdir()}
    files = [__file__]
    if mindspore:
        files.append(os.path.join(mindspore["folder"], "mindspore", "__init__.py"))
    return {
        "memory": _free_memory(),
        "disk": {label: {"path": path, "free": _free(path)} for label, path in places.items()},
        "shared_memory": _free("/dev/shm"),
        "unmapped": [fault for file in files if (fault := _mapping_fault(file))],
        "unwritable": _writing_fault(runtime_folder()),
    }


def _free(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


def _free_memory() -> int | None:
    """What the machine, or the container's limit, leaves."""
    free = []
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free += [int(n) * 1024 for n in re.findall(r"MemAvailable:\s+(\d+)", file.read())]
    except (OSError, ValueError):
        pass
    base = "/sys/fs/cgroup"
    for limit, used in (
        (f"{base}/memory.max", f"{base}/memory.current"),
        (f"{base}/memory/memory.limit_in_bytes", f"{base}/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit, encoding="ascii") as most, open(used, encoding="ascii") as now:
                free.append(max(int(most.read()) - int(now.read()), 0))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(free, default=None)


def _mapping_fault(path: str) -> Facts | None:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
            return None
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            return None
        return {"folder": os.path.dirname(path), "error": str(error)}


def runtime_folder() -> str:
    """Where Jupyter writes a kernel's connection file (``jupyter_core.paths.jupyter_runtime_dir``).

    A home folder that cannot be written to is found out there first.
    """
    return os.environ.get("JUPYTER_RUNTIME_DIR") or os.path.join(jupyter_data_folder(), "runtime")


def _writing_fault(folder: str) -> Facts | None:
    """What happens to a file in ``folder``, or where that would have to be made."""
    place = os.path.abspath(folder)
    while not os.path.lexists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    try:
        with tempfile.TemporaryFile(dir=place):
            return None
    except OSError as error:
        return {"folder": folder, "error": error.strerror or str(error)}


# --- fresh processes -----------------------------------------------------------------------------


def _probe_all(device_target: str, cwd: Path, seconds: float) -> Facts:
    names = ["mindspore", "torch", "light"]
    wanted = {"cpu": None, "auto": "Ascend", "ascend": "Ascend", "gpu": "GPU"}
    target = wanted.get(device_target.lower(), device_target)
    if target:
        names.insert(1, "device")
    with ThreadPoolExecutor(len(names)) as pool:
        started = {
            name: pool.submit(
                run_probe, f"TARGET = {target!r}\n{_PROBES[name]}", cwd=cwd, seconds=seconds
            )
            for name in names
        }
        return {name: future.result() for name, future in started.items()}


def run_probe(code: str, *, cwd: Path, seconds: float = SECONDS) -> Facts:
    """Run ``code`` in a fresh interpreter in ``cwd``; what it told, and how it ended.

    ``end`` is ``ok``, ``exit N``, ``signal NAME`` or ``timeout``; ``told`` what it printed last;
    ``stderr`` the last 4,000 characters.
    """
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",  # a shadowing file gets no __pycache__ from us
        "GLOG_logtostderr": "1",  # nor the reader's folder a log
        "PYTHONIOENCODING": "utf-8",
    }
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROBE_HEAD + code],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return {"end": f"not started: {error}", "told": None, "stderr": ""}
    out, err, in_time = ascend.answer(process, seconds)
    end = "ok" if process.returncode == 0 else f"exit {process.returncode}"
    if not in_time:
        end = "timeout"
    elif process.returncode < 0:
        end = f"signal {_signal_name(-process.returncode)}"
    told = None
    for line in out.decode("utf-8", "replace").split("\n"):
        if line.startswith(_MARK):
            told = json.loads(line[len(_MARK) :])
    return {"end": end, "told": told, "stderr": err.decode("utf-8", "replace")[-4000:]}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
