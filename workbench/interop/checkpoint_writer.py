"""Export of a network as a checkpoint of one of the families.

An export must read back: the configuration must describe the same network, and the tensors, read by the family's own
rules, must be the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.components.building import find
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.drafts import write_text
from workbench.interop.checkpoint_files import CONFIG, IMAGES, ONNX, SENTENCES, WEIGHTS, Also, read_config, read_tensors
from workbench.interop.checkpoint_reader import make_family, spelt_tensors
from workbench.interop.family import OWN, TIED, CheckpointFamily, FamilyConfig, checked_heads
from workbench.interop.further_forms import check_forms, write_forms
from workbench.interop.model_card import CARD, card, is_own
from workbench.interop.network_description import ModelDescription, differences, model_description, spelt_out
from workbench.interop.one_stream import alone
from workbench.interop.rules import Rule, to_ours, to_theirs
from workbench.interop.sentence_modules import WITH, vector_layers, write_modules
from workbench.interop.task_heads import HEADS, has_head, task_head, with_head
from workbench.interop.tokenizer_files import texts_of, warn_of_class, with_special_ids, write_tokenizer
from workbench.interop.weight_sources import family_files
from workbench.models.adaptation import merge
from workbench.models.network import Network
from workbench.pretraining.task import objective_name, objectives_of, tasks_that_read, visibilities_of
from workbench.recipe.spec import NetworkSpec, Recipe, Spec
from workbench.runs.loaded_run import LoadedRun
from workbench.runs.names import is_run
from workbench.runs.weights import save_tensors
from workbench.text.tokenizer import Tokenizer

SHOWN = 12
IMAGE = "image_processor"


class ExportedWeights(NamedTuple):
    """A network in the form of a family.

    Attributes:
        left: what the form cannot hold, for people: heads and transforms.
        forms: further forms in the folder, for people.
    """

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    left: list[str]
    forms: Sequence[str] = ()


def one_of_a_kind(
    heads: torch.nn.ModuleDict, objectives: dict[str, Spec], chosen: str | None, run: Path
) -> tuple[torch.nn.ModuleDict, dict[str, Spec]]:
    """The heads without others of the kind of the chosen one, which gets the family's name for it.

    Args:
        heads, objectives: of a network, by the objectives' names.
        chosen: one of these names.

    Raises:
        WorkbenchError: there is none of this name.
    """
    if chosen is not None and chosen not in heads:
        raise unknown("objective", chosen, heads, str(run))
    if chosen is None:
        return heads, objectives
    kind = objectives[chosen]["objective"]
    others = {name for name in heads if name != chosen and objectives[name]["objective"] == kind}
    called = objective_name({"objective": kind})
    names = {name: called if name == chosen else name for name in heads if name not in others}
    specs = {new: {**objectives[old], "name": new} if new != old else objectives[old] for old, new in names.items()}
    return torch.nn.ModuleDict({new: heads[old] for old, new in names.items()}), specs


def exported_weights(
    family: str,
    network: Network,
    spec: NetworkSpec,
    heads: torch.nn.ModuleDict,
    objectives: Mapping[str, Spec],
    stream: str | None = None,
    visibilities: frozenset[str] = frozenset(),
    place: Path | None = None,
    **given: Any,
) -> ExportedWeights:
    """A network as a checkpoint of a family.

    Args:
        spec: the recipe's entry for the network.
        heads: of the objectives that read it, by their names.
        objectives: the recipe's entries for these.
        stream: export only this one, by itself.
        visibilities: those of its texts in training (`workbench.pretraining.task.visibilities_of`).
        place: of the model. Tensors of a checkpoint that have not changed are written as they were.
        given: the values that components got (vocab_size, ...).

    Raises:
        WorkbenchError: the family has no form for the network; lists all differences. Or the stream reads others.
    """
    checkpoint_family = make_family(family)
    kind = next((name for name in HEADS if [*heads] == [name] and has_head(checkpoint_family, name)), None)
    checkpoint_family = checkpoint_family if kind is None else with_head(checkpoint_family, kind)
    state = _state(network)
    ours = model_description(spec, objectives, network.sizes, **given)._replace(visibilities=visibilities)
    if stream is not None:
        ours, state = alone(network, ours, state, stream)
    before = ours.streams
    try:
        ours, state = checkpoint_family.adapted(ours, state)
        config = _config(checkpoint_family, ours)
        nearest, its_heads = checkpoint_family.network(config), checkpoint_family.heads(config)
    except (LookupError, WorkbenchError) as error:
        raise WorkbenchError(
            f"this network has no form in the family {family}: {_lack(error)}. {_line(checkpoint_family)}. Families: "
            "workbench components family"
        ) from error
    theirs = model_description(nearest, checked_heads(checkpoint_family, its_heads))
    theirs = theirs._replace(visibilities=frozenset({checkpoint_family.visibility(config)}))
    different = differences(ours, theirs, checkpoint_family.free)
    if different:
        raise _inexpressible(family, checkpoint_family, different)
    rules = checkpoint_family.rules(config)
    kept = {name: head for name, head in heads.items() if name in theirs.heads and name in ours.heads}
    state |= {f"{name}.{n}": t for name, head in kept.items() for n, t in _state(head).items()}
    tensors, unused = to_theirs(state, rules, _read_from(place, checkpoint_family, rules))
    written = {id(tensor) for name, tensor in state.items() if name not in {*unused}}
    left = [name for name in unused if id(state[name]) not in written]
    if left:
        raise _inexpressible(family, checkpoint_family, [f"{name}: the family has no such tensor" for name in left])
    _check_back(tensors, rules, state)
    gone = [f"stream {name}, with its layers" for name in before if name not in ours.streams]
    return ExportedWeights(tensors, config, [*gone, *(f"head {name}" for name in heads if name not in kept)])


def _marks(family: CheckpointFamily, spec: NetworkSpec, tokenizer: Tokenizer | None, called: str) -> dict[str, int]:
    """The ids of the family's `marks`: of the checkpoint that the network came from, or else the tokenizer's.

    Raises:
        WorkbenchError: there is neither.
    """
    if not family.marks:
        return {}
    places = [entry.weights for entry in spec.init_from if not is_run(Path(entry.weights))]
    files = [found.config for place in places if (found := family_files(place, "init_from")) is not None]
    vocabulary = {} if tokenizer is None else tokenizer.vocabulary
    known = {key: vocabulary[token] for key, token in family.marks.items() if token in vocabulary}
    for config in map(read_config, files):
        known |= {key: config[key] for key in family.marks if key in config}
    for key, token in family.marks.items():
        if key not in known:
            raise WorkbenchError(
                f"the family {called} needs {key}, the id of the token {token}: the tokenizer has no such token, and "
                "the network did not come from a checkpoint that states one; add it to the tokenizer"
            )
    return known


def _read_from(place: Path | None, checkpoint_family: CheckpointFamily, rules: list[Rule]) -> dict[str, Tensor]:
    """The tensors of the checkpoint at a place, under the names of the rules; none of a run."""
    files = None if place is None or is_run(place) else family_files(str(place), "RUN")
    return {} if files is None else spelt_tensors(checkpoint_family, read_tensors(files.weights), rules)


def _config(checkpoint_family: CheckpointFamily, described: ModelDescription) -> FamilyConfig:
    """The configuration, which unties words where the head that the family ties has a matrix of its own."""
    config = FamilyConfig(checkpoint_family.config(described))
    apart = FamilyConfig({**config, TIED: False})
    heads = {name: head.get("head") or {} for name, head in checkpoint_family.heads(apart).items()}
    tied = [name for name, head in heads.items() if head.get("tied") is False]
    untied = any(described.heads.get(name, {}).get("head.tied") is False for name in tied)
    return apart if untied else config


def export(
    loaded: LoadedRun,
    folder: Path,
    family: str,
    *,
    network: str | None = None,
    stream: str | None = None,
    objective: str | None = None,
    also: Sequence[Also] = (),
    int8: bool = False,
    pool: str | None = None,
    place: Path = Path("run"),
) -> ExportedWeights:
    """Write a network of a loaded run with its tokenizer as a Hugging Face folder; its adapters are merged into it.

    Args:
        objective: of several heads of one kind the one that is exported.
        also, int8, pool: further forms (`workbench.interop.further_forms`), and the pooling of sentence-transformers.
        place: of the run, for messages.

    Raises:
        WorkbenchError: as `exported_weights`; no network, stream or objective has this name; an adapter cannot be
            merged; or a further form cannot be written.
    """
    chosen = loaded.model.network_name(network)
    merged_away = merge(loaded.model.network(chosen))
    recipe, tokenizer = loaded.recipe, loaded.tokenizer
    given = {} if tokenizer is None else {"vocab_size": tokenizer.vocab_size}
    objectives = objectives_of(recipe, chosen)
    all_heads, head = loaded.model.heads_of(chosen), task_head(objectives, objective)
    heads, objectives = one_of_a_kind(all_heads, objectives, head or objective, place)
    if head is not None:  # a class has one head of a task, under the name of its kind
        heads = torch.nn.ModuleDict({name: each for name, each in heads.items() if each is all_heads[head]})
        objectives = {name: objectives[name] for name in heads}
    spec, seen = recipe.all_networks[chosen], visibilities_of(recipe, chosen)
    checkpoint_family = make_family(family)
    poolers, streams = loaded.model.network(chosen).poolers, [stream] if stream is not None else [*spec.streams]
    layers = vector_layers(all_heads, streams, pool, seen == {"causal"}, poolers) if WITH in also else None
    if layers is not None and pool == "pooled" and head is None:  # it is among the modules of that library
        del poolers["text"]
        spec = spec.with_poolers({})
    made = exported_weights(family, loaded.model.network(chosen), spec, heads, objectives, stream, seen, place, **given)
    if tokenizer is not None:
        made = made._replace(config=with_special_ids(made.config, tokenizer, checkpoint_family.counts_padding))
    made = made._replace(config={**made.config, **_marks(checkpoint_family, spec, tokenizer, family)})
    lost = [f"head {name}" for name in all_heads if head not in (None, name)]
    lost += merged_away
    lost += _transforms_lost(checkpoint_family.sequence(FamilyConfig(made.config)), recipe, chosen)
    made = _with_own(made, lost, None if head is None else _builder_of(recipe, head))
    check_forms(also, int8, streams, pool)
    write_checkpoint_folder(folder, made)
    described = checkpoint_family.network(FamilyConfig(made.config))
    texts = texts_of(loaded, chosen)
    if tokenizer is not None:
        frame = None if texts is None else texts.frame
        longest = None if head is None else _builder_of(recipe, head).get("max_length")
        write_tokenizer(folder, tokenizer, described, frame, checkpoint_family.resumes, longest)
        warn_of_class(checkpoint_family.tokenizer_class, tokenizer)
    for name in (IMAGES, *SENTENCES, ONNX):  # of an earlier export
        (folder / name).unlink(missing_ok=True)
    if layers is not None:
        write_modules(folder, described.streams["text"], layers, None if texts is None else texts.max_length)
    images = _preprocessor(checkpoint_family, FamilyConfig(made.config), spec, recipe, chosen)
    if images is not None:
        write_text(folder / IMAGES, json.dumps(images, indent=2) + "\n")
    made = made._replace(forms=write_forms(folder, also, int8))
    if is_own(folder):
        write_text(folder / CARD, card(recipe, chosen, place, made.config, made.left, family, made.forms))
    return made


def _preprocessor(
    checkpoint_family: CheckpointFamily, config: FamilyConfig, spec: NetworkSpec, recipe: Recipe, network: str
) -> dict[str, Any] | None:
    """How the library makes the pixels that a network has read, or that its family reads (of a checkpoint)."""
    builders = [task.sequence.builder for task in tasks_that_read(recipe, network)]
    builders.append(checkpoint_family.task(config)["sequence"])
    processors: list[Any] = [each[IMAGE] for each in builders if isinstance(each, dict) and each.get(IMAGE)]
    if "image" not in spec.streams or not processors:
        return None
    embedding = spelt_out("embedding", spec.streams["image"], {})
    return checkpoint_family.preprocessor(config, embedding, spelt_out(IMAGE, processors[0], {}))


def _transforms_lost(carried: Spec, recipe: Recipe, network: str) -> list[str]:
    """The transforms of the texts that a network has read, without those that its family has (`carried`), or that the
    control `no-kg` kept from adding anything."""
    path = KINDS["transform"].path
    known = {path(each["transform"]) for each in carried.get("transforms", ())}
    read = [each["transform"] for task in tasks_that_read(recipe, network) for each in task.sequence.transforms]
    lost = [name for name in dict.fromkeys(read) if path(name) not in known]
    if recipe.control == "no-kg":
        lost = [name for name in lost if recipe.control not in getattr(find("transform", name), "controls", ())]
    return [f"transform {name}, which changes the texts before they are read" for name in lost]


def _builder_of(recipe: Recipe, objective: str) -> Spec:
    """The options of the builder whose texts the head of an objective has read."""
    tasks = [each for each in recipe.tasks.values() if objective in map(objective_name, each.objectives)]
    builder = tasks[0].sequence.builder
    return {"builder": builder} if isinstance(builder, str) else dict(builder)


def _with_own(made: ExportedWeights, lost: list[str], builder: Spec | None) -> ExportedWeights:
    """The checkpoint, whose configuration also has the options that its library lacks (`OWN`): how the texts of its
    head are read, and what was left out."""
    left = [*made.left, *lost]
    stated = {"sequence": builder, "left_out": left}
    own = {**made.config.get(OWN, {}), **{key: value for key, value in stated.items() if value}}
    return made._replace(config={**made.config, **({OWN: own} if own else {})}, left=left)


def write_checkpoint_folder(folder: Path, checkpoint_family: ExportedWeights) -> None:
    """Write `config.json` and `model.safetensors`."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint_family.tensors.items()}
    save_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    write_text(folder / CONFIG, json.dumps(checkpoint_family.config, indent=2) + "\n")


