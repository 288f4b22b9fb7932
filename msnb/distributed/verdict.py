"""What happened in a job, judged: the first rank that failed, in its own words."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msnb.distributed import causes
from msnb.regression import shares
from msnb.report import Check

_OURS = str(Path(__file__).parents[1])
_LINES = 12  # lines of a traceback or a log that a Check shows
_SAME_STEPS = "give every rank the same number of steps: equal shards, drop_remainder=True"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_START = {  # why a process could not be started
    errno.E2BIG: "pass fewer or shorter args, or the path of a file that holds them",
    errno.EAGAIN: "see how many processes are allowed: ulimit -u",
    errno.EMFILE: "see how many open files are allowed: ulimit -n",
    errno.ENOMEM: "free memory: free -h",
}


def machine_notes(local: int, target: str) -> list[Check]:
    """Whether this machine can take ``local`` ranks."""
    if _is_cpu(target):
        cores = shares.cores()
        if local > cores:
            said = (
                f"{local} ranks share {cores} {'core' if cores == 1 else 'cores'}: right, but "
                "slow; timings say nothing"
            )
            return [Check("cores", "skipped", said, metrics={"ranks": local, "cores": cores})]
        return []
    if target != "Ascend":
        return []
    devices = shares.devices()
    if local <= len(devices):
        return []
    have = f"{len(devices)} Ascend {'device' if len(devices) == 1 else 'devices'}"
    said = f"{local} ranks on a machine with {have}; nothing was started"
    wanted = len(devices)
    fix = f"world_size={wanted}" if wanted else "msnb doctor --device-target Ascend"
    return [Check("devices", "failed", said, expected="a device for each rank", remedy=fix)]


def _is_cpu(target: str) -> bool:
    """Whether the ranks compute on the CPU: ``auto`` does where there is no other device."""
    return target == "CPU" or (
        target == "auto" and not shares.devices() and not any(Path("/dev").glob("nvidia[0-9]*"))
    )


def taken_port(address: str, ports: Sequence[int]) -> Check | None:
    """A failed Check where ``address`` cannot be listened on, with who listens there already."""
    for port in ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
                listener.listen()
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    said = f"{address}, the first host, is not this machine; nothing was started"
                    fix = "give this machine its own node_rank, or name it first in hosts"
                else:
                    why = f"({error.strerror}){_owner(port)}"
                    said = f"port {port} is taken {why}; nothing was started"
                    fix = "leave master_port out, or name a free one"
                return Check("job", "failed", said, remedy=fix)
    return None


def _owner(port: int) -> str:
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f" by process {connection.pid}, {psutil.Process(connection.pid).name()}"
    except psutil.Error:
        pass
    return ""


def judge(
    end: Mapping[str, Any], request: Mapping[str, Any], errors: Mapping[int, str], folder: Path
) -> list[Check]:
    """The job's Check, then one for each rank, then one for the group."""
    ranks = {int(rank): record for rank, record in end["ranks"].items()}
    script = request["script"]
    rows = {
        rank: _rank(rank, record, end, request, errors.get(rank, ""), script)
        for rank, record in ranks.items()
    }
    checks = [_job(end, request, ranks, rows, folder), *rows.values()]
    environ = next(iter(request["ranks"].values()))
    if environ["MSNB_DEVICE_TARGET"] in ("Ascend", "auto") and ranks and end["why"] != "done":
        checks += _driver(end, environ)
    if ranks and end["why"] == "done" and environ["MS_WORKER_NUM"] != "1":
        checks.append(_group(ranks, request))
    return checks


