"""Optimizers: update rules, defaults, weight decay, groups; both are fed the same gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn
from mindspore.experimental import optim as experimental
from torch import optim

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]
Make = Callable[[list[Any]], Any]

START = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)


def gradients(scale: float = 1.0, steps: int = 4) -> list[Array]:
    """The gradients of each step; none is near zero, so that epsilon matters by ``scale`` only."""
    rng = np.random.default_rng(7)
    sign = rng.choice([-1.0, 1.0], size=(steps, *START.shape))
    return list((scale * sign * rng.uniform(0.5, 1.5, size=sign.shape)).astype(np.float32))


def in_torch(make: Make, grads: Sequence[Array]) -> Array:
    weight = torch.nn.Parameter(torch.tensor(START))
    optimizer = make([weight])
    for grad in grads:
        weight.grad = torch.tensor(grad)
        optimizer.step()
    return np.asarray(weight.detach().numpy())


def in_mindspore(make: Make, grads: Sequence[Array]) -> Array:
    weight = ms.Parameter(ms.Tensor(START), name="weight")
    optimizer = make([weight])
    for grad in grads:
        optimizer((ms.Tensor(grad),))
    return np.asarray(weight.asnumpy())


def decayed(make: Callable[[list[Any], list[Any]], Any], name: str) -> tuple[Array, Array]:
    """Two MindSpore parameters, ``weight`` and ``name``, after three steps of gradient 0.5."""
    pair = [ms.Parameter(ms.Tensor(START), name=each) for each in ("weight", name)]
    optimizer = make(pair[:1], pair[1:])
    for _ in range(3):
        optimizer(tuple(ms.Tensor(np.full_like(START, 0.5)) for _ in pair))
    return pair[0].asnumpy(), pair[1].asnumpy()


def decayed_torch(*weight_decay: float) -> tuple[Array, Array]:
    """The same in torch's SGD with learning rate 0.1, one weight decay for each parameter."""
    pair = [torch.nn.Parameter(torch.tensor(START)) for _ in weight_decay]
    groups = [{"params": [p], "weight_decay": w} for p, w in zip(pair, weight_decay, strict=True)]
    optimizer = optim.SGD(groups, lr=0.1)
    for _ in range(3):
        for parameter in pair:
            parameter.grad = torch.full_like(parameter, 0.5)
        optimizer.step()
    return pair[0].detach().numpy(), pair[1].detach().numpy()


# MindSpore's rules in float64 NumPy, from the formulas of its documentation and the CPU kernels'
# behaviour; each beta is the float32 number that MindSpore holds.


def adam_epsilon_hat(
    grads: Sequence[Array], *, nesterov: bool = False, eps: float = 1e-8, lr: float = 0.1
) -> Array:
    """Adam whose epsilon is added to sqrt(v) before the bias is corrected."""
    b1, b2 = float(np.float32(0.9)), float(np.float32(0.999))
    weight = START.astype(np.float64)
    m, v = np.zeros_like(weight), np.zeros_like(weight)
    for t, each in enumerate(grads, 1):
        grad = each.astype(np.float64)
        m = b1 * m + (1 - b1) * grad
        v = b2 * v + (1 - b2) * grad**2
        ahead = b1 * m + (1 - b1) * grad if nesterov else m
        rate = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
        weight = weight - rate * ahead / (np.sqrt(v) + eps)
    return weight.astype(np.float32)


def adam_without_correction(
    grads: Sequence[Array], *, weight_decay: float, eps: float = 1e-6, lr: float = 0.1
) -> Array:
    """Adam with decoupled decay and no correction of the bias."""
    b1, b2 = float(np.float32(0.9)), float(np.float32(0.999))
    weight = START.astype(np.float64)
    m, v = np.zeros_like(weight), np.zeros_like(weight)
    for each in grads:
        grad = each.astype(np.float64)
        m = b1 * m + (1 - b1) * grad
        v = b2 * v + (1 - b2) * grad**2
        weight = weight - lr * (m / (np.sqrt(v) + eps) + weight_decay * weight)
    return weight.astype(np.float32)


def rmsprop(
    grads: Sequence[Array], *, start: float = 1.0, eps: float = 1e-10, lr: float = 0.1
) -> Array:
    """RMSProp whose mean square begins at ``start`` and holds epsilon under the root."""
    weight = START.astype(np.float64)
    mean_square = np.full_like(weight, start)
    for each in grads:
        grad = each.astype(np.float64)
        mean_square = 0.9 * mean_square + 0.1 * grad**2
        weight = weight - lr * grad / np.sqrt(mean_square + eps)
    return weight.astype(np.float32)


def adagrad(grads: Sequence[Array], *, start: float, eps: float = 1e-8, lr: float = 0.1) -> Array:
    """Adagrad whose accumulator begins at ``start`` and has epsilon under the root."""
    weight = START.astype(np.float64)
    accumulator = np.full_like(weight, start)
    for each in grads:
        grad = each.astype(np.float64)
        accumulator = accumulator + grad**2
        weight = weight - lr * grad / np.sqrt(accumulator + eps)
    return weight.astype(np.float32)


def momentum(grads: Sequence[Array], *, nesterov: bool) -> Array:
    """SGD with momentum 0.9 and learning rate 0.1."""
    weight = START.astype(np.float64)
    velocity = np.zeros_like(weight)
    for each in grads:
        grad = each.astype(np.float64)
        velocity = 0.9 * velocity + grad
        weight = weight - 0.1 * (grad + 0.9 * velocity if nesterov else velocity)
    return weight.astype(np.float32)


