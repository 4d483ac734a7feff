"""What tests ask of a run that is loaded: its vectors of texts and the texts that it writes, as `workbench.Model` has
them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workbench.generation.decoding import Decoding
from workbench.model_api import Model
from workbench.runs.loaded_run import LoadedRun


def encode_texts(loaded: LoadedRun, texts: list[str], **options: Any) -> Tensor:
    """`Model.encode` as a tensor [texts, size]."""
    return torch.from_numpy(Model(loaded, "").encode(texts, **options))


def generate_texts(loaded: LoadedRun, prompts: list[str], decoding: Decoding, **options: Any) -> list[str]:
    """`Model.generate` with the options of a `Decoding`."""
    return Model(loaded, "").generate(prompts, **decoding.chosen(), **options)
