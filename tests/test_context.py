"""setup(): every scenario in a process of its own, so that each meets a fresh MindSpore.

Ascend and GPU are absent here: what is said then is MindSpore's own text. Where a device would have
to be present, a stand-in for the mindspore module takes its place; nothing was run on Ascend.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msnb import context, isolate
from msnb.context import DeviceUnavailable, setup

CLEAN: dict[str, str | None] = dict.fromkeys(
    (
        *("GLOG_v", "GLOG_logtostderr", "GLOG_log_dir", "GLOG_stderrthreshold"),
        *("DEVICE_ID", "RANK_ID", "MS_OM_PATH"),
    )
)


# Wrong arguments: no MindSpore needed


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"device_target": "Acsend"}, ValueError, "not 'Acsend'; did you mean Ascend?"),
        (
            {"device_target": "cup"},
            ValueError,
            "device_target is one of CPU, Ascend, GPU, auto, not 'cup'; did you mean CPU",
        ),
        ({"device_target": "NPU"}, ValueError, "did you mean Ascend?"),
        ({"device_target": "cuda"}, ValueError, "did you mean GPU?"),
        (
            {"device_target": "quantum"},
            ValueError,
            "device_target is one of CPU, Ascend, GPU, auto, not 'quantum'",
        ),
        ({"device_target": 3}, TypeError, "device_target is one of CPU, Ascend, GPU, auto, not 3"),
        ({"mode": "jit"}, ValueError, "jit is no mode of the context; decorate the function"),
        ({"mode": "pynativ"}, ValueError, "did you mean 'pynative'?"),
        ({"mode": "GRAPH_MODE"}, ValueError, "did you mean 'graph'?"),
        ({"mode": 0}, ValueError, "mode=0: it is 'pynative' or 'graph'"),
        ({"seed": -1}, ValueError, "seed is a whole number from 0 to 4294967295, not -1"),
        ({"seed": 2**32}, ValueError, "not 4294967296"),
        ({"seed": 1.5}, TypeError, "seed is a whole number, not 1.5"),
        ({"deterministic": "no"}, TypeError, "deterministic is True or False, not 'no'"),
        ({"seed": np.int64(-3)}, ValueError, "seed is a whole number from 0 to 4294967295, not -3"),
        ({"threads": 0}, ValueError, "threads is a whole number from 1 to"),
        ({"threads": True}, TypeError, "threads is a whole number, not True"),
        ({"device_id": -1}, ValueError, "device_id is a whole number from 0 to 4095, not -1"),
        ({"device_id": "0"}, TypeError, "device_id is a whole number, not '0'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        setup(**arguments)
    assert text in str(caught.value)


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "", "99999"])
def test_nonsense_in_device_id(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE_ID", value)
    with pytest.raises(ValueError, match="DEVICE_ID") as caught:
        setup("Ascend")
    assert f"DEVICE_ID={value!r}" in str(caught.value)
    assert "unset it" in str(caught.value)


# The real MindSpore, on CPU


def everyday() -> dict[str, Any]:
    """A notebook's life: set up, run again after operations, switch modes, ask for Ascend."""
    import random
    import traceback

    import numpy as np
    import torch  # loaded before: it is seeded, too

    import msnb

    seen: dict[str, Any] = {}
    assert "mindspore" not in sys.modules
    first = msnb.setup("auto", seed=5)
    seen["auto"] = (first.asked, first.device_target, first.check().status, str(first))
    seen["html"] = first._repr_html_()
    import mindspore as ms

    def draw() -> list[Any]:
        return [
            random.random(),
            np.random.rand(),
            float(torch.rand(1)),
            ms.ops.rand(3).asnumpy().tolist(),
            ms.nn.Dense(2, 2).weight.asnumpy().tolist(),
        ]

    seen["draws"] = [draw()]
    for target, seed in (("cpu", 5), ("CPU", 6)):  # after operations
        msnb.setup(target, seed=seed)
        seen["draws"].append(draw())
    ms.run_check()
    graph = msnb.setup("Cpu", mode="graph")
    seen["graph"] = (graph.mode, ms.get_context("mode"))
    seen["back"] = (msnb.setup("CPU").mode, ms.get_context("mode"))

    for target in ("Ascend", "gpu"):
        try:
            msnb.setup(target)
        except DeviceUnavailable as error:
            seen[target] = (str(error), "".join(traceback.format_exception(error)))
    seen["after"] = ms.get_current_device()[0]
    numbered = msnb.setup("CPU", device_id=2, threads=1)
    seen["numbered"] = (str(numbered), numbered.threads)
    seen["kept"] = str(msnb.setup("CPU", threads=2))
    seen["torch threads"] = torch.get_num_threads()

    quiet = numbered.warnings()
    seen["warnings"] = quiet.to_json()
    seen["folder"] = os.environ["GLOG_log_dir"]  # noqa: SIM112
    seen["files"] = [file.name for file in Path(seen["folder"]).rglob("*")]
    seen["pid"] = os.getpid()

    ms.get_current_device = lambda: ("Ascend", 0)  # a device changed behind the notebook's back
    seen["changed"] = first.check().to_json(), graph.check().to_json()
    return seen


