"""Indexing, in-place methods, views and reshaping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import ops

from msnb.differences import Observation, Raised, attempt, difference

_X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _torch() -> torch.Tensor:
    return torch.tensor(_X)


def _ms() -> Any:
    return ms.Tensor(_X)


def _after(change: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The torch and the MindSpore tensor after ``change`` was applied to each."""
    x, y = _torch(), _ms()
    change(x)
    change(y)
    return x, y


@difference(
    "numpy-integer-index",
    "A NumPy integer is no index: what `np.argmax` or a loop over `np.arange` gives raises.",
    torch="x[np.int64(0)]",
    mindspore="x[np.int64(0)]",
    expected="raises",
    remedy="x[int(i)]",
)
def numpy_integer_index() -> Observation:
    i = np.int64(1)
    return Observation(
        torch=_torch()[i],
        mindspore=attempt(lambda: _ms()[i]),
        claim=Raised(
            "IndexError", "Unsupported Python object type received: <class 'numpy.int64'>"
        ),
        neighbour=(_torch()[int(i)], _ms()[int(i)]),
    )


@difference(
    "negative-step",
    "A slice may step backwards, as in NumPy; PyTorch refuses.",
    torch="x[::-1]",
    mindspore="x[::-1]",
    expected="accepts",
    remedy="x[::-1] or ops.flip(x, (0,))",
)
def negative_step() -> Observation:
    return Observation(
        torch=attempt(lambda: _torch()[::-1]),
        mindspore=_ms()[::-1],
        claim=_X[::-1],
        neighbour=(_torch()[::2], _ms()[::2]),
    )


@difference(
    "in-place-that-does-nothing",
    "`add_`, `sub_`, `mul_`, `div_`, `remainder_`, `floor_divide_` and `exp_` return the right "
    "value and leave the tensor as it was (PyNative, CPU).",
    torch="x.add_(1)",
    mindspore="x.add_(1)",
    expected="differs",
    remedy="x = x + 1, or x[:] = x + 1 to keep the tensor",
)
def in_place_that_does_nothing() -> Observation:
    names = ("add_", "sub_", "mul_", "div_", "remainder_", "floor_divide_")

    def changed(tensor: Callable[[], Any]) -> list[Any]:
        tensors = [tensor() for _ in names]
        for name, each in zip(names, tensors, strict=True):
            getattr(each, name)(2)
        exponential = tensor()
        exponential.exp_()
        return [*tensors, exponential]

    def copy(x: Any) -> None:
        x.copy_(x + 1)

    return Observation(
        torch=changed(_torch),
        mindspore=changed(_ms),
        claim=[_X] * (len(names) + 1),
        neighbour=_after(copy),
    )


@difference(
    "in-place-without-kernel",
    "`zero_`, `fill_`, `clamp_`, `masked_fill_` and most other in-place methods have no CPU "
    "kernel.",
    torch="x.zero_()",
    mindspore="x.zero_()",
    expected="raises",
    remedy="x[:] = 0",
)
def in_place_without_kernel() -> Observation:
    def assign(x: Any) -> None:
        x[:] = 0

    return Observation(
        torch=_torch().zero_(),
        mindspore=attempt(_ms().zero_),
        claim=Raised("RuntimeError", "The kernel InplaceZero unregistered"),
        neighbour=_after(assign),
    )


@difference(
    "augmented-assignment",
    "`y += 1` binds a new tensor to y: another name of the old one does not see it.",
    torch="y = x; y += 1; x",
    mindspore="y = x; y += 1; x",
    expected="differs",
    remedy="y[:] = y + 1",
)
def augmented_assignment() -> Observation:
    def whole(x: Any) -> None:
        x += 1

    def part(x: Any) -> None:
        x[:] += 1

    x, y = _after(whole)
    return Observation(torch=x, mindspore=y, claim=_X, neighbour=_after(part))


@difference(
    "views-share",
    "Rows, slices, `view`, `reshape`, `T`, `permute`, `split` and `expand` are views in both: "
    "assigning to one changes the source.",
    torch="x.T[0] = 9; x",
    mindspore="x.T[0] = 9; x",
    expected="agrees",
    remedy="x.copy() for a copy",
)
def views_share() -> Observation:
    def view(x: Any) -> None:
        x.T[0] = 9
        x.view(-1)[5] = 8
        x.reshape(3, 2)[1] = 7
        x.split(1)[0][0, 1] = 6

    def flat(x: Any) -> None:
        (torch if isinstance(x, torch.Tensor) else ops).flatten(x)[0] = 9

    x, y = _after(view)
    return Observation(torch=x, mindspore=y, neighbour=_after(flat))  # ops.flatten copies


