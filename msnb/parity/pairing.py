"""Which weight of PyTorch is which of MindSpore.

Layers with equal names belong together. Where names differ, the order of definition decides, and
only where types and shapes agree one to one; whatever could be meant in two ways is reported.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msnb.parity.arrays import to_numpy
from msnb.parity.calls import kind
from msnb.parity.sides import (
    COUNT,
    IN_TORCH_TERMS,
    MS_KIND,
    NEUTRAL,
    Array,
    Layer,
    Side,
    Slot,
    equal,
    identity,
    joined,
    ms_side,
    torch_side,
)
from msnb.report import Check


@dataclass(frozen=True, eq=False)
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
    convert: Callable[[Array], Array]
    back: Callable[[Array], Array]
    trainable: tuple[bool | None, bool]


@dataclass(frozen=True, eq=False)
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
    return _Pairing(torch_side(torch_net), ms_side(ms_net)).run(dict(names or {}), _listed(skip))


class _Pairing:
    def __init__(self, torch: Side, ours: Side) -> None:
        self.torch, self.ours = torch, ours
        self.pairs: list[tuple[Layer, Layer]] = []
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
        self._report_hidden()
        self._align()
        return self._settle()

    def _skip(self, skip: list[str]) -> None:
        for name in skip:
            found = False
            for side, left in ((self.torch, self.dropped), (self.ours, self.kept)):
                for layer in side.layers:
                    for leaf, slot in list(layer.slots.items()):
                        if _below(slot.name, name) or _below(joined(layer.path, leaf), name):
                            del layer.slots[leaf]
                            left[slot.name] = "skipped, as asked"
                            found = True
                side.layers = [layer for layer in side.layers if layer.slots or layer.kind]
            self.ours.layers = [layer for layer in self.ours.layers if layer.slots]
            if not found:
                raise ValueError(f"skip: {name!r} is no layer or weight of either net")

    def _rename(self, names: dict[str, str]) -> None:
        """Put the layers that ``names`` maps under MindSpore's names."""
        for theirs, ours in sorted(names.items(), key=lambda item: -len(item[0])):
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
            free_torch, free_ours = self._left()
            moved = [t for t in moved if t in free_torch]
            below = {m.native[len(ours) :]: m for m in targets if m in free_ours}
            for layer in moved:
                rest = layer.path[len(theirs) :]
                only = next(iter(below.values())) if len(below) == len(moved) == 1 else None
                target = below.get(rest, only)
                if target is not None:
                    self._take([(layer, target)])
        if names:
            self.how.append(f"{len(self.pairs)} as names says")

    def _take(self, pairs: Iterable[tuple[Layer, Layer]]) -> None:
        self.pairs += pairs

    def _left(self) -> tuple[list[Layer], list[Layer]]:
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
        may_go = {
            id(t)
            for t in theirs
            if id(t) not in named and all(map(self._droppable, t.slots.values()))
        }
        t_left = [t for t in theirs if id(t) not in named and id(t) not in may_go]
        m_left = [m for m in ours if id(m) not in named and not _may_stay(m)]
        if not t_left and not m_left:
            self._take(by_name)
            self._say(len(by_name), "by name")
            return
        t_all = [t for t in theirs if t.shapes and id(t) not in may_go]
        m_all = [m for m in ours if not _may_stay(m) or id(m) in named]
        t_tied, m_tied = _tied_layers(t_all), _tied_layers(m_all)
        if len(t_tied) != len(m_tied):  # one side has a name more for a weight it has already
            tied = t_tied | m_tied
            t_all, m_all, t_left, m_left = (
                [layer for layer in layers if id(layer) not in tied]
                for layers in (t_all, m_all, t_left, m_left)
            )
            if not t_left and not m_left:
                self._take(by_name)
                self._say(len(by_name), "by name")
                return
        rest = _one_to_one(t_left, m_left)
        in_order = _one_to_one(t_all, m_all)
        if in_order is not None:
            pair_of = {id(t): m for t, m in in_order}
            crossed = [(t, m) for t, m in by_name if t.shapes and pair_of.get(id(t)) is not m]
            impossible = not any(_fits(t, m) for t, m in crossed)
            if crossed and (impossible or _counted_differently(crossed, t_all, m_all)):
                # equal by chance, or places in containers: 0, 2, 4 here and 0, 1, 2 there
                by_name, rest = [], in_order
            elif crossed and rest is not None:
                self._refuse([*crossed, *rest], "names and order of definition contradict")
                self._take(pair for pair in by_name if pair not in crossed)
                return
        elif (
            len(t_all) == len(m_all)
            and _counted_differently(by_name, t_all, m_all)
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

    def _by_name(self, theirs: list[Layer], ours: list[Layer]) -> list[tuple[Layer, Layer]]:
        """Layers whose names are equal, on one side or both after a prefix that all names have."""
        best: list[tuple[Layer, Layer]] = []
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

    def _without_conflict(self, pairs: list[tuple[Layer, Layer]]) -> list[tuple[Layer, Layer]]:
        """Order must not contradict the names: fc1, fc2 are not lin2, lin1."""
        groups: dict[Any, list[tuple[Layer, Layer]]] = defaultdict(list)
        for t, m in pairs:
            groups[(m.kind, t.shapes)].append((t, m))
        settled: dict[int, Layer] = {}
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

    def _by_shape(self, theirs: list[Layer], ours: list[Layer]) -> None:
        """What remains: layers whose type and shapes occur once, or whose last names agree."""
        groups: dict[Any, tuple[list[Layer], list[Layer]]] = defaultdict(lambda: ([], []))
        for t in theirs:
            groups[t.shapes][0].append(t)
        for m in ours:
            groups[m.shapes][1].append(m)
        found: list[tuple[Layer, Layer]] = []
        ambiguous: list[tuple[Layer, Layer]] = []
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

    def _by_parameters(self, theirs: list[Layer], ours: list[Layer]) -> bool:
        """A net written with functions on one side: parameter after parameter, in order."""
        t_slots = [s for t in theirs for s in t.slots.values() if s.leaf != COUNT]
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

    flat: Sequence[tuple[Slot, Slot]] = ()

    def _refuse(self, pairs: list[tuple[Layer, Layer]], why: str) -> None:
        theirs = ", ".join(t.path for t, _ in pairs[:6])
        ours = ", ".join(m.native for _, m in pairs[:6])
        self.ambiguous.update(id(layer) for both in pairs for layer in both)
        t, m = pairs[0]
        self.problems.append(
            Check(
                f"ambiguous: {t.path or 'the net'}",
                "failed",
                f"{why}: not guessed",
                found=f"PyTorch {theirs}; MindSpore {ours}",
                expected="names that say which is which",
                remedy=f'names={{"{t.path}": "{m.native}", ...}}, each layer with its own',
            )
        )

    def _describe(self, theirs: list[Layer], ours: list[Layer]) -> None:
        """Two nets that do not line up: how many layers, and where they part."""
        counts = [
            ", ".join(f"{n} {k or 'of its own'}" for k, n in Counter(kinds).most_common())
            for kinds in (
                [t.kind if t.kind is not None else "layers" for t in self.torch.layers if t.shapes],
                [m.kind for m in self.ours.layers],
            )
        ]
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

    def _say(self, count: int, how: str, pairs: Sequence[tuple[Layer, Layer]] = ()) -> None:
        if count:
            some = ", ".join(f"{t.path or '(net)'} -> {m.native or '(net)'}" for t, m in pairs[:4])
            more = ", ..." if len(pairs) > 4 else ""
            noun = "layer" if count == 1 else "layers"
            self.how.append(f"{count} {noun} {how}" + (f" ({some}{more})" if some else ""))

    # Parameters

    def _settle(self) -> Pairing:
        slots: list[tuple[Slot, Slot]] = list(self.flat)
        lost_torch: dict[str, Slot] = {}
        lost_ours: dict[str, Slot] = {}
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
            counts = [s for s in ts.layer.slots.values() if s.leaf == COUNT]
            lost_torch.update((s.name, s) for s in counts)
        matched = self._tied(slots, lost_torch, lost_ours)
        for name, slot in list(lost_torch.items()):
            reason = self._droppable(slot)
            if reason:
                self.dropped[name] = reason
                del lost_torch[name]
        self._report_lost(lost_torch, lost_ours, explained)
        self._aliases(matched)
        if not self.torch.live and self.how:
            self.how.append("types not compared: a state dict holds none")
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
        slots: list[tuple[Slot, Slot]],
        lost_torch: dict[str, Slot],
        lost_ours: dict[str, Slot],
    ) -> list[Match]:
        """One Match for each tensor of MindSpore; weights tied on one side only are a problem."""
        matched: list[Match] = []
        by_ours: dict[int, tuple[Slot, Slot]] = {}
        by_torch: dict[Any, Slot] = {}
        for ts, ms in slots:
            source = identity(ts.value)
            first = by_ours.get(id(ms.value))
            if first is not None:
                if identity(first[0].value) != source and (
                    self.torch.live or not equal(first[0].value, ts.value)
                ):
                    self._one_sided_tie("MindSpore", ms.name, first[1].name, "PyTorch")
                self.dropped.setdefault(ts.name, f"the same weight as {first[0].name}")
                self.kept.setdefault(ms.name, f"the same Parameter as {first[1].name}")
                continue
            other = by_torch.get(source)
            if other is not None:
                self._one_sided_tie("PyTorch", ts.name, other.name, "MindSpore", ms.name)
            by_torch.setdefault(source, ts)
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
            tied = by_torch.get(identity(slot.value))
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

    def _droppable(self, slot: Slot) -> str:
        if slot.leaf == COUNT:
            return "MindSpore keeps no count of batches"
        fixed = slot.role != "parameter" or not self.torch.live
        where = self._counterpart(slot) if fixed else None
        plain = getattr(where, slot.leaf, None) if where is not None else None
        if plain is not None and hasattr(plain, "shape") and kind(plain):
            return (
                "MindSpore holds it as a plain tensor of equal values"
                if equal(plain, slot.value)
                else ""
            )
        if slot.role == "temporary":
            return "a buffer that PyTorch does not save either (persistent=False)"
        return ""

    def _counterpart(self, slot: Slot) -> Any:
        for t, m in self.pairs:
            if t is slot.layer:
                return m.thing
        p, q = self.prefixes
        return self.ours.where.get(joined(q, _without(slot.layer.path, p)))

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

    def _kinds_differ(self, t: Layer, m: Layer) -> None:
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

    def _shapes_differ(self, t: Slot, m: Slot) -> None:
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
        self, torch: dict[str, Slot], ours: dict[str, Slot], explained: set[str]
    ) -> None:
        partner = {id(t): m for t, m in self.pairs} | {id(m): t for t, m in self.pairs}
        for side, lost, mark in (("PyTorch", torch, "t"), ("MindSpore", ours, "m")):
            groups: dict[int, list[Slot]] = defaultdict(list)
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


