"""save_checkpoint and load_checkpoint: exact, whole or not at all, strict."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
import torch
from damage import RUNS, damaged
from mindspore import Tensor, amp, nn, ops
from mindspore.experimental import optim

import msnb
from msnb.checkpoint import CheckpointError, Resumed, boundary, load_checkpoint, save_checkpoint
from msnb.data import digits
from msnb.guard import StepGuard, TrainingStopped
from msnb.log import TrainLog

CE = nn.CrossEntropyLoss()
RNG = np.random.default_rng(0)
BATCHES = [
    (
        Tensor(RNG.standard_normal((12, 6)).astype(np.float32)),
        Tensor(RNG.integers(0, 3, 12).astype(np.int32)),
    )
    for _ in range(8)
]


TANH = 1e-3  # MindSpore's float32 tanh on a CPU is off by 1e-4


class Net(nn.Cell):
    def __init__(self, out=3, seed=0):
        super().__init__()
        rng = np.random.default_rng(seed)

        def dense(a, b):
            weight = Tensor(rng.standard_normal((b, a)), ms.float32)
            return nn.Dense(a, b, weight_init=weight, bias_init="zeros")

        self.fc1, self.norm, self.fc2 = dense(6, 8), nn.BatchNorm1d(8), dense(8, out)
        self.set_train()

    def construct(self, x):
        return self.fc2(ops.tanh(self.norm(self.fc1(x))))


def steps(net, optimizer, numbers):
    grad_fn = ms.value_and_grad(lambda x, y: CE(net(x), y), None, optimizer.parameters)
    for number in numbers:
        _, grads = grad_fn(*BATCHES[number])
        optimizer(grads)


def bits(*cells):
    return [p.asnumpy().tobytes() for cell in cells for p in cell.get_parameters()]


OPTIMIZERS = {
    "SGD": lambda p: nn.SGD(p, 0.05, momentum=0.9),
    "Momentum, groups": lambda p: nn.Momentum(
        [{"params": p[:2], "lr": 0.1}, {"params": p[2:]}], 0.05, 0.9
    ),
    "Adam, list of rates": lambda p: nn.Adam(p, [0.01 * i for i in range(1, 9)]),
    "experimental AdamW": lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.01),
    "experimental SGD": lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * name.endswith(("SGD", "groups")))
        for name in OPTIMIZERS
    ],
)
def test_training_goes_on_bit_by_bit(name, tmp_path):
    net = Net()
    optimizer = OPTIMIZERS[name](net.trainable_params())
    steps(net, optimizer, range(8))

    half = Net()
    half_optimizer = OPTIMIZERS[name](half.trainable_params())
    steps(half, half_optimizer, range(4))
    save_checkpoint(tmp_path / "half.ckpt", half, half_optimizer, step=4)

    other = Net(seed=5)
    other_optimizer = OPTIMIZERS[name](other.trainable_params())
    resumed = load_checkpoint(tmp_path / "half.ckpt", other, other_optimizer)
    assert (resumed.step, resumed.loaded) == (4, 8)
    assert bits(other) == bits(half)
    steps(other, other_optimizer, range(4, 8))
    assert bits(other) == bits(net)

    # In mid-training too, where load_param_into_net would stop it (MindSpore 2.10).
    load_checkpoint(tmp_path / "half.ckpt", other, other_optimizer)
    steps(other, other_optimizer, range(4, 8))
    assert bits(other) == bits(net)


def test_without_the_optimizers_state_it_would_not(tmp_path):
    make = OPTIMIZERS["SGD"]
    net, other = Net(), Net()
    optimizer = make(net.trainable_params())
    steps(net, optimizer, range(4))
    save_checkpoint(tmp_path / "half.ckpt", net, optimizer, step=4)
    load_checkpoint(tmp_path / "half.ckpt", other)
    other_optimizer = make(other.trainable_params())
    for cell, its in ((net, optimizer), (other, other_optimizer)):
        steps(cell, its, range(4, 6))
    assert bits(net) != bits(other)


def test_the_rate_of_an_experimental_optimizer_comes_back(tmp_path):
    net = Net()
    optimizer = optim.SGD(net.trainable_params(), lr=0.5)
    optimizer.param_groups[0]["lr"].set_data(Tensor(0.125, ms.float32))
    save_checkpoint(tmp_path / "a.ckpt", net, optimizer)
    other = optim.SGD(Net().trainable_params(), lr=0.5)
    load_checkpoint(tmp_path / "a.ckpt", net, other)
    assert float(other.param_groups[0]["lr"].asnumpy()) == 0.125


class Mixed(nn.Cell):
    def __init__(self, fill):
        super().__init__()
        for name, kind in (
            ("half", ms.float16),
            ("brain", ms.bfloat16),
            ("double", ms.float64),
            ("whole", ms.int64),
            ("scalar", ms.float32),
        ):
            value = Tensor(fill, kind) if name == "scalar" else Tensor([fill, 2], kind)
            setattr(self, name, ms.Parameter(value, name=name))
        self.odd = ms.Parameter(Tensor([np.nan, -0.0, np.inf], ms.float32), name="odd")


def test_weights_alone_and_every_dtype(tmp_path):
    a, b = Mixed(1), Mixed(7)
    path = save_checkpoint(str(tmp_path / "目录 a" / "weights.ckpt"), a)
    resumed = load_checkpoint(path, b)
    assert resumed == Resumed(path, loaded=6, count=6, checksum="CRC-32")
    for p, q in zip(a.get_parameters(), b.get_parameters(), strict=True):
        assert (p.dtype, p.shape) == (q.dtype, q.shape)
        left, right = (t.float().asnumpy() if "BF" in str(t.dtype) else t.asnumpy() for t in (p, q))
        assert left.tobytes() == right.tobytes()
    assert os.listdir(path.parent) == ["weights.ckpt"]
    assert set(ms.load_checkpoint(str(path))) > {p.name for p in a.get_parameters()}


def test_mindspores_own_checkpoint_will_do_for_weights(tmp_path):
    net = Net(seed=3)
    ms.save_checkpoint(net, str(tmp_path / "plain.ckpt"))
    other = Net()
    resumed = load_checkpoint(tmp_path / "plain.ckpt", other)
    assert (resumed.step, resumed.epoch, resumed.loaded) == (None, None, 8)
    assert bits(other) == bits(net)
    with pytest.raises(CheckpointError, match="was saved without an optimizer"):
        load_checkpoint(tmp_path / "plain.ckpt", other, nn.SGD(other.trainable_params(), 0.1))


def test_numbers_come_back(tmp_path):
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    scaler = amp.DynamicLossScaler(1024.0, 2, 3)
    scaler.adjust(Tensor(False))
    path = tmp_path / "a.ckpt"
    save_checkpoint(
        path, net, optimizer, step=7, epoch=2, scaler=scaler, extra={"best": 0.1 + 0.2, "of": ["x"]}
    )
    other = amp.DynamicLossScaler(4.0, 2, 3)
    resumed = load_checkpoint(path, net, optimizer, scaler=other)
    assert (resumed.step, resumed.epoch, resumed.batch) == (7, 2, 0)
    assert resumed.extra == {"best": 0.1 + 0.2, "of": ["x"]}
    assert float(other.scale_value.asnumpy()) == 512.0


def test_random_states_come_back(tmp_path):
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    ms.set_seed(3)
    np.random.standard_normal(3)  # odd: NumPy keeps the fourth
    save_checkpoint(tmp_path / "a.ckpt", net, optimizer)
    drawn = []
    for _ in range(2):
        drawn.append((random.random(), np.random.standard_normal(3).tolist(), ms.get_seed()))
        ms.set_seed(99)
        random.seed(4)
        load_checkpoint(tmp_path / "a.ckpt", net, optimizer)
    assert drawn[0] == drawn[1]
    before = random.getstate()
    load_checkpoint(tmp_path / "a.ckpt", net)  # the weights alone leave it be
    assert random.getstate() == before


@pytest.mark.parametrize(
    "framework", ["numpy", "mindspore", pytest.param("torch", marks=pytest.mark.slow)]
)
def test_the_data_goes_on_where_it_was(framework, tmp_path):
    def labels(batches):
        return [np.asarray(getattr(y, "asnumpy", lambda y=y: y)()).tolist() for _, y in batches]

    def make(seed=0):
        return digits(size=8, framework=framework, batch_size=400, seed=seed)

    net = Net()
    loader = make()
    whole = [labels(loader) for _ in range(3)]
    assert len(whole[0]) == 4
    assert whole[0] != whole[1]
    for batch in range(5):
        loader = make()
        labels(loader)  # epoch 0
        if batch:
            stream = iter(loader)
            for _ in range(batch):
                next(stream)
        save_checkpoint(tmp_path / "a.ckpt", net, batch=batch, loader=loader)
        again = make()
        resumed = load_checkpoint(tmp_path / "a.ckpt", net, loader=again)
        rest = labels(resumed.rest(again)) if batch < 4 else []
        assert rest == whole[1][batch:]
        assert labels(again) == whole[2]
    with pytest.raises(CheckpointError, match=r"other data: loader's seed was 0, is 1"):
        load_checkpoint(tmp_path / "a.ckpt", net, loader=make(seed=1))


# The log


def test_no_line_is_lost_or_doubled(tmp_path):
    net = Net()
    path = tmp_path / "train.jsonl"
    with TrainLog(path, every=0) as earlier:
        earlier.step(loss=9.0)
    with TrainLog(path, every=0) as log:
        for number in range(1, 6):
            log.step(loss=float(number))
            if number == 3:
                save_checkpoint(tmp_path / "a.ckpt", net, step=3, log=log)
    with open(path, "ab") as file:
        file.write(b'{"run": "' + log.run.encode()[:9])  # torn by kill -9
    with TrainLog(path, every=0) as again:
        load_checkpoint(tmp_path / "a.ckpt", net, log=again)
        for number in range(4, 7):
            again.step(loss=float(number))
    assert TrainLog.runs(path) == [earlier.run, log.run]
    data = TrainLog.read(path)
    assert data["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert data["loss"].tolist() == [1, 2, 3, 4, 5, 6]
    assert len(path.read_bytes().splitlines()) == 7


def test_another_log_is_refused_and_left_alone(tmp_path):
    net, path = Net(), tmp_path / "train.jsonl"
    with TrainLog(path, every=0) as log:
        log.step(loss=1.0)
        save_checkpoint(tmp_path / "a.ckpt", net, step=1, log=log)
    with TrainLog(path, every=0) as other:
        other.step(loss=2.0)
    kept = path.read_bytes()
    with TrainLog(path) as log, pytest.raises(ValueError, match="lines of another run after"):
        load_checkpoint(tmp_path / "a.ckpt", net, log=log)
    assert path.read_bytes() == kept
    new = TrainLog(tmp_path / "new.jsonl")
    with new as log, pytest.raises(ValueError, match="is not the log of the checkpoint"):
        load_checkpoint(tmp_path / "a.ckpt", net, log=log)
    with TrainLog(path, every=0) as log:
        log.step(loss=1.0)
        with pytest.raises(ValueError, match=r"last line is step 1, and step is 2: call log.step"):
            save_checkpoint(tmp_path / "b.ckpt", net, step=2, log=log)


# Strict


def test_all_that_does_not_fit_is_listed_and_nothing_loaded(tmp_path):
    save_checkpoint(tmp_path / "a.ckpt", Net())

    class Other(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Dense(6, 8)
            self.fc1.bias = ms.Parameter(Tensor(np.zeros(8), ms.float16), name="fc1.bias")
            self.fc2 = nn.Dense(8, 7)
            self.head = nn.Dense(7, 2)

    net = Other()
    before = bits(net)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "a.ckpt", net)
    error = caught.value
    assert error.missing == ("head.weight", "head.bias")
    assert error.unexpected == tuple(
        f"norm.{name}" for name in ("moving_mean", "moving_variance", "gamma", "beta")
    )
    assert error.cast == ("fc1.bias (float32[8] in the file, float16[8] here)",)
    assert error.mismatched == (
        "fc2.weight (float32[3, 8] in the file, float32[7, 8] here)",
        "fc2.bias (float32[3] in the file, float32[7] here)",
    )
    for text in (*error.missing, *error.unexpected, *error.mismatched, *error.cast):
        assert text in str(error)
    assert "does not fit the net: 1 of its 6 parameters fit; nothing was loaded" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.cast) == (str(error), error.cast)
    assert bits(net) == before

    resumed = load_checkpoint(tmp_path / "a.ckpt", net, strict=False)
    assert (resumed.missing, resumed.unexpected) == (error.missing, error.unexpected)
    assert (resumed.mismatched, resumed.cast) == (error.mismatched, error.cast)
    assert resumed.loaded == 2  # fc1.weight, and fc1.bias cast
    assert (net.fc1.weight.asnumpy() == Net().fc1.weight.asnumpy()).all()
    assert net.fc1.bias.dtype == ms.float16


def test_another_optimizer_is_refused_before_the_weights_are_loaded(tmp_path):
    net = Net()
    save_checkpoint(tmp_path / "a.ckpt", net, nn.Adam(net.trainable_params(), [0.1] * 5))
    other = Net(seed=4)
    before = bits(other)
    for optimizer, message in (
        (nn.SGD(other.trainable_params(), 0.1), "the state of an Adam, and optimizer is a SGD"),
        (nn.Adam(other.trainable_params(), [0.1] * 9), r"learning_rate \(float32\[5\] in the file"),
        (nn.Adam(other.fc2.trainable_params(), [0.1] * 5), r"in the file alone \(8\): moment1.fc1"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(tmp_path / "a.ckpt", other, optimizer)
    assert bits(other) == before


# Damage


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path):
    net = Net()
    path = save_checkpoint(tmp_path / "a.ckpt", net, nn.SGD(net.trainable_params(), 0.1))
    whole, bad = path.read_bytes(), tmp_path / "bad.ckpt"
    rng = np.random.default_rng(0)
    other = Net(seed=2)
    before = bits(other)
    for place in rng.choice(len(whole), 40, replace=False):
        data = bytearray(whole)
        data[place] ^= 1 << int(rng.integers(8))
        bad.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"bad\.ckpt is "):
            load_checkpoint(bad, other)
    for end in (1, 20, 100, len(whole) // 2, len(whole) - 17, len(whole) - 5, len(whole) - 1):
        bad.write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match=r"bad\.ckpt is (cut short|damaged|of no known)"):
            load_checkpoint(bad, other)
    assert bits(other) == before
    bad.write_bytes(whole)
    load_checkpoint(bad, other)
    assert bits(other) == bits(net)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file; a checkpoint is a .safetensors file, MindSpore's .ckpt or PyTorch's"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\x80\x04\x95", "damaged, or no PyTorch file"),
        (b"hello", "of no known kind"),
        (b"PK\x03\x04 and no more", "a PyTorch or other zip file that is damaged"),
    ],
)
def test_a_foreign_file_is_called_what_it_is(content, words, tmp_path):
    file = tmp_path / "a.ckpt"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"a\.ckpt is {words}"):
        load_checkpoint(file, Net())


def test_an_encrypted_file_is_told(tmp_path):
    ms.save_checkpoint(Net(), str(tmp_path / "a.ckpt"), enc_key=b"0123456789abcdef")
    with pytest.raises(CheckpointError, match=r"is an encrypted MindSpore checkpoint.*dec_key="):
        load_checkpoint(tmp_path / "a.ckpt", Net())


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = save_checkpoint(tmp_path / "a.ckpt", Net(seed=1), step=1)
    old = path.read_bytes()

    def full(*args, **kwargs):
        raise RuntimeError("Failed to save the checkpoint file: No space left on device")

    monkeypatch.setattr(ms, "save_checkpoint", full)
    with pytest.raises(OSError, match=r"a\.ckpt': Failed.*No space.*before is untouched"):
        save_checkpoint(path, Net(seed=2), step=2)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["a.ckpt"]


@pytest.mark.slow
def test_killed_while_it_writes_the_old_file_is_whole(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from mindspore import nn\n"
        "from msnb import save_checkpoint\n"
        "net = nn.Dense(2, 2)\n"
        "save_checkpoint(sys.argv[1], net, step=1)\n"
        "os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)\n"
        "save_checkpoint(sys.argv[1], net, step=2)\n"
    )
    path = tmp_path / "a.ckpt"
    killed = subprocess.run([sys.executable, "-c", code, path], timeout=120, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2  # what it was writing is there, under another name
    net = nn.Dense(2, 2)
    assert load_checkpoint(path, net).step == 1
    save_checkpoint(path, net, step=3)
    assert os.listdir(tmp_path) == ["a.ckpt"]


# Weights for other programs, and from them


def weights_of(path):
    """What the file holds, told by someone else's reader."""
    import safetensors.numpy

    return safetensors.numpy.load_file(path)