@difference(
    "adam-epsilon",
    "`nn.Adam` adds epsilon before it corrects the bias: at the first step epsilon weighs 30 times "
    "as much as in PyTorch, so weights with gradients below 1e-5 move less.",
    torch="optim.Adam(params, lr=0.1)",
    mindspore="nn.Adam(params, learning_rate=0.1)",
    expected="differs",
    remedy="mindspore.experimental.optim.AdamW(params, lr=0.1, weight_decay=0.0)",
)
def adam_epsilon() -> Observation:
    small = gradients(1e-6)
    reference = in_torch(lambda p: optim.Adam(p, lr=0.1), small)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda p: nn.Adam(p, learning_rate=0.1), small),
        claim=adam_epsilon_hat(small),
        neighbour=(
            reference,
            in_mindspore(lambda p: experimental.AdamW(p, lr=0.1, weight_decay=0.0), small),
        ),
    )


@difference(
    "adam-ordinary-gradients",
    "With gradients around 1 the place of epsilon does not show: `nn.Adam` agrees with PyTorch.",
    torch="optim.Adam(params, lr=0.1)",
    mindspore="nn.Adam(params, learning_rate=0.1)",
    expected="agrees",
)
def adam_ordinary_gradients() -> Observation:
    def both(scale: float) -> tuple[Array, Array]:
        grads = gradients(scale)
        return (
            in_torch(lambda p: optim.Adam(p, lr=0.1), grads),
            in_mindspore(lambda p: nn.Adam(p, learning_rate=0.1), grads),
        )

    usual = both(1.0)
    return Observation(*usual, neighbour=both(1e-5))


@difference(
    "experimental-adam-epsilon",
    "`experimental.optim.Adam` documents PyTorch's formula and has its argument names, but places "
    "epsilon as `nn.Adam` does.",
    torch="optim.Adam(params, lr=0.1)",
    mindspore="mindspore.experimental.optim.Adam(params, lr=0.1)",
    expected="differs",
    remedy="mindspore.experimental.optim.AdamW(params, lr=0.1, weight_decay=0.0)",
)
def experimental_adam_epsilon() -> Observation:
    small = gradients(1e-6)
    return Observation(
        torch=in_torch(lambda p: optim.Adam(p, lr=0.1), small),
        mindspore=in_mindspore(lambda p: experimental.Adam(p, lr=0.1), small),
        claim=adam_epsilon_hat(small),
        neighbour=(
            in_torch(lambda p: optim.NAdam(p, lr=0.1), small),
            in_mindspore(lambda p: experimental.NAdam(p, lr=0.1), small),
        ),
    )


@difference(
    "experimental-adam-amsgrad",
    "`experimental.optim.Adam` accepts `amsgrad=True` and ignores it.",
    torch="optim.Adam(params, amsgrad=True)",
    mindspore="mindspore.experimental.optim.Adam(params, amsgrad=True)",
    expected="differs",
    remedy="mindspore.experimental.optim.AdamW(params, weight_decay=0.0, amsgrad=True)",
)
def experimental_adam_amsgrad() -> Observation:
    shrinking = [grad * 0.1**step for step, grad in enumerate(gradients(10.0))]
    reference = in_torch(lambda p: optim.Adam(p, lr=0.1, amsgrad=True), shrinking)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda p: experimental.Adam(p, lr=0.1, amsgrad=True), shrinking),
        claim=adam_epsilon_hat(shrinking),
        neighbour=(
            reference,
            in_mindspore(lambda p: nn.Adam(p, learning_rate=0.1, use_amsgrad=True), shrinking),
        ),
    )


@difference(
    "adam-weight-decay-is-l2",
    "`nn.Adam(weight_decay=)` adds the decay to the gradient, as PyTorch's Adam does; it is not "
    "AdamW.",
    torch="optim.Adam(params, lr=0.1, weight_decay=0.1)",
    mindspore="nn.Adam(params, learning_rate=0.1, weight_decay=0.1)",
    expected="agrees",
)
def adam_weight_decay_is_l2() -> Observation:
    grads = gradients()
    seen = in_mindspore(lambda p: nn.Adam(p, learning_rate=0.1, weight_decay=0.1), grads)
    return Observation(
        torch=in_torch(lambda p: optim.Adam(p, lr=0.1, weight_decay=0.1), grads),
        mindspore=seen,
        neighbour=(in_torch(lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1), grads), seen),
    )


@difference(
    "adamweightdecay-is-not-adamw",
    "`nn.AdamWeightDecay` does not correct the bias: the first step is three times as long as "
    "AdamW's.",
    torch="optim.AdamW(params, lr=0.1, weight_decay=0.1)",
    mindspore="nn.AdamWeightDecay(params, learning_rate=0.1, weight_decay=0.1)",
    expected="differs",
    remedy="mindspore.experimental.optim.AdamW(params, lr=0.1, weight_decay=0.1)",
)
def adamweightdecay_is_not_adamw() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1), grads)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(
            lambda p: nn.AdamWeightDecay(p, learning_rate=0.1, weight_decay=0.1), grads
        ),
        claim=adam_without_correction(grads, weight_decay=0.1),
        neighbour=(
            reference,
            in_mindspore(lambda p: experimental.AdamW(p, lr=0.1, weight_decay=0.1), grads),
        ),
    )


