"""The exercises: the solutions pass, and typical wrong answers get feedback that helps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# Runs the cells named, then each answer with the cell that checks it; prints the feedback as JSON.
SESSION = """
import contextlib, io, json, linecache, sys, types
cells, answers = json.load(sys.stdin)
# ms.jit looks for names in the module, and for source text in linecache: as in a kernel
ours, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
names = vars(sys.modules["__main__"])
def execute(source):
    name = f"<cell {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), names)
for source in cells:
    with contextlib.redirect_stdout(io.StringIO()):
        execute(source)
feedback = []
for answer, check in answers:
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard):
        execute(answer)
        execute(check)
    feedback.append(heard.getvalue().strip())
print("FEEDBACK" + json.dumps(feedback))
"""

# What a cell needs that is checked without the rest of its notebook.
NEEDED = {
    "01_env_check": (
        "parameters",
        "setup",
        "recorded",
        "report-a",
        "report-b",
        "report-c",
        "exercise-check",
    ),
    "02_lenet_port": [
        *("parameters", "setup", "imports", "torch-lenet", "ms-lenet", "training"),
        *("carried", "carry", "batch", "exercise-1-given", "exercise-1-check"),
        *("exercise-1-compare", "exercise-2-given", "exercise-2-check"),
    ],
    "03_padding_probes": [
        *("parameters", "setup", "imports", "convolve", "rule", "torch-same"),
        *("exercise-1-given", "exercise-1-check", "exercise-1-same", "exercise-2-given"),
        *("exercise-2-check", "sums", "sums-run", "exercise-3-check"),
    ],
    "05_graph_mode_switch": [
        *("parameters", "setup", "imports", "idiom-tool", "ways", "judge", "exercise-1-given"),
        *("exercise-1-check", "exercise-2-given", "exercise-2-check"),
    ],
    "06_amp": [
        *("parameters", "setup", "imports", "judges", "exercise-1-given", "exercise-1-check"),
        *("exercise-1-exact", "exercise-1-look", "exercise-1-judge", "exercise-2-given"),
        *("exercise-2-chain", "exercise-2-forward", "exercise-2-symptom", "exercise-2-check"),
        "exercise-2-judge",
    ],
    "07_hccl_data_parallel": [
        *("parameters", "setup", "imports", "head", "start", "kernel", "digits", "digits-run"),
        *("loop", "helpers", "small-net", "sharded", "exercise-1-given", "exercise-1-check"),
        *("exercise-1-verdict", "exercise-1-train", "exercise-2-given", "exercise-2-check"),
    ],
    "08_mindir_export": [
        *("parameters", "setup", "imports", "imports-2", "ms-net", "exercise-1-given"),
        "exercise-1-check",
        *("exercise-1-judge", "exercise-2-given", "exercise-2-symptom", "exercise-2-check"),
    ],
    "04_value_and_grad_training": [
        *("parameters", "setup", "imports", "torch-net", "ms-net", "batches", "make-grad"),
        *("flat", "exercise-1-given", "exercise-1-check", "exercise-1-update", "exercise-1-run"),
        *("exercise-1-verdict", "exercise-2-check"),
    ],
}

SOLUTION = "the solution"


def net(**changes: str) -> str:
    """The solution of exercise 1 in 02 with some of its lines changed."""
    lines = {
        "conv": 'nn.Conv2d(1, 4, 3, pad_mode="pad", padding=1, has_bias=True)',
        "norm": "nn.BatchNorm2d(4, eps=1e-3, momentum=0.8)",
        "pool": "nn.MaxPool2d(4, stride=4)",
        "head": "nn.Dense(4 * 8 * 8, 10)",
        "step": "ops.relu(self.norm(self.conv(x)))",
        "result": "Answer()",
    } | changes
    return f"""
class Answer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = {lines["conv"]}
        self.norm = {lines["norm"]}
        self.pool = {lines["pool"]}
        self.head = {lines["head"]}

    def construct(self, x):
        x = self.pool({lines["step"]})
        return self.head(ops.flatten(x))


def build_small():
    return {lines["result"]}
