"""Checkpoint files: MindSpore's ``.ckpt``, ``.safetensors`` and PyTorch's, read and written whole.

Nothing in a file is executed, and MindSpore is given numbers only after they were verified, as far
as the file has a checksum, and fit the dtype and the shape beside them.
"""

from __future__ import annotations

import json
import math
import os
import socket
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msnb.weightfile import (
    Block,
    WeightFileError,
    digest,
    identify,
    mindspore_crc,
    read_safetensors,
)
from msnb.weightfile import read as read_weights

__all__ = ["ENDINGS", "CheckpointError", "Stored", "read", "write"]

ENDINGS = (".ckpt", ".safetensors", ".pth", ".pt")

_STATE = "msnb.state"  # a .ckpt's first entry: everything that is no tensor, as JSON
_FORMAT = 1
_SEAL = 17  # bytes: the word crc_num and ten digits
_CKPT_DTYPES = {
    **{f"{u}Int{n}": f"{u.lower()}int{n}" for u in ("", "U") for n in (8, 16, 32, 64)},
    **{f"{kind}{n}": f"{kind.lower()}{n}" for kind in ("Float", "Complex") for n in (16, 32, 64)},
    "Complex128": "complex128",
    "BFloat16": "bfloat16",
    "Bool": "bool",
}


