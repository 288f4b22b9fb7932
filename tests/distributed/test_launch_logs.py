"""What logs say: recorded lines of CANN, MindSpore's own messages, hard-coded ranks in scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hccl_logs import CAUSES, LOGS, SOURCES

from msnb.distributed import causes, script, verdict

ENVIRON = {"MSNB_DEVICE_TARGET": "Ascend", "MS_WORKER_NUM": "2"}


def test_every_recorded_log_has_a_source_and_a_cause():
    assert set(LOGS) == set(SOURCES) == set(CAUSES)


@pytest.mark.parametrize("name", LOGS)
def test_the_first_error_of_a_recorded_log_is_named(tmp_path, name):
    folder = tmp_path / "debug" / "plog"
    folder.mkdir(parents=True)
    (folder / "plog-1_20250101.log").write_text(LOGS[name])
    error = causes.first_driver_error(tmp_path)
    first = next(line for line in LOGS[name].splitlines() if line.startswith(("[ERROR]", "E")))
    assert error.line == first
    known = causes.explain(error.line)
    assert known.cause.startswith(CAUSES[name])
    assert known.remedy


def plog(folder: Path, pid: int, time: str, text: str) -> None:
    path = folder / "debug" / "plog" / f"plog-{pid}_1.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(f"[ERROR] HCCL({pid},python):2026-11-29-{time} [a.cc:1] {text}\n")


def judged(folder, target="Ascend", why="failed", began=0.0):
    record = {"raised": None, "exit": 1, "seconds": 9.0, "stopped": False, "stack": ""}
    record["joined"] = True
    ranks = {str(r): {**record, "pid": 100 + r, "failed_at": 9.0 + r} for r in (0, 1)}
    end = {"why": why, "first": 0, "seconds": 10.0, "began": began, "ranks": ranks}
    environ = {**ENVIRON, "MSNB_DEVICE_TARGET": target, "ASCEND_PROCESS_LOG_PATH": str(folder)}
    request = {"ranks": {"0": environ, "1": environ}, "script": "/a/train.py", "hosts": None}
    return {c.id: c for c in verdict.judge(end, request, {}, folder)}


def test_on_ascend_the_first_error_of_the_driver_is_in_the_report(tmp_path):
    plog(tmp_path, 100, "10:00:02.000.001", "wait socket establish timeout, role[0] rank[0]")
    plog(tmp_path, 101, "10:00:01.000.001", 'fault_info["Failed to connect agent[1,3,]"]')
    plog(tmp_path, 999, "09:00:00.000.001", "another job's")
    check = judged(tmp_path)["driver's log"]
    assert check.status == "failed"
    assert check.summary == (
        "rank 1 first, at 2026-11-29-10:00:01.000.001: ranks 1, 3 never came to the group"
    )
    assert check.found.endswith("plog-101_1.log")
    assert "HCCL_CONNECT_TIMEOUT=600" in check.remedy


def test_logs_of_earlier_jobs_and_of_other_devices_are_none(tmp_path):
    plog(tmp_path, 100, "10:00:02.000.001", "wait socket establish timeout")
    old = tmp_path / "debug" / "plog" / "plog-100_1.log"
    os.utime(old, (1000, 1000))
    check = judged(tmp_path, began=2000)["driver's log"]
    assert check.status == "skipped"
    assert "no error of HCCL or HCCP in" in check.summary
    assert "driver's log" not in judged(tmp_path, target="CPU")
    assert "driver's log" not in judged(tmp_path, why="done")


def test_the_drivers_logs_are_where_cann_puts_them():
    assert causes.driver_folder({"HOME": "/home/me"}) == Path("/home/me/ascend/log")
    given = {"HOME": "/home/me", "ASCEND_PROCESS_LOG_PATH": "/data/log"}
    assert causes.driver_folder(given) == Path("/data/log")


def test_what_mindspore_warns_of_every_time_is_no_cause(tmp_path):
    record = {"raised": None, "exit": 7, "seconds": 9.0, "stopped": False, "stack": ""}
    ranks = {"0": {**record, "pid": 100, "failed_at": 9.0, "joined": True}}
    end = {"why": "failed", "first": 0, "seconds": 10.0, "began": 0.0, "ranks": ranks}
    environ = {**ENVIRON, "MSNB_DEVICE_TARGET": "CPU"}
    request = {"ranks": {"0": environ}, "script": "/a/train.py", "hosts": None}
    warned = (
        "[WARNING] DISTRIBUTED(23098,7f557667bb80,python):2026-11-29-19:03:55.297.268 "
        "[mindspore/ccsrc/cluster/topology/cluster_context.cc:316] BuildCluster] Topology build "
        "timed out., retry(1/60).\n"
    )
    for text, summary in (
        (warned, "exit code 7 after 9.0 s"),
        (
            "RuntimeError: The total number of timed out node is 1.",
            "exit code 7 after 9.0 s: another rank went silent",
        ),
    ):
        (_, check) = verdict.judge(end, request, {0: text}, tmp_path)
        assert check.summary == summary


def test_a_message_that_is_not_known_has_no_cause():
    assert causes.explain("all is well") is None
    assert causes.explain("[ERROR] HCCL(1,python): something new") is None


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("os.environ['RANK_ID'] = '0'", "os.environ['RANK_ID'] = '0'; the launcher sets it"),
        ("environ['DEVICE_ID'] = str(0); environ['RANK_SIZE'] = '2'", "environ['RANK_SIZE'] = '2'"),
        ("os.environ.setdefault('RANK_ID', '0')", "os.environ.setdefault('RANK_ID', '0'); the"),
        ("os.putenv('MS_ROLE', 'MS_WORKER')", "os.putenv('MS_ROLE', 'MS_WORKER'); the launcher"),
        ("RANK_ID = 0", "RANK_ID = 0; use mindspore.communication.get_rank()"),
        ("device_num: int = 8", "device_num = 8; use mindspore.communication.get_group_size()"),
        ("ms.set_context(device_id=3)", "device_id=3; leave it out: DEVICE_ID holds it"),
        ("Data(num_shards=2, shard_id=rank)", "num_shards=2; use mindspore.communication"),
        ("connect('192.168.1.7:8118')", "the address '192.168.1.7:8118'; pass it in"),
        ("HOST = '127.0.0.1'", "the address '127.0.0.1'; pass it in"),
    ],
)
def test_a_hard_coded_rank_or_address_is_pointed_out(tmp_path, line, what):
    path = tmp_path / "train.py"
    path.write_text(f"import os\n\n{line}\n")
    (note,), fatal = script.examine(path)
    assert fatal == []
    assert (note.id, note.status) == ("hard-coded", "skipped")
    assert f"line 3: {what}" in note.summary


def test_what_is_computed_is_not_pointed_out(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "rank = get_rank()\nrank_size = int(os.environ['RANK_SIZE'])\n"
        "ms.set_context(device_id=int(os.environ['DEVICE_ID']))\n"
        "version = '1.2.3'\nlr = 0.1\nos.environ['OMP_NUM_THREADS'] = '1'\nrank = None\n"
        "text = '999.1.1.1'\nsquare = '1.2.3.\u00b2'\nData(num_shards=size, shard_id=rank)\n"
    )
    assert script.examine(path) == ([], [])


def test_a_script_that_is_no_text(tmp_path):
    path = tmp_path / "train.py"
    path.write_bytes(b"x = 1\n\0")
    notes, (check,) = script.examine(path)
    assert (notes, check.status) == ([], "failed")
    assert "nothing was started" in check.summary
