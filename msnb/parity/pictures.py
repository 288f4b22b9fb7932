"""A difference drawn: both arrays, and how far they are apart in units of the limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_LONGEST = 512  # pixels along an axis of one image
_TILES = 16
_NAN = "#d62ad0"


class Picture:
    """A subsampled copy of two arrays and their difference; ``draw()`` makes the figure.

    1-D arrays are drawn as lines, others as images of their last two axes: the axis before these
    is tiled, leading ones are held at the worst element. Long axes are thinned for the arrays; the
    difference keeps the largest value of each cell, so that a single element stays visible.
    """

    def __init__(
        self,
        path: str,
        actual: Any,
        expected: Any,
        found: Any,
        names: tuple[str, str],
    ) -> None:
        self.path, self.names, self.found = path, names, found
        lead = max(0, expected.ndim - 3)
        self.lead = found.worst[:lead]
        actual, expected, times = actual[self.lead], expected[self.lead], found.map[self.lead]
        self.tile_names: list[int] = []
        self.dropped = 0
        if expected.ndim == 3:
            keep = self.tile_names = _kept(expected.shape[0], found.worst[lead])
            self.dropped = expected.shape[0] - len(keep)
            chosen = slice(keep[0], keep[-1] + 1)
            actual, expected, times = actual[chosen], expected[chosen], times[chosen]
        self.exact = not found.limit
        dims = min(2, expected.ndim)
        self.steps = [
            max(1, math.ceil(size / (_LONGEST if dims == 2 else 4096)))
            for size in expected.shape[expected.ndim - dims :]
        ]
        self.actual = _thin(_real(actual), self.steps)
        self.expected = _thin(_real(expected), self.steps)
        self.times = _coarsen(times, self.steps)
        self.complex = bool(np.iscomplexobj(actual) or np.iscomplexobj(expected))

    def draw(self) -> Any:
        """The figure; it is not left open in pyplot."""
        import matplotlib.pyplot as plt

        figure = self._lines(plt) if self.actual.ndim == 1 else self._images(plt)
        plt.close(figure)
        return figure

    def _title(self) -> str:
        found = self.found
        parts = [self.path] if self.path else []
        parts.append(f"{found.count} of {found.size} off")
        if found.count and math.isfinite(found.times) and found.limit:
            parts.append(f"worst {found.times:.3g}x the limit at {list(found.worst)}")
        elif found.count:
            parts.append(f"worst at {list(found.worst)}")
        return ", ".join(parts)

    def _unit(self) -> str:
        return "|difference|" if self.exact else "|difference| / limit"

    def _lines(self, plt: Any) -> Any:
        figure, (top, low) = plt.subplots(
            2, 1, figsize=(8, 4.2), sharex=True, height_ratios=(3, 2), layout="constrained"
        )
        x = np.arange(self.actual.size) * self.steps[0]
        few = self.actual.size <= 64
        for values, name, style in (
            (self.expected, self.names[1], {"color": "0.6", "linewidth": 3}),
            (self.actual, self.names[0], {"color": "C0", "linewidth": 1.2}),
        ):
            top.plot(x, values, label=name, marker="." if few else None, **style)
        for values, name in ((self.actual, self.names[0]), (self.expected, self.names[1])):
            gone = ~np.isfinite(values)
            if gone.any():
                height = 0.03 if name == self.names[0] else 0.1
                top.plot(
                    x[gone],
                    np.full(int(gone.sum()), height),
                    "x",
                    color=_NAN,
                    transform=top.get_xaxis_transform(),
                    label=f"NaN or Inf in {name}",
                )
        top.legend(loc="best", fontsize=8)
        top.set_title(self._title(), fontsize=10)
        shown, ceiling = self._log()
        off = self.times > (0 if self.exact else 1)
        low.vlines(x, shown.min() / 2, shown, color=np.where(off, "C3", "0.7"), linewidth=1.5)
        low.plot(x[off], shown[off], ".", color="C3")
        low.set_yscale("log")
        low.set_ylim(shown.min() / 2, ceiling * 2)
        if not self.exact:
            low.axhline(1, color="k", linewidth=0.8, linestyle="--")
            low.text(
                0.995, 1, "limit", transform=low.get_yaxis_transform(), ha="right", va="bottom"
            )
        low.set_ylabel(self._unit(), fontsize=8)
        low.set_xlabel("index")
        return figure

    def _log(self) -> tuple[Any, float]:
        """The difference clipped to what a logarithmic scale can show, and the scale's end."""
        finite = self.times[np.isfinite(self.times)]
        top = max(float(finite.max(initial=0.0)), 10.0)
        return np.clip(np.nan_to_num(self.times, posinf=top), 1e-2, None), top

    def _images(self, plt: Any) -> Any:
        from matplotlib.colors import LogNorm

        images = [
            _tile(array, fill)
            for array, fill in (
                (self.actual, np.nan),
                (self.expected, np.nan),
                (self.times, -1.0),
            )
        ]
        height, width = images[0].shape
        ratio = min(max(height / width, 0.12), 3.0)
        figure, axes = plt.subplots(
            1, 3, figsize=(11, 1.6 + min(3.1 * ratio, 7.0)), layout="constrained"
        )
        both = np.concatenate([image[np.isfinite(image)] for image in images[:2]])
        low, high = (float(both.min()), float(both.max())) if both.size else (0.0, 1.0)
        colours = plt.get_cmap("viridis")
        signed = low < 0 < high
        if signed:
            high = max(-low, high)
            low = -high
            colours = plt.get_cmap("RdBu_r")
        aspect = "equal" if 0.12 <= height / width <= 3 else "auto"
        frame = self._frame(self.actual)
        for axis, image, name in zip(axes[:2], images[:2], self.names, strict=True):
            drawn = axis.imshow(
                image, vmin=low, vmax=high, cmap=colours, aspect=aspect, interpolation="nearest"
            )
            self._mark_nan(axis, image, frame)
            axis.set_title(f"|{name}|" if self.complex else name, fontsize=10)
        figure.colorbar(drawn, ax=list(axes[:2]), shrink=0.85, pad=0.01)
        shown, top = self._log()
        tiled = _tile(shown, np.nan)
        heat = plt.get_cmap("magma").with_extremes(bad="white")
        drawn = axes[2].imshow(
            tiled,
            norm=LogNorm(1e-2, max(top, 10.0)),
            cmap=heat,
            aspect=aspect,
            interpolation="nearest",
        )
        self._mark_nan(axes[2], np.where(np.isposinf(images[2]), np.nan, images[2]), frame)
        bar = figure.colorbar(drawn, ax=axes[2], shrink=0.85, pad=0.02)
        if not self.exact:
            bar.ax.axhline(1, color="cyan", linewidth=2)
            beyond = np.nan_to_num(images[2], posinf=top) > 1
            if beyond.any() and not beyond.all() and beyond.shape[0] > 1 and beyond.shape[1] > 1:
                _outline(axes[2], beyond)
        axes[2].set_title(self._unit() + ("" if self.exact else "; cyan: the limit"), fontsize=10)
        self._ticks(axes, frame)
        figure.suptitle(self._title() + self._layout(), fontsize=11)
        return figure

    def _layout(self) -> str:
        notes = []
        if self.lead:
            notes.append(f"shown: {list(self.lead)}")
        if self.tile_names:
            notes.append(f"tiles: the axis before the last two ({len(self.tile_names)}")
            notes[-1] += f" of {len(self.tile_names) + self.dropped})" if self.dropped else ")"
        if max(self.steps) > 1:
            notes.append(f"thinned by {' x '.join(map(str, self.steps))}")
        return "\n" + "; ".join(notes) if notes else ""

    def _frame(self, array: Any) -> Any:
        """Which pixels of the tiled image belong to a tile."""
        return _tile(np.ones(array.shape), 0.0) > 0

    def _mark_nan(self, axis: Any, image: Any, frame: Any) -> None:
        gone = ~np.isfinite(image) & frame
        if not gone.any():
            return
        overlay = np.zeros((*gone.shape, 4))
        overlay[gone] = (0.84, 0.16, 0.82, 1.0)
        axis.imshow(overlay, aspect=axis.get_aspect(), interpolation="nearest")
        axis.set_xlabel(f"pink: NaN or Inf ({int(gone.sum())})", color=_NAN, fontsize=9)

    def _ticks(self, axes: Any, frame: Any) -> None:
        for axis in axes:
            axis.set_xlim(-0.5, frame.shape[1] - 0.5)
            axis.set_ylim(frame.shape[0] - 0.5, -0.5)
            if self.tile_names:
                axis.set_xticks([])
                axis.set_yticks([])
                columns = _columns(len(self.tile_names))
                height, width = self.actual.shape[1] + 1, self.actual.shape[2] + 1
                for place, name in enumerate(self.tile_names):
                    row, column = divmod(place, columns)
                    axis.text(
                        column * width,
                        row * height,
                        str(name),
                        fontsize=7,
                        ha="left",
                        va="top",
                        bbox={"facecolor": "white", "alpha": 0.7, "pad": 0.6, "linewidth": 0},
                    )
            else:
                for steps, ticker in (
                    (self.steps[1], axis.xaxis),
                    (self.steps[0], axis.yaxis),
                ):
                    if steps > 1:
                        ticker.set_major_formatter(lambda x, _, step=steps: f"{x * step:.0f}")
                    ticker.get_major_locator().set_params(integer=True)


