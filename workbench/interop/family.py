"""What a checkpoint family is: how the weights of other people's code go into our networks, and ours into theirs.

A family is one file in `interop/families/` of a package, or a class named by import path. It has no weights and no
state: it reads a configuration. `init_from` uses it one way, `workbench export --as` the other.

    class Mine(Release):
        def recognises(self, config, names): ...     # is this folder of the family?
        def network(self, config): ...               # the network that its configuration describes, as a recipe says it
        def rules(self, config): ...                 # the table of names (`workbench.interop.rules`)
        def heads(self, config): ...                 # which objectives' heads it has
        def config(self, described): ...             # the configuration of one of our networks
        def visibility(self, config): ...            # which rows of a text each one sees: all, where it is not defined
        def sequence(self, config): ...              # the special tokens around a text, where they are not the usual
        def task(self, config): ...                  # how it is trained further, where its first head doesn't say it

What cannot be exported needs no code: `network(config(ours))` must say what ours says
(`workbench.interop.network_description`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.interop.network_description import DROPOUT, ModelDescription
from workbench.interop.rules import Rule
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility


class FamilyConfig(dict[str, Any]):
    """A configuration; to ask for a key that it lacks is a folder that is not whole."""

    def __missing__(self, key: str) -> Any:
        raise WorkbenchError(f"the configuration has no {key!r}; it has {', '.join(map(str, self)) or 'nothing'}")


class CheckpointFamily:
    """Weights of other people's code, both ways.

    Attributes:
        leaves: patterns of names of a body's tensors that have no place in our parts, and are knowingly left: the rest
            of a body must have one, or its states would differ. What is outside of the body (heads) may be left.
        prefix: in front of the names of a body that was saved with heads, and missing where it was saved alone.
        free: options of ours that its configuration need not hold.
        counts_padding: whether their code counts positions from the id of the padding, so that this id is the family's
            own, whatever the tokenizer.
        goes_on: whether what it reads from left to right is a text to continue with, so that its tokenizer puts no end
            behind it.
        corpus: what it is trained further on, as its recipe calls it below `vars.data`.
        supplied: options of streams' embeddings that are files of the user's, for a recipe.
    """

    leaves: ClassVar[tuple[str, ...]] = ("*position_ids", "*.attn.bias", "*.masked_bias", "*inv_freq", "*pooler.*")
    prefix: ClassVar[str] = ""
    free: ClassVar[frozenset[str]] = DROPOUT
    counts_padding: ClassVar[bool] = False
    goes_on: ClassVar[bool] = True
    corpus: ClassVar[str] = "text"
    supplied: ClassVar[Mapping[str, Spec]] = {}

    def recognises(self, config: Mapping[str, Any], names: Collection[str]) -> bool:
        """Whether a configuration (empty where there is none) and the names of the tensors are of this family."""
        raise NotImplementedError(f"{type(self).__name__} must define recognises")

    def network(self, config: FamilyConfig) -> NetworkSpec:
        """The network that a configuration describes, with the poolers that the family may have.

        Raises:
            WorkbenchError: it describes something that our parts don't have.
        """
        raise NotImplementedError(f"{type(self).__name__} must define network")

    def rules(self, config: FamilyConfig) -> list[Rule]:
        """Their names and ours: of the network as in its state dict, of heads with the objective's name in front."""
        raise NotImplementedError(f"{type(self).__name__} must define rules")

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        """The heads that the family has: by the objective's name in a recipe, which is also in front of the names of
        the head's tensors in `rules`, the objective as a recipe says it, with those options that decide what the head
        computes: `{"mlm": {"objective": "mlm", "head": {"transform": {"norm_eps": 1e-5}}}}`."""
        return {}

    def visibility(self, config: FamilyConfig) -> Visibility:
        """Which rows of a text (`text`) each one sees in the networks of a configuration, as a builder's option."""
        return "bidirectional"

    def sequence(self, config: FamilyConfig) -> Spec:
        """How the family reads a text: the builder (without `max_length`), with `steps` where it needs any, as a
        recipe says `sequence`. A special token that the tokenizer lacks is left out."""
        visibility = self.visibility(config)
        ends = {"begin": None, "end": "eos"} if visibility == "causal" else {"begin": "cls", "end": "sep"}
        return {"builder": "document", "visibility": visibility, **ends}

    def task(self, config: FamilyConfig) -> Spec:
        """How it is trained further, as a recipe says a task (without corpora): it reads a text as it does, and learns
        the objective of the first of its heads, or none where it has no head. `max_length` is added where it is not
        stated."""
        first = list(self.heads(config).items())[:1]
        return {"sequence": self.sequence(config), "objectives": [with_name(name, spec) for name, spec in first]}

    def config(self, described: ModelDescription) -> dict[str, Any]:
        """The configuration of one of our networks. What it cannot say may be left out: it is found and told.

        Raises:
            LookupError: the network lacks a stream or layers that every one of the family has.
        """
        raise NotImplementedError(f"{type(self).__name__} must define config")

    def completed(self, config: FamilyConfig, state: Mapping[str, Tensor]) -> FamilyConfig:
        """A configuration with what the shapes of the tensors say, where the file was released without one."""
        return config

    def spelt(self, name: str) -> str:
        """Another spelling of a tensor's name that files of the family have, as the rules spell it."""
        return name

    def adapted(
        self, described: ModelDescription, state: dict[str, Tensor]
    ) -> tuple[ModelDescription, dict[str, Tensor]]:
        """A network of ours, and its weights, put so that the family can say it and that computes the same."""
        return described, state


def with_name(head: str, spec: Spec) -> Spec:
    """The objective of a head as a recipe says it, with `name` where it is not the objective's own."""
    return spec if spec["objective"].rpartition(".")[2] == head else {**spec, "name": head}


def checked_heads(checkpoint_family: CheckpointFamily, heads: dict[str, Spec]) -> dict[str, Spec]:
    """What `CheckpointFamily.heads` returned.

    Raises:
        WorkbenchError: it doesn't say of what objective a head is.
    """
    for name, spec in heads.items():
        if not isinstance(spec, Mapping) or not isinstance(spec.get("objective"), str):
            raise WorkbenchError(
                f"{type(checkpoint_family).__module__}:{type(checkpoint_family).__qualname__}: heads returned "
                f"{spec!r} for {name!r}; "
                'allowed: the objective that it is the head of, as a recipe says it: {"objective": NAME, ...}'
            )
    return heads
