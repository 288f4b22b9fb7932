"""``export()``: a file that runs without the net's class, proved before it gets its name."""

from __future__ import annotations

import math
import operator
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from msnb.deploy import graphfile, manifest, refusals, running
from msnb.deploy.manifest import Manifest, Port
from msnb.deploy.running import Failure, attempt
from msnb.parity.arrays import compare, to_numpy
from msnb.parity.calls import cells, is_cell, kind, tidy, training, unchanged
from msnb.report import Check, Report

__all__ = ["FORMATS", "export"]

FORMATS = {"mindir": "MINDIR", "onnx": "ONNX", "air": "AIR"}
_SEED = 20_240
_LARGEST = 1 << 30  # bytes of parameters: beyond it MindSpore splits the file into a folder
_TRAINING = {
    "Dropout": "values are dropped at random",
    "BatchNorm": "each row depends on the others in its batch",
}

Array = np.ndarray[Any, Any]
Dynamic = Mapping[Any, Any]


@dataclass(frozen=True)
class _Job:
    """One call of ``export``: what does not depend on the format."""

    net: Any
    target: Path  # without a suffix
    example: tuple[Array, ...]
    dtypes: tuple[str, ...]
    inputs: tuple[Port, ...]
    sizes: Mapping[str, int]  # of the named axes in the example


def export(
    net: Any,
    example: Any,
    name: str | os.PathLike[str],
    formats: Sequence[str] | str = ("mindir",),
    dynamic: Dynamic | None = None,
) -> Report:
    """Export a net to a file that runs without its class, with a manifest beside it.

    - ``net``: a ``mindspore.nn.Cell``; it is exported in inference mode and given back as it was
    - ``example``: its input, or a tuple of them, with values: arrays or tensors of either
      framework. The file expects their shapes and dtypes; the seeded inputs that prove it are
      drawn from their range
    - ``name``: the file's path; its suffix comes from the format, whatever ``name`` ends in
    - ``formats``: ``mindir``, ``onnx`` (with the example's sizes, always) and ``air`` (on Ascend)
    - ``dynamic``: axes of any size, ``{0: "batch"}``, for every input whose axis 0 has the size of
      the first input's; or for each input by name, ``{"x": {0: "batch"}}``

    Before a file gets its name it is loaded again and must give what the net gives, for the
    example's sizes and, where an axis is named, for two others, shapes before values. Otherwise no
    file is written, and what was there before is untouched. ``kill -9`` leaves the old file or the
    new one, each with its manifest.

    Returns a Report with a Check for each format. One that MindSpore refuses has failed, with the
    idiom in ``found`` and what to write instead in ``remedy``. Raises ``TypeError`` or
    ``ValueError`` for a wrong argument and ``OSError`` where the file cannot be written.

    The manifest is described in ``msnb.deploy.manifest``.

    >>> report = export(net, images, "lenet", dynamic={0: "batch"})  # doctest: +SKIP
    >>> report.require()  # doctest: +SKIP
    """
    wanted = _formats(formats)
    target = _target(name)
    if not is_cell(net):
        if isinstance(net, type):
            raise TypeError(
                f"net is a net, and was given the class {net.__name__}: make one first, "
                f"net = {net.__name__}(...)"
            )
        what = "a net of PyTorch's" if kind(net) == "torch" else f"a {type(net).__name__}"
        raise TypeError(
            f"net is a mindspore nn.Cell, not {what}; a function is exported as the construct of "
            "a Cell"
        )
    arrays, dtypes = _example(example)
    names = _names(net, len(arrays))
    inputs = _ports(names, arrays, dtypes, dynamic, _layout(net))
    sizes = Manifest("", "", 0, "", "", "", "", 0, inputs, ()).axes([a.shape for a in arrays])
    job = _Job(net, target, arrays, dtypes, inputs, sizes)
    total = sum(int(p.size) * int(p.itemsize) for p in net.get_parameters())
    if total > _LARGEST:
        raise ValueError(
            f"the net has {total / 1e9:.1f} GB of parameters; beyond 1.07 GB MindSpore splits a "
            "file into a folder, which msnb.export does not write: mindspore.export does"
        )
    with training(net, False), tidy(), _own_syntax_level():
        return Report(f"export {target.name}", [_one(job, format) for format in wanted])


