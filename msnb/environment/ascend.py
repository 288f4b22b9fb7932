"""Facts of the Ascend side: device nodes, driver, firmware, npu-smi, CANN, variables.

Everything is looked up below ``root``, so that a recorded tree can stand in for a machine: files
under their own paths, and what a machine answers under ``commands``: ``npu-smi-info.txt``,
``id.txt`` and ``env.txt``.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Facts = dict[str, Any]

# Default folders: CANN 8.5 and later install into `cann`, earlier ones into `ascend-toolkit` or,
# without tools, `nnae`; root below /usr/local, others below their home (hiascend.com, CANN software
# installation, set_env.sh).
_CANN = ("cann", "ascend-toolkit/latest", "nnae/latest")
_SET_ENV = ("cann/set_env.sh", "ascend-toolkit/set_env.sh", "nnae/set_env.sh")
MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
PARTS = ("compiler", "runtime", "opp", "opp_kernel", "hccl", "toolkit")
VARIABLES = (
    *("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH", "ASCEND_AICPU_PATH"),
    *("LD_LIBRARY_PATH", "PYTHONPATH"),
    *("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "DEVICE_ID", "ASCEND_DEVICE_ID"),
)
_STARTUP = (
    *("~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.profile", "~/.zshrc", "~/.zprofile"),
    *("/etc/profile", "/etc/bash.bashrc", "/etc/bashrc"),
)
_COMPILER = "compiler/version.info"
_KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel"
SECONDS = 5.0  # for npu-smi, which may hang with its driver
LAST = 2.0  # for a killed process to be gone: one that waits for a driver in the kernel stays


def gather(
    root: str | os.PathLike[str],
    mindspore: Facts | None,
    *,
    home: str | None = None,
    ask: bool = True,
) -> Facts:
    """The Ascend side of the machine below ``root``.

    ``mindspore`` is its installed distribution, whose source names the accepted versions of CANN;
    ``home`` stands in for the user's home folder. Without ``ask`` no command is run.

    Raises ``ValueError`` where ``root`` is no folder.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise ValueError(f"root is the folder of a machine's files, and {folder} is no folder")
    real = folder.resolve() == Path("/")
    home = home or os.path.expanduser("~")
    variables = _variables(folder, real)
    named = variables.get("ASCEND_HOME_PATH", "").rstrip("/") or None
    bases = list(dict.fromkeys(["/usr/local/Ascend", os.path.join(home, "Ascend")]))
    startup = _startup(folder, home)
    written = list(dict.fromkeys(line["script"] for line in startup if line["script"]))
    toolkits = [named] if named else []
    for script in written.copy():  # a reader's own, which may be in none of the default folders
        place = os.path.dirname(script)
        there = [path for path in (place, f"{place}/latest") if _toolkit(folder, path)]
        toolkits += there
        if not there:  # the set_env.sh of something else, such as nnal
            written.remove(script)
    toolkits += [f"{base}/{cann}" for base in bases for cann in _CANN]
    found = [cann for toolkit in dict.fromkeys(toolkits) if (cann := _toolkit(folder, toolkit))]
    looked = ([] if named else ["$ASCEND_HOME_PATH (not set)"]) + toolkits
    nothing: Facts = {"version": None, "path": None}
    faults = [fault for path in toolkits if (fault := _fault(folder, f"{path}/{_COMPILER}"))]
    install = _pairs(folder, "/etc/ascend_install.info")
    driver = install.get("Driver_Install_Path_Param", "/usr/local/Ascend").rstrip("/")
    nodes = _nodes(folder, real)
    group = nodes["group"] or install.get("UserGroup", "HwHiAiUser")
    scripts = written + [f"{base}/{script}" for base in bases for script in _SET_ENV]
    if named:
        scripts = [f"{named}/set_env.sh", f"{os.path.dirname(named)}/set_env.sh", *scripts]
    return {
        "root": "/" if real else str(folder),
        "home_path": named,
        "environment": {name: variables[name] for name in VARIABLES if name in variables},
        "set_env": [s for s in dict.fromkeys(scripts) if os.path.isfile(below(folder, s))],
        "startup": startup,
        "cann": {
            **(found[0] if found else nothing),
            "looked": looked,
            "fault": faults[0] if faults else None,
        },
        "other_cann": found[1:],
        "driver": _part(folder, f"{driver}/driver/version.info"),
        "firmware": _part(folder, f"{driver}/firmware/version.info"),
        "install_info": install,
        "nodes": nodes,
        "container": _in_container(folder),
        "user": _user(folder, real, ask, group),
        "npu_smi": _npu_smi(folder, real, ask),
        "libraries": _libraries(folder, variables, named),
        "opp": _same_folder(folder, variables.get("ASCEND_OPP_PATH"), f"{named}/opp"),
        "packages": _packages(folder, variables, found),
        "hccn": hccn(folder),
        "accepted": _accepted(mindspore),
    }


