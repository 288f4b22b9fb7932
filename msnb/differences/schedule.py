"""Learning-rate schedules: the rate of each step, the end of a schedule, changing the rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn
from mindspore.experimental import optim as experimental
from torch.optim import lr_scheduler

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]

ours = experimental.lr_scheduler


def rates(learning_rate: Any, steps: int = 5) -> Array:
    """The learning rate of each step of ``nn.SGD``: how far gradient 1 moves a weight."""
    weight = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="weight")
    optimizer = nn.SGD([weight], learning_rate=learning_rate)
    return _moves(lambda: optimizer((ms.ops.ones_like(weight),)), weight.asnumpy, steps)


def rates_experimental(make: Callable[[Any], Any], steps: int = 5) -> Array:
    """The rate of each step of ``experimental.optim.SGD``, the scheduler stepping after each."""
    weight = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="weight")
    optimizer = experimental.SGD([weight], lr=0.1)
    scheduler = make(optimizer)

    def step() -> None:
        optimizer((ms.ops.ones_like(weight),))
        scheduler.step()

    return _moves(step, weight.asnumpy, steps)


def rates_torch(
    make: Callable[[Any], Any] | None = None, steps: int = 5, *, every: int = 1
) -> Array:
    """The rate of each step of torch's SGD, the scheduler stepping after ``every`` of them."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scheduler = make(optimizer) if make else None
    taken = 0

    def step() -> None:
        nonlocal taken
        weight.grad = torch.ones(1)
        optimizer.step()
        taken += 1
        if scheduler and taken % every == 0:
            scheduler.step()

    return _moves(step, lambda: weight.detach().numpy(), steps)


def _moves(step: Callable[[], Any], value: Callable[[], Array], steps: int) -> Array:
    seen = [float(value()[0])]
    for _ in range(steps):
        step()
        seen.append(float(value()[0]))
    return _rounded(-np.diff(seen))


def _rounded(values: Any) -> Array:
    """To six decimals: differences of float32 weights carry no more."""
    return np.round(np.asarray(values, np.float64), 6) + 0.0


def after_first_step(change: Callable[[Any], Any]) -> float:
    """The rate of the second step of ``nn.SGD(learning_rate=0.1)``, changed before it."""
    weight = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="weight")
    optimizer = nn.SGD([weight], learning_rate=0.1)
    optimizer((ms.ops.ones_like(weight),))
    before = float(weight.asnumpy()[0])
    change(optimizer)
    optimizer((ms.ops.ones_like(weight),))
    return round(before - float(weight.asnumpy()[0]), 6)


def after_first_step_torch() -> float:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones(1)
    optimizer.step()
    before = float(weight.detach())
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    return round(before - float(weight.detach()), 6)


@difference(
    "list-runs-out",
    "A list of learning rates has an end: one step more raises, with a message about `Gather`.",
    torch="lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)",
    mindspore="nn.SGD(params, learning_rate=[0.1, 0.05, 0.025])",
    expected="raises",
    remedy="learning_rate=[rate(step) for step in range(epochs * steps_per_epoch)]",
)
def list_runs_out() -> Observation:
    reference = rates_torch(lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch), 4)
    return Observation(
        torch=reference,
        mindspore=attempt(rates, [0.1, 0.05, 0.025], 4),
        claim=Raised("RuntimeError", "'input_indices' should be in the range [0, 3), but got 3"),
        neighbour=(reference, rates([0.1, 0.05, 0.025, 0.0125], 4)),
    )


@difference(
    "exponential-first-step",
    "`nn.ExponentialDecayLR(lr, rate, 1)` is PyTorch's ExponentialLR stepped after every batch, "
    "the first step with the full rate.",
    torch="lr_scheduler.ExponentialLR(optimizer, 0.5)",
    mindspore="nn.ExponentialDecayLR(0.1, 0.5, 1)",
    expected="agrees",
)
def exponential_first_step() -> Observation:
    reference = rates_torch(lambda o: lr_scheduler.ExponentialLR(o, 0.5))
    return Observation(
        torch=reference,
        mindspore=rates(nn.ExponentialDecayLR(0.1, 0.5, 1)),
        neighbour=(reference, rates(nn.ExponentialDecayLR(0.1, 0.5, 2))),
    )


