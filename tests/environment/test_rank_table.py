"""Rank tables from public pages, as they stand and broken in one named way: verdict and remedy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from msnb.environment import check_rank_table, ranktable
from msnb.environment.__main__ import main
from msnb.report import Report

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "tests" / "data" / "rank_tables"
GOOD = {  # name of the file: ranks, counted by hand
    "training_two_servers.jsonc": 4,
    "a2_one_server.jsonc": 2,
    "a3_two_superpods.jsonc": 16,
    "group_list_two_instances.jsonc": 2,
    "group_list_lab.json": 2,
    "two_servers_16.json": 16,
    "a3_one_server_16.json": 16,
    "serving_ok_8.json": 8,
}


def text_of(name: str) -> str:
    """A recorded table; without the comments that its page says to delete."""
    text = (TABLES / name).read_text(encoding="utf-8")
    return re.sub("//.*", "", text) if name.endswith(".jsonc") else text


def machine(root: Path, hccn: str | None = None) -> Path:
    """A tree with ``/etc/hccn.conf``, or without."""
    (root / "etc").mkdir(parents=True, exist_ok=True)
    if hccn is not None:
        (root / "etc" / "hccn.conf").write_text(hccn, encoding="utf-8")
    return root


def judged(
    folder: Path,
    name: str,
    *changes: tuple[str, str],
    hccn: str | None = None,
    **environment: str,
) -> Report:
    """The Report on a recorded table with the first of each words replaced by others."""
    text = text_of(name)
    for old, new in changes:
        assert old in text, f"{name} has no {old!r}"
        text = text.replace(old, new, 1)
    file = folder / "rank table 表.json"
    file.write_text(text, encoding="utf-8")
    return check_rank_table(file, root=machine(folder / "root", hccn), environment=environment)


def failing(report: Report) -> list[str]:
    return [check.id for check in report if check.status in ("failed", "error")]


@pytest.mark.parametrize("name", GOOD)
def test_published_tables_are_good(name: str, tmp_path: Path) -> None:
    report = judged(tmp_path, name)
    assert report.ok, str(report)
    assert report["ranks"].metrics == {"ranks": GOOD[name]}
    assert report["this machine"].status == report["RANK_ID"].status == "skipped"


def test_every_recorded_file_is_used_and_has_its_source() -> None:
    sources = (TABLES / "SOURCES.md").read_text(encoding="utf-8")
    used = Path(__file__).read_text(encoding="utf-8")
    for file in TABLES.iterdir():
        if file.name != "SOURCES.md":
            known = "serving_*.json" if file.name.startswith("serving") else file.name
            assert f"| {known} |" in sources, file.name
            assert f'"{file.name}"' in used, file.name


PUBLISHED_BAD = [
    ("placeholders.json", "device_ip", '"192.1.*.6", a placeholder'),
    (
        "ranks_2_and_3.json",
        "ranks",
        "ranks 0, 1 are missing; ranks 2, 3 are beyond 1, the last of 2",
    ),
    ("serving_no_server_list.json", "form", "has neither server_list nor group_list"),
    ("serving_server_list_is_text.json", "form", "server_list is text, not a list"),
    ("serving_server_list_empty.json", "form", "server_list is empty"),
    ("serving_no_server_id.json", "servers", "server_id is missing"),
    ("serving_server_id_is_list.json", "servers", "server_id is []"),
    ("serving_device_is_text.json", "form", "device of server_list[0] is text, not a list"),
    ("serving_device_empty.json", "form", "device of server_list[0] is empty"),
    ("serving_no_device_id.json", "devices", "is missing"),
    ("serving_bad_device_id.json", "devices", 'is "1wdb"'),
    (
        "serving_no_rank_id.json",
        "ranks",
        "rank_id of device 0 of server '10.155.111.140' is missing",
    ),
    ("serving_bad_rank_id.json", "ranks", 'is "0wer"'),
    ("serving_rank_5_of_1.json", "ranks", "rank 0 is missing; rank 5 is beyond 0"),
]


@pytest.mark.parametrize(("name", "row", "says"), PUBLISHED_BAD)
def test_published_tables_that_are_bad(name: str, row: str, says: str, tmp_path: Path) -> None:
    report = judged(tmp_path, name)
    assert row in failing(report)
    assert says in report[row].summary
    assert report[row].remedy.startswith("vi '")


TWO, LAB, PODS = "two_servers_16.json", "group_list_lab.json", "a3_two_superpods.jsonc"
BROKEN = [  # table; words replaced; the one row that fails; what it says; what it says to type
    (
        TWO,
        ('"rank_id": "3"', '"rank_id": "2"'),
        "ranks",
        "rank 2 is written for device 2 of",
        "rank_id",
    ),
    (TWO, ('"rank_id": "3"', '"rank_id": "2"'), "ranks", "rank 3 is missing", "rank_id 0 to 15"),
    (
        TWO,
        ('"rank_id": "15"', '"rank_id": "16"'),
        "ranks",
        "rank 16 is beyond 15",
        "rank_id 0 to 15",
    ),
    (TWO, ('"rank_id": "0"', '"rank_id": "-1"'), "ranks", 'is "-1"', "rank_id"),
    (
        TWO,
        ('"server_count": "2"', '"server_count": "1"'),
        "counts",
        'server_count is "1", there are 2',
        '"server_count": "2"',
    ),
    (
        TWO,
        ('"server_count": "2",', ""),
        "counts",
        "server_count is missing, there are 2",
        '"server_count": "2"',
    ),
    (
        TWO,
        ("10.155.111.141", "10.155.111.140"),
        "servers",
        "'10.155.111.140' is written for 2 servers",
        "server_id",
    ),
    (TWO, ("10.155.111.141", "x" * 65), "servers", "has 65 characters", "server_id"),
    (
        TWO,
        ('"device_id": "1"', '"device_id": "0"'),
        "devices",
        "device 0 is written twice",
        "/dev/davinci*",
    ),
    (
        TWO,
        ("192.1.27.8", "192.1.27.6"),
        "device_ip",
        "192.1.27.6 is written for device 0 of server",
        "hccn.conf",
    ),
    (TWO, ('"device_ip": "192.1.27.8",', ""), "device_ip", "is missing", "hccn.conf"),
    (
        TWO,
        ("192.1.27.8", "192.1.27.800"),
        "device_ip",
        '"192.1.27.800", no IP address',
        "hccn.conf",
    ),
    (
        TWO,
        ('"completed"', '"initializing"'),
        "status",
        'status is "initializing"',
        '"status": "completed"',
    ),
    (TWO, ('"version": "1.0",', ""), "form", "has no version", '"version": "1.0"'),
    (TWO, ('"version": "1.0"', '"version": "3"'), "form", 'version is "3"', '"version": "1.0"'),
    (TWO, ('"version": "1.0"', '"version": "2.0"'), "form", "of Ascend 950", "vi "),
    (
        TWO,
        ('"rank_id": "0"', '"rank_id": 0'),
        "text",
        "rank_id is 0 in server_list[0].device[0]",
        "sed -Ei",
    ),
    (TWO, ('"server_list"', '"server_group_list"'), "form", "global-ranktable", "vi "),
    (
        LAB,
        ('"device_num": "2"', '"device_num": "4"'),
        "counts",
        'device_num is "4", there are 2',
        '"device_num": "2"',
    ),
    (
        LAB,
        ('"server_num": "1"', '"server_num": "2"'),
        "counts",
        'server_num is "2", there are 1',
        '"server_num": "1"',
    ),
    (
        LAB,
        ('"instance_count": "2"', '"instance_count": "1"'),
        "counts",
        'instance_count is "1"',
        '"instance_count": "2"',
    ),
    (LAB, ('"rank_id":"1"', '"rank_id":"0"'), "ranks", "rank 1 is missing", "rank_id 0, 1"),
    (
        LAB,
        ('"device_id":"1"', '"device_id":"0"'),
        "devices",
        "device 0 is written twice",
        "/dev/davinci*",
    ),
    (
        LAB,
        ('"instance_list"', '"instances"'),
        "form",
        "instance_list of group_list[0] is missing",
        "vi ",
    ),
    (
        PODS,
        ('{"server_id": "node_1"}', '{"server_id": "node_0"}'),
        "SuperPoDs",
        "server 'node_1' is in no SuperPoD",
        "super_pod_list",
    ),
    (
        PODS,
        ('{"server_id": "node_1"}', '{"server_id": "node_9"}'),
        "SuperPoDs",
        "'node_9' is not in server_list",
        "super_pod_list",
    ),
    (
        PODS,
        ('"super_pod_id": "1"', '"super_pod_id": "0"'),
        "SuperPoDs",
        "super_pod_id '0' is written for 2",
        "super_pod_list",
    ),
    (
        PODS,
        ('"super_device_id":"4"', '"super_device_id":"0"'),
        "SuperPoDs",
        "super_device_id 0 is written for",
        "super_pod_list",
    ),
    (
        PODS,
        ('"version": "1.2"', '"version": "1.0"'),
        "SuperPoDs",
        "needs version 1.2",
        '"version": "1.2"',
    ),
    (PODS, ('"device_ip": "192.168.1.6",', ""), "device_ip", "is missing", "hccn.conf"),
]


@pytest.mark.parametrize(("name", "change", "row", "says", "types"), BROKEN)
def test_a_table_broken_in_one_way_fails_in_one_row(
    name: str, change: tuple[str, str], row: str, says: str, types: str, tmp_path: Path
) -> None:
    report = judged(tmp_path, name, change)
    assert failing(report) == [row], str(report)
    assert says in report[row].summary
    assert types in report[row].remedy
    assert not report.ok


def test_every_rule_is_seen_failing() -> None:
    """Of the rules on the table itself; those on the machine and the process follow below."""
    seen = {row for _, _, row, _, _ in BROKEN} | {row for _, row, _ in PUBLISHED_BAD}
    assert seen >= {"form", *list(ranktable.RULES)[: list(ranktable.RULES).index("this machine")]}


def test_ranks_that_lie_between_those_of_another_server(tmp_path: Path) -> None:
    # the published counter-example: {0,1,2,7} and {3,4,5,6}
    swap = (('"rank_id":"1"', '"rank_id":"x"'), ('"rank_id":"2"', '"rank_id":"1"'))
    report = judged(
        tmp_path, "training_two_servers.jsonc", *swap, ('"rank_id":"x"', '"rank_id":"2"')
    )
    assert failing(report) == ["ranks"]
    assert (
        "server 'node_0' has ranks 0, 2: between them lie ranks of another"
        in report["ranks"].summary
    )


def test_one_superpod_or_server_need_not_have_addresses(tmp_path: Path) -> None:
    without = [('"device_ip":"192.168.1.8",', ""), ('"device_ip":"192.168.1.9",', "")]
    report = judged(tmp_path, "a2_one_server.jsonc", *without)
    assert report.ok
    assert report["device_ip"].summary == "2 left out, not needed here"


def test_servers_out_of_the_alphabet_are_said(tmp_path: Path) -> None:
    report = judged(tmp_path, TWO, ("10.155.111.141", "10.155.111.14"))
    assert report.ok
    assert "alphabetical order of server_id" in report["ranks"].summary


# --- the machine ---------------------------------------------------------------------------------

EIGHT = (TABLES / "hccn_8_devices.conf").read_text(encoding="utf-8")
FOUR = (TABLES / "hccn_4_addresses.conf").read_text(encoding="utf-8")
# the addresses of serving_ok_8.json, as hccn.conf writes them
OURS = "".join(
    f"address_{i}=192.{i % 4 + 1}.27.{6 + i // 4}\nnetmask_{i}=255.255.0.0\n" for i in range(8)
)


def test_the_addresses_of_this_machine(tmp_path: Path) -> None:
    report = judged(tmp_path, TWO, hccn=OURS)
    assert report.ok
    assert report["this machine"].summary == "is server 10.155.111.140, 8 addresses as here"


def test_addresses_are_read_with_their_comments_and_ipv6(tmp_path: Path) -> None:
    found = ranktable.hccn(machine(tmp_path, FOUR + "IPv6address_0=121::101\nIPv6netmask_0=112\n"))
    assert found["devices"] == {
        "0": ["192.168.1.0", "121::101"],
        "1": ["192.168.1.1"],
        "2": ["192.168.1.2"],
        "3": ["192.168.1.3"],
    }
    assert len(ranktable.hccn(machine(tmp_path, EIGHT))["devices"]) == 8


@pytest.mark.parametrize(
    ("hccn", "says"),
    [
        (EIGHT, "no device_ip of the table belongs to this machine"),
        ("", "has no line address_0=...: the devices have no addresses yet"),
        (
            OURS.replace("address_3=192.4.27.6", "address_3=192.4.27.66"),
            "device 3: the table says 192.4.27.6, /etc/hccn.conf says 192.4.27.66",
        ),
        (
            OURS.replace("address_3", "address_t")
            .replace("address_2", "address_3")
            .replace("address_t", "address_2"),
            "/etc/hccn.conf says 192.4.27.6; 192.3.27.6 is device 3",
        ),
        (
            OURS[: OURS.index("address_7")],
            "device 7: the table says 192.4.27.7, /etc/hccn.conf has no such",
        ),
    ],
)
def test_a_machine_that_the_table_does_not_fit(hccn: str, says: str, tmp_path: Path) -> None:
    report = judged(tmp_path, "serving_ok_8.json", hccn=hccn)
    assert failing(report) == ["this machine"]
    assert says in report["this machine"].summary
    assert "hccn" in report["this machine"].remedy


# --- this process --------------------------------------------------------------------------------

FIT = {
    "RANK_SIZE": "16",
    "RANK_ID": "3",
    "DEVICE_ID": "3",
    "ASCEND_RT_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
}


def test_a_process_that_fits(tmp_path: Path) -> None:
    report = judged(tmp_path, TWO, hccn=OURS, **FIT)
    assert report.ok
    assert {report[name].status for name in FIT} == {"ok"}


@pytest.mark.parametrize(
    ("name", "value", "says", "remedy"),
    [
        ("RANK_SIZE", "8", 'is "8", and the table has 16 ranks', "export RANK_SIZE=16"),
        ("RANK_SIZE", "eight", 'is "eight"', "export RANK_SIZE=16"),
        ("RANK_ID", "8", "no rank of server 10.155.111.140, this machine", "export RANK_ID=0 "),
        ("RANK_ID", "16", "no rank of server", "export RANK_ID=0 "),
        ("DEVICE_ID", "4", 'is "4", and rank 3 is device 3', "export DEVICE_ID=3"),
        (
            "ASCEND_RT_VISIBLE_DEVICES",
            "0,1,2,3",
            "hides devices 4 to 7",
            "export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7",
        ),
        (
            "ASCEND_RT_VISIBLE_DEVICES",
            "0-7",
            "device numbers with commas",
            "unset ASCEND_RT_VISIBLE",
        ),
        ("ASCEND_RT_VISIBLE_DEVICES", "0,0", "each once", "unset ASCEND_RT_VISIBLE"),
        (
            "RANK_TABLE_FILE",
            "/etc/other.json",
            "names another file, /etc/other.json",
            "export RANK_TABLE_FILE=",
        ),
        ("RANK_TABLE_FILE", "", "is set and empty", "export RANK_TABLE_FILE="),
    ],
)
def test_a_process_that_does_not_fit(
    name: str, value: str, says: str, remedy: str, tmp_path: Path
) -> None:
    fit = {key: word for key, word in FIT.items() if (name, key) != ("RANK_ID", "DEVICE_ID")}
    report = judged(tmp_path, TWO, hccn=OURS, **{**fit, name: value})
    assert failing(report) == [name], str(report)
    assert says in report[name].summary
    assert report[name].remedy.startswith(remedy)


def test_a_process_counts_the_devices_that_it_sees(tmp_path: Path) -> None:
    table = "ranks_2_and_3.json"
    ranks = [('"rank_id": "2"', '"rank_id": "0"'), ('"rank_id": "3"', '"rank_id": "1"')]
    sees = {"ASCEND_RT_VISIBLE_DEVICES": "2,3", "RANK_ID": "1", "RANK_SIZE": "2"}
    assert judged(tmp_path, table, *ranks, **sees, DEVICE_ID="1").ok
    report = judged(tmp_path, table, *ranks, **sees, DEVICE_ID="3")
    assert failing(report) == ["DEVICE_ID"]
    assert "rank 1 is device 3, number 1 of those visible" in report["DEVICE_ID"].summary


def test_its_own_variables_are_those_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK_SIZE", "5")
    file = tmp_path / "t.json"
    file.write_text(text_of("serving_ok_8.json"), encoding="utf-8")
    monkeypatch.setenv("RANK_TABLE_FILE", str(file))
    report = check_rank_table(file, root=machine(tmp_path))
    assert failing(report) == ["RANK_SIZE"]
    assert report["RANK_TABLE_FILE"].status == "ok"


# --- files that are no tables --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"[1]", "holds a list, and a rank table is an object"),
        (b"12", "holds a number"),
        (b"null", "holds nothing"),
        (b'{"a": NaN}', "holds NaN, which JSON does not have"),
        (b'{"a": -Infinity}', "holds -Infinity, which JSON does not have"),
        (b'{"a": 1,}', "is not JSON: line 1, column"),
        (b"version: 1.0\n", "is not JSON: line 1, column 1: Expecting value"),
        (b'{"server_list":', "is not JSON"),
        (b"\xff\xfe{\x00", "is no text in UTF-8: byte 0 is 0xff"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"a": 1, "a": 2}', "has the same key twice in one object: 'a'"),
        (b" " * (9 << 20), "is 9 MiB, and no rank table is larger than 8 MiB"),
    ],
)
def test_a_file_that_is_no_rank_table(content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_bytes(content)
    report = check_rank_table(file, root=tmp_path)
    assert [check.id for check in report] == ["file"]
    assert says in report["file"].summary
    assert report["file"].remedy


def test_a_file_that_is_not_there_a_folder_and_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, says in {
        "gone.json": "gone.json is not there",
        ".": "is a directory, not a rank table",
        "pipe": "pipe is not a regular file",
    }.items():
        report = check_rank_table(tmp_path / name, root=tmp_path)
        assert failing(report) == ["file"]
        assert says in report["file"].summary


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text("\ufeff" + text_of("serving_ok_8.json"), encoding="utf-8")
    assert check_rank_table(file, root=tmp_path, environment={}).ok


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda: (TABLES / "training_two_servers.jsonc").read_text(encoding="utf-8"), "comments"),
        (lambda: text_of("serving_ok_8.json").replace('"', "'"), "double quotes"),
        (lambda: re.sub(r'("rank_id": )"(\d)"', r"\1\2", text_of("serving_ok_8.json")), "sed -Ei"),
    ],
)
def test_what_sed_can_mend_is_mended_by_the_remedy(write: Any, says: str, tmp_path: Path) -> None:
    file = tmp_path / "my table.json"
    file.write_text(write(), encoding="utf-8")
    report = check_rank_table(file, root=tmp_path, environment={})
    (row,) = failing(report)
    assert says in report[row].remedy
    subprocess.run(report[row].remedy, shell=True, check=True, timeout=30)
    assert check_rank_table(file, root=tmp_path, environment={}).ok


def test_a_rule_that_breaks_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(facts: Any) -> Any:
        raise KeyError("planted")

    monkeypatch.setitem(ranktable.RULES, "counts", broken)
    report = judged(tmp_path, TWO)
    assert failing(report) == ["counts"]
    assert "could not be judged: KeyError: 'planted'" in report["counts"].summary


# --- the command ---------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = str(TABLES / "serving_ok_8.json"), str(TABLES / "ranks_2_and_3.json")
    root = ["--root", str(machine(tmp_path))]
    assert main(["--rank-table", good, *root]) == 0
    assert "rank table serving_ok_8.json: ok" in capsys.readouterr().out
    assert main(["--rank-table", bad, "--json", *root]) == 1
    report = Report.from_json(json.loads(capsys.readouterr().out))
    assert failing(report) == ["ranks"]
    assert main(["--rank-table", str(tmp_path / "gone"), *root]) == 1


def test_the_command_needs_the_standard_library_only(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from msnb.environment.__main__ import main;"
        "sys.exit(main(['--rank-table', sys.argv[2]]))"
    )
    table = str(TABLES / "serving_ok_8.json")
    command = [sys.executable, "-S", "-E", "-c", code, str(ROOT), table]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
