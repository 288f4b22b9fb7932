"""Environments broken for real: the first remedy, typed as it stands, makes the doctor content.

Each is a hard-linked copy of one environment whose packages are tiny (shelf.py). The remedy and the
doctor after it share one shell, as they do for a reader, and pip finds the shelf and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import overlay
import pytest
import shelf

from msnb.report import Check, Report

pytestmark = pytest.mark.slow

PINNED = "mindspore==2.10.0"
DOCTOR = "-m msnb.environment --json"


@dataclass
class Place:
    """A folder with an environment, a repository, a home and a shelf; its name needs quoting."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    python: str = ""  # what asks, where that is not the environment's

    @property
    def env(self) -> Path:
        return self.folder / "env"

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def site(self) -> Path:
        return next((self.env / "lib").glob("python3.*")) / "site-packages"

    @property
    def kernel(self) -> Path:
        return self.env / "share" / "jupyter" / "kernels" / "msnb" / "kernel.json"

    def pip(self, *arguments: str) -> None:
        done = self.shell(f"'{self.env}/bin/python' -m pip -q {' '.join(arguments)}")
        assert done.returncode == 0, done.stderr

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.defpath,
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": (self.folder.parent / "shelf").as_uri(),  # spaces would end it
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **self.variables,
        }
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.repo,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def asked(self, before: str = "") -> Report:
        """The doctor's Report, after ``before`` was typed into the same shell."""
        python = self.python or f"'{self.env}/bin/python'"
        if before:
            python = f"'{self.repo}/.venv/bin/python'" if self.python else python
            before = f"{{ {before}\n}} >&2\n"
        done = self.shell(f"{before}{python} {DOCTOR}")
        assert done.stdout.startswith("{"), done.stdout + done.stderr
        return Report.from_json(json.loads(done.stdout))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The environment that all others are copies of, fit."""
    folder = tmp_path_factory.mktemp("工作 place")
    place = Place(folder / "whole")
    for part in (folder / "shelf", place.repo / ".vscode", place.folder / "home"):
        part.mkdir(parents=True)
    names = shelf.fill(folder / "shelf")
    overlay.bare(place.env)
    place.pip("install", "'numpy<2' mindspore==2.10.0", *names)
    shutil.copy(shelf.REPO / "pyproject.toml", place.repo)
    shutil.copy(shelf.REPO / ".vscode" / "settings.json", place.repo / ".vscode")
    (place.repo / "msnb").symlink_to(shelf.REPO / "msnb")
    # the set-up itself is tested in test_set_up.py; here it has an environment to link to
    (place.repo / "Makefile").write_text("setup:\n\tln -sfn ../env .venv\n", encoding="utf-8")
    git = "git -c user.name=x -c user.email=x@y"
    done = place.shell(f"git init -q . && git add -A && {git} commit -qm x")
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def place(whole: Place, request: pytest.FixtureRequest) -> Place:
    number = len(list(whole.folder.parent.iterdir()))
    copy = Place(whole.folder.parent / f"copy {number}")
    shutil.copytree(whole.folder, copy.folder, symlinks=True, copy_function=overlay.link)
    activate = copy.env / "bin" / "activate"  # names the folder that it was made in
    rewrite(activate, activate.read_text("utf-8").replace(str(whole.env), str(copy.env)))
    overlay.script(copy.env / "bin" / "python", "pip", "from pip._internal.cli.main import main")
    code = "from msnb.environment.fix import apply; print(apply())"
    done = copy.shell(f"'{copy.env}/bin/python' -c '{code}'")
    assert "kernelspec: wrote" in done.stdout, done.stdout + done.stderr
    return copy


def rewrite(file: Path, text: str) -> None:
    """A new file in the place of a hard link: the copies share what is in the old one."""
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def spec(file: Path, python: str) -> None:
    rewrite(file, json.dumps({"argv": [python, "-m", "x"], "display_name": "msnb"}))


def deleted_kernel(place: Place) -> None:
    spec(place.kernel, f"{place.folder}/gone/bin/python")


def other_environment(place: Place) -> Path:
    """One that is there, with a Python that is not ours."""
    other = place.folder / "other env"
    (other / "bin").mkdir(parents=True)
    (other / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    return other


def foreign_kernel(place: Place) -> None:
    spec(place.kernel, f"{other_environment(place)}/bin/python")


def hidden_kernel(place: Place) -> None:
    place.variables["JUPYTER_PATH"] = str(place.folder / "jup yter")
    spec(place.folder / "jup yter/kernels/msnb/kernel.json", f"{place.folder}/gone/bin/python")


def active_elsewhere(place: Place) -> None:
    place.variables["VIRTUAL_ENV"] = str(other_environment(place))


def old_pip_first(place: Place) -> None:
    other = other_environment(place)
    rewrite(other / "bin" / "pip", f"#!{other}/bin/python\n")
    (other / "bin" / "pip").chmod(0o755)
    place.variables["PATH"] = f"{other}/bin:{os.defpath}"
    place.variables["VIRTUAL_ENV"] = str(place.env)


def dot_venv(target: str) -> Callable[[Place], None]:
    def breaks(place: Place) -> None:
        link = place.repo / ".venv"
        link.unlink()
        link.symlink_to(target if target != "other" else other_environment(place))

    return breaks


def torn_dot_venv(place: Place) -> None:
    (place.repo / ".venv").unlink()
    (place.repo / ".venv" / "lib").mkdir(parents=True)


def system_python(place: Place) -> None:
    (place.repo / ".venv").unlink()
    place.python = f"'{os.path.realpath(sys.executable)}'"


def shadow(*names: str) -> Callable[[Place], None]:
    def breaks(place: Place) -> None:
        for name in names:
            rewrite(place.repo / name, "raise RuntimeError('mine')\n")

    return breaks


def on_python_path(place: Place) -> None:
    rewrite(place.folder / "old libs" / "mindspore" / "__init__.py", "raise ImportError('old')\n")
    place.variables["PYTHONPATH"] = str(place.folder / "old libs")


def installs(*what: str) -> Callable[[Place], None]:
    return lambda place: place.pip("install", "--no-deps", *what)


def uninstalls(*what: str) -> Callable[[Place], None]:
    return lambda place: place.pip("uninstall", "-y", *what)


def damaged(text: str, name: str = "mindspore") -> Callable[[Place], None]:
    return lambda place: rewrite(place.site / name / "__init__.py", text)


def two_mindspores(place: Place) -> None:
    place.pip("install", "--no-deps", "mindspore-ascend")
    place.pip("install", "--no-deps", "--force-reinstall", "mindspore==2.10.0")


def variable(name: str, value: str) -> Callable[[Place], None]:
    return lambda place: place.variables.update({name: value})


def read_only_home(place: Place) -> None:
    """Root may write where permissions say no, so the home is one that nobody can write to."""
    place.variables["HOME"] = "/proc/1"


def deleted_interpreter(place: Place) -> None:
    text = (
        '// of mine\n{"python.defaultInterpreterPath": "${workspaceFolder}/../gone/bin/python",}\n'
    )
    rewrite(place.repo / ".vscode" / "settings.json", text)


@dataclass(frozen=True)
class Kind:
    name: str
    breaks: Callable[[Place], None]
    row: str  # the first one that is not ok
    remedy: str  # a pattern; <py> is the interpreter


def no_kernelspec(place: Place) -> None:
    shutil.rmtree(place.kernel.parent)


def no_pip(place: Place) -> None:
    for part in (place.site / "pip", *place.site.glob("pip-*")):
        shutil.rmtree(part)


def torn_metadata(place: Place) -> None:
    next(place.site.glob("mindspore-*/METADATA")).unlink()


FIX = "<py> -m msnb.environment --fix"
INSTALL = "<py> -m pip install "
AGAIN = INSTALL + "--force-reinstall --no-deps "
ACTIVATE = "source .*/env/bin/activate'?"
KINDS = (
    Kind("no kernelspec", no_kernelspec, "kernel", FIX),
    Kind("kernelspec of a deleted environment", deleted_kernel, "kernel", FIX),
    Kind("kernelspec of another environment", foreign_kernel, "kernel", FIX),
    Kind("kernelspec first on JUPYTER_PATH", hidden_kernel, "kernel", "rm -r .* && " + FIX),
    Kind("kernelspec with a bare python", lambda p: spec(p.kernel, "python"), "kernel", FIX),
    Kind("torn kernelspec", lambda p: rewrite(p.kernel, '{"argv": ['), "kernel", FIX),
    Kind("no ipykernel", uninstalls("ipykernel"), "kernel", INSTALL + "ipykernel"),
    Kind("no pip", no_pip, "pip", "<py> -m ensurepip --upgrade"),
    Kind("another environment active", active_elsewhere, "environment", ACTIVATE),
    Kind("another pip before ours", old_pip_first, "pip", ACTIVATE + "  # or write <py> -m pip .*"),
    Kind("system python", system_python, "environment", "make setup && .*"),
    Kind(".venv leads nowhere", dot_venv("../gone"), ".venv", FIX),
    Kind(".venv is another one", dot_venv("other"), ".venv", f".*\nrm .* && {FIX}  #.*"),
    Kind(".venv is torn", torn_dot_venv, ".venv", "rm -rf .venv && make setup"),
    Kind("settings name a deleted Python", deleted_interpreter, "way in", "git -C .* checkout .*"),
    Kind("files hide modules", shadow("random.py", "json.py"), "shadowing", "mv .*\nmv .*"),
    Kind("a file hides MindSpore", shadow("mindspore.py"), "shadowing", "mv .*"),
    Kind("PYTHONPATH hides MindSpore", on_python_path, "shadowing", "unset PYTHONPATH"),
    Kind("no MindSpore", uninstalls("mindspore"), "mindspore", INSTALL + PINNED),
    Kind("MindSpore is too old", installs("mindspore==2.6.0"), "mindspore", INSTALL + PINNED),
    Kind("MindSpore is too new", installs("mindspore==2.11.0"), "mindspore", INSTALL + PINNED),
    Kind("two MindSpores", two_mindspores, "mindspore", f"<py> -m pip uninstall .*\n.*{PINNED}"),
    Kind("MindSpore is damaged", damaged("from . import _c"), "mindspore", AGAIN + PINNED),
    Kind("MindSpore crashes", damaged("import os; os.abort()"), "mindspore", AGAIN + PINNED),
    Kind("torn metadata", torn_metadata, "requirements", AGAIN + "'mindspore>=.*'"),
    Kind("NumPy 2", installs("numpy==2.4.6"), "first operation", INSTALL + '"numpy<2"'),
    Kind("no NumPy", uninstalls("numpy"), "mindspore", INSTALL + PINNED + ' "numpy<2"'),
    Kind("protobuf 3", installs("protobuf==3.20.3"), "mindspore", INSTALL + '"protobuf>=.*"'),
    Kind("no protobuf", uninstalls("protobuf"), "mindspore", INSTALL + '"protobuf>=.*"'),
    Kind("no PyTorch", uninstalls("torch"), "torch", INSTALL + "torch"),
    Kind("PyTorch is damaged", damaged("from . import _C", "torch"), "torch", AGAIN + "torch==.*"),
    Kind("a package is missing", uninstalls("nbclient"), "requirements", INSTALL + "'nbclient>.*"),
    Kind("a package is old", installs("papermill==2.4"), "requirements", INSTALL + "'papermill>.*"),
    Kind("asserts are removed", variable("PYTHONOPTIMIZE", "2"), "variables", "unset .*OPTIMIZE"),
    Kind("warnings raise", variable("PYTHONWARNINGS", "error"), "variables", "unset .*WARNINGS"),
    Kind("a launcher's variable", variable("MS_ROLE", "MS_WORKER"), "variables", "unset MS_ROLE"),
    Kind("no dump file", variable("MINDSPORE_DUMP_CONFIG", "/x"), "variables", "unset .*CONFIG"),
    Kind("read-only home", read_only_home, "room", "export JUPYTER_RUNTIME_DIR=.*mktemp -d.*"),
)


def first(report: Report) -> Check | None:
    return next((check for check in report if check.status in ("failed", "error")), None)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_first_remedy_cures(kind: Kind, place: Place) -> None:
    kind.breaks(place)
    before = place.asked()
    found = first(before)
    assert found is not None, str(before)
    assert found.id == kind.row, str(before)
    python = re.escape(f"'{place.env}/bin/python'")
    assert re.fullmatch(kind.remedy.replace("<py>", python), found.remedy, re.S), found.remedy
    after = place.asked(found.remedy)
    assert first(after) is None, str(after)


def test_what_cures_nothing_is_seen(place: Place) -> None:
    deleted_kernel(place)
    after = first(place.asked("true"))
    assert after is not None
    assert after.id == "kernel"


def test_there_are_thirty_kinds_and_one_cause_counts_once() -> None:
    same = ("a file hides MindSpore", "MindSpore crashes", "no dump file")
    assert len({kind.name for kind in KINDS} - set(same)) >= 30
