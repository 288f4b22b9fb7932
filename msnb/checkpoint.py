"""The state of a training run in one file, from which it continues bit by bit.

``save_checkpoint`` and ``load_checkpoint`` keep weights, optimizer, step, random state, and the
positions in the data and in the log. ``boundary`` makes a net with Dropout continue exactly too.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from msnb.log import TrainLog, _whole

__all__ = ["CheckpointError", "Resumed", "boundary", "load_checkpoint", "save_checkpoint"]

_STATE = "msnb.state"  # the first entry: everything that is no tensor, as JSON
_OPTIMIZER, _SCALER = "msnb.optimizer.", "msnb.scaler."  # what these entries' names begin with
_FORMAT = 1


class CheckpointError(ValueError):
    """A file that is no checkpoint, is damaged, or does not fit; nothing was loaded from it.

    ``missing``, ``unexpected`` and ``mismatched`` list the names of what does not fit.

    >>> CheckpointError("last.ckpt is cut short").missing
    ()
    """

    def __init__(
        self,
        message: str,
        missing: tuple[str, ...] = (),
        unexpected: tuple[str, ...] = (),
        mismatched: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.missing, self.unexpected, self.mismatched = missing, unexpected, mismatched


@dataclass(frozen=True)
class Resumed:
    """What ``load_checkpoint`` loaded: where training goes on.

    ``step`` steps were done, ``batch`` of them in the current pass over the data; ``epoch`` and
    ``extra`` are what ``save_checkpoint`` was given. ``step`` and ``epoch`` are None where it was
    given none. ``loaded`` counts the net's parameters; ``missing``, ``unexpected`` and
    ``mismatched`` are empty unless ``strict=False``.

    >>> list(Resumed(Path("a.ckpt"), step=5, batch=2).rest([10, 11, 12, 13]))
    [12, 13]
    """

    path: Path
    step: int | None = None
    epoch: int | None = None
    batch: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    loaded: int = 0
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()

    def rest(self, loader: Any) -> Iterator[Any]:
        """The batches of the interrupted pass that were not trained on yet.

        Those before are read and dropped.
        """
        return islice(iter(loader), self.batch, None)


def save_checkpoint(
    path: str | os.PathLike[str],
    net: Any,
    optimizer: Any = None,
    *,
    step: int | None = None,
    epoch: int | None = None,
    batch: int = 0,
    loader: Any = None,
    log: TrainLog | None = None,
    scaler: Any = None,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write the state of a training run to the file ``path``, whole or not at all.

    The weights alone, or, with ``optimizer``, all that training needs to go on: its state (moments,
    step, learning rate), and the random states of Python, NumPy and MindSpore, as far as MindSpore
    gives its own (see ``boundary``).

    - ``path``: ends in ``.ckpt``; missing folders are made; a file of that name is replaced
    - ``step``, ``epoch``, ``batch``: steps done, the epoch, and batches done in this pass over
      ``loader``, one of ``msnb.data``, whose order is saved
    - ``log``: a TrainLog that has the line of ``step`` already; its length is saved, so that lines
      of steps that will be repeated can be cut off
    - ``scaler``: a ``mindspore.amp.DynamicLossScaler``
    - ``extra``: what else you want back, plain values that JSON can hold

    The file is a MindSpore checkpoint with its CRC, so ``mindspore.load_checkpoint`` reads it too:
    the weights have the parameters' names. It is written under another name in the same folder,
    flushed to the disk, and renamed; ``kill -9`` leaves the old file or the new one.

    Returns the path. Raises ``TypeError`` or ``ValueError`` for a bad argument, ``OSError`` where
    the file cannot be written.

    >>> save_checkpoint("runs/last.ckpt", net, optimizer, step=100)  # doctest: +SKIP
    PosixPath('runs/last.ckpt')
    """
    target = _as_path(path)
    _check_sides(net, optimizer, loader, log)
    state: dict[str, Any] = {
        "step": None if step is None else _counted("step", step),
        "epoch": None if epoch is None else _counted("epoch", epoch),
        "batch": _counted("batch", batch),
        "extra": dict(extra or {}),
    }
    try:
        json.dumps(state["extra"], allow_nan=True)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"extra holds what JSON cannot: {error}; give plain numbers, strings, lists and dicts"
        ) from None
    if loader is not None:
        state["loader"] = _data_position(loader, state["batch"])
    if log is not None:
        position = log._position()
        if step is not None and position["step"] not in (0, step):
            raise ValueError(
                f"the log's last line is step {position['step']}, and step is {step}: call "
                "log.step before save_checkpoint"
            )
        state["log"] = position
    if optimizer is not None:
        state["optimizer"] = type(optimizer).__name__
        state["rates"] = _group_rates(optimizer)
        state["random"] = _random_state()
    _write_file(target, _collect(net, optimizer, scaler), state)
    return target


