"""Recorded Ascend machines, built as trees from texts of public pages (tests/data/ascend).

Where a machine lies on disk is composed: device nodes are empty files, and every part of CANN gets
the version text that its page shows for one part. What else is composed is said at the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data" / "ascend"
ASCEND = "/usr/local/Ascend"
LATEST = f"{ASCEND}/ascend-toolkit/latest"
CANN = f"{ASCEND}/cann"
NODES = ("davinci_manager", "devmm_svm", "hisi_hdc")
PARTS = ("compiler", "runtime", "opp", "hccl", "toolkit")
LIN = "uid=1001(lin) gid=1001(lin) groups=1001(lin)\n"  # composed
ROOT = "uid=0(root) gid=0(root) groups=0(root)\n"  # composed
HOME = "/home/lin"


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def put(root: Path, path: str, content: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")


def take(root: Path, path: str) -> None:
    (root / path.lstrip("/")).unlink()


def devices(root: Path, count: int, smi: str, user: str = "id-HwHiAiUser.txt") -> None:
    for number in range(count):
        put(root, f"/dev/davinci{number}")
    for name in NODES:
        put(root, f"/dev/{name}")
    put(root, "commands/npu-smi-info.txt", text(smi))
    put(root, "commands/id.txt", text(user) if user.endswith(".txt") else user)


def driver(root: Path, version: str, firmware: str | None) -> None:
    """``version`` and ``firmware`` are files of tests/data/ascend, or composed texts."""
    for part, said in (("driver", version), ("firmware", firmware)):
        if said is not None:
            content = text(said) if said.endswith(".info") else said
            put(root, f"{ASCEND}/{part}/version.info", content)


def cann(
    root: Path,
    version: str,
    install: str | None,
    *,
    home: str = LATEST,
    kernels: tuple[str, ...] = ("ascend910b",),
) -> None:
    said = text(version) if version.endswith(".info") else version
    for part in PARTS:
        put(root, f"{home}/{part}/version.info", said)
    if install is not None:
        content = text(install) if install.endswith(".info") else install
        put(root, f"{home}/aarch64-linux/ascend_toolkit_install.info", content)
    for soc in kernels:
        put(root, f"{home}/opp/built-in/op_impl/ai_core/tbe/kernel/{soc}/x.json")
    for package in ("te", "hccl"):
        put(root, f"{home}/python/site-packages/{package}/__init__.py")
    put(root, f"{home.removesuffix('/latest')}/set_env.sh")


def sourced(root: Path, home: str = LATEST, **more: str) -> None:
    """The variables that a page shows after set_env.sh; PYTHONPATH, which it lacks, is composed."""
    lines = text("env-vllm-5606.txt").replace(LATEST, home)
    lines += f"PYTHONPATH={home}/python/site-packages:{home}/opp/built-in/op_impl/ai_core/tbe\n"
    put(root, "commands/env.txt", lines + "".join(f"{k}={v}\n" for k, v in more.items()))


# --- machines ------------------------------------------------------------------------------------


def fit_910b4(root: Path) -> None:
    devices(root, 1, "npu-smi-910B4.txt")
    driver(root, "driver-25.0.rc1.1.info", "firmware-7.7.0.1.231.info")
    cann(root, "toolkit-8.2.RC1.info", "install-8.2.RC1.info")
    put(root, f"{LATEST}/opp_kernel/version.info", text("opp_kernel-8.2.RC1.info"))
    sourced(root)


def fit_910c(root: Path) -> None:
    """In a container, as the page's host name says; the driver's text is composed."""
    devices(root, 4, "npu-smi-910C.txt", ROOT)
    driver(root, "Version=24.1.rc3.7\n", None)
    cann(root, "toolkit-8.2.RC1.info", "install-8.2.RC1.info", kernels=("ascend910_93",))
    put(root, "/.dockerenv")
    sourced(root)


def old_910a(root: Path) -> None:
    """The compiler's text is composed from version.cfg of the same release, [7.7...:8.1.RC1]."""
    devices(root, 8, "npu-smi-910ProB.txt", ROOT)
    driver(root, "Version=24.1.0\n", None)  # composed from the table's version
    said = "Version=7.7.T20.0.B210\nversion_dir=8.1.RC1\n"
    cann(root, said, "install-8.1.RC1.info", kernels=("ascend910",))
    put(root, "/.dockerenv")
    sourced(root)


