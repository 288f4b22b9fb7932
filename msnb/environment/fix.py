"""What the doctor can put right by itself: the kernelspec and the link ``.venv``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from msnb.environment import facts


def apply(
    *,
    prefix: str | os.PathLike[str] | None = None,
    python: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Register the kernelspec ``msnb`` and link ``.venv``; a sentence on each thing done or left.

    ``prefix`` and ``python`` are this environment and its interpreter unless given; ``cwd`` is
    where the repository is looked for first. Doing it again changes nothing.

    Raises ``OSError`` where a file cannot be written, and ``ValueError`` where this Python has no
    ipykernel, which a kernel needs.

    >>> apply()  # doctest: +SKIP
    ['kernelspec: msnb already starts <env>/bin/python', '.venv: already is this environment']
    """
    folder = Path(prefix or sys.prefix)
    if prefix is None and facts.distribution("ipykernel") is None:
        raise ValueError(
            f"{folder} has no ipykernel, so a kernel there would not start; "
            "nothing was changed. Activate the environment msnb, or type: make setup"
        )
    done = [register_kernelspec(folder, python or sys.executable)]
    kind = facts.environment_kind(str(folder))
    if kind in ("system", "conda base"):
        return [*done, f".venv: not linked, {folder} is not an environment of its own ({kind})"]
    return [*done, link_dot_venv(facts.repository(cwd or Path.cwd()), folder)]


def register_kernelspec(prefix: Path, python: str) -> str:
    """Write ``kernel.json`` below ``prefix``; keys that it does not own, such as ``env``, stay."""
    file = prefix / "share" / "jupyter" / "kernels" / facts.KERNEL / "kernel.json"
    old: dict[str, Any] = {}
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
        old = loaded if isinstance(loaded, dict) else {}
    except (OSError, ValueError):
        pass
    spec = {
        **old,
        "argv": [os.path.abspath(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": facts.KERNEL,
        "language": "python",
        "metadata": {**(old.get("metadata") or {}), "debugger": True},
    }
    if spec == old:
        return f"kernelspec: {facts.KERNEL} already starts {spec['argv'][0]}"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"kernel.json.{os.getpid()}")
    part.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
    os.replace(part, file)
    return f"kernelspec: wrote {file}, which starts {spec['argv'][0]}"


def link_dot_venv(repo: Path | None, prefix: Path) -> str:
    """Link ``.venv`` in ``repo`` to ``prefix`` where there is none, or one that leads nowhere."""
    if repo is None:
        return ".venv: nothing to link, no repository of msnb around the working folder"
    link = repo / ".venv"
    if link.exists() and link.resolve() == prefix.resolve():
        return ".venv: already is this environment"
    if link.is_symlink() and not link.exists():
        gone = os.readlink(link)
        link.unlink()
        link.symlink_to(prefix.resolve(), target_is_directory=True)
        return f".venv: linked to {prefix.resolve()}, in place of {gone}, which is gone"
    if link.is_symlink():
        return (
            f".venv: left alone, it links to another environment, {link.resolve()}; "
            "to change that, remove the link and ask again"
        )
    if link.exists():
        return ".venv: left alone, it is a folder of its own and not this environment"
    link.symlink_to(prefix.resolve(), target_is_directory=True)
    return f".venv: linked to {prefix.resolve()}"
