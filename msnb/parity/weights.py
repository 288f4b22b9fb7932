"""Weights from PyTorch to MindSpore: which name is which, and every one accounted for.

Both nets are read as layers in order of definition, MindSpore's in PyTorch's terms: ``gamma`` is
``weight``, ``moving_variance`` is ``running_var``, a Conv1d's weight has no axis of length 1.
Layers with equal names belong together. Where names differ, the order of definition decides, and
only where types and shapes agree one to one; whatever could be meant in two ways is reported.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from msnb import weightfile
from msnb.parity.arrays import to_numpy
from msnb.parity.calls import is_cell, is_module, kind
from msnb.report import Check, Report

_Array = np.ndarray[Any, Any]
_Shape = tuple[int, ...]

_ROWS = 20  # problems with a row of their own

# Layers by type: what both frameworks call them, as PyTorch does. Dimensions are left out where the
# parameters do not tell them apart.
_TORCH_KIND = {
    "Linear": "Linear",
    "Bilinear": "Bilinear",
    "Conv1d": "Conv1d",
    "Conv2d": "Conv2d",
    "Conv3d": "Conv3d",
    "ConvTranspose1d": "ConvTranspose1d",
    "ConvTranspose2d": "ConvTranspose2d",
    "ConvTranspose3d": "ConvTranspose3d",
    "_BatchNorm": "BatchNorm",
    "_InstanceNorm": "InstanceNorm",
    "LayerNorm": "LayerNorm",
    "GroupNorm": "GroupNorm",
    "RMSNorm": "RMSNorm",
    "Embedding": "Embedding",
    "EmbeddingBag": "Embedding",
    "PReLU": "PReLU",
    "LSTM": "LSTM",
    "GRU": "GRU",
    "RNN": "RNN",
    "LSTMCell": "LSTMCell",
    "GRUCell": "GRUCell",
    "RNNCell": "RNNCell",
    "MultiheadAttention": "MultiheadAttention",
}
_MS_KIND = {
    "Dense": "Linear",
    "Linear": "Linear",
    "BiDense": "Bilinear",
    "Conv1d": "Conv1d",
    "Conv2d": "Conv2d",
    "Conv3d": "Conv3d",
    "Conv1dTranspose": "ConvTranspose1d",
    "Conv2dTranspose": "ConvTranspose2d",
    "Conv3dTranspose": "ConvTranspose3d",
    "ConvTranspose2d": "ConvTranspose2d",
    "_BatchNorm": "BatchNorm",
    "BatchNorm1d": "BatchNorm",
    "BatchNorm2d": "BatchNorm",
    "BatchNorm3d": "BatchNorm",
    "SyncBatchNorm": "BatchNorm",
    "InstanceNorm1d": "InstanceNorm",
    "InstanceNorm2d": "InstanceNorm",
    "InstanceNorm3d": "InstanceNorm",
    "LayerNorm": "LayerNorm",
    "LayerNormExt": "LayerNorm",
    "GroupNorm": "GroupNorm",
    "Embedding": "Embedding",
    "EmbeddingExt": "Embedding",
    "EmbeddingLookup": "Embedding",
    "PReLU": "PReLU",
    "PReLUExt": "PReLU",
    "LSTM": "LSTM",
    "GRU": "GRU",
    "RNN": "RNN",
    "LSTMCell": "LSTMCell",
    "GRUCell": "GRUCell",
    "RNNCell": "RNNCell",
    "MultiheadAttention": "MultiheadAttention",
}
_IN_TORCH_TERMS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embedding_table": "weight",
}
_TRANSFORMER = {"dense1": "linear1", "dense2": "linear2"}  # in nn.TransformerEncoderLayer
_NEUTRAL = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


@dataclass(frozen=True)
class Match:
    """A parameter or buffer of PyTorch and the one of MindSpore that takes its value.

    ``convert`` turns an array in PyTorch's layout into MindSpore's, ``back`` the other way round;
    they serve gradients and optimizer state as well. ``kind`` is the type of the layer in PyTorch's
    words, empty for a layer of the user's own. ``source`` is the torch tensor or array, ``target``
    MindSpore's Parameter or buffer. ``trainable`` says for PyTorch and MindSpore whether training
    moves it; None where a state dict does not tell.
    """

    torch_name: str
    ms_name: str
    kind: str
    source: Any
    target: Any
    convert: Callable[[_Array], _Array]
    back: Callable[[_Array], _Array]
    trainable: tuple[bool | None, bool]


@dataclass(frozen=True)
class Pairing:
    """Which parameter is which; each name of either side is in exactly one of the five.

    ``matched`` holds one Match for each Parameter or buffer of MindSpore. ``dropped`` (names of
    PyTorch) and ``kept`` (names of MindSpore) are left out on purpose, each with the reason. What
    remains is in ``unmatched_torch`` and ``unmatched_mindspore``, with ``problems`` to say why.
    ``how`` says how the layers were aligned.
    """

    matched: list[Match]
    dropped: dict[str, str]
    kept: dict[str, str]
    unmatched_torch: list[str]
    unmatched_mindspore: list[str]
    problems: list[Check]
    how: str

    @property
    def complete(self) -> bool:
        """Whether every name is accounted for."""
        return not (self.problems or self.unmatched_torch or self.unmatched_mindspore)


def copy_weights(
    torch_net: Any,
    ms_net: Any,
    *,
    names: Mapping[str, str] | None = None,
    skip: str | Sequence[str] = (),
) -> Report:
    """Copy every weight and buffer of a PyTorch net into a MindSpore net, or none.

    ``torch_net`` is an ``nn.Module``, a state dict (of tensors or arrays, also inside a checkpoint
    such as ``{"state_dict": ...}``), or the path of a ``.pth``, ``.pt`` or ``.safetensors`` file,
    read without executing anything in it. ``ms_net`` is an ``nn.Cell``.

    Layers are matched by name and type, also below a prefix such as ``module.``; where names
    differ, by order of definition, if types and shapes then agree one to one. ``names`` says what
    cannot be seen: ``{"encoder.q": "attention.query"}`` maps a layer (or all below it) of PyTorch
    to one of MindSpore. ``skip`` names layers or parameters of either side to leave alone, such as
    the head of a net trained for other classes.

    The Report is ok exactly when everything was copied and, read back, is bit for bit what it
    should be; otherwise ``ms_net`` is untouched, and each name that is missing, left over or of
    another shape has its row. Its rows: ``names`` (how matched; ``found`` lists every pair), one
    for each type of layer, ``left out`` (such as num_batches_tracked), ``dtype`` (casts),
    ``trainable`` (requires_grad, which is not copied), and ``values``.

    Raises ``TypeError`` for nets of the wrong framework, ``ValueError`` for a net without weights
    or names that do not exist, and what ``msnb.weightfile.read`` raises for a file.

    >>> import torch
    >>> from mindspore import nn
    >>> report = copy_weights(torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    >>> print(report["names"].found)
    weight -> gamma
    bias -> beta
    running_mean -> moving_mean
    running_var -> moving_variance
    >>> report.ok, report["left out"].summary
    (True, '1 of PyTorch: num_batches_tracked (MindSpore keeps no count of batches)')
    """
    pairing = pair(torch_net, ms_net, names=names, skip=skip)
    checks = [Check("names", "ok" if pairing.complete else "failed", pairing.how, _table(pairing))]
    checks += _limited(pairing.problems)
    plans, casts = _planned(pairing.matched)
    checks += [check for check in casts if not check]
    copied = all(check.status not in ("failed", "error") for check in checks)
    outcome = _written(plans) if copied else None
    copied = copied and bool(outcome)
    checks += _by_kind(pairing.matched, copied)
    checks += _left_out(pairing)
    checks += [check for check in casts if check]
    checks += _trainable(pairing.matched)
    checks.append(
        outcome
        or Check("values", "failed", "nothing was copied: it is all or nothing", remedy="see above")
    )
    return Report("copy_weights", checks)


def pair(
    torch_net: Any,
    ms_net: Any,
    *,
    names: Mapping[str, str] | None = None,
    skip: str | Sequence[str] = (),
) -> Pairing:
    """Which weight of PyTorch belongs to which of MindSpore; arguments as for ``copy_weights``.

    Nothing is changed, and values are looked at only where they decide: for tied weights that a
    file does not show, and for norms without weights.
    """
    torch_side = _torch_side(torch_net)
    ms_side = _ms_side(ms_net)
    return _Pairing(torch_side, ms_side).run(dict(names or {}), _listed(skip))


# Both sides, as layers


@dataclass
class _Slot:
    """One parameter or buffer: ``leaf`` and ``shape`` in PyTorch's terms."""

    name: str
    leaf: str
    shape: _Shape
    value: Any
    role: str  # parameter, buffer, or temporary (a buffer that is not saved)
    layer: _Layer
    native: _Shape = ()
    convert: Callable[[_Array], _Array] = lambda array: array
    back: Callable[[_Array], _Array] = lambda array: array

    @property
    def trainable(self) -> bool | None:
        flag = getattr(self.value, "requires_grad", None) if self.role == "parameter" else False
        return None if flag is None else bool(flag)


@dataclass
class _Layer:
    path: str  # MindSpore's in PyTorch's terms
    kind: str | None  # "" for a type of the user's own, None where a state dict does not tell
    type: str
    thing: Any = None
    slots: dict[str, _Slot] = field(default_factory=dict)
    also: list[str] = field(default_factory=list)
    native: str = ""

    @property
    def shapes(self) -> frozenset[tuple[str, _Shape]]:
        return frozenset((s.leaf, s.shape) for s in self.slots.values() if s.leaf != _COUNT)

    @property
    def label(self) -> str:
        return f"{self.native or self.path or 'the net itself'} ({self.type})"


_COUNT = "num_batches_tracked"


@dataclass
class _Side:
    layers: list[_Layer]
    hidden: list[str]
    live: bool
    where: dict[str, Any]  # the layer objects by path
    dropped: dict[str, str] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)  # further names of a shared layer's weights