@pytest.mark.parametrize(
    ("name", "value"), [("GLOG_v", "abc"), ("GLOG_log_dir", f"{os.devnull}/logs")]
)
def test_log_settings_that_mindspore_does_not_take_are_named(name: str, value: str) -> None:
    log = {**CLEAN, "GLOG_v": "2", "GLOG_logtostderr": "0", name: value}
    error = isolate.run(_set_up, env=log).error
    assert error is not None
    assert error.type == "ValueError"
    assert f"{name}={value}" in error.message
    assert "correct or unset what is wrong there, then restart the kernel" in error.message


def _set_up() -> None:
    import msnb

    msnb.setup()


@pytest.fixture(scope="module")
def day() -> isolate.Outcome[dict[str, Any]]:
    outcome = isolate.run(everyday, env=CLEAN, timeout=200)
    outcome.result()
    return outcome


def test_auto_says_what_it_chose(day: isolate.Outcome[dict[str, Any]]) -> None:
    asked, used, status, table = day.result()["auto"]
    assert (asked, used, status) == ("auto", "CPU", "ok")
    assert "CPU (auto chose CPU)" in table
    assert "0 (Python" not in table
    assert "5 (Python, NumPy, MindSpore, torch)" in table
    assert "/" not in table  # no path may reach a committed notebook
    assert "<table" in day.result()["html"]


def test_rerun_in_a_live_kernel_and_seeds(day: isolate.Outcome[dict[str, Any]]) -> None:
    seen = day.result()
    first, again, other = seen["draws"]
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))
    assert seen["graph"] == ("graph", 0)
    assert seen["back"] == ("pynative", 1)


def test_absent_device(day: isolate.Outcome[dict[str, Any]]) -> None:
    seen = day.result()
    message, trace = seen["Ascend"]
    assert message.splitlines() == [
        "Ascend is not available: libge_runner.so: cannot open shared object file "
        "(needed by libmindspore_ascend.so.2)",
        "what to do: source CANN's set_env.sh before the kernel starts, then: "
        "msnb doctor --device-target Ascend",
    ]
    assert "C++ Call Stack" not in trace
    message, trace = seen["gpu"]
    assert message.startswith("GPU is not available: this MindSpore process offers only CPU\n")
    assert "ascend" not in message.lower()
    assert "C++ Call Stack" not in trace
    assert seen["after"] == "CPU"


def test_notes_and_check(day: isolate.Outcome[dict[str, Any]]) -> None:
    seen = day.result()
    table, threads = seen["numbered"]
    assert "a CPU has no number: device_id=2 is not used" in table
    assert threads == 1
    assert "1, not 2: MindSpore takes it once a process" in seen["kept"]
    assert seen["torch threads"] == 2  # torch has no such limit
    for check in seen["changed"]:
        assert check["status"] == "failed"
        assert (check["found"], check["expected"]) == ("Ascend", "CPU")
        assert "restart the kernel" in check["remedy"]


def test_quiet(day: isolate.Outcome[dict[str, Any]]) -> None:
    seen = day.result()
    assert day.stderr == ""  # three refused devices among what happened
    assert not Path(seen["folder"]).exists()  # removed at exit
    assert f"mindspore.log.{seen['pid']}" in seen["files"]
    assert seen["warnings"]["ok"]
    kinds = {check["id"] for check in seen["warnings"]["checks"]}
    assert kinds <= {"deprecated", "other"}  # run_check and the refusals


