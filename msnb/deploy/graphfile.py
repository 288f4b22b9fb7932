"""What a MINDIR file holds: inputs, outputs, parameters, operators. MindSpore is not needed.

Field numbers are those of MindSpore's ``mind_ir.proto``, version 3 of the format (MindSpore 2.10):
https://gitee.com/mindspore/mindspore/blob/master/mindspore/core/proto/mind_ir.proto
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from msnb.deploy.wire import Damaged, fields, message, packed, signed, text

__all__ = ["Graph", "GraphFileError", "Value", "read"]

_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float64",
}
_BOOL = 9
# bytes of one message: https://protobuf.dev/programming-guides/proto-limits/
_LARGEST = (1 << 31) - 1
# The first bytes of MindSpore's AES-GCM, AES-CBC and SM4-CBC files, seen in MindSpore 2.10.
_ENCRYPTED = (b"\xd8\x5e\x3a\x7f", b"\xd9\x5e\x3a\x7f", b"\xda\x5e\x3a\x7f")
_PLUMBING = {"Constant", "Load", "MakeTuple", "TupleGetItem", "UpdateState", "Depend", "Partial"}
_TRAINING = 5  # the input of BatchNorm that says whether it computes with the batch's statistics


class GraphFileError(ValueError):
    """A file that is no MINDIR file, is damaged, or is encrypted."""


@dataclass(frozen=True)
class Value:
    """An input, output or parameter; -1 in a shape is an axis of any size."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: memoryview = field(default=memoryview(b""), repr=False, compare=False)


@dataclass(frozen=True)
class Graph:
    """The content of a MINDIR file. ``operators`` counts those that compute something.

    ``training`` names operators that behave as in training; ``outputs`` is empty where the file
    does not tell them apart (a net that returns several).
    """

    made_by: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    parameters: tuple[Value, ...]
    operators: Mapping[str, int]
    functions: int
    training: tuple[str, ...] = ()


def read(path: Path) -> Graph:
    """The graph in a MINDIR file.

    Raises ``GraphFileError`` for an encrypted file, and one that is no MINDIR file or is damaged so
    that it cannot be read. What can be read is not proved to be undamaged: the format has no
    checksum.
    """
    size = path.stat().st_size
    if size > _LARGEST:
        raise GraphFileError(
            f"{path} has {size / 1e9:.1f} GB, and a MINDIR file at most 2.1 GB (beyond, MindSpore "
            "splits it into a folder): it is damaged, or no MINDIR file"
        )
    data = path.read_bytes()
    if not data:
        raise GraphFileError(f"{path} is empty")
    refuse_encrypted(path)
    try:
        return _read(memoryview(data))
    except Damaged as error:
        raise GraphFileError(
            f"{path} is damaged, or no MINDIR file: {error}; export it again"
        ) from None


def refuse_encrypted(path: Path) -> None:
    """Raise ``GraphFileError`` where the file begins as MindSpore's encrypted ones do."""
    with path.open("rb") as file:
        head = file.read(4)
    if head in _ENCRYPTED:
        raise GraphFileError(
            f"{path} is an encrypted MINDIR file: only who has its key can read it, with "
            "mindspore.load(path, dec_key=key)"
        )


def _read(data: memoryview) -> Graph:
    producer = version = ""
    graph: memoryview | None = None
    functions: list[memoryview] = []
    names: dict[str, str] = {}
    for number, value in fields(data):
        if number == 2:
            producer = text(value)
        elif number == 5:
            version = text(value)
        elif number == 7:
            graph = message(value)
        elif number == 8:
            functions.append(message(value))
        elif number == 12:
            key, kind = _primitive(message(value))
            names[key] = kind
    if graph is None or producer != "MindSpore":
        raise Damaged("it holds no graph of MindSpore's")
    inputs: list[Value] = []
    outputs: list[Value] = []
    parameters: list[Value] = []
    nodes: list[memoryview] = []
    for number, value in fields(graph):
        if number == 1:
            nodes.append(message(value))
        elif number == 3:
            parameters.append(_tensor(message(value)))
        elif number == 5:
            inputs += _port(message(value))
        elif number == 6:
            outputs += _port(message(value))
    for function in functions:
        nodes += [message(value) for number, value in fields(function) if number == 1]
    operators: Counter[str] = Counter()
    true: set[str] = set()
    norms: list[list[str]] = []
    for node in nodes:
        kind, taken, made, flag = _node(node)
        kind = names.get(kind.removeprefix("REF::"), kind.removeprefix("REF::"))
        if kind == "Constant" and flag:
            true.update(made)
        if kind == "BatchNorm":
            norms.append(taken)
        if kind not in _PLUMBING and not any(mark in kind for mark in (":", "↓")):
            operators[kind] += 1
    training = [kind for kind in operators if kind.startswith("Dropout")]
    training += ["BatchNorm"] * any(len(t) > _TRAINING and t[_TRAINING] in true for t in norms)
    return Graph(
        f"MindSpore {version}",
        tuple(inputs),
        tuple(replace(value, name=str(i)) for i, value in enumerate(outputs)),
        tuple(parameters),
        dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        len(functions),
        tuple(training),
    )


def _primitive(data: memoryview) -> tuple[str, str]:
    name = kind = ""
    for number, value in fields(data):
        if number == 1:
            name = text(value)
        elif number == 2:
            kind = text(value)
    return name, kind


def _port(data: memoryview) -> list[Value]:
    name, tensors = "", []
    for number, value in fields(data):
        if number == 1:
            name = _short(text(value))
        elif number == 2:
            tensors.append(_tensor(message(value)))
    return [Value(name, tensor.shape, tensor.dtype) for tensor in tensors]


def _tensor(data: memoryview) -> Value:
    name, dims, kind, raw = "", [], 0, memoryview(b"")
    for number, value in fields(data):
        if number == 1:
            dims += packed(value)
        elif number == 2:
            kind = signed(value)
        elif number == 7:
            name = _short(text(value))
        elif number == 9:
            raw = message(value)
    return Value(name, tuple(dims), _DTYPES.get(kind, f"type {kind}"), raw)


def _node(data: memoryview) -> tuple[str, list[str], list[str], bool]:
    """Operator, names of inputs, names of outputs, and whether it is the constant True."""
    kind, taken, made, flag = "", [], [], False
    for number, value in fields(data):
        if number == 1:
            taken.append(text(value))
        elif number == 2:
            made.append(text(value))
        elif number == 4:
            kind = text(value)
        elif number == 5 and kind == "Constant":
            flag = flag or _is_true(message(value))
    return kind, taken, made, flag


def _is_true(attribute: memoryview) -> bool:
    found = {number: value for number, value in fields(attribute) if number in (3, 16)}
    return found.get(16) == _BOOL and bool(found.get(3))


def _short(name: str) -> str:
    """Without the name of the graph, which is put before each: ``12_LeNet_construct:x``."""
    return name.rpartition(":")[2]
