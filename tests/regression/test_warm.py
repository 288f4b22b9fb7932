"""Forked processes: what they are like, when they are refused, and that none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msnb.regression.warm import _INLINE, UNFIT, Forked, Nursery, Refused

# A package that, as the frameworks do, reads its environment when it is imported.
PRECIOUS = """
import os, time
READ = os.environ.get("PRECIOUS")
IMPORTED = time.perf_counter()
os.environ["PRECIOUS_WAS_HERE"] = "yes"
"""

SEEDED = """
import random
class Generator:
    drawn = 1
    def seed(self):
        self.drawn = random.SystemRandom().random()
default_generator = Generator()
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "mindspore").mkdir()  # parked by its name
    (folder / "mindspore" / "__init__.py").write_text(PRECIOUS)
    (folder / "mindspore" / "part.py").write_text("import sys\nHOME = sys.modules['mindspore']\n")
    (folder / "mindspore" / "uses.py").write_text("import simple\n")
    (folder / "mindspore" / "log.py").write_text("GLOBAL_LOGGER = 'of the nursery'\n")
    (folder / "mindspore" / "deep.py").write_text("import sys\nsys.setrecursionlimit(7000)\n")
    (folder / "matplotlib.py").write_text("HERE = True\n")
    (folder / "simple.py").write_text("import sys\ndef me(): return sys.modules['simple']\n")
    (folder / "torch.py").write_text(SEEDED)
    return folder