def _state(module: torch.nn.Module) -> dict[str, Tensor]:
    """The tensors of a module for a checkpoint; one with several names is one object under all of them."""
    kept: dict[int, Tensor] = {}
    return {n: kept.setdefault(id(t), t.detach()) for n, t in module.state_dict(keep_vars=True).items()}


def _check_back(tensors: Mapping[str, Tensor], rules: list[Rule], state: Mapping[str, Tensor]) -> None:
    again = to_ours(tensors, rules).tensors
    # one of theirs may be read as heads of several objectives; this run has some of them
    changed = [name for name, tensor in again.items() if name in state and not torch.equal(state[name], tensor)]
    if changed:
        raise WorkbenchError(
            f"the family has one tensor for tensors that differ in this network: {', '.join(changed[:5])} "
            f"({len(changed)} tensors); it cannot hold both"
        )


def _inexpressible(family: str, checkpoint_family: CheckpointFamily, different: list[str]) -> WorkbenchError:
    more = [f"and {len(different) - SHOWN} more"] if len(different) > SHOWN else []
    listed = "\n".join(f"  {line}" for line in [*different[:SHOWN], *more])
    return WorkbenchError(
        f"the family {family} has no form for this network; here is the run, there the nearest network of the family:\n"
        f"{listed}\n{_line(checkpoint_family)}. Families: workbench components family"
    )


def _lack(error: Exception) -> str:
    """What a family needs and a network lacks; for an index error only that there are too few."""
    if isinstance(error, IndexError):
        return "it has too few layers of the kinds that the family has"
    return str(error) if isinstance(error, WorkbenchError) else f"it lacks {error}"


def _line(checkpoint_family: CheckpointFamily) -> str:
    return " ".join((type(checkpoint_family).__doc__ or "").partition("\n\n")[0].split()).rstrip(".")