def _torch_side(source: Any) -> _Side:
    if isinstance(source, (str, os.PathLike)):
        file = weightfile.read(source)
        side = _state_side(file.tensors)
        side.dropped.update(
            (name, f"{word}, no weight") for name, word in file.others.items() if not file.container
        )
        return side
    if isinstance(source, type):
        raise TypeError(f"torch_net is a net, not the class {source.__name__}: write it with ()")
    if is_cell(source):
        raise TypeError(
            f"torch_net is the PyTorch net, but {type(source).__name__} is a MindSpore Cell; "
            "the order is copy_weights(torch_net, ms_net)"
        )
    if is_module(source):
        return _module_side(source)
    if isinstance(source, Mapping):
        if any(kind(value) == "mindspore" for value in source.values()):
            raise TypeError(
                "torch_net is a dict of MindSpore parameters; for those "
                "mindspore.load_param_into_net(ms_net, parameters) is right, and its two lists "
                "must be looked at"
            )
        tensors, container, others = weightfile.find_weights(source, "the dict")
        side = _state_side(tensors)
        if not container:
            side.dropped.update((name, f"{word}, no weight") for name, word in others.items())
        return side
    raise TypeError(
        "torch_net is an nn.Module, a state dict or the path of a .pth or .safetensors file, not "
        f"{type(source).__name__}"
    )


def _module_side(net: Any) -> _Side:
    layers: dict[int, _Layer] = {}
    side = _Side([], [], True, {})
    for path, module in net.named_modules(remove_duplicate=False):
        side.where[path] = module
        shared = layers.get(id(module))
        if shared is not None:
            shared.also.append(path)
            for slot in shared.slots.values():
                side.same[_joined(path, slot.leaf)] = slot.name
            continue
        layer = _Layer(path, _kind(module, "torch", _TORCH_KIND), type(module).__name__, module)
        layers[id(module)] = layer
        for leaf, value in module._parameters.items():
            if value is not None:
                _add_torch(layer, leaf, value, "parameter")
        for leaf, value in module._buffers.items():
            if value is not None:
                temporary = leaf in module._non_persistent_buffers_set
                _add_torch(layer, leaf, value, "temporary" if temporary else "buffer")
        if layer.slots or layer.kind:
            side.layers.append(layer)
    side.hidden = _hidden(side.where, is_module, lambda m: [*m._parameters.values()])
    return side


def _state_side(tensors: Mapping[str, Any]) -> _Side:
    layers: dict[str, _Layer] = {}
    for name, value in tensors.items():
        path, _, leaf = name.rpartition(".")
        layer = layers.setdefault(path, _Layer(path, None, "state dict"))
        _add_torch(layer, leaf, value, "buffer" if leaf == _COUNT else "parameter")
    side = _Side([], [], False, {})
    first: dict[tuple[Any, ...], _Layer] = {}
    for layer in layers.values():
        key = tuple((leaf, _identity(slot.value)) for leaf, slot in layer.slots.items())
        shared = first.setdefault(key, layer)
        if shared is layer:
            side.layers.append(layer)
        else:
            shared.also.append(layer.path)
            for leaf, slot in layer.slots.items():
                side.same[slot.name] = shared.slots[leaf].name
    return side


def _add_torch(layer: _Layer, leaf: str, value: Any, role: str) -> None:
    name = _joined(layer.path, leaf)
    if type(value).__name__.startswith("Uninitialized"):
        raise ValueError(f"{name} has no value yet: call the net once, so that {layer.type} is set")
    if getattr(getattr(value, "device", None), "type", "") == "meta":
        raise ValueError(f"{name} is on the meta device and has no values: load them first")
    shape = tuple(int(n) for n in value.shape)
    layer.slots[leaf] = _Slot(name, leaf, shape, value, role, layer, shape)