@pytest.fixture(scope="module")
def env(modules: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GLOG_")}
    kept.pop("MPLBACKEND", None)
    return {**kept, "PYTHONPATH": str(modules), "PRECIOUS": "as found"}


@pytest.fixture(scope="module")
def shared(
    env: dict[str, str], modules: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nursery]:
    folder = tmp_path_factory.mktemp("n")
    with Nursery(
        folder,
        sys.executable,
        env,
        [f"mindspore{part}" for part in ("", ".part", ".log", ".deep", ".uses")]
        + ["matplotlib", "numpy", "torch"],
    ) as nursery:
        nursery.wait_until_ready()
        yield nursery


@pytest.fixture
def start(
    shared: Nursery, env: dict[str, str], modules: Path, tmp_path: Path
) -> Callable[..., Forked]:
    def start(source: str, nursery: Nursery = shared, **changes: Any) -> Forked:
        (modules / "asked.py").write_text(source)
        out = (tmp_path / "out").open("wb")
        options = {"env": env, "cwd": tmp_path, "descriptors": {0: 0, 1: out.fileno(), 2: 2}}
        command = changes.pop("command", [sys.executable, "-m", "asked", "one", "two"])
        with out, open(os.devnull, "rb") as nothing:
            options["descriptors"] = {0: nothing.fileno(), 1: out.fileno(), 2: out.fileno()}
            return Forked(str(nursery.address), command, **{**options, **changes})

    return start


def gone(pid: int, patience: float = 5) -> bool:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_fork_runs_the_module_as_an_interpreter_would(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    process = start(
        "import sys, os\n"
        "print(__name__, sys.argv[1:], os.getcwd(), os.environ['PRECIOUS'], os.getsid(0))\n"
        "print(sys.stdin.read() == '', 'mindspore' in sys.modules)\n"
        "sys.exit(3)\n"
    )
    assert process.wait(10) == 3
    said = (tmp_path / "out").read_text().splitlines()
    assert said[0] == f"__main__ ['one', 'two'] {tmp_path} as found {process.pid}"
    assert said[1] == "True False"


def test_the_mark_of_a_run_is_seen_from_outside_as_of_a_started_process(
    start: Callable[..., Forked], env: dict[str, str], tmp_path: Path
) -> None:
    mark = f"MSNB_RUN_{'0123456789abcdef' * 2}"
    process = start(
        "import os\n"
        "pid = os.fork()\n"
        "if not pid: os.setsid()\n"
        "print(open('/proc/self/environ').read().replace(chr(0), chr(10)), flush=True)\n"
        "print([name for name in os.environ if name.startswith('MSNB_RUN_')], flush=True)\n"
        "if pid: os.waitpid(pid, 0)\n",
        env={**env, mark: "1"},
    )
    assert process.wait(10) == 0, (tmp_path / "out").read_text()
    said = (tmp_path / "out").read_text()
    assert said.count(f"\n{mark}=1\n") == 2
    assert said.count(f"['{mark}']") == 2


def test_what_was_imported_before_is_there_at_once_and_whole(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    process = start(
        "import sys\n"
        "assert not [name for name in sys.modules if name.startswith('mindspore')]\n"
        "import mindspore, mindspore.part\n"
        "from mindspore import part\n"
        "assert part.HOME is mindspore is sys.modules['mindspore']\n"
        "print(mindspore.READ, mindspore.__spec__.name, mindspore.__file__)\n"
    )
    assert process.wait(10) == 0, (tmp_path / "out").read_text()
    said = (tmp_path / "out").read_text()
    assert said.startswith("as found mindspore ")
    assert said.endswith("mindspore/__init__.py\n")


@pytest.mark.parametrize("code", ["raise ValueError('bad')", "raise SystemExit('bad')"])
def test_an_error_is_shown_and_ends_with_1(
    code: str, start: Callable[..., Forked], tmp_path: Path
) -> None:
    assert start(code).wait(10) == 1
    assert "bad" in (tmp_path / "out").read_text()


def test_a_package_that_could_not_be_imported_fails_again(
    env: dict[str, str], start: Callable[..., Forked], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    (broken / "mindspore").mkdir(parents=True)
    (broken / "mindspore" / "__init__.py").write_text("from . import part\nraise ImportError(part)")
    (broken / "mindspore" / "part.py").write_text("")
    env = {**env, "PYTHONPATH": f"{broken}{os.pathsep}{env['PYTHONPATH']}"}
    (tmp_path / "n").mkdir()
    with Nursery(tmp_path / "n", sys.executable, env, ["mindspore"]) as nursery:
        nursery.wait_until_ready()
        assert start("import mindspore\n", nursery, env=env).wait(10) == 1
    assert "ImportError: <module 'mindspore.part'" in (tmp_path / "out").read_text()


def test_a_signal_is_told_as_popen_does(start: Callable[..., Forked]) -> None:
    process = start("import time; time.sleep(60)")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.kill()
    assert process.wait(5) == -signal.SIGKILL
    process.kill()  # nothing to do, nothing raised


def test_an_interrupt_reaches_python(start: Callable[..., Forked], tmp_path: Path) -> None:
    process = start(
        "import time\n"
        "try:\n    print('waiting', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    while "waiting" not in (tmp_path / "out").read_text():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 0
    assert "interrupted" in (tmp_path / "out").read_text()


def test_random_numbers_are_drawn_anew(start: Callable[..., Forked], tmp_path: Path) -> None:
    drawn: set[str] = set()
    for _ in range(2):
        process = start(
            "import random, numpy, torch\n"
            "print(random.random(), numpy.random.rand(), torch.default_generator.drawn)\n"
        )
        assert process.wait(10) == 0, (tmp_path / "out").read_text()
        drawn.update((tmp_path / "out").read_text().split())
    assert len(drawn) == 6


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"PRECIOUS": "other"}, "PRECIOUS"),
        ({"OMP_NUM_THREADS": "7"}, "OMP_NUM_THREADS"),
        ({"ASCEND_RT_VISIBLE_DEVICES": "3"}, "ASCEND_RT_VISIBLE_DEVICES"),
        ({"GLOG_v": "0"}, "GLOG_v"),
        ({"PYTHONHASHSEED": "1"}, "PYTHONHASHSEED"),
    ],
)
def test_another_environment_is_refused_by_name(
    variables: dict[str, str], name: str, start: Callable[..., Forked], env: dict[str, str]
) -> None:
    with pytest.raises(Refused, match=f"its environment differs in {name}$"):
        start("", env={**env, **variables})


def test_what_jupyter_and_the_runner_set_is_not_refused(
    start: Callable[..., Forked], env: dict[str, str], tmp_path: Path
) -> None:
    own = {"TMPDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": "/x", "MSNB_RUN_1": "1"}
    process = start(
        "import os, tempfile; print(tempfile.gettempdir(), os.environ['MSNB_RUN_1'])",
        env={**env, **own, "MPLBACKEND": _INLINE},
    )
    assert process.wait(10) == 0
    assert (tmp_path / "out").read_text() == f"{tmp_path} 1\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/usr/bin/other", "-m", "asked"], "it asks for the interpreter /usr/bin/other"),
        ([sys.executable, "-c", "pass"], "it asks for -c pass"),
        ([sys.executable, "-X", "dev"], "it asks for -X dev"),
        ([sys.executable], "it asks for "),
    ],
)
def test_another_command_is_refused(
    command: list[str], said: str, start: Callable[..., Forked]
) -> None:
    with pytest.raises(Refused, match=f"^{said}$"):
        start("", command=command)


