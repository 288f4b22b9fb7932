"""Running the examples of known errors: many in one fresh process, some in their own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import traceback
from pathlib import Path

HEAD = (
    "import mindspore as ms\nimport numpy as np\nfrom mindspore import mint, nn, ops\n"
    "from mindspore.common.api import _pynative_executor\n"
)


def produce(examples: dict[str, str], folder: Path, timeout: float = 240) -> dict[str, str]:
    """What each example printed and raised, run one after the other in one fresh process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "examples.json").write_text(json.dumps(examples), encoding="utf-8")
    quiet = {
        "GLOG_v": "2",
        "GLOG_logtostderr": "0",
        "GLOG_log_dir": str(folder / "log"),
        "GLOG_stderrthreshold": "4",
        "MS_OM_PATH": str(folder),
    }
    run = subprocess.run(
        [sys.executable, __file__, str(folder)],
        cwd=folder,
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    lines = [line[8:] for line in run.stdout.splitlines() if line.startswith("EXAMPLE ")]
    found = dict(map(json.loads, lines))
    missing = [id for id in examples if id not in found]
    assert not missing, f"{missing[0]} ended the process ({run.returncode}): {run.stderr[-2000:]}"
    return found


def _run(path: Path) -> str:
    import mindspore as ms
    from mindspore.common.api import _pynative_executor

    said = io.StringIO()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            runpy.run_path(str(path))
            _pynative_executor.sync()  # PyNative's errors are asynchronous
    except BaseException as error:
        with contextlib.suppress(Exception):
            _pynative_executor.sync()
        return said.getvalue() + "".join(traceback.format_exception(error))
    return said.getvalue()


def masked(text: str) -> str:
    """Without what differs between machines and runs: numbers, addresses, paths."""
    text = re.sub(r"[\w.+\-]*/[\w.+\-/]*", "", text)
    return re.sub(r"0x[0-9a-f]+|\d+", "0", text).strip()


if __name__ == "__main__":
    here = Path(sys.argv[1])
    for id, code in json.loads((here / "examples.json").read_text(encoding="utf-8")).items():
        script = here / f"{id}.py"  # a file: ms.jit reads the source
        script.write_text(HEAD + code, encoding="utf-8")
        print("EXAMPLE " + json.dumps([id, _run(script)]), flush=True)
