"""What is to run, with what and how long: refused, or a plan that can be carried out."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msnb.regression import catalog, shares
from msnb.regression.catalog import Notebook, Refused
from msnb.regression.hidden import Hidden
from msnb.targets import canonical_target


@dataclass(frozen=True)
class Limits:
    """What a notebook may take: seconds to start its kernel, for one cell and in all; memory.

    ``memory`` is in GB, of the kernel and all that it started; without it, nine tenths of what the
    machine or container has are the limit of all notebooks together.
    """

    start: float = 60
    cell: float = 300
    total: float = 900
    memory: float | None = None

    def __post_init__(self) -> None:
        if self.memory is not None and not 0.1 <= self.memory < math.inf:
            raise Refused(f"the memory limit is 0.1 GB or more, and finite, not {self.memory:g}")
        for name, value in (("start", self.start), ("cell", self.cell), ("total", self.total)):
            if not (math.isfinite(value) and value >= 1):
                raise Refused(
                    f"the {name} time limit is 1 second or more, and finite, not {value:g}"
                )


@dataclass(frozen=True)
class Job:
    """One notebook as it will run; ``name`` is its name in the run folder."""

    name: str
    notebook: Notebook
    overrides: dict[str, Any]

    @property
    def effective(self) -> dict[str, Any]:
        defaults = {p.name: p.default for p in self.notebook.parameters.values()}
        return {**defaults, **self.overrides}

    @property
    def injected(self) -> dict[str, Any]:
        """The overrides that change something: without any, no cell is injected."""
        parameters = self.notebook.parameters
        return {
            name: value
            for name, value in self.overrides.items()
            if (type(value), value) != (type(parameters[name].default), parameters[name].default)
        }


@dataclass(frozen=True)
class Plan:
    """What will be run, checked as far as it can be without running it."""

    jobs: tuple[Job, ...]
    device: str
    base: Path
    notes: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()  # Ascend devices to share out; empty: leave them alone

    def source(self, job: Job) -> str:
        """Where the notebook lies, as the results name it."""
        return os.path.relpath(job.notebook.path, self.base)

    def hidden(self) -> Hidden:
        """What of the parameters, and of this process's environment, nobody is to read."""
        given: dict[str, Any] = {}
        for job in self.jobs:  # the command line's values are the same in all; defaults may differ
            for name, value in job.effective.items():
                given[name] = [*given.get(name, []), value]
        return Hidden(given)


def plan(
    wanted: Sequence[str] = (),
    *,
    device_target: str | None = None,
    parameters: Sequence[str] = (),
    start: Path | None = None,
) -> Plan:
    """Find, read and check the notebooks; ``parameters`` are ``name=value``.

    Raises ``Refused``, with a sentence for each notebook that cannot be run.
    """
    given = {assignment.partition("=")[0].strip(): assignment for assignment in parameters}
    if device_target is not None and "device_target" in given:
        raise Refused(
            f"--device-target {device_target} and -p {given['device_target']} both name the device;"
            " give one of them"
        )
    if given.get("device_target", "=").count("=") == 0:
        raise Refused("a parameter is given as name=value, not 'device_target'")
    if "device_target" in given:
        device_target = given["device_target"].partition("=")[2]
    try:
        device = canonical_target("CPU" if device_target is None else device_target)
    except ValueError as error:
        raise Refused(str(error)) from None
    rest = [text for text in parameters if text.partition("=")[0].strip() != "device_target"]

    notebooks: list[Notebook] = []
    wrong: list[str] = []
    for path in catalog.select(wanted, start):
        try:
            notebook = catalog.read(path)
            catalog.check_kernel(notebook.kernel)
            notebooks.append(notebook)
        except Refused as refusal:
            wrong.append(str(refusal))
    if wrong:
        raise Refused("\n".join(dict.fromkeys(wrong)))

    values = catalog.assign(notebooks, [f"device_target={device}", *rest])
    names: list[str] = []
    for notebook in notebooks:
        name, count = notebook.name, 2
        while name in names:
            name, count = f"{notebook.name}-{count}", count + 1
        names.append(name)
    notes = []
    for text in rest:
        parameter = text.partition("=")[0].strip()
        without = [n.name for n in notebooks if parameter not in n.parameters]
        if without:
            notes.append(f"without parameter {parameter}: {', '.join(without)}")
    try:
        base = catalog.find_folder(start).parent
    except Refused:
        base = start or Path.cwd()
    jobs = tuple(
        Job(name, notebook, own)
        for name, notebook, own in zip(names, notebooks, values, strict=True)
    )
    devices: tuple[int, ...] = ()
    if device in ("Ascend", "auto"):
        try:
            devices = shares.devices()
        except ValueError as error:
            raise Refused(str(error)) from None
    return Plan(jobs, device, base, tuple(notes), devices)
