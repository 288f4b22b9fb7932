"""Several hosts: how their watchers meet, and a job over two network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import RANK, marked, write

from msnb.distributed import hosts
from msnb.distributed.hosts import Hosts, Lost
from msnb.distributed.job import free_port, launch

NAMES = ["first", "second", "third"]


@pytest.fixture
def make() -> Iterator[Any]:
    port, made = free_port(), []

    def one(node: int, count: int = 2, agreed: object = 2) -> Hosts:
        made.append(Hosts(NAMES[:count], node, "127.0.0.1", port, {"world_size": agreed}))
        return made[-1]

    one.port = port
    yield one
    for host in made:
        host.close()


def meet(*all_hosts: Hosts, seconds: float = 10) -> None:
    limit, waiting = time.monotonic() + seconds, list(all_hosts)
    while waiting:
        waiting = [host for host in waiting if not host.meet(limit)]


def finish(host: Hosts) -> bool:
    """What ``finish`` says once messages have had the time to arrive."""
    end = time.monotonic() + 2
    while not host.finish() and time.monotonic() < end:
        host.look()
        time.sleep(0.02)
    return host.finish()


def test_hosts_meet_and_finish_together(make):
    first, second, third = (make(node, 3) for node in range(3))
    meet(first, second, third)
    assert not second.finish()
    assert not third.finish()
    second.look()
    assert not second.finish()  # the first one's ranks still run
    assert finish(first)
    assert finish(second)
    assert finish(third)
    first.close()
    second.look()  # hung up, after all was done


def test_nothing_goes_before_everybody_is_there(make):
    first, second = make(0, 3), make(1, 3)
    limit = time.monotonic() + 0.5
    said = ""
    while not said:
        try:
            assert not first.meet(limit)
            assert not second.meet(limit + 60)
        except Lost as lost:
            said = str(lost)
    assert said == "third (node rank 2): never came"


def test_a_first_host_that_never_listens(make):
    second = make(1)
    with pytest.raises(Lost, match=r"first \(node rank 0\): cannot be reached on port \d+: Conn"):
        meet(second, seconds=0.3)


@pytest.mark.parametrize(
    ("node", "agreed", "sentence"),
    [
        (1, 2, "another host has node rank 1 already"),
        (2, 4, "the hosts do not agree: {'world_size': 2} there, {'world_size': 4} here"),
    ],
)
def test_hosts_that_do_not_fit(make, node, agreed, sentence):
    first, second, odd = make(0, 3), make(1, 3), make(node, 3, agreed)
    limit = time.monotonic() + 10
    while not any(link.node == 1 for link in first._links):
        first.meet(limit)
        second.meet(limit)
    assert not odd.meet(limit)
    said = ""
    while not said:
        first.meet(limit)
        try:
            odd.meet(limit)
        except Lost as lost:
            said = lost.detail["said"]
    assert said == sentence


def test_a_stranger_is_hung_up_on(make):
    first, second = make(0), make(1)
    with socket.create_connection(("127.0.0.1", make.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        meet(first, second)
        assert len(first._links) == 1


def test_a_silent_host_is_lost(make, monkeypatch):
    monkeypatch.setattr(hosts, "SILENCE", 0.3)
    first, second = make(0), make(1)
    meet(first, second)
    first.look()
    time.sleep(0.5)
    with pytest.raises(Lost, match=r"second: nothing was heard of it for 0\.3 s"):
        first.look()


def test_a_host_that_beats_is_not_lost(make, monkeypatch):
    monkeypatch.setattr(hosts, "SILENCE", 0.5)
    monkeypatch.setattr(hosts, "BEAT", 0.1)
    first, second = make(0), make(1)
    meet(first, second)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        first.look()
        second.look()
        time.sleep(0.02)


def test_why_one_ended_is_told_to_all(make):
    first, second, third = (make(node, 3) for node in range(3))
    meet(first, second, third)
    second.close("rank 1 raised ValueError: x")
    with pytest.raises(Lost) as lost:
        first.look()
    assert lost.value.detail == {
        "host": "second",
        "said": "rank 1 raised ValueError: x",
        "told": True,
    }
    with pytest.raises(Lost, match="second: rank 1 raised ValueError: x"):
        third.look()


def test_a_launcher_that_ends_without_a_word(make):
    first, second = make(0), make(1)
    meet(first, second)
    second.close()
    with pytest.raises(Lost, match="second: its launcher ended without a word"):
        first.look()


def both(script: Path, folder: Path, **options: Any) -> list[Any]:
    """Two "hosts" on this machine, a launcher each."""
    port, jobs = free_port(), [None, None]

    def one(node: int) -> None:
        jobs[node] = launch(
            script,
            world_size=2,
            hosts=["127.0.0.1", "localhost"],
            node_rank=node,
            master_port=port,
            log_dir=folder / f"host {node}",
            progress=False,
            **options,
        )

    threads = [threading.Thread(target=one, args=(node,)) for node in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return jobs


def test_a_failure_on_one_host_ends_the_other(tmp_path):
    script = write(tmp_path, RANK + "if rank == 1:\n    raise ValueError('x')\ntime.sleep(600)\n")
    first, second = both(script, tmp_path)
    assert first.exit_codes == {0: -15}
    assert second.exit_codes == {1: 1}
    said = first.report["job"].summary
    assert said == "ended with host localhost: rank 1 raised ValueError: x"
    assert second.report["job"].summary.startswith("rank 1 failed first: raised ValueError: x")


def test_hosts_wait_for_each_others_ranks(tmp_path):
    script = write(tmp_path, RANK + "time.sleep(0.8 * rank)\nprint(os.environ['DEVICE_ID'])\n")
    jobs = both(script, tmp_path)
    for node, job in enumerate(jobs):
        assert job.exit_codes == {node: 0}
        assert job.stdout == {node: "0\n"}  # each host counts its own devices
        assert job.seconds > 0.8
        assert job.report["job"].summary.endswith(", and so did those of the other hosts")
        assert job.report["group"].status == "failed"
        assert "never joined the group of all hosts" in job.report["group"].summary


def test_a_host_that_never_came(tmp_path):
    script = write(tmp_path, RANK)
    options = {"hosts": ["127.0.0.1", "192.0.2.7"], "progress": False, "start_timeout": 0.5}
    options |= {"log_dir": tmp_path / "logs", "master_port": free_port()}
    job = launch(script, world_size=2, node_rank=0, **options)
    assert job.exit_codes == {}
    assert job.report["job"].summary == (
        "host 192.0.2.7 (node rank 1) never came; nothing was started"
    )
    assert "with its own --node-rank" in job.report["job"].remedy


# Two network namespaces, joined by a cable of their own

TRAIN = """\
import os, sys, time
import msnb
msnb.setup("CPU")
import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

