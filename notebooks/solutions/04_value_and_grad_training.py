"""Solutions to the exercises of 04_value_and_grad_training. Try them yourself first."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops


# make_update
def make_update(net):
    group = [{"params": net.trainable_params()}]
    optimizer = nn.Momentum(group, learning_rate=0.1, momentum=0.9, weight_decay=0.1)

    def forward_fn(x, y):
        return ops.cross_entropy(net(x), y)

    grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters)

    def update(parts):
        every = [grad_fn(x, y)[1] for x, y in parts]
        mean = [sum(grads[1:], grads[0]) / len(parts) for grads in zip(*every, strict=True)]
        optimizer(ops.clip_by_global_norm(tuple(mean), 2.5))

    return update


# find_faults
def find_faults():
    return [5, 8]