def _ms_side(net: Any) -> _Side:
    if isinstance(net, type):
        raise TypeError(f"ms_net is a net, not the class {net.__name__}: write it with ()")
    if is_module(net):
        raise TypeError(
            f"ms_net is the MindSpore net, but {type(net).__name__} is a PyTorch module; "
            "the order is copy_weights(torch_net, ms_net)"
        )
    if not is_cell(net):
        raise TypeError(f"ms_net is a mindspore.nn.Cell, not {type(net).__name__}")
    layers: dict[int, _Layer] = {}
    side = _Side([], [], True, {})
    natives: dict[str, Any] = {}
    for path, native, cell in _cells(net, "", "", ()):
        side.where[path] = natives[native] = cell
        shared = layers.get(id(cell))
        if shared is not None:
            shared.also.append(path)
            for slot in shared.slots.values():
                inside = slot.name[len(shared.native) :].lstrip(".")
                side.same[_joined(native, inside)] = slot.name
            continue
        layer = _Layer(path, _kind(cell, "mindspore", _MS_KIND), type(cell).__name__, cell)
        layer.native = native
        layers[id(cell)] = layer
        holder, inner = cell, native
        if layer.kind == "BatchNorm" and "bn2d" in cell._cells:  # BatchNorm3d wraps BatchNorm2d
            holder, inner = cell._cells["bn2d"], _joined(native, "bn2d")
        for leaf, value in holder._params.items():
            if value is not None:
                _add_ms(layer, inner, leaf, getattr(value, "inited_param", None) or value, True)
        temporary = holder._non_persistent_buffers_set
        for leaf, value in holder._buffers.items():
            if value is not None:
                _add_ms(layer, inner, leaf, value, False, leaf in temporary)
        if layer.slots:
            side.layers.append(layer)
    side.hidden = _hidden(natives, is_cell, lambda c: [*c._params.values()])
    return side


def _cells(
    cell: Any, path: str, native: str, above: tuple[int, ...]
) -> Iterator[tuple[str, str, Any]]:
    """Every cell with all its names; ``cells_and_names`` gives a shared cell one name only."""
    yield path, native, cell
    inside = "" if _kind(cell, "mindspore", _MS_KIND) in (None, "", "MultiheadAttention") else "x"
    if inside or id(cell) in above:
        return  # a layer's own helpers, or a cell that contains itself
    transformer = _of_framework(cell, "mindspore", ("Transformer",))
    for name, child in cell._cells.items():
        if child is not None:
            ours = _TRANSFORMER.get(name, name) if transformer else name
            yield from _cells(child, _joined(path, ours), _joined(native, name), (*above, id(cell)))


def _add_ms(
    layer: _Layer, prefix: str, leaf: str, value: Any, parameter: bool, temporary: bool = False
) -> None:
    theirs = leaf
    if layer.kind in ("BatchNorm", "InstanceNorm", "LayerNorm", "GroupNorm", "Embedding"):
        theirs = _IN_TORCH_TERMS.get(leaf, leaf)
    elif layer.kind == "PReLU" and leaf == "w":
        theirs = "weight"
    native = tuple(int(n) for n in value.shape)
    role = "parameter" if parameter else "temporary" if temporary else "buffer"
    slot = _Slot(_joined(prefix, leaf), theirs, native, value, role, layer, native)
    if layer.kind in ("Conv1d", "ConvTranspose1d") and theirs == "weight" and len(native) == 4:
        slot.shape = (*native[:2], native[3])
        slot.convert = lambda array: np.expand_dims(array, 2)
        slot.back = lambda array: np.squeeze(array, 2)
    layer.slots[theirs] = slot


def _kind(thing: Any, framework: str, table: Mapping[str, str]) -> str:
    for base in type(thing).__mro__:
        if base.__module__.partition(".")[0] == framework and base.__name__ in table:
            return table[base.__name__]
    return ""


def _of_framework(thing: Any, framework: str, starts: tuple[str, ...]) -> bool:
    return any(
        base.__module__.partition(".")[0] == framework and base.__name__.startswith(starts)
        for base in type(thing).__mro__
    )


def _hidden(
    where: Mapping[str, Any], is_net: Callable[[Any], bool], parameters: Callable[[Any], list[Any]]
) -> list[str]:
    """Layers in Python lists, tuples and dicts, which neither framework sees."""
    known = {id(net) for net in where.values()}
    known.update(id(value) for net in where.values() for value in parameters(net))
    found: dict[str, None] = {}

    def look(value: Any, name: str, depth: int) -> None:
        if id(value) in known or depth > 4:
            return
        if is_net(value) or type(value).__name__ == "Parameter":
            known.add(id(value))
            found[f"{name} ({type(value).__name__})"] = None
        elif isinstance(value, Mapping):
            for key, item in value.items():
                look(item, f"{name}[{key!r}]", depth + 1)
        elif isinstance(value, (list, tuple, set)):
            for i, item in enumerate(value):
                look(item, f"{name}[{i}]", depth + 1)

    for path, net in where.items():
        for name, value in vars(net).items():
            if not name.startswith("_") and isinstance(value, (list, tuple, set, Mapping)):
                look(value, _joined(path, name), 0)
    return list(found)


# Matching