@difference(
    "exponential-within-the-epoch",
    "With `decay_steps` the rate falls a little at every step; PyTorch's schedules change it once "
    "an epoch.",
    torch="lr_scheduler.ExponentialLR(optimizer, 0.5)  # stepped every 2 batches",
    mindspore="nn.ExponentialDecayLR(0.1, 0.5, 2)",
    expected="differs",
    remedy="nn.ExponentialDecayLR(0.1, 0.5, steps_per_epoch, is_stair=True)",
)
def exponential_within_the_epoch() -> Observation:
    reference = rates_torch(lambda o: lr_scheduler.ExponentialLR(o, 0.5), every=2)
    return Observation(
        torch=reference,
        mindspore=rates(nn.ExponentialDecayLR(0.1, 0.5, 2)),
        claim=_rounded([0.1 * 0.5 ** (step / 2) for step in range(5)]),
        neighbour=(reference, rates(nn.ExponentialDecayLR(0.1, 0.5, 2, is_stair=True))),
    )


@difference(
    "cosine-after-the-end",
    "`nn.CosineDecayLR` stays at its minimum after `decay_steps`; PyTorch's CosineAnnealingLR "
    "climbs again.",
    torch="lr_scheduler.CosineAnnealingLR(optimizer, 3)",
    mindspore="nn.CosineDecayLR(0.0, 0.1, 3)",
    expected="differs",
    remedy="mindspore.experimental.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)",
)
def cosine_after_the_end() -> Observation:
    def cosine(steps: int) -> Array:
        return rates_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, 3), steps)

    return Observation(
        torch=cosine(6),
        mindspore=rates(nn.CosineDecayLR(0.0, 0.1, 3), 6),
        claim=_rounded([0.05 * (1 + np.cos(np.pi * min(step, 3) / 3)) for step in range(6)]),
        neighbour=(cosine(4), rates(nn.CosineDecayLR(0.0, 0.1, 3), 4)),  # up to the end
    )


@difference(
    "polynomial-decay",
    "`nn.PolynomialDecayLR(lr, 0.0, steps, power)` agrees with PyTorch's PolynomialLR to the end "
    "and beyond.",
    torch="lr_scheduler.PolynomialLR(optimizer, 3, 2.0)",
    mindspore="nn.PolynomialDecayLR(0.1, 0.0, 3, 2.0)",
    expected="agrees",
)
def polynomial_decay() -> Observation:
    reference = rates_torch(lambda o: lr_scheduler.PolynomialLR(o, 3, 2.0))
    return Observation(
        torch=reference,
        mindspore=rates(nn.PolynomialDecayLR(0.1, 0.0, 3, 2.0)),
        neighbour=(  # a new cycle after the end
            reference,
            rates(nn.PolynomialDecayLR(0.1, 0.0, 3, 2.0, update_decay_steps=True)),
        ),
    )


@difference(
    "warm-up-from-zero",
    "`nn.WarmUpLR` begins at 0, so the first step does nothing; PyTorch's LinearLR begins at a "
    "fraction above 0.",
    torch="lr_scheduler.LinearLR(optimizer, 1 / 3, total_iters=2)",
    mindspore="nn.WarmUpLR(0.1, 3)",
    expected="differs",
    remedy="mindspore.experimental.optim.lr_scheduler.LinearLR(optimizer, 1 / 3, total_iters=2)",
)
def warm_up_from_zero() -> Observation:
    reference = rates_torch(lambda o: lr_scheduler.LinearLR(o, 1 / 3, total_iters=2))
    return Observation(
        torch=reference,
        mindspore=rates(nn.WarmUpLR(0.1, 3)),
        claim=_rounded([0.1 * min(step, 3) / 3 for step in range(5)]),
        neighbour=(
            reference,
            rates_experimental(lambda o: ours.LinearLR(o, 1 / 3, total_iters=2)),
        ),
    )


