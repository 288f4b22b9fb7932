"""``check_export()``: the exported file, in a process that never saw the net, against the net."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msnb import isolate
from msnb.deploy import graphfile, manifest, running
from msnb.deploy.loading import ExportedFileError, find
from msnb.deploy.manifest import Manifest
from msnb.deploy.running import Failure, attempt
from msnb.parity.arrays import compare, to_numpy
from msnb.parity.calls import (
    is_cell,
    is_module,
    kind,
    leaves,
    named,
    tidy,
    training,
)
from msnb.report import Check, Report

__all__ = ["check_export"]

Array = np.ndarray[Any, Any]
_SHOWN = 5  # names of parameters in a summary


@dataclass(frozen=True)
class _Batch:
    id: str
    inputs: list[Array]
    given: bool  # by the caller, not derived from a batch of the caller's
    dtypes: tuple[str, ...] = ()


def check_export(
    path: str | os.PathLike[str],
    net: Any,
    batches: Any,
    *,
    torch_net: Any = None,
    timeout: float = 120.0,
) -> Report:
    """Whether an exported MINDIR file still computes what the net computes.

    - ``path``: a file of ``export``, its manifest beside it
    - ``net``: the net it was exported from, with its weights; it is run in inference mode and given
      back as it was
    - ``batches``: a list of inputs as in use, each an array or a tensor, or a tuple of them; where
      the file takes any batch size, give several
    - ``torch_net``: the same net in PyTorch, where there is one, run in evaluation mode
    - ``timeout``: seconds that the file's process may take

    The file runs in a process of its own: one that crashes is a finding. It is given the batches,
    and others made from the first: negated and zeroed (so that branches on values go both ways),
    again (a file that was exported in training answers differently), one row, and one row more than
    twice as many, where the batch may have any size.

    The checks: ``file`` (whole, and its manifest's), ``inference`` (no Dropout, no statistics of
    the batch), ``parameters`` (bit by bit the net's), ``stored outputs`` (those of the day of the
    export), one for each batch, shapes before values, and ``PyTorch: ...``. ``ok`` says bit by bit,
    or how far off by rounding.

    Raises ``TypeError`` or ``ValueError`` for a wrong argument, ``FileNotFoundError`` where there
    is no file.

    >>> check_export("lenet.mindir", net, [images, images[:3]]).require()  # doctest: +SKIP
    """
    import mindspore as ms

    if not is_cell(net):
        what = f"a {type(net).__name__}"
        if isinstance(net, type):
            what = f"the class {net.__name__}: give the net that was exported"
        elif is_module(net):
            what = "a net of PyTorch's: that is torch_net=, beside the MindSpore net"
        raise TypeError(f"net is a mindspore nn.Cell, not {what}")
    if torch_net is not None and not is_module(torch_net):
        raise TypeError(f"torch_net is a torch nn.Module, not a {type(torch_net).__name__}")
    source = _found(path)
    title = f"check_export {(Path(path) if isinstance(source, str) else source).name}"
    given = _given(batches)
    if isinstance(source, str):
        return Report(title, [Check("file", "failed", source)])
    try:
        known = manifest.read(source)
        graph = graphfile.read(source)
    except (manifest.ManifestError, graphfile.GraphFileError) as error:
        remedy = "msnb.export(net, example, name)"
        return Report(title, [Check("file", "failed", str(error), remedy=remedy)])
    _fit(given, known)
    checks = [
        Check("file", "ok", f"sha256 and manifest agree; {known.bytes:,} bytes, {graph.made_by}"),
        _inference(graph),
        _parameters(graph, net),
    ]
    tried = [*given, *_derived(given[0], known)]
    seeded = _Batch("stored outputs", known.seeded(), True)
    dtypes = [port.dtype for port in known.inputs]
    device = str(ms.get_context("device_target"))
    outcome = isolate.run(
        running.run_file,
        str(source.resolve()),
        [batch.inputs for batch in (seeded, *tried)],
        dtypes,
        device,
        timeout=timeout,
    )
    if outcome.status != "ok":
        said, remedy = outcome.describe().splitlines()[0], "export the net again"
        said = said.replace("run_file", "the file's process", 1)
        if outcome.status == "timeout":
            remedy = f"give it longer: check_export(..., timeout={10 * timeout:g})"
        checks.append(Check("run", "failed", said, remedy=remedy))
        return Report(title, checks)
    stored, *results = outcome.result()
    checks.append(_stored(known, stored))
    with training(net, False), tidy():
        live = [running.outputs(net, batch.inputs, dtypes) for batch in tried]
    pairs = list(zip(tried, results, live, strict=True))
    checks += [_compared(batch, known, actual, wanted) for batch, actual, wanted in pairs]
    checks.append(_repeatable(tried, results))
    if any(check.status == "failed" for check in checks):
        checks = _with_cause(checks, net, dtypes, pairs)
    if torch_net is not None:
        checks += _against_torch(torch_net, known, pairs)
    return Report(title, checks)


# The file


def _found(path: Any) -> Path | str:
    try:
        return find(path)
    except ExportedFileError as error:
        return str(error)


def _inference(graph: graphfile.Graph) -> Check:
    if graph.training:
        return Check(
            "inference",
            "failed",
            f"the graph holds {', '.join(graph.training)} as in training",
            remedy="msnb.export, which exports in inference mode; or net.set_train(False) first",
        )
    return Check("inference", "ok", "no Dropout, no statistics of the batch in the graph")


def _parameters(graph: graphfile.Graph, net: Any) -> Check:
    """The file's numbers against the net's: the quickest way to see an old export."""
    id = "parameters"
    mine = dict(named(net))
    stored = {value.name: value for value in graph.parameters}
    common = [name for name in stored if name in mine]
    if not common:
        if not mine:
            return Check(id, "ok", "the net has none")
        return Check(id, "skipped", "the file names none of the net's parameters")
    differ = [name for name in common if bytes(stored[name].data) != mine[name].asnumpy().tobytes()]
    total = f"{len(common)} of the net's {len(mine)}"
    if not differ:
        return Check(id, "ok", f"{total} are in the file, bit by bit")
    shown = ", ".join(differ[:_SHOWN]) + (", ..." if len(differ) > _SHOWN else "")
    return Check(
        id,
        "failed",
        f"{len(differ)} of {len(common)} differ from the net's: {shown}",
        remedy="the net was trained or loaded after the export: export it again",
        metrics={"differ": len(differ)},
    )


def _stored(known: Manifest, found: Any) -> Check:
    """The outputs for the seeded input against those that the manifest keeps."""
    id = "stored outputs"
    if isinstance(found, Failure):
        return Check(id, "failed", f"the file cannot run on its seeded input: {found}")
    kept = known.proof["outputs"]
    shapes = [list(value.shape) for _, value in found], [k["shape"] for k in kept]
    if shapes[0] != shapes[1]:
        return Check(id, "failed", "another shape than at export", str(shapes[0]), str(shapes[1]))
    now = [manifest.fingerprint(value) for _, value in found]
    if now == list(kept):
        return Check(id, "ok", f"bit by bit those of the export ({known.device})")
    for (name, value), new, old in zip(found, now, kept, strict=True):
        dtype = value.dtype.name
        report = compare(np.array(new["first"], dtype), np.array(old["first"], dtype))
        if not report.ok:
            said = f"{name} is not what it was at export: {report['values'].summary}"
            return Check(id, "failed", said, remedy="export again, on this device")
    return Check(id, "ok", f"those of the export on {known.device} but for rounding")


# The batches


def _given(batches: Any) -> list[_Batch]:
    if kind(batches) and hasattr(batches, "shape"):
        raise TypeError(
            "batches is a list of inputs, and was given one array: put it into a list, [batch]"
        )
    if isinstance(batches, (str, bytes, Mapping)) or not isinstance(batches, Sequence):
        raise TypeError(
            f"batches is a list of inputs, each an array or a tuple of arrays, not a "
            f"{type(batches).__name__}"
        )
    if not batches:
        raise ValueError("batches is empty: nothing would be checked")
    found = []
    for index, batch in enumerate(batches):
        values = list(batch) if isinstance(batch, (tuple, list)) else [batch]
        for value in values:
            if not kind(value) or not hasattr(value, "dtype"):
                raise TypeError(
                    f"batch {index} is an array or a tuple of arrays, not a {type(value).__name__}"
                )
        pairs = [to_numpy(value) for value in values]
        inputs = [array.copy() for array, _ in pairs]
        rows = inputs[0].shape[0] if inputs and inputs[0].ndim else 1
        id = f"batch {index} ({rows} row{'s' * (rows != 1)})"
        found.append(_Batch(id, inputs, True, tuple(dtype for _, dtype in pairs)))
    return found


def _fit(batches: Sequence[_Batch], known: Manifest) -> None:
    """Inputs that could never fit are a slip of the caller's, not a finding."""
    for batch in batches:
        if len(batch.inputs) != len(known.inputs):
            names = ", ".join(port.name for port in known.inputs)
            raise ValueError(
                f"{batch.id} has {len(batch.inputs)} inputs, and the file takes "
                f"{len(known.inputs)} ({names})"
            )
        for array, dtype, port in zip(batch.inputs, batch.dtypes, known.inputs, strict=True):
            if dtype != port.dtype:  # converted, it would hide what load_exported refuses
                raise ValueError(
                    f"{batch.id}: {port.name} is {dtype}, and the file takes {port.dtype}: give "
                    "it as in use, with astype"
                )
            if array.ndim != len(port.shape):
                raise ValueError(
                    f"{batch.id}: {port.name} has the shape {array.shape}, and the file takes "
                    f"{len(port.shape)} axes: {port}"
                )
            if not array.size:
                raise ValueError(f"{batch.id}: {port.name} is empty, of shape {array.shape}")


