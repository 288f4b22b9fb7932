"""What happens to a run from outside: signals, disks, clocks, terminals, kernels, a second run."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from running import COMMAND, Place
from tiny_notebooks import REQUIRE, write_notebook

from msnb.regression.results import Results

# A pattern whose matching takes longer than the universe is old, and holds the interpreter's lock.
IN_C = 're.match("(a+)+b", "a" * 60)'
FULL = """
import errno, os
_sync = os.fsync
def fsync(descriptor):
    if os.path.exists(os.environ["FULL"]):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _sync(descriptor)
os.fsync = fsync
"""
JUMPING = """
import time
_time, _calls = time.time, [0]
def jumping():
    _calls[0] += 1
    return _time() + 300 * _calls[0] % 100_000  # ahead with each call, and back now and then
time.time = jumping
"""
KILLS_WHAT_EXECUTES_IT = """\
import os, psutil, time
parent = psutil.Process(os.getppid())
forked = "msnb.regression.warm" in parent.cmdline()  # as was its sibling, which executes it
for process in parent.children() if forked else [parent]:
    if process.pid != os.getpid():
        process.kill()
time.sleep(600)"""
SUMMARY = """\
import mindspore as ms
from msnb.report import Check, Report
total = int(ms.ops.add(ms.Tensor(2), ms.Tensor(2)))
Report("all", [Check("sum", "ok" if total == 4 else "failed"), context.check()]).require()"""


def customised(place: Place, source: str) -> dict[str, str]:
    """The environment in which every Python of a run begins with ``source``."""
    folder = place.root / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(source)
    return {"PYTHONPATH": str(folder)}


def waiting(place: Place, name: str, wait: str = "import time\n    time.sleep(600)") -> Path:
    """A notebook that writes a file and waits, unless a file ``go`` is there; returns the first."""
    flag, go = place.root / "started", place.root / "go"
    write_notebook(
        place.root / "notebooks" / f"{name}.ipynb",
        f'print("here")\nopen({str(flag)!r}, "w").close()\nimport os, re\n'
        f"if not os.path.exists({str(go)!r}):\n    {wait}",
        REQUIRE,
    )
    return flag


def started(stderr: str) -> list[str]:
    return [line.split()[1] for line in stderr.splitlines() if line.startswith("start ")]


def test_what_is_left_is_found(place: Place) -> None:
    """The promise of ``place`` can be broken: by a process, by a file, by a changed source."""
    process = place.popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(AssertionError, match=re.escape("time.sleep(600)")):
        place.check(within=1)
    process.kill()
    process.communicate()
    (place.temporary / "left").touch()
    with pytest.raises(AssertionError, match="left behind"):
        place.check()
    (place.temporary / "left").unlink()
    source = next(iter(place.sources))
    before = source.read_bytes()
    source.write_text("changed")
    with pytest.raises(AssertionError, match="changed: "):
        place.check()
    source.write_bytes(before)


def test_interrupted_refused_to_others_and_resumed(place: Place) -> None:
    flag = waiting(place, "02_second")
    process = place.start("--out", "out", "--jobs", "1")
    place.until(flag, process)
    for options in ((), ("--resume",)):
        second = place.run(*options)
        assert second.code == 2
        assert f"another run is writing to {place.root / 'out'}\n" in second.stderr
    process.send_signal(signal.SIGINT)
    ran = place.finish(process)
    assert ran.code == 130
    assert ran["01_first"].verdict == "ok"
    assert ran["02_second"].verdict == "error"
    assert ran["02_second"].reason == 'interrupted in cell [2] print("here")'
    assert ran.results is not None
    assert not ran.results.complete
    assert "here" in (ran.out / "02_second.ipynb").read_text()
    assert "interrupted: 1 of 2 notebooks ran to a verdict" in (ran.out / "report.html").read_text()

    (place.root / "go").touch()
    (ran.out / ".results.json.x.tmp").touch()  # torn by a run that was killed
    again = place.run("--resume")
    assert again.code == 0, again.stderr
    assert started(again.stderr) == ["02_second"]
    assert "kept from before: 01_first" in again.stderr
    assert 'again 02_second: interrupted in cell [2] print("here")' in again.stderr
    assert (again["01_first"].kept, again["02_second"].kept) == (True, False)
    assert again["01_first"].seconds == ran["01_first"].seconds
    assert not list(again.out.glob(".*"))


def test_interrupted_before_the_rest_began(place: Place) -> None:
    flag = waiting(place, "01_first")
    process = place.start("--out", "out", "--jobs", "1")
    place.until(flag, process)
    process.send_signal(signal.SIGTERM)
    ran = place.finish(process)
    assert ran.code == 143
    second = ran["02_second"]
    assert (second.verdict, second.reason) == ("error", "not started: the run was interrupted")
    assert second.executed is None


def kernelspec(place: Place, name: str, *argv: str) -> dict[str, str]:
    spec = place.root / "share" / "kernels" / name
    spec.mkdir(parents=True)
    about = {"argv": argv, "display_name": name, "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(about))
    write_notebook(place.root / "notebooks" / "01_first.ipynb", REQUIRE, kernel=name)
    return {"JUPYTER_PATH": str(place.root / "share")}


def test_a_kernel_that_never_starts_is_named_in_time(place: Place) -> None:
    sleeper = (sys.executable, "-c", "import time; time.sleep(600)", "{connection_file}")
    where = kernelspec(place, "sleeper", *sleeper)
    ran = place.run("01", "--start-timeout", "2", **where)
    assert ran.code == 1
    result = ran["01_first"]
    assert (result.verdict, result.remedy) == ("error", "msnb doctor")
    assert result.reason == "its kernel did not start: Kernel didn't respond in 2 seconds"
    assert ran.seconds < 60


@pytest.mark.slow
def test_a_kernel_that_dies_at_once_is_named(place: Place) -> None:
    ran = place.run("01", **kernelspec(place, "dead", sys.executable, "-c", "raise SystemExit(5)"))
    assert ran.code == 1
    assert ran["01_first"].reason.startswith("its kernel did not start: Kernel died before")


def test_a_kernel_of_another_environment_is_refused(place: Place) -> None:
    argv = ("/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}")
    ran = place.run("01", **kernelspec(place, "other", *argv))
    assert ran.code == 2
    assert "the kernel 'other' starts /usr/bin/python3, which is not this env" in ran.stderr
    assert not ran.out.exists()


def test_a_kernelspec_that_ends_up_elsewhere_is_found_out(place: Place) -> None:
    """Its interpreter is this environment's; what that starts is not."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    paths = os.pathsep.join(path for path in sys.path if path)
    code = (
        "import os, sys; "
        f"os.environ['PYTHONPATH'] = {paths!r}; "
        f"os.execv({str(base)!r}, [{str(base)!r}, '-m', 'ipykernel_launcher', *sys.argv[1:]])"
    )
    argv = (sys.executable, "-c", code, "-f", "{connection_file}")
    ran = place.run("01", **kernelspec(place, "detour", *argv))
    assert ran.code == 1
    assert ran["01_first"].interpreter == str(base)
    assert ran["01_first"].reason.startswith(f"its kernel ran {base}, which is not this environ")


