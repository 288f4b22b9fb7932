"""What moved between two runs, or between two environments: one comparison for both.

Standard library only, and of ours only ``msnb.report``: the doctor uses it, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msnb.report import STATUSES, Check, Report

_NOTICED = 0.01  # relative change of a metric from which it is told
_SLOWER = 1.25, 2.0  # a duration is told from this factor on, and from so many seconds

# Which way a metric gets better, by the names that msnb's checks use; "" where neither is better.
_DOWN = (
    *("abs", "beyond", "different", "drift", "error", "files", "hidden", "limits", "loss", "lost"),
    *("max", "nonfinite", "off", "rel", "rounded", "seconds", "ulp", "unlike", "used", "worst"),
    "wrong",
)
_UP = ("accuracy", "agreement", "correct", "cosine", "speedup")
_OF_MAX = {"max_abs", "max", "max_abs_error"}  # what a metric called "limit" is the limit of
_SHARES = {"limits", "used"}  # these are shares of their limit


@dataclass(frozen=True)
class Change:
    """One thing that is not what it was.

    ``kind`` is notebook, verdict, check, band (a metric that left the band of a baseline), metric,
    duration, environment, parameter or run; ``where`` names the thing. ``worse`` is ``None`` where
    neither side is better. ``note`` holds a metric's limit and direction.
    """

    kind: str
    where: str
    before: str
    after: str
    worse: bool | None = None
    note: str = ""

    def to_check(self) -> Check:
        """The change as a row: failed where a verdict or a check is worse, or a band was left."""
        broken = self.worse is True and self.kind in ("verdict", "check", "notebook", "band")
        said = f"{self.before} -> {self.after}" + (f"; {self.note}" if self.note else "")
        if self.worse is not None and not broken and not self.note:
            said += "; worse" if self.worse else "; better"
        return Check(f"{self.kind} {self.where}", "failed" if broken else "ok", said)


def facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs between two nested JSON values, by dotted name.

    >>> [change.where for change in facts({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2})]
    ['a.b']
    """
    one, other = dict(_flat(before)), dict(_flat(after))
    return [
        Change("environment", name, one.get(name, "absent"), other.get(name, "absent"))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]


def stable(gathered: Mapping[str, Any]) -> dict[str, Any]:
    """Of the doctor's facts those that tell one environment from another.

    Left out are paths and the working folder, which differ between two machines set up alike, and
    the values of variables.
    """
    distributions, chips = (
        _at(gathered, "distributions"),
        _at(gathered, "ascend", "npu_smi", "chips"),
    )
    variables = gathered.get("variables")
    return {
        "device target": gathered.get("target"),
        "python": {
            "version": _dotted(_at(gathered, "python", "version")),
            **{name: _at(gathered, "python", name) for name in ("kind", "platform", "machine")},
        },
        "packages": {
            name: _at(about, "version") if isinstance(about, Mapping) else about
            for name, about in (distributions.items() if isinstance(distributions, Mapping) else ())
        },
        "ascend": {
            **{
                part: _at(gathered, "ascend", part, "version")
                for part in ("cann", "driver", "firmware")
            },
            "CANN product": _at(gathered, "ascend", "cann", "product"),
            "accepted CANN": _at(gathered, "ascend", "accepted", "versions"),
            "chips": [_at(chip, "name") for chip in (chips if isinstance(chips, list) else ())],
        },
        "variables that are set": sorted(
            map(str, variables if isinstance(variables, (list, Mapping)) else ())
        ),
    }


def _at(value: Any, *names: str) -> Any:
    """What lies at ``names`` in nested JSON; ``None`` where the way there ends."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def read(path: Path) -> dict[str, Any]:
    """The doctor's facts or Report, or a run's results, in the JSON file (or run folder) ``path``.

    Raises ``ValueError`` with one sentence where it holds none of them.
    """
    file = path / "results.json" if path.is_dir() else path
    try:
        record = json.loads(file.read_bytes())  # UTF-8, or UTF-16 as PowerShell's > writes it
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict) and _is_known(record):
        return record
    raise ValueError(
        f"{file} holds neither a run's results nor what msnb doctor --json prints: write such a "
        "file with msnb doctor --json > before.json"
    )


def _is_known(record: Mapping[str, Any]) -> bool:
    if isinstance(record.get("notebooks"), list):
        return True
    if isinstance(_at(record.get("facts", record), "python"), Mapping):
        return True
    checks = record.get("checks")
    return isinstance(checks, list) and all(
        isinstance(_at(check, "id"), str) and _at(check, "status") in STATUSES for check in checks
    )


def environment(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs between two environments, each as ``read`` returns it.

    Both sides' facts are compared; where a side is a Report without facts, both sides' checks.

    Raises ``ValueError`` where the two have nothing in common that could be compared.
    """
    one, other = _facts(before), _facts(after)
    if one is not None and other is not None:
        return facts(stable(one), stable(other))
    if "checks" in before and "checks" in after:
        return _checks("", before["checks"], after["checks"])
    raise ValueError("one of the two holds no facts of its environment, and the other no checks")


