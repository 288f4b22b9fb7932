"""StepGuard: broken training loops are caught with their cause, healthy ones raise no alarm."""

from __future__ import annotations

import json
import pickle

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, amp, nn, ops
from mindspore.experimental import optim

import msnb.guard
from msnb.guard import StepGuard, TrainingStopped
from msnb.log import TrainLog
from msnb.report import ReportFailed

CE = nn.CrossEntropyLoss()
RNG = np.random.default_rng(0)
X = Tensor(RNG.standard_normal((12, 6)).astype(np.float32))
Y = Tensor((np.arange(12) % 3).astype(np.int32))
BATCHES = [
    (
        Tensor(np.random.default_rng(i).standard_normal((12, 6)).astype(np.float32)),
        Tensor(np.random.default_rng(i).integers(0, 3, 12).astype(np.int32)),
    )
    for i in range(8)
]


class Net(nn.Cell):
    """6 -> 8 -> 3, with an optional cell between."""

    def __init__(self, middle=None, width=8, out=3, seed=0):
        super().__init__()
        rng = np.random.default_rng(seed)

        def dense(a, b):
            weight = Tensor((rng.standard_normal((b, a)) / np.sqrt(a)).astype(np.float32))
            return nn.Dense(a, b, weight_init=weight, bias_init=Tensor(np.full(b, 0.1, np.float32)))

        self.fc1 = dense(6, width)
        self.middle = middle if middle is not None else nn.Tanh()
        self.fc2 = dense(width, out)
        self.set_train()

    def construct(self, x):
        return self.fc2(self.middle(self.fc1(x)))


def train(
    net=None,
    optimizer=None,
    *,
    steps=2,
    forward=None,
    weights=None,
    has_aux=True,
    batches=None,
    update=None,
    change=None,
    verify=False,
    **guard_arguments,
):
    """The loop of the documentation; each argument is a place where it can be broken."""
    net = net or Net()
    optimizer = optimizer or nn.SGD(net.trainable_params(), 0.05)

    def right(x, y):
        logits = net(x)
        return CE(logits, y), logits

    forward = forward(net) if forward else right
    weights = optimizer.parameters if weights is None else weights
    grad_fn = ms.value_and_grad(forward, None, weights, has_aux=has_aux)
    guard = StepGuard(net, optimizer, forward=forward if verify else None, **guard_arguments)
    for number in range(steps):
        x, y = (batches or BATCHES)[number % len(batches or BATCHES)]
        result, grads = grad_fn(x, y)
        loss = result[0] if isinstance(result, tuple) else result
        if change:
            grads = change(number, grads)
        (update or (lambda number, optimizer, grads: optimizer(grads)))(number, optimizer, grads)
        guard.step(loss, grads, batch=(x, y))
    return guard


# Broken loops: what is caught, in which step, with which words


def log_of_zero(net):
    def forward(x, y):
        logits = net(x)
        return ops.log(ops.relu(-ops.abs(logits))).mean(), logits

    return forward


def log_of_negative(net):
    def forward(x, y):
        logits = net(x)
        return ops.log(-ops.abs(logits)).mean(), logits

    return forward


def root_of_zero(net):
    def forward(x, y):
        logits = net(x)
        return ops.sqrt(ops.square(logits * 0.0)).sum() + CE(logits, y), logits

    return forward


def half_overflow(net):
    def forward(x, y):
        logits = net(x).astype(ms.float16)
        return ops.square(logits * 1000).mean(), logits

    return forward


def through_numpy(net):
    def forward(x, y):
        logits = net(x)
        return CE(Tensor(logits.asnumpy()), y), logits

    return forward


def through_argmax(net):
    def forward(x, y):
        logits = net(x)
        return (logits.argmax(1).astype(ms.float32) - y.astype(ms.float32)).abs().mean(), logits

    return forward


def half_underflow(net):
    def forward(x, y):
        logits = net(x * 1e-3).astype(ms.float16)
        small = (logits * Tensor(1e-4, ms.float16)).astype(ms.float16)
        return ops.square(small).mean().astype(ms.float32) + 1.0, logits

    return forward


def cut_halfway(net):
    def forward(x, y):
        hidden = ops.stop_gradient(net.middle(net.fc1(x)))
        logits = net.fc2(hidden)
        return CE(logits, y), logits

    return forward


