"""Facts of machines, composed: fit ones, to be broken in one way at a time."""

from __future__ import annotations

from typing import Any

ENV = "/home/lin/msnb/.venv"
SITE = f"{ENV}/lib/python3.11/site-packages"


def fit_facts(target: str = "CPU") -> dict[str, Any]:
    """A composed machine: made by `make`, no Ascend."""
    return {
        "schema": 1,
        "target": target,
        "python": {
            "executable": f"{ENV}/bin/python",
            "version": [3, 11, 9],
            "prefix": ENV,
            "real_prefix": ENV,
            "base_prefix": "/usr",
            "kind": "venv",
            "platform": "linux",
            "machine": "x86_64",
        },
        "places": {"cwd": "/home/lin/msnb", "home": "/home/lin", "repo": "/home/lin/msnb"},
        "active": {"prefix": None, "real_prefix": None, "variable": "CONDA_PREFIX"},
        "pip": {"own": "26.0", "on_path": "/usr/bin/pip", "on_path_prefix": "/usr"},
        "in_kernel": False,
        "way_in": {"through": "a terminal", "ssh": False, "by": []},
        "settings": {
            "file": "/home/lin/msnb/.vscode/settings.json",
            "named": "${workspaceFolder}/.venv/bin/python",
            "path": f"{ENV}/bin/python",
            "there": True,
            "prefix": ENV,
        },
        "notebooks": [
            {"path": "/home/lin/msnb/notebooks/01_env_check.ipynb", "kernel": "msnb", "there": True}
        ],
        "kernelspecs": [
            {
                "folder": f"{ENV}/share/jupyter/kernels/msnb",
                "own": True,
                "python": f"{ENV}/bin/python",
                "prefix": ENV,
                "there": True,
                "env": {},
            }
        ],
        ".venv": {"path": ENV, "kind": "folder", "prefix": ENV, "python": True},
        ".env": None,
        "distributions": {
            "mindspore": {
                "version": "2.10.0",
                "folder": SITE,
                "requires": ["numpy>=1.25.0", "protobuf>=7.34.1"],
            },
            "mindspore-ascend": None,
            "mindspore-dev": None,
            "mindspore-gpu": None,
            "numpy": {"version": "1.26.4", "folder": SITE, "requires": []},
            "torch": {"version": "2.13.0+cpu", "folder": SITE, "requires": []},
            "protobuf": {"version": "7.36.2", "folder": SITE, "requires": []},
            "ipykernel": {"version": "7.4.0", "folder": SITE, "requires": []},
            "pip": {"version": "26.0", "folder": SITE, "requires": []},
        },
        "requirements": [
            {"name": "numpy", "asks": "<2,>=1.25", "have": "1.26.4", "torn": False},
            {"name": "papermill", "asks": ">=2.6", "have": "2.6.0", "torn": False},
        ],
        "shadows": [],
        "python_path": [],
        "variables": {},
        "resources": {
            "memory": 8 << 30,
            "disk": {
                "working folder": {"path": "/home/lin/msnb", "free": 90 << 30},
                "temporary files": {"path": "/tmp", "free": 9 << 30},
            },
            "shared_memory": 64 << 20,
            "unmapped": [],
            "unwritable": None,
        },
        "probes": {
            "mindspore": {
                "end": "ok",
                "stderr": "",
                "told": {
                    "version": "2.10.0",
                    "file": f"{SITE}/mindspore/__init__.py",
                    "numpy": "1.26.4",
                    "stage": "first operation",
                    "result": [2.0, 3.0],
                },
            },
            "torch": {
                "end": "ok",
                "stderr": "",
                "told": {
                    "version": "2.13.0+cpu",
                    "file": f"{SITE}/torch/__init__.py",
                    "result": [2.0, 3.0],
                },
            },
            "light": {
                "end": "ok",
                "stderr": "",
                "told": {
                    "numpy": {"version": "1.26.4", "file": f"{SITE}/numpy/__init__.py"},
                    "google.protobuf": {
                        "version": "7.36.2",
                        "file": f"{SITE}/google/protobuf/__init__.py",
                    },
                },
            },
        },
        "ascend": {
            "root": "/",
            "home_path": None,
            "environment": {},
            "set_env": [],
            "startup": [],
            "cann": {
                "version": None,
                "path": None,
                "looked": ["$ASCEND_HOME_PATH (not set)", "/usr/local/Ascend/cann"],
            },
            "other_cann": [],
            "driver": {
                "version": None,
                "path": None,
                "looked": ["/usr/local/Ascend/driver/version.info"],
            },
            "firmware": {
                "version": None,
                "path": None,
                "looked": ["/usr/local/Ascend/firmware/version.info"],
            },
            "install_info": {},
            "nodes": {"devices": [], "managers": [], "closed": []},
            "container": False,
            "user": {"group": "HwHiAiUser", "known": True, "is_root": False, "in_group": False},
            "npu_smi": {
                "there": False,
                "end": "not found",
                "version": None,
                "two_dies": False,
                "chips": [],
                "processes": [],
                "said": "",
            },
            "libraries": {"own": [], "foreign": [], "driver": []},
            "opp": False,
            "packages": {
                "own": None,
                "te": {"on_path": None, "beside": None},
                "hccl": {"on_path": None, "beside": None},
            },
            "hccn": {
                "path": "/etc/hccn.conf",
                "devices": None,
                "error": "No such file or directory",
            },
            "accepted": {
                "versions": ["8.2", "8.3", "8.5", "9.0", "9.1"],
                "file": f"{SITE}/mindspore/run_check/_check_version.py",
            },
        },
    }