def _tied_layers(layers: list[Layer]) -> set[int]:
    """The layers all of whose weights an earlier layer has already."""
    known: set[Any] = set()
    found = set()
    for layer in layers:
        own = {identity(slot.value) for slot in layer.slots.values()}
        if own <= known:
            found.add(id(layer))
        known |= own
    return found


def _one_to_one(theirs: list[Layer], ours: list[Layer]) -> list[tuple[Layer, Layer]] | None:
    if len(theirs) != len(ours):
        return None
    pairs = list(zip(theirs, ours, strict=True))
    return pairs if all(_fits(t, m) for t, m in pairs) else None


def _fits(t: Layer, m: Layer) -> bool:
    if not _same_kind(t, m):
        return False
    both, t_rest, m_rest = _slots(t, m)
    return (
        bool(both)
        and all(ts.shape == ms.shape for ts, ms in both)
        and all(s.leaf == COUNT or s.role == "temporary" for s in t_rest)
        and all(_stays(s, t) for s in m_rest)
    )


def _akin(t: Layer, m: Layer) -> bool:
    """Near enough to say what differs between them, though not to copy."""
    both, _, _ = _slots(t, m)
    return (
        _same_kind(t, m)
        and bool(both)
        and (t.kind is not None or all(len(ts.shape) == len(ms.shape) for ts, ms in both))
    )


