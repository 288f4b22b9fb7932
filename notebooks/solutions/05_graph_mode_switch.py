"""Solutions to the exercises of 05_graph_mode_switch. Try them yourself first."""

from __future__ import annotations

from mindspore import ops

LIMITS = {"low": 0.0}


# rewritten
def clip_if_known(x):
    return ops.clamp(x, 0, LIMITS["high"]) if "high" in LIMITS else x


def normalise_float32(x):
    total = x.sum()
    scaled = x
    if total > 3:
        scaled = x / total
    return scaled


def powers_by_index(x):
    values = [x]
    for _ in range(2):
        values.append(values[-1] * x)
    return values[-1] + values[-2]


def rewritten():
    return {
        "clip_or_keep": clip_if_known,
        "normalise": normalise_float32,
        "powers": powers_by_index,
    }


# find_silent
def three_cured(x):
    masked = x * 2
    masked[0] = -1
    return masked


def find_silent():
    return {"name": "three", "cure": three_cured}
