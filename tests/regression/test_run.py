"""Real runs over small notebooks: what each comes to, and that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from tiny_notebooks import REQUIRE, write_notebook

from msnb.regression import run
from msnb.regression.results import NotebookResult, Results

CAUGHT = """\
from msnb.report import Check, Report, ReportFailed
try:
    Report("middle", [Check("conv1", "failed", "off by 0.3")]).require()
except ReportFailed:
    pass"""
OTHER = REQUIRE.replace('found="CPU"', 'found="Ascend"')
READS = 'assert open("beside.txt").read() == "recorded"\nprint(epochs, text)'
PARAMETERS = 'device_target: str = "CPU"\nepochs: int = 3\ntext: str = ""'
LEAVES = """\
open("litter.txt", "w").close()"""
APPENDS = 'with open("beside.txt", "a") as file:\n    file.write("more")'
SUMMARY = """\
import mindspore as ms
from msnb.report import Check, Report
total = int(ms.ops.add(ms.Tensor(2), ms.Tensor(2)))
Report("all", [Check("sum", "ok" if total == 4 else "failed"), context.check()]).require()"""
SPAWNS = """\
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
assert True"""
TEXT = 'it\'s "量" {x}'


def msnb(folder: Path, *arguments: str, **surroundings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("msnb")), "run", *arguments],
        cwd=folder,
        env={**os.environ, **surroundings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def alive(token: str) -> list[str]:
    """The processes whose environment holds ``token``, but this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if token in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def gone(token: str, within: float) -> bool:
    end = time.monotonic() + within
    while alive(token) and time.monotonic() < end:
        time.sleep(0.1)
    return not alive(token)