def load_checkpoint(
    path: str | os.PathLike[str],
    net: Any,
    optimizer: Any = None,
    *,
    loader: Any = None,
    log: TrainLog | None = None,
    scaler: Any = None,
    strict: bool = True,
) -> Resumed:
    """Load what ``save_checkpoint`` saved, all of it or nothing; returns where training goes on.

    Give the same things as when saving. The net alone gets the weights alone; with ``optimizer``
    also the random states are restored, and its learning rate is the checkpoint's. ``loader.order``
    is set to the interrupted pass, whose other batches are ``resumed.rest(loader)``. ``log``, newly
    opened, continues the run: lines written after the checkpoint are cut off, since their steps are
    done again, under the same run id.

    Strict means: every parameter of the net is in the file and the other way round, with the same
    shape and dtype. With ``strict=False`` what has the same name and shape is loaded, and cast, and
    the result lists the rest; the optimizer and the others are always strict.

    A file of ``mindspore.save_checkpoint`` will do for the weights alone.

    It may be called in the middle of training too: unlike ``mindspore.load_param_into_net``, it
    does not cut the parameters off from an optimizer that has stepped.

    Raises ``FileNotFoundError``; ``ValueError`` where the log is not the run's, or goes on with
    another run; and ``CheckpointError`` (a ``ValueError``) for another kind of file, one that is
    damaged or cut short, and one that does not fit, with every name that does not. All of it before
    anything is changed.

    >>> resumed = load_checkpoint("runs/last.ckpt", net, optimizer, log=log)  # doctest: +SKIP
    >>> resumed.step  # doctest: +SKIP
    100
    """
    source = _as_path(path)
    _check_sides(net, optimizer, loader, log)
    entries, state = _read_file(source)
    for name, thing, kept in (
        ("optimizer", optimizer, "optimizer" in state),
        ("loader", loader, "loader" in state),
        ("log", log, "log" in state),
        ("scaler", scaler, any(entry.startswith(_SCALER) for entry in entries)),
    ):
        if thing is not None and not kept:
            raise CheckpointError(
                f"{source} was saved without {_article(name)}, so {name} cannot be restored: leave "
                f"it out here, or give it to save_checkpoint(..., {name}={name})"
            )
    if optimizer is not None and state["optimizer"] != type(optimizer).__name__:
        raise CheckpointError(
            f"{source} holds the state of {_article(state['optimizer'])}, and optimizer is "
            f"{_article(type(optimizer).__name__)}: make the optimizer as it was, or load the "
            "weights alone"
        )
    if loader is not None:
        _check_data(source, loader, state["loader"])
    weights = {n: e for n, e in entries.items() if not n.startswith("msnb.")}
    own = {p.name: p for p in net.get_parameters()}
    missing, unexpected, mismatched, pairs = _pair(weights, own, cast=not strict)
    if strict and (missing or unexpected or mismatched):
        raise _unfit(source, "the net", len(own), missing, unexpected, mismatched)
    for what, prefix, thing in (
        ("the optimizer", _OPTIMIZER, _optimizer_parameters(optimizer)),
        ("the scaler", _SCALER, _scaler_parameters(scaler)),
    ):
        if thing is not None:
            saved = {n[len(prefix) :]: e for n, e in entries.items() if n.startswith(prefix)}
            *bad, more = _pair(saved, thing, cast=False)
            if any(bad):
                raise _unfit(source, what, len(thing), *bad)
            pairs += more
    if log is not None:
        log._check_rewind(state["log"])

    for parameter, tensor in pairs:
        _assign(parameter, tensor)
    if optimizer is not None:
        for group, rate in zip(getattr(optimizer, "param_groups", ()), state["rates"], strict=True):
            _set_rate(group, rate)
        _set_random_state(state["random"])
    if loader is not None:
        loader.order.epoch = state["loader"]["epoch"]
    if log is not None:
        log._rewind(state["log"])
    return Resumed(
        source,
        step=state.get("step"),
        epoch=state.get("epoch"),
        batch=state.get("batch", 0),
        extra=state.get("extra", {}),
        loaded=sum(parameter.name in own for parameter, _ in pairs),
        missing=missing,
        unexpected=unexpected,
        mismatched=mismatched,
    )


