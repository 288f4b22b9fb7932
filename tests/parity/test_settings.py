"""Hyper-parameters of layers: read on both sides, in PyTorch's terms, with what to type."""

from __future__ import annotations

import pytest
import torch
from mindspore import mint, nn
from torch import nn as tnn

from msnb.parity.settings import differing, kind_of


def said(torch_layer, ms_layer, shape=None):
    found = differing(torch_layer, ms_layer, shape)
    assert found is not None
    return {mismatch.name: (mismatch.torch, mismatch.mindspore) for mismatch in found}


def remedies(torch_layer, ms_layer, shape=None):
    return ", ".join(mismatch.remedy for mismatch in differing(torch_layer, ms_layer, shape))


SAME = [
    (tnn.Linear(2, 3), nn.Dense(2, 3)),
    (tnn.Linear(2, 3, bias=False), nn.Dense(2, 3, has_bias=False)),
    (tnn.Linear(2, 3), mint.nn.Linear(2, 3)),
    (tnn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 3, pad_mode="pad", padding=1, has_bias=True)),
    (tnn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(2, 4, 3, pad_mode="valid")),
    (tnn.Conv2d(2, 4, 3, padding="same"), nn.Conv2d(2, 4, 3, has_bias=True)),
    (tnn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 3, has_bias=True)),
    (tnn.Conv2d(4, 4, 1, stride=2), nn.Conv2d(4, 4, 1, stride=2, has_bias=True)),
    (
        tnn.Conv2d(4, 4, (3, 5), padding=(1, 2), groups=2),
        nn.Conv2d(4, 4, (3, 5), pad_mode="pad", padding=(1, 1, 2, 2), group=2, has_bias=True),
    ),
    (
        tnn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=2),
        nn.Conv1d(2, 4, 3, 2, pad_mode="pad", padding=1, dilation=2, has_bias=True),
    ),
    (
        tnn.Conv3d(2, 2, 3, padding=1),
        nn.Conv3d(2, 2, 3, pad_mode="pad", padding=1, has_bias=True),
    ),
    (
        tnn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1),
        nn.Conv2dTranspose(2, 3, 3, 2, pad_mode="pad", padding=1, output_padding=1, has_bias=True),
    ),
    (tnn.BatchNorm2d(3), nn.BatchNorm2d(3)),
    (tnn.BatchNorm1d(3, momentum=0.01), nn.BatchNorm1d(3, momentum=0.99)),
    (tnn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3, affine=False)),
    (tnn.LayerNorm(4), nn.LayerNorm((4,), epsilon=1e-5)),
    (
        tnn.LayerNorm((3, 4)),
        nn.LayerNorm((3, 4), begin_norm_axis=-2, begin_params_axis=-2, epsilon=1e-5),
    ),
    (tnn.LayerNorm(4), mint.nn.LayerNorm((4,))),
    (tnn.GroupNorm(2, 4), nn.GroupNorm(2, 4)),
    (tnn.Embedding(5, 4, padding_idx=-1), nn.Embedding(5, 4, padding_idx=4)),
    (tnn.LSTM(2, 3, 2, batch_first=True), nn.LSTM(2, 3, 2, batch_first=True)),
    (tnn.GRU(2, 3, bidirectional=True), nn.GRU(2, 3, bidirectional=True)),
    (tnn.MultiheadAttention(4, 2), nn.MultiheadAttention(4, 2)),
    (tnn.Dropout(0.1), nn.Dropout(p=0.1)),
    (tnn.Dropout(0.1), nn.Dropout(keep_prob=0.9)),
    (tnn.Dropout2d(0.2), nn.Dropout2d(p=0.2)),
    (tnn.MaxPool2d(2), nn.MaxPool2d(2, 2)),
    (
        tnn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
        nn.MaxPool2d(3, 2, pad_mode="pad", padding=1, ceil_mode=True),
    ),
    (tnn.MaxPool1d(2), nn.MaxPool1d(2, 2)),
    (tnn.AvgPool2d(2), nn.AvgPool2d(2, 2)),
    (
        tnn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
        nn.AvgPool2d(3, 2, pad_mode="pad", padding=1, count_include_pad=False),
    ),
    (tnn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d(1)),
    (tnn.GELU(), nn.GELU(approximate=False)),
    (tnn.GELU("tanh"), nn.GELU()),
    (tnn.GELU(), mint.nn.GELU()),
    (tnn.LeakyReLU(), nn.LeakyReLU(0.01)),
    (tnn.ELU(0.5), nn.ELU(0.5)),
    (tnn.Softmax(1), nn.Softmax(1)),
    (tnn.LogSoftmax(-1), nn.LogSoftmax(-1)),
    (tnn.ReLU6(), nn.ReLU6()),
    (tnn.Flatten(), nn.Flatten()),
]


@pytest.mark.parametrize("pair", SAME, ids=lambda pair: type(pair[0]).__name__)
def test_equal_settings(pair):
    assert said(*pair) == {}


