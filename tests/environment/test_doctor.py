"""The doctor on this machine: fit, unfit, and in broken conditions; its own process stays clean."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import overlay
import pytest
from machines import fit_facts

import msnb
from msnb.environment import ascend, examine, facts
from msnb.environment.__main__ import exit_code, main
from msnb.report import Check, Report

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


def run(
    *arguments: str, cwd: Path = ROOT, python: Path | str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    unset = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "ASCEND_HOME_PATH")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [python, *arguments],
        cwd=cwd,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def as_report(done: subprocess.CompletedProcess[str]) -> Report:
    assert done.stdout, done.stderr
    return Report.from_json(json.loads(done.stdout))


def not_about_where_we_run(report: Report) -> dict[str, str]:
    """The rows that do not depend on how this test was started."""
    skip = ("environment", "pip", "kernel", ".venv")
    return {check.id: check.status for check in report if check.id not in skip}


def test_this_machine_is_fit_for_the_cpu_and_the_doctor_loads_nothing_of_third_parties(
    tmp_path: Path,
) -> None:
    code = """
import sys
before = set(sys.modules)
from msnb.environment.__main__ import main
code = main(["--json"])
new = {name for name in set(sys.modules) - before if not name.startswith("msnb")}
files = [getattr(sys.modules[name], "__file__", None) or "" for name in new]
print([f for f in files if "site-packages" in f], code, file=sys.stderr)
"""
    done = run("-c", code, cwd=tmp_path)
    report = as_report(done)
    expected = dict.fromkeys(("CANN", "driver", "firmware"), "skipped")
    statuses = not_about_where_we_run(report)
    assert {row: status for row, status in statuses.items() if status != "ok"} == expected
    assert done.stderr.startswith("[] "), done.stderr
    assert done.stderr.split()[-1] == str(exit_code(report.worst, report.ok))
    assert list(tmp_path.iterdir()) == []


def test_the_check_for_third_parties_can_fail() -> None:
    done = run("-c", "import sys, rich; print('site-packages' in sys.modules['rich'].__file__)")
    assert done.stdout == "True\n"


def test_asked_for_ascend_this_machine_is_unfit_and_says_why(tmp_path: Path) -> None:
    done = run("-m", "msnb.environment", "--device-target", "ascend", cwd=tmp_path)
    if "ok      device" in done.stdout:
        pytest.skip("this machine has an Ascend device")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "FAILED device Ascend was asked for and cannot be used: libge_runner.so" in text
    assert "type source /usr/local/Ascend/cann/set_env.sh # in the shell" in text
    assert "FAILED CANN not installed; looked" in text
    assert re.search("FAILED driver not (installed; looked|visible in this container)", text)
    assert re.search("FAILED device nodes .*/dev/davinci0, /dev/davinci_manager", text)
    assert not re.search(r"\d+(\.\d+)? ?(s|ms|seconds)\b", done.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        pytest.param("raise RuntimeError('planted')", "importing it fails", marks=pytest.mark.slow),
        ("import os; os.abort()", "ends the process (signal SIGABRT)"),
    ],
)
def test_a_mindspore_that_breaks_on_import_is_a_row(tmp_path: Path, source: str, says: str) -> None:
    planted = tmp_path / "planted" / "mindspore"
    planted.mkdir(parents=True)
    (planted / "__init__.py").write_text(source, encoding="utf-8")
    done = run("-m", "msnb.environment", "--json", PYTHONPATH=str(planted.parent))
    report = as_report(done)
    assert done.returncode == 1
    assert report["mindspore"].status == report["shadowing"].status == "failed"
    assert says in report["mindspore"].summary
    assert str(planted) in report["mindspore"].summary + report["mindspore"].found
    assert report["mindspore"].remedy == report["shadowing"].remedy == "unset PYTHONPATH"
    assert report["torch"].status == "ok"


def test_files_of_the_reader_that_hide_modules_break_the_probes_and_not_the_doctor(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "我的 work"
    folder.mkdir()
    for name in ("random", "json", "subprocess"):
        (folder / f"{name}.py").write_text("raise RuntimeError('mine')", encoding="utf-8")
    done = run("-m", "msnb.environment", cwd=folder)
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "in place of json, random, subprocess, through the working folder" in text
    assert f"mv '{folder}/json.py' '{folder}/json_mine.py'" in text
    assert sorted(p.name for p in folder.iterdir()) == ["json.py", "random.py", "subprocess.py"]


@pytest.mark.parametrize("name", ["typing", "dataclasses", "argparse"])
def test_it_speaks_where_a_file_hides_what_everything_imports(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('mine')", encoding="utf-8")
    wrong = ("-m", "msnb.environment", "--device-target", "TPU")  # nothing is probed
    for done in (run(*wrong, cwd=tmp_path), run(*wrong, PYTHONPATH=str(tmp_path))):
        assert (done.returncode, done.stderr[:31]) == (2, "msnb doctor: device_target is o"), done


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13", "3.9"])
def test_other_interpreters_without_site_packages(version: str, tmp_path: Path) -> None:
    python = other_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from msnb.environment.__main__ import main; sys.exit(main(['--json']))"
    )
    done = run("-S", "-E", "-c", code, str(ROOT), cwd=tmp_path, python=python)
    report = as_report(done)
    assert done.returncode == 1
    assert report["mindspore"].status == "failed"
    assert report["python"].status == ("ok" if version in ("3.10", "3.12") else "failed")


def other_python(version: str) -> str | None:
    import shutil

    known = [shutil.which(f"python{version}")]
    known += [str(p) for p in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    for python in filter(None, known):
        if run("-c", "pass", python=python).returncode == 0:
            return python
    return None


def test_wrong_arguments_name_the_right_ones() -> None:
    with pytest.raises(ValueError, match=r"not 'npu'; did you mean Ascend\?"):
        msnb.doctor("npu")
    with pytest.raises(ValueError, match=r"not 'Ascent'; did you mean Ascend\?"):
        msnb.doctor("Ascent")
    with pytest.raises(ValueError, match="paths is 'short' or 'full', not 'tiny'"):
        msnb.doctor(paths="tiny")
    done = run("-m", "msnb.environment", "--device-target", "TPU")
    assert done.returncode == 2
    assert done.stderr.startswith("msnb doctor: device_target is one of CPU, Ascend, GPU, auto")


def small_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    from msnb.environment import __main__ as command

    report = Report("environment for CPU", [Check("kernel", "failed", "~/笔记/" + "word " * 20)])
    monkeypatch.setattr(command, "look", lambda *args, **options: (report, {}))


class Terminal(io.TextIOWrapper):
    """Like a terminal of 60 columns whose encoding has no Chinese."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii")

    def isatty(self) -> bool:
        return True