def _derived(batch: _Batch, known: Manifest) -> Iterator[_Batch]:
    floats = ["float" in port.dtype for port in known.inputs]
    if any(floats):
        pairs = list(zip(batch.inputs, floats, strict=True))
        yield _Batch("negated", [-a if real else a for a, real in pairs], False)
        yield _Batch("zeros", [np.zeros_like(a) if real else a for a, real in pairs], False)
    yield _Batch("again", batch.inputs, False)
    rows = known.rows
    if isinstance(rows, str):
        count = batch.inputs[0].shape[0]
        for size in (1, 2 * count + 1):
            if size != count:
                inputs = [
                    np.resize(a, (size, *a.shape[1:])) if port.shape[:1] == (rows,) else a
                    for a, port in zip(batch.inputs, known.inputs, strict=True)
                ]
                yield _Batch(f"{size} row{'s' * (size > 1)}", inputs, False)


def _compared(batch: _Batch, known: Manifest, actual: Any, wanted: Any) -> Check:
    id = batch.id
    if isinstance(wanted, Failure):
        if isinstance(actual, Failure):
            said = f"both raise: {str(wanted)[:80]}"
            if batch.given:  # as in use, so that it was to prove something
                remedy = "give batches that the net takes"
                return Check(id, "error", f"{said}; nothing was compared", remedy=remedy)
            return Check(id, "ok", said)
        return Check(id, "failed", f"the net raises, the file does not: {wanted}")
    for array, port in zip(batch.inputs, known.inputs, strict=True):
        fixed = [
            (axis, want)
            for axis, want in enumerate(port.shape)
            if isinstance(want, int) and want != array.shape[axis]
        ]
        if fixed:
            axis, want = fixed[0]
            return Check(
                id,
                "failed",
                f"the file is fixed at {want} along axis {axis} of {port.name}, and this batch has "
                f"{array.shape[axis]}: on Ascend it is refused",
                remedy='export with dynamic={0: "batch"}, or check with the size in use',
            )
    if isinstance(actual, Failure):
        return Check(
            id, "failed", f"the file cannot run: {actual}", remedy="export without dynamic"
        )
    shapes = [[v.shape for _, v in side] for side in (actual, wanted)]
    if len(actual) != len(wanted):
        return Check(
            id,
            "failed",
            f"the file gives {len(actual)} outputs, the net {len(wanted)}",
            found=", ".join(map(str, shapes[0])),
            expected=", ".join(map(str, shapes[1])),
            remedy="the file is another net's, or an older one's: export this net again",
        )
    if shapes[0] != shapes[1]:
        return Check(
            id,
            "failed",
            f"the file gives {', '.join(map(str, shapes[0]))}, the net "
            f"{', '.join(map(str, shapes[1]))}",
            remedy="a size of the example's is built into the graph: export without dynamic",
        )
    worst = 0.0
    exact = True
    for (name, a), (_, w) in zip(actual, wanted, strict=True):
        report = compare(a, w, names=("the file", "the net"))
        if not report.ok:
            bad = next(check for check in report if check.status == "failed")
            return Check(id, "failed", f"{name}: {bad.summary}", found=bad.found)
        exact = exact and running.bitwise(a, w)
        worst = max(worst, report["values"].metrics.get("max_abs", 0.0))
    if batch.given and all(
        w.size and w.dtype.kind == "f" and not np.isfinite(w).any() for _, w in wanted
    ):
        said = "the net gives NaN or infinity alone, which proves nothing"
        return Check(id, "error", said, remedy="give batches as in use")
    said = "bit by bit" if exact else f"equal but for rounding: at most {worst:.3g} off"
    return Check(id, "ok", said, metrics={"max_abs": worst})


