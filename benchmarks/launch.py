"""What starting a job costs: a two-process hello at 0.65 of plain msrun's time at most.

The script builds the group, sums one number over the ranks and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks import Row, in_turns

RATIO = 0.65
HELLO = """\
import mindspore as ms
from mindspore import ops
from mindspore.communication import get_rank, init

init()
assert ops.AllReduce()(ms.Tensor([1.0 + get_rank()])).asnumpy() == [3.0]
"""


def rows() -> Iterator[Row]:
    from msnb.distributed.job import free_port, launch

    with tempfile.TemporaryDirectory(prefix="msnb-bench-") as folder:
        script = Path(folder, "hello.py")
        script.write_text(HELLO)

        def ours() -> None:
            job = launch(script, world_size=2, progress=False, log_dir=Path(folder, "logs"))
            job.report.require()

        def msrun() -> None:
            bin_first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
            command = [sys.executable, "-m", "mindspore.parallel.cluster.run"]
            options = ["--worker_num=2", "--local_worker_num=2", "--join=True"]
            where = [f"--master_port={free_port()}", f"--log_dir={folder}/msrun"]
            subprocess.run(
                [*command, *options, *where, str(script)],
                check=True,
                capture_output=True,
                env={**os.environ, "PATH": bin_first},  # it starts the first python on PATH
            )

        launched, plain = in_turns(ours, msrun, turns=3)
    limit = RATIO * median(plain)
    yield Row("launch, two-process hello", launched, plain, "plain msrun", limit)
