"""The folder that takes a run's results: its own, and what of an earlier run in it still holds."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from msnb.regression import moved, results
from msnb.regression.catalog import Refused
from msnb.regression.planning import Job, Plan
from msnb.regression.results import NotebookResult, Results


@dataclass
class RunFolder:
    """The folder that takes a run's results, held by this process alone, and what was in it."""

    path: Path
    former: Results | None = None
    lock: int = -1


def open_folder(plan: Plan, out: Path | None = None, *, resume: bool = False) -> RunFolder:
    """The folder that takes the results: ``out``, else ``runs/<time>``, new and empty.

    With ``resume`` it is ``out`` again, else the newest run of the same notebooks with the same
    parameters; where there is none, a new one.

    Raises ``Refused`` where it holds something else, another run writes to it, or it cannot be
    written.
    """
    try:
        if out is not None:
            folder = out.expanduser().absolute()
            folder.mkdir(parents=True, exist_ok=True)
        else:
            earlier = _newest_like(plan) if resume else None
            folder = earlier or _new_folder(
                plan.base / "runs", datetime.now().strftime("%Y-%m-%d-%H%M%S")
            )
        opened = RunFolder(folder, lock=_lock(folder))
        try:
            opened.former = _look_into(plan, opened.path, out, resume)
        except BaseException:
            os.close(opened.lock)
            raise
    except (FileExistsError, NotADirectoryError):
        raise Refused(f"{folder} is a file") from None
    except OSError as error:
        raise Refused(
            f"the results cannot be written: {error.strerror}: {error.filename}"
        ) from None
    return opened


def _look_into(plan: Plan, folder: Path, out: Path | None, resume: bool) -> Results | None:
    former = None
    if resume and any(folder.iterdir()):
        former = _former(plan, folder)
        for torn in folder.glob(".*.tmp"):  # left by a run that was killed as it wrote
            torn.unlink()
    elif any(folder.iterdir()):
        raise Refused(
            f"--out {out} is not empty; name a new folder, or type --resume to go on with the "
            "run in it"
        )
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return former


def still_valid(result: NotebookResult, job: Job, folder: Path, beside: str) -> str:
    """Why what an earlier run found for ``job`` does not hold; empty where it does."""
    if not result.decided:
        return result.reason
    if result.fingerprint != fingerprint(job, beside):
        return "the notebook, or a file beside it, changed"
    if result.executed and not (folder / result.executed).is_file():
        return f"{result.executed} is gone"
    return ""


def fingerprint(job: Job, beside: str) -> str:
    """That of a notebook and the files beside it: a result holds as long as it is the same."""
    return hashlib.sha256(f"{job.notebook.fingerprint} {beside}".encode()).hexdigest()


def decisive(environment: dict[str, Any]) -> dict[str, Any]:
    """What of an environment has to be the same for an earlier result to hold."""
    return {
        "environment": moved.stable(environment.get("facts", {})),
        **{name: environment.get(name) for name in ("python", "interpreter", "versions")},
        "msnb": environment.get("package"),
    }


def _lock(folder: Path) -> int:
    """Hold ``folder`` until this process ends, however it does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Refused(f"another run is writing to {folder}") from None
    except OSError:  # a network disk without locks: the check for an empty folder remains
        pass
    return handle


def _former(plan: Plan, folder: Path) -> Results | None:
    """The results of the earlier run in ``folder``; ``None`` where it came to none."""
    if not (folder / results.FILE).exists():
        if [path for path in folder.iterdir() if not path.name.startswith(f".{results.FILE}.")]:
            raise Refused(f"{folder} holds no results.json: it is not the folder of a run")
        return None
    try:
        former = Results.read(folder)
    except ValueError as error:
        raise Refused(f"cannot go on with that run: {error}") from None
    if not _alike(plan, former):
        were = ", ".join(result.notebook for result in former.notebooks)
        raise Refused(
            f"the run in {folder} was of {were} on {former.device}, with other notebooks or "
            "parameters than now: name the same, or a new folder"
        )
    return former


def _newest_like(plan: Plan) -> Path | None:
    for folder in sorted((plan.base / "runs").glob("*/"), reverse=True):
        with contextlib.suppress(ValueError):
            if _alike(plan, Results.read(folder)):
                return folder
    return None


def seconds_before(plan: Plan) -> dict[str, float]:
    """What the notebooks of ``plan`` took on this device, by source, in the last of three runs."""
    found: dict[str, float] = {}
    for folder in sorted((plan.base / "runs").glob("*/"))[-3:]:
        with contextlib.suppress(ValueError):
            run = Results.read(folder)
            if run.device == plan.device:
                found |= {r.source: r.seconds for r in run.notebooks if r.verdict == "ok"}
    return found


def _alike(plan: Plan, former: Results) -> bool:
    """Whether ``former`` is a run of the same notebooks on the same device, set up alike."""
    hidden = plan.hidden()
    now = [(plan.source(job), hidden.in_parameters(job.effective)) for job in plan.jobs]
    then = [(result.source, result.parameters) for result in former.notebooks]
    return plan.device == former.device and now == then


def _new_folder(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    count = 1
    while True:
        folder = parent / (name if count == 1 else f"{name}-{count}")
        try:
            folder.mkdir()
        except FileExistsError:
            count += 1
            continue
        return folder
