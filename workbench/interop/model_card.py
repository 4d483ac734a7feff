"""The card of an exported folder: a README that says what the model is, from what it was made, and how well it did.

The lines between its `---` are YAML, as Hugging Face's card parser reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from workbench.core.errors import WorkbenchError
from workbench.core.files.urls import is_url
from workbench.core.shipped import version
from workbench.corpora.corpus import Corpus
from workbench.interop.checkpoint_files import CARD
from workbench.recipe.other_networks import StoredNetwork
from workbench.recipe.recipe_listing import stack
from workbench.recipe.spec import Recipe
from workbench.runs.data_record import run_id
from workbench.runs.metrics_file import Record, read_results
from workbench.runs.names import is_run

MADE_BY = "<!-- written by workbench export -->"
"""A line of every card: a README without it is somebody's own, and is kept."""
USES = {
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
    "MultipleChoice": "multiple-choice",
    "MaskedLM": "fill-mask",
    "CausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ConditionalGeneration": "text2text-generation",
}
"""The uses of the ends of the names of Hugging Face's classes."""
PLACE, NAMED = re.compile(r"[^\s(]*/([^\s/),]+)"), r"\1"
"""A path, and its last part: a card says nothing of folders."""
LICENCES = ("licence", "license")
ON_HUB = re.compile(r"(?:hf|hub)://?([\w.-]+/[\w.-]+)")
"""Weights of the Hugging Face hub."""


def card(
    recipe: Recipe,
    network: str,
    place: Path,
    config: Mapping[str, Any],
    left: Sequence[str],
    family: str,
    forms: Sequence[str] = (),
) -> str:
    """The text of the card of an export of a run, or of a checkpoint, which has no results.

    Args:
        network: the one that is exported.
        place: the run.
        config: the configuration that is exported.
        left: what the folder does not hold, for people.
        forms: further forms that it holds, for people.
    """
    results = [each for each in read_results(place) if each["numbers"]] if is_run(place) else []
    followed, train = recipe.all_networks[network], replace(recipe.train, ema=None)
    alone = replace(recipe, model={network: followed}, train=train)
    architecture = str(next(iter(config.get("architectures") or [family])))
    identity = run_id(place) if is_run(place) else None
    source = f"recipe `{recipe.name}`" + (f", run `{identity}`" if identity else "")  # as MADE_FROM
    head: dict[str, Any] = {"library_name": "transformers", "tags": ["pretraining-workbench", family]}
    use = next((use for end, use in USES.items() if architecture.endswith(end)), None)
    head |= {"pipeline_tag": use} if use else {}
    head |= _sources(recipe, network)
    head |= {"model-index": [{"name": recipe.name, "results": [*_index(results)]}]} if results else {}
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n{MADE_BY}\n",
        f"# {recipe.name}\n",
        f"A `{architecture}` of the family `{family}`: {stack(alone)}.",
        recipe.description,
        "\n## Data\n",
        *_data(recipe),
        "\n## Training\n",
        f"Trained for {recipe.train.max_steps:,} steps of {recipe.train.global_batch_size:,} samples with the seed "
        f"{recipe.seed}." + (f" The control `{recipe.control}` was on." if recipe.control else ""),
        *_origins(recipe, network),
        "\n## Results\n",
        *(_results(results) if results else ["It was not evaluated."]),
        *(["\n## Forms\n", *(f"- {form}." for form in forms)] if forms else []),
        "\n## What it is not for\n",
        *_limits(left, results),
        "\n## Made with\n",
        f"pretraining-workbench {version()}, {source}. The run's `recipe.yaml` has every option.",
    ]
    return "\n".join(parts) + "\n"


def _sources(recipe: Recipe, network: str) -> dict[str, str]:
    """The keys of the hub: the model that the weights came from, and the licence, if all corpora state one and the same
    and no weights came from elsewhere."""
    started = [each.weights for each in recipe.all_networks[network].init_from]
    on_hub = [found[1] for each in started if (found := ON_HUB.match(each))]
    licences = {row.rsplit("|", 2)[1].strip() for row in [*_data(recipe)][2:]}
    one = licences.pop().lower().replace(" ", "-") if len(licences) == 1 and not started else "not-stated"
    return {
        **({"license": one} if re.fullmatch(r"(cc|mit|apache|bsd|odc|pddl|gpl|mpl)[\w.-]*", one) else {}),
        **({"base_model": on_hub[0]} if on_hub else {}),
    }


