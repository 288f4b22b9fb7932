"""Rules that judge the facts: one function a row, from facts to a Check, and no other look."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable

from msnb.environment import ascend_rules
from msnb.environment.ascend_rules import FIRST
from msnb.environment.facts import KERNEL, Facts
from msnb.report import Check

PYTHONS = ((3, 10), (3, 11), (3, 12))  # wheels of MindSpore 2.10.0 on PyPI
MINDSPORE = ((2, 7, 2), (2, 11))  # from, below: the range in pyproject.toml
PINNED = "2.10.0"  # the version in constraints.txt
OTHERS = ("mindspore-ascend", "mindspore-dev", "mindspore-gpu")  # the same package, built otherwise
MEMORY, DISK, SHARED = 1 << 30, 256 << 20, 32 << 20  # bytes that are to be free

Rule = Callable[[Facts], Check]


def judge(facts: Facts) -> list[Check]:
    """One Check a row, in the order in which they are worth reading.

    A row that cannot be judged from ``facts`` has status ``error``; the others are still there.
    """
    causes = ascend_rules.wanted(facts)
    device = {"device": _device}
    rows = []
    for name, rule in {
        **RULES,
        **(ascend_rules.CAUSES | device if causes else device | ascend_rules.ALWAYS),
    }.items():
        try:
            rows.append(rule(facts))
        except Exception as error:
            reason = f"could not be judged: {type(error).__name__}: {error}"
            rows.append(Check(name, "error", reason, remedy="msnb doctor --json  # please report"))
    return rows


# --- one environment: interpreter, prefix, pip, kernel -------------------------------------------


def _python(facts: Facts) -> Check:
    python = facts["python"]
    version = tuple(python["version"])
    text = ".".join(map(str, version))
    metrics = {"minor": version[1]}
    expected = "Python " + ", ".join(f"{a}.{b}" for a, b in PYTHONS) + f": MindSpore {PINNED} has"
    expected += " wheels for these"
    found = f"{python['executable']} (Python {text}, {python['kind']})"
    if version[:2] in PYTHONS:
        summary = f"Python {version[0]}.{version[1]}: MindSpore has a wheel for it"
        return Check("python", "ok", summary, found, expected, metrics=metrics)
    return Check(
        "python",
        "failed",
        f"Python {text}: MindSpore has no wheel for it",
        found,
        expected,
        _new_environment(facts),
        metrics,
    )


def _new_environment(facts: Facts) -> str:
    if facts["python"]["kind"].startswith("conda"):
        return "conda env create -f environment.yml && conda activate msnb && msnb doctor --fix"
    return "rm -rf .venv && make setup  # with python3.11 installed"


def _environment(facts: Facts) -> Check:
    python, active = facts["python"], facts["active"]
    expected = "an environment (venv or conda) into which MindSpore is installed"
    if python["kind"] in ("system", "conda base") and not facts["distributions"]["mindspore"]:
        base = python["kind"] == "conda base"
        return Check(
            "environment",
            "failed",
            f"this is {'conda base' if base else 'the Python of the system'}, without MindSpore",
            python["executable"],
            expected,
            _new_environment(facts)
            if base
            else "make setup && .venv/bin/python -m msnb.environment",
        )
    if (
        active["prefix"]
        and not facts["in_kernel"]
        and active["real_prefix"] != python["real_prefix"]
    ):
        return Check(
            "environment",
            "failed",
            f"this shell has another environment active ({active['variable']})",
            f"running {python['executable']}, active {active['prefix']}",
            "the active environment is the one this interpreter belongs to",
            _activate(facts),
        )
    summary = f"interpreter and prefix are one environment, {python['prefix']}"
    return Check("environment", "ok", summary, python["executable"], expected)


def _activate(facts: Facts) -> str:
    python = facts["python"]
    if python["kind"] == "conda":
        return f"conda activate {shlex.quote(python['prefix'])}"
    return f"source {shlex.quote(python['prefix'] + '/bin/activate')}"


def _pip(facts: Facts) -> Check:
    pip, own = facts["pip"], facts["python"]["real_prefix"]
    expected = f"pip installs into {facts['python']['prefix']}"
    if pip["own"] is None:
        return Check(
            "pip",
            "failed",
            "this interpreter has no pip: what is installed elsewhere does not reach it",
            f"pip on PATH: {pip['on_path'] or 'none'}",
            expected,
            f"{_typed(facts)} -m ensurepip --upgrade",
        )
    found = f"pip {pip['own']}; on PATH: {pip['on_path'] or 'none'}"
    if facts["in_kernel"]:  # what a shell would find does not matter here: %pip is right
        summary = "`%pip` installs here; a bare `!pip` need not"
        return Check("pip", "ok", summary, found, expected)
    if pip["on_path"] is None or pip["on_path_prefix"] == own:
        return Check("pip", "ok", "installs here", found, expected)
    if not facts["active"]["prefix"]:  # nobody expects a bare pip to be this one
        summary = "`python -m pip` installs here; a bare `pip` does not: no environment is active"
        return Check("pip", "ok", summary, found, expected)
    return Check(
        "pip",
        "failed",
        "a bare `pip` installs into another environment",
        found,
        expected,
        f"{_activate(facts)}  # or write {_typed(facts)} -m pip for pip",
    )


def _kernel(facts: Facts) -> Check:
    own = facts["python"]["real_prefix"]
    expected = f"the kernelspec `{KERNEL}` starts {facts['python']['executable']}"
    fix = f"{_typed(facts)} -m msnb.environment --fix"
    if not facts["kernelspecs"]:
        summary = f"no kernelspec `{KERNEL}` is registered: notebooks have no kernel to choose"
        return Check("kernel", "failed", summary, "", expected, fix)
    if not facts["distributions"].get("ipykernel"):
        remedy = _install(facts, "ipykernel")
        return Check("kernel", "failed", "ipykernel is not installed", "", expected, remedy)
    first = facts["kernelspecs"][0]
    found = f"{first['folder']} starts {first['python']}"
    if first["prefix"] == own and first["there"]:
        summary = f"the kernelspec `{KERNEL}` starts this interpreter"
        return Check("kernel", "ok", summary, found, expected)
    if first.get("error"):
        summary = f"kernel.json cannot be read: {first['error']}"
        found = first["folder"]
    elif first["prefix"] is None:
        summary = f"starts whichever {first['python']!r} is found first, not this environment"
    elif not first["there"]:
        summary = "starts an interpreter that is no longer there"
    else:
        summary = "starts the interpreter of another environment"
    if facts["in_kernel"] and first["there"] and _starts_dot_venv(first, facts):
        summary += ": the notebook runs in another kernel"
        fix = f"Kernel > Change Kernel... > {KERNEL}"
    elif not first["own"]:
        fix = f"rm -r {shlex.quote(first['folder'])} && {fix}"  # it would go on hiding ours
    return Check("kernel", "failed", f"the kernelspec `{KERNEL}` {summary}", found, expected, fix)


def _starts_dot_venv(spec: Facts, facts: Facts) -> bool:
    return bool(facts[".venv"] and spec["prefix"] == facts[".venv"]["prefix"])


def _dot_venv(facts: Facts) -> Check:
    venv, own = facts[".venv"], facts["python"]["real_prefix"]
    expected = ".venv in the repository is this environment: make and VS Code use .venv/bin/python"
    fix = f"{_typed(facts)} -m msnb.environment --fix"
    if venv is None:
        return Check(".venv", "skipped", "no repository of msnb around the working folder")
    if venv["kind"] == "missing":
        summary = "the repository has no .venv: make and VS Code look for .venv/bin/python"
        return Check(".venv", "skipped", summary, "", expected, fix)
    if venv["kind"] == "dangling":
        summary = "links to a folder that is no longer there"
        return Check(".venv", "failed", summary, f".venv -> {venv['prefix']}", expected, fix)
    if not venv["python"]:
        summary = "has no bin/python: it is a torn or moved environment"
        return Check(".venv", "failed", summary, "", expected, "rm -rf .venv && make setup")
    if venv["prefix"] != own:
        found = venv["path"] + (f" -> {venv['prefix']}" if venv["kind"] == "link" else "")
        remedy = f"{shlex.quote(venv['path'])}/bin/python -m msnb.environment"
        if venv["kind"] == "link":
            remedy += f"\nrm {shlex.quote(venv['path'])} && {fix}  # or make it this environment"
        summary = "is another environment than the one that runs this"
        found += f", running {facts['python']['executable']}"
        return Check(".venv", "failed", summary, found, expected, remedy)
    return Check(".venv", "ok", "in the repository, is this environment", venv["path"], expected)


def _way_in(facts: Facts) -> Check:
    """Where the reader is, and whether what is written down for editors leads here."""
    way, named, own = facts["way_in"], facts["settings"], facts["python"]["real_prefix"]
    through = way["through"]
    if facts["ascend"].get("container") and "container" not in through:
        through += ", in a container"
    found = ", ".join(way["by"])
    expected = "VS Code's settings name this interpreter; notebooks ask for a kernel that is there"
    if named and named["path"] and (not named["there"] or named["prefix"] != own):
        is_dot_venv = facts[".venv"] and named["path"].startswith(f"{facts['.venv']['path']}/")
        if not is_dot_venv:  # the row .venv speaks of that one
            fault = "is another environment" if named["there"] else "is not there"
            summary = f"{through}: {named['file']} names {named['named']}, which {fault}"
            remedy = f"git -C {shlex.quote(str(facts['places']['repo']))} checkout -- "
            remedy += ".vscode/settings.json  # the committed one names .venv/bin/python"
            return Check("way in", "failed", summary, found, expected, remedy)
    astray = [notebook for notebook in facts["notebooks"] if not notebook["there"]]
    if facts["kernelspecs"] and astray:
        names = ", ".join(os.path.basename(notebook["path"]) for notebook in astray[:3])
        names += f" and {len(astray) - 3} more" if len(astray) > 3 else ""
        asked = ", ".join(dict.fromkeys(str(n["kernel"] or "none") for n in astray))
        asks = "ask" if len(astray) > 1 else "asks"
        summary = f"{through}: {names} {asks} for a kernel that is not there ({asked})"
        remedy = f"Kernel > Change Kernel... > {KERNEL}  # in it, then save"
        return Check("way in", "failed", summary, found, expected, remedy)
    return Check("way in", "ok", through, found, expected)


# --- packages ------------------------------------------------------------------------------------


def _mindspore(facts: Facts) -> Check:
    installed, probe = facts["distributions"]["mindspore"], facts["probes"]["mindspore"]
    told = probe["told"] or {}
    low, high = (".".join(map(str, v)) for v in MINDSPORE)
    expected = f"MindSpore {low} or later, below {high}, that can be imported"
    version = told.get("version") or (installed or {}).get("version")
    if version is None:
        if facts["shadows"] and "ModuleNotFoundError" not in _last_line(probe):
            return _not_importable("mindspore", facts, expected)
        return Check(
            "mindspore",
            "failed",
            "not installed in this environment",
            _last_line(probe),
            expected,
            _install(facts, f"mindspore=={PINNED}"),
        )
    if "version" not in told:
        return _not_importable("mindspore", facts, expected)
    others = [name for name in OTHERS if facts["distributions"].get(name)]
    if others and installed:
        summary = f"{' and '.join(others)} beside mindspore: both write into one folder, and which "
        summary += "files are there is chance"
        remedy = f"{_typed(facts)} -m pip uninstall -y mindspore {' '.join(others)}\n"
        remedy += _install(facts, f"mindspore=={installed['version']}")
        return Check("mindspore", "failed", summary, told["file"], expected, remedy)
    if not MINDSPORE[0] <= numbers(version) < MINDSPORE[1]:
        return Check(
            "mindspore",
            "failed",
            f"version {version} is outside the supported range",
            told["file"],
            expected,
            _install(facts, f"mindspore=={PINNED}"),
        )
    return Check("mindspore", "ok", f"{version} is imported", told["file"], expected)


def _first_operation(facts: Facts) -> Check:
    probe = facts["probes"]["mindspore"]
    told = probe["told"] or {}
    name = "first operation"
    expected = f"Tensor([1., 2.]) + 1 is {FIRST} on the CPU, in a fresh process"
    if "version" not in told:
        reason = "needs a MindSpore that can be imported"
        return Check(name, "skipped", reason, "", expected)
    if told.get("result") == FIRST:
        metrics = {"max_abs_error": 0.0}
        return Check(name, "ok", f"Tensor([1., 2.]) + 1 is {FIRST}", "", expected, metrics=metrics)
    numpy = str(told.get("numpy", ""))
    if "result" in told:
        summary, found = "gives a wrong result", str(told["result"])
    elif "error" in told:
        summary, found = "raises " + told["error"][0], ": ".join(told["error"])
    else:
        summary, found = f"ends the process ({probe['end']})", _last_line(probe)
    remedy = _install(facts, f"--force-reinstall --no-deps mindspore=={PINNED}")
    if _numpy_two(facts):
        summary += f", with NumPy {numpy}: see numpy"
        remedy = _install(facts, '"numpy<2"')
    return Check(name, "failed", summary, found, expected, remedy)


def _numpy_two(facts: Facts) -> bool:
    """Whether the first operation fails and NumPy's major version can be the cause."""
    told = facts["probes"]["mindspore"]["told"] or {}
    version = told.get("numpy")
    return bool(version and numbers(version) >= (2,) and told.get("result") != FIRST)


