"""Recorded statements about how MindSpore differs from PyTorch, each one executable.

A statement lives in a topic module of this package as a function under ``@difference``. The
function computes an ``Observation``: what each framework gives, what the statement claims MindSpore
gives (computed without MindSpore), and a near neighbour for which the verdict is another. ``run``
executes them and holds each verdict against the one recorded for this version and device.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from msnb.parity.calls import Raised as Raised
from msnb.parity.calls import attempt as attempt
from msnb.report import Check, Report

Verdict = Literal["agrees", "differs", "off", "raises", "accepts"]

MEANING: dict[str, str] = {
    "agrees": "both give the same",
    "differs": "both work, by different rules",
    "off": "MindSpore is off against float64, PyTorch is not",
    "raises": "MindSpore raises, PyTorch gives a value",
    "accepts": "PyTorch raises, MindSpore gives a value",
}


MEASURED = ">=2.7.2,<2.11"  # all statements were run on 2.7.2, 2.8.0, 2.9.0 and 2.10.0


@dataclass(frozen=True)
class Observation:
    """What one statement's code saw.

    ``claim`` is what the statement says MindSpore gives, from hand, NumPy or torch, never from
    MindSpore; a ``Raised`` claim matches by type and by a part of the message. ``right`` is the
    float64 truth where one side must be wrong. ``neighbour`` is the (torch, MindSpore) pair of a
    near neighbour that must get another verdict.
    """

    torch: Any
    mindspore: Any
    neighbour: tuple[Any, Any]
    claim: Any = None
    right: Any = None


@dataclass(frozen=True)
class Difference:
    """One statement; ``expected`` lists (version range, device, verdict).

    ``since`` is the first version for which it was found to hold, where an older one was seen to do
    something else; ``before`` says what.
    """

    id: str
    statement: str
    torch: str
    mindspore: str
    expected: tuple[tuple[str, str, Verdict], ...]
    observe: Callable[[], Observation] = field(compare=False)
    remedy: str = ""
    isolated: bool = False
    since: str = ""
    before: str = ""

    def expected_on(self, version: str, device: str) -> Verdict | None:
        """The verdict recorded for this MindSpore version and device, None where there is none."""
        from packaging.specifiers import SpecifierSet

        for versions, on, verdict in self.expected:
            if on == device and SpecifierSet(versions).contains(version, prereleases=True):
                return verdict
        return None

    def too_old(self, version: str) -> bool:
        """Whether this MindSpore is older than the first for which the statement holds."""
        from packaging.version import Version

        return bool(self.since) and Version(version) < Version(self.since)


def difference(
    id: str,
    statement: str,
    *,
    torch: str,
    mindspore: str,
    expected: Verdict | Iterable[tuple[str, str, Verdict]],
    remedy: str = "",
    isolated: bool = False,
    since: str = "",
    before: str = "",
) -> Callable[[Callable[[], Observation]], Difference]:
    """Turn a function that observes into the recorded ``Difference`` called ``topic.id``.

    A bare verdict for ``expected`` stands for the versions on CPU where it was measured: from
    2.7.2, or from ``since``, to 2.10. With ``since`` goes ``before``: what older versions do.
    ``isolated`` gives the statement a process of its own: it may crash, hang or leave a state.
    """
    if bool(since) != bool(before):
        raise ValueError(f"difference {id!r}: since and before go together: what changed, and when")
    measured = f">={since},{MEASURED.partition(',')[2]}" if since else MEASURED
    rows = ((measured, "CPU", expected),) if isinstance(expected, str) else tuple(expected)
    for versions, device, verdict in rows:
        if verdict not in get_args(Verdict):
            raise ValueError(
                f"difference {id!r}: a verdict is one of {', '.join(get_args(Verdict))}, "
                f"not {verdict!r} ({versions} on {device})"
            )

    def record(observe: Callable[[], Observation]) -> Difference:
        topic = observe.__module__.rpartition(".")[2]
        return Difference(
            *(f"{topic}.{id}", statement, torch, mindspore, rows, observe, remedy, isolated),
            since=since,
            before=before,
        )

    return record


def same(left: Any, right: Any) -> bool:
    """Whether two observed values are equal to rounding: arrays, numbers, names, nests of these."""
    from msnb.parity import compare

    if isinstance(left, Raised) or isinstance(right, Raised):
        return (
            isinstance(left, Raised)
            and isinstance(right, Raised)
            and left.type == right.type
            and (left.message in right.message or right.message in left.message)
        )
    if (
        left is None
        or right is None
        or isinstance(left, (str, bool))
        or isinstance(right, (str, bool))
    ):
        return type(left) is type(right) and bool(left == right)
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(compare(left, right))


def judge(torch: Any, mindspore: Any, right: Any = None) -> Verdict:
    """The verdict on what both frameworks gave."""
    if isinstance(mindspore, Raised) and not isinstance(torch, Raised):
        return "raises"
    if isinstance(torch, Raised) and not isinstance(mindspore, Raised):
        return "accepts"
    if isinstance(torch, Raised) or same(mindspore, torch):
        return "agrees"  # both refuse, or both give the same
    if right is not None and same(torch, right) and not same(mindspore, right):
        return "off"
    return "differs"


def topics() -> dict[str, str]:
    """Topic to its one-line description, without importing either framework."""
    return {
        path.stem: (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition(
            "\n"
        )[0]
        for path in sorted(Path(__file__).parent.glob("*.py"))
        if not path.stem.startswith("_")
    }


def count() -> dict[str, int]:
    """Topic to the number of its statements, without importing either framework."""
    counts = {}
    for topic in topics():
        tree = ast.parse((Path(__file__).parent / f"{topic}.py").read_text(encoding="utf-8"))
        calls = (
            decorator.func.id
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
            for decorator in node.decorator_list
            if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name)
        )
        counts[topic] = sum(name == "difference" for name in calls)
    return counts


@dataclass(frozen=True)
class Changed:
    """A statement that holds since a version, and what was before."""

    id: str
    statement: str
    since: str
    before: str
    remedy: str


def changed(older: str = "0", newer: str = "9999") -> list[Changed]:
    """The statements that hold in MindSpore ``newer`` and did not in ``older``.

    Read from the topics' source: neither framework is imported.

    >>> [one.id for one in changed("2.7.2", "2.8.0")]
    ['dtype.numpy-scalar-first', 'graph.plus-zero']
    """
    from packaging.version import Version

    found = []
    for topic in topics():
        tree = ast.parse((Path(__file__).parent / f"{topic}.py").read_text(encoding="utf-8"))
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "difference"):
                continue
            said = {
                keyword.arg: str(keyword.value.value)
                for keyword in call.keywords
                if isinstance(keyword.value, ast.Constant)
            }
            if not said.get("since"):
                continue
            if Version(older) < Version(said["since"]) <= Version(newer):
                id, statement = (ast.literal_eval(argument) for argument in call.args)
                words = said["since"], said["before"], said.get("remedy", "")
                found.append(Changed(f"{topic}.{id}", statement, *words))
    return found


def recorded(topic: str) -> list[Difference]:
    """The differences of a topic, in the order of its module. Imports both frameworks."""
    known = topics()
    if topic not in known:
        from difflib import get_close_matches

        near = get_close_matches(topic, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"no topic {topic!r}: {hint}the topics are {', '.join(known)}")
    module = import_module(f"{__name__}.{topic}")
    found = [value for value in vars(module).values() if isinstance(value, Difference)]
    return [difference for difference in found if difference.id.startswith(f"{topic}.")]


@dataclass(frozen=True)
class Verified:
    """One statement executed: the verdict seen, and the reason where it does not hold."""

    verdict: str
    problem: str
    torch: str
    mindspore: str
    version: str


def _show(value: Any) -> str:
    """A short, stable spelling of an observed value."""
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_show, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_show(item)}" for key, item in value.items()) + "}"
    if value is None or isinstance(value, (str, bool, int, Raised)):
        return str(value)
    import numpy as np

    from msnb.parity.arrays import to_numpy

    array, dtype = to_numpy(value)
    if array.size == 1:
        return (
            f"{array.item():.6g} ({dtype})"
            if array.dtype.kind in "fc"
            else f"{array.item()} ({dtype})"
        )
    if array.size <= 6:
        return f"{np.array2string(array, precision=4, separator=', ')} {dtype}".replace("\n", "")
    return f"{dtype} {tuple(array.shape)}, mean {np.mean(array):.4g}"


def verify(difference: Difference) -> Verified:
    """Execute one statement in this process and judge it."""
    import mindspore

    version = str(mindspore.__version__)
    try:
        seen = difference.observe()
    except Exception as error:
        message = f"its code raised {type(error).__name__}: {error}"
        return Verified("error", message.splitlines()[0], "", "", version)
    verdict = judge(seen.torch, seen.mindspore, seen.right)
    other = judge(*seen.neighbour)
    problem = ""
    if seen.claim is not None and not same(seen.claim, seen.mindspore):
        problem = f"MindSpore gives {_show(seen.mindspore)}, the statement says {_show(seen.claim)}"
    elif other == verdict:
        problem = f"the near neighbour has the same verdict, {verdict}: the statement tells nothing"
    return Verified(verdict, problem, _show(seen.torch), _show(seen.mindspore), version)


def _verify_by_id(id: str) -> Verified:
    _prepare()
    return verify(next(one for one in recorded(id.partition(".")[0]) if one.id == id))


@cache
def _prepare() -> None:
    """Make errors synchronous and the log quiet in a process that belongs to us, once."""
    import msnb

    msnb.setup("CPU")
    import mindspore

    mindspore.runtime.launch_blocking()


def _check(difference: Difference, seen: Verified, device: str) -> Check:
    both = f"torch {seen.torch}; MindSpore {seen.mindspore}" if seen.torch else ""
    expected = difference.expected_on(seen.version, device)
    common: dict[str, Any] = {"found": f"{seen.verdict}: {both}", "remedy": difference.remedy}
    if expected is None and difference.too_old(seen.version):
        return Check(
            difference.id,
            "skipped",
            f"needs MindSpore {difference.since} or later. Before: {difference.before}",
            **common,
        )
    if seen.problem:
        return Check(
            difference.id,
            "failed",
            f"{difference.statement} No longer so: {seen.problem}",
            **common,
        )
    if expected is None:
        return Check(
            difference.id,
            "skipped",
            f"new: nothing is recorded for MindSpore {seen.version} on {device}; "
            f"seen here: {seen.verdict}",
            **common,
        )
    if expected != seen.verdict:
        return Check(
            difference.id,
            "failed",
            f"{difference.statement} No longer so: {seen.verdict} ({MEANING[seen.verdict]})",
            expected=f"{expected} ({MEANING[expected]})",
            **common,
        )
    return Check(difference.id, "ok", f"{seen.verdict}: {difference.statement}", **common)


def run(
    names: Iterable[str] = (),
    *,
    device_target: str = "CPU",
    jobs: int = 2,
    timeout: float = 60.0,
    progress: Callable[[str], None] = lambda id: None,
) -> Report:
    """Execute recorded differences again and hold each verdict against the recorded one.

    ``names`` are topics or ids, all topics where empty. ``jobs`` processes share the work, each
    warm for many statements; those marked isolated get one of their own. ``timeout`` is in seconds
    and holds for each statement. Raises ``ValueError`` for an unknown topic or id.

    >>> run(["padding.bias-default"]).worst  # doctest: +SKIP
    'ok'
    """
    from concurrent.futures import ThreadPoolExecutor

    from msnb import isolate

    if device_target != "CPU":
        raise ValueError(
            f"the recorded differences run on CPU, not on {device_target!r}: no verdict was ever "
            "recorded there"
        )
    chosen = select(names)
    queue = [one for one in chosen if not one.isolated]
    turn = iter(queue)
    outcomes: dict[str, isolate.Outcome[Verified]] = {}

    def warm() -> None:
        with isolate.Worker() as worker:
            worker.run(_prepare, timeout=120).result()
            for one in turn:
                outcomes[one.id] = worker.run(_verify_by_id, one.id, timeout=timeout)
                progress(one.id)

    def alone(one: Difference) -> None:
        outcomes[one.id] = isolate.run(_verify_by_id, one.id, timeout=timeout)
        progress(one.id)

    with ThreadPoolExecutor(jobs) as pool:
        tasks = [pool.submit(alone, one) for one in chosen if one.isolated]
        tasks += [pool.submit(warm) for _ in range(min(jobs, len(queue)))]
        for task in tasks:
            task.result()
    return Report(
        "differences",
        [
            _check(one, outcome.value, device_target)
            if (outcome := outcomes[one.id]).value is not None
            else Check(one.id, "error", outcome.describe().partition("\n")[0])
            for one in chosen
        ],
    )


def select(names: Iterable[str] = ()) -> list[Difference]:
    """The differences that topics or ids name, each once; all where none is named."""
    chosen: dict[str, Difference] = {}
    for name in names or topics():
        topic, _, _ = name.partition(".")
        found = recorded(topic)
        if name != topic:
            ids = [one.id for one in found]
            if name not in ids:
                from difflib import get_close_matches

                near = get_close_matches(name, ids, n=3, cutoff=0.3) or ids
                raise ValueError(f"no difference {name!r}; near it: {', '.join(near)}")
            found = [one for one in found if one.id == name]
        chosen.update((one.id, one) for one in found)
    return list(chosen.values())


def markdown(report: Report) -> str:
    """The page docs/differences.md: every statement with its spellings and the verdict of a run."""
    lines = [
        "# Recorded differences between MindSpore and PyTorch",
        "",
        "Generated by `msnb differences --all --markdown > docs/differences.md`; each line was "
        "executed.",
        "Each holds for MindSpore 2.7.2 to 2.10 on CPU, but where the verdict says since when.",
        "The verdicts: " + "; ".join(f"**{name}**: {text}" for name, text in MEANING.items()) + ".",
    ]
    described = topics()
    last = ""
    for check in report:
        topic = check.id.partition(".")[0]
        one = select([check.id])[0]
        if topic != last:
            lines += [
                "",
                f"## {topic}: {described[topic].rstrip('.')}",
                "",
                "| id | statement | PyTorch | MindSpore | verdict on CPU | what to write |",
                "|---|---|---|---|---|---|",
            ]
            last = topic
        seen = check.found.partition(":")[0] if check.status == "ok" else f"**{check.status}**"
        recorded_for = f", since {one.since}; before: {one.before}" if one.since else ""
        cells = (
            one.id.partition(".")[2],
            one.statement,
            f"`{one.torch}`",
            f"`{one.mindspore}`",
            f"{seen}{recorded_for}",
            f"`{one.remedy}`" if one.remedy else "",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
