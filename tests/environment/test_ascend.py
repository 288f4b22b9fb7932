"""The doctor's Ascend side on recorded machines: verdict, first remedy, and the tree after it."""

from __future__ import annotations

import errno
import grp
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ascend_machines import (
    AFTER,
    ASCEND,
    BEFORE,
    CANN,
    DATA,
    HOME,
    LATEST,
    Machine,
    cann,
    fit_910b4,
    put,
    sourced,
    take,
    text,
)
from machines import fit_facts

from msnb.environment import ascend, ascend_rules, examine
from msnb.environment.__main__ import main
from msnb.report import Check, Report

ACCEPTED = {"versions": ["8.2", "8.3", "8.5", "9.0", "9.1"], "file": "_check_version.py"}  # 2.10.0
MACHINES = BEFORE + AFTER


def judged(root: Path, target: str = "Ascend") -> Report:
    """The doctor's report with the Ascend side of the tree ``root``; no device was tried."""
    facts = fit_facts(target)
    facts["ascend"] = ascend.gather(root, None, home=HOME) | {"accepted": ACCEPTED}
    return examine(facts)


def failing(report: Report) -> list[Check]:
    return [check for check in report if check.status in ("failed", "error")]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_recorded_machine(machine: Machine, tmp_path: Path) -> None:
    machine.build(tmp_path)
    report = judged(tmp_path)
    if not machine.row:
        assert report.ok, str(report)
        return
    first = failing(report)[0]
    assert first.id == machine.row, str(report)
    assert machine.says in first.summary
    assert machine.types in first.remedy
    if machine.cured:
        machine.cured(tmp_path)
        cured = judged(tmp_path)
        assert cured.ok, str(cured)


def test_there_are_enough_machines_and_a_third_came_after_the_parsers() -> None:
    assert len(MACHINES) >= 12
    assert 3 * len(AFTER) >= len(BEFORE)
    assert len({machine.name for machine in MACHINES}) == len(MACHINES)
    without = [machine.name for machine in MACHINES if machine.row and not machine.cured]
    assert without == ["no_driver"]  # no remedy makes a device of nothing


def test_every_recorded_text_is_used_and_has_its_source() -> None:
    sources = (DATA / "SOURCES.md").read_text(encoding="utf-8")
    used = "".join(
        (Path(__file__).parent / name).read_text(encoding="utf-8")
        for name in ("ascend_machines.py", "test_ascend.py")
    )
    for file in DATA.iterdir():
        if file.name != "SOURCES.md":
            assert file.name in sources
            assert f'"{file.name}"' in used, file.name