def test_safetensors_hold_weights_that_others_read(tmp_path):
    net, other = Net(seed=3), Net()
    path = save_checkpoint(tmp_path / "目录 a" / "net.safetensors", net)
    wanted = {p.name: p.asnumpy() for p in net.get_parameters()}
    for found in (
        weights_of(path),
        {
            name: value.asnumpy()
            for name, value in ms.load_checkpoint(
                str(path), format="safetensors", crc_check=True
            ).items()
        },
    ):
        assert found.keys() == wanted.keys()
        assert all((found[name] == wanted[name]).all() for name in wanted)
    resumed = load_checkpoint(path, other)
    assert resumed == Resumed(path, loaded=8, count=8, checksum="SHA-256")
    assert str(resumed) == f"{path}: 8 of 8 parameters loaded; SHA-256 agrees"
    assert bits(other) == bits(net)
    assert os.listdir(path.parent) == ["net.safetensors"]
    save_checkpoint(path, Net(seed=4), step=3)
    assert load_checkpoint(path, other).step == 3


def test_training_goes_on_from_safetensors_too(tmp_path):
    net, other = Net(), Net(seed=5)
    optimizers = [nn.Adam(n.trainable_params(), [0.01, 0.02, 0.03, 0.04]) for n in (net, other)]
    steps(net, optimizers[0], range(2))
    path = save_checkpoint(tmp_path / "a.safetensors", net, optimizers[0], step=2, extra={"a": 0.1})
    resumed = load_checkpoint(path, other, optimizers[1])
    assert (resumed.step, resumed.extra) == (2, {"a": 0.1})
    assert bits(other, optimizers[1]) == bits(net, optimizers[0])


