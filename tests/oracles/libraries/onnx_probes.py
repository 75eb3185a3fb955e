"""The ONNX operator Attention: its reference, and ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from probing import describe_attention, describe_cap, describe_rotation, print_words

onnxruntime.set_default_logger_severity(4)


def build(operator, inputs, attributes):
    """Return a model of one operator of opset 23."""
    names = {n: None if x is None else x.dtype for n, x in inputs.items()}
    node = helper.make_node(
        operator,
        ["" if t is None else n for n, t in names.items()],
        ["y"],
        **attributes,
    )
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(t), None)
        for n, t in names.items()
        if t is not None
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", given, [output])
    opsets = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def run_reference(model, inputs):
    return ReferenceEvaluator(model).run(None, inputs)[0]


def run_runtime(model, inputs):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)[0]


def make_attend(run):
    def attend(query, key, value, mask=None, causal=False, **attributes):
        inputs = {"q": query, "k": key, "v": np.ascontiguousarray(value), "m": mask}
        attributes["is_causal"] = int(causal)
        model = build("Attention", inputs, attributes)
        return run(model, {n: x for n, x in inputs.items() if x is not None})

    return attend


def make_rotate(run):
    def rotate(x):
        T, D = x.shape
        angles = np.arange(T)[:, None] * 10000 ** (-np.arange(D // 2) / (D // 2))
        inputs = {
            "x": x[None, None],
            "c": np.cos(angles).astype(np.float32),
            "s": np.sin(angles).astype(np.float32),
            "p": np.arange(T)[None],
        }
        return run(build("RotaryEmbedding", inputs, {}), inputs)[0, 0]

    return rotate


if __name__ == "__main__":
    print_words(
        {
            name: (
                version,
                describe_attention(make_attend(run), "(B, H, T, D)")
                | {"soft-cap": describe_cap(make_attend(run))}
                | describe_rotation(make_rotate(run)),
            )
            for name, version, run in (
                ("onnx", f"onnx {onnx.__version__}", run_reference),
                ("onnxruntime", f"onnxruntime {onnxruntime.__version__}", run_runtime),
            )
        }
    )