def _same_kind(t: Layer, m: Layer) -> bool:
    return not t.kind or not m.kind or t.kind == m.kind


def _slots(t: Layer, m: Layer) -> tuple[list[tuple[Slot, Slot]], list[Slot], list[Slot]]:
    """The weights of two layers: by name, then in a layer of the user's own by order and shape."""
    theirs, ours = dict(t.slots), dict(m.slots)
    pairs = []
    for leaf in list(theirs):
        if leaf in ours:
            pairs.append((theirs.pop(leaf), ours.pop(leaf)))
    if not m.kind:
        for leaf, slot in list(ours.items()):
            name = IN_TORCH_TERMS.get(leaf, "")
            if name in theirs:
                pairs.append((theirs.pop(name), slot))
                del ours[leaf]
    if not t.kind:  # some old files call LayerNorm's weights gamma and beta
        for leaf, slot in list(theirs.items()):
            name = IN_TORCH_TERMS.get(leaf, "")
            if name in ours:
                pairs.append((slot, ours.pop(name)))
                del theirs[leaf]
    if t.kind == "" or m.kind == "":
        left = [s for s in theirs.values() if s.leaf != COUNT]
        if [s.shape for s in left] == [s.shape for s in ours.values()]:
            pairs += zip(left, ours.values(), strict=True)
            theirs = {leaf: s for leaf, s in theirs.items() if s.leaf == COUNT}
            ours = {}
    return pairs, list(theirs.values()), list(ours.values())