def _real(array: Any) -> Any:
    return np.abs(array) if np.iscomplexobj(array) else array


def _kept(count: int, worst: int) -> list[int]:
    if count <= _TILES:
        return list(range(count))
    start = min(max(0, worst - _TILES // 2), count - _TILES)
    return list(range(start, start + _TILES))


def _thin(array: Any, steps: list[int]) -> Any:
    slices = [slice(None)] * (array.ndim - len(steps)) + [slice(None, None, s) for s in steps]
    return np.array(array[tuple(slices)])


def _coarsen(array: Any, steps: list[int]) -> Any:
    """The largest value of each cell of ``steps``."""
    for axis, step in zip(range(array.ndim - len(steps), array.ndim), steps, strict=True):
        array = np.moveaxis(array, axis, 0)
        largest = np.array(array[::step])
        for offset in range(1, step):
            more = array[offset::step]
            np.maximum(largest[: len(more)], more, out=largest[: len(more)])
        array = np.moveaxis(largest, 0, axis)
    return array


def _columns(count: int) -> int:
    return math.ceil(math.sqrt(count))


def _tile(array: Any, fill: float) -> Any:
    """(tiles, height, width) side by side with a pixel between them; 2-D arrays as they are."""
    if array.ndim == 2:
        return array
    count, height, width = array.shape
    columns = _columns(count)
    rows = math.ceil(count / columns)
    sheet = np.full((rows * (height + 1) - 1, columns * (width + 1) - 1), fill)
    for place in range(count):
        row, column = divmod(place, columns)
        top, left = row * (height + 1), column * (width + 1)
        sheet[top : top + height, left : left + width] = array[place]
    return sheet


def _outline(axis: Any, mask: Any) -> None:
    """The edge of a region along its pixels."""
    from matplotlib.collections import LineCollection

    padded = np.pad(mask, 1)
    down, across = (
        np.argwhere(padded[1:, 1:-1] != padded[:-1, 1:-1]),
        np.argwhere(padded[1:-1, 1:] != padded[1:-1, :-1]),
    )
    if len(down) + len(across) > 4000:
        return
    lines = [((x - 0.5, y - 0.5), (x + 0.5, y - 0.5)) for y, x in down]
    lines += [((x - 0.5, y - 0.5), (x - 0.5, y + 0.5)) for y, x in across]
    axis.add_collection(LineCollection(lines, colors="cyan", linewidths=1.2))
