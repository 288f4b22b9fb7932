"""Why a result differs: suspicions that are tried out on the two functions before they are named.

Each of them predicts something that can be measured (the input moved by one pixel, every second
element, a larger input, another dtype of a label), and is told only where the prediction holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from msnb.parity.arrays import compare, to_numpy
from msnb.parity.calls import Argument, Raised, dtype, is_real, leaves
from msnb.report import Check

_Array = np.ndarray[Any, Any]
_Call = Callable[[list[Argument]], Any]

_VARIANTS = 24  # other inputs that are tried where a result is too small to show a pattern
_FEW = 16


class Suspects(NamedTuple):
    """The two functions, their arguments, and the callables themselves."""

    torch: _Call
    mindspore: _Call
    args: list[Argument]
    torch_fn: Any
    ms_fn: Any

    def both(self, args: list[Argument]) -> tuple[Any, Any] | None:
        """Both results, None where one side raises.

        MindSpore is not called with what PyTorch refuses: such inputs end the process in some of
        its CPU kernels (binary_cross_entropy of a value above 1).
        """
        torch = self.torch(args)
        if isinstance(torch, Raised):
            return None
        ours = self.mindspore(args)
        return None if isinstance(ours, Raised) else (torch, ours)


def name_cause(check: Check, torch: Any, ours: Any, suspects: Suspects) -> Check:
    """The same Check, with ``found`` and ``remedy`` where a suspicion holds."""
    if isinstance(ours, Raised):
        return _of_exception(check, ours, suspects)
    if isinstance(torch, Raised):
        return _of_missing_exception(check, torch, suspects)
    for suspicion in (
        _stride,
        _shift,
        _divisor,
        _added_constant,
        _cancelled,
        _imprecise,
        _variants,
    ):
        told = suspicion(torch, ours, suspects)
        if told:
            return replace(check, found=told[0], remedy=told[1])
    return check


# Where one side raises


def _of_exception(check: Check, ours: Raised, suspects: Suspects) -> Check:
    if not isinstance(suspects.mindspore(suspects.args), Raised):
        return replace(
            check,
            remedy="it works in pynative and not compiled: rewrite the part that is named, or "
            'try ms.jit(f, capture_mode="bytecode")',
        )
    for i, other in _other_dtypes(suspects.args):
        args = list(suspects.args)
        args[i] = Argument(args[i].value.astype(other), other)
        if not isinstance(suspects.mindspore(args), Raised):
            return replace(
                check,
                remedy=f"MindSpore takes {other} for argument {i}, not {suspects.args[i].dtype}: "
                f"cast it there, x.astype(ms.{other})"
                + ("; PyTorch wants its labels int64" if other == "int32" else ""),
            )
    if any(arg.dtype and not arg.value.size for arg in suspects.args):
        return replace(
            check,
            remedy="MindSpore refuses an empty batch here: drop it before the call, if x.shape[0], "
            "or batch(..., drop_remainder=True)",
        )
    if any(word in ours.message for word in ("unregistered", "only supports Ascend", "on device")):
        return replace(
            check,
            remedy="there is no such operator on this device: take its namesake from "
            "mindspore.ops or mindspore.nn, many of which have one where mint has none",
        )
    return check


def _other_dtypes(args: list[Argument]) -> Iterator[tuple[int, str]]:
    other = {"int64": "int32", "int32": "int64", "float64": "float32", "float16": "float32"}
    for i, arg in enumerate(args):
        if arg.dtype in other:
            yield i, other[arg.dtype]


def _of_missing_exception(check: Check, torch: Raised, suspects: Suspects) -> Check:
    """An index that PyTorch refuses: does MindSpore count it from the end?"""
    for i, arg in enumerate(suspects.args):
        if not arg.is_integer or not arg.value.size or arg.value.min() >= 0:
            continue
        args = list(suspects.args)
        args[i] = arg.with_value(np.maximum(arg.value, 0))
        if isinstance(suspects.torch(args), Raised):
            continue
        return replace(
            check,
            found=f"argument {i} holds {int(arg.value.min())}; MindSpore takes a negative index "
            "without complaint",
            remedy="check indices before the call: assert (index >= 0).all(); a stray -1 picks "
            "the last row, or none",
        )
    return check


def name_gradient_cause(check: Check, torch: Any, ours: Any) -> Check:
    """The same Check, where whole rows have a gradient on one side only."""
    want, got = to_numpy(torch)[0], to_numpy(ours)[0]
    if want.ndim < 2 or want.shape != got.shape:
        return check
    axes = tuple(range(1, want.ndim))
    silent = ~np.any(want, axis=axes) & np.any(got, axis=axes)
    rest = ~silent
    if not silent.any() or silent.all() or not compare(got[rest], want[rest]).ok:
        return check
    rows = np.flatnonzero(silent).tolist()
    named = f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows[:4]))}"
    return replace(
        check,
        found=f"only {named} of {len(want)}: the gradient is zero in PyTorch and flows in "
        "MindSpore, all other rows agree",
        remedy="likely padding_idx: PyTorch keeps that row's gradient at zero, MindSpore trains "
        f"it; mask it before clipping and the update, for example grad[{rows[0]}] = 0",
    )


# Where both give a value


def _cancelled(torch: Any, ours: Any, suspects: Suspects) -> tuple[str, str] | None:
    """Are MindSpore's small values whole multiples of the last bit of 1?

    So they are where 1 was added and taken away again, as in exp(x) - 1.
    """
    if not (is_real(torch) and is_real(ours)) or dtype(ours) != "float32":
        return None
    got, want = (to_numpy(leaf)[0].astype(np.float64) for leaf in (ours, torch))
    if got.shape != want.shape or not np.isfinite(got).all() or not np.isfinite(want).all():
        return None
    grain = 2.0**-24
    small = (np.abs(want) < 1e-4) & (np.abs(got - want) > 1e-5 * np.abs(want))
    grains, right = got[small] / grain, want[small] / grain
    if grains.size < 4 or np.abs(grains - right).max() > 4:
        return None
    whole = [float(np.mean(np.abs(a - np.round(a)) < 0.1)) for a in (grains, right)]
    if whole[0] == 1 and whole[1] < 0.6:
        return (
            "small values of MindSpore are whole multiples of 2**-24, the last bit of 1",
            "digits are lost to cancellation, as in exp(x) - 1 or log(1 + x): for small inputs "
            "write the series, such as x + x**2 / 2",
        )
    return None


def _imprecise(torch: Any, ours: Any, suspects: Suspects) -> tuple[str, str] | None:
    """Does MindSpore agree in float64, and PyTorch in both? Then its float32 kernel is off."""
    if not any(arg.dtype == "float32" for arg in suspects.args):
        return None
    double = [
        Argument(arg.value.astype(np.float64), "float64") if arg.dtype == "float32" else arg
        for arg in suspects.args
    ]
    pair = suspects.both(double)
    if pair is None or not all(dtype(leaf) == "float64" for leaf in leaves(pair[1])):
        return None
    if not compare(pair[1], pair[0]).ok or not compare(torch, pair[0], dtype_strict=False).ok:
        return None
    return (
        "in float64 both agree: MindSpore's float32 kernel is imprecise for these inputs",
        "the operator is off, not the port: compute it in float64 where it matters, "
        "f(x.astype(ms.float64)).astype(ms.float32), or allow for the error",
    )


def _stride(torch: Any, ours: Any, suspects: Suspects) -> tuple[str, str] | None:
    """Is PyTorch's result every k-th element of MindSpore's?"""
    if not (hasattr(torch, "shape") and hasattr(ours, "shape")):
        return None
    want, got = to_numpy(torch)[0], to_numpy(ours)[0]
    if want.ndim != got.ndim or want.shape == got.shape or not want.size:
        return None
    for step, (more, fewer, sparse) in product(
        (2, 3, 4), ((got, want, "PyTorch"), (want, got, "MindSpore"))
    ):
        axes = [i for i in range(got.ndim) if more.shape[i] != fewer.shape[i]]
        picked = more[tuple(slice(None, None, step if i in axes else 1) for i in range(got.ndim))]
        picked = picked[tuple(slice(0, size) for size in fewer.shape)]
        if picked.shape == fewer.shape and compare(picked, fewer).ok:
            where = " and ".join(f"axis {axis}" for axis in axes)
            other = "MindSpore" if sparse == "PyTorch" else "PyTorch"
            return (
                f"{sparse} gives every {_ordinal(step)} element of {other}'s result along {where}",
                f"likely the stride, {step} in {sparse} and 1 in {other}: pooling layers of "
                "MindSpore have stride 1 where PyTorch's have their kernel's size; write "
                f"stride={step}",
            )
    return None


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third", 4: "fourth"}[number]


def _shift(torch: Any, ours: Any, suspects: Suspects) -> tuple[str, str] | None:
    """Does MindSpore give what PyTorch gives for the input moved by one or two steps?"""
    first = suspects.args[0]
    if not (first.is_float and first.value.ndim >= 3 and hasattr(ours, "shape")):
        return None
    got = to_numpy(ours)[0].astype(np.float64)
    if tuple(torch.shape) != got.shape:
        return None
    axes = range(2, first.value.ndim) if first.value.ndim > 3 else (first.value.ndim - 1,)
    best, told = 0.0, ""
    for step in (-1, 1, -2, 2):
        for moved in dict.fromkeys((tuple(axes), *((axis,) for axis in axes))):
            array = first.value
            for axis in moved:
                array = _moved(array, step, axis)
            value = suspects.torch([first.with_value(array), *suspects.args[1:]])
            if not hasattr(value, "shape") or tuple(value.shape) != got.shape:
                return None
            want = to_numpy(value)[0].astype(np.float64)
            top = float(np.abs(want).max(initial=0.0))
            loud = np.abs(want) > 1e-3 * top  # zeros agree with zeros anywhere
            if not loud.any():
                continue
            near = float((np.abs(got - want) <= 1e-4 * top)[loud].mean())
            if near > best:
                where = " and ".join(f"axis {axis}" for axis in moved)
                best = near
                told = (
                    f"MindSpore gives what PyTorch gives for the input moved by {step:+d} along "
                    f"{where} ({near:.0%} of the elements; the rest touch the border)"
                )
    if best < 0.1:
        return None
    return (
        told,
        'likely padding on the other side: pad_mode="same" with a stride pads right and bottom '
        'first; write pad_mode="pad", padding=... with PyTorch\'s number',
    )


def _moved(array: _Array, step: int, axis: int) -> _Array:
    array = np.roll(array, step, axis)
    edge = [slice(None)] * array.ndim
    edge[axis] = slice(0, step) if step > 0 else slice(step, None)
    array[tuple(edge)] = 0
    return array


def _divisor(torch: Any, ours: Any, suspects: Suspects) -> tuple[str, str] | None:
    """Do they differ by what n values are divided by: n, n - 1, or nothing?"""
    first = suspects.args[0]
    if not (first.is_float and is_real(torch) and is_real(ours)):
        return None
    want, got = (to_numpy(leaf)[0].astype(np.float64) for leaf in (torch, ours))
    if want.shape != got.shape or not 0 < want.size < first.value.size:
        return None
    if first.value.size % want.size or not (np.abs(want) > 0).all():
        return None
    n, ratio = first.value.size // want.size, got / want
    for power, what in ((1.0, "variance"), (0.5, "standard deviation")):
        for sign, here, there in ((1, "n", "n - 1"), (-1, "n - 1", "n")):
            if np.allclose(ratio, ((n - 1) / n) ** (sign * power), rtol=2e-5, atol=0):
                return (
                    f"MindSpore is {ratio.flat[0]:.4g} times PyTorch: the {what} of n = {n} values "
                    f"over {here}, in PyTorch over {there}",
                    "torch.var and torch.std divide by n - 1, ops.var and ops.std of MindSpore by "
                    "n: set ddof in MindSpore, for example x.std(ddof=1), or correction in PyTorch",
                )
    for factor, there, here in ((1 / n, "adds up", "averages"), (n, "averages", "adds up")):
        if n > 1 and np.allclose(ratio, factor, rtol=2e-5, atol=0):
            return (
                f"MindSpore is {ratio.flat[0]:.4g} times PyTorch: PyTorch {there} n = {n} values, "
                f"MindSpore {here} them",
                "name the reduction on both sides: reduction='mean' or reduction='sum'",
            )
    return None


def _added_constant(torch: Any, ours: Any, suspects: Suspects) -> tuple[str, str] | None:
    """Is it the constant a normalisation adds to what it divides by?

    Then large inputs agree, where the result no longer depends on their scale, and the difference
    does not shrink with the inputs.
    """
    if not any(arg.is_float for arg in suspects.args[:1]):
        return None

    def results(factor: float) -> tuple[Any, Any] | None:
        first = suspects.args[0]
        args = [first.with_value(first.value * factor), *suspects.args[1:]]
        pair = suspects.both(args)
        if pair is None:
            return None
        if not all(np.isfinite(to_numpy(leaf)[0]).all() for side in pair for leaf in leaves(side)):
            return None
        return pair

    with np.errstate(all="ignore"):
        top = max(float(np.abs(suspects.args[0].value).max(initial=0.0)), 1e-30)
        large, larger, small = results(1e3 / top), results(1e5 / top), results(0.1)
    if large is None or larger is None or small is None:
        return None
    unscaled = compare(large[0], larger[0], rtol=1e-4, atol=1e-6).ok
    agrees = compare(large[1], large[0]).ok
    if not (unscaled and agrees and _gap(*small) >= 0.5 * _gap(torch, ours) > 0):
        return None
    eps = [
        next((getattr(f, name) for name in ("eps", "epsilon") if _is_number(f, name)), None)
        for f in (suspects.torch_fn, suspects.ms_fn)
    ]
    known = f": PyTorch {eps[0]:g}, MindSpore {eps[1]:g}" if None not in eps else ""
    write = f"epsilon={eps[0]:g}" if eps[0] is not None else "epsilon= (eps=)"
    return (
        "both agree on large inputs, whose scale does not matter; the difference is in small ones",
        f"likely eps, which is added to the variance or norm{known}; write {write} in MindSpore",
    )


def _is_number(thing: Any, name: str) -> bool:
    return isinstance(getattr(thing, name, None), float)


def _gap(torch: Any, ours: Any) -> float:
    """Largest difference relative to the larger of the two results."""
    worst = 0.0
    for t, m in zip(leaves(torch), leaves(ours), strict=False):
        if is_real(t) and is_real(m):
            left, right = (to_numpy(leaf)[0].astype(np.float64) for leaf in (t, m))
            top = max(float(np.abs(a).max(initial=0.0)) for a in (left, right))
            if left.shape == right.shape and top > 0:
                worst = max(worst, float(np.abs(left - right).max(initial=0.0)) / top)
    return worst


def _variants(torch: Any, ours: Any, suspects: Suspects) -> tuple[str, str] | None:
    """A few numbers show no pattern: the results for other inputs beside them may."""
    if not (is_real(torch) and is_real(ours)) or tuple(torch.shape) != tuple(ours.shape):
        return None
    if to_numpy(torch)[0].size >= _FEW:
        return None
    rng = np.random.default_rng(0)
    pairs = [(torch, ours)]
    for _ in range(_VARIANTS):
        args = [
            arg.with_value(arg.value * rng.uniform(0.5, 1.5, arg.value.shape))
            if arg.is_float
            else arg
            for arg in suspects.args
        ]
        pair = suspects.both(args)
        if pair is None:
            return None
        pairs.append(pair)
    stacked = [np.stack([to_numpy(pair[side])[0] for pair in pairs]) for side in (1, 0)]
    report = compare(*stacked, names=("MindSpore", "PyTorch"))
    for check in report:
        if check.status == "failed" and check.found:
            return f"on {len(pairs)} inputs: {check.found}", check.remedy
    return None
