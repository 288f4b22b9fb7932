"""Twelve small nets and more, each written in both frameworks, with batch, losses and optimizers.

``make(name, seed, scale)`` returns a Twin with the same weights on both sides. Written twice by
hand: torch in torch's idiom, MindSpore in its own, so that names and nesting differ as in real
ports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops
from mindspore.experimental import optim

import msnb
from msnb.parity.weights import copy_weights

torch.set_num_threads(1)  # tiny tensors: threads only wait for each other on a busy machine


@dataclass
class Twin:
    torch: Any
    mindspore: Any
    batch: tuple[Any, ...]
    loss: tuple[Any, Any]
    optimizer: tuple[Any, Any]

    def check(self, **options: Any) -> msnb.Report:
        from msnb.parity.migration import check_migration

        options = {"loss": self.loss, "optimizer": self.optimizer, **options}
        return check_migration(self.torch, self.mindspore, self.batch, **options)


# Plain


class TorchMLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Linear(16, 8), torch.nn.LeakyReLU()
        )
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.layers(x)))


class MLP(nn.Cell):
    def __init__(self, approximate=False, slope=0.01, epsilon=1e-5):
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Dense(6, 16), nn.GELU(approximate=approximate), nn.Dense(16, 8), nn.LeakyReLU(slope)
        )
        self.norm = nn.LayerNorm((8,), epsilon=epsilon)
        self.head = nn.Dense(8, 3)

    def construct(self, x):
        return self.head(self.norm(self.layers(x)))


class TorchLeNet(torch.nn.Module):
    """Functional calls where MindSpore has layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 3, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(3, 4, 3)
        self.fc1 = torch.nn.Linear(4, 8)
        self.fc2 = torch.nn.Linear(8, 3)
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(self.drop(F.relu(self.fc1(x.flatten(1)))))


class LeNet(nn.Cell):
    def __init__(self, pad=1, pool_stride=2, p=0.1):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 3, 3, pad_mode="pad", padding=pad, has_bias=True)
        self.conv2 = nn.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2, pool_stride)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(4, 8)
        self.fc2 = nn.Dense(8, 3)
        self.drop = nn.Dropout(p=p)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        return self.fc2(self.drop(self.relu(self.fc1(self.flatten(x)))))


