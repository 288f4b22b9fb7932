"""Operators on which both frameworks agree on CPU, and what is known of them at the edges.

``KNOWN`` lists the rows of a probe that do fail with these inputs, each because MindSpore 2.10 on
CPU was measured to be off or to refuse there; all other rows must be ok. log2 and log10 are not
here: now and then the same call gives another last bit, which a probe rightly tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from mindspore import mint, nn, ops

Array = np.ndarray[Any, Any]


class Op(NamedTuple):
    torch: Callable[..., Any]
    mindspore: Callable[..., Any]
    inputs: Callable[[np.random.Generator, float], list[Any]]
    terms: int = 1  # summed into one element


def x(*shape: int) -> Callable[[np.random.Generator, float], list[Any]]:
    return lambda rng, scale: [_f(rng, *shape) * np.float32(scale)]


def two(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator, float], list[Any]]:
    return lambda rng, scale: [_f(rng, *shape) * np.float32(scale) for shape in shapes]


def positive(*shape: int) -> Callable[[np.random.Generator, float], list[Any]]:
    return lambda rng, scale: [(np.abs(_f(rng, *shape)) + np.float32(0.1)) * np.float32(scale)]


def within(low: float, high: float, *shape: int) -> Callable[..., list[Any]]:
    """In an interval that scaling must not leave: it narrows the values, and never widens them."""
    return lambda rng, scale: [(rng.uniform(low, high, shape) * min(scale, 1.0)).astype(np.float32)]


def _f(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _labels(rng: np.random.Generator, scale: float) -> list[Any]:
    return [_f(rng, 6, 5) * np.float32(scale), rng.integers(0, 5, 6).astype(np.int64)]


def _layer(rng: np.random.Generator, scale: float) -> list[Any]:
    return [_f(rng, 3, 8) * np.float32(scale), _f(rng, 4, 8), _f(rng, 4)]


def _probabilities(rng: np.random.Generator, scale: float) -> list[Any]:
    return [
        rng.uniform(0.05, 0.95, (4, 5)).astype(np.float32),
        rng.uniform(0.05, 0.95, (4, 5)).astype(np.float32),
    ]


def _indices(rng: np.random.Generator, scale: float) -> list[Any]:
    return [_f(rng, 6, 3) * np.float32(scale), rng.integers(0, 6, 4).astype(np.int64)]


def _image_and_kernel(rng: np.random.Generator, scale: float) -> list[Any]:
    return [_f(rng, 2, 3, 6, 6) * np.float32(scale), _f(rng, 4, 3, 3, 3)]


# MindSpore's side as functions with their own source lines, so that jit can compile them


def ms_conv2d(a: Any, w: Any) -> Any:
    return ops.conv2d(a, w, stride=2, pad_mode="pad", padding=1)


def ms_softmax(a: Any) -> Any:
    return ops.softmax(a, axis=1)


def ms_log_softmax(a: Any) -> Any:
    return ops.log_softmax(a, axis=1)


def ms_logsumexp(a: Any) -> Any:
    return ops.logsumexp(a, 1)


def ms_sum(a: Any) -> Any:
    return ops.sum(a, 1)


def ms_mean(a: Any) -> Any:
    return ops.mean(a, 1)


def ms_prod(a: Any) -> Any:
    return ops.prod(a, 1)


def ms_amax(a: Any) -> Any:
    return ops.amax(a, 1)


def ms_amin(a: Any) -> Any:
    return ops.amin(a, 1)


def ms_cumsum(a: Any) -> Any:
    return ops.cumsum(a, 1)


def ms_cumprod(a: Any) -> Any:
    return ops.cumprod(a, 1)


def ms_norm(a: Any) -> Any:
    return ops.norm(a, dim=1)


def ms_clamp(a: Any) -> Any:
    return ops.clamp(a, -0.5, 0.5)


def ms_where(a: Any, b: Any) -> Any:
    return ops.where(a > 0, a, b)


def ms_lerp(a: Any, b: Any) -> Any:
    return ops.lerp(a, b, 0.3)


def ms_permute(a: Any) -> Any:
    return ops.permute(a, (1, 0))


def ms_cat(a: Any, b: Any) -> Any:
    return ops.cat((a, b), 1)


def ms_stack(a: Any, b: Any) -> Any:
    return ops.stack((a, b), 1)


def ms_flip(a: Any) -> Any:
    return ops.flip(a, (0, 1))


def ms_tile(a: Any) -> Any:
    return ops.tile(a, (2, 3))


def ms_tril(a: Any) -> Any:
    return ops.tril(a)


def ms_square_relu(a: Any) -> Any:
    return ops.square(a) + ops.relu(a) * 2


def ms_pad(a: Any) -> Any:
    return ops.pad(a, (1, 2), value=0.5)


def ms_glu(a: Any) -> Any:
    return ops.glu(a, 1)


def ms_elu(a: Any) -> Any:
    return ops.elu(a)


def ms_gelu(a: Any) -> Any:
    return ops.gelu(a)


def ms_index_select(a: Any, i: Any) -> Any:
    return ops.index_select(a, 0, i)


def ms_cross_entropy(a: Any, y: Any) -> Any:
    return ops.cross_entropy(a, y)


def ms_avg_pool(a: Any) -> Any:
    return ops.avg_pool2d(a, 2, 2)


def ms_max_pool(a: Any) -> Any:
    return ops.max_pool2d(a, 2, 2)


def ms_adaptive(a: Any) -> Any:
    return ops.adaptive_avg_pool2d(a, 2)


def ms_pixel_shuffle(a: Any) -> Any:
    return ops.pixel_shuffle(a, 2)


def ms_group_norm(a: Any) -> Any:
    return mint.nn.functional.group_norm(a, 2)


def ms_unsqueeze(a: Any) -> Any:
    return ops.unsqueeze(a, 1)


def ms_broadcast(a: Any) -> Any:
    return ops.broadcast_to(a, (2, 3, 4))


def ms_repeat(a: Any) -> Any:
    return ops.repeat_interleave(a, 2, 0)


AGREE: dict[str, Op] = {
    "abs": Op(torch.abs, ops.abs, x(3, 4)),
    "exp": Op(torch.exp, ops.exp, within(-3, 3, 3, 4)),
    "sin": Op(torch.sin, ops.sin, x(3, 4)),
    "cos": Op(torch.cos, ops.cos, x(3, 4)),
    "tan": Op(torch.tan, ops.tan, within(-1.4, 1.4, 3, 4)),
    "sigmoid": Op(torch.sigmoid, ops.sigmoid, x(3, 4)),
    "sinh": Op(torch.sinh, ops.sinh, within(-3, 3, 3, 4)),
    "cosh": Op(torch.cosh, ops.cosh, within(-3, 3, 3, 4)),
    "atan": Op(torch.atan, ops.atan, x(3, 4)),
    "asinh": Op(torch.asinh, ops.asinh, x(3, 4)),
    "erf": Op(torch.erf, ops.erf, x(3, 4)),
    "erfc": Op(torch.erfc, ops.erfc, within(-2, 2, 3, 4)),
    "expm1": Op(torch.expm1, ops.expm1, within(-2, 2, 3, 4)),
    "neg": Op(torch.neg, ops.neg, x(3, 4)),
    "square": Op(torch.square, ops.square, x(3, 4)),
    "reciprocal": Op(torch.reciprocal, ops.reciprocal, positive(3, 4)),
    "log": Op(torch.log, ops.log, positive(3, 4)),
    "log1p": Op(torch.log1p, ops.log1p, positive(3, 4)),
    "sqrt": Op(torch.sqrt, ops.sqrt, positive(3, 4)),
    "rsqrt": Op(torch.rsqrt, ops.rsqrt, positive(3, 4)),
    "asin": Op(torch.asin, ops.asin, within(-0.9, 0.9, 3, 4)),
    "acos": Op(torch.acos, ops.acos, within(-0.9, 0.9, 3, 4)),
    "atanh": Op(torch.atanh, ops.atanh, within(-0.9, 0.9, 3, 4)),
    "erfinv": Op(torch.erfinv, ops.erfinv, within(-0.9, 0.9, 3, 4)),
    "lgamma": Op(torch.lgamma, ops.lgamma, within(0.5, 5, 3, 4)),
    "floor": Op(torch.floor, ops.floor, x(3, 4)),
    "round": Op(torch.round, ops.round, x(3, 4)),
    "add": Op(torch.add, ops.add, two((3, 4), (3, 4))),
    "sub": Op(torch.sub, ops.sub, two((3, 4), (4,))),
    "mul": Op(torch.mul, ops.mul, two((3, 4), (3, 4))),
    "div": Op(
        torch.div, ops.div, lambda r, s: [_f(r, 3, 4) * np.float32(s), np.abs(_f(r, 3, 4)) + 1]
    ),
    "maximum": Op(torch.maximum, ops.maximum, two((3, 4), (3, 4))),
    "minimum": Op(torch.minimum, ops.minimum, two((3, 4), (3, 4))),
    "atan2": Op(torch.atan2, ops.atan2, two((3, 4), (3, 4))),
    "matmul": Op(torch.matmul, ops.matmul, two((4, 10), (10, 5)), 10),
    "bmm": Op(torch.bmm, ops.bmm, two((2, 3, 6), (2, 6, 4)), 6),
    "outer": Op(torch.outer, ops.outer, two((4,), (5,))),
    "linear": Op(F.linear, ops.dense, _layer, 8),
    "sum": Op(lambda a: a.sum(1), ms_sum, x(4, 50), 50),
    "mean": Op(lambda a: a.mean(1), ms_mean, x(4, 50), 50),
    "prod": Op(lambda a: a.prod(1), ms_prod, within(0.5, 1.5, 4, 6)),
    "amax": Op(lambda a: a.amax(1), ms_amax, x(4, 6)),
    "amin": Op(lambda a: a.amin(1), ms_amin, x(4, 6)),
    "norm": Op(lambda a: torch.linalg.vector_norm(a, dim=1), ms_norm, x(4, 6), 6),
    "logsumexp": Op(lambda a: torch.logsumexp(a, 1), ms_logsumexp, x(4, 6), 6),
    "cumsum": Op(lambda a: a.cumsum(1), ms_cumsum, x(4, 6), 6),
    "cumprod": Op(lambda a: a.cumprod(1), ms_cumprod, within(0.5, 1.5, 4, 6)),
    "clamp": Op(lambda a: a.clamp(-0.5, 0.5), ms_clamp, x(3, 4)),
    "where": Op(lambda a, b: torch.where(a > 0, a, b), ms_where, two((3, 4), (3, 4))),
    "lerp": Op(lambda a, b: torch.lerp(a, b, 0.3), ms_lerp, two((3, 4), (3, 4))),
    "permute": Op(lambda a: a.permute(1, 0), ms_permute, x(3, 4)),
    "cat": Op(lambda a, b: torch.cat((a, b), 1), ms_cat, two((3, 4), (3, 2))),
    "stack": Op(lambda a, b: torch.stack((a, b), 1), ms_stack, two((3, 4), (3, 4))),
    "flip": Op(lambda a: a.flip((0, 1)), ms_flip, x(3, 4)),
    "tile": Op(lambda a: a.tile((2, 3)), ms_tile, x(3, 4)),
    "tril": Op(torch.tril, ms_tril, x(4, 4)),
    "unsqueeze": Op(lambda a: a.unsqueeze(1), ms_unsqueeze, x(3, 4)),
    "broadcast_to": Op(lambda a: torch.broadcast_to(a, (2, 3, 4)), ms_broadcast, x(3, 4)),
    "repeat_interleave": Op(lambda a: a.repeat_interleave(2, 0), ms_repeat, x(3, 4)),
    "pad": Op(lambda a: F.pad(a, (1, 2), value=0.5), ms_pad, x(3, 4)),
    "index_select": Op(lambda a, i: torch.index_select(a, 0, i), ms_index_select, _indices),
    "silu": Op(F.silu, ops.silu, x(3, 4)),
    "mish": Op(F.mish, ops.mish, x(3, 4)),
    "elu": Op(F.elu, ms_elu, x(3, 4)),
    "gelu": Op(F.gelu, ms_gelu, x(3, 4)),
    "softplus": Op(F.softplus, ops.softplus, x(3, 4)),
    "logsigmoid": Op(F.logsigmoid, ops.logsigmoid, x(3, 4)),
    "hardswish": Op(F.hardswish, ops.hardswish, x(3, 4)),
    "relu": Op(F.relu, ops.relu, x(3, 4)),
    "softsign": Op(F.softsign, ops.softsign, x(3, 4)),
    "glu": Op(lambda a: F.glu(a, 1), ms_glu, x(3, 4)),
    "softmax": Op(lambda a: a.softmax(1), ms_softmax, x(3, 8), 8),
    "log_softmax": Op(lambda a: a.log_softmax(1), ms_log_softmax, x(3, 8), 8),
    "conv2d": Op(
        lambda a, w: F.conv2d(a, w, stride=2, padding=1), ms_conv2d, _image_and_kernel, 27
    ),
    "max_pool2d": Op(lambda a: F.max_pool2d(a, 2), ms_max_pool, x(2, 3, 4, 4)),
    "avg_pool2d": Op(lambda a: F.avg_pool2d(a, 2), ms_avg_pool, x(2, 3, 4, 4), 4),
    "adaptive_avg_pool2d": Op(lambda a: F.adaptive_avg_pool2d(a, 2), ms_adaptive, x(2, 3, 4, 4), 4),
    "pixel_shuffle": Op(lambda a: F.pixel_shuffle(a, 2), ms_pixel_shuffle, x(1, 4, 3, 3)),
    "cross_entropy": Op(F.cross_entropy, ms_cross_entropy, _labels, 30),
    "mse_loss": Op(F.mse_loss, ops.mse_loss, two((3, 4), (3, 4)), 12),
    "l1_loss": Op(F.l1_loss, ops.l1_loss, two((3, 4), (3, 4)), 12),
    "binary_cross_entropy": Op(
        F.binary_cross_entropy, ops.binary_cross_entropy, _probabilities, 20
    ),
    "square_relu": Op(lambda a: a.square() + a.relu() * 2, ms_square_relu, x(3, 4)),
    "group_norm": Op(lambda a: F.group_norm(a, 2), ms_group_norm, x(2, 4, 3, 3), 18),
    "Sigmoid": Op(torch.nn.Sigmoid(), nn.Sigmoid(), x(3, 4)),
}

FAST = (
    "exp", "log", "sub", "matmul", "sum", "mean", "logsumexp", "where", "cat", "index_select",
    "gelu", "softmax", "conv2d", "cross_entropy", "group_norm",
)  # fmt: skip

_SWALLOWS = "NaN is swallowed: the comparison in the kernel takes the other branch"
_EMPTY = "refuses an empty batch, PyTorch returns an empty result"
_CANCELS = "digits are lost to cancellation near zero: 1 is added and taken away again"
_OVERFLOWS = "exp of the argument overflows to Inf, and Inf / Inf or log of 0 follows"

KNOWN: dict[str, dict[str, str]] = {
    "relu": {"extreme: NaN": _SWALLOWS},
    "clamp": {"extreme: NaN": _SWALLOWS},
    "max_pool2d": {"extreme: NaN": _SWALLOWS},
    "softmax": {
        "extreme: NaN": "one NaN makes the rest of its row 0, not NaN",
        "extreme: infinite": "Inf - Inf makes one element NaN and the rest of its row 0, not NaN",
    },
    "hardswish": {"extreme: infinite": "-Inf gives 0; by its formula -Inf * 0 is NaN"},
    "expm1": {"extreme: tiny": _CANCELS, "result (pynative)": _CANCELS},
    "log1p": {"extreme: tiny": _CANCELS, "result (pynative)": _CANCELS},
    "elu": {"extreme: tiny": _CANCELS, "result (pynative)": _CANCELS},
    "mish": {"extreme: large": _OVERFLOWS, "result (pynative)": _OVERFLOWS},
    "logsigmoid": {"extreme: large": _OVERFLOWS, "result (pynative)": _OVERFLOWS},
    "erfinv": {"scan from -12 to 12": "0.7 % off where the argument is within 0.005 of 1"},
    "tril": {"extreme: empty": _EMPTY},
    "pad": {"extreme: empty": _EMPTY},
    "avg_pool2d": {"extreme: empty": _EMPTY},
    "adaptive_avg_pool2d": {"extreme: empty": _EMPTY},
    "binary_cross_entropy": {
        "extreme: empty": "the mean of no elements is a number left in memory, not NaN",
        "extreme: tiny": "1e-12 is added inside the logarithm",
    },
}
"""Operator to row to reason. ``result`` rows fail at scale 1e-3 (cancels) or 1e3 (overflows)."""