def _numpy(facts: Facts) -> Check:
    light = (facts["probes"]["light"]["told"] or {}).get("numpy", {})
    expected = "NumPy 1.25 or later with which MindSpore's first operation works: today NumPy 1.x"
    remedy = _install(facts, '"numpy<2"')
    if "version" not in light or "error" in light:
        return _not_importable("numpy", facts, expected, remedy=remedy)
    version = light["version"]
    metrics = {"major": numbers(version)[0]}
    if _numpy_two(facts):
        return Check(
            "numpy",
            "failed",
            f"{version}: this MindSpore was compiled against NumPy 1 and its first operation fails",
            _numpy_line(facts) or light["file"],
            expected,
            remedy,
            metrics,
        )
    told = facts["probes"]["mindspore"]["told"] or {}
    if told.get("result") == FIRST:
        summary = f"{version}: MindSpore's first operation works with it"
        return Check("numpy", "ok", summary, light["file"], expected, metrics=metrics)
    if numbers(version) >= (2,):  # MindSpore cannot be asked
        summary = f"{version} is imported; MindSpore {PINNED} does not work with NumPy 2"
        return Check("numpy", "failed", summary, light["file"], expected, remedy, metrics)
    return Check("numpy", "ok", f"{version} is imported", light["file"], expected, metrics=metrics)