class _Pairing:
    def __init__(self, torch: _Side, ours: _Side) -> None:
        self.torch, self.ours = torch, ours
        self.pairs: list[tuple[_Layer, _Layer]] = []
        self.dropped = dict(torch.dropped)
        self.kept: dict[str, str] = {}
        self.problems: list[Check] = []
        self.how: list[str] = []
        self.ambiguous: set[int] = set()
        self.prefixes = ("", "")

    def run(self, names: dict[str, str], skip: list[str]) -> Pairing:
        self._skip(skip)
        if not any(layer.slots for layer in self.torch.layers):
            raise ValueError("the PyTorch side has no weights: is it the net that was meant?")
        if not any(layer.slots for layer in self.ours.layers) and not self.ours.hidden:
            raise ValueError("the MindSpore net has no weights: is it the net that was meant?")
        self._rename(names)
        self._align()
        return self._settle()

    def _skip(self, skip: list[str]) -> None:
        for name in skip:
            found = False
            for side, left in ((self.torch, self.dropped), (self.ours, self.kept)):
                for layer in side.layers:
                    for leaf, slot in list(layer.slots.items()):
                        if _below(slot.name, name) or _below(_joined(layer.path, leaf), name):
                            del layer.slots[leaf]
                            left[slot.name] = "skipped, as asked"
                            found = True
                side.layers = [layer for layer in side.layers if layer.slots or layer.kind]
            self.ours.layers = [layer for layer in self.ours.layers if layer.slots]
            if not found:
                raise ValueError(f"skip: {name!r} is no layer or weight of either net")

    def _rename(self, names: dict[str, str]) -> None:
        """Put the layers that ``names`` maps under MindSpore's names."""
        for theirs, ours in names.items():
            targets = [m for m in self.ours.layers if _below(m.native, ours)]
            moved = [t for t in self.torch.layers if _below(t.path, theirs)]
            for label, found, name, side in (
                ("PyTorch", moved, theirs, self.torch),
                ("MindSpore", targets, ours, self.ours),
            ):
                if not found:
                    have = ", ".join((x.native or x.path) for x in side.layers[:8])
                    raise ValueError(
                        f"names: {name!r} is no layer of the {label} net; it has {have}"
                    )
            by_path = {m.native[len(ours) :]: m for m in targets}
            for layer in moved:
                rest = layer.path[len(theirs) :]
                if rest in by_path:
                    self._take([(layer, by_path[rest])])
                elif len(targets) == len(moved) == 1:
                    self._take([(layer, targets[0])])
        if names:
            self.how.append(f"{len(self.pairs)} as names says")

    def _take(self, pairs: Iterable[tuple[_Layer, _Layer]]) -> None:
        self.pairs += pairs

    def _left(self) -> tuple[list[_Layer], list[_Layer]]:
        done = {id(layer) for both in self.pairs for layer in both}
        return (
            [t for t in self.torch.layers if id(t) not in done],
            [m for m in self.ours.layers if id(m) not in done],
        )

    # Layers

    def _align(self) -> None:
        theirs, ours = self._left()
        by_name = self._by_name(theirs, ours)
        named = {id(layer) for both in by_name for layer in both}
        t_left = [t for t in theirs if id(t) not in named and t.shapes]
        m_left = [m for m in ours if id(m) not in named and not _may_stay(m)]
        if not t_left and not m_left:
            self._take(by_name)
            self._say(len(by_name), "by name")
            return
        t_all = [t for t in theirs if t.shapes]
        m_all = [m for m in ours if not _may_stay(m) or id(m) in named]
        rest = _one_to_one(t_left, m_left)
        in_order = _one_to_one(t_all, m_all)
        if in_order is not None:
            pair_of = {id(t): m for t, m in in_order}
            crossed = [(t, m) for t, m in by_name if t.shapes and pair_of.get(id(t)) is not m]
            if crossed and all(_is_number(t) and _is_number(m) for t, m in crossed):
                # places in containers, counted differently: 0, 2, 4 here and 0, 1, 2 there
                by_name, rest = [], in_order
            elif crossed and rest is not None:
                self._refuse([*crossed, *rest], "names and order of definition contradict")
                self._take(pair for pair in by_name if pair not in crossed)
                return
        elif (
            len(t_all) == len(m_all)
            and all(_is_number(t) and _is_number(m) for t, m in by_name)
            and all(_akin(t, m) for t, m in zip(t_all, m_all, strict=True))
        ):
            by_name, t_left, m_left = [], t_all, m_all
        self._take(by_name)
        self._say(len(by_name), "by name")
        if rest is not None:
            rest = self._without_conflict(rest)
            self._take(rest)
            self._say(len(rest), "by order of definition, types and shapes agree", rest)
            return
        self._by_shape(t_left, m_left)

    def _by_name(self, theirs: list[_Layer], ours: list[_Layer]) -> list[tuple[_Layer, _Layer]]:
        """Layers whose names are equal, on one side or both after a prefix that all names have."""
        best: list[tuple[_Layer, _Layer]] = []
        for p in _prefixes(theirs):
            table = {_without(path, p): t for t in theirs for path in reversed((t.path, *t.also))}
            for q in _prefixes(ours):
                pairs = []
                for m in ours:
                    paths = [_without(path, q) for path in (m.path, *m.also)]
                    t = next((table[path] for path in paths if path in table), None)
                    if t is not None:
                        pairs.append((t, m))
                if len(pairs) > len(best):
                    best, self.prefixes = pairs, (p, q)
        p, q = self.prefixes
        if p:
            self.how.append(f"prefix {p}. of PyTorch's names removed")
        if q:
            self.how.append(f"prefix {q}. of MindSpore's names removed")
        return best

    def _without_conflict(self, pairs: list[tuple[_Layer, _Layer]]) -> list[tuple[_Layer, _Layer]]:
        """Order must not contradict the names: fc1, fc2 are not lin2, lin1."""
        groups: dict[Any, list[tuple[_Layer, _Layer]]] = defaultdict(list)
        for t, m in pairs:
            groups[(m.kind, t.shapes)].append((t, m))
        settled: dict[int, _Layer] = {}
        for group in groups.values():
            if not _contradicts(group):
                continue
            keyed = _by_key([t for t, _ in group], [m for _, m in group])
            if keyed is None:
                self._refuse(group, "names suggest another order than that of definition")
                settled.update((id(t), t) for t, _ in group)
            else:
                settled.update((id(t), m) for t, m in keyed)
        return [(t, settled.get(id(t), m)) for t, m in pairs if settled.get(id(t), m) is not t]

    def _by_shape(self, theirs: list[_Layer], ours: list[_Layer]) -> None:
        """What remains: layers whose type and shapes occur once, or whose last names agree."""
        groups: dict[Any, tuple[list[_Layer], list[_Layer]]] = defaultdict(lambda: ([], []))
        for t in theirs:
            groups[t.shapes][0].append(t)
        for m in ours:
            groups[m.shapes][1].append(m)
        found: list[tuple[_Layer, _Layer]] = []
        ambiguous: list[tuple[_Layer, _Layer]] = []
        for ts, ms in groups.values():
            if len(ts) != len(ms) or not ts:
                continue
            if not all(_same_kind(t, m) for t in ts for m in ms):
                continue
            keyed = [(ts[0], ms[0])] if len(ts) == 1 else _by_key(ts, ms)
            if keyed is None:
                ambiguous += zip(ts, ms, strict=True)
            else:
                found += keyed
        if len(found) == len(theirs) == len(ours):
            self._take(found)
            self._say(len(found), "by type and shape, each of which occurs once", found)
            return
        if self._by_parameters(theirs, ours):
            return
        if len(theirs) == len(ours) and all(_akin(t, m) for t, m in zip(theirs, ours, strict=True)):
            loose = list(zip(theirs, ours, strict=True))
            self._take(loose)
            self._say(len(loose), "by order of definition and type", loose)
            return
        self._take(found)
        self._say(len(found), "by type and shape, each of which occurs once", found)
        if ambiguous:
            self._refuse(ambiguous, "equal types and shapes, in another order on each side")
        self._describe(theirs, ours)

    def _by_parameters(self, theirs: list[_Layer], ours: list[_Layer]) -> bool:
        """A net written with functions on one side: parameter after parameter, in order."""
        t_slots = [s for t in theirs for s in t.slots.values() if s.leaf != _COUNT]
        m_slots = [s for m in ours for s in _in_torch_order(m)]
        if len(t_slots) != len(m_slots):
            return False
        for t, m in zip(t_slots, m_slots, strict=True):
            own = t.layer.kind == "" or m.layer.kind == ""
            alike = t.leaf == m.leaf and _same_kind(t.layer, m.layer)
            if t.shape != m.shape or not (own or alike):
                return False
        self.flat = list(zip(t_slots, m_slots, strict=True))
        self.how.append(
            f"{len(t_slots)} parameters by order of definition, shapes agree "
            "(one side holds them outside of layers)"
        )
        return True

    flat: Sequence[tuple[_Slot, _Slot]] = ()

    def _refuse(self, pairs: list[tuple[_Layer, _Layer]], why: str) -> None:
        theirs = ", ".join(t.path for t, _ in pairs[:6])
        ours = ", ".join(m.native for _, m in pairs[:6])
        self.ambiguous.update(id(layer) for both in pairs for layer in both)
        t, m = pairs[0]
        self.problems.append(
            Check(
                f"ambiguous: {t.path or 'the net'}" if len(self.problems) else "ambiguous",
                "failed",
                f"{why}: not guessed",
                found=f"PyTorch {theirs}; MindSpore {ours}",
                expected="names that say which is which",
                remedy=f'names={{"{t.path}": "{m.native}", ...}}, each layer with its own',
            )
        )

    def _describe(self, theirs: list[_Layer], ours: list[_Layer]) -> None:
        """Two nets that do not line up: how many layers, and where they part."""
        counts = [
            ", ".join(f"{n} {k or 'own'}" for k, n in Counter(kinds).most_common())
            for kinds in (
                [t.kind if t.kind is not None else "layers" for t in self.torch.layers if t.shapes],
                [m.kind for m in self.ours.layers],
            )
        ]
        counts[0] = counts[0].replace("own", "of their own")
        counts[1] = counts[1].replace("own", "of their own")
        parts = next(
            (
                f"; of those without a partner by name, {t.path or 'the net'} "
                f"{_shapes(t)} and {m.native or 'the net'} {_shapes(m)} are the first to differ"
                for t, m in zip(theirs, ours, strict=False)
                if not _fits(t, m)
            ),
            "",
        )
        self.problems.append(
            Check(
                "structure",
                "failed",
                f"the nets do not line up: PyTorch has {counts[0]}; MindSpore {counts[1]}{parts}",
                expected="the same layers on both sides",
                remedy="build both nets alike, or name what belongs together: names={...}, and "
                "what to leave alone: skip=[...]",
            )
        )

    def _say(self, count: int, how: str, pairs: Sequence[tuple[_Layer, _Layer]] = ()) -> None:
        if count:
            some = ", ".join(f"{t.path or '(net)'} -> {m.native or '(net)'}" for t, m in pairs[:4])
            more = ", ..." if len(pairs) > 4 else ""
            noun = "layer" if count == 1 else "layers"
            self.how.append(f"{count} {noun} {how}" + (f" ({some}{more})" if some else ""))

    # Parameters

    def _settle(self) -> Pairing:
        slots: list[tuple[_Slot, _Slot]] = list(self.flat)
        lost_torch: dict[str, _Slot] = {}
        lost_ours: dict[str, _Slot] = {}
        explained: set[str] = set()
        seen = {id(layer) for both in self.pairs for layer in both}
        seen |= {id(slot.layer) for both in self.flat for slot in both}
        for t, m in self.pairs:
            if not _same_kind(t, m):
                self._kinds_differ(t, m)
                explained |= {f"t {s.name}" for s in t.slots.values()}
                explained |= {f"m {s.name}" for s in m.slots.values()}
                lost_torch.update((s.name, s) for s in t.slots.values())
                lost_ours.update((s.name, s) for s in m.slots.values())
                continue
            both, t_rest, m_rest = _slots(t, m)
            for ts, ms in both:
                if ts.shape != ms.shape:
                    self._shapes_differ(ts, ms)
                    explained |= {f"t {ts.name}", f"m {ms.name}"}
                    lost_torch[ts.name], lost_ours[ms.name] = ts, ms
                else:
                    slots.append((ts, ms))
            lost_torch.update((s.name, s) for s in t_rest)
            for s in m_rest:
                reason = _stays(s, t)
                if reason:
                    self.kept[s.name] = reason
                else:
                    lost_ours[s.name] = s
        for t in self.torch.layers:
            if id(t) not in seen:
                lost_torch.update((s.name, s) for s in t.slots.values())
        for m in self.ours.layers:
            if id(m) not in seen:
                for s in m.slots.values():
                    reason = _stays(s, None)
                    if reason:
                        self.kept[s.name] = reason
                    else:
                        lost_ours[s.name] = s
        for ts, _ in self.flat:
            counts = [s for s in ts.layer.slots.values() if s.leaf == _COUNT]
            lost_torch.update((s.name, s) for s in counts)
        matched = self._tied(slots, lost_torch, lost_ours)
        for name, slot in list(lost_torch.items()):
            reason = self._droppable(slot)
            if reason:
                self.dropped[name] = reason
                del lost_torch[name]
        self._report_lost(lost_torch, lost_ours, explained)
        self._report_hidden()
        self._aliases(matched)
        how = "; ".join(self.how) or "no layer could be matched"
        return Pairing(
            matched,
            self.dropped,
            self.kept,
            list(lost_torch),
            list(lost_ours),
            self.problems,
            how,
        )

    def _tied(
        self,
        slots: list[tuple[_Slot, _Slot]],
        lost_torch: dict[str, _Slot],
        lost_ours: dict[str, _Slot],
    ) -> list[Match]:
        """One Match for each tensor of MindSpore; weights tied on one side only are a problem."""
        matched: list[Match] = []
        by_ours: dict[int, tuple[_Slot, _Slot]] = {}
        by_torch: dict[Any, _Slot] = {}
        for ts, ms in slots:
            identity = _identity(ts.value)
            first = by_ours.get(id(ms.value))
            if first is not None:
                if _identity(first[0].value) != identity and (
                    self.torch.live or not _equal(first[0].value, ts.value)
                ):
                    self._one_sided_tie("MindSpore", ms.name, first[1].name, "PyTorch")
                self.dropped.setdefault(ts.name, f"the same weight as {first[0].name}")
                self.kept.setdefault(ms.name, f"the same Parameter as {first[1].name}")
                continue
            other = by_torch.get(identity)
            if other is not None:
                self._one_sided_tie("PyTorch", ts.name, other.name, "MindSpore", ms.name)
            by_torch.setdefault(identity, ts)
            by_ours[id(ms.value)] = (ts, ms)
            matched.append(
                Match(
                    ts.name,
                    ms.name,
                    (ts.layer.kind or ms.layer.kind or ""),
                    ts.value,
                    ms.value,
                    ms.convert,
                    ms.back,
                    (ts.trainable if self.torch.live else None, bool(ms.trainable)),
                )
            )
        for name, slot in list(lost_torch.items()):
            tied = by_torch.get(_identity(slot.value))
            if tied is not None and tied.name != name:
                self.dropped[name] = f"the same weight as {tied.name}"
                del lost_torch[name]
        for name, slot in list(lost_ours.items()):
            if id(slot.value) in by_ours:
                self.kept[name] = f"the same Parameter as {by_ours[id(slot.value)][1].name}"
                del lost_ours[name]
        return matched

    def _one_sided_tie(
        self, tied: str, name: str, other: str, loose: str, second: str = ""
    ) -> None:
        if tied == "PyTorch":
            remedy = f"tie them in MindSpore: assign one Parameter to both, so that {second} is it"
        else:
            remedy = "give MindSpore's net two Parameters, or tie PyTorch's"
        self.problems.append(
            Check(
                f"tied: {name}",
                "failed",
                f"{name} and {other} are one tensor in {tied}, two in {loose}: alike now, they "
                "drift apart in training",
                expected="tied on both sides or on neither",
                remedy=remedy,
            )
        )

    def _droppable(self, slot: _Slot) -> str:
        if slot.leaf == _COUNT:
            return "MindSpore keeps no count of batches"
        where = self._counterpart(slot)
        plain = getattr(where, slot.leaf, None) if where is not None else None
        if plain is not None and hasattr(plain, "shape") and kind(plain):
            return (
                "MindSpore holds it as a plain tensor of equal values"
                if _equal(plain, slot.value)
                else ""
            )
        if slot.role == "temporary":
            return "a buffer that PyTorch does not save either (persistent=False)"
        return ""

    def _counterpart(self, slot: _Slot) -> Any:
        for t, m in self.pairs:
            if t is slot.layer:
                return m.thing
        p, q = self.prefixes
        return self.ours.where.get(_joined(q, _without(slot.layer.path, p)))

    def _aliases(self, matched: list[Match]) -> None:
        theirs = {match.torch_name for match in matched} | set(self.dropped)
        ours = {match.ms_name for match in matched} | set(self.kept)
        for side, left, known in (
            (self.torch.same, self.dropped, theirs),
            (self.ours.same, self.kept, ours),
        ):
            for name, first in side.items():
                if first in known:
                    left.setdefault(name, f"the same weight as {first}")

    # Problems

    def _kinds_differ(self, t: _Layer, m: _Layer) -> None:
        self.problems.append(
            Check(
                t.path or m.native or "the net",
                "failed",
                f"{t.type} in PyTorch, {m.type} in MindSpore ({m.native or 'the net itself'})",
                expected="the same type of layer under this name",
                remedy=f"use MindSpore's counterpart of {t.kind}"
                + (f", nn.{_ms_name(t.kind)}" if t.kind else ""),
            )
        )

    def _shapes_differ(self, t: _Slot, m: _Slot) -> None:
        reason, remedy = _reason(t, m)
        self.problems.append(
            Check(
                t.name,
                "failed",
                f"PyTorch {t.shape}, MindSpore {m.native} ({m.name}){reason}",
                expected="equal shapes" if m.native == m.shape else f"{m.shape} in PyTorch",
                remedy=remedy,
            )
        )

    def _report_lost(
        self, torch: dict[str, _Slot], ours: dict[str, _Slot], explained: set[str]
    ) -> None:
        partner = {id(t): m for t, m in self.pairs} | {id(m): t for t, m in self.pairs}
        for side, lost, mark in (("PyTorch", torch, "t"), ("MindSpore", ours, "m")):
            groups: dict[int, list[_Slot]] = defaultdict(list)
            for name, slot in lost.items():
                if f"{mark} {name}" not in explained and id(slot.layer) not in self.ambiguous:
                    groups[id(slot.layer)].append(slot)
            for slots in groups.values():
                layer = slots[0].layer
                other = partner.get(id(layer))
                held = ", ".join(f"{s.name.rpartition('.')[2]} {s.native}" for s in slots)
                away = "MindSpore" if side == "PyTorch" else "PyTorch"
                name = layer.native or layer.path or "the net itself"
                if other is not None:
                    there = other.native or other.path or "the net itself"
                    text = f"{held} in {side}'s {layer.type}; {away}'s {other.type} ({there}) "
                    text += "has no such weight"
                else:
                    text = f"{held}: no counterpart in {away} for this {layer.type}"
                self.problems.append(
                    Check(
                        f"{side} only: {name}",
                        "failed",
                        text,
                        expected="a counterpart on the other side",
                        remedy=_advice(side, layer, slots, other),
                    )
                )

    def _report_hidden(self) -> None:
        for side, hidden, remedy in (
            ("MindSpore", self.ours.hidden, "self.layers = nn.CellList([...])"),
            ("PyTorch", self.torch.hidden, "self.layers = nn.ModuleList([...])"),
        ):
            if hidden:
                more = f" and {len(hidden) - 6} more" if len(hidden) > 6 else ""
                self.problems.append(
                    Check(
                        f"hidden in {side}",
                        "failed",
                        f"{side} does not see {', '.join(hidden[:6])}{more}: layers in a Python "
                        "list or dict are neither saved nor trained",
                        expected="every layer registered",
                        remedy=remedy + " (a Parameter: assign it to self)",
                        metrics={"hidden": len(hidden)},
                    )
                )


