"""Two nets layer by layer: what each layer returned, in order of execution, and where they part.

Both nets are recorded with hooks. A layer of a known type is one event, whatever it calls inside;
layers of the user's own count too, so that nets of different nesting still meet. The two sequences
are aligned by type, parameters, shape and name, in order; what has no partner is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msnb.parity import limits
from msnb.parity.arrays import compare, to_numpy
from msnb.parity.calls import Raised, attempt, cells, places
from msnb.parity.settings import Kind, kind_of
from msnb.report import Check, Report

_Array = np.ndarray[Any, Any]

NEAR = 8.0  # how many times PyTorch's own drift MindSpore may be away, layer by layer
FAR = 32.0  # the same for gradients and steps, where 12 times was seen in right ports
# Types that call MindSpore's tanh. nn.LSTM has a kernel of its own, which is as exact as PyTorch's.
_INEXACT = frozenset(("Tanh", "GRU", "RNN", "GRUCell", "RNNCell", "LSTMCell", "GELU"))


@dataclass
class Event:
    """One call of one layer. ``outputs`` and ``inputs`` hold the tensors found in them, by place.

    ``outputs`` is None where the call did not return.
    """

    name: str
    layer: Any
    kind: Kind | None
    inputs: tuple[Any, ...] = ()
    outputs: list[_Array] | None = None
    owner: str = ""

    @property
    def type(self) -> str:
        return type(self.layer).__name__

    @property
    def label(self) -> str:
        return f"{self.name or 'the net'} ({self.type})"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [output.shape for output in self.outputs or ()]


@dataclass
class Record:
    """What a net did: the events in order of completion, what it returned or raised."""

    events: list[Event]
    output: Any

    @property
    def raised(self) -> Raised | None:
        return self.output if isinstance(self.output, Raised) else None


@dataclass
class Pair:
    """A layer's call in PyTorch and its partner's in MindSpore."""

    torch: Event
    mindspore: Event

    @property
    def label(self) -> str:
        here, there = self.torch, self.mindspore
        name = here.name or "the net"
        if here.name != there.name:
            name += f" / {there.name or 'the net'}"
        kinds = here.type if here.type == there.type else f"{here.type} / {there.type}"
        return f"{name} ({kinds})"


@dataclass
class Alignment:
    pairs: list[Pair]
    only_torch: list[Event] = field(default_factory=list)
    only_mindspore: list[Event] = field(default_factory=list)

    def said(self) -> str:
        """What could not be aligned, in words."""
        parts = []
        for side, events in (("PyTorch", self.only_torch), ("MindSpore", self.only_mindspore)):
            if events:
                shown = ", ".join(event.label for event in events[:6])
                more = f" and {len(events) - 6} more" if len(events) > 6 else ""
                parts.append(f"without a partner in {side}: {shown}{more}")
        return "; ".join(parts)


# Recording


def record_torch(
    net: Any, inputs: Sequence[Any], shake: Mapping[str, float] | None = None, *, keep: bool = True
) -> Record:
    """Run a torch module without gradients; ``shake`` adds noise to what some layers return."""
    import torch

    with torch.no_grad(), _hooked_torch(net, shake or {}, keep=keep) as recorder:
        return recorder.done(attempt(net, *inputs))


def record_mindspore(net: Any, inputs: Sequence[Any]) -> Record:
    """Run a Cell in PyNative mode."""
    with _hooked_mindspore(net) as recorder:
        return recorder.done(attempt(net, *inputs))


class _Recorder:
    def __init__(self, *, keep: bool = True) -> None:
        self.open: list[Event] = []
        self.events: list[Event] = []
        self.calls: Counter[str] = Counter()
        self.hidden = 0
        self.keep = keep

    def enter(self, name: str, layer: Any, known: Kind | None, args: Any) -> None:
        if self.hidden:
            self.hidden += 1
            return
        self.calls[name] += 1
        label = name if self.calls[name] == 1 else f"{name}#{self.calls[name]}"
        inputs = tuple(_copied(args)) if self.keep and name else ()
        self.open.append(Event(label, layer, known, inputs, owner=name))
        if known is not None:
            self.hidden = 1

    def leave(self, output: Any) -> Event | None:
        if self.hidden > 1:
            self.hidden -= 1
            return None
        self.hidden = 0
        event = self.open[-1]  # reading may raise what failed in this layer: it then stays open
        event.outputs = [leaf for leaf in map(_copy, _tensors(output)) if leaf is not None]
        self.events.append(self.open.pop())
        return event

    def done(self, output: Any) -> Record:
        return Record(self.events + self.open[::-1], output)


def _tensors(value: Any) -> list[Any]:
    return [leaf for _, leaf in places(value) if hasattr(leaf, "dtype") and hasattr(leaf, "shape")]


def _copy(tensor: Any) -> _Array | None:
    try:
        return np.array(to_numpy(tensor)[0])
    except TypeError:
        return None


def _copied(value: Any) -> Iterator[Any]:
    """The arguments of a call, its tensors as arrays: what runs later may write to them."""
    for item in value:
        if hasattr(item, "dtype") and hasattr(item, "shape"):
            yield _copy(item)
        elif isinstance(item, tuple):
            yield tuple(_copied(item))
        else:
            yield item


@contextmanager
def _hooked_torch(net: Any, shake: Mapping[str, float], *, keep: bool) -> Iterator[_Recorder]:
    import torch

    recorder = _Recorder(keep=keep)
    handles = []
    generator = torch.Generator().manual_seed(0)

    def hook(name: str, module: Any) -> None:
        known = kind_of(module, "torch")

        def before(_: Any, args: Any, kwargs: Any) -> None:
            recorder.enter(name, module, known, (*args, *kwargs.values()))

        def after(_: Any, args: Any, output: Any) -> Any:
            event = recorder.leave(output)
            if event is not None and event.name in shake:
                return shaken(output, shake[event.name], generator)
            return None

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after))

    for name, module in net.named_modules():
        hook(name, module)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it would pass the layers of a Transformer by
    try:
        yield recorder
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()


def shaken(output: Any, size: float, generator: Any) -> Any:
    """A layer's output with noise of this size in its floating tensors."""
    import torch

    if isinstance(output, tuple):
        return tuple(shaken(item, size, generator) for item in output)
    if not isinstance(output, torch.Tensor) or not output.is_floating_point():
        return output
    noise = torch.rand(output.shape, generator=generator, dtype=torch.float32) * 2 - 1
    return output + size * noise.to(output.dtype)