def cut_on_one_branch(net):
    def forward(x, y):
        hidden = net.middle(net.fc1(x))
        logits = net.fc2(hidden) + 4 * net.fc2(ops.stop_gradient(-hidden))
        return CE(logits, y), logits

    return forward


def mint_optimizer(name):
    net = Net()
    return train(net, getattr(ms.mint.optim, name)(net.trainable_params(), lr=0.1))


def two_groups(order_given):
    net = Net(out=8, width=8)  # fc1.bias and fc2.bias have one shape
    a, b = net.fc1, net.fc2
    optimizer = nn.SGD(
        [
            {"params": [b.bias]},
            {"params": [a.weight]},
            {"params": [b.weight]},
            {"params": [a.bias]},
        ],
        0.05,
    )
    weights = ms.ParameterTuple([a.bias, a.weight, b.weight, b.bias])
    if order_given:
        return train(net, optimizer, weights=weights, params=weights)
    return train(net, optimizer, weights=weights, verify=True)


def replaced_head():
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    net.fc2 = nn.Dense(8, 3)
    return train(net, optimizer)


def frozen_late(momentum):
    net = Net()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9, weight_decay=0.01)
    net.fc1.weight.requires_grad = False
    return train(net, optimizer)


def overwritten():
    net = Net()
    net.spare = Parameter(Tensor(np.ones(3, np.float32)), name="spare")

    def update(number, optimizer, grads):
        optimizer(grads)
        net.spare.set_data(net.spare + 1)

    return train(net, update=update)


def stale_gradients():
    kept = []

    def change(number, grads):
        kept.append(grads)
        return kept[0]

    return train(steps=6, change=change, constant=4)


def traced():
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)

    def forward(x, y):
        return CE(net(x), y)

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)
    first = grad_fn(*BATCHES[0])
    guard = StepGuard(net, optimizer, constant=4)
    for x, y in BATCHES[:6]:
        loss, grads = first  # what a frozen function gives
        del x, y
        guard.step(loss, grads)
    return guard


def diverging():
    def forward(net):
        def inner(x, y):
            logits = net(x)
            return ops.square(logits - 1).mean(), logits

        return inner

    net = Net(middle=nn.Identity())
    return train(net, nn.SGD(net.trainable_params(), 4.0), steps=8, forward=forward)


def diverging_later():
    net = Net(middle=nn.Identity())
    rates = [0.001] * 8 + [60.0] * 4

    def forward(net):
        def inner(x, y):
            logits = net(x)
            return ops.square(logits - 1).mean(), logits

        return inner

    return train(net, nn.SGD(net.trainable_params(), rates), steps=11, forward=forward)


def evaluation_in_between():
    net = Net(nn.BatchNorm1d(8))
    optimizer = nn.SGD(net.trainable_params(), 0.05)

    def update(number, optimizer, grads):
        optimizer(grads)
        if number == 1:
            net.set_train(False)

    return train(net, optimizer, steps=3, update=update)


def never_in_training():
    net = Net(nn.Dropout(p=0.5))
    net.set_train(False)
    return train(net)


def one_group_at_rate(rate):
    net = Net()
    return train(
        net,
        nn.SGD(
            [{"params": [net.fc1.weight, net.fc1.bias], "lr": rate}, {"params": [net.fc2.weight]}],
            0.05,
        ),
    )


def copied_parameter():
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    before = net.fc1.weight.asnumpy().copy()

    def update(number, optimizer, grads):
        optimizer(grads)
        net.fc1.weight.set_data(Tensor(before))  # as a target net that is copied back would

    return train(net, optimizer, update=update)


def loaded_again():
    net = Net()
    best = {}

    def update(number, optimizer, grads):
        optimizer(grads)
        if number == 0:
            for p in net.get_parameters():
                best[p.name] = Parameter(Tensor(p.asnumpy().copy()), name=p.name)
        if number == 2:
            ms.load_param_into_net(net, best)

    return train(net, steps=4, update=update)


def uphill():
    net = Net()
    return train(net, optim.SGD(net.trainable_params(), lr=0.05, maximize=True))


def unscaled():
    return train(verify=True, change=lambda number, grads: tuple(g * 1024 for g in grads))


def summed():
    return train(verify=True, change=lambda number, grads: tuple(g * 4 for g in grads))


