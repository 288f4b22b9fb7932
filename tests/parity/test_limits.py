"""The limit: no alarm for a correct float32 computation, and small errors found all the same.

The right values are float64 NumPy; the computations under judgement are float32 NumPy in several
orders of summation.
"""

from __future__ import annotations

import numpy as np
import pytest

from msnb.parity import compare
from msnb.parity.limits import coarser, estimate, limit, magnitude

EPS = 2.0**-23
SCALES = (1e-3, 1.0, 1e3)
LENGTHS = (10, 100, 3456, 100_000)


def f32(x):
    return np.asarray(x, dtype=np.float32)


def one_by_one(x):
    return np.cumsum(x, axis=-1, dtype=np.float32)[..., -1]


def backwards(x):
    return one_by_one(x[..., ::-1])


def lanes(x, width=8):
    """Eight partial sums, as a vectorised loop keeps them."""
    usable = x.shape[-1] // width * width
    parts = x[..., :usable].reshape(*x.shape[:-1], -1, width)
    parts = np.cumsum(parts, axis=-2, dtype=np.float32)[..., -1, :]
    return one_by_one(np.concatenate([parts, x[..., usable:]], axis=-1))


def pairwise(x):
    return x.sum(-1, dtype=np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + type_eps(x))


def type_eps(x):
    return np.asarray(1e-5, dtype=x.dtype)


# name -> (float32 computation, float64 computation, from x of shape (rows, n) to the result)
OPERATORS = {
    "sum, one by one": (one_by_one, lambda x: x.sum(-1)),
    "sum, backwards": (backwards, lambda x: x.sum(-1)),
    "sum, in lanes": (lanes, lambda x: x.sum(-1)),
    "sum, pairwise": (pairwise, lambda x: x.sum(-1)),
    "mean": (lambda x: one_by_one(x) / np.float32(x.shape[-1]), lambda x: x.mean(-1)),
    "square sum": (lambda x: one_by_one(x * x), lambda x: (x * x).sum(-1)),
    "norm": (lambda x: np.sqrt(one_by_one(x * x)), lambda x: np.sqrt((x * x).sum(-1))),
    "matmul": (lambda x: x @ x.T, lambda x: x @ x.T),
    "softmax": (softmax, softmax),
    "layer norm": (layer_norm, layer_norm),
    "variance": (lambda x: x.var(-1), lambda x: x.var(-1)),
    "log-sum-exp": (
        lambda x: x.max(-1) + np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1)),
        lambda x: x.max(-1) + np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1)),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("scale", SCALES)
def test_no_alarm_for_a_correct_float32_computation(name, scale):
    ours, right = OPERATORS[name]
    for seed, n in enumerate(LENGTHS):
        rng = np.random.default_rng(seed)
        for draw in (rng.standard_normal, rng.random):
            x = f32(draw((24, n)) * scale)
            for reduction in (n, None):
                report = compare(ours(x), f32(right(x.astype(np.float64))), reduction=reduction)
                assert report.ok, f"n={n}, {draw.__name__}, reduction={reduction}\n{report}"