def test_a_variable_set_before_the_import_makes_it_unfit(
    start: Callable[..., Forked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start("import os; os.environ['GLOG_v'] = '0'; import mindspore").wait(10) == UNFIT
    assert start("import os; os.environ['GLOG_v'] = '2'; import mindspore").wait(10) == 0
    assert start("import mindspore, os; os.environ['GLOG_v'] = '0'").wait(10) == 0


def test_what_an_import_puts_into_the_environment_comes_with_the_import(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    process = start(
        "import os\n"
        "before = os.environ.get('PRECIOUS_WAS_HERE')\n"
        "import mindspore, mindspore.part\n"
        "print(before, os.environ['PRECIOUS_WAS_HERE'])\n"
    )
    assert process.wait(10) == 0
    assert (tmp_path / "out").read_text() == "None yes\n"


def test_what_is_imported_is_found_where_it_lies(
    start: Callable[..., Forked], modules: Path, tmp_path: Path
) -> None:
    process = start(
        "from importlib.util import find_spec\n"
        "spec = find_spec('mindspore')\n"
        "print(spec.origin)\n"
        "print(*spec.submodule_search_locations, spec.has_location)\n"
        "print(spec.loader.get_filename('mindspore'))\n"
    )
    assert process.wait(10) == 0, (tmp_path / "out").read_text()
    home = modules / "mindspore"
    said = (tmp_path / "out").read_text().splitlines()
    assert said == [f"{home}/__init__.py", f"{home} True", f"{home}/__init__.py"]


def test_a_file_beside_the_notebook_hides_a_package_of_its_name(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    (tmp_path / "matplotlib.py").write_text("MINE = True\n")
    process = start("import matplotlib, mindspore; print(matplotlib.MINE, mindspore.READ)")
    assert process.wait(10) == 0, (tmp_path / "out").read_text()
    assert (tmp_path / "out").read_text() == "True as found\n"


def test_what_a_package_looks_for_is_there_with_it(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    process = start(
        "import sys; print('simple' in sys.modules)\n"
        "import mindspore.uses\n"
        "print(mindspore.uses.simple.me() is sys.modules['simple'], 'matplotlib' in sys.modules)\n"
    )
    assert process.wait(10) == 0, (tmp_path / "out").read_text()
    assert (tmp_path / "out").read_text() == "False\nTrue False\n"
    (tmp_path / "simple.py").write_text("MINE = True\n")
    process = start("import mindspore, simple; print(simple.MINE)")
    assert process.wait(10) == 0, (tmp_path / "out").read_text()


def test_other_packages_heed_the_variables_and_files_that_they_read(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    sets = "import os; os.environ['{}'] = 'x'; import matplotlib; print(matplotlib.HERE)"
    assert start(sets.format("UNRELATED")).wait(10) == 0, (tmp_path / "out").read_text()
    assert start(sets.format("MPLBACKEND")).wait(10) == UNFIT
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\n")
    assert start("import matplotlib").wait(10) == UNFIT


def test_the_recursion_limit_is_the_interpreters_until_a_package_sets_its_own(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    fresh = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.getrecursionlimit())"],
        capture_output=True,
        text=True,
    )
    process = start(
        "import sys; print(sys.getrecursionlimit())\n"
        "import mindspore; print(sys.getrecursionlimit())\n"
    )
    assert process.wait(10) == 0, (tmp_path / "out").read_text()
    assert (tmp_path / "out").read_text() == f"{fresh.stdout}7000\n"


def test_the_logger_of_the_nursery_which_writes_to_its_file_is_given_up(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    assert start("import mindspore.log as log; print(log.GLOBAL_LOGGER)").wait(10) == 0
    assert (tmp_path / "out").read_text() == "None\n"


def test_descriptors_get_the_numbers_asked_for(
    start: Callable[..., Forked], tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    with (tmp_path / "out").open("wb") as out, open(os.devnull, "rb") as nothing:
        for number in (3, 7):
            target = {0: nothing.fileno(), 1: out.fileno(), 2: out.fileno(), number: writing}
            process = start(f"import os; os.write({number}, b'here{number}')", descriptors=target)
            assert process.wait(10) == 0
            assert os.read(reading, 10) == f"here{number}".encode()
    os.close(writing)
    assert os.read(reading, 1) == b""  # nobody else holds the other end
    os.close(reading)


def test_a_client_that_is_killed_takes_its_process_along(
    shared: Nursery, env: dict[str, str], modules: Path, tmp_path: Path
) -> None:
    (modules / "sleeper.py").write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True); time.sleep(60)\n"
    )
    client = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time\n"
            "from msnb.regression.warm import Forked\n"
            "p = Forked(sys.argv[1], [sys.executable, '-m', 'sleeper'], env=os.environ,\n"
            "           cwd='.', descriptors={0: 0, 1: 1, 2: 2})\n"
            "print(p.pid, flush=True); time.sleep(60)\n",
            str(shared.address),
        ],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    pids = [int(client.stdout.readline()) for _ in range(2)]
    assert not any(gone(pid, 0.1) for pid in pids)
    client.kill()
    client.wait()
    client.stdout.close()
    assert all(gone(pid) for pid in pids)


def test_a_nursery_that_ends_leaves_nothing_one_that_is_killed_leaves_what_runs(
    env: dict[str, str],
    start: Callable[..., Forked],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for kill in (False, True):
        nursery = Nursery(tmp_path_factory.mktemp("n"), sys.executable, env, [])
        nursery.wait_until_ready()
        process = start("import time; time.sleep(60)", nursery)
        if kill:
            os.kill(nursery.pid, signal.SIGKILL)
            nursery.stop()
            assert process.poll() is None
            process.terminate()
            assert process.wait(5) == 255  # nobody is left who knows better
            with pytest.raises(ConnectionRefusedError):
                start("", nursery)
        else:
            nursery.stop()
            assert process.wait(5) != 0
        assert gone(process.pid)


def test_a_nursery_that_hangs_is_given_up(
    env: dict[str, str],
    start: Callable[..., Forked],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("msnb.regression.warm._ANSWER", 0.2)
    with Nursery(tmp_path_factory.mktemp("n"), sys.executable, env, []) as nursery:
        nursery.wait_until_ready()
        os.kill(nursery.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Refused, match=r"the nursery did not answer within 0\.2 s"):
                start("", nursery)
        finally:
            os.kill(nursery.pid, signal.SIGCONT)


def test_what_ends_under_a_nursery_that_hangs_is_seen_to_have_ended(
    env: dict[str, str],
    start: Callable[..., Forked],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Nursery(tmp_path_factory.mktemp("n"), sys.executable, env, []) as nursery:
        nursery.wait_until_ready()
        process = start("import time; time.sleep(60)", nursery)
        monkeypatch.setattr("msnb.regression.warm._ANSWER", 0.2)
        os.kill(nursery.pid, signal.SIGSTOP)
        try:
            assert process.poll() is None
            process.kill()
            assert process.wait(5) == 255
        finally:
            os.kill(nursery.pid, signal.SIGCONT)


def test_its_path_may_be_long_and_in_any_script(
    env: dict[str, str], start: Callable[..., Forked], tmp_path: Path
) -> None:
    folder = tmp_path / ("long " * 30) / "缓存"
    folder.mkdir(parents=True)
    with Nursery(folder, sys.executable, env, []) as nursery:
        nursery.wait_until_ready()
        assert start("raise SystemExit(7)", nursery).wait(5) == 7


def test_a_nursery_that_cannot_start_says_why(tmp_path: Path, env: dict[str, str]) -> None:
    with (
        Nursery(tmp_path, sys.executable, {**env, "GLOG_log_dir": "/proc/no"}, []) as nursery,
    ):
        nursery.wait_until_ready()  # a log folder is MindSpore's matter
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "log").write_text("in the way")
    with (
        Nursery(tmp_path / "again", sys.executable, env, []) as nursery,
        pytest.raises(Refused, match="the nursery ended: FileExistsError"),
    ):
        nursery.wait_until_ready()