def _job(
    end: Mapping[str, Any],
    request: Mapping[str, Any],
    ranks: Mapping[int, Mapping[str, Any]],
    rows: Mapping[int, Check],
    folder: Path,
) -> Check:
    why, seconds = end["why"], end["seconds"]
    metrics = {"seconds": round(seconds, 3), "ranks": len(request["ranks"])}
    look = f"read {folder}"
    if why == "done":
        count = len(ranks)
        said = f"{count} {'rank' if count == 1 else 'ranks'} ended well after {seconds:.1f} s"
        if request["hosts"]:
            said += ", and so did those of the other hosts"
        return Check("job", "ok", said, metrics=metrics)
    if why == "failed":
        first = end["first"]
        others = sum(record["stopped"] for record in ranks.values())
        said = f"rank {first} failed first: {rows[first].summary}"
        if others:
            said += f"; the {'other' if others == 1 else 'others'} ended with it"
        early = _ended_early(ranks, before=ranks[first]["failed_at"])
        if early and causes.is_collective(rows[first].found):
            said = f"{early} while rank {first} called another collective. {said}"
            return Check("job", "failed", said, remedy=_SAME_STEPS, metrics=metrics)
        return Check("job", "failed", said, remedy=rows[first].remedy or look, metrics=metrics)
    if why == "timeout":
        running = [rank for rank, record in ranks.items() if record["stopped"]]
        said = (
            f"still running after its limit of {request['timeout']:g} s, and ended: "
            f"{_names(running) if running else 'the last ranks came to their end just then'}"
        )
        fix = "see where each rank stood; raise timeout if it was only slow"
        if early := _ended_early(ranks, before=seconds):
            said += f"; {early}"
            fix = f"{_SAME_STEPS}; raise timeout if it was only slow"
        return Check("job", "failed", said, remedy=fix, metrics=metrics)
    if why == "start":
        missing = end["missing"]
        said = (
            f"{_names(missing)} did not come to init() within {request['start_timeout']:g} s of "
            "the first that did; the others waited"
        )
        fix = (
            "call init() on every rank, before anything slow; raise start_timeout if a rank has "
            "to load for longer"
        )
        return Check("job", "failed", said, remedy=fix, metrics=metrics)
    if why == "host":
        return _host(end, ranks, metrics)
    if why == "stopped":
        return Check("job", "error", f"stopped after {seconds:.1f} s", metrics=metrics)
    if why == "scheduler":
        return _scheduler(request, folder, metrics)
    if why == "system":
        said = f"the ranks could not be started: {end['error']}"
        fix = f"free the disk of {folder}" if end["errno"] in _FULL else look
        fix = _START.get(end["errno"], fix)
        return Check("job", "failed", said, remedy=fix, metrics=metrics)
    said = f"the process that watched the ranks ended by itself (exit code {end.get('exit')})"
    return Check("job", "error", said, found=_last(end.get("said", "")), metrics=metrics)


def _ended_early(ranks: Mapping[int, Mapping[str, Any]], before: float) -> str:
    """Which ranks had ended well while another still worked, in words."""
    early = [
        rank
        for rank, record in ranks.items()
        if record["exit"] == 0 and record["seconds"] is not None and record["seconds"] < before - 1
    ]
    if not early:
        return ""
    when = max(ranks[rank]["seconds"] for rank in early)
    return f"{_names(early)} had ended with exit code 0 after {when:.1f} s"


def _host(end: Mapping[str, Any], ranks: Mapping[int, Any], metrics: Mapping[str, float]) -> Check:
    host, said = end["host"], end["said"]
    if end.get("told"):
        return Check("job", "failed", f"ended with host {host}: {said}", metrics=metrics)
    if not ranks:
        text = f"host {host} {said}; nothing was started"
        fix = (
            "start the same command on each host, with its own --node-rank, within start_timeout; "
            "the first host's master_port and the next have to be open to the others"
        )
    else:
        text = f"host {host} was lost: {said}"
        fix = f"look whether {host} runs and can be reached"
    return Check("job", "failed", text, remedy=fix, metrics=metrics)


def _scheduler(request: Mapping[str, Any], folder: Path, metrics: Mapping[str, float]) -> Check:
    try:
        text = (folder / "scheduler.err").read_text("utf-8", "replace")
    except OSError:
        text = ""
    port = request["port"]
    if "Failed to call bind" in text:
        said = f"the scheduler could not open port {port}: somebody else took it first"
        return Check("job", "failed", said, remedy="name a free master_port", metrics=metrics)
    known = causes.explain("\n".join(_loud(text)))
    said = f"the scheduler failed: {known.cause}" if known else "the scheduler failed"
    fix = known.remedy if known else f"read {folder / 'scheduler.err'}"
    return Check("job", "failed", said, found=_last(text), remedy=fix, metrics=metrics)


