"""What is written in two places says the same: environments, editors' settings, READMEs, CI."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from msnb.regression import catalog

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="tomllib came with Python 3.11")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# The CUDA build of torch brings these, in versions that torch asks for; the CPU build, with which
# the pins were made, does not.
CUDA = re.compile(r"(nvidia|cuda)-|triton$")
ON_PINNED_PYTHON = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="constraints.txt is for Python 3.11"
)


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


# --- versions -----------------------------------------------------------------------------------


def pins(text: str) -> dict[str, str]:
    lines = [line.strip() for line in text.splitlines()]
    found = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in found}


def requirements() -> list[Requirement]:
    """What pyproject names, and all that these bring, as the installed packages say."""
    named = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    todo = [Requirement(text) for text in named]
    done: dict[str, set[str]] = {}
    found = []
    while todo:
        requirement = todo.pop()
        found.append(requirement)
        name = canonicalize_name(requirement.name)
        new = {"", *requirement.extras} - done.setdefault(name, set())
        done[name] |= new
        for text in importlib.metadata.requires(name) or []:
            brought = Requirement(text)
            marker = brought.marker
            if CUDA.match(canonicalize_name(brought.name)):
                continue
            if any(marker is None or marker.evaluate({"extra": extra}) for extra in new):
                todo.append(brought)
    return found


def pin_faults(pinned: dict[str, str], needed: list[Requirement]) -> list[str]:
    found = []
    for requirement in needed:
        name = canonicalize_name(requirement.name)
        if name not in pinned:
            found.append(f"{name} is not pinned")
        elif not requirement.specifier.contains(pinned[name], prereleases=True):
            found.append(f"{requirement} does not allow the pin {pinned[name]}")
        elif importlib.metadata.version(name).split("+")[0] != pinned[name]:
            found.append(f"{name} is installed in another version than pinned")
    needless = set(pinned) - {canonicalize_name(requirement.name) for requirement in needed}
    return sorted({*found, *(f"{name} is pinned for nothing" for name in needless)})


@ON_PINNED_PYTHON
def test_every_version_is_pinned() -> None:
    assert pin_faults(pins(read("constraints.txt")), requirements()) == []


@ON_PINNED_PYTHON
def test_a_wrong_pin_is_found() -> None:
    pinned = pins(read("constraints.txt"))
    del pinned["tqdm"]
    pinned.update(numpy="2.0.0", ruff="99.0", leftpad="1")
    faults = pin_faults(pinned, requirements())
    assert "numpy<2,>=1.25 does not allow the pin 2.0.0" in faults
    assert [fault for fault in faults if "numpy" not in fault] == [
        "leftpad is pinned for nothing",
        "ruff is installed in another version than pinned",
        "tqdm is not pinned",
    ]


@ON_PINNED_PYTHON
def test_pins_fit_the_first_python_3_11() -> None:
    """Debian 12 has Python 3.11.2; what needs 3.11.5 cannot be installed there."""
    refused = []
    for name in pins(read("constraints.txt")):
        needs = importlib.metadata.metadata(name)["Requires-Python"]
        if needs and "3.11.0" not in SpecifierSet(needs):
            refused.append(f"{name} needs Python {needs}")
    assert refused == []
    assert "3.11.0" not in SpecifierSet(">=3.11.5")


def environment_faults(environment: dict[str, Any], project: dict[str, Any]) -> list[str]:
    found = []
    if environment["name"] != "msnb":
        found.append("the environment is not called msnb, like the kernel")
    if environment["channels"] != ["conda-forge", "nodefaults"]:
        found.append("another channel than conda-forge")
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    pip = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    if pip != [["-c constraints.txt", "-e .[dev]"]]:
        found.append("pip is not to install what pyproject.toml names, as constraints.txt pins it")
    if {entry.split("=")[0] for entry in conda} != {"python", "pip"}:
        found.append("conda installs more than Python and pip: pyproject.toml cannot know of it")
    version = next((entry[7:] for entry in conda if entry.startswith("python=")), "none")
    if version != "3.11" or version not in SpecifierSet(project["requires-python"]):
        found.append(f"Python {version} is not the one constraints.txt is for")
    return found


def test_environment_yml_agrees_with_pyproject() -> None:
    environment = yaml.safe_load(read("environment.yml"))
    assert environment_faults(environment, PROJECT) == []
    assert "dev" in PROJECT["optional-dependencies"]
    assert "CPython 3.11" in read("constraints.txt").splitlines()[0]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": "ms"}, "not called msnb"),
        ({"channels": ["conda-forge", "defaults"]}, "another channel"),
        ({"dependencies": ["python=3.11", "pip", "numpy", {"pip": []}]}, "pip is not to install"),
        ({"dependencies": ["python=3.11", "pip", "numpy"]}, "conda installs more"),
        ({"dependencies": ["python=3.13", "pip"]}, "Python 3.13 is not the one"),
        ({"dependencies": ["pip"]}, "Python none is not the one"),
    ],
)
def test_a_drifted_environment_yml_is_found(change: dict[str, Any], fault: str) -> None:
    environment = {**yaml.safe_load(read("environment.yml")), **change}
    assert fault in "; ".join(environment_faults(environment, PROJECT))


def test_the_changelog_knows_the_version() -> None:
    assert f"## {PROJECT['version']}" in read("CHANGELOG.md")
    assert f'__version__ = "{PROJECT["version"]}"' in read("msnb/__init__.py")


# --- VS Code ------------------------------------------------------------------------------------

PUBLISHED = {
    key: facts
    for extension in json.loads(read("tests/data/vscode_keys.json"))["extensions"].values()
    for key, facts in extension["keys"].items()
}
# VS Code's own, not an extension's; each with the reason why it is set.
BUILT_IN = {
    "files.watcherExclude": "watching the thousands of files of .venv costs a remote server dearly",
    "editor.defaultFormatter": "ruff, as in make lint",
    "editor.formatOnSave": "make lint refuses what is not formatted",
    "editor.rulers": "the line length of pyproject.toml",
}
# Valid, but they outrank python.defaultInterpreterPath: the committed .venv would not be found.
OUTRANKING = ("python-envs.pythonProjects", "python-envs.defaultEnvManager")
TYPES = {"boolean": bool, "string": str, "array": list, "object": dict, "number": (int, float)}
# What debugpy's and the task runner's schemas name, of which we use these.
LAUNCH_KEYS = {
    *("name", "type", "request", "program", "module", "args", "python", "cwd", "envFile"),
    *("console", "justMyCode"),
}
TASK_KEYS = {"label", "type", "command", "group", "isBackground", "problemMatcher"}


def settings_faults(settings: dict[str, Any]) -> list[str]:
    found = []
    for key, value in settings.items():
        if key.startswith("["):
            found += settings_faults(value)
        elif key in OUTRANKING:
            found.append(f"{key} outranks python.defaultInterpreterPath")
        elif key in PUBLISHED:
            facts = PUBLISHED[key]
            if facts.get("deprecated"):
                found.append(f"{key} is deprecated")
            if facts["scope"] in ("machine", "application"):
                found.append(f"{key} is of scope {facts['scope']}: a workspace cannot set it")
            if not isinstance(value, TYPES[facts["type"]]):
                found.append(f"{key} is of type {facts['type']}, not {value!r}")
            elif value not in facts.get("enum", [value]):
                found.append(f"{key} is one of {', '.join(facts['enum'])}, not {value!r}")
        elif key not in BUILT_IN:
            found.append(f"{key} is not a setting that VS Code or an extension publishes")
    return found


def vscode(name: str) -> Any:
    return json.loads(read(f".vscode/{name}.json"))


def test_vscode_settings_are_valid_today() -> None:
    settings = vscode("settings")
    assert settings_faults(settings) == []
    assert settings["python.defaultInterpreterPath"] == "${workspaceFolder}/.venv/bin/python"
    used = {*settings, *settings["[python]"]}
    assert set(BUILT_IN) <= used


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("jupyter.kernels.filter", [], "is not a setting that"),
        ("jupyter.jupyterServerType", "local", "is not a setting that"),
        ("python.condaPath", "conda", "of scope machine"),
        ("jupyter.kernels.trusted", [], "of scope machine"),
        ("jupyter.runStartupCommands", [], "of scope application"),
        ("jupyter.formatStackTraces", True, "is deprecated"),
        ("python.testing.pytestEnabled", "yes", "of type boolean, not 'yes'"),
        ("python-envs.pythonProjects", [], "outranks"),
        ("python.languageServer", "Microsoft", "is one of Default, Jedi, Pylance, None, not"),
        ("[python]", {"editor.colour": "red"}, "editor.colour is not a setting"),
    ],
)
def test_a_dead_vscode_key_is_found(key: str, value: Any, fault: str) -> None:
    assert fault in "; ".join(settings_faults({**vscode("settings"), key: value}))


def test_vscode_launch_tasks_and_extensions() -> None:
    launch = vscode("launch")
    assert set(launch) == {"version", "configurations"}
    for configuration in launch["configurations"]:
        assert set(configuration) <= LAUNCH_KEYS
        assert configuration["type"] == "debugpy"  # "python" is the dead name of it
        assert configuration["python"] == "${workspaceFolder}/.venv/bin/python"
        assert ("program" in configuration) != ("module" in configuration)
    tasks = vscode("tasks")["tasks"]
    for task in tasks:
        assert set(task) <= TASK_KEYS
        assert task["command"].split()[1] in make_targets()
    assert {task["label"] for task in tasks} == {"make run", "make test", "make lab"}
    extensions = vscode("extensions")
    assert set(extensions) == {"recommendations"}
    needed = {"ms-python.python", "ms-python.debugpy", "ms-toolsai.jupyter"}
    formatter = vscode("settings")["[python]"]["editor.defaultFormatter"]
    assert {*needed, formatter} <= set(extensions["recommendations"])


# --- make and CI --------------------------------------------------------------------------------


def make_targets() -> dict[str, str]:
    return dict(re.findall(r"^([a-z-]+):.*## (.+)$", read("Makefile"), re.MULTILINE))


def make(*arguments: str) -> str:
    # Inside `make test`, MAKEFLAGS and MAKELEVEL would turn this into a part of that.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_make_alone_lists_the_targets() -> None:
    listed = make().splitlines()
    targets = ["setup", "run", "test", "test-slow", "fuzz", "lint", "lab", "notebooks"]
    targets += ["bench", "clean"]
    assert [line.split()[1] for line in listed] == targets
    assert list(make_targets()) == targets
    assert max(map(len, listed)) <= 100


def test_jupyterlab_is_for_this_machine_only() -> None:
    recipe = make("-n", "lab")
    assert "--ServerApp.ip=127.0.0.1" in recipe
    assert "token" not in recipe  # JupyterLab makes one by itself, unless it is told otherwise


def ci_skips(tmp_path: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "log").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    command = ["bash", str(ROOT / ".ci/run"), "skips", str(tmp_path / "log")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_ci_knows_the_reasons_to_skip(tmp_path: Path) -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)
    fine = ci_skips(
        tmp_path, "12 passed", "SKIPPED [1] tests/a.py:3: no Python 3.13 on this machine"
    )
    assert (fine.returncode, fine.stdout.count("SKIPPED")) == (0, 1)
    assert ci_skips(tmp_path, "12 passed").returncode == 0


@pytest.mark.parametrize(
    "line",
    [
        "SKIPPED [2] tests/a.py:3: chromium not on PATH: apt install chromium chromium-driver",
        "SKIPPED [1] tests/a.py:3: got empty parameter set for (path)",
        "SKIPPED [1] tests/a.py:3: no, no Python 3.13 on this machine",
        "SKIPPED [1] tests/a.py:3: ",
    ],
)
def test_ci_fails_on_another_reason(tmp_path: Path, line: str) -> None:
    failed = ci_skips(tmp_path, line, "SKIPPED [1] tests/b.py:3: this machine has an Ascend device")
    assert failed.returncode == 1
    assert line in failed.stdout
    assert failed.stdout.count("not on the list of allowed reasons") == 1


def test_ci_without_a_log_is_an_error(tmp_path: Path) -> None:
    command = ["bash", str(ROOT / ".ci/run"), "skips", str(tmp_path / "none")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


# --- the READMEs --------------------------------------------------------------------------------


def shape(text: str) -> dict[str, Any]:
    """What two languages share: headings' levels, code, tables, numbered steps, links, `code`."""
    code = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^( *)```\w*\n.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    rows = [line for line in prose.splitlines() if line.startswith("|")]
    links = [re.sub("^#.*", "#", link) for link in re.findall(r"\]\(([^)]+)\)", prose)]
    return {
        "headings": [len(level) for level in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "code": code,
        "columns": [row.count("|") for row in rows],
        "cells": [re.findall(r"`[^`]*`|\[[^]]*\]|\b\d+\b", row.split("|")[1]) for row in rows],
        "commands": [re.findall(r"`((?:make|msnb)[^`]*)`", row) for row in rows],
        "steps": re.findall(r"^\d+\. ", prose, re.MULTILINE),
        "links": [link for link in links if not link.startswith("README")],
        "terms": sorted(set(re.findall(r"`[^`]+`", prose))),
    }


