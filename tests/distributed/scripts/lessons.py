"""Jobs that go wrong in silence, and jobs in good health, one after the other on the same ranks.

Each function is one lesson; what check_ranks says is in the report of the job, under its name.
"""

from __future__ import annotations

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import amp, nn, ops
from mindspore.communication import get_group_size, get_rank, init

from msnb.distributed.ranks import check_ranks

init()
RANK, SIZE = get_rank(), get_group_size()
rng = np.random.default_rng(0)
X = rng.standard_normal((64, 8)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)


def build(seed=0, cell=None):
    ms.set_seed(seed)
    return (cell or nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 2))).set_train()


def dataset(batch=8, rows=64, drop=False, shuffle=False, **shard):
    shard = shard or {"num_shards": SIZE, "shard_id": RANK}
    source = ds.NumpySlicesDataset({"x": X[:rows], "y": Y[:rows]}, shuffle=shuffle, **shard)
    return source.batch(batch, drop_remainder=drop)


def momentum(net, rate=0.1):
    return nn.Momentum(net.trainable_params(), learning_rate=rate, momentum=0.9)


def mean(grads):
    return tuple(ops.AllReduce()(grad) / SIZE for grad in grads)


def gradients(net, optimizer, x, y):
    return ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)(
        x, y
    )[1]


def run(title, net, optimizer, data, reduce=mean, steps=3, before=(), **given):
    """Check, train, check again."""
    check_ranks(0, net, data, optimizer=optimizer, title=title, **given)
    done = 0
    for x, y in data:
        grads = gradients(net, optimizer, x, y)
        optimizer(reduce(grads))
        done += 1
        if done == steps:
            break
    return check_ranks(done, net, data, optimizer=optimizer, title=title)


# --- silent faults -------------------------------------------------------------------------------


def no_reducer():
    net = build()
    run("no reducer", net, momentum(net), dataset(), reduce=tuple)


def no_reducer_at_a_tiny_rate():
    net = build()
    run("tiny rate", net, momentum(net, 1e-4), dataset(), reduce=tuple, gradients=tuple)


def one_layer_not_reduced():
    net = build()
    run(
        "one layer",
        net,
        momentum(net),
        dataset(),
        reduce=lambda grads: (*mean(grads[:-1]), grads[-1]),
        gradients=lambda grads: (*mean(grads[:-1]), grads[-1]),
    )


def no_shard():
    net = build()
    run("no shard", net, momentum(net), dataset(num_shards=None))


def no_shard_but_shuffled():
    net = build(seed=0)
    ms.set_seed(10 + RANK)
    run("shuffled", net, momentum(net), dataset(num_shards=None, shuffle=True))


def same_batch():
    net = build()
    batch = (ms.Tensor(X[:8]), ms.Tensor(Y[:8]))
    check_ranks(1, net, batch, title="same batch")
    mine = slice(8 * RANK, 8 * RANK + 8)
    check_ranks(1, net, (ms.Tensor(X[mine]), ms.Tensor(Y[mine])), title="other batches")


def same_shard():
    net = build()
    run("same shard", net, momentum(net), dataset(num_shards=SIZE, shard_id=0))


def seeds_then_shards():
    net = build()
    ms.set_seed(10 + RANK)
    run("own order", net, momentum(net), dataset(shuffle=True))


def half_of_the_data():
    net = build()
    run("half", net, momentum(net), dataset(num_shards=2 * SIZE, shard_id=RANK))


def by_hand_off_by_some():
    net = build()
    part = slice(24 * RANK, 24 * RANK + 32)
    parts = [(X[part][at : at + 8], Y[part][at : at + 8]) for at in range(0, 32, 8)]
    check_ranks(0, net, parts, total=64, title="by hand")


def seed_for_each_rank():
    net = build(seed=RANK)
    run("own seed", net, momentum(net), dataset())


def loaded_on_one_rank():
    net = build()
    if RANK == 1:
        ops.assign(net[0].weight, net[0].weight * 1.001)
    run("loaded", net, momentum(net), dataset())


def summed():
    net = build()
    optimizer = momentum(net)
    add = ops.AllReduce()
    run("summed", net, optimizer, dataset(), gradients=lambda grads: tuple(map(add, grads)))
    data = dataset()
    check = {"optimizer": optimizer}
    check_ranks(
        0,
        net,
        data,
        gradients=nn.DistributedGradReducer(optimizer.parameters),
        title="default",
        **check,
    )
    own = gradients(net, optimizer, *next(iter(data)))
    check_ranks(3, net, data, gradients=(own, tuple(map(add, own))), title="pair summed", **check)
    check_ranks(3, net, data, gradients=(own, mean(own)), title="pair mean", **check)
    check_ranks(3, net, data, gradients=(own, own), title="pair own", **check)
    halved = tuple(grad / 2 for grad in mean(own))
    check_ranks(3, net, data, gradients=(own, halved), title="pair halved", **check)
    half = lambda grads: tuple(g / 2 for g in mean(grads))  # noqa: E731
    check_ranks(3, net, data, gradients=half, title="twice", **check)
    one_sided = lambda grads: mean(grads) if RANK else tuple(map(add, grads))  # noqa: E731
    check_ranks(3, net, data, gradients=one_sided, title="one-sided", **check)


