"""The formulas behind the claims, against values worked by hand or given by SciPy's definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("mindspore")

from msnb.differences import attention, embedding, indexing, initialiser, loss, recurrent
from msnb.differences.initialiser import law

CANDIDATES = ["uniform -0.1 0.1", "normal 0 0.01", "constant 0"]


@pytest.mark.parametrize("n", [256, 10_000, 60_000])
@pytest.mark.parametrize("seed", range(20))
def test_law_names_the_law_that_was_drawn(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert law(rng.uniform(-0.1, 0.1, n), CANDIDATES) == "uniform -0.1 0.1"
    assert law(rng.normal(0, 0.01, n), CANDIDATES) == "normal 0 0.01"
    assert law(np.zeros(n), CANDIDATES) == "constant 0"


@pytest.mark.parametrize(
    ("drawn", "candidate"),
    [
        # a wrong spread, by 5 %
        (lambda rng, n: rng.normal(0, 0.0105, n), "normal 0 0.01"),
        (lambda rng, n: rng.uniform(-0.105, 0.105, n), "uniform -0.1 0.1"),
        (lambda rng, n: rng.uniform(-0.095, 0.095, n), "uniform -0.1 0.1"),
        # the right spread with another shape: uniform for normal and the other way round
        (lambda rng, n: rng.uniform(-0.01 * 3**0.5, 0.01 * 3**0.5, n), "normal 0 0.01"),
        (lambda rng, n: np.clip(rng.normal(0, 0.1 / 3**0.5, n), -0.1, 0.1), "uniform -0.1 0.1"),
        # a shifted mean
        (lambda rng, n: rng.normal(0.001, 0.01, n), "normal 0 0.01"),
        (lambda rng, n: np.full(n, 1e-3), "constant 0"),
    ],
)
def test_law_refuses_what_is_near_but_wrong(drawn, candidate) -> None:
    found = law(drawn(np.random.default_rng(0), 60_000), [candidate])
    assert found.startswith("mean ")


def test_law_gives_no_name_where_two_candidates_fit() -> None:
    values = np.random.default_rng(0).normal(0, 0.01, 1000)
    assert law(values, ["normal 0 0.01", "normal 0 0.01001"]).startswith("mean ")


def test_cross_entropy_by_hand() -> None:
    # logits ln 1, ln 3: probabilities 1/4 and 3/4
    logits = np.log(np.array([[1.0, 3.0], [1.0, 3.0]]))
    each = loss._cross_entropy(logits, np.array([0, 1]))
    assert each == pytest.approx([math.log(4), math.log(4 / 3)], rel=1e-6)


def test_names_of_parameters_are_translated() -> None:
    assert attention._as_torch("layers.0.dense1.weight") == "layers.0.linear1.weight"
    assert attention._as_torch("norm1.gamma") == "norm1.weight"
    assert attention._as_torch("norm2.beta") == "norm2.bias"


def _gru(x, weights, *, reset_after: bool):
    """The GRU equations in float64; ``reset_after`` puts the reset gate outside the product."""
    h = np.zeros((x.shape[1], 4))
    w, u = weights["weight_ih_l0"].astype(float), weights["weight_hh_l0"].astype(float)
    b, c = weights["bias_ih_l0"].astype(float), weights["bias_hh_l0"].astype(float)
    for step in x.astype(float):
        gates = [slice(0, 4), slice(4, 8), slice(8, 12)]
        r, z = (1 / (1 + np.exp(-(step @ w[g].T + b[g] + h @ u[g].T + c[g]))) for g in gates[:2])
        g = gates[2]
        inner = r * (h @ u[g].T + c[g]) if reset_after else (r * h) @ u[g].T + c[g]
        h = (1 - z) * np.tanh(step @ w[g].T + b[g] + inner) + z * h
    return h


def test_gru_claim_is_the_form_with_the_reset_gate_outside() -> None:
    seen = recurrent.gru_reset_gate.observe()
    layer = recurrent._pair("GRU", 3, 4)[1]
    weights = recurrent._weights(layer)
    final = seen.mindspore[1].asnumpy()[0]
    assert final == pytest.approx(_gru(recurrent._X, weights, reset_after=True), abs=1e-6)
    assert np.abs(final - _gru(recurrent._X, weights, reset_after=False)).max() > 0.01


def test_lookup_norms_by_hand() -> None:
    # row 2 is 7, 8, 9; the kernel takes the norm of 3, 4, 5, which start at position 2
    seen = embedding.lookup_max_norm.observe()
    assert seen.claim[2] == pytest.approx(np.array([7, 8, 9]) / math.sqrt(9 + 16 + 25))
    assert seen.right[2] == pytest.approx(np.array([7, 8, 9]) / math.sqrt(49 + 64 + 81))


def test_one_element_of_binary_cross_entropy_by_hand() -> None:
    seen = loss.bce_of_one_element.observe()
    right = 0.8 * math.log(1 / 0.3) + 0.2 * math.log(1 / 0.7)
    assert float(seen.right) == pytest.approx(right, rel=1e-6)
    assert float(seen.mindspore.asnumpy()) == pytest.approx(2 * right, rel=1e-5)


def test_a_row_fails_when_the_remedy_is_taken_for_the_trap() -> None:
    from dataclasses import replace

    from msnb.differences import verify

    row = indexing.diag_of_a_matrix
    seen = row.observe()
    cured = replace(seen, mindspore=seen.neighbour[1])
    assert not verify(row).problem
    assert "the statement says" in verify(replace(row, observe=lambda: cured)).problem


def test_the_bias_law_of_attention_needs_no_luck() -> None:
    # 256 biases only: 14 / n of the interval as margin
    assert initialiser._uniform(256**-0.5) == "uniform -0.0625 0.0625"
