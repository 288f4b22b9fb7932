"""Dropout: which probability, when it is on, whole channels, seeds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import mint, nn, ops

from msnb.differences import Observation, Raised, attempt, difference
from msnb.parity.arrays import to_numpy

_ONES = np.ones(64, np.float32)
_IMAGES = np.ones((4, 16, 2, 2), np.float32)


def _largest(tensor: Any) -> Any:
    """What a kept 1 became: 1 / (probability to keep)."""
    return to_numpy(tensor)[0].max()


def _repeats(seed: Callable[[int], Any], draw: Callable[[], Any]) -> bool:
    """Whether the same seed gives the same mask; the seed is left at 0."""
    seed(0)
    first = to_numpy(draw())[0].copy()
    seed(0)
    return bool(np.array_equal(first, to_numpy(draw())[0]))


@difference(
    "positional-probability",
    "The first argument of `nn.Dropout` is the probability to keep: `nn.Dropout(0.1)` drops 90 %.",
    torch="nn.Dropout(0.1)",
    mindspore="nn.Dropout(0.1)",
    expected="differs",
    remedy="nn.Dropout(p=0.1)",
)
def positional_probability() -> Observation:
    right = _largest(torch.nn.Dropout(0.1)(torch.tensor(_ONES)))
    return Observation(
        torch=right,
        mindspore=_largest(nn.Dropout(0.1).set_train()(ms.Tensor(_ONES.repeat(9)))),
        claim=np.float32(1 / 0.1),
        neighbour=(right, _largest(nn.Dropout(p=0.1).set_train()(ms.Tensor(_ONES)))),
    )


@difference(
    "off-until-set-train",
    "A Cell is in evaluation mode when made: `nn.Dropout` does nothing before `set_train()`, while "
    "`ops.dropout` is on by default, as in PyTorch.",
    torch="nn.Dropout(0.5)(x)",
    mindspore="nn.Dropout(p=0.5)(x)",
    expected="differs",
    remedy="net.set_train() before training, net.set_train(False) after",
)
def off_until_set_train() -> Observation:
    def drops(tensor: Any) -> bool:
        return bool((to_numpy(tensor)[0] == 0).any())

    x, y = torch.tensor(_ONES), ms.Tensor(_ONES)
    return Observation(
        torch=drops(torch.nn.Dropout(0.5)(x)),
        mindspore=drops(nn.Dropout(p=0.5)(y)),
        claim=False,
        neighbour=(drops(F.dropout(x)), drops(ops.dropout(y))),
    )


@difference(
    "drop-everything",
    "`p=1` is refused; PyTorch gives zeros.",
    torch="nn.Dropout(1.0)",
    mindspore="nn.Dropout(p=1.0)",
    expected="raises",
    remedy="ops.zeros_like(x)",
)
def drop_everything() -> Observation:
    x, y = torch.tensor(_ONES), ms.Tensor(_ONES)
    return Observation(
        torch=torch.nn.Dropout(1.0)(x),
        mindspore=attempt(nn.Dropout, p=1.0),
        claim=Raised("ValueError", "the 'p' must be a number in range [0, 1), but got 1.0"),
        neighbour=(torch.nn.Dropout(0.0)(x), nn.Dropout(p=0.0).set_train()(y)),
    )


@difference(
    "integer-argument",
    "`nn.Dropout(0)` is refused for its type: the first argument must be a float.",
    torch="nn.Dropout(0)",
    mindspore="nn.Dropout(0)",
    expected="raises",
    remedy="nn.Dropout(p=0)",
)
def integer_argument() -> Observation:
    right = torch.nn.Dropout(0)(torch.tensor(_ONES))
    return Observation(
        torch=right,
        mindspore=attempt(nn.Dropout, 0),
        claim=Raised("TypeError", "the type of 'keep_prob' should be 'float', but got type 'int'"),
        neighbour=(right, nn.Dropout(p=0).set_train()(ms.Tensor(_ONES))),
    )


@difference(
    "whole-channels",
    "`Dropout2d` drops whole channels and takes the probability to drop as its first argument, as "
    "in PyTorch.",
    torch="nn.Dropout2d(0.2)",
    mindspore="nn.Dropout2d(0.2)",
    expected="agrees",
)
def whole_channels() -> Observation:
    def channels(tensor: Any) -> tuple[bool, Any]:
        dropped = (to_numpy(tensor)[0] == 0).reshape(64, 4)
        return bool((dropped.all(1) | ~dropped.any(1)).all()), _largest(tensor)

    x, y = torch.tensor(_IMAGES), ms.Tensor(_IMAGES)
    right = channels(torch.nn.Dropout2d(0.2)(x))
    return Observation(
        torch=right,
        mindspore=channels(nn.Dropout2d(0.2).set_train()(y)),
        claim=(True, np.float32(1 / 0.8)),
        neighbour=(right, channels(nn.Dropout(p=0.2).set_train()(y))),
    )


@difference(
    "dropout2d-rank",
    "`Dropout2d` wants four dimensions: a single image (C, H, W) is refused.",
    torch="nn.Dropout2d(0.2)(image)",
    mindspore="nn.Dropout2d(0.2)(image)",
    expected="raises",
    remedy="nn.Dropout2d(0.2)(image.unsqueeze(0)).squeeze(0)",
)
def dropout2d_rank() -> Observation:
    def shape(layer: Any, tensor: Any) -> tuple[int, ...]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch: what a 3-D input means will change
            return tuple(layer(tensor).shape)

    x, y = torch.nn.Dropout2d(0.2), nn.Dropout2d(0.2).set_train()
    return Observation(
        torch=shape(x, torch.tensor(_IMAGES[0])),
        mindspore=attempt(shape, y, ms.Tensor(_IMAGES[0])),
        claim=Raised("ValueError", "the rank of input  must be equal to 4 , but got 3"),
        neighbour=(shape(x, torch.tensor(_IMAGES)), shape(y, ms.Tensor(_IMAGES))),
    )


@difference(
    "seed-before-the-layer",
    "A Dropout layer keeps the seed it was made with: `set_seed` resets only layers made after it.",
    torch="manual_seed(0) before each call of a layer",
    mindspore="set_seed(0) before each call of a layer",
    expected="differs",
    remedy="ms.set_seed(0) before the net is made, or ops.dropout",
)
def seed_before_the_layer() -> Observation:
    x, y = torch.tensor(_ONES), ms.Tensor(_ONES)
    old, layer = torch.nn.Dropout(0.5), nn.Dropout(p=0.5).set_train()
    right = _repeats(torch.manual_seed, lambda: old(x))
    return Observation(
        torch=right,
        mindspore=_repeats(ms.set_seed, lambda: layer(y)),
        claim=False,
        neighbour=(right, _repeats(ms.set_seed, lambda: nn.Dropout(p=0.5).set_train()(y))),
    )


@difference(
    "seed-of-dropout2d",
    "`ops.dropout2d` and `nn.Dropout2d` do not follow `set_seed` at all.",
    torch="manual_seed(0) before F.dropout2d(x)",
    mindspore="set_seed(0) before ops.dropout2d(x)",
    expected="differs",
    remedy="x * ops.dropout(ops.ones((n, c, 1, 1)), 0.5)",
)
def seed_of_dropout2d() -> Observation:
    x, y = torch.tensor(_IMAGES), ms.Tensor(_IMAGES)
    right = _repeats(torch.manual_seed, lambda: F.dropout2d(x, 0.5))
    mask = ops.ones((4, 16, 1, 1))
    return Observation(
        torch=right,
        mindspore=_repeats(ms.set_seed, lambda: ops.dropout2d(y, 0.5)),
        claim=False,
        neighbour=(right, _repeats(ms.set_seed, lambda: y * ops.dropout(mask, 0.5))),
    )


@difference(
    "seed-argument",
    "The `seed` of `ops.dropout` does not fix the mask: each call goes on from the last.",
    torch="manual_seed(3) before each F.dropout(x)",
    mindspore="ops.dropout(x, seed=3) twice",
    expected="differs",
    remedy="ms.set_seed(3) before each call",
)
def seed_argument() -> Observation:
    x, y = torch.tensor(_ONES), ms.Tensor(_ONES)
    right = _repeats(torch.manual_seed, lambda: F.dropout(x))

    def leave(seed: int) -> None:
        pass

    return Observation(
        torch=right,
        mindspore=_repeats(leave, lambda: ops.dropout(y, seed=3)),
        claim=False,
        neighbour=(right, _repeats(ms.set_seed, lambda: ops.dropout(y))),
    )


@difference(
    "mint-dropout",
    "`mint.nn.functional.dropout` and a `mint.nn.Dropout` in training have no CPU kernel.",
    torch="F.dropout(x)",
    mindspore="mint.nn.functional.dropout(x)",
    expected="raises",
    remedy="ops.dropout(x, p)",
    since="2.10",
    before="the same, but the error says no more than `Not implement exception`.",
)
def mint_dropout() -> Observation:
    right = _largest(F.dropout(torch.tensor(_ONES)))
    return Observation(
        torch=right,
        mindspore=attempt(mint.nn.functional.dropout, ms.Tensor(_ONES)),
        claim=Raised("RuntimeError", "The kernel DropoutExt unregistered"),
        neighbour=(right, _largest(ops.dropout(ms.Tensor(_ONES)))),
    )