def _one_to_one(theirs: list[_Layer], ours: list[_Layer]) -> list[tuple[_Layer, _Layer]] | None:
    if len(theirs) != len(ours):
        return None
    pairs = list(zip(theirs, ours, strict=True))
    return pairs if all(_fits(t, m) for t, m in pairs) else None


def _fits(t: _Layer, m: _Layer) -> bool:
    if not _same_kind(t, m):
        return False
    both, t_rest, m_rest = _slots(t, m)
    return (
        bool(both)
        and all(ts.shape == ms.shape for ts, ms in both)
        and all(s.leaf == _COUNT or s.role == "temporary" for s in t_rest)
        and all(_stays(s, t) for s in m_rest)
    )


def _akin(t: _Layer, m: _Layer) -> bool:
    """Near enough to say what differs between them, though not to copy."""
    both, _, _ = _slots(t, m)
    return (
        _same_kind(t, m)
        and bool(both)
        and (t.kind is not None or all(len(ts.shape) == len(ms.shape) for ts, ms in both))
    )


def _same_kind(t: _Layer, m: _Layer) -> bool:
    return not t.kind or not m.kind or t.kind == m.kind


def _slots(t: _Layer, m: _Layer) -> tuple[list[tuple[_Slot, _Slot]], list[_Slot], list[_Slot]]:
    """The weights of two layers: by name, then in a layer of the user's own by order and shape."""
    theirs, ours = dict(t.slots), dict(m.slots)
    pairs = []
    for leaf in list(theirs):
        if leaf in ours:
            pairs.append((theirs.pop(leaf), ours.pop(leaf)))
    if not m.kind:
        for leaf, slot in list(ours.items()):
            name = _IN_TORCH_TERMS.get(leaf, "")
            if name in theirs:
                pairs.append((theirs.pop(name), slot))
                del ours[leaf]
    if t.kind == "" or m.kind == "":
        left = [s for s in theirs.values() if s.leaf != _COUNT]
        if [s.shape for s in left] == [s.shape for s in ours.values()]:
            pairs += zip(left, ours.values(), strict=True)
            theirs = {leaf: s for leaf, s in theirs.items() if s.leaf == _COUNT}
            ours = {}
    return pairs, list(theirs.values()), list(ours.values())