rank, size = 0, 1
if "MS_ROLE" in os.environ:
    init()
    rank, size = get_rank(), get_group_size()
steps, out = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)
images = rng.standard_normal((steps, 8, 6)).astype(np.float32)
labels = rng.integers(0, 3, (steps, 8)).astype(np.int32)
weight = rng.standard_normal((3, 6)).astype(np.float32)
net = nn.Dense(6, 3, weight_init=ms.Tensor(weight), bias_init="zeros")
loss = nn.CrossEntropyLoss()
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
step = ms.value_and_grad(lambda x, y: loss(net(x), y), None, optimizer.parameters)
all_reduce = ops.AllReduce() if size > 1 else lambda x: x
for i in range(steps):
    own = slice(rank * 8 // size, (rank + 1) * 8 // size)
    if "HALF" in os.environ:
        own = slice(0, 4)
    _, grads = step(ms.Tensor(images[i, own]), ms.Tensor(labels[i, own]))
    optimizer(tuple(all_reduce(grad) / size for grad in grads))
    if steps > 100:
        print("step", i, flush=True)
        time.sleep(0.02)
np.save(out, net.weight.asnumpy())
"""
ADDRESSES = ("10.231.87.1", "10.231.87.2")


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    names = [f"msnb{os.getpid()}{letter}" for letter in "ab"]
    if shutil.which("ip") is None or ip("netns", "add", names[0]).returncode:
        pytest.skip("no network namespaces on this machine: iproute2 and root are needed")
    try:
        ip("netns", "add", names[1])
        ends = [f"{name}0" for name in names]
        ip(
            *("link", "add", ends[0], "netns", names[0], "type", "veth"),
            *("peer", "name", ends[1], "netns", names[1]),
        )
        for name, end, address in zip(names, ends, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", "lo", "up")
            assert ip("-n", name, "link", "set", end, "up").returncode == 0
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)
    assert not any(name in ip("netns", "list").stdout for name in names)


def on_both(names: list[str], script: Path, folder: Path, steps: int, environ: dict[str, str]):
    """What one types on each of two servers."""
    processes = []
    for node, name in enumerate(names):
        command = [
            *("ip", "netns", "exec", name, sys.executable, "-m", "msnb.cli", "launch"),
            *(str(script), "--world-size", "2", "--hosts", ",".join(ADDRESSES)),
            *("--node-rank", str(node), "--log-dir", str(folder / f"host {node}"), "--json"),
            *("--timeout", "150", "--start-timeout", "60"),
            *("--", str(steps), str(folder / f"weights {node}.npy")),
        ]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ))
        time.sleep(1)  # nobody types both at once
    return processes


@pytest.mark.slow
@pytest.mark.network
def test_two_hosts_train_what_one_process_trains(tmp_path, namespaces):
    script = write(tmp_path, TRAIN)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MS_")}
    for name, more in (("alone", {}), ("half", {"HALF": "1"})):
        command = [sys.executable, str(script), "10", str(tmp_path / f"{name}.npy")]
        subprocess.run(command, check=True, env={**environ, **more}, timeout=120)
    alone, half = (np.load(tmp_path / f"{name}.npy") for name in ("alone", "half"))
    assert np.abs(half - alone).max() > 1e-2  # what a rank without the other would get
    for node, process in enumerate(on_both(namespaces, script, tmp_path, 10, environ)):
        out, _ = process.communicate(timeout=180)
        report = json.loads(out)
        assert process.returncode == 0, out
        assert report["ok"]
        found = np.load(tmp_path / f"weights {node}.npy")
        assert np.abs(found - alone).max() < 1e-6


@pytest.mark.slow
@pytest.mark.network
def test_a_cut_link_ends_both_sides(tmp_path, namespaces):
    script = write(tmp_path, TRAIN)
    marker = f"MSNB_TEST_CUT_{os.getpid()}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MS_")}
    processes = on_both(namespaces, script, tmp_path, 100_000, {**environ, marker: "1"})
    logs = [tmp_path / f"host {node}" / f"rank_{node}.out" for node in (0, 1)]
    deadline = time.monotonic() + 120
    while not all(log.exists() and "step 3\n" in log.read_text() for log in logs):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert ip("-n", namespaces[0], "link", "set", f"{namespaces[0]}0", "down").returncode == 0
    cut = time.monotonic()
    for node, process in enumerate(processes):
        out, _ = process.communicate(timeout=60)
        assert time.monotonic() - cut < 15
        assert process.returncode == 1
        (job, *_) = json.loads(out)["checks"]
        lost = ADDRESSES[1 - node]
        assert job["summary"] == f"host {lost} was lost: nothing was heard of it for 8 s"
        assert job["remedy"] == f"look whether {lost} runs and can be reached"
    assert marked(marker) == []
