"""`python -m benchmarks [names]`: run the benchmarks, all or the named ones, and show them.

Exit code 1 where a limit is exceeded, 2 for an unknown name.
"""

from __future__ import annotations

import os
import platform
import sys
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

import benchmarks


def main(names: list[str]) -> int:
    known = sorted(
        module.name
        for module in iter_modules(benchmarks.__path__)
        if not module.name.startswith("_")
    )
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            print(f"no benchmark {name!r}: {hint}there are {', '.join(known)}", file=sys.stderr)
            return 2
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {load}")
    print("median [min to max]")
    over = []
    for name in names or known:
        print(f"\n{name}", flush=True)
        for row in import_module(f"benchmarks.{name}").rows():
            print("\n".join(f"  {line}" for line in row.lines()), flush=True)
            if not row.ok:
                over.append(f"{name}: {row.name}")
    if over:
        print(f"\nover the limit: {'; '.join(over)}")
    return 1 if over else 0


if __name__ == "__main__":
    # Its warnings, such as "has been compiled again", are meant here; its errors stay on screen.
    os.environ.setdefault("GLOG_v", "3")
    sys.exit(main(sys.argv[1:]))
