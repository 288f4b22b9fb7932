"""Rules that judge the Ascend side: one function a row, causes before what they cause.

For other targets than Ascend, and for auto where there is no device, only CANN, driver and firmware
are rows: skipped ones.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable

from msnb.environment.ascend import MANAGERS, Facts
from msnb.report import Check

Rule = Callable[[Facts], Check]

FIRST = [2.0, 3.0]  # Tensor([1., 2.]) + 1
FREE = 0.10  # of a device's memory: below that another process has it
_DRIVER = "/usr/local/Ascend/driver"
_DRIVER_LIBRARIES = ":".join(f"{_DRIVER}/lib64{end}" for end in ("", "/common", "/driver"))
# What `docker run` needs, as AscendHub's page of the CANN image has it.
_VOLUMES = (
    *("/usr/local/dcmi", "/usr/local/bin/npu-smi", f"{_DRIVER}/lib64", f"{_DRIVER}/version.info"),
    "/etc/ascend_install.info",
)
# The folder of CANN's compiled operators by the chip's name: kAscendSocVersions in MindSpore's
# sources, and for Atlas A3 and inference chips the folders that CANN installs.
_SOC = (
    (r"(?:Ascend)?310P\d*", "ascend310p"),
    (r"(?:Ascend)?310B\d*", "ascend310b"),
    (r"(?:Ascend)?310", "ascend310"),
    (r"(?:Ascend)?910B\d\S*", "ascend910b"),
    (r"(?:Ascend)?910_93\d*", "ascend910_93"),
    (r"(?:Ascend)?910(?:A|B|ProA|ProB|PremiumA)", "ascend910"),
)


def wanted(facts: Facts) -> bool:
    """Whether the Ascend side is judged: asked for, or ``auto`` with devices there."""
    target = facts["target"].lower()
    nodes = (facts.get("ascend") or {}).get("nodes") or {}
    return bool(target == "ascend" or (target == "auto" and nodes.get("devices")))


# --- devices -------------------------------------------------------------------------------------


def _nodes(facts: Facts) -> Check:
    ascend = facts["ascend"]
    nodes, name = ascend["nodes"], "device nodes"
    expected = "/dev/davinci0 and on, " + ", ".join(f"/dev/{m}" for m in MANAGERS)
    missing = [manager for manager in MANAGERS if manager not in nodes["managers"]]
    metrics = {"devices": len(nodes["devices"])}
    if nodes["devices"] and not missing:
        summary = f"davinci {_numbers(nodes['devices'])} and their managers"
        return Check(name, "ok", summary, "", expected, metrics=metrics)
    if _device_works(facts):  # newer chips have other managers
        reason = "not all are there, and Ascend ran an operation"
        return Check(name, "skipped", reason, "", expected, metrics=metrics)
    gone = [f"/dev/{manager}" for manager in missing]
    if not nodes["devices"]:
        gone.insert(0, "/dev/davinci0")
    if ascend["container"]:
        summary = f"this container was started without {', '.join(gone)}"
        return Check(name, "failed", summary, "", expected, _docker(facts, gone), metrics)
    if ascend["driver"]["path"]:
        summary = f"{', '.join(gone)} not there, though driver {ascend['driver']['version']} is"
        summary += " installed: its kernel module is not loaded"
        remedy = "lsmod | grep drv_davinci || sudo reboot  # after an update of driver or kernel"
        return Check(name, "failed", summary, "", expected, remedy, metrics)
    summary = f"{', '.join(gone)} not there and no driver: has this machine an Ascend device?"
    return Check(name, "failed", summary, "", expected, "lspci | grep -i accelerators", metrics)


def _docker(facts: Facts, gone: list[str]) -> str:
    """The arguments of `docker run` that this container lacks."""
    words = [f"--device={node}" for node in gone]
    if not facts["ascend"]["driver"]["path"]:
        words += [f"-v {volume}:{volume}" for volume in _VOLUMES]
    return f"docker run {' '.join(words)} ...  # on the host, in place of this container"


def _access(facts: Facts) -> Check:
    ascend, name = facts["ascend"], "device access"
    user, nodes = ascend["user"], ascend["nodes"]
    group = user["group"]
    expected = f"this user may open the device nodes: root, or in group {group}"
    if not nodes["devices"]:
        return Check(name, "skipped", "there are no device nodes", "", expected)
    said = ascend["npu_smi"]["said"]
    everyone = ascend["install_info"].get("Driver_Install_For_All") == "yes"
    if user["is_root"] or user["in_group"] or everyone:
        why = "root" if user["is_root"] else f"in group {group}"
        why = why if user["is_root"] or user["in_group"] else "driver installed for all users"
        if nodes["closed"]:
            closed = ", ".join(nodes["closed"][:3])
            summary = f"{closed} cannot be opened by this user, {why}"
            remedy = f"ls -l {nodes['closed'][0]}  # the container needs --device for it"
            return Check(name, "failed", summary, "", expected, remedy)
        return Check(name, "ok", why, "", expected)
    if not user["known"]:
        return Check(name, "skipped", "the groups of this user are not known", "", expected)
    if ascend["root"] == "/" and not nodes["closed"]:
        return Check(name, "ok", "the device nodes can be opened", "", expected)
    summary = f"this user is neither root nor in group {group}"
    if "dcmi" in said or "DrvMng" in said:
        summary += f", and npu-smi says: {said}"
    remedy = f"sudo usermod -aG {group} $USER  # then log in again"
    return Check(name, "failed", summary, "", expected, remedy)


def _smi(facts: Facts) -> Check:
    ascend, name = facts["ascend"], "npu-smi"
    smi = ascend["npu_smi"]
    expected = "npu-smi info lists the devices, each with health OK"
    if not smi["there"]:
        reason = "npu-smi is not on PATH: health and memory of the devices are not known"
        if ascend["container"]:
            reason += "; docker run -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi brings it"
        return Check(name, "skipped", reason, "", expected)
    if smi["end"] == "timeout":
        remedy = "sudo reboot  # a driver that hangs holds whoever asks it"
        return Check(name, "failed", "npu-smi did not answer in time", "", expected, remedy)
    if smi["end"].startswith("not started"):
        summary = f"npu-smi cannot be started: {smi['end'].partition(': ')[2]}"
        remedy = 'ls -lL "$(command -v npu-smi)"; uname -m'
        return Check(name, "failed", summary, "", expected, remedy)
    library = re.search(r"loading shared libraries: (\S+):", smi["said"])
    if not smi["chips"] and library:
        summary = f"npu-smi does not find the driver's {library[1]}"
        remedy = f"export LD_LIBRARY_PATH={_DRIVER_LIBRARIES}:$LD_LIBRARY_PATH"
        if ascend["container"] and not ascend["driver"]["path"]:
            remedy = _docker(facts, [])
        return Check(name, "failed", summary, smi["said"], expected, remedy)
    if not smi["chips"]:
        summary = f"npu-smi says: {smi['said'] or 'nothing'}"
        remedy = "sudo dmesg | grep -i davinci | tail"
        if "-8005" in smi["said"]:
            # the causes that maintainers name: caselibrary case_9289, vllm-ascend issue 2698
            remedy = "docker ps  # another container may hold the device"
            if not ascend["container"]:
                remedy = "sudo reboot  # after an update of driver or firmware"
        if "-8020" in smi["said"] or "is used" in smi["said"]:
            remedy = "docker ps  # another container holds the device"
        return Check(name, "failed", summary, "", expected, remedy)
    ill = [chip for chip in smi["chips"] if chip["health"] != "OK"]
    metrics = {"chips": len(smi["chips"]), "not_ok": len(ill)}
    if ill:
        words = ", ".join(f"device {chip['device']} {chip['health']}" for chip in ill)
        summary = f"health of {words}"
        remedy = f"npu-smi info -t health -i {ill[0]['npu']}"
        visible = [chip["device"] for chip in smi["chips"] if chip["health"] == "OK"]
        if visible:
            listed = ",".join(map(str, visible))
            remedy += f"\nexport ASCEND_RT_VISIBLE_DEVICES={listed}  # until it is mended"
        hidden = _visible(facts)
        if hidden and not set(hidden) & {chip["device"] for chip in ill}:
            reason = f"{summary}; ASCEND_RT_VISIBLE_DEVICES leaves it out"
            return Check(name, "ok", reason, "", expected, metrics=metrics)
        return Check(name, "failed", summary, "", expected, remedy, metrics)
    names = ", ".join(dict.fromkeys(chip["name"] for chip in smi["chips"]))
    summary = f"{len(smi['chips'])} x {names}, all OK"
    return Check(name, "ok", summary, "", expected, metrics=metrics)


def _memory(facts: Facts) -> Check:
    smi, name = facts["ascend"]["npu_smi"], "device memory"
    expected = f"the device that is used has {FREE:.0%} of its memory free, or more"
    known = [chip for chip in smi["chips"] if chip["total"]]
    if not known:
        return Check(name, "skipped", "npu-smi tells nothing about it", "", expected)
    chosen = _visible(facts) or [chip["device"] for chip in known]
    used = next((chip for chip in known if chip["device"] == chosen[0]), None)
    if used is None:
        reason = f"npu-smi does not list device {chosen[0]}: see visible devices"
        return Check(name, "skipped", reason, "", expected)
    free = 1 - used["used"] / used["total"]
    holders = [
        process
        for process in smi["processes"]
        if (process["npu"], process["chip"]) == (used["npu"], used["chip"])
    ]
    held = ", ".join(_process(process) for process in holders[:3])
    metrics = {"free": round(free, 4), "processes": len(holders)}
    where = f"device {used['device']}"
    if free >= FREE:
        summary = f"{where}: {used['total'] - used['used']} of {used['total']} MB free"
        if held:
            summary += f", shared with {held}"
        return Check(name, "ok", summary, "", expected, metrics=metrics)
    summary = f"{where}: {used['total'] - used['used']} of {used['total']} MB free"
    summary += f", held by {held}" if held else ", held by a process that is not visible here"
    empty = [
        c["device"] for c in known if 1 - c["used"] / c["total"] >= FREE and c["health"] == "OK"
    ]
    remedy = f"ps -fp {holders[0]['pid']}" if holders else "npu-smi info  # on the host"
    if empty:
        remedy = f"export ASCEND_RT_VISIBLE_DEVICES={empty[0]}"
    return Check(name, "failed", summary, "", expected, remedy, metrics)


def _process(process: Facts) -> str:
    size = f" ({process['memory']} MB)" if process["memory"] is not None else ""
    return f"process {process['pid']} {process['name']}".rstrip() + size


def _visible_devices(facts: Facts) -> Check:
    name, value = "visible devices", facts["ascend"]["environment"].get("ASCEND_RT_VISIBLE_DEVICES")
    nodes = facts["ascend"]["nodes"]["devices"]
    expected = "ASCEND_RT_VISIBLE_DEVICES names devices that are there, or is not set"
    remedy = "unset ASCEND_RT_VISIBLE_DEVICES"
    if value is None:
        return Check(name, "ok", "ASCEND_RT_VISIBLE_DEVICES is not set: all of them", "", expected)
    chosen = _visible(facts)
    if not chosen or len(set(chosen)) != len(chosen):
        summary = f"ASCEND_RT_VISIBLE_DEVICES is {value!r}: numbers with commas between, each once"
        return Check(name, "failed", summary, "", expected, remedy)
    count = len(nodes)
    if facts["ascend"]["container"]:
        # in a container devices are counted from 0, whatever their nodes are called
        gone = [number for number in chosen if number >= count and number not in nodes]
    else:
        gone = [number for number in chosen if number not in nodes]
    if gone and nodes:
        summary = f"ASCEND_RT_VISIBLE_DEVICES is {value}, and there are devices {_numbers(nodes)}"
        return Check(name, "failed", summary, "", expected, remedy)
    return Check(name, "ok", value, "", expected)


def _visible(facts: Facts) -> list[int]:
    value = facts["ascend"]["environment"].get("ASCEND_RT_VISIBLE_DEVICES", "")
    return (
        [int(n) for n in value.split(",")]
        if re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", value)
        else []
    )


# --- driver and firmware -------------------------------------------------------------------------


def _part(name: str) -> Rule:
    def rule(facts: Facts) -> Check:
        ascend = facts["ascend"]
        part = ascend[name]
        asked = wanted(facts)
        expected = f"the Ascend {name} is installed"
        if part["version"]:
            unfit = _unfit_firmware(facts) if name == "firmware" and asked else None
            if unfit is not None:
                return unfit
            return Check(name, "ok", part["version"], part["path"], expected)
        if part["path"]:
            summary, remedy = f"{part['path']} names no version", f"cat {shlex.quote(part['path'])}"
            return Check(name, "error" if asked else "skipped", summary, "", expected, remedy)
        if part.get("fault") and asked and not _device_works(facts):
            fault = part["fault"]
            return Check(name, "error", fault, "", expected, _way_to(fault))
        summary = "not installed; looked at " + ", ".join(part["looked"])
        if not asked or _device_works(facts):
            return Check(name, "skipped", summary)
        folder = os.path.dirname(part["looked"][0])
        if ascend.get("container"):
            if name == "firmware":
                return Check(name, "skipped", "not visible in this container; the host has it")
            summary = "not visible in this container"
            gone = [f"/dev/{m}" for m in MANAGERS if m not in ascend["nodes"]["managers"]]
            return Check(name, "failed", summary, "", expected, _docker(facts, gone))
        remedy = (
            f"ls {folder}  # install it from hiascend.com; "
            f"in a container: docker run -v {folder}:{folder} ..."
        )
        return Check(name, "failed", summary, "", expected, remedy)

    return rule


def _unfit_firmware(facts: Facts) -> Check | None:
    """A row where the driver says which firmware it works with, and this is another."""
    driver, firmware = facts["ascend"]["driver"], facts["ascend"]["firmware"]
    ranges = re.findall(r"\[([\d.]+),\s*([\d.]+)\]", driver.get("firmware") or "")
    have = _digits(firmware["version"])[:3]
    if not ranges or any(_digits(low) <= have <= _digits(high) for low, high in ranges):
        return None
    listed = ", ".join(f"{low} to {high}" for low, high in ranges)
    summary = f"{firmware['version']}, and driver {driver['version']} works with {listed}"
    remedy = "install driver and firmware of one release, from hiascend.com, then reboot"
    if have > _digits(ranges[-1][1]):
        remedy = "install the driver of the firmware's release, from hiascend.com, then reboot"
    return Check("firmware", "failed", summary, firmware["path"], f"firmware {listed}", remedy)


# --- CANN ----------------------------------------------------------------------------------------


def _cann(facts: Facts) -> Check:
    cann, accepted = facts["ascend"]["cann"], facts["ascend"]["accepted"]
    fault = cann.get("fault")
    versions, version = accepted["versions"], cann["version"]
    asked = wanted(facts)
    list_ = ", ".join(versions or [])
    expected = f"CANN {list_} (from {accepted['file']})" if versions else "a CANN that fits"
    if not cann["path"]:
        if fault and asked and not _device_works(facts):
            return Check("CANN", "error", fault, "", expected, _way_to(fault))
        summary = "not installed; looked for compiler/version.info in " + ", ".join(cann["looked"])
        if versions:
            summary += f"; this MindSpore accepts {list_}"
        elif accepted["file"]:
            summary += f"; which versions are accepted could not be read from {accepted['file']}"
        if not asked or _device_works(facts):
            return Check("CANN", "skipped", summary)
        if facts["ascend"]["set_env"]:
            return Check("CANN", "failed", summary, "", expected, _set_env(facts))
        return Check("CANN", "failed", summary, "", expected, _install_cann(facts))
    if version is None:
        product = cann.get("product")
        if product and not cann.get("compiler", True):
            # without the file MindSpore only warns, so this is what can be said
            summary = f"{product} by {cann['path']}, but compiler/version.info is missing"
            return Check("CANN", "error", summary, "", expected, _install_cann(facts))
        summary = f"{cann['path']} names no version"
        return Check("CANN", "error", summary, "", expected, f"cat {shlex.quote(cann['path'])}")
    said = _called(cann)
    if not versions:
        where = accepted["file"] or "no installed MindSpore"
        summary = f"{said}; accepted versions could not be read from {where}"
        return Check("CANN", "error", summary, accepted.get("error", ""), expected, "")
    if _short(version) in versions:
        return Check("CANN", "ok", f"{said}, accepted", cann["path"], expected)
    summary = f"{said} is not among those that this MindSpore accepts ({list_})"
    if not asked:
        summary += "; not needed without Ascend"
        return Check("CANN", "skipped", summary, cann["path"], expected)
    age = _digits(version)[:2], [_digits(each) for each in versions]
    summary += ": too old" if age[0] and age[0] < min(age[1]) else ""
    summary += ": newer than any of them" if age[0] > max(age[1]) else ""
    fitting = [
        other
        for other in facts["ascend"].get("other_cann", [])
        if other["version"] and _short(other["version"]) in versions
    ]
    if fitting:
        summary += f"; {fitting[0]['folder']} has {_called(fitting[0])}"
        script = _script_of(fitting[0]["folder"])
        remedy = f"source {shlex.quote(script)}  # in a new shell, which then starts the kernel"
        return Check("CANN", "failed", summary, cann["path"], expected, remedy)
    return Check("CANN", "failed", summary, cann["path"], expected, _install_cann(facts))


def _called(cann: Facts) -> str:
    """CANN 8.0.0 calls its compiler 7.6.0.1.220: both names, where they differ."""
    version, product = cann["version"], cann.get("product")
    if product and _short(product) != _short(version):
        return f"{version} ({product})"
    return str(product or version)


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _script_of(folder: str) -> str:
    if os.path.basename(folder) == "latest":
        folder = os.path.dirname(folder)
    return f"{folder}/set_env.sh"


def _install_cann(facts: Facts) -> str:
    versions = facts["ascend"]["accepted"]["versions"]
    which = f"CANN {versions[-1]}" if versions else "the CANN that your MindSpore names"
    return f"{_set_env(facts)}  # after installing {which} from hiascend.com"


def _set_env(facts: Facts) -> str:
    scripts = facts["ascend"]["set_env"] or ["/usr/local/Ascend/cann/set_env.sh"]
    return f"source {shlex.quote(str(scripts[0]))}"


def _one_cann(facts: Facts) -> Check:
    cann, name = facts["ascend"]["cann"], "CANN parts"
    expected = "compiler, runtime, opp, hccl and the installer's record are of one version"
    if not cann["path"]:
        return Check(name, "skipped", "needs CANN", "", expected)
    # operators may be older than the rest: opp's required_package_opp_kernel_version is a range
    parts = {
        part: told["version"]
        for part, told in cann["parts"].items()
        if told["version"] and part != "opp_kernel"
    }
    by_version: dict[str, list[str]] = {}
    for part, version in parts.items():
        by_version.setdefault(_short(version), []).append(f"{part} {version}")
    metrics = {"parts": len(parts)}
    remedy = f"{_install_cann(facts)}; remove {shlex.quote(cann['folder'])} before"
    if len(by_version) > 1:
        summary = "mixed: " + "; ".join(", ".join(words) for words in by_version.values())
        return Check(name, "failed", summary, cann["folder"], expected, remedy, metrics)
    installer = cann["installer"]
    product = cann["parts"].get("compiler", {}).get("product") or ""
    # where version_dir is no number, the parts' own numbers are the product's
    said = product if product[:1].isdigit() else cann["version"]
    if installer and said and _short(installer["version"]) != _short(said):
        summary = f"mixed: {installer['path']} says {installer['version']}, the compiler {said}"
        return Check(name, "failed", summary, cann["folder"], expected, remedy, metrics)
    if not parts:
        return Check(name, "skipped", "no part names its version", "", expected)
    summary = f"{', '.join(parts)} are all of {_short(next(iter(parts.values())))}"
    return Check(name, "ok", summary, cann["folder"], expected, metrics=metrics)


def _kernels(facts: Facts) -> Check:
    cann, name = facts["ascend"]["cann"], "CANN kernels"
    smi = facts["ascend"]["npu_smi"]
    soc = soc_folder(smi)
    expected = "CANN's compiled operators for this chip are installed"
    if not cann["path"] or not smi["chips"]:
        needs = "CANN" if not cann["path"] else "npu-smi, which names the chip"
        return Check(name, "skipped", f"needs {needs}", "", expected)
    chip = smi["chips"][0]["name"]
    if soc is None:
        return Check(name, "skipped", f"which they are for {chip} is not known here", "", expected)
    if cann["kernels"] is None:
        there = "no compiled operators at all"
    elif soc in cann["kernels"]:
        return Check(name, "ok", f"{soc}, for {chip}", cann["folder"], expected)
    else:
        there = f"those for {', '.join(cann['kernels']) or 'nothing'}"
    summary = f"{cann['folder']} has {there}, and {chip} needs {soc}"
    if _device_works(facts):
        return Check(name, "skipped", f"{summary}; Ascend ran an operation", "", expected)
    remedy = f"install Ascend-cann-kernels-{soc[6:]} (from CANN 8.5 on: Ascend-cann-{soc[6:]}-ops)"
    remedy += f" {cann['product'] or cann['version'] or ''}".rstrip() + " from hiascend.com"
    return Check(name, "failed", summary, "", expected, remedy)


def soc_folder(smi: Facts) -> str | None:
    """CANN's name for the chip: ``ascend910b`` for 910B3; None where it is not known."""
    if not smi["chips"]:
        return None
    name = smi["chips"][0]["name"]
    if name in ("Ascend910", "910") and smi["two_dies"]:  # Atlas A3: two dies under one number
        return "ascend910_93"
    return next((soc for pattern, soc in _SOC if re.fullmatch(pattern, name)), None)


