"""Heads of downstream tasks in a checkpoint, which `AutoModelForSequenceClassification` and its like read and write.

The names of their tensors are regular: a linear layer, often behind the pooler's. So a family states where these lie
(`workbench.interop.family.TaskHeads`), and `with_head` derives the family of the class from it. A class has one head.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, cast

from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.interop.bert_names import PARAMETERS, both
from workbench.interop.family import OWN, CheckpointFamily, FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Buffer, Copy, Rule, SameTensor
from workbench.metrics.tag_schemes import OUTSIDE
from workbench.recipe.spec import NetworkSpec, Spec

logger = logging.getLogger(__name__)
DEFAULT = "LABEL_"
"""The names of labels that nobody has named begin so; their numbers follow."""
REGRESSION = "regression"


class HeadKind(NamedTuple):
    """An objective whose head is that of a class of the library.

    Attributes:
        suffix: of the class's name, behind `For`.
        layer: the head's linear layer.
        builder: how its texts are read, as the entry `sequence` of a recipe.
        pooled: whether the layer reads the pooled output.
        labels: the option with the names of its rows.
    """

    suffix: str
    layer: str
    builder: Spec
    pooled: bool = True
    labels: str | None = None


PAIR = {"builder": "sentence_pair", "split": False}
HEADS = {
    "classify": HeadKind("SequenceClassification", "classifier", PAIR, labels="classes"),
    REGRESSION: HeadKind("SequenceClassification", "regressor", PAIR),
    "token_classification": HeadKind("TokenClassification", "classifier", {"builder": "tagged_text"}, False, "tags"),
    "span_extraction": HeadKind("QuestionAnswering", "ends", {"builder": "passage"}, False),
    "multiple_choice": HeadKind("MultipleChoice", "score", {"builder": "choices"}),
}
"""By the objective, which is also the name of the head in the rules."""


HELPERS = ("distil", "balance")
"""Objectives that train a network next to that of its task, and whose heads say nothing of an input."""


def task_head(objectives: Mapping[str, Spec], chosen: str | None = None) -> str | None:
    """The objective whose head decides the class of an export: the chosen one, or the only one that a network has
    besides objectives that help others (`HELPERS`).

    None where a network leaves without such a head.
    """
    paths, helping = ({KINDS["objective"].path(name) for name in names} for names in (HEADS, HELPERS))
    heads = [
        name
        for name, spec in objectives.items()
        if KINDS["objective"].path(spec["objective"]) in paths and spec.get("stream", "text") == "text"
    ]
    if chosen is not None:
        return chosen if chosen in heads else None
    others = [name for name, spec in objectives.items() if KINDS["objective"].path(spec["objective"]) not in helping]
    return heads[0] if len(heads) == len(others) == 1 else None


def with_head(checkpoint_family: CheckpointFamily, kind: str) -> CheckpointFamily:
    """The family of the class with this head (a key of `HEADS`)."""
    own = type(checkpoint_family)
    about = {"kind": kind, "__doc__": own.__doc__, "__module__": own.__module__}
    return cast(CheckpointFamily, type(own.__name__, (_OneHead, own), about)())


def has_head(checkpoint_family: CheckpointFamily, kind: str) -> bool:
    """Whether the family has a class whose head computes the same."""
    heads = checkpoint_family.task_heads
    return heads is not None and kind not in heads.without


def of_class(checkpoint_family: CheckpointFamily, config: FamilyConfig) -> CheckpointFamily:
    """The family of a configuration's class: itself, where the class has no head of `HEADS` or one that computes
    something else, which is logged."""
    heads, architectures = checkpoint_family.task_heads, config.get("architectures") or [""]
    suffix = str(architectures[0]).partition("For")[2]
    kind = next((name for name, each in HEADS.items() if heads and suffix == heads.suffix(each.suffix)), None)
    if kind is None:
        return checkpoint_family
    if kind == "classify" and (config.get("problem_type") == REGRESSION or len(labels_of(config)) == 1):
        kind = REGRESSION
    reason = _unlike(checkpoint_family, kind, config)
    if reason:
        logger.warning("the head of %s is left out: %s", architectures[0], reason)
        return checkpoint_family
    return with_head(checkpoint_family, kind)


def _unlike(checkpoint_family: CheckpointFamily, kind: str, config: FamilyConfig) -> str:
    """Why the head of a class has no counterpart here; "" where it has one."""
    heads = checkpoint_family.task_heads
    assert heads is not None
    names = labels_of(config)
    if not has_head(checkpoint_family, kind):
        return f"it computes something else than {kind}"
    for key, wanted in heads.settings.items():
        if config.get(key, wanted) != wanted:
            return f"{key} = {config[key]!r}; supported: {wanted!r}"
    if HEADS[kind].labels and len({*names}) < len(names):
        return f"id2label has {len(names)} labels, of which {len({*names})} differ"
    if kind == "classify" and config.get("problem_type") == "multi_label_classification":
        return "its labels do not exclude each other (problem_type = multi_label_classification)"
    if kind == "token_classification" and OUTSIDE not in names:
        return f"its labels lack the tag {OUTSIDE} of words outside of spans"
    try:
        checkpoint_family.pooler(config)
    except WorkbenchError as error:
        return str(error)
    return ""


def labels_of(config: Mapping[str, Any]) -> list[str]:
    """The names of the labels of a configuration; of labels that nobody has named, their numbers."""
    stated = config.get("id2label") or {}
    names = [str(name) for _, name in sorted(stated.items(), key=lambda pair: int(pair[0]))]
    names = names or [f"{DEFAULT}{number}" for number in range(config.get("num_labels", 2))]
    plain = [name.removeprefix(DEFAULT) for name in names]
    return plain if plain == [str(number) for number in range(len(names))] else names


class _OneHead(CheckpointFamily):
    """A class of a family with the head `kind`; its base is the family."""

    kind: ClassVar[str]

    def network(self, config: FamilyConfig) -> NetworkSpec:
        network = super().network(config)
        if HEADS[self.kind].pooled:
            network.poolers = {"text": self.pooler(config)}
        return network

    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        kind, names = HEADS[self.kind], labels_of(config)
        stated: Spec = {"label": None} if self.kind in ("classify", REGRESSION) else {}
        stated |= {kind.labels: names} if kind.labels else {}
        stated |= config.get(OWN, {}).get("objective", {})
        return {**super().heads(config), self.kind: {"objective": self.kind, **stated}}

    def rules(self, config: FamilyConfig) -> list[Rule]:
        kind, heads = HEADS[self.kind], self.task_heads
        assert heads is not None
        dense, output = heads.places(kind.suffix)
        own = both(output, f"{self.kind}.{kind.layer}")
        if not kind.pooled:
            return [*super().rules(config), *own]
        named = PARAMETERS if self.pooler(config).get("bias", True) else PARAMETERS[:1]
        pairs = {place: layer for place, layer in ((dense, "dense"), (heads.norm, "norm")) if place}
        pooler = [SameTensor(f"{at}.{p}", f"poolers.text.{layer}.{p}") for at, layer in pairs.items() for p in named]
        places = {place for rule in pooler for place in rule.theirs}
        return [*(rule for rule in super().rules(config) if not _of_pooler(rule, places)), *pooler, *own]

    def config(self, described: ModelDescription) -> dict[str, Any]:
        kind, heads, head = HEADS[self.kind], self.task_heads, described.heads[self.kind]
        assert heads is not None
        names = head[kind.labels] if kind.labels else [head["label"] or f"{DEFAULT}0"] if "label" in head else []
        problem = {"classify": "single_label_classification", REGRESSION: REGRESSION}.get(self.kind)
        stated = {k: v for k, v in head.items() if k not in ("objective", "stream", "dropout", kind.labels)}
        return {
            **super().config(described),
            "architectures": [f"{heads.library}For{heads.suffix(kind.suffix)}"],
            **({"id2label": {str(row): str(name) for row, name in enumerate(names)}} if names else {}),
            **({"label2id": {str(name): row for row, name in enumerate(names)}} if names else {}),
            **({"num_labels": len(names)} if names else {}),
            **({"problem_type": problem} if problem else {}),
            **heads.settings,
            OWN: {"objective": stated},
        }


def _of_pooler(rule: Rule, places: set[str]) -> bool:
    """Whether a rule is that of the pooler of another class, or of another head that lies at these places."""
    if isinstance(rule, Buffer | Copy):
        return False
    return rule.ours[0].startswith("poolers.text.") or not places.isdisjoint(rule.theirs)