def _one(job: _Job, format: str) -> Check:
    import mindspore as ms

    device = str(ms.get_context("device_target"))
    if format == "AIR" and device != "Ascend":
        return Check(
            format.lower(),
            "failed",
            f"AIR is written on Ascend alone, and this process computes on {device}",
            remedy='formats=("mindir",): MINDIR is what Ascend loads today too',
        )
    if format != "MINDIR":  # those exporters take no axis of any size
        job = replace(
            job,
            inputs=tuple(
                replace(p, shape=a.shape) for p, a in zip(job.inputs, job.example, strict=True)
            ),
            sizes={},
        )
    with unchanged([job.net]):  # trials must not move the state that is written into the file
        live = _live(job)
        elastic = [] if isinstance(live, Check) else _elastic(job, live[0])
    if isinstance(live, Check):
        return replace(live, id=format.lower())
    path = job.target.with_name(f"{job.target.name}.{format.lower()}")
    with _workplace(path) as folder:
        refused = _write(job, format, folder)
        if refused:
            idiom, rewrite = refused
            said = f"MindSpore's {format} exporter refuses this net; no file was written"
            return Check(format.lower(), "failed", said, found=idiom, remedy=rewrite)
        made = folder / path.name
        (folder / f"model.{format.lower()}").rename(made)
        verdict, outputs, note = _verify(job, format, made, live, elastic)
        if verdict is not None:
            return verdict
        record = _record(job, format, made, outputs, live[0])
        _put_in_place(made, path, record)
    parameters, count = record.parameters, f"{record.parameters:,} parameters"
    if format == "MINDIR":  # what no output depends on is left out of the file
        held = sum(math.prod(v.shape) for v in graphfile.read(path).parameters)
        if held < parameters:
            count, parameters = f"{held:,} of the net's {count}", held
        keys = [port.name for port in outputs]
        if keys != ["output"] and any(not part.isdigit() for k in keys for part in k.split(".")):
            note += f"; in place of a dict the file gives a tuple: {', '.join(keys)}"
    said = f"{path.name}: {record.bytes:,} bytes, {count}; {note}"
    status = "skipped" if note.startswith("not checked") else "ok"
    metrics = {"bytes": record.bytes, "parameters": parameters}
    return Check(format.lower(), status, said, metrics=metrics)  # type: ignore[arg-type]


# The net itself


Trial = tuple[dict[str, int], list[Array], running.Outputs]