def _rank(
    rank: int,
    record: Mapping[str, Any],
    end: Mapping[str, Any],
    request: Mapping[str, Any],
    errors: str,
    script: str,
) -> Check:
    id = f"rank {rank}"
    raised, code, seconds = record["raised"], record["exit"], record["seconds"]
    metrics = {} if seconds is None else {"seconds": round(seconds, 3)}
    if raised is not None:
        said = f"raised {_error(raised)}"
        if record["failed_at"] is not None:
            said += f" after {record['failed_at']:.1f} s"
        cause, remedy = _explained(raised, errors)
        if cause:
            said += f": {cause}"
        found = traceback_text(raised, script)
        return Check(id, "failed", said, found=found, remedy=remedy, metrics=metrics)
    if record["stopped"]:
        where = stack_text(record["stack"], script)
        if end["why"] in ("timeout", "start"):
            waited = end["why"] == "start" and rank not in end["missing"]
            said = "waited for the others" if waited else "still running"
            return Check(id, "error" if waited else "failed", said, found=where)
        return Check(id, "skipped", "ended by the launcher while it was still running")
    if code == 0:
        said = f"exit code 0 after {seconds:.1f} s"
        return Check(id, "ok", said, metrics={**metrics, "exit": 0})
    if code is None:
        return Check(id, "skipped", "not started")
    after = "" if seconds is None else f" after {seconds:.1f} s"
    said = f"killed by {signal_name(-code)}{after}" if code < 0 else f"exit code {code}{after}"
    known = causes.explain("\n".join(_loud(errors)))
    if known:
        said += f": {known.cause}"
    remedy = known.remedy if known else ""
    if code == -signal.SIGSEGV and not record["joined"] and "mindspore" in errors:
        said += ": it had not called init(), and a collective without it crashes"
        remedy = "call mindspore.communication.init() before the net and the data"
    metrics["exit"] = code
    return Check(id, "failed", said, found=_last(errors), remedy=remedy, metrics=metrics)


def _driver(end: Mapping[str, Any], environ: Mapping[str, str]) -> list[Check]:
    """The first error in the driver's logs: the ranks' own errors often say only "HCCL failed"."""
    pids = {record["pid"]: rank for rank, record in end["ranks"].items()}
    folder = causes.driver_folder(environ)
    error = causes.first_driver_error(folder, end["began"], pids)
    if error is None:
        if environ["MSNB_DEVICE_TARGET"] == "auto":
            return []
        said = f"no error of HCCL or HCCP in {folder} since the start"
        return [Check("driver's log", "skipped", said)]
    known = causes.explain(error.line)
    whose = f"rank {pids[error.pid]}" if error.pid in pids else f"process {error.pid or 'unknown'}"
    said = f"{whose} first, at {error.time}: {known.cause if known else error.line}"
    fix = known.remedy if known else ""
    found = f"{error.line}\n{error.file}"
    return [Check("driver's log", "failed", said, found=found, remedy=fix)]


def _explained(raised: Mapping[str, Any], errors: str) -> tuple[str, str]:
    if raised["errno"] in _FULL:
        return "the disk or the limit of a file is full", "free the disk, or name another log_dir"
    known = causes.explain("\n".join([raised["message"], *_loud(errors)]))
    return (known.cause, known.remedy) if known else ("", "")


def _group(ranks: Mapping[int, Mapping[str, Any]], request: Mapping[str, Any]) -> Check:
    """Whether the ranks trained together at all."""
    joined = [rank for rank, record in ranks.items() if record["joined"]]
    total = len(ranks)
    if len(joined) == total:
        said = f"{total} of {total} joined the group"
        return Check("group", "ok", said, metrics={"joined": total})
    left = _names([rank for rank in ranks if rank not in joined])
    if not _is_cpu(next(iter(request["ranks"].values()))["MSNB_DEVICE_TARGET"]):
        said = f"{left} made no connection to the scheduler: a group without it cannot be seen"
        return Check("group", "skipped", said)
    said = f"{left} never joined the group: {total} separate runs that exit with 0 are no training"
    if total == 1:
        said = f"{left} never joined the group of all hosts: it trained on its own"
    return Check(
        "group",
        "failed",
        said,
        expected=f"{total} joined",
        remedy="call mindspore.communication.init() before the net and the data",
        metrics={"joined": len(joined)},
    )


