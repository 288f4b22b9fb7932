"""Each rule on a machine that is fit and on one broken in one way: verdict, cause and remedy."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from machines import ENV, SITE, ascend_facts, fit_facts, no_ascend_facts

from msnb.environment import ascend_rules, examine, rules
from msnb.environment import facts as facts_of
from msnb.report import Report

PYTHON = f"{ENV}/bin/python"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def fit() -> dict[str, Any]:
    return fit_facts()


def broken(path: str, value: Any, facts: dict[str, Any] | None = None) -> dict[str, Any]:
    """Facts with one entry replaced: ``broken("pip/own", None)``."""
    facts = copy.deepcopy(fit_facts() if facts is None else facts)
    *way, last = path.split("/")
    place = facts
    for key in way:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = value
    return facts


def probe(told: Any, end: str = "ok", stderr: str = "") -> dict[str, Any]:
    return {"end": end, "told": told, "stderr": stderr}


def numpy_two() -> dict[str, Any]:
    facts = fit_facts()
    facts["distributions"]["numpy"]["version"] = "2.4.6"
    facts["probes"]["light"]["told"]["numpy"]["version"] = "2.4.6"
    told = facts["probes"]["mindspore"]["told"]
    del told["result"]
    told["numpy"] = "2.4.6"
    told["error"] = ["SystemError", "<built-in method pyboost_add_ext> returned a result with ..."]
    facts["probes"]["mindspore"]["stderr"] = (
        ROOT / "tests" / "data" / "numpy2_failure.txt"
    ).read_text(encoding="utf-8")
    return facts


def missing_mindspore() -> dict[str, Any]:
    facts = broken("distributions/mindspore", None)
    text = "ModuleNotFoundError: No module named 'mindspore'"
    facts["probes"]["mindspore"] = probe(None, "exit 1", f"Traceback ...\n{text}\n")
    facts["ascend"]["accepted"] = {"versions": None, "file": None}
    return facts


def old_protobuf() -> dict[str, Any]:
    facts = broken("distributions/protobuf/version", "3.20.3")
    facts["probes"]["light"]["told"]["google.protobuf"]["version"] = "3.20.3"
    return facts


def shadowed() -> dict[str, Any]:
    path = "/home/lin/msnb/my work/random.py"
    facts = broken(
        "shadows",
        [
            {
                "module": "random",
                "path": path,
                "folder": "/home/lin/msnb/my work",
                "through": "the working folder",
            }
        ],
    )
    stderr = f'  File "{path}", line 1, in <module>\nImportError: no seed here\n'
    facts["probes"]["torch"] = probe(None, "exit 1", stderr)
    return facts


def on_python_path() -> dict[str, Any]:
    facts = broken("python_path", ["/opt/old", "/opt/tools"])
    facts["shadows"] = [
        {
            "module": "mindspore",
            "path": "/opt/old/mindspore",
            "folder": "/opt/old",
            "through": "PYTHONPATH",
        }
    ]
    return facts


def dot_venv(**changes: Any) -> dict[str, Any]:
    facts = fit_facts()
    facts[".venv"] |= changes
    return facts


def spec(**changes: Any) -> dict[str, Any]:
    facts = fit_facts()
    facts["kernelspecs"][0] |= changes
    return facts


def settings(prefix: str, *, there: bool) -> dict[str, Any]:
    python = f"{prefix}/bin/python"
    facts = fit_facts()
    facts["settings"] |= {"named": python, "path": python, "there": there, "prefix": prefix}
    return facts


def without_numpy() -> dict[str, Any]:
    facts = broken("distributions/numpy", None)
    error = "ModuleNotFoundError: No module named 'numpy'"
    facts["probes"]["mindspore"] = probe(None, "exit 1", f"Traceback ...\n{error}\n")
    facts["probes"]["light"]["told"]["numpy"] = {"error": error.split(": ")}
    return facts


def active_elsewhere() -> dict[str, Any]:
    other = {"prefix": "/opt/other", "real_prefix": "/opt/other", "variable": "VIRTUAL_ENV"}
    return broken("active", other)


def conda(**changes: Any) -> dict[str, Any]:
    facts = fit_facts()
    facts["python"] |= {"kind": "conda", **changes}
    return facts


def installs(what: str) -> str:
    return re.escape(f"{PYTHON} -m pip install {what}")


USER_SPEC = "/home/lin/.local/share/jupyter/kernels/msnb"
NO_LIST = {"versions": None, "file": f"{SITE}/list.py", "error": "SyntaxError: line 3"}

# row, facts, status, what the row says, what it says to type (a pattern for the whole remedy)
BROKEN = {
    "python 3.13": (
        "python",
        broken("python/version", [3, 13, 0]),
        "failed",
        "no wheel",
        r"rm -rf \.venv && make setup .*",
    ),
    "python 3.9 in conda": (
        "python",
        conda(version=[3, 9, 18]),
        "failed",
        "no wheel",
        r"conda env create -f environment\.yml && conda activate msnb && msnb doctor --fix",
    ),
    "system python": (
        "environment",
        broken("python/kind", "system", missing_mindspore()),
        "failed",
        "Python of the system, without MindSpore",
        r"make setup && \.venv/bin/python -m msnb\.environment",
    ),
    "another environment active": (
        "environment",
        active_elsewhere(),
        "failed",
        r"another environment active \(VIRTUAL_ENV\)",
        f"source {ENV}/bin/activate",
    ),
    "another environment active, conda": (
        "environment",
        {**active_elsewhere(), "python": conda()["python"]},
        "failed",
        "another environment active",
        f"conda activate {ENV}",
    ),
    "no pip": (
        "pip",
        broken("pip/own", None),
        "failed",
        "no pip",
        f"{PYTHON} -m ensurepip --upgrade",
    ),
    "pip of another environment": (
        "pip",
        broken("pip/on_path_prefix", "/opt/other", active_elsewhere()),
        "failed",
        "into another environment",
        f"source {ENV}/bin/activate  # or write {PYTHON} -m pip for pip",
    ),
    "no kernelspec": (
        "kernel",
        broken("kernelspecs", []),
        "failed",
        "no kernelspec `msnb` is registered",
        f"{PYTHON} -m msnb.environment --fix",
    ),
    "no ipykernel": (
        "kernel",
        broken("distributions/ipykernel", None),
        "failed",
        "ipykernel is not installed",
        installs("ipykernel"),
    ),
    "kernelspec of a deleted environment": (
        "kernel",
        spec(python="/home/lin/gone/bin/python", prefix="/home/lin/gone", there=False),
        "failed",
        "no longer there",
        f"{PYTHON} -m msnb.environment --fix",
    ),
    "kernelspec of another environment": (
        "kernel",
        spec(python="/opt/other/bin/python", prefix="/opt/other"),
        "failed",
        "interpreter of another environment",
        f"{PYTHON} -m msnb.environment --fix",
    ),
    "kernelspec in the user's folder hides ours": (
        "kernel",
        spec(folder=USER_SPEC, own=False, python="/opt/other/bin/python", prefix="/opt/other"),
        "failed",
        "interpreter of another environment",
        f"rm -r {USER_SPEC} && {PYTHON} -m msnb.environment --fix",
    ),
    "kernelspec with a bare python": (
        "kernel",
        spec(python="python", prefix=None, there=False),
        "failed",
        "whichever 'python' is found first",
        f"{PYTHON} -m msnb.environment --fix",
    ),
    "kernelspec is no JSON": (
        "kernel",
        spec(python=None, prefix=None, there=False, error="JSONDecodeError: line 1"),
        "failed",
        "cannot be read: JSONDecodeError",
        f"{PYTHON} -m msnb.environment --fix",
    ),
    "notebook in another kernel": (
        "kernel",
        {
            **spec(prefix="/home/lin/msnb/.venv2", python="/home/lin/msnb/.venv2/bin/python"),
            "in_kernel": True,
            ".venv": {**fit_facts()[".venv"], "prefix": "/home/lin/msnb/.venv2"},
        },
        "failed",
        "runs in another kernel",
        r"Kernel > Change Kernel\.\.\. > msnb",
    ),
    "no .venv": (
        ".venv",
        dot_venv(kind="missing", python=False),
        "skipped",
        "has no .venv",
        f"{PYTHON} -m msnb.environment --fix",
    ),
    ".venv leads nowhere": (
        ".venv",
        dot_venv(kind="dangling", prefix="/opt/gone", python=False),
        "failed",
        "no longer there",
        f"{PYTHON} -m msnb.environment --fix",
    ),
    ".venv is torn": (
        ".venv",
        dot_venv(python=False),
        "failed",
        "no bin/python",
        r"rm -rf \.venv && make setup",
    ),
    ".venv is another environment": (
        ".venv",
        dot_venv(kind="link", prefix="/opt/other"),
        "failed",
        "another environment",
        rf"{ENV}/bin/python -m msnb\.environment\nrm {ENV} && {PYTHON} -m .* --fix .*",
    ),
    "settings of VS Code name an interpreter that is gone": (
        "way in",
        settings("/opt/gone", there=False),
        "failed",
        r"^a terminal: .*/settings\.json names /opt/gone/bin/python, which is not there",
        r"git -C /home/lin/msnb checkout -- \.vscode/settings\.json  # .*",
    ),
    "settings of VS Code name another environment": (
        "way in",
        settings("/opt/other", there=True),
        "failed",
        "names /opt/other/bin/python, which is another environment",
        r"git -C /home/lin/msnb checkout -- \.vscode/settings\.json  # .*",
    ),
    "a notebook asks for a kernel that is gone": (
        "way in",
        broken("notebooks", [{"path": "/x/02_y.ipynb", "kernel": "py39", "there": False}]),
        "failed",
        r"^a terminal: 02_y\.ipynb asks for a kernel that is not there \(py39\)",
        r"Kernel > Change Kernel\.\.\. > msnb  # in it, then save",
    ),
    "no folder to write to": (
        "room",
        broken("resources/unwritable", {"folder": "/home/lin/x", "error": "Read-only file system"}),
        "failed",
        r"no kernel can start: .* /home/lin/x, which cannot be written \(Read-only file system\)",
        r'export JUPYTER_RUNTIME_DIR="\$\(mktemp -d\)" IPYTHONDIR=.* MPLCONFIGDIR=.*',
    ),
    "NumPy is missing": (
        "mindspore",
        without_numpy(),
        "failed",
        "importing it fails: numpy is not installed",
        installs('mindspore==2.10.0 "numpy<2"'),
    ),
    "a package is half installed": (
        "requirements",
        broken("requirements", [{"name": "papermill", "asks": ">=2", "have": None, "torn": True}]),
        "failed",
        "papermill is half installed",
        installs("--force-reinstall --no-deps 'papermill>=2'"),
    ),
    "a file hides a module": (
        "shadowing",
        shadowed(),
        "failed",
        "in place of random, through the working folder",
        "mv '/home/lin/msnb/my work/random.py' '/home/lin/msnb/my work/random_mine.py'",
    ),
    "a folder on PYTHONPATH hides a package": (
        "shadowing",
        on_python_path(),
        "failed",
        "in place of mindspore, through PYTHONPATH",
        "export PYTHONPATH=/opt/tools",
    ),
    "MindSpore is missing": (
        "mindspore",
        missing_mindspore(),
        "failed",
        "not installed",
        installs("mindspore==2.10.0"),
    ),
    "MindSpore is too old": (
        "mindspore",
        broken("probes/mindspore/told/version", "2.6.0"),
        "failed",
        "2.6.0 is outside",
        installs("mindspore==2.10.0"),
    ),
    "MindSpore is too new": (
        "mindspore",
        broken("probes/mindspore/told/version", "2.11.0rc1"),
        "failed",
        "2.11.0rc1 is outside",
        installs("mindspore==2.10.0"),
    ),
    "MindSpore crashes on import": (
        "mindspore",
        broken("probes/mindspore", probe(None, "signal SIGSEGV")),
        "failed",
        "ends the process .signal SIGSEGV",
        installs("--force-reinstall --no-deps mindspore==2.10.0"),
    ),
    "MindSpore hangs on import": (
        "mindspore",
        broken("probes/mindspore", probe(None, "timeout")),
        "error",
        "did not end in time",
        f"{PYTHON} -c 'import mindspore'",
    ),
    "MindSpore meets an old protobuf": (
        "mindspore",
        broken("probes/mindspore", probe(None, "exit 1", "TypeError: Descriptors"), old_protobuf()),
        "failed",
        "see protobuf",
        installs('"protobuf>=7.34.1"'),
    ),
    "two MindSpores": (
        "mindspore",
        broken("distributions/mindspore-ascend", {"version": "2.2.0", "folder": SITE}),
        "failed",
        "mindspore-ascend beside mindspore: both write into one folder",
        re.escape(f"{PYTHON} -m pip uninstall -y mindspore mindspore-ascend\n")
        + installs("mindspore==2.10.0"),
    ),
    "a requirement is missing": (
        "requirements",
        broken("requirements/1/have", None),
        "failed",
        "^papermill is not installed$",
        installs("'papermill>=2.6'"),
    ),
    "a requirement is too old": (
        "requirements",
        broken("requirements/1/have", "2.4.0"),
        "failed",
        "papermill is 2.4.0, asked for >=2.6",
        installs("'papermill>=2.6'"),
    ),
    "asserts are removed": (
        "variables",
        broken("variables", {"PYTHONOPTIMIZE": "1", "GLOG_v": "3"}),
        "failed",
        "^PYTHONOPTIMIZE=1 removes every assert",
        "unset PYTHONOPTIMIZE",
    ),
    "no memory": (
        "room",
        broken("resources/memory", 300 << 20),
        "failed",
        "300 MiB of memory free",
        "ps axo .*",
    ),
    "no disk": (
        "room",
        broken("resources/disk/temporary files/free", 1 << 20),
        "failed",
        "1 MiB of disk free for the temporary files",
        "df -h /tmp; export TMPDIR=.*",
    ),
    "no shared memory": (
        "room",
        broken("resources/shared_memory", 8 << 20),
        "failed",
        "8 MiB of /dev/shm free",
        "df -h /dev/shm .*--shm-size=1g",
    ),
    "a file system without mmap": (
        "room",
        broken("resources/unmapped", [{"folder": "/mnt/x", "error": "[Errno 19] No such device"}]),
        "failed",
        "the file system of /mnt/x cannot map files",
        "df -T /mnt/x .*",
    ),
    "the first operation is wrong": (
        "first operation",
        broken("probes/mindspore/told/result", [2.0, 4.0]),
        "failed",
        "wrong result",
        installs("--force-reinstall --no-deps mindspore==2.10.0"),
    ),
    "the first operation ends the process": (
        "first operation",
        broken(
            "probes/mindspore",
            probe({"version": "2.10.0", "file": "x", "numpy": "1.26.4"}, "signal SIGABRT"),
        ),
        "failed",
        "ends the process .signal SIGABRT",
        installs("--force-reinstall --no-deps mindspore==2.10.0"),
    ),
    "NumPy 2, first operation": (
        "first operation",
        numpy_two(),
        "failed",
        "raises SystemError, with NumPy 2.4.6",
        installs('"numpy<2"'),
    ),
    "NumPy 2": (
        "numpy",
        numpy_two(),
        "failed",
        "2.4.6: this MindSpore was compiled against NumPy 1",
        installs('"numpy<2"'),
    ),
    "no NumPy": (
        "numpy",
        broken(
            "probes/light/told/numpy",
            {"error": ["ModuleNotFoundError", "No module named 'numpy'"]},
        ),
        "failed",
        "not installed",
        installs('"numpy<2"'),
    ),
    "no torch": (
        "torch",
        broken(
            "distributions/torch",
            None,
            broken(
                "probes/torch",
                probe(None, "exit 1", "ModuleNotFoundError: No module named 'torch'"),
            ),
        ),
        "failed",
        "not installed",
        installs("torch"),
    ),
    "torch crashes": (
        "torch",
        broken("probes/torch", probe(None, "signal SIGILL")),
        "failed",
        "SIGILL",
        installs("--force-reinstall --no-deps torch==2.13.0"),
    ),
    "torch meets a file of the reader": (
        "torch",
        shadowed(),
        "failed",
        "because of /home/lin/msnb/my work/random.py",
        "mv '/home/lin/msnb/my work/random.py' '/home/lin/msnb/my work/random_mine.py'",
    ),
    "protobuf 3": (
        "protobuf",
        old_protobuf(),
        "failed",
        "3.20.3 is outside",
        installs('"protobuf>=7.34.1"'),
    ),
    "Ascend asked for and absent": (
        "device",
        no_ascend_facts(),
        "failed",
        "libge_runner.so: cannot open shared object file: No such file or directory$",
        r"source /usr/local/Ascend/cann/set_env\.sh  # in the shell that then starts the kernel",
    ),
    "Ascend asked for, CPU runs": (
        "device",
        broken("probes/device/told/device", "CPU", ascend_facts()),
        "failed",
        "Ascend was asked for, but CPU is what runs",
        r"source /usr/local/Ascend/cann/set_env\.sh .*",
    ),
    "CANN is missing": (
        "CANN",
        no_ascend_facts(),
        "failed",
        r"\$ASCEND_HOME_PATH \(not set\), /usr/local/Ascend/cann; .*8.2, 8.3, 8.5, 9.0, 9.1",
        r"source /usr/local/Ascend/cann/set_env\.sh  # after installing CANN 9\.1 .*",
    ),
    "CANN is there, not sourced": (
        "CANN",
        broken("ascend/set_env", ["/home/lin/Ascend/cann/set_env.sh"], no_ascend_facts()),
        "failed",
        "not installed",
        r"source /home/lin/Ascend/cann/set_env\.sh",
    ),
    "CANN is not on the list": (
        "CANN",
        broken("ascend/cann/version", "8.0.RC3", ascend_facts()),
        "failed",
        "8.0.RC3 is not among",
        r"source .*set_env\.sh  # after installing CANN 9\.1 .*",
    ),
    "CANN's list cannot be read": (
        "CANN",
        broken("ascend/accepted", NO_LIST, ascend_facts()),
        "error",
        f"could not be read from {SITE}/list.py",
        "",
    ),
    "CANN names no version": (
        "CANN",
        broken("ascend/cann/version", None, ascend_facts()),
        "error",
        "names no version",
        "cat /usr/local/Ascend/cann/compiler/version.info",
    ),
    "no driver": (
        "driver",
        no_ascend_facts(),
        "failed",
        "looked at /usr/local/Ascend/driver/version.info",
        "ls /usr/local/Ascend/driver .*",
    ),
    "no firmware": (
        "firmware",
        no_ascend_facts(),
        "failed",
        "looked at /usr/local/Ascend/firmware/version.info",
        "ls /usr/local/Ascend/firmware .*",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_environment_gets_its_cause_and_remedy(case: str) -> None:
    row, facts, status, says, remedy = BROKEN[case]
    check = examine(facts)[row]
    assert check.status == status, check
    assert re.search(says, check.summary), check.summary
    assert re.fullmatch(remedy, check.remedy), check.remedy


# Where a row that comes earlier says what to do: the cause, or the same remedy.
EARLIER = {
    "pip of another environment": "environment",
    "NumPy 2": "first operation",
    "torch meets a file of the reader": "shadowing",
    **dict.fromkeys(("Ascend asked for and absent", "CANN is missing"), "device nodes"),
    **dict.fromkeys(("CANN is there, not sourced", "no driver", "no firmware"), "device nodes"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_first_row_that_is_not_ok_is_the_one_to_act_on(case: str) -> None:
    row, facts, status, _, remedy = BROKEN[case]
    first = next((c for c in examine(facts) if c.status in ("failed", "error")), None)
    if status == "skipped":
        assert first is None
        return
    assert first is not None
    assert first.id == EARLIER.get(case, row)
    if case not in EARLIER or case in ("NumPy 2", "torch meets a file of the reader"):
        assert re.fullmatch(remedy, first.remedy)


def test_every_rule_is_shown_to_fail_and_to_pass() -> None:
    every = {*rules.RULES, "device", *ascend_rules.ALWAYS}
    assert {row for row, *_ in BROKEN.values()} == every
    on_ascend = Report("", rules.judge(ascend_facts()))
    assert on_ascend.ok
    assert {check.id for check in on_ascend if check} >= every  # the others: test_ascend.py


def test_a_fit_machine_without_ascend_is_fit_for_the_cpu(fit: dict[str, Any]) -> None:
    report = examine(fit)
    assert report.ok
    skipped = {check.id for check in report if check.status == "skipped"}
    assert skipped == {"CANN", "driver", "firmware"}
    assert all("/usr/local/Ascend" in report[row].summary for row in skipped)


def test_rows_that_hang_on_another_are_skipped_and_name_it() -> None:
    report = examine(missing_mindspore())
    failed = [check.id for check in report if check.status == "failed"]
    assert failed == ["mindspore"]
    for row in ("first operation", "device"):
        assert report[row].status == "skipped"
        assert "MindSpore that can be imported" in report[row].summary
    assert [c.id for c in examine(numpy_two()) if c.status == "failed"] == [
        "first operation",
        "numpy",
    ]


def test_what_breaks_beside_a_hidden_module_is_not_installed_again(fit: dict[str, Any]) -> None:
    fit["shadows"] = [
        {
            "module": "json",
            "path": "/home/lin/msnb/json.py",
            "folder": "/home/lin/msnb",
            "through": "the working folder",
        }
    ]
    hidden = {"error": ["AttributeError", "module 'json' has no attribute 'dumps'"]}
    fit["probes"]["light"]["told"] = {"numpy": hidden, "google.protobuf": hidden}
    fit["probes"]["mindspore"] |= {"end": "signal SIGABRT", "told": None}
    fit["probes"]["torch"]["told"] = {"torch": hidden}
    report = examine(fit)
    for name in ("mindspore", "numpy", "torch", "protobuf"):
        assert report[name].status == "failed"
        assert report[name].summary.endswith(": see shadowing")
        assert report[name].remedy == "mv /home/lin/msnb/json.py /home/lin/msnb/json_mine.py"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PYTHONHOME", "/opt/python", "another standard library"),
        ("PYTHONWARNINGS", "error", "raises DeprecationWarning"),
        ("GLOG_v", "9", "raises ValueError"),
        ("GLOG_stderrthreshold", "x", "no level"),
        ("MS_SIMULATION_LEVEL", "0", "simulation"),
        ("MINDSPORE_DUMP_CONFIG", "/gone.json", "not there"),
        ("RANK_TABLE_FILE", "/gone.json", "not there"),
        ("MS_ROLE", "MS_WORKER", "left over from a launcher"),
    ],
)
def test_variables_that_break(name: str, value: str, says: str, fit: dict[str, Any]) -> None:
    fit["variables"] = {name: value}
    row = examine(fit)["variables"]
    assert row.status == "failed"
    assert says in row.summary
    assert row.remedy == f"unset {name}"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("GLOG_v", "3", "hides warnings"),
        ("GLOG_v", "0", "floods the log"),
        ("MS_JIT", "0", "uncompiled"),
        ("MS_COMPILER_CACHE_ENABLE", "1", "compiled earlier"),
        ("OMP_NUM_THREADS", "4", "number of threads"),
        ("LD_PRELOAD", "/x.so", "before all others"),
        ("MS_ALLOC_CONF", "x", "memory pool"),
        ("RANK_TABLE_FILE", __file__, "--rank-table"),
        *((n, v, "") for n, v in {"GLOG_v": "2", "MS_JIT": "1", "PYTHONOPTIMIZE": "0"}.items()),
    ],
)
def test_variables_that_change_something(
    name: str, value: str, says: str, fit: dict[str, Any]
) -> None:
    fit["variables"] = {name: value}
    row = examine(fit)["variables"]
    assert row.status == "ok"
    assert (says or "none is set") in row.summary


def test_every_variable_that_is_looked_at_means_something() -> None:
    values = ("0", "1", "3", "9", "error", "/gone")
    for name in facts_of.VARIABLES:
        assert any(rules._breaks(name, v) or rules._changes(name, v) for v in values), name


def test_numpy_is_judged_by_the_operation_and_not_by_its_number() -> None:
    facts = numpy_two()
    told = facts["probes"]["mindspore"]["told"]
    del told["error"]
    told["result"] = [2.0, 3.0]
    assert examine(facts)["numpy"].status == "ok"
    facts = missing_mindspore()  # nobody can be asked: then the number counts
    facts["probes"]["light"]["told"]["numpy"]["version"] = "2.4.6"
    assert examine(facts)["numpy"].status == "failed"


def test_in_a_kernel_the_path_of_the_shell_does_not_count() -> None:
    facts = {**broken("pip/on_path_prefix", "/opt/other", active_elsewhere()), "in_kernel": True}
    report = examine(facts)
    assert report["pip"].status == report["environment"].status == "ok"
    assert "%pip" in report["pip"].summary


def test_auto_asks_for_the_cpu_and_tells_what_else_is_there() -> None:
    without = examine({**no_ascend_facts(), "target": "auto"})
    assert without.ok
    assert "Ascend cannot: libge_runner.so" in without["device"].summary
    assert without["CANN"].status == "skipped"
    with_ascend = examine({**ascend_facts(), "target": "auto"})
    assert "so can Ascend" in with_ascend["device"].summary


def test_a_working_device_outweighs_a_version_file_that_is_not_there() -> None:
    facts = ascend_facts()
    for part in ("cann", "driver", "firmware"):
        facts["ascend"][part] |= {"version": None, "path": None}
    report = examine(facts)
    assert report.ok
    assert {report[row].status for row in ("CANN", "driver", "firmware")} == {"skipped"}


def test_a_rule_without_its_facts_is_a_row_and_not_a_crash(fit: dict[str, Any]) -> None:
    del fit["pip"], fit["ascend"]
    report = examine(fit)
    assert report["pip"].status == report["driver"].status == "error"
    assert "KeyError: 'pip'" in report["pip"].summary
    assert report["mindspore"].status == "ok"


def test_the_table_is_the_same_on_two_machines_that_are_set_up_alike(fit: dict[str, Any]) -> None:
    text = json.dumps(fit).replace("/home/lin/msnb", "/data/陈 wei/code/msnb")
    other = json.loads(text.replace("/home/lin", "/data/陈 wei"))
    other["python"]["version"][2] = 1
    assert str(examine(other, paths="short")) == str(examine(fit, paths="short"))
    assert str(examine(other)) != str(examine(fit))


def test_short_paths_leave_no_machine_in_a_failing_table_and_a_remedy_to_type() -> None:
    for row, facts, *_ in BROKEN.values():
        check = examine(facts, paths="short")[row]
        shown = check.summary + check.found + check.expected
        assert "/home/lin" not in shown, (row, shown)
    remedy = examine(numpy_two(), paths="short")["numpy"].remedy
    assert remedy == '.venv/bin/python -m pip install "numpy<2"'
    elsewhere = broken("places/cwd", "/home/lin", numpy_two())
    assert examine(elsewhere, paths="short")["numpy"].remedy.startswith(PYTHON)


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local"])
def test_a_python_of_the_system_does_not_rename_the_machines_folders(prefix: str) -> None:
    """Prefix /usr/local is that of Python's own container images; CANN lies below it, too."""
    facts = no_ascend_facts()
    facts["python"] |= {"prefix": prefix, "real_prefix": prefix, "kind": "system"}
    table = str(examine(facts, paths="short"))
    assert "looked at /usr/local/Ascend/driver/version.info" in table


