"""Files of weights, read without executing anything in them.

PyTorch's ``.pth`` and ``.pt`` (a pickle, which may run any code when it is opened carelessly) and
``.safetensors``. Every other file is told what it is.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickletools
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "Block",
    "WeightFile",
    "WeightFileError",
    "digest",
    "find_weights",
    "identify",
    "mindspore_crc",
    "read",
    "read_safetensors",
]

# What training scripts call the weights in a checkpoint that holds more, best first.
_CONTAINERS = (
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "network",
    "module",
    "weights",
    "params",
)
_SAFETENSORS = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
_PICKLES = 5  # before PyTorch 1.6 a file was five pickles in a row, then the numbers
_MAX_HEADER = 100_000_000  # the format's own limit
_ENCRYPTED = 0x7F3A5ED8.to_bytes(4, "little")  # as files of mindspore.save_checkpoint(enc_key=)
_HARMLESS = re.compile(
    r"(collections\.OrderedDict|__builtin__\.set|torch\.\w+Storage)$|torch\.(_utils|storage)\."
)


class WeightFileError(ValueError):
    """A file that is no file of weights, is damaged, or holds more than weights."""


@dataclass(frozen=True)
class WeightFile:
    """What a file holds: ``tensors`` by name, as torch tensors on the CPU, in the file's order.

    ``format`` is ``PyTorch`` or ``safetensors``, ``container`` the key under which the weights
    were, ``others`` what else the file has (name to a word), ``made_by`` the framework, where the
    file names it, ``checksum`` the kind of checksum that agreed, empty where the file has none and
    cannot be verified.
    """

    path: Path
    format: str
    tensors: Mapping[str, Any]
    container: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    made_by: str = ""
    checksum: str = ""


@dataclass(frozen=True)
class Block:
    """The numbers of one tensor as a file holds them: little-endian, in C order.

    ``dtype`` is NumPy's name, or ``bfloat16``, ``float8_e4m3fn``, ``float8_e5m2``.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray


