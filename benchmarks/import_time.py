"""What `import msnb` and `msnb --help` cost a fresh interpreter: under 50 ms and 200 ms."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import Row, in_turns


def rows() -> Iterator[Row]:
    bare = _run("-c", "pass")
    imported, used, passed = in_turns(
        _run("-c", "import msnb"), _run("-c", "import msnb; msnb.Check"), bare, turns=20
    )
    yield Row("import msnb", imported, passed, "python -c pass", 0.050, beyond=True)
    yield Row("import msnb; msnb.Check", used, passed, "python -c pass")

    script = Path(sys.executable).with_name("msnb")
    command = _run(str(script), "--help") if script.exists() else _run("-m", "msnb.cli", "--help")
    try:
        command()
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:]
        yield Row("msnb --help", skipped=f"it failed: {''.join(last)}")
        return
    helped, passed = in_turns(command, bare, turns=20)
    yield Row("msnb --help", helped, passed, "python -c pass", 0.200)


def _run(*arguments: str) -> Callable[[], object]:
    def run() -> object:
        return subprocess.run(
            [sys.executable, *arguments], check=True, capture_output=True, text=True
        )

    return run