def provoke(folder: str) -> dict[str, Any]:
    """Each kind of message the table knows, caused for real."""
    os.chdir(folder)
    import linecache

    import numpy as np

    import msnb

    here = msnb.setup("CPU", seed=1)
    import mindspore as ms
    from mindspore import nn

    ones = ms.Tensor(np.ones(3, np.float32))
    seen: dict[str, Any] = {"before": here.warnings().to_json()}

    def leaves(x):  # type: ignore[no-untyped-def]
        y = x.asnumpy() * 2
        return ms.Tensor(y).sum()

    def twice(x):  # type: ignore[no-untyped-def]
        return x * 2

    def loss_of(net, x):  # type: ignore[no-untyped-def]
        def forward(x):  # type: ignore[no-untyped-def]
            out = net(x)
            return (out * out).sum(), out

        return ms.value_and_grad(forward, None, net.trainable_params(), has_aux=True)

    def trained(compiled):  # type: ignore[no-untyped-def]
        ms.set_seed(1)
        net = nn.Dense(3, 2)
        optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
        gradient = loss_of(net, ones)

        def step(x):  # type: ignore[no-untyped-def]
            (loss, _), grads = gradient(x)
            optimizer(grads)
            return loss

        step = ms.jit(step) if compiled else step
        losses = [float(step(ones.reshape(1, 3)).asnumpy()) for _ in range(3)]
        return [*losses, *net.weight.asnumpy().ravel().tolist()]

    def parameter(name, shape, dtype):  # type: ignore[no-untyped-def]
        return ms.Parameter(ms.Tensor(np.ones(shape, dtype)), name=name)

    text = "def cell(x):\n    return ms.Tensor(x.asnumpy()).sum()\n"
    file = "/no such folder/ipykernel_1/2.py"  # as ipykernel names a cell
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = sys.modules["__main__"].__dict__
    space["ms"] = ms
    exec(compile(text, file, "exec"), space)
    ms.jit(ms.grad(space["cell"]))(ones).asnumpy()
    seen["cell"] = here.warnings().to_json()
    seen["gradient"] = ms.jit(ms.grad(leaves))(ones).asnumpy().tolist()
    net = nn.Dense(3, 2)
    ms.load_param_into_net(net, {"weight": parameter("weight", (2, 3), np.float16)})
    ms.load_param_into_net(net, {"wieght": parameter("wieght", (2, 3), np.float32)})
    for _ in range(3):
        ms.jit(twice)(ones)
    seen["steps"] = trained(False), trained(True)
    ms.set_context(device_id=0)
    ms.jit(leaves, mode="PIJit")(ones)
    seen["after"] = here.warnings().to_json()
    try:
        here.warnings().require()
    except AssertionError as error:
        seen["verdict"] = str(error)
    seen["text"] = str(here.warnings())

    def joined(x):  # type: ignore[no-untyped-def]
        if x.sum() > 0:
            return x
        return x.astype(ms.float16)

    try:
        ms.jit(joined)(ones)
    except TypeError as error:
        seen["refused"] = str(error)
    seen["left behind"] = os.listdir(folder)
    seen["elsewhere"] = [file.name for file in Path(os.environ["MS_OM_PATH"]).rglob("*.ir")]
    return seen


def test_warnings_are_heard(tmp_path: Path) -> None:
    outcome = isolate.run(provoke, str(tmp_path), env=CLEAN, timeout=200)
    seen = outcome.result()
    # a graph that does not compile is dumped, but not into the reader's folder
    assert "Cannot join the return values" in seen["refused"]
    assert seen["elsewhere"] == ["analyze_fail.ir"]
    assert seen["left behind"] == []
    assert outcome.stderr == ""
    assert [check["id"] for check in seen["before"]["checks"]] == ["log"]
    assert seen["before"]["ok"]
    cell = seen["cell"]["checks"]
    assert [check["id"] for check in cell] == ["gradient stopped", "notebook cells"]
    assert cell[0]["found"] == "line 2"  # MindSpore cannot quote a cell

    checks = {check["id"]: check for check in seen["after"]["checks"]}
    status = {name: check["status"] for name, check in checks.items() if name != "other"}
    assert status == {
        "gradient stopped": "failed",
        "parameters not loaded": "failed",
        "cast on load": "failed",
        "compiled again": "failed",
        "jit option ignored": "failed",
        "side effects": "ok",
        "notebook cells": "ok",
        "deprecated": "ok",
    }
    assert seen["gradient"] == [0.0, 0.0, 0.0]  # d/dx sum(2x) is 2: the warning was right
    assert "y = x.asnumpy() * 2" in checks["gradient stopped"]["found"]
    assert checks["gradient stopped"]["metrics"]["count"] > 1
    assert checks["parameters not loaded"]["summary"].startswith("2 times: ")
    assert checks["parameters not loaded"]["found"] == "bias; weight, bias"
    assert checks["cast on load"]["found"] == "weight:Float16"
    assert checks["compiled again"]["found"].startswith("twice")
    assert checks["jit option ignored"]["found"] == "mode"
    assert checks["deprecated"]["metrics"]["count"] >= 1
    eager, compiled = seen["steps"]
    assert compiled == pytest.approx(eager, rel=1e-5)  # "eliminated by mistake" changes nothing
    assert "FAILED  gradient stopped" in seen["verdict"]
    assert "/" not in seen["text"].replace("load_param_into_net", "")  # no paths


