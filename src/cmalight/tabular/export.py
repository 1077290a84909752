"""A trained network for programs without this package: as ONNX, or as a program of torch.export."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from cmalight.errors import needed
from cmalight.files import check_outputs, write_all
from cmalight.tables.targets import ClassTarget, Target


class Served(nn.Module):
    """The network with answers that need no decoding: numbers in the units of the data, or probabilities of classes."""

    low: Tensor
    span: Tensor

    def __init__(self, network: nn.Module, target: Target) -> None:
        super().__init__()
        self.network = network
        self.of_classes = isinstance(target, ClassTarget)
        if not isinstance(target, ClassTarget):
            ends = torch.as_tensor(target.decode(torch.tensor([[0.0], [1.0]]).double().numpy()))
            self.register_buffer("low", ends[0].clone())
            self.register_buffer("span", ends[1] - ends[0])

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.network(inputs)
        if self.of_classes:
            return torch.softmax(outputs, dim=1)
        return (outputs.double() * self.span + self.low)[:, 0]


def export_network(network: nn.Module, target: Target, width: int, path: str | Path) -> None:
    """Writes a file that other programs run; its input is what `TabularModel.encode` makes of rows.

    Args:
        network: what is to be written.
        target: how its outputs are to be read.
        width: of its inputs.
        path: ends in .onnx (`pip install "cmalight[onnx]"`) or, for `torch.export.load`, in .pt2.

    Raises:
        ValueError: the name ends in something else.
    """
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise ValueError(f"{path} has no known ending; expected .onnx, or .pt2 for torch.export")
    check_outputs({"path": path}, ())
    served = Served(network, target).eval()
    example = torch.zeros(2, width)
    shapes = {"inputs": {0: torch.export.Dim("rows")}}
    if path.suffix == ".pt2":
        program = torch.export.export(served, (example,), dynamic_shapes=shapes)
        content = io.BytesIO()
        torch.export.save(program, content)
        write_all({path: content.getvalue()})
        return
    with needed(f"{path} needs onnx and onnxscript", "onnx"):
        import onnx  # type: ignore[import-not-found,unused-ignore] # noqa: F401
        import onnxscript  # type: ignore[import-untyped,import-not-found,unused-ignore] # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model.onnx"
        torch.onnx.export(
            served,
            (example,),
            made,
            input_names=["inputs"],
            output_names=["probabilities" if served.of_classes else "prediction"],
            dynamic_shapes=shapes,
            external_data=False,
            dynamo=True,
            verbose=False,
        )
        write_all({path: made.read_bytes()})
