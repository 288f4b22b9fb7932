"""``load_exported()``: an exported file as a function that knows what it may be given."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msnb.deploy import graphfile, manifest, running
from msnb.deploy.graphfile import GraphFileError
from msnb.deploy.manifest import Manifest, Port
from msnb.deploy.running import Failure, attempt
from msnb.parity.arrays import to_numpy
from msnb.parity.calls import kind, places, tidy

__all__ = ["ExportedFileError", "ExportedModel", "InputError", "load_exported"]

_CHECKPOINTS = (".ckpt", ".safetensors", ".pth", ".pt")


class ExportedFileError(ValueError):
    """A file that is not there whole: damaged, without its manifest, encrypted, or too new."""


class InputError(ValueError):
    """An input that the file was not exported for, or an output that it should not have given."""


class ExportedModel:
    """A loaded file: call it with MindSpore tensors. Made by ``load_exported``.

    ``manifest`` is what was written beside the file, None where it was loaded without.

    >>> model = load_exported("lenet.mindir")  # doctest: +SKIP
    >>> model(images).shape  # doctest: +SKIP
    (32, 10)
    """

    def __init__(
        self,
        path: Path,
        inputs: tuple[Port, ...],
        outputs: tuple[Port, ...],
        graph: Any,
        strict: bool,
        known: Manifest | None,
    ) -> None:
        self.path, self.inputs, self.outputs = path, inputs, outputs
        self.manifest = known
        self._graph, self._strict = graph, strict

    def __repr__(self) -> str:
        given = "; ".join(map(str, self.inputs))
        return f"<{self.path.name}: {given} -> {'; '.join(map(str, self.outputs))}>"

    def __call__(self, *inputs: Any) -> Any:
        """What the file gives for these inputs; ``InputError`` where it was not made for them."""
        accepted, sizes = self._check(inputs)
        with tidy():
            found = attempt(self._graph, *accepted)
        if isinstance(found, Failure):
            raise InputError(f"{self.path.name} cannot run on these inputs: {found}")
        self._check_outputs(found, sizes, accepted)
        return found

    def _check(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        file = self.path.name
        if len(inputs) != len(self.inputs):
            names = ", ".join(port.name for port in self.inputs)
            raise InputError(
                f"{file} takes {len(self.inputs)} inputs ({names}), and {len(inputs)} were given"
            )
        accepted: list[Any] = []
        sizes: dict[str, int] = {}
        for port, value in zip(self.inputs, inputs, strict=True):
            value = self._tensor(port, value)
            shape = tuple(value.shape)
            where = f"{file}: input {port.name}"
            dtype = to_numpy(value)[1]
            if len(shape) != len(port.shape):
                hint = ""
                if len(shape) == len(port.shape) - 1:
                    hint = "; a single one needs an axis for the batch: x.expand_dims(0)"
                raise InputError(
                    f"{where} has {len(port.shape)} axes {_shape(port.shape)}, and was given "
                    f"{len(shape)} {_shape(shape)}{hint}"
                )
            self._check_shape(where, port, shape)
            if dtype != port.dtype:
                raise InputError(
                    f"{where} is {port.dtype}, and was given {dtype}: "
                    f"x.astype(mindspore.{port.dtype})"
                )
            for axis, (want, have) in enumerate(zip(port.shape, shape, strict=True)):
                if isinstance(want, str) and sizes.setdefault(want, have) != have:
                    raise InputError(
                        f"{where} has {have} along axis {axis} ({want}), and an input before it "
                        f"has {sizes[want]}: both are {want}"
                    )
                if have == 0:
                    raise InputError(f"{where} is empty: {_shape(shape)}")
            accepted.append(value)
        return accepted, sizes

    def _tensor(self, port: Port, value: Any) -> Any:
        what = kind(value)
        if what == "mindspore" and hasattr(value, "asnumpy"):
            return value
        if what in ("numpy", "torch") and hasattr(value, "dtype"):
            name = "a NumPy array" if what == "numpy" else "a PyTorch tensor"
            change = "x" if what == "numpy" else "x.detach().cpu().numpy()"
            message = (
                f"{self.path.name}: input {port.name} was given as {name}, and takes a MindSpore "
                f"tensor: mindspore.Tensor({change})"
            )
            if self._strict:
                raise InputError(message)
            warnings.warn(f"{message}; converted, as strict=False", stacklevel=4)
            array, dtype = to_numpy(value)
            return running.tensors([array], [dtype])[0]
        raise InputError(
            f"{self.path.name}: input {port.name} takes a MindSpore tensor, not a "
            f"{type(value).__name__}"
        )

    def _check_shape(self, where: str, port: Port, shape: tuple[int, ...]) -> None:
        wrong = [
            axis
            for axis, (want, have) in enumerate(zip(port.shape, shape, strict=True))
            if isinstance(want, int) and want != have
        ]
        if not wrong:
            return
        swap = {"NCHW": ("NHWC", (0, 3, 1, 2)), "NHWC": ("NCHW", (0, 2, 3, 1))}.get(port.layout)
        if swap and wrong != [0]:
            other, order = swap
            turned = tuple(shape[axis] for axis in order)
            pairs = zip(port.shape[1:], turned[1:], strict=True)
            if all(isinstance(want, str) or want == have for want, have in pairs):
                raise InputError(
                    f"{where} is {port.layout} {_shape(port.shape)}, and was given {other} "
                    f"{_shape(shape)}: x.transpose{order}"
                )
        told = ", ".join(f"{shape[a]} along axis {a} instead of {port.shape[a]}" for a in wrong)
        message = (
            f"{where} was exported for the shape {_shape(port.shape)}, and was given "
            f"{_shape(shape)}: {told}"
        )
        if wrong != [0]:
            raise InputError(message)
        message += (
            "; a CPU may take it all the same, Ascend does not. Export with "
            'dynamic={0: "batch"}, or pad the batch'
        )
        if self._strict:
            raise InputError(message)
        warnings.warn(f"{message}; tried, as strict=False", stacklevel=4)

    def _check_outputs(self, found: Any, sizes: dict[str, int], inputs: Sequence[Any]) -> None:
        if not self.outputs:
            return
        rows = self.inputs[0].shape[:1] if self.inputs else ()
        given = tuple(inputs[0].shape)[:1] if inputs else ()
        leaves = [leaf for _, leaf in places(found)]
        if len(leaves) != len(self.outputs):
            raise InputError(
                f"{self.path.name} gave {len(leaves)} outputs, and its manifest says "
                f"{len(self.outputs)}"
            )
        for port, leaf in zip(self.outputs, leaves, strict=True):
            want = [sizes.get(n, n) if isinstance(n, str) else n for n in port.shape]
            if rows != given and port.shape[:1] == rows and not isinstance(rows[0], str):
                want[0] = given[0]  # strict=False: another batch size than the file's
            have = tuple(leaf.shape)
            fits = len(want) == len(have) and all(
                isinstance(w, str) or w == h for w, h in zip(want, have, strict=True)
            )
            if not fits:
                raise InputError(
                    f"{self.path.name} gave {port.name} with the shape {_shape(have)} instead of "
                    f"{_shape(tuple(want))}: do not use it; the file has a size of the example's "
                    "built in"
                )


def load_exported(path: str | os.PathLike[str], *, strict: bool = True) -> ExportedModel:
    """Load a MINDIR file that ``export`` wrote: a function that checks what it is given.

    Before MindSpore sees the file, it is compared with its manifest, so that a damaged one never
    reaches MindSpore's reader. Before MindSpore sees an input, its kind, rank, sizes, dtype and
    layout are compared with the manifest, and afterwards the shapes of the outputs. A batch size
    that was fixed at export is held to: a CPU takes others, and some nets then give the wrong
    number of rows.

    ``strict=False`` warns of another batch size, converts arrays of NumPy and PyTorch, and loads a
    file without a manifest, whose shapes come from the graph, after a process of its own has shown
    that it can be read. Damage that shows is never tolerated; a changed number shows only by the
    manifest.

    Returns an ``ExportedModel``. Raises ``FileNotFoundError``, and ``ExportedFileError`` (a
    ``ValueError``) for a file that is damaged, without its manifest, encrypted, made by a newer
    MindSpore, or of another kind. Calling it raises ``InputError`` (a ``ValueError``).

    >>> model = load_exported("lenet.mindir")  # doctest: +SKIP
    >>> logits = model(mindspore.Tensor(images))  # doctest: +SKIP
    """
    import mindspore

    source = find(path)
    try:
        known: Manifest | None = manifest.read(source)
    except manifest.ManifestError as error:
        if strict or manifest.beside(source).exists():
            raise ExportedFileError(str(error)) from None
        warnings.warn(f"{error}; loaded all the same, as strict=False", stacklevel=2)
        known = None
    try:
        graph = graphfile.read(source)
    except GraphFileError as error:
        raise ExportedFileError(str(error)) from None
    made_by = known.mindspore if known else graph.made_by.rpartition(" ")[2]
    if _version(made_by) > _version(str(mindspore.__version__)):
        raise ExportedFileError(
            f"{source} was made by MindSpore {made_by}, and this is {mindspore.__version__}: an "
            "older one cannot be trusted to read it; install that version, or export again"
        )
    if known is None:
        _try_apart(source)
        inputs, outputs = _ports(graph.inputs), _ports(graph.outputs, "?")
    else:
        inputs, outputs = known.inputs, known.outputs
    with tidy():
        model = attempt(running.load, str(source))
    if isinstance(model, Failure):
        raise ExportedFileError(f"MindSpore cannot load {source}: {model}")
    return ExportedModel(source, inputs, outputs, model, strict, known)


def find(path: Any) -> Path:
    """The MINDIR file that is meant; errors for what is none."""
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        raise TypeError(f"path is that of an exported file such as 'lenet.mindir', not {path!r}")
    source = Path(path).expanduser()
    if not source.exists() and source.suffix.lower() != ".mindir":
        source = source.with_name(source.name + ".mindir")
    if source.is_dir():
        raise ExportedFileError(f"{source} is a folder: name the file in it")
    if not source.is_file():
        raise FileNotFoundError(f"there is no exported file {str(source)!r}")
    if source.suffix.lower() in _CHECKPOINTS:
        raise ExportedFileError(
            f"{source} is a checkpoint: weights without a graph; make the net and "
            "msnb.load_checkpoint(path, net), or export the net first"
        )
    if source.suffix.lower() == ".onnx":
        raise ExportedFileError(
            f"{source} is an ONNX file, which MindSpore does not load: "
            "onnxruntime.InferenceSession(path)"
        )
    if source.suffix != ".mindir":
        raise ExportedFileError(
            f"{source} is no .mindir file; MindSpore tells a MINDIR file by that ending: rename it "
            "where it is one"
        )
    try:
        graphfile.refuse_encrypted(source)
    except GraphFileError as error:
        raise ExportedFileError(str(error)) from None
    return source


def _try_apart(source: Path) -> None:
    from msnb import isolate

    outcome = isolate.run(_only_load, str(source))
    if outcome.status != "ok":
        raise ExportedFileError(
            f"{source} is damaged: the process that loaded it on trial ended: "
            f"{outcome.describe().splitlines()[0]}"
        )


def _only_load(path: str) -> None:
    from msnb.parity.calls import tidy

    with tidy():
        running.load(path)


def _ports(values: Sequence[graphfile.Value], name: str = "") -> tuple[Port, ...]:
    return tuple(
        Port(
            v.name,
            tuple(n if n >= 0 else name or f"{v.name}:{a}" for a, n in enumerate(v.shape)),
            v.dtype,
        )
        for v in values
    )


def _shape(shape: Sequence[int | str]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.split("+")[0])[:3])
