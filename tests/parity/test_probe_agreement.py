"""No false alarm on operators that agree; a small error in any of them is found."""

from __future__ import annotations

from collections.abc import Iterator
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
    while high / low > 1.4:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if found(middle) else (middle, high)
    return high, unit


def _tensor(value: Any) -> Any:
    import mindspore as ms

    return ms.Tensor(value) if isinstance(value, np.ndarray) else value


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    lines = ["", "smallest error found", f"{'':22s} limit    all elements    one element"]
    yield lines
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n".join(lines))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ("exp", "matmul") else pytest.mark.slow) for n in AGREE],
)
def test_a_small_error_is_found(name: str, table: list[str]) -> None:
    found = {kind: smallest_found(name, kind) for kind in ("all elements", "one element")}
    cells = [f"{error:.1e} ({error / unit:4.1f})" for error, unit in found.values()]
    table.append(f"{name:22s} {found['all elements'][1]:.1e}  {cells[0]}  {cells[1]}")
    for error, unit in found.values():
        assert error <= 30 * unit
