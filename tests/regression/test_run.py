"""One real run over many small notebooks: what each comes to, and that nothing is left."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import psutil
import pytest
from running import Place, Ran
from tiny_notebooks import REQUIRE, write_notebook

from msnb.regression import beside, machine, shares

CAUGHT = """\
from msnb.report import Check, Report, ReportFailed
try:
    Report("middle", [Check("conv1", "failed", "off by 0.3")]).require()
except ReportFailed:
    pass"""
OTHER = REQUIRE.replace('found="CPU"', 'found="Ascend"')
READS = """\
import os
assert open("beside.txt").read() == "recorded"
print(epochs, text, os.environ["OMP_NUM_THREADS"])
print(api_token, os.environ["TEST_API_KEY"], os.environ["TEST_PROXY"])"""
PARAMETERS = """\
device_target: str = "CPU"
epochs: int = 3
text: str = ""
api_token: str = ""
pin_secret: int = 0"""
LEAVES = """\
open("litter.txt", "w").close()"""
APPENDS = 'with open("beside.txt", "a") as file:\n    file.write("more")'
SPAWNS = """\
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
assert True"""
MEDDLES = """\
import os, random
os.environ["MSNB_MEDDLED"] = "1"
os.remove("beside.txt")
os.chdir("/")
random.seed(0)"""
UNDISTURBED = """\
import os
assert "MSNB_MEDDLED" not in os.environ
assert "recorded" == open("beside.txt").read()"""
GROWS = """\
held = []
while True:
    held.append(b"x" * 30_000_000)"""
TEXT = 'it\'s "量" {x}'
SECRETS = {
    "token": "tok-'quoted\"-74319265",
    "key": "k3y-of-the-environment",
    "in url": "pa55-in-url",
}
NOTEBOOKS = {
    "01_ok": (READS, REQUIRE),
    "02_raises": ("x = 1", 'x += 1\nassert x == 1, f"{x} is not 1"', REQUIRE),
    "03_exits": ("import os", "# leave\nos._exit(3)", REQUIRE),
    "04_nothing": ("x = 1",),
    "05_caught": (CAUGHT, REQUIRE),
    "06_loops": (SPAWNS, "while True: time.sleep(0.001)", REQUIRE),
    "07_leaves": (LEAVES, REQUIRE),
    "08_elsewhere": (OTHER,),
    "09_quits": (REQUIRE, "raise SystemExit(0)", REQUIRE),
    "10_floods": ("print('x' * 25_000_000)", REQUIRE),
    "11_appends": (APPENDS, REQUIRE),
    "12_killed": ("import os", "os.kill(os.getpid(), 9)", REQUIRE),
    "13_segfaults": ("import ctypes", "ctypes.string_at(0)", REQUIRE),
    "14_prints": ("for _ in range(20): print('x' * 9_999_999)", REQUIRE),
    "15_asks": ("name = input('who? ')", REQUIRE),
    "16_meddles": (MEDDLES,),
    "17_undisturbed": (UNDISTURBED, REQUIRE),
    "18_grows": (GROWS, REQUIRE),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    place = Place(tmp_path_factory.mktemp("run") / 'it\'s a "路径" {x}')
    notebooks = place.root / "notebooks"
    for name, cells in NOTEBOOKS.items():
        parameters = {"parameters": PARAMETERS} if name == "01_ok" else {}
        write_notebook(notebooks / f"{name}.ipynb", *cells, **parameters)
    (notebooks / "beside.txt").write_text("recorded")
    (place.root / "json.py").write_text("raise SystemExit('the working folder is on the path')")
    yield place.run(
        *("--jobs", "2", "--cell-timeout", "12", "--memory", "1"),
        *("-p", "epochs=7", "-p", f"text={TEXT}"),
        *("-p", f"api_token={SECRETS['token']}", "-p", "pin_secret=74319265"),
        TEST_API_KEY=SECRETS["key"],
        TEST_PROXY=f"http://me:{SECRETS['in url']}@proxy:8080",
    )
    place.check()


def test_one_failure_fails_the_run_and_the_table_says_which(ran: Ran) -> None:
    assert ran.code == 1
    assert ran.stdout.splitlines()[0] == "msnb run on CPU: FAILED (16 failed, 2 ok)"
    assert ran.stdout.splitlines()[-1].endswith(f": {ran.out}")
    assert "without parameter text: 02_raises, 03_exits, " in ran.stderr
    assert len(ran.stderr.splitlines()) == 3 + 18 * 2  # a note a parameter; each start and end
    assert "[18/18]" in ran.stderr
    assert "\x1b[" not in ran.stdout + ran.stderr


def test_the_sound_one_is_ok_with_its_parameters(ran: Ran) -> None:
    result = ran["01_ok"]
    assert (result.verdict, result.cell) == ("ok", None)
    assert result.parameters == {
        "device_target": "CPU",
        "epochs": 7,
        "text": TEXT,
        "api_token": "(hidden)",
        "pin_secret": "(hidden)",
    }
    executed = nbformat.read(ran.out / str(result.executed), as_version=4)
    printed = "".join(
        output.get("text", "") for cell in executed.cells for output in cell.get("outputs", ())
    )
    each = max(1, len(os.sched_getaffinity(0)) // 2)
    assert printed == (f"7 {TEXT} {each}\n(hidden) (hidden) http://me:(hidden)@proxy:8080\n")
    assert result.share == {"threads": each}
    assert Path(result.interpreter).samefile(sys.executable)


def test_no_secret_is_in_any_file_of_the_run(ran: Ran) -> None:
    kept = {path.name: path.read_text() for path in ran.out.iterdir()}
    assert {"results.json", "report.html", "junit.xml", "01_ok.ipynb"} <= kept.keys()
    for text in (*kept.values(), ran.stdout, ran.stderr):
        for secret in (*SECRETS.values(), "74319265"):
            assert secret not in text
    assert "74319265" in SECRETS["token"]  # so that no other way of writing it is missed


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
        ("06_loops", "longer than 12 s in cell [3] while True: time.sleep(0.001)", 3),
        ("07_leaves", "it left litter.txt in its working folder", None),
        ("08_elsewhere", "it ran on Ascend, not on CPU", None),
        (
            "09_quits",
            "only 2 of 4 code cells ran to their end; it stopped in cell [3] raise SystemExit(0)",
            3,
        ),
        (
            "10_floods",
            "TooMuchOutput: more than 20 MB of output from one cell "
            "in cell [2] print('x' * 25_000_000)",
            2,
        ),
        ("11_appends", "beside.txt beside it changed while it ran", None),
        ("12_killed", "the kernel died (SIGKILL) in cell [3] os.kill(os.getpid(), 9)", 3),
        ("13_segfaults", "the kernel died (SIGSEGV) in cell [3] ctypes.string_at(0)", 3),
        (
            "14_prints",
            "TooMuchOutput: more than 20 MB of output from one cell "
            "in cell [2] for _ in range(20): print('x' * 9_999_999)",
            2,
        ),
        (
            "15_asks",
            "StdinNotImplementedError: raw_input was called, but this frontend does not support "
            "input requests. in cell [2] name = input('who? ')",
            2,
        ),
        ("16_meddles", "it required nothing, so it proves nothing", None),
        ("18_grows", "took more than 1 GB of memory, in cell [2] held = []", 2),
    ],
)
def test_the_others_fail_with_reason_and_cell(
    ran: Ran, name: str, reason: str, cell: int | None
) -> None:
    result = ran[name]
    assert (result.verdict, result.reason) == ("failed", reason)
    assert (result.cell or {"number": None})["number"] == cell
    assert result.seconds < 90


def test_what_one_notebook_does_to_itself_another_does_not_see(ran: Ran) -> None:
    assert ran["17_undisturbed"].verdict == "ok"


def test_executed_notebooks_are_valid_and_do_not_call_a_failed_cell_completed(ran: Ran) -> None:
    assert ran.results is not None
    for result in ran.results.notebooks:
        notebook = nbformat.read(ran.out / str(result.executed), as_version=4)
        nbformat.validate(notebook)
        assert str(ran.out.parent) not in json.dumps(notebook.metadata, ensure_ascii=False)
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
    before = beside.mirror(folder, work, [folder / "runs" / "now"])
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
    left, changed = beside.differences(work, before)
    assert left == ["big/new"]
    assert changed == ["big/b", "data/a", "large.bin", "small.txt"]


def test_only_so_much_is_copied_and_a_large_folder_is_watched_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_COPIED", 25)
    monkeypatch.setattr(beside, "_ENTRIES", 8)
    folder, work = tmp_path / "notebooks", tmp_path / "work"
    (folder / "many").mkdir(parents=True)
    for name in ("a", "b", "c", *(f"many/{number}" for number in range(8))):
        (folder / name).write_bytes(b"x" * (0 if "many" in name else 10))
    before = beside.mirror(folder, work)
    assert [p.name for p in sorted(work.iterdir()) if p.is_symlink()] == ["c", "many"]
    assert beside.differences(work, before) == ([], [])
    (work / "many" / "8").touch()
    (work / "a").unlink()
    assert beside.differences(work, before) == ([], ["a", "many"])


def test_a_file_that_has_no_readable_name_or_content_is_known_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.txt"))
    name.write_text("1")
    first = beside.fingerprint(tmp_path)
    name.write_text("2")
    assert beside.fingerprint(tmp_path) != first

    def closed(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", closed)
    shut = beside.fingerprint(tmp_path)
    assert shut == beside.fingerprint(tmp_path) != first


def test_a_process_that_ends_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"MSNB_RUN_TEST_{os.getpid()}"
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    ending, child = (subprocess.Popen(command, env={**os.environ, marker: "1"}) for _ in "12")
    real = psutil.Process.status

    def status(process: psutil.Process) -> str:
        if process.pid == ending.pid:
            raise psutil.NoSuchProcess(process.pid)
        return str(real(process))

    monkeypatch.setattr(psutil.Process, "status", status)
    try:
        machine.kill_marked(marker, patience=0)
        assert child.wait(5) == -9
    finally:
        ending.kill()
        ending.wait()


def test_results_say_in_what_environment(ran: Ran) -> None:
    results = ran.results
    assert results is not None
    assert results.complete
    assert results.device == "CPU"
    assert Path(results.environment["interpreter"]).samefile(sys.executable)
    assert results.environment["versions"]["papermill"]
    facts = results.environment["facts"]
    assert facts["python"]["version"] == list(sys.version_info[:3])
    assert facts["distributions"]["ipykernel"]["version"]
    assert not {"places", "python_path", "active"} & facts.keys()
    assert str(Path.home()) not in json.dumps({**facts, "python": 0, "kernelspecs": 0})
    first = ran["01_ok"]
    assert first.source == "notebooks/01_ok.ipynb"
    assert first.seconds > sum(first.phases.values()) - 0.01 > 0
    record: dict[str, Any] = json.loads((ran.out / "results.json").read_text())
    assert (record["schema"], record["ok"]) == (2, False)


def test_junit_has_a_suite_for_each_with_the_same_verdicts(ran: Ran) -> None:
    assert ran.results is not None
    root = ElementTree.parse(ran.out / "junit.xml").getroot()
    suites = {suite.get("name"): suite for suite in root}
    for result in ran.results.notebooks:
        verdict = suites[result.notebook].find("testcase[@name='verdict']")
        assert verdict is not None
        failure = verdict.find("failure")
        assert (failure is None) == (result.verdict == "ok")
        if failure is not None:
            assert failure.get("message") == result.reason
    assert root.get("tests") == str(len(root.findall("testsuite/testcase")))


def test_nothing_lies_about_in_the_run_folder(ran: Ran) -> None:
    assert ran.results is not None
    names = {path.name for path in ran.out.iterdir()}
    logs = {str(result.log) for result in ran.results.notebooks if result.log}
    kept = {str(result.executed) for result in ran.results.notebooks}
    assert names == {"results.json", "report.html", "junit.xml"} | kept | logs


def test_the_kernel_of_the_curriculum_is_registered() -> None:
    """Run make setup, or msnb doctor --fix, where this fails."""
    from msnb.regression.catalog import check_kernel

    check_kernel("msnb")


def test_memory_is_that_of_a_process_and_all_below_it() -> None:
    own = psutil.Process().memory_info().rss
    assert own * 0.5 < machine.resident(os.getpid())
    assert machine.resident(2**22) == 0  # beyond any process number
    assert 0 < machine.memory() <= psutil.virtual_memory().total
    assert shares.cores() >= 1