class CheckpointError(ValueError):
    """A file that is no checkpoint, is damaged, or does not fit; nothing was loaded from it.

    ``missing``, ``unexpected``, ``mismatched`` (another shape) and ``cast`` (another dtype) list
    the names of what does not fit, the last two with what is in the file and what is here.

    >>> CheckpointError("last.ckpt is cut short").missing
    ()
    """

    def __init__(
        self,
        message: str,
        missing: tuple[str, ...] = (),
        unexpected: tuple[str, ...] = (),
        mismatched: tuple[str, ...] = (),
        cast: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.missing, self.unexpected = missing, unexpected
        self.mismatched, self.cast = mismatched, cast

    def __reduce__(self) -> tuple[Any, ...]:
        names = (self.missing, self.unexpected, self.mismatched, self.cast)
        return (CheckpointError, (str(self), *names))


@dataclass(frozen=True)
class Stored:
    """What a checkpoint file holds.

    ``entries`` are NumPy arrays by name (bfloat16: MindSpore tensors), or torch tensors where
    ``framework`` is ``torch``: then names and layout are PyTorch's. ``state`` is what
    ``save_checkpoint`` kept beside the numbers, ``checksum`` the kind of checksum that agreed:
    empty where the file carries none, and nobody can tell whether it is as it was written.
    """

    path: Path
    format: str
    framework: str
    entries: Mapping[str, Any]
    state: Mapping[str, Any] = field(default_factory=dict)
    checksum: str = ""


def read(path: str | os.PathLike[str]) -> Stored:
    """The content of a checkpoint, told by what is in the file, whatever its name.

    Raises ``FileNotFoundError``, and ``CheckpointError`` for a damaged file, one with code in it,
    and one that is something else.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     entries = {"fc.bias": np.float32([1, 2])}
    ...     path = write(Path(folder, "a.safetensors"), entries, {})
    ...     stored = read(path)
    >>> stored.entries["fc.bias"].tolist(), stored.checksum
    ([1.0, 2.0], 'SHA-256')
    """
    source = Path(path)
    if source.is_dir():
        raise CheckpointError(f"{source} is a folder: name the checkpoint in it")
    if not source.is_file():
        raise FileNotFoundError(f"there is no checkpoint {str(source)!r}")
    what = identify(source)
    if what == "a MindSpore checkpoint":
        return _read_ckpt(source)
    try:
        if what == "safetensors":
            blocks, meta, checksum = read_safetensors(source)
            if meta.get("format") == "ms":
                entries = {name: _array(block) for name, block in blocks.items()}
                state = _state(source, meta["msnb"]) if "msnb" in meta else {}
                return Stored(source, "safetensors", "mindspore", entries, state, checksum)
            file = read_weights(source)
            return Stored(source, "safetensors", "torch", file.tensors, {}, checksum)
        if what in ("PyTorch", "pickle"):
            file = read_weights(source)
            return Stored(source, "PyTorch", "torch", file.tensors, {}, file.checksum)
    except WeightFileError as error:
        raise CheckpointError(str(error)) from None
    if what == "TorchScript":
        what += "; save its weights: torch.save(torch.jit.load(path).state_dict(), 'w.pth')"
    raise CheckpointError(
        f"{source} is {what}; a checkpoint is a .safetensors file, MindSpore's .ckpt or PyTorch's "
        ".pth"
    )


def write(
    target: Path,
    entries: Mapping[str, Any],
    state: Mapping[str, Any],
    *,
    framework: str = "mindspore",
) -> Path:
    """Write a file in the format of its ending, whole or not at all; returns its path.

    ``entries`` are arrays or MindSpore tensors, their names as ``framework`` has them. The file is
    written under another name in the same folder, flushed to the disk, and renamed.

    Raises ``OSError`` where the file cannot be written, ``ValueError`` for a dtype that the format
    does not know.
    """
    if target.suffix == ".safetensors":
        return _whole(target, _safetensors_writer(entries, state, framework))
    if target.suffix in (".pth", ".pt"):
        return _whole(target, _pytorch_writer(entries))
    return _whole(target, _ckpt_writer(entries, state))


# Reading


def _read_ckpt(source: Path) -> Stored:
    data = source.read_bytes()
    seal = data[-_SEAL:]
    ours, sealed = _STATE.encode() in data[:64], seal.startswith(b"crc_num")
    if ours and not sealed:
        raise CheckpointError(f"{source} is cut short: its checksum at the end is not there")
    if sealed:
        data = data[:-_SEAL]
        if zlib.crc32(data) != int.from_bytes(seal[7:], "big"):
            raise CheckpointError(
                f"{source} is damaged: its checksum does not match its content; take an older "
                "checkpoint"
            )
    entries: dict[str, Any] = {
        name: _array(block) for name, block in _ckpt_blocks(source, data).items()
    }
    checksum = "CRC-32" if sealed else ""
    if not ours:
        return Stored(source, "MindSpore", "mindspore", entries, {}, checksum)
    state = _state(source, entries.pop(_STATE).tobytes())
    if list(entries) != state["entries"]:
        raise CheckpointError(f"{source} is damaged: it does not hold the entries it lists")
    return Stored(source, "MindSpore", "mindspore", entries, state, checksum)


def _ckpt_blocks(source: Path, data: bytes) -> dict[str, Block]:
    """The entries of a protobuf of MindSpore's; a long one comes in several pieces of one name."""
    from mindspore.train.checkpoint_pb2 import Checkpoint

    message, damaged = Checkpoint(), f"{source} is damaged or cut short: "
    try:
        message.ParseFromString(data)
        values = [(value.tag, value) for value in message.value]
    except Exception as error:  # DecodeError for most damage, others from inside protobuf
        raise CheckpointError(
            f"{damaged}its structure is wrong; take an older checkpoint ({type(error).__name__})"
        ) from None
    heads: dict[str, tuple[str, tuple[int, ...]]] = {}
    pieces: dict[str, list[bytes]] = {}
    for name, value in values:
        if not value.HasField("tensor"):
            raise CheckpointError(
                f"{source} holds {name}, a hash table or an entry without numbers, which is not "
                "supported: mindspore.load_checkpoint(path) reads it"
            )
        if value.tensor.tensor_type == "str":  # of append_dict: no parameter
            continue
        head = (value.tensor.tensor_type, tuple(value.tensor.dims))
        if heads.setdefault(name, head) != head:
            raise CheckpointError(f"{damaged}{name} is in it twice")
        pieces.setdefault(name, []).append(value.tensor.tensor_content)
    blocks = {}
    for name, (kind, dims) in heads.items():
        if kind not in _CKPT_DTYPES:
            raise CheckpointError(
                f"{source}: {name} has dtype {kind!r}, which is not supported; where that is a "
                "dtype of MindSpore's, mindspore.load_checkpoint(path) reads it"
            )
        content = b"".join(pieces[name])
        block = Block(_CKPT_DTYPES[kind], () if dims == (0,) and content else dims, content)
        if min(dims, default=0) < 0 or math.prod(block.shape) * _width(block.dtype) != len(content):
            raise CheckpointError(
                f"{damaged}{name} should be {kind}{list(dims)} and has {len(content)} bytes"
            )
        blocks[name] = block
    if not blocks:
        raise CheckpointError(f"{source} holds no parameters")
    return blocks


def _width(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _array(block: Block) -> Any:
    if block.dtype == "bfloat16":
        import mindspore as ms

        wide = np.frombuffer(block.data, "<u2").astype(np.uint32) << 16
        return ms.Tensor(wide.view(np.float32).reshape(block.shape), ms.bfloat16)
    if block.dtype.startswith("float8"):
        raise WeightFileError(f"parameters of {block.dtype} are not supported")
    return np.frombuffer(block.data, np.dtype(block.dtype)).reshape(block.shape)


def _state(source: Path, text: str | bytes) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads(text)
        number = state["format"]
    except (KeyError, ValueError, TypeError):
        raise CheckpointError(f"{source} is damaged: its first entry cannot be read") from None
    if number != _FORMAT:
        raise CheckpointError(
            f"{source} has format {number}, and this msnb reads format {_FORMAT}: load it with the "
            "msnb that wrote it, or a newer one"
        )
    return state


# Writing


def _ckpt_writer(entries: Mapping[str, Any], state: Mapping[str, Any]) -> Callable[[Path], None]:
    import mindspore

    if empty := [name for name, value in entries.items() if 0 in value.shape]:
        raise ValueError(
            f"{empty[0]} has no elements, and MindSpore leaves such parameters out of a .ckpt: "
            "use .safetensors"
        )
    text = json.dumps({"format": _FORMAT, "entries": list(entries), **state})
    first = mindspore.Tensor(np.frombuffer(text.encode(), np.uint8).copy())
    data = [{"name": _STATE, "data": first}]
    data += [
        {"name": name, "data": mindspore.Tensor(v) if isinstance(v, np.ndarray) else v}
        for name, v in entries.items()
    ]
    return lambda path: mindspore.save_checkpoint(data, str(path), crc_check=True)


def _safetensors_writer(
    entries: Mapping[str, Any], state: Mapping[str, Any], framework: str
) -> Callable[[Path], None]:
    from safetensors.numpy import save

    arrays = {
        name: np.ascontiguousarray(v if isinstance(v, np.ndarray) else v.asnumpy()).reshape(v.shape)
        for name, v in entries.items()
    }
    blocks = {n: Block(a.dtype.name, tuple(a.shape), a.tobytes()) for n, a in arrays.items()}
    meta = {"format": "pt" if framework == "torch" else "ms"}
    if framework == "mindspore":
        meta["msnb"] = json.dumps({"format": _FORMAT, **state})
        if (crc := mindspore_crc(blocks)) is not None:  # mindspore.load_checkpoint(crc_check=True)
            meta["crc_num"] = str(crc)
    meta["msnb_sha256"] = digest(blocks, meta)
    try:
        content = save(arrays, metadata=meta)
    except Exception as error:
        kinds = ", ".join(sorted({block.dtype for block in blocks.values()}))
        raise ValueError(
            f"a .safetensors file cannot hold these dtypes ({kinds}): {error}; use .ckpt"
        ) from None

    def writer(path: Path) -> None:
        path.write_bytes(content)

    return writer


def _pytorch_writer(entries: Mapping[str, Any]) -> Callable[[Path], None]:
    import torch

    tensors = {}
    for name, value in entries.items():
        if isinstance(value, np.ndarray):
            tensors[name] = torch.from_numpy(value.copy())
        else:
            tensors[name] = torch.from_numpy(value.float().asnumpy().copy()).to(torch.bfloat16)
    return lambda path: torch.save(tensors, path)


def _whole(target: Path, writer: Callable[[Path], None]) -> Path:
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder; name a file in it")
    partial = _partial(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_partials(target)
        writer(partial)
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        partial.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except Exception as error:  # MindSpore makes a RuntimeError of a full disk
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise OSError(
            f"cannot write the checkpoint {str(target)!r}: {reason}; what was in that file before "
            "is untouched"
        ) from error
    finally:
        for left in (partial, partial.with_suffix(".tmp")):  # the second is MindSpore's
            left.unlink(missing_ok=True)
    return target


def _start(target: Path) -> str:
    return f".{target.stem}.{socket.gethostname()}-"


def _partial(target: Path) -> Path:
    return target.with_name(f"{_start(target)}{os.getpid()}.partial{target.suffix}")


def _clear_partials(target: Path) -> None:
    """Remove what processes of this machine left that were killed while they wrote."""
    start = _start(target)
    for file in target.parent.iterdir():
        name = file.name
        if not (
            name.startswith(start) and name.endswith((f".partial{target.suffix}", ".partial.tmp"))
        ):
            continue
        number = name[len(start) :].partition(".")[0]
        if number.isdigit() and not Path("/proc", number).exists():
            file.unlink(missing_ok=True)