@difference(
    "adamweightdecay-epsilon-default",
    "`nn.AdamWeightDecay` has 1e-6 as epsilon and no decay by default, AdamW 1e-8 and 0.01.",
    torch="optim.AdamW(params)",
    mindspore="nn.AdamWeightDecay(params)",
    expected="differs",
    remedy="nn.AdamWeightDecay(params, eps=1e-8, weight_decay=0.01)",
)
def adamweightdecay_epsilon_default() -> Observation:
    def defaults(kind: Any) -> dict[str, float]:
        taken = inspect.signature(kind).parameters
        return {name: float(taken[name].default) for name in ("eps", "weight_decay")}

    reference = defaults(optim.AdamW)
    return Observation(
        torch=reference,
        mindspore=defaults(nn.AdamWeightDecay),
        claim={"eps": 1e-6, "weight_decay": 0.0},
        neighbour=(reference, defaults(experimental.AdamW)),
    )


@difference(
    "experimental-adamw",
    "`experimental.optim.AdamW` is PyTorch's AdamW, also with tiny gradients.",
    torch="optim.AdamW(params, lr=0.1, weight_decay=0.1)",
    mindspore="mindspore.experimental.optim.AdamW(params, lr=0.1, weight_decay=0.1)",
    expected="agrees",
)
def experimental_adamw() -> Observation:
    small = gradients(1e-6)
    reference = in_torch(lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1), small)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda p: experimental.AdamW(p, lr=0.1, weight_decay=0.1), small),
        neighbour=(
            reference,
            in_mindspore(
                lambda p: nn.AdamWeightDecay(p, learning_rate=0.1, weight_decay=0.1), small
            ),
        ),
    )


@difference(
    "adam-nesterov-is-not-nadam",
    "`nn.Adam(use_nesterov=True)` looks ahead with a constant beta1: it is not NAdam, whose "
    "momentum follows a schedule.",
    torch="optim.NAdam(params, lr=0.1)",
    mindspore="nn.Adam(params, learning_rate=0.1, use_nesterov=True)",
    expected="differs",
    remedy="mindspore.experimental.optim.NAdam(params, lr=0.1)",
)
def adam_nesterov_is_not_nadam() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.NAdam(p, lr=0.1), grads)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda p: nn.Adam(p, learning_rate=0.1, use_nesterov=True), grads),
        claim=adam_epsilon_hat(grads, nesterov=True),
        neighbour=(reference, in_mindspore(lambda p: experimental.NAdam(p, lr=0.1), grads)),
    )


@difference(
    "sgd-momentum-dampening",
    "`nn.SGD` with momentum, dampening and weight decay is PyTorch's, including the first step, "
    "which is not dampened.",
    torch="optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1)",
    mindspore=("nn.SGD(params, learning_rate=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1)"),
    expected="agrees",
)
def sgd_momentum_dampening() -> Observation:
    grads = gradients()
    settings: dict[str, float] = {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}
    reference = in_torch(lambda p: optim.SGD(p, lr=0.1, **settings), grads)
    settings_off = {**settings, "dampening": 0.0}
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda p: nn.SGD(p, learning_rate=0.1, **settings), grads),
        neighbour=(
            reference,
            in_mindspore(lambda p: nn.SGD(p, learning_rate=0.1, **settings_off), grads),
        ),
    )


@difference(
    "sgd-nesterov",
    "`nn.SGD(nesterov=True)` is PyTorch's.",
    torch="optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True)",
    mindspore="nn.SGD(params, learning_rate=0.1, momentum=0.9, nesterov=True)",
    expected="agrees",
)
def sgd_nesterov() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), grads)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(
            lambda p: nn.SGD(p, learning_rate=0.1, momentum=0.9, nesterov=True), grads
        ),
        neighbour=(
            reference,
            in_mindspore(lambda p: nn.Momentum(p, 0.1, 0.9, use_nesterov=True), grads),
        ),
    )


@difference(
    "momentum-ignores-nesterov",
    "`nn.Momentum(use_nesterov=True)` takes the steps of plain momentum on CPU.",
    torch="optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True)",
    mindspore="nn.Momentum(params, 0.1, 0.9, use_nesterov=True)",
    expected="off",
    remedy="nn.SGD(params, learning_rate=0.1, momentum=0.9, nesterov=True)",
)
def momentum_ignores_nesterov() -> Observation:
    grads = gradients()
    return Observation(
        torch=in_torch(lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), grads),
        mindspore=in_mindspore(lambda p: nn.Momentum(p, 0.1, 0.9, use_nesterov=True), grads),
        claim=momentum(grads, nesterov=False),
        right=momentum(grads, nesterov=True),
        neighbour=(
            in_torch(lambda p: optim.SGD(p, lr=0.1, momentum=0.9), grads),
            in_mindspore(lambda p: nn.Momentum(p, 0.1, 0.9), grads),
        ),
    )


