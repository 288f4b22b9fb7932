"""Solutions to the exercises of 03_padding_probes. Try them yourself first."""

from __future__ import annotations

from mindspore import nn


# build_down
def build_down():
    return nn.Conv2d(2, 3, 5, stride=2, pad_mode="pad", padding=2, has_bias=True)


# find_border
def find_border():
    return {"top": 1, "bottom": 1, "left": 2, "right": 0}


# choose_limit
def choose_limit():
    return {"limit": 1.7e-5, "over_noise": 4.9, "under_fault": 5.9, "grows": "sqrt(n)"}