def inherited() -> list[Any]:
    """As in a child of msrun: the folder is shared, the files of other processes are not ours."""
    import msnb

    folder = Path(os.environ["GLOG_log_dir"])  # noqa: SIM112
    logs = folder / "rank_0" / "logs"
    logs.mkdir(parents=True)
    stranger = "[WARNING] ME(1:2,MainProcess):x [f.py:1] 3 parameters in the 'net' are not loaded"
    (logs / f"mindspore.log.{os.getpid()}0").write_text(stranger)
    (logs / "mindspore.log.1").write_text(stranger)
    here = msnb.setup("CPU")
    before = here.warnings()["log"].summary
    import mindspore as ms

    ms.load_param_into_net(ms.nn.Dense(1, 1), {})
    return [before, here.warnings()["parameters not loaded"].metrics["count"], str(folder)]


def test_log_folder_shared_with_others(tmp_path: Path) -> None:
    folder = tmp_path / "log 日志"
    folder.mkdir()
    shared = {
        "GLOG_v": "2",
        "GLOG_logtostderr": "0",
        "GLOG_stderrthreshold": "4",
        "GLOG_log_dir": str(folder),
    }
    before, count, used = isolate.run(inherited, env={**CLEAN, **shared}).result()
    assert before == "MindSpore warned of nothing"
    assert count == 1
    assert used == str(folder)
    assert folder.exists()  # the user's, so it stays