def _numpy_line(facts: Facts) -> str:
    stderr = " ".join(facts["probes"]["mindspore"]["stderr"].split())
    found = re.search(r"A module that was compiled using NumPy 1.*? may crash\.", stderr)
    return found[0] if found else ""


def _torch(facts: Facts) -> Check:
    installed, probe = facts["distributions"]["torch"], facts["probes"]["torch"]
    told = probe["told"] or {}
    expected = "PyTorch can be imported: it is the other half of every comparison"
    if told.get("result") == FIRST:
        version = told["version"]
        summary = f"{version.partition('+')[0]} is imported"
        return Check("torch", "ok", summary, f"{version}, {told['file']}", expected)
    if installed is None and "ModuleNotFoundError" in _last_line(probe):
        summary = "not installed in this environment"
        return Check("torch", "failed", summary, "", expected, _install(facts, "torch"))
    return _not_importable("torch", facts, expected)


def _protobuf(facts: Facts) -> Check:
    installed = facts["distributions"]["protobuf"]
    light = (facts["probes"]["light"]["told"] or {}).get("google.protobuf", {})
    wish = _requirement(facts, "protobuf")
    expected = f"protobuf{wish}, as MindSpore's metadata asks for" if wish else "protobuf"
    remedy = _install(facts, f'"protobuf{wish}"')
    if installed is None:
        return Check("protobuf", "failed", "not installed", "", expected, remedy)
    if "version" not in light or "error" in light:
        return _not_importable("protobuf", facts, expected, remedy=remedy)
    version = light["version"]
    if not satisfies(version, wish):
        summary = f"{version} is outside of what MindSpore asks for ({wish})"
        return Check("protobuf", "failed", summary, light["file"], expected, remedy)
    return Check("protobuf", "ok", f"{version} is imported", light["file"], expected)


