"""Tiny wheels with the names, versions and habits of the real packages: pip takes no time.

They stand in for gigabytes where an environment is broken and cured for real. The real MindSpore
with the real NumPy 2 is broken and cured in test_doctor.py.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]

# As MindSpore 2.10.0 does: import works with NumPy 2 and the first operation does not; an old
# protobuf or a missing one ends the import.
_MINDSPORE = """
__version__ = {version!r}
import numpy
from google import protobuf
from google.protobuf import descriptor_pb2
if int(protobuf.__version__.split(".")[0]) < 4:
    raise TypeError("Descriptors cannot be created directly.")
class Tensor:
    def __init__(self, values):
        self.values = list(values)
    def __add__(self, other):
        if int(numpy.__version__.split(".")[0]) >= 2:
            raise SystemError("<built-in method pyboost_add_ext> returned a result with ...")
        return Tensor(value + other for value in self.values)
    def asnumpy(self):
        return self
    def tolist(self):
        return self.values
def set_device(name):
    pass
"""
_TORCH = """
__version__ = {version!r}
class tensor:
    def __init__(self, values):
        self.values = list(values)
    def __add__(self, other):
        return tensor(value + other for value in self.values)
    def tolist(self):
        return self.values
"""
_VERSION = "__version__ = {version!r}\n"
_FILES = {
    "mindspore": {"mindspore/__init__.py": _MINDSPORE},
    "mindspore-ascend": {"mindspore/__init__.py": _MINDSPORE},
    "torch": {"torch/__init__.py": _TORCH},
    "numpy": {"numpy/__init__.py": _VERSION},
    "protobuf": {
        "google/protobuf/__init__.py": _VERSION,
        "google/protobuf/descriptor_pb2.py": "",
    },
}
_REQUIRES = {"mindspore": ("numpy>=1.25.0", "protobuf>=7.34.1")}
VERSIONS = {
    "mindspore": ("2.10.0", "2.6.0", "2.11.0"),
    "mindspore-ascend": ("2.2.0",),
    "torch": ("2.13.0",),
    "numpy": ("1.26.4", "2.4.6"),
    "protobuf": ("7.36.2", "3.20.3"),
    "papermill": ("2.7.0", "2.4.0"),
}


def wheel(folder: Path, name: str, version: str) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    files = {
        path: text.replace("{version!r}", repr(version))
        for path, text in _FILES.get(name, {f"{name.replace('-', '_')}.py": _VERSION}).items()
    }
    requires = "".join(f"Requires-Dist: {text}\n" for text in _REQUIRES.get(name, ()))
    info = f"{stem}.dist-info"
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            code = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            record += f"{path},sha256={code.decode()},{len(text.encode())}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")


def fill(folder: Path) -> list[str]:
    """All wheels into ``folder``; the names that msnb asks for, as pyproject.toml has them."""
    text = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"([^"]+)"', text.split("dependencies = [")[1].split("]")[0])
    names = [re.match(r"[\w.-]+", line)[0] for line in listed]  # type: ignore[index]
    lowest = {
        name: re.search(r">=([\d.]+)", line)[1]  # type: ignore[index]
        for name, line in zip(names, listed, strict=True)
    }
    for name in {*names, *VERSIONS}:
        for version in VERSIONS.get(name) or (lowest[name],):
            wheel(folder, name, version)
    return names