def below(root: Path, path: str) -> Path:
    """Where ``path`` of the machine lies in the tree ``root``."""
    return root / path.lstrip("/")


def _read(root: Path, path: str) -> str | None:
    place = below(root, path)
    if not os.path.isfile(place):  # nor a pipe, which would keep us waiting
        return None
    try:
        with open(place, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20).replace("\0", "")
    except OSError:
        return None


def _fault(root: Path, path: str) -> str | None:
    """Why this user cannot read ``path``; None where that can be read, or is not there."""
    place = below(root, path)
    try:
        os.stat(place)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        return f"{path} cannot be read: {error.strerror}"
    except ValueError:  # no name of a file
        return None
    return None if os.access(place, os.R_OK) else f"{path} cannot be read: Permission denied"


def _pairs(root: Path, path: str) -> dict[str, str]:
    return pairs(_read(root, path) or "")


def pairs(text: str) -> dict[str, str]:
    """``NAME=value`` lines; of a name written twice the first.

    >>> pairs("Version=[8.5.0]")
    {'Version': '[8.5.0]'}
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and re.fullmatch(r"\w+", name.strip()):
            found.setdefault(name.strip(), value.strip().strip("\"'"))
    return found


def _variables(root: Path, real: bool) -> Mapping[str, str]:
    recorded = None if real else _read(root, "commands/env.txt")
    return os.environ if recorded is None else _pairs(root, "commands/env.txt")


# --- driver, firmware, devices -------------------------------------------------------------------


def _part(root: Path, path: str) -> Facts:
    there = os.path.isfile(below(root, path))
    told = {name.lower(): value for name, value in _pairs(root, path).items()}
    return {
        "version": _version(told.get("version", "")),
        "path": path if there else None,
        "looked": [path],
        "fault": _fault(root, path),
        "inner": told.get("innerversion"),
        "firmware": told.get("compatible_version_fw"),
    }


def _version(text: str) -> str | None:
    return text.strip("[]")[:60] or None


def _nodes(root: Path, real: bool) -> Facts:
    """The numbers of /dev/davinci*, the managers, and those that this user may not open."""
    try:
        names = os.listdir(below(root, "/dev"))
    except OSError:
        names = []
    devices = sorted(int(name[7:]) for name in names if re.fullmatch(r"davinci[0-9]{1,6}", name))
    managers = [name for name in MANAGERS if name in names]
    every = [f"/dev/davinci{number}" for number in devices] + [f"/dev/{name}" for name in managers]
    closed = [
        node for node in every if real and not os.access(below(root, node), os.R_OK | os.W_OK)
    ]
    group = _group_of(below(root, closed[0])) if closed else None
    return {"devices": devices, "managers": managers, "closed": closed, "group": group}


def _group_of(node: Path) -> str | None:
    """The group that may read and write ``node``; None where that is root's, or has no name."""
    try:
        import grp

        told = os.stat(node)
        name = grp.getgrgid(told.st_gid).gr_name
    except (ImportError, OSError, KeyError):
        return None
    return name if told.st_mode & 0o060 == 0o060 and name != "root" else None


def _in_container(root: Path) -> bool:
    if any(os.path.exists(below(root, path)) for path in ("/.dockerenv", "/run/.containerenv")):
        return True
    # with version 2 of cgroups the first file is empty of names, and the mounts tell
    if re.search(r"docker|kubepods|containerd|lxc", _read(root, "/proc/1/cgroup") or ""):
        return True
    mounts = _read(root, "/proc/self/mountinfo") or ""
    return bool(re.search(r" / / .* overlay .*(?:docker|containerd|containers/storage)", mounts))