def _requirement(facts: Facts, name: str) -> str:
    for line in (facts["distributions"]["mindspore"] or {}).get("requires", []):
        found = re.match(r"([\w.-]+)\s*\(?([^;)]*)", line)
        if found and found[1].lower() == name and ";" not in line:
            return found[2].replace(" ", "")
    return ""


def _shadowing(facts: Facts) -> Check:
    shadows = facts["shadows"]
    expected = "no file named like a module that is imported"
    metrics = {"files": len(shadows)}
    if not shadows:
        summary = "no file in the working folder or on PYTHONPATH hides a module"
        return Check("shadowing", "ok", summary, "", expected, metrics=metrics)
    names = ", ".join(shadow["path"] for shadow in shadows)
    modules = ", ".join(dict.fromkeys(shadow["module"] for shadow in shadows))
    through = " and ".join(dict.fromkeys(shadow["through"] for shadow in shadows))
    summary = f"`import` finds other files in place of {modules}, through {through}"
    return Check("shadowing", "failed", summary, names, expected, _unhide(shadows, facts), metrics)


def _unhide(shadows: list[Facts], facts: Facts) -> str:
    """Rename what lies in the reader's folder; take a folder that hides packages off PYTHONPATH."""
    lines = []
    hiding = {s["folder"] for s in shadows if s["through"] == "PYTHONPATH"}
    if hiding:
        kept = [part for part in facts["python_path"] if part not in hiding]
        lines.append(
            "export PYTHONPATH=" + shlex.quote(os.pathsep.join(kept))
            if kept
            else "unset PYTHONPATH"
        )
    for shadow in shadows:
        if shadow["through"] != "PYTHONPATH":
            stem, extension = os.path.splitext(shadow["path"])
            new = f"{stem}_mine{extension}"
            lines.append(f"mv {shlex.quote(shadow['path'])} {shlex.quote(new)}")
    return "\n".join(lines)