def test_no_alarm_between_two_orders_of_summation():
    for n in LENGTHS:
        x = f32(np.random.default_rng(n).standard_normal((200, n // 50 + 10)))
        assert compare(one_by_one(x), lanes(x), reduction=x.shape[1]).ok
        assert compare(one_by_one(x), backwards(x)).ok


def test_cancelling_sums_need_and_have_a_scale():
    rng = np.random.default_rng(0)
    half = f32(rng.standard_normal((64, 500)) * 1e3)
    x = np.concatenate([half, -half[:, ::-1]], axis=1) + f32(rng.standard_normal((64, 1000)))
    exact = x.astype(np.float64)
    right, ours = exact.sum(1), one_by_one(x)
    assert not compare(ours, f32(right), reduction=1000).ok  # judged by the small results
    for bound in (np.sqrt((exact**2).sum(1)), np.abs(exact).sum(1), np.abs(exact).sum(1).max()):
        assert compare(ours, f32(right), reduction=1000, scale=bound).ok
    wrong = ours + 30.0  # 0.1 % of the square root of the sum of squares
    report = compare(wrong, f32(right), reduction=1000, scale=np.sqrt((exact**2).sum(1)))
    assert report["values"].metrics["off"] == 64


def test_one_cancelling_element_is_judged_by_its_neighbours():
    x = f32(np.random.default_rng(1).standard_normal((50, 400)))
    x[0, 200:] = -x[0, :200]  # its sum is zero, in exact arithmetic
    right = f32(x.astype(np.float64).sum(1))
    report = compare(one_by_one(x), right, reduction=400)
    assert report.ok
    assert right[0] == 0


@pytest.mark.parametrize("name", OPERATORS)
def test_sensitivity_is_at_most_thirty_times_the_float32_limit(name):
    """The smallest relative error found, planted in all elements and in one of typical size.

    The float32 limit is sqrt(n) eps, what roundings of n terms amount to (eps for one).
    """
    ours, right = OPERATORS[name]
    rows = []
    for n in (10, 1000):
        x = f32(np.random.default_rng(3).standard_normal((64, n)))
        good, truth = ours(x), f32(right(x.astype(np.float64)))
        typical = int(np.argsort(np.abs(truth).ravel())[int(0.75 * truth.size)])
        for reduction in (n, None):
            for place in ("all", "one"):
                for units in (1, 2, 4, 8, 12, 16, 20, 25, 30, 60, 100, 200, 1000):
                    size = units * EPS * np.sqrt(n)
                    wrong = good.astype(np.float64)
                    if place == "all":
                        wrong *= 1 + size
                    else:
                        wrong.flat[typical] *= 1 + size
                    if not compare(f32(wrong), truth, reduction=reduction).ok:
                        break
                rows.append((n, reduction, place, units))
    table = "\n".join(f"{name:20} n={n:<6} given {r!s:5} {p:4} {u}" for n, r, p, u in rows)
    print(table)
    assert max(row[-1] for row in rows) <= 30, table


def test_sensitivity_of_elementwise_operators():
    """Nothing is summed: 30 eps are found, in all elements and in one of the array's size."""
    x = f32(np.random.default_rng(4).standard_normal(4000))
    for operator in (np.exp, np.tanh, np.square, np.negative):
        good, truth = operator(x), f32(operator(x.astype(np.float64)))
        one = good.astype(np.float64)
        large = np.flatnonzero(np.abs(truth) >= magnitude(truth, truth))[0]
        one[large] *= 1 + 30 * EPS
        for reduction in (1, None):
            assert compare(good, truth, reduction=reduction).ok
            assert not compare(f32(one), truth, reduction=reduction).ok
            assert not compare(good * f32(1 + 30 * EPS), truth, reduction=reduction).ok


def test_worked_numbers_by_hand():
    # 24 + 2 sqrt(3456) = 141.576; times 2**-23
    assert limit("float32", 3456) == pytest.approx(141.5755 * 2**-23, rel=1e-6)
    assert limit("float64", 100) == pytest.approx(44 * 2**-52)
    # half precision: 4 eps of its own, and the walk in float32
    assert limit("float16", 100) == pytest.approx(4 * 2**-10 + 20 * 2**-23)
    assert limit("bfloat16", 1, scale=2.0) == pytest.approx(2 * (4 * 2**-7 + 2 * 2**-23))
    assert limit("int32", 100) == 0


def test_limit_grows_with_the_root_and_refuses_nonsense():
    assert limit("float32", 40_000) < 10 * limit("float32", 100)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="number of terms"):
            limit("float32", wrong)


def test_estimate_reads_the_noise_and_ignores_a_factor():
    rng = np.random.default_rng(0)
    e = rng.standard_normal(5000)
    clean = e * (1 + EPS * rng.uniform(-0.5, 0.5, 5000))
    rms = magnitude(clean, e)
    short = estimate("float32", clean, e, rms)
    noisy = estimate("float32", e + 40 * EPS * rng.standard_normal(5000), e, rms)
    assert short <= 9
    assert 1000 < noisy <= 16_384
    assert estimate("float32", clean * 1.01, e, rms) <= 9  # a wrong factor is no noise
    assert estimate("float32", e + 0.3 * rng.standard_normal(5000), e, rms) == 16_384
    fifth = clean.copy()
    fifth[::5] *= 1 + 200 * EPS
    assert estimate("float32", fifth, e, rms) <= 64  # nor is a fault in every fifth element
    assert not compare(f32(fifth), f32(e)).ok
    assert estimate("float32", clean[:5], e[:5], rms) == 1024
    assert estimate("float16", clean[:5], e[:5], rms) == 16


def test_magnitude_is_not_misled_by_one_wild_value_or_by_zeros():
    e = np.array([3.0, 4.0, 0.0, 0.0])
    assert magnitude(e, e) == pytest.approx((337 / 2) ** 0.25)
    assert magnitude(e * 1e-80, e) == pytest.approx(1e-80 * (337 / 2) ** 0.25)
    wild = np.array([3.0, 4.0, 1e30, np.nan])
    assert magnitude(wild, e) == magnitude(e, wild) == pytest.approx((337 / 2) ** 0.25)
    assert magnitude(np.zeros(3), np.ones(3)) == 0
    huge = np.full(4, 1e200)
    assert magnitude(huge, huge) == pytest.approx(1e200)


def test_coarser():
    assert coarser("float32", "bfloat16") == "bfloat16"
    assert coarser("int32", "int64") == "int32"