def test_the_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    small_doctor(monkeypatch)
    monkeypatch.setenv("COLUMNS", "60")
    for no_colour, escapes in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_colour)
        monkeypatch.setattr(sys, "stdout", terminal := Terminal())
        assert main([]) == 1
        shown = terminal.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
        assert ("\x1b[" in shown) is escapes
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert "~/\\u7b14\\u8bb0/word" in plain
        assert len(plain.splitlines()) == 4  # headline, and 110 columns in rows of 41
    monkeypatch.undo()


def test_a_table_that_cannot_be_written_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_doctor(monkeypatch)
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["--json"]) == 2
        monkeypatch.undo()
        assert "No space left on device" in capsys.readouterr().err
        with contextlib.suppress(OSError):
            full.close()


@pytest.mark.parametrize(
    "words",
    [
        "--rank-table a --against b",
        "--rank-table a --fix",
        "--against a --fix",
        "--for-bug-report --json",
        "--for-bug-report --against a",
    ],
)
def test_what_cannot_be_answered_together_is_refused(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place of one of them, silently: --fix would have changed nothing."""
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert all(word in said.split("not together:")[1] for word in words.split() if "--" in word)


def test_exit_codes() -> None:
    assert exit_code("skipped", True) == 0
    assert exit_code("failed", False) == 1
    assert exit_code("error", False) == 2
    assert exit_code("skipped", False) == 2  # nothing was looked at


# --- facts ---------------------------------------------------------------------------------------


def test_a_probe_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    code = """
import os, time
child = os.fork() or time.sleep(300)
open("child", "w").write(str(child))
time.sleep(300)
"""
    found = facts.run_probe(code, cwd=tmp_path, seconds=5.0)  # a start takes that on a busy machine
    assert found["end"] == "timeout"
    assert found["told"] is None
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    deadline = time.monotonic() + 20
    while is_running(child):
        assert time.monotonic() < deadline, "the probe's child is still running"
        time.sleep(0.05)


def test_a_probe_whose_child_keeps_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    code = """
import subprocess, time
left = subprocess.Popen(["sleep", "60"], start_new_session=True)
found["left"] = left.pid
tell()
time.sleep(300)
"""
    before = time.monotonic()
    found = facts.run_probe(code, cwd=tmp_path, seconds=5.0)
    assert time.monotonic() - before < 40
    assert found["end"] == "timeout"
    os.kill(found["told"]["left"], signal.SIGKILL)


def test_a_user_without_a_home_folder_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `docker run --user 4711`: no HOME that is known, and no line in /etc/passwd."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
    found = facts.gather("CPU", probe=False)
    assert found["places"]["home"] == "~"


def test_a_pipe_called_dot_env_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".env")
    code = "import sys; from pathlib import Path; from msnb.environment import facts"
    code += "; print(facts._dot_env(Path(sys.argv[1])))"
    words = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(words, check=True, timeout=30, capture_output=True)
    assert done.stdout == b"None\n"


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def test_a_probe_tells_what_it_found_before_it_crashed(tmp_path: Path) -> None:
    code = "found['stage'] = 1\ntell()\nimport os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
    found = facts.run_probe(code, cwd=tmp_path)
    assert found["end"] == "signal SIGSEGV"
    assert found["told"]["stage"] == 1


def test_the_list_of_cann_is_parsed_from_the_installed_mindspore() -> None:
    found = facts.distribution("mindspore")
    assert found is not None
    file = Path(found["folder"]) / "mindspore" / "run_check" / "_check_version.py"
    # independently: the one assignment of strings below the class, read as text
    checker = file.read_text(encoding="utf-8").split("class AscendEnvChecker")[1]
    line = re.search(r"self\.version = \[(.*?)\]", checker)
    assert line
    expected = re.findall(r'"([\d.]+)"', line[1])
    assert expected
    assert ascend.accepted_cann(str(file)) == {"versions": expected}


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("class AscendEnvChecker:\n    version = load()\n", "no list of versions"),
        ("class Other:\n    def f(self):\n        self.version = ['8.2']\n", "no list of versions"),
        ("def broken(:\n", "SyntaxError"),
        (None, "FileNotFoundError"),
    ],
)
def test_a_list_of_cann_that_cannot_be_read(tmp_path: Path, source: str | None, error: str) -> None:
    file = tmp_path / "check.py"
    if source is not None:
        file.write_text(source, encoding="utf-8")
    found = ascend.accepted_cann(str(file))
    assert found["versions"] is None
    assert error in found["error"]


def test_the_ascend_side_is_read_below_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    base = tmp_path / "usr/local/Ascend"
    for part, text in {
        "ascend-toolkit/latest/compiler": "Version=8.3.RC1\nversion_dir=8.3.RC1\n",
        "driver": "Version=25.2.0\nInnerversion=V100R001\n",
        "firmware": "module=x\n",
    }.items():
        (base / part).mkdir(parents=True)
        (base / part / "version.info").write_text(text, encoding="utf-8")
    (base / "ascend-toolkit" / "set_env.sh").write_text("", encoding="utf-8")
    found = ascend.gather(tmp_path, None)
    assert found["cann"]["version"] == "8.3.RC1"
    assert found["cann"]["path"].startswith("/usr/local/Ascend/ascend-toolkit/latest/")
    assert found["driver"]["version"] == "25.2.0"
    assert (found["firmware"]["version"], found["firmware"]["path"] is None) == (None, False)
    assert found["set_env"] == ["/usr/local/Ascend/ascend-toolkit/set_env.sh"]
    monkeypatch.setenv("ASCEND_HOME_PATH", "/opt/cann")
    (tmp_path / "opt/cann/compiler").mkdir(parents=True)
    (tmp_path / "opt/cann/compiler/version.info").write_text("Version=[9.0.0]\n", encoding="utf-8")
    assert ascend.gather(tmp_path, None)["cann"]["version"] == "9.0.0"


def test_jupyter_folders_are_in_the_order_of_jupyter(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = pytest.importorskip("jupyter_core.paths")
    for prefer in ("0", "1", None):
        for path in (None, "/opt/a:/opt/b/"):
            for name, value in (("JUPYTER_PREFER_ENV_PATH", prefer), ("JUPYTER_PATH", path)):
                if value is None:
                    monkeypatch.delenv(name, raising=False)
                else:
                    monkeypatch.setenv(name, value)
            assert facts.jupyter_folders() == paths.jupyter_path()


@pytest.mark.parametrize(
    ("head", "prefix"),
    [
        ("#!/opt/env/bin/python3.11\n", "/opt/env"),
        ("#!/opt/env/bin/python\n", "/opt/env"),
        ("#!/bin/sh\n'''exec' \"/opt/my env/bin/python\" \"$0\" \"$@\"\n' '''\n", "/opt/my env"),
        ("#!/usr/bin/env bash\n", None),
        ("\x7fELF", None),
    ],
)
def test_the_environment_of_a_script(tmp_path: Path, head: str, prefix: str | None) -> None:
    script = tmp_path / "pip"
    script.write_text(head, encoding="utf-8")
    assert facts._shebang_prefix(str(script)) == prefix


def test_shadowing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name in ("random.py", "test.py", "mine.py", "torch.txt", "sys.py"):
        (tmp_path / name).write_text("", encoding="utf-8")
    for name in ("numpy", "mindspore"):
        (tmp_path / name).mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = facts._shadows(tmp_path)
    assert {Path(shadow["path"]).name for shadow in found} == {"random.py", "numpy"}


def test_a_version_that_msnb_put_over_the_environment_is_no_shadow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = tmp_path / "mindspore-2.9.0-cpython-311"
    (overlay / "mindspore").mkdir(parents=True)
    (overlay / "mindspore" / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(overlay))
    nowhere = tmp_path / "empty"
    nowhere.mkdir()
    assert [shadow["module"] for shadow in facts._shadows(nowhere)] == ["mindspore"]
    (overlay / "complete").touch()
    assert facts._shadows(nowhere) == []


def test_the_remedy_against_shadowing_files_cures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = tmp_path / "my 工作", tmp_path / "on path"
    for place, names in ((folder, ("random", "torch", "mindspore")), (other, ("numpy",))):
        place.mkdir()
        for name in names:
            (place / f"{name}.py").write_text("", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(other))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    found = fit_facts()
    found["shadows"], found["python_path"] = facts._shadows(folder), facts._python_path()
    row = examine(found)["shadowing"]
    assert row.metrics == {"files": 4}
    assert row.remedy.startswith("unset PYTHONPATH\nmv ")
    command = f'{row.remedy}\nprintf %s "$PYTHONPATH"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    monkeypatch.delenv("PYTHONPATH")
    assert facts._shadows(folder) == []


def test_room_is_measured_where_it_is_asked_for(tmp_path: Path) -> None:
    room = facts._resources(tmp_path, None)
    free = os.statvfs(tmp_path)
    assert room["disk"]["working folder"]["path"] == str(tmp_path)
    # within a gigabyte: others write meanwhile
    told = room["disk"]["working folder"]["free"]
    assert abs(told - free.f_bavail * free.f_frsize) < 1 << 30
    with open("/proc/meminfo", encoding="ascii") as file:
        total = int(re.search(r"MemTotal:\s+(\d+)", file.read())[1]) * 1024  # type: ignore[index]
    assert 0 < room["memory"] <= total
    assert room["unmapped"] == []
    assert facts._mapping_fault(str(tmp_path)) is not None  # a folder cannot be mapped
    assert facts._free(str(tmp_path / "gone")) is None


def test_requirements_are_those_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"([^"]+)"', text.split("dependencies = [")[1].split("]")[0])
    found = facts._requirements(ROOT)
    assert [r["name"] + r["asks"] for r in found] == listed
    assert all(r["have"] for r in found)
    numpy = next(r for r in found if r["name"] == "numpy")
    assert numpy["asks"] == ">=1.25,<2"
    assert {r["name"] for r in facts._requirements(None)} >= {"numpy", "papermill"}


# --- NumPy 2 for real ----------------------------------------------------------------------------


@pytest.mark.slow
def test_numpy_2_breaks_the_first_operation_and_the_remedy_cures_it(tmp_path: Path) -> None:
    python = overlay.build(tmp_path / "env", without=("numpy",))
    installed = overlay.install(python, "numpy==2.4.6")
    if installed.returncode != 0:
        pytest.skip(f"numpy 2.4.6 cannot be fetched: {installed.stderr.strip()[-200:]}")
    done = run("-m", "msnb.environment", "--json", python=python, cwd=tmp_path)
    report = as_report(done)
    assert done.returncode == 1
    assert report["numpy"].status == report["first operation"].status == "failed"
    assert "SystemError" in report["first operation"].summary
    assert report["numpy"].metrics == {"major": 2}
    assert report["numpy"].remedy == f'{python} -m pip install "numpy<2"'

    # the excerpt that the notebook shows is what happens
    code = "import mindspore as ms\nms.Tensor([1.0, 2.0]) + 1"
    stderr = run("-c", code, python=python, cwd=tmp_path).stderr
    excerpt = (DATA / "numpy2_failure.txt").read_text(encoding="utf-8")
    for line in excerpt.splitlines():
        if line != "[...]":
            assert re.sub("0x[0-9a-f]+", "", line) in re.sub("0x[0-9a-f]+", "", stderr)

    remedy = report["numpy"].remedy
    cure = subprocess.run(remedy, shell=True, capture_output=True, text=True, check=False)
    assert cure.returncode == 0, cure.stderr
    cured = as_report(run("-m", "msnb.environment", "--json", python=python, cwd=tmp_path))
    assert cured["numpy"].status == cured["first operation"].status == "ok"
