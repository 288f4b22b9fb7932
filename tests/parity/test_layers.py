"""Recording and aligning the layers of two nets, and telling a layer from its input."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops

from msnb.parity import layers
from msnb.parity.layers import Event, Noise, Pair

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def recorded(torch_net, ms_net, x=X):
    theirs = layers.record_torch(torch_net, [torch.from_numpy(x)])
    ours = layers.record_mindspore(ms_net, [ms.Tensor(x)])
    return theirs, ours


def names(pairs):
    return [(pair.torch.name, pair.mindspore.name) for pair in pairs]


def test_events_come_in_order_of_completion():
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 2))
    )
    record = layers.record_torch(net, [torch.from_numpy(X)])
    assert [event.name for event in record.events] == ["0", "1.0", "1.1", "1", ""]
    assert record.events[0].shapes == [(3, 3)]
    assert np.array_equal(record.events[0].inputs[0], X)
    assert np.array_equal(record.events[-1].outputs[0], net(torch.from_numpy(X)).detach().numpy())


def test_a_layer_called_twice_is_two_events():
    relu = torch.nn.ReLU()
    record = layers.record_torch(torch.nn.Sequential(relu, relu), [torch.from_numpy(X)])
    assert [event.name for event in record.events] == ["0", "0#2", ""]


def test_a_known_layer_is_one_event_whatever_it_calls():
    net = nn.LSTM(4, 3, batch_first=True)
    record = layers.record_mindspore(net, [ms.Tensor(X[None])])
    assert [event.name for event in record.events] == [""]
    assert record.events[0].shapes == [(1, 3, 3), (1, 1, 3), (1, 1, 3)]


def test_what_a_layer_returned_is_kept_though_a_later_one_writes_to_it():
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(inplace=True))
    record = layers.record_torch(net, [torch.from_numpy(X)])
    assert (record.events[0].outputs[0] < 0).any()
    assert not (record.events[1].outputs[0] < 0).any()


class Functional(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(4, 5)
        self.second = nn.Dense(5, 2)

    def construct(self, x):
        return self.second(ops.relu(self.first(x)))


def test_modules_on_one_side_and_functions_on_the_other():
    torch_net = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Dropout(0.0), torch.nn.Linear(5, 2)
    )
    ms_net = Functional()
    alignment = layers.align(
        *recorded(torch_net, ms_net), torch_net, ms_net, {"0": "first", "3": "second"}
    )
    assert names(alignment.pairs) == [("0", "first"), ("3", "second"), ("", "")]
    assert [event.name for event in alignment.only_torch] == ["1", "2"]
    assert alignment.said() == "without a partner in PyTorch: 1 (ReLU), 2 (Dropout)"


def test_another_nesting_aligns_and_another_depth_is_said():
    torch_net = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), torch.nn.Linear(4, 4)
    )
    ms_net = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 4), nn.Sigmoid())
    alignment = layers.align(
        *recorded(torch_net, ms_net), torch_net, ms_net, {"0.0": "0", "1": "2"}
    )
    assert names(alignment.pairs) == [("0.0", "0"), ("0.1", "1"), ("1", "2"), ("", "")]
    assert alignment.said() == "without a partner in MindSpore: 3 (Sigmoid)"


def test_what_a_failed_run_did_not_reach_is_aligned_by_definition():
    torch_net = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Linear(4, 2), torch.nn.LeakyReLU()
    )
    ms_net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(3, 2), nn.LeakyReLU())
    theirs, ours = recorded(torch_net, ms_net)
    assert ours.raised is not None
    assert [event.name for event in ours.events if event.outputs is None] == ["1", ""]
    alignment = layers.align(theirs, ours, torch_net, ms_net, {"0": "0", "1": "1"})
    assert ("2", "2") in names(alignment.pairs)


def _pair(ms_layer, torch_layer, ms_input):
    torch_net, ms_net = torch.nn.Sequential(torch_layer), nn.SequentialCell(ms_layer)
    theirs = layers.record_torch(torch_net, [torch.from_numpy(X)])
    ours = layers.record_mindspore(ms_net, [ms.Tensor(ms_input)])
    return Pair(theirs.events[0], ours.events[0])


def test_feed_through_tells_a_layer_from_its_input():
    quiet = Noise([], {})
    moved = _pair(nn.LeakyReLU(0.01), torch.nn.LeakyReLU(), X + 1)
    assert layers.drift(moved, quiet) is not None
    assert layers.feed_through(moved, quiet).ok
    wrong = _pair(nn.LeakyReLU(0.2), torch.nn.LeakyReLU(), X)
    assert layers.drift(wrong, quiet) is not None
    assert not layers.feed_through(wrong, quiet).ok


def test_feed_through_is_not_tried_on_inputs_of_another_shape():
    pair = _pair(nn.LeakyReLU(0.01), torch.nn.LeakyReLU(), X[:2])
    assert layers.feed_through(pair, Noise([], {})) is None


def test_the_limit_follows_pytorchs_own_drift():
    base = np.float32([1.0, 2.0, 3.0, 4.0])
    off = base + np.float32([0, 5e-5, 0, 0])
    assert not layers.agree(off, base, None).ok
    assert layers.agree(off, base, layers.swing(base, [base + np.float32(2e-5)])).ok
    assert not layers.agree(off, base, layers.swing(base, [base + np.float32(1e-6)])).ok
    assert layers.agree(off, base, None, floor=1e-4).ok


def test_swing_is_element_by_element_but_no_less_than_its_rms():
    base = np.zeros(4, np.float32)
    moved = [np.float32([0, 0, 0, 2])]
    assert layers.swing(base, moved).tolist() == [1.0, 1.0, 1.0, 2.0]
    assert layers.swing(base, []) is None
    assert layers.swing(np.arange(3), [np.arange(3)]) is None


def test_other_shapes_are_a_drift():
    here = Event("a", torch.nn.ReLU(), None, outputs=[X])
    there = Event("a", nn.ReLU(), None, outputs=[X[:2]])
    report = layers.drift(Pair(here, there), Noise([], {}))
    assert "(2, 4)" in report["shape"].summary


def test_hooks_are_taken_off_again():
    torch_net, ms_net = (
        torch.nn.Sequential(torch.nn.Linear(4, 2)),
        nn.SequentialCell(nn.Dense(4, 2)),
    )
    recorded(torch_net, ms_net)
    assert not torch_net[0]._forward_hooks
    assert not torch_net[0]._forward_pre_hooks
    assert not ms_net[0]._forward_hook
    assert not ms_net[0]._forward_pre_hook


def test_tanhs_error_on_this_device_is_measured():
    assert 0 < layers.tanh_error() < 1e-3