def test_every_dtype_in_safetensors(tmp_path):
    a, b = Mixed(3), Mixed(7)
    path = save_checkpoint(tmp_path / "a.safetensors", a)
    assert load_checkpoint(path, b).loaded == 6
    for p, q in zip(a.get_parameters(), b.get_parameters(), strict=True):
        assert (p.dtype, p.shape) == (q.dtype, q.shape)
        left, right = (t.float().asnumpy() if "BF" in str(t.dtype) else t.asnumpy() for t in (p, q))
        assert left.tobytes() == right.tobytes()


def test_mindspores_safetensors_with_and_without_a_checksum(tmp_path):
    net = Net(seed=3)
    for crc, checksum in ((True, "CRC-32 of names and numbers"), (False, "")):
        other = Net()
        path = tmp_path / "a.safetensors"
        ms.save_checkpoint(net, str(path), format="safetensors", crc_check=crc)
        resumed = load_checkpoint(path, other)
        assert resumed.checksum == checksum
        assert ("not verifiable: the file carries no checksum" in str(resumed)) == (not crc)
        assert bits(other) == bits(net)


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    empty = nn.Cell()
    empty.w = ms.Parameter(Tensor(np.zeros((0, 3), np.float32)), name="w")
    with pytest.raises(ValueError, match=r"w has no elements.*use \.safetensors"):
        save_checkpoint(tmp_path / "a.ckpt", empty)
    assert load_checkpoint(save_checkpoint(tmp_path / "a.safetensors", empty), empty).loaded == 1
    with pytest.raises(ValueError, match="leave out optimizer, step, or save"):
        save_checkpoint(tmp_path / "a.pth", Net(), nn.SGD(Net().trainable_params(), 0.1), step=1)
    for name, framework, words in (
        ("a.pth", "mindspore", r"\.pth is PyTorch's format; for framework='mindspore' use"),
        ("a.ckpt", "torch", r"\.ckpt is MindSpore's format; for framework='torch' use"),
        ("a.ckpt", "jax", "framework is 'mindspore' or 'torch', not 'jax'"),
        ("a.bin", None, r"ends in \.ckpt or \.safetensors or \.pth or \.pt: .*a\.bin\.ckpt'"),
    ):
        with pytest.raises(ValueError, match=words):
            save_checkpoint(tmp_path / name, Net(), framework=framework)


