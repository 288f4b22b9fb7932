"""What MindSpore's exporters refuse: the message, the idiom behind it, and what to write instead.

Each row was seen in MindSpore 2.10 on a CPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["REFUSALS", "Refusal", "explain", "first_line"]


@dataclass(frozen=True)
class Refusal:
    """A message (``pattern``, which may have a group), the ``idiom``, and its ``rewrite``."""

    pattern: str
    idiom: str
    rewrite: str


REFUSALS = (
    Refusal(
        r"can not compile temporary source code",
        "a class that was typed at a prompt or piped in: MindSpore reads its source from a file",
        "write the class into a .py file and import it, or work in a notebook",
    ),
    Refusal(
        r"cannot get attributes (asnumpy)|no attribute: '(asnumpy)'",
        "NumPy in construct (asnumpy, numpy(), tolist): a file has no Python to run it",
        "stay in tensors: ops.exp(x) for np.exp(x.asnumpy()), x.max() for np.max; what does not "
        "depend on the input is computed in __init__",
    ),
    Refusal(
        r"need to modify a member attribute of a class with (self\.\w+)",
        "{0} = ... in construct: state of Python's, which a file does not have",
        "make it a Parameter, or pass it in and return it",
    ),
    Refusal(
        r"Unsupported statement 'Try'",
        "try/except in construct",
        "test the condition with an if, or catch around the call of the net",
    ),
    Refusal(
        r"Unsupported statement 'Import'",
        "an import in construct",
        "import at the top of the file; what is no MindSpore runs before or after the net",
    ),
    Refusal(
        r"Unsupported expression 'NamedExpr'",
        "the walrus := in construct",
        "assign on a line of its own",
    ),
    Refusal(
        r"Unsupported (?:statement|expression) '(\w+)'",
        "{0} in construct, a part of Python that has no graph",
        "use plain assignments, if, for, while, lists and tuples",
    ),
    Refusal(
        r"inputs should be constant, but found variable",
        "a class or function of Python's called on a tensor in construct, such as Tensor(x)",
        "leave it out: x is a tensor already, and x.astype(dtype) changes its dtype",
    ),
    Refusal(
        r"The parameter .* its name '(\S+?)' already exists",
        "layers in a Python list or dict: their parameters belong to nobody, and two are called "
        "{0!r}",
        "nn.CellList or nn.SequentialCell instead of the list",
    ),
    Refusal(
        r"Only support jit_class instance|unsupported.*?class instance",
        "an object of Python's in construct",
        "pass numbers, tensors or nn.Cell, or mark the class with mindspore.jit_class",
    ),
    Refusal(
        r"parameters number of the function is (\d+), but .*? provided arguments is (\d+)",
        "construct takes {0} arguments and {1} were given; or its first one is not called self",
        "give export the net's inputs as a tuple, in order; call the first argument self",
    ),
    Refusal(
        r"takes? \d+ positional arguments?|missing \d+ required positional|the function construct",
        "construct takes another number of inputs than were given",
        "give export all of the net's inputs as a tuple, in order",
    ),
    Refusal(
        r"Type Join Failed|Cannot join the return values",
        "branches of an if that give different types",
        "cast both to one dtype, and give them one shape",
    ),
    Refusal(
        r"input type must be same|must have the same type|type must be the same|same dtype"
        r"|the type of '\w+' should be same as",
        "a dtype of the example's that does not meet the weights' dtype",
        "export with the dtype that the net is trained in: float32 as a rule, where "
        "np.random.rand gives float64",
    ),
    Refusal(
        r"not support dynamic shape mode",
        "ONNX with an axis of any size",
        "leave out dynamic, and export one file for each size",
    ),
    Refusal(
        r"Can not find key (\w+) in convert map|currently the (\w+) operator in your model is not",
        "MindSpore's ONNX exporter has no {0}",
        "write it with operators that it has, or deploy the MINDIR file",
    ),
    Refusal(
        r"ShapeInferenceError|ONNXRuntimeError|checker|ValidationError",
        "a file that MindSpore's ONNX exporter wrote and that ONNX does not accept",
        "deploy the MINDIR file; for ONNX write this operator in another way",
    ),
    Refusal(
        r"raise InferPrimitiveShape|primitive name:raise",
        "a check that raises on shapes, which cannot be decided where an axis has any size",
        "export with fixed sizes: one file for each size that is needed",
    ),
    Refusal(
        r"output (\S+) is .*, not a tensor",
        "output {0} is no tensor",
        "return tensors alone",
    ),
    Refusal(
        r"Out of the size of the tuple",
        "None among the outputs",
        "return tensors alone",
    ),
    Refusal(
        r"Kernel select failed|not support.*(?:dtype|type)|Unsupported data type",
        "an operator that this device has no kernel for, in this dtype",
        "use another dtype or operator; msnb.probe tells which work",
    ),
)


def explain(message: str) -> tuple[str, str]:
    """(idiom, rewrite) for a message of an exporter's; its first line where it is not known.

    >>> explain("Unsupported statement 'Try'.")[0]
    'try/except in construct'
    """
    for refusal in REFUSALS:
        if match := re.search(refusal.pattern, message):
            words = [group for group in match.groups() if group]
            return refusal.idiom.format(*words) if words else refusal.idiom, refusal.rewrite
    return (
        first_line(message),
        "find the line of construct that it is about: compile the net alone, "
        "mindspore.jit(net.construct)(x), and halve it",
    )


def first_line(message: str) -> str:
    """The line that says something; MindSpore frames its messages and adds where it was."""
    lines = [line.strip() for line in message.splitlines() if line.strip(" -|")]
    words = [line for line in lines if not line.startswith(("- ", "This exception is caused by"))]
    titles = [line[2:].rstrip(":") for line in lines if line.startswith("- ")]
    return (words or titles or ["no reason given"])[0][:240]
