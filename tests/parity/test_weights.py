"""copy_weights: both nets then compute the same; every name accounted for; all or nothing."""

from __future__ import annotations

import collections
import re

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn

import msnb
from msnb.parity.weights import pair

tn = torch.nn
PAD = {"pad_mode": "pad", "padding": 1, "has_bias": True}
SEEDS = (0, 1, 2)


def random_weights(net, seed):
    """Weights that no initialiser leaves alike: statistics and norms, too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if value.is_floating_point():
                noise = torch.randn(value.shape, generator=generator)
                value.copy_(noise.abs() + 0.5 if "var" in name else 0.4 * noise)
            elif name.endswith("num_batches_tracked"):
                value.fill_(7)
    return net


def values(ms_net):
    return {name: p.asnumpy().copy() for name, p in ms_net.parameters_and_names()}


def same_values(ms_net, before):
    now = values(ms_net)
    return now.keys() == before.keys() and all(
        now[name].tobytes() == before[name].tobytes() for name in now
    )


def outputs(torch_net, ms_net, inputs, train):
    torch_net.train(train)
    ms_net.set_train(train)
    theirs = torch_net(*[torch.from_numpy(x) for x in inputs])
    ours = ms_net(*[ms.Tensor(x) for x in inputs])
    while isinstance(theirs, tuple):
        theirs, ours = theirs[0], ours[0]
    return theirs.detach().numpy(), ours.asnumpy()


def refused(torch_net, ms_net, **options):
    """The Report of a copy that must fail and must leave the net alone."""
    before = values(ms_net)
    report = msnb.copy_weights(torch_net, ms_net, **options)
    assert not report.ok
    assert report["values"].status == "failed"
    assert same_values(ms_net, before)
    return report


def text(report):
    return " ".join(str(report).split())


# Each layer type: after copying, both compute the same. The limit is far below what one wrong
# value makes: weights are about 0.4, inputs about 1.

X1, X2, X3 = (2, 4, 9), (2, 4, 7, 6), (1, 4, 5, 4, 6)
LAYERS = {
    "Linear": (lambda: tn.Linear(4, 3), lambda: nn.Dense(4, 3), [(2, 4)]),
    "Linear without bias": (
        lambda: tn.Linear(4, 3, bias=False),
        lambda: nn.Dense(4, 3, has_bias=False),
        [(2, 4)],
    ),
    "square Linear": (lambda: tn.Linear(4, 4), lambda: nn.Dense(4, 4), [(2, 4)]),
    "mint Linear": (lambda: tn.Linear(4, 4), lambda: ms.mint.nn.Linear(4, 4), [(2, 4)]),
    "Bilinear": (
        lambda: tn.Bilinear(4, 3, 5),
        lambda: nn.BiDense(4, 3, 5),
        [(2, 4), (2, 3)],
    ),
    "Conv1d": (lambda: tn.Conv1d(4, 6, 3, padding=1), lambda: nn.Conv1d(4, 6, 3, **PAD), [X1]),
    "Conv1d grouped": (
        lambda: tn.Conv1d(4, 6, 3, padding=1, groups=2),
        lambda: nn.Conv1d(4, 6, 3, group=2, **PAD),
        [X1],
    ),
    "Conv2d": (
        lambda: tn.Conv2d(4, 6, (2, 3), stride=2),
        lambda: nn.Conv2d(4, 6, (2, 3), 2, pad_mode="valid", has_bias=True),
        [X2],
    ),
    "Conv2d square": (
        lambda: tn.Conv2d(4, 4, 3, padding=1),
        lambda: nn.Conv2d(4, 4, 3, **PAD),
        [X2],
    ),
    "Conv2d depthwise": (
        lambda: tn.Conv2d(4, 8, 3, padding=1, groups=4),
        lambda: nn.Conv2d(4, 8, 3, group=4, **PAD),
        [X2],
    ),
    "Conv3d": (lambda: tn.Conv3d(4, 3, 3, padding=1), lambda: nn.Conv3d(4, 3, 3, **PAD), [X3]),
    "ConvTranspose1d": (
        lambda: tn.ConvTranspose1d(4, 4, 3, stride=2, padding=1),
        lambda: nn.Conv1dTranspose(4, 4, 3, stride=2, **PAD),
        [X1],
    ),
    "ConvTranspose2d": (
        lambda: tn.ConvTranspose2d(4, 4, (2, 4), stride=2),
        lambda: nn.Conv2dTranspose(4, 4, (2, 4), stride=2, pad_mode="valid", has_bias=True),
        [X2],
    ),
    "ConvTranspose2d grouped": (
        lambda: tn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2),
        lambda: nn.Conv2dTranspose(4, 6, 3, stride=2, group=2, **PAD),
        [X2],
    ),
    "ConvTranspose3d": (
        lambda: tn.ConvTranspose3d(4, 3, 3, stride=2, padding=1),
        lambda: nn.Conv3dTranspose(4, 3, 3, stride=2, **PAD),
        [X3],
    ),
    "BatchNorm1d": (lambda: tn.BatchNorm1d(4), lambda: nn.BatchNorm1d(4), [X1]),
    "BatchNorm2d": (lambda: tn.BatchNorm2d(4), lambda: nn.BatchNorm2d(4), [X2]),
    "BatchNorm3d": (lambda: tn.BatchNorm3d(4), lambda: nn.BatchNorm3d(4), [X3]),
    "BatchNorm2d without weights": (
        lambda: tn.BatchNorm2d(4, affine=False),
        lambda: nn.BatchNorm2d(4, affine=False),
        [X2],
    ),
    "LayerNorm": (
        lambda: tn.LayerNorm((7, 6)),
        lambda: nn.LayerNorm((7, 6), 2, 2, epsilon=1e-5),
        [X2],
    ),
    "GroupNorm": (lambda: tn.GroupNorm(2, 4), lambda: nn.GroupNorm(2, 4), [X2]),
    "PReLU": (lambda: tn.PReLU(4), lambda: nn.PReLU(4), [X2]),
    "LSTM": (
        lambda: tn.LSTM(4, 3, 2, bidirectional=True),
        lambda: nn.LSTM(4, 3, 2, bidirectional=True),
        [(5, 2, 4)],
    ),
    "LSTM without bias, batch first": (
        lambda: tn.LSTM(4, 4, bias=False, batch_first=True),
        lambda: nn.LSTM(4, 4, has_bias=False, batch_first=True),
        [(2, 5, 4)],
    ),
    "GRU": (
        lambda: tn.GRU(4, 4, 2, bidirectional=True),
        lambda: nn.GRU(4, 4, 2, bidirectional=True),
        [(2, 2, 4)],
    ),
    "RNN": (
        lambda: tn.RNN(4, 4, 2, bidirectional=True),
        lambda: nn.RNN(4, 4, 2, bidirectional=True),
        [(2, 2, 4)],
    ),
    "GRUCell": (lambda: tn.GRUCell(4, 3), lambda: nn.GRUCell(4, 3), [(2, 4), (2, 3)]),
    "RNNCell": (lambda: tn.RNNCell(4, 3), lambda: nn.RNNCell(4, 3), [(2, 4), (2, 3)]),
    "MultiheadAttention": (
        lambda: tn.MultiheadAttention(4, 2),
        lambda: nn.MultiheadAttention(4, 2),
        [(5, 2, 4), (6, 2, 4), (6, 2, 4)],
    ),
    "MultiheadAttention unpacked": (
        lambda: tn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True),
        lambda: nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True),
        [(5, 2, 4), (6, 2, 3), (6, 2, 5)],
    ),
    "TransformerEncoderLayer": (
        lambda: tn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
        [(5, 2, 4)],
    ),
    "TransformerDecoderLayer": (
        lambda: tn.TransformerDecoderLayer(4, 2, 8, dropout=0.0),
        lambda: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0),
        [(5, 2, 4), (3, 2, 4)],
    ),
}


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("layer", LAYERS)
def test_after_copying_a_layer_both_compute_the_same(layer, seed):
    make_torch, make_ms, shapes = LAYERS[layer]
    torch_net, ms_net, other = random_weights(make_torch(), seed), make_ms(), make_ms()
    report = msnb.copy_weights(torch_net, ms_net)
    assert report.ok, report
    assert msnb.copy_weights(torch_net.state_dict(), other).ok
    assert same_values(other, values(ms_net))
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for train in (False, True) if "Norm" in layer else (False,):
        theirs, ours = outputs(torch_net, ms_net, inputs, train)
        np.testing.assert_allclose(ours, theirs, atol=3e-5, rtol=3e-5)


def test_embedding_rows_arrive():
    torch_net, ms_net = random_weights(tn.Embedding(7, 3), 1), nn.Embedding(7, 3)
    assert msnb.copy_weights(torch_net, ms_net).ok
    index = np.array([[3, 0, 6]])
    ours = ms_net(ms.Tensor(index.astype(np.int32))).asnumpy()
    np.testing.assert_array_equal(ours, torch_net(torch.from_numpy(index)).detach().numpy())


def test_lstm_cell_arrives():
    torch_net, ms_net = random_weights(tn.LSTMCell(4, 3), 1), nn.LSTMCell(4, 3)
    assert msnb.copy_weights(torch_net, ms_net).ok
    x, h, c = (np.random.default_rng(2).standard_normal((2, n)).astype("f") for n in (4, 3, 3))
    theirs = torch_net(torch.from_numpy(x), (torch.from_numpy(h), torch.from_numpy(c)))
    ours = ms_net(ms.Tensor(x), (ms.Tensor(h), ms.Tensor(c)))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("affine", [True, False])
def test_instance_norm_is_copied_by_name(affine):  # MindSpore has no kernel for it on CPU
    torch_net = random_weights(tn.InstanceNorm2d(4, affine=affine, track_running_stats=affine), 3)
    ms_net = nn.InstanceNorm2d(4, affine=affine)
    if affine:
        assert msnb.copy_weights(torch_net, ms_net).ok
        np.testing.assert_array_equal(ms_net.gamma.asnumpy(), torch_net.weight.detach().numpy())
        np.testing.assert_array_equal(ms_net.moving_variance.asnumpy(), torch_net.running_var)
    else:
        pairing = pair(tn.Sequential(torch_net, tn.PReLU()), nn.SequentialCell(ms_net, nn.PReLU()))
        assert pairing.complete
        assert "frozen at 1" in pairing.kept["0.gamma"]


# A whole net, and its variants


class TorchNet(tn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.features = tn.Sequential(
            tn.Conv2d(1, 4, 3, padding=1),
            tn.BatchNorm2d(4),
            tn.ReLU(),
            tn.Conv2d(4, 4, 3, padding=1),
            tn.BatchNorm2d(4),
            tn.PReLU(),
        )
        self.fc = tn.Linear(4, classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


class Net(nn.Cell):
    def __init__(self, classes=3, bias=True, blocks=2):
        super().__init__()
        conv = {**PAD, "has_bias": bias}
        layers = [nn.Conv2d(1, 4, 3, **conv), nn.BatchNorm2d(4), nn.ReLU()]
        layers += [nn.Conv2d(4, 4, 3, **conv), nn.BatchNorm2d(4), nn.PReLU()] * (blocks - 1)
        self.features = nn.SequentialCell(*layers)
        self.fc = nn.Dense(4, classes)

    def construct(self, x):
        return self.fc(self.features(x).mean((2, 3)))


class Flat(nn.Cell):
    """The same net, other names, no containers."""

    def __init__(self):
        super().__init__()
        self.conv_a = nn.Conv2d(1, 4, 3, **PAD)
        self.norm_a = nn.BatchNorm2d(4)
        self.conv_b = nn.Conv2d(4, 4, 3, **PAD)
        self.norm_b = nn.BatchNorm2d(4)
        self.act = nn.PReLU()
        self.relu = nn.ReLU()
        self.head = nn.Dense(4, 3)

    def construct(self, x):
        x = self.relu(self.norm_a(self.conv_a(x)))
        return self.head(self.act(self.norm_b(self.conv_b(x))).mean((2, 3)))


class Wrapped(nn.Cell):
    def __init__(self, inner):
        super().__init__()
        self.backbone = inner

    def construct(self, x):
        return self.backbone(x)


IMAGE = np.random.default_rng(0).standard_normal((2, 1, 6, 6)).astype(np.float32)


def agree(torch_net, ms_net, train=(False, True)):
    for flag in train:
        theirs, ours = outputs(torch_net, ms_net, [IMAGE], flag)
        np.testing.assert_allclose(ours, theirs, atol=3e-5, rtol=3e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_net_with_equal_names(seed):
    torch_net, ms_net = random_weights(TorchNet(), seed), Net()
    report = msnb.copy_weights(torch_net, ms_net)
    assert report.ok
    assert report["names"].summary == "6 layers by name"
    assert report["left out"].summary == (
        "2 of PyTorch: features.1.num_batches_tracked, features.4.num_batches_tracked "
        "(MindSpore keeps no count of batches)"
    )
    assert report["values"].metrics["names"] == 15
    assert "features.4.running_var -> features.4.moving_variance" in report["names"].found
    agree(torch_net, ms_net)


def test_the_report_does_not_grow_with_the_net():
    deep = tn.Sequential(*[tn.Linear(2, 2) for _ in range(100)])
    report = msnb.copy_weights(deep, nn.SequentialCell(*[nn.Dense(2, 2) for _ in range(100)]))
    assert report.ok
    assert len(report) == 3
    assert report["layers: Linear"].metrics == {"layers": 100, "names": 200, "numbers": 600}
    assert len(report["names"].found.splitlines()) == 200
    few = msnb.copy_weights(deep, nn.SequentialCell(*[nn.Dense(2, 3) for _ in range(100)]))
    assert not few.ok
    assert len(few) < 30
    assert "180 more" in few["further problems"].summary


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.net."])
def test_a_prefix_of_pytorchs_names_is_recognised(prefix):
    torch_net, ms_net = random_weights(TorchNet(), 1), Net()
    state = {prefix + name: value for name, value in torch_net.state_dict().items()}
    report = msnb.copy_weights(state, ms_net)
    assert report.ok
    assert f"prefix {prefix} of PyTorch's names removed" in report["names"].summary
    agree(torch_net, ms_net)


def test_a_wrapped_mindspore_net_and_a_data_parallel_one():
    torch_net, ms_net = random_weights(TorchNet(), 1), Wrapped(Net())
    report = msnb.copy_weights(tn.DataParallel(torch_net), ms_net)
    assert report.ok
    assert "prefix backbone. of MindSpore's names removed" in report["names"].summary
    assert "prefix module. of PyTorch's names removed" in report["names"].summary
    agree(torch_net, ms_net)


@pytest.mark.parametrize("source", ["net", "state dict"])
def test_other_names_and_nesting_are_aligned_by_order(source):
    torch_net, ms_net = random_weights(TorchNet(), 1), Flat()
    report = msnb.copy_weights(torch_net if source == "net" else torch_net.state_dict(), ms_net)
    assert report.ok, report
    assert "6 layers by order of definition" in report["names"].summary
    assert "features.0 -> conv_a" in report["names"].summary
    agree(torch_net, ms_net)


def test_places_in_a_container_are_no_names():
    """0, 2, 4 in PyTorch and 0, 1, 2 in MindSpore: 2 is not 2."""
    torch_net = random_weights(
        tn.Sequential(tn.Linear(4, 4), tn.ReLU(), tn.Linear(4, 4), tn.ReLU(), tn.Linear(4, 4)), 1
    )
    ms_net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 4), nn.Dense(4, 4))
    report = msnb.copy_weights(torch_net, ms_net)
    assert report.ok
    assert report["names"].found.splitlines()[::2] == [
        "0.weight -> 0.weight",
        "2.weight -> 1.weight",
        "4.weight -> 2.weight",
    ]


def cells(**layers):
    cell = nn.Cell()
    for name, layer in layers.items():
        setattr(cell, name, layer)
    return cell


def modules(**layers):
    module = tn.Module()
    for name, layer in layers.items():
        setattr(module, name, layer)
    return module


def linears(*names):
    return modules(**{name: tn.Linear(3, 3) for name in names})


def denses(*names):
    return cells(**{name: nn.Dense(3, 3) for name in names})


def pairs(torch_net, ms_net, **options):
    pairing = pair(torch_net, ms_net, **options)
    assert pairing.complete, pairing.problems
    return {
        match.torch_name.removesuffix(".weight"): match.ms_name.removesuffix(".weight")
        for match in pairing.matched
        if match.torch_name.endswith(".weight")
    }


def test_equal_names_win_over_order():
    assert pairs(linears("q", "k", "v"), denses("v", "q", "k")) == {"q": "q", "k": "k", "v": "v"}


def test_order_decides_where_names_say_nothing():
    found = pairs(linears("one", "other"), denses("front", "back"))
    assert found == {"one": "front", "other": "back"}


def test_numbers_in_names_win_over_order():
    assert pairs(linears("fc1", "fc2"), denses("lin2", "lin1")) == {"fc1": "lin1", "fc2": "lin2"}


def test_numbers_that_run_the_other_way_are_not_guessed():
    ms_net = cells(layers=denses("2", "0"))
    assert "another order" in refused(linears("fc1", "fc2"), ms_net)["ambiguous: fc1"].summary


def test_a_name_that_is_equal_by_chance_does_not_count():
    torch_net = modules(down2=tn.Linear(3, 3), last=tn.PReLU(3))
    ms_net = cells(down1=nn.Dense(3, 3), down2=nn.PReLU(3))
    assert pairs(torch_net, ms_net) == {"down2": "down1", "last": "down2.w"}


def test_last_words_win_over_order():
    torch_net = modules(attention=linears("q", "k"))
    ms_net = cells(attn=denses("k", "q"))
    assert pairs(torch_net, ms_net) == {"attention.q": "attn.q", "attention.k": "attn.k"}


def test_contradicting_names_are_reported_not_guessed():
    torch_net = modules(enc=linears("a"), dec=linears("a"))
    ms_net = cells(decoder=denses("b"), encoder=denses("b"))
    report = refused(torch_net, ms_net)
    row = report["ambiguous: enc.a"]
    assert row.status == "failed"
    assert "not guessed" in row.summary
    assert "names={" in row.remedy
    names = {"enc": "encoder", "dec": "decoder"}
    assert pairs(torch_net, ms_net, names=names) == {"enc.a": "encoder.b", "dec.a": "decoder.b"}


def test_another_order_with_equal_shapes_is_ambiguous():
    torch_net = modules(a=tn.Linear(3, 3), n=tn.PReLU(3), b=tn.Linear(3, 3))
    ms_net = cells(x=nn.Dense(3, 3), y=nn.Dense(3, 3), p=nn.PReLU(3))
    report = refused(torch_net, ms_net)
    assert "equal types and shapes, in another order" in report["ambiguous: a"].summary


def test_another_order_is_no_matter_where_each_shape_occurs_once():
    torch_net = modules(a=tn.Linear(3, 4), n=tn.PReLU(3), b=tn.Linear(4, 5))
    ms_net = cells(p=nn.PReLU(3), y=nn.Dense(4, 5), x=nn.Dense(3, 4))
    assert pairs(torch_net, ms_net) == {"a": "x", "n": "p.w", "b": "y"}
    assert "each of which occurs once" in pair(torch_net, ms_net).how


def test_equal_container_numbers_are_kept_against_order():
    """blocks.0 and blocks.1 are on both sides; a stem of the same shape must not shift them."""
    torch_net = modules(stem=tn.Linear(3, 3), blocks=tn.ModuleList([tn.Linear(3, 3) for _ in "ab"]))
    ms_net = cells(blocks=nn.CellList([nn.Dense(3, 3) for _ in "ab"]), first=nn.Dense(3, 3))
    pairing = pair(torch_net, ms_net)
    shifted = {("stem.weight", "blocks.0.weight"), ("blocks.0.weight", "blocks.1.weight")}
    assert not shifted & {(match.torch_name, match.ms_name) for match in pairing.matched}
    assert pairing.problems[0].summary.startswith("names and order of definition contradict")


def test_names_decides_everything():
    report = msnb.copy_weights(
        linears("a", "b"), ms_net := denses("x", "y"), names={"a": "y", "b": "x"}
    )
    assert report.ok
    assert report["names"].found.splitlines()[0] == "a.weight -> y.weight"
    with pytest.raises(ValueError, match=r"names: 'z' is no layer of the MindSpore net; it has x"):
        msnb.copy_weights(linears("a", "b"), ms_net, names={"a": "z"})


class Functional(tn.Module):
    """Weights in no layer, used with torch.nn.functional."""

    def __init__(self):
        super().__init__()
        self.w1 = tn.Parameter(torch.empty(5, 4))
        self.b1 = tn.Parameter(torch.empty(5))
        self.w2 = tn.Parameter(torch.empty(3, 5))
        self.b2 = tn.Parameter(torch.empty(3))

    def forward(self, x):
        f = torch.nn.functional
        return f.linear(torch.relu(f.linear(x, self.w1, self.b1)), self.w2, self.b2)


def test_functional_weights_against_layers():
    torch_net = random_weights(Functional(), 2)
    ms_net = nn.SequentialCell(nn.Dense(4, 5), nn.ReLU(), nn.Dense(5, 3))
    report = msnb.copy_weights(torch_net, ms_net)
    assert report.ok, report
    assert "4 parameters by order of definition" in report["names"].summary
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    theirs, ours = outputs(torch_net, ms_net, [x], False)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


# Tied and shared weights, buffers, layers out of sight


class TorchTied(tn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.embed = tn.Embedding(5, 4)
        self.head = tn.Linear(4, 5, bias=False)
        if tied:
            self.head.weight = self.embed.weight


class Tied(nn.Cell):
    def __init__(self, tied=True, head=True):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        if head:
            self.head = nn.Dense(4, 5, has_bias=False)
            if tied:
                self.head.weight = self.embed.embedding_table


def test_tied_weights():
    torch_net, ms_net = random_weights(TorchTied(), 1), Tied()
    report = msnb.copy_weights(torch_net, ms_net)
    assert report.ok, report
    np.testing.assert_array_equal(ms_net.head.weight.asnumpy(), torch_net.head.weight.detach())
    assert "head.weight: the same weight as embed.weight" in report["left out"].found


@pytest.mark.parametrize("untie", ["PyTorch", "MindSpore"])
def test_weights_tied_on_one_side_only(untie):
    torch_net, ms_net = TorchTied(untie != "PyTorch"), Tied(untie != "MindSpore")
    report = refused(random_weights(torch_net, 1), ms_net)
    row = report["tied: head.weight"]
    assert "drift apart in training" in row.summary
    assert f"two in {untie}" in row.summary


def test_a_head_that_reuses_the_table_by_hand():
    assert msnb.copy_weights(random_weights(TorchTied(), 1), Tied(head=False)).ok


def test_a_state_dict_without_the_second_name_of_a_tied_weight():
    state = {"embed.weight": random_weights(TorchTied(), 1).embed.weight.detach()}
    ms_net = Tied()
    assert msnb.copy_weights(state, ms_net).ok
    np.testing.assert_array_equal(ms_net.head.weight.asnumpy(), state["embed.weight"])


def test_a_file_may_hold_equal_copies_of_a_tied_weight():
    weight = random_weights(TorchTied(), 1).embed.weight.detach()
    state = {"embed.weight": weight, "head.weight": weight.clone()}
    assert msnb.copy_weights(state, Tied()).ok
    state["head.weight"][0, 0] += 1
    assert not msnb.copy_weights(state, Tied()).ok


def test_a_layer_used_twice():
    shared, dense = tn.Linear(3, 3), nn.Dense(3, 3)
    torch_net, ms_net = modules(a=shared, b=shared), cells(a=dense, b=dense)
    report = msnb.copy_weights(torch_net, ms_net)
    assert report.ok, report
    np.testing.assert_array_equal(dense.weight.asnumpy(), shared.weight.detach().numpy())
    assert "b.weight: the same weight as a.weight" in report["left out"].found
    assert "b.weight" in text(refused(torch_net, denses("a", "b")))


class TorchPositions(tn.Module):
    def __init__(self, persistent=True):
        super().__init__()
        self.fc = tn.Linear(3, 3)
        table = torch.arange(6, dtype=torch.float32).reshape(2, 3)
        self.register_buffer("pe", table, persistent=persistent)


class Positions(nn.Cell):
    def __init__(self, how, add=0.0):
        super().__init__()
        self.fc = nn.Dense(3, 3)
        table = ms.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(add))
        if how == "buffer":
            self.register_buffer("pe", table)
        elif how == "parameter":
            self.pe = ms.Parameter(table, requires_grad=False)
        elif how == "tensor":
            self.pe = table


@pytest.mark.parametrize("how", ["buffer", "parameter"])
def test_buffers_are_copied(how):
    ms_net = Positions(how, add=9.0)
    assert msnb.copy_weights(TorchPositions(), ms_net).ok
    np.testing.assert_array_equal(ms_net.pe.asnumpy(), np.arange(6).reshape(2, 3))


def test_buffers_that_mindspore_holds_as_plain_tensors():
    report = msnb.copy_weights(TorchPositions(), Positions("tensor"))
    assert report.ok
    assert "a plain tensor of equal values" in report["left out"].summary
    for wrong in (Positions("tensor", add=1.0), Positions("none")):
        row = refused(TorchPositions(), wrong)["PyTorch only: the net itself"]
        assert "pe (2, 3)" in row.summary
    assert msnb.copy_weights(TorchPositions(persistent=False), Positions("none")).ok


def test_layers_in_a_python_list():
    ms_net = cells(first=nn.Dense(3, 3))
    ms_net.blocks = [nn.Dense(3, 3), nn.Dense(3, 3)]
    torch_net = modules(first=tn.Linear(3, 3), blocks=tn.ModuleList([tn.Linear(3, 3)] * 2))
    row = refused(torch_net, ms_net)["hidden in MindSpore"]
    assert "blocks[0] (Dense), blocks[1] (Dense)" in row.summary
    assert "nn.CellList" in row.remedy
    theirs = linears("first")
    theirs.blocks = {"a": tn.Linear(3, 3)}
    row = refused(theirs, denses("first"))["hidden in PyTorch"]
    assert "blocks['a'] (Linear)" in row.summary


def test_a_list_of_registered_layers_hides_nothing():
    torch_net, ms_net = linears("a"), denses("a")
    torch_net.all, ms_net.all = [torch_net.a], [ms_net.a, ms_net.a.weight]
    assert msnb.copy_weights(torch_net, ms_net).ok


class TorchConvNorm(tn.Conv2d):
    def __init__(self):
        super().__init__(2, 2, 1)
        self.norm = tn.BatchNorm2d(2)


class ConvNorm(nn.Conv2d):
    def __init__(self):
        super().__init__(2, 2, 1, has_bias=True)
        self.norm = nn.BatchNorm2d(2)


def test_layers_inside_a_subclass_of_a_layer():
    torch_net, ms_net = random_weights(modules(a=TorchConvNorm()), 1), cells(a=ConvNorm())
    report = msnb.copy_weights(torch_net, ms_net)
    assert report["values"].metrics["names"] == 6
    np.testing.assert_array_equal(ms_net.a.norm.gamma.asnumpy(), torch_net.a.norm.weight.detach())
    refused(torch_net, cells(a=nn.Conv2d(2, 2, 1, has_bias=True)))
    refused(modules(a=tn.Conv2d(2, 2, 1)), ms_net)


def test_old_names_of_norms_in_a_state_dict():
    state = {"n.gamma": np.float32([1, 2]), "n.beta": np.float32([3, 4])}
    ms_net = cells(n=nn.LayerNorm((2,)))
    report = msnb.copy_weights(state, ms_net)
    assert report.ok
    assert report["names"].found == "n.gamma -> n.gamma\nn.beta -> n.beta"
    assert "types not compared" in report["names"].summary
    np.testing.assert_array_equal(ms_net.n.beta.asnumpy(), [3, 4])


# What does not fit


def test_other_classes_are_told_and_can_be_skipped():
    torch_net, ms_net = random_weights(TorchNet(classes=10), 1), Net(classes=7)
    report = refused(torch_net, ms_net)
    row = report["fc.weight"]
    assert row.summary == "PyTorch (10, 4), MindSpore (7, 4) (fc.weight): 10 outputs against 7"
    assert 'skip=["fc"]' in row.remedy
    before = ms_net.fc.weight.asnumpy().copy()
    report = msnb.copy_weights(torch_net, ms_net, skip="fc")
    assert report.ok
    assert "skipped, as asked" in report["left out"].summary
    np.testing.assert_array_equal(ms_net.fc.weight.asnumpy(), before)
    np.testing.assert_array_equal(
        ms_net.features[0].weight.asnumpy(), torch_net.features[0].weight.detach()
    )
    with pytest.raises(ValueError, match="skip: 'haed' is no layer or weight of either net"):
        msnb.copy_weights(torch_net, ms_net, skip="haed")


def test_a_missing_bias_names_has_bias():
    report = refused(TorchNet(), Net(bias=False))
    row = report["PyTorch only: features.0"]
    assert "bias (4,) in PyTorch's Conv2d" in row.summary
    assert "has_bias=True" in row.remedy


def test_a_bias_too_many():
    torch_net = tn.Sequential(tn.Linear(3, 3, bias=False))
    row = refused(torch_net, nn.SequentialCell(nn.Dense(3, 3)))["MindSpore only: 0"]
    assert "has_bias=False" in row.remedy


def test_nets_of_different_depth():
    report = refused(TorchNet(), Net(blocks=1))
    assert "PyTorch only: features.3" in report
    assert "PyTorch only: features.4" in report
    assert "no counterpart in MindSpore" in report["PyTorch only: features.4"].summary
    deeper = refused(linears("a", "b"), denses("x", "y", "z"))
    assert "PyTorch has 2 Linear; MindSpore 3 Linear" in deeper["structure"].summary


def test_types_that_share_names_and_shapes_are_told_apart():
    for theirs, ours, row in (
        (tn.LayerNorm(4), nn.GroupNorm(2, 4), "LayerNorm in PyTorch, GroupNorm in MindSpore"),
        (
            tn.Conv2d(4, 4, 3),
            nn.Conv2dTranspose(4, 4, 3, has_bias=True),
            "Conv2d in PyTorch, Conv2dTranspose in MindSpore",
        ),
        (tn.GRU(3, 3), nn.LSTM(3, 3), "GRU in PyTorch, LSTM in MindSpore"),
    ):
        report = refused(modules(layer=theirs), cells(layer=ours))
        assert row in report["layer"].summary
        assert not pair(modules(a=theirs), cells(b=ours)).complete


class OwnDense(nn.Cell):
    def __init__(self, shape):
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.zeros(shape, np.float32)))


@pytest.mark.parametrize(
    ("layer", "shape", "words"),
    [
        (tn.Linear(4, 3, bias=False), (4, 3), "the transpose"),
        (tn.Conv2d(4, 3, 2, bias=False), (3, 2, 2, 4), "channels last (NHWC)"),
        (tn.Conv2d(4, 3, 2, bias=False), (4, 3, 2, 2), "in and out channels swapped"),
        (tn.Conv1d(4, 3, 2, bias=False), (3, 4, 1, 2), "an axis of length 1 apart"),
    ],
)
def test_a_transpose_is_recognised(layer, shape, words):
    row = refused(modules(a=layer), cells(a=OwnDense(shape)))["a.weight"]
    assert words in row.summary
    assert str(shape) in row.summary
    assert str(tuple(layer.weight.shape)) in row.summary


def test_a_norm_without_weights_or_statistics():
    row = refused(modules(n=tn.BatchNorm2d(4, affine=False)), cells(n=nn.BatchNorm2d(4)))[
        "MindSpore only: n"
    ]
    assert "affine=False" in row.remedy
    torch_net = modules(n=tn.BatchNorm2d(4, track_running_stats=False))
    assert (
        "use_batch_statistics"
        in refused(torch_net, cells(n=nn.BatchNorm2d(4)))["MindSpore only: n"].remedy
    )
    fits = cells(n=nn.BatchNorm2d(4, use_batch_statistics=True))
    assert msnb.copy_weights(torch_net, fits).ok
    norm = nn.LayerNorm((4,))
    torch_net = modules(n=tn.LayerNorm(4, elementwise_affine=False), f=tn.Linear(2, 2))
    ms_net = cells(n=norm, f=nn.Dense(2, 2))
    assert "requires_grad = False" in refused(torch_net, ms_net)["MindSpore only: n"].remedy
    norm.gamma.requires_grad = norm.beta.requires_grad = False
    assert msnb.copy_weights(torch_net, ms_net).ok
    norm.gamma.set_data(ms.Tensor(np.float32([1, 1, 1, 2])))
    refused(torch_net, ms_net)


def test_weight_norm_is_named():
    torch_net = modules(fc=tn.utils.parametrizations.weight_norm(tn.Linear(3, 3)))
    assert "remove_weight_norm" in text(refused(torch_net, denses("fc")))


# Values


@pytest.mark.parametrize(
    ("theirs", "ours", "exact"),
    [
        ("float64", "float32", False),
        ("float16", "float32", True),
        ("bfloat16", "float32", True),
        ("float32", "float16", False),
        ("float32", "bfloat16", False),
        ("bfloat16", "bfloat16", None),
    ],
)
def test_casts_are_said(theirs, ours, exact):
    source = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3) / 3
    source = source.to(getattr(torch, theirs))
    ms_net = OwnDense((3, 3))
    ms_net.weight = ms.Parameter(ms.Tensor(np.zeros((3, 3), np.float32), getattr(ms, ours)))
    report = msnb.copy_weights({"weight": source}, ms_net)
    assert report.ok
    expected = source.to(getattr(torch, ours)).float()
    got = ms_net.weight.asnumpy().astype(np.float32)
    np.testing.assert_array_equal(got, expected)
    if exact is None:
        assert "dtype" not in report
    else:
        how = "exactly" if exact else "rounded"
        assert f"1 {theirs} to {ours}, {how}" in report["dtype"].summary


def test_values_beyond_the_dtype_are_refused():
    ms_net = OwnDense((2,))
    ms_net.weight = ms.Parameter(ms.Tensor(np.zeros(2, np.float16)))
    report = refused({"weight": torch.tensor([1.0, 1e6])}, ms_net)
    assert report["dtype: range"].status == "failed"
    ms_net.weight = ms.Parameter(ms.Tensor(np.zeros(2, np.int32)))
    refused({"weight": torch.tensor([1.5, 2.0])}, ms_net)
    refused({"weight": torch.tensor([2**40, 1])}, ms_net)
    assert msnb.copy_weights({"weight": torch.tensor([7, -1])}, ms_net).ok


def test_nan_and_minus_zero_arrive_bit_for_bit():
    source = np.array([np.nan, -0.0, np.inf, 1e-42], np.float32)
    ms_net = OwnDense((4,))
    report = msnb.copy_weights({"weight": source}, ms_net)
    assert ms_net.weight.asnumpy().tobytes() == source.tobytes()
    assert "2 of them NaN or infinite" in report["values"].summary


def test_frozen_weights_are_noted():
    torch_net, ms_net = linears("a", "b"), denses("a", "b")
    torch_net.a.weight.requires_grad = False
    ms_net.b.bias.requires_grad = False
    row = msnb.copy_weights(torch_net, ms_net)["trainable"]
    assert row.status == "ok"
    assert row.metrics["unlike"] == 2
    assert "a.weight (frozen in PyTorch, trains in MindSpore)" in row.found
    assert "b.bias (trains in PyTorch, frozen in MindSpore)" in row.found
    assert "trainable" not in msnb.copy_weights(torch_net.state_dict(), ms_net)


@pytest.mark.parametrize("fault", ["silent", "raises"])
def test_a_write_that_fails_is_noticed_and_undone(fault, monkeypatch):
    """What was written is read back; here the last of four parameters refuses."""
    torch_net, ms_net = random_weights(linears("a", "b"), 1), denses("a", "b")
    before = values(ms_net)
    stubborn, real = ms_net.b.bias, ms.ops.assign

    def assign(target, value):
        if target is not stubborn:
            return real(target, value)
        if fault == "raises":
            raise RuntimeError("device lost")
        return target

    monkeypatch.setattr(ms.ops, "assign", assign)
    report = msnb.copy_weights(torch_net, ms_net)
    assert report["values"].status == "error"
    assert ("b.bias" if fault == "silent" else "device lost") in report["values"].summary
    assert same_values(ms_net, before)
    assert report["layers: Linear"].status == "skipped"


def test_convert_and_back_are_inverse():
    torch_net = modules(a=tn.Conv1d(2, 3, 4), b=tn.ConvTranspose1d(2, 3, 4), c=tn.BatchNorm1d(3))
    ms_net = cells(
        a=nn.Conv1d(2, 3, 4, has_bias=True),
        b=nn.Conv1dTranspose(2, 3, 4, has_bias=True),
        c=nn.BatchNorm1d(3),
    )
    pairing = pair(torch_net, ms_net)
    assert len(pairing.matched) == 8
    for match in pairing.matched:
        array = match.source.detach().numpy()
        assert match.convert(array).shape == tuple(match.target.shape)
        np.testing.assert_array_equal(match.back(match.convert(array)), array)
    assert {m.torch_name: m.trainable for m in pairing.matched}["c.running_mean"] == (False, False)


def test_every_name_is_in_one_place():
    for theirs, ours in (
        (TorchNet(), Net()),
        (TorchNet(10), Net(7)),
        (TorchNet(), Net(blocks=1)),
        (TorchTied(), Tied()),
        (TorchTied(), Tied(tied=False)),
        (TorchNet(), Flat()),
        (tn.Transformer(4, 2, 1, 1, 8), nn.Transformer(4, 2, 1, 1, 8)),
    ):
        pairing = pair(theirs, ours)
        left = [m.torch_name for m in pairing.matched]
        left += [*pairing.dropped, *pairing.unmatched_torch]
        assert collections.Counter(left) == collections.Counter(theirs.state_dict().keys())
        right = [m.ms_name for m in pairing.matched]
        right += [*pairing.kept, *pairing.unmatched_mindspore]
        assert set(right) >= {name for name, _ in ours.parameters_and_names()}
        assert max(collections.Counter(right).values()) == 1


# Bad input


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (nn.Dense(2, 2), tn.Linear(2, 2), "torch_net is the PyTorch net, but Dense is a MindSpore"),
        (tn.Linear(2, 2), tn.Linear(2, 2), "ms_net is the MindSpore net, but Linear is a PyTorch"),
        (tn.Linear(2, 2), 3, "ms_net is a mindspore.nn.Cell, not int"),
        (3, nn.Dense(2, 2), "torch_net is an nn.Module, a state dict or the path .* not int"),
        (
            tn.Linear,
            nn.Dense(2, 2),
            r"torch_net is a net, not the class Linear",
        ),
        (tn.Linear(2, 2), nn.Dense, r"ms_net is a net, not the class Dense: write it with \(\)"),
        (nn.Dense(2, 2).parameters_dict(), nn.Dense(2, 2), "a dict of MindSpore parameters"),
    ],
)
def test_wrong_types_are_told(theirs, ours, words):
    with pytest.raises(TypeError, match=words):
        msnb.copy_weights(theirs, ours)


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (tn.ReLU(), nn.Dense(2, 2), "the PyTorch side has no weights"),
        (tn.Linear(2, 2), nn.ReLU(), "the MindSpore net has no weights"),
        ({}, nn.Dense(2, 2), "the dict holds no tensors; it holds nothing"),
        ({"epoch": 3}, nn.Dense(2, 2), "holds no tensors; it holds epoch"),
        (tn.LazyLinear(2), nn.Dense(2, 2), "weight has no value yet: call the net once"),
        (tn.Linear(2, 2, device="meta"), nn.Dense(2, 2), "weight is on the meta device"),
    ],
)
def test_nets_without_weights_are_told(theirs, ours, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        msnb.copy_weights(theirs, ours)


def test_what_load_param_into_net_swallows():
    """Conv and BatchNorm under PyTorch's names: two lists come back and nothing is raised."""
    torch_net = random_weights(tn.Sequential(tn.Conv2d(1, 4, 3), tn.BatchNorm2d(4)), 1)
    ms_net = nn.SequentialCell(
        nn.Conv2d(1, 4, 3, pad_mode="valid", has_bias=True), nn.BatchNorm2d(4)
    )
    state = {
        name: ms.Parameter(ms.Tensor(value.numpy()), name=name)
        for name, value in torch_net.state_dict().items()
    }
    ms.load_param_into_net(ms_net, state)
    assert not np.array_equal(ms_net[1].gamma.asnumpy(), torch_net[1].weight.detach())
    assert msnb.copy_weights(torch_net, ms_net).ok
    np.testing.assert_array_equal(ms_net[1].gamma.asnumpy(), torch_net[1].weight.detach())


def test_copied_weights_reach_what_was_compiled_before():
    """``set_data`` would not: a compiled function keeps the memory it has seen."""
    torch_net, ms_net = random_weights(linears("a"), 1), denses("a")
    x = np.ones((1, ms_net.a.in_channels), np.float32)

    def forward(x):
        return ms_net.a(x)

    compiled = ms.jit(forward)
    compiled(ms.Tensor(x))
    msnb.copy_weights(torch_net, ms_net).require()
    expected = x @ torch_net.a.weight.detach().numpy().T + torch_net.a.bias.detach().numpy()
    np.testing.assert_allclose(compiled(ms.Tensor(x)).asnumpy(), expected, rtol=1e-5)
