"""--fix: the kernelspec and the link .venv, done once, never over what is not ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from msnb.environment import facts, fix

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "仓库 one"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "msnb"\n', encoding="utf-8")
    return folder


@pytest.fixture
def env(tmp_path: Path) -> Path:
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    return folder


def kernel_json(env: Path) -> Path:
    return env / "share" / "jupyter" / "kernels" / "msnb" / "kernel.json"


def test_it_registers_links_and_changes_nothing_the_second_time(repo: Path, env: Path) -> None:
    python = str(env / "bin" / "python")
    wrote, linked = fix.apply(prefix=env, python=python, cwd=repo)
    assert wrote == f"kernelspec: wrote {kernel_json(env)}, which starts {python}"
    assert linked == f".venv: linked to {env}"
    assert json.loads(kernel_json(env).read_text(encoding="utf-8")) == {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "msnb",
        "language": "python",
        "metadata": {"debugger": True},
    }
    assert (repo / ".venv").resolve() == env
    assert sorted(os.listdir(kernel_json(env).parent)) == ["kernel.json"]
    again = fix.apply(prefix=env, python=python, cwd=repo)
    assert again == [
        f"kernelspec: msnb already starts {python}",
        ".venv: already is this environment",
    ]


def test_it_keeps_what_others_wrote_into_the_kernelspec(env: Path) -> None:
    file = kernel_json(env)
    file.parent.mkdir(parents=True)
    old = {"argv": ["python"], "env": {"ASCEND_HOME_PATH": "/opt/cann"}, "metadata": {"a": 1}}
    file.write_text(json.dumps(old), encoding="utf-8")
    fix.register_kernelspec(env, "/opt/env/bin/python")
    new = json.loads(file.read_text(encoding="utf-8"))
    assert new["env"] == old["env"]
    assert new["metadata"] == {"a": 1, "debugger": True}
    assert new["argv"][0] == "/opt/env/bin/python"


@pytest.mark.parametrize("torn", ["{", "[]", ""])
def test_it_replaces_a_torn_kernelspec(env: Path, torn: str) -> None:
    file = kernel_json(env)
    file.parent.mkdir(parents=True)
    file.write_text(torn, encoding="utf-8")
    assert "wrote" in fix.register_kernelspec(env, "/opt/env/bin/python")
    assert json.loads(file.read_text(encoding="utf-8"))["language"] == "python"


def test_it_replaces_a_link_that_leads_nowhere(repo: Path, env: Path) -> None:
    (repo / ".venv").symlink_to(repo / "gone")
    assert fix.link_dot_venv(repo, env).endswith(f"in place of {repo / 'gone'}, which is gone")
    assert (repo / ".venv").resolve() == env


def test_it_leaves_a_folder_and_a_link_to_another_environment_alone(
    repo: Path, env: Path, tmp_path: Path
) -> None:
    (repo / ".venv").mkdir()
    (repo / ".venv" / "kept").touch()
    assert "left alone, it is a folder of its own" in fix.link_dot_venv(repo, env)
    assert (repo / ".venv" / "kept").exists()
    (repo / ".venv" / "kept").unlink()
    (repo / ".venv").rmdir()
    other = tmp_path / "other"
    other.mkdir()
    (repo / ".venv").symlink_to(other)
    assert f"left alone, it links to another environment, {other}" in fix.link_dot_venv(repo, env)
    assert (repo / ".venv").resolve() == other


def test_without_a_repository_or_an_environment_nothing_is_linked(
    repo: Path, tmp_path: Path
) -> None:
    assert "nothing to link" in fix.link_dot_venv(None, tmp_path)
    bare = tmp_path / "usr"
    bare.mkdir()
    _, linked = fix.apply(prefix=bare, python="/usr/bin/python3", cwd=repo)
    assert "not an environment of its own (system)" in linked
    assert not (repo / ".venv").exists()


def test_without_ipykernel_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "distribution", lambda name: None)
    with pytest.raises(ValueError, match=r"has no ipykernel.*nothing was changed.*make setup"):
        fix.apply()


def test_the_repository_is_found_from_below_and_is_ours_only(repo: Path, tmp_path: Path) -> None:
    below = repo / "notebooks" / "solutions"
    below.mkdir(parents=True)
    assert facts.repository(below) == repo
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n', encoding="utf-8")
    assert facts.repository(tmp_path) == ROOT  # around the package


def test_what_it_registers_is_what_the_doctor_and_jupyter_find(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(env / "bin" / "python")
    fix.register_kernelspec(env, python)
    monkeypatch.setenv("JUPYTER_PATH", str(env / "share" / "jupyter"))
    first = facts.kernelspecs()[0]
    assert (first["python"], first["prefix"], first["there"]) == (python, str(env), True)
    specs = pytest.importorskip("jupyter_client.kernelspec").KernelSpecManager()
    spec = specs.get_kernel_spec("msnb")
    assert (spec.argv[0], spec.display_name, spec.language) == (python, "msnb", "python")


def test_a_kernelspec_whose_environment_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix.register_kernelspec(tmp_path, str(tmp_path / "gone" / "bin" / "python"))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    first = facts.kernelspecs()[0]
    assert first["there"] is False
    assert first["own"] is False
