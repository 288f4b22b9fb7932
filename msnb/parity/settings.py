"""Hyper-parameters of a layer of PyTorch against those of its partner in MindSpore.

A table by type of layer. Each entry reads a setting on both sides and brings MindSpore's into
PyTorch's terms: ``momentum`` of a BatchNorm is the share of the new value, ``dropout`` the
probability to drop, padding the number of values before and after each axis. A type that is not in
the table is said to be unknown, never taken to agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_Reader = Callable[[Any], Any]
_MISSING = object()


@dataclass(frozen=True)
class Setting:
    """A setting by name: how either side is read, and the keyword of MindSpore's constructor.

    ``word`` turns PyTorch's value into what to type; by default ``keyword=value``.
    """

    name: str
    torch: _Reader
    mindspore: _Reader
    keyword: str = ""
    word: Callable[[Any], str] | None = None

    def remedy(self, value: Any) -> str:
        if self.word is not None:
            return self.word(value)
        return f"{self.keyword or self.name}={_shown(value)}"


@dataclass(frozen=True)
class Mismatch:
    """A setting that differs: both values in PyTorch's terms, and what to type in MindSpore."""

    name: str
    torch: Any
    mindspore: Any
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: PyTorch {_shown(self.torch)}, MindSpore {_shown(self.mindspore)}"


@dataclass(frozen=True)
class Kind:
    """One kind of layer: its type names on both sides and its settings."""

    name: str
    torch: tuple[str, ...]
    mindspore: tuple[str, ...]
    settings: tuple[Setting, ...] = ()
    dims: int = 0


def kind_of(layer: Any, side: str) -> Kind | None:
    """The kind of a layer of ``"torch"`` or ``"mindspore"``; None for the user's own types.

    Subclasses count as what they derive from.
    """
    table = _TORCH if side == "torch" else _MINDSPORE
    root = "torch.nn." if side == "torch" else "mindspore."
    for base in type(layer).__mro__:
        if base.__module__.startswith(root) and base.__name__ in table:
            return table[base.__name__]
    return None


def differing(
    torch_layer: Any, ms_layer: Any, shape: tuple[int, ...] | None = None
) -> list[Mismatch] | None:
    """The settings in which two layers differ; None where the pair of types is not in the table.

    ``shape`` is the shape of the layer's input, which decides what ``pad_mode="same"`` adds.

    >>> import torch
    >>> from mindspore import nn
    >>> [str(found) for found in differing(torch.nn.BatchNorm2d(4), nn.BatchNorm2d(4, momentum=.1))]
    ['momentum: PyTorch 0.1, MindSpore 0.9']
    """
    kind = kind_of(torch_layer, "torch")
    if kind is None or kind_of(ms_layer, "mindspore") is not kind:
        return None
    found = []
    for setting in kind.settings:
        here, there = _read(setting.torch, torch_layer), _read(setting.mindspore, ms_layer)
        if here is _MISSING or there is _MISSING:
            continue
        if not _same(here, there):
            found.append(Mismatch(setting.name, here, there, setting.remedy(here)))
    if kind.dims and kind.name.startswith("Conv"):
        found += _padding(kind, torch_layer, ms_layer, shape)
    return found


def count(layer: Any) -> int:
    """How many settings are compared for a layer of PyTorch."""
    kind = kind_of(layer, "torch")
    return len(kind.settings) + (kind.name.startswith("Conv") if kind else 0) if kind else 0


def _read(reader: _Reader, layer: Any) -> Any:
    try:
        value = reader(layer)
    except (AttributeError, TypeError, IndexError, KeyError):
        return _MISSING
    if hasattr(value, "asnumpy"):
        value = value.asnumpy().item()
    return value


def _same(here: Any, there: Any) -> bool:
    if isinstance(here, float) or isinstance(there, float):
        try:
            return math.isclose(here, there, rel_tol=1e-6, abs_tol=1e-30)
        except TypeError:
            return False
    return bool(here == there)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


# Readers


def _attribute(name: str) -> _Reader:
    def read(layer: Any) -> Any:
        value = layer
        for part in name.split("."):
            value = getattr(value, part)
        return value

    return read


def _first(*names: str) -> _Reader:
    """The first attribute that there is: nn and mint spell the same thing differently."""

    def read(layer: Any) -> Any:
        for name in names:
            try:
                return _attribute(name)(layer)
            except AttributeError:
                continue
        raise AttributeError(names[0])

    return read