def boundary(seed: int, step: int, net: Any) -> None:
    """Start the random numbers of Dropout anew, as a function of ``seed + step``.

    MindSpore can save neither where its Dropout is in its random numbers, nor restore it on a CPU.
    What can be repeated is a beginning. So call this at every checkpoint, *in the uninterrupted run
    too*, and after loading one; then make ``value_and_grad`` and ``ms.jit`` anew, since a compiled
    step holds its own generator::

        resumed = msnb.load_checkpoint(path, net, optimizer)
        for step in range(resumed.step, steps):
            if step % 100 == 0 or step == resumed.step:
                boundary(seed, step, net)
                train_step = make_train_step(net, optimizer)
            train_step(*batches[step])

    The price: one compilation per checkpoint (PyNative: none), and a run whose numbers depend on
    where its checkpoints are: one with another interval, or none, is another random sample.

    It seeds MindSpore and NumPy (``mindspore.set_seed``), and gives every ``nn.Dropout`` of ``net``
    a new generator, so the cells and their weights stay as they are. Exact in PyNative, jit and
    graph mode on a CPU with MindSpore 2.10; not tried on Ascend.

    Raises ``ValueError`` for cells whose random numbers no seed repeats: ``nn.Dropout1d``,
    ``Dropout2d`` and ``Dropout3d``.

    >>> boundary(7, 100, net)  # doctest: +SKIP
    """
    import mindspore
    from mindspore import nn

    seed, step = _counted("seed", seed), _counted("step", step)
    if not isinstance(net, nn.Cell):
        raise TypeError(f"net is a mindspore nn.Cell, not {_shown(net)}")
    cells = [(name, cell) for name, cell in net.cells_and_names()]
    for name, cell in cells:
        kind = type(cell).__name__
        if "Dropout" in kind and not isinstance(cell, nn.Dropout):
            raise ValueError(
                f"{name or 'the net'} is {_article(kind)}, whose random numbers no seed repeats: "
                "resuming cannot be exact; nn.Dropout can"
            )
    mindspore.set_seed(seed + step)
    for _, cell in cells:
        if isinstance(cell, nn.Dropout):
            drop = 1.0 - cell.keep_prob if cell.p is None else cell.p
            cell.dropout = nn.Dropout(p=drop).dropout


# What is in a run


def _assign(parameter: Any, tensor: Any) -> None:
    from mindspore import bfloat16, context, ops

    tensor = tensor.astype(parameter.dtype)
    if parameter.dtype == bfloat16 and context.get_context("device_target") == "CPU":
        parameter.set_data(tensor)  # there is no Assign for it, and no training either
    else:
        # Not set_data: after the optimizer's first step it cuts the parameter off from it.
        ops.assign(parameter, tensor)


def _collect(net: Any, optimizer: Any, scaler: Any = None) -> dict[str, Any]:
    """Name in the file -> Parameter."""
    entries = {} if net is None else {p.name: p for p in net.get_parameters()}
    if bad := [name for name in entries if name.startswith("msnb.")]:
        raise ValueError(f"parameters cannot have names that begin with 'msnb.', as {bad[0]} has")
    for prefix, thing in (
        (_OPTIMIZER, _optimizer_parameters(optimizer)),
        (_SCALER, _scaler_parameters(scaler)),
    ):
        entries.update({prefix + name: p for name, p in (thing or {}).items()})
    return entries


def _optimizer_parameters(optimizer: Any) -> dict[str, Any] | None:
    """The optimizer's own state, without the weights it holds."""
    if optimizer is None:
        return None
    held = {id(parameter) for parameter in optimizer.parameters}
    return {n: p for n, p in optimizer.parameters_dict().items() if id(p) not in held}


def _scaler_parameters(scaler: Any) -> dict[str, Any] | None:
    if scaler is None:
        return None
    try:
        return {"scale_value": scaler.scale_value, "counter": scaler.counter}
    except AttributeError:
        raise TypeError(
            f"scaler is a mindspore.amp.DynamicLossScaler, not {_shown(scaler)}"
        ) from None


