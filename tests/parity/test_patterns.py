"""The pattern of a difference: each kind planted by hand is named, and noise is not.

``SHAPES`` x seeds: no pattern may depend on one lucky input.
"""

from __future__ import annotations

import numpy as np
import pytest

from msnb.parity.patterns import find_patterns

LIMIT = 1e-6
SEEDS = (0, 1)


def image(seed=0, shape=(4, 8, 7, 9)):
    return np.random.default_rng(seed).standard_normal(shape)


def found(a, e, **options):
    return find_patterns(a, e, LIMIT, **options)


def kinds(a, e, **options):
    return [pattern.kind for pattern in found(a, e, **options)]


def text(a, e, **options):
    return "; ".join(pattern.text for pattern in found(a, e, **options))


def remedies(a, e, **options):
    return " ".join(pattern.remedy for pattern in found(a, e, **options))


def with_noise(a, seed=9):
    """Rounding on top, a hundredth to a tenth of the limit."""
    return a + 1e-7 * np.random.default_rng(seed).uniform(-1, 1, a.shape)


# -- transformations ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", [(40,), (6, 10), (4, 8, 7, 9)])
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda e: 4 * e, "factor", "4 times"),
        (lambda e: e / 2, "factor", "0.5 times"),
        (lambda e: -e, "sign", "minus"),
        (lambda e: e + 0.25, "offset", "plus 0.25"),
        (lambda e: 0.3 * e - 2, "affine", "0.3 times expected minus 2"),
        (lambda e: e[::-1], "order", "backwards"),
        (lambda e: np.roll(e, 1, axis=0), "order", "axis 0"),
        (lambda e: 0 * e, "zero", "actual is zero"),
        (lambda e: 0 * e + 1.5, "constant", "1.5 everywhere"),
        (lambda e: np.maximum(e, 0), "clamped", "cut off below 0"),
        (lambda e: np.clip(e, -0.5, 0.5), "clamped", "below -0.5 and above 0.5"),
        (np.trunc, "rounded", "cut off to whole numbers"),
        (np.rint, "rounded", "rounded to whole numbers"),
        (lambda e: e.astype(np.float16).astype(float), "precision", "float16"),
    ],
)
def test_transformations_are_named(change, kind, words, shape, seed):
    e = image(seed, shape)
    assert kinds(change(e), e)[0] == kind
    assert words in text(change(e), e)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: 8 * e, "8 accumulation steps"),
        (lambda e: e / 4, "divided by 4"),
        (lambda e: 2 * e, "2 ranks"),
        (lambda e: 255 * e, "0..255"),
        (lambda e: e / 255, "0..255"),
        (lambda e: e / np.log(2), "base 2"),
        (lambda e: e * 64 / 63, "n = 64"),
        (lambda e: e * np.sqrt(9 / 10), "standard deviation of n = 10"),
        (lambda e: e / np.sqrt(48), "sqrt(48)"),
        (lambda e: e * 1.03, "learning rate"),
        (lambda e: e + 1, "indices that count from 1"),
    ],
)
def test_the_cause_is_read_from_the_number(change, words, seed):
    e = image(seed)
    assert words in remedies(with_noise(change(e)), e)


def test_one_constant_for_each_channel():
    e = image()
    bias = np.linspace(-1, 1, 8).reshape(1, 8, 1, 1)
    assert "one constant for each index of axis 1" in text(e + bias, e)
    assert "bias" in remedies(e + bias, e)
    gamma = np.linspace(0.5, 3, 8).reshape(1, 8, 1, 1)
    assert "one factor for each index of axis 1" in text(e * gamma, e)
    assert "gamma" in remedies(e * gamma, e)
    columns = image(shape=(12, 5))
    signs = np.array([1, -1, 1, -1, -1])
    assert kinds(columns * signs, columns) == ["place", "sign"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: np.roll(e, 2, axis=3), "axis 3 (size 9) is rolled by 2"),
        (lambda e: np.roll(e, -1, axis=2), "axis 2 (size 7) is rolled by -1"),
        (lambda e: e[:, ::-1], "axis 1 (size 8) runs backwards"),
        (lambda e: e[:, [4, 5, 6, 7, 0, 1, 2, 3]], "two halves of axis 1"),
        (lambda e: e[:, [0, 1, 2, 3, 6, 7, 4, 5]], "come in the order [0, 1, 3, 2]"),
        (lambda e: e[:, [0, 5, 2, 1, 4, 3, 6, 7]], "another order: [0, 5, 2, 1, 4, 3, 6, 7]"),
    ],
)
def test_orders_along_an_axis(change, words):
    e = image()
    assert words in text(with_noise(change(e)), e)