def _plain(name: str, ms_name: str = "", keyword: str = "") -> Setting:
    ms_names = tuple(filter(None, (ms_name, name)))
    return Setting(name, _attribute(name), _first(*ms_names), keyword or ms_name or name)


def _tuple(value: Any, dims: int) -> tuple[int, ...]:
    """A number for each axis; Conv1d and MaxPool1d of MindSpore keep further axes in front."""
    if isinstance(value, (tuple, list)):
        numbers = tuple(int(item) for item in value)
        return (numbers if len(numbers) > 1 else numbers * dims)[-dims:]
    return (int(value),) * dims


def _sized(name: str, dims: int, ms_name: str = "", keyword: str = "") -> Setting:
    reader = _first(*filter(None, (ms_name, name)))
    return Setting(
        name,
        lambda layer: _tuple(getattr(layer, name), dims),
        lambda layer: _tuple(reader(layer), dims),
        keyword or ms_name or name,
        lambda value: f"{keyword or ms_name or name}={_short(value)}",
    )


def _short(value: tuple[int, ...]) -> str:
    return str(value[0]) if len(set(value)) == 1 else str(value)


def _has_bias(layer: Any) -> bool:
    return getattr(layer, "bias", None) is not None


_BIAS = Setting("bias", _has_bias, _first("has_bias"), "has_bias")


def _approximate(value: Any) -> str:
    return ("tanh" if value else "none") if isinstance(value, bool) else str(value)


def _trained(*names: str) -> _Reader:
    """Whether the layer has a trained scale: ``affine``, read from the parameter itself."""

    def read(layer: Any) -> bool:
        for name in names:
            value = getattr(layer, name, None)
            if value is not None:
                return bool(value.requires_grad)
        return False

    return read


_AFFINE = Setting(
    "affine",
    _trained("weight"),
    _trained("gamma", "weight"),
    word=lambda value: (
        "leave affine at True"
        if value
        else "affine=False, or requires_grad = False for gamma and beta"
    ),
)


def _track(layer: Any) -> str:
    if layer.track_running_stats:
        return "batch in training, running in evaluation"
    return "always of the batch"


def _ms_track(layer: Any) -> str:
    used = layer.use_batch_statistics
    if used is None:
        return "batch in training, running in evaluation"
    return "always of the batch" if used else "always the running ones"


_BATCH_NORM = (
    _plain("eps"),
    Setting(
        "momentum",
        lambda layer: float(layer.momentum),
        _attribute("momentum"),
        word=lambda value: (
            f"momentum={1 - value:.6g} (MindSpore's is the share that is kept: 1 - PyTorch's)"
        ),
    ),
    Setting(
        "statistics",
        _track,
        _ms_track,
        word=lambda value: f"use_batch_statistics={True if value.startswith('always') else None}",
    ),
    _AFFINE,
)


def _dropped(layer: Any) -> float:
    p = getattr(layer, "p", None)
    return float(p) if p is not None else 1.0 - float(layer.keep_prob)


_DROPOUT = (
    Setting(
        "p",
        lambda layer: float(layer.p),
        _dropped,
        word=lambda value: (
            f"p={value:.6g}, by name (MindSpore's first positional argument is the probability "
            "to keep)"
        ),
    ),
)

_RECURRENT = (
    _plain("hidden_size"),
    _plain("num_layers"),
    _plain("bidirectional"),
    _plain("batch_first"),
    Setting("bias", lambda layer: bool(layer.bias), _first("has_bias"), "has_bias"),
    Setting("dropout", lambda layer: float(layer.dropout), lambda layer: float(layer.dropout)),
)


def _slope(value: float) -> str:
    return f"alpha={value:.6g}"


def _conv(dims: int) -> tuple[Setting, ...]:
    return (
        _sized("stride", dims),
        _sized("dilation", dims),
        _plain("groups", "group"),
        _BIAS,
    )


def _transposed(dims: int) -> tuple[Setting, ...]:
    return (*_conv(dims), _sized("output_padding", dims))


def _pool_stride(dims: int) -> Setting:
    def read(layer: Any) -> tuple[int, ...]:
        stride = layer.stride if layer.stride is not None else layer.kernel_size
        return _tuple(stride, dims)

    return Setting(
        "stride",
        read,
        read,
        word=lambda value: f"stride={_short(value)} (MindSpore's default is 1, not the kernel)",
    )