def test_both_readmes_say_the_same() -> None:
    english, chinese = shape(read("README.md")), shape(read("README.zh-CN.md"))
    for part, value in english.items():
        assert value == chinese[part], part
    assert english["headings"].count(2) >= 8
    assert len(english["code"]) >= 7


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("## On Ascend", "### On Ascend", "headings"),
        ("make run\nmake test", "make run\nmake tests", "code"),
        ("| `make lint` | ruff and mypy alone |\n", "", "columns"),
        ("| `make lint` |", "| `make lints` |", "cells"),
        ("`make lab LAB_ARGS=--no-browser`", "`make lab`", "commands"),
        ("10. On Ascend", "On Ascend", "steps"),
        ("(notebooks/02_lenet_port.ipynb)", "(notebooks/02.ipynb)", "links"),
        ("`results.json`", "`result.json`", "terms"),
    ],
)
def test_a_difference_between_the_readmes_is_found(old: str, new: str, part: str) -> None:
    text = read("README.md")
    assert old in text
    assert shape(text.replace(old, new))[part] != shape(text)[part]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"])
def test_commands_and_links_exist(name: str) -> None:
    text = read(name)
    code = re.findall(r"`([^`\n]+)`|^ *(make .*)$", text, re.MULTILINE)
    used = {match.split()[1] for pair in code for match in pair if match.startswith("make ")}
    assert used <= set(make_targets())
    if name.startswith("README"):
        assert set(make_targets()) <= used
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith("#"):
            assert link[1:] in [heading.lower().replace(" ", "-") for heading in headings]
        elif not link.startswith("https://"):  # no test needs the network
            assert (ROOT / link).exists(), link


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_runs_of_the_readmes_name_notebooks_and_parameters_that_exist(name: str) -> None:
    seen = 0
    for line in re.findall(r"^\.venv/bin/msnb run (.*)$", read(name), re.MULTILINE):
        words = shlex.split(line)
        named = [word for word in words if re.fullmatch(r"\d\d(-\d\d)?", word)]
        chosen = [catalog.read(path) for path in catalog.select(named, ROOT)]
        given = [value for option, value in pairwise(words) if option == "-p"]
        assert any(catalog.assign(chosen, given)) == bool(given), line  # else Refused, with names
        seen += len(given)
    assert seen