@difference(
    "rmsprop-start",
    "`nn.RMSProp` begins with a mean square of 1, PyTorch with 0: the first steps are shorter.",
    torch="optim.RMSprop(params, lr=0.1, alpha=0.9, eps=1e-10)",
    mindspore="nn.RMSProp(params, learning_rate=0.1, decay=0.9, epsilon=1e-10)",
    expected="differs",
    remedy="mindspore.experimental.optim.RMSprop(params, lr=0.1, alpha=0.9)",
)
def rmsprop_start() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.RMSprop(p, lr=0.1, alpha=0.9, eps=1e-10), grads)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(
            lambda p: nn.RMSProp(p, learning_rate=0.1, decay=0.9, epsilon=1e-10), grads
        ),
        claim=rmsprop(grads),
        neighbour=(
            reference,
            in_mindspore(lambda p: experimental.RMSprop(p, lr=0.1, alpha=0.9, eps=1e-10), grads),
        ),
    )


@difference(
    "rmsprop-epsilon",
    "`nn.RMSProp` adds epsilon under the root, PyTorch adds it to the root.",
    torch="optim.RMSprop(params, lr=0.1, alpha=0.9, eps=0.01)",
    mindspore="nn.RMSProp(params, learning_rate=0.1, decay=0.9, epsilon=0.01)",
    expected="differs",
    remedy="mindspore.experimental.optim.RMSprop(params, lr=0.1, alpha=0.9, eps=0.01)",
)
def rmsprop_epsilon() -> Observation:
    grads = gradients()

    def from_zero(epsilon: float) -> Make:
        def make(params: list[Any]) -> Any:
            optimizer = nn.RMSProp(params, learning_rate=0.1, decay=0.9, epsilon=epsilon)
            optimizer.ms[0].set_data(ms.ops.zeros_like(params[0]))
            return optimizer

        return make

    return Observation(
        torch=in_torch(lambda p: optim.RMSprop(p, lr=0.1, alpha=0.9, eps=0.01), grads),
        mindspore=in_mindspore(from_zero(0.01), grads),
        claim=rmsprop(grads, start=0.0, eps=0.01),
        neighbour=(  # too small to matter
            in_torch(lambda p: optim.RMSprop(p, lr=0.1, alpha=0.9, eps=1e-10), grads),
            in_mindspore(from_zero(1e-10), grads),
        ),
    )


@difference(
    "rmsprop-decay-default",
    "`nn.RMSProp` forgets faster by default: decay 0.9, learning rate 0.1; PyTorch 0.99 and 0.01.",
    torch="optim.RMSprop(params)",
    mindspore="nn.RMSProp(params)",
    expected="differs",
    remedy="mindspore.experimental.optim.RMSprop(params)",
)
def rmsprop_decay_default() -> Observation:
    def in_use(optimizer: Any) -> tuple[float, float]:
        return round(float(optimizer.get_lr()), 6), round(float(optimizer.decay), 6)

    def in_use_torch(optimizer: Any) -> tuple[float, float]:
        return optimizer.defaults["lr"], optimizer.defaults["alpha"]

    theirs = torch.nn.Parameter(torch.tensor(START))
    ours = ms.Parameter(ms.Tensor(START), name="weight")
    return Observation(
        torch=in_use_torch(optim.RMSprop([theirs])),
        mindspore=in_use(nn.RMSProp([ours])),
        claim=(0.1, 0.9),
        neighbour=(
            in_use_torch(optim.RMSprop([theirs], lr=0.1, alpha=0.9)),
            in_use(nn.RMSProp([ours])),
        ),
    )


@difference(
    "adagrad-start",
    "`nn.Adagrad` begins with an accumulator of 0.1, PyTorch with 0.",
    torch="optim.Adagrad(params, lr=0.1)",
    mindspore="nn.Adagrad(params, learning_rate=0.1)",
    expected="differs",
    remedy="nn.Adagrad(params, accum=0.0, learning_rate=0.1)",
)
def adagrad_start() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.Adagrad(p, lr=0.1), grads)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda p: nn.Adagrad(p, learning_rate=0.1), grads),
        claim=adagrad(grads, start=0.1),
        neighbour=(
            reference,
            in_mindspore(lambda p: nn.Adagrad(p, accum=0.0, learning_rate=0.1), grads),
        ),
    )


@difference(
    "adagrad-epsilon",
    "`nn.Adagrad` has a fixed epsilon of 1e-8 under the root, PyTorch 1e-10 beside it: weights "
    "with gradients below 1e-4 move less.",
    torch="optim.Adagrad(params, lr=0.1)",
    mindspore="nn.Adagrad(params, accum=0.0, learning_rate=0.1)",
    expected="differs",
    remedy="mindspore.experimental.optim.Adagrad(params, lr=0.1)",
)
def adagrad_epsilon() -> Observation:
    small = gradients(1e-4)
    reference = in_torch(lambda p: optim.Adagrad(p, lr=0.1), small)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda p: nn.Adagrad(p, accum=0.0, learning_rate=0.1), small),
        claim=adagrad(small, start=0.0),
        neighbour=(reference, in_mindspore(lambda p: experimental.Adagrad(p, lr=0.1), small)),
    )


@difference(
    "adadelta-rule",
    "`nn.Adadelta` agrees with PyTorch's, defaults included (learning rate 1.0).",
    torch="optim.Adadelta(params)",
    mindspore="nn.Adadelta(params)",
    expected="agrees",
)
def adadelta_rule() -> Observation:
    grads = gradients()
    reference = in_torch(optim.Adadelta, grads)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(nn.Adadelta, grads),
        neighbour=(reference, in_mindspore(lambda p: nn.Adadelta(p, rho=0.5), grads)),
    )