def _requirements(facts: Facts) -> Check:
    asked = facts["requirements"]
    expected = "what msnb asks for is installed, each in a version that fits"
    metrics = {"requirements": len(asked)}
    if not asked:
        return Check("requirements", "skipped", "what msnb asks for is not known here")
    torn = [r for r in asked if r.get("torn")]
    missing = [r for r in asked if r["have"] is None and r not in torn]
    unfit = [r for r in asked if r["have"] and not satisfies(r["have"], r["asks"])]
    if not torn and not missing and not unfit:
        summary = "all that msnb asks for is installed"
        return Check("requirements", "ok", summary, "", expected, metrics=metrics)
    words = [f"{r['name']} is half installed, its metadata are gone" for r in torn]
    words += [f"{r['name']} is not installed" for r in missing]
    words += [f"{r['name']} is {r['have']}, asked for {r['asks']}" for r in unfit]
    remedy = "\n".join(
        _install(facts, option + " ".join(shlex.quote(r["name"] + r["asks"]) for r in some))
        # pip takes what is torn for installed
        for option, some in (("--force-reinstall --no-deps ", torn), ("", missing + unfit))
        if some
    )
    if facts["python"]["kind"] in ("system", "conda base"):
        remedy = _new_environment(facts)
    summary = "; ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")
    return Check("requirements", "failed", summary, "; ".join(words), expected, remedy, metrics)