def old_910b2(root: Path) -> None:
    devices(root, 8, "npu-smi-910B2.txt")
    driver(root, "driver-24.1.rc2.2.info", None)
    put(root, "/.dockerenv")
    cann(root, "opp-8.0.0.info", "install-8.0.0.info")
    sourced(root)


def two_cann(root: Path) -> None:
    """The machine before, with a CANN that fits beside the old one (composed)."""
    old_910b2(root)
    cann(root, "opp-8.5.0.info", None, home=CANN)


def busy_910b4(root: Path) -> None:
    """The driver's text is that of another page; the firmware is composed in its range."""
    devices(root, 2, "npu-smi-910B4-1-busy.txt")
    driver(root, "driver-25.3.rc1.info", "Version=7.8.0.2.212\n")
    said = "Version=8.3.0.2.220\nversion_dir=8.3.RC2\n"  # composed
    cann(root, said, "install-8.3.RC2-aarch64.info")
    sourced(root)


def foreign_kernels(root: Path) -> None:
    """A 310P3 with the operators of another chip; the firmware is composed in its range."""
    devices(root, 1, "npu-smi-310P3.txt")
    driver(root, "driver-25.3.rc1.info", "Version=7.8.0.2.212\n")
    cann(root, "opp-8.5.0.info", None, home=CANN)
    sourced(root, CANN)


def bare_container(root: Path) -> None:
    """`docker run` as in vllm-ascend issue 1440: a misspelt manager and no volume of the driver."""
    put(root, "/.dockerenv")
    for name in ("davinci0", "devmm_svm", "hisi_hdc"):
        put(root, f"/dev/{name}")
    put(root, "commands/id.txt", ROOT)
    cann(root, "opp-8.5.0.info", None, home=CANN)
    sourced(root, CANN)


def no_driver(root: Path) -> None:
    put(root, "/dev/null")
    put(root, "commands/id.txt", LIN)


def held_elsewhere(root: Path) -> None:
    """vllm-ascend issue 2698: in its container npu-smi says -8005, another one holds the device."""
    fit_910b4(root)
    put(root, "/.dockerenv")
    put(root, "commands/id.txt", ROOT)
    put(root, "commands/npu-smi-info.txt", text("npu-smi-8005.txt"))


def not_in_group(root: Path) -> None:
    """A user that is neither root nor in the group, whom npu-smi answers -8005."""
    fit_910b4(root)
    put(root, "commands/id.txt", LIN)
    put(root, "commands/npu-smi-info.txt", text("npu-smi-8005.txt"))


def mixed_cann(root: Path) -> None:
    """A record that says 9.2.0 over parts of 9.1.0: the numbers of a public note, composed."""
    fit_910b4(root)
    cann(root, "Version=9.1.0\nversion_dir=cann\n", "version=9.2.0\n", home=CANN)
    sourced(root, CANN)


def half_updated(root: Path) -> None:
    """opp of the release before the compiler's, as after an update that broke off (composed)."""
    fit_910b4(root)
    put(root, f"{LATEST}/opp/version.info", text("opp-8.0.0.info"))


def new_cann(root: Path) -> None:
    fit_910b4(root)
    cann(root, "compiler-9.2.0-beta.2.info", "version=9.2.0-beta.2\n", home=CANN)
    sourced(root, CANN)


def only_in_bashrc(root: Path) -> None:
    """A kernel that VS Code started: the line of .bashrc did not reach it."""
    fit_910b4(root)
    put(root, "commands/env.txt", "LANG=C.UTF-8\n")
    line = f"source {ASCEND}/ascend-toolkit/set_env.sh\n"
    put(root, f"{HOME}/.bashrc", f"# mine\n#source /old/set_env.sh\n{line}")


def old_driver(root: Path) -> None:
    """A driver of 24.1 under a firmware of 25.0."""
    fit_910b4(root)
    driver(root, "driver-24.1.rc2.2.info", "firmware-7.7.0.1.231.info")


def ill_device(root: Path) -> None:
    """Composed: no public table with a device that is not well was found."""
    fit_910b4(root)
    smi = text("npu-smi-910B2.txt").replace("| OK            | 92.8", "| Alarm         | 92.8")
    put(root, "commands/npu-smi-info.txt", smi)
    for number in range(8):
        put(root, f"/dev/davinci{number}")


def module_not_loaded(root: Path) -> None:
    """A host after an update of its kernel: the driver is installed, its nodes are gone."""
    fit_910b4(root)
    for name in ("davinci0", *NODES):
        take(root, f"/dev/{name}")
    put(root, "commands/npu-smi-info.txt", text("npu-smi-8005.txt"))