def test_a_disk_that_is_full_at_the_start(place: Place) -> None:
    full = place.root / "full"
    full.touch()
    ran = place.run(**customised(place, FULL), FULL=str(full))
    assert ran.code == 2
    assert "the results cannot be written: No space left on device: " in ran.stderr
    assert started(ran.stderr) == []
    assert list(ran.out.iterdir()) == []


def test_a_disk_that_gets_full_in_the_middle(place: Place) -> None:
    full = place.root / "full"
    write_notebook(
        place.root / "notebooks" / "02_second.ipynb", f"open({str(full)!r}, 'w').close()", REQUIRE
    )
    write_notebook(place.root / "notebooks" / "03_third.ipynb", REQUIRE)
    ran = place.run("--jobs", "1", **customised(place, FULL), FULL=str(full))
    assert ran.code == 1
    assert "the results cannot be written: No space left on device: " in ran.stderr
    assert started(ran.stderr) == ["01_first", "02_second"]
    shown = [line.split()[:2] for line in ran.stdout.splitlines()[1:4]]
    assert shown == [["ok", "01_first"], ["ok", "02_second"], ["ERROR", "03_third"]]
    assert "not started: the run ended early" in ran.stdout
    assert (ran["01_first"].verdict, ran["02_second"].reason) == ("ok", "not started")
    assert {path.name for path in ran.out.glob("*.ipynb")} == {"01_first.ipynb"}
    assert not list(ran.out.glob(".*"))


def test_a_clock_that_jumps_by_hours_stops_nothing(place: Place) -> None:
    write_notebook(
        place.root / "notebooks" / "01_first.ipynb",
        "import time\nseen = [time.time() for _ in range(99)]\nassert max(seen) - min(seen) > 7000",
        REQUIRE,
    )
    ran = place.run("01", **customised(place, JUMPING))
    assert ran.code == 0, ran.stdout
    assert all(0 <= seconds < 200 for seconds in ran["01_first"].phases.values())
    assert 0 < ran["01_first"].seconds < 200


@pytest.mark.parametrize("colours", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_narrow_terminal(place: Place, colours: bool) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    pid = os.fork()
    if not pid:  # a terminal is that of a session
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for descriptor in (0, 1, 2):
            os.dup2(slave, descriptor)
        os.chdir(place.root)
        for name in ("NO_COLOR", "COLUMNS", "FORCE_COLOR", "CI"):
            os.environ.pop(name, None)
        os.environ.update({} if colours else {"NO_COLOR": "1"})
        os.environ.update({place.token: "1", "TMPDIR": str(place.temporary), "TERM": "xterm"})
        os.execv(COMMAND, [str(COMMAND), "run", "01", "--out", "out"])
    os.close(slave)
    said = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:  # Linux: the other end is closed
            break
        said += chunk
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    text = said.decode()
    coloured = re.findall(r"\x1b\[(?:\d+;)*3\d(?:;\d+)*m", text)
    assert bool(coloured) == colours
    assert "start   01_first" not in text  # the live table takes its place
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).rsplit("msnb run on CPU", 1)[1]
    assert last.startswith(": ok (1 ok)")


