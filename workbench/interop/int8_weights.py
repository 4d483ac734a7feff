"""The form of an exported folder with int8 matrices: a row of a linear layer has int8 numbers and one scale (torchao).

Inputs of layers, tables, norms and biases stay as they were. `AutoModelFor*.from_pretrained` opens the folder where
torchao is installed. The workbench multiplies the scales in (`workbench.interop.scaled_tensors`), and so computes the
same without torchao.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.interop.checkpoint_files import CONFIG, QUANTISED, WEIGHTS, read_config
from workbench.interop.library_class import compared, input_names, library_class, outputs_of, quiet_library
from workbench.interop.scaled_tensors import NUMBERS
from workbench.runs.weights import weight_names

EXTRA = "int8"


def check_packages() -> None:
    """
    Raises:
        WorkbenchError: a package is not installed.
    """
    for name in ("transformers", "torchao"):
        quiet_library(name, EXTRA)


def write_int8(folder: Path) -> str:
    """Write the matrices of an exported folder's linear layers as int8; returns what this has changed, for people.

    Raises:
        WorkbenchError: there is no such matrix, or the outputs are not finite.
    """
    before = (folder / WEIGHTS).stat().st_size
    model = library_class(folder, EXTRA)
    rows = quiet_library("torchao.quantization", EXTRA).Int8WeightOnlyConfig()
    stated = quiet_library("transformers", EXTRA).TorchAoConfig(rows)
    rounded = library_class(folder, EXTRA, quantization_config=stated)
    names = input_names(model, folder)
    difference, largest = compared(model, folder, names, lambda given: outputs_of(rounded, given))
    if not math.isfinite(difference):
        raise WorkbenchError(
            f"--int8: what {type(model).__name__} computes is not finite once it is rounded, or was not before; export "
            "without it"
        )
    with TemporaryDirectory(dir=folder, prefix=".") as temporary:
        rounded.save_pretrained(temporary)
        if not any(name.endswith(NUMBERS) for name in weight_names(Path(temporary) / WEIGHTS)):
            raise WorkbenchError(
                f"--int8: {type(model).__name__} has no linear layer of torch, the only kind that is rounded; export "
                "without it"
            )
        os.replace(Path(temporary) / WEIGHTS, folder / WEIGHTS)
        saved = read_config(Path(temporary) / CONFIG)
    config: dict[str, Any] = {**read_config(folder / CONFIG), QUANTISED: saved[QUANTISED]}
    write_text(folder / CONFIG, json.dumps(config, indent=2) + "\n")
    after = (folder / WEIGHTS).stat().st_size
    return (
        f"`{WEIGHTS}`: linear layers as int8, {before:,} bytes before, {after:,} after; its largest difference from "
        f"the class in float32 is {difference:.2g}, of outputs up to {largest:.2g}, on random batches"
    )
