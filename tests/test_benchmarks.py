"""The benchmark harness: names, limits, exit codes. What it measures is for `make bench`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT))  # benchmarks are not part of the package

from benchmarks import Row, in_turns  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402


def test_a_limit_is_held_against_the_median():
    assert Row("x", (1.0, 2.0, 9.0), limit=2.0).ok
    assert not Row("x", (1.0, 2.0, 9.0), limit=1.9).ok


def test_a_limit_beyond_the_baseline_is_held_against_each_turns_difference():
    row = Row("x", (3.0, 5.0, 20.0), (1.0, 4.0, 10.0), "bare", limit=2.0, beyond=True)
    assert row.judged == 2.0  # of 2, 1, 10
    assert row.ok
    assert list(row.lines()) == [
        "x: 5.00 s  [3.00 s to 20.00 s, n=3]",
        "    bare: 4.00 s  [1.00 s to 10.00 s, n=3]",
        "    ratio 2.00  [1.25 to 3.00, n=3]",
        "    ok: beyond the baseline 2.00 s, limit 2.00 s",
    ]


def test_a_small_ratio_is_not_rounded_to_nothing():
    assert "    ratio 0.0008  [0.0008 to 0.0008, n=1]" in Row("x", (4.0,), (5000.0,), "y").lines()


def test_warnings_stay_off_the_screen_and_errors_on_it():
    script = """
import runpy, sys
import benchmarks.import_time
def rows():
    from mindspore import log
    log.warning("it has been compiled again")
    log.error("it is broken")
    yield benchmarks.Row("x", (1.0,))
benchmarks.import_time.rows = rows
sys.argv = ["benchmarks", "import_time"]
runpy.run_module("benchmarks", run_name="__main__")
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GLOG_")}
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    said = result.stdout + result.stderr
    assert "it is broken" in said
    assert "compiled again" not in said


def test_a_limit_of_ratios_is_held_against_the_median_of_the_turns():
    row = Row("x", (2.0, 6.0, 2.0), (1.0, 2.0, 4.0), "bare", ratio_limit=2.0)
    assert row.ok  # of 2, 3, 0.5
    assert list(row.lines())[-1] == "    ok: ratio 2.00, limit 2.00"
    over = Row("x", (2.0, 6.0, 2.0), (1.0, 2.0, 4.0), "bare", ratio_limit=1.9)
    assert not over.ok
    assert list(over.lines())[-1] == "    OVER THE LIMIT: ratio 2.00, limit 1.90"


def test_each_of_two_limits_has_a_verdict_of_its_own():
    row = Row("x", (2.0,), (1.0,), "bare", limit=3.0, ratio_limit=1.0)
    assert not row.ok
    assert [line.split(":")[0].strip() for line in row.lines()][-2:] == ["OVER THE LIMIT", "ok"]


def test_bytes_are_shown_as_bytes():
    row = Row("x", (3 * 2.0**20,), (2.0**20,), "bare", unit="B")
    assert next(row.lines()) == "x: 3 MiB  [3 MiB to 3 MiB, n=1]"


def test_things_take_turns():
    order = []
    first, second = in_turns(lambda: order.append("a"), lambda: order.append("b"), turns=2, calls=2)
    assert "".join(order) == "aabb" * 3  # the first turn is thrown away
    assert len(first) == len(second) == 2


def test_exit_codes(monkeypatch, capsys):
    import benchmarks.import_time as module

    for seconds, code in ((0.1, 0), (0.3, 1)):
        monkeypatch.setattr(module, "rows", lambda s=seconds: iter([Row("x", (s,), limit=0.2)]))
        assert main(["import_time"]) == code
    assert "over the limit: import_time: x" in capsys.readouterr().out
    monkeypatch.setattr(module, "rows", lambda: iter([Row("x", skipped="not built yet")]))
    assert main(["import_time"]) == 0
    assert "x: skipped, not built yet" in capsys.readouterr().out


def test_an_unknown_name_is_refused_before_anything_runs():
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks", "import_time", "train_lgo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert "no benchmark 'train_lgo': did you mean train_log?" in result.stderr


@pytest.mark.parametrize("name", [p.stem for p in (ROOT / "benchmarks").glob("[!_]*.py")])
def test_every_benchmark_can_be_imported_and_has_rows(name):
    from importlib import import_module

    module = import_module(f"benchmarks.{name}")
    assert callable(module.rows)
    assert module.__doc__