@contextmanager
def _hooked_mindspore(net: Any) -> Iterator[_Recorder]:
    recorder = _Recorder()
    handles = []

    def hook(name: str, cell: Any) -> None:
        known = kind_of(cell, "mindspore")

        def before(cell_: Any, args: Any) -> None:
            recorder.enter(name, cell, known, args)

        def after(cell_: Any, args: Any, output: Any) -> None:
            recorder.leave(output)

        handles.append(cell.register_forward_pre_hook(before))
        handles.append(cell.register_forward_hook(after))

    for name, cell in net.cells_and_names():
        hook(name, cell)
    try:
        yield recorder
    finally:
        for handle in handles:
            handle.remove()


# Aligning


def align(
    torch_record: Record,
    ms_record: Record,
    torch_net: Any,
    ms_net: Any,
    partners: Mapping[str, str],
) -> Alignment:
    """Pair the calls of both sides in order; ``partners`` maps layers by their shared weights.

    Calls that a failed run did not reach are aligned by definition, without values.
    """
    torch_events, ms_events = list(torch_record.events), list(ms_record.events)
    if torch_record.raised or ms_record.raised:
        torch_events += _uncalled(torch_net.named_modules(), torch_events, "torch")
        ms_events += _uncalled(ms_net.cells_and_names(), ms_events, "mindspore")
    back = {there: here for here, there in partners.items()}
    pairs = _aligned(torch_events, ms_events, partners, back)
    pairs = _crossing(pairs, torch_events, ms_events, partners)
    taken = {id(event) for pair in pairs for event in (pair.torch, pair.mindspore)}
    return Alignment(
        pairs,
        [event for event in torch_events if _matters(event) and id(event) not in taken],
        [event for event in ms_events if _matters(event) and id(event) not in taken],
    )


def _uncalled(modules: Any, events: list[Event], side: str) -> list[Event]:
    seen = {event.owner for event in events}
    return [
        Event(name, layer, kind_of(layer, side), owner=name)
        for name, layer in modules
        if name not in seen and kind_of(layer, side) is not None
    ]


def _matters(event: Event) -> bool:
    """Whether a layer without a partner is worth saying: containers are another nesting."""
    return event.kind is not None and event.kind.name not in ("Identity", "Flatten")


def _aligned(
    torch_events: list[Event],
    ms_events: list[Event],
    partners: Mapping[str, str],
    back: Mapping[str, str],
) -> list[Pair]:
    """The best common order: a table of scores, as in sequence alignment."""
    rows, columns = len(torch_events), len(ms_events)
    score = np.zeros((rows + 1, columns + 1), dtype=np.int64)
    worth = np.zeros((rows, columns), dtype=np.int64)
    for i in range(rows):
        for j in range(columns):
            worth[i, j] = _worth(torch_events[i], ms_events[j], partners, back)
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best = max(score[i + 1, j], score[i, j + 1])
            if worth[i, j]:
                best = max(best, score[i + 1, j + 1] + worth[i, j])
            score[i, j] = best
    pairs = []
    i = j = 0
    while i < rows and j < columns:
        if worth[i, j] and score[i, j] == score[i + 1, j + 1] + worth[i, j]:
            pairs.append(Pair(torch_events[i], ms_events[j]))
            i, j = i + 1, j + 1
        elif score[i, j] == score[i + 1, j]:
            i += 1
        else:
            j += 1
    return pairs


