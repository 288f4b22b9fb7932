"""The folder of a run: taken by one, refused to others, gone on with only where that is sound."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tiny_notebooks import REQUIRE, write_notebook

from msnb.regression import folder as run_folder
from msnb.regression.catalog import Refused
from msnb.regression.folder import RunFolder, open_folder
from msnb.regression.planning import Limits, Plan, plan
from msnb.regression.results import Results
from msnb.regression.run import _Run


@pytest.fixture
def planned(folder: Path) -> Plan:
    return plan(start=folder)


def recorded(planned: Plan, out: Path, **environment: Any) -> Results:
    """A finished run in ``out`` as the runner would have left it, all ok, but not run."""
    out.mkdir(parents=True, exist_ok=True)
    results = _Run(planned, RunFolder(out), 1, Limits(), None).results
    for result in results.notebooks:
        result.verdict, result.reason, result.executed = "ok", "fine", f"{result.notebook}.ipynb"
        (out / str(result.executed)).write_text("{}")
    results.environment.update(environment)
    results.complete = True
    results.write(out)
    return results


def resumed(planned: Plan, out: Path) -> tuple[list[str], list[str]]:
    """Which notebooks are kept when the run in ``out`` is gone on with, and the notes."""
    opened = open_folder(planned, out, resume=True)
    os.close(opened.lock)
    results = _Run(planned, opened, 1, Limits(), None).results
    return [result.notebook for result in results.notebooks if result.kept], results.notes


def refused(planned: Plan, out: Path | None, *, resume: bool = False) -> str:
    with pytest.raises(Refused) as refusal:
        open_folder(planned, out, resume=resume)
    return str(refusal.value)


def test_a_folder_of_its_own(planned: Plan) -> None:
    first, second = open_folder(planned), open_folder(planned)
    assert first.path != second.path
    assert first.path.parent == second.path.parent == planned.base / "runs"
    assert first.former is second.former is None


def test_one_run_at_a_time(planned: Plan, tmp_path: Path) -> None:
    held = open_folder(planned, tmp_path / "out")
    for resume in (False, True):
        said = refused(planned, tmp_path / "out", resume=resume)
        assert said == f"another run is writing to {tmp_path / 'out'}"
    os.close(held.lock)
    os.close(open_folder(planned, tmp_path / "out").lock)


def test_what_is_there_is_not_written_over(planned: Plan, tmp_path: Path) -> None:
    recorded(planned, tmp_path / "out")
    assert "is not empty; name a new folder, or type --resume" in refused(planned, tmp_path / "out")
    (tmp_path / "file").touch()
    assert refused(planned, tmp_path / "file") == f"{tmp_path / 'file'} is a file"
    assert "is a file" in refused(planned, tmp_path / "file" / "below")


def test_a_read_only_folder(planned: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    said = refused(planned, tmp_path / "out")
    assert said == f"the results cannot be written: Permission denied: {tmp_path / 'out'}"


def test_all_is_kept_where_nothing_changed(planned: Plan, tmp_path: Path) -> None:
    recorded(planned, tmp_path / "out")
    kept, notes = resumed(planned, tmp_path / "out")
    assert kept == ["01_first", "02_second"]
    assert notes == ["kept from before: 01_first, 02_second"]


def test_only_what_was_not_decided_runs_again(planned: Plan, tmp_path: Path) -> None:
    results = recorded(planned, tmp_path / "out")
    results.notebooks[0].verdict, results.notebooks[0].reason = "error", "interrupted in cell [2] x"
    results.notebooks[1].verdict = "failed"
    results.write(tmp_path / "out")
    kept, notes = resumed(planned, tmp_path / "out")
    assert kept == ["02_second"]
    assert notes[1] == "again 01_first: interrupted in cell [2] x"
    assert not (tmp_path / "out" / "01_first.ipynb").exists()


def test_a_changed_notebook_runs_again(folder: Path, planned: Plan, tmp_path: Path) -> None:
    recorded(planned, tmp_path / "out")
    write_notebook(folder / "notebooks" / "01_first.ipynb", "x = 1", REQUIRE)
    kept, notes = resumed(plan(start=folder), tmp_path / "out")
    assert kept == ["02_second"]
    assert notes[1] == "again 01_first: the notebook, or a file beside it, changed"


def test_a_changed_file_beside_them_counts_for_all(
    folder: Path, planned: Plan, tmp_path: Path
) -> None:
    recorded(planned, tmp_path / "out")
    (folder / "notebooks" / "recorded").mkdir()
    (folder / "notebooks" / "recorded" / "losses.json").write_text("[1]")
    assert resumed(planned, tmp_path / "out")[0] == []
    recorded(planned, tmp_path / "again")
    assert len(resumed(planned, tmp_path / "again")[0]) == 2
    (folder / "notebooks" / "recorded" / "losses.json").write_text("[2]")
    assert resumed(planned, tmp_path / "again")[0] == []


def test_a_missing_executed_notebook_runs_again(planned: Plan, tmp_path: Path) -> None:
    recorded(planned, tmp_path / "out")
    (tmp_path / "out" / "02_second.ipynb").unlink()
    kept, notes = resumed(planned, tmp_path / "out")
    assert (kept, notes[1]) == (["01_first"], "again 02_second: 02_second.ipynb is gone")


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"package": "another"}, "msnb changed"),
        ({"python": "3.10.1"}, "python changed"),
        ({"versions": {"mindspore": "2.7.2"}}, "versions.mindspore changed, "),
        (
            {"facts": {"target": "CPU", "ascend": {"cann": {"version": "8.5"}}}},
            "environment.python.version changed, ",
        ),
    ],
)
def test_another_environment_makes_all_run_again(
    planned: Plan, tmp_path: Path, environment: dict[str, Any], why: str
) -> None:
    recorded(planned, tmp_path / "out", **environment)
    kept, notes = resumed(planned, tmp_path / "out")
    assert kept == []
    assert notes[0].startswith(f"again 01_first: {why}")


def test_another_revision_alone_does_not(planned: Plan, tmp_path: Path) -> None:
    recorded(planned, tmp_path / "out", revision="other", dirty=True, cores=99)
    assert len(resumed(planned, tmp_path / "out")[0]) == 2


def test_a_run_of_other_notebooks_or_parameters_is_refused(
    folder: Path, planned: Plan, tmp_path: Path
) -> None:
    recorded(planned, tmp_path / "out")
    for other in (
        plan(["1"], start=folder),
        plan(parameters=["epochs=4"], start=folder),
        plan(device_target="GPU", start=folder),
    ):
        said = refused(other, tmp_path / "out", resume=True)
        assert "was of 01_first, 02_second on CPU, with other notebooks or parameters" in said


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2, "ok": true}'])
def test_a_damaged_run_is_refused(planned: Plan, tmp_path: Path, content: str) -> None:
    recorded(planned, tmp_path / "out")
    (tmp_path / "out" / "results.json").write_text(content)
    said = refused(planned, tmp_path / "out", resume=True)
    assert said.startswith("cannot go on with that run: ")
    assert "\n" not in said


def test_a_folder_that_is_none_of_a_run(planned: Plan, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    assert "holds no results.json" in refused(planned, tmp_path / "out", resume=True)
    (tmp_path / "out" / "thesis.tex").rename(tmp_path / "out" / ".results.json.a.tmp")
    opened = open_folder(planned, tmp_path / "out", resume=True)  # killed before its first word
    assert (opened.former, list(opened.path.iterdir())) == (None, [])


def test_the_newest_run_alike_is_gone_on_with(folder: Path, planned: Plan) -> None:
    runs = planned.base / "runs"
    recorded(planned, runs / "2026-01-01-000000")
    recorded(planned, runs / "2026-01-02-000000")
    recorded(plan(["1"], start=folder), runs / "2026-01-03-000000")
    (runs / "2026-01-04-000000").mkdir()
    opened = open_folder(planned, resume=True)
    assert opened.path.name == "2026-01-02-000000"
    assert opened.former is not None
    new = open_folder(plan(parameters=["epochs=9"], start=folder), resume=True)
    assert new.path.name > "2026-01-04"
    assert new.former is None


def test_secrets_are_compared_as_far_as_they_are_kept(folder: Path, tmp_path: Path) -> None:
    parameters = 'device_target: str = "CPU"\napi_token: str = ""'
    write_notebook(folder / "notebooks" / "01_first.ipynb", REQUIRE, parameters=parameters)
    given = plan(["1"], parameters=["api_token=abcdefgh"], start=folder)
    recorded(given, tmp_path / "out")
    assert "abcdefgh" not in (tmp_path / "out" / "results.json").read_text()
    assert resumed(given, tmp_path / "out")[0] == ["01_first"]
    assert "was of 01_first" in refused(plan(["1"], start=folder), tmp_path / "out", resume=True)


def test_results_torn_in_any_place_are_never_taken_for_whole(planned: Plan, tmp_path: Path) -> None:
    recorded(planned, tmp_path / "out")
    path = tmp_path / "out" / "results.json"
    whole = path.read_text()
    for size in range(0, len(whole.rstrip()), 37):
        path.write_text(whole[:size])
        with pytest.raises(ValueError, match=r"is not the results\.json of a run"):
            Results.read(path)
    path.write_text(whole)
    assert run_folder._former(planned, tmp_path / "out") is not None
    record = json.loads(whole)
    for key in list(record):
        if key == "ok":
            continue
        path.write_text(json.dumps({name: record[name] for name in record if name != key}))
        if key in ("complete", "seconds", "notes"):
            Results.read(path)
        else:
            with pytest.raises(ValueError, match=r"results\.json"):
                Results.read(path)
