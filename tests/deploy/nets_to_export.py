"""Small nets for the tests of export, and the exported files that several tests share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "parity"))

INPUTS = {"vae": 2, "transformer": 2, "bag": 2}  # of the twins that take more than one


class Small(nn.Cell):
    """Convolution, BatchNorm, Dropout: what behaves differently in training."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.conv = nn.Conv2d(1, 2, 3, pad_mode="pad", padding=1, has_bias=True)
        self.norm = nn.BatchNorm2d(2)
        self.drop = nn.Dropout(p=0.5)
        self.flatten = nn.Flatten()  # x.reshape(x.shape[0], -1) builds the number of rows in
        self.fc = nn.Dense(2 * 4 * 4, 3)
        for value in self.get_parameters():
            value.set_data(ms.Tensor(rng.normal(size=value.shape).astype(np.float32)))
        self.norm.moving_variance.set_data(ms.Tensor(np.float32([1.5, 0.5])))
        self.scale = 1.0

    def construct(self, x: Any) -> Any:
        y = self.drop(ops.relu(self.norm(self.conv(x))))
        return self.fc(self.flatten(y)) * self.scale


def images(rows: int = 4, seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(rows, 1, 4, 4)).astype(np.float32)


def expected(net: Small, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What ``Small`` gives in inference mode, in float64, by hand."""
    w = {p.name: p.asnumpy().astype(np.float64) for p in net.get_parameters()}
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros((len(x), 2, 4, 4))
    for i in range(3):
        for j in range(3):
            patch = padded[:, 0, i : i + 4, j : j + 4]
            y += w["conv.weight"][None, :, 0, i, j, None, None] * patch[:, None]
    y += w["conv.bias"][None, :, None, None]
    mean, variance = (w[f"norm.moving_{n}"][None, :, None, None] for n in ("mean", "variance"))
    gamma, beta = (w[f"norm.{n}"][None, :, None, None] for n in ("gamma", "beta"))
    y = np.maximum(gamma * (y - mean) / np.sqrt(variance + 1e-5) + beta, 0)
    return (y.reshape(len(x), -1) @ w["fc.weight"].T + w["fc.bias"]) * net.scale
