"""What to do about what moved: the lines below a comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msnb.regression.moved import Change


def to_do(
    changes: Sequence[Change],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    baseline: str = "",
) -> list[str]:
    """One line for each thing to do, in order; none where nothing got worse.

    ``before`` and ``after`` are the versions of packages by name, ``baseline`` the file that a run
    was held against. Between two versions of MindSpore the recorded differences are named that hold
    in one of them only: these are changes whose cause is known.
    """
    broken = [change for change in changes if change.to_check().status == "failed"]
    known = _known(str(before.get("mindspore") or ""), str(after.get("mindspore") or ""))
    if not broken:
        if known:
            known.insert(0, "nothing here got worse; look whether your own code uses what changed:")
        return known
    lines = []
    verdicts = [change for change in broken if change.kind == "verdict"]
    for change in verdicts:
        lines.append(f"{change.where} is {change.after} now: {change.note or 'no reason is told'}")
        lines.append(f"  run it alone and read its page: msnb run {change.where}")
    if gone := [change.where for change in broken if change.kind == "notebook"]:
        lines.append(f"no longer run: {', '.join(gone)}; was it renamed, or left out on purpose?")
    failed = {change.where for change in verdicts}
    checks = [c for c in broken if c.kind == "check" and _notebook(c) not in failed]
    for change in checks:
        lines.append(
            f"{change.where} is {change.after} now"
            + (f": {change.note}" if change.note else "")
            + f"; its cell is in the page of msnb run {_notebook(change)}"
        )
    for (where, kind), count in _grouped(c for c in broken if c.kind == "band").items():
        first = next(c for c in broken if c.kind == "band" and _at(c) == (where, kind))
        more = f", and {count - 1} more of them" if count > 1 else ""
        lines.append(f"{where}: {kind} left the band ({_moved(first)}{more})")
        lines.append(
            "  the first that left says where to look: "
            + (
                "step by step with msnb.check_migration"
                if kind == "loss"
                else "at the loss curve of the same net, then at its layers with "
                "msnb.check_migration"
            )
        )
    if known:
        lines.append("recorded differences between the two versions; try these first:")
        lines += known
    elif before.get("mindspore") != after.get("mindspore"):
        lines.append("no recorded difference tells these versions apart: cause unknown")
    for package in ("torch", "numpy"):
        if before.get(package) != after.get(package):
            lines.append(
                f"{package} moved, too ({before.get(package)} -> {after.get(package)}): go back "
                "with it alone, to see which of the two it is"
            )
    if baseline:
        lines.append(
            "when each of these is understood and meant: "
            f"msnb run --baseline '{baseline}' --update-baseline"
        )
    return lines


def _known(before: str, after: str) -> list[str]:
    from packaging.version import InvalidVersion, Version

    from msnb import differences

    try:
        older, newer = sorted((before, after), key=Version)
    except InvalidVersion:
        return []
    if older == newer:
        return []
    return [
        f"  {one.id} (since {one.since}): {one.statement} Before: {one.before}"
        + (f" Write: {one.remedy}" if one.remedy else "")
        for one in differences.changed(older, newer)
    ]


def _notebook(change: Change) -> str:
    return change.where.partition(": ")[0]


def _at(change: Change) -> tuple[str, str]:
    """The Check that holds a metric, and the metric without its number: one curve is one thing."""
    where, _, metric = change.where.rpartition(": ")
    return where, metric.rstrip("0123456789").rstrip("_")


def _grouped(changes: Any) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for change in changes:
        counts[_at(change)] = counts.get(_at(change), 0) + 1
    return counts


def _moved(change: Change) -> str:
    metric = change.where.rpartition(": ")[2]
    return f"{metric}: {change.before} -> {change.after}, {change.note}"
