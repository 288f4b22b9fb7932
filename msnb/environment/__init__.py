"""The doctor: facts of this machine, and rules that judge them.

Standard library only, and nothing that could crash is imported in this process: the doctor works
where MindSpore is missing or broken.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing and contextlib may be what shadows the standard library

if TYPE_CHECKING:
    from typing import Any

    from msnb.report import Report

__all__ = ["check_rank_table", "doctor", "examine"]


def doctor(
    device_target: str = "CPU",
    *,
    paths: str = "short",
    root: str | os.PathLike[str] = "/",
    cwd: str | os.PathLike[str] | None = None,
) -> Report:
    """Judge whether this environment is fit to run the curriculum on ``device_target``.

    One row a fact: the interpreter and its environment, pip, the kernel, the way in (VS Code over
    Remote-SSH, JupyterLab, a terminal; in a container or not), shadowing files, MindSpore and its
    first operation in a fresh process, NumPy, PyTorch, protobuf, what else msnb asks for, variables
    that change behaviour, and the room there is. For Ascend then, causes first: device
    nodes and the right to open them, driver and firmware, npu-smi, memory, CANN with its parts,
    operators and variables; at last the device itself. It takes a few seconds, since fresh
    interpreters import MindSpore, PyTorch and the rest.

    ``device_target`` is CPU, Ascend, GPU or auto, in any case; ``auto`` asks for the CPU and tells
    what else is there. ``paths="short"`` writes ``<env>``, paths below the repository and ``~`` so
    that the table is the same on every machine that is set up alike; ``paths="full"`` keeps what
    was found. ``root`` stands before the paths of the Ascend side, ``cwd`` in for the working
    folder.

    Raises ``ValueError`` for an unknown target or an unknown ``paths``, ``TypeError`` for a target
    that is no text.

    >>> doctor("CPU")["python"].status
    'ok'
    """
    return look(device_target, paths=paths, root=root, cwd=cwd)[0]


def look(
    device_target: str,
    *,
    paths: str,
    root: str | os.PathLike[str] = "/",
    cwd: str | os.PathLike[str] | None = None,
) -> tuple[Report, dict[str, Any]]:
    """The doctor's Report and the facts that it rests on."""
    with _StandardLibraryFirst():
        from msnb.targets import canonical_target

        spelt = canonical_target(device_target)
    if paths not in ("short", "full"):
        raise ValueError(f"paths is 'short' or 'full', not {paths!r}")
    with _StandardLibraryFirst():
        from msnb.environment import facts
    gathered = facts.gather(spelt, root=root, cwd=cwd)
    return examine(gathered, paths=paths), gathered


def examine(facts: dict[str, Any], *, paths: str = "full") -> Report:
    """The Report on recorded facts, as ``msnb.environment.facts.gather`` returns them."""
    with _StandardLibraryFirst():
        from msnb.environment import rules, shorten
        from msnb.report import Report
    checks = rules.judge(facts)
    if paths == "short":
        checks = shorten.checks(checks, facts)
    return Report(f"environment for {facts['target']}", checks)


def check_rank_table(
    file: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] = "/",
    environment: dict[str, str] | None = None,
) -> Report:
    """Judge a rank table, the JSON file that RANK_TABLE_FILE names for HCCL.

    Its form (version 1.0, 1.2 or the older ``group_list``), counts, ranks, devices and addresses
    are judged by themselves; then against ``/etc/hccn.conf`` below ``root``, and against the
    variables RANK_TABLE_FILE, RANK_SIZE, RANK_ID, DEVICE_ID and ASCEND_RT_VISIBLE_DEVICES of this
    process, or of ``environment``. A file that cannot be read is a failed row, not an exception.

    >>> check_rank_table("gone.json")["file"].summary
    'gone.json is not there'
    """
    with _StandardLibraryFirst():
        from msnb.environment import ranktable
        from msnb.report import Report
    facts = ranktable.gather(file, root=root, environment=environment)
    return Report(f"rank table {os.path.basename(facts['file'])}", ranktable.judge(facts))


class _StandardLibraryFirst:
    """Import our own needs past the files that the doctor is to find: a json.py, a random.py.

    They lie in the working folder or in one that PYTHONPATH names.
    """

    def __enter__(self) -> None:
        self._saved = list(sys.path)
        try:
            suspects = {os.path.realpath(os.getcwd())}
        except FileNotFoundError:  # it was deleted
            suspects = set()
        if not sys.flags.ignore_environment:
            listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            suspects |= {os.path.realpath(folder) for folder in listed if folder}
        sys.path[:] = [p for p in self._saved if p and os.path.realpath(p) not in suspects]

    def __exit__(self, *error: object) -> None:
        sys.path[:] = self._saved