@difference(
    "asgd-rprop-adamax-rules",
    "With the same learning rate `nn.ASGD`, `nn.Rprop` and `nn.AdaMax` agree with PyTorch.",
    torch="optim.ASGD(p, lr=0.1), optim.Rprop(p, lr=0.1), optim.Adamax(p, lr=0.1)",
    mindspore="nn.ASGD(p, 0.1), nn.Rprop(p, 0.1), nn.AdaMax(p, 0.1)",
    expected="agrees",
)
def asgd_rprop_adamax_rules() -> Observation:
    grads = gradients()
    theirs: tuple[Any, ...] = (optim.ASGD, optim.Rprop, optim.Adamax)
    ours = (nn.ASGD, nn.Rprop, nn.AdaMax)
    reference = tuple(in_torch(partial(kind, lr=0.1), grads) for kind in theirs)
    return Observation(
        torch=reference,
        mindspore=tuple(in_mindspore(partial(kind, learning_rate=0.1), grads) for kind in ours),
        neighbour=(reference, tuple(in_mindspore(kind, grads) for kind in ours)),
    )


@difference(
    "learning-rate-defaults",
    "Default learning rates differ: SGD, ASGD, Rprop and RMSProp step by 0.1, AdaMax and Adagrad "
    "by 0.001.",
    torch="optim.SGD, ASGD, Rprop, RMSprop, Adamax, Adagrad",
    mindspore="nn.SGD, ASGD, Rprop, RMSProp, AdaMax, Adagrad",
    expected="differs",
    remedy="nn.AdaMax(params, learning_rate=0.002)",
)
def learning_rate_defaults() -> Observation:
    def theirs(name: str) -> float:
        optimizer = getattr(optim, name)([torch.nn.Parameter(torch.tensor(START))])
        return float(optimizer.defaults["lr"])

    def ours(name: str) -> float:
        optimizer = getattr(nn, name)([ms.Parameter(ms.Tensor(START), name="weight")])
        return round(float(optimizer.get_lr()), 6)

    theirs_to_ours = {"Adamax": "AdaMax", "RMSprop": "RMSProp"}
    names = ("SGD", "ASGD", "Rprop", "RMSprop", "Adamax", "Adagrad")
    return Observation(
        torch=tuple(theirs(name) for name in names),
        mindspore=tuple(ours(theirs_to_ours.get(name, name)) for name in names),
        claim=(0.1, 0.1, 0.1, 0.1, 0.001, 0.001),
        neighbour=(
            (theirs("Adam"), theirs("Adadelta")),
            (ours("Adam"), ours("Adadelta")),
        ),
    )


@difference(
    "mint-sgd-adam-do-nothing",
    "`mint.optim.SGD` and `mint.optim.Adam` run without an error and leave the weights unchanged "
    "(PyNative on CPU).",
    torch="optim.SGD(params, lr=0.1), optim.Adam(params, lr=0.1)",
    mindspore="mint.optim.SGD(params, lr=0.1), mint.optim.Adam(params, lr=0.1)",
    expected="off",
    remedy="nn.SGD(params, learning_rate=0.1)",
    since="2.10",
    before="`mint.optim.Adam` moves the weights (2.8, 2.9) or raises: The kernel Muls "
    "unregistered (2.7.2); `mint.optim.SGD` never moved them.",
)
def mint_sgd_adam_do_nothing() -> Observation:
    grads = gradients()
    reference = (
        in_torch(lambda p: optim.SGD(p, lr=0.1), grads),
        in_torch(lambda p: optim.Adam(p, lr=0.1), grads),
    )
    plain = START.astype(np.float64) - 0.1 * np.sum(np.asarray(grads, np.float64), axis=0)
    return Observation(
        torch=reference,
        mindspore=(
            in_mindspore(lambda p: ms.mint.optim.SGD(p, lr=0.1), grads),
            in_mindspore(lambda p: ms.mint.optim.Adam(p, lr=0.1), grads),
        ),
        claim=(START, START),
        right=(plain.astype(np.float32), adam_epsilon_hat(grads)),
        neighbour=(
            reference,
            (
                in_mindspore(lambda p: nn.SGD(p, learning_rate=0.1), grads),
                in_mindspore(lambda p: nn.Adam(p, learning_rate=0.1), grads),
            ),
        ),
    )


@difference(
    "mint-adamw-kernel",
    "`mint.optim.AdamW` has no kernel on CPU.",
    torch="optim.AdamW(params, lr=0.1)",
    mindspore="mint.optim.AdamW(params, lr=0.1)",
    expected="raises",
    remedy="mindspore.experimental.optim.AdamW(params, lr=0.1)",
)
def mint_adamw_kernel() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.AdamW(p, lr=0.1), grads)
    return Observation(
        torch=reference,
        mindspore=attempt(in_mindspore, lambda p: ms.mint.optim.AdamW(p, lr=0.1), grads),
        claim=Raised("RuntimeError", "The kernel AdamW unregistered."),
        neighbour=(reference, in_mindspore(lambda p: experimental.AdamW(p, lr=0.1), grads)),
    )