class TorchBNCNN(torch.nn.Module):
    """Biases in front of BatchNorm: their true gradient is zero."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, padding=1),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(4, 4, 3, stride=2, padding=1),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
        )
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(torch.flatten(self.features(x), 1))


class BNCNN(nn.Cell):
    def __init__(self, momentum=0.9, eps=1e-5, pad=(1, 1, 1, 1)):
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(2, 4, 3, pad_mode="pad", padding=1, has_bias=True),
            nn.BatchNorm2d(4, momentum=momentum, eps=eps),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(4, 4, 3, stride=2, pad_mode="pad", padding=pad, has_bias=True),
            nn.BatchNorm2d(4, momentum=0.9),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.fc = nn.Dense(4, 3)

    def construct(self, x):
        return self.fc(self.features(x).flatten(start_dim=1))


class TorchBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(4)
        self.conv2 = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(4)
        self.downsample = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 1, stride=2, bias=False), torch.nn.BatchNorm2d(4)
        )
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + self.downsample(x))


class TorchResNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = TorchBlock()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.block(x).mean((2, 3)))


class Block(nn.Cell):
    def __init__(self, pad_mode="pad", eps=1e-5, momentum=0.9):
        super().__init__()
        padding = 1 if pad_mode == "pad" else 0
        self.conv1 = nn.Conv2d(3, 4, 3, stride=2, pad_mode=pad_mode, padding=padding)
        self.bn1 = nn.BatchNorm2d(4, eps=eps)
        self.conv2 = nn.Conv2d(4, 4, 3, pad_mode="pad", padding=1)
        self.bn2 = nn.BatchNorm2d(4, momentum=momentum)
        self.downsample = nn.SequentialCell(
            nn.Conv2d(3, 4, 1, stride=2, pad_mode="valid"), nn.BatchNorm2d(4)
        )
        self.relu = nn.ReLU()

    def construct(self, x):
        identity = self.downsample(x)  # in another order than the original
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + identity)


class ResNet(nn.Cell):
    def __init__(self, **options):
        super().__init__()
        self.block = Block(**options)
        self.fc = nn.Dense(4, 3)

    def construct(self, x):
        return self.fc(self.block(x).mean(axis=(2, 3)))


class TorchDepthwise(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = torch.nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.point = torch.nn.Conv2d(4, 4, 1)
        self.act = torch.nn.ReLU6()
        self.pool = torch.nn.AvgPool2d(2)
        self.head = torch.nn.Linear(64, 3)

    def forward(self, x):
        x = self.act(self.depth(x))
        return self.head(self.pool(self.point(x)).flatten(1))


class Depthwise(nn.Cell):
    def __init__(self, pad=1, act=None, pool_stride=2):
        super().__init__()
        self.depth = nn.Conv2d(4, 4, 3, pad_mode="pad", padding=pad, group=4, has_bias=True)
        self.point = nn.Conv2d(4, 4, 1, has_bias=True)
        self.act = act or nn.ReLU6()
        self.pool = nn.AvgPool2d(2, pool_stride)
        self.head = nn.Dense(64, 3)

    def construct(self, x):
        x = self.act(self.depth(x))
        x = self.pool(self.point(x))
        return self.head(x.reshape(x.shape[0], -1))


class TorchUNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down = torch.nn.Conv2d(1, 3, 3, stride=2, padding=1)
        self.act = torch.nn.LeakyReLU(0.1)
        self.up = torch.nn.ConvTranspose2d(3, 2, 2, stride=2)
        self.last = torch.nn.Conv2d(3, 1, 1)

    def forward(self, x):
        y = self.up(self.act(self.down(x)))
        return self.last(torch.cat([x, y], dim=1))


class UNet(nn.Cell):
    def __init__(self, slope=0.1, pad=1):
        super().__init__()
        self.down = nn.Conv2d(1, 3, 3, stride=2, pad_mode="pad", padding=pad, has_bias=True)
        self.act = nn.LeakyReLU(slope)
        self.up = nn.Conv2dTranspose(3, 2, 2, stride=2, pad_mode="valid", has_bias=True)
        self.last = nn.Conv2d(3, 1, 1, has_bias=True)

    def construct(self, x):
        y = self.up(self.act(self.down(x)))
        return self.last(ops.cat((x, y), axis=1))


# Sequences


class TorchRecurrent(torch.nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = getattr(torch.nn, kind)(4, 5, batch_first=True, **options)
        self.fc = torch.nn.Linear(10 if options.get("bidirectional") else 5, 3)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


class Recurrent(nn.Cell):
    def __init__(self, kind, batch_first=True, first=False, **options):
        super().__init__()
        self.rnn = getattr(nn, kind)(4, 5, batch_first=batch_first, **options)
        self.fc = nn.Dense(10 if options.get("bidirectional") else 5, 3)
        self.first = first

    def construct(self, x):
        out, _ = self.rnn(x)
        return self.fc(out[:, 0] if self.first else out[:, -1])


class TorchAttention(torch.nn.Module):
    """By hand; the bias of the keys is shared by all scores of a softmax: true gradient zero."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.key_bias = torch.nn.Parameter(torch.randn(1))
        self.out = torch.nn.Linear(8, 3)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) / 2.0 + self.key_bias
        y = torch.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c).mean(1))


class Attention(nn.Cell):
    def __init__(self, divisor=2.0, axis=-1):
        super().__init__()
        self.qkv = nn.Dense(8, 24)
        self.key_bias = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)))
        self.out = nn.Dense(8, 3)
        self.softmax = nn.Softmax(axis)
        self.divisor = divisor

    def construct(self, x):
        b, t, c = x.shape
        qkv = self.qkv(x).reshape(b, t, 3, 2, 4).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = ops.matmul(q, k.swapaxes(-2, -1)) / self.divisor + self.key_bias
        y = ops.matmul(self.softmax(scores), v)
        return self.out(y.swapaxes(1, 2).reshape(b, t, c).mean(axis=1))


class TorchTransformer(torch.nn.Module):
    def __init__(self, padding_idx=None):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8, padding_idx=padding_idx)
        self.position = torch.nn.Parameter(torch.randn(5, 8))
        self.layer = torch.nn.TransformerEncoderLayer(
            8, 2, dim_feedforward=16, dropout=0.1, batch_first=True
        )
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x, scale):
        y = self.embed(x) * scale + self.position
        return self.head(self.layer(y).mean(1))


class Transformer(nn.Cell):
    def __init__(self, eps=1e-5, activation="relu", heads=2, padding_idx=None):
        super().__init__()
        self.embed = nn.Embedding(11, 8, padding_idx=padding_idx)
        self.position = ms.Parameter(ms.Tensor(np.zeros((5, 8), np.float32)))
        self.layer = nn.TransformerEncoderLayer(
            8,
            heads,
            dim_feedforward=16,
            dropout=0.1,
            activation=activation,
            layer_norm_eps=eps,
            batch_first=True,
        )
        self.head = nn.Dense(8, 3)

    def construct(self, x, scale):
        y = self.embed(x) * scale + self.position
        return self.head(self.layer(y).mean(axis=1))


