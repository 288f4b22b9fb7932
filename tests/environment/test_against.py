"""Two environments compared: alike, different, and files that hold none."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from machines import ascend_facts, fit_facts

from msnb.environment import facts
from msnb.environment.__main__ import main
from msnb.report import Check, Report

ROOT = Path(__file__).resolve().parents[2]


def compare(
    before: Any, now: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, Path]:
    file = tmp_path / "other env.json"
    text = before if isinstance(before, str) else json.dumps(before)
    file.write_text(text, encoding="utf-8")

    def gather(target: str, *, root: str, probe: bool) -> dict[str, Any]:
        return copy.deepcopy(now) if probe else {**copy.deepcopy(now), "probes": {}}

    monkeypatch.setattr(facts, "gather", gather)
    return main(["--against", str(file)]), file


def test_the_same_environment_is_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = compare({"facts": fit_facts()}, fit_facts(), tmp_path, monkeypatch)
    assert code == 0
    assert "against other env.json: ok" in capsys.readouterr().out


def test_another_place_on_disk_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = json.loads(json.dumps(fit_facts()).replace("/home/lin", "/data/陈"))
    assert compare({"facts": there}, fit_facts(), tmp_path, monkeypatch)[0] == 0


@pytest.mark.parametrize(
    ("way", "value", "says"),
    [
        ("distributions/numpy/version", "2.4.6", "1.26.4 -> 2.4.6"),
        ("distributions/mindspore/version", "2.9.0", "2.10.0 -> 2.9.0"),
        ("python/version", [3, 12, 1], "3.11.9 -> 3.12.1"),
        ("ascend/driver/version", "24.1.rc2", "25.0.rc1 -> 24.1.rc2"),
        ("ascend/cann/version", "8.5.0", "9.0.0 -> 8.5.0"),
    ],
)
def test_what_differs_is_said(
    way: str,
    value: Any,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = ascend_facts()
    *path, last = way.split("/")
    place = now
    for key in path:
        place = place[key]
    place[last] = value
    assert compare({"facts": ascend_facts()}, now, tmp_path, monkeypatch)[0] == 1
    assert says in capsys.readouterr().out


def test_tables_without_facts_are_compared_by_their_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Report("environment for CPU", [Check("numpy", "failed", "2.4.6")]).to_json()
    assert compare(before, fit_facts(), tmp_path, monkeypatch)[0] == 1
    assert "numpy" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", "not json", '{"a": 1}', "[" * 100_000),
        *('{"facts": {}}', '{"facts": 3}', '{"python": 1}', '{"checks": [3]}'),
    ],
)
def test_a_file_that_holds_no_environment(
    content: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, file = compare(content, fit_facts(), tmp_path, monkeypatch)
    assert code == 2
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_that_came_through_windows(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"facts": fit_facts()}), encoding=encoding)
    monkeypatch.setattr(facts, "gather", lambda *args, **kwargs: fit_facts())
    assert main(["--against", str(file)]) == 0


def test_a_run_without_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = {"notebooks": [], "environment": []}
    assert compare(empty, fit_facts(), tmp_path, monkeypatch)[0] == 2
    assert "holds no facts" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--against", str(tmp_path / "gone.json")]) == 2
    assert "gone.json" in capsys.readouterr().err


def test_comparing_needs_the_standard_library_only(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"facts": fit_facts()}), encoding="utf-8")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from msnb.environment.__main__ import main;"
        "sys.exit(main(['--against', sys.argv[2]]))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code, str(ROOT), str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "packages.mindspore" in done.stdout  # without site-packages there is none


def test_json_carries_the_facts_that_against_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_probe_all", lambda *_: fit_facts()["probes"])
    main(["--json"])
    written = capsys.readouterr().out
    assert Report.from_json(json.loads(written))
    file = tmp_path / "this.json"
    file.write_text(written, encoding="utf-8")
    assert main(["--against", str(file)]) == 0
    assert main(["--against", str(file), "--json"]) == 0