def _origins(recipe: Recipe, network: str) -> Iterator[str]:
    """What the network started from, and which runs taught it."""
    started = [PLACE.sub(NAMED, each.weights) for each in recipe.all_networks[network].init_from]
    models = recipe.model if isinstance(recipe.model, dict) else {}
    taught = [PLACE.sub(NAMED, each.run) for each in models.values() if isinstance(each, StoredNetwork)]
    if started:
        yield f"It started from the weights of {', '.join(started)}, whose data and licence hold for it, too."
    if taught:
        yield f"It was taught by {', '.join(taught)}."


def _data(recipe: Recipe) -> Iterator[str]:
    """A row for each corpus: its records and its licence."""
    yield "| corpus | task | records | licence |"
    yield "|---|---|---|---|"
    for name, task in recipe.tasks.items():
        for place in task.corpora:
            try:
                if is_url(place):
                    yield f"| {Path(place).name} | {name} | of a store | not looked up |"
                    continue
                corpus = Corpus.open(place)
                records, licence = f"{corpus.records:,}", licence_of(corpus)
            except WorkbenchError:
                records, licence = "not there any more", "not known"
            yield f"| {Path(place).name} | {name} | {records} | {licence} |"


def licence_of(corpus: Corpus) -> str:
    """The licence in the first record of a corpus (`prepare --licence`)."""
    meta = corpus[0].get("meta") or {}
    return str(next((meta[name] for name in LICENCES if meta.get(name)), "not stated"))


def _index(results: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """The results without a control, of test sets that the run has not seen, in the form of `model-index`."""
    for result in results:
        if not result.get("control") and not result.get("seen"):
            name = test_set(result)
            yield {
                "task": {"type": result["task"]},
                "dataset": {"name": name, "type": name},
                "metrics": [{"type": key, "value": float(value)} for key, value in result["numbers"].items()],
            }


def test_set(result: Record) -> str:
    """The name of a result's corpus."""
    corpus = (result.get("inputs") or {}).get("corpus") or {}
    return Path(str(corpus.get("path", "not known"))).name


def _results(results: Sequence[Record]) -> Iterator[str]:
    """A row for each result, each control and each baseline, with the first number and its interval."""
    yield "| task | test set | what | number | value | 95 % interval | items |"
    yield "|---|---|---|---|---|---|---|"
    for result in results:
        number, value = next(iter(result["numbers"].items()))
        interval = (result.get("intervals") or {}).get(number) or {}
        low, high = interval.get("low"), interval.get("high")
        between = f"{low:.4g} to {high:.4g}" if low is not None and high is not None else ""
        what = f"control {result['control']}" if result.get("control") else "the model"
        start = f"| {result['task']} | {test_set(result)} |"
        yield f"{start} {what} | {number} | {value:.4g} | {between} | {result.get('items') or ''} |"
        for name, numbers in (result.get("baselines") or {}).items():
            if number in numbers:
                yield f"{start} baseline: {name} | {number} | {numbers[number]:.4g} | | |"


def _limits(left: Sequence[str], results: Sequence[Record]) -> Iterator[str]:
    """What speaks against a use."""
    yield "- Data unlike those above. Nothing was measured on others."
    yield from (f"- This folder lacks a part of the run: {each}." for each in left)
    seen = list(dict.fromkeys(str(each) for result in results for each in result.get("seen") or ()))
    yield from (f"- Its numbers are too good: {PLACE.sub(NAMED, each)}." for each in seen)


def is_own(folder: Path) -> bool:
    """Whether the README of a folder may be replaced: there is none, or an export wrote it."""
    file = folder / CARD
    return not file.is_file() or MADE_BY in file.read_text(encoding="utf-8", errors="replace")