def _live(job: _Job) -> list[Trial] | Check:
    """What the net gives for seeded inputs of each set of sizes: (sizes, inputs, outputs)."""
    trials: list[Trial] = []
    for sizes in _trial_sizes(job):
        inputs = _seeded(job, sizes)
        once = running.outputs(job.net, inputs, job.dtypes)
        again = running.outputs(job.net, inputs, job.dtypes)
        where = f" for {_sizes(sizes)}" if sizes else ""
        for found in (once, again):
            if isinstance(found, Failure):
                idiom, rewrite = refusals.explain(found.text)
                said = f"the net itself cannot be run{where}, before any export: {found}"
                if trials:  # it ran with the example's sizes
                    named = ", ".join(n for n in sizes if sizes[n] != job.sizes[n])
                    rewrite = f"leave {named} out of dynamic: one file for each size that is needed"
                return Check("net", "failed", said, found=idiom, remedy=rewrite)
        assert not isinstance(once, Failure)
        assert not isinstance(again, Failure)
        if not once:
            return Check(
                "net",
                "failed",
                "the net returns nothing, so that nothing can be proved; no file was written",
                remedy="return tensors from construct",
            )
        if not running.repeats(once, again):
            return Check(
                "net",
                "failed",
                "the net gives two answers for one input, in inference mode; no file was written",
                found="random numbers, the clock, or state that a call changes: an exporter "
                "freezes what Python computes at its value of today",
                remedy="draw random numbers outside and pass them in; keep state in a Parameter, "
                "or pass it in and return it",
            )
        ranks = [[v.ndim for _, v in side] for side in (trials[0][2] if trials else once, once)]
        if ranks[0] != ranks[1]:
            at = next(i for i, (a, b) in enumerate(zip_longest(*ranks)) if a != b)
            name = (once if at < len(once) else trials[0][2])[at][0]
            shapes = [
                str(side[at][1].shape) if at < len(side) else "nothing"
                for side in (once, trials[0][2])
            ]
            return Check(
                "net",
                "failed",
                f"{name} has the shape {shapes[0]}{where} and {shapes[1]} for "
                f"{_sizes(trials[0][0])}: another number of axes; no file was written",
                remedy="where it is squeeze(), name the axis: x.squeeze(1)",
            )
        trials.append((dict(sizes), inputs, once))
    return trials


def _elastic(job: _Job, first: Trial) -> list[tuple[int, int]]:
    """(output, axis) of sizes that the inputs' values decide, as those of ``ops.nonzero``."""
    found = set()
    for factor in (-1, 0):
        inputs = [a * a.dtype.type(factor) if a.dtype.kind == "f" else a for a in first[1]]
        other = running.outputs(job.net, inputs, job.dtypes)
        if isinstance(other, Failure) or len(other) != len(first[2]):
            continue
        for index, ((_, a), (_, b)) in enumerate(zip(first[2], other, strict=True)):
            sizes = enumerate(zip(a.shape, b.shape, strict=False))
            found |= {(index, axis) for axis, (here, there) in sizes if here != there}
    return sorted(found)


def _trial_sizes(job: _Job) -> list[dict[str, int]]:
    """The example's sizes, and two others where an axis has a name; the first ones again.

    Rows become odd, then few. Other axes are doubled: images often need a multiple of something.
    """
    first = dict(job.sizes)
    if not first:
        return [first]
    rows = {port.shape[0] for port in job.inputs if port.shape}
    more = {n: 2 * size + (n in rows) for n, size in first.items()}
    few = {n: (1 if size > 1 else 2) if n in rows else size for n, size in first.items()}
    return [first, more, few, first]


def _seeded(job: _Job, sizes: Mapping[str, int]) -> list[Array]:
    rng = np.random.default_rng(_SEED)
    drawn = [manifest.spread(array) for array in job.example]
    return [
        manifest.draw(rng, port, spread, sizes)
        for port, spread in zip(job.inputs, drawn, strict=True)
    ]


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


# Writing with MindSpore's exporters


def _write(job: _Job, format: str, folder: Path) -> tuple[str, str] | None:
    """Write ``model.<format>`` into the folder; (idiom, rewrite) where MindSpore refuses."""
    import mindspore as ms

    given = running.tensors(job.example, job.dtypes)
    given = [
        ms.Tensor(
            shape=[None if isinstance(size, str) else size for size in port.shape], dtype=t.dtype
        )
        if any(isinstance(size, str) for size in port.shape)
        else t
        for port, t in zip(job.inputs, given, strict=True)
    ]
    _forget(job.net)
    # MindSpore refuses a path with a space or a letter beyond ASCII, then resolves it: so it gets
    # another name of the same folder.
    handle = os.open(folder, os.O_RDONLY)
    try:
        ms.export(job.net, *given, file_name=f"/proc/self/fd/{handle}/model", file_format=format)
    except Exception as error:
        attempt(lambda: None)
        if isinstance(error, OSError) and "can not compile" not in str(error):
            raise
        return refusals.explain(str(error))
    finally:
        os.close(handle)
        _forget(job.net)
    return None


