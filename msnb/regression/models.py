"""The nets that notebooks train or check, as rows of the matrix.

The operators are those of the graph that MindSpore exports for the net in evaluation mode; a test
builds each net with the notebook's own cells, exports it and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Model:
    """A net of a notebook: ``cells`` define what ``build`` (an expression) makes it with.

    ``shape`` is that of a batch. ``parallel`` is the strategy it is trained with, where it is.
    """

    name: str
    notebook: str
    cells: tuple[str, ...]
    build: str
    shape: tuple[int, ...]
    operators: Mapping[str, int]
    loss: str = ""
    optimizer: str = ""
    parallel: str = ""

    def told(self) -> tuple[str, ...]:
        """Notebook, operators, loss, optimizer and strategy, as the matrix shows them."""
        counted = ", ".join(
            name if count == 1 else f"{name} ×{count}" for name, count in self.operators.items()
        )
        return (
            self.notebook,
            counted,
            *(t or "none" for t in (self.loss, self.optimizer, self.parallel)),
        )


_MOMENTUM, _LOSS = "nn.Momentum", "nn.CrossEntropyLoss"

MODELS = (
    Model(
        "LeNet",
        "02_lenet_port",
        cells=("ms-lenet",),
        build="LeNet()",
        shape=(2, 1, 32, 32),
        operators={"BiasAdd": 5, "ReLU": 4, "MatMul": 3, "Conv2D": 2, "MaxPool": 2, "Flatten": 1},
        loss=_LOSS,
    ),
    Model(
        "MLP with LayerNorm",
        "04_value_and_grad_training",
        cells=("torch-net", "ms-net"),
        build="build_ms()",
        shape=(2, 1, 16, 16),
        operators={"BiasAdd": 2, "MatMul": 2, "Flatten": 1, "LayerNorm": 1, "ReLU": 1},
        loss="ops.cross_entropy",
        optimizer=_MOMENTUM,
    ),
    Model(
        "MLP",
        "05_graph_mode_switch",
        cells=("ms-net",),
        build="Mlp()",
        shape=(2, 64),
        operators={"BiasAdd": 2, "MatMul": 2, "ReLU": 1},
        loss=_LOSS,
        optimizer=_MOMENTUM,
    ),
    Model(
        "CNN with BatchNorm and LayerNorm",
        "06_amp",
        cells=("ms-net",),
        build="ms_build()",
        shape=(2, 1, 8, 8),
        operators={
            "BiasAdd": 3,
            "MatMul": 2,
            "ReLU": 2,
            "BatchNorm": 1,
            "Conv2D": 1,
            "Flatten": 1,
            "LayerNorm": 1,
        },
        loss=_LOSS,
        optimizer=_MOMENTUM,
    ),
    Model(
        "LeNet, data parallel",
        "07_hccl_data_parallel",
        cells=("lenet",),
        build="lenet()",
        shape=(2, 1, 32, 32),
        operators={"BiasAdd": 5, "ReLU": 4, "MatMul": 3, "Conv2D": 2, "MaxPool": 2, "Flatten": 1},
        loss=_LOSS,
        optimizer=_MOMENTUM,
        parallel="data parallel, gradients averaged",
    ),
    Model(
        "CNN with Dropout",
        "08_mindir_export",
        cells=("ms-net",),
        build="build()",
        shape=(2, 1, 16, 16),
        operators={"BiasAdd": 3, "Conv2D": 2, "MaxPool": 2, "ReLU": 2, "Flatten": 1, "MatMul": 1},
    ),
)


def operators(model: Model, notebooks: Path, scratch: Path) -> dict[str, int]:
    """Build the net with the notebook's cells, export it to ``scratch`` and read its operators."""
    import importlib.util
    import sys

    import nbformat

    from msnb.deploy import graphfile

    notebook = nbformat.read(notebooks / f"{model.notebook}.ipynb", as_version=4)
    cells = {cell.id: cell.source for cell in notebook.cells}
    source = "\n\n".join([_IMPORTS, *(cells[cell] for cell in model.cells)])
    path = scratch / f"cells_of_{model.notebook}.py"  # a file: MindSpore reads a Cell's source
    path.write_text(f"{source}\n\nnet = {model.build}\n", "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    net, ms = module.net.set_train(False), module.ms
    batch = ms.Tensor(module.np.zeros(model.shape, module.np.float32))
    ms.export(net, batch, file_name=str(scratch / "net"), file_format="MINDIR")
    return dict(graphfile.read(scratch / "net.mindir").operators)


_IMPORTS = """
from collections import OrderedDict
import mindspore as ms, msnb, numpy as np, torch
from mindspore import nn, ops
seed = 0
"""
