"""A probe over a grid of parameters, and the map of where both frameworks agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from msnb.parity.calls import attempt
from msnb.parity.judging import exceptions
from msnb.report import Check, Report

_Grid = Mapping[str, Sequence[Any]]

_MAPS = 4  # side by side

_LOOK = {  # status: level, sign, colour of the cell, of the sign, meaning
    "ok": (0, "=", "#cdebc5", "#1a7f37", "agree"),
    "skipped": (1, "–", "#eeeeee", "#57606a", "not tried"),
    "error": (2, "?", "#e6dcf5", "#6639ba", "undecided"),
    "failed": (3, "≠", "#f8c9bd", "#b3261e", "differ"),
}


def sweep_report(
    torch_fn: Callable[..., Any],
    ms_fn: Callable[..., Any],
    inputs: Any,
    grid: _Grid,
    probe_one: Callable[[Any, Any, Any], Report],
    title: str,
) -> Report:
    """One Check for each combination, the summary of a probe of what the functions make of it."""
    _check_grid(grid)
    checks = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        label = ", ".join(f"{name}={value}" for name, value in point.items())
        made = [attempt(make, **point) for make in (torch_fn, ms_fn)]
        refused = exceptions(label, *made)
        if refused is not None:
            checks.append(refused)
            continue
        for side, thing in zip(("torch_fn", "ms_fn"), made, strict=True):
            if not callable(thing):
                raise TypeError(
                    f"with a sweep {side}({label}) makes the thing to probe: a function, module "
                    f"or cell, not {type(thing).__name__}"
                )
        report = probe_one(made[0], made[1], inputs(**point) if callable(inputs) else inputs)
        bad = [check for check in report if check.status in ("failed", "error")]
        checks.append(
            Check(
                label,
                report.worst if bad else "ok",
                "; ".join(f"{check.id}: {check.summary}" for check in bad[:2])
                or f"{sum(map(bool, report))} checks agree",
                found=bad[0].found if bad else "",
                remedy=bad[0].remedy if bad else "",
            )
        )
    return Report(title, checks, plot=lambda: _draw_map(title, grid, checks))


def _check_grid(grid: _Grid) -> None:
    if not isinstance(grid, Mapping):
        raise TypeError(
            f"sweep maps each keyword to the values it takes, not {type(grid).__name__}: "
            'sweep={"stride": [1, 2]}'
        )
    if not grid:
        raise ValueError('an empty sweep probes nothing: give sweep={"stride": [1, 2]} or leave it')
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise TypeError(f"sweep: {name!r} takes a list of values, not {values!r}")
        if not values:
            raise ValueError(f"an empty sweep probes nothing: {name!r} has no values")
        if len({str(value) for value in values}) < len(values):
            raise ValueError(f"sweep: {name!r} has a value twice in {list(values)!r}")


def _draw_map(title: str, grid: _Grid, checks: list[Check]) -> Any:
    """A cell for each combination: the last name across, the others down.

    With three names or more each value of the first has a map of its own, side by side.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    names, values = list(grid), list(grid.values())
    apart = len(names) > 2 and len(values[0]) <= _MAPS
    panels = [f"{names[0]}={value}" for value in values[0]] if apart else [""]
    down = [
        ", ".join(f"{name}={value}" for name, value in zip(names[apart:-1], row, strict=True))
        for row in itertools.product(*values[apart:-1])
    ]
    across = [str(value) for value in values[-1]]
    levels = np.array([_LOOK[check.status][0] for check in checks])
    tables = levels.reshape(len(panels), len(down), len(across))
    looks = list(_LOOK.values())
    label = 0.085 * max(map(len, down))
    figure, row = plt.subplots(
        1,
        len(panels),
        sharey=True,
        squeeze=False,
        layout="constrained",
        figsize=(
            max(len(panels) * max(0.5 * len(across), 1.0), 1.6) + label + 1.4,
            0.3 * len(down) + 1.5,
        ),
    )
    for axes, table, panel in zip(row[0], tables, panels, strict=True):
        colours = ListedColormap([look[2] for look in looks])
        axes.imshow(table, cmap=colours, vmin=0, vmax=len(looks) - 1, aspect="auto")
        for (i, j), level in np.ndenumerate(table):
            axes.text(j, i, looks[level][1], ha="center", va="center", color=looks[level][3])
        axes.set_xticks(range(len(across)), across)
        axes.set_yticks(range(len(down)), down)
        axes.set_xlabel(names[-1])
        axes.set_title(panel, fontsize=10)
        axes.set_xticks(np.arange(-0.5, len(across)), minor=True)
        axes.set_yticks(np.arange(-0.5, len(down)), minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="both", length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    agree = int((levels == 0).sum())
    figure.suptitle(f"{title}\n{agree} of {levels.size} agree", fontsize=10, x=0.01, ha="left")
    figure.legend(
        handles=[
            Patch(facecolor=look[2], label=f"{look[1]}  {look[4]}")
            for look in looks
            if (levels == look[0]).any()
        ],
        loc="outside right upper",
        frameon=False,
        fontsize=9,
    )
    plt.close(figure)
    return figure
