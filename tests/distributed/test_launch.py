"""`launch`: arguments, what a rank sees, what is said of a failure; scripts without MindSpore."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from faults import RANK, marked, nothing_left, run, write
from typer.testing import CliRunner

from msnb import Check, Report, cli
from msnb.distributed import verdict
from msnb.distributed.job import launch

SAY = RANK + (
    "import json\n"
    "print(json.dumps({'env': dict(os.environ), 'argv': sys.argv, 'path': sys.path[0],\n"
    "    'file': __file__, 'name': __name__, 'cwd': os.getcwd()}))\n"
    "print('to stderr', rank, file=sys.stderr)\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "目录 with space"
    made.mkdir()
    return made


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"world_size": 0}, ValueError, "world_size is the number of ranks, 1 or more, not 0"),
        ({"world_size": -1}, ValueError, "1 or more, not -1"),
        ({"world_size": "2"}, TypeError, "world_size is the number of ranks, an int, not '2'"),
        ({"world_size": True}, TypeError, "an int, not True"),
        ({"world_size": 2.0}, TypeError, "an int, not 2.0"),
        ({"timeout": 0}, ValueError, "timeout is a positive number of seconds, not 0"),
        ({"timeout": float("nan")}, ValueError, "timeout is a positive number of seconds, not nan"),
        ({"timeout": float("inf")}, ValueError, "timeout is a positive number of seconds, not inf"),
        ({"timeout": "60"}, ValueError, "not '60'"),
        ({"start_timeout": -1}, ValueError, "start_timeout is a positive number of seconds"),
        ({"args": "--epochs 3"}, TypeError, "args is a list of texts, such as"),
        ({"args": ["--epochs", 3]}, TypeError, "write '3' for 3"),
        ({"timeout": 10**400}, ValueError, "timeout is a positive number of seconds, not 1000"),
        ({"args": ["a\0b"]}, ValueError, "can hold a null byte: 'a\\x00b'"),
        ({"env": ["A=1"]}, TypeError, "env maps names to texts"),
        ({"env": {"A": 1}}, TypeError, "env maps names to texts"),
        ({"device_target": "Ascent"}, ValueError, "did you mean Ascend?"),
        ({"master_port": 80}, ValueError, "master_port is a port from 1024 to 65534, not 80"),
        ({"master_port": "8118"}, ValueError, "not '8118'"),
        ({"node_rank": 1}, ValueError, "give hosts, too"),
        ({"hosts": "a,b", "node_rank": 0}, TypeError, "hosts is a list of host names"),
        ({"hosts": [], "node_rank": 0}, TypeError, "hosts is a list of host names"),
        ({"hosts": ["a", ""], "node_rank": 0}, TypeError, "hosts is a list of host names"),
        ({"hosts": ["a", "b", "a"], "node_rank": 0}, ValueError, "hosts names a twice"),
        ({"hosts": ["a", "b"]}, TypeError, "which of the 2 hosts this machine is, from 0 to 1"),
        ({"hosts": ["a", "b"], "node_rank": 2}, ValueError, "from 0 to 1, not 2"),
        ({"hosts": ["a", "b"], "node_rank": -1}, ValueError, "from 0 to 1, not -1"),
        ({"hosts": ["a", "b", "c"], "node_rank": 0}, ValueError, "take 3"),
        ({"hosts": ["x.invalid", "b"], "node_rank": 1}, ValueError, "'x.invalid' has no address"),
    ],
)
def test_arguments_that_make_no_job(folder, change, error, sentence):
    script = write(folder, "print(1)")
    with pytest.raises(error) as raised:
        launch(script, **{"world_size": 2, "progress": False, "log_dir": folder / "logs", **change})
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("missing.py", FileNotFoundError, "no script"),
        ("", TypeError, "script is the path of a Python file, not ''"),
        (7, TypeError, "script is the path of a Python file, not 7"),
        ("folder", ValueError, "is a folder; name the file in it"),
        ("a.ipynb", ValueError, "is a notebook: each rank runs a Python file"),
    ],
)
def test_scripts_that_are_none(folder, monkeypatch, name, error, sentence):
    monkeypatch.chdir(folder)
    (folder / "folder").mkdir()
    (folder / "a.ipynb").write_text("{}")
    with pytest.raises(error) as raised:
        launch(name, world_size=2, progress=False)
    assert sentence in str(raised.value)


def test_a_script_that_is_a_pipe_or_a_working_folder_that_is_gone(folder, monkeypatch):
    os.mkfifo(folder / "pipe.py")
    with pytest.raises(ValueError, match="is a pipe, and every rank reads the script"):
        launch(folder / "pipe.py", world_size=2, progress=False)
    script = write(folder, "print(1)")
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError, match="the working folder does not exist any more"):
        launch(script, world_size=2, progress=False)


def test_numbers_of_numpy_are_numbers(folder, monkeypatch):
    script = write(folder, "import os\nprint(os.environ['RANK_SIZE'])\n")
    options = {"world_size": np.int64(1), "timeout": np.float32(60), "start_timeout": np.int64(9)}
    job, _ = run(script, monkeypatch, folder, hosts=["localhost"], node_rank=np.int64(0), **options)
    assert job.report.ok, job.report  # one host is a job of several hosts as well
    assert job.stdout == {0: "1\n"}


def test_a_log_dir_is_one_jobs(folder, monkeypatch):
    logs = folder / "logs"
    first = write(folder, "import time\nprint('here', flush=True)\ntime.sleep(600)\n", "first.py")
    options = f"world_size=1, log_dir={str(logs)!r}, progress=False"
    code = f"import msnb; msnb.launch({str(first)!r}, {options})"
    with subprocess.Popen([sys.executable, "-c", code]) as other:
        try:
            deadline = time.monotonic() + 60
            while not (logs / "rank_0.out").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            script = write(folder, "print('second')\n")
            with pytest.raises(ValueError, match="another job is running with log_dir"):
                launch(script, world_size=1, log_dir=logs, progress=False)
            assert (logs / "rank_0.out").exists()
        finally:
            other.kill()
    job = launch(script, world_size=1, log_dir=logs, progress=False)
    assert job.stdout == {0: "second\n"}


def test_a_log_dir_that_is_a_file(folder):
    script = write(folder, "print(1)")
    with pytest.raises(ValueError, match="is a file; name a folder"):
        launch(script, world_size=1, log_dir=script, progress=False)


def test_what_a_rank_sees_and_what_a_job_holds(folder, monkeypatch):
    script = write(folder, SAY)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TAKEN_AWAY", "1")
    stale = write(folder / "日志 logs", "of an earlier job", "rank_7.out")
    job, _ = run(
        script,
        monkeypatch,
        folder,
        args=["--epochs", "3", "中 文"],
        env={"OWN": "值", "TAKEN_AWAY": None},
    )
    assert job.exit_codes == {0: 0, 1: 0}
    assert not stale.exists()
    for rank in (0, 1):
        seen = json.loads(job.stdout[rank])
        assert job.stderr[rank] == f"to stderr {rank}\n"
        assert (job.log_dir / f"rank_{rank}.out").read_text() == job.stdout[rank]
        wanted = {
            "MS_ROLE": "MS_WORKER",
            "MS_WORKER_NUM": "2",
            "MS_SCHED_HOST": "127.0.0.1",
            "MS_NODE_ID": str(rank),
            "RANK_ID": str(rank),
            "RANK_SIZE": "2",
            "DEVICE_ID": str(rank),
            "MSNB_DEVICE_TARGET": "CPU",
            "OWN": "值",
        }
        assert {name: seen["env"].get(name) for name in wanted} == wanted
        assert "TAKEN_AWAY" not in seen["env"]
        assert seen["argv"] == [str(script), "--epochs", "3", "中 文"]
        assert seen["path"] == str(folder)
        assert (seen["file"], seen["name"], seen["cwd"]) == (
            str(script),
            "__main__",
            str(folder),
        )
    # two runs without init() exit with 0, and are no training
    assert job.report["job"].status == job.report["rank 0"].status == "ok"
    assert job.report["group"].status == "failed"
    assert "ranks 0, 1 never joined the group: 2 separate runs" in job.report["group"].summary
    assert not job.ok


def test_the_callers_own_log_is_not_the_ranks(folder, monkeypatch):
    for name, value in {
        "GLOG_v": "2",
        "GLOG_logtostderr": "0",
        "GLOG_log_dir": "/elsewhere/msnb-log-x1",
        "MS_OM_PATH": "/elsewhere/msnb-log-x1",
    }.items():
        monkeypatch.setenv(name, value)
    job, _ = run(write(folder, SAY), monkeypatch, folder, world_size=1)
    seen = json.loads(job.stdout[0])["env"]
    own = str(job.log_dir / "mindspore_log")
    assert (seen["GLOG_log_dir"], seen["MS_OM_PATH"]) == (own, own)
    assert not {"GLOG_v", "GLOG_logtostderr"} & set(seen)
    monkeypatch.setenv("GLOG_log_dir", "/elsewhere/chosen")  # what somebody chose stays
    job, _ = run(write(folder, SAY), monkeypatch, folder / "again", world_size=1)
    seen = json.loads(job.stdout[0])["env"]
    assert (seen["GLOG_log_dir"], seen["GLOG_v"]) == ("/elsewhere/chosen", "2")


def test_the_script_is_main_as_in_python(folder, monkeypatch):
    script = write(
        folder,
        "import inspect, multiprocessing, pickle, sys, json\n\n"
        "def double(x):\n    return 2 * x\n\n"
        "class Box:\n    pass\n\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n"
        "    print(type(pickle.loads(pickle.dumps(Box()))) is Box)\n"
        "    print(inspect.getsource(double).splitlines()[0], json.__name__)\n",
    )
    job, _ = run(script, monkeypatch, folder, world_size=1)
    assert job.stdout[0].splitlines() == ["[2, 4]", "True", "def double(x): json"], job.stderr


def test_the_command(folder, monkeypatch):
    script = write(folder, RANK + "print(sys.argv[1:])\nif 'x' in sys.argv:\n    sys.exit(3)\n")
    logs = folder / "logs"

    def invoke(*words):
        words = ["launch", *map(str, words)]
        return CliRunner().invoke(cli.make_app(), words)

    good = invoke(script, "--world-size", 1, "--log-dir", logs, "--", "--epochs", 3)
    assert good.exit_code == 0, good.output
    assert "launch train.py: ok (2 ok)" in good.stdout
    assert str(logs) in good.stderr
    assert (logs / "rank_0.out").read_text() == "['--epochs', '3']\n"
    bad = invoke(script, "x", "--world-size", 1, "--log-dir", logs, "--json")
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["checks"][0]["summary"].startswith("rank 0 failed first: raised")
    for words, sentence in (
        ([folder / "none.py"], "no script"),
        ([script, "--world-size", 0], "1 or more, not 0"),
        ([script, "--hosts", "a, a", "--node-rank", 0], "hosts names a twice"),
        ([script, "--device-target", "Ascent"], "did you mean Ascend?"),
    ):
        refused = invoke(*words)
        assert refused.exit_code == 2
        assert sentence in refused.stderr
        assert refused.stderr.endswith("nothing was run\n")


def test_options_of_the_script_without_dashes_before_them(folder):
    words = ["launch", str(write(folder, "pass")), "--epochs", "3"]
    refused = CliRunner().invoke(cli.make_app(), words)
    assert refused.exit_code == 2
    assert "[OPTIONS] {script} [-- ARGS]" in refused.stderr
    assert "No such option: --epochs" in refused.stderr


def test_an_interrupted_command_says_so(folder):
    script = write(folder, RANK + "print('here', flush=True)\ntime.sleep(600)\n")
    logs = folder / "logs"
    command = [sys.executable, "-m", "msnb.cli", "launch", str(script), "--log-dir", str(logs)]
    caller = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: all(_text(logs / f"rank_{r}.out") for r in (0, 1)), 30)
        caller.send_signal(signal.SIGINT)
        _, said = caller.communicate(timeout=20)
    finally:
        caller.kill()
    assert caller.returncode == 130
    assert said.endswith("interrupted: every rank was ended\n")
    assert "Traceback" not in said


def test_what_the_ranks_checks_found_is_in_the_report(folder, monkeypatch):
    good = Report("step 0", [Check("weights", "ok", "equal"), Check("seed", "skipped", "none")])
    bad = Report("step 9", [Check("weights", "failed", "apart"), Check("seed", "ok", "0")])
    clash = Report("job", [Check("weights", "ok")])
    empty = Report("step 11")
    lines = [json.dumps(report.to_json()) for report in (good, bad, clash, empty)]
    script = write(
        folder,
        RANK + f"lines = {lines!r}\n"
        "name = os.path.join(os.environ['MSNB_REPORT_DIR'], f'check_ranks.{rank + 9}.jsonl')\n"
        "open(name, 'w').write('\\n'.join(lines) + '\\n{\"schema\": 1, \"tit')\n",
    )
    job, _ = run(script, monkeypatch, folder)
    found = {c.id: (c.status, c.summary) for c in job.report if not c.id.startswith("rank ")}
    del found["job"], found["group"]
    assert found == {
        "step 0": ("ok", "ok (1 skipped, 1 ok)"),
        "step 9: weights": ("failed", "apart"),
        "job'": ("ok", "ok (1 ok)"),
        "step 11": ("error", "nothing was checked"),
    }


def test_the_first_rank_that_failed_is_named_with_its_own_traceback(folder, monkeypatch):
    write(folder, "def load(path):\n    return open(path).read()\n", "helper.py")
    script = write(
        folder,
        RANK + "import helper\nif rank == 1:\n    helper.load('missing.csv')\ntime.sleep(60)\n",
    )
    job, seconds = run(script, monkeypatch, folder)
    assert seconds < 10
    assert job.exit_codes[1] == 1
    assert job.exit_codes[0] == -signal.SIGTERM
    said = job.report["job"].summary
    assert said.startswith("rank 1 failed first: raised FileNotFoundError: [Errno 2] No such file")
    assert job.report["rank 1"].found.splitlines() == [
        "train.py:5 in <module>",
        "    helper.load('missing.csv')",
        "helper.py:2 in load",
        "    return open(path).read()",
        "FileNotFoundError: [Errno 2] No such file or directory: 'missing.csv'",
    ]
    assert job.report["rank 0"].status == "skipped"
    assert "Traceback (most recent call last):" in job.stderr[1]
    assert "bootstrap.py" not in job.stderr[1]


def test_a_rank_that_hangs_after_its_error_is_not_waited_for(folder, monkeypatch):
    script = write(
        folder,
        RANK + "import atexit\natexit.register(time.sleep, 60)\n"
        "if rank == 0:\n    raise ValueError('one\\ntwo')\ntime.sleep(60)\n",
    )
    job, seconds = run(script, monkeypatch, folder)
    assert seconds < 10
    assert job.report["job"].summary.startswith("rank 0 failed first: raised ValueError: one")


@pytest.mark.parametrize(
    ("end", "code", "sentence"),
    [
        ("sys.exit(3)", 3, "raised SystemExit: 3"),
        ("sys.exit('no data')", 1, "raised SystemExit: no data"),
        ("os._exit(7)", 7, "exit code 7"),
        ("os.kill(os.getpid(), 9)", -9, "killed by SIGKILL"),
    ],
)
def test_other_ends(folder, monkeypatch, end, code, sentence):
    script = write(folder, RANK + f"if rank == 1:\n    {end}\ntime.sleep(60)\n")
    job, seconds = run(script, monkeypatch, folder)
    assert seconds < 10
    assert job.exit_codes[1] == code
    assert f"rank 1 failed first: {sentence}" in job.report["job"].summary


def test_a_hang_shows_where_each_rank_stood(folder, monkeypatch):
    script = write(
        folder,
        RANK + "def wait_for_ever():\n    while True:\n        time.sleep(0.1)\n\n"
        "def train():\n    wait_for_ever()\n\n"
        "train()\n",
    )
    job, seconds = run(script, monkeypatch, folder, timeout=2)
    assert seconds < 10
    said = job.report["job"].summary
    assert said == "still running after its limit of 2 s, and ended: ranks 0, 1"
    for rank in (0, 1):
        assert job.report[f"rank {rank}"].found.splitlines() == [
            "it stood at train.py:5 in wait_for_ever",
            "  called from train.py:8 in train",
            "  called from train.py:10 in <module>",
        ]


def test_a_thread_that_never_ends_is_shown(folder, monkeypatch):
    script = write(
        folder,
        "import threading, time\n\ndef work():\n    time.sleep(600)\n\n"
        "threading.Thread(target=work).start()\n",
    )
    job, _ = run(script, monkeypatch, folder, world_size=1, timeout=1)
    said = "the script has ended, and a thread of it stood at train.py:4 in work"
    assert job.report["rank 0"].found == said


def test_a_rank_that_took_the_signal_for_its_stack_is_still_running(folder, monkeypatch):
    code = "import time; time.sleep(600)"
    script = write(
        folder, f"import os, sys\nos.execv(sys.executable, ['python', '-c', {code!r}])\n"
    )
    job, _ = run(script, monkeypatch, folder, world_size=1, timeout=1)
    assert job.report["job"].summary == "still running after its limit of 1 s, and ended: rank 0"
    assert job.report["rank 0"].summary == "still running"
    assert job.report["rank 0"].found == "its Python stack could not be had"


@pytest.mark.parametrize("end", ["raise ValueError('in the child')", "sys.exit(3)"])
def test_the_error_of_a_forked_child_is_not_the_ranks(folder, monkeypatch, end):
    script = write(
        folder, f"import os, sys\nif os.fork() == 0:\n    {end}\nos.wait()\nprint('well')\n"
    )
    job, _ = run(script, monkeypatch, folder, world_size=1)
    assert job.report.ok, job.report
    assert job.stdout == {0: "well\n"}


def test_a_message_that_no_terminal_can_show_is_escaped(folder, monkeypatch):
    script = write(folder, "raise ValueError('half a pair: \\ud800')\n")
    job, _ = run(script, monkeypatch, folder, world_size=1)
    assert r"raised ValueError: half a pair: \ud800" in job.report["rank 0"].summary
    str(job.report).encode()  # raises where it cannot be written


@pytest.mark.parametrize("line", ["breakpoint()\nprint(1)", "input('name? ')"])
def test_a_rank_has_no_terminal(folder, monkeypatch, line):
    job, _ = run(write(folder, line), monkeypatch, folder, world_size=1)
    assert job.report["job"].summary.endswith(": a rank has no terminal, so nobody can type")
    assert "breakpoint()" in job.report["job"].remedy


def test_a_required_report_is_named_and_our_own_frames_are_not_shown(folder, monkeypatch):
    script = write(
        folder, "import msnb\nmsnb.Report('mine', [msnb.Check('a', 'failed', '')]).require()"
    )
    job, _ = run(script, monkeypatch, folder, world_size=1)
    said = "ReportFailed: required, but not ok: mine: FAILED (1 failed)"
    assert f"raised {said} after" in job.report["rank 0"].summary
    frames = job.report["rank 0"].found.splitlines()
    assert frames[0] == "train.py:2 in <module>"
    assert frames[2].startswith("msnb/report.py:")
    assert frames[3:] == [said]


def test_what_a_script_puts_among_the_reports_does_no_harm(folder, monkeypatch):
    script = write(
        folder,
        "import os\nfolder = os.environ['MSNB_REPORT_DIR']\n"
        "open(folder + '/check_ranks.mine.jsonl', 'w').close()\n"
        "open(folder + '/check_ranks.0.jsonl', 'w').write('[]\\n3\\n{}\\n')\n",
    )
    job, _ = run(script, monkeypatch, folder, world_size=1)
    assert job.report.ok, job.report


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="auto is the GPU here")
@pytest.mark.parametrize(("devices", "status"), [((), "failed"), ((0, 1), "skipped")])
def test_on_auto_ranks_that_never_met_are_found(folder, monkeypatch, devices, status):
    monkeypatch.setattr(verdict.shares, "devices", lambda: devices)
    job, _ = run(write(folder, "pass"), monkeypatch, folder, device_target="auto")
    assert job.report["group"].status == status


def test_arguments_too_long_for_a_process(folder, monkeypatch):
    job, _ = run(write(folder, "pass"), monkeypatch, folder, args=["x" * 200_000])
    assert job.report["job"].summary.startswith("the ranks could not be started: Argument list")
    assert job.report["job"].remedy.startswith("pass fewer or shorter args")


def test_a_limit_that_is_reached_before_a_rank_has_begun(folder, monkeypatch):
    script = write(folder, "import time\ntime.sleep(60)\n")
    job, _ = run(script, monkeypatch, folder, timeout=0.001)
    said = job.report["job"].summary
    assert said == "still running after its limit of 0.001 s, and ended: ranks 0, 1"
    assert set(job.exit_codes.values()) == {-signal.SIGTERM}  # not of the signal for its stack


def test_interrupts_mean_to_a_rank_what_they_mean_to_python(folder, monkeypatch):
    script = write(
        folder,
        "import os, signal, sys\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n",
    )
    job, _ = run(script, monkeypatch, folder, world_size=1)
    assert job.stdout == {0: "interrupted\n"}


def test_what_a_rank_started_ends_with_it(folder, monkeypatch):
    script = write(
        folder,
        RANK + "import subprocess\n"
        "for own in (False, True):\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "                     start_new_session=own)\n",
    )
    job, _ = run(script, monkeypatch, folder)  # asserts that no process is left
    assert job.exit_codes == {0: 0, 1: 0}


def test_a_syntax_error_is_found_before_anything_starts(folder, monkeypatch):
    script = write(folder, "import os\nprint(1\n")
    job, seconds = run(script, monkeypatch, folder)
    assert seconds < 3
    assert job.exit_codes == {}
    check = job.report["script"]
    assert check.status == "failed"
    assert check.summary == "line 2: SyntaxError: '(' was never closed; nothing was started"
    assert (check.found, check.remedy) == ("print(1", "mend train.py, line 2")
    assert list(job.log_dir.glob("rank_*")) == []


def test_a_syntax_error_that_only_compiling_finds(folder, monkeypatch):
    job, _ = run(write(folder, "x = 1\nreturn x\n"), monkeypatch, folder)
    assert "line 2: SyntaxError: 'return' outside function" in job.report["script"].summary


def test_a_taken_port_is_found_before_anything_starts(folder, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        job, seconds = run(write(folder, "1"), monkeypatch, folder, master_port=port)
    assert seconds < 5
    assert job.exit_codes == {}
    assert job.report["job"].status == "failed"
    wanted = f"port {port} is taken (Address already in use) by process {os.getpid()}, "
    assert job.report["job"].summary.startswith(wanted)


def test_the_first_host_is_not_this_machine(folder, monkeypatch):
    hosts = ["192.0.2.1", "192.0.2.2"]  # of documentation's own network, RFC 5737
    job, _ = run(write(folder, "1"), monkeypatch, folder, hosts=hosts, node_rank=0)
    assert "192.0.2.1, the first host, is not this machine" in job.report["job"].summary


def test_a_first_host_that_only_knows_itself(folder, monkeypatch):
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answer)
    with pytest.raises(ValueError, match=r"'hostA' is 127\.0\.1\.1 here, where no other host can"):
        launch(
            write(folder, "1"),
            world_size=2,
            hosts=["hostA", "hostB"],
            node_rank=0,
            log_dir=folder / "logs",
        )


def test_more_ranks_than_cores_is_noted(folder, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    job, _ = run(write(folder, "import time\n"), monkeypatch, folder)
    assert job.report["cores"].status == "skipped"
    assert "2 ranks share 1 core: right, but slow" in job.report["cores"].summary


def test_more_ranks_than_devices_is_refused(folder, monkeypatch):
    script = write(folder, "import time\n")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0,3")
    job, _ = run(script, monkeypatch, folder, world_size=3, device_target="Ascend")
    assert job.exit_codes == {}
    assert "3 ranks on a machine with 2 Ascend devices; nothing" in job.report["devices"].summary
    assert job.report["devices"].remedy == "world_size=2"


def test_devices_are_visible_as_numbers_or_ranges_and_nothing_else(monkeypatch):
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,4-5")
    assert verdict.machine_notes(3, "Ascend") == []
    assert "4 ranks on a machine with 3 Ascend" in verdict.machine_notes(4, "Ascend")[0].summary
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "all")
    with pytest.raises(ValueError, match="numbers and ranges such as 0,2-3, not 'all'"):
        verdict.machine_notes(1, "Ascend")


def test_progress_is_one_line_on_stderr(folder, capsys):
    script = write(folder, "import time\n")
    job = launch(script, world_size=1, log_dir=folder / "logs")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("launch train.py: 1 rank on CPU, ok after ")
    assert printed.err.endswith(f"s; logs: {job.log_dir}\n")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_caller_is_the_end_of_the_job(folder, monkeypatch, signum):
    script = write(folder, RANK + "print('here', flush=True)\ntime.sleep(600)\n")
    marker = f"MSNB_TEST_{os.getpid()}_{signum.name}"
    code = (
        "import sys; from msnb.distributed.job import launch\n"
        f"launch({str(script)!r}, world_size=2, log_dir={str(folder / 'logs')!r})"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, marker: "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: all(_text(folder / "logs" / f"rank_{r}.out") for r in (0, 1)), 30)
        assert len(marked(marker)) >= 4  # caller, watcher, two ranks, perhaps the scheduler
        caller.send_signal(signum)
        _, said = caller.communicate(timeout=20)
        assert ("KeyboardInterrupt" in said) == (signum == signal.SIGINT)
        wait_for(lambda: not marked(marker), 10)
    finally:
        caller.kill()


@pytest.mark.parametrize("what", ["process", "port", "file"])
def test_the_look_at_what_is_left_can_fail(folder, monkeypatch, what):
    things = ExitStack()

    def leave(own):
        if what == "process":
            command = [sys.executable, "-c", "import time; time.sleep(60)"]
            process = subprocess.Popen(command, env={**os.environ, **own["env"]})
            things.callback(process.wait)
            things.callback(process.kill)
        elif what == "port":
            things.enter_context(socket.create_server(("127.0.0.1", own["master_port"])))
        else:
            Path(os.environ["TMPDIR"], "left").touch()

    with things, pytest.raises(AssertionError), nothing_left(monkeypatch, folder) as own:
        leave(own)


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_the_ranks_die_with_a_watcher_that_is_killed(folder, monkeypatch):
    script = write(
        folder,
        RANK + "import signal\nif rank == 1:\n    time.sleep(0.5)\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(600)\n",
    )
    job, seconds = run(script, monkeypatch, folder, patience=5)
    assert seconds < 20
    assert job.report["job"].status == "error"
    assert "the process that watched the ranks ended by itself" in job.report["job"].summary