COMPILES = """
import mindspore as ms
from mindspore import ops

@ms.jit
def many_operations(x):
    for i in range(250):
        x = ops.relu(x) * i + ops.sin(x)
    return x

assert many_operations(ms.Tensor([0.0])).shape == (1,)
print("back")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "seconds", "comes_back"),
    [
        ("", 25, False),  # MindSpore's own behaviour: if this fails, it has been mended there
        ("import msnb; msnb.setup()", 100, True),
        ("import mindspore, msnb; msnb.setup()", 100, True),
    ],
)
def test_a_large_graph_does_not_hang_a_kernel(before: str, seconds: int, comes_back: bool) -> None:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError

    cells = [nbformat.v4.new_code_cell(source) for source in (before, COMPILES)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_CURRENT_TEST")  # with it ipykernel leaves stderr alone
        for name in [name for name in os.environ if name.startswith("GLOG_")]:
            patch.delenv(name)
        client = NotebookClient(notebook, timeout=seconds, kernel_name="python3")
        if comes_back:
            client.execute()
            said = [out.text for out in cells[1].outputs if out.get("name") == "stdout"]
            assert said == ["back\n"]
        else:
            with pytest.raises(CellTimeoutError):
                client.execute()


def test_log_level_that_hides_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("v", "4"), ("logtostderr", "0"), ("log_dir", "x")):
        monkeypatch.setenv(f"GLOG_{name}", value)
    assert "GLOG_v=4 switches MindSpore's warnings off" in context._unreadable()
    monkeypatch.setenv("GLOG_v", "2")
    assert context._unreadable() == ""
    monkeypatch.setenv("GLOG_logtostderr", "1")  # which setup() leaves as it is; GLOG_v is its own
    assert context._unreadable().startswith("GLOG_logtostderr=1 was set before msnb.setup()")


def test_an_empty_log_folder_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("v", "logtostderr", "stderrthreshold"):
        monkeypatch.setenv(f"GLOG_{name}", "")  # so that what _quiet sets is taken back
        monkeypatch.delenv(f"GLOG_{name}")
    folder = "GLOG_log_dir"
    monkeypatch.setenv(folder, "")
    context._quiet()
    assert os.environ[folder] == context._scratch()


def train(deterministic: bool, seeds: list[int], conv: bool = False) -> list[str]:
    """Train a tiny net with Dropout once per seed; a digest of its weights each time."""
    import hashlib

    import numpy as np

    import msnb

    def once(seed: int) -> str:
        msnb.setup("CPU", seed=seed, deterministic=deterministic)
        import mindspore as ms
        from mindspore import nn

        if conv:
            layers = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()]
            layers += [nn.Dropout(p=0.5), nn.Dense(6 * 16 * 16, 4)]
            shape: tuple[int, ...] = (32, 1, 32, 32)
        else:
            layers = [nn.Dense(16, 64), nn.ReLU(), nn.Dropout(p=0.5), nn.Dense(64, 4)]
            shape = (32, 16)
        net = nn.SequentialCell(*layers).set_train()
        optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
        loss_fn = nn.CrossEntropyLoss()
        x = ms.Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))
        y = ms.Tensor((np.arange(32) % 4).astype(np.int32))
        gradient = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
        for _ in range(12 if conv else 5):
            _, grads = gradient(x, y)
            optimizer(grads)
        weights = b"".join(p.asnumpy().tobytes() for p in net.get_parameters())
        return hashlib.sha256(weights).hexdigest()

    return [once(seed) for seed in seeds]


def test_deterministic_training_with_dropout() -> None:
    outcomes = isolate.run_many([(train, True, [3, 4, 3]), (train, True, [3])], env=CLEAN)
    (first, other, again), (elsewhere,) = (outcome.result() for outcome in outcomes)
    assert first == again == elsewhere
    assert other != first


@pytest.mark.slow
def test_deterministic_makes_the_difference() -> None:
    """With several threads the same training ends differently: what deterministic=True is for."""
    if (os.cpu_count() or 1) == 1:
        pytest.skip("one core: several threads cannot be had")
    calls = [(train, True, [3] * 2, True), (train, False, [3] * 4, True)]
    fixed, loose = (
        outcome.result() for outcome in isolate.run_many(calls, env=CLEAN, jobs=1, timeout=250)
    )
    assert len(set(fixed)) == 1
    assert len(set(loose)) > 1


def log_of(here: context.Context) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
    glog = {name: value for name, value in os.environ.items() if name.startswith("GLOG")}
    return str(here), here.warnings().to_json()["checks"], glog


def contrary() -> list[Any]:
    import msnb

    first = msnb.setup("CPU", deterministic=True)
    said: list[Any] = [first.threads, str(msnb.setup("CPU", deterministic=False))]
    try:
        msnb.setup("CPU", deterministic=True, threads=4)
    except ValueError as error:
        said.append(str(error))
    return [*said, log_of(first)]


def late() -> list[Any]:
    """MindSpore was imported, used and configured before setup()."""
    import mindspore as ms

    import msnb

    ms.ops.ones(2).asnumpy()
    said: list[Any] = []
    ms.device_context.cpu.op_tuning.threads_num(2)
    try:
        ms.set_device("CPU")
    except RuntimeError as error:
        said.append(str(error))  # why the setup of a live kernel needs care
    try:
        msnb.setup("CPU", deterministic=True)
    except RuntimeError as error:
        said.append(str(error))
    context._threads = 1  # as if the threads were right, to meet the second refusal
    ms.set_deterministic(False)
    try:
        msnb.setup("CPU", deterministic=True)
    except RuntimeError as error:
        said.append(str(error))
    context._threads = None
    return [*said, log_of(msnb.setup("CPU", threads=1))]


def test_what_a_process_has_fixed() -> None:
    first, second = isolate.run_many([contrary], env={**CLEAN, "GLOG_v": "3"}) + isolate.run_many(
        [late], env=CLEAN
    )
    threads, table, clash, (_, checks, glog) = first.result()
    assert threads == 1
    assert "it was switched on in this process and stays on until restart" in table
    assert "deterministic=True takes one thread on CPU, but threads=4" in clash
    assert checks[0]["status"] == "skipped"
    assert "GLOG_v=3 was set before msnb.setup()" in checks[0]["summary"]
    assert "unset GLOG_v" in table
    assert glog == {"GLOG_v": "3"}

    refused, one, two, (table, checks, glog) = second.result()
    assert "has been initialized" in refused
    assert "deterministic=True takes one thread, and this process has fixed another number" in one
    assert "this process has called ms.set_deterministic(False)" in two
    assert "restart the kernel" in one
    assert "restart the kernel" in two
    assert "another number, not 1: MindSpore takes it once a process" in table
    assert "CPU (asked for CPU)" in table
    assert "MindSpore was imported before msnb.setup()" in table
    assert [check["status"] for check in checks] == ["skipped"]
    assert "msnb.setup() before importing mindspore" in checks[0]["summary"]
    assert glog == {}


def test_mindspore_missing(tmp_path: Path) -> None:
    (tmp_path / "mindspore.py").write_text("raise ImportError('libfoo.so is broken')")
    outcome = isolate.run(setup, env={**CLEAN, "PYTHONPATH": str(tmp_path)})
    assert outcome.error is not None
    assert outcome.error.type == "ImportError"
    assert "(libfoo.so is broken); type: msnb doctor" in outcome.error.message


# A device that is there: a stand-in, since none is at hand


class FakeMindSpore(types.ModuleType):
    """Answers as MindSpore 2.10 was seen to answer on CPU, with a device besides."""

    def __init__(self, *present: str) -> None:
        super().__init__("mindspore")
        self.__version__ = "2.10.0"
        self.device: tuple[str, int] = ("CPU", 0)
        self.live = False
        self.obeys = True
        self.settings = {"deterministic": "OFF"}
        self.device_context = types.SimpleNamespace(
            cpu=types.SimpleNamespace(op_tuning=types.SimpleNamespace(threads_num=lambda n: None)),
            **{
                name.lower(): types.SimpleNamespace(is_available=lambda name=name: name in present)
                for name in ("Ascend", "GPU")
            },
        )

    def set_device(self, target: str, number: int = 0) -> None:
        if self.live:
            raise RuntimeError("The runtime has been initialized, please set it before ...")
        if self.obeys:
            self.device = (target, number)

    def get_current_device(self) -> tuple[str, int]:
        return self.device

    def get_context(self, key: str) -> Any:
        return self.settings[key]

    def set_context(self, **values: Any) -> None:
        self.settings.update(values)

    def set_deterministic(self, on: bool) -> None:
        self.settings["deterministic"] = "ON"

    def set_seed(self, seed: int) -> None:
        self.settings["seed"] = seed


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMindSpore]:
    module = FakeMindSpore("Ascend")
    monkeypatch.setitem(sys.modules, "mindspore", module)
    monkeypatch.setattr(context, "_threads", None)
    monkeypatch.delenv("DEVICE_ID", raising=False)
    return module


def test_whole_numbers_of_numpy(fake: FakeMindSpore) -> None:
    here = setup("ascend", seed=np.int64(7), device_id=np.int32(2))
    assert (here.seed, here.device_id, fake.settings["seed"]) == (7, 2, 7)
    assert type(here.seed) is int


def test_device_that_is_there(fake: FakeMindSpore, monkeypatch: pytest.MonkeyPatch) -> None:
    here = setup("ascend", mode="graph", device_id=3, deterministic=True)
    assert (here.device_target, here.device_id, here.deterministic) == ("Ascend", 3, True)
    assert here.threads is None  # one thread is a matter of the CPU
    assert fake.settings["mode"] == 0
    assert here.check().summary == "Ascend (asked for Ascend)"
    assert setup("auto").device_target == "Ascend"
    monkeypatch.setenv("DEVICE_ID", "5")
    assert setup("Ascend").device_id == 5
    assert setup("Ascend", device_id=1).device_id == 1  # the argument outranks the variable
    assert setup("CPU").device_id == 0


def test_changing_the_device_in_a_live_kernel(fake: FakeMindSpore) -> None:
    setup("CPU")
    fake.live = True
    assert setup("CPU").device_target == "CPU"
    with pytest.raises(
        RuntimeError, match="already computes on CPU and cannot change to Ascend"
    ) as e:
        setup("Ascend")
    assert "restart the kernel" in str(e.value)
    fake.device = ("Ascend", 2)
    assert setup("Ascend").device_id == 2
    with pytest.raises(RuntimeError, match="computes on Ascend 2 and cannot change to Ascend 3"):
        setup("Ascend", device_id=3)


def test_silent_fallback_is_refused(fake: FakeMindSpore) -> None:
    fake.obeys = False
    with pytest.raises(RuntimeError, match="asked for Ascend, but MindSpore uses CPU"):
        setup("Ascend")


def test_mindspore_without_get_current_device(
    fake: FakeMindSpore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(FakeMindSpore, "get_current_device")
    fake.settings.update(device_target="CPU", device_id=0)
    assert setup("CPU").device_target == "CPU"
    fake.settings.update(device_target="GPU")
    with pytest.raises(RuntimeError, match="asked for CPU, but MindSpore uses GPU"):
        setup("CPU")


def test_causes() -> None:
    assert context._cause("\nsome new reason\nmore", "Ascend") == "some new reason"
    assert context._cause("", "Ascend") == "no reason was given"