def _pool_padding(layer: Any) -> Any:
    """The padding of a pooling in PyTorch's terms; what cannot be said so is a word."""
    mode = str(getattr(layer, "pad_mode", "")).upper()
    if mode == "VALID":
        return 0
    if mode == "SAME":
        return "same"
    padding: Any = getattr(layer, "padding", None)
    if padding is None:
        padding = layer.avg_pool.pad[-1]
    padding = padding[-1] if isinstance(padding, (tuple, list)) else padding
    return int(padding)


def _pool(dims: int, *, average: bool) -> tuple[Setting, ...]:
    name = "avg_pool" if average else "max_pool"

    def ceil(layer: Any) -> bool:
        return bool(getattr(getattr(layer, name, layer), "ceil_mode", False))

    def padding(layer: Any) -> int:
        value = layer.padding
        return int(value[-1]) if isinstance(value, (tuple, list)) else int(value)

    settings = [
        _sized("kernel_size", dims),
        _pool_stride(dims),
        Setting(
            "padding",
            padding,
            _pool_padding,
            word=lambda value: f'pad_mode="pad", padding={value}' if value else 'pad_mode="valid"',
        ),
        Setting(
            "ceil_mode",
            lambda layer: bool(layer.ceil_mode),
            ceil,
            word=lambda value: f'pad_mode="pad", ceil_mode={value}',
        ),
    ]
    if average:
        settings.append(
            Setting(
                "count_include_pad",
                # without padding there is nothing to count
                lambda layer: bool(layer.count_include_pad) or not padding(layer),
                lambda layer: bool(getattr(layer.avg_pool, "count_include_pad", True)),
            )
        )
    else:
        settings.append(
            Setting(
                "dilation",
                lambda layer: _tuple(layer.dilation, dims),
                lambda layer: _tuple(getattr(layer.max_pool, "dilation", 1), dims),
                word=lambda value: f'pad_mode="pad", dilation={_short(value)}',
            )
        )
    return tuple(settings)


def _axis(layer: Any) -> int:
    axis = _first("softmax.axis", "log_softmax.axis", "dim", "axis")(layer)
    return int(axis[0]) if isinstance(axis, tuple) else int(axis)


_SOFTMAX = (Setting("dim", lambda layer: int(layer.dim), _axis, "axis"),)


def _adaptive(dims: int) -> Setting:
    ms = _first("output_size", "adaptive_avgpool2d.output_size", "adaptive_avgpool3d.output_size")
    return Setting(
        "output_size",
        lambda layer: _tuple(layer.output_size, dims),
        lambda layer: _tuple(ms(layer), dims),
        word=lambda value: f"output_size={value if dims > 1 else value[0]}",
    )


def _norm_shape(layer: Any) -> tuple[int, ...]:
    return tuple(layer.normalized_shape)


def _layer_norm_axis(layer: Any) -> int:
    """How many last axes are normalised over."""
    axis = getattr(layer, "begin_norm_axis", None)
    if axis is None or axis >= 0:
        return len(layer.normalized_shape)
    return int(-axis)


_LAYER_NORM = (
    _plain("eps", "epsilon"),
    Setting("normalized_shape", _norm_shape, _norm_shape),
    Setting(
        "axes",
        lambda layer: len(layer.normalized_shape),
        _layer_norm_axis,
        word=lambda value: f"begin_norm_axis={-value}, begin_params_axis={-value}",
    ),
    _AFFINE,
)

_ATTENTION = (
    _plain("embed_dim"),
    _plain("num_heads"),
    _plain("batch_first"),
    Setting("dropout", lambda layer: float(layer.dropout), lambda layer: float(layer.dropout)),
    Setting(
        "bias",
        lambda layer: layer.in_proj_bias is not None,
        lambda layer: layer.in_proj_bias is not None,
        "has_bias",
    ),
    _plain("add_zero_attn"),
)


def _padding_idx(layer: Any) -> int | None:
    index = layer.padding_idx
    if index is not None and index < 0:
        index += _first("num_embeddings", "vocab_size")(layer)
    return None if index is None else int(index)


_EMBEDDING = (Setting("padding_idx", _padding_idx, _padding_idx),)

