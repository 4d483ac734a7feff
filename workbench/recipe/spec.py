"""The structure of a recipe, as dataclasses.

A recipe reads like the method section of a paper: model, tasks, training. A mapping that names a component stays a
mapping until `workbench.components.building.build` checks it against the component's signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from workbench.components.controls import CONTROLS
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.options.bounds import (
    ComponentName,
    ComponentSpec,
    Count,
    CountOrZero,
    Dropout,
    EveryNth,
    Figure,
    FileName,
    Means,
    Momentum,
    Name,
    PanelPath,
    Place,
    Positive,
    Seed,
    Share,
    SizeOrZero,
    SomeShare,
    Source,
    Title,
    Word,
)
from workbench.recipe import foreign_names as elsewhere
from workbench.recipe.other_networks import StoredNetwork, Succession
from workbench.recipe.train_spec import EMA, TrainSpec

Spec = dict[str, Any]
POOLER = "summary"
"""The pooler of a stream that states none: BERT's."""
NO_SEGMENTER = "none"
"""The value of a recipe's `segmenter` for no segmenter: words are the units of the tokenizer's pre-tokenizer, in
every script."""


@dataclass
class Paper:
    """The source of a recipe, and what the paper does not state."""

    title: Title
    url: Title = ""
    not_stated: list[Title] = field(default_factory=list)


@dataclass
class InitFrom:
    """Weights to start from.

    `weights` is a run, a checkpoint (`workbench components family`) or `package:NAME` (`workbench.core.packages`).
    `family` names the family of a checkpoint that is not recognised, or one of your own. `network` names a network of a
    run that has several. `stream` loads only the embedding, layers and pooler of this stream. `layers` selects the
    source's layers that are loaded into the first layers here, counted from 0: a list, or `every 2`. `heads` says
    whether the objectives' heads are loaded, or which; by default the heads of a whole network are. `adapters` loads
    only the source's adapters, into the entries of `adapt` with these numbers.
    """

    weights: Place
    family: ComponentName | None = None
    network: Word | None = None
    stream: Word | None = None
    layers: list[CountOrZero] | EveryNth | None = None
    heads: bool | list[Word] | dict[Word, Word] | None = None
    adapters: Annotated[list[CountOrZero], MinLen(1)] | None = None

    def __post_init__(self) -> None:
        others = [name for name in ("stream", "layers", "heads") if getattr(self, name) is not None]
        if self.adapters is not None and others:
            raise WorkbenchError(
                f"init_from {self.weights}: `adapters` cannot be combined with other keys; leave out "
                f"{', '.join(others)}"
            )


@dataclass
class Reported:
    """A published result of the system, which `workbench report` shows next to the run's.

    Attributes:
        metric: the run's metric with the unit of `value`: `<task>/<number>` of an evaluation
            (`entity-typing/loose_micro/f1`), or a held-out metric (`mlm/accuracy`); any other name if there is none.
        data: the data of the measurement.
    """

    metric: Name
    value: Figure
    source: Source
    data: Title = ""
    note: Title = ""


