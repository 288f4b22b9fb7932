"""What things cost: ratios and medians measured in one run, `python -m benchmarks [names]`.

A benchmark is a module here with a function ``rows()`` that yields ``Row`` s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Row:
    """Seconds of one thing, beside those of a baseline measured in turns with it.

    ``limit`` in seconds is held against the median, or, with ``beyond``, against the median of what
    the thing takes beyond its baseline in the same turn; ``ratio_limit`` against the median of its
    ratios to the baseline. ``unit`` is ``s``, or ``B`` where it is bytes that are compared. A Row
    with a ``skipped`` reason has no numbers.
    """

    name: str
    seconds: tuple[float, ...] = ()
    baseline: tuple[float, ...] = ()
    baseline_name: str = ""
    limit: float | None = None
    beyond: bool = False
    skipped: str = ""
    ratio_limit: float | None = None
    unit: str = "s"

    @property
    def judged(self) -> float:
        """The number that ``limit`` is about."""
        if self.beyond:
            return median(a - b for a, b in zip(self.seconds, self.baseline, strict=True))
        return median(self.seconds)

    @property
    def ok(self) -> bool:
        if self.skipped:
            return True
        if self.ratio_limit is not None and median(self.ratios) > self.ratio_limit:
            return False
        return self.limit is None or self.judged <= self.limit

    @property
    def ratios(self) -> list[float]:
        """The thing to its baseline, turn by turn."""
        return [a / b for a, b in zip(self.seconds, self.baseline, strict=True)]

    def lines(self) -> Iterator[str]:
        """The Row as text: the median, the spread, the ratio, and the limit."""
        if self.skipped:
            yield f"{self.name}: skipped, {self.skipped}"
            return
        show = _time if self.unit == "s" else _size
        yield f"{self.name}: {_spread(self.seconds, show)}"
        if self.baseline:
            yield f"    {self.baseline_name}: {_spread(self.baseline, show)}"
            yield f"    ratio {_spread(self.ratios, _ratio)}"
        if self.ratio_limit is not None:
            verdict = _verdict(median(self.ratios) <= self.ratio_limit)
            yield f"    {verdict}: ratio {median(self.ratios):.2f}, limit {self.ratio_limit:.2f}"
        if self.limit is not None:
            verdict = _verdict(self.judged <= self.limit)
            which = "beyond the baseline " if self.beyond else ""
            yield f"    {verdict}: {which}{_time(self.judged)}, limit {_time(self.limit)}"


def _verdict(within: bool) -> str:
    return "ok" if within else "OVER THE LIMIT"


def in_turns(*things: Callable[[], object], turns: int, calls: int = 1) -> list[tuple[float, ...]]:
    """Seconds per call of each thing, measured one after the other, again and again.

    Taking turns lets a busy machine slow all of them alike. A first turn is thrown away.
    """
    taken: list[list[float]] = [[] for _ in things]
    for turn in range(turns + 1):
        for thing, seconds in zip(things, taken, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                thing()
            if turn:
                seconds.append((time.perf_counter() - start) / calls)
    return [tuple(seconds) for seconds in taken]


def _time(seconds: float) -> str:
    size = abs(seconds)
    if size < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if size < 1 else f"{seconds:.2f} s"


def _size(number: float) -> str:
    return f"{number / 2**20:.0f} MiB"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"


def _spread(values: tuple[float, ...] | list[float], show: Callable[[float], str]) -> str:
    return f"{show(median(values))}  [{show(min(values))} to {show(max(values))}, n={len(values)}]"