"""


def planted(layer: object, setting: object, value: object) -> str:
    answer = {"layer": layer, "setting": setting, "value": value}
    return f"def find_planted(): return {answer!r}"


def down(*, kernel: int = 5, has_bias: bool = True, **settings: object) -> str:
    words = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    layer = f"nn.Conv2d(2, 3, {kernel}, has_bias={has_bias}, {words})"
    return f"def build_down(): return {layer}"


def sides(top: object, bottom: object, left: object, right: object) -> str:
    answer = {"top": top, "bottom": bottom, "left": left, "right": right}
    return f"def find_border(): return {answer!r}"


def limit(limit: object, over: object = ..., under: object = ..., grows: object = ...) -> str:
    answer = {"limit": limit, "over_noise": over, "under_fault": under, "grows": grows}
    return f"def choose_limit(): return {answer!r}".replace("Ellipsis", "...")


def compiling(**changes: str) -> str:
    """The solution of exercise 1 in 05 with some of its parts changed."""
    parts = {
        "known": 'ops.clamp(x, 0, LIMITS["high"]) if "high" in LIMITS else x',
        "scaled": "x / total",
        "otherwise": "x",
        "powers": "values[-1] + values[-2]",
        "clip": "clip",
    } | changes
    return f"""
def clip(x):
    return {parts["known"]}


def norm(x):
    total = x.sum()
    scaled = {parts["otherwise"]}
    if total > 3:
        scaled = {parts["scaled"]}
    return scaled


def two_powers(x):
    values = [x, x * x, x * x * x]
    return {parts["powers"]}


def rewritten():
    return {{"clip_or_keep": {parts["clip"]}, "normalise": norm, "powers": two_powers}}
"""


def silent(name: str, *lines: str) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    cure = f"def cure(x):\n{body}\n" if lines else "cure = ...\n"
    return f"{cure}\n\ndef find_silent(): return {{'name': {name!r}, 'cure': cure}}\n"


def diagnosis(**answers: str) -> str:
    return f"def diagnose(): return {answers!r}"


def rescue(**changes: str) -> str:
    """The solution of exercise 1 in 06 with some of its parts changed."""
    parts = {
        "eps": "1e-5",
        "shift": "scores.max(-1, keepdims=True)",
        "back": "+ top.squeeze(-1)",
        "normed": "centred / ops.sqrt((centred**2).mean(-1, keep_dims=True) + eps)",
    } | changes
    return f"""
def safe_norm(x):
    eps = {parts["eps"]}
    centred = x - x.mean(-1, keep_dims=True)
    return {parts["normed"]}


def safe_loss(scores, labels):
    top = {parts["shift"]}
    chosen = (scores * ops.one_hot(labels, 10, 1.0, 0.0).astype(scores.dtype)).sum(-1)
    return (ops.log(ops.exp(scores - top).sum(-1)) {parts["back"]} - chosen).mean()
"""


def keep(*names: str) -> str:
    return f"def keep_in_float32(): return {set(names)!r}"


# notebook: (exercise, answer, what its feedback says)
def port(**changes: str) -> str:
    """The solution of exercise 1 in 04 with some of its parts changed."""
    parts = {
        "optimizer": "nn.SGD([{'params': net.trainable_params()}], 0.1, 0.9, 0.0, 0.1)",
        "each": "grad_fn(x, y)[1]",
        "mean": "sum(grads[1:], grads[0]) / 4",
        "clip": "ops.clip_by_global_norm(tuple(mean), 2.5)",
        "step": "optimizer(clipped)",
    } | changes
    return f"""
def make_update(net):
    optimizer = {parts["optimizer"]}
    _, with_aux = make_grad(net, optimizer.parameters)

    def grad_fn(x, y):
        return with_aux(x, y)

    def update(parts):
        every = [{parts["each"]} for x, y in parts]
        mean = [{parts["mean"]} for grads in zip(*every)]
        clipped = {parts["clip"]}
        {parts["step"]}

    return update
"""


def repaired(**changes: str) -> str:
    given = {
        "seed": "1",
        "shard": "num_shards=size, shard_id=rank",
        "reduce": "tuple(all_reduce(grad) / size for grad in grads)",
        **changes,
    }
    return f"""
def repaired(rank, size, all_reduce):
    ms.set_seed({given["seed"]})
    net = small()
    data = sharded(shuffle=False, {given["shard"]}).batch(16)
    return net, momentum(net), data, lambda grads: {given["reduce"]}