def test_transposes_and_layouts():
    square = image(shape=(6, 6))
    assert kinds(square.T, square) == ["transposed"]
    e = image(shape=(3, 4, 5, 6))
    taken = e.transpose(0, 2, 3, 1).reshape(e.shape)  # NHWC read as NCHW
    assert kinds(taken, e) == ["layout"]
    assert "NHWC" in remedies(taken, e)
    flat = image(shape=(4, 6))
    assert kinds(flat.T.reshape(4, 6), flat) == ["layout"]


@pytest.mark.parametrize("step", [1, -1, 2])
def test_a_shift_with_other_values_at_the_edge(step):
    e = image()
    a = np.roll(e, step, axis=3)
    edge = slice(None, step) if step > 0 else slice(step, None)
    a[..., edge] = image(5)[..., edge]
    assert text(a, e) == f"actual is expected moved by {step} along axis 3"
    assert 'pad_mode="same"' in remedies(a, e)


def test_a_shift_of_both_image_axes():
    e = image()
    a = np.zeros_like(e)
    a[..., 1:, 1:] = e[..., :-1, :-1]
    assert text(a, e) == "actual is expected moved by 1 along axis 2 and axis 3"


def test_dropout_is_told_by_its_rate():
    rng = np.random.default_rng(0)
    e = image(shape=(50, 40))
    for p in (0.1, 0.5, 0.9):
        a = np.where(rng.random(e.shape) < p, 0, e / (1 - p))
        assert kinds(a, e) == ["dropout"]
        assert f"p = {p}" in remedies(a, e)


def test_repeated_and_inverted():
    e = image(shape=(5, 6))
    assert "every index of axis 0 (size 5) holds the same" in text(
        np.broadcast_to(e[:1] * 1.7 + 0.1 * image(3, (1, 6)), e.shape), e
    )
    mask = (image(shape=(5, 6)) > 0).astype(float)
    assert kinds(1 - mask, mask, dtype="bool") == ["inverted"]


def test_only_nan_and_inf():
    e = image()
    a = e.copy()
    a[1, 2, 3, 4] = np.nan
    a[1, 2, 3, 5] = np.inf
    (pattern,) = found(a, e)
    assert pattern.kind == "nonfinite"
    assert "1 NaN in actual, 1 Inf in actual" in pattern.text


# -- places ---------------------------------------------------------------------------------------


def planted(region, shape=(4, 8, 7, 9), seed=0):
    """An array that differs from another one in ``region`` only, by noise."""
    e = image(seed, shape)
    a = e.copy()
    a[region] += image(seed + 100, shape)[region]
    return a, e


def border(shape, width=1):
    mask = np.ones(shape, dtype=bool)
    mask[..., width:-width, width:-width] = False
    return mask


def last_row_and_column(shape):
    mask = np.zeros(shape, dtype=bool)
    mask[..., -1, :] = mask[..., -1] = True
    return mask


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("region", "words"),
    [
        (np.s_[..., -1], "only the last index of axis 3 (size 9) differs, the last column"),
        (np.s_[..., 0], "the first column"),
        (np.s_[..., -1, :], "the last row"),
        (np.s_[:, 3], "only index 3 of axis 1 (size 8) differs, one channel"),
        (np.s_[-1], "only the last index of axis 0 (size 4) differs, one sample"),
        (np.s_[:, 4:6], "only block 2 of 4 along axis 1 (4 to 5 of 8) differs"),
        (np.s_[:, 2:5], "only indices 2 to 4 of axis 1 (size 8) differ"),
        (np.s_[:, :, :, 1::3], "every third index of axis 3 (size 9), from 1,"),
        (np.s_[:, [1, 6]], "indices [1, 6] of axis 1"),
        (np.s_[2, 5], "differ only at index 2 of axis 0 (size 4) and index 5 of axis 1"),
        (border((4, 8, 7, 9)), "only the border differs"),
        (border((4, 8, 7, 9), 2), "only the border, 2 wide, differs"),
        (last_row_and_column((4, 8, 7, 9)), "only the last row and column differ"),
    ],
)
def test_places_are_named(region, words, seed):
    a, e = planted(region, seed=seed)
    assert kinds(a, e) == ["place"]
    assert words in text(a, e)


