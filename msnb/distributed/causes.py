"""Messages that MindSpore and HCCL leave when a job fails: what they mean and what to type."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """A known message: ``pattern`` finds it, ``cause`` is a sentence, ``remedy`` what to do."""

    pattern: str
    cause: str
    remedy: str


_KNOWN = (
    Cause(
        r"Maybe you are trying to call 'mindspore\.communication\.init\(\)' without using",
        "init() without a launcher: plain python starts one process and no scheduler",
        "msnb launch SCRIPT --world-size 2",
    ),
    Cause(
        r"AllReduce only support reduce sum on CPU",
        "the CPU's collectives sum only",
        "use ReduceOp.SUM",
    ),
    Cause(
        r"Environment variables? '?RANK_ID'? has not been exported|Get hccl rank_table_file failed",
        "init() without a launcher, or with a rank table that is not named",
        "msnb launch SCRIPT --world-size N --device-target Ascend",
    ),
    Cause(
        r"Topology build timed out|some processes in the cluster are not successfully spawned",
        "not every rank came to init() in time",
        "call init() on every rank, before anything slow",
    ),
    Cause(
        r"The total number of timed out node is",
        "another rank went silent",
        "look at that rank's log first",
    ),
)


def explain(text: str) -> Cause | None:
    """The first known cause in ``text``, in the order of the table."""
    return next((known for known in _KNOWN if re.search(known.pattern, text)), None)


def is_collective(text: str) -> bool:
    """Whether an error is one of a collective operation."""
    return bool(
        re.search(r"All(Reduce|Gather)|Broadcast|ReduceScatter|[Aa]ll_?[Tt]o_?[Aa]ll|HCCL", text)
    )
