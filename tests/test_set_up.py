"""tools/set_up.py from every state a checkout can be in; the interpreter is mostly a fake."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools" / "set_up.py"

_spec = importlib.util.spec_from_file_location("set_up", TOOL)
assert _spec is not None
assert _spec.loader is not None
set_up = importlib.util.module_from_spec(_spec)
sys.modules["set_up"] = set_up
_spec.loader.exec_module(set_up)

# Stands for an interpreter, and for that of the .venv made from it; writes down what it is asked.
FAKE = r"""#!/bin/sh
here=${0%/*}
case "$*" in
  *"sys.version_info >="*) echo True ;;
  *find_spec*) [ -e "$here/dead" ] && exit 1
    echo "[[3, 11, 7], \"$FAKE\", []]"; exit ;;
  *"half installed"*) echo intact >>"$FAKE_LOG"
    [ -e "$here/torn" ] && echo "numpy is half installed (numpy/core.py)" >&2 && exit 1
    exit 0 ;;
  *"-m venv"*) echo venv >>"$FAKE_LOG"
    for target; do :; done
    mkdir -p "$target/bin"; ln -s "$FAKE" "$target/bin/python"
    printf "#!/bin/sh\n'''exec' \"%s/bin/python\" \"\$0\" \"\$@\"\n' '''\n" "$target" \
      >"$target/bin/pip" ;;
  *"-m pip install"*) echo "pip ${*##*install }" >>"$FAKE_LOG"
    env >"$FAKE_LOG.env"; sleep "${FAKE_SLEEP:-0}"
    [ -z "$FAKE_PIP_FAILS" ] || { printf '%s\n' "$FAKE_PIP_FAILS"; exit 1; } ;;
  *fix.apply*) echo kernel >>"$FAKE_LOG"
    kernel="$here/../share/jupyter/kernels/msnb"
    mkdir -p "$kernel"; echo "{}" >"$kernel/kernel.json" ;;
  *set_up.py*) exec "$REAL_PYTHON" "$@" ;;
esac
"""
PIP = "pip --no-input -c constraints.txt -e .[dev]"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout at an awkward path, and a PATH on which only the fake interpreter is a Python."""
    root = tmp_path / "新 克隆"
    (root / "tools").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt", "Makefile", "tools/set_up.py"):
        shutil.copy(ROOT / name, root / name)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "make", "env", "sleep", "mkdir", "ln", "id", "sed", "expand"):
        (tools / name).symlink_to(shutil.which(name) or "")
    fake = tools / "python3.11"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("FAKE", str(fake))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("REAL_PYTHON", sys.executable)
    of_make = [name for name in os.environ if name.startswith("MAKE")]  # from `make test`
    for name in ("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "FAKE_PIP_FAILS", "PYTHON", *of_make):
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[str]]:
    """What the fake interpreter was asked to do since the last look."""

    def since() -> list[str]:
        log = tmp_path / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    return since


def run(root: Path, python: str = "") -> str:
    said: list[str] = []
    set_up.SetUp(root, python, said.append).run()
    return "\n".join(said)


Calls = Callable[[], list[str]]


# --- states -------------------------------------------------------------------------------------


def test_first_time_then_again(checkout: Path, calls: Calls) -> None:
    said = run(checkout)
    assert "making .venv from Python 3.11.7" in said
    assert ".venv is ready" in said
    assert calls() == ["venv", PIP, "kernel"]
    assert run(checkout) == ""
    assert calls() == []


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_after_a_pull_it_updates(checkout: Path, calls: Calls, changed: str) -> None:
    run(checkout)
    calls()
    (checkout / changed).write_text((checkout / changed).read_text() + "# newer\n")
    run(checkout)
    assert calls() == ["intact", PIP, "kernel"]
    assert run(checkout) == ""


def test_a_change_elsewhere_is_no_reason(checkout: Path, calls: Calls) -> None:
    run(checkout)
    calls()
    (checkout / "README.md").write_text("newer")
    run(checkout)
    assert calls() == []


def test_an_interrupted_install_is_taken_up(
    checkout: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PIP_FAILS", "Killed")
    with pytest.raises(set_up.SetUpError, match=r"(?s)pip install ended .*Killed"):
        run(checkout)
    calls()
    monkeypatch.delenv("FAKE_PIP_FAILS")
    run(checkout)
    assert calls() == ["intact", PIP, "kernel"]
    assert run(checkout) == ""


def test_an_update_that_fails_is_not_taken_for_done(
    checkout: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(checkout)
    pins = (checkout / "constraints.txt").read_text()
    (checkout / "constraints.txt").write_text(pins + "# newer\n")
    monkeypatch.setenv("FAKE_PIP_FAILS", "Killed")
    with pytest.raises(set_up.SetUpError):
        run(checkout)
    (checkout / "constraints.txt").write_text(pins)  # back again: yet .venv may be half updated
    monkeypatch.delenv("FAKE_PIP_FAILS")
    calls()
    run(checkout)
    assert calls() == ["intact", PIP, "kernel"]


def _torn(root: Path) -> None:
    (root / ".venv/bin/torn").touch()
    set_up.SetUp(root).stamp.unlink()


def _no_pip(root: Path) -> None:
    (root / ".venv/bin/pip").unlink()
    set_up.SetUp(root).stamp.unlink()


def _empty(root: Path) -> None:
    shutil.rmtree(root / ".venv")
    (root / ".venv").mkdir()


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda root: (root / ".venv/bin/python").unlink(), "its Python does not start"),
        (_empty, "its Python does not start"),
        (_torn, "numpy is half installed (numpy/core.py)"),
        (_no_pip, "pip is missing"),
    ],
    ids=["no python", "empty folder", "file missing", "no pip"],
)
def test_half_made_is_made_anew(
    checkout: Path, calls: Calls, harm: Callable[[Path], Any], fault: str
) -> None:
    run(checkout)
    calls()
    harm(checkout)
    assert f"making .venv anew: {fault}" in run(checkout)
    assert [call for call in calls() if call != "intact"] == ["venv", PIP, "kernel"]
    assert run(checkout) == ""


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_checkout_elsewhere_is_made_anew(
    checkout: Path, calls: Calls, tmp_path: Path, how: str
) -> None:
    run(checkout)
    calls()
    there = tmp_path / "there"
    if how == "moved":
        checkout.rename(there)
    else:
        shutil.copytree(checkout, there, symlinks=True)
    assert f"making .venv anew: it was made in {checkout / '.venv'}" in run(there)
    assert calls() == ["venv", PIP, "kernel"]
    assert run(there) == ""


def test_a_lost_kernel_is_registered_again(checkout: Path, calls: Calls) -> None:
    run(checkout)
    shutil.rmtree(checkout / ".venv/share")
    calls()
    run(checkout)
    assert "kernel" in calls()


def test_another_python_is_asked_for(checkout: Path, calls: Calls, tmp_path: Path) -> None:
    run(checkout)
    calls()
    same = os.environ["FAKE"]
    assert run(checkout, same) == ""
    other = tmp_path / "python3.12"
    other.write_text(FAKE.replace("$FAKE\\", f"{other}\\"))
    other.chmod(0o755)
    assert "made from another Python than PYTHON=" in run(checkout, str(other))
    assert "venv" in calls()


def test_two_at_once_install_once(
    checkout: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLEEP", "1")
    command = [sys.executable, "-I", str(checkout / "tools/set_up.py")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert calls() == ["venv", PIP, "kernel"]
    assert sum("another set-up is at work here" in text for text in said) == 1


def test_a_killed_set_up_leaves_the_lock_to_its_pip(
    checkout: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLEEP", "2")
    first = subprocess.Popen(
        [sys.executable, "-I", str(checkout / "tools/set_up.py")], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    log = Path(os.environ["FAKE_LOG"])
    while not (log.exists() and PIP in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.kill()
    first.wait()
    calls()
    assert "another set-up is at work here" in run(checkout)
    assert calls() == ["intact", PIP, "kernel"]


# --- conda --------------------------------------------------------------------------------------


@pytest.fixture
def conda(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prefix = tmp_path / "conda" / "envs" / "msnb"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(os.environ["FAKE"])
    monkeypatch.setenv("CONDA_PREFIX", str(prefix))
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "msnb")
    return prefix


def test_an_active_conda_environment_is_linked(checkout: Path, conda: Path, calls: Calls) -> None:
    assert f"linking .venv to the active conda environment {conda}" in run(checkout)
    assert (checkout / ".venv").readlink() == conda
    assert calls() == [PIP, "kernel"]
    assert run(checkout) == ""


def test_another_conda_environment_is_left_alone(
    checkout: Path, conda: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "base")
    run(checkout)
    assert not (checkout / ".venv").is_symlink()
    assert calls() == ["venv", PIP, "kernel"]


def test_a_venv_that_is_there_is_kept(
    checkout: Path, conda: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONDA_PREFIX")
    run(checkout)
    monkeypatch.setenv("CONDA_PREFIX", str(conda))
    assert run(checkout) == ""  # it works: not a word
    set_up.SetUp(checkout).stamp.unlink()
    assert "keeping the .venv that is here" in run(checkout)
    assert not (checkout / ".venv").is_symlink()


def test_a_link_to_an_environment_that_is_gone(
    checkout: Path, calls: Calls, tmp_path: Path
) -> None:
    (checkout / ".venv").symlink_to(tmp_path / "gone")
    assert "which is gone" in run(checkout)
    assert not (checkout / ".venv").is_symlink()
    assert calls() == ["venv", PIP, "kernel"]


def test_a_link_follows_the_active_environment(
    checkout: Path, conda: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(checkout)
    other = tmp_path / "miniforge" / "envs" / "msnb"
    shutil.copytree(conda, other, symlinks=True)
    monkeypatch.setenv("CONDA_PREFIX", str(other))
    run(checkout)
    assert (checkout / ".venv").readlink() == other
    assert conda.exists()


def test_a_broken_conda_environment_is_not_rebuilt(checkout: Path, conda: Path) -> None:
    (conda / "bin" / "dead").touch()
    with pytest.raises(set_up.SetUpError, match=r"of no use here: .*conda env create"):
        run(checkout)
    assert not os.path.lexists(checkout / ".venv")
    assert conda.exists()
    (checkout / ".venv").symlink_to(conda)
    with pytest.raises(set_up.SetUpError, match=r"does not start; repair .* or type: rm \.venv"):
        run(checkout)
    assert conda.exists()


# --- what is missing ----------------------------------------------------------------------------


def looking(*pythons: Any) -> Callable[[str], Any]:
    return {python.command: python for python in pythons}.get


def python(name: str, *version: int, missing: tuple[str, ...] = ()) -> Any:
    return set_up.Python(name, version, missing)


def test_the_best_python_on_path() -> None:
    newest, best, oldest = (python(f"python3.{n}", 3, n, 1) for n in (12, 11, 10))
    assert set_up.find_python(look=looking(newest, oldest, best)) == best
    assert set_up.find_python(look=looking(newest, oldest)) == newest
    assert set_up.find_python(look=looking(oldest)) == oldest
    plain = python("python3", 3, 11, 2)
    assert set_up.find_python(look=looking(plain, newest)) == plain
    bare = python("python3.11", 3, 11, 2, missing=("ensurepip",))
    assert set_up.find_python(look=looking(bare, newest)) == newest


@pytest.mark.parametrize(
    ("there", "asked", "text"),
    [
        ([], "", r"Python 3\.11 .* not on PATH; .*apt install python3\.11 python3\.11-venv"),
        ([("python3", 3, 13, 0)], "", r"not on PATH \(found: Python 3\.13\.0 \(python3\)\)"),
        ([], "/no/python", r"PYTHON=/no/python does not start; .*make setup PYTHON="),
        ([("p", 3, 8, 1)], "p", r"PYTHON=p is Python 3\.8\.1; it takes Python 3\.11"),
    ],
)
def test_no_python(there: list[Any], asked: str, text: str) -> None:
    look = looking(*(python(*one) for one in there))
    with pytest.raises(set_up.SetUpError, match=text) as caught:
        set_up.find_python(asked, look)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("asked", ["", "python3.11"])
def test_debian_without_python3_venv(asked: str) -> None:
    bare = python("python3.11", 3, 11, 2, missing=("venv", "ensurepip"))
    with pytest.raises(set_up.SetUpError, match=r"no venv and no ensurepip.*python3\.11-venv$"):
        set_up.find_python(asked, looking(bare))


def test_a_command_that_is_no_python(tmp_path: Path) -> None:
    assert set_up.look_at(str(tmp_path / "none")) is None
    assert set_up.look_at(shutil.which("true") or "") is None
    seen = set_up.look_at(sys.executable)
    assert seen.version == sys.version_info[:3]


def test_a_disk_too_small(checkout: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up.shutil, "disk_usage", lambda path: SimpleNamespace(free=1.25e9))
    with pytest.raises(set_up.SetUpError, match=r"only 1\.2 GB are free in .*make room"):
        run(checkout)
    assert calls() == []
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("Retrying after NameResolutionError: x\nERROR: No matching distribution found for torch",
         "pip cannot reach its package index"),
        ("ReadTimeoutError: Read timed out.", "pip cannot reach its package index"),
        ("ERROR: Could not find a version that satisfies the requirement hatchling>=1.27 "
         "(from versions: none)", "or that lacks this package"),
        ("ERROR: No matching distribution found for mindspore<2.11", "no such wheel"),
        ("The virtual environment was not created: ensurepip is not available", "python3-venv"),
        ("ERROR: something else", "mend what it says"),
    ],
)  # fmt: skip
def test_why_pip_failed(output: str, remedy: str) -> None:
    text = set_up.explain("pip install", 1, ["x"] * 50 + output.splitlines())
    assert remedy in text.splitlines()[-1]
    assert output.splitlines()[-1] in text
    assert len(text.splitlines()) <= 14


def test_python_3_10_takes_no_pins(
    checkout: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Path(os.environ["FAKE"])
    fake.write_text(FAKE.replace("3, 11, 7", "3, 10, 1"))
    assert "Python 3.10: constraints.txt is for 3.11" in run(checkout)
    assert "pip --no-input -e .[dev]" in calls()


def test_nothing_of_the_caller_leaks_in(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_RETRIES", "7")
    run(checkout)
    seen = dict(
        line.split("=", 1)
        for line in (tmp_path / "log.env").read_text().splitlines()
        if "=" in line
    )
    assert not {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX"} & set(seen)
    assert seen["PIP_USER"] == "0"
    assert seen["PIP_RETRIES"] == "7"


def test_a_slip_is_a_sentence_not_a_traceback(
    capsys: pytest.CaptureFixture[str], checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up, "__file__", str(checkout / "tools" / "set_up.py"))
    assert set_up.main(["--python", "/no/python"]) == 2
    assert capsys.readouterr().err.startswith("set-up: PYTHON=/no/python does not start;")
    (checkout / ".venv").write_text("")
    assert set_up.main([]) == 2
    said = "set-up: .venv is a file, and a folder goes there; type: rm .venv\n"
    assert capsys.readouterr().err == said
    (checkout / ".venv").unlink()
    (checkout / "pyproject.toml").unlink()
    assert set_up.main([]) == 2
    assert "pyproject.toml" in capsys.readouterr().err


def test_interrupted(
    capsys: pytest.CaptureFixture[str], checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(set_up, "__file__", str(checkout / "tools" / "set_up.py"))
    monkeypatch.setattr(set_up.SetUp, "_install", stop)
    assert set_up.main([]) == 130
    assert "the same command takes it up again" in capsys.readouterr().err


def test_an_old_python3_can_read_it() -> None:
    ast.parse(TOOL.read_text("utf-8"), feature_version=(3, 8))
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n  case 1: pass\n", feature_version=(3, 8))


# --- what is half installed ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda site: None, ""),
        (lambda site: (site / "thing/a.py").unlink(), r"thing is half installed \(thing/a\.py\)"),
        (lambda site: (site / "thing/a.py").write_text(""), r"half installed \(thing/a\.py\)"),
        (lambda site: (site / "thing-1.dist-info/RECORD").unlink(), "thing is half installed"),
    ],
    ids=["intact", "missing", "cut short", "no record"],
)
def test_half_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], Any], fault: str
) -> None:
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing/a.py").write_text("a = 1\n")
    info = tmp_path / "thing-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
    (info / "RECORD").write_text("thing/a.py,,6\nthing/a.pyc,,9\nthing-1.dist-info/RECORD,,\n")
    harm(tmp_path)
    found = list(importlib.metadata.distributions(path=[str(tmp_path)]))
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)
    if fault:
        with pytest.raises(SystemExit, match=fault):
            exec(set_up._INTACT, {})
    else:
        exec(set_up._INTACT, {})


@pytest.mark.parametrize(
    "head",
    [
        "#!/a b/新/bin/python\n",
        "#!/a b/新/bin/python3.11 -E\n",
        "#!/bin/sh\n'''exec' \"/a b/新/bin/python3.11\" \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' /a b/新/bin/python \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_where_a_script_was_made(tmp_path: Path, head: str) -> None:
    (tmp_path / "pip").write_text(head + "import sys\n")
    assert set_up._home_of(tmp_path / "pip") == Path("/a b/新/bin")


def test_a_script_that_names_no_python(tmp_path: Path) -> None:
    assert set_up._home_of(tmp_path / "pip") is None
    (tmp_path / "pip").write_bytes(b"\x7fELF")
    assert set_up._home_of(tmp_path / "pip") is None


# --- through make -------------------------------------------------------------------------------


def make(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )


def test_make_run_in_a_folder_with_spaces(checkout: Path, calls: Calls) -> None:
    made = make(checkout, "setup")
    assert made.returncode == 0, made.stderr
    assert calls() == ["venv", PIP, "kernel"]
    msnb = checkout / ".venv/bin/msnb"
    msnb.write_text('#!/bin/sh\nprintf "[%s]" "$@"; exit 3\n')
    msnb.chmod(0o755)
    ran = make(checkout, "run", "ARGS=02 -p 'name=a b'")
    assert "[run][02][-p][name=a b]" in ran.stdout
    assert "Error 3" in ran.stderr
    assert ran.returncode == 2  # make's own for "a command failed"
    assert calls() == []


def test_make_without_any_python(checkout: Path) -> None:
    Path(os.environ["FAKE"]).unlink()
    made = make(checkout, "run")
    assert made.returncode == 2
    assert "set-up: Python 3.11 is needed and not on PATH" in made.stderr
    assert "sudo apt install python3.11 python3.11-venv" in made.stderr


def test_make_with_a_python_that_is_not_there(checkout: Path) -> None:
    made = make(checkout, "setup", "PYTHON=/no such/python")
    assert "set-up: PYTHON=/no such/python does not start" in made.stderr


def test_make_with_a_command_that_is_no_python_and_says_nothing(checkout: Path) -> None:
    silent = checkout / "true"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    made = make(checkout, "setup", f"PYTHON={silent}")
    assert made.returncode == 2
    assert f"set-up: PYTHON={silent} does not start" in made.stderr


# --- for real, with a package that needs nothing ------------------------------------------------

BACKEND = """
import os
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    info = "msnb-0.dist-info/"
    files = {
        "msnb.pth": os.path.dirname(os.path.abspath(__file__)),
        info + "METADATA": "Metadata-Version: 2.1|Name: msnb|Version: 0|Provides-Extra: dev|",
        info + "WHEEL": "Wheel-Version: 1.0|Root-Is-Purelib: true|Tag: py3-none-any|",
    }
    files[info + "RECORD"] = "".join(f"{name},,|" for name in [*files, info + "RECORD"])
    with zipfile.ZipFile(folder + "/msnb-0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text.replace("|", chr(10)))
    return "msnb-0-py3-none-any.whl"
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_for_real(tmp_path: Path) -> None:
    root = tmp_path / "新 克隆"
    (root / "tools").mkdir(parents=True)
    shutil.copy(TOOL, root / "tools")
    shutil.copytree(ROOT / "msnb", root / "msnb")
    (root / "constraints.txt").write_text("")
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "msnb"\nversion = "0"\noptional-dependencies = {dev = []}\n'
    )
    (root / "backend.py").write_text(BACKEND)
    info = root / "ipykernel-0.dist-info"  # what the kernel's registration asks for
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ipykernel\nVersion: 0\n")
    (info / "RECORD").write_text("ipykernel-0.dist-info/METADATA,,\n")

    def tool(where: Path) -> str:
        command = [sys.executable, "-I", str(where / "tools/set_up.py")]
        env = {**os.environ, "PYTHONPATH": "/elsewhere", "PIP_TARGET": "/elsewhere"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kernel(where: Path) -> str:
        spec = json.loads((where / ".venv/share/jupyter/kernels/msnb/kernel.json").read_text())
        return str(spec["argv"][0])

    assert ".venv is ready" in tool(root)
    assert kernel(root) == str(root / ".venv/bin/python")
    assert tool(root) == ""

    there = tmp_path / "there"
    root.rename(there)
    assert "making .venv anew: it was made in" in tool(there)
    assert kernel(there) == str(there / ".venv/bin/python")
    assert tool(there) == ""

    victim = next((there / ".venv/lib").glob("python3*/site-packages/pip/__init__.py"))
    victim.with_name("__pip-runner__.py").unlink()
    set_up.SetUp(there).stamp.unlink()
    assert "making .venv anew: pip is half installed (pip/__pip-runner__.py)" in tool(there)
    assert tool(there) == ""
