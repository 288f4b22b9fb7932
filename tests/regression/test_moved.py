"""What moved: every kind of change, and its direction, on records written by hand."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from msnb.regression import moved
from msnb.regression.moved import Change
from msnb.regression.results import Judged, NotebookResult, Results
from msnb.report import Check, Report

FACTS: dict[str, Any] = {
    "schema": 1,
    "target": "Ascend",
    "python": {"version": [3, 11, 7], "kind": "venv", "platform": "linux", "machine": "aarch64"},
    "places": {"cwd": "here"},
    "distributions": {"mindspore": {"version": "2.10.0", "folder": "f"}, "torch": None},
    "ascend": {
        "cann": {"version": "8.5", "path": "p"},
        "driver": {"version": "25.2"},
        "firmware": {"version": None},
        "accepted": {"versions": ["8.3", "8.5"]},
    },
    "variables": {"MS_DEV_X": "1"},
}


def run(**metrics: float) -> dict[str, Any]:
    check = Check("conv1", "ok", "as it was", metrics={"max_abs": 2e-7, "limit": 3e-6, **metrics})
    required = Judged(4, Report("port", [check]).to_json())
    shown = Judged(2, Report("seen", [Check("drift", "failed", "0.1 > 0.01")]).to_json())
    one = NotebookResult(
        *("02_port", "notebooks/02_port.ipynb", {"device_target": "CPU", "epochs": 3}, "ok"),
        reason="fine",
        required=[required],
        findings=[shown],
        seconds=10.0,
    )
    other = NotebookResult("03_probe", "notebooks/03_probe.ipynb", {}, "ok", seconds=5.0)
    environment = {"revision": "a", "versions": {"papermill": "2.7"}, "facts": FACTS}
    return Results("CPU", environment, "2026", [one, other], True, 20.0).to_json()


def changed(*path: Any, to: Any) -> list[Change]:
    """What moved when the value at ``path`` of the run becomes ``to``."""
    after = copy.deepcopy(run())
    place: Any = after
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return moved.runs(run(), after)


CHECK = ("notebooks", 0, "required", 0, "report", "checks", 0)


def test_nothing_moved() -> None:
    assert moved.runs(run(), run()) == []
    report = moved.to_report("moved", [])
    assert report.ok
    assert report["moved"].summary == "nothing"


@pytest.mark.parametrize(
    ("path", "to", "change", "broken"),
    [
        (
            ("notebooks", 1, "verdict"),
            "failed",
            Change("verdict", "03_probe", "ok", "failed", True, "not started"),
            True,
        ),
        (("notebooks", 1), None, Change("notebook", "03_probe", "ok", "not run", True), True),
        (
            (*CHECK, "status"),
            "failed",
            Change("check", "02_port: port: conv1", "ok", "failed", True, "as it was"),
            True,
        ),
        (CHECK, None, Change("check", "02_port: port: conv1", "ok", "absent", True), True),
        (
            (*CHECK, "metrics", "max_abs"),
            4e-7,
            Change(
                *("metric", "02_port: port: conv1: max_abs", "2e-07", "4e-07", True),
                "limit 3e-06, less is better, worse",
            ),
            False,
        ),
        (
            (*CHECK, "metrics", "max_abs"),
            "nan",
            Change(
                *("metric", "02_port: port: conv1: max_abs", "2e-07", "nan", True),
                "limit 3e-06, less is better, worse",
            ),
            False,
        ),
        (
            (*CHECK, "metrics", "limit"),
            1e-6,
            Change("metric", "02_port: port: conv1: limit", "3e-06", "1e-06"),
            False,
        ),
        (
            ("notebooks", 0, "findings", 0, "report", "checks", 0, "status"),
            "ok",
            Change("check", "02_port: seen: drift", "failed", "ok", None),
            False,
        ),
        (
            ("notebooks", 0, "seconds"),
            16.0,
            Change("duration", "02_port", "10.0 s", "16.0 s", True),
            False,
        ),
        (
            ("notebooks", 0, "seconds"),
            6.0,
            Change("duration", "02_port", "10.0 s", "6.0 s", False),
            False,
        ),
        (
            ("notebooks", 0, "parameters", "epochs"),
            5,
            Change("parameter", "02_port: epochs", "3", "5"),
            False,
        ),
        (
            ("environment", "facts", "ascend", "cann", "version"),
            "9.0",
            Change("environment", "ascend.cann", "8.5", "9.0"),
            False,
        ),
        (
            ("environment", "facts", "distributions", "mindspore", "version"),
            "2.7.2",
            Change("environment", "packages.mindspore", "2.10.0", "2.7.2"),
            False,
        ),
        (
            ("environment", "versions", "papermill"),
            "2.6",
            Change("environment", "versions.papermill", "2.7", "2.6"),
            False,
        ),
        (("environment", "revision"), "b", Change("environment", "revision", "a", "b"), False),
        (("device",), "Ascend", Change("run", "device", "CPU", "Ascend"), False),
    ],
)
def test_each_kind_of_change(path: tuple[Any, ...], to: Any, change: Change, broken: bool) -> None:
    found = changed(*path, to=to)
    assert found == [change]
    report = moved.to_report("moved", found)
    assert report.ok == (not broken)
    assert f"{change.before} -> {change.after}" in report.checks[0].summary


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("notebooks", 0, "seconds"), 11.9),  # 1.9 s and 19 % are the machine's mood
        (("notebooks", 1, "seconds"), 6.9),
        ((*CHECK, "metrics", "max_abs"), 2.01e-7),
        (("environment", "facts", "places", "cwd"), "elsewhere"),
        (("environment", "facts", "variables", "MS_DEV_X"), "2"),
        (("seconds",), 40.0),
    ],
)
def test_what_is_no_change(path: tuple[Any, ...], to: Any) -> None:
    assert changed(*path, to=to) == []


def test_better_is_no_failure_and_worse_comes_first() -> None:
    before, after = run(), run()
    before["notebooks"][1]["verdict"] = "failed"
    after["notebooks"][0]["verdict"] = "error"
    after["notebooks"][1]["required"] = before["notebooks"][0]["required"]
    found = moved.runs(before, after)
    assert [(c.where, c.worse) for c in found if c.kind == "verdict"] == [
        ("02_port", True),
        ("03_probe", False),
    ]
    assert found[0].where == "02_port"
    assert moved.to_report("x", [c for c in found if c.worse is not True]).ok


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [(0.9, 0.8, True), (0.8, 0.9, False), (float("nan"), 0.9, False)],
)
def test_more_is_better_for_an_accuracy(before: float, after: float, worse: bool) -> None:
    (change,) = moved.runs(run(accuracy=before), run(accuracy=after))
    assert change.worse is worse
    assert "more is better" in change.note


def test_equal_titles_and_ids_are_told_apart() -> None:
    before = run()
    before["notebooks"][0]["required"] *= 2
    after = json.loads(json.dumps(before))
    after["notebooks"][0]["required"][1]["report"]["checks"][0]["status"] = "error"
    (change,) = moved.runs(before, after)
    assert change.where == "02_port: port [2]: conv1"
    assert len(moved.to_report("x", [change, change])) == 2


def test_environments_are_compared_from_whatever_holds_them(tmp_path: Path) -> None:
    other = copy.deepcopy(FACTS)
    other["ascend"]["driver"]["version"] = "24.1"
    files = {
        "facts": other,
        "doctor": {**Report("environment", [Check("python", "ok")]).to_json(), "facts": other},
        "run": {**run(), "environment": {"facts": other}},
    }
    for name, record in files.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(record))
        assert moved.environment(moved.read(path), FACTS) == [
            Change("environment", "ascend.driver", "24.1", "25.2")
        ]
    (tmp_path / "results.json").write_text(json.dumps(files["run"]))
    assert moved.read(tmp_path) == files["run"]

    before, after = (
        Report("environment", [Check("cann", status, "said")]).to_json()
        for status in ("ok", "failed")
    )
    assert moved.environment(before, after) == [
        Change("check", "cann", "ok", "failed", True, "said")
    ]
    with pytest.raises(ValueError, match="holds no facts of its environment"):
        moved.environment(before, FACTS)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"checks": 3}', "{", '"x"'])
def test_a_file_that_holds_no_environment(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="neither a run's results nor what msnb doctor --json"):
        moved.read(path)
    with pytest.raises(ValueError, match=r"gone\.json cannot be read: No such file"):
        moved.read(tmp_path / "gone.json")


def test_it_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; from msnb.regression import moved; "
        "print(sorted({name.split('.')[0] for name in sys.modules} "
        "- set(sys.stdlib_module_names) - {'msnb'}))"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout.replace("'", '"')) == ["__main__"] or found.stdout == "[]\n"


ROOT = Path(moved.__file__).parents[2]
