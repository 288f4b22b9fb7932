"""What the doctor says of the way that led to it, and what is written down for editors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from machines import fit_facts

from msnb.environment import examine, facts, way_in

ROOT = Path(__file__).resolve().parents[2]
# Names as the processes of these programs have them: vscode-jupyter's issue 3364 (VSCODE_PID),
# VS Code's scripts for servers (VSCODE_AGENT_FOLDER), jupyter_server's sources, sshd's manual.
SSH = {"SSH_CONNECTION": "10.1.2.3 50000 10.1.2.4 22", "SSH_CLIENT": "10.1.2.3 50000 22"}


@pytest.mark.parametrize(
    ("environment", "in_kernel", "terminal", "through"),
    [
        ({"VSCODE_AGENT_FOLDER": "/x", **SSH}, True, False, "VS Code over Remote-SSH"),
        (
            {"TERM_PROGRAM": "vscode", "SSH_TTY": "/dev/pts/1"},
            False,
            True,
            "VS Code over Remote-SSH",
        ),
        ({"VSCODE_PID": "7"}, True, False, "VS Code"),
        ({"REMOTE_CONTAINERS": "true", "VSCODE_CWD": "/"}, True, False, "VS Code in a container"),
        ({"JPY_SESSION_NAME": "/x/01.ipynb", **SSH}, True, False, "JupyterLab"),
        ({"JUPYTER_SERVER_URL": "http://x"}, False, True, "JupyterLab"),
        ({}, True, False, "a kernel that no JupyterLab and no VS Code started"),
        ({**SSH, "SSH_TTY": "/dev/pts/1"}, False, True, "a terminal over SSH"),
        (SSH, False, False, "a command over SSH, without a terminal"),
        ({"TERM_PROGRAM": "tmux"}, False, True, "a terminal"),
        ({"VSCODE_PID": "", "SSH_TTY": ""}, False, False, "a program, no terminal"),
    ],
)
def test_where_the_reader_is(
    environment: dict[str, str], in_kernel: bool, terminal: bool, through: str
) -> None:
    found = way_in.reached(environment, in_kernel=in_kernel, terminal=terminal)
    assert found["through"] == through
    assert "10.1.2" not in json.dumps(found)
    assert bool(found["by"]) == bool({*environment} & {*found["by"]})
    told = fit_facts()
    told["way_in"] = found
    assert examine(told)["way in"].summary == through
    told["ascend"]["container"] = True
    inside = examine(told)["way in"].summary
    assert inside.startswith(through)
    assert inside.count("in a container") == 1


def test_a_real_pipe_and_a_real_terminal_say_so(tmp_path: Path) -> None:
    code = "import msnb.environment.facts as f; print(f.gather(probe=False)['way_in']['through'])"

    def said(stdin: int) -> str:
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdin=stdin,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert said(subprocess.DEVNULL) == "a program, no terminal\n"
    master, slave = os.openpty()
    try:
        assert said(slave) == "a terminal\n"
    finally:
        os.close(master)
        os.close(slave)


KEY = '"python.defaultInterpreterPath"'


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (f'{{{KEY}: "${{workspaceFolder}}/.venv/bin/python"}}', "<repo>/.venv/bin/python"),
        (f'// x\n{{\n  // {KEY}: "/old",\n  {KEY} : "/new/bin/python",\n}}', "/new/bin/python"),
        (f'{{ /* {KEY}: "/a" */ "x": "/*", {KEY}: "/b//c" }} // {KEY}: "/d"', "/b//c"),
        (f'\ufeff{{"u": "http://x", {KEY}: "/b", /*\n{KEY}: "/c"*/ "y": "*/",}}', "/b"),
        (f'{{{KEY}: "/a", {KEY}: "/b",}}', "/b"),
        (f'{{{KEY}: ".venv/bin/python"}}', "<repo>/.venv/bin/python"),
        (f'{{{KEY}: "${{userHome}}/e/bin/python"}}', "<home>/e/bin/python"),
        (f'{{{KEY}: "${{env:X}}/bin/python"}}', None),
        (f'{{{KEY}: "/\\u5de5/bin/python"}}', "/工/bin/python"),
    ],
)
def test_the_interpreter_of_vscode(
    text: str, path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    repo = tmp_path / "仓库 one"
    (repo / ".vscode").mkdir(parents=True)
    (repo / ".vscode" / "settings.json").write_text(text, encoding="utf-8")
    found = way_in.settings(repo)
    assert found is not None
    if path is None:
        assert found["path"] is found["there"] is None
        return
    path = path.replace("<repo>", str(repo)).replace("<home>", str(tmp_path / "home"))
    assert found["path"] == path
    assert found["there"] is False
    python = repo / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    again = way_in.settings(repo)
    assert again is not None
    assert again["there"] is (path == str(python))


@pytest.mark.parametrize("text", [None, "", "{}", "[", "\x00", f'{{"a": 1, // {KEY}: "/gone"\n}}'])
def test_settings_without_an_interpreter_are_no_fault(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / ".vscode").mkdir()
        (tmp_path / ".vscode" / "settings.json").write_text(text, encoding="utf-8")
    assert way_in.settings(tmp_path) is None
    assert way_in.settings(None) is None
    told = fit_facts()
    told["settings"] = None
    assert examine(told)["way in"].status == "ok"


def test_notebooks_and_the_kernels_they_ask_for(tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for number, text in enumerate(
        (
            '{"metadata": {"kernelspec": {"name": "msnb"}}}',
            '{"metadata": {"kernelspec": {"name": "gone"}}}',
            '{"metadata": {}}',
            "{",
            '{"metadata": {"kernelspec": {"name": "../msnb"}}}',
        )
    ):
        (folder / f"0{number}.ipynb").write_text(text, encoding="utf-8")
    (folder / "mine.ipynb").write_text("{", encoding="utf-8")
    spec = tmp_path / "jup yter" / "kernels" / "msnb"
    spec.mkdir(parents=True)
    (spec / "kernel.json").touch()
    found = way_in.notebooks(tmp_path, [str(tmp_path), str(tmp_path / "jup yter")])
    assert [(n["kernel"], n["there"]) for n in found] == [
        ("msnb", True),
        ("gone", False),
        (None, False),
        (None, False),
        (None, False),
    ]
    told = fit_facts()
    told["notebooks"] = found
    row = examine(told)["way in"]
    assert "01.ipynb, 02.ipynb, 03.ipynb and 1 more ask for a kernel that is not" in row.summary
    assert row.summary.endswith("(gone, none)")


def test_the_notebooks_of_this_repository_ask_for_msnb() -> None:
    found = way_in.notebooks(ROOT, [])
    assert len(found) >= 7
    assert {notebook["kernel"] for notebook in found} == {"msnb"}


def test_jupyters_runtime_folder_is_jupyters(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = pytest.importorskip("jupyter_core.paths")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert facts.runtime_folder() == paths.jupyter_runtime_dir()
    for name in ("XDG_DATA_HOME", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, f"/opt/{name}")
        assert facts.runtime_folder() == paths.jupyter_runtime_dir()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    assert facts._writing_fault(str(tmp_path / "a" / "b")) is None
    (tmp_path / "file").touch()
    for folder in (str(tmp_path / "file" / "jupyter"), "/proc/1/jupyter"):
        fault = facts._writing_fault(folder)
        assert fault is not None
        assert fault["folder"] == folder
        assert fault["error"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