def test_the_supported_versions_are_those_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    low, high = (".".join(map(str, version)) for version in rules.MINDSPORE)
    assert f'"mindspore>={low},<{high}"' in project
    assert f"mindspore=={rules.PINNED}" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
    first, last = rules.PYTHONS[0], rules.PYTHONS[-1]
    assert f'requires-python = ">={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"' in project


@pytest.mark.parametrize(
    ("version", "specifier", "met"),
    [
        ("7.34.1", ">=7.34.1", True),
        ("7.34", ">=7.34.1", False),
        ("3.20.3", ">=3.13,<4", True),
        ("4.0", ">=3.13,<4", False),
        ("4", "!=4.0.0", False),
        ("1.2", "", True),
        ("2.10.0", ">2.9", True),
    ],
)
def test_satisfies(version: str, specifier: str, met: bool) -> None:
    assert rules.satisfies(version, specifier) is met


@pytest.mark.parametrize(
    ("name", "failed"),
    [
        (
            "system_python",
            {"environment", "kernel", ".venv", "mindspore", "numpy", "torch", "protobuf"},
        ),
        ("numpy_2", {"first operation", "numpy"}),
        ("shadowing", {"shadowing", "mindspore", "numpy", "torch"}),
        ("torn", {"environment", "pip", "kernel"}),
    ],
)
def test_recorded_reports_of_the_notebook(name: str, failed: set[str]) -> None:
    text = (ROOT / "notebooks" / "recorded" / f"{name}.json").read_text(encoding="utf-8")
    report = Report.from_json(json.loads(text))
    assert {check.id for check in report if check.status == "failed"} == failed
    assert not re.search(r"/(root|tmp|work|home)\b", text)