class TorchNet(torch.nn.Module):
    def __init__(self, out=3):
        super().__init__()
        self.fc1, self.norm = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8)
        self.fc2 = torch.nn.Linear(8, out)

    def forward(self, x):
        return self.fc2(torch.tanh(self.norm(self.fc1(x))))


def torch_net(seed, out=3):
    torch.manual_seed(seed)
    net = TorchNet(out)
    for value in (*net.parameters(), net.norm.running_mean, net.norm.running_var):
        value.data.copy_(torch.rand(value.shape))
    return net


IN_TORCH = {
    "fc1.weight": "fc1.weight",
    "fc1.bias": "fc1.bias",
    "norm.gamma": "norm.weight",
    "norm.beta": "norm.bias",
    "norm.moving_mean": "norm.running_mean",
    "norm.moving_variance": "norm.running_var",
    "fc2.weight": "fc2.weight",
    "fc2.bias": "fc2.bias",
}


@pytest.mark.parametrize("name", ["a.pth", "a.pt", "legacy", "a.safetensors", "pytorch_model.bin"])
def test_weights_come_from_pytorch(name, tmp_path):
    import safetensors.torch

    theirs, net = torch_net(1), Net()
    path = tmp_path / name
    if name == "a.safetensors":
        safetensors.torch.save_file(theirs.state_dict(), path)
    else:
        torch.save(theirs.state_dict(), path, _use_new_zipfile_serialization=name != "legacy")
    resumed = load_checkpoint(path, net)
    assert (resumed.loaded, resumed.count) == (8, 8)
    assert list(resumed.left_out) == ["norm.num_batches_tracked"]
    assert bool(resumed.checksum) == (name not in ("legacy", "a.safetensors"))
    state = theirs.state_dict()
    for p in net.get_parameters():
        assert p.asnumpy().tobytes() == state[IN_TORCH[p.name]].numpy().tobytes()


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_weights_go_to_pytorch(name, tmp_path):
    import safetensors.torch

    net, theirs = Net(seed=3), torch_net(1)
    path = save_checkpoint(tmp_path / name, net, framework="torch")
    if name == "a.pth":
        state = torch.load(path, weights_only=True)
    else:
        state = safetensors.torch.load_file(path)
    theirs.load_state_dict(state, strict=False)
    assert set(state) == set(IN_TORCH.values())
    if name == "a.pth":
        theirs.load_state_dict(state)  # strictly, though it has no num_batches_tracked
    x = BATCHES[0][0]
    ours = net.set_train(False)(x).asnumpy()
    there = theirs.eval()(torch.from_numpy(x.asnumpy())).detach().numpy()
    np.testing.assert_allclose(ours, there, atol=TANH)
    other = Net(seed=8)
    assert load_checkpoint(path, other).checksum
    assert bits(other) == bits(net)