def _user(root: Path, real: bool, ask: bool, group: str) -> Facts:
    """Whether this user is root, and in ``group``, to whom the device nodes belong."""
    said = _command(root, real, ask, "id", ["id"])["text"]
    groups = set(re.findall(r"\((.*?)\)", said.partition("groups=")[2]))
    return {
        "group": group,
        "known": bool(said),
        "is_root": said.startswith("uid=0("),
        "in_group": group in groups,
    }


def _command(root: Path, real: bool, ask: bool, name: str, words: list[str]) -> Facts:
    """What a command answers: run on a real machine, read from a recorded one."""
    if not real:
        text = _read(root, f"commands/{name}.txt")
        return {"there": text is not None, "text": text or "", "end": "recorded"}
    if not ask:
        return {"there": False, "text": "", "end": "not asked"}
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except FileNotFoundError:
        return {"there": False, "text": "", "end": "not found"}
    except OSError as error:
        return {"there": True, "text": "", "end": f"not started: {error.strerror}"}
    out, _, in_time = answer(process, SECONDS)
    if not in_time:
        return {"there": True, "text": "", "end": "timeout"}
    text = out.decode("utf-8", "replace")[:200_000]
    return {"there": True, "text": text, "end": f"exit {process.returncode}"}


def answer(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, bytes, bool]:
    """What ``process``, which leads a session, wrote to both streams, and whether it ended in time.

    After ``seconds`` it is killed with all that it started. What does not die of that, or has left
    the session and holds the streams, is not waited for.
    """
    try:
        out, err = process.communicate(timeout=seconds)
        return out or b"", err or b"", True
    except subprocess.TimeoutExpired:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            process.kill()
    try:
        out, err = process.communicate(timeout=LAST)
    except subprocess.TimeoutExpired as still:
        out, err = still.stdout, still.stderr  # type: ignore[assignment]
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
    return out or b"", err or b"", False


def _npu_smi(root: Path, real: bool, ask: bool) -> Facts:
    answer = _command(root, real, ask, "npu-smi-info", ["npu-smi", "info"])
    return {"there": answer["there"], "end": answer["end"], **parse_npu_smi(answer["text"])}


_BUS = re.compile(r"[\w]{4}:[\w]{2}:[\w]{2}\.\w|NA")
_USED = re.compile(r"([0-9]{1,9})\s*/\s*([0-9]{1,9})")
_NUMBER = re.compile(r"[0-9]{1,9}")


def parse_npu_smi(text: str) -> Facts:
    """The table of ``npu-smi info``: its version, the chips, and the processes on them.

    Memory is in MB, HBM where the chip has it. ``said`` is the last line of an answer that has no
    table, such as an error of the driver.

    >>> parse_npu_smi("dcmi module initialize failed. ret is -8005")["said"]
    'dcmi module initialize failed. ret is -8005'
    """
    version = re.search(r"npu-smi\s+(\S+)\s+Version", text)
    dies = bool(re.search(r"Chip\s+Phy-ID", text))
    chips: list[Facts] = []
    processes: list[Facts] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        numbers = [int(word) for word in cells[0].split() if _NUMBER.fullmatch(word)]
        if len(cells) == 3 and numbers and _BUS.fullmatch(cells[1]):
            if not chips:
                continue
            if "chip" in chips[-1]:  # a second die under the same NPU
                chips.append({key: chips[-1][key] for key in ("npu", "name", "health")})
            pairs = _USED.findall(cells[2])
            # an inference chip has no HBM, but may have its column: 0 / 0
            used, total = next((pair for pair in reversed(pairs) if pair[1] != "0"), ("", ""))
            chips[-1] |= {
                "chip": numbers[0],
                "device": numbers[1] if dies and len(numbers) > 1 else len(chips) - 1,
                "used": int(used) if used else None,
                "total": int(total) if total else None,
            }
        elif len(cells) == 3 and len(cells[0].split()) == 2 and numbers:
            npu, name = cells[0].split()
            if not _NUMBER.fullmatch(npu):
                continue
            chips.append({"npu": int(npu), "name": name, "health": cells[1]})
        elif len(cells) == 4 and numbers and _NUMBER.fullmatch(cells[1]):
            processes.append(
                {
                    "npu": numbers[0],
                    "chip": numbers[1] if len(numbers) > 1 else 0,
                    "pid": int(cells[1]),
                    "name": cells[2],
                    "memory": int(cells[3]) if _NUMBER.fullmatch(cells[3]) else None,
                }
            )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return {
        "version": version[1] if version else None,
        "two_dies": dies,
        "chips": [chip for chip in chips if "chip" in chip],
        "processes": processes,
        "said": "" if chips or not lines else lines[-1][:300],
    }