@difference(
    "warm-up-list-by-epoch",
    "`nn.warmup_lr` warms up by epochs, not by steps: the whole first epoch has the rate 0.",
    torch="lr_scheduler.LinearLR(optimizer, 1 / 4, total_iters=3)",
    mindspore="nn.warmup_lr(0.1, total_step=6, step_per_epoch=2, warmup_epoch=2)",
    expected="differs",
    remedy="[0.1 * min(1, (step + 1) / 4) for step in range(6)]",
)
def warm_up_list_by_epoch() -> Observation:
    reference = rates_torch(lambda o: lr_scheduler.LinearLR(o, 1 / 4, total_iters=3), 6)
    return Observation(
        torch=reference,
        mindspore=rates(nn.warmup_lr(0.1, 6, 2, 2), 6),
        claim=_rounded([0.0, 0.0, 0.05, 0.05, 0.1, 0.1]),
        neighbour=(reference, rates([0.1 * min(1, (step + 1) / 4) for step in range(6)], 6)),
    )


@difference(
    "cosine-list-by-epoch",
    "`nn.cosine_decay_lr` gives PyTorch's CosineAnnealingLR stepped once an epoch, as a list with "
    "one rate a step.",
    torch="lr_scheduler.CosineAnnealingLR(optimizer, 2)  # stepped every 2 batches",
    mindspore="nn.cosine_decay_lr(0.0, 0.1, total_step=6, step_per_epoch=2, decay_epoch=2)",
    expected="agrees",
)
def cosine_list_by_epoch() -> Observation:
    def cosine(every: int) -> Array:
        return rates_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, 2), 6, every=every)

    seen = rates(nn.cosine_decay_lr(0.0, 0.1, 6, 2, 2), 6)
    return Observation(torch=cosine(2), mindspore=seen, neighbour=(cosine(1), seen))


@difference(
    "piecewise-milestones",
    "`nn.piecewise_constant_lr([2, 4], rates)` takes one rate for each milestone and ends at the "
    "last one; PyTorch's MultiStepLR goes on with one rate more.",
    torch="lr_scheduler.MultiStepLR(optimizer, [2, 4])",
    mindspore="nn.piecewise_constant_lr([2, 4], [0.1, 0.01])",
    expected="differs",
    remedy="nn.piecewise_constant_lr([2, 4, total_steps], [0.1, 0.01, 0.001])",
)
def piecewise_milestones() -> Observation:
    reference = rates_torch(lambda o: lr_scheduler.MultiStepLR(o, [2, 4]), 6)
    return Observation(
        torch=reference,
        mindspore=_rounded(nn.piecewise_constant_lr([2, 4], [0.1, 0.01])),
        claim=np.array([0.1, 0.1, 0.01, 0.01]),
        neighbour=(reference, rates(nn.piecewise_constant_lr([2, 4, 6], [0.1, 0.01, 0.001]), 6)),
    )


@difference(
    "experimental-schedulers",
    "The schedulers of `experimental.optim` agree with PyTorch step by step (here StepLR, "
    "CosineAnnealingLR and LinearLR).",
    torch="lr_scheduler.StepLR(o, 2), CosineAnnealingLR(o, 3), LinearLR(o, 0.5)",
    mindspore="experimental.optim.lr_scheduler.StepLR(o, 2), ...",
    expected="agrees",
)
def experimental_schedulers() -> Observation:
    def theirs(*cosine: int) -> tuple[Array, ...]:
        return (
            rates_torch(lambda o: lr_scheduler.StepLR(o, 2)),
            rates_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, *cosine)),
            rates_torch(lambda o: lr_scheduler.LinearLR(o, 0.5)),
        )

    seen = (
        rates_experimental(lambda o: ours.StepLR(o, 2)),
        rates_experimental(lambda o: ours.CosineAnnealingLR(o, 3)),
        rates_experimental(lambda o: ours.LinearLR(o, 0.5)),
    )
    return Observation(torch=theirs(3), mindspore=seen, neighbour=(theirs(4), seen))


@difference(
    "experimental-scheduler-on-nn-optimizer",
    "The schedulers of `experimental.optim` refuse the optimizers of `nn`, with the words "
    "'not an Optimizer'.",
    torch="lr_scheduler.StepLR(torch.optim.SGD(params, lr=0.1), 2)",
    mindspore="experimental.optim.lr_scheduler.StepLR(nn.SGD(params, learning_rate=0.1), 2)",
    expected="raises",
    remedy="lr_scheduler.StepLR(mindspore.experimental.optim.SGD(params, lr=0.1), 2)",
)
def experimental_scheduler_on_nn_optimizer() -> Observation:
    reference = rates_torch(lambda o: lr_scheduler.StepLR(o, 2))
    weight = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="weight")
    return Observation(
        torch=reference,
        mindspore=attempt(ours.StepLR, nn.SGD([weight], learning_rate=0.1), 2),
        claim=Raised("TypeError", "SGD is not an Optimizer"),
        neighbour=(reference, rates_experimental(lambda o: ours.StepLR(o, 2))),
    )


