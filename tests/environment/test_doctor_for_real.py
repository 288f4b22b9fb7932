"""Environments broken for real, the remedy typed as it stands, and a kernel started afterwards."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import overlay
import pytest
from ascend_machines import ASCEND, fit_910b4, put
from test_doctor_fix import SET_ENV

from msnb.report import Report

pytestmark = pytest.mark.slow


def doctor(python: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    unset = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "ASCEND_HOME_PATH", "JUPYTER_PATH")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [python, "-m", "msnb.environment", *arguments],
        cwd=cwd,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(cwd.parent)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def typed(remedy: str, cwd: Path) -> None:
    done = subprocess.run(
        remedy,
        shell=True,
        cwd=cwd,
        env={**os.environ, "HOME": str(cwd.parent)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of its own, with an environment beside it that lacks papermill."""
    folder = tmp_path_factory.mktemp("仓库 and env")
    (folder / "repo").mkdir()
    shutil.copy(overlay.REPO / "pyproject.toml", folder / "repo")
    overlay.build(folder / "env", without=("papermill",))
    return folder


def test_what_the_doctor_says_cures_this_environment(place: Path) -> None:
    python, repo = place / "env" / "bin" / "python", place / "repo"
    before = Report.from_json(json.loads(doctor(python, repo, "--json").stdout))
    bad = {check.id: check.remedy for check in before if check.status == "failed"}
    assert set(bad) == {"kernel", "requirements"}, str(before)
    assert bad["kernel"] == f"{shlex.quote(str(python))} -m msnb.environment --fix"
    assert "papermill is not installed" in before["requirements"].summary
    for row in ("requirements", "kernel"):  # --fix looks again, and says 1 while one is left
        typed(bad[row], repo)
    after = doctor(python, repo)
    assert after.returncode == 0, after.stdout
    assert (repo / ".venv").resolve() == (place / "env").resolve()


def test_cann_reaches_a_kernel_that_no_shell_with_cann_started(place: Path) -> None:
    python, repo, root = place / "env" / "bin" / "python", place / "repo", place / "machine"
    fit_910b4(root)
    put(root, "commands/env.txt", "LANG=C.UTF-8\n")
    put(root, f"{ASCEND}/ascend-toolkit/set_env.sh", SET_ENV)
    (repo / ".env").write_text("MINE=1\n", encoding="utf-8")
    words = ("--device-target", "Ascend", "--root", str(root))
    done = doctor(python, repo, "--fix", *words)
    lines = done.stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("kernelspec: wrote"))
    assert any(line == "  + ASCEND_HOME_PATH=/usr/local/Ascend/cann" for line in lines[:first])
    assert (repo / ".env").read_text(encoding="utf-8").startswith("MINE=1\n")

    code = """
import json, os, sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="msnb", startup_timeout=60)
try:
    said = []
    client.execute_interactive(
        "import os, sys; print(os.environ['ASCEND_HOME_PATH'], os.environ['PATH'], sys.prefix)",
        output_hook=lambda message: said.append(message["content"].get("text", "")), timeout=60,
    )
    print("".join(said))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    started = subprocess.run(
        [python, "-c", code],
        cwd=repo,
        env={**kept, "HOME": str(place)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert started.stdout.startswith("/usr/local/Ascend/cann /usr/local/Ascend/cann/bin:"), (
        started.stdout + started.stderr
    )
    assert os.environ["PATH"] in started.stdout
    assert str(place / "env") in started.stdout