# --- this process --------------------------------------------------------------------------------


def _sourced(facts: Facts) -> Check:
    ascend, name = facts["ascend"], "set_env.sh"
    home, startup = ascend["home_path"], ascend["startup"]
    expected = "CANN's set_env.sh was sourced in the shell that started this process"
    where = f"{startup[0]['file']} has: {startup[0]['line']}" if startup else ""
    if not home:
        if _device_works(facts):
            reason = "ASCEND_HOME_PATH is not set, and Ascend ran an operation"
            return Check(name, "skipped", reason, "", expected)
        if not ascend["cann"]["path"] and not ascend["set_env"]:
            return Check(name, "skipped", "needs CANN", "", expected)
        summary = "was not sourced: ASCEND_HOME_PATH is not set in this process"
        remedy = _set_env(facts)
        if startup:
            summary += (
                f", though {startup[0]['file']} sources it: VS Code's server and Jupyter's kernels "
                "do not read that file"
            )
            remedy += " && msnb doctor --device-target Ascend --fix"
        return Check(name, "failed", summary, where, expected, remedy)
    if not ascend["cann"]["path"] or ascend["cann"].get("folder") != home:
        fault = ascend["cann"].get("fault") or ""
        why = fault if fault.startswith(f"{home}/") else "no CANN is there"
        summary = f"ASCEND_HOME_PATH is {home}, and {why}"
        remedy = _set_env(facts) if ascend["set_env"] else "unset ASCEND_HOME_PATH"
        if _device_works(facts):
            return Check(name, "skipped", summary, "", expected)
        return Check(name, "failed", summary, where, expected, remedy)
    return Check(name, "ok", f"ASCEND_HOME_PATH is {home}", where, expected)


