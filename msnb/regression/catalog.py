"""Which notebooks there are, what they take, and whether they can be run at all.

Everything that can be refused is refused here, before a kernel starts. Notebooks are read as plain
JSON: importing nbformat alone takes longer than reading the whole curriculum.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

NBFORMAT = (4, 5)  # the newest format that the nbformat package of this environment reads

_NUMBER = re.compile(r"\d{1,3}")
_RANGE = re.compile(r"(\d{1,3})-(\d{1,3})")


class Refused(ValueError):
    """What was asked for cannot be run as asked; nothing was started."""


@dataclass(frozen=True)
class Parameter:
    """One assignment in a notebook's ``parameters`` cell: its name, annotation and default."""

    name: str
    annotation: str
    default: Any

    @property
    def type(self) -> str:
        return self.annotation or type(self.default).__name__

    def parse(self, text: str) -> Any:
        """The value that ``text`` stands for, of the annotated type (else the default's).

        Raises ``ValueError`` naming the value and the type where ``text`` is no such value.

        >>> Parameter("epochs", "int", 3).parse("5")
        5
        """
        try:
            return _convert(text, ast.parse(self.type, mode="eval").body, self.default)
        except (ValueError, SyntaxError, TypeError):
            raise ValueError(
                f"parameter {self.name} is {_article(self.type)} (the notebook has "
                f"{self.name} = {self.default!r}), not {text!r}"
            ) from None


@dataclass(frozen=True)
class Cell:
    """A code cell: ``number`` is its ``In [number]`` after a run from top to bottom."""

    number: int
    id: str
    line: str


@dataclass(frozen=True)
class Notebook:
    """What the runner must know of a notebook before it runs."""

    path: Path
    kernel: str
    cells: tuple[Cell, ...]
    parameters: Mapping[str, Parameter]
    fingerprint: str = ""
    since: str = ""  # the oldest MindSpore that it is for, from its metadata

    @property
    def name(self) -> str:
        return self.path.stem

    def too_old(self, installed: str) -> str:
        """Why it is not for MindSpore ``installed``; empty where it is.

        >>> Notebook(Path("x.ipynb"), "msnb", (), {}, since="2.9").too_old("2.8.0")
        'needs MindSpore 2.9 or later, this is 2.8.0'
        """
        from packaging.version import Version

        if not self.since or not installed or Version(installed) >= Version(self.since):
            return ""
        return f"needs MindSpore {self.since} or later, this is {installed}"


def find_folder(start: Path | None = None) -> Path:
    """The notebooks folder: from ``start`` upwards, else beside the installed package.

    Raises ``Refused`` where there is none.
    """
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        for candidate in (folder / "notebooks", folder):
            if candidate.name == "notebooks" and _numbered(candidate):
                return candidate
    beside = Path(__file__).resolve().parents[2] / "notebooks"
    if _numbered(beside):
        return beside
    raise Refused(
        f"no folder notebooks/ with numbered notebooks (01_....ipynb) in {here} or above it: "
        "change into the repository, or name notebooks by path"
    )


def select(wanted: Sequence[str], start: Path | None = None) -> list[Path]:
    """The notebooks that ``wanted`` names by number, range, name or path; all where it is empty.

    Each comes once, in the order named; without ``wanted`` in the folder's order.

    Raises ``Refused``, naming the valid ones, nearest first, where one is not there.
    """
    if not wanted:
        return _numbered(find_folder(start))
    chosen: dict[Path, None] = {}
    for word in wanted:
        for path in _named(word, start):
            chosen.setdefault(path)
    return list(chosen)


def _refuse_folder(base: Path, word: str) -> None:
    if (base / word).is_dir():
        raise Refused(f"{word} is a folder; name the notebooks in it: {word.rstrip('/')}/*.ipynb")


