"""check_migration on whole nets: right twins pass, planted faults are found and named."""

from __future__ import annotations

import copy
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
import twins
from mindspore import nn, ops
from mindspore.experimental import optim
from twins import TWINS, make

from msnb.parity.migration import _arguments, _Migration, check_migration

QUICK = ("mlp", "resnet", "attention", "bag")
SCALES = (1e-3, 1.0, 1e3)


def bad(report: Any) -> dict[str, Any]:
    return {check.id: check for check in report if check.status in ("failed", "error")}


# Right twins


@pytest.mark.parametrize("name", QUICK)
def test_a_right_port_passes(name):
    report = make(name).check(modes=["pynative"])
    assert report.ok, str(report)
    assert "skipped" not in {check.status for check in report}


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_right_ports_pass_at_every_scale_and_seed(name):
    for seed in range(3):
        for scale in SCALES:
            report = make(name, seed, scale).check(modes=["pynative"])
            assert report.ok, f"seed {seed}, scale {scale}\n{report}"


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_right_ports_pass_in_every_mode(name):
    report = make(name).check(steps=1)
    assert report.ok, str(report)
    rows = {check.id for check in report}
    assert {"jit: forward", "jit: step", "graph: forward", "graph: step"} <= rows


def test_jit_and_graph_are_checked():
    report = make("bag").check(steps=1)
    assert report.ok, str(report)
    assert {"jit: forward", "jit: step", "graph: forward", "graph: step"} <= {
        check.id for check in report
    }


@pytest.mark.parametrize("name", ["bn_cnn", "attention"])
def test_a_gradient_that_is_rounding_alone_is_recognised(name):
    report = make(name).check(modes=[], steps=2)
    bias = {"bn_cnn": "features.0.bias", "attention": "key_bias"}[name]
    assert report.ok, str(report)
    assert bias in report["gradients"].summary


# Planted faults: what is passed to make(), the rows that find it, words of the row, the remedy.


def decay_on_all(t, m):
    """PyTorch leaves biases out of the decay, MindSpore has it on everything."""
    weights = [p for n, p in t.named_parameters() if "bias" not in n]
    biases = [p for n, p in t.named_parameters() if "bias" in n]
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases, "weight_decay": 0.0}]
    return (
        torch.optim.AdamW(groups, 1e-2),
        optim.AdamW(m.trainable_params(), lr=1e-2, weight_decay=0.01),
    )


def ungrouped_sgd(t, m):
    return (
        torch.optim.SGD(t.parameters(), 0.05, momentum=0.9, weight_decay=1e-3),
        nn.SGD(m.trainable_params(), 0.05, momentum=0.9, weight_decay=1e-3),
    )


def namesake_adam(t, m):
    return torch.optim.Adam(t.parameters(), 1e-3), nn.Adam(m.trainable_params(), 1e-3)


def namesake_adamw(t, m):
    return (
        torch.optim.AdamW(t.parameters(), 1e-2, weight_decay=0.01),
        nn.AdamWeightDecay(m.trainable_params(), 1e-2, eps=1e-8, weight_decay=0.01),
    )


def namesake_rmsprop(t, m):
    return torch.optim.RMSprop(t.parameters(), 1e-2), nn.RMSProp(m.trainable_params(), 1e-2)


def mint_sgd(t, m):
    return torch.optim.SGD(t.parameters(), 0.1), ms.mint.optim.SGD(m.trainable_params(), lr=0.1)


def short_elbo(output, x):
    y, mean, log_variance = output
    kl = -0.5 * ops.mean(1 + log_variance - mean**2)
    return ops.mse_loss(y, x) + kl