def runs(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What moved from one run to another, each the content of a ``results.json``: worse first.

    Compared are the notebooks and their verdicts, the checks they show with their metrics, the
    durations, the parameters, and the environment.
    """
    changes = []
    for name in ("device", "complete"):
        if before.get(name) != after.get(name):
            changes.append(Change("run", name, str(before.get(name)), str(after.get(name))))
    changes += _surroundings(before.get("environment", {}), after.get("environment", {}))
    one = {entry["notebook"]: entry for entry in before["notebooks"]}
    other = {entry["notebook"]: entry for entry in after["notebooks"]}
    for name in dict.fromkeys([*one, *other]):
        if name not in other:
            changes.append(Change("notebook", name, one[name]["verdict"], "not run", worse=True))
        elif name not in one:
            verdict = other[name]["verdict"]
            changes.append(Change("notebook", name, "not run", verdict, verdict != "ok"))
        else:
            changes += _notebook(name, one[name], other[name])
    order = {"verdict": 0, "notebook": 0, "check": 1, "metric": 2}
    return sorted(changes, key=lambda c: (c.worse is not True, order.get(c.kind, 3)))


def to_report(title: str, changes: Sequence[Change]) -> Report:
    """The changes as a Report; it fails where a verdict or a check got worse."""
    if not changes:
        return Report(title, [Check("moved", "ok", "nothing")])
    rows: dict[str, Check] = {}
    for change in changes:
        check = change.to_check()
        count, id = 2, check.id
        while id in rows:
            id, count = f"{check.id} ({count})", count + 1
        rows[id] = Check(**{**check.__dict__, "id": id})
    return Report(title, rows.values())


def direction(metric: str) -> str:
    """``down`` where less is better, ``up`` where more is, else empty.

    >>> direction("max_abs"), direction("accuracy"), direction("size")
    ('down', 'up', '')
    """
    words = metric.lower().replace("-", "_").split("_")
    if any(word in _UP for word in words):
        return "up"
    return "down" if any(word in _DOWN for word in words) else ""


def limit_of(metric: str, metrics: Mapping[str, Any]) -> float | None:
    """The limit of ``metric`` among the ``metrics`` of its check; ``None`` where none is told.

    ``<metric>_limit`` is one, ``limit`` that of the largest difference, and shares of a limit
    (``limits``, ``used``) have 1.
    """
    named = metrics.get(f"{metric}_limit")
    if named is None and metric in _OF_MAX:
        named = metrics.get("limit")
    if named is None and metric in _SHARES:
        return 1.0
    return None if named is None else float(named)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(v, (Mapping, list)) for v in value):
        for position, inner in enumerate(value):
            yield from _flat(inner, f"{name}[{position}]")
    elif isinstance(value, (list, tuple)):
        yield name, ", ".join(map(str, value)) or "none"
    else:
        yield name, "none" if value is None else str(value)


def _dotted(version: Any) -> Any:
    return ".".join(map(str, version)) if isinstance(version, (list, tuple)) else version


def _facts(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if "notebooks" in record:
        record = record["environment"] if isinstance(record.get("environment"), Mapping) else {}
    if isinstance(record.get("facts"), Mapping):
        found: Mapping[str, Any] = record["facts"]
        return found
    return record if "python" in record and "distributions" in record else None


def _surroundings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Of a run's environment: the facts, then what the run itself adds to them."""
    changes = []
    if isinstance(before.get("facts"), Mapping) and isinstance(after.get("facts"), Mapping):
        changes = facts(stable(before["facts"]), stable(after["facts"]))
    own = {
        name: (before.get(name), after.get(name))
        for name in ("platform", "cores", "revision", "dirty", "versions")
    }
    known = {change.where.removeprefix("packages.") for change in changes}
    changes += [
        change
        for change in facts(
            {name: pair[0] for name, pair in own.items()},
            {name: pair[1] for name, pair in own.items()},
        )
        if change.where.removeprefix("versions.") not in known
    ]
    return changes


def _notebook(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    changes = []
    if before["verdict"] != after["verdict"]:
        worse = after["verdict"] != "ok" and (
            STATUSES.index(after["verdict"]) > STATUSES.index(before["verdict"])
        )
        changes.append(
            Change(
                "verdict",
                name,
                before["verdict"],
                after["verdict"],
                worse,
                "" if after["verdict"] == "ok" else str(after.get("reason", "")),
            )
        )
    elif after["verdict"] != "ok" and before.get("reason") != after.get("reason"):
        reasons = str(before.get("reason", "")), str(after.get("reason", ""))
        changes.append(Change("verdict", name, *reasons))
    parameters = before.get("parameters", {}), after.get("parameters", {})
    changes += [
        Change("parameter", f"{name}: {change.where}", change.before, change.after)
        for change in facts(*parameters)
    ]
    for kind in ("required", "findings"):
        changes += _reports(name, before.get(kind, ()), after.get(kind, ()), kind == "required")
    seconds = float(before.get("seconds", 0)), float(after.get("seconds", 0))
    factor, least = _SLOWER
    if max(seconds) > factor * min(seconds) and abs(seconds[1] - seconds[0]) > least:
        one, other = (f"{value:.1f} s" for value in seconds)
        changes.append(Change("duration", name, one, other, seconds[1] > seconds[0]))
    return changes


def _reports(
    notebook: str, before: Sequence[Any], after: Sequence[Any], required: bool
) -> list[Change]:
    """Compare Reports of one notebook, matched by title and, among equals, by their order."""

    def named(judged: Sequence[Any]) -> dict[tuple[str, int], list[Any]]:
        found: dict[tuple[str, int], list[Any]] = {}
        for entry in judged:
            title, count = entry["report"]["title"], 0
            while (title, count) in found:
                count += 1
            found[title, count] = entry["report"]["checks"]
        return found

    one, other = named(before), named(after)
    changes = []
    for title, count in dict.fromkeys([*one, *other]):
        where = f"{notebook}: {title}: " if count == 0 else f"{notebook}: {title} [{count + 1}]: "
        changes += _checks(
            where, one.get((title, count), []), other.get((title, count), []), required
        )
    return changes


def _checks(
    where: str, before: Sequence[Any], after: Sequence[Any], required: bool = True
) -> list[Change]:
    one = {check["id"]: check for check in before}
    other = {check["id"]: check for check in after}
    changes = []
    for id in dict.fromkeys([*one, *other]):
        if id not in one or id not in other:
            was, now = (side[id]["status"] if id in side else "absent" for side in (one, other))
            gone = True if required and id not in other else None
            changes.append(Change("check", where + id, was, now, gone))
            continue
        statuses = one[id]["status"], other[id]["status"]
        if statuses[0] != statuses[1]:
            worse = STATUSES.index(statuses[1]) > STATUSES.index(statuses[0])
            told = "" if statuses[1] == "ok" else str(other[id].get("summary", ""))
            # a finding is shown on purpose, good or bad: the verdict does not rest on it
            changes.append(
                Change("check", where + id, *statuses, worse if required else None, told)
            )
        changes += _metrics(where + id, one[id].get("metrics", {}), other[id].get("metrics", {}))
    return changes


def _metrics(where: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    changes = []
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            told = [_number(side[name]) if name in side else "absent" for side in (before, after)]
            changes.append(Change("metric", f"{where}: {name}", told[0], told[1]))
            continue
        one, other = float(before[name]), float(after[name])
        if one == other or (math.isnan(one) and math.isnan(other)):
            continue
        larger = max(abs(one), abs(other))
        if math.isfinite(larger) and abs(other - one) < _NOTICED * larger:
            continue
        way = direction(name)
        limit = limit_of(name, after)
        notes = [f"limit {_number(limit)}"] if limit is not None else []
        if way:
            notes.append("less is better" if way == "down" else "more is better")
        worse = None
        if way:
            worse = math.isnan(other) or (
                not math.isnan(one) and (other > one if way == "down" else other < one)
            )
        if worse is not None:
            notes.append("worse" if worse else "better")
        changes.append(
            Change(
                "metric", f"{where}: {name}", _number(one), _number(other), worse, ", ".join(notes)
            )
        )
    return changes


def _number(value: float | str) -> str:
    return f"{float(value):.4g}"
