"""What two calls gave, held against each other: rows, and the distance from double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from msnb.parity.arrays import compare, to_numpy
from msnb.parity.calls import Raised, dtype, is_floating, is_real, leaves
from msnb.parity.limits import EPS
from msnb.report import Check, Report

_Array = np.ndarray[Any, Any]

SIGMAS = 6.0  # of a random result's statistics: one false alarm in five hundred million
_CONDITION = 8.0  # an input's last bit, moved this many times as much, excuses a difference
_NEAR = 4.0  # how much farther from the truth than PyTorch MindSpore may be, element by element
_ROUNDED = 64.0  # in eps: PyTorch excuses MindSpore by its own rounding, not by being wrong


def judge(
    row: str,
    ours: Any,
    torch: Any,
    truth: Any,
    moved: Callable[[], list[Any]],
    limits: Mapping[str, Any],
    *,
    name: str = "PyTorch in float64",
) -> list[Check]:
    """One row: agreement, or what differs and how far each side is from double precision.

    ``truth`` is the result in double precision or None, called ``name``. Two results whose distance
    exceeds the limit still agree where each element of both is as near to the truth as rounding and
    the last bit of the inputs allow (``moved``: the truth for inputs moved by it): then the problem
    is ill-conditioned, and not the port wrong.
    """
    report = compare(ours, torch, **limits)
    if report.ok:
        return [folded(row, report)]
    bad = [check for check in report if check.status in ("failed", "error")]
    off = distances(ours, torch, truth)
    values_only = all(check.id.endswith("values") for check in bad)
    stated = limits.get("rtol") is not None or limits.get("atol") is not None
    if off and values_only and not stated and _excused(ours, torch, truth, moved()):
        return [
            Check(
                row,
                "ok",
                f"as near to {name} as the inputs' last bit: MindSpore {off[0]:.2g}, PyTorch "
                f"{off[1]:.2g} (relative; ill-conditioned)",
                metrics={"mindspore_off": off[0], "torch_off": off[1]},
            )
        ]
    checks = []
    for check in bad:
        summary = check.summary
        if off is not None and check.id.endswith("values"):
            summary += f"; against {name} MindSpore is {off[0]:.2g} off, PyTorch {off[1]:.2g}"
            if off[1] > 100 * off[0]:
                summary += ": PyTorch's side is the one that is off"
        identity = row if len(bad) == 1 else f"{row}: {check.id}"
        checks.append(replace(check, id=identity, summary=summary))
    return checks


def _excused(ours: Any, torch: Any, truth: Any, moved: list[Any]) -> bool:
    """Whether every element is as near to the truth as its conditioning, or PyTorch, allows."""
    rows = [leaves(value) for value in (ours, torch, truth, *moved)]
    if len({len(row) for row in rows}) != 1:
        return False
    for mine, theirs, exact, *shaken in zip(*rows, strict=True):
        if not is_real(exact):
            if not compare(mine, theirs).ok:
                return False
            continue
        m, t, e = (to_numpy(leaf)[0].astype(np.float64) for leaf in (mine, theirs, exact))
        others = [to_numpy(leaf)[0].astype(np.float64) for leaf in shaken]
        if {a.shape for a in (m, t, *others)} != {e.shape}:
            return False
        finite = np.isfinite(e)
        if not (np.isfinite(m) == np.isfinite(t)).all():
            return False
        finite &= np.isfinite(m)
        with np.errstate(all="ignore"):
            swing = np.max([np.abs(other - e) for other in others] or [np.zeros_like(e)], axis=0)
            eps = EPS[dtype(mine)]
            rms = np.sqrt(np.mean(np.square(e[finite]))) if finite.any() else 0.0
            rounded = np.minimum(np.abs(t - e), _ROUNDED * eps * np.maximum(np.abs(e), rms))
            allowed = _CONDITION * np.nan_to_num(swing) + _NEAR * rounded + 24 * eps * np.abs(e)
            if not all((np.abs(side - e) <= allowed)[finite].all() for side in (m, t)):
                return False
    return True


def distances(ours: Any, torch: Any, truth: Any) -> tuple[float, float] | None:
    """How far each side is from the truth, relative to its rms; None where that says nothing."""
    if truth is None:
        return None
    worst = [0.0, 0.0]
    for exact, *sides in zip(leaves(truth), leaves(ours), leaves(torch), strict=False):
        if not (is_real(exact) and all(is_real(side) for side in sides)):
            continue
        true = to_numpy(exact)[0].astype(np.float64)
        finite = np.isfinite(true)
        top = float(np.abs(true[finite]).max(initial=0.0))  # its square may overflow
        size = top * float(np.sqrt(np.mean(np.square(true[finite] / top)))) if top > 0 else 0.0
        for i, side in enumerate(sides):
            got = to_numpy(side)[0].astype(np.float64)
            if got.shape != true.shape or not np.isfinite(got[finite]).all():
                return None
            if np.isfinite(got[~finite]).any():
                return None  # a number where NaN or Inf is due: no distance says that
            if size > 0:
                off = np.abs(got[finite] - true[finite])
                worst[i] = max(worst[i], float(off.max(initial=0.0)) / size)
    return worst[0], worst[1]


def folded(row: str, report: Report) -> Check:
    """A comparison that is ok as one row: that of the values nearest to their limit."""
    values = [check for check in report if check.id.endswith("values")]
    best = max(values, key=lambda check: check.metrics.get("limits", 0.0), default=None)
    if best is None:
        return Check(row, "ok", report.headline())
    return Check(row, "ok", best.summary, metrics=best.metrics)


def exceptions(row: str, torch: Any, ours: Any) -> Check | None:
    """The Check where at least one side raised; None where both gave values."""
    if isinstance(ours, Raised) and isinstance(torch, Raised):
        both = f"PyTorch {torch}; MindSpore {ours}"
        if {ours.type, torch.type} <= {"TypeError", "AttributeError", "NameError"}:
            return Check(
                row,
                "error",
                f"neither could be called: {both}",
                remedy="look at the two functions and their arguments: nothing was compared",
            )
        return Check(row, "ok", f"both refuse: {both}")
    if isinstance(ours, Raised):
        return Check(
            row,
            "failed",
            "MindSpore raises, PyTorch returns a value",
            found=str(ours),
            expected="a value on both sides",
        )
    if isinstance(torch, Raised):
        return Check(
            row,
            "failed",
            f"PyTorch raises {torch.type}, MindSpore returns a value",
            found="a value",
            expected=str(torch),
        )
    return None


def identical(left: Any, right: Any) -> bool:
    """Equal bit by bit but for the sign of zero; exceptions by type."""
    if isinstance(left, Raised) or isinstance(right, Raised):
        return type(left) is type(right) and left.type == right.type
    ours, theirs = leaves(left), leaves(right)
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):
        if not (hasattr(a, "dtype") and hasattr(b, "dtype")):
            if a != b:
                return False
        elif not np.array_equal(to_numpy(a)[0], to_numpy(b)[0], equal_nan=is_floating(a)):
            return False
    return True


def size(value: Any) -> int:
    """How many elements a result has."""
    return sum(to_numpy(leaf)[0].size for leaf in leaves(value) if hasattr(leaf, "dtype"))


def flat(value: Any) -> _Array:
    return np.concatenate([to_numpy(leaf)[0].astype(np.float64).ravel() for leaf in leaves(value)])


def distribution(row: str, torch: _Array, ours: _Array) -> Check:
    """Two samples of a random result held against each other by zeros, mean and spread."""
    lines, remedy = [], ""
    for what, left, right, noise in _statistics(torch, ours):
        if abs(left - right) <= SIGMAS * noise:
            continue
        lines.append(f"{what}: PyTorch {left:.3g}, MindSpore {right:.3g}")
        if what == "share of zeros" and abs(left + right - 1) <= SIGMAS * noise:
            remedy = (
                "the shares are swapped: the first positional argument of MindSpore's nn.Dropout "
                f"is the probability to keep; write nn.Dropout(p={left:.2g})"
            )
        elif what == "share of zeros":
            remedy = f"another probability: PyTorch drops about {left:.2g}; name it, p={left:.2g}"
    count = min(len(torch), len(ours))
    return Check(
        row,
        "failed" if lines else "ok",
        "; ".join(lines)
        or f"random on both sides; zeros, mean and spread of {count} values agree to "
        f"{SIGMAS:g} standard errors",
        expected="the same statistics",
        remedy=remedy or ("look at the parameters of the distribution" if lines else ""),
    )


def _statistics(left: _Array, right: _Array) -> Iterator[tuple[str, float, float, float]]:
    """Name, both values and the standard error of their difference."""
    count = min(len(left), len(right))
    for what, score in (
        ("share of zeros", lambda a: (a == 0).astype(np.float64)),
        ("mean", lambda a: a),
        ("mean square", np.square),
    ):
        a, b = score(left), score(right)
        yield what, a.mean(), b.mean(), float(np.sqrt((a.var() + b.var() + 1e-12) / count))
