"""Runs whose kernels are forked: the same verdicts, and an ordinary kernel where that is safer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import LITTLE, Place
from tiny_notebooks import REQUIRE, write_notebook

PARENT = 'import os\nprint("child of", os.getppid())'
KILLS_ITS_PARENT = """\
import os, signal, time
os.kill(os.getppid(), signal.SIGKILL)
while os.getppid() != 1 and not os.path.exists(f"/proc/{os.getppid()}/exe"):
    time.sleep(0.01)
print("went on")"""
STOPS_ITS_PARENT = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)"
SETS_FIRST = """\
import os
os.mkdir("made")  # as it may only where the folder is what it was at first
os.rename("made", os.environ["TMPDIR"] + "/made")
os.environ["GLOG_v"] = "3"
import mindspore
print("level", os.environ["GLOG_v"])"""


@pytest.fixture(autouse=True)
def automatic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSNB_KERNELS", "auto")


def rewrite(place: Place, first: str, second: str = PARENT) -> None:
    for name, source in (("01_first", first), ("02_second", second)):
        write_notebook(place.root / "notebooks" / f"{name}.ipynb", source, REQUIRE)


def test_kernels_are_forked_where_notebooks_wait_and_fresh_where_asked(place: Place) -> None:
    rewrite(place, PARENT)
    warm = place.run("--jobs", "1")
    assert warm.code == 0, warm.stdout
    assert warm.results is not None
    assert [result.forked for result in warm.results.notebooks] == [True, True]
    assert warm.results.notes == []
    parents = {
        line
        for name in ("01_first", "02_second")
        for line in (warm.out / f"{name}.ipynb").read_text().splitlines()
        if "child of" in line and "print" not in line
    }
    assert len(parents) == 1  # one process forked both
    for options in (("--jobs", "2"), ("--jobs", "1", "--kernels", "fresh")):
        fresh = place.run(*options, out=f"out{options[-1]}")
        assert fresh.code == 0
        assert fresh.results is not None
        assert [result.forked for result in fresh.results.notebooks] == [False, False]


def test_a_choice_of_kernels_that_is_none_is_refused(place: Place) -> None:
    ran = place.run("--kernels", "hot")
    assert ran.code == 2
    assert "--kernels hot: they are auto, warm or fresh\nnothing was run\n" in ran.stderr


def test_a_nursery_that_is_killed_leaves_the_rest_to_fresh_kernels(place: Place) -> None:
    rewrite(place, KILLS_ITS_PARENT)
    ran = place.run("--jobs", "1")
    assert ran.code == 0, ran.stdout
    assert ran["01_first"].forked
    assert "went on" in (ran.out / "01_first.ipynb").read_text()
    assert not ran["02_second"].forked
    assert ran.results is not None
    assert any(note.startswith("a fresh process: ") for note in ran.results.notes)
    assert "a fresh process: " in ran.stderr


def test_a_framework_that_is_not_there_is_the_notebooks_matter(place: Place) -> None:
    rewrite(place, "print(1)")
    ran = place.run("--jobs", "1", MSNB_PRELOAD=f"no_such_module,{LITTLE}")
    assert ran.code == 0
    assert ran["01_first"].forked


@pytest.mark.slow
def test_a_nursery_that_hangs_costs_seconds(place: Place) -> None:
    rewrite(place, STOPS_ITS_PARENT)
    ran = place.run("--jobs", "1")
    assert ran.code == 0, ran.stdout
    assert not ran["02_second"].forked
    assert ran.results is not None
    assert any("did not answer within 5 s" in note for note in ran.results.notes)


@pytest.mark.slow
def test_a_variable_set_before_the_import_is_heeded_by_a_fresh_kernel(place: Place) -> None:
    rewrite(place, SETS_FIRST)
    ran = place.run("--jobs", "1", MSNB_PRELOAD=f"{LITTLE},mindspore")
    assert ran.code == 0, ran.stdout
    assert not ran["01_first"].forked
    assert ran["02_second"].forked
    assert ran.results is not None
    assert ran.results.notes == [
        "01_first: an ordinary kernel: it imported mindspore after it had set GLOG_v"
    ]
    assert "level 3" in (ran.out / "01_first.ipynb").read_text()


@pytest.mark.slow
def test_killing_the_runner_ends_nursery_and_kernels(place: Place) -> None:
    rewrite(place, "open('started', 'w').close()\nimport time\ntime.sleep(600)")
    process = place.start("--jobs", "1", "--out", "out")
    end = time.monotonic() + 60
    while not list(place.temporary.glob("msnb-run-*/*/started")) and time.monotonic() < end:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    end = time.monotonic() + 20
    while list(place.temporary.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)  # and then nothing at all is left


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_faults_come_to_the_same_with_forked_kernels() -> None:
    """Verdicts, signals, limits, disks, clocks: the same tests, with every kernel forked."""
    tests = [str(Path(__file__).with_name(name)) for name in ("test_run.py", "test_faults.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *tests],
        env={**os.environ, "MSNB_KERNELS": "warm"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout.splitlines()[-1]
