"""What StepGuard adds to a training step of LeNet: at the default settings under 5 %."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from statistics import median

from benchmarks import Row, in_turns

SHARE = 0.05


def rows() -> Iterator[Row]:
    os.environ.setdefault("GLOG_v", "4")
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
    last: list[object] = []

    def bare() -> None:
        (loss, _), grads = grad_fn(x, y)
        optimizer(grads)
        loss.asnumpy()
        last[:] = [loss, grads]

    for name, guard in guards.items():
        bare()
        guard.step(*last)

        own: list[float] = []

        def judged(guard: StepGuard = guard, own: list[float] = own) -> None:
            bare()
            optimizer.global_step.asnumpy()
            net.fc1.weight.asnumpy()  # the step has ended: what follows is the guard's own
            start = time.perf_counter()
            guard.step(*last)
            own.append(time.perf_counter() - start)

        whole, plain = in_turns(judged, bare, turns=20)
        guard.report.require()
        yield Row(f"a step of LeNet with a guard{name}", whole, plain, "the step alone")
        yield Row(
            f"of it the guard{name}",
            tuple(own[1:]),
            plain,
            "the step alone",
            SHARE * median(plain),
        )
