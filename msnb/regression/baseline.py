"""A baseline: what a run gave, kept in a small file, and how far each number may move from it.

``make`` writes down the verdict of each notebook and, of each Check it required, the status and the
metrics, each as ``[value, lowest, highest]``; ``null`` is an open end, and a metric without ends is
kept but held to nothing. ``compare`` holds a later run against them: a verdict or a Check that got
worse fails, and so does a metric that left its band. The band is the baseline's, not the later
run's: numbers that drift may not widen the band they are held to.

Where a band comes from, the first that fits:

- ``<metric>_band`` among the metrics of the same Check is half its width. Notebook 04 gives for
  each loss ten times what one ulp in the starting weights moves it, as it measures itself. What
  such weights did to the curves of notebook 06, in twenty trainings of PyTorch's: up to step 8
  2.4e-7 in float32 and 2.2e-3 in float16, later 5.2e-3 and 1.7e-2; of 355 digits they had 333
  right, and 333 to 335. Its bands: 1e-5 and 5e-3, later 0.015 and 0.03; 1 and 2 digits.
- ``<metric>_limit``, ``limit``, or 1 for a share of a limit: the Check's own limit.
- An accuracy may fall by one image: a count (``correct``) by 1, a share by 1/``images``, or by
  0.01 where nobody says how many images there are. One image is the least that rounding can move.
  It may rise.
- A loss without a band of its own may rise by a tenth: the end of a training, not a curve.
- Another number that should be small may grow tenfold where it is a fraction (a rounding error
  differs by a small factor between kernels; a wrong formula by powers of ten), or to float32's
  epsilon where that is more (0 stays 0, counted); a count may not grow.
- A cosine or an agreement may fall by 0.01 of itself.
- Durations, sizes, limits, and what has no better and worse, are held to nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msnb.regression import moved
from msnb.regression.moved import Change
from msnb.regression.results import write_whole
from msnb.report import STATUSES

SCHEMA = 1
_VERSIONS = ("mindspore", "torch", "numpy", "msnb")
_EPSILON = 2.0**-23  # float32's

Band = tuple[float | None, float | None]


def band(name: str, value: float, metrics: Mapping[str, Any]) -> Band:
    """The ends between which the metric ``name`` has to stay; ``None`` is an open end.

    >>> band("correct", 333, {"correct": 333, "images": 355})
    (332, None)
    """
    if not math.isfinite(value) or name.endswith(("_band", "_limit")) or name in ("limit",):
        return None, None
    words = set(re.split(r"[_-]", name.lower()))
    way = moved.direction(name)
    if (width := metrics.get(f"{name}_band")) is not None:
        return value - float(width), None if way == "up" else value + float(width)
    if (limit := moved.limit_of(name, metrics)) is not None:
        return (limit, None) if way == "up" else (None, limit)
    if words & {"correct", "accuracy"}:
        if "correct" in words:
            return value - 1, None
        images = float(metrics.get("images", 0))
        return value - (1 / images if images >= 1 else 0.01), None
    if "seconds" in words or "speedup" in words:
        return None, None
    if "loss" in words:
        return None, value + 0.1 * abs(value)
    if way == "down":
        whole = value != 0 and float(value).is_integer()
        return None, value if whole else max(10 * value, _EPSILON)
    return (value - 0.01 * abs(value), None) if way == "up" else (None, None)


def make(run: Mapping[str, Any]) -> dict[str, Any]:
    """The baseline of a run, whose ``results.json`` holds ``run``.

    Raises ``ValueError`` for a run that came to no end: what it did not reach would be missing.
    """
    if not run["complete"]:
        raise ValueError("the run was interrupted: a baseline is made of a whole one")
    versions = run["environment"].get("versions") or {}
    return {
        "schema": SCHEMA,
        "device": run["device"],
        "started": run["started"],
        "versions": {name: str(versions.get(name, "")) for name in _VERSIONS},
        "notebooks": {entry["notebook"]: _notebook(entry) for entry in run["notebooks"]},
    }


def _notebook(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "verdict": entry["verdict"],
        "reason": "" if entry["verdict"] == "ok" else without_paths(str(entry["reason"])),
        "parameters": dict(entry["parameters"]),
        "required": [
            {
                "title": judged["report"]["title"],
                "checks": [_check(check) for check in judged["report"]["checks"]],
            }
            for judged in entry["required"]
        ],
    }


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {}
    for name, value in check["metrics"].items():
        number = float(value)
        ends = band(name, number, check["metrics"])
        metrics[name] = [_told(number), *(None if end is None else _told(end) for end in ends)]
    return {"id": check["id"], "status": check["status"], "metrics": metrics}


def _told(value: float) -> float | str:
    """A number as it stands in the file: nine digits tell every float32 from the next."""
    if not math.isfinite(value):
        return str(value)
    return int(value) if float(value).is_integer() else float(f"{value:.9g}")


def without_paths(text: str) -> str:
    """What a reader elsewhere needs of a reason: not the folders of the machine where it arose."""
    return re.sub(r"(?<![\w.~-])/(?:[\w.@+-]+/)+", "", text)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a baseline; each metric has a line of its own."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    text = re.sub(r"\[\n\s+([^][{}\"]+?|\"-?(?:nan|inf)\"[^][{}]*?)\n\s+\]", _on_one_line, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text + "\n")


def _on_one_line(found: re.Match[str]) -> str:
    return f"[{', '.join(part.strip() for part in found[1].split(','))}]"


def read(path: Path) -> dict[str, Any]:
    """The baseline in the file ``path``; ``ValueError`` with one sentence where it holds none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"the baseline {path} cannot be read: {error.strerror}; "
            f"make one with msnb run --baseline {path} --update-baseline"
        ) from None
    except ValueError:
        raise ValueError(f"{path} is no baseline: it is not JSON") from None
    if isinstance(record, dict) and record.get("schema") not in (None, SCHEMA):
        raise ValueError(
            f"{path} has schema {record['schema']!r}, this msnb reads baselines of schema "
            f"{SCHEMA}: make it again with msnb run --baseline {path} --update-baseline"
        )
    try:
        for name, entry in record["notebooks"].items():
            if entry["verdict"] not in STATUSES:
                raise ValueError(f"the verdict of {name} is {entry['verdict']!r}")
            _reports(entry)
            if not isinstance(entry.get("parameters", {}), dict):
                raise ValueError(f"the parameters of {name} are {entry['parameters']!r}")
        str(record["device"] + record["started"]), record["versions"]["mindspore"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is no baseline, or damaged: {why}") from None
    return dict(record)


def _reports(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The required Reports of a notebook as a run's results have them: metrics are numbers."""
    return [
        {
            "number": 0,
            "report": {
                "title": _text("title", report["title"]),
                "checks": [
                    {
                        "id": _text("id", check["id"]),
                        "status": _status(check["status"]),
                        "metrics": {
                            name: _ends(told)[0] for name, told in check["metrics"].items()
                        },
                    }
                    for check in report["checks"]
                ],
            },
        }
        for report in entry["required"]
    ]


def _text(name: str, told: Any) -> str:
    if not isinstance(told, str):
        raise ValueError(f"{name} is text, not {told!r}")
    return told


def _status(told: str) -> str:
    if told not in STATUSES:
        raise ValueError(f"a check's status is one of {', '.join(STATUSES)}, not {told!r}")
    return told


def _ends(told: Any) -> tuple[float, float | None, float | None]:
    value, low, high = told
    return float(value), None if low is None else float(low), None if high is None else float(high)


def compare(
    baseline: Mapping[str, Any], run: Mapping[str, Any], only: Iterable[str] | None = None
) -> list[Change]:
    """What in ``run`` (a ``results.json``) is not as the baseline has it; what is worse first.

    ``only`` names the notebooks that were asked for: of the others, none is missed. A metric that
    left its band is a change of kind ``band``; of a curve (``loss_01``, ``loss_02`` ...) the first.

    Raises ``ValueError`` for a run on another device.
    """
    if baseline["device"] != run["device"]:
        raise ValueError(
            f"the baseline is of a run on {baseline['device']}, this one was on {run['device']}: "
            "each device has its own"
        )
    wanted = None if only is None else set(only)
    own = {entry["notebook"]: entry for entry in run["notebooks"]}
    known = {
        name: entry
        for name, entry in baseline["notebooks"].items()
        if wanted is None or name in wanted
    }
    versions = run["environment"].get("versions") or {}
    before = {
        "device": baseline["device"],
        "environment": {"versions": {name: baseline["versions"].get(name) for name in _VERSIONS}},
        "notebooks": [
            {"notebook": name, **entry, "required": _reports(entry)}
            for name, entry in known.items()
        ],
    }
    after = {
        "device": run["device"],
        "environment": {"versions": {name: str(versions.get(name, "")) for name in _VERSIONS}},
        "notebooks": [
            {**entry, "seconds": 0, "findings": [], "reason": without_paths(str(entry["reason"]))}
            for entry in run["notebooks"]
        ],
    }
    silent = {name for name, entry in known.items() if not entry["required"]}  # it stopped before
    changes = [
        change
        for change in moved.runs(before, after)
        if change.kind != "metric"
        and not (change.kind == "check" and change.where.partition(": ")[0] in silent)
    ]
    for name, entry in known.items():
        if name in own:
            changes += _out_of_band(name, entry["required"], own[name]["required"])
    order = {"verdict": 0, "notebook": 1, "check": 2, "band": 3}
    return sorted(changes, key=lambda c: (c.worse is not True, order.get(c.kind, 4)))


def _out_of_band(notebook: str, before: Any, after: Any) -> list[Change]:
    now: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for judged in after:
        for check in judged["report"]["checks"]:
            now.setdefault((judged["report"]["title"], check["id"]), []).append(check["metrics"])
    changes = []
    for report in before:
        for check in report["checks"]:
            there = now.get((report["title"], check["id"]))
            if not there:
                continue  # the Check is gone, and that is told
            metrics = there.pop(0) if len(there) > 1 else there[0]
            curves: dict[str, list[Change]] = {}
            for name, told in check["metrics"].items():
                value, low, high = _ends(told)
                if low is None and high is None:
                    continue
                said = f"from {'any' if low is None else f'{low:.7g}'} to "
                said = f"band {said}{'any' if high is None else f'{high:.7g}'}"
                found = float(metrics.get(name, math.nan))
                if (low is None or found >= low) and (high is None or found <= high):
                    continue
                after_all = f"{found:.7g}" if name in metrics else "absent"
                where = f"{notebook}: {report['title']}: {check['id']}: {name}"
                change = Change("band", where, f"{value:.7g}", after_all, True, said)
                curves.setdefault(name.rstrip("0123456789"), []).append(change)
            for first, *rest in curves.values():  # of a curve the first point is told
                more = f"; {len(rest)} more of the curve left theirs" if rest else ""
                changes.append(replace(first, note=first.note + more))
    return changes


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """``old`` with the notebooks of ``new``, a baseline of some of them.

    Raises ``ValueError`` where the two are of another device or other versions.
    """
    for name in ("device", "versions"):
        if old[name] != new[name]:
            raise ValueError(
                f"the baseline is of {_said(old[name])}, this run of {_said(new[name])}: run all "
                "notebooks to replace it"
            )
    return {**new, "notebooks": {**old["notebooks"], **new["notebooks"]}}


def _said(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