def _forget(net: Any) -> None:
    """Make the next export of this net compile it anew.

    MindSpore's second export of a net in one process writes the first one's graph again: with the
    attributes of then, and in training if it was in training then.
    """
    for phase in [phase for phase in net.compile_cache if "export." in phase]:
        net.compile_cache.discard(phase)


@contextmanager
def _own_syntax_level() -> Iterator[None]:
    """Give back the context that ``mindspore.export`` leaves changed where it raises."""
    import mindspore as ms

    before = ms.get_context("jit_syntax_level")
    try:
        yield
    finally:
        ms.set_context(jit_syntax_level=before)


# Proving


def _verify(
    job: _Job, format: str, made: Path, trials: list[Trial], elastic: list[tuple[int, int]]
) -> tuple[Check | None, tuple[Port, ...], str]:
    """A failed Check or None, the outputs' shapes and dtypes, and what was proved."""
    outputs = _output_ports(job, trials, elastic)
    if format == "MINDIR":
        graph = graphfile.read(made)
        if graph.training:
            verdict = Check(
                "mindir",
                "failed",
                f"the graph holds {', '.join(graph.training)} as in training: "
                f"{_TRAINING.get(graph.training[0], 'it computes as in training')}; no file was "
                "written",
                remedy="a layer called with training=True in construct, or ops.dropout without "
                "training=self.training: let it follow self.training",
            )
            return verdict, outputs, ""
        model: Any = running.load(str(made))
        results = [running.outputs(model, inputs, job.dtypes) for _, inputs, _ in trials]
    elif format == "ONNX":
        found = attempt(_run_onnx, made, trials[0][1])
        if isinstance(found, Failure):
            found = Failure(found.type, found.text.replace(f"{made.parent}{os.sep}", ""))
        if isinstance(found, str):
            return None, outputs, found
        results = [found]
    else:
        return None, outputs, "not checked: msnb does not run AIR files"
    note = "bit by bit the net's outputs"
    for (sizes, _, expected), actual in zip(trials, results, strict=False):
        where = f" for {_sizes(sizes)}" if sizes else ""
        failed = _judge(format, where, expected, actual, not sizes)
        if failed is not None:
            return failed, outputs, ""
        assert not isinstance(actual, Failure)
        if not all(running.bitwise(a[1], e[1]) for a, e in zip(actual, expected, strict=True)):
            worst = max(
                float(np.abs(a[1].astype(np.float64) - e[1].astype(np.float64)).max(initial=0))
                for a, e in zip(actual, expected, strict=True)
            )
            note = f"the net's outputs but for rounding (at most {worst:.2g} off)"
    if format == "ONNX" and job.inputs and job.inputs[0].shape:
        note += f"; fixed at {job.inputs[0].shape[0]} rows"
    if job.sizes:
        tried = [_sizes(sizes) for sizes, *_ in trials[:3]]
        note += f", for {'; '.join(tried)}"
    return None, outputs, note


def _judge(
    format: str, where: str, expected: running.Outputs, actual: Any, static: bool
) -> Check | None:
    """A failed Check where the file does not give what the net gives."""
    id = format.lower()
    dynamic = "" if static else "leave out dynamic: one file for each size that is needed"
    if isinstance(actual, Failure):
        idiom, rewrite = refusals.explain(actual.text)
        line = refusals.first_line(actual.text)
        return Check(
            id,
            "failed",
            f"the {format} file was made, but cannot run{where}; it was deleted",
            found=idiom if idiom == line else f"{idiom}: {line}",
            remedy=dynamic or rewrite,
        )
    shapes = [[tuple(v.shape) for _, v in side] for side in (actual, expected)]
    if shapes[0] != shapes[1]:
        return Check(
            id,
            "failed",
            f"the {format} file gives another shape than the net{where}, without an error; it was "
            "deleted",
            found=", ".join(map(str, shapes[0])),
            expected=", ".join(map(str, shapes[1])),
            remedy=dynamic or "a size of the example's was built into the graph",
        )
    for (name, a), (_, e) in zip(actual, expected, strict=True):
        report = compare(a, e, title=name)
        if not report.ok:
            bad = next(check for check in report if check.status == "failed")
            return Check(
                id,
                "failed",
                f"the {format} file gives other values than the net{where}: {name}: {bad.summary}; "
                "it was deleted",
                found=bad.found,
                remedy=dynamic
                or "look for what construct does outside of the graph: in-place methods such as "
                "x.add_(1), attributes of Python's, global variables",
            )
    return None


