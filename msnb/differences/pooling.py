"""Pooling: strides, padding, divisors, shapes, NaN."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]


def _image(height: int, width: int, channels: int = 2) -> Array:
    rng = np.random.default_rng(0)
    return rng.normal(size=(1, channels, height, width)).astype(np.float32)


def _both(torch_layer: Any, ms_layer: Any, x: Array) -> tuple[Any, Any]:
    return torch_layer(torch.tensor(x)), attempt(ms_layer, ms.Tensor(x))


@difference(
    "stride-default",
    "`nn.MaxPool2d(2)` and `nn.AvgPool2d(2)` move by 1; in PyTorch the default stride is the "
    "kernel size.",
    torch="nn.MaxPool2d(2)",
    mindspore="nn.MaxPool2d(2)",
    expected="differs",
    remedy="nn.MaxPool2d(2, stride=2)",
)
def stride_default() -> Observation:
    x = _image(4, 6)
    pooled, mindspore = _both(torch.nn.MaxPool2d(2), nn.MaxPool2d(2), x)
    return Observation(
        torch=pooled,
        mindspore=mindspore,
        claim=F.max_pool2d(torch.tensor(x), 2, stride=1),
        neighbour=_both(torch.nn.MaxPool2d(2), nn.MaxPool2d(2, stride=2), x),
    )


@difference(
    "functional-stride-default",
    "`ops.avg_pool2d(x, 2)` moves by 1, though `ops.max_pool2d(x, 2)` moves by 2 as in PyTorch.",
    torch="F.avg_pool2d(x, 2)",
    mindspore="ops.avg_pool2d(x, 2)",
    expected="differs",
    remedy="ops.avg_pool2d(x, 2, stride=2)",
)
def functional_stride_default() -> Observation:
    x = _image(4, 6)
    pooled, mindspore = _both(lambda x: F.avg_pool2d(x, 2), lambda x: ops.avg_pool2d(x, 2), x)
    return Observation(
        torch=pooled,
        mindspore=mindspore,
        claim=F.avg_pool2d(torch.tensor(x), 2, stride=1),
        neighbour=_both(lambda x: F.max_pool2d(x, 2), lambda x: ops.max_pool2d(x, 2), x),
    )


@difference(
    "stride-none",
    "`stride=None` is refused.",
    torch="nn.MaxPool2d(2, stride=None)",
    mindspore="nn.MaxPool2d(2, stride=None)",
    expected="raises",
    remedy="nn.MaxPool2d(2, stride=2)",
)
def stride_none() -> Observation:
    x = _image(4, 6)
    layer = torch.nn.MaxPool2d(2, stride=None)
    return Observation(
        torch=layer(torch.tensor(x)),
        mindspore=attempt(nn.MaxPool2d, 2, stride=None),
        claim=Raised("TypeError", "the type of 'stride' should be one of '['int', 'tuple']'"),
        neighbour=_both(layer, nn.MaxPool2d(2, stride=2), x),
    )


@difference(
    "kernel-size-default",
    "`nn.MaxPool2d()` is accepted: its kernel is 1, it does nothing. PyTorch asks for the size.",
    torch="nn.MaxPool2d()",
    mindspore="nn.MaxPool2d()",
    expected="accepts",
    remedy="nn.MaxPool2d(2, stride=2)",
)
def kernel_size_default() -> Observation:
    x = _image(4, 6)
    return Observation(
        torch=attempt(torch.nn.MaxPool2d),
        mindspore=nn.MaxPool2d()(ms.Tensor(x)),
        claim=x,
        neighbour=_both(torch.nn.MaxPool2d(2, 2), nn.MaxPool2d(2, 2), x),
    )


@difference(
    "padding-without-pad-mode",
    'Padding needs `pad_mode="pad"`; alone it is refused.',
    torch="nn.MaxPool2d(3, stride=2, padding=1)",
    mindspore="nn.MaxPool2d(3, stride=2, padding=1)",
    expected="raises",
    remedy='nn.MaxPool2d(3, stride=2, pad_mode="pad", padding=1)',
)
def padding_without_pad_mode() -> Observation:
    x = _image(5, 6)
    layer = torch.nn.MaxPool2d(3, stride=2, padding=1)
    return Observation(
        torch=layer(torch.tensor(x)),
        mindspore=attempt(nn.MaxPool2d, 3, stride=2, padding=1),
        claim=Raised(
            "ValueError", "can not be set to non-default value when pad_mode is not 'pad'"
        ),
        neighbour=_both(layer, nn.MaxPool2d(3, stride=2, pad_mode="pad", padding=1), x),
    )


@difference(
    "ceil-mode-max",
    '`ceil_mode`, `dilation` and `return_indices` of `nn.MaxPool2d` need `pad_mode="pad"`, though '
    "nothing is padded; `nn.AvgPool2d` takes `ceil_mode` without it.",
    torch="nn.MaxPool2d(2, 2, ceil_mode=True)",
    mindspore="nn.MaxPool2d(2, 2, ceil_mode=True)",
    expected="raises",
    remedy='nn.MaxPool2d(2, 2, pad_mode="pad", ceil_mode=True)',
)
def ceil_mode_max() -> Observation:
    x = _image(5, 6)
    return Observation(
        torch=F.max_pool2d(torch.tensor(x), 2, ceil_mode=True),
        mindspore=attempt(nn.MaxPool2d, 2, 2, ceil_mode=True),
        claim=Raised(
            "ValueError", "can not be set to non-default value when pad_mode is not 'pad'"
        ),
        neighbour=_both(
            torch.nn.AvgPool2d(2, 2, ceil_mode=True), nn.AvgPool2d(2, 2, ceil_mode=True), x
        ),
    )


@difference(
    "same-on-even-input",
    "On even input `same` pads right and bottom only: PyTorch's `padding=1` has the same shape and "
    "other values.",
    torch="nn.MaxPool2d(3, stride=2, padding=1)",
    mindspore='nn.MaxPool2d(3, stride=2, pad_mode="same")',
    expected="differs",
    remedy='nn.MaxPool2d(3, stride=2, pad_mode="pad", padding=1)',
)
def same_on_even_input() -> Observation:
    even = _image(6, 6)
    layer, same = torch.nn.MaxPool2d(3, 2, padding=1), nn.MaxPool2d(3, 2, pad_mode="same")
    pooled, mindspore = _both(layer, same, even)
    padded = F.pad(torch.tensor(even), (0, 1, 0, 1), value=-np.inf)
    return Observation(
        torch=pooled,
        mindspore=mindspore,
        claim=F.max_pool2d(padded, 3, 2),
        neighbour=_both(layer, same, _image(7, 7)),  # odd input: both sides get one
    )


@difference(
    "same-average-divisor",
    'With `pad_mode="same"` an average never counts the padding, whatever `count_include_pad` '
    "says; PyTorch counts it by default.",
    torch="nn.AvgPool2d(3, stride=2, padding=1)",
    mindspore='nn.AvgPool2d(3, stride=2, pad_mode="same", count_include_pad=True)',
    expected="differs",
    remedy='nn.AvgPool2d(3, stride=2, pad_mode="pad", padding=1)',
)
def same_average_divisor() -> Observation:
    odd = _image(7, 7)
    layer = torch.nn.AvgPool2d(3, 2, padding=1)
    pooled, mindspore = _both(
        layer, nn.AvgPool2d(3, 2, pad_mode="same", count_include_pad=True), odd
    )
    return Observation(
        torch=pooled,
        mindspore=mindspore,
        claim=F.avg_pool2d(torch.tensor(odd), 3, 2, padding=1, count_include_pad=False),
        neighbour=_both(layer, nn.AvgPool2d(3, 2, pad_mode="pad", padding=1), odd),
    )


@difference(
    "adaptive-1d-divisible",
    "`nn.AdaptiveAvgPool1d` and `nn.AdaptiveMaxPool1d` need an input length that the output size "
    "divides; the 2-D layers do not.",
    torch="nn.AdaptiveAvgPool1d(4)",
    mindspore="nn.AdaptiveAvgPool1d(4)",
    expected="raises",
    remedy="nn.AdaptiveAvgPool2d((1, 4))(x.expand_dims(2)).squeeze(2)",
)
def adaptive_1d_divisible() -> Observation:
    x = _image(2, 6)[0]
    layer = torch.nn.AdaptiveAvgPool1d(4)
    pooled, mindspore = _both(layer, nn.AdaptiveAvgPool1d(4), x)
    return Observation(
        torch=pooled,
        mindspore=mindspore,
        claim=Raised("ValueError", "last dimension must be divisible by output size 4, but got 6"),
        neighbour=_both(
            layer, lambda x: nn.AdaptiveAvgPool2d((1, 4))(x.expand_dims(2)).squeeze(2), x
        ),
    )


@difference(
    "integers",
    "Max pooling takes no integers on CPU.",
    torch="nn.MaxPool2d(2)(labels)",
    mindspore="nn.MaxPool2d(2, 2)(labels)",
    expected="raises",
    remedy="nn.MaxPool2d(2, 2)(labels.astype(ms.float32)).astype(ms.int32)",
)
def integers() -> Observation:
    labels = np.arange(24, dtype=np.int32).reshape(1, 1, 4, 6)
    layer = torch.nn.MaxPool2d(2)
    pooled, mindspore = _both(layer, nn.MaxPool2d(2, 2), labels)
    return Observation(
        torch=pooled,
        mindspore=mindspore,
        claim=Raised("TypeError", "Kernel select failed"),
        neighbour=_both(
            layer,
            lambda x: nn.MaxPool2d(2, 2)(x.astype(ms.float32)).astype(ms.int32),
            labels,
        ),
    )


@difference(
    "max-nan",
    "`nn.MaxPool2d` loses a NaN unless it is the window's last element; PyTorch keeps it.",
    torch="nn.MaxPool2d(2)",
    mindspore="nn.MaxPool2d(2, 2)",
    expected="differs",
    remedy='nn.MaxPool2d(2, 2, pad_mode="pad")',
)
def max_nan() -> Observation:
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    x[..., 0, 0] = x[..., 1, 3] = np.nan  # the first of one window, the last of the other
    pooled, mindspore = _both(torch.nn.MaxPool2d(2), nn.MaxPool2d(2, 2), x)
    return Observation(
        torch=pooled,
        mindspore=mindspore,
        claim=np.array([5, np.nan], dtype=np.float32).reshape(1, 1, 1, 2),
        neighbour=_both(torch.nn.MaxPool2d(2), nn.MaxPool2d(2, 2, pad_mode="pad"), x),
    )


@difference(
    "max-of-minus-infinity",
    "A window of -inf has the maximum -3.4e38, the lowest finite float32.",
    torch="nn.MaxPool2d(2)",
    mindspore="nn.MaxPool2d(2, 2)",
    expected="off",
    remedy='nn.MaxPool2d(2, 2, pad_mode="pad")',
)
def max_of_minus_infinity() -> Observation:
    x = np.full((1, 1, 2, 2), -np.inf, dtype=np.float32)
    pooled, mindspore = _both(torch.nn.MaxPool2d(2), nn.MaxPool2d(2, 2), x)
    return Observation(
        torch=pooled,
        mindspore=mindspore,
        claim=np.full((1, 1, 1, 1), np.finfo(np.float32).min),
        right=x.max(axis=(2, 3), keepdims=True),
        neighbour=_both(torch.nn.MaxPool2d(2), nn.MaxPool2d(2, 2, pad_mode="pad"), x),
    )
