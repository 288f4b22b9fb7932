"""The NumPy rules behind the claims about optimizers, against steps worked by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from msnb.differences import clipping, gradient, optimizer

Array = np.ndarray[Any, Any]
ONE = np.ones_like(optimizer.START)


def moved(weights: Array) -> Array:
    """How far the weights went from the start, in float64."""
    return optimizer.START.astype(np.float64) - weights


def all_equal(values: Array, expected: float, tolerance: float = 3e-7) -> bool:
    return bool(np.all(np.abs(values - expected) < tolerance))


def test_adam_with_epsilon_before_the_correction() -> None:
    """Gradient 1e-6: m = 1e-7, sqrt(v) = sqrt(1e-15), rate = 0.1 * sqrt(1e-3) / 0.1."""
    step = math.sqrt(1e-3) * 1e-7 / (math.sqrt(1e-15) + 1e-8)  # 0.0760, PyTorch steps 0.0990
    assert step == pytest.approx(0.0759747, rel=1e-5)
    assert all_equal(moved(optimizer.adam_epsilon_hat([1e-6 * ONE])), step, 1e-6)
    assert not all_equal(moved(optimizer.adam_epsilon_hat([1e-6 * ONE], eps=1e-12)), step, 1e-3)


def test_adam_with_nesterov_looks_ahead() -> None:
    """The first step takes 0.9 * 0.1 + 0.1 = 0.19 of the gradient where Adam takes 0.1."""
    assert all_equal(moved(optimizer.adam_epsilon_hat([ONE])), 0.1, 1e-6)
    assert all_equal(moved(optimizer.adam_epsilon_hat([ONE], nesterov=True)), 0.19, 1e-6)


def test_adam_without_correction_steps_three_times_as_far() -> None:
    """m / sqrt(v) = 0.1 / sqrt(0.001) = 3.162; the decay adds 0.1 * 0.5 of the weight."""
    plain = optimizer.adam_without_correction([ONE], weight_decay=0.0)
    assert all_equal(moved(plain), 0.1 * 0.1 / math.sqrt(1e-3), 2e-5)
    decayed = optimizer.adam_without_correction([ONE], weight_decay=0.5)
    assert np.allclose(plain - decayed, 0.05 * optimizer.START, atol=1e-6)


def test_rmsprop_from_one_and_from_zero() -> None:
    """Gradient 2: mean square 0.9 + 0.4 = 1.3 from one, 0.4 from zero."""
    assert all_equal(moved(optimizer.rmsprop([2 * ONE])), 0.2 / math.sqrt(1.3))
    assert all_equal(moved(optimizer.rmsprop([2 * ONE], start=0.0)), 0.2 / math.sqrt(0.4))
    with_epsilon = optimizer.rmsprop([2 * ONE], start=0.0, eps=0.5)
    assert all_equal(moved(with_epsilon), 0.2 / math.sqrt(0.9))


def test_adagrad_two_steps() -> None:
    """Gradients 1 and 1 from 0.1: 0.1 / sqrt(1.1) + 0.1 / sqrt(2.1)."""
    expected = 0.1 / math.sqrt(1.1) + 0.1 / math.sqrt(2.1)
    assert all_equal(moved(optimizer.adagrad([ONE, ONE], start=0.1)), expected)
    tiny = optimizer.adagrad([1e-4 * ONE], start=0.0)
    assert all_equal(moved(tiny), 0.1 / math.sqrt(2))  # epsilon 1e-8 is as large as the square


def test_momentum_two_steps() -> None:
    """Plain: 0.1 + 0.1 * 1.9; Nesterov: 0.1 * 1.9 + 0.1 * (1 + 0.9 * 1.9)."""
    assert all_equal(moved(optimizer.momentum([ONE, ONE], nesterov=False)), 0.29)
    assert all_equal(moved(optimizer.momentum([ONE, ONE], nesterov=True)), 0.461)


def test_gradients_keep_away_from_zero() -> None:
    for grad in optimizer.gradients(1e-3, steps=3):
        assert np.abs(grad).min() >= 0.5e-3
        assert grad.dtype == np.float32


def test_torch_side_takes_every_step() -> None:
    """Plain SGD in the helper: start minus 0.1 times the sum of the gradients."""
    import torch

    grads = optimizer.gradients()
    expected = optimizer.START - 0.1 * np.sum(grads, axis=0)
    seen = optimizer.in_torch(lambda p: torch.optim.SGD(p, lr=0.1), grads)
    assert np.allclose(seen, expected, atol=1e-6)


def test_both_sides_are_differentiated_at_the_same_place() -> None:
    assert gradient.in_torch(lambda x: x**3, [2.0]).tolist() == [12.0]
    assert gradient.in_mindspore(lambda x: x**3, [2.0]).tolist() == [12.0]


def test_norm_of_the_clipped_gradients() -> None:
    """Norm sqrt(9 + 16 + 1 + 4 + 4 + 16) = sqrt(50): 3 becomes 3 / sqrt(50)."""
    first, _ = clipping.in_torch((clipping.FIRST, clipping.SECOND), 1.0)
    assert float(first[0]) == pytest.approx(3 / math.sqrt(50), rel=1e-5)