def _repeatable(tried: Sequence[_Batch], results: Sequence[Any]) -> Check:
    again = next(i for i, batch in enumerate(tried) if batch.id == "again")
    first, second = results[0], results[again]
    if isinstance(first, Failure) or isinstance(second, Failure):
        return Check("repeatable", "skipped", "the file cannot run on the first batch")
    if len(first) == len(second) and all(
        running.bitwise(a[1], b[1]) for a, b in zip(first, second, strict=True)
    ):
        return Check("repeatable", "ok", "the first batch, run again after others, bit by bit")
    if running.repeats(first, second):
        return Check(
            "repeatable", "ok", "the first batch, run again after others, but for rounding"
        )
    return Check(
        "repeatable",
        "failed",
        "the file gives two answers for one batch",
        remedy="the graph draws random numbers, or holds state: pass both in as inputs",
    )


def _with_cause(
    checks: list[Check], net: Any, dtypes: Sequence[str], pairs: Sequence[tuple[Any, Any, Any]]
) -> list[Check]:
    """Where the file computes what the net computes in training, say so."""
    batch, actual, wanted = pairs[0]
    if isinstance(actual, Failure) or isinstance(wanted, Failure):
        return checks
    with training(net, True):
        trained = attempt(running.outputs, net, batch.inputs, dtypes)
    if isinstance(trained, Failure) or len(trained) != len(actual):
        return checks
    if all(
        a[1].shape == t[1].shape and compare(a[1], t[1]).ok and not compare(a[1], w[1]).ok
        for a, t, w in zip(actual, trained, wanted, strict=True)
    ):
        checks.append(
            Check(
                "cause",
                "failed",
                "the file computes what the net computes in training mode",
                remedy="net.set_train(False) before mindspore.export; msnb.export does it",
            )
        )
    return checks