def _libraries(facts: Facts) -> Check:
    ascend, name = facts["ascend"], "LD_LIBRARY_PATH"
    home, libraries = ascend["home_path"], ascend["libraries"]
    expected = "the loader finds CANN's lib64 and the driver's"
    if not home:
        return Check(name, "skipped", "needs set_env.sh", "", expected)
    missing = [] if libraries["own"] else [f"{home}/lib64"]
    missing += [] if libraries["driver"] else [f"{_DRIVER}/lib64"]
    if missing and not _device_works(facts):
        summary = f"{' and '.join(missing)} in neither LD_LIBRARY_PATH nor /etc/ld.so.conf.d"
        remedy = _set_env(facts)
        if missing == [f"{_DRIVER}/lib64"]:
            remedy = f"export LD_LIBRARY_PATH={_DRIVER_LIBRARIES}:$LD_LIBRARY_PATH"
        return Check(name, "failed", summary, "", expected, remedy)
    if libraries["foreign"]:
        summary = f"has another CANN's folder too, {libraries['foreign'][0]}, beside {home}"
        remedy = f"{_set_env(facts)}  # in a new shell, whose files source no other"
        return Check(name, "failed", summary, "", expected, remedy)
    return Check(name, "ok", "has CANN's lib64 and the driver's", "", expected)


