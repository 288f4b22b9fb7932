"""Train LeNet for ten steps, in each mode and way asked for; rank 0 saves the weights.

    four_ways.py FOLDER MODE:WAY ...

On several ranks each takes its part of every batch of 32; on one process, the whole batch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

import msnb

FOLDER = Path(sys.argv[1])
IMAGES, LABELS = np.load(FOLDER / "images.npy"), np.load(FOLDER / "labels.npy")


class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid", has_bias=True)
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True)
        self.pool = nn.MaxPool2d(2, stride=2)
        self.fc1, self.fc2, self.fc3 = nn.Dense(400, 120), nn.Dense(120, 84), nn.Dense(84, 10)

    def construct(self, x):
        x = self.pool(ops.relu(self.conv1(x)))
        x = self.pool(ops.relu(self.conv2(x))).reshape(-1, 400)
        return self.fc3(ops.relu(self.fc2(ops.relu(self.fc1(x)))))


class ByHand(nn.Cell):
    def __init__(self, size):
        super().__init__()
        self.all_reduce, self.size = ops.AllReduce(), size

    def construct(self, grads):
        return tuple([self.all_reduce(grad) / self.size for grad in grads])


def loop(net, optimizer, reduce, data):
    loss_fn = nn.CrossEntropyLoss()

    def forward(x, y):
        return loss_fn(net(x), y)

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(x, y):
        loss, grads = grad_fn(x, y)
        optimizer(reduce(grads))
        return loss

    graph = ms.get_context("mode") == ms.GRAPH_MODE
    train = ms.jit(step) if graph else step
    for x, y in data:
        train(x, y)


def train(asked, rank, size):
    way = asked.partition(":")[2]
    ms.reset_auto_parallel_context()
    if size > 1 and way in ("TrainOneStepCell", "Model.train"):
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    ms.set_seed(3)
    net = LeNet().set_train()
    optimizer = nn.Momentum(net.trainable_params(), learning_rate=0.05, momentum=0.9)
    columns = {"x": IMAGES, "y": LABELS}
    data = ds.NumpySlicesDataset(columns, shuffle=False, num_shards=size, shard_id=rank)
    data = data.batch(32 // size)
    if way == "Model.train":
        reducer = ms.train.Model(net, nn.CrossEntropyLoss(), optimizer)
    elif way == "TrainOneStepCell":
        loss_cell = nn.WithLossCell(net, nn.CrossEntropyLoss())
        reducer = nn.TrainOneStepCell(loss_cell, optimizer).set_train()
    elif size == 1:
        reducer = tuple
    elif way == "DistributedGradReducer":
        reducer = nn.DistributedGradReducer(optimizer.parameters, mean=True)
    else:
        reducer = ByHand(size)

    save(net, rank, f"{size}-start")
    msnb.check_ranks(0, net, data, optimizer=optimizer, gradients=reducer, title=asked)
    if way == "Model.train":
        reducer.train(1, data, dataset_sink_mode=False)
    elif way == "TrainOneStepCell":
        for x, y in data:
            reducer(x, y)
    else:
        loop(net, optimizer, reducer, data)
    msnb.check_ranks(10, net, data, optimizer=optimizer, title=asked)
    save(net, rank, f"{size}-{asked.replace(':', '-')}")


def save(net, rank, name):
    if rank == 0:
        np.savez(FOLDER / f"{name}.npz", **{p.name: p.asnumpy() for p in net.trainable_params()})


def main():
    rank, size = 0, 1
    if os.environ.get("MS_ROLE") == "MS_WORKER":
        init()
        rank, size = get_rank(), get_group_size()
    for asked in sys.argv[2:]:
        graph = asked.startswith("graph:")
        ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
        train(asked, rank, size)


if __name__ == "__main__":
    main()