def _named(word: str, start: Path | None) -> list[Path]:
    base = start or Path.cwd()
    looks_like_path = "/" in word or (word.endswith(".ipynb") and (base / word).is_file())
    if looks_like_path:
        path = base / Path(word).expanduser()
        path = path if path.suffix == ".ipynb" else path.with_name(f"{path.name}.ipynb")
        if not path.is_file():
            _refuse_folder(base, word)
            near = sorted(entry.stem for entry in path.parent.glob("*.ipynb"))
            there = f"; beside it: {', '.join(_nearest(path.stem, near))}" if near else ""
            raise Refused(f"no notebook {word}{there}")
        return [path.absolute()]

    notebooks = _numbered(find_folder(start))
    numbers = {path: int(path.name.split("_")[0]) for path in notebooks}
    if match := _RANGE.fullmatch(word):
        first, last = int(match[1]), int(match[2])
        found = [path for path in notebooks if first <= numbers[path] <= last]
    elif _NUMBER.fullmatch(word):
        found = [path for path in notebooks if numbers[path] == int(word)]
    else:
        found = [path for path in notebooks if path.stem == word.removesuffix(".ipynb")]
    if not found:
        _refuse_folder(base, word)
        names = _nearest(word, [path.stem for path in notebooks])
        raise Refused(f"no notebook {word!r}; there are {', '.join(names)}")
    return found