def test_bfloat16_and_tied_weights_go_to_pytorch(tmp_path):
    class Tied(nn.Cell):
        def __init__(self, seed):
            super().__init__()
            value = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
            self.first = nn.Dense(3, 4, has_bias=False, weight_init=Tensor(value))
            self.second = self.first
            self.brain = ms.Parameter(Tensor([1.5, -2.0], ms.bfloat16), name="brain")

    net = Tied(0)
    state = torch.load(save_checkpoint(tmp_path / "a.pth", net), weights_only=True)
    assert set(state) == {"first.weight", "second.weight", "brain"}
    assert state["brain"].dtype == torch.bfloat16
    assert state["brain"].tolist() == [1.5, -2.0]
    for name in ("first.weight", "second.weight"):
        assert state[name].numpy().tobytes() == net.first.weight.asnumpy().tobytes()


# What to type


class Wrapped(nn.Cell):
    def __init__(self, out=3, seed=0, head=False):
        super().__init__()
        self.backbone = Net(out, seed)
        if head:
            self.head = nn.Dense(3, 2)


def advised(error, net):
    """Do what the error says is to be typed."""
    line = next(line for line in str(error).splitlines() if "load_checkpoint(" in line)
    return eval(line.strip(), {"net": net, "msnb": msnb})


@pytest.mark.parametrize(
    ("saved", "make", "words"),
    [
        (Net, Wrapped, "0 of its 8 parameters fit; nothing"),
        (Net, Wrapped, "add prefix `backbone.` and 8 of 8 parameters fit"),
        (Wrapped, Net, "remove prefix `backbone.` and 8 of 8 parameters fit"),
        (
            lambda seed: nn.SequentialCell(Net(seed=seed)),
            Wrapped,
            "remove prefix `0.` and add prefix `backbone.` and 8 of 8 parameters fit",
        ),
        (Net, lambda: Wrapped(head=True), "`backbone.` and 8 of 10 parameters fit"),
        (
            lambda seed: Net(7, seed),
            Wrapped,
            "fc2: 7 in the file, 3 here; another number of classes?",
        ),
        (
            lambda seed: Net(7, seed),
            Net,
            "fc2: 7 in the file, 3 here; another number of classes? Skip the head, train it",
        ),
        (lambda seed: Wrapped(head=True, seed=seed), Net, "skip=['head']"),
    ],
)
def test_the_error_says_what_to_type_and_that_works(saved, make, words, tmp_path):
    theirs, net = saved(seed=3), make()
    path = save_checkpoint(tmp_path / "a.ckpt", theirs)
    before = bits(net)
    with pytest.raises(CheckpointError, match=re.escape(words)) as caught:
        load_checkpoint(path, net)
    assert bits(net) == before
    resumed = advised(caught.value, net)
    assert resumed.loaded >= 6
    by_end = {
        p.name.removeprefix("0.").removeprefix("backbone."): p for p in theirs.get_parameters()
    }
    loaded = 0
    for parameter in net.get_parameters():
        if parameter.name not in resumed.left_out:
            there = by_end[parameter.name.removeprefix("backbone.")]
            assert parameter.asnumpy().tobytes() == there.asnumpy().tobytes()
            loaded += 1
    assert loaded == resumed.loaded
    assert all(reason == "skipped, as asked" for reason in resumed.left_out.values())


def test_the_error_says_what_to_type_for_pytorchs_files(tmp_path):
    theirs, net = torch_net(1, out=7), Net()
    path = tmp_path / "a.pth"
    torch.save(theirs.state_dict(), path)
    before = bits(net)
    with pytest.raises(CheckpointError, match="fc2: 7 outputs against 3; another number") as caught:
        load_checkpoint(path, net)
    assert bits(net) == before
    assert caught.value.missing == caught.value.unexpected == ()
    assert [name.partition(" ")[0] for name in caught.value.mismatched] == [
        "fc2.weight",
        "fc2.bias",
    ]
    resumed = advised(caught.value, net)
    assert resumed.loaded == 6
    assert net.fc1.weight.asnumpy().tobytes() == theirs.fc1.weight.detach().numpy().tobytes()
    assert bits(net)[-2:] == before[-2:]


