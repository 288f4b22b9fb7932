"""Embeddings: padding, indices out of range, norms, gradients, names."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

_TABLE = np.arange(12, dtype=np.float32).reshape(4, 3) + 1


def _torch(index: list[int], **settings: Any) -> torch.Tensor:
    found: torch.Tensor = F.embedding(torch.tensor(index), torch.tensor(_TABLE), **settings)
    return found


def _ms(index: list[int], **settings: Any) -> Any:
    return nn.Embedding(4, 3, embedding_table=ms.Tensor(_TABLE), **settings)(ms.Tensor(index))


def _lookup(index: list[int], **settings: Any) -> Any:
    return nn.EmbeddingLookup(4, 3, param_init=ms.Tensor(_TABLE), **settings)(ms.Tensor(index))


@difference(
    "padding-gradient",
    "`padding_idx` only zeroes the row at the start: its gradient flows, and training moves it.",
    torch="grad of nn.Embedding(4, 3, padding_idx=0)([0, 1])",
    mindspore="grad of nn.Embedding(4, 3, padding_idx=0)([0, 1])",
    expected="differs",
    remedy="embedding(ids) * (ids != padding_idx).astype(ms.float32).unsqueeze(-1)",
)
def padding_gradient() -> Observation:
    x, y = torch.nn.Embedding(4, 3, padding_idx=0), nn.Embedding(4, 3, padding_idx=0)
    x(torch.tensor([0, 1])).sum().backward()

    def total(ids: Any) -> Any:
        return y(ids).sum()

    def masked(ids: Any) -> Any:
        return (y(ids) * (ids != 0).astype(ms.float32).unsqueeze(-1)).sum()

    def gradient(function: Any) -> Any:
        return ms.grad(function, None, y.trainable_params())(ms.Tensor([0, 1]))[0]

    return Observation(
        torch=x.weight.grad,
        mindspore=gradient(total),
        claim=np.array([[1] * 3, [1] * 3, [0] * 3, [0] * 3], np.float32),
        neighbour=(x.weight.grad, gradient(masked)),
    )


@difference(
    "padding-zeroes-given-table",
    "`padding_idx` zeroes the row of a table that is given; `from_pretrained` leaves it.",
    torch="nn.Embedding.from_pretrained(table, padding_idx=0)([0, 1])",
    mindspore="nn.Embedding(4, 3, embedding_table=table, padding_idx=0)([0, 1])",
    expected="differs",
    remedy="layer.embedding_table.set_data(table) after the layer is made",
)
def padding_zeroes_given_table() -> Observation:
    right = torch.nn.Embedding.from_pretrained(torch.tensor(_TABLE), padding_idx=0)
    layer = nn.Embedding(4, 3, padding_idx=0)
    layer.embedding_table.set_data(ms.Tensor(_TABLE))
    index = [0, 1]
    return Observation(
        torch=right(torch.tensor(index)),
        mindspore=_ms(index, padding_idx=0),
        claim=np.stack([np.zeros(3, np.float32), _TABLE[1]]),
        neighbour=(right(torch.tensor(index)), layer(ms.Tensor(index))),
    )


@difference(
    "negative-padding-index",
    "`padding_idx=-1` is refused; PyTorch counts from the end.",
    torch="nn.Embedding(4, 3, padding_idx=-1)",
    mindspore="nn.Embedding(4, 3, padding_idx=-1)",
    expected="raises",
    remedy="padding_idx=vocab_size - 1",
)
def negative_padding_index() -> Observation:
    right = torch.nn.Embedding(4, 3, padding_idx=-1).weight[3]
    return Observation(
        torch=right,
        mindspore=attempt(nn.Embedding, 4, 3, padding_idx=-1),
        claim=Raised("ValueError", "the 'padding_idx' must be in range of [0, 4), but got -1"),
        neighbour=(right, nn.Embedding(4, 3, padding_idx=3).embedding_table[3]),
    )


@difference(
    "negative-index",
    "Index -1 means the last row; PyTorch raises.",
    torch="nn.Embedding(4, 3)([-1])",
    mindspore="nn.Embedding(4, 3)([-1])",
    expected="accepts",
    remedy="(ids >= 0).all() before it",
)
def negative_index() -> Observation:
    return Observation(
        torch=attempt(_torch, [-1]),
        mindspore=_ms([-1]),
        claim=_TABLE[3:],
        neighbour=(attempt(_torch, [4]), attempt(_ms, [4])),  # beyond the end both raise
    )


@difference(
    "lookup-out-of-range",
    "`nn.EmbeddingLookup`, and `nn.Embedding(use_one_hot=True)`, give zeros for an index out of "
    "range.",
    torch="nn.Embedding(4, 3)([4])",
    mindspore="nn.EmbeddingLookup(4, 3)([4])",
    expected="accepts",
    remedy="nn.Embedding(4, 3), which raises",
)
def lookup_out_of_range() -> Observation:
    return Observation(
        torch=attempt(_torch, [4]),
        mindspore=(_lookup([4]), _ms([4], use_one_hot=True)),
        claim=(np.zeros((1, 3), np.float32), np.zeros((1, 3), np.float32)),
        neighbour=((_torch([3]), _torch([3])), (_lookup([3]), _ms([3], use_one_hot=True))),
    )


@difference(
    "no-max-norm",
    "`nn.Embedding` has no `max_norm`.",
    torch="nn.Embedding(4, 3, max_norm=1.0)",
    mindspore="nn.Embedding(4, 3, max_norm=1.0)",
    expected="raises",
    remedy="divide by ops.maximum(ops.norm(rows, dim=-1, keepdim=True), 1.0)",
)
def no_max_norm() -> Observation:
    right, rows = _torch([0, 2], max_norm=1.0), _ms([0, 2])
    scale = ops.maximum(ops.norm(rows, dim=-1, keepdim=True), ms.Tensor(1.0))
    return Observation(
        torch=right,
        mindspore=attempt(nn.Embedding, 4, 3, max_norm=1.0),
        claim=Raised("TypeError", "unexpected keyword argument 'max_norm'"),
        neighbour=(right, rows / scale),
    )


@difference(
    "lookup-max-norm",
    "`nn.EmbeddingLookup(max_norm=)` is right for the first row only: for row r it takes the norm "
    "of the numbers from position r on, not of the row (so does `nn.ClipByNorm(axis)`).",
    torch="nn.Embedding(4, 3, max_norm=1.0)(ids)",
    mindspore="nn.EmbeddingLookup(4, 3, max_norm=1.0)(ids)",
    expected="off",
    remedy="divide by ops.maximum(ops.norm(rows, dim=-1, keepdim=True), 1.0)",
)
def lookup_max_norm() -> Observation:
    index = [0, 1, 2, 3]
    shifted = np.stack([np.linalg.norm(_TABLE.ravel()[row : row + 3]) for row in index])
    norms = np.linalg.norm(_TABLE.astype(np.float64), axis=1, keepdims=True)
    return Observation(
        torch=_torch(index, max_norm=1.0),
        mindspore=_lookup(index, max_norm=1.0),
        claim=_TABLE / shifted[:, None],
        right=np.float32(_TABLE / norms),
        neighbour=(_torch([2], max_norm=1.0), _lookup([2], max_norm=1.0)),
    )


@difference(
    "lookup-gradient",
    "The gradient of `nn.EmbeddingLookup` holds the rows looked up, one for each index, not the "
    "whole table.",
    torch="grad of nn.Embedding(4, 3)([1, 1])",
    mindspore="grad of nn.EmbeddingLookup(4, 3)([1, 1])",
    expected="differs",
    remedy="nn.Embedding(4, 3)",
)
def lookup_gradient() -> Observation:
    index = [1, 1]
    x = torch.nn.Embedding(4, 3)
    x(torch.tensor(index)).sum().backward()

    def gradient(layer: Any) -> Any:
        def total(ids: Any) -> Any:
            return layer(ids).sum()

        return ms.grad(total, None, layer.trainable_params())(ms.Tensor(index))[0]

    return Observation(
        torch=x.weight.grad,
        mindspore=gradient(nn.EmbeddingLookup(4, 3)),
        claim=np.ones((2, 3), np.float32),
        neighbour=(x.weight.grad, gradient(nn.Embedding(4, 3))),
    )


@difference(
    "functional-embedding",
    "`ops.embedding` has no CPU kernel.",
    torch="F.embedding(ids, table)",
    mindspore="ops.embedding(ids, table)",
    expected="raises",
    remedy="ops.gather(table, ids, 0)",
)
def functional_embedding() -> Observation:
    ids, table = ms.Tensor([0, 2]), ms.Tensor(_TABLE)
    return Observation(
        torch=_torch([0, 2]),
        mindspore=attempt(ops.embedding, ids, table),
        claim=Raised("RuntimeError", "The kernel Embedding unregistered"),
        neighbour=(_torch([0, 2]), ops.gather(table, ids, 0)),
    )


@difference(
    "parameter-name",
    "The table is called `embedding_table`, in the layer and in a checkpoint, not `weight`.",
    torch="nn.Embedding(4, 3).weight",
    mindspore="nn.Embedding(4, 3).embedding_table",
    expected="differs",
    remedy='rename "...weight" to "...embedding_table"',
)
def parameter_name() -> Observation:
    def names(layer: Any) -> list[str]:
        return [name for name, _ in layer.parameters_and_names()]

    return Observation(
        torch=list(torch.nn.Embedding(4, 3).state_dict()),
        mindspore=names(nn.Embedding(4, 3)),
        claim=["embedding_table"],
        neighbour=(list(torch.nn.Linear(4, 3).state_dict()), names(nn.Dense(4, 3))),
    )