def ended_schedule():
    net = Net()
    return train(net, nn.SGD(net.trainable_params(), [0.05] + [0.0] * 5), steps=6, constant=3)


def scaler_that_cannot_help():
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    guard = StepGuard(net, optimizer, max_skips=5)
    scaler = amp.DynamicLossScaler(2**10, 2, 50)

    def forward(x, y):
        loss = ops.square(net(x).astype(ms.float16) * 4000).mean()
        return scaler.scale(loss.astype(ms.float32)), loss

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    for x, y in BATCHES[:6]:
        (_, loss), grads = grad_fn(x, y)
        grads = scaler.unscale(grads)
        good = amp.all_finite(grads)
        if good:
            optimizer(grads)
        scaler.adjust(good)
        guard.step(1.0 if np.isinf(loss.asnumpy()) else loss, grads)
    return guard


def poisoned_weights():
    def update(number, optimizer, grads):
        optimizer(grads)
        if number == 1:
            weight = optimizer.parameters[2]
            weight.set_data(Tensor(np.full(weight.shape, np.nan, np.float32)))

    return train(update=update)


def nan_gradient_applied():
    def change(number, grads):
        return (grads[0] * np.float32(np.nan), *grads[1:]) if number == 1 else grads

    return train(change=change)


def nan_at_the_start():
    net = Net()
    net.fc2.bias.set_data(Tensor(np.full(3, np.nan, np.float32)))
    return StepGuard(net, nn.SGD(net.trainable_params(), 0.05))


def dead_net():
    net = Net(nn.ReLU())

    def forward(net):
        def inner(x, y):
            logits = ops.relu(net(x))
            return ops.square(logits - 1).mean(), logits

        return inner

    def update(number, optimizer, grads):
        optimizer(grads)
        net.fc2.bias.set_data(net.fc2.bias - 1e3)

    return train(net, forward=forward, update=update, steps=3)


def foreign_gradients():
    """The other net has its own optimizer; this one's gradients are of the wrong net."""
    return train(weights=ms.ParameterTuple(Net(seed=1).trainable_params()), change=None)


def foreign_optimizer():
    other = Net(seed=1)
    return train(Net(), nn.SGD(other.trainable_params(), 0.05))


def foreign_weights():
    other = Net(seed=1)
    return train(params=other.trainable_params(), weights=ms.ParameterTuple(other.get_parameters()))