MUTATIONS = [
    # net, fault, row, words in that row, remedy
    ("mlp", {"approximate": True}, "settings: layers.1", "approximate", "approximate=False"),
    ("mlp", {"approximate": True}, "forward (eval)", "drift at layers.1 (GELU)", "approximate"),
    ("mlp", {"epsilon": 1e-6}, "settings: norm", "eps: PyTorch 1e-05", "epsilon=1e-05"),
    ("mlp", {"slope": 0.2}, "settings: layers.3", "negative_slope", "alpha=0.01"),
    ("mlp", {"options": {"eps": 1e-6}}, "optimizer", "eps: PyTorch 1e-08", "eps=1e-08"),
    ("mlp", {"options": {"eps": 1e-6}}, "same gradients", "otherwise", "eps=1e-08"),
    ("lenet", {"pad": (2, 0, 1, 1)}, "settings: conv1", "padding", "padding=1"),
    ("lenet", {"pad": (2, 0, 1, 1)}, "forward (eval)", "conv1 (Conv2d)", "padding=1"),
    ("lenet", {"p": 0.9}, "settings: drop", "p: PyTorch 0.1", "p=0.1"),
    ("lenet", {"pool_stride": 1}, "forward (eval)", "raises", ""),
    ("lenet", {"options": {"momentum": 0.99}}, "optimizer", "momentum", "momentum=0.9"),
    ("bn_cnn", {"momentum": 0.99}, "settings: features.1", "momentum", "momentum=0.9"),
    ("bn_cnn", {"momentum": 0.1}, "running statistics: features.1.running_mean", "", "0.9"),
    ("bn_cnn", {"eps": 1e-6}, "settings: features.1", "eps", "eps=1e-05"),
    ("bn_cnn", {"pad": (0, 2, 1, 1)}, "forward (eval)", "features.4", "padding=1"),
    ("bn_cnn", {"options": {"eps": 1e-6}}, "same gradients", "otherwise", "eps=1e-08"),
    ("resnet", {"pad_mode": "same"}, "settings: block.conv1", "padding", "padding=1"),
    ("resnet", {"pad_mode": "same"}, "forward (eval)", "block.conv1", "padding=1"),
    ("resnet", {"eps": 1e-6}, "settings: block.bn1", "eps", "eps=1e-05"),
    ("resnet", {"momentum": 0.99}, "settings: block.bn2", "momentum", "momentum=0.9"),
    ("resnet", {"optimizer": ungrouped_sgd}, "optimizer", "weight_decay", "beta or gamma"),
    ("depthwise", {"pad": (1, 1, 2, 0)}, "settings: depth", "padding", "padding=1"),
    ("depthwise", {"act": nn.ReLU()}, "settings: act", "ReLU6", "ReLU6"),
    ("depthwise", {"pool_stride": 1}, "settings: pool", "stride", "stride=2"),
    ("depthwise", {"options": {"momentum": 0.99}}, "optimizer", "momentum", "momentum=0.9"),
    ("unet", {"slope": 0.2}, "settings: act", "negative_slope", "alpha=0.1"),
    ("unet", {"slope": 0.2}, "forward (eval)", "act (LeakyReLU)", "alpha=0.1"),
    ("unet", {"pad": (0, 2, 0, 2)}, "forward (eval)", "down (Conv2d)", "padding=1"),
    ("unet", {"optimizer": decay_on_all}, "optimizer", "weight_decay", "bias"),
    ("lstm", {"first": True}, "forward (eval)", "agrees on PyTorch's: look between rnn", "code"),
    ("lstm", {"batch_first": False}, "settings: rnn", "batch_first", "batch_first=True"),
    ("lstm", {"optimizer": namesake_adam}, "same gradients", "eps before", "AdamW"),
    ("gru", {"first": True}, "forward (eval)", "fc (Linear / Dense)", "code"),
    ("gru", {"batch_first": False}, "settings: rnn", "batch_first", "batch_first=True"),
    ("gru", {"options": {"nesterov": True}}, "optimizer", "nesterov", "nesterov"),
    ("attention", {"divisor": 2.001}, "forward (eval)", "out (Linear / Dense)", "code"),
    ("attention", {"axis": -2}, "forward (eval)", "out (Linear / Dense)", "code"),
    ("attention", {"options": {"betas": (0.9, 0.99)}}, "optimizer", "beta2", "0.999"),
    ("transformer", {"eps": 1e-6}, "settings: layer.norm1", "eps", "epsilon=1e-05"),
    ("transformer", {"activation": "gelu"}, "forward (eval)", "layer.linear1", "code"),
    ("transformer", {"heads": 4}, "settings: layer.self_attn", "num_heads", "num_heads=2"),
    ("transformer", {"torch_options": {"padding_idx": 0}}, "settings: embed", "padding_idx", "0"),
    (
        "transformer",
        {"torch_options": {"padding_idx": 0}, "padding_idx": 0},
        "gradients: embed.weight",
        "row 0, the padding row",
        "(ids != 0)",
    ),
    ("bag", {"divide": False}, "forward (eval)", "hidden (Linear / Dense)", "code"),
    ("bag", {"slope": 0.01}, "forward (eval)", "fc (Linear / Dense)", "code"),
    ("bag", {"options": {"momentum": 0.99}}, "optimizer", "momentum", "momentum=0.9"),
    ("vae", {"alpha": 0.5}, "settings: decoder.1", "alpha", "alpha=1"),
    ("vae", {"half": 0.501}, "forward (eval)", "decoder.0", "code"),
    ("vae", {"loss": lambda: (twins.torch_elbo, short_elbo)}, "loss", "", ""),
    ("group_norm", {"eps": 1e-6}, "settings: norm", "eps", "eps=1e-05"),
    ("group_norm", {"groups": 1}, "settings: norm", "num_groups", "num_groups=2"),
    ("group_norm", {"pad": (1, 1, 0, 2)}, "forward (eval)", "conv (Conv2d)", "padding=1"),
]
# Field cases in whole nets
FIELD = [
    ("mlp", {"epsilon": 1e-7}, 1.0, "settings: norm", "1e-07", "epsilon=1e-05"),  # O6
    ("mlp", {"optimizer": namesake_adamw}, 1.0, "same gradients", "no bias correction", "AdamW"),
    ("mlp", {"optimizer": namesake_rmsprop}, 1.0, "same gradients", "mean square at 1", "RMSprop"),
    ("bag", {"optimizer": mint_sgd}, 1.0, "same gradients", "did not move", "SGD"),  # T4
]
_FAST = {0, 4, 7, 17, 20, 29, 35, 45}