@difference(
    "mask-assignment",
    "Assigning through a boolean mask agrees, with a number and with one value for each place.",
    torch="x[x > 2] = values",
    mindspore="x[x > 2] = values",
    expected="agrees",
)
def mask_assignment() -> Observation:
    def assign(x: Any) -> None:
        make = torch.tensor if isinstance(x, torch.Tensor) else ms.Tensor
        x[x > 2] = make([7.0, 8.0, 9.0])
        x[x < 1] = -1

    x, y = _after(assign)
    return Observation(
        torch=x,
        mindspore=y,
        claim=np.array([[-1, 1, 2], [7, 8, 9]], np.float32),
        neighbour=(
            _torch().masked_fill_(_torch() > 2, 0),
            attempt(_ms().masked_fill_, _ms() > 2, 0),
        ),
    )


@difference(
    "repeat",
    "`Tensor.repeat` is not there on CPU, in PyTorch's or NumPy's sense.",
    torch="x.repeat(2, 1)",
    mindspore="x.repeat(2, 1)",
    expected="raises",
    remedy="ops.tile(x, (2, 1))",
)
def repeat() -> Observation:
    right = _torch().repeat(2, 1)
    return Observation(
        torch=right,
        mindspore=attempt(_ms().repeat, 2, 1),
        claim=Raised("RuntimeError", "'repeat' is not supported on this device"),
        neighbour=(right, ops.tile(_ms(), (2, 1))),
    )


@difference(
    "diag-of-a-matrix",
    "`ops.diag` of a matrix builds a 4-D tensor with it on the diagonal; PyTorch takes the "
    "diagonal out.",
    torch="torch.diag(matrix)",
    mindspore="ops.diag(matrix)",
    expected="differs",
    remedy="ops.diagonal(matrix)",
)
def diag_of_a_matrix() -> Observation:
    matrix = np.array([[1, 2], [3, 4]], np.float32)
    right = torch.diag(torch.tensor(matrix))
    return Observation(
        torch=right,
        mindspore=ops.diag(ms.Tensor(matrix)),
        claim=np.diag(matrix.ravel()).reshape(2, 2, 2, 2),
        neighbour=(right, ops.diagonal(ms.Tensor(matrix))),
    )


@difference(
    "size-is-a-number",
    "`x.size` is the number of elements, not a method: `x.size()` raises.",
    torch="x.size()",
    mindspore="x.size()",
    expected="raises",
    remedy="x.shape",
)
def size_is_a_number() -> Observation:
    return Observation(
        torch=tuple(_torch().size()),
        mindspore=attempt(lambda: _ms().size()),
        claim=Raised("TypeError", "'int' object is not callable"),
        neighbour=(tuple(_torch().shape), _ms().shape),
    )


@difference(
    "gather-negative-index",
    "Gathering with a negative index counts from the end; PyTorch raises.",
    torch="torch.gather(x, 1, [[-1]])",
    mindspore="ops.gather_elements(x, 1, [[-1]])",
    expected="accepts",
    remedy="(index >= 0).all() before it",
)
def gather_negative_index() -> Observation:
    def both(index: int) -> tuple[Any, Any]:
        return (
            attempt(torch.gather, _torch(), 1, torch.tensor([[index]])),
            attempt(ops.gather_elements, _ms(), 1, ms.Tensor([[index]])),
        )

    x, y = both(-1)
    return Observation(torch=x, mindspore=y, claim=_X[:1, 2:], neighbour=both(3))


@difference(
    "scatter-out-of-range",
    "Scattering to an index out of range does nothing, silently; PyTorch raises.",
    torch="x.scatter(1, [[5]], value)",
    mindspore="x.scatter(1, [[5]], value)",
    expected="accepts",
    remedy="(index < x.shape[1]).all() before it",
)
def scatter_out_of_range() -> Observation:
    def both(index: int) -> tuple[Any, Any]:
        return (
            attempt(_torch().scatter, 1, torch.tensor([[index]]), torch.tensor([[9.0]])),
            attempt(_ms().scatter, 1, ms.Tensor([[index]]), ms.Tensor([[9.0]])),
        )

    x, y = both(5)
    return Observation(torch=x, mindspore=y, claim=_X, neighbour=both(2))


@difference(
    "take-out-of-range",
    "`Tensor.take` cuts an index to the valid range: too large means the last element.",
    torch="x.take([7])",
    mindspore="x.take([7])",
    expected="accepts",
    remedy="(index < x.size).all() before it",
)
def take_out_of_range() -> Observation:
    def both(index: int) -> tuple[Any, Any]:
        return (
            attempt(_torch().take, torch.tensor([index])),
            attempt(_ms().take, ms.Tensor([index])),
        )

    x, y = both(7)
    return Observation(torch=x, mindspore=y, claim=_X.ravel()[-1:], neighbour=both(4))


