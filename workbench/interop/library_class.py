"""An exported folder opened as the class of Hugging Face that its configuration names, to compare its other forms with.

A form (ONNX, int8) is checked on random texts of several sizes, some of them padded.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from workbench.core.errors import WorkbenchError
from workbench.core.packages import library
from workbench.interop.checkpoint_files import CONFIG, read_config
from workbench.sequences.batch import Batch
from workbench.text.tokenizer_layouts import SETTINGS_FILE

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
SIZES = ((1, 2), (1, 13), (3, 7), (2, 31), (5, 18), (4, 64))
"""Texts and tokens of the random batches."""
CHOICES = "MultipleChoice"
"""The end of the name of a class whose inputs have the choices of a text as a dimension of their own."""
NOISY = ("torch.utils._pytree", "torchao", "onnxscript", "torch.onnx")
"""Loggers of progress and deprecations that say nothing about a folder."""


def check_texts(option: str, streams: Sequence[str]) -> None:
    """Check that a network reads texts alone, which the forms of the library need.

    Raises:
        WorkbenchError: it reads more.
    """
    if [*streams] != ["text"]:
        raise WorkbenchError(
            f"{option}: the network reads {', '.join(streams)}, and this form texts alone; pass --stream text"
        )


def quiet_library(name: str, extra: str) -> Any:
    """A library that a form needs, without what it logs of its own progress.

    Raises:
        WorkbenchError: it is not installed.
    """
    for logger in NOISY:
        logging.getLogger(logger).setLevel(logging.ERROR)
    return library(name, extra, f"exports in the form {extra}")


def library_class(folder: Path, extra: str, **options: Any) -> Any:
    """The model of a folder in evaluation mode, of the class of its configuration; without a KV cache.

    Args:
        extra: the extra that the form needs.
        options: of `from_pretrained`.

    Raises:
        WorkbenchError: transformers is not installed, has no such class, or it reads two texts.
    """
    transformers = quiet_library("transformers", extra)
    transformers.utils.logging.disable_progress_bar()
    name = next(iter(read_config(folder / CONFIG).get("architectures") or [None]), None)
    own = getattr(transformers, str(name), None)
    if own is None:
        raise WorkbenchError(f"{folder} is a {name}, and transformers has no such class; export another family")
    model = own.from_pretrained(folder, dtype=torch.float32, **options).eval()
    if model.config.is_encoder_decoder:
        raise WorkbenchError(f"{folder} is a {name}, which needs a second text; the form {extra} has one text")
    model.config.use_cache = False
    return model


def input_names(model: Any, folder: Path) -> list[str]:
    """The inputs that the tokenizer of a folder makes, and its class takes."""
    taken = inspect.signature(model.forward).parameters
    made = _tokenizer_settings(folder).get("model_input_names", [IDS, MASK])
    return [name for name in (IDS, MASK, SEGMENTS) if name in made and name in taken]


def _tokenizer_settings(folder: Path) -> dict[str, Any]:
    file = folder / SETTINGS_FILE
    return read_config(file if file.is_file() else None)


def outputs_of(model: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a class computes, by name."""
    with torch.no_grad():
        return {name: value for name, value in model(**inputs).items() if isinstance(value, Tensor)}


def random_batches(model: Any, folder: Path, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Inputs of random tokens; the last third of a batch's first text is padding."""
    generator = torch.Generator().manual_seed(0)
    longest = _tokenizer_settings(folder).get("model_max_length", SIZES[-1][1])
    tokens = model.get_input_embeddings().num_embeddings
    padding = getattr(model.config, "pad_token_id", None) or 0
    for rows, length in SIZES:
        shape = (rows, 3, min(length, longest)) if CHOICES in type(model).__name__ else (rows, min(length, longest))
        ids = torch.randint(tokens - 1, shape, generator=generator)
        ids += (ids >= padding).long()  # any token but the padding
        mask, segments = torch.ones_like(ids), torch.zeros_like(ids)
        segments[..., shape[-1] // 2 :] = min(getattr(model.config, "type_vocab_size", 1), 2) - 1
        mask[0, ..., shape[-1] - shape[-1] // 3 :] = 0
        ids[mask == 0] = padding
        yield {name: {IDS: ids, MASK: mask, SEGMENTS: segments}[name] for name in names}


def compared(
    model: Any, folder: Path, names: Sequence[str], other: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
) -> tuple[float, float]:
    """The largest difference between what a class and another form of it compute of random batches, and the largest
    output of the class; NaN where either of them is."""
    apart, largest = torch.zeros(()), torch.zeros(())
    for inputs in random_batches(model, folder, names):
        computed = other(inputs)
        for name, value in outputs_of(model, inputs).items():
            apart = torch.maximum(apart, (value - computed[name]).abs().max())  # unlike max() it keeps NaN
            largest = torch.maximum(largest, value.abs().max())
    return float(apart), float(largest)


def padded(batch: Batch, names: Sequence[str], choices: bool) -> dict[str, Tensor]:
    """The texts of a batch as inputs of a class.

    Args:
        choices: whether they are the choices of one text.
    """
    text = batch.streams["text"]
    fields = {name: text.fields[name] for name in names if name != MASK}
    fields[MASK] = torch.ones_like(text.fields[IDS])
    cut = text.lengths
    made = {name: pad_sequence([*fields[name].long().split(cut)], batch_first=True) for name in names}
    return {name: field[None] for name, field in made.items()} if choices else made