def hccn(root: Path) -> Facts:
    """The device addresses of this server, from ``/etc/hccn.conf``: ``{"0": ["192.168.1.8"]}``.

    ``devices`` is None where there is no such file.
    """
    path = "/etc/hccn.conf"
    try:
        if not os.path.isfile(below(root, path)):
            os.stat(below(root, path))
            return {"path": path, "devices": None, "error": "no file"}
        text = below(root, path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return {"path": path, "devices": None, "error": error.strerror or str(error)}
    found: dict[str, list[str]] = {}
    for device, address in re.findall(
        r"^\s*(?:IPv6)?address_([0-9]{1,6})\s*=\s*(\S+)", text, re.M | re.I
    ):
        found.setdefault(device, []).append(address)
    return {"path": path, "devices": found}


# --- CANN ----------------------------------------------------------------------------------------


def _toolkit(root: Path, path: str) -> Facts | None:
    """CANN in ``path``: what its compiler, its other parts and its installer say; None if nothing.

    ``version`` is what MindSpore compares, ``Version=`` of the compiler: CANN 8.0.0 has 7.6.0.1.220
    there, and its own number in ``version_dir``.
    """
    parts = {}
    for part in PARTS:
        told = _pairs(root, f"{path}/{part}/version.info")
        if told:
            version = _version(told.get("Version", told.get("version", "")))
            parts[part] = {"version": version, "product": _version(told.get("version_dir", ""))}
    installer = None
    for folder in ("", "aarch64-linux/", "x86_64-linux/", "arm64-linux/", "share/info/"):
        for name in ("ascend_toolkit_install.info", "ascend_nnae_install.info"):
            version = _version(_pairs(root, f"{path}/{folder}{name}").get("version", ""))
            if installer is None and version:
                installer = {"path": f"{path}/{folder}{name}", "version": version}
    compiler = f"{path}/{_COMPILER}"
    there = os.path.isfile(below(root, compiler))
    if not parts and not installer and not there:
        return None
    said = parts.get("compiler", {})
    product = said.get("product")
    return {
        "folder": path,
        "path": compiler if there else (installer or {}).get("path") or f"{path}",
        "compiler": there,
        "version": said.get("version"),
        # CANN 9 writes version_dir=cann there, which is no number
        "product": product
        if product and product[:1].isdigit()
        else (installer or {}).get("version"),
        "parts": parts,
        "installer": installer,
        "kernels": _folders(below(root, f"{path}/{_KERNELS}")),
    }


def _folders(folder: Path) -> list[str] | None:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.name.startswith("ascend"))
    except OSError:
        return None


# The script's name may be quoted, wholly or in part, or have a backslash before each space.
_WORD = r"""(?:"[^"]*"|'[^']*'|\\.|[^\s"'\\;&|])*"""
_SOURCES = re.compile(
    rf"^[^#]*(?:\bsource|(?:^|[\s;&])\.)\s+(?=(?P<word>{_WORD}))(?P=word)(?<=set_env\.sh)"
    r"""|^[^#]*(?:\bsource|(?:^|[\s;&])\.)\s+(?:"[^"]*set_env\.sh"|'[^']*set_env\.sh')"""
)


def _startup(root: Path, home: str) -> list[Facts]:
    """Lines of the shell's own files that source CANN's set_env.sh, and its path if it is plain."""
    extra = [f"/etc/profile.d/{name}" for name in _names(root, "/etc/profile.d", ".sh")]
    found = []
    for name in (*_STARTUP, *extra):
        path = name.replace("~", home, 1) if name.startswith("~") else name
        for line in (_read(root, path) or "").splitlines():
            if _SOURCES.search(line):
                script = _script_in(line, home)
                found.append({"file": name, "line": line.strip(), "script": script})
    return found


