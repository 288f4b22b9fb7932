"""Run the notebooks from top to bottom on CPU and write their outputs back.

    python tools/rewrite_notebooks.py            # all of notebooks/
    python tools/rewrite_notebooks.py 02         # by number, name or path

Each notebook runs in a fresh ``msnb`` kernel, in its own folder. It is written back only if all of
it ran, wrote nothing to stderr, left no file, and shows nothing of this machine: no path, no memory
address. The two places every reader has, this repository and the home folder, are shown as
``~/msnb`` and ``~``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
KERNEL = "msnb"


class Refused(Exception):
    """The notebook is not fit to be committed; the message says why."""


def texts(output: Any) -> Iterator[tuple[Any, str, str]]:
    """Each text of an output, as (holder, key, text)."""
    if output.output_type == "stream":
        yield output, "text", output.text
    for kind, value in output.get("data", {}).items():
        if isinstance(value, str) and not kind.startswith("image/png"):
            yield output.data, kind, value


def every_string(value: Any, change: Callable[[str], str]) -> Any:
    """The JSON value with each string in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [every_string(item, change) for item in value]
    if isinstance(value, dict):
        return {key: every_string(item, change) for key, item in value.items()}
    return value


def shown(text: str) -> str:
    """The text with this repository and the home folder under the names every reader has."""
    for place, name in ((str(ROOT), "~/msnb"), (str(Path.home()), "~")):
        text = re.sub(re.escape(place) + r"(?![\w.-])", name, text)
    return text


def leaks(text: str) -> Iterator[str]:
    """What in a text belongs to this machine or this run alone."""
    for place in sorted({str(ROOT), str(Path.home()), sys.prefix, tempfile.gettempdir()}):
        if len(place) > 1 and re.search(r"(?<![\w.~-])" + re.escape(place) + r"(?![\w.-])", text):
            yield f"the path {place}"
    if found := re.search(r"ipykernel_\d+|\b0x[0-9a-f]{8,}\b", text):
        yield f"{found[0]}, which differs in each run"


def refuse_unfit(notebook: Any) -> None:
    """Raise ``Refused`` where an output is not fit to be committed."""
    count = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        count += 1
        if cell.execution_count != count:
            raise Refused(f"cell {cell.id!r} has count {cell.execution_count}, not {count}")
        for output in cell.outputs:
            if output.output_type == "error":
                raise Refused(f"cell {cell.id!r} raised {output.ename}: {output.evalue}")
            if output.output_type == "stream" and output.name == "stderr":
                raise Refused(f"cell {cell.id!r} wrote to stderr:\n{output.text}")
            for _, _, text in texts(output):
                for leak in leaks(text):
                    raise Refused(f"cell {cell.id!r} shows {leak}:\n{text}")


def files(folder: Path) -> set[str]:
    """Everything below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def run(notebook: Any, folder: Path, *, timeout: float = 300.0) -> Any:
    """Execute a notebook in ``folder`` and return it, cleaned; ``Refused`` where it is unfit."""
    before = files(folder)
    client = NotebookClient(
        notebook,
        kernel_name=KERNEL,
        timeout=timeout,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    # a reader's kernel has no log settings; msnb.setup() makes them
    env = {name: value for name, value in os.environ.items() if not name.startswith("GLOG_")}
    try:
        client.execute(env=env)
    except (CellExecutionError, DeadKernelError, TimeoutError) as error:
        raise Refused(f"it did not run: {error}") from error
    if left := sorted(files(folder) - before):
        raise Refused(f"it left files behind: {', '.join(left)}")
    clean(notebook)
    refuse_unfit(notebook)
    return notebook


def clean(notebook: Any) -> None:
    """Keep what belongs to the notebook; drop what belongs to the machine or the run."""
    ours = {"msnb": notebook.metadata.msnb} if "msnb" in notebook.metadata else {}
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": KERNEL, "language": "python", "name": KERNEL},
            "language_info": {"name": "python"},
            **ours,
        }
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {"tags": cell.metadata.tags} if cell.metadata.get("tags") else {}
        )
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = shown(output.text)
            elif "data" in output:
                output.data = nbformat.from_dict(
                    {
                        kind: value if kind.startswith("image/") else every_string(value, shown)
                        for kind, value in output.data.items()
                    }
                )


def write(notebook: Any, path: Path) -> None:
    """Write beside the notebook, then rename: a reader never meets half a file."""
    nbformat.validate(notebook)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        nbformat.write(notebook, beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def find(names: list[str]) -> list[Path]:
    """The notebooks meant by numbers, names or paths; all of them for none."""
    known = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    chosen = []
    for name in names:
        fits = [path for path in known if path.stem == Path(name).stem or path.stem[:2] == name]
        if not fits:
            raise SystemExit(f"no notebook {name!r}; there are {', '.join(p.stem for p in known)}")
        chosen += fits
    return chosen or known


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", nargs="*", help="numbers, names or paths; default: all")
    failed = 0
    for path in find(parser.parse_args().notebooks):
        try:
            write(run(nbformat.read(path, as_version=4), path.parent), path)
            print(f"{path.stem}: rewritten", flush=True)
        except Refused as error:
            failed += 1
            print(f"{path.stem}: left as it was. {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