@difference(
    "adam-keywords",
    "`nn.Adam` refuses `lr` and `betas`: they are `learning_rate`, `beta1` and `beta2`.",
    torch="optim.Adam(params, lr=0.1, betas=(0.9, 0.999))",
    mindspore="nn.Adam(params, lr=0.1, betas=(0.9, 0.999))",
    expected="raises",
    remedy="nn.Adam(params, learning_rate=0.1, beta1=0.9, beta2=0.999)",
)
def adam_keywords() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.Adam(p, lr=0.1, betas=(0.9, 0.999)), grads)
    return Observation(
        torch=reference,
        mindspore=attempt(in_mindspore, lambda p: nn.Adam(p, lr=0.1, betas=(0.9, 0.999)), grads),
        claim=Raised("KeyError", "For 'Adam', invalid keys are passed as kwargs"),
        neighbour=(
            reference,
            in_mindspore(lambda p: nn.Adam(p, learning_rate=0.1, beta1=0.9, beta2=0.999), grads),
        ),
    )


@difference(
    "sgd-lr-keyword",
    "The other optimizers of `nn` refuse `lr` too.",
    torch="optim.SGD(params, lr=0.1)",
    mindspore="nn.SGD(params, lr=0.1)",
    expected="raises",
    remedy="nn.SGD(params, learning_rate=0.1)",
)
def sgd_lr_keyword() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.SGD(p, lr=0.1), grads)
    return Observation(
        torch=reference,
        mindspore=attempt(in_mindspore, lambda p: nn.SGD(p, lr=0.1), grads),
        claim=Raised("TypeError", "got an unexpected keyword argument 'lr'"),
        neighbour=(reference, in_mindspore(lambda p: nn.SGD(p, learning_rate=0.1), grads)),
    )


@difference(
    "experimental-sgd-needs-lr",
    "`experimental.optim.SGD` has no default learning rate, PyTorch's SGD has 0.001.",
    torch="optim.SGD(params)",
    mindspore="mindspore.experimental.optim.SGD(params)",
    expected="raises",
    remedy="mindspore.experimental.optim.SGD(params, lr=0.001)",
)
def experimental_sgd_needs_lr() -> Observation:
    grads = gradients()
    reference = in_torch(optim.SGD, grads)
    return Observation(
        torch=reference,
        mindspore=attempt(in_mindspore, experimental.SGD, grads),
        claim=Raised("TypeError", "missing 1 required positional argument: 'lr'"),
        neighbour=(reference, in_mindspore(lambda p: experimental.SGD(p, lr=0.001), grads)),
    )


@difference(
    "epsilon-zero",
    "`nn.Adam` refuses an epsilon of zero.",
    torch="optim.Adam(params, eps=0.0)",
    mindspore="nn.Adam(params, eps=0.0)",
    expected="raises",
    remedy="nn.Adam(params, eps=1e-16)",
)
def epsilon_zero() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.Adam(p, eps=0.0), grads)
    return Observation(
        torch=reference,
        mindspore=attempt(in_mindspore, lambda p: nn.Adam(p, eps=0.0), grads),
        claim=Raised("ValueError", "For 'Adam', the 'eps' must be float and must > 0"),
        neighbour=(reference, in_mindspore(lambda p: nn.Adam(p, eps=1e-16), grads)),
    )


@difference(
    "no-step-method",
    "An optimizer has no `step()`: it is called with the gradients, in the order of its parameters "
    "(`zero_grad()` is not there either, nothing accumulates).",
    torch="optimizer.step()",
    mindspore="optimizer.step()",
    expected="raises",
    remedy="optimizer(grads)",
)
def no_step_method() -> Observation:
    def stepped() -> Array:
        weight = ms.Parameter(ms.Tensor(START), name="weight")
        nn.SGD([weight], learning_rate=0.1).step()
        return np.asarray(weight.asnumpy())

    grads = gradients()
    reference = in_torch(lambda p: optim.SGD(p, lr=0.1), grads)
    return Observation(
        torch=reference,
        mindspore=attempt(stepped),
        claim=Raised("AttributeError", "The 'SGD' object has no attribute 'step'."),
        neighbour=(reference, in_mindspore(lambda p: nn.SGD(p, learning_rate=0.1), grads)),
    )


@difference(
    "gradients-in-a-list",
    "Gradients come in a tuple: a list, as a comprehension makes it, is refused by the optimizers "
    "of `nn`.",
    torch="for p, g in zip(params, [grad]): p.grad = g",
    mindspore="optimizer([grad])",
    expected="raises",
    remedy="optimizer(tuple(grads))",
)
def gradients_in_a_list() -> Observation:
    def stepped(kind: type) -> Any:
        weight = ms.Parameter(ms.Tensor(START), name="weight")
        nn.SGD([weight], learning_rate=0.1)(kind([ms.Tensor(gradients()[0])]))
        return weight.asnumpy()

    reference = in_torch(lambda p: optim.SGD(p, lr=0.1), gradients()[:1])
    return Observation(
        torch=reference,
        mindspore=attempt(stepped, list),
        claim=Raised("RuntimeError", "the types of arguments in HyperMap must be consistent"),
        neighbour=(reference, stepped(tuple)),
    )