# --- collected after the parsers were written ----------------------------------------------------


def busy_910b2c(root: Path) -> None:
    """Four devices of sixteen in a container; the driver's text is composed."""
    devices(root, 4, "npu-smi-910B2C-busy.txt", ROOT)
    driver(root, "Version=23.0.3\n", None)
    put(root, "/.dockerenv")
    cann(root, "opp-8.0.0.info", "install-8.0.0-x86_64.info")
    sourced(root)


def fit_910b2c(root: Path) -> None:
    devices(root, 1, "npu-smi-910B2C.txt")
    driver(root, "driver-25.0.rc1.1.info", "firmware-7.7.0.1.231.info")
    said = "Version=8.3.0.2.220\nversion_dir=8.3.RC2\n"  # composed
    cann(root, said, "install-8.3.RC2-x86_64.info")
    sourced(root)


def own_folder_910b3(root: Path) -> None:
    """CANN below /data; the compiler's text and the driver's are composed."""
    devices(root, 1, "npu-smi-910B3.txt")
    said = "Version=24.1.rc1\ncompatible_version_fw=[7.0.0,7.2.99]\n"
    driver(root, said, "Version=7.1.0.5.220\n")
    home = "/data/8.1/ascend-toolkit/latest"
    said = "Version=7.7.T20.0.B071\nversion_dir=8.1.RC1.alpha001\n"
    cann(root, said, "install-8.1.RC1.alpha001.info", home=home)
    sourced(root, home)


def fit_910c_26(root: Path) -> None:
    """The driver's text and CANN 9.0.0's are composed."""
    devices(root, 2, "npu-smi-910C-26.txt")
    driver(root, "Version=26.0.rc2\n", "Version=9.0.0.0.100\n")
    said = "Version=9.0.0\nversion_dir=cann\n"
    cann(root, said, "version=9.0.0\n", home=CANN, kernels=("ascend910_93",))
    sourced(root, CANN)


def shared_910c(root: Path) -> None:
    """Half of the first device is taken, and enough is left; driver and CANN are composed."""
    fit_910c_26(root)
    put(root, "commands/npu-smi-info.txt", text("npu-smi-910C-busy.txt"))


def fit_310p3(root: Path) -> None:
    devices(root, 1, "npu-smi-310P3-flat.txt")
    driver(root, "driver-25.3.rc1.info", "Version=7.8.0.2.212\n")
    cann(root, "opp-8.5.0.info", None, home=CANN, kernels=("ascend310p", "ascend910b"))
    sourced(root, CANN)


@dataclass(frozen=True)
class Machine:
    """``row`` is the first that fails, ``says`` and ``types`` are in it; none where it is fit."""

    build: Callable[[Path], None]
    row: str = ""
    says: str = ""
    types: str = ""
    cured: Callable[[Path], None] | None = None  # the tree after the remedy

    @property
    def name(self) -> str:
        return self.build.__name__


def _env(home: str = LATEST) -> Callable[[Path], None]:
    return lambda root: sourced(root, home)


def _visible(number: str) -> Callable[[Path], None]:
    return lambda root: sourced(root, ASCEND_RT_VISIBLE_DEVICES=number)


