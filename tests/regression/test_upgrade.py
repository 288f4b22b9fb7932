"""The upgrade drill: what moved between two versions, and what to do about it, on one page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import Place
from tiny_notebooks import REQUIRE, write_notebook
from typer.testing import CliRunner

from msnb import cli, differences
from msnb.regression import baseline
from msnb.regression.moved import Change, to_report
from msnb.regression.upgrade import to_do

BASELINES = Path(__file__).parents[2] / "baselines"
OLD, NEW = {"mindspore": "2.9.0"}, {"mindspore": "2.10.0"}
CURVE = "04_training: 04: curve"


def band(metric: str) -> Change:
    return Change("band", f"{CURVE}: {metric}", "0.5", "0.7", True, "band from 0.49 to 0.51")


def test_nothing_moved_nothing_to_do() -> None:
    assert to_do([], NEW, NEW) == []
    better = Change("verdict", "05", "failed", "ok", False)
    assert to_do([better], NEW, NEW) == []


def test_a_verdict_a_check_a_curve_and_a_notebook_have_a_line_each() -> None:
    changes = [
        Change("verdict", "05_graph", "ok", "failed", True, "AssertionError in cell [7] assert x"),
        Change("check", "05_graph: 05: whole", "ok", "absent", True),
        Change("check", "04_training: 04: resume", "ok", "failed", True, "not equal"),
        band("loss_03"),
        Change("band", "04_training: 04: accuracy: correct", "333", "331", True, "band from 332"),
        Change("notebook", "08_export", "ok", "not run", True),
    ]
    lines = "\n".join(to_do(changes, OLD, NEW, baseline="cpu.json"))
    assert "05_graph is failed now: AssertionError in cell [7] assert x" in lines
    assert "msnb run 05_graph" in lines
    assert "05: whole" not in lines  # said with its notebook
    assert "04_training: 04: resume is failed now: not equal" in lines
    assert "curve: loss_03 left the band: 0.5 -> 0.7, band from 0.49 to 0.51" in lines
    assert "accuracy: correct left the band: 333 -> 331" in lines
    assert "no longer run: 08_export" in lines
    assert "msnb run --baseline 'cpu.json' --update-baseline" in lines


def test_between_two_versions_the_recorded_differences_are_named() -> None:
    lines = "\n".join(to_do([band("loss_03")], OLD, NEW))
    assert "optimizer.mint-sgd-adam-do-nothing (since 2.10)" in lines
    assert "Write: nn.SGD(params, learning_rate=0.1)" in lines
    assert "dtype.numpy-scalar-first" not in lines  # so in 2.9.0 already
    assert "graph.plus-zero (since 2.8)" in "\n".join(
        to_do([band("x")], {"mindspore": "2.7.2"}, {"mindspore": "2.8.0"})
    )
    assert "your own code uses what changed" in to_do([], OLD, NEW)[0]


def test_a_cause_that_is_not_recorded_is_unknown() -> None:
    lines = "\n".join(to_do([band("loss_03")], NEW, {"mindspore": "2.11.0"}))
    assert "cause unknown" in lines
    assert "torch moved, too (2.4 -> 2.5)" in "\n".join(
        to_do([band("loss_03")], {**NEW, "torch": "2.4"}, {**NEW, "torch": "2.5"})
    )


def test_what_changed_is_read_without_a_framework() -> None:
    code = (
        "import sys; from msnb import differences; found = differences.changed()\n"
        "assert not {'mindspore', 'torch'} & set(sys.modules)\n"
        "print(len(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(differences.changed()) == 6
    for one in differences.changed():
        text = Path(differences.__file__).with_name(f"{one.id.partition('.')[0]}.py").read_text()
        assert f'since="{one.since}"' in text
        assert one.before
        assert one.statement.endswith(".")
    assert differences.changed("2.10.0", "2.10.0") == []


def test_from_2_9_to_2_10_in_one_page() -> None:
    """The drill, with the committed baselines of real runs: as it was, then with planted faults."""
    versions = [
        baseline.read(BASELINES / f"cpu-{v}" / "notebooks.json") for v in ("2.9.0", "2.10.0")
    ]

    def drill() -> tuple[bool, list[str]]:
        later = {**versions[1], "environment": {"versions": versions[1]["versions"]}}
        later["notebooks"] = [
            {"notebook": name, **entry, "required": baseline._reports(entry)}
            for name, entry in versions[1]["notebooks"].items()
        ]
        changes = baseline.compare(versions[0], later)
        report = to_report("2.9.0 to 2.10.0", changes)
        todo = to_do(changes, versions[0]["versions"], versions[1]["versions"], baseline="b.json")
        return report.ok, [*report.text().splitlines(), *todo]

    ok, lines = drill()
    page = "\n".join(lines)
    assert ok
    assert len(lines) <= 40
    assert "2.9.0 -> 2.10.0" in page
    assert "optimizer.mint-sgd-adam-do-nothing (since 2.10)" in page

    entry = versions[1]["notebooks"]["04_value_and_grad_training"]
    checks = {check["id"]: check for check in entry["required"][0]["checks"]}
    checks["accuracy"]["metrics"]["correct"][0] -= 2
    for number in range(10, 51):
        checks["loss curve"]["metrics"][f"loss_{number}"][0] += 2e-4
    ok, lines = drill()
    page = "\n".join(lines)
    assert not ok
    assert "333 -> 331; band from 332 to any" in page
    assert "40 more of the curve left theirs" in page
    assert len(lines) <= 40
    assert "msnb run --baseline 'b.json' --update-baseline" in page


# --- the command ---------------------------------------------------------------------------------

SUM = '"2 + 2 = 4"'
MEASURED = REQUIRE.replace(SUM, SUM + ', metrics={"correct": 333, "images": 355}')


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--update-baseline"], "--update-baseline needs --baseline FILE"),
        (["--baseline", "none.json"], "the baseline none.json cannot be read"),
        (["--baseline", "torn.json"], "torn.json is no baseline"),
        (["--baseline", "ascend.json"], "of a run on Ascend, and this one would be on CPU"),
    ],
)
def test_what_cannot_be_held_is_refused_before_anything_runs(
    options: list[str], words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "torn.json").write_text("{", "utf-8")
    empty = {"schema": 1, "device": "Ascend", "started": "", "versions": {"mindspore": ""}}
    (folder / "ascend.json").write_text(json.dumps({**empty, "notebooks": {}}), "utf-8")
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli.make_app(), ["run", *options])
    assert done.exit_code == 2
    assert words in done.output
    assert "nothing was run" in done.output
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_a_drop_of_two_images_fails_and_the_new_baseline_is_written_when_asked(
    place: Place,
) -> None:
    notebook = place.root / "notebooks" / "03_measured.ipynb"
    write_notebook(notebook, MEASURED)
    first = place.run("--baseline", "new/cpu.json", "--update-baseline", out="1")
    assert (first.code, "the new baseline: new/cpu.json" in first.stdout) == (0, True)
    kept = baseline.read(place.root / "new" / "cpu.json")
    assert list(kept["notebooks"]) == ["01_first", "02_second", "03_measured"]

    again = place.run("03", "--baseline", "new/cpu.json", out="2")
    assert (again.code, "against the baseline new/cpu.json: ok" in again.stdout) == (0, True)

    write_notebook(notebook, MEASURED.replace("333", "331"))
    fewer = place.run("03", "--baseline", "new/cpu.json", out="3")
    assert fewer.code == 1
    assert "333 -> 331; band from 332 to any" in fewer.stdout
    assert "what to do:" in fewer.stdout

    meant = place.run("03", "--baseline", "new/cpu.json", "--update-baseline", out="4")
    assert meant.code == 0
    assert list(baseline.read(place.root / "new" / "cpu.json")["notebooks"]) == [
        *("01_first", "02_second", "03_measured")
    ]
    write_notebook(notebook, REQUIRE)
    gone = place.run("03", "--baseline", "new/cpu.json", out="5")
    assert (gone.code, "331 -> absent" in gone.stdout) == (1, True)
