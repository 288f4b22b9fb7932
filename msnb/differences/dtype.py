"""Dtypes and scalars: promotion, integer arithmetic, NumPy operands, shared memory."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import ops

from msnb.differences import Observation, Raised, attempt, difference


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.").lower()


def _type(value: Any) -> str:
    return type(value).__name__


@difference(
    "mean-of-integers",
    "The mean of an integer tensor is an integer, cut toward zero; PyTorch refuses to guess.",
    torch="torch.tensor([1, 2]).mean()",
    mindspore="Tensor([1, 2]).mean()",
    expected="accepts",
    remedy="x.astype(ms.float32).mean()",
)
def mean_of_integers() -> Observation:
    return Observation(
        torch=attempt(torch.tensor([1, 2]).mean),
        mindspore=ms.Tensor([1, 2]).mean(),
        claim=np.int64(1.5),
        neighbour=(torch.tensor([1.0, 2.0]).mean(), ms.Tensor([1.0, 2.0]).mean()),
    )


@difference(
    "numpy-scalar-first",
    "`np.float32(2) * x` leaves MindSpore: the result is a NumPy array, and no gradient flows.",
    torch="np.float32(2) * x",
    mindspore="np.float32(2) * x",
    expected="differs",
    remedy="x * np.float32(2)",
    since="2.8",
    before="`np.float32(2) * x` raises TypeError: Failed calling Mul.",
)
def numpy_scalar_first() -> Observation:
    two, x, y = np.float32(2), torch.tensor([1.0, 2.0]), ms.Tensor([1.0, 2.0])
    return Observation(
        torch=_type(two * x),
        mindspore=_type(two * y),
        claim="ndarray",
        neighbour=(_type(x * two), _type(y * two)),
    )


@difference(
    "add-numpy-array",
    "A tensor and a NumPy array do not add: `x + array` raises.",
    torch="x + array",
    mindspore="x + array",
    expected="raises",
    remedy="x + ms.from_numpy(array)",
)
def add_numpy_array() -> Observation:
    array = np.array([3, 4], np.float32)
    x, y = torch.tensor([1.0, 2.0]), ms.Tensor([1.0, 2.0])
    return Observation(
        torch=x + array,
        mindspore=attempt(lambda: y + array),
        claim=Raised("TypeError", "Failed calling Add with"),
        neighbour=(x + array, y + ms.from_numpy(array.copy())),
    )


@difference(
    "full-is-integer",
    "`ops.full` without `dtype` makes int64 and drops the fraction.",
    torch="torch.full((2,), 3.5)",
    mindspore="ops.full((2,), 3.5)",
    expected="differs",
    remedy="ops.full((2,), 3.5, dtype=ms.float32)",
)
def full_is_integer() -> Observation:
    return Observation(
        torch=torch.full((2,), 3.5),
        mindspore=ops.full((2,), 3.5),
        claim=np.array([3, 3], np.int64),
        neighbour=(torch.full((2,), 3.5), ops.full((2,), 3.5, dtype=ms.float32)),
    )


@difference(
    "index-dtypes",
    "Indices come as int32 from argmin, argsort, sort, topk and count_nonzero; from argmax and "
    "nonzero as int64, the dtype of PyTorch.",
    torch="torch.argmin(x).dtype",
    mindspore="ops.argmin(x).dtype",
    expected="differs",
    remedy="ops.argmin(x).astype(ms.int64)",
)
def index_dtypes() -> Observation:
    x, y = torch.tensor([1.0, 3.0, 2.0]), ms.Tensor([1.0, 3.0, 2.0])
    return Observation(
        torch=[
            _dtype(index)
            for index in (x.argmin(), x.argsort(), x.sort()[1], x.topk(2)[1], x.count_nonzero())
        ],
        mindspore=[
            _dtype(index)
            for index in (
                ops.argmin(y),
                ops.argsort(y),
                ops.sort(y)[1],
                ops.topk(y, 2)[1],
                ops.count_nonzero(y),
            )
        ],
        claim=["int32"] * 5,
        neighbour=(
            [_dtype(x.argmax()), _dtype(x.nonzero())],
            [_dtype(ops.argmax(y)), _dtype(ops.nonzero(y))],
        ),
    )


@difference(
    "bincount-is-float",
    "`ops.bincount` counts in float32.",
    torch="torch.bincount(x)",
    mindspore="ops.bincount(x)",
    expected="differs",
    remedy="ops.bincount(x).astype(ms.int64)",
)
def bincount_is_float() -> Observation:
    x, y = torch.tensor([1, 1, 2]), ms.Tensor([1, 1, 2])
    return Observation(
        torch=torch.bincount(x),
        mindspore=ops.bincount(y),
        claim=np.array([0, 2, 1], np.float32),
        neighbour=(torch.bincount(x), ops.bincount(y).astype(ms.int64)),
    )


@difference(
    "cumsum-wraps",
    "`ops.cumsum` keeps a small integer dtype and wraps around; PyTorch widens to int64.",
    torch="torch.cumsum(int8, 0)",
    mindspore="ops.cumsum(int8, 0)",
    expected="differs",
    remedy="ops.cumsum(x, 0, dtype=ms.int64)",
)
def cumsum_wraps() -> Observation:
    x = np.array([100, 100], np.int8)
    right = torch.cumsum(torch.tensor(x), 0)
    return Observation(
        torch=right,
        mindspore=ops.cumsum(ms.Tensor(x), 0),
        claim=np.array([100, 200 - 256], np.int8),
        neighbour=(right, ops.cumsum(ms.Tensor(x), 0, dtype=ms.int64)),
    )


@difference(
    "reduce-sum-of-bool",
    "The primitive `ops.ReduceSum` of a bool tensor is a bool: it says whether any is true.",
    torch="torch.sum(mask)",
    mindspore="ops.ReduceSum()(mask)",
    expected="differs",
    remedy="ops.sum(mask) or mask.sum()",
)
def reduce_sum_of_bool() -> Observation:
    mask = np.array([True, True, False])
    right = torch.tensor(mask).sum()
    return Observation(
        torch=right,
        mindspore=ops.ReduceSum()(ms.Tensor(mask)),
        claim=np.any(mask),
        neighbour=(right, ops.sum(ms.Tensor(mask))),
    )


@difference(
    "zero-dim-promotes",
    "A 0-d tensor takes part in promotion like any other; in PyTorch it yields to a tensor with "
    "dimensions.",
    torch="float32_vector + float64_scalar_tensor",
    mindspore="float32_vector + float64_scalar_tensor",
    expected="differs",
    remedy="x + scalar.item()",
)
def zero_dim_promotes() -> Observation:
    x, y = torch.tensor([1.0]), ms.Tensor([1.0])
    return Observation(
        torch=_dtype(x + torch.tensor(1.0, dtype=torch.float64)),
        mindspore=_dtype(y + ms.Tensor(1.0, ms.float64)),
        claim="float64",
        neighbour=(_dtype(x + 1.5), _dtype(y + 1.5)),
    )


@difference(
    "class-constructor",
    "`Tensor([1, 2])` keeps integers, as `torch.tensor` does; `torch.Tensor` makes float32.",
    torch="torch.Tensor([1, 2])",
    mindspore="ms.Tensor([1, 2])",
    expected="differs",
    remedy="ms.Tensor([1, 2], ms.float32)",
)
def class_constructor() -> Observation:
    return Observation(
        torch=torch.Tensor([1, 2]),
        mindspore=ms.Tensor([1, 2]),
        claim=np.array([1, 2], np.int64),
        neighbour=(torch.tensor([1, 2]), ms.Tensor([1, 2])),
    )


@difference(
    "list-of-numpy-scalars",
    "A list of `np.float64` becomes float32; an array of them stays float64, as in PyTorch.",
    torch="torch.tensor([np.float64(1.5)])",
    mindspore="ms.Tensor([np.float64(1.5)])",
    expected="differs",
    remedy="ms.Tensor(np.array(values))",
)
def list_of_numpy_scalars() -> Observation:
    values = [np.float64(1.5)]
    return Observation(
        torch=torch.tensor(values),
        mindspore=ms.Tensor(values),
        claim=np.array([1.5], np.float32),
        neighbour=(torch.tensor(np.array(values)), ms.Tensor(np.array(values))),
    )


@difference(
    "complex-list",
    "A list of complex numbers becomes complex128; in PyTorch complex64.",
    torch="torch.tensor([1 + 2j])",
    mindspore="ms.Tensor([1 + 2j])",
    expected="differs",
    remedy="ms.Tensor(np.array([1 + 2j], np.complex64))",
)
def complex_list() -> Observation:
    narrow = np.array([1 + 2j], np.complex64)
    return Observation(
        torch=torch.tensor([1 + 2j]),
        mindspore=ms.Tensor([1 + 2j]),
        claim=np.array([1 + 2j], np.complex128),
        neighbour=(torch.tensor([1 + 2j]), ms.Tensor(narrow)),
    )


@difference(
    "integer-division-by-zero",
    "Integer division by zero gives the largest int64 and no error.",
    torch="torch.tensor([1]) // torch.tensor([0])",
    mindspore="Tensor([1]) // Tensor([0])",
    expected="accepts",
    remedy="test the divisor first",
)
def integer_division_by_zero() -> Observation:
    def floor(module: Any, divisor: Any) -> Any:
        return attempt(lambda: module([1]) // module([divisor]))

    return Observation(
        torch=floor(torch.tensor, 0),
        mindspore=floor(ms.Tensor, 0),
        claim=np.array([np.iinfo(np.int64).max]),
        neighbour=(floor(torch.tensor, 2), floor(ms.Tensor, 2)),
    )


@difference(
    "negative-integer-power",
    "An integer to a negative power is 0, not an error.",
    torch="torch.tensor([2]) ** -1",
    mindspore="Tensor([2]) ** -1",
    expected="accepts",
    remedy="x.astype(ms.float32) ** -1",
)
def negative_integer_power() -> Observation:
    return Observation(
        torch=attempt(lambda: torch.tensor([2]) ** -1),
        mindspore=ms.Tensor([2]) ** -1,
        claim=np.array([0]),
        neighbour=(torch.tensor([2.0]) ** -1, ms.Tensor([2.0]) ** -1),
    )


@difference(
    "subtract-bool",
    "Bool tensors subtract, as exclusive or; PyTorch refuses.",
    torch="mask - other_mask",
    mindspore="mask - other_mask",
    expected="accepts",
    remedy="ops.logical_xor(mask, other_mask)",
)
def subtract_bool() -> Observation:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    return Observation(
        torch=attempt(lambda: torch.tensor(a) - torch.tensor(b)),
        mindspore=ms.Tensor(a) - ms.Tensor(b),
        claim=a ^ b,
        neighbour=(
            torch.logical_xor(torch.tensor(a), torch.tensor(b)),
            ops.logical_xor(ms.Tensor(a), ms.Tensor(b)),
        ),
    )


@difference(
    "functions-of-integers",
    "exp, log, sin, tanh and sigmoid refuse integers; PyTorch computes them in float32.",
    torch="torch.exp(torch.tensor([1]))",
    mindspore="ops.exp(Tensor([1]))",
    expected="raises",
    remedy="ops.exp(x.astype(ms.float32))",
)
def functions_of_integers() -> Observation:
    x, y = torch.tensor([1]), ms.Tensor([1])
    return Observation(
        torch=torch.exp(x),
        mindspore=attempt(ops.exp, y),
        claim=Raised("TypeError", "Select CPU operator[Exp] fail! Unsupported data type!"),
        neighbour=(torch.sqrt(x), ops.sqrt(y)),
    )


@difference(
    "cat-mixed-dtypes",
    "`ops.cat` of an integer and a float tensor raises; PyTorch promotes.",
    torch="torch.cat([int64, float32])",
    mindspore="ops.cat([int64, float32])",
    expected="raises",
    remedy="ops.cat([x.astype(ms.float32), y])",
)
def cat_mixed_dtypes() -> Observation:
    right = torch.cat([torch.tensor([1]), torch.tensor([1.5])])
    x, y = ms.Tensor([1]), ms.Tensor([1.5])
    return Observation(
        torch=right,
        mindspore=attempt(ops.cat, [x, y]),
        claim=Raised("RuntimeError", "KernelMod Init Failed: Concat"),
        neighbour=(right, ops.cat([x.astype(ms.float32), y])),
    )


@difference(
    "asnumpy-is-a-view",
    "`asnumpy()` is a view like PyTorch's `numpy()`: writing to it changes the tensor.",
    torch="x.numpy()[0] = 9",
    mindspore="x.asnumpy()[0] = 9",
    expected="agrees",
    remedy="x.asnumpy().copy()",
)
def asnumpy_is_a_view() -> Observation:
    x, y, kept = torch.tensor([1.0, 2.0]), ms.Tensor([1.0, 2.0]), ms.Tensor([1.0, 2.0])
    x.numpy()[0] = 9
    y.asnumpy()[0] = 9
    kept.asnumpy().copy()[0] = 9
    return Observation(
        torch=x, mindspore=y, claim=np.array([9, 2], np.float32), neighbour=(x, kept)
    )


@difference(
    "from-numpy-shares",
    "`ms.from_numpy` shares the array's memory, as `torch.from_numpy` does; `ms.Tensor(array)` "
    "copies.",
    torch="torch.from_numpy(array)",
    mindspore="ms.from_numpy(array)",
    expected="agrees",
    remedy="ms.Tensor(array), for a copy",
)
def from_numpy_shares() -> Observation:
    array = np.array([1, 2], np.float32)
    x, y, kept = torch.from_numpy(array), ms.from_numpy(array), ms.Tensor(array)
    array[0] = 9
    return Observation(
        torch=x, mindspore=y, claim=np.array([9, 2], np.float32), neighbour=(x, kept)
    )