def found(name, fault, row, words, remedy, scale=1.0):
    twin = make(name, scale=scale, **copy.deepcopy(fault))
    if row.startswith("settings"):  # seen without training
        twin.batch = twin.batch[:-1]
        report = twin.check(modes=[], loss=None, optimizer=None)
    else:
        report = twin.check(modes=[], steps=2)
    rows = bad(report)
    assert row in rows, f"{name} {fault}: {row} is ok\n{report}"
    matching = [check for check in report if check.id == row and not check]
    assert any(
        words in check.summary + check.found and remedy in check.remedy for check in matching
    ), str(report)
    return report


@pytest.mark.parametrize(
    ("name", "fault", "row", "words", "remedy"),
    [
        pytest.param(*case, id=f"{case[0]}-{i}", marks=[] if i in _FAST else [pytest.mark.slow])
        for i, case in enumerate(MUTATIONS)
    ],
)
def test_a_planted_fault_is_found_and_named(name, fault, row, words, remedy):
    found(name, fault, row, words, remedy)


@pytest.mark.parametrize(("name", "fault", "scale", "row", "words", "remedy"), FIELD)
def test_field_cases_are_found_in_whole_nets(name, fault, scale, row, words, remedy):
    found(name, fault, row, words, remedy, scale)


def test_every_net_has_three_faults():
    for name in TWINS:
        assert len({str(case[1]) for case in MUTATIONS if case[0] == name}) >= 3, name


def test_a_branch_that_runs_in_another_order_is_aligned():
    twin = make("resnet")
    report = check_migration(twin.torch, twin.mindspore, twin.batch[:1], modes=[])
    assert report["layers"].summary.startswith("11 aligned")
    assert "without a partner" not in report["layers"].summary


def test_weights_that_were_never_loaded():
    twin = make("resnet")
    bn = twin.mindspore.block.bn1
    bn.moving_variance.set_data(ms.Tensor(np.ones(4, np.float32) * 1.5))
    bn.gamma.set_data(ms.Tensor(np.ones(4, np.float32)))
    report = twin.check(modes=[])
    assert set(bad(report)) == {"weights"}, str(report)
    assert "2 of 17 differ" in report["weights"].summary
    assert report["weights"].remedy == "msnb.copy_weights(torch_net, ms_net)"
    assert (bn.gamma.asnumpy() == 1).all()  # given back as it was, not healed


def test_a_net_that_was_left_in_evaluation_mode():
    twin = make("bag")
    twin.mindspore.set_train(False)
    row = bad(twin.check(modes=[]))["training"]
    assert "the net" in row.summary
    assert row.remedy == "ms_net.set_train(True)"


def test_a_frozen_parameter():
    twin = make("bag")
    twin.mindspore.fc.bias.requires_grad = False
    twin.optimizer = twins.momentum(twin.torch, twin.mindspore)
    rows = bad(twin.check(modes=[]))
    assert "fc.bias" in rows["trained parameters"].summary
    assert "fc.bias" in rows["gradients: missing"].summary
    assert "fc.bias" in rows["optimizer"].summary


