"""Recurrent layers: gates, layouts, dropout, lengths of sequences."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from msnb.differences import Observation, Raised, attempt, difference

_X = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
_LENGTHS = [5, 3]


def _pair(kind: str, *sizes: int, **settings: Any) -> tuple[Any, Any]:
    """A torch and a MindSpore layer with the same weights, drawn here."""
    x, y = getattr(torch.nn, kind)(*sizes, **settings), getattr(nn, kind)(*sizes, **settings)
    rng = np.random.default_rng(1)
    weights = {
        name: rng.uniform(-0.5, 0.5, tuple(value.shape)).astype(np.float32)
        for name, value in sorted(x.state_dict().items())
    }
    x.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    _load(y, weights)
    return x, y


def _load(layer: Any, weights: dict[str, Any]) -> None:
    for name, parameter in layer.parameters_and_names():
        parameter.set_data(ms.Tensor(weights[name]))


def _weights(layer: Any) -> dict[str, Any]:
    return {name: value.asnumpy().copy() for name, value in layer.parameters_and_names()}


def _packed(layer: Any, lengths: list[int], **settings: Any) -> tuple[Any, Any]:
    out, state = layer(pack_padded_sequence(torch.tensor(_X), lengths, **settings))
    return pad_packed_sequence(out)[0], state


@difference(
    "lstm-gate-order",
    "The LSTM's gates are stacked in PyTorch's order (input, forget, cell, output), under the same "
    "names: a state dict copies as it is.",
    torch="nn.LSTM(3, 4)",
    mindspore="nn.LSTM(3, 4)",
    expected="agrees",
)
def lstm_gate_order() -> Observation:
    x, y = _pair("LSTM", 3, 4)
    right, seen = x(torch.tensor(_X)), y(ms.Tensor(_X))
    rows = np.r_[4:8, 0:4, 8:16]  # forget first, as other libraries have it
    _load(y, {name: value[rows] for name, value in _weights(y).items()})
    return Observation(torch=right, mindspore=seen, neighbour=(right, y(ms.Tensor(_X))))


@difference(
    "gru-reset-gate",
    "The GRU applies the reset gate after the product with the hidden weights, bias included, as "
    "PyTorch does: the two biases of the new gate cannot be merged.",
    torch="nn.GRU(3, 4)",
    mindspore="nn.GRU(3, 4)",
    expected="agrees",
)
def gru_reset_gate() -> Observation:
    x, y = _pair("GRU", 3, 4)
    right, seen = x(torch.tensor(_X)), y(ms.Tensor(_X))
    weights = _weights(y)
    weights["bias_ih_l0"][8:] += weights["bias_hh_l0"][8:]
    weights["bias_hh_l0"][8:] = 0
    _load(y, weights)
    return Observation(torch=right, mindspore=seen, neighbour=(right, y(ms.Tensor(_X))))


@difference(
    "bidirectional-layout",
    "Two bidirectional layers: directions are joined in the output's last axis, and the final "
    "states come layer by layer, forward then backward, as in PyTorch.",
    torch="nn.GRU(3, 4, num_layers=2, bidirectional=True)",
    mindspore="nn.GRU(3, 4, num_layers=2, bidirectional=True)",
    expected="agrees",
)
def bidirectional_layout() -> Observation:
    x, y = _pair("GRU", 3, 4, num_layers=2, bidirectional=True)
    right, (out, state) = x(torch.tensor(_X)), y(ms.Tensor(_X))
    by_direction = state[ms.Tensor([0, 2, 1, 3])]
    return Observation(torch=right, mindspore=(out, state), neighbour=(right, (out, by_direction)))


@difference(
    "nonlinearity",
    'The plain RNN takes `nonlinearity="relu"` and has tanh by default, as in PyTorch.',
    torch='nn.RNN(3, 4, nonlinearity="relu")',
    mindspore='nn.RNN(3, 4, nonlinearity="relu")',
    expected="agrees",
)
def nonlinearity() -> Observation:
    x, y = _pair("RNN", 3, 4, nonlinearity="relu")
    right = x(torch.tensor(_X))
    plain = nn.RNN(3, 4)
    _load(plain, _weights(y))
    return Observation(
        torch=right, mindspore=y(ms.Tensor(_X)), neighbour=(right, plain(ms.Tensor(_X)))
    )


@difference(
    "dropout-between-layers",
    "Dropout between the layers of an LSTM is off until `set_train()`: two calls give the same.",
    torch="nn.LSTM(3, 4, 2, dropout=0.5)",
    mindspore="nn.LSTM(3, 4, 2, dropout=0.5)",
    expected="differs",
    remedy="net.set_train()",
)
def dropout_between_layers() -> Observation:
    def same(layer: Any, sequence: Any) -> bool:
        first, second = layer(sequence)[0], layer(sequence)[0]
        return bool((first == second).all())

    x, y = _pair("LSTM", 3, 8, num_layers=2, dropout=0.5)
    right = same(x, torch.tensor(_X))
    return Observation(
        torch=right,
        mindspore=same(y, ms.Tensor(_X)),
        claim=True,
        neighbour=(right, same(y.set_train(), ms.Tensor(_X))),
    )


@difference(
    "sequence-lengths",
    "The third argument `seq_length` does what packing does in PyTorch: outputs beyond a sequence "
    "are 0, and its final state is that of its last step.",
    torch="nn.LSTM(3, 4)(pack_padded_sequence(x, [5, 3]))",
    mindspore="nn.LSTM(3, 4)(x, None, Tensor([5, 3], ms.int32))",
    expected="agrees",
)
def sequence_lengths() -> Observation:
    x, y = _pair("LSTM", 3, 4)
    right = _packed(x, _LENGTHS)
    return Observation(
        torch=right,
        mindspore=y(ms.Tensor(_X), None, ms.Tensor(_LENGTHS, ms.int32)),
        neighbour=(right, y(ms.Tensor(_X))),
    )


@difference(
    "unsorted-lengths",
    "Lengths may come in any order; packing in PyTorch wants the longest first by default.",
    torch="pack_padded_sequence(x, [3, 5])",
    mindspore="nn.LSTM(3, 4)(x, None, Tensor([3, 5], ms.int32))",
    expected="accepts",
    remedy="in PyTorch: enforce_sorted=False",
)
def unsorted_lengths() -> Observation:
    x, y = _pair("LSTM", 3, 4)
    lengths = _LENGTHS[::-1]
    seen = y(ms.Tensor(_X), None, ms.Tensor(lengths, ms.int32))
    right = _packed(x, lengths, enforce_sorted=False)
    return Observation(
        torch=attempt(_packed, x, lengths),
        mindspore=seen,
        claim=right,
        neighbour=(right, seen),
    )


@difference(
    "unbatched-sequence",
    "A single sequence of shape (length, features) is refused; PyTorch takes it.",
    torch="nn.LSTM(3, 4)(x[:, 0])",
    mindspore="nn.LSTM(3, 4)(x[:, 0])",
    expected="raises",
    remedy="lstm(x.unsqueeze(1))[0].squeeze(1)",
)
def unbatched_sequence() -> Observation:
    x, y = _pair("LSTM", 3, 4)
    one = ms.Tensor(_X[:, 0])
    right = x(torch.tensor(_X[:, 0]))[0]
    return Observation(
        torch=right,
        mindspore=attempt(y, one),
        claim=Raised("ValueError", "the x_shape.size() must be equal to 3, but got 2"),
        neighbour=(right, y(one.unsqueeze(1))[0].squeeze(1)),
    )


@difference(
    "cell-without-state",
    "`LSTMCell`, `GRUCell` and `RNNCell` want the state; in PyTorch zeros are the default.",
    torch="nn.GRUCell(3, 4)(x)",
    mindspore="nn.GRUCell(3, 4)(x)",
    expected="raises",
    remedy="cell(x, ops.zeros((batch, hidden)))",
)
def cell_without_state() -> Observation:
    x, y = _pair("GRUCell", 3, 4)
    right, step = x(torch.tensor(_X[0])), ms.Tensor(_X[0])
    return Observation(
        torch=right,
        mindspore=attempt(y, step),
        claim=Raised("TypeError", "missing 1 required positional argument: 'hx'"),
        neighbour=(right, y(step, ops.zeros((2, 4)))),
    )


@difference(
    "bias-keyword",
    "The keyword is `has_bias`: `bias=False` is refused (in recurrent, attention and dense layers "
    "and convolutions).",
    torch="nn.GRU(3, 4, bias=False)",
    mindspore="nn.GRU(3, 4, bias=False)",
    expected="raises",
    remedy="nn.GRU(3, 4, has_bias=False)",
)
def bias_keyword() -> Observation:
    x, y = torch.nn.GRU(3, 4, bias=False), nn.GRU(3, 4, has_bias=False)
    _load(y, {name: value.numpy() for name, value in x.state_dict().items()})
    right = x(torch.tensor(_X))
    return Observation(
        torch=right,
        mindspore=attempt(nn.GRU, 3, 4, bias=False),
        claim=Raised("TypeError", "unexpected keyword argument 'bias'"),
        neighbour=(right, y(ms.Tensor(_X))),
    )
