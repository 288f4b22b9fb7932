"""Reductions, extremes and order: ddof, empty inputs, NaN, infinities, and what is returned."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import ops

from msnb.differences import Observation, Raised, attempt, difference

_X = np.array([[1, 2, 4], [3, 9, 1]], np.float32)
_NAN = float("nan")
_INF = float("inf")


@difference(
    "std-ddof",
    "`std` and `var` divide by n, PyTorch by n - 1; of one number they give 0, PyTorch NaN.",
    torch="x.std()",
    mindspore="x.std() or ops.std(x)",
    expected="differs",
    remedy="x.std(ddof=1) or ops.std(x, ddof=1)",
)
def std_ddof() -> Observation:
    x, y = torch.tensor(_X), ms.Tensor(_X)
    return Observation(
        torch=(x.std(), x.var()),
        mindspore=(y.std(), ops.var(y)),
        claim=(np.std(_X), np.var(_X)),
        neighbour=((x.std(), x.var()), (y.std(ddof=1), ops.var(y, ddof=1))),
    )


@difference(
    "max-returns-a-pair",
    "`ops.max(x)` without an axis returns a pair, the maximum and always 0 as its index.",
    torch="torch.max(x)",
    mindspore="ops.max(x)",
    expected="differs",
    remedy="x.max()",
)
def max_returns_a_pair() -> Observation:
    x, y = torch.tensor(_X), ms.Tensor(_X)
    return Observation(
        torch=torch.max(x),
        mindspore=ops.max(y),
        claim=(np.max(_X), np.int64(0)),
        neighbour=(torch.max(x), y.max()),
    )


@difference(
    "max-keyword-decides",
    "`x.max(1)` returns values and indices as in PyTorch; `x.max(axis=1)` the values only.",
    torch="x.max(1)",
    mindspore="x.max(axis=1)",
    expected="differs",
    remedy="x.max(1) or x.max(dim=1)",
)
def max_keyword_decides() -> Observation:
    right = tuple(torch.tensor(_X).max(1))
    return Observation(
        torch=right,
        mindspore=ms.Tensor(_X).max(axis=1),
        claim=_X.max(axis=1),
        neighbour=(right, ms.Tensor(_X).max(1)),
    )


@difference(
    "median-returns-a-pair",
    "`x.median()` returns the value and its index; PyTorch returns the value, the lower of the two "
    "in the middle, as MindSpore does.",
    torch="x.median()",
    mindspore="x.median()",
    expected="differs",
    remedy="x.median()[0]",
)
def median_returns_a_pair() -> Observation:
    values = np.array([4, 1, 3, 2], np.float32)
    x, y = torch.tensor(values), ms.Tensor(values)
    return Observation(
        torch=x.median(),
        mindspore=y.median(),
        claim=(np.float32(2), np.int64(3)),
        neighbour=(tuple(x.median(0)), y.median(0)),
    )


@difference(
    "nan-in-maximum-of-a-tensor",
    "max and min skip a NaN, unless it comes first: then the result is NaN.",
    torch="torch.tensor([1, nan, 2]).max()",
    mindspore="Tensor([1, nan, 2]).max()",
    expected="off",
    remedy="ops.isnan(x).any() first",
)
def nan_in_maximum_of_a_tensor() -> Observation:
    def both(values: list[float]) -> tuple[Any, Any]:
        x, y = torch.tensor(values), ms.Tensor(values)
        return (x.max(), x.min()), (y.max(), y.min())

    x, y = both([1.0, _NAN, 2.0])
    return Observation(
        torch=x,
        mindspore=y,
        claim=(np.float32(2), np.float32(1)),
        right=(np.float32(_NAN), np.float32(_NAN)),  # numpy.max and IEEE 754-2019 maximum
        neighbour=both([_NAN, 1.0, 2.0]),
    )


@difference(
    "nan-in-elementwise-maximum",
    "`ops.maximum(nan, 1)` is 1 and `ops.maximum(1, nan)` is NaN: the second operand wins.",
    torch="torch.maximum(nan, 1)",
    mindspore="ops.maximum(nan, 1)",
    expected="off",
    remedy="ops.where(ops.isnan(x), x, ops.maximum(x, y))",
)
def nan_in_elementwise_maximum() -> Observation:
    a, b = np.array([_NAN, 1], np.float32), np.array([1, _NAN], np.float32)
    right = torch.maximum(torch.tensor(a), torch.tensor(b))
    x, y = ms.Tensor(a), ms.Tensor(b)
    return Observation(
        torch=right,
        mindspore=ops.maximum(x, y),
        claim=np.where(a > b, a, b),
        right=np.maximum(a, b),
        neighbour=(right, ops.where(ops.isnan(x), x, ops.maximum(x, y))),
    )


@difference(
    "nan-in-clamp",
    "clamp and relu turn NaN into a number (the lower bound, 0): a diverged net looks healthy.",
    torch="torch.clamp(nan, 0, 1)",
    mindspore="ops.clamp(nan, 0, 1)",
    expected="off",
    remedy="ops.isnan(x).any() before the clamp",
)
def nan_in_clamp() -> Observation:
    x, y = torch.tensor([_NAN]), ms.Tensor([_NAN])
    return Observation(
        torch=(torch.clamp(x, 0, 1), torch.relu(x)),
        mindspore=(ops.clamp(y, 0, 1), ops.relu(y)),
        claim=(np.array([0], np.float32), np.array([0], np.float32)),
        right=(
            np.clip(np.array([_NAN], np.float32), 0, 1),
            np.maximum(np.array([_NAN], np.float32), 0),
        ),
        neighbour=(torch.nn.functional.relu6(x), ops.relu6(y)),
    )


@difference(
    "nan-in-sort",
    "One NaN leaves `ops.sort` unsorted; PyTorch and NumPy put NaN last.",
    torch="torch.sort([1, nan, 0])",
    mindspore="ops.sort([1, nan, 0])",
    expected="off",
    remedy="ops.sort(ops.nan_to_num(x, nan=float('inf')))",
)
def nan_in_sort() -> Observation:
    def both(last: float) -> tuple[Any, Any]:
        values = [1.0, last, 0.0]
        return torch.tensor(values).sort()[0], ops.sort(ms.Tensor(values))[0]

    x, y = both(_NAN)
    return Observation(
        torch=x,
        mindspore=y,
        claim=np.array(
            [1, _NAN, 0], np.float32
        ),  # every comparison with NaN is false: nothing moves
        right=np.sort(np.array([1, _NAN, 0], np.float32)),
        neighbour=both(_INF),
    )


@difference(
    "unique-keeps-order",
    "`ops.unique` returns a pair, values in the order of appearance and the inverse; PyTorch "
    "returns the sorted values.",
    torch="torch.unique(x)",
    mindspore="ops.unique(x)",
    expected="differs",
    remedy="ops.sort(ops.unique(x)[0])[0]",
)
def unique_keeps_order() -> Observation:
    values = [3, 1, 3, 2]
    x, y = torch.tensor(values), ms.Tensor(values)
    return Observation(
        torch=torch.unique(x),
        mindspore=ops.unique(y),
        claim=(np.array(list(dict.fromkeys(values))), np.array([0, 1, 0, 2])),
        neighbour=(torch.unique(x), ops.sort(ops.unique(y)[0])[0]),
    )


@difference(
    "norm-of-a-matrix",
    "`ops.norm(matrix, 2)` is the largest singular value, as in `torch.linalg.norm`; "
    "`torch.norm(matrix, 2)` is the root of the sum of squares.",
    torch="torch.norm(matrix, 2)",
    mindspore="ops.norm(matrix, 2)",
    expected="differs",
    remedy="ops.norm(matrix)",
)
def norm_of_a_matrix() -> Observation:
    right = torch.norm(torch.tensor(_X), 2)
    return Observation(
        torch=right,
        mindspore=ops.norm(ms.Tensor(_X), 2),
        claim=np.linalg.svd(_X)[1][0],
        neighbour=(right, ops.norm(ms.Tensor(_X))),
    )


@difference(
    "gradient-of-norm-at-zero",
    "The gradient of the norm at zero is NaN (0/0); PyTorch defines it as 0.",
    torch="grad of torch.norm at zeros",
    mindspore="grad of ops.norm at zeros",
    expected="differs",
    remedy="ops.sqrt((x * x).sum() + 1e-12)",
)
def gradient_of_norm_at_zero() -> Observation:
    def norm(x: Any) -> Any:
        return ops.norm(x)

    def both(values: list[float]) -> tuple[Any, Any]:
        x = torch.tensor(values, requires_grad=True)
        return torch.autograd.grad(x.norm(), x)[0], ms.grad(norm)(ms.Tensor(values))

    x, y = both([0.0, 0.0])
    return Observation(
        torch=x, mindspore=y, claim=np.array([_NAN, _NAN], np.float32), neighbour=both([3.0, 4.0])
    )


@difference(
    "logsumexp-of-infinities",
    "`ops.logsumexp` is NaN when the largest term is infinite: a fully masked row gives NaN "
    "instead of -inf.",
    torch="torch.logsumexp([-inf, -inf], 0)",
    mindspore="ops.logsumexp([-inf, -inf], 0)",
    expected="off",
    remedy="mask with -1e4, not with -inf",
)
def logsumexp_of_infinities() -> Observation:
    def both(value: float) -> tuple[Any, Any]:
        values = [value, value]
        return torch.logsumexp(torch.tensor(values), 0), ops.logsumexp(ms.Tensor(values), 0)

    x, y = both(-_INF)
    return Observation(
        torch=x,
        mindspore=y,
        claim=np.float32(_NAN),  # -inf - (-inf) in the shift by the maximum
        right=np.float32(np.logaddexp(-_INF, -_INF)),
        neighbour=both(-1e4),
    )


@difference(
    "sum-of-nothing",
    "The sum of an empty tensor is whatever lay in that memory, not 0: the kernel does not run.",
    torch="torch.zeros(0).sum() == 0",
    mindspore="ops.zeros((0,)).sum() == 0",
    expected="off",
    remedy="x.sum() if x.size else ms.Tensor(0.0)",
)
def sum_of_nothing() -> Observation:
    def zeros(empty: Any, one: Any) -> tuple[bool, bool]:
        kept = [one([float(value)]).sum() for value in range(1, 33)]
        for scalar in kept:
            float(scalar)  # it is computed
        del scalar
        kept.clear()  # and its memory, not zero, goes back to the pool
        return all(float(empty().sum()) == 0 for _ in range(8)), float(one([0.0]).sum()) == 0

    x = zeros(lambda: torch.zeros(0), torch.tensor)
    y = zeros(lambda: ops.zeros((0,)), ms.Tensor)
    return Observation(torch=x[0], mindspore=y[0], claim=False, right=True, neighbour=(x[1], y[1]))


@difference(
    "cumsum-of-bool",
    "`ops.cumsum` refuses a bool tensor; PyTorch counts in int64.",
    torch="torch.cumsum(mask, 0)",
    mindspore="ops.cumsum(mask, 0)",
    expected="raises",
    remedy="ops.cumsum(mask.astype(ms.int64), 0)",
)
def cumsum_of_bool() -> Observation:
    right = torch.tensor([True, True]).cumsum(0)
    mask = ms.Tensor([True, True])
    return Observation(
        torch=right,
        mindspore=attempt(ops.cumsum, mask, 0),
        claim=Raised("TypeError", "For primitive[CumSum], the input argument[x] must be a type of"),
        neighbour=(right, ops.cumsum(mask.astype(ms.int64), 0)),
    )


@difference(
    "ties-in-argmax",
    "Of equal elements argmax returns the first, in both frameworks; the dtype is int64 as well.",
    torch="torch.argmax([1, 3, 3])",
    mindspore="ops.argmax([1, 3, 3])",
    expected="agrees",
)
def ties_in_argmax() -> Observation:
    values = np.array([1] + [3] * 40 + [2], np.float32)
    x, y = torch.tensor(values), ms.Tensor(values)
    return Observation(
        torch=x.argmax(),
        mindspore=ops.argmax(y),
        claim=np.int64(1),
        neighbour=(x.argmin(), ops.argmin(y)),  # int32
    )


@difference(
    "quantile",
    "`ops.quantile` has no CPU kernel.",
    torch="torch.quantile(x, 0.3)",
    mindspore="ops.quantile(x, 0.3)",
    expected="raises",
    remedy="ms.Tensor(np.quantile(x.asnumpy(), 0.3).astype(np.float32))",
)
def quantile() -> Observation:
    x, y = torch.tensor([1.0, 2.0, 3.0, 4.0]), ms.Tensor([1.0, 2.0, 3.0, 4.0])
    right = torch.quantile(x, 0.3)
    return Observation(
        torch=right,
        mindspore=attempt(ops.quantile, y, 0.3),
        claim=Raised("RuntimeError", "Kernel select failed"),
        neighbour=(right, ms.Tensor(np.quantile(y.asnumpy(), 0.3).astype(np.float32))),
    )


@difference(
    "dot-of-vectors",
    "`ops.dot` wants two dimensions or more: vectors are refused.",
    torch="torch.dot(x, y)",
    mindspore="ops.dot(x, y)",
    expected="raises",
    remedy="ops.inner(x, y) or (x * y).sum()",
)
def dot_of_vectors() -> Observation:
    a, b = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
    right = torch.dot(torch.tensor(a), torch.tensor(b))
    x, y = ms.Tensor(a), ms.Tensor(b)
    return Observation(
        torch=right,
        mindspore=attempt(ops.dot, x, y),
        claim=Raised("ValueError", "should have \\'dimension >= 2\\'"),
        neighbour=(right, ops.inner(x, y)),
    )
