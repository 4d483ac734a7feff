"""The page docs/systems/batches.md: the first training sequences of each text system.

The page shows the first micro-batch of each recipe's smallest size, on a corpus of a few documents in this file.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from workbench.cli.batch_view import sequence_view
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.reading import load_recipe, shipped
from workbench.recipe.recipe_listing import families
from workbench.recipe.sizes import sizes_of
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample
from workbench.text.similar_words import save_similar_words
from workbench.text.token_counts import save_token_counts
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.data import first_batches

FAMILY, SIZE = "text", "tiny"
WIDTH, VOCABULARY = 100, 600
SMALL = ("train.global_batch_size=6", "train.micro_batch_size=6")
HEAD = """# First batches of the text systems

The first sequence that each text system is trained on. All systems read the same few documents. `workbench show
NAME-tiny --batch` prints the same for a corpus of yours. A token in parentheses is predicted; the token before it is
what the model reads in its place. `rank` decides which tokens a token may attend to: its own rank and lower ranks
(visibility, see [architecture.md](../architecture.md)). `3 x 0, 1 to 5` stands for the numbers 0 0 0 1 2 3 4 5.
`make pages` writes this page from the code.
"""
DOCUMENTS = (
    "The old lighthouse stands on a small island in the north. Every evening the keeper climbs the long stairs and "
    "lights the lamp. Ships that pass the island can see the light from far away. In winter the sea is dark and the "
    "storms are strong. The keeper writes the names of the ships into a book. Nobody has read the book yet.",
    "The river begins in the mountains and ends in the sea. Many towns stand on its banks, and each town has a bridge. "
    "The oldest bridge is built from stone. In spring the river is high and the bridges are closed. Then people cross "
    "it "
    "by boat, and the boats carry bread, letters and the news.",
    "A teacher came to the town by train and opened a school near the station. She taught reading in the morning and "
    "music in the afternoon. The children sang songs about the sea and the mountains. After ten years she left as she "
    "had come, by train. The school is still there, and the children still sing.",
)

TRANSLATIONS = (
    {
        "cs": "Maják stojí na malém ostrově na severu.",
        "de": "Der Leuchtturm steht auf einer kleinen Insel im Norden.",
        "en": "The lighthouse stands on a small island in the north.",
        "fr": "Le phare se trouve sur une petite île dans le nord.",
    },
    {
        "cs": "Každý večer strážce rozsvítí lampu.",
        "de": "Jeden Abend zündet der Wärter die Lampe an.",
        "en": "Every evening the keeper lights the lamp.",
        "fr": "Chaque soir, le gardien allume la lampe.",
    },
)
DIALOGUES = (
    ["When does the keeper light the lamp?", "He lights the lamp every evening.", "Can ships see the light?"],
    ["Who opened the school?", "A teacher who came by train.", "Is the school still there?"],
)
QUESTIONS = (
    ("Where does the lighthouse stand?", "It stands on a small island.", "A teacher came to the town by train."),
    ("How do people cross the river?", "They cross it by boat.", "The keeper lights the lamp."),
)
"""A question, its passage, and another passage."""
PHRASES = ("old lighthouse", "small island", "long stairs", "far away", "oldest bridge", "ten years", "by train")
ENTITIES = {"lighthouse": "Q39715", "island": "Q23442", "river": "Q4022", "sea": "Q165", "school": "Q3914"}
ALIKE = (
    ("sea", "river", "mountains", "island"),
    ("evening", "morning", "afternoon", "winter", "spring"),
    ("book", "letters", "news", "songs", "bread"),
    ("boat", "train", "ships", "boats"),
    ("keeper", "teacher", "children", "people"),
    ("old", "oldest", "small", "long", "strong", "high", "dark"),
    ("town", "towns", "bridge", "bridges", "school", "station", "lighthouse"),
)
"""Groups of words that may replace each other."""


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    with tempfile.TemporaryDirectory() as folder:
        for recipe in families()[FAMILY]:
            size = f"{recipe.name}-{SIZE}" if SIZE in sizes_of(shipped()[recipe.name]) else recipe.name
            parts += [f"## {recipe.name}\n", f"{recipe.description}\n", *_batches(size, Path(folder))]
    return "\n".join(parts)


def _batches(name: str, folder: Path) -> Iterator[str]:
    overrides = [f"vars.data={folder}", *SMALL]
    places = [Path(place) for task in load_recipe(name, overrides).tasks.values() for place in task.corpora]
    _prepare(folder, places)
    tokenizer, tasks, micros = first_batches(load_recipe(name, overrides))
    for task, micro in micros.items():
        objectives = {placed.name: placed.objective for placed in tasks[task].objectives}
        for view, batch in micro.views.items():
            console = Console(width=WIDTH, no_color=True)
            yield f"task `{task}`" + (f", view `{view}`" if len(micro.views) > 1 else "") + ":\n"
            for i in _of_each_kind(batch):
                with console.capture() as printed:
                    console.print(sequence_view(batch, i, tokenizer, objectives))
                lines = (line.strip() for line in printed.get().splitlines()[1:])  # the first is the record's key
                yield "\n".join(["```text", *lines, "```\n"])


def _of_each_kind(batch: Batch) -> list[int]:
    """The indices of the first sequence of each kind in the batch, by its role and the types of its segments."""
    types = batch.streams["text"].fields["token_type_ids"].split(batch.streams["text"].lengths)
    kinds = [(role, *sorted(set(of.tolist()))) for role, of in zip(batch.roles, types, strict=True)]
    first = {kind: i for i, kind in reversed([*enumerate(kinds)])}
    return sorted(first.values())


def _prepare(folder: Path, places: list[Path]) -> None:
    """Write every corpus that a recipe names, and a tokenizer of whole words."""
    for place in (place for place in places if not place.exists()):
        with ShardWriter(place / "part-000000.tar", kind="text") as writer:
            for i, sample in enumerate(_samples(place.name)):
                writer.add(f"sample-{i}", {**sample, "meta": {}})
        assert writer.info is not None
        finish_corpus(place, kind="text", shards=[writer.info], provenance={"command": "example"})
    if not (folder / "tokenizer.json").exists():
        others = [text for texts in (*(pair.values() for pair in TRANSLATIONS), *DIALOGUES) for text in texts]
        tokenizer = Tokenizer(train_tokenizer([*DOCUMENTS, *others], "wordpiece", VOCABULARY))
        tokenizer.save(folder / "tokenizer.json")
        _save_similar(folder / "similar-words.safetensors", tokenizer)
        found = np.concatenate([encoded.ids for encoded in tokenizer.encode_batch(DOCUMENTS)])
        counts = np.bincount(found, minlength=tokenizer.vocab_size)
        save_token_counts(folder / "token-counts.json", counts, tokenizer.identity, {"command": "example"})


def _samples(corpus: str) -> Iterator[Sample]:
    """The samples of a corpus, by the corpus name that the recipes use."""
    if corpus == "pairs":
        yield from ({"translations": translations} for translations in TRANSLATIONS)
    elif corpus in TRANSLATIONS[0]:
        yield {"text": " ".join(each[corpus] for each in TRANSLATIONS), "language": corpus}
    elif corpus in ("questions", "nli", "text-pairs"):
        for text, right, wrong in QUESTIONS:
            yield {"text": text, "second": right, "choices": [right, wrong], "answer": 0}
    elif corpus == "cells":
        yield from ({"text": word, "cooccurrences": [[near, 2.0] for near in group]} for word, *group in ALIKE)
    elif corpus in ("dialogues", "chats"):
        yield from ({"turns": turns} for turns in DIALOGUES)
    else:
        for text in DOCUMENTS:
            phrases = [[match.start(), match.end()] for match in re.finditer("|".join(PHRASES), text)]
            names = [(match, ENTITIES[match[0]]) for match in re.finditer("|".join(ENTITIES), text)]
            spans = [[match.start(), match.end(), entity, 1.0] for match, entity in names]
            marked = {"mask_spans": phrases, "spans": spans} if corpus == "linked-phrases" else {}
            yield {"text": text, **marked}


def _save_similar(path: Path, tokenizer: Tokenizer) -> None:
    words = [tuple(tokenizer.encode(word).ids.tolist()) for group in ALIKE for word in group]
    places = iter(range(len(words)))
    groups = [[next(places) for _ in group] for group in ALIKE]
    similar = np.full((len(words), max(map(len, groups)) - 1), -1)
    for group in groups:
        for place in group:
            similar[place, : len(group) - 1] = [other for other in group if other != place]
    save_similar_words(path, words, similar, tokenizer.identity, {"command": "example"})