def onboarding_faults(text: str, seen: str, otherwise: str) -> list[str]:
    """Of the section on Remote-SSH: twelve steps, each with what to see and what to do if not."""
    section = next(
        part for part in re.split(r"^## ", text, flags=re.M) if "Remote-SSH" in part[:40]
    )
    steps = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^\S|\Z)", section, re.MULTILINE | re.DOTALL)
    found = [] if [int(n) for n, _ in steps] == list(range(1, 13)) else ["not twelve steps"]
    for number, step in steps:
        words = re.sub(r"\s+", " ", step)
        if not 0 <= words.find(seen) < words.find(otherwise):
            found.append(f"step {number} lacks what to see, or what to do if not")
    return found


@pytest.mark.parametrize(
    ("name", "seen", "otherwise"),
    [("README.md", "You see", "If not:"), ("README.zh-CN.md", "你会看到", "否则：")],
)
def test_onboarding_is_twelve_steps(name: str, seen: str, otherwise: str) -> None:
    text = read(name)
    assert onboarding_faults(text, seen, otherwise) == []
    start = text.index("Remote-SSH", text.index("## "))
    without = text[:start] + text[start:].replace(otherwise, "", 1)
    assert onboarding_faults(without, seen, otherwise) == [
        "step 1 lacks what to see, or what to do if not"
    ]
    assert "not twelve steps" in onboarding_faults(text.replace("\n12. ", "\n"), seen, otherwise)


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_container_has_what_the_doctor_looks_for(name: str) -> None:
    from msnb.environment.ascend import MANAGERS

    found = re.search(r"^docker run .*?/bin/bash$", read(name), re.MULTILINE | re.DOTALL)
    assert found
    command = found[0]
    assert not re.search(r"[^\\]\n", command), "a line that does not go on ends the command"
    words = command.replace("\\\n", " ").split()
    nodes = {word.removeprefix("--device=") for word in words if word.startswith("--device=")}
    assert nodes == {"/dev/davinci0", *(f"/dev/{manager}" for manager in MANAGERS)}
    mounts = {words[n + 1].split(":")[0] for n, word in enumerate(words) if word == "-v"}
    needed = {"/usr/local/Ascend/driver", "/usr/local/bin/npu-smi", "/etc/ascend_install.info"}
    assert needed | {"/etc/hccn.conf"} <= mounts


