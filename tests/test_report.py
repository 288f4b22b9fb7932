"""Report and Check: what they refuse, what they show, what a require() does."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from msnb.report import MIME, Check, Report, ReportFailed

OK = Check("sum", "ok", "4")
BAD = Check(
    "conv2", "failed", "off by 2.56", "2.56", "under 1e-6", 'nn.Conv2d(..., pad_mode="pad")'
)
SKIP = Check("npu", "skipped", "no Ascend: looked at /dev/davinci0")
ERROR = Check("cann", "error", "version.info cannot be read")


@pytest.mark.parametrize(
    ("checks", "worst", "ok"),
    [
        ([OK], "ok", True),
        ([OK, SKIP], "skipped", True),
        ([SKIP], "skipped", False),  # nothing was proved
        ([], "skipped", False),
        ([OK, ERROR], "error", False),
        ([OK, ERROR, BAD], "failed", False),
    ],
)
def test_worst_and_ok(checks, worst, ok):
    report = Report("r", checks)
    assert (report.worst, report.ok, bool(report)) == (worst, ok, ok)


@pytest.mark.parametrize("checks", [[BAD], [ERROR], [SKIP], []])
def test_require_fails_and_shows_the_whole_table(checks):
    with pytest.raises(ReportFailed) as raised:
        Report("port", checks).require()
    for check in checks:
        assert check.id in str(raised.value)
        assert check.summary in str(raised.value)
    assert raised.value.report.title == "port"


def test_require_passes_quietly_outside_a_notebook(capsys):
    assert Report("port", [OK, SKIP]).require() is None
    assert capsys.readouterr().out == ""


def test_the_text_says_what_to_type_only_where_it_is_needed():
    text = Report("port", [OK, BAD]).text()
    assert text == (
        "port: FAILED (1 failed, 1 ok)\n"
        "  ok      sum    4\n"
        "  FAILED  conv2  off by 2.56\n"
        "                 expected  under 1e-6\n"
        '                 type      nn.Conv2d(..., pad_mode="pad")'
    )


def test_chinese_names_keep_the_columns():
    lines = Report("r", [Check("卷积", "ok", "same"), Check("conv", "ok", "same")]).text()
    assert lines.splitlines()[1:] == ["  ok  卷积  same", "  ok  conv  same"]


def test_colour_only_on_request():
    assert "\x1b[" not in Report("r", [BAD]).text()
    assert "\x1b[31;1mFAILED" in Report("r", [BAD]).text(colour=True)


def test_html_escapes_what_it_shows():
    page = Report("<b>", [Check("<script>", "failed", "a < b", remedy="x & y")])._repr_html_()
    assert "<script>" not in page
    assert "a &lt; b" in page
    assert "x &amp; y" in page


def test_json_round_trip_is_strict_json():
    report = Report("r", [Check("loss", "failed", "NaN", metrics={"loss": math.nan, "n": 3})])
    text = json.dumps(report.to_json(), allow_nan=False)
    back = Report.from_json(json.loads(text))
    assert math.isnan(back["loss"].metrics["loss"])
    assert back["loss"].metrics["n"] == 3
    assert back.title == "r"
    with pytest.raises(ValueError, match="schema 1, not 99"):
        Report.from_json({**report.to_json(), "schema": 99})


def test_reports_nest_under_their_titles():
    report = Report("all", [Report("conv", [OK]), Report("dense", [OK, SKIP])])
    assert [check.id for check in report] == ["conv: sum", "dense: sum", "dense: npu"]


def test_a_report_in_which_nothing_was_checked_does_not_vanish_in_another():
    report = Report("all", [Report("conv", []), Report("dense", [OK])])
    assert [(check.id, check.status) for check in report] == [
        ("conv", "error"),
        ("dense: sum", "ok"),
    ]
    assert not report.ok


def test_a_report_in_which_all_was_skipped_does_not_vanish_either():
    idle = Report("npu", [SKIP])
    report = Report("all", [idle, OK])
    assert [(check.id, check.status) for check in report] == [
        ("npu", "error"),
        ("npu: npu", "skipped"),
        ("sum", "ok"),
    ]
    assert report["npu"].summary == "nothing was proved: all of 1 skipped"
    assert (report.ok, Report("outer", [report]).ok) == (False, False)
    assert Report("all", [SKIP, OK]).ok  # skipped on purpose, as a Check
    assert Report("all", [Report("part", [SKIP, OK])]).ok


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Check("", "ok"), ValueError, "needs an id"),
        (lambda: Check("a", "passed"), ValueError, "not 'passed'"),
        (lambda: Check("a", "skipped"), ValueError, "gives its reason"),
        (lambda: Check("a", "ok", metrics={"x": "big"}), TypeError, "'x' is a number, not 'big'"),
        (lambda: Check(3, "ok"), TypeError, "the name of what was checked, not 3"),
        (lambda: Check("a", "skipped", "  "), ValueError, "gives its reason"),
        (lambda: Check("a", "ok", metrics=[1]), TypeError, "maps names to numbers, not .1."),
        (lambda: Check("a", "ok", metrics={"x": 10**400}), TypeError, "'x' is a number, not 1000"),
        (lambda: Report("r", OK), TypeError, "made of a list of Checks and Reports, not Check"),
        (lambda: Report("r", None), TypeError, "not NoneType"),
        (lambda: Report("r", [OK, OK]), ValueError, "two checks called 'sum'"),
        (lambda: Report("r", ["sum"]), TypeError, "made of Checks and Reports, not str"),
        (lambda: Report("r", [OK])["summ"], KeyError, "it has sum"),
        (lambda: Report("r", [OK]).plot(), ValueError, "nothing to draw"),
    ],
)
def test_mistakes_get_a_sentence(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_required_report_is_marked_in_the_cell_output():
    """In a kernel, require() shows the Report once, as a verdict, also when it then raises."""
    import nbformat
    from nbclient import NotebookClient

    cell = nbformat.v4.new_code_cell(
        "from msnb.report import Check, Report\n"
        "Report('finding', [Check('a', 'failed', 'on purpose')])"
    )
    verdict = nbformat.v4.new_code_cell("Report('verdict', [Check('a', 'ok', '4')]).require()")
    bad = nbformat.v4.new_code_cell("Report('bad', [Check('a', 'failed', '5')]).require()")
    notebook = nbformat.v4.new_notebook(cells=[cell, verdict, bad])
    NotebookClient(notebook, allow_errors=True, timeout=60).execute()
    outputs = [
        [
            (o["data"][MIME]["title"], o["data"][MIME].get("required"))
            for o in c.outputs
            if "data" in o
        ]
        for c in notebook.cells
    ]
    assert outputs == [[("finding", False)], [("verdict", True)], [("bad", True)]]
    assert [o.output_type for o in bad.outputs] == ["display_data", "error"]


def test_report_needs_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules); import msnb.report;"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['msnb']"