def _crossing(
    pairs: list[Pair],
    torch_events: list[Event],
    ms_events: list[Event],
    partners: Mapping[str, str],
) -> list[Pair]:
    """Add the calls that run in another order, such as a branch: those that share weights."""
    used = {id(event) for pair in pairs for event in (pair.torch, pair.mindspore)}
    spare: dict[str, list[Event]] = {}
    for event in ms_events:
        if id(event) not in used:
            spare.setdefault(event.owner, []).append(event)
    added = []
    for event in torch_events:
        there = partners.get(event.owner)
        if event.owner and there and id(event) not in used and spare.get(there):
            added.append(Pair(event, spare[there].pop(0)))
    place = {id(event): i for i, event in enumerate(torch_events)}
    return sorted(pairs + added, key=lambda pair: place[id(pair.torch)])


def _worth(here: Event, there: Event, partners: Mapping[str, str], back: Mapping[str, str]) -> int:
    """How much two calls look like one another; 0 where they cannot be the same."""
    if (here.owner == "") != (there.owner == ""):
        return 0
    same_name = here.name == there.name
    weighted = partners.get(here.owner)
    if weighted is None and there.owner in back:
        return 0
    if weighted is not None:
        if weighted != there.owner:
            return 0
        return 40 + 4 * (here.shapes == there.shapes)
    if (here.kind is None) != (there.kind is None):
        return 2 if same_name else 0
    if here.kind is not None and there.kind is not None:
        if here.kind is there.kind:
            return 10 + 4 * (here.shapes == there.shapes) + 2 * same_name
        return 2 if same_name else 0
    alike = here.type.casefold() == there.type.casefold()
    if here.shapes == there.shapes and (same_name or alike):
        return 3 + same_name + alike
    return 2 if same_name else 0


# Judging


@dataclass
class Noise:
    """PyTorch beside itself: what one ulp in weights and inputs changes, by the name of a call."""

    runs: list[dict[str, list[_Array]]]
    base: dict[str, list[_Array]]

    def scale(self, name: str, index: int, value: _Array) -> _Array | None:
        try:
            values = [run[name][index] for run in self.runs]
        except (KeyError, IndexError):
            return None
        return swing(value, values)


def swing(base: _Array, moved: Sequence[_Array]) -> _Array | None:
    """How far moved results are from the base, element by element but no less than their rms."""
    if base.dtype.kind not in "fc" or not base.size:
        return None
    with np.errstate(all="ignore"):
        gaps = [
            np.abs(value.astype(np.float64) - base.astype(np.float64))
            for value in moved
            if value.shape == base.shape
        ]
        if not gaps:
            return None
        gaps = [np.where(np.isfinite(gap), gap, 0.0) for gap in gaps]
        widest: _Array = np.max(gaps, axis=0)
        return np.maximum(widest, np.sqrt(np.mean(np.square(widest))))


def agree(
    ours: _Array, theirs: _Array, noise: _Array | None, *, floor: float = 0.0, times: float = NEAR
) -> Report:
    """Compare MindSpore's array with PyTorch's; ``noise`` is PyTorch's own drift.

    ``floor`` is a difference that is known and allowed.
    """
    if ours.shape != theirs.shape or theirs.dtype.kind not in "fc" or ours.dtype.kind not in "fc":
        return compare(ours, theirs, names=_NAMES, dtype_strict=False)
    scale: Any = limits.magnitude(ours, theirs)
    dtype = limits.coarser(str(ours.dtype), str(theirs.dtype))
    unit = float(limits.limit(dtype, 1))
    if noise is not None:
        scale = np.maximum(scale, times * noise / unit)
    if floor:
        scale = np.maximum(scale, floor / unit)
    return compare(ours, theirs, reduction=1, scale=scale, names=_NAMES, dtype_strict=False)


_NAMES = ("MindSpore", "PyTorch")


def drift(pair: Pair, noise: Noise, *, floor: float = 0.0) -> Report | None:
    """The comparison of one pair's outputs that is not ok, or None."""
    here, there = pair.torch.outputs, pair.mindspore.outputs
    if here is None or there is None:
        return None
    if len(here) != len(there):
        # such as the weights of an attention: what both return comes first
        here, there = here[: len(there)], there[: len(here)]
    for index, (theirs, ours) in enumerate(zip(here, there, strict=True)):
        report = agree(ours, theirs, noise.scale(pair.torch.name, index, theirs), floor=floor)
        if not report.ok:
            return report
    return None