def _variables(facts: Facts) -> Check:
    """What was measured with MindSpore 2.10.0 stands at each variable, else its documentation."""
    found = facts["variables"]
    expected = "no variable left over that changes what Python or MindSpore does"
    breaks = {name: why for name in found if (why := _breaks(name, found[name]))}
    if breaks:
        summary = "; ".join(f"{name}={found[name]} {why}" for name, why in breaks.items())
        remedy = f"unset {' '.join(breaks)}"
        return Check("variables", "failed", summary, "", expected, remedy)
    changes = {name: why for name in found if (why := _changes(name, found[name]))}
    if not changes:
        summary = "none is set that changes what Python or MindSpore does"
        return Check("variables", "ok", summary, "", expected)
    summary = "; ".join(f"{name}={found[name]} {why}" for name, why in changes.items())
    return Check("variables", "ok", summary, "", expected, metrics={"set": len(changes)})


def _breaks(name: str, value: str) -> str:
    if name == "PYTHONOPTIMIZE" and value not in ("", "0"):
        return "removes every assert: a notebook would prove nothing"
    if name == "PYTHONHOME" and value:
        return "gives Python another standard library"
    if name == "PYTHONWARNINGS" and value.startswith("error"):
        return "turns warnings into errors: importing MindSpore raises DeprecationWarning"
    if name in ("GLOG_v", "GLOG_stderrthreshold") and value not in ("0", "1", "2", "3", "4"):
        return "is no level of MindSpore's log, 0 to 4: importing it raises ValueError"
    if name == "MS_SIMULATION_LEVEL" and value:
        return "is MindSpore's simulation of a cluster: its operations raise, or are not executed"
    if name == "MINDSPORE_DUMP_CONFIG" and not os.path.isfile(value):
        return "names a file that is not there: the first operation raises"
    if name == "RANK_TABLE_FILE" and not os.path.isfile(value):
        return "names a file that is not there"
    if name == "MS_ROLE" and value:
        return "is left over from a launcher: init() waits for its scheduler"
    return ""


def _changes(name: str, value: str) -> str:
    if name == "GLOG_v":
        return {"0": "floods the log", "1": "floods the log", "2": ""}.get(value, "hides warnings")
    return {
        "MS_SUBMODULE_LOG_v": "changes MindSpore's log",
        "MS_JIT": "leaves functions under ms.jit uncompiled" if value == "0" else "",
        "MS_COMPILER_CACHE_ENABLE": "may load a graph compiled earlier" if value == "1" else "",
        "MS_ALLOC_CONF": "changes the memory pool",
        "MS_DEV_RUNTIME_CONF": "changes the runtime",
        "MINDSPORE_DUMP_CONFIG": "dumps tensors",
        "RANK_TABLE_FILE": "is used by HCCL: msnb doctor --rank-table judges it",
        "OMP_NUM_THREADS": "is the number of threads, whatever this machine has",
        "LD_PRELOAD": "puts a library before all others",
        "ASCEND_LAUNCH_BLOCKING": "makes operations wait" if value == "1" else "",
        "ASCEND_GLOBAL_LOG_LEVEL": "floods the log" if value in ("0", "1") else "",
    }.get(name, "")


def _room(facts: Facts) -> Check:
    room = facts["resources"]
    expected = (
        f"{_size(MEMORY)} of memory, {_size(DISK)} of disk and {_size(SHARED)} of /dev/shm free, "
        "file systems that map files, and a home folder, or what stands in for it, to write to"
    )
    disk = {label: place for label, place in room["disk"].items() if place["free"] is not None}
    if room["memory"] is not None and room["memory"] < MEMORY:
        summary = f"{_size(room['memory'])} of memory free: importing both frameworks takes more"
        remedy = "ps axo pid,rss,args --sort=-rss | head  # and end what is not needed"
        return Check("room", "failed", summary, "", expected, remedy)
    for label, place in disk.items():
        if place["free"] < DISK:
            summary = f"{_size(place['free'])} of disk free for the {label}"
            remedy = f"df -h {shlex.quote(place['path'])}"
            if label.startswith("temp"):
                remedy += "; export TMPDIR=...  # a folder with room"
            return Check("room", "failed", summary, place["path"], expected, remedy)
    if room["shared_memory"] is not None and room["shared_memory"] < SHARED:
        summary = f"{_size(room['shared_memory'])} of /dev/shm free: datasets with several "
        summary += "processes need it"
        remedy = "df -h /dev/shm  # a container gets it by: docker run --shm-size=1g"
        return Check("room", "failed", summary, "", expected, remedy)
    fault = room["unwritable"]
    if fault:
        summary = f"no kernel can start: its connection file goes to {fault['folder']}, "
        summary += f"which cannot be written ({fault['error']})"
        names = ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR")
        remedy = "export " + " ".join(f'{name}="$(mktemp -d)"' for name in names)
        return Check("room", "failed", summary, "", expected, remedy)
    if room["unmapped"]:
        fault = room["unmapped"][0]
        summary = f"the file system of {fault['folder']} cannot map files: {fault['error']}"
        remedy = f"df -T {shlex.quote(fault['folder'])}  # move the environment to a local disk"
        return Check("room", "failed", summary, "", expected, remedy)
    summary = "enough memory, disk and shared memory"
    return Check("room", "ok", summary, "", expected)  # no numbers: they differ every time


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


