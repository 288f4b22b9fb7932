"""Whether what hints say to type has names, options and commands that exist."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

_DOTTED = re.compile(r"(?<![\w./-])(?:ms|mint|nn|ops|ds|vision|msnb|np)(?:\.[A-Za-z_]\w*)+")
_COMMAND = re.compile(r"(?<![\w.])msnb ([a-z]+)([^\n#;&|]*)")


def wrong(types: Mapping[str, str]) -> list[str]:
    """One line for each name, keyword or option in ``types`` that does not exist."""
    return [f"{id}: {said}" for id, text in types.items() for said in _of(text)]


def _of(text: str) -> Iterator[str]:
    known = _modules()
    for dotted in _DOTTED.findall(text):
        try:
            _reach(known, dotted)
        except AttributeError:
            yield f"there is no {dotted}"
    for line in text.splitlines():
        yield from _keywords(known, line.partition("    #")[0])
    yield from _options(text)


def _modules() -> dict[str, Any]:
    import mindspore as ms
    import mindspore.dataset as ds
    import numpy as np
    from mindspore import mint, nn, ops
    from mindspore.dataset import vision

    import msnb

    known = {"ms": ms, "ds": ds, "np": np, "mint": mint, "nn": nn, "ops": ops}
    return {**known, "vision": vision, "msnb": msnb}


def _reach(known: Mapping[str, Any], dotted: str) -> Any:
    first, *rest = dotted.split(".")
    found = known[first]
    for name in rest:
        found = getattr(found, name)
    return found


def _keywords(known: Mapping[str, Any], line: str) -> Iterator[str]:
    """Keywords of calls that their functions do not take; a line that is no Python has none."""
    try:
        tree = ast.parse(line.strip())
    except SyntaxError:
        return
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if not _DOTTED.fullmatch(name):
            continue
        try:
            taken = inspect.signature(_reach(known, name)).parameters
        except (AttributeError, ValueError, TypeError):
            continue
        if any(taken[one].kind is inspect.Parameter.VAR_KEYWORD for one in taken):
            continue
        for keyword in call.keywords:
            if keyword.arg and keyword.arg not in taken:
                yield f"{name} takes no {keyword.arg}="


def _options(text: str) -> Iterator[str]:
    import typer

    from msnb import cli

    commands = typer.main.get_command(cli.make_app()).commands  # type: ignore[attr-defined]
    doctor = {"--device-target", "--fix", "--rank-table", "--json"}  # its options are its own
    for verb, rest in _COMMAND.findall(text):
        if verb not in commands:
            yield f"there is no msnb {verb}"
            continue
        options = {name for one in commands[verb].params for name in one.opts}
        for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", rest):
            if option not in (doctor if verb == "doctor" else options):
                yield f"msnb {verb} has no {option}"


if __name__ == "__main__":
    print("WRONG " + json.dumps(wrong(json.load(sys.stdin))))
