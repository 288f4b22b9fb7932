"""What to do about what moved: the lines below a comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msnb.regression.moved import Change


def to_do(
    changes: Sequence[Change],
    before: Mapping[str, object],
    after: Mapping[str, object],
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
    for change in (c for c in broken if c.kind == "band"):
        where, _, metric = change.where.rpartition(": ")
        lines.append(
            f"{where}: {metric} left the band: {change.before} -> {change.after}, {change.note}"
        )
        first = "" if "loss" in metric else "at the loss curve of the same net, then "
        lines.append(f"  look {first}layer by layer, with msnb.check_migration")
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