def summed_by_the_context():
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
    net = build()
    optimizer = momentum(net)
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer).set_train()
    check_ranks(0, net, dataset(), optimizer=optimizer, gradients=cell, title="cell")
    check_ranks(0, net, dataset(), optimizer=optimizer, title="context")
    ms.reset_auto_parallel_context()
    alone = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    check_ranks(0, net, dataset(), optimizer=optimizer, gradients=alone, title="cell alone")


def last_batch_dropped_on_one_rank():
    net = build()
    check_ranks(0, net, dataset(batch=5, drop=RANK == 1), title="last batch")


def one_rank_skips():
    net = build()
    optimizer = momentum(net)
    data = dataset()
    check_ranks(0, net, data, optimizer=optimizer, title="skips")
    for number, (x, y) in enumerate(data):
        grads = mean(gradients(net, optimizer, x, y))
        if not (RANK == 1 and number == 1):
            optimizer(grads)
    check_ranks(4, net, data, optimizer=optimizer, title="skips")


def rate_for_each_rank():
    net = build()
    check_ranks(0, net, dataset(), optimizer=momentum(net, 0.1 * (1 + RANK)), title="rate")


def another_net():
    net = build(cell=nn.SequentialCell(nn.Dense(8, 16 + RANK), nn.ReLU()))
    check_ranks(0, net, dataset(), optimizer=momentum(net), gradients=mean, title="net")
    net = build()
    net[0].weight.requires_grad = RANK == 0
    check_ranks(0, net, dataset(), title="frozen")


def at_different_steps():
    check_ranks(3 + RANK, build(), dataset(), title="places")


def a_slip_on_one_rank():
    for title, net in (("slip", "a net" if RANK == 1 else build()),):
        try:
            check_ranks(0, net, title=title)
            print("HEARD nothing")
        except (TypeError, RuntimeError) as error:
            print(f"HEARD {type(error).__name__}: {error}", flush=True)


# --- good health ---------------------------------------------------------------------------------


class Modern(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(p=0.3)
        self.head = nn.Dense(16, 2)

    def construct(self, x):
        return self.head(self.drop(ops.relu(self.norm(self.dense(x)))))


def healthy_dropout_and_batch_norm():
    net = build(cell=Modern())
    ms.set_seed(5 + RANK)  # a mask of its own for each rank; the weights are drawn already
    optimizer = nn.Adam(net.trainable_params(), learning_rate=0.01)
    reducer = nn.DistributedGradReducer(optimizer.parameters, mean=True)
    report = run("modern", net, optimizer, dataset(), reduce=reducer, gradients=reducer)
    assert report["not trained"].metrics["differing"] == 2, report


def healthy_padded():
    net = build()
    run("padded", net, momentum(net), dataset(batch=4, rows=33), gradients=mean)
    net = build()
    run("remainder", net, momentum(net), dataset(batch=5, drop=True), gradients=mean)
    net = build()
    run("shuffle", net, momentum(net), dataset(shuffle=True), gradients=mean)


def repeated():
    net = build()
    check_ranks(0, net, dataset().repeat(3), title="repeated")
    check_ranks(0, net, dataset(num_shards=None).repeat(3), title="repeated, no shard")


def healthy_half_precision():
    net = build(cell=Modern())
    net = amp.auto_mixed_precision(net, "O2").set_train()
    optimizer = momentum(net)
    scaler = amp.StaticLossScaler(128)
    data = dataset()
    check_ranks(0, net, data, optimizer=optimizer, gradients=mean, title="half")

    def forward(x, y):
        return scaler.scale(ops.cross_entropy(net(x).astype(ms.float32), y))

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)
    for x, y in data:
        grads = mean(grad_fn(x, y)[1])
        if amp.all_finite(grads):
            optimizer(scaler.unscale(grads))
    check_ranks(4, net, data, optimizer=optimizer, title="half")


def healthy_float16_weights():
    net = build().to_float(ms.float16)
    for parameter in net.get_parameters():
        parameter.set_dtype(ms.float16)
    check_ranks(0, net, dataset(), optimizer=momentum(net), gradients=mean, title="float16")


def healthy_and_undisturbed():
    """The same training with and without the checks: bit by bit, the random state included."""
    found = []
    for checked in (True, False):
        net = build()
        np.random.seed(1)
        optimizer = momentum(net)
        data = dataset(shuffle=True)
        if checked:
            check_ranks(0, net, data, optimizer=optimizer, gradients=mean, title="undisturbed")
        for number, (x, y) in enumerate(data):
            optimizer(mean(gradients(net, optimizer, x, y)))
            if checked and number == 1:
                check_ranks(2, net, data, optimizer=optimizer, title="undisturbed")
        weights = np.concatenate([p.asnumpy().ravel() for p in net.get_parameters()])
        found.append((weights.tobytes(), np.random.random()))
    print("UNDISTURBED", found[0] == found[1], flush=True)


LESSONS = [
    *(no_reducer, no_reducer_at_a_tiny_rate, one_layer_not_reduced, no_shard),
    *(no_shard_but_shuffled, same_batch, same_shard, seeds_then_shards, half_of_the_data),
    *(by_hand_off_by_some, seed_for_each_rank, loaded_on_one_rank, summed, summed_by_the_context),
    *(last_batch_dropped_on_one_rank, one_rank_skips, rate_for_each_rank, another_net),
    *(at_different_steps, a_slip_on_one_rank, healthy_dropout_and_batch_norm, healthy_padded),
    *(repeated, healthy_half_precision, healthy_float16_weights, healthy_and_undisturbed),
]

if __name__ == "__main__":
    for lesson in LESSONS:
        lesson()
