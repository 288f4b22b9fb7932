"""check_ranks: from what ranks say of themselves to its checks. No job: see test_ranks_jobs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msnb.distributed import ranks as module
from msnb.distributed.ranks import check_ranks, judge
from msnb.report import Report


def parameter(name: str, values: Any, *, trained: bool = True, dtype: str = "Float32") -> Any:
    array = np.asarray(values, {"Float16": np.float16}.get(dtype, np.float32))
    return {
        "name": name,
        "shape": list(array.shape),
        "dtype": dtype,
        "trained": trained,
        "digest": blake2b(array.tobytes()).hexdigest(),
        "norm": float(np.linalg.norm(array.astype(np.float64))),
        "sketch": module._sketch(array.astype(np.float64).ravel()),
    }


W = np.random.default_rng(0).standard_normal((40, 30))


def samples(numbers: Any, **more: Any) -> dict[str, Any]:
    array = np.array(list(numbers), np.int64)
    batch = 4
    return {
        "kind": "epoch",
        "samples": module._packed(array),
        "largest": batch,
        "whole": True,
        "batches": -(-len(array) // batch),
        "total": 16,
        "shards": 2,
        **more,
    }


def healthy(size: int = 2, step: int = 0) -> list[dict[str, Any]]:
    part = 16 // size
    return [
        {
            "step": step,
            "mode": "stand_alone",
            "mean": False,
            "seed": 0,
            "parameters": [
                parameter("w", W),
                parameter("b", np.zeros(30)),
                parameter("norm.moving_mean", np.zeros(30), trained=False),
            ],
            "data": samples(range(rank * part, (rank + 1) * part), shards=size, shard=rank),
            "optimizer": {"rate": [0.1], "steps": step},
            "gradients": {
                "kind": "function",
                "least": (size + 1) / 2,
                "most": (size + 1) / 2,
                "kept": ["w", "b"] if rank + 1 == (size + 1) / 2 else [],
                "all": 2,
            },
        }
        for rank in range(size)
    ]


def report(rows: Any, **more: Any) -> Report:
    rows = json.loads(json.dumps(rows))  # what comes through the collective
    return Report("ranks", judge(rows, **more))


def faults(rows: Any, **more: Any) -> dict[str, str]:
    return {c.id: c.summary + " | " + c.found for c in report(rows, **more) if c.status != "ok"}


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("step", [0, 5])
def test_a_healthy_job_has_no_fault(size: int, step: int) -> None:
    rows = healthy(size, step)
    if 16 % size:
        for row in rows:
            row["data"]["total"] = 16 // size * size
    assert faults(rows) == {}
    assert len(report(rows)) == 9 if step == 0 else 10


def changed(at: int = 0, size: int = 2, /, **paths: Any) -> list[dict[str, Any]]:
    """Healthy rows in which the last rank says something else."""
    rows = healthy(size, at)
    for path, value in paths.items():
        *heads, last = path.split("__")
        place = rows[-1]
        for head in heads:
            place = place[head]
        place[last] = value
    return rows


ONE_ULP = np.nextafter(W.astype(np.float32), np.float32(9))
MORE = W.copy()
MORE[3, 4] += 0.01


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (changed(5, step=4), {"steps so far": "steps differ: 5 on rank 0, 4 on rank 1"}),
        (
            changed(5, 4, step=4),
            {"steps so far": "steps differ: 5 on ranks 0 to 2, 4 on rank 3"},
        ),
        (
            changed(5, optimizer__steps=4),
            {"steps so far": "the optimizer's own count differs: 5 on rank 0, 4 on rank 1"},
        ),
        (
            changed(data__batches=3),
            {"steps in an epoch": "2 on rank 0, 3 on rank 1 | after step 2 of the epoch rank 1 "},
        ),
        (
            changed(optimizer__rate=[0.2]),
            {"learning rate": "rates differ: 0.1 on rank 0, 0.2 on rank 1"},
        ),
        (changed(data__samples=None), {"samples": "", "gaps": ""}),
    ],
)
def test_what_differs_is_named(rows: Any, found: dict[str, str]) -> None:
    if "samples" in found:  # both read the first eight of sixteen
        rows[1]["data"] = samples(range(8), shards=2, shard=0)
        rows[0]["data"]["shard"] = 0
        found = {
            "samples": "8 of them were read by more than one rank | shard_id is 0 on every rank",
            "gaps": "8 of 16 samples were read by no rank",
        }
    said = faults(rows)
    assert said.keys() == found.keys()
    for name, words in found.items():
        assert words in said[name]


def with_weights(step: int, values: Any, **more: Any) -> list[dict[str, Any]]:
    rows = healthy(2, step)
    rows[1]["parameters"][0] = parameter("w", values)
    for name, value in more.items():
        rows[1][name] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "began", "words"),
    [
        (with_weights(0, MORE, seed=1), None, "a seed for each rank: 0 on rank 0, 1 on rank 1"),
        (with_weights(0, MORE), None, "one rank alone has loaded a checkpoint"),
        (with_weights(5, MORE), True, "these are not reduced"),
        (with_weights(5, MORE), None, "these are not reduced"),
        (with_weights(5, MORE), False, "they were different at step 0 already"),
        (
            with_weights(5, MORE, optimizer={"rate": [0.1], "steps": 4}),
            True,
            "the optimizer's steps differ: 5 on rank 0, 4 on rank 1",
        ),
    ],
)
def test_weights_apart_have_a_cause(rows: Any, began: bool | None, words: str) -> None:
    name = "initial weights" if rows[0]["step"] == 0 else "weights"
    said = faults(rows, began_equal=began)
    assert words in said[name]
    assert "1 of " in said[name]
    assert "w most" in said[name]


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("step", [0, 5])
def test_weights_that_are_not_finite_are_no_agreement(odd: float, step: int) -> None:
    name = "weights" if step else "initial weights"
    broken = W.copy()
    broken[3, 4] = odd
    for where, said in (((0, 1), "ranks 0 and 1"), ((1,), "rank 1")):
        rows = healthy(2, step)
        for rank in where:
            rows[rank]["parameters"][0] = parameter("w", broken)
        check = report(rows)[name]
        of = 2 if step else 3
        told = f"1 of {of} parameters hold NaN or infinity, w first: on {said}"
        assert (check.status, check.summary) == ("failed", told)
        assert ("StepGuard" in check.remedy) == (step > 0)


def test_all_weights_apart_means_no_reducer() -> None:
    rows = with_weights(5, MORE)
    rows[1]["parameters"][1] = parameter("b", np.full(30, 1e-3))
    assert "no reducer: each rank applies its own batch's gradients" in faults(rows)["weights"]
    rows[0]["seed"], rows[1]["seed"] = None, None
    for row in rows:
        row["step"] = 0
    assert "no seed is set" in faults(rows)["initial weights"]


def test_rounding_is_told_from_training_and_said() -> None:
    said = report(with_weights(5, ONE_ULP))["weights"]
    assert said
    assert "equal to rounding: 1 of 2" in said.summary
    assert report(with_weights(5, W * (1 + 1e-4)))["weights"].status == "failed"


def test_running_statistics_may_differ_later_but_not_at_first() -> None:
    for step, name in ((5, "not trained"), (0, "initial weights")):
        rows = healthy(2, step)
        rows[1]["parameters"][2] = parameter("norm.moving_mean", np.ones(30), trained=False)
        assert bool(report(rows)[name]) == (step == 5)
        if step:
            assert "1 of 1 differ, as they may" in report(rows)["not trained"].summary


def test_ranks_may_hold_parts_in_other_modes() -> None:
    rows = with_weights(5, MORE)
    for row in rows:
        row["mode"] = "semi_auto_parallel"
    assert faults(rows).keys() == {"weights"}
    assert report(rows)["weights"].status == "skipped"


def test_other_parameters_are_found_before_anything_is_reduced() -> None:
    rows = healthy()
    rows[1]["parameters"][1] = parameter("b", np.zeros(31))
    said = faults(rows)
    assert (
        "parameter 1 is b (30,) Float32 on rank 0, b (31,) Float32 on rank 1" in said["parameters"]
    )
    assert "different parameters" in said["gradients"]
    rows = healthy()
    rows[1]["parameters"][0]["trained"] = False
    said = faults(rows)
    assert "w (40, 30) Float32, frozen, on rank 1 | frozen on some ranks" in said["parameters"]
    rows = healthy()
    del rows[1]["parameters"][2]
    assert "missing on rank 1" in faults(rows)["parameters"]


# --- samples -------------------------------------------------------------------------------------


def reading(*parts: Any, **more: Any) -> list[dict[str, Any]]:
    rows = healthy(len(parts))
    for rank, (row, part) in enumerate(zip(rows, parts, strict=True)):
        row["data"] = samples(part, **{"shard": rank, "shards": len(parts), **more})
        row["data"]["batches"] = 4
    return rows


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (reading(range(16), range(16), shards=None), "no shard: every rank reads the whole"),
        (reading(range(16), reversed(range(16)), shards=None), "no shard: every rank reads"),
        (reading(range(8), range(4, 12), shards="unknown", total=None), "the parts overlap"),
        (reading(range(8), range(8), shards="unknown", total=None), "reads the same samples"),
        (reading(range(8), range(4, 12)), "in an order of its own, then shards"),
        (reading([*range(8)] * 3, [*range(8)] * 3, shards=None), "no shard: every rank"),
        (reading(range(6), range(6, 12), range(5, 11), shards=2), "num_shards is 2, and there"),
    ],
)
def test_overlap_is_found_with_its_cause(rows: Any, found: str) -> None:
    assert found in faults(rows)["samples"]


def test_shuffled_by_seeds_of_their_own_then_sharded() -> None:
    rows = reading([0, 1, 2, 3, 4, 5, 6, 7], [6, 7, 8, 9, 10, 11, 12, 13])
    rows[1]["seed"] = 1
    said = faults(rows)
    assert "shuffles with its own seed (0 on rank 0, 1 on rank 1)" in said["samples"]
    assert "2 of 16 samples were read by no rank" in said["gaps"]
    assert "seeds differ" in said["seeds"]


def test_the_seed_of_datasets_is_one_of_its_own() -> None:
    rows = reading([0, 1, 2, 3, 4, 5, 6, 7], [6, 7, 8, 9, 10, 11, 12, 13])
    rows[0]["data"]["seed"], rows[1]["data"]["seed"] = 5, 6
    said = faults(rows)
    assert "shuffles with its own seed (5 on rank 0, 6 on rank 1)" in said["samples"]
    assert "shuffles with its own seed" in said["gaps"]
    assert "5 for datasets on rank 0, 6 for datasets on rank 1" in said["seeds"]


def test_seeds_alone_are_no_fault() -> None:
    rows = changed(seed=1)
    assert faults(rows) == {}
    assert "do not depend on it" in report(rows)["seeds"].summary


@pytest.mark.parametrize(
    "rows",
    [
        reading(range(9), range(8, 17), total=17),  # padded: one is read twice
        reading(range(5), range(5, 10), [10, 11, 12, 0, 1], total=13),
        reading(range(8), range(8, 16), total=19),  # three dropped, less than a batch each
        reading(range(8), range(8, 16), total=None),
        reading([0, 0, 1, 2, 3, 4, 5, 6], [0, 7, 8, 9, 10, 11, 12, 13], total=16),  # twins
    ],
)
def test_padding_remainders_and_twins_are_no_overlap(rows: Any) -> None:
    report_ = report(rows)
    assert report_["samples"]
    assert report_["gaps"].status in ("ok", "skipped")


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        (reading(range(8), range(8, 16), total=23), 7),  # more than two remainders of 3
        (reading(range(7), range(8, 15), total=16), 2),  # no full batches: nothing was dropped
        (reading(range(4), range(4, 8), shards=4), 8),
    ],
)
def test_gaps_are_found(rows: Any, missing: int) -> None:
    said = faults(rows)
    assert f"{missing} of " in said["gaps"]
    assert "samples" not in said


def test_what_cannot_be_told_is_said() -> None:
    rows = reading([0] * 8, [0] * 8)
    assert "repeat within their rank" in faults(rows)["samples"]
    rows = reading(range(8), range(8, 16), whole=False)
    assert "the first 16 samples of an epoch" in report(rows)["samples"].summary
    assert report(rows)["gaps"].status == "skipped"
    rows = reading([], [])
    assert report(rows)["samples"].status == "failed"


# --- gradients -----------------------------------------------------------------------------------


def reduced(*ends: Any, kept: Any = ((), ())) -> list[dict[str, Any]]:
    rows = healthy(len(ends))
    for row, (least, most), names in zip(rows, ends, kept, strict=True):
        row["gradients"].update(least=least, most=most, kept=list(names))
    return rows


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (reduced((3, 3), (3, 3)), "summed, not averaged: 2 times too large"),
        (reduced((1, 1), (2, 2), kept=(["w", "b"], ["w", "b"])), "each of 2 ranks keeps its own"),
        (reduced((1, 1.5), (1.5, 2), kept=(["b"], ["b"])), "1 of 2 are not reduced: b"),
        (reduced((0.75, 0.75), (0.75, 0.75)), "0.5 times the mean over 2 ranks | divided by"),
        (
            reduced((0.5, 0.5), (0.5, 0.5)),
            "0.3333 times the mean over 2 ranks | divided by another",
        ),
        (reduced((3, 3), (1.5, 1.5)), "they differ between ranks: 3 on rank 0, 1.5 on rank 1"),
        (reduced((1.5, 3), (1.5, 3)), "some gradients are 1 times the mean, some 2 times"),
        (
            reduced((1, 1), (2, 2), (3, 3), kept=(["w", "b"], ["w", "b"], ["w", "b"])),
            "each of 3 ranks keeps its own",
        ),
    ],
)
def test_a_reducer_is_judged_by_what_it_makes_of_known_gradients(rows: Any, words: str) -> None:
    if len(rows) == 3:
        for row in rows:
            row["data"] = {"kind": "none"}
    assert words in faults(rows)["gradients"]


def pair(before: Any, after: Any) -> list[dict[str, Any]]:
    rows = healthy(len(before))
    for row, own, made in zip(rows, before, after, strict=True):
        row["gradients"] = {
            "kind": "pair",
            "same": bool(np.array_equal(own, made)),
            "sketches": [module._sketch(np.ravel(own)), module._sketch(np.ravel(made))],
        }
    return rows


A, B = np.random.default_rng(1).standard_normal((2, 500))
MEAN = (A + B) / 2
PART = np.concatenate([MEAN[:400], 2 * MEAN[400:]])


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([MEAN, MEAN], ""),
        ([2 * MEAN, 2 * MEAN], "summed, not averaged: 2 times"),
        ([A, B], "each of 2 ranks keeps its own"),
        ([MEAN / 2, MEAN / 2], "0.5 times the mean over 2 ranks"),
        ([MEAN, 2 * MEAN], "after the reduction they still differ"),
        ([PART, PART], "no multiple of the mean"),
        ([A, A], "no multiple of the mean"),
    ],
)
def test_one_steps_gradients_are_judged(after: Any, words: str) -> None:
    said = faults(pair([A, B], after))
    assert (words in said["gradients"]) if words else said == {}


def test_gradients_that_prove_nothing_are_no_proof() -> None:
    assert report(pair([A, A], [A, A]))["gradients"].status == "error"


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_gradients_that_are_not_finite_are_not_judged(odd: float) -> None:
    broken = np.concatenate([[odd], A[1:]])
    for before, after in (([broken, broken], [broken, broken]), ([broken, B], [broken, broken])):
        said = report(pair(before, after))["gradients"]
        assert (said.status, said.summary) == ("error", "not measured: some are NaN or infinite")
    rows = healthy()
    rows[1]["gradients"]["most"] = odd
    assert report(rows)["gradients"].summary == "not measured: some are NaN or infinite"


def test_data_or_an_optimizer_given_on_one_rank_only() -> None:
    rows = healthy()
    rows[1]["data"] = {"kind": "none"}
    rows[1]["optimizer"] = None
    said = report(rows)
    assert not said.ok
    assert said["samples"].status == said["learning rate"].status == "error"
    assert said["samples"].summary == (
        "data= is not the same on every rank: epoch on rank 0, none on rank 1"
    )
    assert "an optimizer on rank 0, none on rank 1" in said["learning rate"].summary
    assert said["steps so far"].status == "ok"  # no step was skipped


def test_gradients_given_on_one_rank_only() -> None:
    rows = healthy()
    rows[1]["gradients"] = {"kind": "none"}
    assert report(rows)["gradients"].status == "error"
    rows[0]["gradients"] = {"kind": "none"}
    assert report(rows)["gradients"].status == "skipped"
    for row in rows:
        row["mode"] = "data_parallel"
    assert "gradients_mean=False, which is the default" in faults(rows)["gradients"]
    for row in rows:
        row["mean"] = True
    assert report(rows)["gradients"].status == "skipped"


def test_a_reducer_that_raises_is_an_error_that_says_so() -> None:
    rows = healthy()
    rows[1]["gradients"] = {"kind": "function", "wrong": "TypeError: not that"}
    said = report(rows)["gradients"]
    assert (said.status, "rank 1: TypeError: not that" in said.summary) == ("error", True)


# --- what a rank says of itself ------------------------------------------------------------------


def test_a_sketch_keeps_distances() -> None:
    rng = np.random.default_rng(5)
    ratios = []
    for size in (1, 7, 16, 1000, 12345):
        for scale in (1e-6, 1.0, 1e4):
            a = rng.standard_normal(size)
            b = a + scale * rng.standard_normal(size)
            distance = math.dist(module._sketch(a), module._sketch(b))
            ratios.append(distance / np.linalg.norm(a - b))
    assert all(0.4 < ratio < 1.8 for ratio in ratios), ratios
    assert abs(np.mean(np.square(ratios)) - 1) < 0.3
    assert module._sketch(np.zeros(0)) == [0.0] * 16
    linear = np.add(module._sketch(A), module._sketch(B))
    assert np.allclose(linear, module._sketch(A + B), atol=1e-12)


def test_samples_are_told_apart_by_all_their_columns() -> None:
    x, y = np.arange(12.0).reshape(3, 4), np.arange(3)
    first = module._hashes((x, y))
    assert len(set(first.tolist())) == 3
    assert (module._hashes({"x": x, "y": y}) == first).all()
    assert (module._hashes((x[::-1], y[::-1])) == first[::-1]).all()
    assert not (module._hashes((x, y + 1)) == first).any()
    assert not (module._hashes((x.astype(np.float32), y)) == first).any()
    assert len(module._hashes((x, np.array(3)))) == 1  # not batched: one sample
    assert len(module._hashes(x)) == 3
    assert len(module._hashes([np.array(["a", "b"])])) == 2


def test_reading_an_epoch_stops_at_rows_and_leaves_the_random_state() -> None:
    class Loader:
        def __iter__(self) -> Any:
            for _ in range(6):
                yield np.random.random((4, 2)), np.arange(4)

    state = np.random.get_state()[1].copy()
    read = module._data(0, Loader(), None, 10)
    assert (np.random.get_state()[1] == state).all()
    assert (read["whole"], read["batches"], read["largest"]) == (False, None, 4)
    assert len(module._unpacked(read["samples"])) == 12
    assert module._data(0, Loader(), None, 24)["batches"] == 6
    assert "samples" not in module._data(3, Loader(), None, 10)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (7, TypeError, "data is a dataset, a loader or a batch of tensors, not int 7"),
        (iter([1]), TypeError, "gives its batches only once: give the dataset itself"),
    ],
)
def test_data_that_cannot_be_read_twice(data: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        module._data(0, data, None, 10)


def test_gradients_that_are_none() -> None:
    from mindspore import nn

    for given, error, words in (
        (5, TypeError, "gradients is an nn.DistributedGradReducer"),
        ((A, B, A), TypeError, r"\(before, after\) the reduction"),
        ((A, B[:4]), ValueError, "the same shapes"),
        (("a", "b"), TypeError, "each a tuple of tensors"),
        (nn.DistributedGradReducer, TypeError, "not type <class 'mindspore"),
    ):
        with pytest.raises(error, match=words):
            module._gradients(given)
    assert module._gradients(tuple) == {"kind": "function"}  # a class that makes a tuple, too


def test_arguments_that_are_none_of_the_kind() -> None:
    from mindspore import nn

    net = nn.Dense(2, 2)
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    good: dict[str, Any] = {"step": 0, "net": net, "data": None, "optimizer": optimizer}
    good |= {"gradients": None, "total": None, "rows": 10, "title": "ranks"}
    assert module._describe(**good)["optimizer"] == {"rate": [pytest.approx(0.1)], "steps": 0}
    assert module._describe(**(good | {"step": np.int64(3)}))["step"] == 3
    for bad, error, words in (
        ({"step": -1}, ValueError, "step is a whole number from 0 on, not -1"),
        ({"step": 1.5}, ValueError, "step is a whole number from 0 on, not 1.5"),
        ({"step": True}, ValueError, "step is a whole number from 0 on, not True"),
        ({"rows": 0}, ValueError, "rows is a whole number from 1 on, not 0"),
        ({"total": "64"}, ValueError, "total is a whole number from 1 on, not '64'"),
        ({"title": " "}, ValueError, "title is the name of the Report, one line, not ' '"),
        ({"title": "a\nb"}, ValueError, r"one line, not 'a\\nb'"),
        (
            {"data": "train"},
            TypeError,
            "data is a dataset, a loader or a batch of tensors, not str",
        ),
        ({"net": net.trainable_params()}, TypeError, "net is a mindspore nn.Cell, not list"),
        ({"optimizer": 0.1}, TypeError, "optimizer is a MindSpore optimizer, for example"),
    ):
        with pytest.raises(error, match=words):
            module._describe(**(good | bad))


def test_what_a_dataset_tells() -> None:
    import mindspore.dataset as ds

    columns = {"x": np.arange(33, dtype=np.float32)}
    part = ds.NumpySlicesDataset(columns, shuffle=False, num_shards=2, shard_id=1)
    said = module._data(0, part.map(lambda x: x + 1, ["x"]).batch(4), None, 100)
    assert (said["total"], said["shards"], said["shard"]) == (33, 2, 1)
    assert (said["batches"], said["largest"], said["whole"]) == (5, 4, True)
    assert said["seed"] == ds.config.get_seed()
    wanted = [float(x) for x in [*range(1, 33, 2), 0]]  # padded with the first
    hashes = module._hashes((np.array(wanted) + 1,))  # a Python function makes float64 of them
    assert module._unpacked(said["samples"]) == hashes.tolist()

    def whole() -> Any:  # anew each time: a dataset may have one consumer only
        return ds.NumpySlicesDataset(columns, shuffle=False).batch(4)

    assert module._data(0, whole(), None, 100)["shards"] in (None, 1)
    for stage in (whole().repeat(2), whole().take(3), whole().filter(lambda x: True)):
        assert module._data(1, stage, None, 100)["total"] is None
    assert module._data(1, whole().take(3), 12, 100)["total"] == 12
    assert module._data(0, whole().take(3), 12, 6)["whole"] is False


def test_weights_of_every_dtype_are_described() -> None:
    import mindspore as ms

    for dtype in (ms.float32, ms.float16, ms.bfloat16, ms.int32):
        one = module._parameter(ms.Parameter(ms.Tensor([3.0, 4.0]).astype(dtype), "w"))
        other = module._parameter(ms.Parameter(ms.Tensor([3.0, 5.0]).astype(dtype), "w"))
        assert (one["norm"], one["dtype"]) == (5.0, str(dtype))
        assert one["digest"] != other["digest"]
        assert math.dist(one["sketch"], other["sketch"]) == 1.0


def test_imaginary_parts_count() -> None:
    import mindspore as ms

    one, other = (
        module._parameter(ms.Parameter(ms.Tensor(np.array([3 + 4j, part], np.complex64)), "w"))
        for part in (1j, 5j)
    )
    assert one["norm"] == pytest.approx(math.sqrt(9 + 16 + 1))
    assert math.dist(one["sketch"], other["sketch"]) == 4.0


def test_a_reducer_has_to_have_something_to_reduce() -> None:
    from mindspore import nn

    net = nn.Dense(2, 2)
    for parameter_ in net.get_parameters():
        parameter_.requires_grad = False
    assert module._reduce_known(tuple, net, None, 0) == {
        "wrong": "no parameter is trained, so there are no gradients"
    }

    def fails(grads: Any) -> Any:
        raise TypeError("\n-----\n- what went\nwrong\nwhere")

    assert module._reduce_known(fails, nn.Dense(2, 2), None, 0) == {
        "wrong": "TypeError: what went wrong"
    }


# --- where there is no job -----------------------------------------------------------------------


def test_one_process_has_nothing_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MS_ROLE", raising=False)
    monkeypatch.delenv("MSNB_REPORT_DIR", raising=False)
    said = check_ranks(0, None)
    assert not said.ok
    assert said["ranks"].status == "skipped"
    assert "msnb.launch" in said["ranks"].summary

    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    monkeypatch.setenv("MS_WORKER_NUM", "4")
    monkeypatch.setenv("MS_NODE_ID", "2")
    monkeypatch.setenv("MSNB_REPORT_DIR", str(tmp_path))
    said = check_ranks(0, None)
    assert said["ranks"].status == "failed"
    assert "4 processes were started, but init() was not called" in said["ranks"].summary
    (line,) = (tmp_path / "check_ranks.2.jsonl").read_text("utf-8").splitlines()
    assert Report.from_json(json.loads(line)) == said

    monkeypatch.setenv("MSNB_REPORT_DIR", str(tmp_path / "gone"))
    check_ranks(0, None)
    assert "is not in" in capsys.readouterr().err


def test_importing_it_imports_no_framework() -> None:
    code = "import msnb.distributed.ranks, sys; print({'mindspore', 'torch'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
