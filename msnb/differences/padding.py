"""Padding and convolution: sides, defaults, arguments."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

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


@difference(
    "default-pad-mode",
    "A convolution without arguments pads: the default is `same`, PyTorch's is no padding. (The "
    "default of `ops.conv2d` is `valid`.)",
    torch="nn.Conv2d(3, 4, 3)",
    mindspore="nn.Conv2d(3, 4, 3)",
    expected="differs",
    remedy='nn.Conv2d(3, 4, 3, pad_mode="valid")',
)
def default_pad_mode() -> Observation:
    x, weight = _image(3, 6), _weight(4, 3, 3, 3)
    right = _torch_conv(x, weight)
    return Observation(
        torch=right,
        mindspore=_ms_conv(x, weight),
        claim=_torch_conv(x, weight, padding=1),
        neighbour=(right, _ms_conv(x, weight, pad_mode="valid")),
    )


@difference(
    "same-even-kernel",
    "An even kernel with `same` keeps the size and pads one more right and bottom; PyTorch's "
    "`padding=kernel // 2` gives one more row and column.",
    torch="nn.Conv2d(3, 4, 4, padding=2)",
    mindspore='nn.Conv2d(3, 4, 4, pad_mode="same")',
    expected="differs",
    remedy='nn.Conv2d(3, 4, 4, pad_mode="pad", padding=2)',
)
def same_even_kernel() -> Observation:
    x, weight = _image(3, 6), _weight(4, 3, 4, 4)
    right = _torch_conv(x, weight, padding=2)
    return Observation(
        torch=right,
        mindspore=_ms_conv(x, weight, pad_mode="same"),
        claim=_torch_conv(np.pad(x, ((0, 0), (0, 0), (1, 2), (1, 2))), weight),
        neighbour=(right, _ms_conv(x, weight, pad_mode="pad", padding=2)),
    )


@difference(
    "same-dilation",
    "A dilated stride-2 `same` convolution counts the dilation: on even input it pads one left and "
    "two right, where PyTorch's `padding=2` has the same shape.",
    torch="nn.Conv2d(3, 4, 3, stride=2, padding=2, dilation=2)",
    mindspore='nn.Conv2d(3, 4, 3, stride=2, pad_mode="same", dilation=2)',
    expected="differs",
    remedy='nn.Conv2d(3, 4, 3, stride=2, pad_mode="pad", padding=2, dilation=2)',
)
def same_dilation() -> Observation:
    weight = _weight(4, 3, 3, 3)
    even, odd = _image(3, 6), _image(3, 7)
    padded = np.pad(even, ((0, 0), (0, 0), (1, 2), (1, 2)))
    return Observation(
        torch=_torch_conv(even, weight, stride=2, padding=2, dilation=2),
        mindspore=_ms_conv(even, weight, stride=2, pad_mode="same", dilation=2),
        claim=_torch_conv(padded, weight, stride=2, dilation=2),
        neighbour=(
            _torch_conv(odd, weight, stride=2, padding=2, dilation=2),
            _ms_conv(odd, weight, stride=2, pad_mode="same", dilation=2),
        ),
    )


@difference(
    "same-with-stride",
    "`same` with a stride is accepted and gives ceil(n / stride); PyTorch refuses it.",
    torch='nn.Conv2d(3, 4, 3, stride=2, padding="same")',
    mindspore='nn.Conv2d(3, 4, 3, stride=2, pad_mode="same")',
    expected="accepts",
    remedy='nn.Conv2d(3, 4, 3, stride=2, pad_mode="pad", padding=1)',
)
def same_with_stride() -> Observation:
    x, weight = _image(3, 7), _weight(4, 3, 3, 3)
    return Observation(
        torch=attempt(torch.nn.Conv2d, 3, 4, 3, stride=2, padding="same"),
        mindspore=tuple(_ms_conv(x, weight, stride=2, pad_mode="same").shape),
        claim=(2, 4, 4, 4),
        neighbour=(
            _torch_conv(x, weight, padding="same"),
            _ms_conv(x, weight, pad_mode="same"),
        ),
    )


@difference(
    "four-numbers-order",
    "The four numbers of `padding` are (top, bottom, left, right); those of `F.pad` are (left, "
    "right, top, bottom).",
    torch="nn.Conv2d(3, 4, 3)(F.pad(x, (0, 1, 2, 3)))",
    mindspore='nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(0, 1, 2, 3))',
    expected="differs",
    remedy='nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(2, 3, 0, 1))',
)
def four_numbers_order() -> Observation:
    x, weight = _image(3, 6), _weight(4, 3, 3, 3)
    right = _torch_conv(F.pad(torch.tensor(x), (0, 1, 2, 3)).numpy(), weight)
    return Observation(
        torch=right,
        mindspore=_ms_conv(x, weight, pad_mode="pad", padding=(0, 1, 2, 3)),
        claim=_torch_conv(np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 3))), weight),
        neighbour=(right, _ms_conv(x, weight, pad_mode="pad", padding=(2, 3, 0, 1))),
    )


@difference(
    "two-numbers",
    "`nn.Conv2d` refuses PyTorch's two numbers (height, width): it takes one or four. "
    "(`ops.conv2d` takes one or two.)",
    torch="nn.Conv2d(3, 4, 3, padding=(1, 2))",
    mindspore='nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(1, 2))',
    expected="raises",
    remedy='nn.Conv2d(3, 4, 3, pad_mode="pad", padding=(1, 1, 2, 2))',
)
def two_numbers() -> Observation:
    x, weight = _image(3, 6), _weight(4, 3, 3, 3)
    right = _torch_conv(x, weight, padding=(1, 2))
    return Observation(
        torch=right,
        mindspore=attempt(_ms_conv, x, weight, pad_mode="pad", padding=(1, 2)),
        claim=Raised("ValueError", "the 'pad size' must be int and must = 4, but got '2'"),
        neighbour=(right, _ms_conv(x, weight, pad_mode="pad", padding=(1, 1, 2, 2))),
    )


@difference(
    "padding-mode",
    "`nn.Conv2d` pads with zeros only; there is no `padding_mode`.",
    torch='nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")',
    mindspore='nn.Conv2d(3, 4, 3, pad_mode="reflect", padding=1)',
    expected="raises",
    remedy='nn.SequentialCell(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3, pad_mode="valid"))',
)
def padding_mode() -> Observation:
    x, weight = _image(3, 6), _weight(4, 3, 3, 3)
    right = _torch_conv(F.pad(torch.tensor(x), (1, 1, 1, 1), mode="reflect").numpy(), weight)
    padded = nn.ReflectionPad2d(1)(ms.Tensor(x)).asnumpy()
    return Observation(
        torch=right,
        mindspore=attempt(_ms_conv, x, weight, pad_mode="reflect", padding=1),
        claim=Raised("ValueError", "the 'pad_mode' must be str and must be in"),
        neighbour=(right, _ms_conv(padded, weight, pad_mode="valid")),
    )


@difference(
    "bias-default",
    "Convolutions, transposed ones too, have no bias unless asked; PyTorch's have one.",
    torch="nn.Conv2d(3, 4, 3)",
    mindspore="nn.Conv2d(3, 4, 3)",
    expected="differs",
    remedy="nn.Conv2d(3, 4, 3, has_bias=True)",
)
def bias_default() -> Observation:
    layer = torch.nn.Conv2d(3, 4, 3)
    return Observation(
        torch=layer.bias is not None,
        mindspore=nn.Conv2d(3, 4, 3).bias is not None,
        claim=False,
        neighbour=(torch.nn.Linear(3, 4).bias is not None, nn.Dense(3, 4).bias is not None),
    )


@difference(
    "argument-names",
    "`nn.Conv2d` calls them `has_bias` and `group`; `bias` and `groups` are refused.",
    torch="nn.Conv2d(3, 4, 3, bias=False)",
    mindspore="nn.Conv2d(3, 4, 3, bias=False)",
    expected="raises",
    remedy="nn.Conv2d(3, 4, 3, has_bias=False)",
)
def argument_names() -> Observation:
    shape = tuple(torch.nn.Conv2d(3, 4, 3, bias=False).weight.shape)
    return Observation(
        torch=shape,
        mindspore=attempt(nn.Conv2d, 3, 4, 3, bias=False),
        claim=Raised("TypeError", "unexpected keyword argument 'bias'"),
        neighbour=(shape, tuple(nn.Conv2d(3, 4, 3, has_bias=False).weight.shape)),
    )


@difference(
    "without-batch",
    "A convolution needs the batch axis.",
    torch="nn.Conv2d(3, 4, 3)(image)",
    mindspore='nn.Conv2d(3, 4, 3, pad_mode="valid")(image)',
    expected="raises",
    remedy='nn.Conv2d(3, 4, 3, pad_mode="valid")(image.expand_dims(0)).squeeze(0)',
)
def without_batch() -> Observation:
    image, weight = _image(3, 6)[0], _weight(4, 3, 3, 3)
    right = _torch_conv(image, weight)
    return Observation(
        torch=right,
        mindspore=attempt(_ms_conv, image, weight, pad_mode="valid"),
        claim=Raised("ValueError", "the x shape size must be equal to 4, but got 3"),
        neighbour=(right, _ms_conv(image[None], weight, pad_mode="valid").squeeze(0)),
    )


@difference(
    "float64",
    "A convolution takes no float64.",
    torch="F.conv2d(x.double(), weight.double())",
    mindspore="ops.conv2d(x.astype(ms.float64), weight.astype(ms.float64))",
    expected="raises",
    remedy="ops.conv2d(x.astype(ms.float32), weight.astype(ms.float32))",
)
def float64() -> Observation:
    x, weight = _image(3, 6), _weight(4, 3, 3, 3)
    wide = (ms.Tensor(x.astype(np.float64)), ms.Tensor(weight.astype(np.float64)))
    return Observation(
        torch=_torch_conv(x.astype(np.float64), weight.astype(np.float64)),
        mindspore=attempt(ops.conv2d, *wide),
        claim=Raised("TypeError", "the input argument[w] must be a type of"),
        neighbour=(_torch_conv(x, weight), ops.conv2d(ms.Tensor(x), ms.Tensor(weight))),
    )


# One dimension


@difference(
    "conv1d-tuple",
    "`nn.Conv1d` takes one number for `padding`, for the kernel and the stride, and no tuple: it "
    "cannot pad one side only.",
    torch="nn.Conv1d(2, 3, 3, padding=(1,))",
    mindspore='nn.Conv1d(2, 3, 3, pad_mode="pad", padding=(1,))',
    expected="raises",
    remedy='nn.Conv1d(2, 3, 3, pad_mode="valid")(ops.pad(x, (2, 0)))  # causal',
)
def conv1d_tuple() -> Observation:
    x, weight = _image(2, 6)[..., 0], _weight(3, 2, 3)
    tensor, kernel = torch.tensor(x), torch.tensor(weight)
    conv = nn.Conv1d(2, 3, 3, pad_mode="valid", weight_init=ms.Tensor(weight))
    return Observation(
        torch=F.conv1d(tensor, kernel, padding=(1,)),
        mindspore=attempt(nn.Conv1d, 2, 3, 3, pad_mode="pad", padding=(1,)),
        claim=Raised("TypeError", "the type of 'padding' should be 'int', but got type 'tuple'"),
        neighbour=(
            F.conv1d(F.pad(tensor, (2, 0)), kernel),
            conv(ops.pad(ms.Tensor(x), (2, 0))),
        ),
    )


@difference(
    "conv1d-weight-shape",
    "The weight of `nn.Conv1d` has four axes, with a height of 1.",
    torch="nn.Conv1d(2, 3, 5).weight.shape",
    mindspore="nn.Conv1d(2, 3, 5).weight.shape",
    expected="differs",
    remedy="ms.Tensor(state[name].unsqueeze(2).numpy())",
)
def conv1d_weight_shape() -> Observation:
    return Observation(
        torch=tuple(torch.nn.Conv1d(2, 3, 5).weight.shape),
        mindspore=tuple(nn.Conv1d(2, 3, 5).weight.shape),
        claim=(3, 2, 1, 5),
        neighbour=(
            tuple(torch.nn.Conv2d(2, 3, 5).weight.shape),
            tuple(nn.Conv2d(2, 3, 5).weight.shape),
        ),
    )


# Transposed convolution


def _ms_transposed(x: Array, weight: Array, **settings: Any) -> Any:
    channels, out, height, width = weight.shape
    conv = nn.Conv2dTranspose(
        channels, out, (height, width), weight_init=ms.Tensor(weight), **settings
    )
    return conv(ms.Tensor(x))


def _torch_transposed(x: Array, weight: Array, **settings: Any) -> torch.Tensor:
    return F.conv_transpose2d(torch.tensor(x), torch.tensor(weight), **settings)


@difference(
    "transposed-default",
    "`nn.Conv2dTranspose` with stride 2 doubles the size by default and crops right and bottom; "
    "PyTorch's usual `padding=1, output_padding=1` has the same shape and other values.",
    torch="nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)",
    mindspore="nn.Conv2dTranspose(3, 4, 3, stride=2)",
    expected="differs",
    remedy='nn.Conv2dTranspose(3, 4, 3, stride=2, pad_mode="pad", padding=(1, 0, 1, 0))',
)
def transposed_default() -> Observation:
    x, weight = _image(3, 3), _weight(3, 4, 3, 3)
    right = _torch_transposed(x, weight, stride=2, padding=1, output_padding=1)
    return Observation(
        torch=right,
        mindspore=_ms_transposed(x, weight, stride=2),
        claim=_torch_transposed(x, weight, stride=2)[:, :, :6, :6],
        neighbour=(
            right,
            _ms_transposed(x, weight, stride=2, pad_mode="pad", padding=(1, 0, 1, 0)),
        ),
    )


@difference(
    "transposed-output-padding",
    "`output_padding` appends a row and a column of zeros; the convolution's own values belong "
    "there.",
    torch="nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)",
    mindspore='nn.Conv2dTranspose(3, 4, 3, 2, pad_mode="pad", padding=1, output_padding=1)',
    expected="off",
    remedy='nn.Conv2dTranspose(3, 4, 3, stride=2, pad_mode="pad", padding=(1, 0, 1, 0))',
)
def transposed_output_padding() -> Observation:
    x, weight = _image(3, 3), _weight(3, 4, 3, 3)
    settings = {"stride": 2, "padding": 1, "output_padding": 1}
    right = _torch_transposed(x, weight, **settings)
    wide = _torch_transposed(x.astype(np.float64), weight.astype(np.float64), **settings)
    return Observation(
        torch=right,
        mindspore=_ms_transposed(x, weight, pad_mode="pad", **settings),
        claim=F.pad(_torch_transposed(x, weight, stride=2, padding=1), (0, 1, 0, 1)),
        right=wide.float(),
        neighbour=(
            right,
            _ms_transposed(x, weight, stride=2, pad_mode="pad", padding=(1, 0, 1, 0)),
        ),
    )


@difference(
    "transposed-short-kernel",
    "With a kernel shorter than the stride `valid` gives n * stride, with zeros at the end; "
    "PyTorch (n - 1) * stride + kernel.",
    torch="nn.ConvTranspose2d(3, 4, 2, stride=3)",
    mindspore='nn.Conv2dTranspose(3, 4, 2, stride=3, pad_mode="valid")',
    expected="differs",
    remedy='nn.Conv2dTranspose(3, 4, 2, stride=3, pad_mode="pad", padding=0)',
)
def transposed_short_kernel() -> Observation:
    x, weight = _image(3, 3), _weight(3, 4, 2, 2)
    right = _torch_transposed(x, weight, stride=3)
    return Observation(
        torch=right,
        mindspore=_ms_transposed(x, weight, stride=3, pad_mode="valid"),
        claim=F.pad(right, (0, 1, 0, 1)),
        neighbour=(right, _ms_transposed(x, weight, stride=3, pad_mode="pad", padding=0)),
    )


@difference(
    "transposed-functional",
    "`ops.conv_transpose2d` has no kernel on CPU; the layer has one.",
    torch="F.conv_transpose2d(x, weight)",
    mindspore="ops.conv_transpose2d(x, weight)",
    expected="raises",
    remedy='nn.Conv2dTranspose(3, 4, 3, pad_mode="valid")',
)
def transposed_functional() -> Observation:
    x, weight = _image(3, 3), _weight(3, 4, 3, 3)
    right = _torch_transposed(x, weight)
    return Observation(
        torch=right,
        mindspore=attempt(ops.conv_transpose2d, ms.Tensor(x), ms.Tensor(weight)),
        claim=Raised("RuntimeError", "The kernel ConvTranspose2D unregistered"),
        neighbour=(right, _ms_transposed(x, weight, pad_mode="valid")),
    )


@difference(
    "transposed-1d-output-padding",
    "`nn.Conv1dTranspose` has no `output_padding`.",
    torch="nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1)",
    mindspore="nn.Conv1dTranspose(2, 3, 3, stride=2, output_padding=1)",
    expected="raises",
    remedy='ops.pad(nn.Conv1dTranspose(2, 3, 3, stride=2, pad_mode="valid")(x), (0, 1))',
)
def transposed_1d_output_padding() -> Observation:
    x, weight = _image(2, 4)[..., 0], _weight(2, 3, 3)
    right = F.conv_transpose1d(torch.tensor(x), torch.tensor(weight), stride=2, output_padding=1)
    conv = nn.Conv1dTranspose(2, 3, 3, stride=2, pad_mode="valid", weight_init=ms.Tensor(weight))
    return Observation(
        torch=right,
        mindspore=attempt(nn.Conv1dTranspose, 2, 3, 3, stride=2, output_padding=1),
        claim=Raised("TypeError", "unexpected keyword argument 'output_padding'"),
        neighbour=(right, ops.pad(conv(ms.Tensor(x)), (0, 1))),
    )


# Padding by itself


def _plane() -> Array:
    return np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)


@difference(
    "pad-layer-form",
    "`nn.Pad` takes one pair for every axis, the first axis first; the flat numbers of `F.pad`, "
    "last axis first, are refused. (`ops.pad` takes them.)",
    torch="F.pad(x, (1, 2))",
    mindspore="nn.Pad((1, 2))(x)",
    expected="raises",
    remedy="nn.Pad(((0, 0), (0, 0), (0, 0), (1, 2)))(x)",
)
def pad_layer_form() -> Observation:
    x = _plane()
    right = F.pad(torch.tensor(x), (1, 2))
    return Observation(
        torch=right,
        mindspore=attempt(lambda: nn.Pad((1, 2))(ms.Tensor(x))),
        claim=Raised("TypeError", "object of type 'int' has no len()"),
        neighbour=(right, nn.Pad(((0, 0), (0, 0), (0, 0), (1, 2)))(ms.Tensor(x))),
    )


@difference(
    "pad-layer-symmetric",
    "The `SYMMETRIC` of `nn.Pad` mirrors with the border repeated; wider than 1 it is not "
    "PyTorch's `replicate`.",
    torch='F.pad(x, (2, 2), mode="replicate")',
    mindspore='nn.Pad(((0, 0), (0, 0), (0, 0), (2, 2)), mode="SYMMETRIC")(x)',
    expected="differs",
    remedy='ops.pad(x, (2, 2), mode="replicate")',
)
def pad_layer_symmetric() -> Observation:
    x = _plane()
    pairs = ((0, 0), (0, 0), (0, 0), (2, 2))
    right = F.pad(torch.tensor(x[0]), (2, 2), mode="replicate")[None]
    return Observation(
        torch=right,
        mindspore=nn.Pad(pairs, mode="SYMMETRIC")(ms.Tensor(x)),
        claim=np.pad(x, pairs, mode="symmetric"),
        neighbour=(right, ops.pad(ms.Tensor(x[0]), (2, 2), mode="replicate").expand_dims(0)),
    )


@difference(
    "pad-layer-mode-case",
    "The modes of `nn.Pad` are written in capitals, those of `ops.pad` in small letters.",
    torch='F.pad(x, (1, 1, 1, 1), mode="reflect")',
    mindspore='nn.Pad(((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")(x)',
    expected="raises",
    remedy='ops.pad(x, (1, 1, 1, 1), mode="reflect")',
)
def pad_layer_mode_case() -> Observation:
    x = _plane()
    right = F.pad(torch.tensor(x), (1, 1, 1, 1), mode="reflect")
    return Observation(
        torch=right,
        mindspore=attempt(nn.Pad, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect"),
        claim=Raised("ValueError", "the 'mode' must be str and must be in"),
        neighbour=(right, ops.pad(ms.Tensor(x), (1, 1, 1, 1), mode="reflect")),
    )


@difference(
    "pad-circular-wide",
    "Circular padding wider than the input is accepted; PyTorch refuses to wrap more than once.",
    torch='F.pad(x, (5, 0, 0, 0), mode="circular")',
    mindspore='ops.pad(x, (5, 0, 0, 0), mode="circular")',
    expected="accepts",
    remedy="assert padding <= x.shape[-1]",
)
def pad_circular_wide() -> Observation:
    x = _plane()

    def circular(width: int) -> tuple[Any, Any]:
        sides = (width, 0, 0, 0)
        return (
            attempt(F.pad, torch.tensor(x), sides, mode="circular"),
            ops.pad(ms.Tensor(x), sides, mode="circular"),
        )

    refused, mindspore = circular(5)
    return Observation(
        torch=refused,
        mindspore=tuple(mindspore.shape),
        claim=(1, 1, 3, 9),
        neighbour=circular(4),
    )


@difference(
    "fold-output-size",
    "`ops.fold` takes its output size as an int32 tensor, not as a tuple.",
    torch="F.fold(columns, (3, 4), 2)",
    mindspore="ops.fold(columns, (3, 4), 2)",
    expected="raises",
    remedy="ops.fold(columns, ms.Tensor([3, 4], ms.int32), 2)",
)
def fold_output_size() -> Observation:
    columns = F.unfold(torch.tensor(_plane()), 2)
    right = F.fold(columns, (3, 4), 2)
    ours = ms.Tensor(columns.numpy())
    return Observation(
        torch=right,
        mindspore=attempt(ops.fold, ours, (3, 4), 2),
        claim=Raised("TypeError", "the type of input argument[output_size] must be Tensor"),
        neighbour=(right, ops.fold(ours, ms.Tensor([3, 4], ms.int32), 2)),
    )
