"""The matrix: each kind of cell, from folders written by hand; bad folders; the committed page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from msnb import cli, differences, isolate
from msnb.regression import baseline, matrix
from msnb.regression.models import MODELS, operators
from msnb.regression.results import Judged, NotebookResult, Results
from msnb.report import Check, Report

ROOT = Path(__file__).parents[2]
NAMES = ["01_first", "02_second", "03_third"]


def write_run(folder: Path, version: str = "2.10.0", **fields: Any) -> Path:
    """The folder of a run: 01 passed, 02 failed."""
    context = Report("context", [Check("MindSpore", "ok", fields.pop("ran", version))]).to_json()
    one = NotebookResult("01_first", "a", {}, "ok", "fine", findings=[Judged(2, context)])
    two = NotebookResult("02_second", "b", {}, "failed", "x | <b> in /home/me/b.py")
    started = fields.pop("started", "2026-11-29T10:00:00")
    device = fields.pop("device", "CPU")
    environment = {"versions": {"mindspore": version}}
    folder.mkdir(parents=True, exist_ok=True)
    Results(device, environment, started, [one, two], True).write(folder)
    return folder


def write_differences(folder: Path, version: str = "2.10.0", **changed: Any) -> Path:
    checks = [
        Check("padding.same-stride-2", "ok", "differs"),
        Check(
            "padding.bias-default", "skipped", "needs MindSpore 2.11 or later. Before: it agreed."
        ),
        Check("dtype.full-is-integer", "failed", "No longer so."),
    ]
    made = {"mindspore": version, "device": "CPU", "started": "2026-11-28", **changed}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**Report("differences", checks).to_json(), **made})
    (folder / "differences.json").write_text(text, "utf-8")
    return folder


def laid_out(*folders: Path, base: Path) -> matrix.Matrix:
    evidence = [item for folder in folders for item in matrix.look(folder)]
    return matrix.lay_out(evidence, NAMES, base)


def test_each_kind_of_cell(tmp_path: Path) -> None:
    folder = write_differences(write_run(tmp_path / "a 跑"))
    found = laid_out(folder, base=tmp_path)
    assert found.columns == [("2.10.0", "CPU"), ("2.10.0", "Ascend"), ("2.10.0", "GPU")]
    first, second, third = (found.notebooks[name][0] for name in NAMES)
    assert first == matrix.Cell("passed", "", "2026-11-29", "a 跑/results.json")
    assert (second.said, second.reason) == ("failed", "x | <b> in b.py")
    assert third == matrix.Cell()
    padding, dtype = found.topics["padding"][0], found.topics["dtype"][0]
    assert (padding.said, padding.when) == ("passed, 1 of 2", "2026-11-28")
    assert "padding.bias-default skipped: needs MindSpore 2.11" in padding.reason
    assert (dtype.said, dtype.reason) == (
        "failed, 0 of 1",
        "dtype.full-is-integer failed: No longer so.",
    )
    assert found.topics["loss"][0].said == "not run"
    for rows in (found.notebooks, found.topics, found.models()):
        assert {cell.said for cells in rows.values() for cell in cells[1:]} == {"not run"}


def test_what_is_all_skipped_did_not_pass(tmp_path: Path) -> None:
    folder = write_differences(tmp_path / "a")
    text = (folder / "differences.json").read_text("utf-8").replace('"ok"', '"skipped"')
    (folder / "differences.json").write_text(text, "utf-8")
    assert laid_out(folder, base=tmp_path).topics["padding"][0].said == "skipped, 0 of 2"


def test_the_later_of_two_runs_counts_and_devices_have_columns_of_their_own(
    tmp_path: Path,
) -> None:
    later = write_run(tmp_path / "a", started="2026-12-24T10:00:00")
    earlier = write_run(tmp_path / "b", started="2026-01-01T10:00:00")
    ascend = write_run(tmp_path / "c", "2.9.0", device="Ascend")
    found = laid_out(earlier, later, ascend, base=tmp_path)
    assert found.columns == [
        ("2.10.0", "CPU"),
        ("2.9.0", "Ascend"),
        ("2.10.0", "Ascend"),
        ("2.10.0", "GPU"),
    ]
    cells = found.notebooks["01_first"]
    assert [cell.said for cell in cells] == ["passed", "passed", "not run", "not run"]
    assert (cells[0].when, cells[0].evidence) == ("2026-12-24", "a/results.json")
    assert cells[1].evidence == "c/results.json"


def test_a_baseline_is_evidence_too(tmp_path: Path) -> None:
    record = baseline.make(json.loads((write_run(tmp_path / "a") / "results.json").read_text()))
    baseline.write(tmp_path / "b" / "notebooks.json", record)
    found = laid_out(tmp_path / "b", base=tmp_path)
    assert [found.notebooks[name][0].said for name in NAMES] == ["passed", "failed", "not run"]


def test_the_pages_show_it_and_escape_it(tmp_path: Path) -> None:
    found = laid_out(write_differences(write_run(tmp_path / "a b")), base=tmp_path)
    page = matrix.markdown(found)
    assert "| 01_first | [passed](a%20b/results.json) 2026-11-29 | not run | not run |" in page
    assert "| 02_second | [failed](a%20b/results.json) 2026-11-29 (note 1) |" in page
    assert "1. x \\| &lt;b> in b.py" in page
    for model in MODELS:
        assert f"| {model.name} |" in page
    html = matrix.page(found)
    assert 'href="a%20b/results.json"' in html
    assert "<script" not in html
    assert "x | &lt;b&gt; in b.py" in html
    assert "http" not in html.replace("http-equiv", "")


def test_what_changed_names_ids_and_says_where_the_cause_is_unknown(tmp_path: Path) -> None:
    old, new = write_run(tmp_path / "a", "2.9.0"), write_run(tmp_path / "b", "2.10.0")
    text = (
        (new / "results.json").read_text("utf-8").replace('"verdict": "ok"', '"verdict": "error"')
    )
    (new / "results.json").write_text(text, "utf-8")
    ((older, newer, lines),) = [
        told for told in matrix.changes(laid_out(old, new, base=tmp_path)) if told[0][1] == "CPU"
    ]
    assert (older, newer) == (("2.9.0", "CPU"), ("2.10.0", "CPU"))
    assert any("`optimizer.mint-sgd-adam-do-nothing`" in line for line in lines)
    assert "`01_first`: passed before, undecided now (fine). Why: cause unknown." in lines
    assert not any("02_second" in line for line in lines)  # failed in both


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("results.json", "{", "is not the results.json of a run"),
        ("notebooks.json", "{", "is no baseline"),
        ("differences.json", "{", "is not what msnb differences --all --json prints"),
        ("differences.json", '{"schema": 1, "title": "d", "checks": []}', "does not say on which"),
        (
            "differences.json",
            '{"schema": 1, "title": "d", "checks": [], "device": "CPU", "mindspore": "new"}',
            "does not say with which MindSpore",
        ),
        ("other.json", "{}", "holds none of results.json, notebooks.json, differences.json"),
    ],
)
def test_a_bad_folder_is_one_sentence(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(ValueError, match=r".") as refused:
        matrix.look(tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_run_whose_notebooks_ran_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"of MindSpore 2\.9\.0, but 01_first ran with 2\.10\.0"):
        matrix.look(write_run(tmp_path / "a", "2.9.0", ran="2.10.0"))
    with pytest.raises(ValueError, match="is no folder"):
        matrix.look(tmp_path / "none")


def test_the_command_writes_both_pages_and_names_what_it_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(folder / "baselines" / "mine")
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder)
    invoke = CliRunner().invoke
    assert invoke(cli.make_app(), ["report", "--matrix"]).exit_code == 0
    done = invoke(cli.make_app(), ["report", "--matrix", "empty"])
    assert (done.exit_code, "left out: empty holds none of" in done.output) == (1, True)
    page = (folder / "docs" / "matrix.md").read_text("utf-8")
    assert "[passed](../baselines/mine/results.json)" in page
    assert (folder / "docs" / "matrix.html").is_file()
    (folder / "baselines" / "mine" / "results.json").unlink()
    done = invoke(cli.make_app(), ["report", "--matrix"])
    assert (done.exit_code, "nothing was written" in done.output) == (2, True)
    done = invoke(cli.make_app(), ["report"])
    assert (done.exit_code, "name the folder of a run" in done.output) == (2, True)


# --- what is committed ---------------------------------------------------------------------------


def committed() -> matrix.Matrix:
    folders = sorted(path for path in (ROOT / "baselines").iterdir() if path.is_dir())
    evidence = [item for folder in folders for item in matrix.look(folder)]
    names = [path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")]
    return matrix.lay_out(evidence, names, ROOT / "docs")


def test_the_committed_pages_are_what_the_evidence_gives() -> None:
    found = committed()
    write_again = "write it again: msnb report --matrix"
    assert matrix.markdown(found) == (ROOT / "docs/matrix.md").read_text("utf-8"), write_again
    assert matrix.page(found) == (ROOT / "docs/matrix.html").read_text("utf-8"), write_again


def test_every_link_leads_to_a_file_and_every_difference_has_a_cell() -> None:
    page = (ROOT / "docs/matrix.md").read_text("utf-8")
    links = set(re.findall(r"\]\(([^)]+)\)", page))
    assert links
    assert all((ROOT / "docs" / link).is_file() for link in links)
    found = committed()
    assert [v for v, device in found.columns if device == "CPU"] == [
        *("2.7.2", "2.8.0", "2.9.0", "2.10.0")
    ]
    for cells in found.topics.values():
        assert all(cell.said != "not run" for cell in cells[:4])


def test_each_cause_is_of_a_change_that_was_seen() -> None:
    told = {
        (newer[0], line)
        for _, newer, lines in matrix.changes(committed())
        for line in lines
        if "Why: " in line
    }
    for cause in matrix.CAUSES:
        assert any(
            (version, cause.notebook) == (cause.since, line.partition("`: ")[0].strip("`"))
            and cause.why in line
            for version, line in told
        ), cause
        known = {one.id for one in differences.changed()}
        ids = re.findall(r"`([a-z]+\.[a-z0-9]+-[a-z0-9-]+)`", cause.why)
        assert known >= set(ids), cause


def test_every_notebook_that_has_a_net_has_a_row() -> None:
    rows = {model.notebook for model in MODELS}
    assert rows <= {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"):
        trains = "trainable_params()" in path.read_text("utf-8")
        assert not trains or path.stem in rows, f"{path.stem} trains a net that MODELS lacks"


def exported(notebooks: Path, scratch: Path) -> dict[str, dict[str, int]]:
    import msnb

    msnb.setup("CPU")
    return {model.name: operators(model, notebooks, scratch) for model in MODELS}


@pytest.mark.slow
def test_the_operators_are_those_of_each_exported_graph(tmp_path: Path) -> None:
    outcome = isolate.run(exported, ROOT / "notebooks", tmp_path, timeout=200)
    assert outcome.value == {model.name: dict(model.operators) for model in MODELS}, outcome