def test_the_rows_of_a_fit_machine_hold_what_its_page_says(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    report = judged(tmp_path)
    assert report["driver"].summary == "25.0.rc1.1"
    assert report["firmware"].summary == "7.7.0.1.231"
    assert report["npu-smi"].summary == "1 x 910B4, all OK"
    assert report["device memory"].summary == "device 0: 59382 of 65536 MB free"
    assert report["CANN"].summary == "8.2.RC1, accepted"
    assert report["CANN kernels"].summary == "ascend910b, for 910B4"
    assert (
        report["device"].summary == "files of another machine were looked at: no device was tried"
    )


def test_the_cause_comes_before_the_device_that_it_breaks(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    rows = [check.id for check in judged(tmp_path)]
    assert rows[-1] == "device"
    assert rows.index("device nodes") < rows.index("npu-smi") < rows.index("set_env.sh")


@pytest.mark.parametrize(("target", "there"), [("CPU", True), ("auto", False), ("GPU", True)])
def test_other_targets_are_not_asked_about_ascend(target: str, there: bool, tmp_path: Path) -> None:
    if there:
        fit_910b4(tmp_path)
    report = judged(tmp_path, target)
    assert "device nodes" not in report
    assert [check.id for check in report][-4:] == ["device", "CANN", "driver", "firmware"]


def test_auto_is_where_there_are_devices(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    assert judged(tmp_path, "auto")["device nodes"].status == "ok"


def test_no_command_is_run_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a command was run")

    monkeypatch.setattr(ascend.subprocess, "run", refuse)
    found = ascend.gather("/", None, ask=False)
    assert found["npu_smi"]["end"] == "not asked"


# --- single rules, on the fit machine broken in one way ------------------------------------------


def broken(root: Path, change: Any) -> list[Check]:
    fit_910b4(root)
    change(root)
    return failing(judged(root))


def variables(**changes: str | None) -> Any:
    def change(root: Path) -> None:
        lines = (root / "commands/env.txt").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in changes]
        kept += [f"{name}={value}" for name, value in changes.items() if value is not None]
        put(root, "commands/env.txt", "\n".join(kept) + "\n")

    return change


def without_driver_libraries(root: Path) -> None:
    variables(LD_LIBRARY_PATH=f"{LATEST}/lib64")(root)


DRIVER = "/usr/local/Ascend/driver/lib64"
OTHER = f"{LATEST}/lib64:/opt/cann-8.0/lib64:{DRIVER}"


@pytest.mark.parametrize(
    ("change", "row", "says", "types"),
    [
        (
            variables(ASCEND_HOME_PATH="/opt/gone"),
            "set_env.sh",
            "/opt/gone, and no CANN is there",
            "source /usr/local/Ascend/ascend-toolkit/set_env.sh",
        ),
        (
            variables(LD_LIBRARY_PATH=None),
            "LD_LIBRARY_PATH",
            f"{LATEST}/lib64 and /usr/local/Ascend/",
            "source /usr/local/Ascend/ascend-toolkit/set_env.sh",
        ),
        (
            without_driver_libraries,
            "LD_LIBRARY_PATH",
            "/usr/local/Ascend/driver/lib64 in neither",
            "export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64:",
        ),
        (
            variables(LD_LIBRARY_PATH=OTHER),
            "LD_LIBRARY_PATH",
            "another CANN's folder too, /opt/cann-8.0",
            "in a new shell",
        ),
        (
            variables(ASCEND_OPP_PATH=None),
            "ASCEND_OPP_PATH",
            "is not set",
            f"export ASCEND_OPP_PATH={LATEST}/opp",
        ),
        (
            variables(ASCEND_OPP_PATH="/opt/opp"),
            "ASCEND_OPP_PATH",
            "is /opt/opp, not that of",
            f"export ASCEND_OPP_PATH={LATEST}/opp",
        ),
        (
            variables(PYTHONPATH=None),
            "te and hccl",
            f"te and hccl not on PYTHONPATH, but in {LATEST}",
            f"export PYTHONPATH={LATEST}/python/site-packages:$PYTHONPATH",
        ),
        (
            variables(ASCEND_RT_VISIBLE_DEVICES="4"),
            "visible devices",
            "is 4, and there are devices 0",
            "unset ASCEND_RT_VISIBLE_DEVICES",
        ),
        (
            variables(ASCEND_RT_VISIBLE_DEVICES="all"),
            "visible devices",
            "'all': numbers with commas",
            "unset ASCEND_RT_VISIBLE_DEVICES",
        ),
        (
            lambda root: take(root, f"{LATEST}/compiler/version.info"),
            "CANN",
            "8.2.RC1 by /usr/local/Ascend/ascend-toolkit/latest/aarch64-linux",
            "source",
        ),
        (
            lambda root: put(root, f"{LATEST}/compiler/version.info", "timestamp=1\n"),
            "CANN",
            "names no version",
            "cat",
        ),
        (
            lambda root: put(root, "/usr/local/Ascend/driver/version.info", "x"),
            "driver",
            "names no version",
            "cat /usr/local/Ascend/driver/version.info",
        ),
        (
            lambda root: take(root, "/usr/local/Ascend/firmware/version.info"),
            "firmware",
            "not installed; looked at /usr/local/Ascend/firmware",
            "ls /usr/local/Ascend/firmware",
        ),
        (
            lambda root: put(root, "commands/npu-smi-info.txt", ""),
            "npu-smi",
            "npu-smi says: nothing",
            "dmesg",
        ),
    ],
)
def test_a_machine_broken_in_one_way(
    change: Any, row: str, says: str, types: str, tmp_path: Path
) -> None:
    first = broken(tmp_path, change)[0]
    assert first.id == row
    assert says in first.summary
    assert types in first.remedy


def test_every_rule_is_seen_failing() -> None:
    parametrized = test_a_machine_broken_in_one_way.pytestmark[0].args[1]
    seen = {row for _, row, _, _ in parametrized} | {machine.row for machine in MACHINES}
    # addresses are asked for by the rank table's rules: one server alone needs none;
    # the kernel's variables fail in test_doctor_fix.py
    assert set(ascend_rules.CAUSES) - seen == {"device addresses", "kernel variables"}


def closed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """What a user sees of a folder that it may not enter; root, who runs this in CI, may."""
    stat = os.stat

    def refuse(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if isinstance(path, str | os.PathLike) and str(path).startswith(f"{folder}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refuse)


@pytest.mark.parametrize(
    ("folder", "row", "file"),
    [
        (f"{ASCEND}/driver", "driver", f"{ASCEND}/driver/version.info"),
        (f"{ASCEND}/firmware", "firmware", f"{ASCEND}/firmware/version.info"),
        (f"{ASCEND}/ascend-toolkit", "CANN", f"{LATEST}/compiler/version.info"),
    ],
)
def test_a_folder_that_this_user_may_not_enter_is_a_row_and_not_the_end(
    folder: str, row: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_910b4(tmp_path)
    closed(monkeypatch, tmp_path / folder.lstrip("/"))
    first = failing(judged(tmp_path))[0]
    assert (first.id, first.status) == (row, "error")
    assert first.summary == f"{file} cannot be read: Permission denied"
    assert first.remedy.startswith(f"namei -l {file}  #")
    if row == "CANN":
        assert file in judged(tmp_path)["set_env.sh"].summary
    assert judged(tmp_path, "CPU").ok


def test_a_link_to_itself_is_not_called_missing(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    take(tmp_path, f"{ASCEND}/driver/version.info")
    (tmp_path / f"{ASCEND}/driver/version.info".lstrip("/")).symlink_to("version.info")
    first = failing(judged(tmp_path))[0]
    assert first.summary == f"{ASCEND}/driver/version.info cannot be read: {os.strerror(40)}"


@pytest.mark.parametrize("path", ["/etc/hccn.conf", f"{HOME}/.bashrc", "commands/id.txt"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(path: str, tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    pipe = tmp_path / path.lstrip("/")
    pipe.parent.mkdir(parents=True, exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    code = "import sys; from msnb.environment import ascend; ascend.gather(*sys.argv[1:], None, "
    code += f"home={HOME!r})"
    words = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(words, check=True, timeout=30)


def test_npu_smi_without_the_drivers_libraries_says_where_they_are(tmp_path: Path) -> None:
    """The loader's sentence; outside of a container the folders are there and not looked in."""
    fit_910b4(tmp_path)
    lib = "libdrvdsmi_host.so"
    said = f"npu-smi: error while loading shared libraries: {lib}: cannot open shared object file: "
    put(tmp_path, "commands/npu-smi-info.txt", said + "No such file or directory\n")
    first = failing(judged(tmp_path))[0]
    assert (first.id, first.summary) == ("npu-smi", f"npu-smi does not find the driver's {lib}")
    assert first.remedy.startswith(f"export LD_LIBRARY_PATH={ASCEND}/driver/lib64:")


def test_npu_smi_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    program = tmp_path / "npu-smi"
    program.write_bytes(b"no program")
    program.chmod(0o755)
    said = ascend._command(Path("/"), True, True, "npu-smi-info", [str(program)])
    facts = fit_facts("Ascend")
    fit_910b4(tmp_path)
    facts["ascend"] = ascend.gather(tmp_path, None, home=HOME) | {"accepted": ACCEPTED}
    facts["ascend"]["npu_smi"] = {**ascend.parse_npu_smi(""), "there": True, "end": said["end"]}
    first = failing(examine(facts))[0]
    assert (first.id, first.summary) == ("npu-smi", "npu-smi cannot be started: Exec format error")


def test_npu_smi_that_no_signal_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits in the kernel for a driver: here, since nobody sends the signal."""
    started: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: started.append(pid))
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: started.append(process.pid))
    monkeypatch.setattr(ascend, "SECONDS", 0.2)
    monkeypatch.setattr(ascend, "LAST", 0.2)
    before = time.monotonic()
    try:
        found = ascend._command(Path("/"), True, True, "npu-smi-info", ["sleep", "30"])
        assert time.monotonic() - before < 15
        assert found == {"there": True, "text": "", "end": "timeout"}
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_cann_may_be_named_by_a_link_or_with_a_slash(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    base = tmp_path / "usr/local/Ascend"
    (base / "ascend-toolkit" / "latest").rename(base / "cann-8.2.RC1")
    (base / "cann").symlink_to("cann-8.2.RC1")
    variables(
        ASCEND_HOME_PATH=f"{CANN}/",
        ASCEND_OPP_PATH=f"{CANN}-8.2.RC1/opp",
        LD_LIBRARY_PATH=f"{CANN}-8.2.RC1/lib64:{DRIVER}",
        PYTHONPATH=f"{CANN}-8.2.RC1/python/site-packages",
    )(tmp_path)
    report = judged(tmp_path)
    assert report.ok, str(report)
    assert report["set_env.sh"].summary == f"ASCEND_HOME_PATH is {CANN}"


def test_older_operators_are_allowed_and_nothing_outweighs_a_device_that_works(
    tmp_path: Path,
) -> None:
    fit_910b4(tmp_path)
    put(tmp_path, f"{LATEST}/opp_kernel/version.info", text("opp-8.0.0.info"))
    assert judged(tmp_path).ok
    shutil.rmtree(tmp_path / f"{LATEST}/opp/built-in".lstrip("/"))
    variables(ASCEND_OPP_PATH=None, PYTHONPATH=None, LD_LIBRARY_PATH=None)(tmp_path)
    put(tmp_path, "commands/npu-smi-info.txt", text("npu-smi-910B4.txt"))
    rows = {check.id for check in failing(judged(tmp_path))}
    assert rows == {"CANN kernels", "LD_LIBRARY_PATH", "ASCEND_OPP_PATH", "te and hccl"}
    facts = fit_facts("Ascend")
    facts["ascend"] = ascend.gather(tmp_path, None, home=HOME) | {"accepted": ACCEPTED}
    told = {"device": "Ascend", "result": [2.0, 3.0]}
    facts["probes"]["device"] = {"end": "ok", "stderr": "", "told": told}
    assert examine(facts).ok


MOUNTS = "700 600 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/{}/1,upperdir=/x\n"


@pytest.mark.parametrize(
    ("path", "content", "container"),
    [
        ("/.dockerenv", "", True),
        ("/run/.containerenv", "", True),
        ("/proc/1/cgroup", "12:cpu:/docker/0123456789\n", True),
        ("/proc/1/cgroup", "0::/\n", False),
        ("/proc/self/mountinfo", MOUNTS.format("docker/overlay2"), True),
        ("/proc/self/mountinfo", MOUNTS.format("containerd/io"), True),
        ("/proc/self/mountinfo", "30 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n", False),
        (
            "/proc/self/mountinfo",
            "90 30 0:52 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw\n",
            False,
        ),
    ],
)
def test_what_tells_a_container(path: str, content: str, container: bool, tmp_path: Path) -> None:
    put(tmp_path, path, content)
    assert ascend.gather(tmp_path, None)["container"] is container


OWN = "/data/soft/CANN 8.2/ascend-toolkit"


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (f"source '{OWN}/set_env.sh'", OWN),
        (f'. "{OWN}/set_env.sh"; export A=1', OWN),
        ("[ -f ~/npu/cann/set_env.sh ] && source $HOME/npu/cann/set_env.sh", f"{HOME}/npu/cann"),
    ],
)
def test_a_cann_in_a_folder_that_only_bashrc_names(line: str, place: str, tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    shutil.rmtree(tmp_path / LATEST.lstrip("/"))
    home = f"{place}/latest" if place == OWN else place
    cann(tmp_path, "toolkit-8.2.RC1.info", "install-8.2.RC1.info", home=home)
    put(tmp_path, f"{HOME}/.bashrc", f"{line}\n")
    put(tmp_path, "commands/env.txt", "LANG=C.UTF-8\n")
    first = failing(judged(tmp_path))[0]
    assert first.id == "set_env.sh"
    assert "though ~/.bashrc sources it" in first.summary
    assert first.remedy.startswith(f"source {shlex.quote(f'{place}/set_env.sh')} && ")


def test_the_cann_of_bashrc_is_meant_where_there_are_two(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    cann(tmp_path, "opp-8.5.0.info", None, home="/data/cann")
    put(tmp_path, "/usr/local/Ascend/nnal/atb/set_env.sh")
    lines = "source /usr/local/Ascend/nnal/atb/set_env.sh\nsource /data/cann/set_env.sh\n"
    put(tmp_path, f"{HOME}/.bashrc", f"source {LATEST}/$WHICH/set_env.sh\n{lines}")
    put(tmp_path, "commands/env.txt", "LANG=C.UTF-8\n")
    assert failing(judged(tmp_path))[0].remedy.startswith("source /data/cann/set_env.sh && ")


def test_python_packages_of_another_cann_are_seen(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    cann(tmp_path, "opp-8.5.0.info", None, home=CANN)
    sourced(tmp_path, LATEST)
    env = (tmp_path / "commands" / "env.txt").read_text(encoding="utf-8")
    first_of_all = f"PYTHONPATH={CANN}/python/site-packages:"
    put(tmp_path, "commands/env.txt", env.replace("PYTHONPATH=", first_of_all))
    first = failing(judged(tmp_path))[0]
    assert first.id == "te and hccl"
    assert f"{CANN}/python/site-packages, and ASCEND_HOME_PATH is {LATEST}" in first.summary


@pytest.mark.parametrize(
    ("mode", "name", "group"),
    [(0o660, "npu", "npu"), (0o600, "npu", "HwHiAiUser"), (0o660, "root", "HwHiAiUser")],
)
def test_the_group_is_that_of_the_nodes(
    mode: int, name: str, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installer's record may name another, and to join that would not help."""
    put(tmp_path, "/dev/davinci0")
    (tmp_path / "dev" / "davinci0").chmod(mode)
    monkeypatch.setattr(os, "access", lambda path, how: False)
    monkeypatch.setattr(grp, "getgrgid", lambda number: SimpleNamespace(gr_name=name))
    told = ascend._nodes(tmp_path, True)
    assert told["closed"] == ["/dev/davinci0"]
    assert (told["group"] or "HwHiAiUser") == group


def test_a_version_without_a_number_is_not_called_old(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    put(tmp_path, f"{LATEST}/compiler/version.info", "Version=unknown\n")
    first = failing(judged(tmp_path))[0]
    assert first.id == "CANN"
    assert first.summary.endswith("(8.2, 8.3, 8.5, 9.0, 9.1)")


def test_a_recorded_text_may_hold_what_no_variable_can(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    put(tmp_path, "commands/env.txt", "ASCEND_HOME_PATH=/no\0where\nPYTHONPATH=\0/x\n")
    assert failing(judged(tmp_path))[0].id == "set_env.sh"


def test_libraries_may_be_known_to_the_loader_instead(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    without_driver_libraries(tmp_path)
    put(tmp_path, "/etc/ld.so.conf.d/ascend.conf", "# ours\n/usr/local/Ascend/driver/lib64\n")
    assert judged(tmp_path).ok


def test_the_driver_may_be_elsewhere_and_open_to_all(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    for part in ("driver", "firmware"):
        said = (tmp_path / f"usr/local/Ascend/{part}/version.info").read_text(encoding="utf-8")
        take(tmp_path, f"/usr/local/Ascend/{part}/version.info")
        put(tmp_path, f"/opt/ascend/{part}/version.info", said)
    info = (
        "UserName=HwHiAiUser\nDriver_Install_Path_Param=/opt/ascend\nDriver_Install_For_All=yes\n"
    )
    put(tmp_path, "/etc/ascend_install.info", info)
    put(tmp_path, "commands/id.txt", "uid=1001(lin) gid=1001(lin) groups=1001(lin)\n")
    report = judged(tmp_path)
    assert report.ok, str(report)
    assert report["device access"].summary == "driver installed for all users"
    assert report["driver"].summary == "25.0.rc1.1"


def test_a_held_device_and_a_free_one_beside_it(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    put(tmp_path, "/dev/davinci1")
    smi = text("npu-smi-910B4-1-busy.txt").replace("61825/ 65536", "60000/ 65536", 1)
    smi = smi.replace("61825/ 65536", "3000 / 65536", 1)
    put(tmp_path, "commands/npu-smi-info.txt", smi)
    report = judged(tmp_path)
    assert report["device memory"].remedy == "export ASCEND_RT_VISIBLE_DEVICES=1"
    sourced(tmp_path, ASCEND_RT_VISIBLE_DEVICES="1")
    assert judged(tmp_path).ok


def test_devices_of_several_servers_have_addresses(tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    assert judged(tmp_path)["device addresses"].status == "skipped"
    put(tmp_path, "/etc/hccn.conf", "address_0=192.168.10.21\nnetmask_0=255.255.255.0\n")
    assert judged(tmp_path)["device addresses"].status == "ok"
    put(tmp_path, "/etc/hccn.conf", "address_1=192.168.10.21\n")
    assert "no address of device 0" in judged(tmp_path)["device addresses"].summary


# --- npu-smi -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "count", "last", "processes", "soc"),
    [
        ("npu-smi-910ProB.txt", "24.1.0", 8, (7, "910ProB", 7, 2, 32768), [], "ascend910"),
        ("npu-smi-910B2.txt", "24.1.rc2.1", 8, (7, "910B2", 7, 3345, 65536), [], "ascend910b"),
        (
            "npu-smi-910B4-1-busy.txt",
            "25.2.2",
            2,
            (1, "910B4-1", 1, 61825, 65536),
            [19334, 19341],
            "ascend910b",
        ),
        ("npu-smi-910C.txt", "24.1.rc3.7", 4, (1, "Ascend910", 3, 3185, 65536), [], "ascend910_93"),
        ("npu-smi-310P3.txt", "22.0.0", 1, (0, "310P3", 0, 994, 21534), [], "ascend310p"),
        (
            "npu-smi-910B2C-busy.txt",
            "23.0.3",
            4,
            (15, "910B2C", 3, 52665, 65536),
            [78617, 79095, 79096, 79097],
            "ascend910b",
        ),
        (
            "npu-smi-910C-26.txt",
            "26.0.rc2",
            2,
            (0, "Ascend910", 1, 2874, 65536),
            [],
            "ascend910_93",
        ),
        ("npu-smi-910B3.txt", "24.1.rc1", 1, (0, "910B3", 0, 3525, 65536), [], "ascend910b"),
        ("npu-smi-310P3-flat.txt", None, 1, (0, "310P3", 0, 512, 21527), [99], "ascend310p"),
    ],
)
def test_npu_smi_is_read(
    name: str,
    version: str | None,
    count: int,
    last: tuple[Any, ...],
    processes: list[int],
    soc: str,
) -> None:
    found = ascend.parse_npu_smi(text(name))
    assert found["version"] == version
    assert len(found["chips"]) == count
    chip = found["chips"][-1]
    assert tuple(chip[key] for key in ("npu", "name", "device", "used", "total")) == last
    assert {chip["health"] for chip in found["chips"]} == {"OK"}
    assert [process["pid"] for process in found["processes"]] == processes
    assert ascend_rules.soc_folder(found) == soc


@pytest.mark.parametrize(
    "said",
    [
        "",
        "\n",
        "| ² 910 | OK | x |\n| ² | ² | ² | ² |\n",
        "| |\n",
        "| 0 x | OK |\n",
        "+--+\n| NPU |\n",
        "\x00\ufffd" * 9,
    ],
)
def test_npu_smi_that_says_something_else(said: str) -> None:
    found = ascend.parse_npu_smi(said)
    assert found["chips"] == found["processes"] == []


def test_a_command_that_hangs_or_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "npu-smi").write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    (tmp_path / "npu-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(ascend, "SECONDS", 0.3)
    facts = fit_facts("Ascend")
    facts["ascend"] = ascend.gather("/", None) | {"accepted": ACCEPTED}
    row = examine(facts)["npu-smi"]
    assert (row.status, row.summary) == ("failed", "npu-smi did not answer in time")
    monkeypatch.setenv("PATH", str(tmp_path / "gone"))
    assert ascend.gather("/", None)["npu_smi"]["there"] is False


# --- the shell's own files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("source /usr/local/Ascend/cann/set_env.sh", True),
        (". $HOME/Ascend/ascend-toolkit/set_env.sh", True),
        ("[ -f /a/set_env.sh ] && . /a/set_env.sh", True),
        ("source '/home 家/Ascend/cann/set_env.sh'", True),
        ('if true; then . "$HOME/my cann"/set_env.sh; fi', True),
        ('source "$HOME/my cann/set_env.sh" >/dev/null', True),
        ("source /my\\ cann/set_env.sh; echo", True),
        ("source '/a b/other.sh' # not set_env.sh", False),
        ("source /a/set_env.sh.old", False),
        ("# source /usr/local/Ascend/cann/set_env.sh", False),
        ("echo set_env.sh", False),
        ("export A=1  # then source /a/set_env.sh", False),
    ],
)
def test_lines_that_source_set_env(line: str, seen: bool, tmp_path: Path) -> None:
    for path in (f"{HOME}/.profile", "/etc/profile.d/cann.sh"):
        put(tmp_path, path, f"{line}\n")
        assert bool(ascend.gather(tmp_path, None, home=HOME)["startup"]) is seen
        take(tmp_path, path)


def test_root_with_a_space_and_chinese(tmp_path: Path) -> None:
    root = tmp_path / "机器 one"
    fit_910b4(root)
    assert judged(root).ok
    put(root, f"{CANN}/compiler/version.info", "Version=9.1.0\n")
    assert [cann["folder"] for cann in ascend.gather(root, None)["other_cann"]] == [CANN]


# --- trees that are damaged ----------------------------------------------------------------------


def damage(file: Path, how: str) -> None:
    file.unlink()
    if how == "folder":
        file.mkdir()
    elif how == "link to itself":
        file.symlink_to(file)
    elif how == "bytes":
        file.write_bytes(bytes(range(256)) * 40)
    elif how == "long":
        file.write_text("Version=" + "9" * 200_000 + "\n", encoding="utf-8")
    elif how == "noise":
        file.write_text("Version=..\n=\n[=]\nVersion\n|0 1|2|3|\n", encoding="utf-8")


@pytest.mark.parametrize("how", ["gone", "folder", "link to itself", "bytes", "long", "noise"])
def test_a_damaged_file_is_at_most_a_row(how: str, tmp_path: Path) -> None:
    fit_910b4(tmp_path)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 15
    for file in files:
        content = file.read_bytes()
        damage(file, how)
        for check in judged(tmp_path):
            assert "could not be judged" not in check.summary, (file, check)
            assert len(check.summary) < 2000, file
        shutil.rmtree(file) if how == "folder" else file.unlink(missing_ok=True)
        file.write_bytes(content)


def test_root_that_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="gone is no folder"):
        ascend.gather(tmp_path / "gone", None)
    assert main(["--device-target", "Ascend", "--root", str(tmp_path / "gone")]) == 2
    assert "root is the folder of a machine's files" in capsys.readouterr().err