class CutOff(twins.Bag):
    def construct(self, x, scale):
        y = self.bag(x).mean(axis=1) * scale
        return self.fc(ops.relu(ops.stop_gradient(self.hidden(y))))


def test_a_gradient_that_is_cut_off():
    twin = make("bag")
    cut = CutOff()
    from msnb.parity.weights import copy_weights

    assert copy_weights(twin.torch, cut).ok
    twin.mindspore = cut.set_train()
    twin.optimizer = twins.momentum(twin.torch, cut)
    rows = bad(twin.check(modes=[]))
    assert "zero in MindSpore" in rows["gradients: hidden.weight"].found
    assert not any(row.startswith("forward") for row in rows)


class Swapped(nn.Cell):
    """Right values, wrong gradients: those of two layers of one shape change places."""

    def __init__(self):
        super().__init__()
        self.a = nn.Dense(3, 3)
        self.b = nn.Dense(3, 3)

    def construct(self, x):
        a, b = self.a(x), 2 * self.b(x)
        keep = ops.stop_gradient(a + b)
        crossed = 2 * self.a(x) + self.b(x)
        return keep + crossed - ops.stop_gradient(crossed)


class TorchSum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(3, 3)
        self.b = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.a(x) + 2 * self.b(x)


def test_gradients_that_change_places():
    from msnb.parity.weights import copy_weights

    torch.manual_seed(0)
    torch_net, ms_net = TorchSum(), Swapped()
    assert copy_weights(torch_net, ms_net).ok
    rng = np.random.default_rng(0)
    batch = [rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2)]
    report = check_migration(torch_net, ms_net.set_train(), batch, loss=twins.mse(), modes=[])
    assert bad(report)["gradients: a.weight"].found == "it is the gradient of b.weight"


def test_a_loss_that_is_not_reduced():
    twin = make("mlp", loss=lambda: (torch.nn.MSELoss(), nn.MSELoss(reduction="none")))
    twin.batch = (twin.batch[0], np.zeros((4, 3), np.float32))
    rows = bad(twin.check(modes=[]))
    assert 'reduction="mean"' in rows["loss"].remedy


class TorchRandom(torch.nn.Module):
    def __init__(self, drop=False):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.drop = drop

    def forward(self, x):
        x = self.fc(x)
        return torch.nn.functional.dropout(x, 0.5, training=self.training) if self.drop else x


class Random(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 4)

    def construct(self, x):
        return ops.dropout(self.fc(x), 0.5)


@pytest.mark.parametrize("drop", [False, True])
def test_functional_dropout(drop):
    from msnb.parity.weights import copy_weights

    torch_net, ms_net = TorchRandom(drop), Random()
    assert copy_weights(torch_net, ms_net).ok
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    report = check_migration(torch_net, ms_net.set_train(), x, modes=[])
    row = bad(report)["forward (eval)"]
    assert "MindSpore's net is random" in row.summary
    assert row.remedy.startswith("ops.dropout(x, p, training=self.training)")
    assert report["forward (train)"].status == ("skipped" if drop else "failed")


def test_an_optimizer_that_wants_a_closure():
    twin = make("bag")
    lbfgs = torch.optim.LBFGS(twin.torch.parameters())
    refused(
        ValueError,
        "a training step of PyTorch raises TypeError.*closure",
        twin.torch,
        twin.mindspore,
        twin.batch,
        loss=twin.loss,
        optimizer=(lbfgs, twin.optimizer[1]),
    )


# Everything comes back as it was