def _in_torch_order(m: Layer) -> list[Slot]:
    """MindSpore's BatchNorm names its statistics first, PyTorch's last."""
    order = {leaf: i for i, leaf in enumerate(NEUTRAL)}
    if not set(m.slots) <= {*order, COUNT}:
        return list(m.slots.values())
    return sorted((s for s in m.slots.values() if s.leaf != COUNT), key=lambda s: order[s.leaf])


def _may_stay(m: Layer) -> bool:
    return all(_stays(slot, None) for slot in m.slots.values())


def _stays(slot: Slot, t: Layer | None) -> str:
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
    if slot.leaf in NEUTRAL and slot.trainable is False:
        values = to_numpy(slot.value)[0]
        if bool((values == NEUTRAL[slot.leaf]).all()):
            return f"frozen at {NEUTRAL[slot.leaf]:g}: the norm has no weights of its own"
    return ""


def _near_pairs(count: int, near: int) -> Iterator[tuple[int, int]]:
    """Places of layers close to each other: those far apart are not confused."""
    for i in range(count):
        for j in range(i + 1, min(i + near, count)):
            yield i, j


def _contradicts(group: list[tuple[Layer, Layer]]) -> bool:
    """Whether the names of layers of one type and shape speak for another order."""
    if len(group) < 2:
        return False
    theirs = [_key(t.path) for t, _ in group]
    ours = [_key(m.native) for _, m in group]
    for i, j in _near_pairs(len(group), 8):
        (a, x), (b, y) = theirs[i], theirs[j]
        (c, u), (d, v) = ours[i], ours[j]
        crossed = (a, x) == (d, v) or (b, y) == (c, u)
        if crossed and (a, x) != (c, u) and (a, x) != (b, y) and (c, u) != (d, v) and a:
            return True
        (t1, m1), (t2, m2) = group[i], group[j]
        if _counts_up(t1.path, t2.path) * _counts_up(m1.native, m2.native) < 0:
            return True
        if j == i + 1 and _likelier(t1.path, m1.path, t2.path, m2.path):
            return True
    return False


def _counts_up(first: str, second: str) -> int:
    """1 for names like fc1 and fc2, -1 for fc2 and fc1, 0 where they differ in more."""
    (a, x), (b, y) = _numbered(first), _numbered(second)
    return 0 if a != b or x is None or y is None else (x < y) - (x > y)


def _likelier(t1: str, m1: str, t2: str, m2: str) -> bool:
    """Whether names have more words in common crosswise: enc, dec and decoder, encoder."""
    straight = (_kinship(t1, m1), _kinship(t2, m2))
    across = (_kinship(t1, m2), _kinship(t2, m1))
    return min(across) > max(straight)


def _kinship(left: str, right: str) -> int:
    """How many words of two names are the same, or one the beginning of the other."""
    words = [re.findall(r"[a-z]+", name.lower()) for name in (left, right)]
    return sum(a.startswith(b) or b.startswith(a) for a in words[0] for b in words[1])


def _numbered(name: str) -> tuple[str, int | None]:
    """A name and the number at its end: fc and 1."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :]) if name != stem else None


def _key(path: str) -> tuple[str, int | None]:
    """The last word of a layer's name and its number."""
    return _numbered(path.rpartition(".")[2])


def _by_key(theirs: list[Layer], ours: list[Layer]) -> list[tuple[Layer, Layer]] | None:
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


def _counted_differently(
    pairs: list[tuple[Layer, Layer]], theirs: list[Layer], ours: list[Layer]
) -> bool:
    """Whether all these names come from containers that number their layers differently."""
    numbers = [_numbers([layer.path for layer in side]) for side in (theirs, ours)]
    return all(
        any(numbers[0][parent] != numbers[1][parent] for parent in _numbers([t.path]))
        for t, _ in pairs
    )


def _numbers(paths: list[str]) -> dict[str, set[str]]:
    """The numbers in use in each container."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        parts = path.split(".")
        for i, part in enumerate(parts):
            if part.isdigit():
                found[".".join(parts[:i])].add(part)
    return found


def _prefixes(layers: list[Layer]) -> list[str]:
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


def _listed(skip: str | Sequence[str]) -> list[str]:
    return [skip] if isinstance(skip, str) else list(skip)


# Words


def _reason(t: Slot, m: Slot) -> tuple[str, str]:
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


def _advice(side: str, layer: Layer, slots: list[Slot], other: Layer | None) -> str:
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
    return next((ours for ours, theirs in MS_KIND.items() if theirs == torch_kind), torch_kind)


def _shapes(layer: Layer) -> str:
    return ", ".join(str(slot.shape) for slot in layer.slots.values()) or "without weights"