@pytest.mark.parametrize(
    ("gate", "count", "shape", "words"),
    [
        (np.s_[:, 16:24], 4, (5, 32), "i, f, g, o of an LSTM"),
        (np.s_[:, 8:16], 3, (5, 24), "r, z, n of a GRU"),
        (np.s_[8:16], 4, (32, 5), "i, f, g, o of an LSTM"),  # the rows of weight_ih
    ],
)
def test_one_gate(gate, count, shape, words):
    a, e = planted(gate, shape)
    assert f"of {count} along axis" in text(a, e)
    assert words in remedies(a, e)


def test_signs_triangles_and_large_values():
    e = image()
    leaky = np.where(e < 0, 0.2 * e, e), np.where(e < 0, 0.01 * e, e)
    assert text(*leaky) == (
        "only elements where expected is negative differ; there actual is 20 times expected"
    )
    assert "LeakyReLU" in remedies(*leaky)
    upper = np.triu(np.ones((9, 9), dtype=bool), 1)
    a, e = planted(np.broadcast_to(upper, (3, 9, 9)), (3, 9, 9))
    assert "only the upper triangle of axes 1 and 2" in text(a, e)
    assert "causal mask" in remedies(a, e)
    a, e = planted(np.eye(30, dtype=bool), (30, 30))
    assert "only the diagonal" in text(a, e)
    e = image()
    a = np.where(np.abs(e) > 1.5, e + image(4), e)
    assert "in size differ" in text(a, e)


def test_place_and_transformation_together():
    e = image()
    a = e.copy()
    a[:, 3] *= -1
    assert kinds(a, e) == ["place", "sign"]
    a = e.copy()
    a[..., -1] = 0
    assert text(a, e).endswith("the last column; there actual is zero throughout")


def test_a_single_element():
    a, e = planted(np.s_[1, 2, 3, 4])
    assert text(a, e) == "a single element differs, at [1, 2, 3, 4]"


def test_complex_factor_and_offset():
    e = image(shape=(6, 7)) + 1j * image(1, (6, 7))
    assert "0+1j" in text(1j * e, e) or "1j" in text(1j * e, e)
    assert kinds(e + (1 - 2j), e) == ["offset"]
    assert kinds(e.conj(), e) != ["factor"]


def test_integers():
    e = np.random.default_rng(0).integers(0, 50, (20, 5)).astype(float)
    assert [p.kind for p in find_patterns(e + 1, e, 0.0, dtype="int64")] == ["offset"]
    assert [p.kind for p in find_patterns(e[:, ::-1], e, 0.0, dtype="int64")] == ["order"]


def test_names_are_used():
    e = image()
    assert text(3 * e, e, names=("MindSpore", "PyTorch")) == "MindSpore is 3 times PyTorch"


# -- no pattern where there is none ---------------------------------------------------------------


@pytest.mark.parametrize("limit", [1e-9, 1e-2])
@pytest.mark.parametrize("kind", ["added", "unrelated", "sparse", "rare", "relative"])
def test_noise_has_no_pattern(kind, limit):
    claims = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        shape = tuple(rng.integers(2, 9, rng.integers(1, 5)))
        e = rng.standard_normal(shape)
        noise = rng.standard_normal(shape)
        a = {
            "added": e + noise,
            "unrelated": noise,
            "sparse": e + (rng.random(shape) < 0.3) * noise,
            "rare": e + (rng.random(shape) < 0.05) * noise,
            "relative": e * (1 + 0.3 * noise),
        }[kind]
        claims += [
            f"{shape} seed {seed}: {pattern.text}"
            for pattern in find_patterns(a, e, limit)
            if pattern.kind != "element"
        ]
    assert not claims, "\n".join(claims)


def test_noise_has_no_pattern_among_zeros_either():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        e = np.maximum(rng.standard_normal((3, 4, 5, 6)), 0)
        assert find_patterns(e * (1 + 0.3 * rng.standard_normal(e.shape)), e, 1e-9) == []


def test_nothing_off_nothing_found():
    e = image()
    assert found(e, e) == []
    assert found(with_noise(e), e) == []
    assert found(e[:0], e[:0]) == []


def test_many_scattered_rows_of_a_long_axis():
    rows = np.random.default_rng(3).permutation(5000)[:400]
    a, e = planted(np.s_[rows], (5000, 6))
    assert "indices" in text(a, e)
    assert "of axis 0 (size 5000) differ" in text(a, e)
    single, right = planted(np.s_[rows], (5000,))
    assert found(single, right) == []