@difference(
    "one-hot-out-of-range",
    "`ops.one_hot` of a class out of range is a row of zeros; PyTorch raises.",
    torch="F.one_hot([5], 3)",
    mindspore="ops.one_hot([5], 3)",
    expected="accepts",
    remedy="(labels < classes).all() before it",
)
def one_hot_out_of_range() -> Observation:
    def both(label: int) -> tuple[Any, Any]:
        return (
            attempt(F.one_hot, torch.tensor([label]), 3),
            attempt(ops.one_hot, ms.Tensor([label]), 3),
        )

    x, y = both(5)
    return Observation(torch=x, mindspore=y, claim=np.zeros((1, 3), np.int64), neighbour=both(2))


@difference(
    "view-of-a-transpose",
    "`view` of a transposed tensor works, by a copy; PyTorch asks for `reshape`.",
    torch="x.T.view(-1)",
    mindspore="x.T.view(-1)",
    expected="accepts",
    remedy="x.T.reshape(-1)",
)
def view_of_a_transpose() -> Observation:
    return Observation(
        torch=attempt(lambda: _torch().T.view(-1)),
        mindspore=_ms().T.view(-1),
        claim=_X.T.ravel(),
        neighbour=(_torch().T.reshape(-1), _ms().T.reshape(-1)),
    )


@difference(
    "flatten-start",
    "`ops.flatten` keeps the first dimension; `torch.flatten` and `Tensor.flatten` keep none.",
    torch="torch.flatten(x)",
    mindspore="ops.flatten(x)",
    expected="differs",
    remedy="x.flatten() or ops.flatten(x, start_dim=0)",
)
def flatten_start() -> Observation:
    x, y = _torch().reshape(2, 3, 1), _ms().reshape(2, 3, 1)
    return Observation(
        torch=torch.flatten(x),
        mindspore=ops.flatten(y),
        claim=_X,
        neighbour=(torch.flatten(x), y.flatten()),
    )


@difference(
    "transpose-two-axes",
    "`ops.transpose` takes a permutation, not two axes to swap; the method takes both.",
    torch="torch.transpose(x, 0, 1)",
    mindspore="ops.transpose(x, 0, 1)",
    expected="raises",
    remedy="x.transpose(0, 1) or ops.swapaxes(x, 0, 1)",
)
def transpose_two_axes() -> Observation:
    right = torch.transpose(_torch(), 0, 1)
    return Observation(
        torch=right,
        mindspore=attempt(ops.transpose, _ms(), 0, 1),
        claim=Raised("TypeError", "takes 2 positional arguments but 3 were given"),
        neighbour=(right, _ms().transpose(0, 1)),
    )


@difference(
    "clone",
    "`Tensor.clone` has no CPU kernel.",
    torch="x.clone()",
    mindspore="x.clone()",
    expected="raises",
    remedy="x.copy()",
)
def clone() -> Observation:
    return Observation(
        torch=_torch().clone(),
        mindspore=attempt(_ms().clone),
        claim=Raised("RuntimeError", "The kernel Clone unregistered"),
        neighbour=(_torch().clone(), _ms().copy()),
    )


@difference(
    "roll",
    "`ops.roll` has no CPU kernel.",
    torch="torch.roll(x, 1, 0)",
    mindspore="ops.roll(x, 1, 0)",
    expected="raises",
    remedy="ms.numpy.roll(x, 1, 0)",
)
def roll() -> Observation:
    right = torch.roll(_torch(), 1, 0)
    return Observation(
        torch=right,
        mindspore=attempt(ops.roll, _ms(), 1, 0),
        claim=Raised("RuntimeError", "The kernel Roll unregistered"),
        neighbour=(right, ms.numpy.roll(_ms(), 1, 0)),
    )


@difference(
    "meshgrid-order",
    "`ops.meshgrid` counts x first by default, as NumPy does: the grids are PyTorch's transposed.",
    torch='torch.meshgrid(x, y), which is indexing="ij"',
    mindspore="ops.meshgrid(x, y)",
    expected="differs",
    remedy='ops.meshgrid(x, y, indexing="ij")',
)
def meshgrid_order() -> Observation:
    a, b = np.array([1, 2]), np.array([3, 4, 5])
    right = tuple(torch.meshgrid(torch.tensor(a), torch.tensor(b), indexing="ij"))
    x, y = ms.Tensor(a), ms.Tensor(b)
    return Observation(
        torch=right,
        mindspore=ops.meshgrid(x, y),
        claim=tuple(np.meshgrid(a, b)),
        neighbour=(right, ops.meshgrid(x, y, indexing="ij")),
    )


@difference(
    "where-with-a-condition-only",
    "`ops.where(condition)` is refused; PyTorch returns the indices.",
    torch="torch.where(x > 2)",
    mindspore="ops.where(x > 2)",
    expected="raises",
    remedy="ops.nonzero(x > 2), one row an element",
)
def where_with_a_condition_only() -> Observation:
    condition = _torch() > 2
    return Observation(
        torch=torch.where(condition),
        mindspore=attempt(ops.where, _ms() > 2),
        claim=Raised("TypeError", "missing 2 required positional arguments: 'input' and 'other'"),
        neighbour=(torch.nonzero(condition), ops.nonzero(_ms() > 2)),
    )