@dataclass
class NetworkSpec:
    """A network: embeddings per stream, then layers in order.

    `init_from` is the source of its weights (`InitFrom`): a place, a mapping, or a list of them. `poolers` names the
    streams that have one, with its name and options where it is not BERT's: `[{stream: text, pooler: mean}]`, or the
    same by stream. `tie` shares modules of embeddings: `{target.token: text.token}` replaces the first by the second;
    `{text.token: generator.text.token}` uses a module of another network. A `frozen` network is never trained, and
    stays in evaluation mode while others are trained. With `scaled_residuals` the last linear map of each of N residual
    branches starts with `init_range / sqrt(N)` (GPT-2). A network with `adapt` is not trained either, but its adapters
    are, and the heads that read it; `adapted: trained` also trains the network. With `layer_drop` each layer is left
    out of an update with this probability (LayerDrop, arXiv:1909.11556, section 3). `succeeds` trains layers in place
    of those of a predecessor (`Succession`). `memory` is the number of rows of each stream that it keeps from the text
    before, in tasks with `order: continuous`.
    """

    streams: Annotated[dict[Word, ComponentSpec], MinLen(1)]
    layers: Annotated[list[ComponentSpec], MinLen(1)]
    poolers: list[Word | ComponentSpec] | dict[Word, dict[Name, Any]] = field(default_factory=list)
    init_from: list[InitFrom] = field(default_factory=list)
    init_range: SomeShare = 0.02
    scaled_residuals: bool = False
    tie: dict[Name, Name] = field(default_factory=dict)
    memory: SizeOrZero = 0
    frozen: bool = False
    adapt: list[ComponentSpec] = field(default_factory=list)
    adapted: Literal["frozen", "trained"] = "frozen"
    layer_drop: Dropout = 0.0
    succeeds: Succession | None = None

    @property
    def pooler_options(self) -> dict[str, Spec]:
        """The name and the options of each pooler, by stream.

        Raises:
            WorkbenchError: an entry of the list names no stream, or one that another entry names.
        """
        if isinstance(self.poolers, dict):
            return {name: {"pooler": POOLER, **options} for name, options in self.poolers.items()}
        found: dict[str, Spec] = {}
        for place, entry in enumerate(self.poolers):
            options = {"stream": entry} if isinstance(entry, str) else dict(entry)
            stream = options.pop("stream", None)
            if not isinstance(stream, str) or stream in found:
                raise WorkbenchError(
                    f"model.poolers[{place}]: stream = {stream!r}; allowed: the name of a stream, each once"
                )
            found[stream] = {"pooler": POOLER, **options}
        return found

    def with_poolers(self, options: Mapping[str, Spec]) -> NetworkSpec:
        """The same network with these poolers, in the short form where they are BERT's."""
        plain = all({"pooler": POOLER, **each} == {"pooler": POOLER} for each in options.values())
        named: list[Word | Spec] = [*sorted(options)]
        return replace(self, poolers=named if plain else dict(options))

    @staticmethod
    def spelt_out(value: Any) -> Any:
        """`init_from` as a list; it may be a place, one mapping, or a list of either. An entry whose `weights` are null
        is left out: a recipe leaves the place open."""
        if not isinstance(value, Mapping) or value.get("init_from", []) == []:
            return value
        entries = value["init_from"]
        entries = [] if entries is None else entries if isinstance(entries, list) else [entries]
        mappings = [{"weights": e} if isinstance(e, str) else e for e in entries]
        stated = [e for e in mappings if not isinstance(e, Mapping) or e.get("weights", "") is not None]
        return {**value, "init_from": stated}


@dataclass
class Follower:
    """A network that is a moving average of another one (MoCo, arXiv:1911.05722, section 3.2). After every update each
    of its weights becomes `decay * own + (1 - decay) * followed`. It starts as a copy and has no gradient. With `heads`
    all heads that read the followed network are averaged too, so that the follower is evaluated and exported with
    them; otherwise only the parts of heads that an objective asks for."""

    follows: Word
    decay: Momentum
    heads: bool = False


@dataclass
class SequenceSpec:
    """How a sample becomes sequences: a builder, then transforms of its sequences (knowledge injection, ...)."""

    builder: ComponentName | ComponentSpec
    transforms: list[ComponentSpec] = field(default_factory=list)

    @staticmethod
    def spelt_out(value: Any) -> Any:
        """The full form of `document`, or of `{builder: document, max_length: 128, transforms: [...]}` with options
        next to the name."""
        if isinstance(value, str):
            return {"builder": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("builder"), str):
            return value
        options = {k: v for k, v in value.items() if k not in ("builder", "transforms")}
        builder = {"builder": value["builder"], **options} if options else value["builder"]
        return {"builder": builder, "transforms": value.get("transforms", [])}

    @property
    def visibility(self) -> str | None:
        """The visibility of the text's rows, if the recipe states it for the builder. A mixture has the visibility with
        which texts are read outside of training."""
        stated = self.builder.get("visibility") if isinstance(self.builder, dict) else None
        return "bidirectional" if isinstance(stated, Mapping) else stated

    @property
    def visibilities(self) -> list[str]:
        """The visibilities of a mixture, or the single one."""
        stated = self.builder.get("visibility") if isinstance(self.builder, dict) else None
        return list(stated) if isinstance(stated, Mapping) else [self.visibility or "bidirectional"]

    def with_visibility(self, visibility: str) -> SequenceSpec:
        """The same specification with this visibility of the builder, unless it has its own."""
        builder = {"builder": self.builder} if isinstance(self.builder, str) else self.builder
        return replace(self, builder={**builder, "visibility": self.visibility or visibility})