def _in_torch_order(m: _Layer) -> list[_Slot]:
    """MindSpore's BatchNorm names its statistics first, PyTorch's last."""
    order = {leaf: i for i, leaf in enumerate(_NEUTRAL)}
    if not set(m.slots) <= set(order):
        return list(m.slots.values())
    return sorted(m.slots.values(), key=lambda s: order[s.leaf])


def _may_stay(m: _Layer) -> bool:
    return all(_stays(slot, None) for slot in m.slots.values())


def _stays(slot: _Slot, t: _Layer | None) -> str:
    """Why a weight of MindSpore needs no counterpart; empty where it does need one."""
    if slot.role == "temporary":
        return "a buffer that MindSpore does not save either (persistent=False)"
    if slot.layer.kind == "InstanceNorm" and slot.leaf.startswith("running_"):
        return "MindSpore's InstanceNorm normalises with the input's own statistics"
    if slot.layer.kind not in ("BatchNorm", "InstanceNorm", "LayerNorm", "GroupNorm"):
        return ""
    if slot.leaf.startswith("running_"):
        ignored = getattr(slot.layer.thing, "use_batch_statistics", None) is True
        return "not used: use_batch_statistics=True" if ignored and t is not None else ""
    if slot.leaf in _NEUTRAL and slot.trainable is False:
        values = to_numpy(slot.value)[0]
        if bool((values == _NEUTRAL[slot.leaf]).all()):
            return f"frozen at {_NEUTRAL[slot.leaf]:g}: the norm has no weights of its own"
    return ""


