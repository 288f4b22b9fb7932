"""Initialisers: the law that each layer's weights follow, and the names and defaults behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn
from mindspore.common import initializer as laws
from mindspore.common.initializer import initializer

from msnb.differences import Observation, Raised, attempt, difference
from msnb.parity.arrays import to_numpy


def law(weights: Any, candidates: Sequence[str]) -> str:
    """The one of ``candidates`` that the weights follow, or their statistics where none fits.

    A candidate is ``"uniform LOW HIGH"``, ``"normal MEAN SIGMA"`` or ``"constant VALUE"``. Mean and
    standard deviation must lie within 6 standard errors of it; a uniform sample stays within its
    bounds and comes within 1 % of both (more for few weights); the kurtosis (1.8 for a uniform, 3
    for a normal law) within 6 standard errors, ``sqrt(24 / n)`` for the normal law.

    >>> law(np.random.default_rng(0).normal(0, 0.01, 10_000), ["uniform -1 1", "normal 0 0.01"])
    'normal 0 0.01'
    """
    values = to_numpy(weights)[0].astype(np.float64).ravel()
    mean, sigma = float(values.mean()), float(values.std())
    fits = [one for one in candidates if _follows(values, one)]
    return fits[0] if len(fits) == 1 else f"mean {mean:.3g}, standard deviation {sigma:.3g}"


def _follows(values: np.ndarray[Any, Any], candidate: str) -> bool:
    kind, *numbers = candidate.split()
    n = values.size
    if kind == "constant":
        return bool(np.allclose(values, float(numbers[0]), rtol=0, atol=1e-7))
    if values.std() == 0:
        return False
    first, second = map(float, numbers)
    centred = values - values.mean()
    kurtosis = float(np.mean(centred**4) / np.mean(centred**2) ** 2)
    if kind == "uniform":
        low, high = first, second
        mean, sigma, true_kurtosis = (low + high) / 2, (high - low) / 12**0.5, 1.8
        margin = (high - low) * max(0.01, 14 / n)  # exp(-14) = 1e-6: as rare as a false alarm
        if not (
            low - 1e-7 <= values.min() <= low + margin
            and high - margin <= values.max() <= high + 1e-7
        ):
            return False
    else:
        mean, sigma, true_kurtosis = first, second, 3.0
    return bool(
        abs(values.mean() - mean) < 6 * sigma / n**0.5
        and abs(values.std() - sigma) < 6 * sigma * ((true_kurtosis - 1) / (4 * n)) ** 0.5
        and abs(kurtosis - true_kurtosis) < 6 * (24 / n) ** 0.5
    )


_SHAPE = (300, 200)


def _filled(by: Any, shape: tuple[int, ...] = _SHAPE) -> Any:
    return initializer(by, list(shape), ms.float32).init_data()


def _init(name: str, **settings: Any) -> torch.Tensor:
    filled: torch.Tensor = getattr(torch.nn.init, name)(torch.empty(*_SHAPE), **settings)
    return filled


def _uniform(bound: float) -> str:
    return f"uniform {-bound!r} {bound!r}"


@difference(
    "dense",
    "`nn.Dense` starts as `nn.Linear` does, weight and bias uniform in 1/sqrt(fan_in); it is not "
    "the normal law of sigma 0.01 of older versions.",
    torch="nn.Linear(100, 400)",
    mindspore="nn.Dense(100, 400)",
    expected="agrees",
)
def dense() -> Observation:
    candidates = [_uniform(0.1), "normal 0 0.01"]
    x, y = torch.nn.Linear(100, 400), nn.Dense(100, 400)
    old = nn.Dense(100, 400, weight_init="normal")
    return Observation(
        torch=(law(x.weight, candidates), law(x.bias, candidates)),
        mindspore=(law(y.weight, candidates), law(y.bias, candidates)),
        claim=(_uniform(100**-0.5), _uniform(100**-0.5)),
        neighbour=(law(x.weight, candidates), law(old.weight, candidates)),
    )


@difference(
    "convolution",
    "Convolutions start as in PyTorch, uniform in 1/sqrt(fan_in); the default has no bias, though.",
    torch="nn.Conv2d(4, 64, 5)",
    mindspore="nn.Conv2d(4, 64, 5)",
    expected="agrees",
)
def convolution() -> Observation:
    candidates = [_uniform(0.1), "normal 0 0.01"]
    x = torch.nn.Conv2d(4, 64, 5)
    y, old = nn.Conv2d(4, 64, 5), nn.Conv2d(4, 64, 5, weight_init="normal")
    return Observation(
        torch=law(x.weight, candidates),
        mindspore=law(y.weight, candidates),
        claim=_uniform((4 * 5 * 5) ** -0.5),
        neighbour=(law(x.weight, candidates), law(old.weight, candidates)),
    )


@difference(
    "embedding",
    "`nn.Embedding` starts with a standard deviation of 0.01, PyTorch's with 1.",
    torch="nn.Embedding(300, 200)",
    mindspore="nn.Embedding(300, 200)",
    expected="differs",
    remedy="nn.Embedding(300, 200, embedding_table=Normal(sigma=1.0))",
)
def embedding() -> Observation:
    candidates = ["normal 0 1", "normal 0 0.01"]
    right = law(torch.nn.Embedding(*_SHAPE).weight, candidates)
    remedied = nn.Embedding(*_SHAPE, embedding_table=laws.Normal(sigma=1.0))
    return Observation(
        torch=right,
        mindspore=law(nn.Embedding(*_SHAPE).embedding_table, candidates),
        claim="normal 0 0.01",
        neighbour=(right, law(remedied.embedding_table, candidates)),
    )


@difference(
    "normal-sigma",
    '`"normal"` and `Normal()` have a standard deviation of 0.01, `normal_` of 1.',
    torch="nn.init.normal_(w)",
    mindspore='initializer("normal", shape)',
    expected="differs",
    remedy="initializer(Normal(sigma=1.0), shape)",
)
def normal_sigma() -> Observation:
    candidates = ["normal 0 1", "normal 0 0.01"]
    right = law(_init("normal_"), candidates)
    return Observation(
        torch=right,
        mindspore=law(_filled("normal"), candidates),
        claim="normal 0 0.01",
        neighbour=(right, law(_filled(laws.Normal(sigma=1.0)), candidates)),
    )


@difference(
    "normal-argument-order",
    "`Normal(sigma, mean)`: the spread comes first, so `Normal(0.0, 1.0)` fills with the constant "
    "1.",
    torch="nn.init.normal_(w, 0.0, 1.0)",
    mindspore="initializer(Normal(0.0, 1.0), shape)",
    expected="differs",
    remedy="Normal(sigma=1.0, mean=0.0)",
)
def normal_argument_order() -> Observation:
    candidates = ["normal 0 1", "constant 1"]
    right = law(_init("normal_", mean=0.0, std=1.0), candidates)
    return Observation(
        torch=right,
        mindspore=law(_filled(laws.Normal(0.0, 1.0)), candidates),
        claim="constant 1",
        neighbour=(right, law(_filled(laws.Normal(sigma=1.0, mean=0.0)), candidates)),
    )


@difference(
    "uniform-interval",
    "`Uniform(scale)` is symmetric, from -scale to scale, and scale is 0.07; `uniform_` goes from "
    "0 to 1.",
    torch="nn.init.uniform_(w)",
    mindspore="initializer(Uniform(), shape)",
    expected="differs",
    remedy="initializer(Uniform(0.5), shape).init_data() + 0.5",
)
def uniform_interval() -> Observation:
    candidates = ["uniform 0.0 1.0", _uniform(0.07)]
    right = law(_init("uniform_"), candidates)
    return Observation(
        torch=right,
        mindspore=law(_filled(laws.Uniform()), candidates),
        claim=_uniform(0.07),
        neighbour=(right, law(_filled(laws.Uniform(0.5)) + 0.5, candidates)),
    )


@difference(
    "kaiming-and-xavier",
    "`HeUniform`, `HeNormal`, `XavierUniform` and `XavierNormal` have the laws and defaults of "
    "PyTorch's kaiming_ and xavier_ functions (`negative_slope` is PyTorch's `a`).",
    torch="nn.init.kaiming_uniform_(w), ...",
    mindspore="initializer(HeUniform(), shape), ...",
    expected="agrees",
)
def kaiming_and_xavier() -> Observation:
    out, into = _SHAPE
    he, xavier = (2 / into) ** 0.5, (2 / (into + out)) ** 0.5
    claim = [
        _uniform(he * 3**0.5),
        f"normal 0 {he}",
        _uniform(xavier * 3**0.5),
        f"normal 0 {xavier}",
    ]
    names = ["kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"]
    kinds = [laws.HeUniform, laws.HeNormal, laws.XavierUniform, laws.XavierNormal]
    leaky = [law(_init("kaiming_uniform_", a=5**0.5), claim)]
    return Observation(
        torch=[law(_init(name), claim) for name in names],
        mindspore=[law(_filled(kind()), claim) for kind in kinds],
        claim=claim,
        neighbour=(leaky, [law(_filled(laws.HeUniform()), claim)]),
    )


@difference(
    "attention-output-bias",
    "The output bias of `nn.MultiheadAttention` is uniform in 1/sqrt(embed_dim); PyTorch sets it "
    "to 0.",
    torch="nn.MultiheadAttention(256, 4).out_proj.bias",
    mindspore="nn.MultiheadAttention(256, 4).out_proj.bias",
    expected="differs",
    remedy='out_proj.bias.set_data(initializer("zeros", [embed_dim]))',
)
def attention_output_bias() -> Observation:
    candidates = ["constant 0", _uniform(256**-0.5)]
    x, y = torch.nn.MultiheadAttention(256, 4), nn.MultiheadAttention(256, 4)
    return Observation(
        torch=law(x.out_proj.bias, candidates),
        mindspore=law(y.out_proj.bias, candidates),
        claim=_uniform(256**-0.5),
        neighbour=(law(x.in_proj_bias, candidates), law(y.in_proj_bias, candidates)),
    )


@difference(
    "unknown-names",
    "The names are MindSpore's: `kaiming_uniform`, `glorot_uniform` and `trunc_normal` are not "
    "found.",
    torch="nn.init.kaiming_uniform_(w)",
    mindspore='initializer("kaiming_uniform", shape)',
    expected="raises",
    remedy='"he_uniform", "xavier_uniform", "truncatedNormal"',
)
def unknown_names() -> Observation:
    candidates = [_uniform((6 / _SHAPE[1]) ** 0.5)]
    right = law(_init("kaiming_uniform_"), candidates)
    return Observation(
        torch=right,
        mindspore=attempt(_filled, "kaiming_uniform"),
        claim=Raised("ValueError", "the class corresponding to 'kaiming_uniform' was not found"),
        neighbour=(right, law(_filled("he_uniform"), candidates)),
    )


@difference(
    "lazy-values",
    "`initializer(...)` makes a tensor without values: arithmetic on it raises.",
    torch="nn.init.ones_(torch.empty(3)) + 1",
    mindspore='initializer("ones", [3]) + 1',
    expected="raises",
    remedy='initializer("ones", [3]).init_data() + 1',
)
def lazy_values() -> Observation:
    right = torch.nn.init.ones_(torch.empty(3)) + 1
    return Observation(
        torch=right,
        mindspore=attempt(lambda: initializer("ones", [3], ms.float32) + 1),
        claim=Raised("RuntimeError", "is uninitialized"),
        neighbour=(right, initializer("ones", [3], ms.float32).init_data() + 1),
    )