@dataclass
class TaskSpec:
    """A pretraining task: corpora, a sequence builder and objectives. `corpora` maps a corpus (path or URL) to its
    weight.

    A corpus is drawn in proportion to its weight times its size to the power of `size_exponent`. The exponent 0 uses
    the weights alone, 1 the sizes; between them small corpora are read more often than their size implies (XLM,
    arXiv:1901.07291, section 3.1: 0.7). The size is measured in the builder's unit: characters of text, elements of a
    list, or else records.

    With `order: continuous` each sequence of a micro-batch continues the sequence at the same index in the lane's
    previous micro-batch. So networks with a `memory` see the text before.

    With `duplicates: n` the draws for a sample, masks above all, are new in the first n epochs and repeat from then on
    (static masking, as if the data were stored n times; RoBERTa, arXiv:1907.11692, section 4.1).
    """

    key_hint = staticmethod(elsewhere.key_hint)

    corpora: Annotated[dict[Place, Positive], MinLen(1), Means("a list of corpora, or a mapping of them to weights")]
    sequence: SequenceSpec
    objectives: Annotated[list[ComponentSpec], MinLen(1)]
    weight: Positive = 1.0
    order: Literal["shuffled", "continuous"] = "shuffled"
    duplicates: Count | None = None
    held_out: list[Place] = field(default_factory=list)
    start_step: CountOrZero = 0
    end_step: Count | None = None
    size_exponent: Share = 0.0

    @staticmethod
    def spelt_out(value: Any) -> Any:
        """Corpora in a list have the weight 1."""
        if not isinstance(value, Mapping) or not isinstance(value.get("corpora"), list):
            return value
        places = value["corpora"]
        if not places or not all(isinstance(place, str) for place in places):
            return value
        return {**value, "corpora": dict.fromkeys(places, 1.0)}


@dataclass
class Recipe:
    """Everything that defines a run, and what its report shows: `reported` results and `panels` of the user.

    `segmenter` finds the words of texts without spaces for whole-word masking; with None the corpora decide.
    """

    key_hint = staticmethod(elsewhere.key_hint)

    model: NetworkSpec | dict[Word, NetworkSpec | Follower | StoredNetwork]
    tasks: dict[Word, TaskSpec]
    train: TrainSpec
    name: FileName = "run"
    description: Title = ""
    kind: Literal["text", "knowledge", "vision-language"] = "text"
    paper: Paper | None = None
    reported: list[Reported] = field(default_factory=list)
    panels: list[PanelPath] = field(default_factory=list)
    tokenizer: Place | None = None
    segmenter: Literal["jieba", "sudachi", "none"] | None = None
    schedule: Literal["together", "sampled", "staged"] = "together"
    seed: Seed = 0
    control: Name | None = None
    vars: dict[Name, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.control is not None and self.control not in CONTROLS:
            raise unknown("control", self.control, CONTROLS)
        if not self.tasks:
            raise WorkbenchError("the recipe names no task; give at least one under `tasks`")
        if not self.networks:
            raise WorkbenchError("the recipe names no network; give its streams and layers under `model`")
        if self.train.ema is not None:
            self._check_ema()
        for name, follower in self.followers.items():
            if follower.follows not in self.networks:
                place = "train.ema.network" if self.train.ema and name == EMA else f"model.{name}.follows"
                raise unknown("network", follower.follows, self.networks, place)

    def _check_ema(self) -> None:
        assert self.train.ema is not None
        if isinstance(self.model, dict) and EMA in self.model:
            raise WorkbenchError(f"model.{EMA} has the name of the network of train.ema; give it another name")
        if self.train.ema.network is None and len(self.networks) > 1:
            raise WorkbenchError(
                f"train.ema: the recipe has the networks {', '.join(self.networks)}; name one: train.ema.network"
            )

    def __repr__(self) -> str:
        networks, tasks = ", ".join(self.networks), ", ".join(self.tasks)
        return f"<Recipe {self.name}: networks {networks}; tasks {tasks}; {self.train.max_steps:,} steps>"

    @property
    def networks(self) -> dict[str, NetworkSpec]:
        """The networks that the recipe describes, by name; a single network is called `main`. A stored one is among
        them once it was looked up (`workbench.interop.stored_networks`)."""
        described = self.model if isinstance(self.model, dict) else {"main": self.model}
        return {name: spec for name, spec in described.items() if isinstance(spec, NetworkSpec)}

    @property
    def all_networks(self) -> dict[str, NetworkSpec]:
        """The networks and the followers, which have the architecture of the network that they follow."""
        return self.networks | {name: self.networks[each.follows] for name, each in self.followers.items()}

    @property
    def followers(self) -> dict[str, Follower]:
        """The networks that follow others, by name."""
        described = self.model if isinstance(self.model, dict) else {}
        found = {name: spec for name, spec in described.items() if isinstance(spec, Follower)}
        if (ema := self.train.ema) is not None:
            found[EMA] = Follower(ema.network or next(iter(self.networks)), ema.decay, heads=True)
        return found

    @property
    def stored(self) -> bool:
        """Whether a network is that of a run, and not looked up yet."""
        return isinstance(self.model, dict) and any(isinstance(spec, StoredNetwork) for spec in self.model.values())