def _opp(facts: Facts) -> Check:
    ascend, name = facts["ascend"], "ASCEND_OPP_PATH"
    home, value = ascend["home_path"], ascend["environment"].get(name)
    expected = "ASCEND_OPP_PATH is the folder opp of the same CANN"
    if not home:
        return Check(name, "skipped", "needs set_env.sh", "", expected)
    if ascend["opp"]:
        return Check(name, "ok", value, "", expected)
    summary = "is not set" if value is None else f"is {value}, not that of {home}"
    if _device_works(facts):
        return Check(name, "skipped", f"{summary}, and Ascend ran an operation", "", expected)
    remedy = f"export ASCEND_OPP_PATH={shlex.quote(f'{home}/opp')}"
    return Check(name, "failed", summary, "", expected, remedy)


def _packages(facts: Facts) -> Check:
    packages, name = facts["ascend"]["packages"], "te and hccl"
    expected = "PYTHONPATH leads to CANN's Python packages: te, which compiles operators, and hccl"
    if not facts["ascend"]["home_path"]:
        return Check(name, "skipped", "needs set_env.sh", "", expected)
    missing = [package for package in ("te", "hccl") if not packages[package]["on_path"]]
    foreign = [package for package in ("te", "hccl") if packages[package].get("foreign")]
    if foreign and not missing and not _device_works(facts):
        place, home = packages[foreign[0]]["on_path"], facts["ascend"]["home_path"]
        summary = f"PYTHONPATH has another CANN's first, {place}, and ASCEND_HOME_PATH is {home}"
        remedy = f"{_set_env(facts)}  # in a new shell, whose files source no other"
        return Check(name, "failed", summary, "", expected, remedy)
    if not missing:
        return Check(name, "ok", packages["te"]["on_path"], "", expected)
    if _device_works(facts):
        reason = f"{' and '.join(missing)} not found, and Ascend ran an operation"
        return Check(name, "skipped", reason, "", expected)
    beside = packages[missing[0]]["beside"]
    summary = f"{' and '.join(missing)} not on PYTHONPATH"
    remedy = _set_env(facts)
    if beside:
        summary += f", but in {beside}"
        remedy = f"export PYTHONPATH={shlex.quote(beside)}:$PYTHONPATH"
    return Check(name, "failed", summary, "", expected, remedy)