# What MindSpore 2.10.0 says on a CPU machine, recorded.
NO_ASCEND = """Unsupported device target Ascend. This process only supports one of the ['CPU']. \
Please check whether the Ascend environment is installed and configured correctly, and check \
whether current mindspore wheel package was built with "-e Ascend". For details, please refer to \
"Device load error message".

----------------------------------------------------
- Device load error message:
----------------------------------------------------
Load dynamic library: libmindspore_ascend.so.2 failed. libge_runner.so: cannot open shared object \
file: No such file or directory
Load dynamic library: libmindspore_ops_ascend.so failed. libmindspore_ascend_res_manager.so: \
cannot open shared object file: No such file or directory
"""


def ascend_facts() -> dict[str, Any]:
    """The same machine with an Ascend device, composed."""
    facts = fit_facts("Ascend")
    facts["probes"]["device"] = {
        "end": "ok",
        "stderr": "",
        "told": {"device": "Ascend", "result": [2.0, 3.0]},
    }
    toolkit = "/usr/local/Ascend/cann"
    packages = f"{toolkit}/python/site-packages"
    facts["ascend"] |= {
        "home_path": toolkit,
        "set_env": [f"{toolkit}/set_env.sh"],
        "environment": {"ASCEND_HOME_PATH": toolkit, "ASCEND_OPP_PATH": f"{toolkit}/opp"},
        "nodes": {
            "devices": [0],
            "managers": ["davinci_manager", "devmm_svm", "hisi_hdc"],
            "closed": [],
        },
        "libraries": {
            "own": [f"{toolkit}/lib64"],
            "foreign": [],
            "driver": ["/usr/local/Ascend/driver/lib64"],
        },
        "opp": True,
        "packages": {
            "own": packages,
            "te": {"on_path": packages, "beside": packages},
            "hccl": {"on_path": packages, "beside": packages},
        },
    }
    facts["ascend"]["cann"] |= {
        "version": "9.0.0",
        "path": f"{toolkit}/compiler/version.info",
        "folder": toolkit,
        "compiler": True,
        "product": None,
        "parts": {},
        "installer": None,
        "kernels": ["ascend910b"],
    }
    for part in ("driver", "firmware"):
        facts["ascend"][part] |= {
            "version": "25.0.rc1",
            "path": f"/usr/local/Ascend/{part}/version.info",
        }
    return facts


def no_ascend_facts() -> dict[str, Any]:
    facts = fit_facts("Ascend")
    facts["probes"]["device"] = {
        "end": "ok",
        "stderr": "",
        "told": {"error": ["RuntimeError", NO_ASCEND]},
    }
    return facts