def _not_importable(name: str, facts: Facts, expected: str, *, remedy: str = "") -> Check:
    """The row of a package that is there but breaks: its cause first, else a new copy of it."""
    module = {"protobuf": "google.protobuf"}.get(name, name)
    probe = facts["probes"][name if name in ("mindspore", "torch") else "light"]
    error = ((probe["told"] or {}).get(module) or {}).get("error")
    cause = ": ".join(error) if error else _last_line(probe)
    if probe["end"] == "timeout":
        summary = "importing it did not end in time"
        return Check(
            name, "error", summary, cause, expected, f"{_typed(facts)} -c 'import {module}'"
        )
    if "ModuleNotFoundError" in cause and f"'{module}'" in cause:
        summary = "not installed in this environment"
    elif probe["end"].startswith("signal"):
        summary = f"importing it ends the process ({probe['end']})"
    else:
        summary = "importing it fails"
    blamed = [shadow for shadow in facts["shadows"] if shadow["path"] in probe["stderr"] + cause]
    blamed = blamed or [shadow for shadow in facts["shadows"] if shadow["module"] == module]
    if blamed:
        summary += f" because of {blamed[0]['path']}"
        return Check(name, "failed", summary, cause, expected, _unhide(blamed, facts))
    if facts["shadows"] and not summary.startswith("not installed"):
        # Neither is proof, but pip, which a new copy takes, would import the same files.
        summary += ": see shadowing"
        return Check(name, "failed", summary, cause, expected, _unhide(facts["shadows"], facts))
    wish = _requirement(facts, "protobuf")
    protobuf = (facts["distributions"]["protobuf"] or {}).get("version")
    if name == "mindspore" and (not protobuf or not satisfies(protobuf, wish)):
        summary += ": see protobuf"
        remedy = _install(facts, f'"protobuf{wish}"')
    version = (facts["distributions"].get(name) or {}).get("version")
    exact = f"{name}=={version.partition('+')[0]}" if version else name
    lacking = re.search(r"ModuleNotFoundError: No module named '([\w]+)", cause)
    if not remedy and lacking and lacking[1] != module:
        # it is whole and what it asks for is not: pip brings what is missing, and no NumPy 2
        summary += f": {lacking[1]} is not installed"
        remedy = _install(facts, f'{exact} "numpy<2"' if name == "mindspore" else exact)
    if not remedy:
        remedy = _install(facts, f"--force-reinstall --no-deps {exact}")
    return Check(name, "failed", summary, cause, expected, remedy)


# --- the device and what it needs ----------------------------------------------------------------