BROKEN = {
    "log of 0": (lambda: train(forward=log_of_zero), "loss", 1, "log(0)"),
    "log of a negative": (lambda: train(forward=log_of_negative), "loss", 1, "log(0)"),
    "root of 0": (lambda: train(forward=root_of_zero), "gradients", 1, "at 0 of sqrt"),
    "float16 overflow": (
        lambda: train(Net().to_float(ms.float16), forward=half_overflow),
        "loss",
        1,
        "65504",
    ),
    "float16 underflow": (
        lambda: train(Net().to_float(ms.float16), forward=half_underflow),
        "zero gradients",
        1,
        "underflow",
    ),
    "NaN in the batch": (
        lambda: train(batches=[(X, Y), (X * float("nan"), Y)]),
        "loss",
        2,
        "in the batch: in its part 0",
    ),
    "NaN gradient applied": (nan_gradient_applied, "gradients", 2, "derivative at 0"),
    "NaN weights written": (poisoned_weights, "weights", 2, "something else wrote them"),
    "NaN weights from the start": (nan_at_the_start, "weights", 0, "had diverged"),
    "loss through NumPy": (lambda: train(forward=through_numpy), "zero gradients", 1, "asnumpy"),
    "loss through argmax": (lambda: train(forward=through_argmax), "zero gradients", 1, "argmax"),
    "another net's parameters to value_and_grad": (
        foreign_gradients,
        "zero gradients",
        1,
        "another net's parameters",
    ),
    "the same, told to the guard": (foreign_weights, "order", 1, "other parameters than"),
    "optimizer of another net": (foreign_optimizer, "parameters", 1, "another net"),
    "head replaced after the optimizer": (replaced_head, "parameters", 1, "was replaced"),
    "dead net": (dead_net, "zero gradients", 2, "dead"),
    "has_aux forgotten": (
        lambda: train(has_aux=False, verify=True),
        "derivative",
        1,
        "has_aux=True was forgotten",
    ),
    "cut halfway": (lambda: train(forward=cut_halfway, verify=True), "derivative", 1, "is cut"),
    "cut on one branch": (
        lambda: train(forward=cut_on_one_branch, verify=True),
        "derivative",
        1,
        "cut on part of the way",
    ),
    "scale left in": (unscaled, "derivative", 1, "1024 times too large"),
    "accumulation that sums": (summed, "derivative", 1, "4 times too large"),
    "mint.optim.SGD": (lambda: mint_optimizer("SGD"), "movement", 1, "mint.optim.SGD"),
    "mint.optim.Adam": (lambda: mint_optimizer("Adam"), "movement", 1, "mint.optim.Adam"),
    "optimizer never called": (
        lambda: train(update=lambda *_: None),
        "movement",
        1,
        "global_step stayed at 0",
    ),
    "schedule ended": (ended_schedule, "movement", 4, "schedule has ended"),
    "one parameter written back by set_data": (copied_parameter, "movement", 1, "set_data"),
    "the best weights loaded again": (loaded_again, "movement", 4, "load_param_into_net"),
    "groups in another order, told": (lambda: two_groups(True), "order", 1, "another order"),
    "groups in another order, measured": (
        lambda: two_groups(False),
        "derivative",
        1,
        "another order",
    ),
    "frozen after the optimizer": (
        lambda: frozen_late(0.9),
        "foreign movement",
        1,
        "frozen after the optimizer was made",
    ),
    "a spare parameter is written": (overwritten, "foreign movement", 1, "something else"),
    "gradients negated": (
        lambda: train(verify=True, change=lambda number, grads: tuple(-g for g in grads)),
        "derivative",
        1,
        "wrong sign",
    ),
    "maximize=True": (uphill, "descent", 1, "wrong sign"),
    "rate too high at once": (diverging, "loss", 5, "learning rate is too high"),
    "rate too high later": (diverging_later, "norm", 10, "learning rate is too high"),
    "gradients computed once": (stale_gradients, "stale", 4, "outside the loop"),
    "frozen by tracing": (traced, "constant", 4, "freezes the first call"),
    "never in training mode": (never_in_training, "training", 1, "starts in evaluation mode"),
    "left in evaluation mode": (evaluation_in_between, "training", 2, "switched it off"),
    "overflow without end": (scaler_that_cannot_help, "overflow", 5, "forward pass itself"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_loop_is_caught(name, capsys):
    loop, kind, step, cause = BROKEN[name]
    guard = loop()
    check = guard.report[kind]
    print(guard.report)
    assert check.status == "failed", guard.report
    assert cause in check.found
    assert check.remedy
    assert check.metrics["step"] == step
    assert not guard.report.ok
    out = capsys.readouterr().out
    assert check.summary in out
    assert check.remedy in out


# Healthy loops: no alarm


def healthy(name):
    def decorate(function):
        HEALTHY[name] = function
        return function

    return decorate


HEALTHY = {}
for optimizer_name, make in {
    "SGD": lambda p: nn.SGD(p, 0.05),
    "SGD with Nesterov": lambda p: nn.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "Momentum": lambda p: nn.Momentum(p, 0.05, 0.9),
    "Adam": lambda p: nn.Adam(p, 0.01),
    "Adam, decay": lambda p: nn.Adam(p, 0.01, weight_decay=0.01),
    "AdamWeightDecay": lambda p: nn.AdamWeightDecay(p, 0.01, weight_decay=0.01),
    "RMSProp": lambda p: nn.RMSProp(p, 0.01),
    "experimental AdamW": lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.01),
    "experimental SGD": lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
}.items():

    @healthy(optimizer_name)
    def plain(make=make):
        net = Net()
        return train(net, make(net.trainable_params()), steps=4, verify=True)


@healthy("frozen layer, made before the optimizer")
def frozen():
    net = Net()
    net.fc1.weight.requires_grad = net.fc1.bias.requires_grad = False
    return train(net, steps=4, verify=True)


@healthy("only the head is optimized")
def head_only():
    net = Net()
    return train(net, nn.SGD(net.fc2.trainable_params(), 0.05), steps=4, verify=True)


@healthy("embedding whose rows are rarely used")
def embedding():
    class Words(nn.Cell):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(200, 6)
            self.net = Net()

        def construct(self, words):
            return self.net(self.table(words))

    words = [(Tensor(np.arange(12) + i, ms.int32), Y) for i in range(4)]
    return train(Words().set_train(), steps=4, batches=words, verify=True)


@healthy("dropout")
def dropout():
    return train(Net(nn.Dropout(p=0.5)), steps=8)


@healthy("batch normalisation")
def batch_norm():
    return train(Net(nn.BatchNorm1d(8)), steps=8, verify=True)


@healthy("batch normalisation kept in evaluation mode")
def frozen_batch_norm():
    net = Net(nn.BatchNorm1d(8))
    net.middle.set_train(False)
    return train(net, steps=4)


@healthy("warm-up from rate 0")
def warm_up():
    net = Net()
    return train(net, nn.SGD(net.trainable_params(), [0.0, 0.0, 0.01, 0.02, 0.03]), steps=5)


@healthy("warm-up from rate 0, experimental")
def warm_up_experimental():
    net = Net()
    optimizer = optim.SGD(net.trainable_params(), lr=0.05)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.1 * epoch)

    def update(number, optimizer, grads):
        optimizer(grads)
        scheduler.step()

    return train(net, optimizer, update=update, steps=4)


