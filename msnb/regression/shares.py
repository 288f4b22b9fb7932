"""Who gets what while several notebooks run at once: devices of their own, and threads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
# numpy's OpenBLAS, PyTorch and MindSpore's own pools: all of them heed the first; the others win
# over it where they are set.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_NODE = re.compile(r"davinci(\d+)")


def cores() -> int:
    """The cores that this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def threads(jobs: int, available: int | None = None) -> int:
    """Threads for each of ``jobs`` notebooks at a time.

    >>> threads(2, 8), threads(4, 2)
    (4, 1)
    """
    return max(1, (cores() if available is None else available) // max(1, jobs))


def devices(
    environment: Mapping[str, str] | None = None, nodes: Path = Path("/dev")
) -> tuple[int, ...]:
    """The Ascend devices to share out: those made visible, else those whose node is in ``/dev``.

    ``ASCEND_RT_VISIBLE_DEVICES`` holds numbers and ranges (``0,2-3``); ``ValueError`` for anything
    else. An order given there is kept.
    """
    surroundings = os.environ if environment is None else environment
    text = surroundings.get(VISIBLE)
    if text is None:
        entries = nodes.iterdir() if nodes.is_dir() else ()
        found = (_NODE.fullmatch(entry.name) for entry in entries)
        return tuple(sorted(int(match[1]) for match in found if match))
    numbers: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(f"{VISIBLE} holds numbers and ranges such as 0,2-3, not {text!r}")
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(numbers))


def needed(parameters: Mapping[str, Any]) -> int:
    """How many devices a notebook takes: its parameter ``world_size``, else one.

    >>> needed({"world_size": 4}), needed({"epochs": 3})
    (4, 1)
    """
    wanted = parameters.get("world_size", 1)
    return wanted if type(wanted) is int and wanted > 0 else 1


def place(wanted: list[int], free: list[int], total: int) -> tuple[int, tuple[int, ...]] | None:
    """Which of the waiting to start, and on which devices; ``None`` where none fits now.

    ``wanted`` are the needs of those that wait, in order. One that needs more than the ``total``
    gets them all: it says itself what it lacks. A smaller one may go before a larger one.

    >>> place([4, 1], [2, 3], 4)
    (1, (2,))
    """
    for position, count in enumerate(wanted):
        if (take := min(count, total)) <= len(free):
            return position, tuple(free[:take])
    return None
