"""Inputs that a test seldom has: empty, zero, tiny, large, NaN, infinite, a negative index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from msnb.parity.arrays import to_numpy
from msnb.parity.calls import Argument, dtype, is_real, leaves
from msnb.parity.limits import EPS
from msnb.report import Check

_Array = np.ndarray[Any, Any]

SCAN, SCAN_SIZE = 12.0, 4096


def extreme_arguments(args: list[Argument]) -> Iterator[tuple[str, list[Argument]]]:
    """Name and arguments of each extreme that these arguments can be turned into."""

    def changed(change: Callable[[_Array], _Array]) -> list[Argument]:
        with np.errstate(all="ignore"):
            return [arg.with_value(change(arg.value)) if arg.is_float else arg for arg in args]

    if batch_length(args):
        yield "empty", _batches(args, lambda array: array[:0])
    yield "zero", changed(np.zeros_like)
    yield "tiny", changed(lambda a: a * 1e-6)
    yield "large", changed(lambda a: a * 1e3)
    yield "NaN", changed(_planted(np.nan))
    yield "infinite", changed(_planted(np.inf, -np.inf))


def negative_index(args: list[Argument]) -> Iterator[tuple[str, list[Argument]]]:
    """The arguments with -1 in the indices, where one argument can be such."""
    able = [i for i, arg in enumerate(args) if arg.is_integer and arg.value.size]
    if len(able) == 1 and args[able[0]].value.min() >= 0:
        i = able[0]
        index = args[i].with_value(_planted(-1)(args[i].value))
        yield "negative index", [*args[:i], index, *args[i + 1 :]]


def _planted(*values: float) -> Callable[[_Array], _Array]:
    def plant(array: _Array) -> _Array:
        array = array.copy()
        array.reshape(-1)[: len(values)] = values[: array.size]
        return array

    return plant


def scan_arguments(args: list[Argument], accepts: Callable[[list[Argument]], bool]) -> Any:
    """The arguments with many values from -12 to 12 in the floating ones, longer if accepted."""
    longest = max(arg.value.size for arg in args if arg.is_float)
    if not longest:
        return None
    if batch_length(args) and longest < SCAN_SIZE:
        times = -(-SCAN_SIZE // longest)
        longer = _batches(args, lambda array: np.repeat(array, times, axis=0))
        if accepts(longer):
            args = longer
    spread = np.linspace(-SCAN, SCAN, max(arg.value.size for arg in args if arg.is_float))
    return [
        arg.with_value(np.resize(spread, arg.value.shape)) if arg.is_float else arg for arg in args
    ]


def batch_length(args: list[Argument]) -> int:
    """Length of the first floating array's first axis, 0 where it has none."""
    shapes = [arg.value.shape for arg in args if arg.is_float]
    return int(shapes[0][0]) if shapes and shapes[0] else 0


def _batches(args: list[Argument], change: Callable[[_Array], _Array]) -> list[Argument]:
    """The arrays that are as long as the first one, changed."""
    length = batch_length(args)
    return [
        arg.with_value(change(arg.value)) if arg.dtype and arg.value.shape[:1] == (length,) else arg
        for arg in args
    ]


def stretch(check: Check, args: list[Argument], torch: Any, ours: Any) -> Check:
    """The same Check, saying for which arguments an elementwise function differs."""
    if check.status != "failed" or len(args) != 1 or not (is_real(torch) and is_real(ours)):
        return check
    at, want, got = args[0].value, to_numpy(torch)[0], to_numpy(ours)[0]
    if not at.shape == want.shape == got.shape or "limit" not in check.metrics:
        return check
    with np.errstate(all="ignore"):
        off = at[np.abs(got.astype(np.float64) - want) > check.metrics["limit"]]
    if not off.size:
        return check
    size = "|argument|" if off.min() < 0 < off.max() else "argument"
    off = np.abs(off) if size == "|argument|" else off
    where = f"for {size} from {off.min():.3g} to {off.max():.3g}"
    return replace(check, found=f"{where}; {check.found}" if check.found else where)


def hidden(row: str, check: Check) -> Check:
    """NaN and Inf in the input end up elsewhere: what to do is not what an overflow needs."""
    return replace(
        check,
        id=row,
        remedy="do not rely on NaN or Inf travelling through this operator: test its input, "
        "ops.isfinite(x).all()",
    )


def out_of_range(exact: Any, ours: Any) -> Iterator[Check]:
    """A value beyond a bound where the float64 function saturates, such as a tanh above 1."""
    for truth, value in zip(leaves(exact), leaves(ours), strict=False):
        if not is_real(truth) or not is_real(value):
            continue
        true, got = to_numpy(truth)[0], to_numpy(value)[0].astype(np.float64)
        if true.size < 100 or true.shape != got.shape or not np.isfinite(true).all():
            continue
        slack = 2 * EPS[dtype(value)] * np.abs(true).max()
        for name, bound, beyond in (
            ("above", true.max(), float(got.max() - true.max())),
            ("below", true.min(), float(true.min() - got.min())),
        ):
            # it saturates where many inputs that are not equal come this near to the bound
            flat = np.mean(np.abs(true - bound) <= slack) >= 0.1
            if flat and np.ptp(true) > slack and beyond > slack:
                yield Check(
                    f"range {name}",
                    "failed",
                    f"MindSpore goes {beyond:.3g} {name} {bound:.6g}, which the function "
                    "never passes",
                    expected=f"none {name} {bound:.6g}: a later log or acos gives NaN",
                    remedy=f"clip the result: ops.clamp(y, {true.min():.6g}, {true.max():.6g})",
                    metrics={"beyond": beyond},
                )