def _kernel_variables(facts: Facts) -> Check:
    """What --fix wrote into kernel.json and .env, against each other and the running kernel."""
    name = "kernel variables"
    specs = facts["kernelspecs"]
    written: dict[str, dict[str, str]] = {
        "kernel.json": (specs[0].get("env") if specs else None) or {},
        ".env": facts.get(".env") or {},
    }
    expected = "kernel.json and .env give the kernel the same CANN, and the kernel has it"
    fix = "msnb doctor --device-target Ascend --fix"
    homes = {place: told.get("ASCEND_HOME_PATH") for place, told in written.items()}
    if not any(homes.values()):
        reason = "neither kernel.json nor .env has any: a kernel has what its starter has"
        return Check(name, "skipped", reason, "", expected)
    one, other = written.values()
    differ = [key for key in one if key in other and one[key] != other[key]]
    if differ:
        summary = f"kernel.json and .env differ in {', '.join(differ)}"
        found = "; ".join(f"{place} has {told[differ[0]]}" for place, told in written.items())
        return Check(name, "failed", summary, found, expected, fix)
    home = homes["kernel.json"] or homes[".env"]
    here = facts["ascend"]["home_path"]
    if facts["in_kernel"] and here != home:
        summary = f"this kernel has ASCEND_HOME_PATH {here or 'not set'}; written for it is {home}"
        return Check(name, "failed", summary, "", expected, "Kernel > Restart Kernel...")
    if here and here != home:
        summary = f"{home} is written for the kernel, and this shell has {here}"
        return Check(name, "failed", summary, "", expected, fix)
    places = " and ".join(place for place, value in homes.items() if value)
    return Check(name, "ok", f"{places}: {home}", "", expected)