# PyTorch


def _against_torch(
    torch_net: Any, known: Manifest, pairs: Sequence[tuple[_Batch, Any, Any]]
) -> list[Check]:
    import torch

    checks = []
    with training(torch_net, False), torch.no_grad():
        for batch, actual, _ in pairs:
            if not batch.given:
                continue
            id = f"PyTorch: {batch.id}"
            if isinstance(actual, Failure):
                checks.append(Check(id, "failed", "the file cannot run on it"))
                continue
            given = [torch.from_numpy(array.copy()) for array in batch.inputs]
            found = attempt(torch_net, *given)
            if isinstance(found, Failure):
                checks.append(Check(id, "error", f"PyTorch's net raises: {found}"))
                continue
            theirs = [to_numpy(leaf)[0] for leaf in leaves(found)]
            if [v.shape for v in theirs] != [v.shape for _, v in actual]:
                shapes = [[v.shape for v in theirs], [v.shape for _, v in actual]]
                said = f"the file gives {shapes[1]}, PyTorch {shapes[0]}"
                checks.append(Check(id, "failed", said))
                continue
            reports = [
                compare(a, t, names=("the file", "PyTorch"), dtype_strict=False)
                for (_, a), t in zip(actual, theirs, strict=True)
            ]
            worst = max(reports, key=lambda r: r["values"].metrics.get("limits", 0.0))
            bad = next((check for r in reports for check in r if check.status == "failed"), None)
            if bad is None:  # a failed Check is false
                checks.append(Check(id, "ok", worst["values"].summary))
            else:
                checks.append(Check(id, "failed", bad.summary, bad.found))
    return checks