def test_each_notebook_gets_devices_of_its_own(place: Place) -> None:
    """Nothing here needs a device: what is looked at is which ones a notebook would see."""
    shows = 'import os\nprint("sees", os.environ["ASCEND_RT_VISIBLE_DEVICES"])'
    required = REQUIRE.replace('found="CPU"', "found=device_target")
    for name in ("01_first", "02_second", "07_many"):
        extra = "\nworld_size: int = 2" if name == "07_many" else ""
        write_notebook(
            place.root / "notebooks" / f"{name}.ipynb",
            shows,
            required,
            parameters=f'device_target: str = "CPU"{extra}',
        )
    ran = place.run(
        *("--device-target", "Ascend", "--jobs", "3"), ASCEND_RT_VISIBLE_DEVICES="4,1,6,7"
    )
    assert ran.code == 0, ran.stdout
    assert {name: ran[name].share for name in ("01_first", "02_second", "07_many")} == {
        "01_first": {"devices": [4]},
        "02_second": {"devices": [1]},
        "07_many": {"devices": [6, 7]},
    }
    assert "sees 6,7" in (ran.out / "07_many.ipynb").read_text()


@pytest.mark.slow
def test_a_killed_runner_leaves_nothing_running_and_can_be_resumed(place: Place) -> None:
    """Neither does a kernel whose threads cannot run: the pattern holds the interpreter's lock."""
    flag = waiting(place, "02_second", IN_C)
    process = place.start("--out", "out", "--jobs", "1")
    place.until(flag, process)
    process.kill()
    process.communicate()
    place.check()
    assert not Results.read(place.root / "out").complete
    (place.root / "go").touch()
    again = place.run("--resume")
    assert (again.code, started(again.stderr)) == (0, ["02_second"]), again.stderr


@pytest.mark.slow
def test_a_cell_that_kills_the_process_that_runs_it(place: Place) -> None:
    """What executes a notebook is not what judges it, and that is still there."""
    first = place.root / "notebooks" / "01_first.ipynb"
    write_notebook(first, KILLS_WHAT_EXECUTES_IT, REQUIRE)
    ran = place.run("--jobs", "1")
    assert ran.code == 1
    assert ran["01_first"].reason == (
        "its process ended without a word, in cell [2] import os, psutil, time"
    )
    assert ran["02_second"].verdict == "ok"
    assert ran.seconds < 90


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_kernel_that_hangs(place: Place, signum: int) -> None:
    flag = waiting(place, "01_first", IN_C)
    process = place.start("01", "--out", "out")
    place.until(flag, process)
    process.send_signal(signum)
    time.sleep(0.3)
    process.send_signal(signum)
    sent = time.monotonic()
    ran = place.finish(process)
    assert time.monotonic() - sent < 30
    assert ran.code == 128 + signum
    assert ran["01_first"].verdict == "error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("--timeout", "took longer than 8 s; it was in cell [2] print("),
        ("--cell-timeout", "longer than 8 s in cell [2] print("),
    ],
)
def test_a_loop_inside_c_ends_at_its_limit(place: Place, limit: str, reason: str) -> None:
    waiting(place, "01_first", IN_C)
    ran = place.run("01", limit, "8")
    assert ran.code == 1
    assert ran["01_first"].verdict == "failed"
    assert ran["01_first"].reason.startswith(reason)
    assert ran.seconds < 90


@pytest.mark.slow
def test_a_notebook_on_mindspore_runs_where_it_is_told(place: Place) -> None:
    cells = ("import msnb\ncontext = msnb.setup(device_target)", SUMMARY)
    write_notebook(place.root / "notebooks" / "01_first.ipynb", *cells)
    for device, verdict in (("cpu", "ok"), ("Ascend", "failed")):
        ran = place.run("1", "--device-target", device, out=device)
        result = ran["01_first"]
        assert (ran.code, result.verdict) == (int(verdict != "ok"), verdict), result.reason
        if device == "Ascend":
            assert result.parameters["device_target"] == "Ascend"
            assert result.reason.startswith("DeviceUnavailable: ")
            assert result.reason.endswith(" in cell [2] import msnb")


@pytest.mark.slow
def test_the_longest_comes_first_by_cells_then_by_what_it_took(place: Place) -> None:
    names = ("01_first", "02_second", "03_third")
    for name, cells in zip(names, (["1"], ["1", "1"], ["import time; time.sleep(3)"]), strict=True):
        write_notebook(place.root / "notebooks" / f"{name}.ipynb", *cells, REQUIRE)
    orders = []
    for _ in range(2):
        process = place.start("--jobs", "2")  # without --out: into runs/, where the next one looks
        stderr = process.communicate()[1]
        assert process.returncode == 0, stderr
        orders.append(started(stderr))
    assert orders[0][0] == "02_second"
    assert orders[1][0] == "03_third"