"""


def tempered(*, made: str = "", changed: str = "", construct: str = "") -> str:
    """An answer to exercise 1 in 08: the given class with some of its parts changed."""
    parameter = "ms.Parameter(ms.Tensor(1.0, ms.float32), name='t', requires_grad=False)"
    return f"""
class MyTempered(Tempered):
    def __init__(self):
        super().__init__()
        self.temperature = {made or parameter}

    def set_temperature(self, value):
        {changed or "self.temperature.set_data(ms.Tensor(value, ms.float32))"}

    def construct(self, x):
        {construct or "return self.body(x) / self.temperature"}
"""


def loads(*lines: str) -> str:
    """An answer to exercise 2 in 08."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"def my_load(net, path):\n    saved = ms.load_checkpoint(str(path))\n{body}"


def first_causes(**changes: object) -> str:
    right = {"A": "code", "B": "fewer calls", "C": "missing", "D": "port"}
    return f"def first_causes(): return {right | changes!r}"


def lines(*numbers: object) -> str:
    return f"def find_faults(): return {list(numbers)!r}"


ANSWERS: dict[str, list[tuple[str, str, str]]] = {
    "01_env_check": [
        ("exercise", SOLUTION, "A: right\nB: right\nC: right"),
        ("exercise", diagnosis(B="numpy"), "A: not answered yet\nB: right\nC: not answered yet"),
        ("exercise", diagnosis(A="mindspore"), "A: 'mindspore' is red because of where it looks"),
        ("exercise", diagnosis(A="numpy"), "A: 'numpy' is red because of where it looks"),
        ("exercise", diagnosis(A="kernel"), "is an effect: --fix would register this Python"),
        ("exercise", diagnosis(A=".venv"), "Which row names the Python?"),
        ("exercise", diagnosis(B="first operation"), "this is the symptom"),
        ("exercise", diagnosis(B="mindspore"), "B: 'mindspore' is not even red"),
        ("exercise", diagnosis(C="torch"), "three packages do not break at once"),
        ("exercise", diagnosis(C="shadow"), "no row 'shadow'; there are python, environment"),
        ("exercise", "def diagnose(): pass", "return a dictionary of three answers, not None"),
        ("exercise", "def diagnose(): return {'A': ['numpy']}", "A: there is no row ['numpy']"),
    ],
    "02_lenet_port": [
        ("exercise-1", SOLUTION, "right: structure, scores and running mean agree"),
        ("exercise-1", net(), "right:"),
        ("exercise-1", net(conv='nn.Conv2d(1, 4, 3, pad_mode="same", has_bias=True)'), "right:"),
        ("exercise-1", net(conv="nn.Conv2d(1, 4, 3, padding=1)"), "the 'pad' must be zero when"),
        (
            "exercise-1",
            net(conv='nn.Conv2d(1, 4, 3, pad_mode="pad", padding=1)'),
            "no parameter 'conv.bias'; a convolution has no bias unless you ask",
        ),
        (
            "exercise-1",
            net(conv='nn.Conv2d(1, 4, 3, pad_mode="valid", has_bias=True)'),
            "or the pooling's stride?",
        ),
        ("exercise-1", net(pool="nn.MaxPool2d(4)"), "or the pooling's stride?"),
        ("exercise-1", net(norm="nn.BatchNorm2d(4, momentum=0.8)"), "BatchNorm's eps is 1e-05"),
        ("exercise-1", net(norm="nn.BatchNorm2d(4, eps=1e-3)"), "the mean is off by"),
        (
            "exercise-1",
            net(norm="nn.BatchNorm2d(4, eps=1e-3, momentum=0.2)"),
            "the mean is off by",
        ),
        ("exercise-1", net(step="self.norm(self.conv(x))"), "go through construct line by line"),
        ("exercise-1", net(head="nn.Dense(4 * 8 * 8, 9)"), "'head.weight' has shape (9, 256)"),
        ("exercise-1", net(result="Answer"), "an instance of nn.Cell, not <class"),
        ("exercise-1", "def build_small(): pass", "an instance of nn.Cell, not None"),
        ("exercise-2", SOLUTION, "right: PyTorch's negative_slope is 0.01, MindSpore's alpha 0.2"),
        ("exercise-2", planted("conv", "pad_mode", "pad"), "conv gives the same output"),
        ("exercise-2", planted("head", "has_bias", True), "head is off, but so is its input"),
        ("exercise-2", planted("relu", "alpha", 0.01), "no layer 'relu'; there are conv, act"),
        ("exercise-2", planted("act", "slope", 0.01), "not 'slope': read the signature"),
        ("exercise-2", planted("act", "alpha", 0.2), "with alpha=0.2 the scores are still off"),
        ("exercise-2", planted("act", "alpha", "0.01"), "alpha is a number, not '0.01'"),
        ("exercise-2", "def find_planted(): return None", "return a dictionary, not None"),
    ],
    "03_padding_probes": [
        ("exercise-1", SOLUTION, "right: equal on even and on odd input"),
        ("exercise-1", down(stride=2, pad_mode="pad", padding=(2, 2, 2, 2)), "right:"),
        ("exercise-1", down(stride=2), "on 8x8 the shape agrees"),
        ("exercise-1", down(stride=2), "pads (1, 2), as 'same' does"),
        ("exercise-1", down(stride=2, pad_mode="pad", padding=(1, 2, 1, 2)), "as 'same' does"),
        (
            "exercise-1",
            down(stride=2, pad_mode="pad", padding=(2, 1, 2, 1)),
            "on 7x7 the output is (3, 3), PyTorch's (4, 4)",
        ),
        ("exercise-1", down(stride=2, pad_mode="pad", padding=1), "PyTorch's (4, 4)"),
        ("exercise-1", down(stride=2, pad_mode="valid"), "on 8x8 the output is (2, 2)"),
        ("exercise-1", down(stride=2, padding=2), "'pad' must be zero when 'pad_mode' is not"),
        ("exercise-1", down(stride=2, has_bias=False), "your layer has no bias"),
        (
            "exercise-1",
            down(stride=2, kernel=3),
            "the weight has shape (3, 2, 3, 3), not (3, 2, 5, 5)",
        ),
        ("exercise-1", "def build_down(): return torch_down", "an nn.Conv2d, not Conv2d(2, 3"),
        ("exercise-1", down(stride=2, bias=True), "it cannot be built: "),
        ("exercise-2", SOLUTION, "right: the left border is 2 thick"),
        ("exercise-2", sides(1, 1, 1, 1), "that is what PyTorch pads"),
        ("exercise-2", sides(1, 1, 0, 2), "the rows agree, the columns do not"),
        ("exercise-2", sides(2, 0, 1, 1), "what the impulse says of the rows"),
        ("exercise-2", sides(2, 1, 1, 1), "top + bottom is 2, and left + right is 2"),
        ("exercise-2", sides("1", 1, 2, 0), "each side is a number of rows or columns"),
        (
            "exercise-2",
            "def find_border(): return (1, 1, 2, 0)",
            "return a dictionary of top, bottom, left, right, not (1, 1, 2, 0)",
        ),
        ("exercise-3", SOLUTION, "right: above the noise, below the fault"),
        ("exercise-3", limit(2e-5, 5.9, 5, "sqrt(n)"), "right:"),
        ("exercise-3", limit(2e-4), "too loose: a fault of 1e-04 passes"),
        ("exercise-3", limit(7e-5), "too loose: the fault is 1.4 times the limit"),
        ("exercise-3", limit(1e-7), "correct sums would be called wrong"),
        ("exercise-3", limit(5e-6), "too tight: only 1.5 times the largest error seen"),
        ("exercise-3", limit("1e-5"), "a positive number, not '1e-5'"),
        ("exercise-3", "def choose_limit(): return 1.7e-5", "return a dictionary, not 1.7e-05"),
        ("exercise-3", limit(1.7e-5), "Now justify it: over_noise is a number"),
        ("exercise-3", limit(1.7e-5, 10, 5.9), "for your limit, not 10"),
        ("exercise-3", limit(1.7e-5, 4.9, 5.9, "n"), "from n = 64 to 4096, times?"),
    ],
    "05_graph_mode_switch": [
        ("exercise-1", SOLUTION, "right: all three compile"),
        ("exercise-1", compiling(), "right: all three compile"),
        ("exercise-1", compiling(clip="..."), "clip_or_keep is still missing"),
        ("exercise-1", compiling(clip="clip(vector())"), "give the function itself, not Tensor("),
        ("exercise-1", compiling(clip="clip_or_keep"), "not compile: Unsupported statement 'Try'"),
        ("exercise-1", compiling(known="ops.clamp(x, 0, 9.0)"), "but for [-0.25, -0.5, -0.75]"),
        (
            "exercise-1",
            compiling(scaled="(x / total).astype(ms.float16)"),
            "normalise does not compile: Cannot join the return values of different branches",
        ),
        (
            "exercise-1",
            compiling(scaled="(x / total).astype(ms.float16)", otherwise="x.astype(ms.float16)"),
            "normalise returns float16, not float32",
        ),
        ("exercise-1", compiling(otherwise="x / total"), "normalise compiles, but for [-0.25"),
        ("exercise-1", compiling(powers="values.pop() + values[1]"), "powers does not compile:"),
        ("exercise-1", compiling(powers="values[-1]"), "powers compiles, but for [1.0, 2.0, 3.0]"),
        ("exercise-2", SOLUTION, "right: found and cured"),
        (
            "exercise-2",
            silent("three", "y = x * 2", "y[:1] = -1", "return y"),
            "right: found and cured",
        ),
        ("exercise-2", silent("three"), "three it is. Now cure it"),
        ("exercise-2", silent("two"), "two gives the same in PyNative and compiled"),
        ("exercise-2", silent("six"), "name one of one, two, three, four, five, not 'six'"),
        (
            "exercise-2",
            silent("three", "y = x * 2", "z = y", "z[0] = -1", "return y"),
            "compiled your cure gives [2.0, 4.0, 6.0]",
        ),
        (
            "exercise-2",
            silent("three", "y = x * 2", "y[0].add_(-3)", "return y"),
            "compiled your cure gives",
        ),
    ],
    "06_amp": [
        ("exercise-1", SOLUTION, "right: finite in float16, values and gradients"),
        ("exercise-1", rescue(eps="1e-4"), "right:"),
        ("exercise-1", rescue(eps="1e-8"), "safe_norm gives NaN or infinity: what is 1e-8"),
        ("exercise-1", rescue(eps="1e-1"), "safe_norm is off by"),
        (
            "exercise-1",
            rescue(normed="centred / ((centred**2).mean(-1, keep_dims=True) ** 0.5 + eps)"),
            "safe_norm is fine, but its gradient is not finite",
        ),
        (
            "exercise-1",
            rescue(normed="(centred.float() * 0).astype(ms.float32)"),
            "safe_norm gives Float32, not a float16 tensor",
        ),
        ("exercise-1", rescue(shift="scores * 0", back=""), "safe_loss gives NaN or infinity"),
        ("exercise-1", rescue(back=""), "safe_loss is off by"),
        ("exercise-1", rescue(shift="scores.max(-1)", back="+ top"), "it does not run: "),
        ("exercise-2", SOLUTION, "right: as few as possible"),
        ("exercise-2", keep(), "not finite yet: 'square' casts to float16"),
        ("exercise-2", keep("square"), "not finite yet: 'mean' casts to float16"),
        ("exercise-2", keep("square", "mean"), "not finite yet: 'root' casts to float16"),
        ("exercise-2", keep("square", "mean", "root", "fc2"), "'fc2' is not needed"),
        ("exercise-2", keep("fc1", "square", "mean", "root", "fc2"), "'fc1' is not needed"),
        ("exercise-2", keep("sqrt"), "no layer 'sqrt'; there are fc1, square, mean, root, fc2"),
        ("exercise-2", "def keep_in_float32(): return 'square'", "answer with a set of names"),
    ],
    "07_hccl_data_parallel": [
        ("exercise-1", SOLUTION, "right: two real ranks start equal, share the images and stay"),
        ("exercise-1", repaired(seed="rank"), "the two ranks start from different weights"),
        ("exercise-1", repaired(shard=""), "not yet: 256 images are read by both ranks"),
        (
            "exercise-1",
            repaired(shard="num_shards=size, shard_id=0"),
            "not yet: 128 images are read by both ranks",
        ),
        (
            "exercise-1",
            repaired(shard="num_shards=2 * size, shard_id=rank"),
            "not yet: 128 images are read by nobody",
        ),
        ("exercise-1", repaired(reduce="grads"), "4 of 4 gradients never go through all_reduce"),
        (
            "exercise-1",
            repaired(reduce="tuple(all_reduce(grad) for grad in grads)"),
            "not yet: gradients of 1 on both ranks become 2, not their mean",
        ),
        ("exercise-1", repaired(reduce="averaged(grads)"), "does not run: name 'averaged' is not"),
        (
            "exercise-1",
            repaired(reduce="tuple(ops.AllReduce()(grad) / size for grad in grads)"),
            "does not run: use the all_reduce you are given: the kernel is not one of the ranks",
        ),
        ("exercise-1", repaired(reduce="grads[5]"), "does not run: tuple index out of range"),
        (
            "exercise-1",
            repaired().replace(
                "lambda grads: tuple(all_reduce(grad) / size for grad in grads)",
                "nn.DistributedGradReducer(net.trainable_params(), mean=True)",
            ),
            "right: two real ranks start equal, share the images and stay",
        ),
        (
            "exercise-1",
            "def repaired(rank, size, all_reduce): return 5",
            "return net, optimizer, data, reduce, as the hurried one does",
        ),
        (
            "exercise-2",
            SOLUTION,
            "right: the first cause stands in the log of the rank that stopped",
        ),
        ("exercise-2", first_causes(A="network"), "A: step 1 and 2 went through"),
        ("exercise-2", first_causes(B="code"), "B: its code did not raise"),
        ("exercise-2", first_causes(C="port"), "C: the scheduler listened, for 60 rounds"),
        ("exercise-2", first_causes(D="timeout"), "D: a longer time-out would only have made"),
        ("exercise-2", first_causes(D="code"), "D: nothing in this log speaks for it"),
        ("exercise-2", first_causes(D=3), "D: one of port, missing, code, fewer calls"),
        ("exercise-2", "def first_causes(): return 3", "with the keys A, B, C and D, not 3"),
    ],
    "08_mindir_export": [
        ("exercise-1", SOLUTION, "right: the file has the temperature of today"),
        ("exercise-1", tempered(), "right: the file has the temperature of today"),
        (
            "exercise-1",
            tempered(made="1.0", changed="self.temperature = value"),
            "the file gives 4: what is read from Python is read once",
        ),
        (
            "exercise-1",
            tempered(made="ms.Tensor(1.0)", changed="self.temperature = ms.Tensor(value)"),
            "the file gives 4: what is read from Python is read once",
        ),
        (
            "exercise-1",
            tempered(made="ms.Parameter(ms.Tensor(1.0), name='t')"),
            "the file has it, but an optimizer would train t away",
        ),
        ("exercise-1", tempered(changed="pass"), "the live net gives 4, where 4 / 2.5 is 1.6"),
        ("exercise-1", tempered(construct="return self.no(x)"), "it does not run: "),
        ("exercise-1", "MyTempered = 3", "it does not run: "),
        ("exercise-2", SOLUTION, "right: all is loaded, or you are told"),
        (
            "exercise-2",
            loads("ms.load_param_into_net(net, saved)"),
            "0 of 6 parameters are those of the file: compare the names",
        ),
        (
            "exercise-2",
            loads("ms.load_param_into_net(net.backbone, saved)"),  # its names have the prefix too
            "0 of 6 parameters are those of the file: compare the names",
        ),
        (
            "exercise-2",
            loads(
                "renamed = {f'backbone.{name}': value for name, value in saved.items()}",
                "ms.load_param_into_net(net, renamed)",
            ),
            "loaded; but of a file without the last parameter nobody is told",
        ),
        (
            "exercise-2",
            loads(
                "renamed = {f'backbone.{name}': value for name, value in saved.items()}",
                "assert not ms.load_param_into_net(net, renamed)[0]",
            ),
            "a parameter is missing, and it raises AssertionError: say ValueError",
        ),
        (
            "exercise-2",
            loads("raise ValueError('no')"),
            "it does not run: no",
        ),
        ("exercise-2", loads("net.load(path)"), "it does not run: "),
    ],
    "04_value_and_grad_training": [
        ("exercise-1", SOLUTION, "right: after three updates the weights agree"),
        (
            "exercise-1",
            port(
                optimizer="experimental.SGD(net.trainable_params(), lr=0.1, momentum=0.9, "
                "weight_decay=0.1)"
            ),
            "right:",
        ),
        ("exercise-1", port(mean="sum(grads[1:], grads[0])"), "the sum over the parts, not"),
        ("exercise-1", port(mean="grads[-1]"), "only the last part counts"),
        ("exercise-1", port(clip="tuple(mean)"), "nothing is clipped"),
        (
            "exercise-1",
            port(clip="tuple(ops.clip_by_norm(g, 2.5) for g in mean)"),
            "clipped by its own norm",
        ),
        (
            "exercise-1",
            port(each="ops.clip_by_global_norm(grad_fn(x, y)[1], 2.5)", clip="tuple(mean)"),
            "one by one, before they are averaged",
        ),
        (
            "exercise-1",
            port(optimizer="nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.1)"),
            "norm.gamma and norm.beta are not decayed",
        ),
        (
            "exercise-1",
            port(optimizer="nn.Momentum(net.trainable_params(), 0.1, 0.9)"),
            "nothing is decayed",
        ),
        (
            "exercise-1",
            port(optimizer="nn.AdamWeightDecay(net.trainable_params(), 0.1)"),
            "Compare rate, momentum, clip and decay",
        ),
        ("exercise-1", port(clip="mean"), "it does not run:"),
        ("exercise-1", port(step="pass"), "no weight has moved: call optimizer(grads)"),
        ("exercise-1", "def make_update(net): return 5", "a function of the parts, not 5"),
        ("exercise-2", SOLUTION, "right: the clipped gradients are thrown away"),
        ("exercise-2", lines(8, 5), "right:"),
        ("exercise-2", lines(3, 8), "not line 3: gradients in the optimizer's order"),
        ("exercise-2", lines(5, 6), "not line 6: it gets a tuple in its own order"),
        ("exercise-2", lines(5), "two different numbers from 1 to 8, not [5]"),
        ("exercise-2", lines("5", 8), "two different numbers from 1 to 8"),
    ],
}


