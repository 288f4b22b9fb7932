"""--fix: the kernelspec and the link .venv, done once, never over what is not ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest
from machines import ascend_facts

from msnb.environment import examine, facts, fix
from msnb.environment.__main__ import main

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


@pytest.mark.parametrize("torn", ["{", "[]", "", '{"env": ["a"], "metadata": 3}'])
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


# --- CANN's variables ----------------------------------------------------------------------------

# What CANN's own script does, as far as the kernel is concerned: it puts its folders before what is
# there, so that a list that was empty ends with a colon.
SET_ENV = """
export ASCEND_TOOLKIT_HOME=/usr/local/Ascend/cann
export LD_LIBRARY_PATH=${ASCEND_TOOLKIT_HOME}/lib64:/usr/local/Ascend/driver/lib64:$LD_LIBRARY_PATH
export PYTHONPATH=${ASCEND_TOOLKIT_HOME}/python/site-packages:$PYTHONPATH
export PATH=${ASCEND_TOOLKIT_HOME}/bin:$PATH
export ASCEND_OPP_PATH=${ASCEND_TOOLKIT_HOME}/opp
export ASCEND_HOME_PATH=${ASCEND_TOOLKIT_HOME}
export EMPTY=
echo noise
"""
CANN = {
    "ASCEND_HOME_PATH": "/usr/local/Ascend/cann",
    "ASCEND_OPP_PATH": "/usr/local/Ascend/cann/opp",
    "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/cann",
    "LD_LIBRARY_PATH": "/usr/local/Ascend/cann/lib64:/usr/local/Ascend/driver/lib64",
    "PATH": "/usr/local/Ascend/cann/bin",
    "PYTHONPATH": "/usr/local/Ascend/cann/python/site-packages",
}


@pytest.fixture
def set_env(tmp_path: Path) -> Path:
    file = tmp_path / "my 昇腾" / "set_env.sh"
    file.parent.mkdir()
    file.write_text(SET_ENV, encoding="utf-8")
    return file


def test_the_variables_of_set_env_are_captured_without_those_of_this_process(
    set_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert fix.captured_variables(set_env) == CANN


def test_they_are_written_once_after_what_others_wrote_and_shown_before(
    repo: Path, env: Path, set_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    file = kernel_json(env)
    file.parent.mkdir(parents=True)
    old = {"argv": ["x"], "env": {"MINE": "1", "ASCEND_HOME_PATH": "/old"}}
    file.write_text(json.dumps(old), encoding="utf-8")
    mine = "# mine\nA=1\nASCEND_HOME_PATH=/older\n"
    (repo / ".env").write_text(mine, encoding="utf-8")
    python = str(env / "bin" / "python")
    told = fix.apply(prefix=env, python=python, cwd=repo, set_env=set_env)
    assert told[:3] == [
        f"{file}: env",
        "  - ASCEND_HOME_PATH=/old",
        "  + ASCEND_HOME_PATH=/usr/local/Ascend/cann",
    ]
    assert "  - ASCEND_HOME_PATH=/older" in told
    assert f"  + PATH={CANN['PATH']}:${{PATH}}" in told
    assert f"  + PATH={CANN['PATH']}:/usr/bin:/bin" in told
    spec = json.loads(file.read_text(encoding="utf-8"))
    assert spec["env"] == {"MINE": "1", **CANN, "PATH": CANN["PATH"] + ":${PATH}"}
    dotted = (repo / ".env").read_text(encoding="utf-8")
    assert dotted.startswith("# mine\nA=1\n#")
    assert facts.ascend.pairs(dotted) == {
        "A": "1", **CANN, "PATH": CANN["PATH"] + ":/usr/bin:/bin"
    }  # fmt: skip
    again = fix.apply(prefix=env, python=python, cwd=repo, set_env=set_env)
    assert again == [
        f"kernelspec: msnb already starts {python}",
        ".env: already has the 6 variables of CANN",
        ".venv: already is this environment",
    ]
    assert (repo / ".env").read_text(encoding="utf-8") == dotted
    # without CANN asked for, they stay
    fix.apply(prefix=env, python=python, cwd=repo)
    assert json.loads(file.read_text(encoding="utf-8")) == spec


def test_jupyter_gives_them_to_a_kernel_with_the_path_that_it_has(
    env: Path, set_env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """jupyter_client.manager substitutes ``${NAME}`` in ``env`` by string.Template."""
    spec = pytest.importorskip("jupyter_client.kernelspec")
    fix.register_kernelspec(env, str(env / "bin" / "python"), fix.captured_variables(set_env))
    found = spec.KernelSpec.from_resource_dir(str(kernel_json(env).parent))
    given = {k: Template(v).safe_substitute({"PATH": "/usr/bin"}) for k, v in found.env.items()}
    assert given["PATH"] == CANN["PATH"] + ":/usr/bin"
    assert given["LD_LIBRARY_PATH"] == CANN["LD_LIBRARY_PATH"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3\n", r"set_env\.sh fails: exit 3"),
        ("echo no such arch >&2; return 1\n", "fails: no such arch"),
        ("export A=1\n", "sets no ASCEND_HOME_PATH: it is not the set_env.sh of CANN"),
        ("sleep 20\n", "took more than 0 s"),
    ],
)
def test_a_set_env_that_does_not_do_its_work_changes_nothing(
    repo: Path, env: Path, set_env: Path, script: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_env.write_text(script, encoding="utf-8")
    monkeypatch.setattr(fix, "SECONDS", 0.4 if "sleep" in script else 30.0)
    with pytest.raises(ValueError, match=says):
        fix.apply(prefix=env, python="/p", cwd=repo, set_env=set_env)
    assert not kernel_json(env).exists()
    assert not (repo / ".env").exists()


def test_a_set_env_that_is_not_there_and_a_folder_without_repository(
    tmp_path: Path, set_env: Path
) -> None:
    with pytest.raises(ValueError, match=r"gone\.sh is not there: name CANN's set_env\.sh"):
        fix.captured_variables(tmp_path / "gone.sh")
    assert "no repository of msnb" in fix.write_dot_env(None, CANN)


def test_what_was_written_is_what_the_doctor_compares(
    repo: Path, env: Path, set_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = fix.captured_variables(set_env)
    fix.register_kernelspec(env, str(env / "bin" / "python"), captured)
    fix.write_dot_env(repo, captured)
    monkeypatch.setenv("JUPYTER_PATH", str(env / "share" / "jupyter"))
    spec = facts.kernelspecs()[0]
    assert spec["env"]["ASCEND_HOME_PATH"] == CANN["ASCEND_HOME_PATH"]
    assert facts._dot_env(repo) == spec["env"]
    found = ascend_facts()
    found["kernelspecs"][0]["env"] = spec["env"]
    found[".env"] = facts._dot_env(repo)
    row = "kernel variables"
    assert examine(found)[row].summary == "kernel.json and .env: /usr/local/Ascend/cann"

    found[".env"]["LD_LIBRARY_PATH"] = "/old/lib64"
    check = examine(found)[row]
    assert (check.status, check.summary) == (
        "failed",
        "kernel.json and .env differ in LD_LIBRARY_PATH",
    )
    assert check.remedy == "msnb doctor --device-target Ascend --fix"

    found[".env"] = None
    found["in_kernel"] = True
    found["ascend"]["home_path"] = None
    check = examine(found)[row]
    assert check.status == "failed"
    assert check.summary.startswith("this kernel has ASCEND_HOME_PATH not set; written for it is")
    assert check.remedy == "Kernel > Restart Kernel..."

    found["in_kernel"] = False
    found["ascend"]["home_path"] = "/opt/newer"
    check = examine(found)[row]
    assert check.status == "failed"
    assert "and this shell has /opt/newer" in check.summary


def test_the_command_without_cann_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(fix, "apply", lambda **_: pytest.fail("something was changed"))
    assert main(["--fix", "--device-target", "Ascend", "--root", str(tmp_path)]) == 2
    assert "no set_env.sh of CANN was found" in capsys.readouterr().err
