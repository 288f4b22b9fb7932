"""check_ranks in jobs of several processes, and data parallel training against one process."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msnb
from msnb.distributed.job import Job, launch
from msnb.report import Report

SCRIPTS = Path(__file__).resolve().parent / "scripts"
ROOT = SCRIPTS.parents[2]

pytestmark = pytest.mark.slow


def run(script: str, folder: Path, *args: str, world_size: int = 2) -> Job:
    return launch(
        SCRIPTS / script,
        world_size=world_size,
        args=args,
        env={"PYTHONPATH": str(ROOT)},
        log_dir=folder,
        timeout=500,
        start_timeout=120,
        progress=False,
    )


def said_by(job: Job, rank: int) -> dict[str, Report]:
    text = (job.log_dir / "reports" / f"check_ranks.{rank}.jsonl").read_text("utf-8")
    reports = [Report.from_json(json.loads(line)) for line in text.splitlines()]
    return {report.title: report for report in reports}


@pytest.fixture(scope="module")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = run("lessons.py", tmp_path_factory.mktemp("lessons 课"))
    assert set(job.exit_codes.values()) == {0}, job.stderr
    return job


SHARD = "num_shards=get_group_size(), shard_id=get_rank()"
SEED = "msnb.setup(device_target, seed=0), the same on every rank"
REDUCER = "nn.DistributedGradReducer(optimizer.parameters, mean=True)"

# title: {check that is not ok: (what it says, what to type)}
FAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "no reducer at step 3": {"weights": ("no reducer", REDUCER)},
    "tiny rate at step 0": {"gradients": ("each of 2 ranks keeps its own", REDUCER)},
    "tiny rate at step 3": {"weights": ("no reducer", REDUCER)},
    "one layer at step 0": {"gradients": ("1 of 4 are not reduced: 2.bias", REDUCER)},
    "one layer at step 3": {"weights": ("1 of 4 parameters differ, 2.bias most", REDUCER)},
    "no shard at step 0": {"samples": ("no shard: every rank reads the whole", SHARD)},
    "shuffled at step 0": {
        "samples": ("no shard: every rank reads the whole", SHARD),
        "seeds": ("10 on rank 0, 11 on rank 1", SEED),
    },
    "same batch at step 1": {"samples": ("every rank reads the same samples", SHARD)},
    "same shard at step 0": {
        "samples": ("shard_id is 0 on every rank", SHARD),
        "gaps": ("32 of 64 samples were read by no rank", SHARD),
    },
    "own order at step 0": {
        "samples": ("each rank shuffles with its own seed (10 on rank 0, 11 on rank 1)", SEED),
        "gaps": ("of 64 samples were read by no rank", "the same seed on every rank"),
        "seeds": ("10 on rank 0, 11 on rank 1", SEED),
    },
    "half at step 0": {"gaps": ("num_shards is 4, and there are 2 ranks", SHARD)},
    "by hand at step 0": {
        "samples": ("8 of them were read by more than one rank", SHARD),
        "gaps": ("8 of 64 samples were read by no rank", SHARD),
    },
    "own seed at step 0": {
        "initial weights": ("a seed for each rank: 0 on rank 0, 1 on rank 1", SEED),
        "seeds": ("0 on rank 0, 1 on rank 1", SEED),
    },
    "own seed at step 3": {"weights": ("they were different at step 0 already", SEED)},
    "loaded at step 0": {
        "initial weights": ("one rank alone has loaded a checkpoint", "the same checkpoint")
    },
    "loaded at step 3": {"weights": ("they were different at step 0 already", SEED)},
    "summed at step 0": {"gradients": ("summed, not averaged: 2 times too large", "mean=True")},
    "default at step 0": {"gradients": ("summed, not averaged: 2 times too large", "mean=True")},
    "pair summed at step 3": {"gradients": ("summed, not averaged: 2 times too", "mean=True")},
    "pair own at step 3": {"gradients": ("each of 2 ranks keeps its own", REDUCER)},
    "pair halved at step 3": {"gradients": ("divided by the number of ranks twice", "once")},
    "twice at step 3": {"gradients": ("divided by the number of ranks twice", "divide once")},
    "one-sided at step 3": {"gradients": ("3 on rank 0, 1.5 on rank 1", REDUCER)},
    "cell at step 0": {"gradients": ("summed, not averaged: 2 times", "gradients_mean=True")},
    "context at step 0": {"gradients": ("gradients_mean=False, which is the", "gradients_mean=")},
    "cell alone at step 0": {"gradients": ("made in stand-alone mode", REDUCER)},
    "last batch at step 0": {
        "steps in an epoch": ("after step 6 of the epoch rank 0 would wait", "drop_remainder")
    },
    "skips at step 4": {
        "steps so far": ("own count differs: 4 on rank 0, 3 on rank 1", "reduce first"),
        "weights": ("the optimizer's steps differ: 4 on rank 0, 3 on rank 1", "steps so far"),
    },
    "rate at step 0": {"learning rate": ("0.1 on rank 0, 0.2 on rank 1", "not from the rank")},
    "net at step 0": {"parameters": ("(16, 8) Float32 on rank 0, 0.weight (17, 8)", "same way")},
    "frozen at step 0": {"parameters": ("frozen on some ranks only", "freeze")},
    "places at step 3": {"steps so far": ("steps differ: 3 on rank 0, 4 on rank 1", "same step")},
    "repeated, no shard at step 0": {"samples": ("no shard: every rank reads", SHARD)},
}
HEALTHY = {
    *("no reducer at step 0", "no shard at step 3", "shuffled at step 3", "skips at step 0"),
    *("other batches at step 1", "same shard at step 3", "own order at step 3", "half at step 2"),
    *("summed at step 3", "pair mean at step 3", "modern at step 0", "modern at step 3"),
    *("padded at step 0", "padded at step 3", "remainder at step 0", "remainder at step 3"),
    *("shuffle at step 0", "shuffle at step 3", "repeated at step 0", "half at step 0 (2)"),
    *("half at step 4", "float16 at step 0", "undisturbed at step 0", "undisturbed at step 2"),
}


def test_the_job_ran_these_lessons(lessons: Job) -> None:
    assert said_by(lessons, 0).keys() == FAULTS.keys() | HEALTHY


@pytest.mark.parametrize("title", FAULTS)
def test_a_silent_fault_is_found_with_its_cause(lessons: Job, title: str) -> None:
    report = said_by(lessons, 0)[title]
    found = {check.id: check for check in report if check.status in ("failed", "error")}
    assert found.keys() == FAULTS[title].keys(), report
    for name, (words, remedy) in FAULTS[title].items():
        assert words in f"{found[name].summary} | {found[name].found}"
        assert remedy in found[name].remedy


@pytest.mark.parametrize("title", sorted(HEALTHY))
def test_good_health_raises_no_alarm(lessons: Job, title: str) -> None:
    report = said_by(lessons, 0)[title]
    assert report.ok, report


def test_health_says_what_it_saw(lessons: Job) -> None:
    reports = said_by(lessons, 0)
    assert "2 of 2 differ, as they may" in reports["modern at step 3"]["not trained"].summary
    padded = reports["padded at step 0"]["samples"].summary
    assert "1 read twice, which pads the parts" in padded
    assert "the mean over 2 ranks" in reports["modern at step 0"]["gradients"].summary
    assert "bit by bit" in reports["half at step 4"]["weights"].summary
    assert reports["repeated at step 0"]["samples"].status == "skipped"


def test_all_ranks_come_to_the_same_reports(lessons: Job) -> None:
    assert said_by(lessons, 0) == said_by(lessons, 1)


def test_they_are_part_of_the_jobs_report_and_printed_by_rank_0(lessons: Job) -> None:
    assert "no reducer at step 3: weights" in lessons.report
    assert not lessons.report.ok
    assert lessons.stdout[0].count("own seed at step 0: FAILED (2 failed)") == 1
    assert "own seed at step 0" not in lessons.stdout[1]


def test_a_slip_on_one_rank_is_heard_by_all(lessons: Job) -> None:
    slip = "TypeError: net is a mindspore nn.Cell, not str 'a net'"
    assert f"HEARD {slip}\n" in lessons.stdout[1]
    assert (
        f"HEARD RuntimeError: check_ranks: rank 1 could not describe itself: {slip}\n"
        in (lessons.stdout[0])
    )


def test_checks_leave_the_training_as_it_is(lessons: Job) -> None:
    assert all("UNDISTURBED True" in text for text in lessons.stdout.values())


# --- equality to one process ---------------------------------------------------------------------

WAYS = ("by hand", "DistributedGradReducer", "TrainOneStepCell", "Model.train")
ASKED = [f"{mode}:{way}" for mode in ("pynative", "graph") for way in WAYS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("equality 相等")
    loader = msnb.data.digits(size=32, framework="numpy", batch_size=32, seed=0, drop_last=True)
    batches = list(itertools.islice(loader, 10))
    np.save(folder / "images.npy", np.concatenate([x for x, _ in batches]))
    np.save(folder / "labels.npy", np.concatenate([y for _, y in batches]).astype(np.int32))
    return folder


def weights(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return dict(file)


def furthest(a: dict[str, Any], b: dict[str, Any]) -> float:
    assert a.keys() == b.keys()
    return max(float(abs(a[name] - b[name]).max()) for name in a)


@pytest.fixture(scope="module")
def single(folder: Path) -> dict[str, Any]:
    """Ten steps of one process with batches of 32."""
    subprocess.run(
        [sys.executable, str(SCRIPTS / "four_ways.py"), str(folder), "pynative:one"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        timeout=300,
    )
    return weights(folder / "1-pynative-one.npz")


@pytest.fixture(scope="module")
def double(folder: Path) -> Job:
    job = run("four_ways.py", folder / "two", str(folder), *ASKED)
    assert job.report.ok, job.report
    return job


@pytest.mark.parametrize("asked", ASKED)
def test_two_ranks_equal_one_process(
    asked: str, folder: Path, single: dict[str, Any], double: Job
) -> None:
    ours = weights(folder / f"2-{asked.replace(':', '-')}.npz")
    assert furthest(ours, single) < 1e-6
    reports = said_by(double, 0)
    assert reports[f"{asked} at step 0"]["gradients"].summary == "the mean over 2 ranks"
    assert "bit by bit" in reports[f"{asked} at step 10"]["weights"].summary


def test_four_ranks_equal_one_process(folder: Path, single: dict[str, Any]) -> None:
    job = run("four_ways.py", folder / "four", str(folder), "pynative:by hand", world_size=4)
    assert job.report.ok, job.report
    assert furthest(weights(folder / "4-pynative-by hand.npz"), single) < 1e-6


def in_torch(folder: Path, size: int) -> dict[str, Any]:
    """The same ten steps in PyTorch, with the first ``size`` images of each batch."""
    import torch
    from torch.nn.functional import cross_entropy

    net = msnb.nets.LeNet.torch()
    start = weights(folder / "1-start.npz")
    net.load_state_dict({name: torch.tensor(value) for name, value in start.items()})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    images, labels = np.load(folder / "images.npy"), np.load(folder / "labels.npy")
    for at in range(0, 320, 32):
        x, y = torch.tensor(images[at : at + size]), torch.tensor(labels[at : at + size])
        optimizer.zero_grad()
        cross_entropy(net(x), y.long()).backward()
        optimizer.step()
    return {name: value.detach().numpy() for name, value in net.named_parameters()}


def test_what_is_equal_is_a_training(folder: Path, single: dict[str, Any]) -> None:
    """PyTorch comes to the same weights; with half of each batch it does not, by far."""
    assert furthest(in_torch(folder, 32), single) < 1e-5
    assert furthest(in_torch(folder, 16), single) > 1e-3
    assert furthest(weights(folder / "1-start.npz"), single) > 1e-2
