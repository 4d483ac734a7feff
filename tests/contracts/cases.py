"""The cases in a component's own test file, so that the contracts of its kind run over it.

    CASE = MaskingCase()                                                   # in tests/sequences/maskings/test_token.py
    CASES = {"": LayerCase({...}), "wide": LayerCase({...})}              # several ways to make the component
    EXCUSED = "its head reads what another objective has made"           # none of the contracts fits: why

Where a kind is one file with several components, one file of tests may state them all, by short name:

    CASES = {"delete": NoiseCase({...}), "mask": {"": NoiseCase({...}), "all": NoiseCase({...})}, "swap": "why"}

`tests/contracts/case_finder.py` finds it there. `excused` maps a contract to the reason why it does not apply; the
tests check the reason on the component where they can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from torch import Tensor

from workbench.sequences.sequence import Sequence

Recover = Callable[[Sequence, Sequence, Mapping[str, np.ndarray]], None]
Formula = Callable[[Tensor, Tensor, dict[str, Any], float], Tensor]


@dataclass(frozen=True)
class Case:
    """How to make a component: its options, as a recipe states them."""

    contracts: ClassVar[frozenset[str]] = frozenset()  # from which a component may be excused
    options: dict[str, Any] = field(default_factory=dict)
    excused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ObjectiveCase(Case):
    """An objective, on eight samples of `tests/contracts/material.py`.

    Attributes:
        sequence: the builder that makes its sequences, as a recipe states it; None: `material.sequence_of`.
        content: the field of the image's rows, `features` or `patches`.
        adds: fields (`text.rank`) that it adds in place, as it says.
        reads: the streams whose states its loss reads.
        labels: labels per row that it reads.
        small: labels in `material.small_samples`.
        place: from the rows that it reads to the rows whose contents are the labels.
        recover: compares the originals (before, after, of the batch) with what can be recovered.
        whole: options under which packed documents are corrupted as they are alone.
    """

    contracts = frozenset(
        {
            "seed",
            "earlier hooks",
            "special rows",
            "originals",
            "company",
            "additive",
            "metrics",
            "accuracy",
            "no image",
            "no labels",
            "rows",
            "passes",
        }
    )
    sequence: dict[str, Any] | None = None
    content: str = "features"
    adds: tuple[str, ...] = ()
    reads: tuple[str, ...] = ("text",)
    labels: int = 1
    small: int = 3
    place: Callable[[np.ndarray], np.ndarray] = np.asarray
    recover: Recover | None = None
    whole: dict[str, Any] | None = None


@dataclass(frozen=True)
class LayerCase(Case):
    """A layer, on streams text, image (16 wide) and entity (8 wide) of three sequences."""

    contracts = frozenset({"attention", "score_bias", "scale", "window", "cache"})


@dataclass(frozen=True)
class EmbeddingCase(Case):
    """An embedding; `content` is the field of the embedded rows (`material.embedded_fields`)."""

    contracts = frozenset({"no rows", "gradients", "masked", "frozen"})
    content: str = "features"


@dataclass(frozen=True)
class ScoreBiasCase(Case):
    """A score bias, of three heads with 16 features each."""

    contracts = frozenset({"flex"})


@dataclass(frozen=True)
class AdapterCase(Case):
    """An adapter, of one of the modules of `tests/contracts/adapter_places.py`."""

    contracts = frozenset({"begins", "changes", "merge"})


@dataclass(frozen=True)
class PoolerCase(Case):
    """A pooler, of rows of 8 features."""


@dataclass(frozen=True)
class BuilderCase(Case):
    """A builder, on samples that have every field, with the `max_length` that its options state, or 64."""

    contracts = frozenset({"company", "special", "small", "taken"})


@dataclass(frozen=True)
class TransformCase(Case):
    """A transform; `adds` are streams (`entity`) or fields (`text.rank`) that it adds in place."""

    contracts = frozenset({"seed", "keeps", "dropped", "positions"})
    adds: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageProcessorCase(Case):
    """An image processor; `needs` is the field of the sample that it reads."""

    contracts = frozenset({"seed"})
    needs: str = "image"


@dataclass(frozen=True)
class MaskingCase(Case):
    """A masking strategy."""


@dataclass(frozen=True)
class NoiseCase(Case):
    """A noise."""


@dataclass(frozen=True)
class OptimizerCase(Case):
    """An optimizer with a plain loop over its paper's formula.

    Attributes:
        formula: (parameter, gradient, state with `t`, `m`, `v`, weight decay) -> the parameter after a step with the
            case's options, at the rate 0.1.
    """

    formula: Formula | None = None


@dataclass(frozen=True)
class ScheduleCase(Case):
    """A learning-rate schedule; `rates` are those of 12 steps with the peak 2, by its paper's formula."""

    rates: tuple[float, ...] = ()