def _script_in(line: str, home: str) -> str | None:
    """The absolute path of the set_env.sh that ``line`` sources; None where it holds a variable."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return None
    for word in words:
        if word.endswith("set_env.sh"):
            path = re.sub(r"^(?:~|\$HOME|\$\{HOME\})(?=/)", home, word)
            return os.path.normpath(path) if path.startswith("/") and "$" not in path else None
    return None


def _names(root: Path, folder: str, ending: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(below(root, folder)) if name.endswith(ending))
    except OSError:
        return []


def _libraries(root: Path, variables: Mapping[str, str], home: str | None) -> Facts:
    """Where the loader looks: LD_LIBRARY_PATH and /etc/ld.so.conf.d, as far as Ascend's go.

    Of the folders of a CANN, ``own`` are those of the one in ``home``, by whatever link they are
    named; ``foreign`` those of another.
    """
    listed = [part.rstrip("/") for part in variables.get("LD_LIBRARY_PATH", "").split(":") if part]
    configured = []
    for name in ("/etc/ld.so.conf", *_conf(root)):
        lines = [line.strip() for line in (_read(root, name) or "").splitlines()]
        configured += [line for line in lines if "scend" in line and not line.startswith("#")]
    cann = [part for part in listed + configured if _CANN_FOLDER.search(part) and "lib64" in part]
    here = _resolved(root, home) + os.sep if home else ""
    own = [
        p
        for p in cann
        if home and (p.startswith(f"{home}/") or _resolved(root, p).startswith(here))
    ]
    return {
        "own": own,
        "foreign": [part for part in cann if part not in own and part in listed],
        "driver": [part for part in listed + configured if "driver/lib64" in part],
    }


_CANN_FOLDER = re.compile(r"/(?:cann[^/]*|ascend-toolkit|nnae)/")


def _resolved(root: Path, path: str) -> str:
    return os.path.realpath(below(root, path))


def _same_folder(root: Path, one: str | None, other: str) -> bool:
    return one is not None and (
        one.rstrip("/") == other or _resolved(root, one) == _resolved(root, other)
    )


def _conf(root: Path) -> list[str]:
    return [f"/etc/ld.so.conf.d/{name}" for name in _names(root, "/etc/ld.so.conf.d", ".conf")]


def _packages(root: Path, variables: Mapping[str, str], found: list[Facts]) -> Facts:
    """Where ``import te`` and ``import hccl`` would find CANN's packages, if anywhere.

    MindSpore imports te to compile operators (``check_deps_version`` in its _check_version.py).
    """
    listed = [part for part in variables.get("PYTHONPATH", "").split(":") if part]
    own = [f"{cann['folder']}/python/site-packages" for cann in found[:1]]
    packages: Facts = {"own": own[0] if own else None}
    here = _resolved(root, found[0]["folder"]) + os.sep if found else ""
    for name in ("te", "hccl"):
        places = [p for p in listed if os.path.isdir(below(root, f"{p}/{name}"))]
        packages[name] = {
            "on_path": places[0] if places else None,
            "foreign": bool(
                places
                and _CANN_FOLDER.search(places[0])
                and not _resolved(root, places[0]).startswith(here)
            ),
            "beside": next((p for p in own if os.path.isdir(below(root, f"{p}/{name}"))), None),
        }
    return packages


def _accepted(mindspore: Facts | None) -> Facts:
    """CANN's versions that the installed MindSpore accepts, read from its source by parsing."""
    if mindspore is None:
        return {"versions": None, "file": None}
    file = os.path.join(mindspore["folder"], "mindspore", "run_check", "_check_version.py")
    return {**accepted_cann(file), "file": file}


def accepted_cann(file: str) -> Facts:
    """The list that ``AscendEnvChecker.__init__`` assigns to ``self.version`` in ``file``."""
    try:
        with open(file, encoding="utf-8") as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError, ValueError) as error:
        return {"versions": None, "error": f"{type(error).__name__}: {error}"}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.ClassDef) and node.name == "AscendEnvChecker"):
            continue
        for statement in ast.walk(node):
            if not (
                isinstance(statement, ast.Assign)
                and isinstance(statement.targets[0], ast.Attribute)
                and statement.targets[0].attr == "version"
            ):
                continue
            try:
                versions = ast.literal_eval(statement.value)
            except ValueError:
                continue
            if isinstance(versions, (list, tuple)) and versions:
                return {"versions": [str(version) for version in versions]}
    return {"versions": None, "error": "no list of versions in class AscendEnvChecker"}
