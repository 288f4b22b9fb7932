"""Where the elements that are off sit: a row, a border, a channel, a gate, a triangle, a sign."""

from __future__ import annotations

import math

import numpy as np

from msnb.parity.views import Array, Pattern, View, number

_CHANCE = 1e-3


_Place = tuple[int, Pattern]  # how many elements it has, and what it is


def find_place(view: View) -> Pattern | None:
    """Where the elements that are off sit, if that is no accident."""
    if view.count == view.off.size or view.count < 2:
        return None
    finders = (_edges, _box, _sign_place, _triangle, _large)
    found = [place for find in finders if (place := find(view)) is not None]
    return min(found, key=lambda place: place[0])[1] if found else None


def _by_chance(view: View, region: int, choices: float) -> bool:
    """Whether as many elements at random might fall into one of ``exp(choices)`` such regions."""
    size = view.off.size
    if region >= size or view.count < 0.5 * region:
        return True
    return choices + view.count * math.log(region / size) > math.log(_CHANCE)


def _edges(view: View) -> _Place | None:
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
            if not _by_chance(view, region, math.log(18)):
                return region, Pattern("place", f"only the {name}", remedy)
    return None


def _others(parts: tuple[Array, ...], part: Array) -> Array:
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


def _box(view: View) -> _Place | None:
    """A set of indices along one or more axes, whose product holds all that is off."""
    kept: list[tuple[int, Array]] = []
    region, choices = 1, 0.0
    for axis, length in enumerate(view.shape):
        rest = tuple(other for other in range(view.ndim) if other != axis)
        used = np.flatnonzero(view.off.any(axis=rest))
        region *= used.size
        if used.size < length:
            kept.append((axis, used))
            choices += _choices(used, length)
    if not kept or _by_chance(view, region, choices):
        return None
    text = " and ".join(_indices(used, view.shape[axis], axis) for axis, used in kept)
    many = len(kept) == 1 and kept[0][1].size > 1 and not _block(kept[0][1], view.shape[kept[0][0]])
    if len(kept) > 1:
        return region, Pattern("place", f"elements differ only at {text}")
    axis, used = kept[0]
    text = f"only {text} differ{'' if many else 's'}{_nickname(view, axis, used)}"
    return region, Pattern("place", text, _box_remedy(view, axis, used))


def _choices(used: Array, length: int) -> float:
    """The logarithm of how many sets of indices of this kind the axis has."""
    if used.size == 1:
        return math.log(2 if used[0] in (0, length - 1) else length)
    if used[-1] - used[0] + 1 == used.size:
        return math.log(length * length / 2)
    if np.all(np.diff(used) == used[1] - used[0]):
        return 3 * math.log(length)
    return (
        math.lgamma(length + 1) - math.lgamma(used.size + 1) - math.lgamma(length - used.size + 1)
    )


def _block(used: Array, length: int) -> tuple[int, int] | None:
    """(which, of how many) where ``used`` is exactly one of 4, 3 or 2 equal blocks."""
    for count in (4, 3, 2):
        width, rest = divmod(length, count)
        if not rest and used.size == width > 1 and used[-1] - used[0] + 1 == width:
            which, rest = divmod(int(used[0]), width)
            if not rest:
                return which, count
    return None


def _indices(used: Array, length: int, axis: int) -> str:
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


def _nickname(view: View, axis: int, used: Array) -> str:
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


def _box_remedy(view: View, axis: int, used: Array) -> str:
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


def _sign_place(view: View) -> _Place | None:
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
        if np.any(view.off & ~mask) or _by_chance(view, region, math.log(3)):
            continue
        if not np.any(e[~mask]):  # the rest is zero on both sides: a product with anything is
            continue
        text = f"only elements {name.format(there=view.names[1])} differ"
        return region, Pattern("place", text, remedy)
    return None


def _triangle(view: View) -> _Place | None:
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
        if np.any(view.off & ~mask) or _by_chance(view, region, math.log(6)):
            continue
        return region, Pattern(
            "place",
            f"only {name} of axes {view.ndim - 2} and {view.ndim - 1} differs",
            "likely a causal mask (True for 'keep' or for 'leave out', with or without the "
            "diagonal), or a factorisation that fills one triangle",
        )
    return None


def _large(view: View) -> _Place | None:
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
    if np.any(view.off & ~beyond) or _by_chance(view, region, math.log(view.off.size)):
        return None
    return region, Pattern(
        "place",
        f"only elements beyond {number(edge)} in size differ",
        "likely the range: an overflow, a saturation, or a threshold between two formulas",
    )