def _numbered(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [path for path in folder.glob("*.ipynb") if re.match(r"\d+_", path.name)]
    return sorted(found, key=lambda path: (int(path.name.split("_")[0]), path.name))


def _nearest(word: str, names: Iterable[str]) -> list[str]:
    names = list(names)
    near = get_close_matches(word.removesuffix(".ipynb"), names, n=3, cutoff=0.3)
    return near + [name for name in names if name not in near]


def read(path: Path) -> Notebook:
    """What is to know about the notebook at ``path``.

    Raises ``Refused`` with one sentence where it cannot be run: not JSON, an unknown format,
    duplicate cell ids, no kernel, not exactly one ``parameters`` cell, or anything but literals
    in that cell.
    """
    from packaging.version import Version

    try:
        content = path.read_bytes()
        document = json.loads(content.decode("utf-8"))
        found = (document["nbformat"], document["nbformat_minor"])
        cells = document["cells"] if found[0] == 4 else []
        sources = [_text(cell["source"]) for cell in cells]
        tags = [tuple(cell["metadata"].get("tags", ())) for cell in cells]
        kernel = document.get("metadata", {}).get("kernelspec", {}).get("name", "")
        if not isinstance(kernel, str):
            raise TypeError(f"kernel name {kernel!r}")
        since = document.get("metadata", {}).get("msnb", {}).get("mindspore", "")
        if since:
            Version(since)
    except OSError as error:
        raise Refused(f"{path.name}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = error if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        raise Refused(f"{path.name}: not a notebook (JSON as Jupyter writes it): {why}") from None
    if found[0] != NBFORMAT[0] or found > NBFORMAT:
        raise Refused(
            f"{path.name}: notebook format {found[0]}.{found[1]}; this environment runs 4.0 to "
            f"{NBFORMAT[0]}.{NBFORMAT[1]}: save it from the JupyterLab of this environment"
        )

    ids = [cell["id"] for cell in cells if "id" in cell]
    if twice := sorted({id for id in ids if ids.count(id) > 1}):
        raise Refused(
            f"{path.name}: several cells have the id {', '.join(twice)}: open it in JupyterLab and "
            "save it, which gives each cell its own"
        )
    if any("injected-parameters" in tag for tag in tags):
        raise Refused(
            f"{path.name}: holds a cell tagged injected-parameters, left by an earlier papermill "
            "run, which would override the parameters silently: delete that cell"
        )
    tagged = [source for source, tag in zip(sources, tags, strict=True) if "parameters" in tag]
    if len(tagged) != 1:
        raise Refused(
            f"{path.name}: {len(tagged) or 'no'} cells tagged parameters, one is needed: tag the "
            'cell that sets device_target: str = "CPU"'
        )
    parameters = _parameters(path.name, tagged[0])
    if "device_target" not in parameters:
        raise Refused(
            f"{path.name}: its parameters cell does not set device_target, so that it cannot be "
            'told where to run: add device_target: str = "CPU"'
        )
    if not kernel:
        raise Refused(f"{path.name}: names no kernel: choose the kernel msnb and save it")

    code = [
        (cell.get("id", ""), source)
        for cell, source in zip(cells, sources, strict=True)
        if cell["cell_type"] == "code" and source.strip()
    ]
    return Notebook(
        path,
        kernel,
        tuple(Cell(n, id, first_line(source)) for n, (id, source) in enumerate(code, 1)),
        parameters,
        hashlib.sha256(content).hexdigest(),
        since,
    )


def check_kernel(kernel: str) -> None:
    """``Refused`` unless the kernelspec ``kernel`` exists and starts this environment's Python."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        spec = KernelSpecManager().get_kernel_spec(kernel)
    except NoSuchKernel:
        raise Refused(
            f"no kernel called {kernel!r} is registered in this environment: "
            "type msnb doctor --fix, or make setup"
        ) from None
    command = spec.argv[0] if spec.argv else ""
    if command in ("python", "python3"):
        return  # jupyter_client starts the running interpreter for these
    if Path(command).parent.resolve() != Path(sys.executable).parent.resolve():
        raise Refused(
            f"the kernel {kernel!r} starts {command or 'nothing'}, which is not this environment's "
            f"{sys.executable}: type msnb doctor --fix, or make setup"
        )
    if not Path(command).exists():
        raise Refused(
            f"the kernel {kernel!r} starts {command}, which does not exist: "
            "type msnb doctor --fix, or make setup"
        )


def kernelspec(kernel: str) -> Any:
    """The kernelspec, with the interpreter that ``jupyter_client`` would start."""
    from jupyter_client.kernelspec import KernelSpecManager

    spec = KernelSpecManager().get_kernel_spec(kernel)
    if spec.argv[0] in ("python", "python3"):
        spec.argv[0] = sys.executable
    return spec


def assign(notebooks: Sequence[Notebook], assignments: Sequence[str]) -> list[dict[str, Any]]:
    """For each notebook the values of ``assignments`` (``name=value``) that it takes, typed.

    A notebook without such a parameter runs without it; ``Refused`` where no notebook has it, where
    a value is not of the parameter's type, or a name comes twice.
    """
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise Refused(f"a parameter is given as name=value, not {assignment!r}")
        if name in values:
            raise Refused(f"parameter {name} is given twice: {values[name]!r} and {text!r}")
        values[name] = text

    known = list(dict.fromkeys(name for notebook in notebooks for name in notebook.parameters))
    for name in values:
        if name not in known:
            near = _nearest(name, known)
            raise Refused(
                f"no parameter {name!r} in {', '.join(notebook.name for notebook in notebooks)}; "
                f"there are {', '.join(near)}"
            )
    typed: list[dict[str, Any]] = []
    for notebook in notebooks:
        own: dict[str, Any] = {}
        for name, text in values.items():
            if name in notebook.parameters:
                try:
                    own[name] = notebook.parameters[name].parse(text)
                except ValueError as error:
                    raise Refused(f"{notebook.name}: {error}") from None
        seed = own.get("seed")
        if isinstance(seed, int) and not 0 <= seed < 2**32:
            raise Refused(f"a seed is a whole number from 0 to {2**32 - 1}, not {seed}")
        typed.append(own)
    return typed


def first_line(source: str) -> str:
    """The first line of a cell that says something: a comment only where there is nothing else."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    spoken = [line for line in lines if not line.startswith("#")] or lines or [""]
    return spoken[0]


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def _parameters(notebook: str, source: str) -> dict[str, Parameter]:
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise Refused(f"{notebook}: its parameters cell is not Python: {error}") from None
    parameters: dict[str, Parameter] = {}
    for statement in statements:
        annotation = ""
        target: ast.expr | None = None
        value: ast.expr | None = None
        if isinstance(statement, ast.AnnAssign):
            target, value = statement.target, statement.value
            annotation = ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        try:
            if not isinstance(target, ast.Name) or value is None:
                raise ValueError
            parameter = Parameter(target.id, annotation, ast.literal_eval(value))
        except ValueError:
            raise Refused(
                f"{notebook}: its parameters cell holds only literals (name: type = value), not "
                f"{ast.unparse(statement).splitlines()[0]}"
            ) from None
        parameters[parameter.name] = parameter
    return parameters


def _convert(text: str, annotation: ast.expr, default: Any) -> Any:
    """``text`` as a value of the type that ``annotation`` spells; ``ValueError`` if it is none."""
    kind, arguments = _spelled(annotation)
    if kind == "Union":
        for option in arguments:
            try:
                return _convert(text, option, default)
            except (ValueError, SyntaxError, TypeError):
                continue
        raise ValueError(text)
    if kind == "Literal":
        options = {str(value): value for value in map(ast.literal_eval, arguments)}
        if text not in options:
            raise ValueError(text)
        return options[text]
    if kind == "None":
        if text != "None":
            raise ValueError(text)
        return None
    if kind == "str":
        return text
    if kind == "bool":
        return {"true": True, "false": False}[text.strip().lower()] if _is_bool(text) else _no(text)
    if kind == "int":
        return int(text)
    if kind == "float":
        value = float(text)
        return value if math.isfinite(value) else _no(text)
    if kind in ("list", "dict"):
        return _checked(_literal(text), annotation)
    if default is not None and type(default).__name__ != kind:
        return _convert(text, ast.Name(type(default).__name__), default)
    raise ValueError(f"papermill hands over no {kind}")


def _checked(value: Any, annotation: ast.expr) -> Any:
    """``value``, a literal, if it is of the type that ``annotation`` spells."""
    kind, arguments = _spelled(annotation)
    if kind == "Union":
        for option in arguments:
            try:
                return _checked(value, option)
            except ValueError:
                continue
        raise ValueError(value)
    if kind == "float" and type(value) is int:
        return float(value)
    names = {"list": list, "dict": dict, "str": str, "int": int, "float": float, "bool": bool}
    expected = type(None) if kind == "None" else names.get(kind)
    if expected is not None and type(value) is not expected:
        raise ValueError(value)
    if kind == "list" and arguments:
        return [_checked(item, arguments[0]) for item in value]
    if kind == "dict" and len(arguments) == 2:
        return {_checked(k, arguments[0]): _checked(v, arguments[1]) for k, v in value.items()}
    return value


def _spelled(annotation: ast.expr) -> tuple[str, list[ast.expr]]:
    """The name of a type and its arguments: ``list[int]`` is ``("list", [int])``."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return "Union", [annotation.left, annotation.right]
    if isinstance(annotation, ast.Constant):
        if isinstance(annotation.value, str):
            return _spelled(ast.parse(annotation.value, mode="eval").body)
        return str(annotation.value), []
    if isinstance(annotation, ast.Subscript):
        inner = annotation.slice
        arguments = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
        name = _spelled(annotation.value)[0]
        if name == "Optional":
            return "Union", [*arguments, ast.Constant(None)]
        return name, arguments
    name = ast.unparse(annotation).rsplit(".", 1)[-1]
    return {"List": "list", "Dict": "dict", "NoneType": "None"}.get(name, name), []


def _literal(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = json.loads(text)
    json.dumps(value, allow_nan=False)  # what cannot be written down cannot be repeated
    return value


def _is_bool(text: str) -> bool:
    return text.strip().lower() in ("true", "false")


def _no(text: str) -> Any:
    raise ValueError(text)


def _article(type: str) -> str:
    return f"an {type}" if type.startswith("int") else f"a {type}"
