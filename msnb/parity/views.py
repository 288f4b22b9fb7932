"""What the finders of patterns share: the arrays, what is off, what counts as explained."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = Any
SLACK = 4.0  # a transformation may leave this many limits: its own numbers are rounded, too
EXPLAINED = 0.1


@dataclass(frozen=True)
class Pattern:
    """One regularity in a difference.

    ``kind`` is a word to test for, ``text`` the finding, ``remedy`` its usual cause, which the
    numbers suggest and do not prove.
    """

    kind: str
    text: str
    remedy: str = ""


class View:
    """Both arrays, the limit and the mask of what is off, for the finders to share."""

    def __init__(
        self,
        actual: Array,
        expected: Array,
        limit: Any,
        off: Array | None,
        names: tuple[str, str],
        dtype: str,
    ) -> None:
        self.actual, self.expected, self.names, self.dtype = actual, expected, names, dtype
        self.shape, self.ndim = expected.shape, expected.ndim
        self.tolerance = SLACK * np.broadcast_to(np.asarray(limit, dtype=float), self.shape)
        with np.errstate(all="ignore"):
            self.difference = actual - expected
            self.finite = np.isfinite(actual) & np.isfinite(expected)
            if off is None:
                same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
                near = np.abs(self.difference) <= self.tolerance / SLACK
                off = ~(same | near)
        self.off = off
        self.count = int(np.count_nonzero(off))
        self.judged = off & self.finite  # what a transformation has to explain

    @cached_property
    def sample(self) -> Array:
        """Flat indices of some elements that are off, to turn down a wrong idea cheaply."""
        flat = np.flatnonzero(self.judged)
        return flat[:: max(1, flat.size // 2048)]

    def plausible(self, candidate: Array, slack: float = 1.0) -> bool:
        """Whether ``candidate``, the values at ``sample``, turns into ``actual`` there."""
        left = np.abs(self.actual.flat[self.sample] - candidate)
        return bool(np.all(left <= slack * self.tolerance.flat[self.sample]))

    @cached_property
    def before(self) -> float:
        return float(np.sqrt(np.mean(np.abs(self.difference[self.judged]) ** 2)))

    def explains(
        self, candidate: Array, *, among: Array | None = None, tolerance: Any = None
    ) -> bool:
        """Whether ``candidate`` turns into ``actual`` within the limit, well beyond chance."""
        among = self.finite if among is None else among
        tolerance = self.tolerance if tolerance is None else tolerance
        left = np.abs(self.actual - candidate)
        if np.any(~(left <= tolerance) & among):
            return False
        rest = float(np.sqrt(np.mean(left[self.judged] ** 2)))
        return rest <= EXPLAINED * self.before


def number(value: Any) -> str:
    if np.iscomplexobj(value):
        if value.imag:
            return f"({value.real:.4g}{value.imag:+.4g}j)"
        value = value.real
    value = float(value)
    near = round(value)
    if abs(value) < 1e6 and abs(value - near) <= 1e-6 * abs(value):
        return str(near)
    return f"{value:.8g}" if abs(value - 1) < 1e-3 else f"{value:.4g}"


def signed(value: Any) -> str:
    if np.iscomplexobj(value) and value.imag:
        return f"plus {number(value)}"
    value = float(np.real(value))
    return f"minus {number(-value)}" if value < 0 else f"plus {number(value)}"