class TorchBag(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(13, 6, mode="mean")
        self.hidden = torch.nn.Linear(6, 6)
        self.fc = torch.nn.Linear(6, 3)

    def forward(self, x, scale):
        return self.fc(F.relu(self.hidden(self.bag(x) * scale)))


class Bag(nn.Cell):
    def __init__(self, divide=True, slope=0.0):
        super().__init__()
        self.bag = nn.Embedding(13, 6)
        self.hidden = nn.Dense(6, 6)
        self.fc = nn.Dense(6, 3)
        self.divide, self.slope = divide, slope

    def construct(self, x, scale):
        y = self.bag(x)
        y = y.mean(axis=1) if self.divide else y.sum(axis=1)
        y = self.hidden(y * scale)
        return self.fc(ops.relu(y) + self.slope * ops.minimum(y, 0 * y))


# Others


class TorchVAE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(6, 8)
        self.mean = torch.nn.Linear(8, 2)
        self.log_variance = torch.nn.Linear(8, 2)
        self.decoder = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.ELU(), torch.nn.Linear(8, 6)
        )

    def forward(self, x, noise):
        h = F.relu(self.encoder(x))
        mean, log_variance = self.mean(h), 0.1 * torch.sigmoid(self.log_variance(h))
        return self.decoder(mean + noise * torch.exp(0.5 * log_variance)), mean, log_variance


class VAE(nn.Cell):
    def __init__(self, half=0.5, alpha=1.0):
        super().__init__()
        self.encoder = nn.Dense(6, 8, activation="relu")
        self.mean = nn.Dense(8, 2)
        self.log_variance = nn.Dense(8, 2)
        self.decoder = nn.SequentialCell(nn.Dense(2, 8), nn.ELU(alpha), nn.Dense(8, 6))
        self.half = half

    def construct(self, x, noise):
        h = self.encoder(x)
        mean, log_variance = self.mean(h), 0.1 * ops.sigmoid(self.log_variance(h))
        return self.decoder(mean + noise * ops.exp(self.half * log_variance)), mean, log_variance


def torch_elbo(output, x):
    y, mean, log_variance = output
    kl = -0.5 * torch.mean(1 + log_variance - mean**2 - torch.exp(log_variance))
    return F.mse_loss(y, x) + kl


def ms_elbo(output, x):
    y, mean, log_variance = output
    kl = -0.5 * ops.mean(1 + log_variance - mean**2 - ops.exp(log_variance))
    return ops.mse_loss(y, x) + kl


class TorchGroupNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1)
        self.norm = torch.nn.GroupNorm(2, 4)
        self.act = torch.nn.SiLU()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.act(self.norm(self.conv(x))).mean((2, 3)))


class GroupNorm(nn.Cell):
    def __init__(self, eps=1e-5, groups=2, pad=1):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, pad_mode="pad", padding=pad, has_bias=True)
        self.norm = nn.GroupNorm(groups, 4, eps=eps)
        self.act = nn.SiLU()
        self.fc = nn.Dense(4, 3)

    def construct(self, x):
        return self.fc(self.act(self.norm(self.conv(x))).mean(axis=(2, 3)))


# Batches, losses, optimizers


def _images(channels: int, size: int = 8, rows: int = 4) -> Callable[..., tuple[Any, ...]]:
    def batch(rng: np.random.Generator, scale: float) -> tuple[Any, ...]:
        x = rng.standard_normal((rows, channels, size, size)) * scale
        return x.astype(np.float32), rng.integers(0, 3, rows)

    return batch


def _vectors(*shape: int) -> Callable[..., tuple[Any, ...]]:
    def batch(rng: np.random.Generator, scale: float) -> tuple[Any, ...]:
        x = rng.standard_normal((4, *shape)) * scale
        return x.astype(np.float32), rng.integers(0, 3, 4)

    return batch


def _words(count: int) -> Callable[..., tuple[Any, ...]]:
    def batch(rng: np.random.Generator, scale: float) -> tuple[Any, ...]:
        return rng.integers(0, count, (4, 5)), np.float32([scale]), rng.integers(0, 3, 4)

    return batch


def _picture(rng: np.random.Generator, scale: float) -> tuple[Any, ...]:
    x = (rng.standard_normal((2, 1, 8, 8)) * scale).astype(np.float32)
    return x, (0.5 * x).astype(np.float32)


def _noisy(rng: np.random.Generator, scale: float) -> tuple[Any, ...]:
    x = (rng.standard_normal((4, 6)) * scale).astype(np.float32)
    return x, rng.standard_normal((4, 2)).astype(np.float32), x