@difference(
    "missing-gradient",
    "A gradient too few is an error in `nn`, where PyTorch leaves a parameter without gradient "
    "alone.",
    torch="unused.grad = None; optimizer.step()",
    mindspore="optimizer((grad,))  # two parameters",
    expected="raises",
    remedy="nn.SGD([p for p in net.trainable_params() if p is not unused], 0.1)",
)
def missing_gradient() -> Observation:
    def stepped(count: int) -> Any:
        pair = [ms.Parameter(ms.Tensor(START), name=name) for name in ("used", "unused")]
        nn.SGD(pair[:count], learning_rate=0.1)((ms.Tensor(gradients()[0]),))
        return pair[0].asnumpy(), pair[1].asnumpy()

    first = torch.nn.Parameter(torch.tensor(START))
    second = torch.nn.Parameter(torch.tensor(START))
    first.grad = torch.tensor(gradients()[0])
    optim.SGD([first, second], lr=0.1).step()
    reference = (first.detach().numpy(), second.detach().numpy())
    return Observation(
        torch=reference,
        mindspore=attempt(stepped, 2),
        claim=Raised("RuntimeError", "The tuples in HyperMap should have the same length."),
        neighbour=(reference, stepped(1)),
    )


@difference(
    "unused-parameter-decays",
    "A parameter that the loss does not use gets a zero gradient, not None: weight decay still "
    "shrinks it.",
    torch="optim.SGD(params, lr=0.1, weight_decay=0.5)",
    mindspore="nn.SGD(params, learning_rate=0.1, weight_decay=0.5)",
    expected="differs",
    remedy="unused.requires_grad = False; optimizer = nn.SGD(net.trainable_params(), ...)",
)
def unused_parameter_decays() -> Observation:
    def in_torch_twice(weight_decay: float) -> Array:
        used, unused = (torch.nn.Parameter(torch.tensor(START)) for _ in range(2))
        optimizer = optim.SGD([used, unused], lr=0.1, weight_decay=weight_decay)
        for _ in range(3):
            optimizer.zero_grad()
            (used * used).sum().backward()
            optimizer.step()
        return np.asarray(unused.detach().numpy())

    def in_mindspore_twice(weight_decay: float) -> Array:
        used, unused = (ms.Parameter(ms.Tensor(START), name=n) for n in ("used", "unused"))
        optimizer = nn.SGD([used, unused], learning_rate=0.1, weight_decay=weight_decay)

        def loss() -> Any:
            return (used * used).sum()

        grad = ms.grad(loss, None, optimizer.parameters)
        for _ in range(3):
            optimizer(grad())
        return np.asarray(unused.asnumpy())

    return Observation(
        torch=in_torch_twice(0.5),
        mindspore=in_mindspore_twice(0.5),
        claim=(START * 0.95**3).astype(np.float32),
        neighbour=(in_torch_twice(0.0), in_mindspore_twice(0.0)),
    )


@difference(
    "weight-decay-skips-names",
    "Without groups weight decay skips every parameter whose name contains `beta` or `gamma`, "
    "which are those of the normalisation layers; PyTorch decays all.",
    torch="optim.SGD(params, lr=0.1, weight_decay=0.5)",
    mindspore="nn.SGD(params, learning_rate=0.1, weight_decay=0.5)",
    expected="differs",
    remedy='nn.SGD([{"params": params}], learning_rate=0.1, weight_decay=0.5)',
)
def weight_decay_skips_names() -> Observation:
    def plain(first: list[Any], second: list[Any]) -> Any:
        return nn.SGD(first + second, learning_rate=0.1, weight_decay=0.5)

    reference = decayed_torch(0.5, 0.5)
    return Observation(
        torch=reference,
        mindspore=decayed(plain, "norm.gamma"),
        claim=decayed_torch(0.5, 0.0),
        neighbour=(reference, decayed(plain, "layer.bias")),  # a bias is decayed by both
    )


@difference(
    "weight-decay-name-by-accident",
    "The name is searched as text: a layer that you call `beta_head` is not decayed at all.",
    torch="self.beta_head = nn.Linear(3, 2)",
    mindspore="self.beta_head = nn.Dense(3, 2)",
    expected="differs",
    remedy='nn.SGD([{"params": params}], learning_rate=0.1, weight_decay=0.5)',
)
def weight_decay_name_by_accident() -> Observation:
    def plain(first: list[Any], second: list[Any]) -> Any:
        return nn.Momentum(first + second, 0.1, 0.0, weight_decay=0.5)

    reference = decayed_torch(0.5, 0.5)
    return Observation(
        torch=reference,
        mindspore=decayed(plain, "beta_head.weight"),
        claim=decayed_torch(0.5, 0.0),
        neighbour=(reference, decayed(plain, "alpha_head.weight")),
    )


@difference(
    "weight-decay-by-groups",
    "In parameter groups the decay given holds for every parameter, whatever its name: as in "
    "PyTorch.",
    torch='optim.SGD([{"params": [w]}, {"params": [gamma]}], lr=0.1, weight_decay=0.5)',
    mindspore='nn.SGD([{"params": [w]}, {"params": [gamma]}], 0.1, weight_decay=0.5)',
    expected="agrees",
)
def weight_decay_by_groups() -> Observation:
    reference = decayed_torch(0.5, 0.5)
    return Observation(
        torch=reference,
        mindspore=decayed(
            lambda w, gamma: nn.SGD([{"params": w}, {"params": gamma}], 0.1, weight_decay=0.5),
            "norm.gamma",
        ),
        neighbour=(
            reference,
            decayed(lambda w, gamma: nn.SGD(w + gamma, 0.1, weight_decay=0.5), "norm.gamma"),
        ),
    )


