"""What StepGuard adds to a training step of LeNet: at the default settings under 5 %.

The step and the guard are timed in one and the same turn, so that a busy machine slows both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from benchmarks import Row

SHARE = 0.05
TURNS = 20


def rows() -> Iterator[Row]:
    import mindspore as ms
    from mindspore import nn

    from msnb import StepGuard, data, nets

    x, y = next(iter(data.digits(batch_size=32)))
    net = nets.LeNet.mindspore()
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
    loss_fn = nn.CrossEntropyLoss()

    def forward(x: ms.Tensor, y: ms.Tensor) -> tuple[ms.Tensor, ms.Tensor]:
        logits = net(x)
        return loss_fn(logits, y), logits

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    guards = {
        "": StepGuard(net, optimizer),
        ", every=10": StepGuard(net, optimizer, every=10),
    }
    for name, guard in guards.items():
        steps, own = [], []
        for turn in range(1 + TURNS):
            start = time.perf_counter()
            (loss, _), grads = grad_fn(x, y)
            optimizer(grads)
            for tensor in (loss, optimizer.global_step, *optimizer.parameters):
                tensor.asnumpy()  # the step has ended: what follows is the guard's own
            ended = time.perf_counter()
            guard.step(loss, grads)
            if turn:  # in the first one everything is made
                steps.append(ended - start)
                own.append(time.perf_counter() - ended)
        guard.report.require()
        yield Row(
            f"the guard's part of a step of LeNet{name}",
            tuple(own),
            tuple(steps),
            "the step itself",
            SHARE * median(steps),
        )