def cross_entropy() -> tuple[Any, Any]:
    return torch.nn.CrossEntropyLoss(), nn.CrossEntropyLoss()


def mse() -> tuple[Any, Any]:
    return torch.nn.MSELoss(), nn.MSELoss()


def sgd(t: Any, m: Any, lr: float = 0.05, **options: Any) -> tuple[Any, Any]:
    return (
        torch.optim.SGD(t.parameters(), lr, momentum=0.9, weight_decay=1e-3),
        nn.SGD(
            _grouped(m, options.pop("weight_decay", 1e-3)),
            options.pop("learning_rate", lr),
            momentum=options.pop("momentum", 0.9),
            **options,
        ),
    )


def _grouped(m: Any, weight_decay: float) -> list[dict[str, Any]]:
    """In a group, since MindSpore leaves gamma and beta out of the decay otherwise."""
    return [{"params": m.trainable_params(), "weight_decay": weight_decay}]


def adamw(t: Any, m: Any, **options: Any) -> tuple[Any, Any]:
    options = {"lr": 1e-2, "weight_decay": 0.01, **options}
    return (
        torch.optim.AdamW(t.parameters(), 1e-2, weight_decay=0.01),
        optim.AdamW(m.trainable_params(), **options),
    )


def adam(t: Any, m: Any, **options: Any) -> tuple[Any, Any]:
    options = {"lr": 1e-3, "weight_decay": 0.0, **options}
    return torch.optim.Adam(t.parameters(), 1e-3), optim.AdamW(m.trainable_params(), **options)


def momentum(t: Any, m: Any, **options: Any) -> tuple[Any, Any]:
    options = {"learning_rate": 0.02, "momentum": 0.9, **options}
    return (
        torch.optim.SGD(t.parameters(), 0.02, momentum=0.9),
        nn.Momentum(m.trainable_params(), **options),
    )


_Make = Callable[..., Any]
TWINS: dict[str, tuple[_Make, _Make, Any, Any, Any]] = {
    "mlp": (TorchMLP, MLP, _vectors(6), cross_entropy, adamw),
    "lenet": (TorchLeNet, LeNet, _images(1), cross_entropy, sgd),
    "bn_cnn": (TorchBNCNN, BNCNN, _images(2), cross_entropy, adam),
    "resnet": (TorchResNet, ResNet, _images(3), cross_entropy, sgd),
    "depthwise": (TorchDepthwise, Depthwise, _images(4), cross_entropy, momentum),
    "unet": (TorchUNet, UNet, _picture, mse, adamw),
    "lstm": (
        lambda: TorchRecurrent("LSTM", bidirectional=True),
        lambda **o: Recurrent("LSTM", **{"bidirectional": True, **o}),
        _vectors(5, 4),
        cross_entropy,
        adam,
    ),
    "gru": (
        lambda: TorchRecurrent("GRU", num_layers=2),
        lambda **o: Recurrent("GRU", **{"num_layers": 2, **o}),
        _vectors(5, 4),
        cross_entropy,
        sgd,
    ),
    "attention": (TorchAttention, Attention, _vectors(5, 8), cross_entropy, adam),
    "transformer": (TorchTransformer, Transformer, _words(11), cross_entropy, adamw),
    "bag": (TorchBag, Bag, _words(13), cross_entropy, momentum),
    "vae": (TorchVAE, VAE, _noisy, lambda: (torch_elbo, ms_elbo), sgd),
    "group_norm": (TorchGroupNorm, GroupNorm, _images(2), cross_entropy, adamw),
}


def make(
    name: str,
    seed: int = 0,
    scale: float = 1.0,
    *,
    optimizer: Any = None,
    options: dict[str, Any] | None = None,
    loss: Any = None,
    torch_options: dict[str, Any] | None = None,
    **net: Any,
) -> Twin:
    """A twin; ``net`` goes to MindSpore's constructor and ``options`` to its optimizer: faults."""
    build, port, batch, losses, optimizers = TWINS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original = build(**(torch_options or {}))
        with torch.no_grad():  # norms start at one and zero, which hides faults
            for key, value in original.named_parameters():
                if value.ndim == 1 and "bias" not in key:
                    value.add_(0.2 * torch.randn(value.shape))
    ported = port(**net)
    report = copy_weights(original, ported)
    assert report.ok, str(report)
    ported.set_train()
    made = (optimizer or optimizers)(original, ported, **(options or {}))
    rng = np.random.default_rng(seed)
    return Twin(original, ported, batch(rng, scale), (loss or losses)(), made)
