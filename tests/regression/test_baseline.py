"""Baselines: what is held, how far it may move, and that what moved further fails."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msnb.regression import baseline, moved
from msnb.regression.results import Judged, NotebookResult, Results
from msnb.report import Check, Report

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "baselines" / "cpu-2.10.0" / "notebooks.json"


@pytest.mark.parametrize(
    ("name", "metrics", "low", "high"),
    [
        ("loss_07", {"loss_07": 0.5, "loss_07_band": 0.01}, 0.49, 0.51),
        ("correct", {"correct": 333, "images": 355}, 332, None),
        ("O2_correct", {"O2_correct": 333, "O2_correct_band": 2}, 331, None),
        ("accuracy", {"accuracy": 0.9, "images": 200}, 0.895, None),
        ("accuracy", {"accuracy": 0.9}, 0.89, None),
        ("max_abs", {"max_abs": 2e-7, "limit": 3e-6}, None, 3e-6),
        ("rel", {"rel": 0.004, "rel_limit": 0.01}, None, 0.01),
        ("used", {"used": 0.2}, None, 1),
        ("loss", {"loss": 0.2}, None, 0.22),
        ("loss", {"loss": -0.2}, None, -0.18),
        ("error", {"error": 2e-7}, None, 2e-6),
        ("error", {"error": 0.0}, None, 2**-23),
        ("nonfinite", {"nonfinite": 0}, None, 2**-23),
        ("off", {"off": 3.0}, None, 3),
        ("cosine", {"cosine": 0.5}, 0.495, None),
        ("seconds", {"seconds": 3.0}, None, None),
        ("speedup", {"speedup": 3.0}, None, None),
        ("size", {"size": 3}, None, None),
        ("limit", {"limit": 3.0}, None, None),
        ("loss_07_band", {"loss_07_band": 0.01}, None, None),
        ("loss", {"loss": float("nan")}, None, None),
    ],
)
def test_bands(name: str, metrics: dict[str, float], low: float | None, high: float | None) -> None:
    found = baseline.band(name, metrics[name], metrics)
    assert found == (pytest.approx(low), pytest.approx(high))


def run(losses: list[float], correct: int = 333, status: str = "ok") -> dict[str, Any]:
    """A run of one notebook with a loss curve and an accuracy, as ``results.json`` has it."""
    metrics = {}
    for number, loss in enumerate(losses, 1):
        metrics |= {f"loss_{number:02}": loss, f"loss_{number:02}_band": 1e-5}
    checks = [
        Check("device", "ok", "CPU"),
        Check("curve", status, "as it was", metrics=metrics),  # type: ignore[arg-type]
        Check("accuracy", "ok", "right", metrics={"correct": correct, "images": 355}),
    ]
    entry = NotebookResult(
        *("04_training", "notebooks/04_training.ipynb", {"device_target": "CPU", "steps": 3}, "ok"),
        reason="fine",
        required=[Judged(9, Report("04", checks).to_json())],
        findings=[Judged(2, Report("seen", [Check("x", "failed", "meant so")]).to_json())],
        seconds=10.0,
    )
    environment = {"versions": {"mindspore": "2.10.0", "torch": "2.13.0", "numpy": "1.26.4"}}
    return Results("CPU", environment, "2026-11-29", [entry], True, 20.0).to_json()


LOSSES = [2.338938236, 1.5, 0.272174]


@pytest.fixture
def kept(tmp_path: Path) -> dict[str, Any]:
    """The baseline of the run, written and read again."""
    path = tmp_path / "a 基线" / "cpu.json"
    baseline.write(path, baseline.make(run(LOSSES)))
    return baseline.read(path)


def broken(changes: list[moved.Change]) -> list[tuple[str, str]]:
    report = moved.to_report("moved", changes)
    found = [change for change in changes if change.to_check().status == "failed"]
    assert report.ok == (not found)
    return [(change.kind, change.where.rpartition(": ")[2]) for change in found]


def test_the_same_run_passes(kept: dict[str, Any]) -> None:
    assert baseline.compare(kept, run(LOSSES)) == []


@pytest.mark.parametrize("drift", [4e-6, -9e-6])
def test_within_the_band_passes(kept: dict[str, Any], drift: float) -> None:
    assert broken(baseline.compare(kept, run([x + drift for x in LOSSES], 332))) == []


@pytest.mark.parametrize("drift", [1.2e-5, -1.2e-5, float("nan")])
def test_a_curve_that_left_its_band_fails(kept: dict[str, Any], drift: float) -> None:
    found = baseline.compare(kept, run([LOSSES[0], LOSSES[1] + drift, LOSSES[2]]))
    assert broken(found) == [("band", "loss_02")]
    assert "band from 1.49999 to 1.50001" in found[0].note


def test_of_a_curve_the_first_point_that_left_is_told(kept: dict[str, Any]) -> None:
    found = baseline.compare(kept, run([LOSSES[0], 1.6, 0.3]))
    assert broken(found) == [("band", "loss_02")]
    assert found[0].note.endswith("; 1 more of the curve left theirs")


def test_an_accuracy_two_images_lower_fails_and_a_higher_one_does_not(kept: dict[str, Any]) -> None:
    assert broken(baseline.compare(kept, run(LOSSES, 331))) == [("band", "correct")]
    assert broken(baseline.compare(kept, run(LOSSES, 340))) == []


def test_the_band_is_the_baselines_not_the_later_runs(kept: dict[str, Any]) -> None:
    later = run([2.5, *LOSSES[1:]])
    checks = later["notebooks"][0]["required"][0]["report"]["checks"]
    checks[1]["metrics"]["loss_01_band"] = 100.0
    assert broken(baseline.compare(kept, later)) == [("band", "loss_01")]


def test_what_is_gone_fails(kept: dict[str, Any]) -> None:
    later = run(LOSSES[:2])
    assert broken(baseline.compare(kept, later)) == [("band", "loss_03")]
    later["notebooks"][0]["required"][0]["report"]["checks"].pop()
    assert ("check", "accuracy") in broken(baseline.compare(kept, later))
    later["notebooks"] = []
    assert broken(baseline.compare(kept, later)) == [("notebook", "04_training")]


def test_of_a_run_of_some_notebooks_the_others_are_not_missed(kept: dict[str, Any]) -> None:
    other = run(LOSSES)
    other["notebooks"][0]["notebook"] = "05_other"
    assert broken(baseline.compare(kept, other, only=["05_other"])) == []
    assert broken(baseline.compare(kept, other)) == [("notebook", "04_training")]


def test_verdicts_and_checks_that_got_worse_fail(kept: dict[str, Any]) -> None:
    later = run(LOSSES, status="failed")
    assert broken(baseline.compare(kept, later)) == [("check", "curve")]
    later["notebooks"][0].update(verdict="failed", reason="required, but not ok")
    found = baseline.compare(kept, later)
    assert broken(found) == [("verdict", "04_training"), ("check", "curve")]


def test_versions_and_parameters_are_told_and_do_not_fail(kept: dict[str, Any]) -> None:
    later = run(LOSSES)
    later["environment"]["versions"]["mindspore"] = "2.11.0"
    later["notebooks"][0]["parameters"]["steps"] = 2
    found = baseline.compare(kept, later)
    assert [change.kind for change in found] == ["environment", "parameter"]
    assert broken(found) == []


def test_each_device_has_its_own(kept: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="of a run on CPU, this one was on Ascend"):
        baseline.compare(kept, {**run(LOSSES), "device": "Ascend"})


def test_an_interrupted_run_makes_none() -> None:
    with pytest.raises(ValueError, match="interrupted"):
        baseline.make({**run(LOSSES), "complete": False})


def test_some_notebooks_replace_their_part(kept: dict[str, Any]) -> None:
    part = baseline.make(run([1.0, 2.0, 3.0]))
    part["notebooks"] = {"05_other": part["notebooks"]["04_training"]}
    both = baseline.merge(kept, part)
    assert list(both["notebooks"]) == ["04_training", "05_other"]
    with pytest.raises(ValueError, match="run all notebooks to replace it"):
        baseline.merge(kept, {**part, "versions": {"mindspore": "2.9.0"}})


def test_the_file_has_a_line_for_each_metric_and_no_path(tmp_path: Path) -> None:
    later = run([*LOSSES, float("nan")])
    later["notebooks"][0].update(verdict="failed", reason="OSError: /home/me/data/x.npy is gone")
    path = tmp_path / "cpu.json"
    baseline.write(path, baseline.make(later))
    text = path.read_text("utf-8")
    assert '"loss_01": [2.33893824, 2.33892824, 2.33894824]' in text
    assert '"loss_04": ["nan", null, null]' in text
    assert '"correct": [333, 332, null]' in text
    assert "OSError: x.npy is gone" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("not JSON", "is no baseline: it is not JSON"),
        ("[]", "is no baseline, or damaged"),
        ('{"schema": 7}', "has schema 7, this msnb reads baselines of schema 1"),
        ('{"schema": 1}', "no 'notebooks'"),
        ('{"schema": 1, "notebooks": {"a": {"verdict": "fine"}}}', "the verdict of a is 'fine'"),
        ('{"schema": 1, "notebooks": {"a": {"verdict": "ok"}}}', "no 'required'"),
        (
            '{"schema": 1, "device": "CPU", "versions": {}, "notebooks": {"a": {"verdict": "ok", '
            '"required": [{"title": "t", "checks": [{"id": "c", "status": "fine", '
            '"metrics": {}}]}]}}}',
            "a check's status is one of ok, skipped, error, failed, not 'fine'",
        ),
        (
            '{"schema": 1, "device": "CPU", "versions": {}, "notebooks": {"a": {"verdict": "ok", '
            '"required": [{"title": "t", "checks": [{"id": [1], "status": "ok", '
            '"metrics": {}}]}]}}}',
            "id is text, not [1]",
        ),
        (
            '{"schema": 1, "notebooks": {"a": {"verdict": "ok", "required": [], "parameters": 5}}}',
            "the parameters of a are 5",
        ),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_baseline_is_one_sentence(
    content: str | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "b.json"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(ValueError, match=r".") as refused:
        baseline.read(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


# --- the committed one ---------------------------------------------------------------------------


def again() -> dict[str, Any]:
    """A run that gave what the committed baseline holds."""
    record = baseline.read(COMMITTED)
    return {
        "device": record["device"],
        "environment": {"versions": record["versions"]},
        "notebooks": [
            {"notebook": name, **entry, "seconds": 1.0, "required": baseline._reports(entry)}
            for name, entry in record["notebooks"].items()
        ],
    }


def metrics_of(later: dict[str, Any], notebook: str, check: str) -> dict[str, float]:
    (entry,) = [entry for entry in later["notebooks"] if entry["notebook"] == notebook]
    found: list[dict[str, float]] = [
        one["metrics"]
        for judged in entry["required"]
        for one in judged["report"]["checks"]
        if one["id"] == check
    ]
    assert len(found) == 1
    return found[0]


def test_the_committed_baseline_holds_against_itself() -> None:
    later = again()
    assert len(later["notebooks"]) >= 7
    assert {entry["verdict"] for entry in later["notebooks"]} == {"ok"}
    assert baseline.compare(baseline.read(COMMITTED), later) == []


@pytest.mark.parametrize(
    ("notebook", "check", "metric", "by"),
    [
        ("04_value_and_grad_training", "accuracy", "correct", -2),
        ("04_value_and_grad_training", "loss curve", "loss_01", 1e-4),
        ("04_value_and_grad_training", "loss curve", "loss_50", 1e-4),
        ("06_amp", "accuracy", "O0_correct", -2),
        ("06_amp", "accuracy", "O2_correct", -3),
        ("06_amp", "O0 curve", "loss_04", 2e-5),
        ("06_amp", "O0 curve", "loss_44", 0.02),
        ("06_amp", "O2 curve", "loss_44", -0.04),
    ],
)
def test_what_is_planted_into_the_committed_baseline_is_found(
    notebook: str, check: str, metric: str, by: float
) -> None:
    later = again()
    metrics_of(later, notebook, check)[metric] += by
    assert broken(baseline.compare(baseline.read(COMMITTED), later)) == [("band", metric)]


def test_the_committed_curves_are_whole() -> None:
    later = again()
    for notebook, check, steps in (
        ("04_value_and_grad_training", "loss curve", 50),
        ("06_amp", "O0 curve", 44),
        ("06_amp", "O2 curve", 44),
    ):
        metrics = metrics_of(later, notebook, check)
        losses = [metrics[f"loss_{number:02}"] for number in range(1, steps + 1)]
        bands = [metrics[f"loss_{number:02}_band"] for number in range(1, steps + 1)]
        assert np.mean(losses[:5]) > 5 * np.mean(losses[-5:])
        assert all(np.diff(bands) >= 0)
        assert bands[0] <= 5e-3


def test_the_comparison_changes_neither_side(kept: dict[str, Any]) -> None:
    later = run(LOSSES, 320)
    before = copy.deepcopy((kept, later))
    baseline.compare(kept, later)
    assert json.dumps(before) == json.dumps((kept, later))


@pytest.mark.slow
def test_the_bands_of_06_are_wider_than_rounding_and_not_much() -> None:
    """Twenty trainings of PyTorch's from weights one ulp off, with the notebook's own cells."""
    import nbformat
    import torch

    notebook = nbformat.read(ROOT / "notebooks" / "06_amp.ipynb", as_version=4)
    cells = {cell.id: cell.source for cell in notebook.cells}
    names: dict[str, Any] = {}
    exec(
        "import copy, torch, numpy as np, msnb\nfrom collections import OrderedDict\nseed = 0",
        names,
    )
    for cell in ("torch-net", "batches", "train", "train-torch"):
        source = cells[cell].partition("x, y = batches")[0]
        if cell == "train":
            source = next(line for line in source.splitlines() if line.startswith("numbers"))
        exec(source, names)
    ((images, truth),) = names["msnb"].data.digits(
        size=8, framework="numpy", batch_size=355, split="test"
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names["torch_build"]()
    start = names["torch_build"]()  # the notebook trains its second net

    def trained(number: int | None, dtype: torch.dtype) -> tuple[np.ndarray, int]:
        net = copy.deepcopy(start)
        if number is not None:
            generator = torch.Generator().manual_seed(number)
            with torch.no_grad():
                for p in net.parameters():
                    up = torch.rand(p.shape, generator=generator) < 0.5
                    p.copy_(torch.nextafter(p, torch.where(up, torch.inf, -torch.inf)))
        losses = np.array(names["train_torch"](net, dtype))
        guess = net.eval()(torch.tensor(images)).argmax(1).numpy()
        return losses, int((guess == truth).sum())

    later = again()
    for dtype, check, level in (
        (torch.float32, "O0 curve", "O0"),
        (torch.float16, "O2 curve", "O2"),
    ):
        straight, right = trained(None, dtype)
        curves, rights = zip(*(trained(number, dtype) for number in range(20)), strict=True)
        drift = np.max(np.abs(np.array(curves) - straight), axis=0)
        metrics = metrics_of(later, "06_amp", check)
        bands = np.array([metrics[f"loss_{number:02}_band"] for number in range(1, 45)])
        assert (drift <= bands).all(), (level, drift)
        assert drift.max() > bands[-1] / 10  # a band that nothing fills holds nothing
        moves = metrics_of(later, "06_amp", "accuracy")[f"{level}_correct_band"]
        assert max(abs(other - right) for other in rights) <= moves