@pytest.mark.slow
def test_the_code_of_the_readme_runs_and_finds_both_slips(tmp_path: Path) -> None:
    found = re.search(r"^```python\n(.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)
    assert found
    file = tmp_path / "own.py"
    file.write_text(found.group(1), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "n = 32 values over n, in PyTorch" in done.stdout
    assert re.search(r"FAILED +settings: 1 .*eps: .*\n +type +epsilon=1e-05\n", done.stdout)
    assert done.stdout.count("FAILED   settings") == 1


def notebook_rows(text: str) -> dict[str, int]:
    rows = re.findall(r"^\| \[(\w+)\]\(notebooks/\1\.ipynb\) \| (\d+) \|", text, re.MULTILINE)
    return {name: int(minutes) for name, minutes in rows}


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_table_of_notebooks(name: str) -> None:
    there = {}
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
        found = re.search(r"\*\*Time:\*\* (\d+) minutes", first)
        assert found, f"{path.name} does not say in its first cell: **Time:** N minutes"
        there[path.stem] = int(found.group(1))
    assert notebook_rows(read(name)) == there


def test_contributing_is_one_screen() -> None:
    lines = read("CONTRIBUTING.md").splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100


# --- the whole tree -----------------------------------------------------------------------------

# Of one machine, or unfinished; written so that this file does not find itself.
HERE = [path for path in (ROOT, Path(os.path.expanduser("~"))) if len(path.parts) > 2]
UNWANTED = {
    "a folder of this machine": "|".join(["/[r]oot/", *(re.escape(f"{path}/") for path in HERE)]),
    "a package index by name": r"pypi\.org|python[h]osted|conda\.anaconda\.org|tuna\.tsinghua",
    "something unfinished": r"\b(?:[T]ODO|[F]IXME|[X]XX)\b",
}


def unwanted(text: str) -> list[str]:
    return [what for what, pattern in UNWANTED.items() if re.search(pattern, text)]


def test_no_file_speaks_of_one_machine() -> None:
    found = []
    for name in tracked():
        raw = (ROOT / name).read_bytes()
        if b"\0" in raw:
            continue
        text = raw.decode("utf-8", "replace")
        if name.endswith(".ipynb"):  # a picture's base64 can spell anything
            text = re.sub(r'"image/\w+": "[^"]*"', "", text)
        found += [f"{name}: {what}" for what in unwanted(text)]
    assert found == []


def test_such_a_file_is_found() -> None:
    assert unwanted("see /{}/x".format("root")) == ["a folder of this machine"]
    assert unwanted(f"see {ROOT}/x") == ["a folder of this machine"]
    assert unwanted("https://{}.org/simple".format("pypi")) == ["a package index by name"]
    assert unwanted("# {}DO: later".format("TO")) == ["something unfinished"]
    assert unwanted("~/msnb, /home/lin/msnb, /usr/bin/python3") == []