@healthy("rate too small for float32")
def tiny_rate():
    net = Net()
    return train(net, nn.SGD(net.trainable_params(), 1e-12), steps=8)


@healthy("rate too small for float32, Adam")
def tiny_rate_adam():
    net = Net()
    return train(net, nn.Adam(net.trainable_params(), 1e-12), steps=4)


@healthy("decay of a parameter that is not used")
def decay_of_unused():
    net = Net()
    net.spare = Parameter(Tensor(np.ones(3, np.float32)), name="spare")
    return train(net, nn.Momentum(net.trainable_params(), 0.05, 0.9, weight_decay=0.1), steps=4)


@healthy("decay of a parameter that is not used, Adam")
def decay_of_unused_adam():
    net = Net()
    net.spare = Parameter(Tensor(np.array([1.0, -2.0, 0.0], np.float32)), name="spare")
    return train(net, nn.Adam(net.trainable_params(), 0.01, weight_decay=0.1), steps=4)


@healthy("a parameter that is not used")
def unused():
    net = Net()
    net.spare = Parameter(Tensor(np.ones(3, np.float32)), name="spare")
    return train(net, steps=4, verify=True)


@healthy("a parameter used in the first steps only")
def used_at_first():
    net = Net()

    def change(number, grads):
        return grads if number < 2 else (ops.zeros_like(grads[0]), *grads[1:])

    return train(net, nn.Momentum(net.trainable_params(), 0.05, 0.9), steps=5, change=change)


@healthy("one group at rate 0")
def group_at_zero():
    net = Net()
    groups = [{"params": [net.fc1.weight], "lr": 0.0}, {"params": [net.fc1.bias, net.fc2.weight]}]
    return train(net, nn.SGD(groups, 0.05), steps=4)


@healthy("groups in their own order, gradients in the optimizer's")
def groups():
    net = Net()
    parts = [{"params": [net.fc2.weight, net.fc1.bias]}, {"params": [net.fc1.weight]}]
    return train(net, nn.SGD(parts, 0.05), steps=4, verify=True)


@healthy("gradients accumulated over four calls")
def accumulated():
    held = []

    def update(number, optimizer, grads):
        held.append(grads)
        if len(held) == 4:
            optimizer(tuple(sum(parts) / 4 for parts in zip(*held, strict=True)))
            held.clear()

    return train(steps=12, update=update, accumulate=4)


@healthy("overflow steps skipped by a DynamicLossScaler")
def skipped_overflow():
    net = Net().to_float(ms.float16)
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    guard = StepGuard(net, optimizer)
    scaler = amp.DynamicLossScaler(2.0**24, 2, 3)

    def forward(x, y):
        loss = CE(net(x).astype(ms.float32), y)
        return scaler.scale(loss), loss

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    taken = 0
    for number in range(16):
        (_, loss), grads = grad_fn(*BATCHES[number % 8])
        grads = scaler.unscale(grads)
        good = amp.all_finite(grads)
        if good:
            optimizer(grads)
        taken += bool(good)
        scaler.adjust(good)
        guard.step(loss, grads)
    assert 0 < taken < 16
    assert guard.report["overflow"].summary.endswith(f"{16 - taken} skipped")
    return guard