def _run_onnx(path: Path, inputs: list[Array]) -> Any:
    """The outputs, or a text that says why nothing could be checked."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        return f"not checked: {error.name} is not installed (pip install onnx onnxruntime)"
    onnx.checker.check_model(onnx.load(str(path)))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    if len(names) != len(inputs):
        raise ValueError(f"the file has {len(names)} inputs, the net {len(inputs)}")
    found = session.run(None, dict(zip(names, inputs, strict=True)))
    return [(str(i), array) for i, array in enumerate(found)]


def _output_ports(
    job: _Job, trials: list[Trial], elastic: list[tuple[int, int]]
) -> tuple[Port, ...]:
    """Names, shapes and dtypes of the outputs; an axis that follows a named one has its name."""
    first_sizes, _, first = trials[0]
    ports = []
    for index, (name, value) in enumerate(first):
        shape: list[int | str] = list(value.shape)
        for sizes, _, outputs in trials[1:]:
            other = outputs[index][1].shape
            for axis in range(min(len(shape), len(other))):
                if other[axis] != value.shape[axis]:
                    same = [
                        n
                        for n in sizes
                        if sizes[n] == other[axis] and first_sizes[n] == value.shape[axis]
                    ]
                    shape[axis] = same[0] if same else "?"
        for axis in (axis for output, axis in elastic if output == index):
            shape[axis] = "?"
        ports.append(Port(name, tuple(shape), value.dtype.name))
    return tuple(ports)


def _record(
    job: _Job, format: str, made: Path, outputs: tuple[Port, ...], first: Trial
) -> Manifest:
    import mindspore as ms

    return Manifest(
        file=made.name,
        kind=format,
        bytes=made.stat().st_size,
        sha256=manifest.sha256(made),
        mindspore=str(ms.__version__),
        device=str(ms.get_context("device_target")),
        net=type(job.net).__name__,
        parameters=sum(int(p.size) for p in job.net.get_parameters()),
        inputs=job.inputs,
        outputs=outputs,
        proof={
            "seed": _SEED,
            "sizes": dict(job.sizes),
            "inputs": [manifest.spread(array) for array in job.example],
            "outputs": [manifest.fingerprint(value) for _, value in first[2]],
        },
    )


# On the disk


@contextmanager
def _workplace(path: Path) -> Iterator[Path]:
    """A hidden folder beside the file to be, gone afterwards; those of dead processes go too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise type(error)(
            f"cannot write {str(path)!r}: {error.filename!r} is, or is in, a file and no folder"
        ) from None
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: give another name")
    start = f".{path.name}.{socket.gethostname()}-"
    for left in path.parent.glob(f"{_escaped(start)}*"):
        owner = left.name[len(start) :].partition(".")[0]
        if owner.isdigit() and not _lives(owner):
            shutil.rmtree(left, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{start}{os.getpid()}.", dir=path.parent))
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lives(process: str) -> bool:
    """Whether a process of this number runs; one that nobody has waited for does not."""
    try:
        status = Path("/proc", process, "stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def _escaped(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)


def _put_in_place(made: Path, path: Path, record: Manifest) -> None:
    """Both files under their names, so that at no moment one of them is without the other.

    First a manifest that knows the old file and the new one, then the file, then the manifest that
    knows the new one alone.
    """
    place = manifest.beside(path)
    mask = os.umask(0)
    os.umask(mask)
    made.chmod(0o666 & ~mask)  # MindSpore's exporter makes it readable by its owner alone
    try:
        older = manifest.read(path) if path.is_file() else None
    except manifest.ManifestError:
        older = None
    if older is not None:
        previous = {k: v for k, v in asdict(older).items() if k != "previous"}
        _replace(place, replace(record, previous=previous).text(), made.parent)
    else:
        _replace(place, record.text(), made.parent)
    _flush(made)
    made.replace(path)
    if older is not None:
        _replace(place, record.text(), made.parent)
    _flush(path.parent)


def _replace(place: Path, content: str, folder: Path) -> None:
    written = folder / "manifest.json"
    written.write_text(content, encoding="utf-8")
    _flush(written)
    written.replace(place)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Arguments


def _formats(asked: Any) -> tuple[str, ...]:
    words = (asked,) if isinstance(asked, str) else asked
    if not isinstance(words, Sequence) or not words:
        raise TypeError(f'formats is a list of formats such as ("mindir", "onnx"), not {asked!r}')
    found: dict[str, None] = {}
    for word in words:
        key = word.strip().lstrip(".").lower() if isinstance(word, str) else ""
        if key not in FORMATS:
            raise ValueError(f"formats are {', '.join(FORMATS)}, not {word!r}")
        found[FORMATS[key]] = None
    return tuple(found)


def _target(name: Any) -> Path:
    if not isinstance(name, (str, os.PathLike)) or not str(name).strip():
        if is_cell(name) or hasattr(name, "shape"):
            raise TypeError(
                f"name is a path such as 'exports/lenet', not a {type(name).__name__}; the order "
                "is export(net, example, name)"
            )
        raise TypeError(f"name is a path such as 'exports/lenet', not {name!r}")
    if str(name).endswith(("/", os.sep)) or "\0" in str(name):
        raise ValueError(f"name is the path of a file, such as 'exports/lenet', not {str(name)!r}")
    path = Path(name).expanduser()
    while path.suffix[1:].lower() in FORMATS and path.stem.strip("."):
        path = path.with_suffix("")
    if path.suffix.lower() in (".ckpt", ".pth", ".pt", ".safetensors", ".json"):
        raise ValueError(
            f"{str(name)!r}: {path.suffix} is no format of export; it is one of "
            f"{', '.join(FORMATS)} (weights alone: msnb.save_checkpoint)"
        )
    if path.name in ("", ".", ".."):
        raise ValueError(f"name is the path of a file, such as 'exports/lenet', not {str(name)!r}")
    return path


def _example(example: Any) -> tuple[tuple[Array, ...], tuple[str, ...]]:
    given = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    if not given:
        raise ValueError("example holds no input: give the net's input, or a tuple of them")
    arrays, dtypes = [], []
    for index, value in enumerate(given):
        where = f"input {index} of example" if len(given) > 1 else "example"
        if any(size is None or size < 0 for size in getattr(value, "shape", None) or ()):
            raise ValueError(
                f"{where} has no values, only a shape: give an example with values, and name the "
                'axes of any size: dynamic={0: "batch"}'
            )
        if not kind(value) or not hasattr(value, "dtype"):
            hints = {
                dict: "give a tuple of its values, in construct's order",
                list: "numbers in lists become one with numpy.array(numbers, numpy.float32)",
                type(None): "leave out arguments that construct has defaults for",
            }
            hint = hints.get(type(value), "a number becomes one with mindspore.Tensor(number)")
            raise TypeError(
                f"{where} is an array or a tensor, not a {type(value).__name__}; {hint}"
            )
        array, dtype = to_numpy(value, where)
        if not array.size:
            raise ValueError(f"{where} is empty, of shape {array.shape}: give one with values")
        if array.dtype.kind == "c":
            raise ValueError(f"{where} is {dtype}: an exported file takes real numbers")
        if not np.isfinite(array).all():
            raise ValueError(
                f"{where} holds NaN or infinity: nothing can be proved with it; give one with "
                "values as in use"
            )
        arrays.append(array.copy())
        dtypes.append(dtype)
    return tuple(arrays), tuple(dtypes)


def _names(net: Any, count: int) -> list[str]:
    """The names of the net's inputs, from its construct."""
    import inspect

    try:
        found = [
            p.name
            for p in inspect.signature(net.construct).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        found = []
    return found[:count] + [f"input_{i}" for i in range(len(found), count)]


def _ports(
    names: Sequence[str],
    arrays: Sequence[Array],
    dtypes: Sequence[str],
    dynamic: Dynamic | None,
    layout: str,
) -> tuple[Port, ...]:
    axes = _axes(names, arrays, dynamic)
    return tuple(
        Port(
            name,
            tuple(axes[name].get(axis, size) for axis, size in enumerate(array.shape)),
            dtype,
            layout if array.ndim == 4 and dtype.startswith(("float", "bfloat")) else "",
        )
        for name, array, dtype in zip(names, arrays, dtypes, strict=True)
    )


def _axes(
    names: Sequence[str], arrays: Sequence[Array], dynamic: Dynamic | None
) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {name: {} for name in names}
    if dynamic is None:
        return found
    if not isinstance(dynamic, Mapping):
        raise TypeError(f'dynamic maps an axis to a name, {{0: "batch"}}, not {dynamic!r}')
    for key, value in dynamic.items():
        if isinstance(key, str):
            if key not in found:
                raise ValueError(
                    f"dynamic names the input {key!r}; the net's are {', '.join(names)}"
                )
            if not isinstance(value, Mapping):
                raise TypeError(f"dynamic[{key!r}] maps an axis to a name, not {value!r}")
            array = arrays[list(names).index(key)]
            for axis, word in value.items():
                _call(found[key], _axis(axis, array), word)
        else:
            first = _axis(key, arrays[0])
            for name, array in zip(names, arrays, strict=True):
                if array.ndim > first and array.shape[first] == arrays[0].shape[first]:
                    _call(found[name], first, value)
    sizes: dict[str, int] = {}
    for name, array in zip(names, arrays, strict=True):
        for axis, word in found[name].items():
            if sizes.setdefault(word, array.shape[axis]) != array.shape[axis]:
                raise ValueError(
                    f"dynamic calls two axes {word!r} that have the sizes {sizes[word]} and "
                    f"{array.shape[axis]} in the example: give them two names"
                )
    return found


def _call(axes: dict[int, str], axis: int, word: Any) -> None:
    if axes.setdefault(axis, _word(word)) != word:
        raise ValueError(
            f"dynamic gives axis {axis} two names, {axes[axis]!r} and {word!r}: give it one"
        )


def _axis(axis: Any, array: Array) -> int:
    try:
        number = operator.index(axis)
    except TypeError:
        raise TypeError(f"an axis in dynamic is a whole number, not {axis!r}") from None
    if isinstance(axis, bool) or not -array.ndim <= number < array.ndim:
        raise ValueError(
            f"dynamic names axis {axis!r} of an input of shape {array.shape}, which has "
            + (f"the axes 0 to {array.ndim - 1}" if array.ndim else "no axis")
        )
    return number % array.ndim


def _word(word: Any) -> str:
    if not isinstance(word, str) or not word.strip() or word == "?":
        raise TypeError(f'an axis of any size has a name such as "batch", not {word!r}')
    return word


def _layout(net: Any) -> str:
    """The layout of images, where a layer says it."""
    for cell in cells(net):
        for attribute in ("data_format", "format"):
            found = getattr(cell, attribute, None)
            if found in ("NCHW", "NHWC"):
                return str(found)
    return ""
