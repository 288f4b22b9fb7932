"""Gradient clipping and accumulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]

FIRST = np.array([3.0, 4.0], np.float32)
SECOND = np.array([[1.0, 2.0], [2.0, 4.0]], np.float32)  # both together have the norm sqrt(50)


def in_torch(grads: Sequence[Array], limit: float, norm_type: float = 2.0) -> tuple[Any, ...]:
    parameters = [torch.nn.Parameter(torch.zeros(grad.shape)) for grad in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = torch.tensor(grad)
    torch.nn.utils.clip_grad_norm_(parameters, limit, norm_type)
    return tuple(parameter.grad for parameter in parameters)


def tensors(grads: Sequence[Array]) -> tuple[Any, ...]:
    return tuple(ms.Tensor(grad) for grad in grads)


@difference(
    "global-norm",
    "`ops.clip_by_global_norm` gives what PyTorch's clip_grad_norm_ gives, for ordinary gradients; "
    "it returns them and changes nothing in place.",
    torch="clip_grad_norm_(params, 1.0)",
    mindspore="grads = ops.clip_by_global_norm(grads, 1.0)",
    expected="agrees",
)
def global_norm() -> Observation:
    grads = (FIRST, SECOND)
    reference = in_torch(grads, 1.0)
    each = tuple(ops.clip_by_norm(ms.Tensor(grad), 1.0) for grad in grads)
    return Observation(
        torch=reference,
        mindspore=ops.clip_by_global_norm(tensors(grads), 1.0),
        neighbour=(reference, each),  # each by its own norm
    )


@difference(
    "global-norm-epsilon",
    "PyTorch adds 1e-6 to the norm before it divides, `ops.clip_by_global_norm` does not: it shows "
    "for gradients below 1e-5.",
    torch="clip_grad_norm_(params, 1e-7)",
    mindspore="ops.clip_by_global_norm(grads, 1e-7)",
    expected="differs",
    remedy="ops.clip_by_norm(grads, 1e-7)",
)
def global_norm_epsilon() -> Observation:
    grads = (FIRST * np.float32(1e-7), SECOND * np.float32(1e-7))
    reference = in_torch(grads, 1e-7)
    norm = np.sqrt(sum(float((grad.astype(np.float64) ** 2).sum()) for grad in grads))
    return Observation(
        torch=reference,
        mindspore=ops.clip_by_global_norm(tensors(grads), 1e-7),
        claim=tuple((grad * (1e-7 / norm)).astype(np.float32) for grad in grads),
        neighbour=(reference, tuple(ops.clip_by_norm(list(tensors(grads)), 1e-7))),
    )


@difference(
    "clip-by-norm-of-a-list",
    "`ops.clip_by_norm` of a list is clip_grad_norm_, 1e-6 included; it takes other norms too.",
    torch="clip_grad_norm_(params, 1.0, norm_type=1.0)",
    mindspore="ops.clip_by_norm(grads, 1.0, norm_type=1.0)",
    expected="agrees",
)
def clip_by_norm_of_a_list() -> Observation:
    grads = (FIRST, SECOND)
    seen = tuple(ops.clip_by_norm(list(tensors(grads)), 1.0, 1.0))
    return Observation(
        torch=in_torch(grads, 1.0, 1.0),
        mindspore=seen,
        neighbour=(in_torch(grads, 1.0, 2.0), seen),
    )


@difference(
    "nan-hides",
    "One NaN makes all gradients NaN in PyTorch. Here it switches the clipping off: every gradient "
    "comes back as it was.",
    torch="clip_grad_norm_(params, 1.0)",
    mindspore="ops.clip_by_global_norm(grads, 1.0)",
    expected="differs",
    remedy="assert all(bool(ops.isfinite(g).all()) for g in grads)",
)
def nan_hides() -> Observation:
    poisoned = (np.array([np.nan, 4.0], np.float32), SECOND)
    healthy = (FIRST, SECOND)
    return Observation(
        torch=in_torch(poisoned, 1.0),
        mindspore=ops.clip_by_global_norm(tensors(poisoned), 1.0),
        claim=poisoned,
        neighbour=(in_torch(healthy, 1.0), ops.clip_by_global_norm(tensors(healthy), 1.0)),
    )


@difference(
    "clip-to-zero",
    "`ops.clip_by_global_norm` refuses a limit of 0, with which PyTorch stops all movement.",
    torch="clip_grad_norm_(params, 0.0)",
    mindspore="ops.clip_by_global_norm(grads, 0.0)",
    expected="raises",
    remedy="ops.clip_by_norm(grads, 0.0)",
)
def clip_to_zero() -> Observation:
    grads = (FIRST, SECOND)
    reference = in_torch(grads, 0.0)
    return Observation(
        torch=reference,
        mindspore=attempt(ops.clip_by_global_norm, tensors(grads), 0.0),
        claim=Raised("ValueError", "the argument 'clip_norm' must > 0.0, but got 0.0"),
        neighbour=(reference, tuple(ops.clip_by_norm(list(tensors(grads)), 0.0))),
    )


@difference(
    "value",
    "`ops.clip_by_value` clips as PyTorch's clamp does, also with the limits in the wrong order.",
    torch="torch.clamp(x, -1, 1)",
    mindspore="ops.clip_by_value(x, -1, 1)",
    expected="agrees",
)
def value() -> Observation:
    x = np.array([-2.0, -0.5, 0.5, 2.0], np.float32)
    with_nan = np.array([np.nan, 2.0], np.float32)
    return Observation(
        torch=(torch.clamp(torch.tensor(x), -1, 1), torch.clamp(torch.tensor(x), 1, -1)),
        mindspore=(
            ops.clip_by_value(ms.Tensor(x), -1, 1),
            ops.clip_by_value(ms.Tensor(x), 1, -1),
        ),
        neighbour=(
            torch.clamp(torch.tensor(with_nan), -1, 1),
            ops.clip_by_value(ms.Tensor(with_nan), -1, 1),
        ),
    )


@difference(
    "value-nan",
    "`ops.clip_by_value` turns NaN into the lower limit, PyTorch's clamp keeps it.",
    torch="torch.clamp(x, -1, 1)",
    mindspore="ops.clip_by_value(x, -1, 1)",
    expected="differs",
    remedy="ops.where(ops.isnan(x), x, ops.clip_by_value(x, -1, 1))",
)
def value_nan() -> Observation:
    x = np.array([np.nan, 2.0, 0.5], np.float32)
    reference = torch.clamp(torch.tensor(x), -1, 1)
    seen = ops.clip_by_value(ms.Tensor(x), -1, 1)
    return Observation(
        torch=reference,
        mindspore=seen,
        claim=np.array([-1.0, 1.0, 0.5], np.float32),
        neighbour=(reference, ops.where(ops.isnan(ms.Tensor(x)), ms.Tensor(x), seen)),
    )


@difference(
    "value-of-integers",
    "`ops.clip_by_value` keeps integers and cuts the limit to one; PyTorch's clamp goes over to "
    "float32.",
    torch="torch.clamp(torch.tensor([1, 5]), max=2.5)",
    mindspore="ops.clip_by_value(ms.Tensor([1, 5]), None, 2.5)",
    expected="differs",
    remedy="ops.clamp(ms.Tensor([1, 5]), max=2.5)",
    since="2.9",
    before="`ops.clamp` keeps integers, too: `ops.clamp(ms.Tensor([1, 5]), max=2.5)` is [1, 2].",
)
def value_of_integers() -> Observation:
    reference = torch.clamp(torch.tensor([1, 5]), max=2.5)
    return Observation(
        torch=reference,
        mindspore=ops.clip_by_value(ms.Tensor([1, 5]), None, 2.5),
        claim=np.array([1, 2], np.int64),
        neighbour=(reference, ops.clamp(ms.Tensor([1, 5]), max=2.5)),
    )


@difference(
    "accumulation-does-not-happen",
    "Gradients do not accumulate between calls: every call of a gradient function begins at zero, "
    "so a loop ported without `zero_grad` sees the last batch alone.",
    torch="loss.backward(); loss.backward()  # parameter.grad is the sum",
    mindspore="grad_fn(x1); grads = grad_fn(x2)",
    expected="differs",
    remedy="total = [t + g for t, g in zip(total, grad_fn(x))]",
)
def accumulation_does_not_happen() -> Observation:
    batches = (FIRST, 10 * FIRST)
    parameter = torch.nn.Parameter(torch.ones(2))
    for batch in batches:
        (parameter * torch.tensor(batch)).sum().backward()
    weight = ms.Parameter(ms.Tensor(np.ones(2, np.float32)), name="weight")

    def loss(x: Any) -> Any:
        return (weight * x).sum()

    grad = ms.grad(loss, None, [weight])
    each = [grad(ms.Tensor(batch))[0] for batch in batches]
    return Observation(
        torch=parameter.grad,
        mindspore=each[-1],
        claim=10 * FIRST,
        neighbour=(parameter.grad, each[0] + each[1]),
    )


@difference(
    "accumulated-sum-is-not-the-mean",
    "The sum of the gradients of k micro-batches under a mean loss is k times the gradient of the "
    "whole batch: divide by k before the optimizer.",
    torch="loss(all).backward()",
    mindspore="sum(grad_fn(part) for part in parts)",
    expected="differs",
    remedy="tuple(g / k for g in total)",
)
def accumulated_sum_is_not_the_mean() -> Observation:
    x = np.random.default_rng(2).normal(size=(8, 3)).astype(np.float32)
    parameter = torch.nn.Parameter(torch.ones(3))
    ((torch.tensor(x) @ parameter) ** 2).mean().backward()
    weight = ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name="weight")

    def loss(x: Any) -> Any:
        return (ops.matmul(x, weight) ** 2).mean()

    grad = ms.grad(loss, None, [weight])
    total = sum(grad(ms.Tensor(part))[0] for part in np.split(x, 4))
    whole = 2 * x.astype(np.float64).T @ x.astype(np.float64).sum(axis=1) / 8
    return Observation(
        torch=parameter.grad,
        mindspore=total,
        claim=(4 * whole).astype(np.float32),
        neighbour=(parameter.grad, total / 4),
    )


@difference(
    "accumulation-restarts-the-schedule",
    "A schedule counts calls of the optimizer, not batches: with k accumulated batches a list of "
    "rates made for every batch is followed k times too slowly.",
    torch="scheduler.step()  # after every batch",
    mindspore="optimizer(total)  # after every second batch",
    expected="differs",
    remedy="learning_rate=rates[k - 1 :: k]",
)
def accumulation_restarts_the_schedule() -> Observation:
    rates = [0.1, 0.2, 0.3, 0.4]

    def last_rate(given: list[float]) -> float:
        weight = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="weight")
        optimizer = nn.SGD([weight], learning_rate=given)
        optimizer((ops.ones_like(weight),))
        before = float(weight.asnumpy()[0])
        optimizer((ops.ones_like(weight),))
        return round(before - float(weight.asnumpy()[0]), 6)

    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda batch: (*rates, 0.0)[batch])
    before = 0.0
    for batch in range(4):
        parameter.grad = torch.full((1,), float(batch % 2))  # moves after every second batch
        before = float(parameter.detach())
        optimizer.step()
        scheduler.step()
    return Observation(
        torch=round(before - float(parameter.detach()), 6),
        mindspore=last_rate(rates),
        claim=0.2,
        neighbour=(round(before - float(parameter.detach()), 6), last_rate(rates[1::2])),
    )
