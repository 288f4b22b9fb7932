"""check_ranks: whether the ranks of a data-parallel job train one model, said while it trains.

Such a job fails in silence: it runs, exits 0, and each rank has trained a model of its own, or all
ranks the same images. The evidence is there on the ranks, but apart. ``check_ranks`` brings it
together: every rank describes itself in a few kilobytes, all of them get all descriptions (one
AllGather of int32, which HCCL and the CPU's mccl both have), and each comes to the same Report.

Weights are compared by a digest, which says whether they are the same bit by bit, and by a sketch,
which says how far they are apart: 16 sums of the weights with random signs. The squared distance of
two sketches is an unbiased estimate of the squared distance of the weights (the "tug-of-war" of
Alon, Matias and Szegedy, The space complexity of approximating the frequency moments, 1996).
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from hashlib import blake2b
from itertools import chain, zip_longest
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msnb.report import Check, Report

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["check_ranks"]

_BUCKETS = 16  # of a sketch: its distance is right to about a fifth
_SHARD = "num_shards=get_group_size(), shard_id=get_rank() where the dataset is made"
_SAME_SEED = "msnb.setup(device_target, seed=0), the same on every rank, before the net is built"
_REDUCER = (
    "grads = nn.DistributedGradReducer(optimizer.parameters, mean=True)(grads) before "
    "optimizer(grads); for nn.TrainOneStepCell and Model, before they are made: "
    'ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)'
)
_began: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()  # equal at step 0?
_titles: Counter[str] = Counter()


def check_ranks(
    step: int,
    net: Any,
    data: Any = None,
    *,
    optimizer: Any = None,
    gradients: Any = None,
    total: int | None = None,
    rows: int = 10_000,
    title: str = "ranks",
) -> Report:
    """Compare the ranks of a data-parallel job with each other: a line in the training script.

    Every rank calls it, like a collective, before the first step and now and then after it::

        msnb.check_ranks(0, net, dataset, optimizer=optimizer, gradients=reducer).require()
        for step, (x, y) in enumerate(dataset, 1):
            ...
        msnb.check_ranks(step, net, dataset, optimizer=optimizer).require()

    - ``step``: how many steps this rank has done; 0 is before the first
    - ``net``: the ``nn.Cell`` that is trained. Its weights must be equal at step 0, and stay so;
      running statistics (BatchNorm) must be equal at step 0 only
    - ``data``: the dataset, or any loader that can be read again: at step 0 one epoch of it is read
      (``rows`` samples at most) and compared, sample by sample: overlap, gaps, steps in an epoch.
      Or one batch, a tensor or a tuple of tensors: then the samples of this step are compared.
      Samples are told apart by content: where they are augmented at random, give the dataset as it
      was before that
    - ``optimizer``: its learning rate and its own count of steps are compared too
    - ``gradients``: what reduces them, which is then measured: the ``nn.DistributedGradReducer``,
      an ``nn.TrainOneStepCell`` or ``Model``, a function from a tuple of gradients to a tuple; or
      what one step made, ``(before, after)`` the reduction
    - ``total``: how many samples all ranks together have, where the dataset does not tell
    - ``title``: of the Report

    All ranks get the same Report, so that ``require()`` stops all of them or none. Rank 0 prints
    it. Under ``msnb.launch`` it is part of ``job.report``. In one process, without a launcher, its
    one check is skipped.

    Raises ``TypeError`` and ``ValueError`` for a bad argument, and on the other ranks
    ``RuntimeError``, which names the rank that got it.

    >>> check_ranks(0, net, dataset, optimizer=optimizer)  # doctest: +SKIP
    <Report ranks at step 0: ok (1 skipped, 8 ok)>
    """
    world = _world()
    if world is None:
        check, rank = _without_init()
        report = Report(f"{title} at step {step}", [check])
        _deliver(report, rank)
        return report
    rank, size = world
    try:
        facts = _describe(step, net, data, optimizer, gradients, total, rows, title)
        failed: Exception | None = None
    except Exception as error:  # the other ranks wait in the collective: they must hear of it
        facts, failed = {"error": f"{type(error).__name__}: {error}"}, error
    ranks = _exchange(facts, size)
    if failed is not None:
        raise failed
    for other, row in enumerate(ranks):
        if "error" in row:
            raise RuntimeError(
                f"check_ranks: rank {other} could not describe itself: {row['error']}"
            )
    if all(row["gradients"]["kind"] == "function" for row in ranks) and _alike(ranks):
        measured = _exchange(_reduce_known(gradients, net, optimizer, rank), size)
        for row, answer in zip(ranks, measured, strict=True):
            row["gradients"].update(answer)
    checks = judge(ranks, began_equal=_began.get(net))
    if step == 0:
        _began[net] = any(check.id == "initial weights" and check for check in checks)
    full = f"{title} at step {ranks[0]['step']}"  # rank 0's, so that all have the same
    _titles[full] += 1
    if _titles[full] > 1:
        full += f" ({_titles[full]})"
    report = Report(full, checks)
    _deliver(report, rank)
    return report


# --- what a rank says of itself ------------------------------------------------------------------


def _world() -> tuple[int, int] | None:
    """Rank and number of ranks; None where ``init`` was not called."""
    from mindspore.communication import GlobalComm, get_group_size, get_rank

    # Not get_rank alone: before init it answers, from the environment, and nothing is connected.
    return (int(get_rank()), int(get_group_size())) if GlobalComm.INITED else None


def _without_init() -> tuple[Check, int]:
    workers = os.environ.get("MS_WORKER_NUM", "")
    started = os.environ.get("MS_ROLE") == "MS_WORKER" and workers.isdigit() and int(workers) > 1
    if not started:
        why = "one process: nothing to compare; msnb.launch(script, world_size=2) starts more"
        return Check("ranks", "skipped", why), 0
    number = os.environ.get("MS_NODE_ID") or os.environ.get("RANK_ID") or "0"
    return (
        Check(
            "ranks",
            "failed",
            f"{workers} processes were started, but init() was not called: each trains alone",
            "mindspore.communication.init() is missing, or comes after this line",
            f"one job of {workers} ranks",
            "from mindspore.communication import init; init() before the net and the data",
            {"processes": int(workers)},
        ),
        int(number) if number.isdigit() else 0,
    )


def _describe(
    step: int,
    net: Any,
    data: Any,
    optimizer: Any,
    gradients: Any,
    total: int | None,
    rows: int,
    title: str,
) -> dict[str, Any]:
    from mindspore import context, get_seed, nn

    step, rows = _whole("step", step, 0), _whole("rows", rows, 1)
    total = None if total is None else _whole("total", total, 1)
    if not isinstance(title, str) or len(title.strip().splitlines()) != 1:
        raise ValueError(f"title is the name of the Report, one line, not {title!r}")
    if not isinstance(net, nn.Cell):
        raise TypeError(f"net is a mindspore nn.Cell, not {_shown(net)}")
    if optimizer is not None and not hasattr(optimizer, "parameters"):
        raise TypeError(
            "optimizer is a MindSpore optimizer, for example "
            f"nn.Momentum(net.trainable_params(), 0.01, 0.9), not {_shown(optimizer)}"
        )
    return {
        "step": step,
        "mode": str(context.get_auto_parallel_context("parallel_mode")),
        "mean": bool(context.get_auto_parallel_context("gradients_mean")),
        "seed": get_seed(),
        "parameters": [_parameter(parameter) for parameter in net.get_parameters()],
        "data": _data(step, data, total, rows),
        "optimizer": _optimizer(optimizer),
        "gradients": _gradients(gradients),
    }


def _whole(name: str, number: Any, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, Integral) or int(number) < least:
        raise ValueError(f"{name} is a whole number from {least} on, not {number!r}")
    return int(number)  # of NumPy's, too


def _parameter(parameter: Any) -> dict[str, Any]:
    array = _host(parameter)
    parts = array.ravel().view(f"float{4 * array.itemsize}") if array.dtype.kind == "c" else array
    flat = parts.astype("float64").ravel()
    return {
        "name": parameter.name,
        "shape": [int(n) for n in array.shape],
        "dtype": str(parameter.dtype),
        "trained": bool(parameter.requires_grad),
        "digest": blake2b(array.tobytes(), digest_size=8).hexdigest(),
        "norm": float(math.sqrt(float(flat @ flat))),
        "sketch": _sketch(flat),
    }


def _sketch(flat: Array) -> list[float]:
    """Sums of the numbers with fixed random signs; linear in the numbers."""
    import numpy as np

    signs = np.random.Generator(np.random.PCG64(0)).integers(0, 2, flat.size, dtype=np.int8)
    signed = np.zeros(-(-max(flat.size, 1) // _BUCKETS) * _BUCKETS)
    signed[: flat.size] = np.where(signs, flat, -flat)
    return [float(number) for number in signed.reshape(-1, _BUCKETS).sum(axis=0)]


def _optimizer(optimizer: Any) -> dict[str, Any] | None:
    if optimizer is None:
        return None
    from msnb.log import _rate

    count = getattr(optimizer, "global_step", getattr(optimizer, "step_t", None))
    done = None if count is None else int(_host(count).reshape(-1)[0])
    rate = _rate(optimizer, done or 0)
    return {"rate": rate if isinstance(rate, list) else [rate], "steps": done}


def _data(step: int, data: Any, total: int | None, rows: int) -> dict[str, Any]:
    """Steps in an epoch, and the samples of an epoch or of a batch as numbers of 64 bits."""
    if data is None:
        return {"kind": "none"}
    if _is_batch(data):
        hashes = _hashes(data)
        return {"kind": "batch", "samples": _packed(hashes), "largest": len(hashes), "whole": True}
    readable = hasattr(data, "__iter__") or hasattr(data, "create_tuple_iterator")
    if not readable or isinstance(data, (str, bytes)):
        raise TypeError(f"data is a dataset, a loader or a batch of tensors, not {_shown(data)}")
    if hasattr(data, "__next__"):
        raise TypeError(
            "data is read once more than the training does, and a generator or iterator gives its "
            f"batches only once: give the dataset itself, not {_shown(data)}"
        )
    said: dict[str, Any] = {"kind": "epoch", "batches": _length(data), **_shard(data)}
    said["total"] = total if total is not None else _all_samples(data)
    if hasattr(data, "create_tuple_iterator"):
        from mindspore.dataset import config

        said["seed"] = config.get_seed()
    if step == 0:
        said.update(_read_epoch(data, rows))
        if said["whole"]:
            said["batches"] = said.pop("read")
    return said


def _is_batch(data: Any) -> bool:
    if isinstance(data, Mapping):
        return bool(data) and all(_is_array(part) for part in data.values())
    if isinstance(data, (tuple, list)):
        return bool(data) and all(_is_array(part) for part in data)
    return _is_array(data)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _length(data: Any) -> int | None:
    if hasattr(data, "get_dataset_size"):
        return int(data.get_dataset_size())
    try:
        return len(data)
    except TypeError:
        return None


def _chain(data: Any) -> Iterator[Any]:
    """A MindSpore dataset, what it is made from, and so on down to the source."""
    while data is not None and hasattr(data, "children"):
        yield data
        data = data.children[0] if len(data.children) == 1 else None


def _shard(data: Any) -> dict[str, Any]:
    *_, source = [None, *_chain(data)]
    known = hasattr(source, "num_shards")
    return {
        "shards": getattr(source, "num_shards", None) if known else "unknown",
        "shard": getattr(source, "shard_id", None),
    }


def _all_samples(data: Any) -> int | None:
    """How many samples the source has for all ranks, where nothing adds or drops any on the way."""
    kept = {
        *("BatchDataset", "PaddedBatchDataset", "MapDataset", "ShuffleDataset", "ProjectDataset"),
        *("RenameDataset", "GeneratorDataset", "NumpySlicesDataset"),
    }
    chain = list(_chain(data))
    source: Any = getattr(chain[-1], "source", None) if chain else None
    plain = all(type(stage).__name__ in kept for stage in chain)
    limited = bool(chain) and getattr(chain[-1], "num_samples", None) not in (None, 0)
    return len(source) if plain and not limited and hasattr(source, "__len__") else None


def _read_epoch(data: Any, rows: int) -> dict[str, Any]:
    import numpy as np

    before = random.getstate(), np.random.get_state()
    hashes: list[Array] = []
    seen = largest = 0
    whole = True
    try:
        again = hasattr(data, "create_tuple_iterator")
        batches = data.create_tuple_iterator(num_epochs=1, output_numpy=True) if again else data
        for batch in batches:
            if seen >= rows:
                whole = False
                break
            hashes.append(_hashes(batch))
            seen += len(hashes[-1])
            largest = max(largest, len(hashes[-1]))
    finally:  # reading must not change what the training draws
        random.setstate(before[0])
        np.random.set_state(before[1])
    joined = np.concatenate(hashes) if hashes else np.zeros(0, np.int64)
    return {"samples": _packed(joined), "largest": largest, "whole": whole, "read": len(hashes)}


def _hashes(batch: Any) -> Array:
    """A number of 64 bits for each sample: all columns of it, values, shape and dtype."""
    import numpy as np

    parts = batch.values() if isinstance(batch, Mapping) else batch
    parts = parts if isinstance(batch, (Mapping, tuple, list)) else [batch]
    arrays = [np.ascontiguousarray(_host(part)) for part in parts]
    sizes = {array.shape[0] if array.ndim else 0 for array in arrays}
    count = sizes.pop() if len(sizes) == 1 else 0  # columns of different length: one sample
    found = np.empty(count or 1, np.int64)
    for index in range(len(found)):
        digest = blake2b(digest_size=8)
        for array in arrays:
            row = array[index] if count else array
            digest.update(f"{row.dtype}{row.shape}".encode())
            digest.update(row.tobytes() if row.dtype != object else repr(row).encode())
        found[index] = np.frombuffer(digest.digest(), np.int64)[0]
    return found


def _gradients(given: Any) -> dict[str, Any]:
    import numpy as np

    if given is None:
        return {"kind": "none"}
    if isinstance(given, (tuple, list)):
        pair = [part if isinstance(part, (tuple, list)) else [part] for part in given]
        if len(pair) != 2 or not all(_is_array(value) for part in pair for value in part):
            raise TypeError(
                "gradients is what reduces them, or (before, after) the reduction, each a tuple of "
                f"tensors; not {_shown(given)}"
            )
        shapes = [[tuple(value.shape) for value in part] for part in pair]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"gradients before and after the reduction have the same shapes, not {shapes[0]} "
                f"and {shapes[1]}"
            )
        flat = [
            np.concatenate([_host(value).astype(np.float64).ravel() for value in part])
            for part in pair
        ]
        same = bool(np.array_equal(*flat))
        return {"kind": "pair", "same": same, "sketches": [_sketch(part) for part in flat]}
    _reducer_of(given)
    return {"kind": "function"}


def _reducer_of(given: Any) -> Callable[..., Any]:
    from mindspore import nn

    given = getattr(given, "train_network", given)  # a Model
    reducer = getattr(given, "grad_reducer", given)  # an nn.TrainOneStepCell
    is_class = isinstance(reducer, type) and issubclass(reducer, nn.Cell)  # not one made of it
    if not callable(reducer) or is_class:
        raise TypeError(
            "gradients is an nn.DistributedGradReducer, an nn.TrainOneStepCell, a Model or a "
            "function from a tuple of gradients to a tuple, or (before, after); "
            f"not {_shown(given)}"
        )
    return reducer  # type: ignore[no-any-return]


def _reduce_known(given: Any, net: Any, optimizer: Any, rank: int) -> dict[str, Any]:
    """What the reducer makes of gradients that are rank + 1 everywhere."""
    import numpy as np
    from mindspore import Tensor

    parameters = list(net.trainable_params() if optimizer is None else optimizer.parameters)
    if not parameters:
        return {"wrong": "no parameter is trained, so there are no gradients"}
    known = tuple(Tensor(np.full(p.shape, rank + 1), p.dtype) for p in parameters)
    try:
        reduced = _reducer_of(given)(known)
        values = [_host(value).astype(np.float64) for value in reduced]
        if [value.shape for value in values] != [tuple(p.shape) for p in parameters]:
            return {"wrong": f"{len(values)} gradients came back for {len(parameters)}"}
        ends = [(float(v.min()), float(v.max())) if v.size else (1.0, 1.0) for v in values]
    except Exception as error:
        # MindSpore's begin with a line of dashes, or with a headline
        lines = [words for line in str(error).splitlines() if (words := line.strip("- "))]
        return {"wrong": f"{type(error).__name__}: {' '.join(lines[:2])[:200]}"}
    kept = [p.name for p, end in zip(parameters, ends, strict=True) if end == (rank + 1,) * 2]
    least, most = min(low for low, _ in ends), max(high for _, high in ends)
    return {"least": least, "most": most, "kept": kept, "all": len(ends)}


def _host(value: Any) -> Array:
    import numpy as np

    if "BFloat16" in str(getattr(value, "dtype", "")):  # NumPy has no such type
        value = value.float()
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value)


def _packed(numbers: Array) -> str:
    return base64.b85encode(numbers.tobytes()).decode()


def _unpacked(text: str) -> list[int]:
    import numpy as np

    unpacked: list[int] = np.frombuffer(base64.b85decode(text), np.int64).tolist()
    return unpacked


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


# --- all ranks hear all --------------------------------------------------------------------------


def _exchange(facts: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """What each rank gave, in the order of ranks, on every rank."""
    import numpy as np

    text = json.dumps(facts).encode()
    # Collectives need the same shape on every rank: lengths first, then texts of the longest's.
    lengths = _gathered(np.array([len(text)], np.int32)).tolist()
    padded = text.ljust(-(-max(lengths) // 4) * 4)
    texts = _gathered(np.frombuffer(padded, np.int32)).reshape(size, -1)
    return [json.loads(row.tobytes()) for row in texts]


def _gathered(array: Array) -> Array:
    from mindspore import Tensor, ops

    return _host(ops.AllGather()(Tensor(array)))


def _deliver(report: Report, rank: int) -> None:
    """Rank 0 prints it; every rank writes it to the folder of the job, where there is one."""
    if rank == 0:
        faults = [check for check in report if check.status in ("failed", "error")]
        print(Report(report.title, faults) if faults else report.headline(), flush=True)
    folder = os.environ.get("MSNB_REPORT_DIR")
    if folder:
        line = json.dumps(report.to_json()) + "\n"
        try:
            with (Path(folder) / f"check_ranks.{rank}.jsonl").open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            said = error.strerror or str(error)
            print(f"check_ranks: its report is not in {folder!r}: {said}", file=sys.stderr)


# --- the judgement: from the descriptions of all ranks to checks ---------------------------------


def judge(ranks: Sequence[Mapping[str, Any]], *, began_equal: bool | None = None) -> list[Check]:
    """The checks that follow from the ranks' descriptions; the same on every rank."""
    checks = [_steps(ranks), _epoch_steps(ranks), _parameters(ranks)]
    if _alike(ranks):
        checks += [_weights(ranks, began_equal), *_statistics(ranks)]
    checks += _samples(ranks)
    seeded = ("initial weights", "samples", "gaps")
    blamed = any(check.id in seeded and check.status == "failed" for check in checks)
    return [*checks, _seeds(ranks, blamed), _rates(ranks), _reduction(ranks)]