OTHER = [
    (tnn.Linear(2, 3), nn.Dense(2, 3, has_bias=False), "bias", "has_bias=True"),
    (tnn.BatchNorm2d(3), nn.BatchNorm2d(3, momentum=0.1), "momentum", "momentum=0.9"),
    (tnn.BatchNorm2d(3), nn.BatchNorm2d(3, eps=1e-6), "eps", "eps=1e-05"),
    (tnn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False), "affine", "affine at True"),
    (
        tnn.BatchNorm2d(3, track_running_stats=False),
        nn.BatchNorm2d(3),
        "statistics",
        "use_batch_statistics=True",
    ),
    (tnn.LayerNorm(4), nn.LayerNorm((4,)), "eps", "epsilon=1e-05"),
    (tnn.LayerNorm((3, 4)), nn.LayerNorm((3, 4), epsilon=1e-5), "axes", "begin_norm_axis=-2"),
    (tnn.GroupNorm(2, 4), nn.GroupNorm(1, 4), "num_groups", "num_groups=2"),
    (tnn.Embedding(5, 4, padding_idx=0), nn.Embedding(5, 4), "padding_idx", "padding_idx=0"),
    (tnn.LSTM(2, 3, batch_first=True), nn.LSTM(2, 3), "batch_first", "batch_first=True"),
    (tnn.GRU(2, 3, 2), nn.GRU(2, 3, 1), "num_layers", "num_layers=2"),
    (tnn.LSTM(2, 3, bidirectional=True), nn.LSTM(2, 3), "bidirectional", "bidirectional=True"),
    (tnn.MultiheadAttention(4, 2), nn.MultiheadAttention(4, 4), "num_heads", "num_heads=2"),
    (tnn.Dropout(0.1), nn.Dropout(0.1), "p", "p=0.1, by name"),
    (tnn.MaxPool2d(2), nn.MaxPool2d(2), "stride", "stride=2"),
    (tnn.AvgPool2d(2), nn.AvgPool2d(2), "stride", "stride=2"),
    (
        tnn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, 2),
        "ceil_mode",
        'pad_mode="pad", ceil_mode=True',
    ),
    (
        tnn.AvgPool2d(3, 2, 1),
        nn.AvgPool2d(3, 2, pad_mode="pad", padding=1, count_include_pad=False),
        "count_include_pad",
        "count_include_pad=True",
    ),
    (tnn.GELU(), nn.GELU(), "approximate", "approximate=False"),
    (tnn.LeakyReLU(), nn.LeakyReLU(), "negative_slope", "alpha=0.01"),
    (tnn.ELU(), nn.ELU(0.5), "alpha", "alpha=1"),
    (tnn.Softmax(1), nn.Softmax(), "dim", "axis=1"),
    (
        tnn.Conv2d(2, 4, 3, stride=2),
        nn.Conv2d(2, 4, 3, pad_mode="valid", has_bias=True),
        "stride",
        "stride=2",
    ),
    (
        tnn.Conv2d(2, 4, 3, groups=2),
        nn.Conv2d(2, 4, 3, pad_mode="valid", has_bias=True),
        "groups",
        "group=2",
    ),
    (
        tnn.Conv2d(2, 4, 3),
        nn.Conv2d(2, 4, 3, pad_mode="valid", dilation=2, has_bias=True),
        "dilation",
        "dilation=1",
    ),
    (tnn.Conv2d(2, 4, 3), nn.Conv2d(2, 4, 3, pad_mode="valid"), "bias", "has_bias=True"),
    (tnn.Conv2d(2, 4, 3), nn.Conv2d(2, 4, 3, has_bias=True), "padding", 'pad_mode="valid"'),
    (
        tnn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1),
        nn.Conv2dTranspose(2, 3, 3, 2, pad_mode="pad", padding=1, has_bias=True),
        "output_padding",
        "output_padding=1",
    ),
    (
        tnn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(2, 4, 3, pad_mode="pad", padding=1, has_bias=True),
        "padding_mode",
        'ops.pad(mode="circular")',
    ),
]


@pytest.mark.parametrize(
    ("torch_layer", "ms_layer", "name", "remedy"),
    OTHER,
    ids=[f"{type(case[0]).__name__}-{case[2]}" for case in OTHER],
)
def test_different_settings(torch_layer, ms_layer, name, remedy):
    assert set(said(torch_layer, ms_layer)) == {name}
    assert remedy in remedies(torch_layer, ms_layer)


def test_same_with_stride_two_depends_on_the_size():
    torch_layer = tnn.Conv2d(2, 4, 3, stride=2, padding=1)
    ms_layer = nn.Conv2d(2, 4, 3, stride=2, has_bias=True)
    even = said(torch_layer, ms_layer, (1, 2, 6, 6))["padding"]
    assert even == ("1", "0 before and 1 after")
    odd = said(torch_layer, ms_layer, (1, 2, 7, 7))["padding"]  # equal there, by luck
    assert odd == ("1", "0 before and 1 after at size 8")
    assert remedies(torch_layer, ms_layer) == 'pad_mode="pad", padding=1'


def test_one_padded_side():
    torch_layer = tnn.Conv2d(2, 4, 3, padding=(1, 0))
    ms_layer = nn.Conv2d(2, 4, 3, pad_mode="pad", padding=(2, 0, 0, 0), has_bias=True)
    assert set(said(torch_layer, ms_layer)) == {"padding"}
    assert remedies(torch_layer, ms_layer) == 'pad_mode="pad", padding=(1, 1, 0, 0)'


def test_a_type_that_is_not_in_the_table_is_unknown():
    class Mine(tnn.Module):
        pass

    assert kind_of(Mine(), "torch") is None
    assert differing(Mine(), nn.ReLU()) is None
    assert differing(tnn.ReLU(), nn.Dense(1, 1)) is None


def test_a_subclass_counts_as_its_base():
    class Mine(tnn.Linear):
        pass

    class Ours(nn.Dense):
        pass

    assert said(Mine(2, 2), Ours(2, 2, has_bias=False)) == {"bias": (True, False)}
    assert torch.nn is tnn