@healthy("clipped gradients")
def clipped():
    return train(
        steps=4, change=lambda n, grads: ops.clip_by_global_norm(grads, 0.01), explosion=10
    )


@healthy("mixed precision O2")
def mixed():
    net = amp.auto_mixed_precision(Net(), "O2")
    return train(net.set_train(), steps=4, verify=True)


@healthy("a loss of 0")
def zero_loss():
    def forward(net):
        def inner(x, y):
            logits = net(x)
            return ops.relu(logits - 100.0).mean(), logits

        return inner

    return train(steps=6, forward=forward, constant=3)


@healthy("looked at in every third step")
def sampled():
    net = Net()
    return train(net, nn.Momentum(net.trainable_params(), 0.05, 0.9), steps=8, every=3)


@healthy("a whole step compiled")
def compiled():
    net = Net()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)

    def forward(x, y):
        logits = net(x)
        return CE(logits, y), logits

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)

    @ms.jit
    def step(x, y):
        (loss, _), grads = grad_fn(x, y)
        optimizer(grads)
        return loss, grads

    guard = StepGuard(net, optimizer, forward=forward)
    for x, y in BATCHES[:4]:
        loss, grads = step(x, y)
        guard.step(loss, grads, batch=(x, y))
    return guard


@healthy("sparse gradients of an embedding, compiled")
def sparse():
    class Words(nn.Cell):
        def __init__(self):
            super().__init__()
            self.table = nn.EmbeddingLookup(50, 6, sparse=True, target="CPU")
            self.net = Net()

        def construct(self, words):
            return self.net(self.table(words))

    net = Words().set_train()
    optimizer = nn.Adam(net.trainable_params(), 0.01)

    def forward(words, y):
        return CE(net(words), y)

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)

    @ms.jit
    def step(words, y):
        loss, grads = grad_fn(words, y)
        optimizer(grads)
        return loss, grads

    guard = StepGuard(net, optimizer, forward=forward)
    for i in range(3):
        words = Tensor(np.arange(12) % 5 + i, ms.int32)
        loss, grads = step(words, Y)
        assert isinstance(grads[0], tuple)  # (indices, values, shape)
        guard.step(loss, grads, batch=(words, Y))
    return guard


SLOW = {"SGD with Nesterov", "Momentum", "Adam, decay", "AdamWeightDecay", "RMSProp"} | {
    "experimental SGD",
    "rate too small for float32, Adam",
    "decay of a parameter that is not used",
    "groups in their own order, gradients in the optimizer's",
    "mixed precision O2",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in HEALTHY],
)
def test_a_healthy_loop_raises_no_alarm(name, capsys):
    guard = HEALTHY[name]()
    assert guard.report.ok, guard.report
    assert "StepGuard" not in capsys.readouterr().out


# What it says, stops and keeps


def test_a_line_names_step_parameter_cause_and_remedy(capsys):
    train(forward=through_numpy, steps=4)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("StepGuard: step 1: all 4 gradients are zero (fc1.weight, fc1.bias")
    assert lines[1].startswith("  likely cause: the loss is computed through NumPy (asnumpy)")
    assert lines[2].startswith("  to do: compute the loss with ops")
    assert len(lines) == 3  # once, not in each step


def test_the_report_can_be_required():
    train(steps=1).report.require()
    with pytest.raises(ReportFailed, match="all 4 gradients are zero"):
        train(forward=through_numpy).report.require()


def test_nothing_judged_proves_nothing():
    net = Net()
    report = StepGuard(net, nn.SGD(net.trainable_params(), 0.05)).report
    assert report.worst == "skipped"
    assert not report.ok


def test_stop_raises_at_the_first_cause():
    with pytest.raises(TrainingStopped) as caught:
        train(forward=log_of_negative, stop=True)
    assert (caught.value.check.id, caught.value.step) == ("loss", 1)  # not the NaN gradients
    assert str(caught.value).startswith("step 1: the loss is nan\nlikely cause: log(0)")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.check, again.step) == (caught.value.check, 1)