def _hccn(facts: Facts) -> Check:
    hccn, name = facts["ascend"]["hccn"], "device addresses"
    nodes = facts["ascend"]["nodes"]["devices"]
    expected = f"every device has an address in {hccn['path']}: several servers need them"
    if hccn["devices"] is None:
        reason = f"no {hccn['path']}: one server alone does not need it"
        if facts["ascend"]["container"]:
            reason += f"; docker run -v {hccn['path']}:{hccn['path']} brings it"
        return Check(name, "skipped", reason, "", expected)
    without = [number for number in nodes if str(number) not in hccn["devices"]]
    if without and not facts["ascend"]["container"]:
        summary = f"{hccn['path']} has no address of device {_numbers(without)}"
        return Check(name, "skipped", f"{summary}: one server alone does not need it", "", expected)
    count = len(hccn["devices"])
    return Check(name, "ok", f"{hccn['path']} has those of {count} devices", "", expected)


# --- helpers -------------------------------------------------------------------------------------


def _device_works(facts: Facts) -> bool:
    """Whether Ascend ran an operation: then a missing version file proves nothing."""
    told = (facts["probes"].get("device") or {}).get("told") or {}
    return told.get("device") == "Ascend" and told.get("result") == FIRST


def _way_to(fault: str) -> str:
    """What shows the folder or link on the way that this user cannot pass."""
    path = fault.partition(" cannot be read: ")[0]
    return f"namei -l {shlex.quote(path)}  # the owner opens it: chmod a+rX"


def _digits(version: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in re.findall(r"[0-9]+", version))


def _numbers(numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


CAUSES: dict[str, Rule] = {  # only where Ascend is wanted, and before the device that they break
    "device nodes": _nodes,
    "device access": _access,
    "driver": _part("driver"),
    "firmware": _part("firmware"),
    "npu-smi": _smi,
    "device memory": _memory,
    "visible devices": _visible_devices,
    "CANN": _cann,
    "CANN parts": _one_cann,
    "CANN kernels": _kernels,
    "set_env.sh": _sourced,
    "LD_LIBRARY_PATH": _libraries,
    "ASCEND_OPP_PATH": _opp,
    "te and hccl": _packages,
    "kernel variables": _kernel_variables,
    "device addresses": _hccn,
}
ALWAYS: dict[str, Rule] = {name: CAUSES[name] for name in ("CANN", "driver", "firmware")}


def remedy_of_device(facts: Facts) -> str:
    """What to type where Ascend was asked for and cannot be used."""
    return _set_env(facts) + "  # in the shell that then starts the kernel"