def _contradicts(group: list[tuple[_Layer, _Layer]]) -> bool:
    """Whether the names of layers of one type and shape speak for another order."""
    if len(group) < 2:
        return False
    theirs = [_key(t.path) for t, _ in group]
    ours = [_key(m.native) for _, m in group]
    for i, j in combinations(range(len(group)), 2):
        if j - i > 8:  # names far apart say little
            continue
        (a, x), (b, y) = theirs[i], theirs[j]
        (c, u), (d, v) = ours[i], ours[j]
        crossed = (a, x) == (d, v) or (b, y) == (c, u)
        if crossed and (a, x) != (c, u) and (a, x) != (b, y) and (c, u) != (d, v) and a:
            return True
        if a == b and c == d and a and c and x != y and u != v:
            numbers = [n for n in (x, y, u, v) if n is not None]
            if len(numbers) == 4 and (numbers[0] < numbers[1]) != (numbers[2] < numbers[3]):
                return True
    return False


def _key(path: str) -> tuple[str, int | None]:
    """The last word of a layer's name and the number at its end: fc and 1."""
    last = path.rpartition(".")[2]
    found = re.fullmatch(r"(.*?)_?(\d+)?", last)
    stem, number = found.groups() if found else (last, None)
    return stem, int(number) if number else None


def _by_key(theirs: list[_Layer], ours: list[_Layer]) -> list[tuple[_Layer, _Layer]] | None:
    """Layers of one type and shape told apart by the last word of their names, or its number."""
    picks: tuple[Callable[[Any], Any], ...] = (lambda k: k, lambda k: k[1])
    for pick in picks:
        left = [pick(_key(t.path)) for t in theirs]
        right = [pick(_key(m.native)) for m in ours]
        usable = None not in left and all(k != ("", None) for k in left)
        numbers_only = any(isinstance(k, tuple) and not k[0] for k in (*left, *right))
        if usable and not numbers_only and len(set(left)) == len(left) and set(left) == set(right):
            table = dict(zip(right, ours, strict=True))
            return [(t, table[k]) for t, k in zip(theirs, left, strict=True)]
    return None


def _is_number(layer: _Layer) -> bool:
    return any(part.isdigit() for part in layer.path.split("."))


