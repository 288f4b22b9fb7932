"""Solutions to the exercises of 02_lenet_port. Try them yourself first."""

from __future__ import annotations

from mindspore import nn, ops


# build_small
class Small(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, pad_mode="pad", padding=1, has_bias=True)
        self.norm = nn.BatchNorm2d(4, eps=1e-3, momentum=0.8)
        self.pool = nn.MaxPool2d(4, stride=4)
        self.head = nn.Dense(4 * 8 * 8, 10)

    def construct(self, x):
        x = ops.relu(self.norm(self.conv(x)))
        x = self.pool(x)
        return self.head(ops.flatten(x))


def build_small():
    return Small()


# find_planted
def find_planted():
    return {"layer": "act", "setting": "alpha", "value": 0.01}