def margin(pair: Pair, noise: Noise) -> float:
    """The worst difference of a pair in units of its limit."""
    worst = 0.0
    for index, (theirs, ours) in enumerate(
        zip(pair.torch.outputs or (), pair.mindspore.outputs or (), strict=False)
    ):
        report = agree(ours, theirs, noise.scale(pair.torch.name, index, theirs))
        for check in report:
            worst = max(worst, check.metrics.get("limits", 0.0))
    return worst


def feed_through(pair: Pair, noise: Noise, *, floor: float = 0.0) -> Report | Raised | None:
    """MindSpore's layer on PyTorch's input: the comparison of what it then returns.

    None where the inputs of the two calls are not of the same form, so that it cannot be tried.
    """
    here, there = _inputs(pair.torch.inputs), _inputs(pair.mindspore.inputs)
    if not here or len(here) > len(there) or pair.torch.outputs is None:
        return None
    if any(a.shape != b.shape for a, b in zip(here, there, strict=False)):
        return None
    fresh = iter(here)
    spare = iter(there[len(here) :])

    def fed(value: Any) -> Any:
        import mindspore as ms

        if isinstance(value, tuple):
            return tuple(fed(item) for item in value)
        if isinstance(value, np.ndarray):
            given = next(fresh, None)
            given = next(spare) if given is None else given
            return ms.Tensor(given.astype(value.dtype))
        return value

    output = attempt(pair.mindspore.layer, *(fed(value) for value in pair.mindspore.inputs))
    if isinstance(output, Raised):
        return output
    tensors = [leaf for leaf in map(_copy, _tensors(output)) if leaf is not None]
    again = Pair(pair.torch, Event("", pair.mindspore.layer, None, outputs=tensors))
    report = drift(again, noise, floor=floor)
    return Report("fed", [Check("fed", "ok")]) if report is None else report


def _inputs(values: Any) -> list[_Array]:
    found: list[_Array] = []
    for value in values:
        if isinstance(value, tuple):
            found += _inputs(value)
        elif isinstance(value, np.ndarray):
            found.append(value)
    return found


def unlike(event: Event, again: Record) -> bool:
    """Whether the same call, made again in training or evaluation, returned something far off."""
    other = next((found for found in again.events if found.name == event.name), None)
    if other is None or event.outputs is None or other.outputs is None:
        return False
    return any(
        a.shape == b.shape and not np.allclose(a, b, rtol=1e-3, atol=1e-6, equal_nan=True)
        for a, b in zip(event.outputs, other.outputs, strict=False)
    )


def known_error(pair: Pair) -> float:
    """How far MindSpore's tanh is off on this device, for layers that use it; otherwise 0.

    Measured on the spot: MindSpore 2.10 on CPU returns tanh 1e-4 off where its argument is near 5.
    """
    used = pair.torch.kind is not None and pair.torch.kind.name in _INEXACT
    if pair.torch.kind is not None and pair.torch.kind.name == "GELU":
        used = getattr(pair.torch.layer, "approximate", "none") == "tanh"
    return tanh_error() if used else 0.0


_measured: list[float] = []


def tanh_error() -> float:
    if not _measured:
        import mindspore as ms

        x = np.linspace(-10, 10, 4001, dtype=np.float32)
        got = ms.ops.tanh(ms.Tensor(x)).asnumpy().astype(np.float64)
        _measured.append(float(np.abs(got - np.tanh(x.astype(np.float64))).max()))
    return _measured[0]


def without_torch_dropout(net: Any) -> None:
    """Switch dropout off in a copy of a torch net."""
    for module in net.modules():
        if type(module).__name__.startswith(("Dropout", "AlphaDropout", "FeatureAlphaDropout")):
            module.eval()
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0


@contextmanager
def without_dropout(net: Any) -> Iterator[None]:
    """Switch dropout off in a Cell, whose flags the caller keeps."""
    held = []
    for cell in cells(net):
        if type(cell).__name__.startswith("Dropout"):
            cell.set_train(False)
        elif isinstance(getattr(cell, "dropout", None), float):
            held.append((cell, cell.dropout))
            cell.dropout = 0.0
    try:
        yield
    finally:
        for cell, probability in held:
            cell.dropout = probability


def comparable(pair: Pair) -> bool:
    """Whether two aligned calls are to return the same: not where one does more than the other."""
    fused = getattr(pair.mindspore.layer, "activation_flag", False)
    return pair.torch.kind is pair.mindspore.kind and not fused