@difference(
    "experimental-decays-all",
    "The optimizers of `experimental.optim` decay every parameter, as PyTorch does.",
    torch="optim.SGD(params, lr=0.1, weight_decay=0.5)",
    mindspore="mindspore.experimental.optim.SGD(params, lr=0.1, weight_decay=0.5)",
    expected="agrees",
)
def experimental_decays_all() -> Observation:
    reference = decayed_torch(0.5, 0.5)
    return Observation(
        torch=reference,
        mindspore=decayed(
            lambda w, gamma: experimental.SGD(w + gamma, lr=0.1, weight_decay=0.5), "norm.gamma"
        ),
        neighbour=(
            reference,
            decayed(lambda w, gamma: nn.SGD(w + gamma, 0.1, weight_decay=0.5), "norm.gamma"),
        ),
    )


@difference(
    "group-order",
    "The optimizer holds its parameters in the order of the groups: gradients in the order of "
    "`trainable_params()` go to the wrong parameters, silently where the shapes allow it.",
    torch='optim.SGD([{"params": [b]}, {"params": [a]}], lr=0.1)',
    mindspore='nn.SGD([{"params": [b]}, {"params": [a]}], 0.1)(grads_of_a_b)',
    expected="differs",
    remedy="grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)",
)
def group_order() -> Observation:
    def in_torch_groups() -> tuple[Array, Array]:
        a, b = (torch.nn.Parameter(torch.tensor(START)) for _ in range(2))
        optimizer = optim.SGD([{"params": [b]}, {"params": [a]}], lr=0.1)
        for _ in range(3):
            a.grad, b.grad = torch.ones_like(a), 2 * torch.ones_like(b)
            optimizer.step()
        return a.detach().numpy(), b.detach().numpy()

    def in_mindspore_groups(ordered: bool) -> tuple[Array, Array]:
        a, b = (ms.Parameter(ms.Tensor(START), name=name) for name in "ab")
        optimizer = nn.SGD([{"params": [b]}, {"params": [a]}], 0.1)
        gradient = {"a": np.ones_like(START), "b": 2 * np.ones_like(START)}
        order = [p.name for p in optimizer.parameters] if ordered else ["a", "b"]
        for _ in range(3):
            optimizer(tuple(ms.Tensor(gradient[name]) for name in order))
        return a.asnumpy(), b.asnumpy()

    reference = in_torch_groups()
    return Observation(
        torch=reference,
        mindspore=in_mindspore_groups(ordered=False),
        claim=(reference[1], reference[0]),
        neighbour=(reference, in_mindspore_groups(ordered=True)),
    )


@difference(
    "group-keys",
    "A group may set its own `lr` and `weight_decay`, but not its own momentum or betas.",
    torch='optim.SGD([{"params": params, "momentum": 0.5}], lr=0.1)',
    mindspore='nn.SGD([{"params": params, "momentum": 0.5}], learning_rate=0.1)',
    expected="raises",
    remedy='nn.SGD([{"params": params, "lr": 0.1}], learning_rate=0.1, momentum=0.5)',
)
def group_keys() -> Observation:
    grads = gradients()
    reference = in_torch(lambda p: optim.SGD([{"params": p, "momentum": 0.5}], lr=0.1), grads)
    return Observation(
        torch=reference,
        mindspore=attempt(
            in_mindspore, lambda p: nn.SGD([{"params": p, "momentum": 0.5}], 0.1), grads
        ),
        claim=Raised("KeyError", "For 'Optimizer', the key in group params must be one of in"),
        neighbour=(
            reference,
            in_mindspore(lambda p: nn.SGD([{"params": p, "lr": 0.1}], 0.3, momentum=0.5), grads),
        ),
    )


@difference(
    "set-data-after-a-step",
    "After the first step of an `nn` optimizer `set_data` cuts the parameter off: later steps no "
    "longer change it (CPU).",
    torch="parameter.data = value; optimizer.step()",
    mindspore="parameter.set_data(value); optimizer(grads)",
    expected="off",
    remedy="ops.assign(parameter, value)",
)
def set_data_after_a_step() -> Observation:
    grads = gradients()
    value = np.full_like(START, 10.0)

    def changed(change: Callable[[Any, Any], Any]) -> Array:
        weight = ms.Parameter(ms.Tensor(START), name="weight")
        optimizer = nn.SGD([weight], learning_rate=0.1)
        optimizer((ms.Tensor(grads[0]),))
        change(weight, ms.Tensor(value))
        for grad in grads:
            optimizer((ms.Tensor(grad),))
        return np.asarray(weight.asnumpy())

    weight = torch.nn.Parameter(torch.tensor(START))
    sgd = optim.SGD([weight], lr=0.1)
    for step, grad in enumerate([grads[0], *grads]):
        if step == 1:
            weight.data = torch.tensor(value)
        weight.grad = torch.tensor(grad)
        sgd.step()
    return Observation(
        torch=weight.detach(),
        mindspore=changed(lambda parameter, new: parameter.set_data(new)),
        claim=value,
        right=(value - 0.1 * np.sum(np.asarray(grads, np.float64), axis=0)).astype(np.float32),
        neighbour=(weight.detach(), changed(ms.ops.assign)),
    )