def _prefixes(layers: list[_Layer]) -> list[str]:
    """The prefixes that all layers have: "", then longer ones."""
    paths = [layer.path.split(".") if layer.path else [] for layer in layers if layer.slots]
    if not paths:
        return [""]
    shared = 0
    while all(len(path) > shared and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    return [".".join(paths[0][:n]) for n in range(shared + 1)]


def _without(path: str, prefix: str) -> str:
    if prefix and (path == prefix or path.startswith(f"{prefix}.")):
        return path[len(prefix) + 1 :]
    return path


def _below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _listed(skip: str | Sequence[str]) -> list[str]:
    return [skip] if isinstance(skip, str) else list(skip)


def _identity(value: Any) -> Any:
    """Equal for names of one and the same tensor, also in a state dict, which makes new views."""
    if kind(value) == "torch" and value.numel() and str(value.layout) == "torch.strided":
        return (value.data_ptr(), tuple(value.shape), tuple(value.stride()), str(value.dtype))
    return id(value)


def _equal(left: Any, right: Any) -> bool:
    a, b = to_numpy(left)[0], to_numpy(right)[0]
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


# Words


def _reason(t: _Slot, m: _Slot) -> tuple[str, str]:
    ours, theirs = m.native, t.shape
    if len(theirs) == 2 and ours == theirs[::-1]:
        return (
            ": the transpose",
            "keep the weight as (out, in), as nn.Dense and nn.Linear do, or multiply by its "
            "transpose",
        )
    if len(theirs) == len(ours) == 4 and ours == (theirs[0], *theirs[2:], theirs[1]):
        return (
            ": the same with channels last (NHWC)",
            'use data_format="NCHW"',
        )
    if len(theirs) > 1 and ours == (theirs[1], theirs[0], *theirs[2:]):
        return (": in and out channels swapped", "one side is transposed, the other is not")
    if math.prod(ours) == math.prod(theirs) and [n for n in ours if n != 1] == [
        n for n in theirs if n != 1
    ]:
        return (": an axis of length 1 apart", "use the same type of layer on both sides")
    if len(ours) == len(theirs) and ours[1:] == theirs[1:]:
        unit = "rows" if t.leaf == "weight" and m.layer.kind == "Embedding" else "outputs"
        layer = t.name.rpartition(".")[0] or t.name
        return (
            f": {theirs[0]} {unit} against {ours[0]}",
            f'build both with the same number, or leave it as it is: skip=["{layer}"]',
        )
    return "", "build both layers with the same sizes"


def _advice(side: str, layer: _Layer, slots: list[_Slot], other: _Layer | None) -> str:
    leaves = {slot.leaf for slot in slots}
    folded = any(leaf in ("weight_g", "weight_v") or leaf.startswith("original") for leaf in leaves)
    if folded and side == "PyTorch":
        return "fold it into the weight first: torch.nn.utils.remove_weight_norm(layer)"
    if other is not None:
        known = other.kind or layer.kind or ""
        if side == "PyTorch":
            if leaves == {"bias"} and (known.startswith("Conv") or known == "Linear"):
                return f"build MindSpore's with has_bias=True (nn.{other.type} has none by default)"
            if any(leaf.startswith("bias_") for leaf in leaves):
                return "build MindSpore's with has_bias=True"
            if any(leaf.startswith("weight_hr") for leaf in leaves):
                return "MindSpore's LSTM has no projection: use proj_size=0"
            if all(slot.role != "parameter" for slot in slots):
                return (
                    f'self.register_buffer("{slots[0].leaf}", ms.Tensor(...)) in MindSpore\'s '
                    f"{other.type}, or make its plain tensor equal"
                )
        else:
            if leaves == {"bias"}:
                return "build MindSpore's with has_bias=False, or PyTorch's with bias=True"
            if leaves <= {"running_mean", "running_var"}:
                return "PyTorch's tracks no statistics: use_batch_statistics=True in MindSpore"
            if layer.kind == "BatchNorm":
                return "PyTorch's has no weights: affine=False in MindSpore"
            if layer.kind in ("LayerNorm", "GroupNorm", "InstanceNorm"):
                return (
                    "PyTorch's has none: freeze MindSpore's at 1 and 0 "
                    "(layer.gamma.requires_grad = False)"
                )
    name = layer.native or layer.path
    return f'build both nets alike, or leave it alone: skip=["{name}"]'


def _ms_name(torch_kind: str) -> str:
    return next((ours for ours, theirs in _MS_KIND.items() if theirs == torch_kind), torch_kind)


def _shapes(layer: _Layer) -> str:
    return ", ".join(str(slot.shape) for slot in layer.slots.values()) or "without weights"


def _table(pairing: Pairing) -> str:
    return "\n".join(f"{match.torch_name} -> {match.ms_name}" for match in pairing.matched)


def _limited(problems: list[Check]) -> list[Check]:
    """A row for each problem, as long as they can be read; ids are made unique."""
    rows: dict[str, Check] = {}
    for problem in problems:
        name, n = problem.id, 2
        while name in rows or name in ("names", "values", "dtype", "trainable", "left out"):
            name, n = f"{problem.id} ({n})", n + 1
        rows[name] = Check(**{**problem.__dict__, "id": name})
    shown = list(rows.values())
    if len(shown) > _ROWS:
        rest = shown[_ROWS:]
        names = ", ".join(check.id for check in rest[:40])
        more = f", and {len(rest) - 40} more" if len(rest) > 40 else ""
        shown = [
            *shown[:_ROWS],
            Check("further problems", "failed", f"{len(rest)} more: {names}{more}"),
        ]
    return shown


def _by_kind(matched: list[Match], copied: bool) -> list[Check]:
    groups: dict[str, list[Match]] = defaultdict(list)
    for match in matched:
        groups[match.kind or "other"].append(match)
    checks = []
    for name, matches in groups.items():
        layers = len({match.torch_name.rpartition(".")[0] for match in matches})
        numbers = sum(math.prod(match.source.shape) for match in matches)
        leaves = dict.fromkeys(match.torch_name.rpartition(".")[2] for match in matches)
        shown = ", ".join(list(leaves)[:6]) + (", ..." if len(leaves) > 6 else "")
        text = f"{layers} layer{'s' * (layers != 1)}, {len(matches)} names ({shown})"
        checks.append(
            Check(
                f"layers: {name}",
                "ok" if copied else "skipped",
                text if copied else f"{text} matched, not copied",
                metrics={"layers": layers, "names": len(matches), "numbers": numbers},
            )
        )
    return checks


def _left_out(pairing: Pairing) -> list[Check]:
    if not pairing.dropped and not pairing.kept:
        return []
    parts, found = [], []
    for side, left in (("PyTorch", pairing.dropped), ("MindSpore", pairing.kept)):
        reasons: dict[str, list[str]] = defaultdict(list)
        for name, reason in left.items():
            reasons[reason].append(name)
            found.append(f"{side} {name}: {reason}")
        for reason, names in reasons.items():
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            parts.append(f"{len(names)} of {side}: {some} ({reason})")
    return [Check("left out", "ok", "; ".join(parts), found="\n".join(found))]


def _trainable(matched: list[Match]) -> list[Check]:
    """requires_grad is not copied, but said; a state dict does not know it."""
    unlike = [
        f"{match.ms_name} ({'trains' if match.trainable[0] else 'frozen'} in PyTorch, "
        f"{'trains' if match.trainable[1] else 'frozen'} in MindSpore)"
        for match in matched
        if match.trainable[0] is not None and match.trainable[0] != match.trainable[1]
    ]
    if not unlike:
        return []
    some = ", ".join(unlike[:6]) + (", ..." if len(unlike) > 6 else "")
    return [
        Check(
            "trainable",
            "ok",
            f"values copied, requires_grad left as it was; it differs in {len(unlike)}: {some}; "
            "set parameter.requires_grad where that is not meant",
            found="\n".join(unlike),
            metrics={"unlike": len(unlike)},
        )
    ]


# Values


@dataclass
class _Plan:
    match: Match
    array: _Array  # in MindSpore's layout, holding exactly what shall be there
    dtype: Any


def _planned(matched: list[Match]) -> tuple[list[_Plan], list[Check]]:
    plans, lossless, rounded, bad = [], Counter[str](), Counter[str](), []
    worst = 0.0
    for match in matched:
        array, theirs = to_numpy(match.source, match.torch_name)
        ours = str(match.target.dtype).lower().removesuffix("_")
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = _cast(match.convert(array), ours)
        if theirs != ours:
            cast = f"{theirs} to {ours}"
            same = _equal(wanted, match.convert(array))
            (lossless if same else rounded)[cast] += 1
            if not same:
                finite = np.isfinite(array.astype(np.float64))
                target = match.back(wanted).astype(np.float64)
                if array.dtype.kind in "iub" or bool((finite & ~np.isfinite(target)).any()):
                    bad.append(f"{match.torch_name} ({cast})")
                elif finite.any():
                    off = np.abs(target - array)[finite]
                    size = np.maximum(np.abs(array.astype(np.float64))[finite], 1e-300)
                    worst = max(worst, float((off / size).max()))
        plans.append(_Plan(match, wanted, match.target.dtype))
    checks = []
    if bad:
        checks.append(
            Check(
                "dtype: range",
                "failed",
                f"values do not fit: {', '.join(bad[:6])}",
                expected="values that MindSpore's dtype can hold",
                remedy="use the same dtype on both sides",
            )
        )
    if lossless or rounded:
        parts = [f"{n} {cast}, exactly" for cast, n in lossless.items()]
        parts += [f"{n} {cast}, rounded (by {worst:.1e} at most)" for cast, n in rounded.items()]
        checks.append(
            Check("dtype", "ok", "cast: " + "; ".join(parts), metrics={"rounded_by": worst})
        )
    return plans, checks


def _cast(array: _Array, dtype: str) -> _Array:
    """What an array becomes in a dtype; bfloat16, which NumPy lacks, as float32."""
    if dtype == "bfloat16":
        import torch

        rounded = torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
        return np.asarray(rounded.float().numpy()).reshape(array.shape)
    cast: _Array = array.astype(dtype).reshape(array.shape)
    return cast


def _written(plans: list[_Plan]) -> Check:
    """Write, read back, compare bit by bit; put everything back where one bit is off."""
    before = [(plan, to_numpy(plan.match.target)[0].copy()) for plan in plans]
    wrong: list[str] = []
    try:
        for plan in plans:
            _set(plan.match.target, plan.array, plan.dtype)
        for plan in plans:
            now = to_numpy(plan.match.target)[0]
            if now.shape != plan.array.shape or now.tobytes() != plan.array.tobytes():
                wrong.append(plan.match.ms_name)
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
    numbers = sum(plan.array.size for plan in plans)
    if wrong:
        for plan, array in before:
            _set(plan.match.target, array, plan.dtype)
        return Check(
            "values",
            "error",
            f"written, but not what was read back: {', '.join(wrong[:6])}; all put back as it was",
            metrics={"wrong": len(wrong)},
        )
    strange = sum(
        int((~np.isfinite(plan.array)).sum()) for plan in plans if plan.array.dtype.kind == "f"
    )
    note = f"; {strange} of them NaN or infinite, as in PyTorch" if strange else ""
    return Check(
        "values",
        "ok",
        f"{len(plans)} names, {numbers:,} numbers, read back bit for bit equal{note}",
        metrics={"names": len(plans), "numbers": numbers, "nonfinite": strange},
    )


def _set(target: Any, array: _Array, dtype: Any) -> None:
    import mindspore as ms

    value = ms.Tensor(np.array(array, order="C"), dtype)
    if hasattr(target, "set_data"):
        target.set_data(value)
    else:
        target.assign_value(value)