def cells_of(path: Path) -> dict[str, str]:
    cells = nbformat.read(path, as_version=4).cells
    return {cell.id: cell.source for cell in cells if cell.cell_type == "code"}


def solution_of(path: Path) -> str:
    return (path.parent / "solutions" / f"{path.stem}.py").read_text("utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_answers_get_the_feedback_they_need(path: Path, tmp_path: Path) -> None:
    cells = cells_of(path)
    answers = ANSWERS[path.stem]
    tagged = {exercise for exercise, _, _ in answers}
    asked = [
        [solution_of(path) if answer is SOLUTION else answer, cells[f"{exercise}-feedback"]]
        for exercise, answer, _ in answers
    ]
    stubs = [[cells[exercise], cells[f"{exercise}-feedback"]] for exercise in sorted(tagged)]
    ran = subprocess.run(
        [sys.executable, "-c", SESSION],
        input=json.dumps([[cells[name] for name in NEEDED[path.stem]], asked + stubs]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    feedback = json.loads(ran.stdout.rpartition("FEEDBACK")[2])
    for (exercise, answer, words), said in zip(answers, feedback, strict=False):
        assert words in said, f"{exercise} got {said!r} for\n{answer}"
        assert ("right" in said) == ("right" in words), f"{exercise} got {said!r} for\n{answer}"
    assert all("not answered yet" in said for said in feedback[len(answers) :])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_exercise_has_its_answers_here(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    tagged = {cell.id for cell in notebook.cells if "exercise" in cell.metadata.get("tags", [])}
    tried = ANSWERS[path.stem]
    assert {exercise for exercise, _, _ in tried} == tagged
    for exercise in tagged:
        assert (exercise, SOLUTION) in {(name, answer) for name, answer, _ in tried}
        assert sum(name == exercise for name, _, _ in tried) >= 4


def test_the_reports_in_01_are_the_recorded_ones() -> None:
    cells = cells_of(ROOT / "notebooks" / "01_env_check.ipynb")
    shown = {
        "recorded": ("torn", {"environment", "pip", "kernel", ".venv"}),
        "report-a": ("system_python", None),
        "report-b": ("numpy_2", None),
        "report-c": ("shadowing", None),
    }
    for cell, (name, kept) in shown.items():
        text = (ROOT / "notebooks" / "recorded" / f"{name}.json").read_text("utf-8")
        rows = [
            f"{row['id']} | {row['status']} | {row['summary']}"
            for row in json.loads(text)["checks"]
            if row["id"] not in ("CANN", "driver", "firmware")
            and (kept is None or row["id"] in kept)
        ]
        assert re.findall(r"^\S.* \| \w+ \| .+$", cells[cell], flags=re.MULTILINE) == rows
