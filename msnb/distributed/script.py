"""What can be said of a script before it is launched: its syntax, ranks and addresses in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from msnb.report import Check

_VARIABLES = {
    "RANK_ID": "the launcher sets it",
    "RANK_SIZE": "the launcher sets it",
    "DEVICE_ID": "the launcher sets it",
    "RANK_TABLE_FILE": "not needed with a scheduler",
    "MS_ROLE": "the launcher sets it",
    "MS_WORKER_NUM": "the launcher sets it",
    "MS_NODE_ID": "the launcher sets it",
    "MS_SCHED_HOST": "the launcher sets it",
    "MS_SCHED_PORT": "the launcher sets it",
    "ASCEND_RT_VISIBLE_DEVICES": "set it outside of the script",
    "ASCEND_DEVICE_ID": "use DEVICE_ID, which the launcher sets",
}
_KEYWORDS = {
    "device_id": "leave it out: DEVICE_ID holds it",
    "rank_id": "use mindspore.communication.get_rank()",
    "shard_id": "use mindspore.communication.get_rank()",
    "num_shards": "use mindspore.communication.get_group_size()",
}
_NAMES = {
    "rank": "use mindspore.communication.get_rank()",
    "rank_id": "use mindspore.communication.get_rank()",
    "rank_size": "use mindspore.communication.get_group_size()",
    "world_size": "use mindspore.communication.get_group_size()",
    "device_num": "use mindspore.communication.get_group_size()",
    "device_id": "leave it out: DEVICE_ID holds it",
}


def examine(path: Path) -> tuple[list[Check], list[Check]]:
    """What is to be noted, and what makes the script one that cannot run.

    A hard-coded rank, device or address is noted as a ``skipped`` Check: it may be meant.
    """
    try:
        text = path.read_bytes()
        tree = ast.parse(text, str(path))
        compile(text, str(path), "exec", dont_inherit=True)  # a return outside of a function
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        line = (error.text or "").rstrip()
        said = f"{where}{type(error).__name__}: {error.msg}; nothing was started"
        fix = f"mend {path.name}, line {error.lineno}" if error.lineno else f"mend {path.name}"
        return [], [Check("script", "failed", said, found=line, remedy=fix)]
    except (OSError, ValueError) as error:
        said = f"{path.name} cannot be read: {error}; nothing was started"
        return [], [Check("script", "failed", said)]
    found: dict[int, tuple[str, str]] = {}
    for line_number, what, instead in _hard_coded(tree):
        found.setdefault(line_number, (what, instead))
    if not found:
        return [], []
    shown = [f"line {number}: {what}; {instead}" for number, (what, instead) in found.items()]
    more = [f"and {len(shown) - 6} more"] if len(shown) > 6 else []
    said = (
        "hard-coded, so the same on every rank and every machine; not judged, as it may be meant\n"
    )
    return [Check("hard-coded", "skipped", said + "\n".join(shown[:6] + more))], []


def _hard_coded(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _assigned(node.target, node.value)
        elif isinstance(node, ast.Call):
            yield from _called(node)
        elif isinstance(node, ast.Constant) and _is_address(node.value):
            yield node.lineno, f"the address {node.value!r}", "pass it in: --hosts, or args"


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[int, str, str]]:
    if not isinstance(value, ast.Constant) or value.value is None:
        return
    written = f"{ast.unparse(target)} = {ast.unparse(value)}"
    if isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith("environ"):
        name = target.slice.value if isinstance(target.slice, ast.Constant) else None
        if name in _VARIABLES:
            yield target.lineno, written, _VARIABLES[str(name)]
    elif isinstance(target, ast.Name) and isinstance(value.value, int):
        instead = _NAMES.get(target.id.lower())
        if instead and not isinstance(value.value, bool):
            yield target.lineno, written, instead


def _called(node: ast.Call) -> Iterator[tuple[int, str, str]]:
    for keyword in node.keywords:
        value, instead = keyword.value, _KEYWORDS.get(keyword.arg or "")
        if instead and isinstance(value, ast.Constant) and type(value.value) is int:
            yield value.lineno, f"{keyword.arg}={value.value}", instead
    if ast.unparse(node.func).endswith(("environ.setdefault", "putenv")):
        given = [a.value for a in node.args if isinstance(a, ast.Constant)]
        if len(given) == 2 and given[0] in _VARIABLES:
            yield node.lineno, ast.unparse(node), _VARIABLES[str(given[0])]


def _is_address(text: object) -> bool:
    if not isinstance(text, str):
        return False
    host, _, port = text.partition(":")
    parts = host.split(".")
    return (
        len(parts) == 4
        and all(part.isdecimal() and int(part) < 256 for part in parts)
        and (not port or port.isdigit())
    )