def _each(values: Sequence[Any]) -> str:
    """``57 on rank 0, 56 on ranks 1 to 3``."""
    groups: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        groups.setdefault(f"{value:g}" if isinstance(value, float) else str(value), []).append(rank)
    return ", ".join(f"{value} on {_ranks(where)}" for value, where in groups.items())


def _ranks(where: Sequence[int]) -> str:
    if len(where) == 1:
        return f"rank {where[0]}"
    if len(where) > 2 and list(where) == list(range(where[0], where[-1] + 1)):
        return f"ranks {where[0]} to {where[-1]}"
    return f"ranks {', '.join(map(str, where[:-1]))} and {where[-1]}"


def _equal(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _unlike(check: str, name: str, kinds: Sequence[str]) -> Check:
    said = f"{name}= is not the same on every rank: {_each(kinds)}"
    return Check(check, "error", said, remedy="give the same on every rank")


def _steps(ranks: Sequence[Mapping[str, Any]]) -> Check:
    steps = [row["step"] for row in ranks]
    if not _equal(steps):
        return Check(
            "steps so far",
            "failed",
            f"steps differ: {_each(steps)}",
            "the ranks have not done the same number of steps, or call check_ranks at other places",
            "the same step on every rank",
            "check_ranks at the same step on every rank; the same number of batches on every rank",
            {"least": min(steps), "most": max(steps)},
        )
    own = [row["optimizer"] and row["optimizer"]["steps"] for row in ranks]
    done = [count for count in own if count is not None]
    if len(done) == len(ranks) and not _equal(done):
        return Check(
            "steps so far",
            "failed",
            f"at step {steps[0]} the optimizer's own count differs: {_each(done)}",
            "a rank skipped the optimizer's step: an overflow, decided on its own gradients",
            "the same count on every rank",
            "decide on what all ranks share: reduce first, then ok = amp.all_finite(grads)",
            {"least": min(done), "most": max(done)},
        )
    counted = f", {done[0]} by the optimizer's count" if len(done) == len(ranks) else ""
    return Check("steps so far", "ok", f"{steps[0]} on each of {len(ranks)} ranks{counted}")


def _epoch_steps(ranks: Sequence[Mapping[str, Any]]) -> Check:
    batches = [row["data"].get("batches") for row in ranks]
    known = [count for count in batches if count is not None]
    if len(known) < len(batches):
        why = "not known: data is not a dataset, or one that does not tell its length"
        return Check("steps in an epoch", "skipped", why)
    if _equal(batches):
        return Check("steps in an epoch", "ok", f"{batches[0]} on every rank")
    short = min(known)
    waiting = _ranks([rank for rank, count in enumerate(batches) if count != short])
    return Check(
        "steps in an epoch",
        "failed",
        f"batches differ: {_each(batches)}",
        f"after step {short} of the epoch {waiting} would wait in AllReduce for one that is done",
        "the same number of batches on every rank",
        f"the same batch size and drop_remainder on every rank; {_SHARD}",
        {"least": short, "most": max(known)},
    )


def _alike(ranks: Sequence[Mapping[str, Any]]) -> bool:
    return _equal([_layout(row) for row in ranks])


def _layout(row: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(p["name"], p["shape"], p["dtype"], p["trained"]) for p in row["parameters"]]


def _parameters(ranks: Sequence[Mapping[str, Any]]) -> Check:
    layouts = [_layout(row) for row in ranks]
    if _equal(layouts):
        return Check("parameters", "ok", f"{len(layouts[0])}, the same on every rank")
    where = next(rank for rank, layout in enumerate(layouts) if layout != layouts[0])
    pairs = zip_longest(layouts[0], layouts[where])
    place, (base, other) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
    frozen = base and other and base[:3] == other[:3]
    return Check(
        "parameters",
        "failed",
        f"parameter {place} is {_said(base)} on rank 0, {_said(other)} on rank {where}",
        "frozen on some ranks only" if frozen else "the nets were built differently",
        "the same parameters in the same order: gradients are reduced by place",
        "build and freeze the net in the same way on every rank",
    )


def _said(entry: tuple[Any, ...] | None) -> str:
    if entry is None:
        return "missing"
    name, shape, dtype, trained = entry
    return f"{name} {tuple(shape)} {dtype}{'' if trained else ', frozen,'}"


def _weights(ranks: Sequence[Mapping[str, Any]], began_equal: bool | None) -> Check:
    first = ranks[0]["step"] == 0
    name = "initial weights" if first else "weights"
    mode = ranks[0]["mode"]
    if mode not in ("stand_alone", "data_parallel"):
        return Check(name, "skipped", f"in the mode {mode} ranks may hold different parts")
    apart = _apart(ranks, lambda p: first or p["trained"])
    count = sum(first or p["trained"] for p in ranks[0]["parameters"])
    if not count:
        return Check(name, "skipped", "the net has no weights that are trained")
    if lost := _broken(ranks, lambda p: first or p["trained"]):
        worst, where = next(iter(lost.items()))
        return Check(
            name,
            "failed",
            f"{len(lost)} of {count} parameters hold NaN or infinity, {worst} first: on "
            f"{_ranks(where)}",
            "they were initialised or loaded so" if first else "a step applied such gradients",
            "finite weights: NaN on every rank is no agreement",
            "look at their initialisers, or at the file that they were loaded from"
            if first
            else "msnb.StepGuard around the step names the first step that makes them, and why",
            {"not finite": len(lost)},
        )
    if not apart:
        return Check(name, "ok", f"{count} parameters, equal bit by bit on every rank")
    worst, (excess, rank) = max(apart.items(), key=lambda item: item[1][0])
    distance, norm = _distance(ranks, worst, rank)
    text = (
        f"{len(apart)} of {count} parameters differ, {worst} most: rank {rank}'s from rank 0's by "
        f"about {distance:.1g}, at a norm of {norm:.2g}"
    )
    metrics = {"differing": len(apart), "distance": distance}
    if excess <= 1.0:
        return Check(name, "ok", f"equal to rounding: {text}", metrics=metrics)
    found, remedy = _why_apart(ranks, first, began_equal, len(apart) == count)
    return Check(name, "failed", text, found, "the same weights on every rank", remedy, metrics)


def _apart(
    ranks: Sequence[Mapping[str, Any]], which: Callable[[Mapping[str, Any]], bool]
) -> dict[str, tuple[float, int]]:
    """Parameters that differ: how far, as a multiple of what rounding explains, and the rank."""
    found: dict[str, tuple[float, int]] = {}
    for place, base in enumerate(ranks[0]["parameters"]):
        if not which(base):
            continue
        for rank, row in enumerate(ranks[1:], 1):
            other = row["parameters"][place]
            if other["digest"] == base["digest"]:
                continue
            eps = {"Float16": 2**-10, "BFloat16": 2**-7, "Float64": 2**-52}.get(
                base["dtype"], 2**-23
            )
            limit = 32 * eps * max(base["norm"], other["norm"])
            distance = math.dist(base["sketch"], other["sketch"])
            ratio = distance / limit if limit else math.inf if distance else 0.0
            ratio = math.inf if math.isnan(ratio) else ratio
            if base["name"] not in found or ratio > found[base["name"]][0]:
                found[base["name"]] = (ratio, rank)
    return found


def _broken(
    ranks: Sequence[Mapping[str, Any]], which: Callable[[Mapping[str, Any]], bool]
) -> dict[str, list[int]]:
    """Parameters that hold NaN or infinity, and on which ranks."""
    found: dict[str, list[int]] = {}
    for rank, row in enumerate(ranks):
        for p in row["parameters"]:
            if which(p) and not math.isfinite(p["norm"]):
                found.setdefault(p["name"], []).append(rank)
    return found


def _distance(ranks: Sequence[Mapping[str, Any]], name: str, rank: int) -> tuple[float, float]:
    a, b = (next(p for p in ranks[at]["parameters"] if p["name"] == name) for at in (0, rank))
    return math.dist(a["sketch"], b["sketch"]), a["norm"]


def _why_apart(
    ranks: Sequence[Mapping[str, Any]], first: bool, began_equal: bool | None, all_apart: bool
) -> tuple[str, str]:
    seeds = [row["seed"] for row in ranks]
    if first:
        if not _equal(seeds):
            return f"a seed for each rank: {_each(seeds)}", _SAME_SEED
        if seeds[0] is None:
            return "no seed is set: each rank drew weights of its own", _SAME_SEED
        return (
            "the seeds are equal, but something was drawn on one rank only before the net was "
            "built, or one rank alone has loaded a checkpoint",
            "build the net first thing after set-up; load the same checkpoint on every rank",
        )
    if began_equal is False:
        return "they were different at step 0 already", _SAME_SEED
    done = [(row["optimizer"] or {}).get("steps") for row in ranks]
    if not _equal(done):
        return f"the optimizer's steps differ: {_each(done)}", "see: steps so far"
    if not all_apart:
        return "these are not reduced: each rank applies its own batch's gradients", _REDUCER
    return "no reducer: each rank applies its own batch's gradients", _REDUCER


def _statistics(ranks: Sequence[Mapping[str, Any]]) -> list[Check]:
    """What the forward pass writes: each rank sees its own images, so these may differ."""
    count = sum(not p["trained"] for p in ranks[0]["parameters"])
    if ranks[0]["step"] == 0 or not count:
        return []
    apart = _apart(ranks, lambda p: not p["trained"])
    text = f"{len(apart)} of {count} differ" if apart else f"{count}, equal on every rank"
    why = ", as they may: each rank has seen its own images" if apart else ""
    return [Check("not trained", "ok", text + why, metrics={"differing": len(apart)})]


def _samples(ranks: Sequence[Mapping[str, Any]]) -> list[Check]:
    data = [row["data"] for row in ranks]
    if not _equal([part["kind"] for part in data]):
        return [_unlike("samples", "data", [part["kind"] for part in data])]
    if not all("samples" in part for part in data):
        why = "no data was given" if data[0]["kind"] == "none" else "an epoch is read at step 0"
        return [Check("samples", "skipped", why)]
    lists = [_unpacked(part["samples"]) for part in data]
    counts = [Counter(part) for part in lists]
    read = sum(map(len, lists))
    if not read:
        return [Check("samples", "failed", "no rank has a single sample", remedy="look at data")]
    repeats = read - sum(map(len, counts))
    together = reduce(lambda a, b: a + b, counts)
    most = reduce(lambda a, b: a | b, counts)
    shared = (together - most).total()
    total = data[0].get("total")
    whole = all(part["whole"] for part in data)
    metrics = {"read": read, "shared": shared, "repeats": repeats}
    whole_on_each = data[0].get("shards", "unknown") in (None, 1) and _equal(counts)
    if repeats > 0.1 * read and not whole_on_each:
        why = (
            f"{repeats} of {read} samples repeat within their rank, so content does not tell them "
            "apart: give a dataset without repeat, or with a column that numbers the samples"
        )
        return [Check("samples", "skipped", why, metrics=metrics)]
    padding = max(read - total, 0) if total is not None and whole else len(ranks) - 1
    padding = padding if data[0]["kind"] == "epoch" else 0
    allowed = min(padding, len(ranks) - 1) + 2 * repeats * (len(ranks) - 1)
    what = "an epoch" if data[0]["kind"] == "epoch" else "this batch"
    what = what if whole else f"the first {read} samples of an epoch"
    text = f"{read} in {what}: {_each([len(part) for part in lists])}"
    overlap = shared > allowed or whole_on_each
    if overlap:
        found, remedy = _why_shared(ranks, lists, shared)
        check = Check(
            "samples",
            "failed",
            f"{text}; {shared} of them were read by more than one rank",
            found,
            "parts that do not overlap",
            remedy,
            metrics,
        )
    else:
        pad = f"; {shared} read twice, which pads the parts to the same length" if shared else ""
        check = Check(
            "samples", "ok", f"{text}; no overlap" if not shared else text + pad, metrics=metrics
        )
    return [check, _coverage(ranks, lists, read - shared, overlap)]


def _orders(ranks: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The seeds the order of samples comes from; ms.set_seed sets the datasets' as well."""
    return [row["data"].get("seed", row["seed"]) for row in ranks]


def _why_shared(
    ranks: Sequence[Mapping[str, Any]], lists: Sequence[Sequence[int]], shared: int
) -> tuple[str, str]:
    shards = [row["data"].get("shards", "unknown") for row in ranks]
    places = [row["data"].get("shard") for row in ranks]
    seeds = _orders(ranks)
    size = len(ranks)
    if _equal([sorted(part) for part in lists]):
        if shards[0] in (None, 1):
            return "no shard: every rank reads the whole dataset", _SHARD
        if shards[0] != "unknown" and size > 1 and _equal(places):
            return f"shard_id is {places[0]} on every rank", _SHARD
        return "every rank reads the same samples", _SHARD
    if shards[0] != "unknown" and _equal(shards) and shards[0] not in (None, 1):
        if len(set(places)) < size:
            return f"a shard for two: shard_id is {_each(places)}", _SHARD
        if shards[0] != size:
            return f"num_shards is {shards[0]}, and there are {size} ranks", _SHARD
        if not _equal(seeds):
            return f"each rank shuffles with its own seed ({_each(seeds)}), then shards", _SAME_SEED
        return (
            "each rank shuffles in an order of its own, then shards",
            "the same seed on every rank; shard before you shuffle",
        )
    if not _equal(seeds) and shards[0] in (None, 1):
        return "no shard: each rank draws from the whole dataset, in an order of its own", _SHARD
    return "the parts overlap", _SHARD


def _coverage(
    ranks: Sequence[Mapping[str, Any]],
    lists: Sequence[Sequence[int]],
    distinct: int,
    overlap: bool,
) -> Check:
    data = [row["data"] for row in ranks]
    total = data[0].get("total")
    if data[0]["kind"] != "epoch" or not all(part["whole"] for part in data):
        return Check("gaps", "skipped", "an epoch was not read to its end")
    if total is None:
        return Check("gaps", "skipped", "not known how many samples there are: give total=")
    missing = max(total - distinct, 0)
    # What drop_remainder may have dropped, on the ranks that read full batches only.
    dropped = sum(
        part["largest"] - 1
        for part, read in zip(data, lists, strict=True)
        if part["largest"] and not len(read) % part["largest"]
    )
    metrics = {"missing": missing, "total": total}
    if not missing:
        return Check("gaps", "ok", f"all {total} were read", metrics=metrics)
    if missing <= dropped and not overlap:
        text = f"{missing} of {total} were read by no rank: less than a batch each, the remainder"
        return Check("gaps", "ok", text, metrics=metrics)
    shards = data[0].get("shards")
    if isinstance(shards, int) and shards > len(ranks):
        found = f"num_shards is {shards}, and there are {len(ranks)} ranks"
    elif not _equal(_orders(ranks)):
        found = "each rank shuffles with its own seed, then shards: some samples fall to nobody"
    else:
        found = "the parts of the ranks do not make up the whole"
    return Check(
        "gaps",
        "failed",
        f"{missing} of {total} samples were read by no rank",
        found,
        "all samples in an epoch, but for a remainder of less than a batch a rank",
        f"{_SHARD}; the same seed on every rank",
        metrics,
    )


def _seeds(ranks: Sequence[Mapping[str, Any]], blamed: bool) -> Check:
    seeds = [row["seed"] for row in ranks]
    shown = ["not set" if seed is None else seed for seed in seeds]
    if _equal(seeds) and not _equal(_orders(ranks)):
        seeds = shown = [f"{seed} for datasets" for seed in _orders(ranks)]
    if _equal(seeds):
        return Check("seeds", "ok", f"{shown[0]} on every rank")
    if blamed:
        return Check(
            "seeds",
            "failed",
            f"seeds differ: {_each(shown)}",
            "see what differs above",
            "one seed, as long as weights or the order of samples come from it",
            _SAME_SEED,
        )
    return Check("seeds", "ok", f"{_each(shown)}; weights and samples do not depend on it")


def _rates(ranks: Sequence[Mapping[str, Any]]) -> Check:
    given = ["none" if row["optimizer"] is None else "an optimizer" for row in ranks]
    if not _equal(given):
        return _unlike("learning rate", "optimizer", given)
    if given[0] == "none":
        return Check("learning rate", "skipped", "no optimizer was given: optimizer=optimizer")
    rates = [row["optimizer"]["rate"] for row in ranks]
    shown = [", ".join(f"{rate:.6g}" for rate in part) for part in rates]
    if _equal(rates):
        return Check("learning rate", "ok", f"{shown[0]} on every rank")
    return Check(
        "learning rate",
        "failed",
        f"rates differ: {_each(shown)}",
        "the rate was computed from something that differs between ranks",
        "the same rate on every rank",
        "compute the rate from the number of ranks and of steps, not from the rank",
        {"least": min(map(min, rates)), "most": max(map(max, rates))},
    )


def _reduction(ranks: Sequence[Mapping[str, Any]]) -> Check:
    size = len(ranks)
    given = [row["gradients"] for row in ranks]
    kinds = [part["kind"] for part in given]
    if not _equal(kinds):
        return _unlike("gradients", "gradients", kinds)
    if kinds[0] == "none":
        if ranks[0]["mode"] == "data_parallel" and not ranks[0]["mean"]:
            return _summed(size, "the context says gradients_mean=False, which is the default")
        return Check("gradients", "skipped", "not measured: give what reduces them as gradients=")
    if kinds[0] == "pair":
        return _pair(given)
    if not _alike(ranks):
        return Check("gradients", "skipped", "not measured: the ranks have different parameters")
    for rank, part in enumerate(given):
        if "wrong" in part:
            return Check(
                "gradients",
                "error",
                f"what reduces them could not be used on rank {rank}: {part['wrong']}",
                remedy="gradients= takes a tuple of gradients and returns a tuple",
            )
    ends = [(part["least"], part["most"]) for part in given]
    if not all(map(math.isfinite, chain.from_iterable(ends))):
        return _not_finite()
    wanted = (size + 1) / 2  # the mean of 1, 2, ... size, one for each rank
    near = [low / wanted > 1 - 1e-2 and high / wanted < 1 + 1e-2 for low, high in ends]
    if all(near):
        return Check("gradients", "ok", f"the mean over {size} ranks")
    kept = [n for n in given[0]["kept"] if all(n in part["kept"] for part in given)]
    if kept and len(kept) == given[0]["all"]:
        return _not_reduced(size)
    if kept:
        return Check(
            "gradients",
            "failed",
            f"{len(kept)} of {given[0]['all']} are not reduced: {', '.join(kept[:4])}",
            "the reducer was made or called with other parameters than the optimizer",
            "each of them the mean over the ranks",
            _REDUCER,
            {"not reduced": len(kept)},
        )
    if not _equal(ends):
        return Check(
            "gradients",
            "failed",
            f"after the reduction they differ between ranks: {_each([high for _, high in ends])}",
            "not all ranks take part in the reduction, or in another group",
            f"{wanted:g} on every rank, the mean of 1 to {size}",
            _REDUCER,
        )
    low, high = ends[0]
    if high - low > 1e-2 * wanted:
        return Check(
            "gradients",
            "failed",
            f"some gradients are {low / wanted:.4g} times the mean, some {high / wanted:.4g} times",
            "only some of them are reduced",
            "each of them the mean over the ranks",
            _REDUCER,
        )
    return _factor(high / wanted, size)


def _pair(given: Sequence[Mapping[str, Any]]) -> Check:
    import numpy as np

    size = len(given)
    before, after = (np.array([part["sketches"][at] for part in given]) for at in (0, 1))
    mean = before.mean(axis=0)
    if not np.isfinite([before, after]).all():
        return _not_finite()
    if np.allclose(before, mean, rtol=1e-6, atol=0):
        if all(part["same"] for part in given):
            return Check(
                "gradients", "error", "the ranks' gradients are equal already: give each its part"
            )
    elif all(part["same"] for part in given):
        return _not_reduced(size)
    if not np.allclose(after, after[0], rtol=1e-5, atol=1e-6 * np.abs(after).max()):
        return Check(
            "gradients",
            "failed",
            "after the reduction they still differ between ranks",
            "not all of them are reduced, or not by all ranks",
            "the same gradients on every rank",
            _REDUCER,
        )
    factor = float(after[0] @ mean) / max(float(mean @ mean), 1e-300)
    if not np.allclose(after[0], factor * mean, atol=1e-3 * np.abs(after[0]).max()):
        return Check(
            "gradients",
            "failed",
            "after the reduction they are no multiple of the mean of what was before",
            "only some are reduced, or before and after belong to different steps",
            "the mean over the ranks",
            _REDUCER,
        )
    if abs(factor - 1) < 1e-2:
        return Check("gradients", "ok", f"the mean over {size} ranks")
    return _factor(factor, size)


def _not_finite() -> Check:
    return Check(
        "gradients",
        "error",
        "not measured: some are NaN or infinite",
        remedy="give finite gradients: those of another step, or a smaller loss scale",
    )


def _not_reduced(size: int) -> Check:
    return Check(
        "gradients",
        "failed",
        f"each of {size} ranks keeps its own",
        "no reducer, or one that was made in stand-alone mode and does nothing",
        "the mean over the ranks",
        _REDUCER,
    )


def _summed(size: int, why: str) -> Check:
    return Check(
        "gradients",
        "failed",
        f"summed, not averaged: {size} times too large",
        why,
        "the mean over the ranks",
        "nn.DistributedGradReducer(optimizer.parameters, mean=True); "
        'ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True); '
        f"by hand: AllReduce, then / {size}",
        {"factor": size},
    )


def _factor(factor: float, size: int) -> Check:
    if abs(factor / size - 1) < 1e-2:
        why = "AllReduce adds; mean=True or gradients_mean=True is missing, or a division by hand"
        return _summed(size, why)
    twice = abs(factor * size - 1) < 1e-2
    return Check(
        "gradients",
        "failed",
        f"{factor:.4g} times the mean over {size} ranks",
        "divided by the number of ranks twice"
        if twice
        else "divided by another number than ranks, or clipped: give only what reduces",
        "the mean over the ranks",
        "divide once: mean=True, or / get_group_size() by hand; unscale before, not between",
        {"factor": factor},
    )