def until(path: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 90
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{path.name} was never written"
        time.sleep(0.05)


class Ran:
    """A finished run: exit code, output, results by notebook, and where all of it is."""

    def __init__(self, root: Path, out: Path, token: str, process: subprocess.Popen[str]) -> None:
        self.root, self.out, self.token = root, out, token
        self.stdout, self.stderr = process.communicate(timeout=240)
        self.code = process.returncode
        self.results = Results.read(out)

    def __getitem__(self, name: str) -> NotebookResult:
        return next(result for result in self.results.notebooks if result.notebook == name)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("run") / 'it\'s a "路径" {x}'
    notebooks = root / "notebooks"
    for name, cells in {
        "01_ok": (READS, REQUIRE),
        "02_raises": ("x = 1", 'x += 1\nassert x == 1, f"{x} is not 1"', REQUIRE),
        "03_exits": ("import os", "# leave\nos._exit(3)", REQUIRE),
        "04_nothing": ("x = 1",),
        "05_caught": (CAUGHT, REQUIRE),
        "06_loops": (SPAWNS, "while True: pass", REQUIRE),
        "07_leaves": (LEAVES, REQUIRE),
        "08_elsewhere": (OTHER,),
        "09_quits": (REQUIRE, "raise SystemExit(0)", REQUIRE),
        "10_floods": ("print('x' * 25_000_000)", REQUIRE),
        "11_appends": (APPENDS, REQUIRE),
    }.items():
        parameters = {"parameters": PARAMETERS} if name == "01_ok" else {}
        write_notebook(notebooks / f"{name}.ipynb", *cells, **parameters)
    (notebooks / "beside.txt").write_text("recorded")
    (root / "json.py").write_text("raise SystemExit('the working folder is on the path')")
    temporary = root / "tmp"
    temporary.mkdir()
    before = {path: path.read_bytes() for path in notebooks.iterdir()}
    token = f"TOKEN_{uuid.uuid4().hex}"
    out = root / "out"
    process = msnb(
        root,
        *("--out", str(out), "--jobs", "2", "--cell-timeout", "4"),
        *("-p", "epochs=7", "-p", f"text={TEXT}"),
        **{token: "1", "TMPDIR": str(temporary)},
    )
    yield Ran(root, out, token, process)
    assert {path: path.read_bytes() for path in notebooks.iterdir()} == before
    assert list(temporary.iterdir()) == []


def test_one_failure_fails_the_run_and_the_table_says_which(ran: Ran) -> None:
    assert ran.code == 1
    assert ran.stdout.splitlines()[0] == "msnb run on CPU: FAILED (10 failed, 1 ok)"
    assert ran.stdout.splitlines()[-1].endswith(f": {ran.out}")
    assert len(ran.stderr.splitlines()) == 1 + 11 * 2  # one note; each start and end
    assert "without parameter text: 02_raises, 03_exits, " in ran.stderr
    assert "[11/11]" in ran.stderr


def test_the_sound_one_is_ok_with_its_parameters(ran: Ran) -> None:
    result = ran["01_ok"]
    assert (result.verdict, result.cell) == ("ok", None)
    assert result.parameters == {"device_target": "CPU", "epochs": 7, "text": TEXT}
    executed = nbformat.read(ran.out / str(result.executed), as_version=4)
    printed = "".join(
        output.get("text", "") for cell in executed.cells for output in cell.get("outputs", ())
    )
    assert printed == f"7 {TEXT}\n"


@pytest.mark.parametrize(
    ("name", "reason", "cell"),
    [
        ("02_raises", "AssertionError: 2 is not 1 in cell [3] x += 1", 3),
        ("03_exits", "the kernel died (exit code 3) in cell [3] os._exit(3)", 3),
        ("04_nothing", "it required nothing, so it proves nothing", None),
        (
            "05_caught",
            "required, but not ok: middle: FAILED (1 failed): conv1: off by 0.3 "
            "in cell [2] from msnb.report import Check, Report, ReportFailed",
            2,
        ),
        ("06_loops", "longer than 4 s in cell [3] while True: pass", 3),
        ("07_leaves", "it left litter.txt in its working folder", None),
        ("08_elsewhere", "it ran on Ascend, not on CPU", None),
        (
            "09_quits",
            "only 2 of 4 code cells ran to their end; it stopped in cell [3] raise SystemExit(0)",
            3,
        ),
        ("11_appends", "beside.txt beside it changed while it ran", None),
        (
            "10_floods",
            "TooMuchOutput: more than 20 MB of output from one cell "
            "in cell [2] print('x' * 25_000_000)",
            2,
        ),
    ],
)
def test_the_others_fail_with_reason_and_cell(
    ran: Ran, name: str, reason: str, cell: int | None
) -> None:
    result = ran[name]
    assert (result.verdict, result.reason) == ("failed", reason)
    assert (result.cell or {"number": None})["number"] == cell


def test_executed_notebooks_are_valid_and_do_not_call_a_failed_cell_completed(ran: Ran) -> None:
    for result in ran.results.notebooks:
        notebook = nbformat.read(ran.out / str(result.executed), as_version=4)
        nbformat.validate(notebook)
        assert str(ran.root) not in json.dumps(notebook.metadata, ensure_ascii=False)
        if result.cell:
            number = result.cell["id"]
            told = {cell["id"]: cell.metadata.get("papermill", {}) for cell in notebook.cells}
            after = [cell["id"] for cell in notebook.cells]
            if result.notebook != "05_caught":
                assert told[number]["status"] == "failed"
                rest = after[after.index(number) + 1 :]
                assert {told[id]["status"] for id in rest} == {"pending"}


def test_what_lies_beside_a_notebook_is_copied_or_watched(tmp_path: Path) -> None:
    folder, work = tmp_path / "notebooks", tmp_path / "work"
    for name, size in {
        "small.txt": 9,
        "large.bin": 1_000_000,
        "data/a": 9,
        "big/b": 1_000_000,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)
    for name in ("runs/now", ".git", "__pycache__", "data/__pycache__"):
        (folder / name).mkdir(parents=True)
    (folder / "nowhere").symlink_to(tmp_path / "gone")
    before = run._mirror(folder, work, [folder / "runs" / "now"])
    assert {p.name: p.is_symlink() for p in work.iterdir()} == {
        **dict.fromkeys(("small.txt", "data"), False),
        **dict.fromkeys(("large.bin", "big", "runs", ".git", "nowhere"), True),
    }

    for name in ("small.txt", "data/a", "large.bin", "big/b", "runs/now/c", ".git/index"):
        with (work / name).open("ab") as file:
            file.write(b"more")
    (work / "big" / "__pycache__").mkdir()
    (work / "big" / "new").touch()
    assert (folder / "small.txt").stat().st_size == (folder / "data" / "a").stat().st_size == 9
    left, changed = run._differences(work, before)
    assert left == ["big/new"]
    assert changed == ["big/b", "data/a", "large.bin", "small.txt"]


def test_only_so_much_is_copied_and_a_large_folder_is_watched_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_COPIED", 25)
    monkeypatch.setattr(run, "_ENTRIES", 8)
    folder, work = tmp_path / "notebooks", tmp_path / "work"
    (folder / "many").mkdir(parents=True)
    for name in ("a", "b", "c", *(f"many/{number}" for number in range(8))):
        (folder / name).write_bytes(b"x" * (0 if "many" in name else 10))
    before = run._mirror(folder, work)
    assert [p.name for p in sorted(work.iterdir()) if p.is_symlink()] == ["c", "many"]
    assert run._differences(work, before) == ([], [])
    (work / "many" / "8").touch()
    (work / "a").unlink()
    assert run._differences(work, before) == ([], ["a", "many"])


def test_results_say_in_what_environment(ran: Ran) -> None:
    results = ran.results
    assert results.complete
    assert results.device == "CPU"
    assert Path(results.environment["interpreter"]).samefile(sys.executable)
    assert results.environment["versions"]["papermill"]
    first = ran["01_ok"]
    assert first.source == "notebooks/01_ok.ipynb"
    assert first.seconds > sum(first.phases.values()) - 0.01 > 0
    record: dict[str, Any] = json.loads((ran.out / "results.json").read_text())
    assert (record["schema"], record["ok"]) == (1, False)


def test_nothing_is_left_running_or_lying_about(ran: Ran) -> None:
    assert gone(ran.token, within=5)
    names = {path.name for path in ran.out.iterdir()}
    logs = {str(result.log) for result in ran.results.notebooks if result.log}
    kept = {str(result.executed) for result in ran.results.notebooks}
    assert names == {"results.json"} | kept | logs


def test_the_kernel_of_the_curriculum_is_registered() -> None:
    """Run make setup, or msnb doctor --fix, where this fails."""
    from msnb.regression.catalog import check_kernel

    check_kernel("msnb")


def test_interrupted_once_it_reports_what_ran(folder: Path) -> None:
    flag, token = folder / "started", f"TOKEN_{uuid.uuid4().hex}"
    write_notebook(
        folder / "notebooks" / "01_first.ipynb",
        f'print("here")\nopen({str(flag)!r}, "w").close()\nimport time\ntime.sleep(600)',
        REQUIRE,
    )
    out = folder / "out"
    process = msnb(folder, "--out", str(out), "--jobs", "1", **{token: "1"})
    until(flag, process)
    process.send_signal(signal.SIGINT)
    ran = Ran(folder, out, token, process)
    assert ran.code == 130
    first, second = ran.results.notebooks
    assert (first.verdict, first.reason) == ("error", 'interrupted in cell [2] print("here")')
    assert (second.verdict, second.reason) == ("error", "not started: the run was interrupted")
    assert not ran.results.complete
    assert second.executed is None
    assert "here" in (out / str(first.executed)).read_text()
    assert gone(token, within=5)


@pytest.mark.slow
def test_a_killed_runner_leaves_nothing_running(folder: Path) -> None:
    """Neither does a kernel whose threads cannot run: the pattern holds the interpreter's lock."""
    flag, token = folder / "started", f"TOKEN_{uuid.uuid4().hex}"
    write_notebook(
        folder / "notebooks" / "01_first.ipynb",
        f'open({str(flag)!r}, "w").close()\nimport re\nre.match("(a+)+b", "a" * 60)',
        REQUIRE,
    )
    temporary = folder / "tmp"
    temporary.mkdir()
    process = msnb(
        folder, "01", "--out", str(folder / "out"), **{token: "1", "TMPDIR": str(temporary)}
    )
    until(flag, process)
    process.kill()
    process.communicate()
    assert gone(token, within=20)
    assert list(temporary.iterdir()) == []
    assert not Results.read(folder / "out").complete


@pytest.mark.slow
def test_the_total_limit_and_a_second_interrupt_end_a_kernel_that_hangs(folder: Path) -> None:
    flag, token = folder / "started", f"TOKEN_{uuid.uuid4().hex}"
    write_notebook(
        folder / "notebooks" / "01_first.ipynb",
        f'open({str(flag)!r}, "w").close()\nimport re\nre.match("(a+)+b", "a" * 60)',
        REQUIRE,
    )
    out = folder / "out"
    process = msnb(folder, "01", "--out", str(out), "--timeout", "8", **{token: "1"})
    ran = Ran(folder, out, token, process)
    assert ran.code == 1
    assert ran["01_first"].reason.startswith("took longer than 8 s; it was in cell [2] open(")

    flag.unlink()
    out = folder / "again"
    process = msnb(folder, "01", "--out", str(out), **{token: "1"})
    until(flag, process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    ran = Ran(folder, out, token, process)
    assert ran.code == 143
    assert ran["01_first"].verdict == "error"
    assert gone(token, within=5)


@pytest.mark.slow
def test_a_notebook_on_mindspore_runs_where_it_is_told(folder: Path) -> None:
    cells = ("import msnb\ncontext = msnb.setup(device_target)", SUMMARY)
    write_notebook(folder / "notebooks" / "01_first.ipynb", *cells)
    for device, verdict in (("cpu", "ok"), ("Ascend", "failed")):
        out, token = folder / device, f"TOKEN_{uuid.uuid4().hex}"
        process = msnb(folder, "1", "--out", str(out), "--device-target", device, **{token: "1"})
        ran = Ran(folder, out, token, process)
        result = ran["01_first"]
        assert (ran.code, result.verdict) == (int(verdict != "ok"), verdict), result.reason
        if device == "Ascend":
            assert result.parameters["device_target"] == "Ascend"
            assert result.reason.startswith("DeviceUnavailable: ")
            assert result.reason.endswith(" in cell [2] import msnb")
        assert gone(token, within=5)
