"""The verdict on an executed notebook, each rule on documents made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msnb.regression.catalog import Cell
from msnb.regression.results import Judged, NotebookResult, Results, judge
from msnb.report import MIME, Check, Report

CELLS = (Cell(1, "a", "device_target = 1"), Cell(2, "b", "train()"), Cell(3, "c", "require()"))
GOOD = Report("all", [Check("sum", "ok", "4"), Check("setup: device", "ok", found="CPU")])
DONE = {"status": "completed", "cell": 3, "ran": 3}
LIMITS = {"cell": 5, "total": 60}


def shown(report: Report | dict[str, Any], required: bool = True) -> dict[str, Any]:
    record = report.to_json() if isinstance(report, Report) else report
    return {"output_type": "display_data", "data": {MIME: {**record, "required": required}}}


def document(*outputs: list[dict[str, Any]]) -> dict[str, Any]:
    cells = [
        {"cell_type": "code", "source": "x", "metadata": {}, "outputs": given} for given in outputs
    ]
    return {"cells": cells}


def verdict(
    given: dict[str, Any] | None,
    end: dict[str, Any] | None = None,
    *,
    asked: str = "CPU",
    left: tuple[str, ...] = (),
) -> NotebookResult:
    result = NotebookResult("n", "n.ipynb", {"device_target": asked}, left=list(left))
    judge(result, given, DONE if end is None else end, CELLS, LIMITS)
    return result


SOUND = document([], [], [shown(GOOD)])


def test_ok_needs_a_required_report_in_the_last_cell_that_names_the_device() -> None:
    result = verdict(SOUND)
    assert (result.verdict, result.cell) == ("ok", None)
    assert "required 1 report (2 checks)" in result.reason
    assert result.required == [Judged(3, GOOD.to_json())]


def test_findings_are_kept_and_do_not_decide() -> None:
    bad = Report("seen", [Check("drift", "failed", "0.1 > 0.01", metrics={"drift": 0.1})])
    result = verdict(document([], [shown(bad, required=False)], [shown(GOOD)]))
    assert result.verdict == "ok"
    assert result.findings == [Judged(2, bad.to_json())]


@pytest.mark.parametrize(
    ("end", "given", "sentence", "cell"),
    [
        ({"status": "died", "cell": 2, "ran": 1, "signal": -9}, SOUND, "died (SIGKILL)", 2),
        ({"status": "died", "cell": 2, "ran": 1, "signal": 138}, SOUND, "(exit code 138)", 2),
        ({"status": "timeout", "cell": 2, "ran": 1}, SOUND, "longer than 5 s", 2),
        ({"status": "stopped", "why": "timeout", "cell": 2, "ran": 1}, SOUND, "than 60 s", 2),
        ({"status": "vanished", "cell": 2}, None, "ended without a word", 2),
        ({"status": "completed", "cell": 2, "ran": 1}, SOUND, "only 1 of 3 code cells", 2),
        (DONE, document([], [], []), "it required nothing", None),
        (DONE, document([], [], [shown(GOOD, required=False)]), "it required nothing", None),
    ],
)
def test_what_fails_and_in_which_cell(
    end: dict[str, Any], given: dict[str, Any] | None, sentence: str, cell: int | None
) -> None:
    result = verdict(given, end)
    assert result.verdict == "failed"
    assert sentence in result.reason
    assert (result.cell or {"number": None})["number"] == cell
    if cell:
        assert "in cell [2] train()" in result.reason


def test_a_raised_error_is_named_with_its_first_line() -> None:
    error = {"name": "ValueError", "message": "no\nsecond line", "traceback": ""}
    result = verdict(SOUND, {"status": "raised", "cell": 2, "ran": 1, "error": error})
    assert result.reason == "ValueError: no in cell [2] train()"
    assert result.error == error


def test_a_required_report_that_is_not_ok_fails_wherever_it_stands() -> None:
    bad = Report("port", [Check("conv1", "failed", "off by 0.3, limit 1e-6"), Check("fc", "ok")])
    result = verdict(document([], [shown(bad)], [shown(GOOD)]))
    assert result.verdict == "failed"
    assert "port: FAILED (1 failed, 1 ok): conv1: off by 0.3" in result.reason
    assert result.cell == {"number": 2, "id": "b", "line": "train()"}


def test_a_report_that_lies_about_itself_is_judged_by_its_checks() -> None:
    bad = {**Report("port", [Check("conv1", "failed", "x")]).to_json(), "ok": True, "status": "ok"}
    assert "conv1" in verdict(document([], [shown(bad)], [shown(GOOD)])).reason


def test_an_empty_or_all_skipped_report_proves_nothing() -> None:
    for report in (Report("port"), Report("port", [Check("x", "skipped", "no device")])):
        result = verdict(document([], [shown(report)], [shown(GOOD)]))
        assert result.verdict == "failed"
        assert "required, but not ok: port: " in result.reason


@pytest.mark.parametrize("changed", [{"schema": 99}, {"title": ["t"]}, {"checks": [3]}])
def test_a_report_that_cannot_be_read_fails(changed: dict[str, Any]) -> None:
    result = verdict(document([], [shown({**GOOD.to_json(), **changed})], [shown(GOOD)]))
    assert result.verdict == "failed"
    assert "cell 2 shows a Report that cannot be read" in result.reason


@pytest.mark.parametrize(
    ("asked", "found", "reason"),
    [
        ("CPU", "CPU", ""),
        ("CPU", "cpu:0", ""),
        ("auto", "Ascend (device 3)", ""),
        ("Ascend", "CPU", "it ran on CPU, not on Ascend"),
        ("CPU", "", "it ran on an unnamed device, not on CPU"),
    ],
)
def test_the_device_in_use_is_the_one_asked_for(asked: str, found: str, reason: str) -> None:
    report = Report("all", [Check("device", "ok", found=found, expected=asked)])
    result = verdict(document([], [], [shown(report)]), asked=asked)
    assert result.verdict == ("failed" if reason else "ok")
    assert not reason or result.reason == reason


def test_an_ok_device_check_may_say_it_in_its_summary() -> None:
    report = Report("all", [Check("device", "ok", "CPU (asked for CPU)")])
    assert verdict(document([], [], [shown(report)])).verdict == "ok"
    assert (
        "ran on CPU, not on GPU" in verdict(document([], [], [shown(report)]), asked="GPU").reason
    )


def test_the_last_cell_says_which_device() -> None:
    silent = Report("all", [Check("sum", "ok", "4")])
    for given in (
        document([], [], [shown(silent)]),
        document([], [shown(GOOD)], []),
        document([], [shown(GOOD)], [shown(silent)]),
    ):
        result = verdict(given)
        assert result.reason == "its last cell does not require the device it ran on"
        assert "context.check()" in result.remedy


def test_leftover_files_fail_by_name() -> None:
    result = verdict(SOUND, left=("rank_0", "x.ckpt"))
    assert result.verdict == "failed"
    assert result.reason == "it left rank_0, x.ckpt in its working folder"


def test_what_could_not_be_decided_is_an_error() -> None:
    error = {"name": "RuntimeError", "message": "Kernel died before replying", "traceback": ""}
    result = verdict(None, {"status": "no kernel", "cell": None, "ran": 0, "error": error})
    assert (result.verdict, result.remedy) == ("error", "msnb doctor")
    assert result.reason == "its kernel did not start: Kernel died before replying"
    result = verdict(None, {"status": "stopped", "why": "interrupted", "cell": None, "ran": 0})
    assert (result.verdict, result.reason) == ("error", "interrupted before its first cell")
    assert verdict(None).verdict == "error"


def test_an_injected_cell_does_not_move_the_numbers() -> None:
    given = document([], [], [], [shown(GOOD)])
    given["cells"][1]["metadata"] = {"tags": ["injected-parameters"]}
    assert verdict(given).verdict == "ok"


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    one = verdict(document([], [shown(GOOD, required=False)], [shown(GOOD)]))
    results = Results("CPU", {"python": "3.11"}, "2026-01-01T00:00:00+00:00", [one], True, 1.5)
    results.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert Results.read(tmp_path) == results
    assert results.ok
    (tmp_path / "results.json").write_text('{"schema": 99, "ok": true}')
    with pytest.raises(ValueError, match="has schema 99, this msnb reads 2"):
        Results.read(tmp_path)
    (tmp_path / "results.json").write_text("")
    with pytest.raises(ValueError, match=r"not the results.json of a run"):
        Results.read(tmp_path)


def test_a_run_is_ok_only_if_every_verdict_is() -> None:
    good, bad = verdict(SOUND), verdict(None)
    assert not Results("CPU", {}, "", []).ok
    assert Results("CPU", {}, "", [good]).ok
    assert not Results("CPU", {}, "", [good, bad]).ok
