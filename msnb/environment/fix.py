"""What the doctor can put right by itself: the kernelspec, ``.venv``, and CANN's variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from msnb.environment import ascend, facts

SECONDS = 30.0  # for a shell that sources set_env.sh from a network disk
_BEGIN = "# msnb doctor --fix wrote the lines from here to the end\n"
_SHELLS_OWN = {"_", "SHLVL", "PWD", "OLDPWD"}


def apply(
    *,
    prefix: str | os.PathLike[str] | None = None,
    python: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    set_env: str | os.PathLike[str] | None = None,
) -> list[str]:
    """Register the kernelspec ``msnb`` and link ``.venv``; a sentence on each thing done or left.

    ``prefix`` and ``python`` are this environment and its interpreter unless given; ``cwd`` is
    where the repository is looked for first. With ``set_env``, CANN's script, the variables that it
    sets are written into the kernelspec and into ``.env`` of the repository, since neither
    Jupyter's kernels nor VS Code source it; before them stands what changes, line by line. Doing it
    again changes nothing.

    Raises ``OSError`` where a file cannot be written, and ``ValueError`` where this Python has no
    ipykernel, which a kernel needs, or where ``set_env`` does not do its work.

    >>> apply()  # doctest: +SKIP
    ['kernelspec: msnb already starts <env>/bin/python', '.venv: already is this environment']
    """
    folder = Path(prefix or sys.prefix)
    if prefix is None and facts.distribution("ipykernel") is None:
        raise ValueError(
            f"{folder} has no ipykernel, so a kernel there would not start; "
            "nothing was changed. Activate the environment msnb, or type: make setup"
        )
    captured = captured_variables(set_env) if set_env else {}
    repo = facts.repository(cwd or Path.cwd())
    done = _differences(folder, repo, captured)
    done.append(register_kernelspec(folder, python or sys.executable, captured))
    if captured:
        done.append(write_dot_env(repo, captured))
    kind = facts.environment_kind(str(folder))
    if kind in ("system", "conda base"):
        return [*done, f".venv: not linked, {folder} is not an environment of its own ({kind})"]
    return [*done, link_dot_venv(repo, folder)]


def register_kernelspec(prefix: Path, python: str, captured: dict[str, str] | None = None) -> str:
    """Write ``kernel.json`` below ``prefix``; what it does not own stays, as other ``env`` does."""
    file = _kernel_json(prefix)
    old = _loaded(file)
    spec = {
        **old,
        "argv": [os.path.abspath(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": facts.KERNEL,
        "language": "python",
        "metadata": {**(old.get("metadata") or {}), "debugger": True},
    }
    if captured:
        spec["env"] = {**(old.get("env") or {}), **_for_kernel(captured)}
    if spec == old:
        return f"kernelspec: {facts.KERNEL} already starts {spec['argv'][0]}"
    _replace(file, json.dumps(spec, indent=1) + "\n")
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


# --- CANN's variables ----------------------------------------------------------------------------


def captured_variables(set_env: str | os.PathLike[str]) -> dict[str, str]:
    """What sourcing CANN's ``set_env.sh`` adds to an empty environment, with expanded paths.

    Raises ``ValueError`` where it is not there, fails, takes too long or sets no ASCEND_HOME_PATH.
    """
    script = os.path.abspath(set_env)
    if not os.path.isfile(script):
        raise ValueError(f"{script} is not there: name CANN's set_env.sh")
    before = _shell("env -0", script)
    after = _shell('source "$1" >/dev/null && env -0', script)
    new = {name: value for name, value in after.items() if before.get(name) != value}
    if "PATH" in new:  # the part that CANN puts before the others
        new["PATH"] = new["PATH"].removesuffix(before.get("PATH", ""))
    if not new.get("ASCEND_HOME_PATH"):
        raise ValueError(f"{script} sets no ASCEND_HOME_PATH: it is not the set_env.sh of CANN")
    # a list that is put before nothing ends with a colon, which would name the working folder
    values = {
        name: value.strip(":") if name.endswith("PATH") else value for name, value in new.items()
    }
    return {
        name: value for name, value in sorted(values.items()) if value and name not in _SHELLS_OWN
    }


def _shell(command: str, script: str) -> dict[str, str]:
    environment = {"HOME": os.path.expanduser("~"), "PATH": os.defpath, "LANG": "C.UTF-8"}
    environment |= {name: os.environ[name] for name in ("USER", "LOGNAME") if name in os.environ}
    words = ["bash", "--norc", "--noprofile", "-c", command, "msnb", script]
    try:
        done = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"sourcing {script} took more than {SECONDS:.0f} s") from None
    except FileNotFoundError:
        raise ValueError("no bash on PATH: set_env.sh is written for it") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[-1] if said else f"exit {done.returncode}"
        raise ValueError(f"sourcing {script} fails: {why}")
    lines = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _differences(prefix: Path, repo: Path | None, captured: dict[str, str]) -> list[str]:
    """What will change, a line for each variable: ``-`` goes, ``+`` comes."""
    spec = _kernel_json(prefix)
    places: list[tuple[str, dict[str, str], dict[str, str]]] = [
        (f"{spec}: env", _loaded(spec).get("env") or {}, _for_kernel(captured))
    ]
    if repo:
        places.append((str(repo / ".env"), _dot_env(repo / ".env"), _for_dot_env(captured)))
    lines = []
    for where, old, new in places:
        changed = [name for name in new if old.get(name) != new[name]]
        lines += [where] if changed else []
        for name in changed:
            lines += [f"  - {name}={old[name]}"] if name in old else []
            lines.append(f"  + {name}={new[name]}")
    return lines


def _for_kernel(captured: dict[str, str]) -> dict[str, str]:
    """For ``env`` of kernel.json, in which Jupyter replaces ``${PATH}`` by the one it has."""
    return {
        name: f"{value}:${{PATH}}" if name == "PATH" else value for name, value in captured.items()
    }


def _for_dot_env(captured: dict[str, str]) -> dict[str, str]:
    """For ``.env``, whose paths are expanded: whoever reads it replaces nothing."""
    path = os.environ.get("PATH", os.defpath).split(":")
    return {
        name: ":".join(dict.fromkeys(value.split(":") + path)) if name == "PATH" else value
        for name, value in captured.items()
    }


def write_dot_env(repo: Path | None, captured: dict[str, str]) -> str:
    """Write CANN's variables to ``.env`` of the repository, after the lines that others wrote."""
    if repo is None:
        return ".env: nothing written, no repository of msnb around the working folder"
    file = repo / ".env"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    kept = [
        line
        for line in text.partition(_BEGIN)[0].splitlines()
        if line.partition("=")[0].removeprefix("export ").strip() not in captured
    ]
    ours = [f"{name}={_quoted(value)}" for name, value in _for_dot_env(captured).items()]
    new = "".join(f"{line}\n" for line in kept) + _BEGIN + "".join(f"{line}\n" for line in ours)
    if new == text:
        return f".env: already has the {len(ours)} variables of CANN"
    _replace(file, new)
    return f".env: wrote {len(ours)} variables of CANN to {file}, which git ignores"


def _dot_env(file: Path) -> dict[str, str]:
    return ascend.pairs(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _quoted(value: str) -> str:
    return f'"{value}"' if any(c in value for c in " #'") else value


def _kernel_json(prefix: Path) -> Path:
    return prefix / "share" / "jupyter" / "kernels" / facts.KERNEL / "kernel.json"


def _loaded(file: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(loaded, dict):
        return {}
    bad = [name for name in ("env", "metadata") if not isinstance(loaded.get(name, {}), dict)]
    return {name: value for name, value in loaded.items() if name not in bad}


def _replace(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, file)
