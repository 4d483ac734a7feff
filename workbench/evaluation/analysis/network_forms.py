"""The forms in which a network can be run: by the workbench, by its class of Hugging Face, by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from workbench.core.packages import WEIGHTS as IN_PACKAGES
from workbench.core.packages import located
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.interop.checkpoint_files import CONFIG, ONNX, QUANTISED, read_config
from workbench.interop.int8_weights import EXTRA as INT8
from workbench.interop.library_class import CHOICES, input_names, library_class, outputs_of, padded
from workbench.interop.onnx_file import OnnxModel
from workbench.pretraining.forward import read
from workbench.runs.names import FROZEN, MODEL, MODEL_PIECES, TABLES, is_run
from workbench.sequences.batch import Batch

WEIGHTS = ("*.safetensors", "*.bin")
CPU = torch.device("cpu")
Pass = Callable[[], object]


@dataclass(frozen=True)
class NetworkForm:
    """A network and the library that runs it.

    Attributes:
        place: the name that people see.
        disk: bytes of its weights.
        prepared: returns the forward pass of a batch, which computes its inputs once.
    """

    run: EvaluatedRun
    place: str
    engine: str
    device: torch.device
    precision: str
    disk: int
    prepared: Callable[[Batch], Pass]


def forms_of(run: EvaluatedRun, place: str, precision: str) -> Iterator[NetworkForm]:
    """The network, run by the library that its weights are for; and its ONNX file, if there is one.

    Raises:
        WorkbenchError: a package is not installed that a form needs.
    """
    folder, device = located(run.folder, IN_PACKAGES), run.world.device
    disk = _bytes_of_weights(run)
    if _is_int8(folder):
        yield NetworkForm(run, place, "torchao", device, "int8", disk, _by_class(folder, device))
    else:
        yield NetworkForm(run, place, "workbench", device, precision, disk, partial(partial, read, run.network))
    if not is_run(folder) and (folder / ONNX).is_file():
        size = (folder / ONNX).stat().st_size
        yield NetworkForm(run, f"{place} (onnx)", "onnxruntime", CPU, "float32", size, _by_onnxruntime(folder))


def _is_int8(folder: Path) -> bool:
    return not is_run(folder) and (folder / CONFIG).is_file() and QUANTISED in read_config(folder / CONFIG)


def _by_class(folder: Path, device: torch.device) -> Callable[[Batch], Pass]:
    model = library_class(folder, INT8).to(device)
    names, choices = input_names(model, folder), CHOICES in type(model).__name__
    return lambda batch: partial(outputs_of, model, padded(batch, names, choices))


def _by_onnxruntime(folder: Path) -> Callable[[Batch], Pass]:
    file = OnnxModel(folder)
    return lambda batch: partial(file, padded(batch.to(CPU), file.names, file.choices))


def _bytes_of_weights(run: EvaluatedRun) -> int:
    """Of the files that the weights of all networks and heads are read from."""
    if not is_run(run.folder):
        place = located(run.folder, IN_PACKAGES)
        folder = place if place.is_dir() else place.parent
        return sum(file.stat().st_size for pattern in WEIGHTS for file in folder.glob(pattern))
    checkpoint = Path(run.checkpoint)
    files = [checkpoint / MODEL, run.folder / FROZEN]
    files += [file for part in (MODEL_PIECES, TABLES) for file in (checkpoint / part).rglob("*")]
    return sum(file.stat().st_size for file in files if file.is_file())