_KINDS = (
    Kind("Linear", ("Linear",), ("Dense", "Linear"), (_BIAS,)),
    Kind("Bilinear", ("Bilinear",), ("BiDense",), (_BIAS,)),
    *(Kind(f"Conv{d}d", (f"Conv{d}d",), (f"Conv{d}d",), _conv(d), dims=d) for d in (1, 2, 3)),
    *(
        Kind(
            f"ConvTranspose{d}d",
            (f"ConvTranspose{d}d",),
            (f"Conv{d}dTranspose", f"ConvTranspose{d}d"),
            _transposed(d),
            dims=d,
        )
        for d in (1, 2, 3)
    ),
    Kind(
        "BatchNorm",
        ("_BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        ("_BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"),
        _BATCH_NORM,
    ),
    Kind(
        "InstanceNorm",
        ("_InstanceNorm",),
        ("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
        (_plain("eps"),),
    ),
    Kind("LayerNorm", ("LayerNorm",), ("LayerNorm", "LayerNormExt"), _LAYER_NORM),
    Kind("GroupNorm", ("GroupNorm",), ("GroupNorm",), (_plain("num_groups"), _plain("eps"))),
    Kind("Embedding", ("Embedding",), ("Embedding", "EmbeddingExt"), _EMBEDDING),
    Kind("LSTM", ("LSTM",), ("LSTM",), _RECURRENT),
    Kind("GRU", ("GRU",), ("GRU",), _RECURRENT),
    Kind("RNN", ("RNN",), ("RNN",), _RECURRENT),
    *(Kind(name, (name,), (name,)) for name in ("LSTMCell", "GRUCell", "RNNCell")),
    Kind("MultiheadAttention", ("MultiheadAttention",), ("MultiheadAttention",), _ATTENTION),
    Kind("Dropout", ("Dropout",), ("Dropout", "DropoutExt"), _DROPOUT),
    *(Kind(f"Dropout{d}d", (f"Dropout{d}d",), (f"Dropout{d}d",), _DROPOUT) for d in (1, 2, 3)),
    *(
        Kind(f"MaxPool{d}d", (f"MaxPool{d}d",), (f"MaxPool{d}d",), _pool(d, average=False))
        for d in (1, 2, 3)
    ),
    *(
        Kind(f"AvgPool{d}d", (f"AvgPool{d}d",), (f"AvgPool{d}d",), _pool(d, average=True))
        for d in (1, 2, 3)
    ),
    *(
        Kind(name, (name,), (name,), (_adaptive(d),))
        for d in (1, 2, 3)
        for name in (f"AdaptiveAvgPool{d}d", f"AdaptiveMaxPool{d}d")
    ),
    Kind("ReLU", ("ReLU",), ("ReLU",)),
    Kind("ReLU6", ("ReLU6",), ("ReLU6",)),
    Kind(
        "LeakyReLU",
        ("LeakyReLU",),
        ("LeakyReLU",),
        (
            Setting(
                "negative_slope",
                lambda layer: float(layer.negative_slope),
                _first("alpha", "negative_slope"),
                word=_slope,
            ),
        ),
    ),
    Kind("PReLU", ("PReLU",), ("PReLU", "PReLUExt")),
    Kind(
        "GELU",
        ("GELU",),
        ("GELU",),
        (
            Setting(
                "approximate",
                _attribute("approximate"),
                lambda layer: _approximate(layer.approximate),
                word=lambda value: f"approximate={value == 'tanh'}",
            ),
        ),
    ),
    Kind("ELU", ("ELU",), ("ELU",), (_plain("alpha", "elu.alpha", "alpha"),)),
    Kind("CELU", ("CELU",), ("CELU",), (_plain("alpha", "celu.alpha", "alpha"),)),
    Kind(
        "Softshrink",
        ("Softshrink",),
        ("SoftShrink",),
        (_plain("lambd", "softshrink.lambd", "lambd"),),
    ),
    Kind("Hardshrink", ("Hardshrink",), ("HShrink",), (_plain("lambd", "hshrink.lambd", "lambd"),)),
    Kind("Hardtanh", ("Hardtanh",), ("Hardtanh",), (_plain("min_val"), _plain("max_val"))),
    Kind("Threshold", ("Threshold",), ("Threshold",), (_plain("threshold"), _plain("value"))),
    Kind("GLU", ("GLU",), ("GLU",), (_plain("dim"),)),
    Kind("Softmax", ("Softmax",), ("Softmax", "SoftmaxExt"), _SOFTMAX),
    Kind("LogSoftmax", ("LogSoftmax",), ("LogSoftmax", "LogSoftmaxExt"), _SOFTMAX),
    *(
        Kind(name, (name,), others)
        for name, others in (
            ("Sigmoid", ("Sigmoid",)),
            ("Tanh", ("Tanh",)),
            ("SiLU", ("SiLU",)),
            ("Mish", ("Mish",)),
            ("SELU", ("SeLU",)),
            ("Hardswish", ("HSwish", "Hardswish")),
            ("Hardsigmoid", ("HSigmoid", "Hardsigmoid")),
            ("LogSigmoid", ("LogSigmoid",)),
            ("Softsign", ("Softsign",)),
            ("Tanhshrink", ("Tanhshrink",)),
            ("Identity", ("Identity",)),
        )
    ),
    Kind("Flatten", ("Flatten",), ("Flatten",), (_plain("start_dim"), _plain("end_dim"))),
    Kind("PixelShuffle", ("PixelShuffle",), ("PixelShuffle",), (_plain("upscale_factor"),)),
    Kind(
        "Upsample",
        ("Upsample",),
        ("Upsample",),
        (
            _plain("mode"),
            Setting(
                "align_corners",
                lambda layer: bool(layer.align_corners),
                lambda layer: bool(layer.align_corners),
            ),
        ),
    ),
)
_TORCH = {name: kind for kind in _KINDS for name in kind.torch}
_MINDSPORE = {name: kind for kind in _KINDS for name in kind.mindspore}


# Padding of convolutions: values before and after each axis


def _padding(
    kind: Kind, torch_layer: Any, ms_layer: Any, shape: tuple[int, ...] | None
) -> Iterator[Mismatch]:
    dims = kind.dims
    mode = torch_layer.padding_mode
    if mode != "zeros":
        yield Mismatch(
            "padding_mode",
            mode,
            "zeros",
            f'nn.Pad or ops.pad(mode="{mode}") in front of the layer, and pad_mode="valid"',
        )
        return
    transposed = kind.name.startswith("ConvTranspose")
    size = tuple(shape[-dims:]) if shape is not None and len(shape) > dims else None
    # "same" adds by the input's size: the next size tells whether that is luck
    sizes = [size, tuple(n + 1 for n in size)] if size else [None]
    for each in sizes:
        here = _torch_pads(torch_layer, dims)
        there = _ms_pads(ms_layer, dims, each, transposed)
        if here != there:
            luck = each is not size and size is not None
            yield Mismatch(
                "padding",
                _pads(here),
                _pads(there) + (f" at size {_short(each)}" if luck and each else ""),
                _padding_remedy(here),
            )
            return


def _torch_pads(layer: Any, dims: int) -> tuple[tuple[int, int], ...]:
    if layer.padding == "valid":
        return ((0, 0),) * dims
    if layer.padding == "same":
        totals = [
            d * (k - 1) for d, k in zip(layer.dilation[-dims:], layer.kernel_size, strict=True)
        ]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((int(p), int(p)) for p in _tuple(layer.padding, dims))


def _ms_pads(
    layer: Any, dims: int, size: tuple[int, ...] | None, transposed: bool
) -> tuple[tuple[int, int], ...] | str:
    mode = str(layer.pad_mode).lower()
    if mode == "valid":
        return ((0, 0),) * dims
    if mode == "pad":
        padding: Any = layer.padding
        if isinstance(padding, (tuple, list)):
            flat = [int(p) for p in padding]
            if len(flat) >= 2 * dims:
                flat = flat[-2 * dims :]
                return tuple((flat[2 * i], flat[2 * i + 1]) for i in range(dims))
        return tuple((p, p) for p in _tuple(padding, dims))
    kernel, stride, dilation = (
        _tuple(getattr(layer, name), dims) for name in ("kernel_size", "stride", "dilation")
    )
    wide = any(s > 1 and k > 1 for s, k in zip(stride, kernel, strict=True))
    if transposed or (size is None and wide):
        return 'pad_mode "same"'
    pads = []
    for i in range(dims):
        reach = dilation[i] * (kernel[i] - 1)
        if stride[i] > 1 and size is not None:
            total = max((math.ceil(size[i] / stride[i]) - 1) * stride[i] + reach + 1 - size[i], 0)
        else:
            total = reach
        pads.append((total // 2, total - total // 2))
    return tuple(pads)


def _pads(pads: tuple[tuple[int, int], ...] | str) -> str:
    if isinstance(pads, str):
        return pads
    if len({p for pair in pads for p in pair}) == 1:
        return str(pads[0][0])
    return ", ".join(f"{before} before and {after} after" for before, after in dict.fromkeys(pads))


def _padding_remedy(pads: tuple[tuple[int, int], ...]) -> str:
    flat = [p for pair in pads for p in pair]
    if not any(flat):
        return 'pad_mode="valid"'
    number = str(flat[0]) if len(set(flat)) == 1 else str(tuple(flat))
    return f'pad_mode="pad", padding={number}'
