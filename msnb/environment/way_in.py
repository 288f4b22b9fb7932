"""How this process was reached, and what is written down for the editors that reach it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Facts = dict[str, Any]

_TEXT = r'"(?:[^"\\\n]|\\.)*"'
INTERPRETER = "python.defaultInterpreterPath"


def reached(environment: Mapping[str, str], *, in_kernel: bool, terminal: bool) -> Facts:
    """``through`` what a reader came, ``ssh`` or not, and ``by`` which variables that is known.

    No values are kept: SSH_CONNECTION holds addresses. VS Code and the processes it starts carry
    variables called VSCODE_*, on a server also those of the SSH session that started it;
    jupyter_server gives its kernels JPY_SESSION_NAME and its terminals JUPYTER_SERVER_URL.

    >>> seen = {"VSCODE_CWD": "x", "SSH_CONNECTION": "y"}
    >>> reached(seen, in_kernel=True, terminal=False)["through"]
    'VS Code over Remote-SSH'
    """
    names = sorted(name for name, value in environment.items() if value)
    code = [name for name in names if name.startswith("VSCODE_")]
    if environment.get("TERM_PROGRAM") == "vscode":
        code.append("TERM_PROGRAM")
    ssh = [name for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY") if name in names]
    lab = [name for name in ("JPY_SESSION_NAME", "JUPYTER_SERVER_URL") if name in names]
    if code and ssh:
        through = "VS Code over Remote-SSH"
    elif "REMOTE_CONTAINERS" in names:
        through = "VS Code in a container"
        code.append("REMOTE_CONTAINERS")
    elif code:
        through = "VS Code"
    elif lab:
        through = "JupyterLab"
    elif in_kernel:
        through = "a kernel that no JupyterLab and no VS Code started"
    elif terminal:
        through = "a terminal over SSH" if ssh else "a terminal"
    else:
        through = "a command over SSH, without a terminal" if ssh else "a program, no terminal"
    return {"through": through, "ssh": bool(ssh), "by": code or lab or ssh}


def settings(repo: Path | None) -> Facts | None:
    """The interpreter that ``.vscode/settings.json`` names; None where it names none.

    ``path`` is None where that holds a variable other than VS Code's workspaceFolder or userHome.
    """
    file = repo / ".vscode" / "settings.json" if repo else None
    try:
        text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return None
    # VS Code allows comments and trailing commas there, which json does not; // in a text is none
    text = re.sub(
        rf"({_TEXT})|//[^\n]*|/\*.*?\*/", lambda part: part[1] or "", text, flags=re.DOTALL
    )
    values = re.findall(rf'"{re.escape(INTERPRETER)}"\s*:\s*({_TEXT})', text)
    if repo is None or not values:
        return None
    try:
        named = str(json.loads(values[-1]))  # of a key written twice the last counts
    except ValueError:
        named = values[-1][1:-1]
    path = named.replace("${workspaceFolder}", str(repo))
    path = os.path.expanduser(path.replace("${userHome}", "~"))
    if "${" in path:
        return {"file": str(file), "named": named, "path": None, "there": None, "prefix": None}
    path = os.path.join(repo, path)
    prefix = os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    there = os.path.isfile(path)
    return {"file": str(file), "named": named, "path": path, "there": there, "prefix": prefix}


def notebooks(repo: Path | None, jupyter_folders: list[str]) -> list[Facts]:
    """The repository's notebooks, the kernel each asks for, and whether one of that name is there.

    ``kernel`` is None where a notebook asks for none, or cannot be read.
    """
    found = []
    for file in sorted((repo / "notebooks").glob("[0-9]*.ipynb")) if repo else []:
        kernel = None
        try:
            asked = json.loads(file.read_text(encoding="utf-8"))["metadata"]["kernelspec"]["name"]
            kernel = asked if isinstance(asked, str) and re.fullmatch(r"[\w.-]+", asked) else None
        except (OSError, ValueError, KeyError, TypeError):
            pass
        there = kernel is not None and any(
            os.path.isfile(os.path.join(folder, "kernels", kernel, "kernel.json"))
            for folder in jupyter_folders
        )
        found.append({"path": str(file), "kernel": kernel, "there": there})
    return found