Curves = dict[str, list[tuple[int, float]]]
"""(step, value) of each metric."""


@dataclass(frozen=True)
class TrackerCase(Case):
    """An experiment tracker.

    Attributes:
        world: sets up its library in a folder, or a stand-in for it; returns a function that reads its runs: the values
            of the recipe, and the curves.
    """

    world: Callable[[Path, pytest.MonkeyPatch], Callable[[], list[tuple[dict[str, Any], Curves]]]] | None = None


BERT_SIZES = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
}
"""The sizes of a tiny model, as the configurations of BERT and of those that follow it name them."""


@dataclass(frozen=True)
class FamilyCase(Case):
    """A family of checkpoints.

    Attributes:
        config: a configuration of a tiny model.
        golden: folders of golden weights under the original names, below `golden/`.
        unused: prefixes of names that have no counterpart here.
        rows: of tables of which theirs and ours read some rows alone, these rows.
    """

    contracts = frozenset({"text"})
    config: dict[str, Any] = field(default_factory=dict)
    golden: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    rows: dict[str, int | slice] = field(default_factory=dict)


@dataclass(frozen=True)
class ReaderCase(Case):
    """A raw format.

    Attributes:
        text: the text of the data file with so many records, or its bytes.
        file: the name of the data file, in a folder of its own.
        next to: other files that lie in that folder, by name, for so many records.
        more: samples next to one a record.
        folder: the folder is given to `prepare`, and not the file.
        needs: the optional package without which the contracts are skipped.
    """

    contracts = frozenset({"streams", "long lines", "damaged"})
    text: Callable[[int], str | bytes] = str
    file: str = "data.jsonl"
    alongside: Callable[[int], dict[str, bytes]] = lambda records: {}
    more: int = 0
    folder: bool = False
    needs: str = "pipelines"


class World(NamedTuple):
    """A run that an evaluation scores on a corpus with `options`, and one `without` the head that it needs."""

    run: Path
    corpus: str
    without: Path
    options: dict[str, Any]


@dataclass(frozen=True)
class EvaluationCase(Case):
    """A downstream task; `world` makes in a folder what is scored."""

    contracts = frozenset({"limit", "states"})
    world: Callable[[Path], World] | None = None


KINDS: dict[str, type[Case]] = {
    "objective": ObjectiveCase,
    "layer": LayerCase,
    "embedding": EmbeddingCase,
    "score_bias": ScoreBiasCase,
    "adapter": AdapterCase,
    "pooler": PoolerCase,
    "builder": BuilderCase,
    "transform": TransformCase,
    "image_processor": ImageProcessorCase,
    "masking": MaskingCase,
    "noise": NoiseCase,
    "optimizer": OptimizerCase,
    "lr_schedule": ScheduleCase,
    "tracker": TrackerCase,
    "family": FamilyCase,
    "reader": ReaderCase,
    "evaluation": EvaluationCase,
}
"""The kinds that have contracts (`tests/contracts/test_<kind>s.py`), with the case of each."""
