"""The contract of a checkpoint family: conversion of published weights to our networks, and of ours to theirs.

A family is one file in `interop/families/` of a package, or a class named by import path. It has no weights and no
state: it reads a configuration. `init_from` uses it one way, `workbench export --as` the other.

    class Mine(CheckpointFamily):
        def recognises(self, config, names): ...     # is this folder of the family?
        def network(self, config): ...               # the network that its configuration describes, as in a recipe
        def rules(self, config): ...                 # the table of names (`workbench.interop.rules`)
        def heads(self, config): ...                 # the objectives whose heads it has
        def config(self, described): ...             # the configuration of one of our networks
        def visibility(self, config): ...            # the rows of a text that each row sees; by default all
        def sequence(self, config): ...              # the special tokens around a text, where they are not the usual
        def task(self, config): ...                  # how it is trained further, where its first head doesn't show it

A network that cannot be exported needs no code: `network(config(ours))` must describe the same network as ours
(`workbench.interop.network_description`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.interop.network_description import DROPOUT, ModelDescription
from workbench.interop.rules import Rule
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility


class FamilyConfig(dict[str, Any]):
    """A configuration; a missing key raises an error about an incomplete folder."""

    def __missing__(self, key: str) -> Any:
        raise WorkbenchError(f"the configuration has no {key!r}; it has {', '.join(map(str, self)) or 'nothing'}")


@dataclass(frozen=True)
class TaskHeads:
    """Where the library's classes with the head of a task keep it (`workbench.interop.task_heads`), by their names.

    Attributes:
        library: the prefix of the names of its classes.
        dense: the pooler's linear layer, "" where it has none. Its options are those of `CheckpointFamily.pooler`.
        norm: the pooler's norm.
        output: the last layer in `...ForSequenceClassification`.
        choice: the pooler's linear layer and the last one in `...ForMultipleChoice`, where they lie elsewhere.
        questions: the class of answers in a text, behind `For`.
        settings: keys of the configuration on which the heads depend, with their values.
        without: objectives for which it has no class, or one that computes something else.
    """

    library: str
    dense: str
    norm: str = ""
    output: str = "classifier"
    choice: tuple[str, str] | None = None
    questions: str = "QuestionAnswering"
    settings: Mapping[str, Any] = field(default_factory=dict)
    without: frozenset[str] = frozenset()

    def suffix(self, usual: str) -> str:
        """The name of a class of the library behind `For`."""
        return self.questions if usual == "QuestionAnswering" else usual

    def places(self, suffix: str) -> tuple[str, str]:
        """The pooler's linear layer in the class of a usual name, and the last layer."""
        several = {
            "SequenceClassification": (self.dense, self.output),
            "MultipleChoice": self.choice or (self.dense, "classifier"),
            "QuestionAnswering": ("", "qa_outputs"),
        }
        return several.get(suffix, ("", "classifier"))