def test_with_a_log_one_call_writes_the_line(tmp_path, capsys):
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    grad_fn = ms.value_and_grad(lambda x, y: CE(net(x), y), None, optimizer.parameters)
    with TrainLog(tmp_path / "train.jsonl") as log:
        guard = StepGuard(net, optimizer, log=log)
        loss, grads = grad_fn(X, Y)
        norm = np.sqrt(sum((g.asnumpy().astype(float) ** 2).sum() for g in grads))
        optimizer(grads)
        guard.step(loss, grads, epoch=1, lr=optimizer)
    line = json.loads((tmp_path / "train.jsonl").read_text())
    assert line["loss"] == pytest.approx(float(loss.asnumpy()))
    assert line["lr"] == pytest.approx(0.05)
    assert line["grad_norm"] == pytest.approx(norm, rel=1e-6)
    assert line["epoch"] == 1


def test_verify_with_dropout_and_without():
    net = Net(nn.Dropout(p=0.5))
    optimizer = nn.SGD(net.trainable_params(), 0.05)

    def forward(x, y):
        logits = net(x)
        return CE(logits, y), logits

    before = [p.asnumpy().copy() for p in net.get_parameters()]
    for has_aux, status in ((True, "ok"), (False, "failed")):
        guard = StepGuard(net, optimizer)
        grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=has_aux)
        assert guard.verify(grad_fn, X, Y).status == status
    after = [p.asnumpy() for p in net.get_parameters()]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    assert net.middle.training
    guard = train(net, verify=True)  # in the step itself Dropout stays on
    assert "the loss is random" in guard.report["derivative"].summary


def test_the_first_step_is_the_same_with_and_without_verifying():
    ends = []
    for verify in (False, True):
        net = Net(nn.BatchNorm1d(8))
        train(net, nn.Momentum(net.trainable_params(), 0.05, 0.9), steps=3, verify=verify)
        ends.append([p.asnumpy().copy() for p in net.get_parameters()])
    assert all((a == b).all() for a, b in zip(*ends, strict=True))


def test_sums_on_the_device_agree_with_numpy():
    half = Tensor(np.array([300.0, -2.0], np.float16))
    tensors = [X, Tensor(np.zeros((2, 2), np.float32)), half, Tensor([1.0, np.nan], ms.float32)]
    host, device = msnb.guard._Host, msnb.guard._Device
    exact = [float((t.asnumpy().astype(np.float64) ** 2).sum()) for t in tensors]
    for way in (host, device):
        squares = way.squares(tensors)
        np.testing.assert_allclose(squares, exact, rtol=1e-5)
        assert way.finite(tensors) == [True, True, True, False]
        assert way.zero(tensors, squares) == [False, True, False, False]
        copies = way.copy(tensors[:3])
        assert way.different(tensors[:3], copies) == [False] * 3
        assert way.different([X + 1, *tensors[1:3]], copies) == [True, False, False]


def test_a_square_that_overflows_is_not_an_infinite_gradient():
    big = Tensor(np.array([1e30, 1e-30], np.float32))
    assert msnb.guard._Host.finite([big]) == [True]
    tiny = Tensor(np.array([1e-30], np.float32))
    assert msnb.guard._Host.zero([tiny], msnb.guard._Host.squares([tiny])) == [False]


# Model.train


@pytest.mark.parametrize("mode", ["pynative", pytest.param("graph", marks=pytest.mark.slow)])
def test_as_a_callback(mode, capsys):
    from mindspore import dataset
    from mindspore.train import LossMonitor, Model

    rows = [a.asnumpy() for a in (X, Y)]

    def data():
        return dataset.NumpySlicesDataset(tuple(rows), shuffle=False).batch(4)

    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    try:
        net = Net()
        optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
        guard = StepGuard(net, optimizer)
        Model(net, CE, optimizer).train(2, data(), callbacks=[LossMonitor(3), guard])
        assert guard.report.ok, guard.report
        assert "6 steps" in guard.report["zero gradients"].summary
        assert guard.report["derivative"].status == "ok"
        assert "step: 3, loss is" in capsys.readouterr().out

        net = Net()
        optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
        guard = StepGuard(net, optimizer, stop=True)
        numb = nn.Momentum(Net(seed=1).trainable_params(), 0.05, 0.9)
        with pytest.raises(TrainingStopped, match=r"step 1: (all 4 gradients|no parameter)"):
            Model(net, CE, numb).train(1, data(), callbacks=guard)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