def _device(facts: Facts) -> Check:
    target = facts["target"]
    mindspore = facts["probes"]["mindspore"]["told"] or {}
    expected = f"MindSpore runs an operation on {_spelt(target)} in a fresh process"
    if "version" not in mindspore:
        return Check("device", "skipped", "needs a MindSpore that can be imported", "", expected)
    cpu = mindspore.get("result") == FIRST
    undecided = Check("device", "skipped", "needs a first operation that works", "", expected)
    if target.lower() == "cpu":
        return Check("device", "ok", "CPU, as asked for", "", expected) if cpu else undecided
    probe = facts["probes"].get("device")
    if probe is None:
        reason = "files of another machine were looked at: no device was tried"
        return Check("device", "skipped", reason, "", expected)
    told = probe["told"] or {}
    there = told.get("result") == FIRST
    if target.lower() == "auto":
        rest = "so can Ascend" if there else f"Ascend cannot: {_cause(probe)}"
        return Check("device", "ok", f"CPU can be used, {rest}", "", expected) if cpu else undecided
    if told.get("device") and not there and not cpu:
        return undecided
    name = _spelt(target)
    if there and str(told.get("device", "")).lower() == target.lower():
        return Check("device", "ok", f"{name}, as asked for", "", expected)
    if probe["end"] == "timeout":
        summary = f"{name} did not answer in time"
        return Check("device", "error", summary, _last_line(probe), expected, "npu-smi info")
    summary = f"{name} was asked for and cannot be used: {_cause(probe)}"
    if there:
        summary = f"{name} was asked for, but {told.get('device')} is what runs"
    return Check("device", "failed", summary, "", expected, _device_remedy(facts, name))


def _spelt(target: str) -> str:
    known = {"cpu": "CPU", "gpu": "GPU", "ascend": "Ascend", "auto": "CPU, at least"}
    return known.get(target.lower(), target)


def _cause(probe: Facts) -> str:
    """MindSpore's many lines on a device that it cannot load, as the one that says why."""
    error = (probe["told"] or {}).get("error")
    if not error:
        return "" if probe["end"] == "ok" else f"{probe['end']} {_last_line(probe)}".strip()
    text = error[1]
    found = re.search(
        r"Unsupported device target Ascend.*?Load dynamic library: \S+ failed\. (.+)",
        text,
        re.DOTALL,
    )
    if found:
        return str(found[1].splitlines()[0].strip())
    return str(text.strip().splitlines()[0].split(". Please")[0]) if text.strip() else str(error[0])


def _device_remedy(facts: Facts, name: str) -> str:
    if name == "Ascend":
        return ascend_rules.remedy_of_device(facts)
    if name == "GPU":
        return 'msnb doctor --device-target CPU  # in notebooks: device_target = "CPU"'
    return "msnb doctor --device-target CPU  # targets are CPU, Ascend, GPU and auto"


# --- helpers -------------------------------------------------------------------------------------


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.10.0rc1`` is (2, 10, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else (0,)


def satisfies(version: str, specifier: str) -> bool:
    """Whether ``version`` meets ``specifier`` (``>=3.20,<4``); operators not known count as met."""
    have = numbers(version)
    for part in filter(None, specifier.split(",")):
        found = re.match(r"(>=|<=|==|!=|>|<)([\d.]+)$", part)
        if not found:
            continue
        limit = numbers(found[2])
        width = max(len(have), len(limit))
        a, b = (v + (0,) * (width - len(v)) for v in (have, limit))
        met = {">=": a >= b, "<=": a <= b, "==": a == b, "!=": a != b, ">": a > b, "<": a < b}
        if not met[found[1]]:
            return False
    return True


def _typed(facts: Facts) -> str:
    """This interpreter as one types it."""
    return shlex.quote(str(facts["python"]["executable"]))


def _install(facts: Facts, what: str) -> str:
    return f"{_typed(facts)} -m pip install {what}"


def _last_line(probe: Facts) -> str:
    lines = [line.strip() for line in probe["stderr"].splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


RULES: dict[str, Rule] = {
    "python": _python,
    "environment": _environment,
    "pip": _pip,
    "kernel": _kernel,
    ".venv": _dot_venv,
    "way in": _way_in,
    "shadowing": _shadowing,
    "mindspore": _mindspore,
    "first operation": _first_operation,
    "numpy": _numpy,
    "torch": _torch,
    "protobuf": _protobuf,
    "requirements": _requirements,
    "variables": _variables,
    "room": _room,
}
