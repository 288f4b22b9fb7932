"""No false alarm on operators that agree; a small error in any of them is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from agreeing import AGREE, FAST, KNOWN
from mindspore import ops

from msnb.parity import probe
from msnb.parity.limits import limit

NAMES = [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in AGREE]
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in AGREE]


def bad_rows(report: Any) -> set[str]:
    return {check.id for check in report if check.status in ("failed", "error")}


@pytest.mark.parametrize("name", NAMES)
def test_no_false_alarm_in_values_gradients_and_extremes(name: str) -> None:
    op = AGREE[name]
    inputs = op.inputs(np.random.default_rng(0), 1.0)
    report = probe(op.torch, op.mindspore, inputs, modes=("pynative",))
    known = {row for row in KNOWN.get(name, {}) if not row.startswith("result")}
    assert bad_rows(report) == known, report


@pytest.mark.parametrize("name", NAMES)
def test_no_false_alarm_at_other_scales_and_seeds(name: str) -> None:
    op = AGREE[name]
    for seed, scale in enumerate((1e-3, 1e-2, 30.0, 1e3), start=1):
        inputs = op.inputs(np.random.default_rng(seed), scale)
        report = probe(op.torch, op.mindspore, inputs, modes=("pynative",), extremes=False)
        known = {row for row in KNOWN.get(name, {}) if row.startswith("result")}
        assert bad_rows(report) <= known, (scale, report)


@pytest.mark.parametrize("name", SLOW)
def test_no_false_alarm_when_compiled(name: str) -> None:
    op = AGREE[name]
    inputs = op.inputs(np.random.default_rng(0), 1.0)
    for mode in ("jit", "graph"):
        report = probe(op.torch, op.mindspore, inputs, modes=(mode,), extremes=False)
        assert not bad_rows(report), report


def test_the_table_is_large_enough_and_its_exceptions_are_alive() -> None:
    assert len(AGREE) >= 60
    assert set(KNOWN) <= set(AGREE)
    assert set(FAST) <= set(AGREE)


@pytest.mark.parametrize(
    "terms",
    [10, 100_000, *(pytest.param(n, marks=pytest.mark.slow) for n in (100, 1000, 10_000))],
)
def test_no_false_alarm_on_sums(terms: int) -> None:
    rng = np.random.default_rng(terms)
    for offset in (0.0, 0.5):  # terms that cancel, and terms that do not
        a = (rng.standard_normal((3, terms)) + offset).astype(np.float32)
        b = (rng.standard_normal((terms, 2)) + offset).astype(np.float32)
        for torch_fn, ms_fn, inputs in (
            (lambda x: x.sum(1), lambda x: ops.sum(x, 1), [a]),
            (lambda x: x.mean(1), lambda x: ops.mean(x, 1), [a]),
            (torch.matmul, ops.matmul, [a, b]),
        ):
            report = probe(torch_fn, ms_fn, inputs, modes=("pynative",), extremes=False)
            assert report.ok, report


def smallest_found(name: str, kind: str) -> tuple[float, float]:
    """The smallest relative error in the output that a probe finds, and the float32 limit."""
    op = AGREE[name]
    inputs = op.inputs(np.random.default_rng(0), 1.0)
    out = op.mindspore(*[_tensor(value) for value in inputs]).asnumpy()
    mask = np.ones_like(out)
    if kind == "one element":
        mask = np.zeros_like(out)
        mask.reshape(-1)[np.abs(out).argmax()] = 1

    def found(error: float) -> bool:
        factor = _tensor((1 + error * mask).astype(np.float32))
        report = probe(
            op.torch,
            lambda *args: op.mindspore(*args) * factor,
            inputs,
            modes=("pynative",),
            grads=False,
            extremes=False,
        )
        return bool(bad_rows(report))

    unit = float(limit("float32", op.terms))
    assert not found(0.0)
    low, high = unit / 30, 30 * unit
    if not found(high):
        return float("inf"), unit
    while high / low > 1.2:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if found(middle) else (middle, high)
    return high, unit


def _tensor(value: Any) -> Any:
    import mindspore as ms

    return ms.Tensor(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(
    "names",
    [["exp", "conv2d"], pytest.param(list(AGREE), marks=pytest.mark.slow)],
    ids=("few", "all"),
)
def test_a_small_error_is_found(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    lines, blind = [], []
    for name in names:
        cells = []
        for kind in ("all elements", "one element"):
            error, unit = smallest_found(name, kind)
            cells.append(f"{error:.1e} ({error / unit:4.1f})")
            if not error <= 30 * unit:
                blind.append(f"{name}, {kind}: {error:.2g} of {unit:.2g}")
        lines.append(f"{name:22s} {unit:.1e}  {cells[0]}  {cells[1]}")
    with capsys.disabled():
        print("\nsmallest error found, relative (in float32 limits): limit, all, one element")
        print("\n".join(lines))
    assert not blind
