"""Attention and transformer layers: masks, weights returned, defaults, names."""

from __future__ import annotations

import warnings
from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import mint, nn, ops

from msnb.differences import Observation, Raised, attempt, difference

_X = np.random.default_rng(0).normal(size=(5, 2, 8)).astype(np.float32)
_CAUSAL = np.triu(np.ones((5, 5), bool), 1)
_PADDING = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
_RENAMED = {"gamma": "weight", "beta": "bias", "dense": "linear"}


def _as_torch(name: str) -> str:
    for mine, theirs in _RENAMED.items():
        name = name.replace(mine, theirs)
    return name


def _pair(kind: str, *sizes: int, **settings: Any) -> tuple[Any, Any]:
    """A torch and a MindSpore layer with the same weights, in evaluation mode."""
    x = getattr(torch.nn, kind)(*sizes, **settings).eval()
    y = getattr(nn, kind)(*sizes, **settings)
    rng = np.random.default_rng(1)
    weights = {
        name: rng.uniform(-0.5, 0.5, tuple(value.shape)).astype(np.float32)
        for name, value in sorted(x.state_dict().items())
    }
    x.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    for name, parameter in y.parameters_and_names():
        parameter.set_data(ms.Tensor(weights[_as_torch(name)]))
    return x, y


def _torch(layer: Any, **settings: Any) -> Any:
    x = torch.tensor(_X, dtype=next(layer.parameters()).dtype)
    masks = {
        name: torch.tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in settings.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # masks of two dtypes are deprecated
        return layer(x, x, x, **masks)


def _ms(layer: Any, **settings: Any) -> Any:
    x = ms.Tensor(_X)
    masks = {
        name: ms.Tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in settings.items()
    }
    return layer(x, x, x, **masks)


def _additive(mask: Any) -> Any:
    return np.where(mask, -np.inf, 0).astype(np.float32)


@difference(
    "weights-returned",
    "`MultiheadAttention` has PyTorch's parameter names and returns the weights averaged over the "
    "heads, sequence first, by default.",
    torch="nn.MultiheadAttention(8, 2)(x, x, x)",
    mindspore="nn.MultiheadAttention(8, 2)(x, x, x)",
    expected="agrees",
)
def weights_returned() -> Observation:
    x, y = _pair("MultiheadAttention", 8, 2)
    return Observation(
        torch=_torch(x),
        mindspore=_ms(y),
        neighbour=(_torch(x), _ms(y, average_attn_weights=False)),
    )


@difference(
    "mask-polarity",
    "True in a mask means: do not attend. So it is for `attn_mask` and `key_padding_mask` in both.",
    torch="attention(x, x, x, attn_mask=causal, key_padding_mask=padding)",
    mindspore="attention(x, x, x, attn_mask=causal, key_padding_mask=padding)",
    expected="agrees",
)
def mask_polarity() -> Observation:
    x, y = _pair("MultiheadAttention", 8, 2)
    right = _torch(x, attn_mask=_CAUSAL, key_padding_mask=_PADDING)
    return Observation(
        torch=right,
        mindspore=_ms(y, attn_mask=_CAUSAL, key_padding_mask=_PADDING),
        neighbour=(right, _ms(y, attn_mask=_CAUSAL.T, key_padding_mask=_PADDING)),
    )


@difference(
    "byte-mask",
    "A uint8 mask is read as boolean; PyTorch refuses it.",
    torch="attention(x, x, x, attn_mask=causal_uint8)",
    mindspore="attention(x, x, x, attn_mask=causal_uint8)",
    expected="accepts",
    remedy="mask.astype(ms.bool_)",
)
def byte_mask() -> Observation:
    x, y = _pair("MultiheadAttention", 8, 2)
    right = _torch(x, attn_mask=_CAUSAL)
    return Observation(
        torch=attempt(_torch, x, attn_mask=_CAUSAL.astype(np.uint8)),
        mindspore=_ms(y, attn_mask=_CAUSAL.astype(np.uint8)),
        claim=right,
        neighbour=(right, _ms(y, attn_mask=_CAUSAL)),
    )


@difference(
    "masks-of-two-dtypes",
    "A float `attn_mask` with a boolean `key_padding_mask`: True is added as 1.0, so padding is "
    "attended to, even more than the rest.",
    torch="attention(x, x, x, attn_mask=float_mask, key_padding_mask=bool_mask)",
    mindspore="attention(x, x, x, attn_mask=float_mask, key_padding_mask=bool_mask)",
    expected="off",
    remedy="give both masks as bool, or both as float",
)
def masks_of_two_dtypes() -> Observation:
    x, y = _pair("MultiheadAttention", 8, 2)
    mixed = {"attn_mask": _additive(_CAUSAL), "key_padding_mask": _PADDING}
    added = {"attn_mask": _additive(_CAUSAL), "key_padding_mask": _PADDING.astype(np.float32)}
    right, claim = _torch(x, **mixed), _torch(x, **added)
    truth = _torch(x.double(), attn_mask=_CAUSAL, key_padding_mask=_PADDING)
    same = {"attn_mask": _additive(_CAUSAL), "key_padding_mask": _additive(_PADDING)}
    return Observation(
        torch=right,
        mindspore=_ms(y, **mixed),
        claim=claim,
        right=tuple(value.float() for value in truth),
        neighbour=(right, _ms(y, **same)),
    )


@difference(
    "row-masked-out",
    "Softmax of a row of -inf, a query with every key masked, is not computed: the result is "
    "whatever lay in that memory, where NaN is due.",
    torch="torch.isnan(torch.softmax([-inf, -inf, -inf], -1)).all()",
    mindspore="ops.isnan(ops.softmax([-inf, -inf, -inf])).all()",
    expected="off",
    remedy="mask with -1e4, or leave one key unmasked",
)
def row_masked_out() -> Observation:
    def undefined(value: float) -> tuple[bool, bool]:
        row = np.full((1, 3), value, np.float32)
        kept = [ms.Tensor(np.full((1, 3), each, np.float32)) * 1 for each in range(32)]
        for tensor in kept:
            tensor.asnumpy()  # it is computed
        del tensor
        kept.clear()  # and its memory, numbers, goes back to the pool
        x, y = torch.softmax(torch.tensor(row), -1), ops.softmax(ms.Tensor(row))
        return bool(x.isnan().all()), bool(np.isnan(y.asnumpy()).all())

    x, y = undefined(-np.inf)
    return Observation(torch=x, mindspore=y, claim=False, right=True, neighbour=undefined(-1e4))


@difference(
    "is-causal",
    "`MultiheadAttention` has no `is_causal`.",
    torch="attention(x, x, x, attn_mask=causal, is_causal=True)",
    mindspore="attention(x, x, x, attn_mask=causal, is_causal=True)",
    expected="raises",
    remedy="attn_mask=ops.triu(ops.ones((n, n)), 1).astype(ms.bool_)",
)
def is_causal() -> Observation:
    x, y = _pair("MultiheadAttention", 8, 2)
    right = _torch(x, attn_mask=_CAUSAL, is_causal=True)
    mask = ops.triu(ops.ones((5, 5)), 1).astype(ms.bool_)
    return Observation(
        torch=right,
        mindspore=attempt(_ms, y, attn_mask=_CAUSAL, is_causal=True),
        claim=Raised("TypeError", "unexpected keyword argument 'is_causal'"),
        neighbour=(right, _ms(y, attn_mask=mask)),
    )


@difference(
    "scaled-dot-product",
    "`mint.nn.functional` has no `scaled_dot_product_attention`.",
    torch="F.scaled_dot_product_attention(q, k, v)",
    mindspore="mint.nn.functional.scaled_dot_product_attention(q, k, v)",
    expected="raises",
    remedy="ops.matmul(ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)) / d**0.5), v)",
)
def scaled_dot_product() -> Observation:
    x, y = torch.tensor(_X), ms.Tensor(_X)
    right = F.scaled_dot_product_attention(x, x, x)
    weights = ops.softmax(ops.matmul(y, y.swapaxes(-1, -2)) / 8**0.5)
    return Observation(
        torch=right,
        mindspore=attempt(lambda: mint.nn.functional.scaled_dot_product_attention(y, y, y)),
        claim=Raised("AttributeError", "has no attribute 'scaled_dot_product_attention'"),
        neighbour=(right, ops.matmul(weights, y)),
    )


@difference(
    "encoder-layer",
    "`TransformerEncoderLayer` agrees: layer norm's eps is 1e-5 here, not the 1e-7 of "
    '`nn.LayerNorm`, and `activation="gelu"` is the exact one, not the tanh form of `nn.GELU`.',
    torch='nn.TransformerEncoderLayer(8, 2, 16, activation="gelu")',
    mindspore='nn.TransformerEncoderLayer(8, 2, 16, activation="gelu")',
    expected="agrees",
)
def encoder_layer() -> Observation:
    settings = {"activation": "gelu", "norm_first": True}
    x, y = _pair("TransformerEncoderLayer", 8, 2, 16, **settings)
    small = 1e-3 * _X  # a variance near eps: here it shows
    right = x(torch.tensor(small)), x(torch.tensor(_X))
    other = _pair("TransformerEncoderLayer", 8, 2, 16, layer_norm_eps=1e-7, **settings)[1]
    return Observation(
        torch=right,
        mindspore=(y(ms.Tensor(small)), y(ms.Tensor(_X))),
        neighbour=(right, (other(ms.Tensor(small)), other(ms.Tensor(_X)))),
    )


@difference(
    "activation-cell",
    "`activation=nn.GELU()` is refused: the transformer layers take a name, `ops.relu` or "
    "`ops.gelu`.",
    torch="nn.TransformerEncoderLayer(8, 2, 16, activation=nn.GELU())",
    mindspore="nn.TransformerEncoderLayer(8, 2, 16, activation=nn.GELU())",
    expected="raises",
    remedy='activation="gelu"',
)
def activation_cell() -> Observation:
    x = torch.nn.TransformerEncoderLayer(8, 2, 16, activation=torch.nn.GELU())
    y = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu")
    given = tuple(x(torch.tensor(_X)).shape)
    return Observation(
        torch=given,
        mindspore=attempt(nn.TransformerEncoderLayer, 8, 2, 16, activation=nn.GELU()),
        claim=Raised("ValueError", "must be ops.relu or ops.gelu instance"),
        neighbour=(given, y(ms.Tensor(_X)).shape),
    )


@difference(
    "parameter-names",
    "The transformer layers call their linear layers dense1 and dense2, and a norm's weight and "
    "bias gamma and beta.",
    torch="linear1.weight, norm1.weight, norm1.bias",
    mindspore="dense1.weight, norm1.gamma, norm1.beta",
    expected="differs",
    remedy="rename linear1 to dense1, norm1.weight to norm1.gamma, norm1.bias to norm1.beta",
)
def parameter_names() -> Observation:
    def names(kind: str, *sizes: int) -> tuple[list[str], list[str]]:
        x, y = getattr(torch.nn, kind)(*sizes), getattr(nn, kind)(*sizes)
        return sorted(x.state_dict()), sorted(name for name, _ in y.parameters_and_names())

    x, y = names("TransformerEncoderLayer", 8, 2, 16)
    attention = [
        f"self_attn.{name}"
        for name in ("in_proj_bias", "in_proj_weight", "out_proj.bias", "out_proj.weight")
    ]
    linear = [f"dense{i}.{name}" for i in (1, 2) for name in ("bias", "weight")]
    norm = [f"norm{i}.{name}" for i in (1, 2) for name in ("beta", "gamma")]
    return Observation(
        torch=x,
        mindspore=y,
        claim=linear + norm + attention,
        neighbour=names("MultiheadAttention", 8, 2),
    )
