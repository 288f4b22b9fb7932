"""The doctor: facts of this machine, and rules that judge them.

Standard library only, and nothing that could crash is imported in this process: the doctor works
where MindSpore is missing or broken.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msnb.report import Report

__all__ = ["doctor", "examine"]


def doctor(
    device_target: str = "CPU",
    *,
    paths: str = "short",
    root: str | os.PathLike[str] = "/",
    cwd: str | os.PathLike[str] | None = None,
) -> Report:
    """Judge whether this environment is fit to run the curriculum on ``device_target``.

    One row a fact: the interpreter and its environment, pip, the kernel, MindSpore and its first
    operation in a fresh process, NumPy, PyTorch, protobuf, shadowing files, the device, and CANN,
    driver and firmware. It takes a few seconds, since three fresh interpreters import MindSpore,
    PyTorch and the rest.

    ``device_target`` is CPU, Ascend, GPU or auto, in any case; ``auto`` asks for the CPU and tells
    what else is there. ``paths="short"`` writes ``<env>``, paths below the repository and ``~`` so
    that the table is the same on every machine that is set up alike; ``paths="full"`` keeps what
    was found. ``root`` stands before the paths of the Ascend side, ``cwd`` in for the working
    folder.

    Raises ``ValueError`` for an unknown target or an unknown ``paths``.

    >>> doctor("CPU")["python"].status
    'ok'
    """
    targets = ("CPU", "Ascend", "GPU", "auto")
    spelt = {target.lower(): target for target in targets}.get(str(device_target).lower())
    if spelt is None:
        from difflib import get_close_matches

        near = get_close_matches(str(device_target), targets, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"device_target is one of {', '.join(targets)}, not {device_target!r}{hint}"
        )
    if paths not in ("short", "full"):
        raise ValueError(f"paths is 'short' or 'full', not {paths!r}")
    with _without_working_folder():
        from msnb.environment import facts
    return examine(facts.gather(spelt, root=root, cwd=cwd), paths=paths)


def examine(facts: dict[str, Any], *, paths: str = "full") -> Report:
    """The Report on recorded facts, as ``msnb.environment.facts.gather`` returns them."""
    with _without_working_folder():
        from msnb.environment import rules, shorten
        from msnb.report import Report
    checks = rules.judge(facts)
    if paths == "short":
        checks = shorten.checks(checks, facts)
    return Report(f"environment for {facts['target']}", checks)


@contextmanager
def _without_working_folder() -> Iterator[None]:
    """Import our own needs past the files that the doctor is to find: a json.py, a random.py."""
    saved = list(sys.path)
    try:
        here = os.path.realpath(os.getcwd())
    except FileNotFoundError:  # it was deleted
        here = ""
    sys.path[:] = [p for p in saved if p and os.path.realpath(p) != here]
    try:
        yield
    finally:
        sys.path[:] = saved
