"""Checkpoints: weights alone, or the state of a training run that then continues bit by bit.

``save_checkpoint`` and ``load_checkpoint`` keep weights, optimizer, step, random state, and the
positions in the data and in the log; of weights they also read and write PyTorch's files.
``boundary`` makes a net with Dropout continue exactly too.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from msnb.log import TrainLog, _whole
from msnb.stored import ENDINGS, CheckpointError, Stored, read, write

__all__ = ["CheckpointError", "Resumed", "boundary", "load_checkpoint", "save_checkpoint"]

TRAINING = (".ckpt", ".safetensors")  # formats that hold more than weights

_OPTIMIZER, _SCALER = "msnb.optimizer.", "msnb.scaler."  # what these entries' names begin with


@dataclass(frozen=True)
class Resumed:
    """What ``load_checkpoint`` loaded: where training goes on.

    ``step`` steps were done, ``batch`` of them in the current pass over the data; ``epoch`` and
    ``extra`` are what ``save_checkpoint`` was given. ``step`` and ``epoch`` are None where it was
    given none. ``loaded`` counts the net's parameters that were loaded, of ``count``.
    ``missing`` (in the file), ``unexpected`` (there), ``mismatched`` (another shape: not loaded)
    and ``cast`` (another dtype: loaded) are empty unless ``strict=False``; ``left_out`` maps names
    to the reason. ``checksum`` is the kind of checksum that agreed; where it is empty, the file
    has none, and is not verifiable. ``print`` says all of it.

    >>> resumed = Resumed(Path("a.ckpt"), step=5, batch=2, loaded=8, count=8)
    >>> list(resumed.rest([10, 11, 12, 13]))
    [12, 13]
    >>> print(resumed)
    a.ckpt: 8 of 8 parameters loaded; not verifiable: the file carries no checksum
    """

    path: Path
    step: int | None = None
    epoch: int | None = None
    batch: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    loaded: int = 0
    count: int = 0
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    cast: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    checksum: str = ""

    def rest(self, loader: Any) -> Iterator[Any]:
        """The batches of the interrupted pass that were not trained on yet.

        Those before are read and dropped.
        """
        return islice(iter(loader), self.batch, None)

    def __str__(self) -> str:
        seal = (
            f"{self.checksum} agrees"
            if self.checksum
            else "not verifiable: the file carries no checksum"
        )
        lines = [f"{self.path}: {self.loaded} of {self.count} parameters loaded; {seal}"]
        left = tuple(f"{name} ({reason})" for name, reason in self.left_out.items())
        lists = (self.missing, self.unexpected, self.mismatched, self.cast)
        return "\n".join([*lines, *_listed(*lists), *_line("left out", left)])


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
    framework: str | None = None,
) -> Path:
    """Write weights, or the state of a training run, to the file ``path``, whole or not at all.

    The weights alone, or, with ``optimizer``, all that training needs to go on: its state (moments,
    step, learning rate), and the random states of Python, NumPy and MindSpore, as far as MindSpore
    gives its own (see ``boundary``).

    - ``path``: its ending chooses the format; missing folders are made; a file of that name is
      replaced
    - ``step``, ``epoch``, ``batch``: steps done, the epoch, and batches done in this pass over
      ``loader``, one of ``msnb.data``, whose order is saved
    - ``log``: a TrainLog that has the line of ``step`` already; its length is saved, so that lines
      of steps that will be repeated can be cut off
    - ``scaler``: a ``mindspore.amp.DynamicLossScaler``
    - ``extra``: what else you want back, plain values that JSON can hold
    - ``framework``: ``"torch"`` gives a ``.safetensors`` file PyTorch's names and layout

    ``.safetensors`` is the format to prefer: any framework reads it, nothing in it can be executed,
    and a SHA-256 over names, dtypes, shapes and numbers is in its metadata. ``.ckpt`` is
    MindSpore's, with its CRC. ``mindspore.load_checkpoint`` reads both: the weights have the
    parameters' names. ``.pth`` and ``.pt`` are for PyTorch and hold weights alone, under the names
    and in the layout of PyTorch's layers (BatchNorm's ``gamma`` is ``weight``); there
    ``module.load_state_dict(torch.load(path, weights_only=True))`` reads them, strictly.

    The file is written under another name in the same folder, flushed to the disk, and renamed;
    ``kill -9`` leaves the old file or the new one.

    Returns the path. Raises ``TypeError`` or ``ValueError`` for a bad argument, ``OSError`` where
    the file cannot be written.

    >>> save_checkpoint("runs/last.ckpt", net, optimizer, step=100)  # doctest: +SKIP
    PosixPath('runs/last.ckpt')
    >>> save_checkpoint("lenet.safetensors", net)  # doctest: +SKIP
    PosixPath('lenet.safetensors')
    """
    target = _as_path(path, ENDINGS)
    _check_sides(net, optimizer, loader, log)
    if _for_torch(target, framework):
        given = {
            "optimizer": optimizer,
            "step": step,
            "epoch": epoch,
            "batch": batch or None,
            "loader": loader,
            "log": log,
            "scaler": scaler,
            "extra": extra,
        }
        if more := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"a file for PyTorch holds weights alone: leave out {', '.join(more)}, or save "
                "MindSpore's state as .ckpt or .safetensors"
            )
        return write(target, _torch_entries(net), {}, framework="torch")
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
    return write(target, _collect(net, optimizer, scaler), state)


def load_checkpoint(
    path: str | os.PathLike[str],
    net: Any,
    optimizer: Any = None,
    *,
    loader: Any = None,
    log: TrainLog | None = None,
    scaler: Any = None,
    strict: bool = True,
    skip: str | Sequence[str] = (),
    add_prefix: str = "",
    remove_prefix: str = "",
) -> Resumed:
    """Load a file of weights, or what ``save_checkpoint`` saved, all of it or nothing.

    The file is one of ``save_checkpoint``, a ``.ckpt`` or ``.safetensors`` of MindSpore, or one of
    PyTorch (``.safetensors``, ``.pth``, ``.pt``), told by its content; nothing in it is executed.
    The names and layouts of PyTorch are matched as ``msnb.copy_weights`` matches them.

    To go on training give the same things as when saving. The net alone gets the weights alone;
    with ``optimizer`` also the random states are restored, and its learning rate is the
    checkpoint's. ``loader.order`` is set to the interrupted pass, whose other batches are
    ``resumed.rest(loader)``. ``log``, newly opened, continues the run: lines written after the
    checkpoint are cut off, since their steps are done again, under the same run id.

    Strict means: every parameter of the net is in the file and the other way round, with the same
    shape and dtype. The error lists all that is not, and where another prefix or other classes
    explain it, what to type. With ``strict=False`` what has the same name and shape is loaded, and
    cast, and the result lists the rest; nothing at all is still an error, and the optimizer and
    the others are always strict.

    - ``skip``: layers or parameters, of the net or the file, to leave alone: the head of a net for
      other classes
    - ``add_prefix``, ``remove_prefix``: what the file's names lack, or have too much, at their
      beginning; of both, ``remove_prefix`` comes first

    It may be called in the middle of training, and after ``ms.jit`` has compiled the net: unlike
    ``mindspore.load_param_into_net``, it does not cut the parameters off from an optimizer that has
    stepped. The result says whether the file carries a checksum: all agreed, or there is none.

    Raises ``FileNotFoundError``; ``ValueError`` where the log is not the run's, or goes on with
    another run; and ``CheckpointError`` (a ``ValueError``) for another kind of file, one that is
    damaged or cut short, and one that does not fit, with every name that does not. All of it before
    anything is changed.

    >>> resumed = load_checkpoint("runs/last.ckpt", net, optimizer, log=log)  # doctest: +SKIP
    >>> resumed.step  # doctest: +SKIP
    100
    >>> print(load_checkpoint("resnet.pth", net, skip=["fc"]))  # doctest: +SKIP
    resnet.pth: 100 of 102 parameters loaded; CRC-32 of each record agrees
      left out (4): fc.weight (skipped, as asked), fc.bias (skipped, as asked), ...
    """
    source = _as_path(path)
    _check_sides(net, optimizer, loader, log)
    skips = [skip] if isinstance(skip, str) else [str(name) for name in skip]
    if optimizer is not None and (skips or add_prefix or remove_prefix):
        raise ValueError(
            "an optimizer's state belongs to the weights as they were: leave optimizer out, or "
            "skip and the prefixes"
        )
    stored = read(source)
    state = stored.state
    for name, thing, kept in (
        ("optimizer", optimizer, "optimizer" in state),
        ("loader", loader, "loader" in state),
        ("log", log, "log" in state),
        ("scaler", scaler, any(entry.startswith(_SCALER) for entry in stored.entries)),
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
    weights = {n: e for n, e in stored.entries.items() if not n.startswith("msnb.")}
    fits = _Fits(stored, net, weights)
    fit = fits.one(skips, add_prefix, remove_prefix)
    if not fit.matches or (strict and not fit.complete):
        raise _unfit(source, "the net", fit, fits.advice(fit, skips, add_prefix, remove_prefix))
    matches = list(fit.matches)
    for what, prefix, thing in (
        ("the optimizer", _OPTIMIZER, _optimizer_parameters(optimizer)),
        ("the scaler", _SCALER, _scaler_parameters(scaler)),
    ):
        if thing is not None:
            saved = {n[len(prefix) :]: e for n, e in stored.entries.items() if n.startswith(prefix)}
            other = _by_names(saved, thing, [])
            if not other.complete:
                raise _unfit(source, what, other)
            matches += other.matches
    if log is not None:
        log._check_rewind(state["log"])

    _assign(source, matches)
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
        loaded=len(fit.matches),
        count=fit.count,
        missing=fit.missing,
        unexpected=fit.unexpected,
        mismatched=fit.mismatched,
        cast=fit.cast,
        left_out=fit.left_out,
        checksum=stored.checksum,
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


def _assign(source: Path, matches: list[Any]) -> None:
    """Write all values, or none: they are read back, and restored where one is not as it should."""
    from msnb.parity.weights import _planned, _written

    plans, casts = _planned(matches)
    if bad := [check for check in casts if not check]:
        raise CheckpointError(f"{source}: {bad[0].summary}; {bad[0].remedy}; nothing was loaded")
    outcome = _written(plans)
    if not outcome:
        raise CheckpointError(f"{source}: {outcome.summary}; nothing was loaded")


def _for_torch(target: Path, framework: str | None) -> bool:
    if framework not in (None, "mindspore", "torch"):
        raise ValueError(f"framework is 'mindspore' or 'torch', not {framework!r}")
    pickled = target.suffix in (".pth", ".pt")
    if (framework == "torch" and target.suffix == ".ckpt") or (
        framework == "mindspore" and pickled
    ):
        other = "MindSpore's" if target.suffix == ".ckpt" else "PyTorch's"
        raise ValueError(
            f"{target.suffix} is {other} format; for framework={framework!r} use .safetensors"
        )
    return pickled or framework == "torch"


def _torch_entries(net: Any) -> dict[str, Any]:
    """The net's weights under PyTorch's names and in its layout."""
    import mindspore as ms
    import numpy as np

    from msnb.parity.arrays import to_numpy
    from msnb.parity.sides import joined, ms_side

    side = ms_side(net)
    if side.hidden:
        raise ValueError(
            f"MindSpore does not see {', '.join(side.hidden[:6])}: layers in a Python list or dict "
            "are not saved; use nn.CellList"
        )
    entries = {}
    for layer in side.layers:
        for leaf, slot in layer.slots.items():
            if slot.role == "temporary":
                continue
            array, dtype = to_numpy(slot.value, slot.name)
            array = np.ascontiguousarray(slot.back(array)).reshape(slot.shape)
            value = ms.Tensor(array, ms.bfloat16) if dtype == "bfloat16" else array
            entries.update({joined(path, leaf): value for path in (layer.path, *layer.also)})
    return entries


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


# What fits


@dataclass
class _Fit:
    """Which entry of a file goes into which parameter, and what remains on either side.

    ``taken`` holds the names of the file in ``matches``; ``hints`` say what PyTorch's names need.
    """

    count: int
    matches: list[Any] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    cast: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    clashing: tuple[str, ...] = ()  # the bare names of what is mismatched, on both sides
    classes: dict[str, str] = field(
        default_factory=dict
    )  # mismatched layer -> its numbers of outputs
    hints: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not (
            self.missing or self.unexpected or self.mismatched or self.cast or self.hints
        ) and bool(self.matches)


class _Fits:
    """How the weights of a file fit a net, under one prefix or another."""

    def __init__(self, stored: Stored, net: Any, weights: Mapping[str, Any]) -> None:
        self.net, self.weights = net, weights
        self.path, self.torch = stored.path, stored.framework == "torch"
        self.own = {p.name: p for p in net.get_parameters()}
        if self.torch and set(weights) == set(self.own):
            self.torch = False  # MindSpore's names, from a tool that does not say so

    def one(self, skip: list[str], add: str, remove: str) -> _Fit:
        if remove and not any(name.startswith(remove) for name in self.weights):
            raise ValueError(
                f"remove_prefix: no name in {self.path} begins with {remove!r}; "
                f"they begin as in {next(iter(self.weights), 'nothing')!r}"
            )
        weights = {add + name.removeprefix(remove): value for name, value in self.weights.items()}
        if self.torch:
            return _by_pairing(weights, self.net, len(self.own), skip)
        return _by_names(weights, self.own, skip)

    def advice(self, fit: _Fit, skip: list[str], add: str, remove: str) -> list[str]:
        """What to type, tried out; nothing where nothing simple helps."""
        best, prefixes = fit, (add, remove)
        if not (add or remove or self.torch):
            for pair in _prefixes(list(self.weights), list(self.own)):
                other = self.one([], *pair)
                if len(other.matches) > len(best.matches):
                    best, prefixes = other, pair
        lines = []
        add, remove = prefixes
        if best is not fit:
            verbs = [f"remove prefix `{remove}`"] * bool(remove) + [f"add prefix `{add}`"] * bool(
                add
            )
            lines.append(
                f"{' and '.join(verbs)} and {len(best.matches)} of {best.count} parameters fit"
            )
        (layer, sizes), *others = best.classes.items() or [("", "")]
        if sizes and not others:  # where several layers differ, the net is built otherwise
            lines.append(
                f"{layer}: {sizes}; another number of classes? Skip the head, train it anew"
            )
        skips = list(skip)
        if not best.complete and 2 * len(best.matches) >= best.count:
            good = {name for m in best.matches for name in (m.torch_name, m.ms_name)}
            rest = (*best.missing, *best.unexpected, *best.clashing)
            rest += tuple(entry.partition(" (")[0] for entry in best.cast)
            skips += _groups(rest, good - set(rest))
            try:
                best = self.one(skips, add, remove)
            except ValueError:
                return lines
        if best.complete:
            words = [repr(str(self.path)), "net"]
            words += [
                f"{k}={v!r}" for k, v in (("add_prefix", add), ("remove_prefix", remove)) if v
            ]
            words += [f"skip={skips}"] * bool(skips)
            lines.append(f"msnb.load_checkpoint({', '.join(words)})")
            if skips:
                lines[-1] += f"  # loads {len(best.matches)} of {best.count}"
        return lines


def _by_names(saved: Mapping[str, Any], own: Mapping[str, Any], skip: list[str]) -> _Fit:
    from msnb.parity.arrays import to_numpy
    from msnb.parity.weights import Match

    def same(array: Any) -> Any:
        return array

    left: dict[str, str] = {}
    for name in skip:
        below = [n for n in (*own, *saved) if n == name or n.startswith(f"{name}.")]
        if not below:
            raise ValueError(f"skip: {name!r} is no layer or parameter of the net or of the file")
        left.update(dict.fromkeys(below, "skipped, as asked"))
    fit = _Fit(len(own), left_out=left)
    mismatched, cast, clashing = [], [], []
    for name in (name for name in own if name in saved and name not in left):
        have, want = saved[name], own[name]
        dtypes = [to_numpy(value, name)[1] for value in (have, want)]
        shapes = [tuple(int(n) for n in value.shape) for value in (have, want)]
        (a, c), (b, d) = dtypes, shapes
        text = f"{name} ({a}{list(b)} in the file, {c}{list(d)} here)"
        if b != d:
            mismatched.append(text)
            clashing.append(name)
            outputs = b and d and b[1:] == d[1:]
            sizes = f"{b[0]} in the file, {d[0]} here" if outputs else ""
            fit.classes.setdefault(name.rpartition(".")[0], sizes)
            continue
        if a != c:
            cast.append(text)
        fit.matches.append(Match(name, name, "", have, want, same, same, (None, True)))
    fit.missing = tuple(name for name in own if name not in saved and name not in left)
    fit.unexpected = tuple(name for name in saved if name not in own and name not in left)
    fit.mismatched, fit.cast = tuple(mismatched), tuple(cast)
    fit.clashing = tuple(clashing)
    return fit


def _by_pairing(saved: Mapping[str, Any], net: Any, count: int, skip: list[str]) -> _Fit:
    from msnb.parity.arrays import to_numpy
    from msnb.parity.weights import pair

    pairing = pair(saved, net, skip=skip)
    fit = _Fit(count, matches=pairing.matched, left_out={**pairing.dropped, **pairing.kept})
    lost = set(pairing.unmatched_torch)
    shapes = [problem for problem in pairing.problems if problem.id in lost]
    summaries = " ".join(problem.summary for problem in shapes)
    fit.mismatched = tuple(f"{problem.id} ({problem.summary})" for problem in shapes)
    clashing = {problem.id for problem in shapes}
    ours = [name for name in pairing.unmatched_mindspore if f"({name})" in summaries]
    fit.clashing = (*clashing, *ours)
    fit.missing = tuple(n for n in pairing.unmatched_mindspore if n not in ours)
    fit.unexpected = tuple(n for n in pairing.unmatched_torch if n not in clashing)
    for problem in shapes:
        sizes = problem.summary.rpartition(": ")[2]
        layer = problem.id.rpartition(".")[0]
        fit.classes.setdefault(layer, sizes if " outputs against " in sizes else "")
    cast = []
    for match in pairing.matched:
        theirs, here = (to_numpy(v, match.ms_name)[1] for v in (match.source, match.target))
        if theirs != here:
            cast.append(f"{match.ms_name} ({theirs} in the file, {here} here)")
    fit.cast = tuple(cast)
    fit.hints = tuple(
        f"{problem.id}: {problem.summary}; {problem.remedy}"
        for problem in pairing.problems
        if problem not in shapes
    )
    return fit


def _prefixes(saved: list[str], own: list[str]) -> list[tuple[str, str]]:
    """(add, remove): the prefixes between names of the file and of the net, most frequent first."""

    def ends(names: Iterable[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in names:
            words = name.split(".")
            for i in range(len(words)):
                found.setdefault(".".join(words[i:]), []).append(".".join([*words[:i], ""]))
        return found

    theirs, ours = ends(saved), ends(own)
    votes: dict[tuple[str, str], int] = {}
    for end in theirs.keys() & ours.keys():
        for remove in theirs[end][:4]:
            for add in ours[end][:4]:
                if not (add and remove and add.split(".")[-2] == remove.split(".")[-2]):
                    votes[add, remove] = votes.get((add, remove), 0) + 1
    ranked = sorted(votes, key=lambda pair: (-votes[pair], len(pair[0]) + len(pair[1]), pair))
    return [pair for pair in ranked if pair != ("", "")][:5]


def _groups(names: Iterable[str], good: Iterable[str]) -> list[str]:
    """The shortest layers that hold these names and none of the good ones."""
    above = {
        ".".join(words[:i])
        for words in (name.split(".") for name in good)
        for i in range(1, len(words) + 1)
    }
    found: dict[str, None] = {}
    for name in names:
        words = name.split(".")
        tries = (".".join(words[:i]) for i in range(1, len(words) + 1))
        found[next((t for t in tries if t not in above), name)] = None
    return list(found)


def _line(title: str, names: Sequence[str]) -> list[str]:
    return [f"  {title} ({len(names)}): {', '.join(names)}"] if names else []


def _listed(
    missing: Sequence[str],
    unexpected: Sequence[str],
    mismatched: Sequence[str],
    cast: Sequence[str],
) -> list[str]:
    return [
        *_line("not in the file", missing),
        *_line("in the file alone", unexpected),
        *_line("of another shape", mismatched),
        *_line("of another dtype", cast),
    ]


def _unfit(source: Path, what: str, fit: _Fit, advice: Sequence[str] = ()) -> CheckpointError:
    lists = (fit.missing, fit.unexpected, fit.mismatched, fit.cast)
    exact = len(fit.matches) - len(fit.cast)
    lines = [
        f"{source} does not fit {what}: {exact} of its {fit.count} parameters fit; nothing was "
        "loaded",
        *_listed(*lists),
        *(f"  {hint}" for hint in fit.hints),
        *(f"  {line}" for line in advice),
    ]
    if any("names={" in hint for hint in fit.hints):
        lines.append("  names={...} is an argument of msnb.copy_weights(path, net)")
    if what == "the net" and fit.matches:
        lines.append("  strict=False loads what has the same name and shape")
    return CheckpointError("\n".join(lines), *lists)


# Arguments


def _as_path(path: Any, endings: Sequence[str] = ()) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        order = "; the path comes first, then the net" if hasattr(path, "trainable_params") else ""
        raise TypeError(
            f"a checkpoint needs a path such as 'runs/last.ckpt', not {_shown(path)}{order}"
        )
    found = Path(path).expanduser()
    if endings and found.suffix not in endings:
        raise ValueError(
            f"a checkpoint's name ends in {' or '.join(endings)}: {str(found) + endings[0]!r}, "
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


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
