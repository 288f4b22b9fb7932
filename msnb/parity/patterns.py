"""What a difference looks like: where it sits, and what would turn one side into the other.

Nothing is claimed on chance. A *transformation* (a factor, an offset, another order ...) must bring
every element it speaks of within the limit and explain at least nine tenths of the difference, with
many more elements than it has free numbers. A *place* (a row, a border, a gate ...) must hold every
element that is off, be at least half filled by them, and be so small that the same number of
elements thrown at random would land in one of its kind less than once in a thousand times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np

_Array = Any
_CHANCE = 1e-3
_EXPLAINED = 0.1
_SLACK = 4.0
_LARGE = 4_000_000


@dataclass(frozen=True)
class Pattern:
    """One regularity in a difference.

    ``kind`` is a word to test for, ``text`` the finding, ``remedy`` its usual cause, which the
    numbers suggest and do not prove.
    """

    kind: str
    text: str
    remedy: str = ""


def find_patterns(
    actual: _Array,
    expected: _Array,
    limit: Any = 0.0,
    *,
    off: _Array | None = None,
    names: tuple[str, str] = ("actual", "expected"),
    dtype: str = "",
) -> list[Pattern]:
    """The regularities in how ``actual`` differs from ``expected``: at most one place, one kind.

    Both are float64 or complex128 arrays of one shape; ``limit``, broadcast to it, is the
    difference that rounding explains; ``off`` marks the elements that count as different, by
    default those beyond the limit or with another NaN or Inf; ``dtype`` is that of ``actual``. An
    empty list where nothing is off, and where the difference shows no regularity.

    >>> e = np.random.default_rng(0).standard_normal((4, 8, 5, 6))
    >>> def kinds(a):
    ...     return [pattern.kind for pattern in find_patterns(a, e, 1e-9)]
    >>> kinds(4 * e), kinds(-e), kinds(e + 0.5)
    (['factor'], ['sign'], ['offset'])
    >>> kinds(e[:, ::-1]), kinds(np.roll(e, 2, axis=3)), kinds(np.clip(e, -1, 1))
    (['order'], ['order'], ['clamped'])
    >>> last = e.copy()
    >>> last[..., -1] *= 2
    >>> for pattern in find_patterns(last, e, 1e-9):
    ...     print(pattern.kind, "|", pattern.text)
    place | only the last index of axis 3 (size 6) differs, the last column
    factor | there actual is 2 times expected
    >>> kinds(e + np.random.default_rng(1).standard_normal(e.shape))
    []
    """
    view = _View(np.asarray(actual), np.asarray(expected), limit, off, names, dtype)
    if not view.count or view.actual.size < 2:
        return []
    with np.errstate(all="ignore"):
        return list(_search(view))


class _View:
    """Both arrays, the limit and the mask of what is off, for the finders to share."""

    def __init__(
        self,
        actual: _Array,
        expected: _Array,
        limit: Any,
        off: _Array | None,
        names: tuple[str, str],
        dtype: str,
    ) -> None:
        self.actual, self.expected, self.names, self.dtype = actual, expected, names, dtype
        self.shape, self.ndim = expected.shape, expected.ndim
        self.tolerance = _SLACK * np.broadcast_to(np.asarray(limit, dtype=float), self.shape)
        with np.errstate(all="ignore"):
            self.difference = actual - expected
            self.finite = np.isfinite(actual) & np.isfinite(expected)
            if off is None:
                same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
                near = np.abs(self.difference) <= self.tolerance / _SLACK
                off = ~(same | near)
        self.off = off
        self.count = int(np.count_nonzero(off))
        self.judged = off & self.finite  # what a transformation has to explain

    @cached_property
    def sample(self) -> _Array:
        """Flat indices of some elements that are off, to turn down a wrong idea cheaply."""
        flat = np.flatnonzero(self.judged)
        return flat[:: max(1, flat.size // 2048)]

    def plausible(self, candidate: _Array, slack: float = 1.0) -> bool:
        """Whether ``candidate``, the values at ``sample``, turns into ``actual`` there."""
        left = np.abs(self.actual.flat[self.sample] - candidate)
        return bool(np.all(left <= slack * self.tolerance.flat[self.sample]))

    @cached_property
    def before(self) -> float:
        return float(np.sqrt(np.mean(np.abs(self.difference[self.judged]) ** 2)))

    def explains(
        self, candidate: _Array, *, among: _Array | None = None, tolerance: Any = None
    ) -> bool:
        """Whether ``candidate`` turns into ``actual`` within the limit, well beyond chance."""
        among = self.finite if among is None else among
        tolerance = self.tolerance if tolerance is None else tolerance
        left = np.abs(self.actual - candidate)
        if np.any(~(left <= tolerance) & among):
            return False
        rest = float(np.sqrt(np.mean(left[self.judged] ** 2)))
        return rest <= _EXPLAINED * self.before


def _search(view: _View) -> Iterator[Pattern]:
    if not np.any(view.judged):
        yield _not_finite(view)
        place = _place(view)
        if place:
            yield place
        return
    if view.count == 1:
        index = tuple(int(i) for i in np.argwhere(view.off)[0])
        yield Pattern("element", f"a single element differs, at {list(index)}", "")
        return
    whole = next((found for find in _WHOLE if (found := find(view, view.finite))), None)
    if whole is not None:
        yield whole
        return
    place = _place(view)
    if place:
        yield place
    part = next((found for find in _PART if (found := find(view, view.judged))), None)
    if part is not None:
        where = "there" if place else "where they differ,"
        yield Pattern(part.kind, f"{where} {part.text}", part.remedy)


# -- transformations ------------------------------------------------------------------------------


def _not_finite(view: _View) -> Pattern:
    here, there = view.names
    bad = view.off
    nan = (np.isnan(view.actual) & bad, np.isnan(view.expected) & bad)
    inf = (np.isinf(view.actual) & bad, np.isinf(view.expected) & bad)
    counts = [
        f"{np.count_nonzero(mask)} {word} in {name}"
        for word, masks in (("NaN", nan), ("Inf", inf))
        for name, mask in zip((here, there), masks, strict=True)
        if np.any(mask)
    ]
    return Pattern(
        "nonfinite",
        f"the finite values agree; only NaN and Inf differ: {', '.join(counts)}",
        "likely an overflow (float16 ends at 65504), a division by zero, or log or sqrt outside "
        "its domain: look at the inputs of this operator at these indices",
    )


def _zero(view: _View, among: _Array) -> Pattern | None:
    here, there = view.names
    if np.count_nonzero(view.judged) < 3:
        return None
    if not np.any(view.actual[among]):
        return Pattern(
            "zero",
            f"{here} is zero throughout",
            "likely a path that is cut: the gradient was stopped (asnumpy(), argmax, another "
            "net's parameters), nothing was loaded, or an in-place write did not reach its tensor",
        )
    if not np.any(view.expected[among]):
        return Pattern(
            "zero",
            f"{there} is zero throughout, {here} is not",
            f"likely a path that is cut on the side of {there}, or a value that was never reset",
        )
    return None


def _constant(view: _View, among: _Array) -> Pattern | None:
    values = view.actual[among]
    if np.count_nonzero(view.judged) < 4 or np.any(values != values[0]):
        return None
    wanted = view.expected[among]
    if np.all(wanted == wanted[0]):
        return None
    return Pattern(
        "constant",
        f"{view.names[0]} holds {_number(values[0])} everywhere",
        "likely a fill value, a reduction over one axis too many that was broadcast, or a result "
        "that was frozen when the graph was compiled",
    )


def _inverted(view: _View, among: _Array) -> Pattern | None:
    if view.dtype != "bool" or np.count_nonzero(view.judged) < 4:
        return None
    if not np.all(view.actual[among] == 1 - view.expected[among]):
        return None
    return Pattern(
        "inverted",
        "every bool is the opposite one",
        "likely a mask of the other convention: True for 'keep' on one side, 'leave out' on the "
        "other (logical_not)",
    )


def _factor(view: _View, among: _Array) -> Pattern | None:
    e, a = view.expected[view.judged], view.actual[view.judged]
    if e.size < 3 or np.unique(e[:64]).size < 2:
        return None
    top = float(np.abs(e).max())
    if not top:
        return None
    factor = np.vdot(e / top, a / top) / np.vdot(e / top, e / top)
    if not np.isfinite(factor) or factor == 0:
        return None
    slack = max(1.0, abs(factor))
    if not view.plausible(factor * view.expected.flat[view.sample], slack):
        return None
    tolerance = view.tolerance * slack
    if not view.explains(factor * view.expected, among=among, tolerance=tolerance):
        return None
    doubt = float(np.median(view.tolerance[view.judged])) / top
    kind, meaning = _meaning(factor, max(doubt, 1e-9 * abs(factor)), view)
    here, there = view.names
    text = f"{here} is {_number(factor)} times {there}"
    return Pattern(kind, text if kind != "sign" else f"{here} is minus {there}", meaning)


def _meaning(factor: Any, doubt: float, view: _View) -> tuple[str, str]:
    """The kind of a factor, and what it usually comes from."""
    if np.iscomplexobj(factor):
        if abs(factor.imag) > doubt:
            if abs(factor - 1j) <= doubt or abs(factor + 1j) <= doubt:
                return "factor", "likely a rotation by i: the other convention of a transform"
            return "factor", ""
        factor = factor.real
    value = float(factor)

    def near(target: float) -> bool:
        return abs(value - target) <= max(doubt, 1e-6 * abs(target))

    if near(-1):
        return "sign", "likely operands the other way round, or a loss that is maximised"
    for target, cause in _CONSTANTS.items():
        if near(target):
            return "factor", cause
        if near(1 / target) and target != 2:
            return "factor", f"{cause} (the other way round)"
    whole = round(value)
    if 2 <= whole <= 4096 and near(whole):
        root = f"; or {whole} = sqrt({whole * whole}), a scale such as 1 / sqrt(d) left out"
        return "factor", (
            f"likely a sum where the other side takes the mean: {whole} accumulation steps, "
            f"{whole} ranks or {whole} samples, not divided by {whole}{root}"
        )
    if 0 < value < 1 and (whole := round(1 / value)) <= 4096 and near(1 / whole):
        return "factor", (
            f"likely a mean where the other side takes the sum: divided by {whole} (ranks, "
            f"accumulation steps, batch) once too often, or a gradient missing from all but one of "
            f"{whole} ranks"
        )
    for power, what in ((1, "variance"), (2, "standard deviation")):
        # value**power is n / (n - 1) or its inverse, for a whole n that is not too long to tell
        ratio = abs(value) ** power
        ratio = ratio if ratio > 1 else 1 / ratio
        n = 1 + 1 / (ratio - 1) if ratio > 1 else math.inf
        blur = n * n * power * doubt
        if n < 100_000 and abs(n - round(n)) <= max(blur, 1e-3) and blur < 0.05:
            return "ddof", (
                f"likely the {what} of n = {round(n)} values with another divisor, n or n - 1: "
                "torch.var and torch.std divide by n - 1, ops.var and ops.std of MindSpore by n; "
                "set ddof (MindSpore) or correction (torch)"
            )
    square = value * value
    square = square if square > 1 else 1 / square
    if square <= 65_536 and abs(square - round(square)) <= max(2 * square * doubt, 1e-6 * square):
        way = "times" if value > 1 else "divided by"
        return "factor", (
            f"likely a scale: {way} sqrt({round(square)}), as in attention over {round(square)} "
            "features or in a gain of an initialiser"
        )
    return "factor", (
        "likely a scale, a learning rate, a loss weight or a loss scaler that is applied on one "
        "side only"
    )


_CONSTANTS: dict[float, str] = {
    2.0: (
        "likely a sum where the other side takes the mean (2 ranks, 2 accumulation steps), a "
        "factor 1/2 in a squared loss, or the 1 / (1 - p) of dropout with p = 0.5"
    ),
    0.5: (
        "likely a mean where the other side takes the sum (2 ranks, 2 accumulation steps), or a "
        "factor 1/2 in a squared loss"
    ),
    255.0: "likely images scaled to 0..255 on one side and to 0..1 on the other: divide by 255",
    math.log(2): "likely logarithms of base 2 and base e mixed: log2(x) = log(x) / log(2)",
    math.log(10): "likely logarithms of base 10 and base e mixed",
    180 / math.pi: "likely degrees on one side and radians on the other",
    2 * math.pi: "likely a frequency: cycles on one side, radians on the other",
    math.sqrt(2): "likely a gain of sqrt(2): the initialiser's nonlinearity, or erf's argument",
    10 / 9: "likely dropout with p = 0.1: its 1 / (1 - p), on one side only",
    1.25: "likely dropout with p = 0.2: its 1 / (1 - p), on one side only",
    20.0: "likely the slope of LeakyReLU: 0.2 by default in MindSpore, 0.01 in torch",
}


def _offset(view: _View, among: _Array) -> Pattern | None:
    difference = view.difference[view.judged]
    if difference.size < 3:
        return None
    if np.unique(view.expected[view.judged][:64]).size < 2:
        return None
    offset = difference.mean()
    if not view.plausible(view.expected.flat[view.sample] + offset):
        return None
    if not view.explains(view.expected + offset, among=among):
        return None
    return Pattern(
        "offset",
        f"{view.names[0]} is {view.names[1]} {_signed(offset)}",
        "likely a constant added on one side only: a bias, an eps, or indices that count from 1",
    )


def _affine(view: _View, among: _Array) -> Pattern | None:
    e, a = view.expected[view.judged], view.actual[view.judged]
    if e.size < 8:
        return None
    centre = e.mean()
    spread = np.vdot(e - centre, e - centre)
    if not abs(spread):
        return None
    factor = np.vdot(e - centre, a - a.mean()) / spread
    offset = a.mean() - factor * centre
    slack = max(1.0, abs(factor))
    if not factor or not view.plausible(factor * view.expected.flat[view.sample] + offset, slack):
        return None
    tolerance = view.tolerance * slack
    if not view.explains(factor * view.expected + offset, among=among, tolerance=tolerance):
        return None
    return Pattern(
        "affine",
        f"{view.names[0]} is {_number(factor)} times {view.names[1]} {_signed(offset)}",
        "likely another normalisation: mean and standard deviation of the images, or gamma and "
        "beta",
    )


def _per_index(view: _View, among: _Array) -> Pattern | None:
    """One factor or one offset for each index of one axis, as a bias or a gamma gives."""
    for axis in sorted(range(view.ndim), key=lambda axis: view.shape[axis]):
        length = view.shape[axis]
        if length < 2 or view.expected.size // length < 4:
            continue
        rest = tuple(other for other in range(view.ndim) if other != axis)
        if among is view.finite and not np.all(view.off.any(axis=rest)):
            continue  # a place says more
        usable = np.where(among, 1.0, 0.0)
        weight = usable.sum(axis=rest, keepdims=True)
        if np.any((weight > 0) & (weight < 5)):
            continue
        a = np.where(among, view.actual, 0.0)
        e = np.where(among, view.expected, 0.0)
        offsets = (a - e).sum(axis=rest, keepdims=True) / np.maximum(weight, 1)
        if view.explains(view.expected + offsets, among=among):
            return Pattern(
                "offset",
                f"{view.names[0]} is {view.names[1]} plus one constant for each index of axis "
                f"{axis} (size {length}), from {_number(offsets.real.min())} to "
                f"{_number(offsets.real.max())}",
                "likely a bias, a beta or a mean along this axis that is left out, added twice or "
                "not loaded",
            )
        power = (np.conj(e) * e).sum(axis=rest, keepdims=True)
        factors = (np.conj(e) * a).sum(axis=rest, keepdims=True) / np.where(power == 0, 1, power)
        tolerance = view.tolerance * np.maximum(1.0, np.abs(factors))
        if view.explains(factors * view.expected, among=among, tolerance=tolerance):
            real = factors.real
            one = np.all(np.abs(np.abs(factors) - 1) < 1e-3)
            return Pattern(
                "sign" if one else "factor",
                f"{view.names[0]} is {view.names[1]} times one factor for each index of axis "
                f"{axis} (size {length}), from {_number(real.min())} to {_number(real.max())}",
                "likely vectors whose sign is free, as from svd, eigh or qr: compare up to the sign"
                if one
                else "likely a gamma, a running variance or a length along this axis that is left "
                "out, applied twice or not loaded",
            )
    return None


def _magnitude(view: _View, among: _Array) -> Pattern | None:
    if np.count_nonzero(view.judged) < 8 or np.iscomplexobj(view.actual):
        return None
    if not view.plausible(-view.expected.flat[view.sample]):
        return None
    flipped = np.where(view.judged, -view.expected, view.expected)
    if not view.explains(flipped, among=among):
        return None
    return Pattern(
        "sign",
        "only the sign differs, for some elements",
        "likely abs() or a sign on one side only, or another rule for the remainder of negative "
        "numbers",
    )


def _dropped(view: _View, among: _Array) -> Pattern | None:
    """Zeros at random and the rest scaled up: dropout."""
    a, e = view.actual[among], view.expected[among]
    for name, kept, full in ((view.names[0], a, e), (view.names[1], e, a)):
        live = (kept != 0) & (full != 0)
        gone = (kept == 0) & (full != 0)
        if min(np.count_nonzero(live), np.count_nonzero(gone)) < 8:
            continue
        ratio = np.vdot(full[live], kept[live]) / np.vdot(full[live], full[live])
        bound = np.broadcast_to(view.tolerance, view.shape)[among][live] * max(1.0, abs(ratio))
        if np.any(np.abs(kept[live] - ratio * full[live]) > bound):
            continue
        share = np.count_nonzero(gone) / (np.count_nonzero(gone) + np.count_nonzero(live))
        rate = 1 - 1 / ratio.real
        if abs(rate - share) > 4 * math.sqrt(share * (1 - share) / (gone.size)) + 1e-9:
            continue
        return Pattern(
            "dropout",
            f"{share:.0%} of {name} is zero, the rest is {_number(ratio)} times as large",
            f"likely dropout with p = {rate:.3g} at work in {name} only: a MindSpore cell is in "
            "evaluation mode until set_train(), a torch module in training mode until eval()",
        )
    return None


def _clamped(view: _View, among: _Array) -> Pattern | None:
    if np.iscomplexobj(view.actual):
        return None
    here, there = view.names
    sides = ((here, view.actual, view.expected), (there, view.expected, view.actual))
    for name, cut, full in sides:
        values, counts = np.unique(cut[view.judged][:4096], return_counts=True)
        if not 1 <= values.size <= 2 or counts.min() < 3:
            continue
        low = high = None
        for value in values:
            beyond = full[view.judged & (cut == value)]
            if np.unique(beyond[:64]).size < 2:
                continue
            if np.all(beyond > value):
                high = value
            elif np.all(beyond < value):
                low = value
        if (low is not None) + (high is not None) != values.size:
            continue
        if low is not None and high is not None and low > high:
            continue
        ends = full.copy()
        if low is not None:
            ends = np.maximum(ends, low)
        if high is not None:
            ends = np.minimum(ends, high)
        if np.any(~(np.abs(cut - ends) <= view.tolerance) & view.finite):
            continue
        bounds = " and ".join(
            f"{word} {_number(value)}"
            for word, value in (("below", low), ("above", high))
            if value is not None
        )
        return Pattern(
            "clamped",
            f"{name} is cut off {bounds}, otherwise they agree",
            "likely an activation (ReLU, ReLU6, Hardtanh), a clamp or a clipped gradient on one "
            "side only"
            if not (high is not None and high >= 65504)
            else "likely a value beyond the range of the dtype: float16 ends at 65504",
        )
    return None


def _rounded(view: _View, among: _Array) -> Pattern | None:
    if np.iscomplexobj(view.actual) or np.count_nonzero(view.judged) < 8:
        return None
    here, there = view.names
    a, e = view.actual[among], view.expected[among]
    sides = ((here, a, e), (there, e, a))
    for name, coarse, fine in sides:
        if np.all(coarse == np.rint(coarse)) and not np.all(fine == np.rint(fine)):
            for how, rule in (("rounded", np.rint), ("cut off", np.trunc), ("floored", np.floor)):
                if np.all(coarse == rule(fine)):
                    return Pattern(
                        "rounded",
                        f"{name} is the other side {how} to whole numbers",
                        "likely an integer dtype on the way: a division, a mean or a cast of "
                        "integers",
                    )
        for dtype in ("bfloat16", "float16"):
            bits = _as_dtype(coarse, dtype)
            if np.all(bits == coarse) and not np.all(_as_dtype(fine, dtype) == fine):
                step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
                if np.all(np.abs(coarse - fine) <= step * np.abs(fine) + 6e-8):
                    return Pattern(
                        "precision",
                        f"every value of {name} is a {dtype} number",
                        f"likely a cast to {dtype} on one side only: amp_level, autocast, "
                        "to_float() or the dtype of the weights",
                    )
    return None


def _as_dtype(values: _Array, dtype: str) -> _Array:
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float64)
    bits = values.astype(np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return kept.view(np.float32).astype(np.float64)


def _order(view: _View, among: _Array) -> Pattern | None:
    """The same values in another order: transposed, flipped, rolled, blocks or slices permuted."""
    a, e = view.actual, view.expected
    if not 4 <= a.size <= _LARGE or np.count_nonzero(view.judged) < 4 or not np.all(view.finite):
        return None
    if np.unique(e.ravel()[:4096]).size < 3:
        return None
    # The same values have the same sums, whatever their order.
    bound = float(np.sum(view.tolerance))
    if not abs(a.sum() - e.sum()) <= bound + 1e-9 * float(np.abs(e).sum()):
        return None
    for axis in range(view.ndim):
        found = _order_along(view, axis)
        if found:
            return found
    for first, second in permutations(range(view.ndim), 2):
        if first < second and view.shape[first] == view.shape[second] > 1:
            same = e.swapaxes(first, second)
            tolerance = view.tolerance.swapaxes(first, second)
            if view.explains(same, tolerance=tolerance):
                return Pattern(
                    "transposed",
                    f"axes {first} and {second} (both of size {view.shape[first]}) are swapped",
                    "likely a transposed weight or matrix: transpose_b, nn.Linear and nn.Dense "
                    "both keep (out, in)",
                )
    for axes in permutations(range(view.ndim)) if 2 <= view.ndim <= 4 else ():
        if axes == tuple(range(view.ndim)):
            continue
        for source in (view.shape, tuple(view.shape[axis] for axis in np.argsort(axes))):
            at = np.unravel_index(view.sample, tuple(source[axis] for axis in axes))
            there = np.ravel_multi_index(tuple(at[axes.index(i)] for i in range(view.ndim)), source)
            # A wrong order is told by a sample; the tolerance moves along with the values.
            if not view.plausible(e.flat[there], 8.0):
                continue
            same = e.reshape(source).transpose(axes).reshape(view.shape)
            tolerance = view.tolerance.reshape(source).transpose(axes).reshape(view.shape)
            if view.explains(same, tolerance=tolerance):
                return Pattern(
                    "layout",
                    f"the values are in another memory order: {list(axes)} of the axes of shape "
                    f"{list(source)}, read as {list(view.shape)}",
                    "likely NHWC taken for NCHW, or a reshape where a transpose was meant: "
                    "transpose first, then reshape",
                )
    return None


def _order_along(view: _View, axis: int) -> Pattern | None:
    length = view.shape[axis]
    if length < 2 or length > 4096:
        return None
    a = np.moveaxis(view.actual, axis, 0).reshape(length, -1)
    e = np.moveaxis(view.expected, axis, 0).reshape(length, -1)
    # One number per slice; slices that pair up by it are then compared in full.
    weights = np.random.default_rng(0).standard_normal(a.shape[1])
    order = np.empty(length, dtype=int)
    order[np.argsort((a @ weights).real, kind="stable")] = np.argsort(
        (e @ weights).real, kind="stable"
    )
    if np.array_equal(order, np.arange(length)) or np.unique(e @ weights).size < length:
        return None
    same = np.take(view.expected, order, axis=axis)
    tolerance = np.take(view.tolerance, order, axis=axis)
    if not view.explains(same, tolerance=tolerance):
        return None
    if a.shape[1] == 1 and length < 4:
        return None
    where = f"axis {axis} (size {length})"
    if np.array_equal(order, np.arange(length)[::-1]) and length > 2:
        return Pattern(
            "order",
            f"{where} runs backwards",
            "likely a flip on one side only: RGB against BGR, the kernel of a convolution against "
            "a correlation, or the other direction of a recurrent layer",
        )
    blocks = next((count for count in (2, 3, 4) if _is_blockwise(order, count)), 0)
    if blocks == 2:
        return Pattern(
            "order",
            f"the two halves of {where} are swapped",
            "likely an fftshift, forward and backward direction, or the halves of a gated unit "
            "taken the other way round",
        )
    if blocks:
        seen = [int(i) // (length // blocks) for i in order[:: length // blocks]]
        return Pattern(
            "order",
            f"the {blocks} blocks of {length // blocks} along {where} come in the order {seen}",
            "likely the gates in another order: torch and nn.LSTM keep i, f, g, o and nn.GRU "
            "r, z, n; others keep i, f, o, g or z, r, n",
        )
    shift = int(order[0])
    if np.array_equal(order, (np.arange(length) + shift) % length):
        shift = -shift if shift <= length // 2 else length - shift
        return Pattern(
            "order",
            f"{where} is rolled by {shift}",
            "likely roll or a circular padding with another shift or sign",
        )
    shown = str(order.tolist()) if length <= 16 else f"{order[:8].tolist()} ..."
    return Pattern(
        "order",
        f"the {length} slices along axis {axis} come in another order: {shown}",
        "likely a shuffled dataset, channels in another order (RGB against BGR), sorted against "
        "unsorted results, or a grouped reshape",
    )


def _is_blockwise(order: _Array, count: int) -> bool:
    width, rest = divmod(order.size, count)
    if rest or width < 2:
        return False
    blocks = order.reshape(count, width)
    return bool(
        np.all(blocks == blocks[:, :1] + np.arange(width)) and np.all(blocks[:, 0] % width == 0)
    )


def _shifted(view: _View, among: _Array) -> Pattern | None:
    """Moved along one or two axes, with other values coming in at the edge."""
    if np.count_nonzero(view.judged) < 8 or view.actual.size > _LARGE:
        return None
    axes = range(max(0, view.ndim - 2), view.ndim)
    last = [(axis,) for axis in reversed(range(view.ndim))]
    both = [tuple(axes)] if len(axes) == 2 else []
    for group in [*last, *both]:
        for step in (1, -1, 2, -2, 3, -3):
            if any(view.shape[axis] < 2 * abs(step) + 2 for axis in group):
                continue
            if not _may_shift(view, group, step):
                continue
            to = [slice(None)] * view.ndim
            of = [slice(None)] * view.ndim
            for axis in group:
                to[axis] = slice(step, None) if step > 0 else slice(None, step)
                of[axis] = slice(None, -step) if step > 0 else slice(-step, None)
            here, there = view.actual[tuple(to)], view.expected[tuple(of)]
            bound = np.maximum(view.tolerance[tuple(of)], view.tolerance[tuple(to)])
            left = np.abs(here - there)
            moved = view.judged[tuple(to)]
            if np.count_nonzero(moved) < 8 or np.unique(there[moved][:64]).size < 3:
                continue
            if not np.all(left <= bound):
                continue
            if float(np.sqrt(np.mean(left[moved] ** 2))) > _EXPLAINED * view.before:
                continue
            names = " and ".join(f"axis {axis}" for axis in group)
            return Pattern(
                "shift",
                f"{view.names[0]} is {view.names[1]} moved by {step} along {names}",
                "likely padding on the other side: an even kernel pads one side more, "
                'pad_mode="same" the bottom and right; in sequences a causal mask or labels one '
                'step off. Spell the padding out: pad_mode="pad" with its four numbers',
            )
    return None


def _may_shift(view: _View, group: tuple[int, ...], step: int) -> bool:
    at: list[_Array] = list(np.unravel_index(view.sample, view.shape))
    inside = np.ones(view.sample.size, dtype=bool)
    for axis in group:
        at[axis] = at[axis] - step
        inside &= (at[axis] >= 0) & (at[axis] < view.shape[axis])
    at = [index[inside] for index in at]
    here = view.sample[inside]
    left = np.abs(view.actual.flat[here] - view.expected[tuple(at)])
    bound = np.maximum(view.tolerance.flat[here], view.tolerance[tuple(at)])
    return bool(np.all(left <= bound))


def _repeated(view: _View, among: _Array) -> Pattern | None:
    for axis in range(view.ndim):
        if view.shape[axis] < 2 or view.actual.size // view.shape[axis] < 2:
            continue
        for name, same, other in (
            (view.names[0], view.actual, view.expected),
            (view.names[1], view.expected, view.actual),
        ):
            first = np.take(same, [0], axis=axis)
            if np.all(same == first) and not np.all(other == np.take(other, [0], axis=axis)):
                return Pattern(
                    "repeated",
                    f"every index of axis {axis} (size {view.shape[axis]}) holds the same values "
                    f"in {name}",
                    "likely a broadcast where each index has values of its own: a lost index, a "
                    "state that is not carried on, or a random number drawn once",
                )
    return None


_Finder = Callable[[_View, _Array], "Pattern | None"]
_WHOLE: tuple[_Finder, ...] = (
    _zero,
    _constant,
    _inverted,
    _factor,
    _offset,
    _order,
    _shifted,
    _clamped,
    _rounded,
    _dropped,
    _per_index,
    _affine,
    _repeated,
)
_PART: tuple[_Finder, ...] = (
    _zero,
    _constant,
    _factor,
    _offset,
    _magnitude,
    _per_index,
    _affine,
)


# -- places ---------------------------------------------------------------------------------------


_Place = tuple[int, Pattern]  # how many elements it has, and what it is


def _place(view: _View) -> Pattern | None:
    """Where the elements that are off sit, if that is no accident."""
    if view.count == view.off.size or view.count < 2:
        return None
    finders = (_edges, _box, _sign_place, _triangle, _large)
    found = [place for find in finders if (place := find(view)) is not None]
    return min(found, key=lambda place: place[0])[1] if found else None


def _by_chance(view: _View, region: int, choices: float) -> bool:
    """Whether as many elements at random might fall into one of ``choices`` such regions."""
    size = view.off.size
    if region >= size or view.count < 0.5 * region:
        return True
    return math.log(max(choices, 1)) + view.count * math.log(region / size) > math.log(_CHANCE)


def _edges(view: _View) -> _Place | None:
    """First or last rows and columns together: an L or the whole border of an image."""
    if view.ndim < 2 or min(view.shape[-2:]) < 3:
        return None
    height, width = view.shape[-2:]
    rows, columns = np.arange(height)[:, None], np.arange(width)[None, :]
    for thick in (1, 2, 3):
        if min(height, width) <= 2 * thick:
            break
        top, left = rows < thick, columns < thick
        bottom, right = rows >= height - thick, columns >= width - thick
        count = "" if thick == 1 else f"{thick} "
        s = "" if thick == 1 else "s"
        shapes = (
            (
                bottom | right,
                f"last {count}row{s} and column{s} differ",
                (bottom, right),
                _ONE_SIDE,
            ),
            (top | left, f"first {count}row{s} and column{s} differ", (top, left), _ONE_SIDE),
            (
                top | bottom | left | right,
                "border differs" if thick == 1 else f"border, {thick} wide, differs",
                (top, bottom, left, right),
                _ALL_SIDES,
            ),
        )
        for mask, name, parts, remedy in shapes:
            if np.any(view.off & ~mask):
                continue
            if not all(np.any(view.off & part & ~_others(parts, part)) for part in parts):
                continue
            region = int(np.count_nonzero(np.broadcast_to(mask, view.shape)))
            if not _by_chance(view, region, 18):
                return region, Pattern("place", f"only the {name}", remedy)
    return None


def _others(parts: tuple[_Array, ...], part: _Array) -> _Array:
    rest = [other for other in parts if other is not part]
    return np.logical_or.reduce(np.broadcast_arrays(*rest))


_ONE_SIDE = (
    'likely padding on the other side: pad_mode="same" pads the bottom and right more where the '
    'padding is odd, and ceil_mode adds a last window; use pad_mode="pad" with the four numbers '
    "spelt out"
)
_ALL_SIDES = (
    "likely the padding: zeros against reflect or replicate, count_include_pad of a mean over "
    "windows, or align_corners of a resize"
)


def _box(view: _View) -> _Place | None:
    """A set of indices along one or more axes, whose product holds all that is off."""
    kept: list[tuple[int, _Array]] = []
    region, choices = 1, 1.0
    for axis, length in enumerate(view.shape):
        rest = tuple(other for other in range(view.ndim) if other != axis)
        used = np.flatnonzero(view.off.any(axis=rest))
        region *= used.size
        if used.size < length:
            kept.append((axis, used))
            choices *= _choices(used, length)
    if not kept or _by_chance(view, region, choices):
        return None
    text = " and ".join(_indices(used, view.shape[axis], axis) for axis, used in kept)
    many = len(kept) == 1 and kept[0][1].size > 1 and not _block(kept[0][1], view.shape[kept[0][0]])
    if len(kept) > 1:
        return region, Pattern("place", f"elements differ only at {text}")
    axis, used = kept[0]
    text = f"only {text} differ{'' if many else 's'}{_nickname(view, axis, used)}"
    return region, Pattern("place", text, _box_remedy(view, axis, used))


def _choices(used: _Array, length: int) -> float:
    if used.size == 1:
        return 2.0 if used[0] in (0, length - 1) else float(length)
    if used[-1] - used[0] + 1 == used.size:
        return length * length / 2
    if np.all(np.diff(used) == used[1] - used[0]):
        return float(length**3)
    return float(math.comb(length, used.size))


def _block(used: _Array, length: int) -> tuple[int, int] | None:
    """(which, of how many) where ``used`` is exactly one of 4, 3 or 2 equal blocks."""
    for count in (4, 3, 2):
        width, rest = divmod(length, count)
        if not rest and used.size == width > 1 and used[-1] - used[0] + 1 == width:
            which, rest = divmod(int(used[0]), width)
            if not rest:
                return which, count
    return None


def _indices(used: _Array, length: int, axis: int) -> str:
    where = f"of axis {axis} (size {length})"
    first, last = int(used[0]), int(used[-1])
    block = _block(used, length)
    if used.size == 1:
        name = "first" if first == 0 else "last" if first == length - 1 else ""
        return f"the {name} index {where}" if name else f"index {first} {where}"
    if block:
        return f"block {block[0]} of {block[1]} along axis {axis} ({first} to {last} of {length})"
    if last - first + 1 == used.size:
        if first == 0:
            return f"the first {used.size} indices {where}"
        if last == length - 1:
            return f"the last {used.size} indices {where}"
        return f"indices {first} to {last} {where}"
    step = int(used[1]) - first
    if np.all(np.diff(used) == step) and used.size > 2:
        return f"every {_ordinal(step)} index {where}, from {first},"
    shown = used.tolist() if used.size <= 8 else f"{used[:8].tolist()} ..."
    return f"indices {shown} {where}"


def _ordinal(step: int) -> str:
    return {2: "second", 3: "third", 4: "fourth"}.get(step, f"{step}th")


def _nickname(view: _View, axis: int, used: _Array) -> str:
    if used.size == 1 and used[0] in (0, view.shape[axis] - 1):
        end = "first" if used[0] == 0 else "last"
        if view.ndim >= 2 and axis == view.ndim - 1:
            return f", the {end} column"
        if view.ndim >= 2 and axis == view.ndim - 2:
            return f", the {end} row"
    if used.size == 1 and view.ndim == 4 and axis == 1:
        return ", one channel"
    if used.size == 1 and view.ndim == 4 and axis == 0:
        return ", one sample"
    return ""


def _box_remedy(view: _View, axis: int, used: _Array) -> str:
    length = view.shape[axis]
    block = _block(used, length)
    image = view.ndim >= 2 and axis >= view.ndim - 2 and view.ndim != 2
    if used.size == 1 and view.ndim == 4 and axis == 1:
        return (
            "likely one channel's weight, bias, gamma or running statistics; if it is the first or "
            "last, a group or channel order that is off by one"
        )
    if axis == 0 and view.ndim >= 2 and used[0] in (0, length - used.size) and used.size == 1:
        return (
            "likely the batch's edge: an incomplete batch, padding of the last sample, or state "
            "that is carried from sample to sample; for an embedding, padding_idx"
        )
    if block and block[1] in (3, 4) and (axis == view.ndim - 1 or axis == 0):
        gates = {4: "i, f, g, o of an LSTM", 3: "r, z, n of a GRU, or q, k, v of an attention"}
        return (
            f"likely one gate ({gates[block[1]]}, counted from 0): its order, its bias (torch "
            "keeps two, bias_ih and bias_hh) or its activation"
        )
    if image and used.size <= 3 and (used[0] == 0 or used[-1] == length - 1):
        return _ONE_SIDE
    if used.size > 2 and np.all(np.diff(used) == 2):
        return "likely a stride, an interleaving (rotary embedding, pixel shuffle) or a dilation"
    return ""


def _sign_place(view: _View) -> _Place | None:
    """Only where the expected value is negative, positive or zero."""
    if np.iscomplexobj(view.expected):
        return None
    e = view.expected
    for mask, name, remedy in (
        (
            e < 0,
            "where {there} is negative",
            "likely an activation's negative side: the slope of LeakyReLU (0.2 by default in "
            "MindSpore, 0.01 in torch), ELU's alpha, or rounding and remainder of negative numbers",
        ),
        (e > 0, "where {there} is positive", ""),
        (
            e == 0,
            "where {there} is zero",
            "likely a mask, a padding or a gradient at zero that is defined otherwise",
        ),
    ):
        region = int(np.count_nonzero(mask))
        if np.any(view.off & ~mask) or _by_chance(view, region, 3):
            continue
        if not np.any(e[~mask]):  # the rest is zero on both sides: a product with anything is
            continue
        text = f"only elements {name.format(there=view.names[1])} differ"
        return region, Pattern("place", text, remedy)
    return None


def _triangle(view: _View) -> _Place | None:
    if view.ndim < 2 or view.shape[-1] != view.shape[-2] or view.shape[-1] < 3:
        return None
    size = view.shape[-1]
    row, column = np.arange(size)[:, None], np.arange(size)[None, :]
    for mask, name in (
        (row == column, "the diagonal"),
        (row + column == size - 1, "the other diagonal"),
        (row < column, "the upper triangle"),
        (row > column, "the lower triangle"),
        (row <= column, "the upper triangle with its diagonal"),
        (row >= column, "the lower triangle with its diagonal"),
    ):
        region = int(np.count_nonzero(np.broadcast_to(mask, view.shape)))
        if np.any(view.off & ~mask) or _by_chance(view, region, 6):
            continue
        return region, Pattern(
            "place",
            f"only {name} of axes {view.ndim - 2} and {view.ndim - 1} differs",
            "likely a causal mask (True for 'keep' or for 'leave out', with or without the "
            "diagonal), or a factorisation that fills one triangle",
        )
    return None


def _large(view: _View) -> _Place | None:
    size = np.abs(view.expected)
    quiet = view.finite & ~view.off
    if not np.any(quiet):
        return None
    edge = float(size[quiet].max())
    if not edge:  # what is zero agrees, as in any product
        return None
    # A relative error spares small elements anyway: it must have shown at the edge.
    if np.any(view.judged):
        relative = float(np.median(np.abs(view.difference[view.judged]) / size[view.judged]))
        if edge * relative <= 10 * float(view.tolerance[quiet & (size == edge)].max()):
            return None
    with np.errstate(all="ignore"):
        beyond = (size > edge) | ~np.isfinite(view.expected)
    region = int(np.count_nonzero(beyond))
    if np.any(view.off & ~beyond) or _by_chance(view, region, view.off.size):
        return None
    return region, Pattern(
        "place",
        f"only elements beyond {_number(edge)} in size differ",
        "likely the range: an overflow, a saturation, or a threshold between two formulas",
    )


def _number(value: Any) -> str:
    if np.iscomplexobj(value):
        if value.imag:
            return f"({value.real:.4g}{value.imag:+.4g}j)"
        value = value.real
    value = float(value)
    near = round(value)
    if abs(value) < 1e6 and abs(value - near) <= 1e-6 * abs(value):
        return str(near)
    return f"{value:.8g}" if abs(value - 1) < 1e-3 else f"{value:.4g}"


def _signed(value: Any) -> str:
    if np.iscomplexobj(value) and value.imag:
        return f"plus {_number(value)}"
    value = float(np.real(value))
    return f"minus {_number(-value)}" if value < 0 else f"plus {_number(value)}"
