"""Weights from PyTorch to MindSpore: every name accounted for, and copied or not as a whole."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msnb.parity.arrays import to_numpy
from msnb.parity.calls import write
from msnb.parity.pairing import Match, Pairing, pair
from msnb.parity.sides import Array, equal
from msnb.report import Check, Report

__all__ = ["Match", "Pairing", "copy_weights", "pair"]

_ROWS = 20  # problems with a row of their own


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
        Check("values", "failed", "nothing was copied: it is all or nothing", remedy="see above")
        if outcome is None
        else outcome
    )
    return Report("copy_weights", checks)


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
    array: Array  # in MindSpore's layout, holding exactly what shall be there
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
            same = equal(wanted, match.convert(array))
            (lossless if same else rounded)[cast] += 1
            if not same:
                finite = np.isfinite(array.astype(np.float64))
                target = match.back(wanted).astype(np.float64)
                if not array.dtype.kind == wanted.dtype.kind == "f" or bool(
                    (finite & ~np.isfinite(target)).any()
                ):
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


def _cast(array: Array, dtype: str) -> Array:
    """What an array becomes in a dtype; bfloat16, which NumPy lacks, as float32."""
    if dtype == "bfloat16":
        import torch

        rounded = torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
        return np.asarray(rounded.float().numpy()).reshape(array.shape)
    cast: Array = array.astype(dtype).reshape(array.shape)
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
        lost = [plan.match.ms_name for plan, array in before if not _restored(plan, array)]
        after = f"not put back: {', '.join(lost[:6])}" if lost else "all put back as it was"
        return Check(
            "values",
            "error",
            f"not written, or not what was read back: {', '.join(wrong[:6])}; {after}",
            metrics={"wrong": len(wrong), "lost": len(lost)},
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


def _restored(plan: _Plan, array: Array) -> bool:
    try:
        if to_numpy(plan.match.target)[0].tobytes() != array.tobytes():
            _set(plan.match.target, array, plan.dtype)
        return bool(to_numpy(plan.match.target)[0].tobytes() == array.tobytes())
    except Exception:  # whatever failed while writing may fail again; the row says so
        return False


def _set(target: Any, array: Array, dtype: Any) -> None:
    import mindspore as ms

    if isinstance(target, ms.Parameter):
        write(target, array)
    else:
        target.assign_value(ms.Tensor(np.array(array, order="C"), dtype))