def _group_rates(optimizer: Any) -> list[float]:
    """The rates of an experimental or mint optimizer, which are not among its parameters."""
    return [_rate_of(group) for group in getattr(optimizer, "param_groups", ())]


def _rate_of(group: Mapping[str, Any]) -> float:
    rate = group["lr"]
    return float(rate.asnumpy() if hasattr(rate, "asnumpy") else rate)


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if hasattr(group["lr"], "asnumpy"):
        from mindspore import Tensor, ops

        ops.assign(group["lr"], Tensor(rate, group["lr"].dtype))
    else:
        group["lr"] = rate


def _random_state() -> dict[str, Any]:
    import mindspore
    import numpy as np

    legacy: Any = np.random.get_state()
    name, keys, place, has_gauss, gauss = legacy
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), place, has_gauss, gauss],
        "mindspore": mindspore.get_rng_state().asnumpy().tolist(),
        "seed": mindspore.get_seed(),
    }


def _set_random_state(state: Mapping[str, Any]) -> None:
    import mindspore
    import numpy as np

    if state["seed"] is not None:
        mindspore.set_seed(state["seed"])  # sets NumPy's too, so before it
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
    mindspore.set_rng_state(mindspore.Tensor(state["mindspore"], mindspore.uint8))


def _data_position(loader: Any, batch: int) -> dict[str, Any]:
    order = loader.order
    count = len(loader) if hasattr(loader, "__len__") else loader.get_dataset_size()
    if batch > count:
        raise ValueError(f"batch is {batch}, but a pass over loader has {count} batches")
    inside = 0 < batch < count
    return {
        "count": order.count,
        "seed": order.seed,
        "shuffle": order.shuffle,
        "num_shards": order.num_shards,
        "shard_id": order.shard_id,
        "batch_size": _batch_size(loader),
        "epoch": order.epoch - inside,  # begun, so counted already
    }


def _batch_size(loader: Any) -> int:
    return int(loader.get_batch_size() if hasattr(loader, "get_batch_size") else loader.batch_size)


def _check_data(source: Path, loader: Any, saved: Mapping[str, Any]) -> None:
    now = {name: getattr(loader.order, name, None) for name in saved}
    now |= {"batch_size": _batch_size(loader), "epoch": saved["epoch"]}
    if other := [name for name in saved if now[name] != saved[name]]:
        what = "; ".join(f"{name} was {saved[name]}, is {now[name]}" for name in other)
        raise CheckpointError(f"{source} was saved with other data: loader's {what}")


# The file


def _write_file(target: Path, entries: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    import mindspore
    import numpy as np

    text = json.dumps({"format": _FORMAT, "entries": list(entries), **state})
    first = mindspore.Tensor(np.frombuffer(text.encode(), np.uint8).copy())
    data = [{"name": _STATE, "data": first}]
    data += [{"name": name, "data": value} for name, value in entries.items()]
    partial = _partial(target)
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder; name a file in it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_partials(target)
        mindspore.save_checkpoint(data, str(partial), crc_check=True)
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


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.stem}.{socket.gethostname()}-{os.getpid()}.partial.ckpt")


def _clear_partials(target: Path) -> None:
    """Remove what processes of this machine left that were killed while they wrote."""
    start = f".{target.stem}.{socket.gethostname()}-"
    for file in target.parent.iterdir():
        name = file.name
        if not (name.startswith(start) and name.endswith((".partial.ckpt", ".partial.tmp"))):
            continue
        number = name[len(start) :].partition(".")[0]
        if number.isdigit() and not Path("/proc", number).exists():
            file.unlink(missing_ok=True)