def test_nets_optimizers_and_random_states_come_back():
    twin = make("bn_cnn")
    torch_before = copy.deepcopy(twin.torch.state_dict())
    ms_before = {n: p.asnumpy().copy() for n, p in twin.mindspore.parameters_and_names()}
    state_before = {n: p.asnumpy().copy() for n, p in twin.optimizer[1].parameters_and_names()}
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(1), np.random.random()
    torch.manual_seed(5)
    np.random.seed(5)
    twin.torch.features[1].eval()
    twin.mindspore.features[1].set_train(False)
    mode = ms.get_context("mode")
    twin.check(modes=[], steps=1)
    assert (torch.rand(1), np.random.random()) == expected
    assert ms.get_context("mode") == mode
    for key, value in twin.torch.state_dict().items():
        assert torch.equal(value, torch_before[key])
    for name, parameter in twin.mindspore.parameters_and_names():
        assert np.array_equal(parameter.asnumpy(), ms_before[name]), name
    for name, parameter in twin.optimizer[1].parameters_and_names():
        assert np.array_equal(parameter.asnumpy(), state_before[name]), name
    assert twin.torch.training
    assert not twin.torch.features[1].training
    assert twin.mindspore.training
    assert not twin.mindspore.features[1].training
    assert not twin.torch.state_dict()["features.1.running_mean"].any()
    assert twin.optimizer[0].state_dict()["state"] == {}
    assert all(p.grad is None for p in twin.torch.parameters())
    assert not twin.mindspore._forward_hook


def test_the_optimizer_still_trains_afterwards():
    """set_data would have left experimental.AdamW training memory that nobody reads."""
    twin = make("mlp")
    twin.check(modes=[], steps=1)
    net, optimizer = twin.mindspore, twin.optimizer[1]
    x, y = ms.Tensor(twin.batch[0]), ms.Tensor(twin.batch[1].astype(np.int32))

    def forward(x, y):
        return twin.loss[1](net(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)
    losses = []
    for _ in range(4):
        value, grads = gradient(x, y)
        optimizer(grads)
        losses.append(float(value))
    theirs = []
    for _ in range(4):
        twin.optimizer[0].zero_grad()
        loss = twin.loss[0](twin.torch(torch.tensor(twin.batch[0])), torch.tensor(twin.batch[1]))
        loss.backward()
        twin.optimizer[0].step()
        theirs.append(loss.item())
    assert np.allclose(losses, theirs, rtol=1e-5)
    assert losses[-1] < losses[0]


# Left out


def test_rows_without_loss_and_optimizer_are_skipped():
    twin = make("bag")
    report = check_migration(twin.torch, twin.mindspore, twin.batch[:2], modes=[])
    assert report.ok
    skipped = {check.id for check in report if check.status == "skipped"}
    assert skipped == {"loss", "gradients", "optimizer", "same gradients", "steps"}


def test_tensors_of_either_framework_and_a_single_array():
    torch_net, ms_net = torch.nn.LayerNorm(4), nn.LayerNorm((4,), epsilon=1e-5).set_train()
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    for batch in (x, [x], (torch.tensor(x),), ms.Tensor(x), x.astype(np.float64)):
        assert check_migration(torch_net, ms_net, batch, modes=[]).ok


# Bad input


def refused(error, match, *args, **options):
    with pytest.raises(error, match=match):
        check_migration(*args, **options)


def test_bad_input_gets_a_sentence():
    twin = make("mlp")
    other = make("mlp", seed=1)
    t, m, batch, loss, opt = twin.torch, twin.mindspore, twin.batch, twin.loss, twin.optimizer
    x, y = batch
    refused(TypeError, r"torch_net is MLP of MindSpore; the order is", m, t, batch)
    refused(TypeError, r"ms_net is TorchMLP of PyTorch; the order is", t, t, batch)
    refused(TypeError, r"torch_net is the class TorchMLP, not a net", type(t), m, batch)
    refused(TypeError, r"torch_net is a torch.nn.Module, not int", 3, m, batch)
    refused(TypeError, r"loss is a pair, loss=\(torch_loss, ms_loss\)", t, m, batch, loss=loss[0])
    refused(TypeError, r"not 3 things", t, m, batch, loss=(*loss, 1))
    refused(TypeError, r"torch_loss belongs to MindSpore", t, m, batch, loss=loss[::-1])
    refused(TypeError, r"make one, MSELoss\(\)", t, m, batch, loss=(torch.nn.MSELoss, loss[1]))
    refused(TypeError, r"cannot be called", t, m, batch, loss=(3, loss[1]))
    refused(TypeError, r"optimizer is a pair", t, m, batch, loss=loss, optimizer=opt[0])
    refused(TypeError, r"the optimizers are swapped", t, m, batch, loss=loss, optimizer=opt[::-1])
    refused(TypeError, r"ms_optimizer is an optimizer", t, m, batch, optimizer=(opt[0], m.norm))
    wrong = (other.optimizer[0], opt[1])
    refused(ValueError, r"torch_optimizer holds parameters of another", t, m, x, optimizer=wrong)
    wrong = (opt[0], other.optimizer[1])
    refused(ValueError, r"ms_optimizer holds parameters of another", t, m, x, optimizer=wrong)
    refused(ValueError, r"a loss needs a label", t, m, (x,), loss=loss)
    refused(ValueError, r"batch is empty", t, m, ())
    refused(TypeError, r"not a dict of 'x'", t, m, {"x": x})
    refused(TypeError, r"batch\[0\] is an array or a tensor, not str", t, m, "x")
    refused(ValueError, r"torch_net does not take this batch.*\(4, 5\)", t, m, x[:, :5])
    refused(ValueError, r"torch_loss does not take .*\(3,\) int64", t, m, (x, y[:3]), loss=loss)
    refused(ValueError, r"steps=0: how many", t, m, batch, steps=0)
    refused(
        ValueError, r"modes are among pynative, jit, graph, not 'eager'", t, m, x, modes=["eager"]
    )
    refused(TypeError, r"write modes=\['jit'\]", t, m, x, modes="jit")


def test_a_loss_that_reaches_into_the_net():
    twin = make("mlp")

    def loss(output, label):
        return twin.torch.head.weight.sum() + output.sum()

    refused(
        TypeError,
        "reaches into the net",
        twin.torch,
        twin.mindspore,
        twin.batch,
        loss=(loss, twin.loss[1]),
    )


def test_nets_of_different_depth():
    torch_net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    ms_net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 4), nn.Dense(4, 2))
    report = check_migration(torch_net, ms_net.set_train(), np.ones((2, 3), np.float32), modes=[])
    rows = bad(report)
    assert "without a partner" in rows["weights"].summary
    assert "2 (Dense)" in report["layers"].summary


