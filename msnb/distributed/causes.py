"""Messages that MindSpore and HCCL leave when a job fails: what they mean and what to type.

MindSpore's were provoked on CPU. HCCL's come from Huawei's HCCL user guide and from published logs;
they were not provoked here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path


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
        "call init() on every rank, before anything slow; raise start_timeout where the machine is",
    ),
    Cause(
        r"Launch kernel failed, name:\S*(AllReduce|AllGather|Broadcast)",
        "another rank did not come to this collective within 30 s, or has ended",
        "give every rank the same number of steps; where one is only slow: "
        "export MS_CPU_COMM_OP_TIMEOUT=120",
    ),
    Cause(
        r"The total number of timed out node is",
        "another rank went silent",
        "look at that rank's log first",
    ),
    Cause(
        r"listen on ip\[.*\] and specific port\[\d+\] fail|EJ0003|have been bound",
        "the port of the device's network card is taken: an earlier job is still running, or two "
        "ranks share a device",
        "npu-smi info, and end what is left; or export HCCL_NPU_SOCKET_PORT_RANGE=auto",
    ),
    Cause(
        r"EJ0001|Failed to initialize the HCCP process",
        "an earlier job still holds the device",
        "npu-smi info; end what is left, wait 10 s, launch again",
    ),
    Cause(
        r"Failed to connect agent\[(?P<ranks>[\d,]+)\]",
        "some ranks never came to the group",
        "look at the first error of those ranks; if they were only slow: "
        "export HCCL_CONNECT_TIMEOUT=600",
    ),
    Cause(
        r"topo exchange server get socket timeout|EI0015",
        "some ranks never came to the group",
        "see in the same log which are connected, and look at the others' first error",
    ),
    Cause(
        r"Heartbeat Lost Occurred|status\[LOST\]",
        "a rank fell silent: its process has ended or its network is cut",
        "look at that rank's own log; hccn_tool -i N -link -g",
    ),
    Cause(
        r"Stuck Occurred",
        "a rank is stuck outside of the collective that the others wait in",
        "compare the number of steps and the order of collectives on all ranks",
    ),
    Cause(
        r"wait socket establish timeout",
        "another device did not answer within HCCL_CONNECT_TIMEOUT (120 s by default): its rank "
        "failed earlier, is late, or cannot be reached",
        "look at the other ranks' first error; hccn_tool -i N -link -g; "
        "export HCCL_CONNECT_TIMEOUT=600",
    ),
    Cause(
        r"LINK_ERROR_INFO|comm error, device",
        "two devices could not be connected: a wrong address, a cut link, or TLS on one side only",
        "compare hccn_tool -i N -tls -g on all servers; hccn_tool -i N -link -g",
    ),
    Cause(
        r"Getting socket times out|EI0006",
        "another rank did not send in time: it failed earlier or is late",
        "look at the other ranks' first error; export HCCL_CONNECT_TIMEOUT=600",
    ),
    Cause(
        r"EI0002|[Nn]otify register times out|notify wait timeout",
        "a rank did not come to a collective that the others are in",
        "compare the number of steps and the order of collectives on all ranks",
    ),
    Cause(
        r"EI0004|ranktable is invalid",
        "the rank table is wrong",
        "msnb doctor --rank-table FILE",
    ),
    Cause(
        r"\bBdbQuit\b|EOFError: EOF when reading a line",
        "a rank has no terminal, so nobody can type",
        "take out breakpoint(), pdb and input(); debug in one process: python SCRIPT",
    ),
)

_ERROR = re.compile(
    r"^(?:\[ERROR\] ?HCC[LP]\((?P<pid>\d+),[^)]*\):|E[IJ]\d{4}: (?:\[PID: (?P<pid2>\d+)\] )?)"
    r"(?P<time>\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.\d{3})"
)


def explain(text: str) -> Cause | None:
    """The first known cause in ``text``, in the order of the table."""
    for known in _KNOWN:
        if match := re.search(known.pattern, text):
            ranks = ", ".join(re.findall(r"\d+", match.groupdict().get("ranks") or ""))
            if ranks:
                return replace(known, cause=known.cause.replace("some ranks", f"ranks {ranks}"))
            return known
    return None


@dataclass(frozen=True)
class DriverError:
    """An error of HCCL or HCCP in the driver's logs; ``time`` is as written there."""

    file: Path
    line: str
    time: str
    pid: int | None


def driver_folder(environ: Mapping[str, str]) -> Path:
    """Where CANN writes its logs (CANN log reference)."""
    given = environ.get("ASCEND_PROCESS_LOG_PATH")
    return Path(given) if given else Path(environ.get("HOME", "~")).expanduser() / "ascend" / "log"


def first_driver_error(
    folder: Path, since: float = 0.0, pids: Collection[int] = ()
) -> DriverError | None:
    """The earliest error of HCCL or HCCP below ``folder``, in files changed after ``since``.

    Those of the processes ``pids`` go first: a machine may run other jobs.
    """
    found = [error for path in _logs(folder, since) for error in _errors(path)]
    own = [error for error in found if error.pid in pids]
    return min(own or found, key=lambda error: error.time, default=None)


def _logs(folder: Path, since: float) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.log")):
        try:
            if path.stat().st_mtime >= since:
                yield path
        except OSError:
            continue


def _errors(path: Path) -> Iterator[DriverError]:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if match := _ERROR.match(line):
                    written = match["pid"] or match["pid2"]
                    pid = int(written) if written else None
                    yield DriverError(path, line.strip(), match["time"], pid)
    except OSError:
        return


def is_collective(text: str) -> bool:
    """Whether an error is one of a collective operation."""
    return bool(
        re.search(r"All(Reduce|Gather)|Broadcast|ReduceScatter|[Aa]ll_?[Tt]o_?[Aa]ll|HCCL", text)
    )