# Text


def _names(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks))
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"


def _error(raised: Mapping[str, Any]) -> str:
    """Type and message in one line."""
    lines = [line.strip() for line in raised["message"].splitlines() if line.strip("- \t")]
    first = lines[0] if lines else ""
    if raised["type"] == "ReportFailed" and len(lines) > 1:  # of which Report, and how it is
        first += f": {lines[1]}"
    if len(first) > 300:
        first = first[:300] + " ..."
    return f"{raised['type']}: {first}" if first else raised["type"]


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _is_library(file: str) -> bool:
    places = {*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), _OURS}
    return file.startswith("<frozen") or any(
        file.startswith(os.path.join(place, "")) for place in places if place
    )


def traceback_text(raised: Mapping[str, Any], script: str) -> str:
    """The user's frames, the last call last, then the error."""
    frames = [frame for frame in raised["frames"] if not _is_library(frame["file"] or "")]
    lines = []
    for frame in frames[-_LINES // 2 :]:
        lines.append(f"{_short(frame['file'], script)}:{frame['line']} in {frame['name']}")
        if frame["text"]:
            lines.append(f"    {frame['text'].strip()}")
    inner = raised["frames"][-1:] if raised["frames"] else []
    if inner and _is_library(inner[0]["file"] or ""):
        last = inner[0]
        lines.append(f"{_short(last['file'], script)}:{last['line']} in {last['name']}")
    return "\n".join([*lines, _error(raised)])


_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.*)')

_ESCAPED = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")  # how it writes non-ASCII


def stack_text(stack: str, script: str) -> str:
    """Where the main thread stood: its innermost frame, then the user's, from faulthandler."""
    text = _ESCAPED.sub(lambda m: chr(int(m[0][2:], 16)), stack)
    threads = [
        [
            f
            for match in _FRAME.finditer(part)
            if not (f := match.groupdict())["file"].endswith("bootstrap.py")
        ]
        for part in text.split("most recent call first):\n")[1:]
    ]
    frames = threads[-1] if threads else []
    if not frames:
        return "its Python stack could not be had"
    if frames[0]["name"] == "_shutdown" and frames[0]["file"].endswith("threading.py"):
        # the script is at its end, and Python waits for its threads
        working = [t for t in threads[:-1] if not all(_is_library(f["file"]) for f in t)]
        if working:
            return "the script has ended, and a thread of it " + _stood(working[0], script)
    return "it " + _stood(frames, script)


def _stood(frames: list[dict[str, str]], script: str) -> str:
    shown = [f for f in frames if not _is_library(f["file"])]
    if frames[0] not in shown:
        shown.insert(0, frames[0])
    lines = [f"{_short(f['file'], script)}:{f['line']} in {f['name']}" for f in shown[:6]]
    return "stood at " + "\n  called from ".join(lines)


def _short(file: str | None, script: str) -> str:
    if not file:
        return "?"
    libraries = map(sysconfig.get_path, ("purelib", "stdlib"))
    for place in (os.path.dirname(script), *libraries, os.path.dirname(_OURS)):
        if file.startswith(os.path.join(place, "")):
            return os.path.relpath(file, place)
    return file


def _loud(text: str) -> list[str]:
    """The lines that tell: no warnings of MindSpore ("Topology build timed out" comes every time),
    no frames of ours, no list of the modules that were loaded when a rank crashed."""
    noise = re.compile(r'^\[(WARNING|INFO|DEBUG)\]|^Extension modules: |^  File ".*bootstrap\.py"')
    return [line for line in text.splitlines() if line.strip() and not noise.match(line)]


def _last(text: str) -> str:
    return "\n".join(_loud(text)[-_LINES:])