class CheckpointFamily:
    """Conversion between a family of published weights and our networks, both ways.

    Attributes:
        leaves: patterns of names of a body's tensors that have no counterpart here, and are left out on purpose. All
            others of a body must have one, or its states would differ. Tensors outside of the body (heads) may be left.
        prefix: that of the names of a body that was saved with heads; missing where it was saved alone.
        free: options of ours that its configuration need not hold.
        counts_padding: whether their code counts positions from the id of the padding, so that this id is the family's
            own, whatever the tokenizer.
        resumes: whether a text that it reads from left to right is continued, so that its tokenizer adds no end token.
        tokenizer_class: with which the library's AutoTokenizer reads its folders, whatever class they name.
        corpus: the corpus of further training, as its recipe names it below `vars.data`.
        supplied: options of streams' embeddings that are files of the user's, for a recipe.
        marks: keys of its configuration with the id of a token that stands for rows of another stream, and the names of
            these tokens. Our texts have no such token, so that an export keeps the id of the checkpoint.
        task_heads: where its classes have the heads of downstream tasks; None: it has no such classes.
    """

    leaves: ClassVar[tuple[str, ...]] = ("*position_ids", "*.attn.bias", "*.masked_bias", "*inv_freq", "*pooler.*")
    prefix: ClassVar[str] = ""
    free: ClassVar[frozenset[str]] = DROPOUT
    counts_padding: ClassVar[bool] = False
    resumes: ClassVar[bool] = True
    tokenizer_class: ClassVar[str] = ""
    corpus: ClassVar[str] = "text"
    supplied: ClassVar[Mapping[str, Spec]] = {}
    marks: ClassVar[Mapping[str, str]] = {}
    task_heads: ClassVar[TaskHeads | None] = None

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        """Whether a configuration (empty where there is none) and the names of the tensors are of this family."""
        raise NotImplementedError(f"{type(self).__name__} must define recognises")

    def network(self, config: FamilyConfig) -> NetworkSpec:
        """The network that a configuration describes, with the poolers that the family may have.

        Raises:
            WorkbenchError: it describes something that is not supported.
        """
        raise NotImplementedError(f"{type(self).__name__} must define network")

    def rules(self, config: FamilyConfig) -> list[Rule]:
        """Their names and ours: of the network as in its state dict, of heads with the objective's name as prefix."""
        raise NotImplementedError(f"{type(self).__name__} must define rules")

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        """The heads of the family, by the objective's name in a recipe, which is also the prefix of the names of the
        head's tensors in `rules`. The values are the objectives as in a recipe, with the options on which the head's
        outputs depend: `{"mlm": {"objective": "mlm", "head": {"transform": {"norm_eps": 1e-5}}}}`."""
        return {}

    def pooler(self, config: FamilyConfig) -> Spec:
        """The options of the pooler (`workbench.models.network.PoolerOptions`) that its task heads read.

        Raises:
            WorkbenchError: no pooler here computes the same.
        """
        return {}

    def visibility(self, config: FamilyConfig) -> Visibility:
        """The rows of a text (`text`) that each row sees in the networks of a configuration, as a builder's option."""
        return "bidirectional"

    def sequence(self, config: FamilyConfig) -> Spec:
        """How the family reads a text, as the entry `sequence` of a recipe: the builder (without `max_length`), with
        `transforms` where it needs any. A special token that the tokenizer lacks is left out."""
        visibility = self.visibility(config)
        ends = {"begin": None, "end": "eos"} if visibility == "causal" else {"begin": "cls", "end": "sep"}
        return {"builder": "document", "visibility": visibility, **ends}

    def task(self, config: FamilyConfig) -> Spec:
        """How it is trained further, as a task of a recipe (without corpora): the text is read by `sequence`, and the
        objective is that of its first head, or none where it has no head. `max_length` is added where it is not
        stated."""
        first = list(self.heads(config).items())[:1]
        return {"sequence": self.sequence(config), "objectives": [with_name(name, spec) for name, spec in first]}

    def config(self, described: ModelDescription) -> dict[str, Any]:
        """The configuration of one of our networks. Options without a key may be left out: a comparison reports them.

        Raises:
            LookupError: the network lacks a stream or layers that every one of the family has.
        """
        raise NotImplementedError(f"{type(self).__name__} must define config")

    def preprocessor(self, config: FamilyConfig, embedding: Spec, image: Spec) -> dict[str, Any] | None:
        """How the library makes the pixels of an image, as its `preprocessor_config.json`; None where it cannot make
        those of this image processor.

        Args:
            embedding, image: all options of the stream's embedding and of the image processor.
        """
        return None

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        """A configuration completed from the shapes of the tensors, where the file was published without one."""
        return config

    def spelt(self, name: str) -> str:
        """The name in the rules of a tensor that files of the family spell differently."""
        return name

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        """An equivalent network and its weights in a form that the family supports."""
        return described, state


OWN = "workbench"
"""The key of an exported configuration with the options that its library lacks: of the `objective`, of the `sequence`;
and what was `left_out`."""
TIED = "tie_word_embeddings"
"""The key of a configuration that says whether words are predicted by the table of words; by default they are."""


def token_head(config: Mapping[str, Any], objective: str, **head: Any) -> Spec:
    """An objective that predicts tokens, with the options of its head; the matrix is its own if words are not tied."""
    options = {**({} if config.get(TIED, True) else {"tied": False}), **head}
    return {"objective": objective, **({"head": options} if options else {})}


def with_name(head: str, spec: Spec) -> Spec:
    """The objective of a head as in a recipe, with `name` where it is not the objective's own."""
    return spec if spec["objective"].rpartition(".")[2] == head else {**spec, "name": head}


def checked_heads(checkpoint_family: CheckpointFamily, heads: dict[str, Spec]) -> dict[str, Spec]:
    """The output of `CheckpointFamily.heads`, checked.

    Raises:
        WorkbenchError: a head has no objective.
    """
    for name, spec in heads.items():
        if not isinstance(spec, Mapping) or not isinstance(spec.get("objective"), str):
            raise WorkbenchError(
                f"{type(checkpoint_family).__module__}:{type(checkpoint_family).__qualname__}: heads returned "
                f"{spec!r} for {name!r}; "
                'allowed: the objective of the head, as in a recipe: {"objective": NAME, ...}'
            )
    return heads