def test_no_advice_where_it_is_another_net(tmp_path):
    path = save_checkpoint(tmp_path / "a.ckpt", nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 4)))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, Net())
    assert "0 of its 8 parameters fit" in str(caught.value)
    assert "load_checkpoint(" not in str(caught.value)
    with pytest.raises(CheckpointError, match="0 of its 8 parameters fit"):
        load_checkpoint(path, Net(), strict=False)  # nothing loaded is never silent
    path = save_checkpoint(path, nn.SequentialCell(nn.Dense(6, 9), nn.Dense(9, 3)))
    with pytest.raises(CheckpointError) as caught:  # hidden layers are no classes
        load_checkpoint(path, nn.SequentialCell(nn.Dense(6, 8), nn.Dense(8, 3)))
    assert "classes" not in str(caught.value)


def test_bad_prefixes_and_skips(tmp_path):
    net = Net()
    path = save_checkpoint(tmp_path / "a.ckpt", net, nn.SGD(net.trainable_params(), 0.1))
    for keywords, words in (
        ({"remove_prefix": "net."}, r"no name in \S+a\.ckpt begins with 'net\.'; .* 'fc1\.weight'"),
        ({"skip": "head"}, "skip: 'head' is no layer or parameter of the net or of the file"),
        (
            {"skip": "fc2", "optimizer": nn.SGD(net.trainable_params(), 0.1)},
            "leave optimizer out, or skip and the prefixes",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            load_checkpoint(path, net, **keywords)
    before = bits(net.fc2)
    save_checkpoint(path, Net(seed=4))
    resumed = load_checkpoint(path, net, skip=["fc2", "norm.gamma"])
    assert set(resumed.left_out) == {"fc2.weight", "fc2.bias", "norm.gamma"}
    assert "left out (3): fc2.weight (skipped, as asked)" in str(resumed)
    assert bits(net.fc2) == before


# All or nothing


def test_what_was_loaded_reaches_compiled_code(tmp_path):
    source, net = Net(seed=3).set_train(False), Net().set_train(False)
    compiled = ms.jit(net.construct)
    x = BATCHES[0][0]
    before = compiled(x).asnumpy()
    path = save_checkpoint(tmp_path / "a.safetensors", source)
    load_checkpoint(path, net)
    assert not np.allclose(compiled(x).asnumpy(), before)
    weights = weights_of(path)
    hidden = x.asnumpy() @ weights["fc1.weight"].T.astype(np.float64) + weights["fc1.bias"]
    wanted = np.tanh(hidden / np.sqrt(1 + 1e-5)) @ weights["fc2.weight"].T + weights["fc2.bias"]
    np.testing.assert_allclose(compiled(x).asnumpy(), wanted, atol=TANH)


@pytest.mark.parametrize("name", ["a.ckpt", "a.safetensors", "a.pth"])
def test_a_load_that_fails_half_way_leaves_nothing(name, tmp_path, monkeypatch):
    from msnb.parity import weights

    path, net = save_checkpoint(tmp_path / name, Net(seed=3)), Net()
    before, written, count = bits(net), weights.write, 0

    def failing(parameter, array):
        nonlocal count
        count += 1
        if count == 4:
            raise RuntimeError("out of memory")
        written(parameter, array)

    monkeypatch.setattr(weights, "write", failing)
    with pytest.raises(
        CheckpointError, match=r"out of memory; all put back as it was; nothing was"
    ):
        load_checkpoint(path, net)
    assert count > 4  # some were written, and put back
    assert bits(net) == before


def test_values_that_do_not_fit_another_dtype_are_refused(tmp_path):
    net, half = nn.Dense(2, 1), nn.Dense(2, 1, dtype=ms.float16)
    net.weight.set_data(Tensor([[1e6, 1.0]], ms.float32))
    path = save_checkpoint(tmp_path / "a.safetensors", net)
    before = bits(half)
    with pytest.raises(CheckpointError, match=r"values do not fit: weight \(float32 to float16\)"):
        load_checkpoint(path, half, strict=False)
    assert bits(half) == before


# Random damage


def files_of(net, folder):
    """Name -> (file, whether it carries a checksum over all that is loaded)."""
    import safetensors.torch

    state = {IN_TORCH[p.name]: torch.from_numpy(p.asnumpy().copy()) for p in net.get_parameters()}
    kinds = {
        "ckpt": (save_checkpoint(folder / "own.ckpt", net), True),
        "safetensors": (save_checkpoint(folder / "own.safetensors", net), True),
        "pth": (save_checkpoint(folder / "own.pth", net), True),
    }
    ms.save_checkpoint(net, str(folder / "plain.ckpt"))
    kinds["ckpt, no checksum"] = folder / "plain.ckpt", False
    ms.save_checkpoint(net, str(folder / "crc.safetensors"), format="safetensors", crc_check=True)
    kinds["safetensors, MindSpore's"] = folder / "crc.safetensors", True
    safetensors.torch.save_file(state, folder / "plain.safetensors")
    kinds["safetensors, no checksum"] = folder / "plain.safetensors", False
    torch.save(state, folder / "old.pth", _use_new_zipfile_serialization=False)
    kinds["pth, no checksum"] = folder / "old.pth", False
    return kinds


KINDS = (
    "ckpt",
    "safetensors",
    "pth",
    "ckpt, no checksum",
    "safetensors, MindSpore's",
    "safetensors, no checksum",
    "pth, no checksum",
)


@pytest.mark.parametrize("kind", KINDS)
def test_random_damage_is_reported_or_not_verified(kind, tmp_path):
    """In this process, on purpose: a crash would be one of this test's."""
    net, other = Net(seed=3), Net()
    path, sealed = files_of(net, tmp_path)[kind]
    whole, right, before = path.read_bytes(), bits(net), bits(other)
    assert bool(load_checkpoint(path, other).checksum) == sealed
    assert bits(other) == right
    path.chmod(0o600)
    refused = wrong = 0
    for what, data in damaged(whole):
        other = Net()
        path.write_bytes(data)
        try:
            resumed, error = load_checkpoint(path, other), None
        except CheckpointError as raised:
            resumed, error = None, raised
        if error is not None:
            refused += 1
            assert path.name in str(error), what
            assert bits(other) == before, what
        else:
            # bytes that mean nothing, such as a date in a zip file, may be what was hit
            wrong += bits(other) != right
            assert not resumed.checksum or bits(other) == right, what
    assert refused > RUNS // 2 if sealed else refused
    assert sealed or RUNS < 50 or wrong  # which is why such a file is called not verifiable


class Evil:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("name", ["a.pth", "a.ckpt", "a.safetensors"])
def test_code_in_a_file_is_not_executed(name, tmp_path):
    target = tmp_path / "made by the pickle"
    for save in (
        lambda path: path.write_bytes(pickle.dumps({"fc1.weight": Evil(target)})),
        lambda path: torch.save({"fc1.weight": Evil(target)}, path),
    ):
        save(tmp_path / name)
        with pytest.raises(CheckpointError, match="Nothing of it was executed"):
            load_checkpoint(tmp_path / name, Net())
        assert not target.exists()
    torch.load((tmp_path / name).rename(tmp_path / "b.pth"), weights_only=False)  # no harmless file
    assert target.exists()


def test_random_damage_to_a_malicious_file_executes_nothing(tmp_path):
    target, path = tmp_path / "made by the pickle", tmp_path / "a.pth"
    for zipped in (True, False):
        state = {"fc1.weight": torch.ones(8, 6), "evil": Evil(target)}
        torch.save(state, path, _use_new_zipfile_serialization=zipped)
        for what, data in damaged(path.read_bytes()):
            path.write_bytes(data)
            with pytest.raises(CheckpointError):
                load_checkpoint(path, Net())
            assert not target.exists(), what


def test_damage_is_damage():
    whole = bytes(range(256)) * 3
    first, again = (list(damaged(whole, 40, 7)) for _ in range(2))
    assert first == again
    assert all(data != whole for _, data in first)
    assert first != list(damaged(whole, 40, 8))
    assert {what.split(": ")[1].split()[0] for what, _ in first} == {"bit", "bytes", "cut"}
    assert all(data != b"a" for _, data in damaged(b"a", 100, 1))


# The guard's last good state


def test_the_guard_saves_the_state_from_before_the_fault(tmp_path):
    net = Net()
    optimizer = nn.Adam(net.trainable_params(), 0.01)
    guard = StepGuard(net, optimizer, stop=True, checkpoint=tmp_path / "good.ckpt")
    grad_fn = ms.value_and_grad(lambda x, y: CE(net(x), y), None, optimizer.parameters)
    for x, y in BATCHES[:3]:
        loss, grads = grad_fn(x, y)
        optimizer(grads)
        guard.step(loss, grads)
    loss, grads = grad_fn(BATCHES[3][0] * float("inf"), BATCHES[3][1])
    optimizer(grads)
    with pytest.raises(TrainingStopped, match=r"last good state is in .*good\.ckpt") as caught:
        guard.step(loss, grads)
    assert (caught.value.step, caught.value.checkpoint) == (4, tmp_path / "good.ckpt")

    wanted = Net()
    wanted_optimizer = nn.Adam(wanted.trainable_params(), 0.01)
    steps(wanted, wanted_optimizer, range(3))
    assert load_checkpoint(tmp_path / "good.ckpt", net, optimizer).step == 3
    assert bits(net, optimizer) == bits(wanted, wanted_optimizer)


# Interrupted for good


TRAIN = """
import os, signal, sys
import mindspore as ms
import numpy as np
from mindspore import nn, ops
from msnb import TrainLog, load_checkpoint, save_checkpoint
from msnb.checkpoint import boundary
from msnb.data import digits

mode, folder, stop_at, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_seed(1)

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten, self.fc1, self.fc2 = nn.Flatten(), nn.Dense(64, 32), nn.Dense(32, 10)
        self.drop = nn.Dropout(p=0.4)
        self.more = nn.SequentialCell(nn.Dense(32, 32), nn.ReLU(), nn.Dropout(p=0.2))

    def construct(self, x):
        return self.fc2(self.more(self.drop(ops.relu(self.fc1(self.flatten(x))))))

net = Net().set_train()
optimizer = nn.Adam(net.trainable_params(), 0.003)
loss_fn = nn.CrossEntropyLoss()
loader = digits(size=8, batch_size=128, drop_last=True)  # 11 batches in a pass
log = TrainLog(f"{folder}/train.jsonl", every=0)
path = f"{folder}/last.ckpt"

def make_step():
    def forward(x, y):
        logits = net(x)
        return loss_fn(logits, y), logits
    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    def step(x, y):
        (loss, _), grads = grad_fn(x, y)
        optimizer(grads)
        return loss
    return step if mode == "pynative" else ms.jit(step)

step = batch = 0
batches = loader
if os.path.exists(path):
    resumed = load_checkpoint(path, net, optimizer, loader=loader, log=log)
    step, batch = resumed.step, resumed.batch
    batches = resumed.rest(loader)
    if how != "no boundary":
        boundary(7, step, net)
else:
    boundary(7, 0, net)
train_step = make_step()
while step < 25:
    for x, y in batches:
        x = x + float(np.random.standard_normal()) * 0.01
        loss = train_step(x, y)
        step, batch = step + 1, batch + 1
        log.step(loss=loss)
        if step % 4 == 0:
            save_checkpoint(
                path, net, optimizer, step=step, batch=batch, loader=loader, log=log
            )
            boundary(7, step, net)
            train_step = make_step()
        if step == stop_at:
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGINT)
        if step == 25:
            break
    batches, batch = loader, 0
np.savez(f"{folder}/end.npz", *[p.asnumpy() for p in net.get_parameters()])
"""


def train(mode, folder, stop_at=0, how="-"):
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"  # ms.jit compiles what is in a file only
    script.write_text(TRAIN, encoding="utf-8")
    return subprocess.run(
        [sys.executable, script, mode, folder, str(stop_at), how],
        timeout=280,
        capture_output=True,
        text=True,
    )


def end(folder):
    with np.load(folder / "end.npz") as arrays:
        return [arrays[name].tobytes() for name in arrays.files]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pynative", "jit", "graph"])
def test_killed_and_interrupted_it_ends_in_the_same_weights(mode, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts 目录"
    done = train(mode, whole)
    assert done.returncode == 0, done.stderr
    assert train(mode, parts, 14, "kill").returncode == -signal.SIGKILL
    interrupted = train(mode, parts, 22, "interrupt")
    # With a mindspore.dataset pipeline open, MindSpore turns Ctrl-C into SIGTERM.
    assert interrupted.returncode == -signal.SIGTERM or "KeyboardInterrupt" in interrupted.stderr
    done = train(mode, parts)
    assert done.returncode == 0, done.stderr
    assert end(parts) == end(whole)
    logs = [(folder / "train.jsonl").read_text().splitlines() for folder in (whole, parts)]
    lines = [[json.loads(line) for line in log] for log in logs]
    assert [line["step"] for line in lines[1]] == list(range(1, 26))
    assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]
    assert len({line["run"] for line in lines[1]}) == 1


@pytest.mark.slow
def test_without_the_boundary_it_would_not(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train("pynative", whole).returncode == 0
    assert train("pynative", parts, 14, "kill").returncode == -signal.SIGKILL
    assert train("pynative", parts, 0, "no boundary").returncode == 0
    assert end(parts) != end(whole)


def test_a_boundary_repeats_dropout():
    net = nn.SequentialCell(nn.Dropout(p=0.5), nn.SequentialCell(nn.Dropout(0.7))).set_train()
    x = Tensor(np.ones((20, 20), np.float32))
    masks = []
    for step in (3, 3, 4):
        boundary(7, step, net)
        masks.append([net(x).asnumpy().copy() for _ in range(2)])
    assert (masks[0][0] == masks[1][0]).all()
    assert (masks[0][1] == masks[1][1]).all()
    assert (masks[0][0] != masks[0][1]).any()
    assert (masks[0][0] != masks[2][0]).any()
    assert net[0].p == 0.5
    assert net[1][0].keep_prob == 0.7  # positional: kept, not dropped


# Bad input


def test_bad_arguments_are_refused(tmp_path):
    net = Net()
    path = tmp_path / "a.ckpt"
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    for arguments, keywords, message in (
        ((3, net), {}, r"a checkpoint needs a path such as 'runs/last\.ckpt', not int 3"),
        ((net, path), {}, r"not \w+ \S.*; the path comes first, then the net"),
        ((tmp_path / "a.bin", net), {}, r"a\.bin"),
        ((path, None), {}, r"net is a mindspore nn\.Cell, not NoneType None"),
        ((path, net, net), {}, r"optimizer is a MindSpore optimizer or None, not Net"),
        ((path, net), {"loader": [1, 2]}, r"loader is one of msnb\.data's.*not list \[1, 2\]"),
        ((path, net), {"log": "train.jsonl"}, r"log is an msnb\.TrainLog, not str"),
    ):
        for function in (save_checkpoint, load_checkpoint):
            with pytest.raises((TypeError, ValueError, FileNotFoundError), match=message):
                function(*arguments, **keywords)
    for keywords, message in (
        ({"step": -1}, r"step is (a whole number, )?0 or more, not -1"),
        ({"step": 1.5}, r"step is a whole number,.* not 1\.5"),
        ({"extra": {"a": net}}, "extra holds what JSON cannot"),
        ({"scaler": 2}, "scaler is a mindspore.amp.DynamicLossScaler, not int 2"),
        ({"batch": 9, "loader": digits(size=8, batch_size=400)}, "a pass over loader has 4 batche"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            save_checkpoint(path, net, optimizer, **keywords)
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        load_checkpoint(path, net)
    (tmp_path / "folder.ckpt").mkdir()
    with pytest.raises(CheckpointError, match="is a folder"):
        load_checkpoint(tmp_path / "folder.ckpt", net)
    with pytest.raises(IsADirectoryError, match="is a folder; name a file in it"):
        save_checkpoint(tmp_path / "folder.ckpt", net)
    save_checkpoint(path, net)
    with pytest.raises(CheckpointError, match=r"without a scaler.*scaler=scaler\)"):
        load_checkpoint(path, net, scaler=amp.DynamicLossScaler(2.0, 2, 2))
    with pytest.raises(ValueError, match=r"0 is a Dropout2d, whose random numbers no seed"):
        boundary(1, 1, nn.SequentialCell(nn.Dropout2d(p=0.5)))
    with pytest.raises(TypeError, match=r"net is a mindspore nn\.Cell, not int 3"):
        boundary(1, 1, 3)