# Bad input


def refused(message, **changes):
    net = Net()
    arguments = {"net": net, "optimizer": nn.SGD(net.trainable_params(), 0.05), **changes}
    with pytest.raises((TypeError, ValueError), match=message):
        StepGuard(**arguments)


def test_bad_arguments_are_refused():
    refused(r"net is a mindspore nn.Cell or None, not int 3", net=3)
    refused(
        r"optimizer is a MindSpore optimizer, for example nn.Momentum\(.*not float", optimizer=1.0
    )
    refused(r"every is a whole number from 1 on, not 0", every=0)
    refused(r"accumulate is a whole number from 1 on, not True", accumulate=True)
    refused(r"max_norm is a number above 0, not -1", max_norm=-1)
    refused(r"explosion is a number above 1, not 1", explosion=1)
    refused(r"forward is a function of a batch, not float 1.0", forward=1.0)
    refused(r"log is an msnb.TrainLog, not str 'x'", log="x")
    refused(r"give stop=True too", checkpoint="last.ckpt")
    refused(r"with a checkpoint, every is 1, not 2", checkpoint="a.ckpt", stop=True, every=2)
    refused(r"ends in \.ckpt", checkpoint="last", stop=True)
    refused(r"give the net, not None", checkpoint="a.ckpt", stop=True, net=None)


def test_bad_steps_are_refused():
    net = Net()
    guard = StepGuard(net, nn.SGD(net.trainable_params(), 0.05))
    grads = tuple(ops.ones_like(p) for p in net.trainable_params())
    for arguments, message in (
        ((None, grads), r"loss is one number, not NoneType None"),
        ((X, grads), r"loss is one number, not an array of shape \(12, 6\)"),
        ((1.0, grads[:3]), r"3 gradients and 4 parameters; .*optimizer.parameters"),
        ((1.0, ((X,), grads)), r"with grad_position and weights.*give grads\[1\]"),
        ((1.0, 3), r"grads is a tuple of tensors.*not int 3"),
        ((1.0, {"fc1.weight": grads[0]}), r"1 names for 4 parameters; missing: fc1.bias"),
        ((1.0, (None, *grads[1:])), r"gradient of fc1.weight is a tensor, not NoneType"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            guard.step(*arguments)
    with pytest.raises(TypeError, match=r"step has no argument 'epoch'.*log=msnb.TrainLog"):
        guard.step(1.0, grads, epoch=1)
    with pytest.raises(ValueError, match=r"grad_fn returns \(loss, gradients\)"):
        guard.verify(lambda: 1.0)


def test_gradients_of_other_shapes_are_named():
    net = Net()
    guard = StepGuard(net, nn.SGD(net.trainable_params(), 0.05))
    parameters = net.trainable_params()
    guard.step(1.0, tuple(ops.ones_like(p) for p in (parameters[2], *parameters[1:])))
    parameters[0].set_data(parameters[0] + 1)  # what moved cannot be held against a gradient
    guard.step(1.0, tuple(ops.ones_like(p) for p in (parameters[2], *parameters[1:])))
    check = guard.report["order"]
    assert check.status == "failed"
    assert "gradient 0 has the shape (3, 8), fc1.weight has (8, 6)" in check.summary


def test_two_parameters_of_one_name_are_told_apart():
    net, other = Net(), Net()
    optimizer = nn.SGD(net.trainable_params(), 0.05)
    for guard, said in (
        (
            StepGuard(net, optimizer, params=other.trainable_params()),
            "gradient 0 is that of another net's fc1.weight, and the optimizer applies it to this "
            "net's fc1.weight",
        ),
        (
            StepGuard(None, optimizer, params=other.trainable_params()),
            "gradient 0 is that of one fc1.weight (8, 6), and the optimizer applies it to another "
            "fc1.weight (8, 6)",
        ),
        (
            StepGuard(net, optimizer, params=net.trainable_params()[1:]),
            "gradient 0 is that of fc1.bias, and the optimizer applies it to fc1.weight",
        ),
    ):
        guard.step(1.0, tuple(ops.ones_like(p) for p in guard._order))
        assert said in guard.report["order"].summary