def read(path: str | os.PathLike[str]) -> WeightFile:
    """The weights in a ``.pth``, ``.pt`` or ``.safetensors`` file, whatever its name.

    No code in the file is executed: a pickle that asks for anything but tensors and plain
    containers is refused. PyTorch does not verify the checksums in its files; this does.

    Raises ``FileNotFoundError`` where there is no file, and ``WeightFileError`` (a ``ValueError``)
    for a damaged file, one with code in it, one that is something else, and one whose weights
    cannot be told from the rest.

    Formats: https://docs.pytorch.org/docs/stable/notes/serialization.html and
    https://huggingface.co/docs/safetensors.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"state_dict": {"fc.weight": torch.eye(2)}, "epoch": 3}, f"{folder}/a.pth")
    ...     file = read(f"{folder}/a.pth")
    >>> file.container, file.tensors["fc.weight"].tolist(), file.others
    ('state_dict', [[1.0, 0.0], [0.0, 1.0]], {'epoch': 'int'})
    """
    path = Path(path)
    if path.is_dir():
        raise WeightFileError(f"{path} is a folder: name the file of weights in it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    what = identify(path)
    if what == "safetensors":
        blocks, meta, checksum = read_safetensors(path)
        tensors = {name: _torch_tensor(path, name, block) for name, block in blocks.items()}
        made_by = {"pt": "PyTorch", "ms": "MindSpore"}.get(str(meta.get("format", "")), "")
        return WeightFile(path, "safetensors", tensors, made_by=made_by, checksum=checksum)
    if what in ("PyTorch", "pickle"):
        tensors, container, others = find_weights(_read_torch(path, what), str(path))
        checksum = "CRC-32 of each record" if what == "PyTorch" else ""
        return WeightFile(path, "PyTorch", tensors, container, others, checksum=checksum)
    remedy = {
        "TorchScript": "save its weights: torch.save(torch.jit.load(path).state_dict(), 'w.pth')",
        "a MindSpore checkpoint": "it is for MindSpore already: msnb.load_checkpoint(path, net)",
    }.get(what, "a PyTorch state dict (.pth, .pt) or .safetensors is expected")
    raise WeightFileError(f"{path} is {what}, not a file of PyTorch weights; {remedy}")


def identify(path: str | os.PathLike[str]) -> str:
    """What kind of file this is, by its content: ``PyTorch``, ``safetensors``, or a description.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "w.pth").write_text("<!DOCTYPE html><html></html>")
    ...     identify(f"{folder}/w.pth")
    'a web page (a download that failed?)'
    """
    path = Path(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        return "an empty file"
    if head.startswith(b"PK\x03\x04"):
        return _identify_zip(path)
    if head.startswith(_ENCRYPTED):
        return (
            "an encrypted MindSpore checkpoint: mindspore.load_checkpoint(path, net, dec_key=...) "
            "opens it"
        )
    text = head.lstrip().lower()
    for start, what in (
        (b"<!doctype html", "a web page (a download that failed?)"),
        (b"<html", "a web page (a download that failed?)"),
        (b"version https://git-lfs", "a Git LFS pointer, not the file itself (git lfs pull)"),
        (b"\x89hdf\r\n", "an HDF5 file"),
        (b"\x93numpy", "a NumPy array"),
        (b"\x1f\x8b", "a gzip archive: unpack it first"),
        (b"gguf", "a GGUF file"),
    ):
        if text.startswith(start):
            return what
    length = int.from_bytes(head[:8], "little")
    if len(head) > 8 and head[8:9] == b"{" and length <= _MAX_HEADER:
        return "safetensors" if 8 + length <= size else "a safetensors file cut short"
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return "pickle"
    if _is_mindspore_checkpoint(head):
        return "a MindSpore checkpoint"
    if head[:2] == b"\x08\x03" or b"pytorch" in head[:64]:
        return "an ONNX model"
    if text.startswith((b"{", b"[")):
        return "a JSON file"
    return f"of no known kind (it begins with {head[:8]!r})"


def find_weights(content: Any, where: str) -> tuple[dict[str, Any], str, dict[str, str]]:
    """The tensors in a checkpoint that may hold more: (tensors, key they were under, the rest).

    Raises ``WeightFileError`` where there are none, or several sets that could be meant.
    """
    if not isinstance(content, Mapping):
        hint = ": give its state_dict()" if hasattr(content, "state_dict") else ""
        raise WeightFileError(f"{where} holds a {type(content).__name__}, not a state dict{hint}")
    tensors = {str(k): v for k, v in content.items() if _is_array(v)}
    sets = {
        str(key): value
        for key, value in content.items()
        if isinstance(value, Mapping) and any(_is_array(v) for v in value.values())
    }
    rest = {str(k): type(v).__name__ for k, v in content.items()}
    if tensors and not any(key in sets for key in _CONTAINERS):
        return tensors, "", {k: v for k, v in rest.items() if k not in tensors}
    named = [key for key in _CONTAINERS if key in sets] or list(sets)
    if not named:
        deeper = [k for k in _CONTAINERS if isinstance(content.get(k), Mapping) and content[k]]
        if deeper:
            inner, key, others = find_weights(content[deeper[0]], where)
            rest.pop(deeper[0])
            return inner, f"{deeper[0]}.{key}", {**rest, **others}
        held = ", ".join(list(rest)[:8]) or "nothing"
        raise WeightFileError(f"{where} holds no tensors; it holds {held}")
    if named[0] not in _CONTAINERS and len(named) > 1:
        raise WeightFileError(
            f"{where} holds several sets of tensors: {', '.join(named)}; "
            "give the one that is meant, as a dict: torch.load(path, weights_only=True)"
            f"[{named[0]!r}]"
        )
    chosen = sets[named[0]]
    del rest[named[0]]
    rest.update({str(k): type(v).__name__ for k, v in chosen.items() if not _is_array(v)})
    return {str(k): v for k, v in chosen.items() if _is_array(v)}, named[0], rest


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


# PyTorch


def _identify_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # BadZipFile, and for names that are no text UnicodeDecodeError
        return "a PyTorch or other zip file that is damaged or cut short: fetch it again"
    leaves = {name.rpartition("/")[2] for name in names}
    if "constants.pkl" in leaves:
        return "TorchScript"
    if "data.pkl" in leaves:
        return "PyTorch"
    if any(name.endswith(".npy") for name in names):
        return "a NumPy archive (.npz)"
    return "a zip file of something else"


def _read_torch(path: Path, what: str) -> Any:
    import pickle
    import warnings

    import torch

    if what == "PyTorch":
        _verify_checksums(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with path.open("rb") as file:  # by its name PyTorch may take a file for another kind
                return torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, AttributeError, ImportError, TypeError) as error:
        asked = [name for name in _asks_for(path, what) if not _HARMLESS.match(name)]
        if not asked:
            raise WeightFileError(
                f"{path} is damaged, or no PyTorch file: {_first_line(error)}"
            ) from None
        net = asked[0].startswith("torch.nn.modules.")
        kind = "a whole pickled net" if net else "more than tensors"
        raise WeightFileError(
            f"{path} holds {kind}: opening it would import and call {', '.join(asked[:5])}. "
            "Nothing of it was executed. Where you trust its origin, save the tensors alone there: "
            "torch.save(net.state_dict(), 'weights.pth')"
        ) from None
    except Exception as error:  # torch raises many types for what it cannot parse
        raise WeightFileError(
            f"{path} is damaged or cut short, fetch it again: {_first_line(error)}"
        ) from None


def _verify_checksums(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except Exception as error:  # what zipfile and zlib raise for damage is of many types
        raise WeightFileError(f"{path} is damaged, fetch it again: {error}") from None
    if bad is not None:
        raise WeightFileError(
            f"{path} is damaged: the checksum of {bad} does not match its content. Fetch it again "
            "(a file written under torch.serialization.set_crc32_options(False) has no checksums: "
            "give torch.load(path, weights_only=True) instead of the path)"
        )


def _asks_for(path: Path, what: str) -> list[str]:
    """The names a pickle would import, found by reading its opcodes, not by running it."""
    found: dict[str, None] = {}
    try:
        if what == "PyTorch":
            with zipfile.ZipFile(path) as archive:
                name = next(n for n in archive.namelist() if n.endswith("data.pkl"))
                stream = io.BytesIO(archive.read(name))
        else:
            stream = io.BytesIO(path.read_bytes())
        for _ in range(_PICKLES):
            texts: list[str] = []
            for opcode, argument, _ in pickletools.genops(stream):
                if opcode.name in ("GLOBAL", "INST"):
                    found[str(argument).replace(" ", ".")] = None
                elif opcode.name == "STACK_GLOBAL":
                    found[".".join(texts[-2:])] = None
                elif isinstance(argument, str):
                    texts.append(argument)
    except Exception:  # its end, or damage: what was found until then tells enough
        pass
    return list(found)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    marker = "WeightsUnpickler error: "
    if marker in text:
        text = text.partition(marker)[2]
    return (text.splitlines() or [type(error).__name__])[0].partition(" This ")[0][:200]


# safetensors


def read_safetensors(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Block], dict[str, str], str]:
    """Tensors in the file's order, its metadata, and the kind of checksum that agreed.

    The library ``safetensors`` reads; the format itself has no checksum, files of
    ``msnb.save_checkpoint`` and of ``mindspore.save_checkpoint(crc_check=True)`` have one.

    Raises ``WeightFileError`` for a file that is damaged or holds no tensors.
    """
    from safetensors import deserialize

    data = Path(path).read_bytes()
    try:
        found = dict(deserialize(data))  # type: ignore[no-untyped-call]
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        meta = header.pop("__metadata__", None) or {}
        entries = [(name, found[name]) for name in header]
    except Exception as error:  # SafetensorError, and what JSON of odd numbers may raise
        raise WeightFileError(
            f"{path} is a safetensors file that is damaged or cut short, fetch it again: {error}"
        ) from None
    blocks = {}
    for name, entry in entries:
        kind = entry["dtype"]
        if kind not in _SAFETENSORS:
            raise WeightFileError(f"{path}: {name} has dtype {kind!r}, which is not supported")
        blocks[name] = Block(_SAFETENSORS[kind], tuple(entry["shape"]), entry["data"])
    if not blocks:
        raise WeightFileError(f"{path} holds no tensors")
    return blocks, meta, _verify_safetensors(Path(path), blocks, meta)


def digest(blocks: Mapping[str, Block], meta: Mapping[str, str]) -> str:
    """SHA-256 over names, dtypes, shapes, numbers and metadata, as hexadecimal digits."""
    total = hashlib.sha256()
    others = {key: value for key, value in meta.items() if key not in ("msnb_sha256", "crc_num")}
    total.update(json.dumps(sorted(others.items())).encode())
    for name in sorted(blocks):
        block = blocks[name]
        total.update(json.dumps([name, block.dtype, block.shape]).encode())
        total.update(block.data)
    return total.hexdigest()


def mindspore_crc(blocks: Mapping[str, Block]) -> int | None:
    """The CRC-32 that MindSpore puts into a safetensors file; dtypes and shapes are not in it.

    None with a 0-d integer: MindSpore then takes as many zeros as its value says.
    """
    total = 0
    for name in sorted(blocks):
        block = blocks[name]
        if block.shape == () and "int" in block.dtype:
            return None
        total = zlib.crc32(block.data, zlib.crc32(name.encode(), total))
    return total


def _verify_safetensors(path: Path, blocks: Mapping[str, Block], meta: Mapping[str, str]) -> str:
    damaged = f"{path} is damaged: its checksum does not match its content; fetch it again"
    if any(key.startswith("msnb") for key in meta):
        if meta.get("msnb_sha256") != digest(blocks, meta):
            raise WeightFileError(damaged)
        return "SHA-256"
    known = mindspore_crc(blocks)
    if "crc_num" in meta and known is not None:
        if meta["crc_num"] != str(known):
            raise WeightFileError(damaged)
        return "CRC-32 of names and numbers"
    return ""


def _torch_tensor(path: Path, name: str, block: Block) -> Any:
    import torch

    dtype = getattr(torch, block.dtype, None)
    if dtype is None:
        raise WeightFileError(f"{path}: {name} has dtype {block.dtype}, which PyTorch has not")
    if not block.data:
        return torch.zeros(block.shape, dtype=dtype)
    return torch.frombuffer(bytearray(block.data), dtype=dtype).reshape(block.shape)


# MindSpore


def _is_mindspore_checkpoint(head: bytes) -> bool:
    """A protobuf of entries (tag 1), each beginning with a name (tag 1) in text."""
    if head[:1] != b"\n":
        return False
    at = 1
    while at < len(head) and head[at] & 0x80:  # the entry's length, a varint
        at += 1
    at += 1
    if head[at : at + 1] != b"\n" or at + 2 > len(head):
        return False
    name = head[at + 2 : at + 2 + head[at + 1]]
    return bool(name) and name.isascii() and name.decode("ascii").isprintable()