def _user(said: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        put(root, "commands/id.txt", said)
        put(root, "commands/npu-smi-info.txt", text("npu-smi-910B4.txt"))

    return change


def _newer_cann(*kernels: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        cann(root, "opp-8.5.0.info", None, home=CANN, kernels=kernels)
        sourced(root, CANN)

    return change


def _one_cann(root: Path) -> None:
    cann(root, "Version=9.1.0\nversion_dir=cann\n", "version=9.1.0\n", home=CANN)


def _whole_opp(root: Path) -> None:
    put(root, f"{LATEST}/opp/version.info", text("toolkit-8.2.RC1.info"))


def _new_driver(root: Path) -> None:
    driver(root, "driver-25.0.rc1.1.info", None)


def _started_again(root: Path) -> None:
    put(root, "commands/npu-smi-info.txt", text("npu-smi-910B4.txt"))
    for name in ("davinci0", *NODES):
        put(root, f"/dev/{name}")


def _kernels_310p(root: Path) -> None:
    put(root, f"{CANN}/opp/built-in/op_impl/ai_core/tbe/kernel/ascend310p/x.json")


def _proper_container(root: Path) -> None:
    devices(root, 1, "npu-smi-910B4.txt", ROOT)
    driver(root, "driver-25.3.rc1.info", None)


BEFORE = [
    Machine(fit_910b4),
    Machine(fit_910c),
    Machine(
        old_910a, "CANN", "7.7.T20.0.B210 (8.1.RC1) is not among those", "installing CANN 9.1",
        _newer_cann("ascend910"),
    ),
    Machine(
        old_910b2, "CANN", "7.6.0.1.220 (8.0.0) is not among those that this MindSpore accepts "
        "(8.2, 8.3, 8.5, 9.0, 9.1): too old", "installing CANN 9.1", _newer_cann("ascend910b"),
    ),
    Machine(
        two_cann, "CANN", "/usr/local/Ascend/cann has 8.5.0",
        "source /usr/local/Ascend/cann/set_env.sh", _env(CANN),
    ),
    Machine(
        busy_910b4, "device memory",
        "3711 of 65536 MB free, held by process 19334 VLLMWorker_TP (58472 MB)", "ps -fp 19334",
        lambda root: put(root, "commands/npu-smi-info.txt", text("npu-smi-910B4.txt")),
    ),
    Machine(
        foreign_kernels, "CANN kernels", "has those for ascend910b, and 310P3 needs ascend310p",
        "Ascend-cann-310p-ops", _kernels_310p,
    ),
    Machine(
        bare_container, "device nodes", "this container was started without /dev/davinci_manager",
        "docker run --device=/dev/davinci_manager -v /usr/local/dcmi:/usr/local/dcmi "
        "-v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi", _proper_container,
    ),
    Machine(no_driver, "device nodes", "has this machine an Ascend device?", "lspci"),
    Machine(held_elsewhere, "npu-smi", "ret is -8005", "docker ps", _user(ROOT)),
    Machine(
        not_in_group, "device access", "neither root nor in group HwHiAiUser, and npu-smi says: "
        "dcmi module initialize failed. ret is -8005", "sudo usermod -aG HwHiAiUser $USER",
        _user("uid=1001(lin) gid=1001(lin) groups=1001(lin),1000(HwHiAiUser)\n"),
    ),
    Machine(
        mixed_cann, "CANN parts", "says 9.2.0, the compiler 9.1.0",
        "remove /usr/local/Ascend/cann before", _one_cann,
    ),
    Machine(
        half_updated, "CANN parts", "mixed: compiler 8.2.0.0.201, runtime 8.2.0.0.201, "
        "hccl 8.2.0.0.201, toolkit 8.2.0.0.201; opp 7.6.0.1.220",
        "ascend-toolkit/latest before", _whole_opp,
    ),
    Machine(
        new_cann, "CANN", "newer than any of them; /usr/local/Ascend/ascend-toolkit/latest has "
        "8.2.RC1", "source /usr/local/Ascend/ascend-toolkit/set_env.sh", _env(),
    ),
    Machine(
        only_in_bashrc, "set_env.sh", "though ~/.bashrc sources it: VS Code's server",
        "source /usr/local/Ascend/ascend-toolkit/set_env.sh && msnb doctor", _env(),
    ),
    Machine(
        old_driver, "firmware", "7.7.0.1.231, and driver 24.1.rc2.2 works with 7.0.0 to 7.2.99",
        "install the driver of the firmware's release", _new_driver,
    ),
    Machine(
        ill_device, "npu-smi", "health of device 3 Alarm",
        "npu-smi info -t health -i 3\nexport ASCEND_RT_VISIBLE_DEVICES=0,1,2,4,5,6,7",
        _visible("0,1,2,4,5,6,7"),
    ),
    Machine(
        module_not_loaded, "device nodes", "its kernel module is not loaded", "sudo reboot",
        _started_again,
    ),
]  # fmt: skip
AFTER = [
    Machine(
        busy_910b2c, "CANN", "7.6.0.1.220 (8.0.0) is not among those", "installing CANN 9.1",
        _newer_cann("ascend910b"),
    ),
    Machine(fit_910b2c),
    Machine(
        own_folder_910b3, "CANN", "7.7.T20.0.B071 (8.1.RC1.alpha001) is not among those",
        "installing CANN 9.1", _newer_cann("ascend910b"),
    ),
    Machine(fit_910c_26),
    Machine(shared_910c),
    Machine(fit_310p3),
]  # fmt: skip