@difference(
    "get-lr-is-the-next-one",
    "`optimizer.get_lr()` after a step is the rate of the next step; the step just taken used "
    "another. (In PyTorch the scheduler decides when the rate changes.)",
    torch='optimizer.param_groups[0]["lr"]',
    mindspore="optimizer.get_lr()",
    expected="differs",
    remedy="rate = optimizer.get_lr(); optimizer(grads)",
)
def get_lr_is_the_next_one() -> Observation:
    parameter = torch.nn.Parameter(torch.zeros(1))
    reference = torch.optim.SGD([parameter], lr=0.1)
    lr_scheduler.LambdaLR(reference, lambda epoch: (0.1, 0.2, 0.3)[epoch] / 0.1)
    before_torch = round(reference.param_groups[0]["lr"], 6)
    parameter.grad = torch.ones(1)
    reference.step()
    after_torch = round(reference.param_groups[0]["lr"], 6)

    weight = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="weight")
    optimizer = nn.SGD([weight], learning_rate=[0.1, 0.2, 0.3])
    before = round(float(optimizer.get_lr()), 6)
    optimizer((ms.ops.ones_like(weight),))
    return Observation(
        torch=after_torch,
        mindspore=round(float(optimizer.get_lr()), 6),
        claim=0.2,
        neighbour=(before_torch, before),
    )


@difference(
    "rate-assigned",
    "A number cannot be assigned to `optimizer.learning_rate`: it is a Parameter.",
    torch='optimizer.param_groups[0]["lr"] = 0.5',
    mindspore="optimizer.learning_rate = 0.5",
    expected="raises",
    remedy="ops.assign(optimizer.learning_rate, ms.Tensor(0.5, ms.float32))",
)
def rate_assigned() -> Observation:
    reference = after_first_step_torch()

    def assign(optimizer: Any) -> None:
        optimizer.learning_rate = 0.5

    return Observation(
        torch=reference,
        mindspore=attempt(after_first_step, assign),
        claim=Raised("TypeError", "Parameter 'learning_rate' already exists in network"),
        neighbour=(
            reference,
            after_first_step(lambda o: ms.ops.assign(o.learning_rate, ms.Tensor(0.5, ms.float32))),
        ),
    )


@difference(
    "rate-set-data",
    "`optimizer.learning_rate.set_data` after the first step changes what you read, not what the "
    "optimizer uses (CPU).",
    torch='optimizer.param_groups[0]["lr"] = 0.5',
    mindspore="optimizer.learning_rate.set_data(ms.Tensor(0.5))",
    expected="off",
    remedy="ops.assign(optimizer.learning_rate, ms.Tensor(0.5, ms.float32))",
)
def rate_set_data() -> Observation:
    reference = after_first_step_torch()
    return Observation(
        torch=reference,
        mindspore=after_first_step(lambda o: o.learning_rate.set_data(ms.Tensor(0.5, ms.float32))),
        claim=0.1,
        right=0.5,
        neighbour=(
            reference,
            after_first_step(lambda o: ms.ops.assign(o.learning_rate, ms.Tensor(0.5, ms.float32))),
        ),
    )


@difference(
    "rate-under-another-name",
    "Optimizers of `nn` have no `param_groups`; a made-up attribute such as `optimizer.lr` is "
    "accepted and has no effect.",
    torch='optimizer.param_groups[0]["lr"] = 0.5',
    mindspore='optimizer.param_groups[0]["lr"] = 0.5',
    expected="raises",
    remedy="ops.assign(optimizer.learning_rate, ms.Tensor(0.5, ms.float32))",
)
def rate_under_another_name() -> Observation:
    reference = after_first_step_torch()

    def through_groups(optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.5

    return Observation(
        torch=reference,
        mindspore=attempt(after_first_step, through_groups),
        claim=Raised("AttributeError", "The 'SGD' object has no attribute 'param_groups'."),
        neighbour=(reference, after_first_step(lambda o: setattr(o, "lr", 0.5))),
    )
