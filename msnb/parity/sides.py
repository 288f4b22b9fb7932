"""Both nets in one vocabulary: their layers in order of definition, in PyTorch's terms.

MindSpore's ``gamma`` is ``weight``, ``moving_variance`` is ``running_var``, and the weight of a
Conv1d has no axis of length 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msnb import weightfile
from msnb.parity.arrays import to_numpy
from msnb.parity.calls import is_cell, is_module, kind

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

COUNT = "num_batches_tracked"

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
MS_KIND = {
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
IN_TORCH_TERMS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embedding_table": "weight",
}
_TRANSFORMER = {"dense1": "linear1", "dense2": "linear2"}  # in nn.TransformerEncoderLayer
NEUTRAL = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


@dataclass(eq=False)
class Slot:
    """One parameter or buffer: ``leaf`` and ``shape`` in PyTorch's terms."""

    name: str
    leaf: str
    shape: Shape
    value: Any
    role: str  # parameter, buffer, or temporary (a buffer that is not saved)
    layer: Layer
    native: Shape = ()
    convert: Callable[[Array], Array] = lambda array: array
    back: Callable[[Array], Array] = lambda array: array

    @property
    def trainable(self) -> bool | None:
        flag = getattr(self.value, "requires_grad", None) if self.role == "parameter" else False
        return None if flag is None else bool(flag)


@dataclass(eq=False)
class Layer:
    path: str  # MindSpore's in PyTorch's terms
    kind: str | None  # "" for a type of the user's own, None where a state dict does not tell
    type: str
    thing: Any = None
    slots: dict[str, Slot] = field(default_factory=dict)
    also: list[str] = field(default_factory=list)
    native: str = ""

    @property
    def shapes(self) -> frozenset[tuple[str, Shape]]:
        return frozenset((s.leaf, s.shape) for s in self.slots.values() if s.leaf != COUNT)

    @property
    def label(self) -> str:
        return f"{self.native or self.path or 'the net itself'} ({self.type})"


@dataclass(eq=False)
class Side:
    layers: list[Layer]
    hidden: list[str]
    live: bool
    where: dict[str, Any]  # the layer objects by path
    dropped: dict[str, str] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)  # further names of a shared layer's weights


def torch_side(source: Any) -> Side:
    if isinstance(source, (str, os.PathLike)):
        file = weightfile.read(source)
        if file.made_by == "MindSpore":
            raise weightfile.WeightFileError(
                f"{file.path} was written by MindSpore and has its names already: "
                "msnb.load_checkpoint(path, net)"
            )
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


def _module_side(net: Any) -> Side:
    layers: dict[int, Layer] = {}
    side = Side([], [], True, {})
    for path, module in net.named_modules(remove_duplicate=False):
        side.where[path] = module
        shared = layers.get(id(module))
        if shared is not None:
            shared.also.append(path)
            for slot in shared.slots.values():
                side.same[joined(path, slot.leaf)] = slot.name
            continue
        layer = Layer(path, _kind(module, "torch", _TORCH_KIND), type(module).__name__, module)
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


def _state_side(tensors: Mapping[str, Any]) -> Side:
    layers: dict[str, Layer] = {}
    for name, value in tensors.items():
        path, _, leaf = name.rpartition(".")
        layer = layers.setdefault(path, Layer(path, None, "state dict"))
        _add_torch(layer, leaf, value, "buffer" if leaf == COUNT else "parameter")
    side = Side([], [], False, {})
    first: dict[tuple[Any, ...], Layer] = {}
    for layer in layers.values():
        key = tuple((leaf, identity(slot.value)) for leaf, slot in layer.slots.items())
        shared = first.setdefault(key, layer)
        if shared is layer:
            side.layers.append(layer)
        else:
            shared.also.append(layer.path)
            for leaf, slot in layer.slots.items():
                side.same[slot.name] = shared.slots[leaf].name
    return side


def _add_torch(layer: Layer, leaf: str, value: Any, role: str) -> None:
    name = joined(layer.path, leaf)
    if type(value).__name__.startswith("Uninitialized"):
        raise ValueError(f"{name} has no value yet: call the net once, so that {layer.type} is set")
    if getattr(getattr(value, "device", None), "type", "") == "meta":
        raise ValueError(f"{name} is on the meta device and has no values: load them first")
    shape = tuple(int(n) for n in value.shape)
    layer.slots[leaf] = Slot(name, leaf, shape, value, role, layer, shape)


def ms_side(net: Any) -> Side:
    if isinstance(net, type):
        raise TypeError(f"ms_net is a net, not the class {net.__name__}: write it with ()")
    if is_module(net):
        raise TypeError(
            f"ms_net is the MindSpore net, but {type(net).__name__} is a PyTorch module; "
            "the order is copy_weights(torch_net, ms_net)"
        )
    if not is_cell(net):
        raise TypeError(f"ms_net is a mindspore.nn.Cell, not {type(net).__name__}")
    layers: dict[int, Layer] = {}
    side = Side([], [], True, {})
    natives: dict[str, Any] = {}
    for path, native, cell in _cells(net, "", "", ()):
        side.where[path] = natives[native] = cell
        shared = layers.get(id(cell))
        if shared is not None:
            shared.also.append(path)
            for slot in shared.slots.values():
                inside = slot.name[len(shared.native) :].lstrip(".")
                side.same[joined(native, inside)] = slot.name
            continue
        layer = Layer(path, _kind(cell, "mindspore", MS_KIND), type(cell).__name__, cell)
        layer.native = native
        layers[id(cell)] = layer
        holder, inner = cell, native
        if _wrapped_norm(cell) is not None:
            holder, inner = _wrapped_norm(cell), joined(native, "bn2d")
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
    if id(cell) in above:
        return  # it contains itself
    wraps = _wrapped_norm(cell)
    transformer = _of_framework(cell, "mindspore", ("Transformer",))
    for name, child in cell._cells.items():
        if child is not None and child is not wraps:
            ours = _TRANSFORMER.get(name, name) if transformer else name
            yield from _cells(child, joined(path, ours), joined(native, name), (*above, id(cell)))


def _wrapped_norm(cell: Any) -> Any:
    """The BatchNorm2d that MindSpore's BatchNorm3d hands its work to, and that has its weights."""
    return cell._cells.get("bn2d") if _of_framework(cell, "mindspore", ("BatchNorm3d",)) else None


def _add_ms(
    layer: Layer, prefix: str, leaf: str, value: Any, parameter: bool, temporary: bool = False
) -> None:
    theirs = leaf
    if layer.kind in ("BatchNorm", "InstanceNorm", "LayerNorm", "GroupNorm", "Embedding"):
        theirs = IN_TORCH_TERMS.get(leaf, leaf)
    elif layer.kind == "PReLU" and leaf == "w":
        theirs = "weight"
    native = tuple(int(n) for n in value.shape)
    role = "parameter" if parameter else "temporary" if temporary else "buffer"
    slot = Slot(joined(prefix, leaf), theirs, native, value, role, layer, native)
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
                look(value, joined(path, name), 0)
    return list(found)


def joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def identity(value: Any) -> Any:
    """Equal for names of one and the same tensor, also in a state dict, which makes new views."""
    if kind(value) == "torch" and value.numel() and str(value.layout) == "torch.strided":
        return (value.data_ptr(), tuple(value.shape), tuple(value.stride()), str(value.dtype))
    return id(value)


def equal(left: Any, right: Any) -> bool:
    a, b = to_numpy(left)[0], to_numpy(right)[0]
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