# How small an error is found


def _seen(name: str, parameter: str, index: Any, error: float) -> str:
    """The first row other than weights that sees a relative error in one weight."""
    twin = make(name)
    match = next(m for m in _pairs(twin) if m.torch_name == parameter)
    value = match.back(match.target.asnumpy()).copy()
    value[index] *= 1 + error
    match.target.set_data(ms.Tensor(match.convert(value)))
    arguments = _arguments(twin.batch, twin.torch, with_label=True)
    migration = _Migration(
        twin.torch, twin.mindspore, arguments, twin.loss, None, 1, (), None, heal=False
    )
    rows = [c.id for c in migration.run() if c.status == "failed" and c.id != "weights"]
    return rows[0] if rows else ""


def _typical(name):
    """A weight of the first matrix whose influence on the loss is the median of those that have."""
    twin = make(name)
    inputs = [torch.as_tensor(value) for value in twin.batch]
    twin.torch.eval()
    twin.loss[0](twin.torch(*inputs[:-1]), inputs[-1]).backward()
    key, p = next((n, p) for n, p in twin.torch.named_parameters() if p.ndim > 1)
    influence = (p.grad * p.detach()).abs().numpy().ravel()
    order = [i for i in np.argsort(influence) if influence[i] > 0]
    return key, np.unravel_index(order[len(order) // 2], tuple(p.shape))


def _pairs(twin):
    from msnb.parity.pairing import pair

    return pair(twin.torch, twin.mindspore).matched


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_how_small_an_error_in_one_weight_is_found(name, capsys):
    parameter, index = _typical(name)
    low, high, row = -13, 0, ""  # half decades: not seen at low, seen at high
    while high - low > 1:
        middle = (low + high) // 2
        seen = _seen(name, parameter, index, 10.0 ** (middle / 2))
        low, high, row = (low, middle, seen) if seen else (middle, high, row)
    with capsys.disabled():
        print(f"\n  {name:<12} smallest relative error found in {parameter}: ", end="")
        print(f"{10.0 ** (high / 2):.1e}, by {row} (one ulp by weights)")
    # tanh, 1e-4 off near 5 in MindSpore on CPU, is allowed for in a GRU and hides as much
    assert high <= (-4 if name == "gru" else -5), (name, high, row)


def test_one_ulp_in_one_weight_is_found_by_the_row_weights():
    twin = make("bag")
    value = twin.mindspore.fc.weight.asnumpy().copy()
    value[1, 2] = np.nextafter(value[1, 2], np.float32(9))
    twin.mindspore.fc.weight.set_data(ms.Tensor(value))
    row = bad(twin.check(modes=[], steps=1))["weights"]
    assert "1 of 5 differ, fc.weight most" in row.summary
