"""Resizing: corners, scale factors, cubic weights, what has no kernel."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]


def _image(*size: int) -> Array:
    return np.random.default_rng(0).normal(size=(1, 2, *size)).astype(np.float32)


def _resized(x: Array, **settings: Any) -> tuple[Any, Any]:
    return (
        F.interpolate(torch.tensor(x), **settings),
        attempt(ops.interpolate, ms.Tensor(x), **settings),
    )


def _along(x: Array, axis: int, weights: Array) -> Array:
    """Apply a matrix (output, input) along one axis."""
    return np.moveaxis(np.tensordot(weights, x, (1, axis)), 0, axis)


def linear_weights(length: int, output: int) -> Array:
    """Matrix (output, length) of linear resizing with source i * length / output, no half pixels.

    >>> linear_weights(2, 4)[1].tolist()
    [0.5, 0.5]
    """
    weights = np.zeros((output, length))
    for i in range(output):
        source = i * length / output
        low = int(source)
        weights[i, low] += 1 - (source - low)
        weights[i, min(low + 1, length - 1)] += source - low
    return weights


def cubic_weights(
    length: int, output: int, *, a: float, align_corners: bool, normalised: bool, steps: int = 1024
) -> Array:
    """Matrix (output, length) of cubic resizing, with Keys' kernel of parameter ``a``.

    The position between two pixels is rounded to ``steps`` steps, as TensorFlow's table of weights
    does. ``normalised`` drops neighbours beyond the border and divides by the rest's sum; otherwise
    the border pixel is repeated. The kernel: R. Keys, Cubic convolution interpolation for digital
    image processing, IEEE Trans. ASSP 29 (1981), eq. 15 with its general parameter.

    >>> cubic_weights(4, 2, a=-0.75, align_corners=True, normalised=False).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """

    def kernel(distance: float) -> float:
        d = abs(distance)
        if d <= 1:
            return ((a + 2) * d - (a + 3)) * d * d + 1
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0

    weights = np.zeros((output, length))
    for i in range(output):
        if align_corners:
            source = i * (length - 1) / (output - 1)
        else:
            source = (i + 0.5) * length / output - 0.5
        low = int(np.floor(source))
        between = round((source - low) * steps) / steps
        for k in range(-1, 3):
            if 0 <= low + k < length or not normalised:
                weights[i, min(max(low + k, 0), length - 1)] += kernel(between - k)
        if normalised:
            weights[i] /= weights[i].sum()
    return weights


def _cubic(x: Array, size: tuple[int, int], **settings: Any) -> Array:
    for axis, output in zip((2, 3), size, strict=True):
        x = _along(x, axis, cubic_weights(x.shape[axis], output, **settings))
    return x.astype(np.float32)


@difference(
    "bilinear-corners",
    "`ops.ResizeBilinearV2()` starts from the corner of the first pixel, not from its centre: the "
    "image is shifted against PyTorch's.",
    torch='F.interpolate(x, (8, 10), mode="bilinear")',
    mindspore="ops.ResizeBilinearV2()(x, (8, 10))",
    expected="differs",
    remedy="ops.ResizeBilinearV2(half_pixel_centers=True)(x, (8, 10))",
)
def bilinear_corners() -> Observation:
    x = _image(4, 5)
    right = F.interpolate(torch.tensor(x), (8, 10), mode="bilinear")
    claim = _along(_along(x, 2, linear_weights(4, 8)), 3, linear_weights(5, 10))
    half = ops.ResizeBilinearV2(half_pixel_centers=True)
    return Observation(
        torch=right,
        mindspore=ops.ResizeBilinearV2()(ms.Tensor(x), (8, 10)),
        claim=claim.astype(np.float32),
        neighbour=(right, half(ms.Tensor(x), (8, 10))),
    )


@difference(
    "nearest-align-corners",
    "`ops.ResizeNearestNeighbor(align_corners=True)` rounds i * (n - 1) / (m - 1); PyTorch's "
    "`nearest` takes floor(i * n / m) and has no such option.",
    torch='F.interpolate(x, (7, 8), mode="nearest")',
    mindspore="ops.ResizeNearestNeighbor((7, 8), align_corners=True)(x)",
    expected="differs",
    remedy="ops.ResizeNearestNeighbor((7, 8))(x)",
)
def nearest_align_corners() -> Observation:
    x = _image(4, 5)
    right = F.interpolate(torch.tensor(x), (7, 8), mode="nearest")
    rows = np.floor(np.arange(7) * 3 / 6 + 0.5).astype(int)
    columns = np.floor(np.arange(8) * 4 / 7 + 0.5).astype(int)
    return Observation(
        torch=right,
        mindspore=ops.ResizeNearestNeighbor((7, 8), align_corners=True)(ms.Tensor(x)),
        claim=x[:, :, rows][..., columns],
        neighbour=(right, ops.ResizeNearestNeighbor((7, 8))(ms.Tensor(x))),
    )


@difference(
    "scale-factor-alone",
    "`scale_factor` alone is refused for images in every mode but `area`.",
    torch='F.interpolate(x, scale_factor=2.0, mode="bilinear")',
    mindspore='ops.interpolate(x, scale_factor=2.0, mode="bilinear")',
    expected="raises",
    remedy='ops.interpolate(x, scale_factor=2.0, mode="bilinear", recompute_scale_factor=True)',
)
def scale_factor_alone() -> Observation:
    x = _image(4, 5)
    resized, mindspore = _resized(x, scale_factor=2.0, mode="bilinear")
    return Observation(
        torch=resized,
        mindspore=mindspore,
        claim=Raised("ValueError", "'scale_factor' option cannot currently be set with the mode"),
        neighbour=_resized(x, scale_factor=2.0, mode="bilinear", recompute_scale_factor=True),
    )


@difference(
    "scale-factor-recomputed",
    "With a fractional factor `recompute_scale_factor=True`, which MindSpore asks for, gives other "
    "values than PyTorch's default: the factor becomes the quotient of the sizes, 6 / 5 for 1.3.",
    torch='F.interpolate(x, scale_factor=1.3, mode="bilinear")',
    mindspore='ops.interpolate(x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True)',
    expected="differs",
    remedy='F.interpolate(x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True)',
)
def scale_factor_recomputed() -> Observation:
    x = _image(4, 5)
    mindspore = ops.interpolate(
        ms.Tensor(x), scale_factor=1.3, mode="bilinear", recompute_scale_factor=True
    )
    return Observation(
        torch=F.interpolate(torch.tensor(x), scale_factor=1.3, mode="bilinear"),
        mindspore=mindspore,
        claim=F.interpolate(torch.tensor(x), size=(5, 6), mode="bilinear"),
        neighbour=_resized(x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
    )


@difference(
    "scale-factor-integer",
    "An integer `scale_factor` is refused, in `nn.Upsample` as well.",
    torch="nn.Upsample(scale_factor=2)",
    mindspore="nn.Upsample(scale_factor=2, recompute_scale_factor=True)",
    expected="raises",
    remedy="nn.Upsample(scale_factor=2.0, recompute_scale_factor=True)",
)
def scale_factor_integer() -> Observation:
    x = _image(4, 5)
    right = torch.nn.Upsample(scale_factor=2)(torch.tensor(x))

    def upsample(factor: float) -> Any:
        layer = nn.Upsample(scale_factor=factor, recompute_scale_factor=True)
        return attempt(layer, ms.Tensor(x))

    return Observation(
        torch=right,
        mindspore=upsample(2),
        claim=Raised("TypeError", "the 'scale_factor' must be float, but got 'int'"),
        neighbour=(right, upsample(2.0)),
    )


@difference(
    "bicubic-kernel",
    "Without aligned corners `bicubic` is TensorFlow's: cubic parameter -0.5, neighbours beyond "
    "the border left out. PyTorch's has -0.75 and repeats the border.",
    torch='F.interpolate(x, (6, 7), mode="bicubic")',
    mindspore='ops.interpolate(x, (6, 7), mode="bicubic")',
    expected="differs",
    remedy='ops.interpolate(x, (6, 7), mode="bilinear")  # agrees in both',
)
def bicubic_kernel() -> Observation:
    x = _image(4, 5)
    resized, mindspore = _resized(x, size=(6, 7), mode="bicubic")
    return Observation(
        torch=resized,
        mindspore=mindspore,
        claim=_cubic(x, (6, 7), a=-0.5, align_corners=False, normalised=True),
        neighbour=_resized(x, size=(6, 7), mode="bilinear"),
    )


@difference(
    "bicubic-table",
    "With aligned corners `bicubic` rounds positions to 1/1024 of a pixel, an error of 1e-3 "
    "wherever positions are no such multiples.",
    torch='F.interpolate(x, (8, 10), mode="bicubic", align_corners=True)',
    mindspore='ops.interpolate(x, (8, 10), mode="bicubic", align_corners=True)',
    expected="off",
    remedy='ops.interpolate(x, (8, 10), mode="bilinear", align_corners=True)  # agrees in both',
)
def bicubic_table() -> Observation:
    x = _image(4, 5)
    settings: dict[str, Any] = {"mode": "bicubic", "align_corners": True}
    resized, mindspore = _resized(x, size=(8, 10), **settings)
    exact = F.interpolate(torch.tensor(x, dtype=torch.float64), (8, 10), **settings)
    return Observation(
        torch=resized,
        mindspore=mindspore,
        claim=_cubic(x, (8, 10), a=-0.75, align_corners=True, normalised=False),
        right=exact.float(),
        neighbour=_resized(x, size=(7, 9), **settings),  # positions are halves
    )


@difference(
    "area-1d",
    "`area` on a sequence needs a length that the output divides; on an image it does not.",
    torch='F.interpolate(x, 4, mode="area")',
    mindspore='ops.interpolate(x, 4, mode="area")',
    expected="raises",
    remedy='ops.interpolate(x.expand_dims(2), (1, 4), mode="area").squeeze(2)',
)
def area_1d() -> Observation:
    x = _image(6)
    resized, mindspore = _resized(x, size=4, mode="area")
    as_image = ops.interpolate(ms.Tensor(x).expand_dims(2), (1, 4), mode="area").squeeze(2)
    return Observation(
        torch=resized,
        mindspore=mindspore,
        claim=Raised("ValueError", "last dimension must be divisible by output size 4, but got 6"),
        neighbour=(resized, as_image),
    )


@difference(
    "antialias",
    "`ops.interpolate` has no `antialias`: shrunk images keep their aliases.",
    torch='F.interpolate(x, (2, 2), mode="bilinear", antialias=True)',
    mindspore='ops.interpolate(x, (2, 2), mode="bilinear", antialias=True)',
    expected="raises",
    remedy='ops.interpolate(x, (2, 2), mode="area")  # a mean over each cell',
)
def antialias() -> Observation:
    x = _image(4, 4)
    resized, mindspore = _resized(x, size=(2, 2), mode="bilinear", antialias=True)
    return Observation(
        torch=resized,
        mindspore=mindspore,
        claim=Raised("TypeError", "unexpected keyword argument 'antialias'"),
        neighbour=_resized(x, size=(2, 2), mode="bilinear"),
    )


@difference(
    "bytes",
    "uint8 images cannot be resized bilinearly.",
    torch='F.interpolate(image, (8, 8), mode="bilinear")',
    mindspore='ops.interpolate(image, (8, 8), mode="bilinear")',
    expected="raises",
    remedy='ops.interpolate(image.astype(ms.float32), (8, 8), mode="bilinear")',
)
def unsigned_bytes() -> Observation:
    image = (np.abs(_image(4, 4)) * 50).astype(np.uint8)
    resized, mindspore = _resized(image, size=(8, 8), mode="bilinear")
    return Observation(
        torch=resized,
        mindspore=mindspore,
        claim=Raised("TypeError", "Kernel select failed"),
        neighbour=_resized(image.astype(np.float32), size=(8, 8), mode="bilinear"),
    )


@difference(
    "grid-sample-bicubic",
    "`ops.grid_sample` has no mode `bicubic`.",
    torch='F.grid_sample(x, grid, mode="bicubic")',
    mindspore='ops.grid_sample(x, grid, mode="bicubic")',
    expected="raises",
    remedy='ops.grid_sample(x, grid, mode="bilinear")',
)
def grid_sample_bicubic() -> Observation:
    x = _image(4, 5)
    grid = np.random.default_rng(1).uniform(-1, 1, size=(1, 3, 3, 2)).astype(np.float32)

    def sampled(mode: str) -> tuple[Any, Any]:
        settings: dict[str, Any] = {"mode": mode, "align_corners": False}
        return (
            F.grid_sample(torch.tensor(x), torch.tensor(grid), **settings),
            attempt(ops.grid_sample, ms.Tensor(x), ms.Tensor(grid), **settings),
        )

    right, mindspore = sampled("bicubic")
    return Observation(
        torch=right,
        mindspore=mindspore,
        claim=Raised("ValueError", 'Failed to convert the value "bicubic"'),
        neighbour=sampled("bilinear"),
    )
