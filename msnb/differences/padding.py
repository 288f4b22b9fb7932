"""Padding and convolution: sides, defaults, arguments."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]


def _image(channels: int, size: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(2, channels, size, size)).astype(np.float32)


def _weight(*shape: int) -> Array:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _ms_conv(x: Array, weight: Array, **settings: Any) -> Any:
    out, group_in, height, width = weight.shape
    group = settings.get("group", 1)
    conv = nn.Conv2d(
        group_in * group, out, (height, width), weight_init=ms.Tensor(weight), **settings
    )
    return conv(ms.Tensor(x))


def _torch_conv(x: Array, weight: Array, **settings: Any) -> torch.Tensor:
    return F.conv2d(torch.tensor(x), torch.tensor(weight), **settings)


@difference(
    "same-stride-2",
    "On even input a stride-2 `same` convolution pads right and bottom only: PyTorch's `padding=1` "
    "has the same shape and other values.",
    torch="nn.Conv2d(3, 4, 3, stride=2, padding=1)",
    mindspore='nn.Conv2d(3, 4, 3, stride=2, pad_mode="same")',
    expected="differs",
    remedy='nn.Conv2d(3, 4, 3, stride=2, pad_mode="pad", padding=1)',
)
def same_stride_2() -> Observation:
    weight = _weight(4, 3, 3, 3)
    even, odd = _image(3, 6), _image(3, 7)
    return Observation(
        torch=_torch_conv(even, weight, stride=2, padding=1),
        mindspore=_ms_conv(even, weight, stride=2, pad_mode="same"),
        claim=_torch_conv(np.pad(even, ((0, 0), (0, 0), (0, 1), (0, 1))), weight, stride=2),
        neighbour=(  # odd input: both sides get one
            _torch_conv(odd, weight, stride=2, padding=1),
            _ms_conv(odd, weight, stride=2, pad_mode="same"),
        ),
    )


@difference(
    "padding-without-pad-mode",
    "`padding=1` alone is refused: the default `pad_mode` is `same`, which takes no padding.",
    torch="nn.Conv2d(3, 4, 3, padding=1)",
    mindspore="nn.Conv2d(3, 4, 3, padding=1)",
    expected="raises",
    remedy='nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1)',
)
def padding_without_pad_mode() -> Observation:
    x, weight = _image(3, 6), _weight(4, 3, 3, 3)
    right = _torch_conv(x, weight, padding=1)
    return Observation(
        torch=right,
        mindspore=attempt(_ms_conv, x, weight, padding=1),
        claim=Raised("ValueError", "the 'pad' must be zero when 'pad_mode' is not 'pad'"),
        neighbour=(right, _ms_conv(x, weight, pad_mode="pad", padding=1)),
    )
