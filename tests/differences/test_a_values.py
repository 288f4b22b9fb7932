"""The formulas behind the claims on resizing and tanh, against hand-worked values and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from msnb.differences.activation import tanh_by_fraction
from msnb.differences.resize import cubic_weights, linear_weights


def test_linear_weights_start_from_the_corner() -> None:
    # 2 -> 4: sources 0, 0.5, 1, 1.5; the last lies beyond the second pixel, which is repeated
    assert linear_weights(2, 4).tolist() == [[1, 0], [0.5, 0.5], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("a", "halfway"),
    [(-0.75, [-0.09375, 0.59375]), (-0.5, [-0.0625, 0.5625])],
)
def test_cubic_weights_halfway_between_two_pixels(a: float, halfway: list[float]) -> None:
    # W(0.5) = (a + 2) / 8 - (a + 3) / 4 + 1;  W(1.5) = a (3.375 - 11.25 + 12 - 4) = a / 8
    outer, inner = halfway
    assert (outer, inner) == (a / 8, (a + 2) / 8 - (a + 3) / 4 + 1)
    # 4 -> 7 with aligned corners: output 3 lies halfway between pixels 1 and 2
    row = cubic_weights(4, 7, a=a, align_corners=True, normalised=False)[3]
    np.testing.assert_allclose(row, [outer, inner, inner, outer], rtol=1e-14)


def test_cubic_weights_at_the_border_dropped_or_repeated() -> None:
    # 4 -> 8: output 0 has its source at -0.25, three quarters from pixel -1 to pixel 0
    a, t = -0.5, 0.75
    far = a * ((1 + t) ** 3 - 5 * (1 + t) ** 2 + 8 * (1 + t) - 4)  # pixel -2
    left = (a + 2) * t**3 - (a + 3) * t**2 + 1  # pixel -1
    here = (a + 2) * (1 - t) ** 3 - (a + 3) * (1 - t) ** 2 + 1  # pixel 0
    right = a * ((2 - t) ** 3 - 5 * (2 - t) ** 2 + 8 * (2 - t) - 4)  # pixel 1
    repeated = cubic_weights(4, 8, a=a, align_corners=False, normalised=False)[0]
    np.testing.assert_allclose(repeated, [far + left + here, right, 0, 0], atol=1e-14)
    dropped = cubic_weights(4, 8, a=a, align_corners=False, normalised=True)[0]
    np.testing.assert_allclose(dropped, np.array([here, right, 0, 0]) / (here + right), atol=1e-14)


@pytest.mark.parametrize("align_corners", [False, True])
def test_cubic_weights_with_fine_steps_are_pytorch_s(align_corners: bool) -> None:
    x = np.random.default_rng(0).normal(size=(1, 1, 1, 7))
    weights = cubic_weights(
        7, 11, a=-0.75, align_corners=align_corners, normalised=False, steps=2**40
    )
    right = F.interpolate(
        torch.tensor(x), size=(1, 11), mode="bicubic", align_corners=align_corners
    )
    np.testing.assert_allclose(weights @ x[0, 0, 0], right[0, 0, 0].numpy(), atol=1e-9)


def test_cubic_weights_round_positions_to_a_table() -> None:
    # 5 -> 10, aligned: output 1 lies at 4 / 9 = 455.1 / 1024, rounded to 455 / 1024
    rounded = cubic_weights(5, 10, a=-0.75, align_corners=True, normalised=False)[1]
    t = 455 / 1024
    assert rounded[1] == pytest.approx(1.25 * (1 - t) ** 3 - 2.25 * (1 - t) ** 2 + 1, abs=1e-14)
    exact = cubic_weights(5, 10, a=-0.75, align_corners=True, normalised=False, steps=2**40)[1]
    assert 1e-5 < abs(rounded[1] - exact[1]) < 1e-3


def test_tanh_by_fraction() -> None:
    # at x = 5, s = 25, by hand: (((25 + 378) 25 + 17325) 25 + 135135) 5 = 820135 * 5 = 4100675
    # and ((28 * 25 + 3150) 25 + 62370) 25 + 135135 = 158620 * 25 + 135135 = 4100635
    assert tanh_by_fraction(np.array([5.0]))[0] == 4100675 / 4100635
    assert tanh_by_fraction(np.array([-5.1, 0, 5.1])).tolist() == [-1, 0, 1]
    small = np.linspace(-1, 1, 21)
    np.testing.assert_allclose(tanh_by_fraction(small), np.tanh(small), atol=1e-9)
