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
from itertools import permutations
from typing import Any

import numpy as np

from msnb.parity.places import find_place
from msnb.parity.views import EXPLAINED, Array, Pattern, View, number, signed

_LARGE = 4_000_000


def find_patterns(
    actual: Array,
    expected: Array,
    limit: Any = 0.0,
    *,
    off: Array | None = None,
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
    view = View(np.asarray(actual), np.asarray(expected), limit, off, names, dtype)
    if not view.count or view.actual.size < 2:
        return []
    with np.errstate(all="ignore"):
        return list(_search(view))


def _search(view: View) -> Iterator[Pattern]:
    if not np.any(view.judged):
        yield _not_finite(view)
        place = find_place(view)
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
    place = find_place(view)
    if place:
        yield place
    part = next((found for find in _PART if (found := find(view, view.judged))), None)
    if part is not None:
        where = "there" if place else "where they differ,"
        yield Pattern(part.kind, f"{where} {part.text}", part.remedy)


# -- transformations ------------------------------------------------------------------------------


def _not_finite(view: View) -> Pattern:
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


def _zero(view: View, among: Array) -> Pattern | None:
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


def _constant(view: View, among: Array) -> Pattern | None:
    values = view.actual[among]
    if np.count_nonzero(view.judged) < 4 or np.any(values != values[0]):
        return None
    wanted = view.expected[among]
    if np.all(wanted == wanted[0]):
        return None
    return Pattern(
        "constant",
        f"{view.names[0]} holds {number(values[0])} everywhere",
        "likely a fill value, a reduction over one axis too many that was broadcast, or a result "
        "that was frozen when the graph was compiled",
    )


def _inverted(view: View, among: Array) -> Pattern | None:
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


def _factor(view: View, among: Array) -> Pattern | None:
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
    text = f"{here} is {number(factor)} times {there}"
    return Pattern(kind, text if kind != "sign" else f"{here} is minus {there}", meaning)


def _meaning(factor: Any, doubt: float, view: View) -> tuple[str, str]:
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


def _offset(view: View, among: Array) -> Pattern | None:
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
        f"{view.names[0]} is {view.names[1]} {signed(offset)}",
        "likely a constant added on one side only: a bias, an eps, or indices that count from 1",
    )


def _affine(view: View, among: Array) -> Pattern | None:
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
        f"{view.names[0]} is {number(factor)} times {view.names[1]} {signed(offset)}",
        "likely another normalisation: mean and standard deviation of the images, or gamma and "
        "beta",
    )


def _per_index(view: View, among: Array) -> Pattern | None:
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
                f"{axis} (size {length}), from {number(offsets.real.min())} to "
                f"{number(offsets.real.max())}",
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
                f"{axis} (size {length}), from {number(real.min())} to {number(real.max())}",
                "likely vectors whose sign is free, as from svd, eigh or qr: compare up to the sign"
                if one
                else "likely a gamma, a running variance or a length along this axis that is left "
                "out, applied twice or not loaded",
            )
    return None


def _magnitude(view: View, among: Array) -> Pattern | None:
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


def _dropped(view: View, among: Array) -> Pattern | None:
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
            f"{share:.0%} of {name} is zero, the rest is {number(ratio)} times as large",
            f"likely dropout with p = {rate:.3g} at work in {name} only: a MindSpore cell is in "
            "evaluation mode until set_train(), a torch module in training mode until eval()",
        )
    return None


def _clamped(view: View, among: Array) -> Pattern | None:
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
            f"{word} {number(value)}"
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


def _rounded(view: View, among: Array) -> Pattern | None:
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


def _as_dtype(values: Array, dtype: str) -> Array:
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float64)
    bits = values.astype(np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return kept.view(np.float32).astype(np.float64)


def _order(view: View, among: Array) -> Pattern | None:
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


def _order_along(view: View, axis: int) -> Pattern | None:
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


def _is_blockwise(order: Array, count: int) -> bool:
    width, rest = divmod(order.size, count)
    if rest or width < 2:
        return False
    blocks = order.reshape(count, width)
    return bool(
        np.all(blocks == blocks[:, :1] + np.arange(width)) and np.all(blocks[:, 0] % width == 0)
    )


def _shifted(view: View, among: Array) -> Pattern | None:
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
            if float(np.sqrt(np.mean(left[moved] ** 2))) > EXPLAINED * view.before:
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


def _may_shift(view: View, group: tuple[int, ...], step: int) -> bool:
    at: list[Array] = list(np.unravel_index(view.sample, view.shape))
    inside = np.ones(view.sample.size, dtype=bool)
    for axis in group:
        at[axis] = at[axis] - step
        inside &= (at[axis] >= 0) & (at[axis] < view.shape[axis])
    at = [index[inside] for index in at]
    here = view.sample[inside]
    left = np.abs(view.actual.flat[here] - view.expected[tuple(at)])
    bound = np.maximum(view.tolerance.flat[here], view.tolerance[tuple(at)])
    return bool(np.all(left <= bound))


def _repeated(view: View, among: Array) -> Pattern | None:
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


_Finder = Callable[[View, Array], "Pattern | None"]
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