def _read_file(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Entries (name -> Parameter) and the state, empty for a file of MindSpore's own."""
    import mindspore

    from msnb.weightfile import identify

    if source.is_dir():
        raise CheckpointError(f"{source} is a folder: name the checkpoint in it")
    if not source.is_file():
        raise FileNotFoundError(f"there is no checkpoint {str(source)!r}")
    what = identify(source)
    if what != "a MindSpore checkpoint":
        raise CheckpointError(f"{source} is {_named(what)}, not a MindSpore checkpoint")
    with open(source, "rb") as file:
        ours = _STATE.encode() in file.read(64)
        file.seek(max(source.stat().st_size - 17, 0))
        sealed = file.read(7) == b"crc_num"
    if ours and not sealed:
        raise CheckpointError(f"{source} is cut short: its checksum at the end is not there")
    try:
        entries = mindspore.load_checkpoint(str(source), crc_check=True)
    except Exception as error:  # ValueError for most damage, others from inside protobuf
        raise CheckpointError(
            f"{source} is damaged: its checksum or its structure is wrong; take an older "
            f"checkpoint ({type(error).__name__})"
        ) from None
    if not ours:
        return entries, {}
    try:
        state = json.loads(entries.pop(_STATE).asnumpy().tobytes())
        number, names = state["format"], state["entries"]
    except (KeyError, ValueError, TypeError):
        raise CheckpointError(f"{source} is damaged: its first entry cannot be read") from None
    if number != _FORMAT:
        raise CheckpointError(
            f"{source} has format {number}, and this msnb reads format {_FORMAT}: load it with the "
            "msnb that wrote it, or a newer one"
        )
    if list(entries) != names:
        raise CheckpointError(f"{source} is damaged: it does not hold the entries it lists")
    return entries, state


def _pair(
    saved: Mapping[str, Any], own: Mapping[str, Any], *, cast: bool
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], list[tuple[Any, Any]]]:
    """Missing, unexpected and mismatched names, and what can be assigned: (parameter, value)."""
    mismatched, pairs = [], []
    for name in [name for name in own if name in saved]:
        have, want = saved[name], own[name]
        kinds = [(str(t.dtype).lower(), tuple(t.shape)) for t in (have, want)]
        if kinds[0] != kinds[1]:
            (a, b), (c, d) = kinds
            mismatched.append(f"{name} ({a}{list(b)} in the file, {c}{list(d)} here)")
            if not cast or b != d:
                continue
        pairs.append((want, have))
    return (
        tuple(name for name in own if name not in saved),
        tuple(name for name in saved if name not in own),
        tuple(mismatched),
        pairs,
    )


def _unfit(
    source: Path,
    what: str,
    count: int,
    missing: tuple[str, ...],
    unexpected: tuple[str, ...],
    mismatched: tuple[str, ...],
) -> CheckpointError:
    lines = [f"{source} does not fit {what} with its {count} parameters; nothing was loaded"]
    for title, names in (
        ("not in the file", missing),
        ("in the file alone", unexpected),
        ("of another shape or dtype", mismatched),
    ):
        if names:
            lines.append(f"  {title} ({len(names)}): {', '.join(names)}")
    if what == "the net":
        lines.append("  strict=False loads what has the same name and shape")
    return CheckpointError("\n".join(lines), missing, unexpected, mismatched)


# Arguments


def _as_path(path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        raise TypeError(f"a checkpoint needs a path such as 'runs/last.ckpt', not {path!r}")
    found = Path(path).expanduser()
    if found.suffix != ".ckpt":
        raise ValueError(
            f"a checkpoint's name ends in .ckpt, as MindSpore wants it: {str(found) + '.ckpt'!r}, "
            f"not {str(found)!r}"
        )
    return found


def _check_sides(net: Any, optimizer: Any, loader: Any, log: Any) -> None:
    from mindspore import nn
    from mindspore.experimental import optim

    if not isinstance(net, nn.Cell):
        raise TypeError(f"net is a mindspore nn.Cell, not {_shown(net)}")
    if optimizer is not None and not isinstance(optimizer, (nn.Optimizer, optim.Optimizer)):
        raise TypeError(f"optimizer is a MindSpore optimizer or None, not {_shown(optimizer)}")
    if loader is not None and not hasattr(getattr(loader, "order", None), "epoch"):
        raise TypeError(
            f"loader is one of msnb.data's, which knows its order, not {_shown(loader)}; for "
            "others leave it out, and save what you need in extra"
        )
    if log is not None and not isinstance(log, TrainLog):
        raise TypeError(f"log is an msnb.TrainLog, not {_shown(log)}")


def _counted(name: str, value: Any) -> int:
    number = _whole(name, value)
    if number < 0:
        raise ValueError(f"{name} is 0 or more, not {value!r}")
    return number


def _named(what: str) -> str:
    return {
        "PyTorch": "a PyTorch file",
        "pickle": "a pickle, perhaps an old PyTorch file",
        "safetensors": "a safetensors file",
        "TorchScript": "a TorchScript file",
    }.get(what, what)


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
