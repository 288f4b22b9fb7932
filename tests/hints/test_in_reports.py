"""A failed notebook's hint in the runner's table, report.html and junit.xml."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from msnb.regression import junit, page
from msnb.regression.results import NotebookResult, Results

MESSAGE = "The amp level O4 is not supported"
MEANS = "there is no level O4; they are O0, O1, O2, O3 and auto."
TYPE = 'ms.amp.auto_mixed_precision(net, "O2")'


def run(name: str = "ValueError", message: str = MESSAGE, remedy: str = "") -> Results:
    error = {"name": name, "message": message, "traceback": f"{name}: {message}"}
    result = NotebookResult(
        *("06_amp", "notebooks/06_amp.ipynb", {}, "failed", f"{name}: {message} in cell [2]"),
        cell={"number": 2, "id": "c", "line": "net = amp(net)"},
        error=error,
        remedy=remedy,
    )
    return Results("CPU", {"versions": {}}, "2026-11-29T10:00:00+00:00", [result], True, 1.0)


def shown(found: Results, folder: Path) -> dict[str, str]:
    """What the table, the page and the file for CI say."""
    failure = ElementTree.fromstring(junit.render(found)).find(".//failure")
    assert failure is not None
    return {
        "table": found.to_report().text(),
        "page": unescape(page.render(found, folder)),
        "junit": failure.text or "",
    }


def test_a_known_error_is_explained(tmp_path: Path) -> None:
    said = shown(run(), tmp_path)
    assert TYPE in said["table"]
    for where in ("page", "junit"):
        assert f"hint: {MEANS}" in said[where]
        assert f"type: {TYPE}" in said[where]


def test_what_the_runner_itself_says_stays_in_the_table(tmp_path: Path) -> None:
    said = shown(run(remedy="msnb doctor --fix"), tmp_path)
    assert "msnb doctor --fix" in said["table"]
    assert TYPE not in said["table"]
    assert MEANS in said["page"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("KeyError", "'x'"),
        ("ReportFailed", f"required, but not ok\nport: FAILED\n  FAILED  conv1  {MESSAGE}"),
        ("DeviceUnavailable", f"Ascend is not available: {MESSAGE}\nwhat to do: msnb doctor"),
    ],
)
def test_others_are_not(tmp_path: Path, name: str, message: str) -> None:
    said = shown(run(name, message), tmp_path)
    assert not any("hint: " in text or TYPE in text for text in said.values())


def test_a_notebook_that_is_well_or_has_no_error(tmp_path: Path) -> None:
    found = run()
    found.notebooks[0].verdict = "ok"
    assert found.notebooks[0].hint() is None
    found.notebooks[0].verdict, found.notebooks[0].error = "failed", None
    assert found.notebooks[0].hint() is None


def test_what_a_message_brings_along_is_escaped(tmp_path: Path) -> None:
    message = "module 'mindspore.nn' has no attribute 'X'<script>alert(1)</script>"
    source = page.render(run("AttributeError", message), tmp_path)
    assert "hint: mindspore.nn has no X;" in source
    assert "<script>alert" not in source
