"""What ERNIE-THU's released code makes of texts for pretraining, and what the recipe's components make of the
same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import yaml
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from kg.objectives.dea import Dea
from kg.sequences.transforms.entity_stream import EntityStreamTransform
from workbench.core.keyed import Draws
from workbench.objectives.mlm import Mlm
from workbench.recipe.reading import shipped
from workbench.sequences.alignment import align
from workbench.sequences.builders.sentence_pair import SentencePairBuilder
from workbench.sequences.sequence import Rows, Sequence, text_fields
from workbench.text.tokenizer import Tokenizer

SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
ENTITIES = {f"Q{row}": row for row in range(14)}
MASK = SPECIAL["[MASK]"]


def draws(number: int = 0) -> Draws:
    return Draws("t", number=(number,))


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "golden/ernie_thu/data_conventions"


@pytest.fixture(scope="module")
def instances(folder: Path) -> list[dict[str, list[int]]]:
    """The released code's instances without their padding."""
    found = json.loads((folder / "pretraining_instances.json").read_text())
    lengths = [sum(instance["input_mask"]) for instance in found]
    return [{name: row[:n] for name, row in one.items()} for one, n in zip(found, lengths, strict=True)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A word w1234 for each id of BERT's vocabulary."""
    words = {f"w{i}": i for i in range(30522) if i not in SPECIAL.values()}
    backend = tokenizers.Tokenizer(WordLevel({**SPECIAL, **words}, unk_token="[UNK]"))
    backend.pre_tokenizer = WhitespaceSplit()
    return Tokenizer(backend)


def originals(instance: dict[str, list[int]]) -> list[int]:
    """The ids before masking."""
    pairs = zip(instance["input_ids"], instance["masked_lm_labels"], strict=True)
    return [i if label == -1 else label for i, label in pairs]


def segment(instance: dict[str, list[int]], number: int) -> tuple[str, list[list[Any]]]:
    """A segment's text in words, and a link at each word to which the released code gave an entity."""
    ids, words, links, length = originals(instance), [], [], 0
    for i, entity, of in zip(ids, instance["entity_ids"], instance["segment_ids"], strict=True):
        if of == number and i not in SPECIAL.values():
            words.append(f"w{i}")
            if entity >= 0:
                links.append([length, length + len(words[-1]), f"Q{entity}", 1.0])
            length += len(words[-1]) + 1
    return " ".join(words), links


def built(instance: dict[str, list[int]], tokenizer: Tokenizer, number: int = 0) -> Sequence:
    (first, links), (second, others) = segment(instance, 0), segment(instance, 1)
    sample = {"key": "i", "draw": (number,), "text": first, "spans": links, "second": second, "second_spans": others}
    (made,) = SentencePairBuilder(tokenizer, len(instance["input_ids"]), split=False)([sample], draws())
    return made


def test_pairs_are_laid_out_as_the_release_does(instances: list[dict[str, list[int]]], tokenizer: Tokenizer) -> None:
    for instance in instances:
        (made,) = EntityStreamTransform(ENTITIES, cls_row=False)([built(instance, tokenizer)], draws())
        text, entity = made.streams["text"], made.streams["entity"]
        assert text["input_ids"].tolist() == originals(instance)
        assert text["token_type_ids"].tolist() == instance["segment_ids"]
        assert entity["token"].index.tolist() == np.flatnonzero(instance["entity_mask"]).tolist()
        given = np.array(instance["entity_ids"])
        assert (entity["entity_ids"] - 1).tolist() == given[given >= 0].tolist()


def options_of_mlm() -> dict[str, Any]:
    """Those of the recipe."""
    first: dict[str, Any] = yaml.safe_load(shipped()["ernie-thu"].read_text())["tasks"]["wiki"]["objectives"][0]
    assert first.pop("objective") == "mlm"
    return first


def masked(instance: dict[str, list[int]], tokenizer: Tokenizer, number: int) -> tuple[Sequence, dict[int, int]]:
    """The sequence behind the recipe's mlm, and the labels by their rows."""
    objective, made = Mlm(tokenizer, **options_of_mlm()), built(instance, tokenizer, number)
    objective.corrupt([made], draws())
    targets = made.targets["mlm"]
    return made, dict(zip(targets["rows"].index.tolist(), targets["labels"].tolist(), strict=True))


def test_masks_stand_where_the_release_may_put_them(
    instances: list[dict[str, list[int]]], tokenizer: Tokenizer
) -> None:
    """Nowhere but on words, and on those with an entity too; all else stays. The released code estimates its share of
    all tokens, here it is of those that are not special."""
    rate = options_of_mlm()["rate"]
    hidden = 0
    for number, instance in enumerate(instances * 3):
        ids, length = originals(instance), len(instance["input_ids"])
        made, labels = masked(instance, tokenizer, number)
        released = {row: label for row, label in enumerate(instance["masked_lm_labels"]) if label != -1}
        for shown, chosen in ((made.streams["text"]["input_ids"], labels), (instance["input_ids"], released)):
            assert chosen == {row: ids[row] for row in chosen}
            assert not {ids[row] for row in chosen} & {*SPECIAL.values()}
            assert [i for row, i in enumerate(shown) if row not in chosen] == [
                i for row, i in enumerate(ids) if row not in chosen
            ]
            assert MASK in {shown[row] for row in chosen}
        assert len(released) == round(rate * length)
        free = length - sum(i in SPECIAL.values() for i in ids)
        assert int(rate * free) <= len(labels) <= int(rate * free) + 1 <= len(released)
        hidden += sum(instance["entity_ids"][row] >= 0 for row in labels)
    assert hidden


def read_sentences(folder: Path) -> Iterator[tuple[list[str], list[int]]]:
    """The entity of each token as the corpus has it, and the row that the released code reads there (-1: none)."""
    for document in json.loads((folder / "pretraining_entity_reading.json").read_text()):
        for sentence in document:
            yield sentence["entity_per_token"], sentence["entity_id_after_reading"]


def test_a_mention_brings_its_entity_once(folder: Path) -> None:
    """At its first token; in the released code also at its third, fifth and so on, as its reading forgets in between.
    (Where the row of the first is by chance what stands before the sentence, its length, it begins at the second.)"""
    lines = (folder / "entity2id.tsv").read_text().splitlines()
    rows = {entity: int(row) for entity, row in (line.split("\t") for line in lines if "\t" in line)}
    step, mentions, more, shifted = EntityStreamTransform(rows, cls_row=False), 0, 0, 0
    for entities, released in read_sentences(folder):
        text = " ".join("x" for _ in entities)
        runs = [(entity, [i for i, _ in group]) for entity, group in groupby(enumerate(entities), lambda pair: pair[1])]
        links = [[2 * at[0], 2 * at[-1] + 1, entity, 1.0] for entity, at in runs if entity != "#UNK#"]
        backend = tokenizers.Tokenizer(WordLevel({"x": 0, "[UNK]": 1}, unk_token="[UNK]"))
        backend.pre_tokenizer = WhitespaceSplit()
        spans = align(Tokenizer(backend).encode(text), links).spans
        (made,) = step([Sequence({"text": text_fields(np.zeros(len(entities), np.int64))}, (0,), spans=spans)], draws())
        stream = made.streams["entity"]
        ours = dict(zip(stream["token"].index.tolist(), (stream["entity_ids"] - 1).tolist(), strict=True))
        assert ours == {at[0]: rows[entity] for entity, at in runs if entity in rows}
        theirs = {i: row for i, row in enumerate(released) if row >= 0}
        for entity, at in runs:
            late = at[0] == 0 and rows.get(entity) == len(entities)
            kept = at[late::2] if entity in rows else []
            assert {i: theirs[i] for i in at if i in theirs} == dict.fromkeys(kept, rows.get(entity))
            mentions, more, shifted = mentions + (entity in rows), more + len(kept[1:]), shifted + late
    assert mentions > 50
    assert more > 50
    assert shifted


def test_as_many_entities_are_exchanged_as_in_the_release(folder: Path) -> None:
    """Shares over as many entities; the released code's own differ from the stated ones by chance, too."""
    wanted = json.loads((folder / "entity_noising_statistics.json").read_text())
    stated = json.loads((folder / "config.json").read_text())["noising"]
    dea, width, seen, removed, changed = Dea(replaced=stated["replace"], removed=stated["remove"]), 30, 0, 0, 0
    dea.name = "dea"
    rng = np.random.default_rng(0)
    while seen < wanted["entities"]:
        before = rng.integers(1, 1000, (20, width))
        sequences = [
            Sequence(
                {
                    "text": text_fields(np.arange(width)),
                    "entity": {"entity_ids": ids.copy(), "token": Rows("text", np.arange(width), bound=True)},
                },
                (seen, i),
            )
            for i, ids in enumerate(before)
        ]
        dea.corrupt(sequences, draws(seen))
        for ids, sequence in zip(before, sequences, strict=True):
            entity = sequence.streams["entity"]
            left = dict(zip(entity["token"].index.tolist(), entity["entity_ids"].tolist(), strict=True))
            seen, removed = seen + width, removed + sum(left.get(i, 0) == 0 for i in range(width))
            changed += sum(left.get(i, 0) not in (0, ids[i]) for i in range(width))
    chance = 4 * np.sqrt(2 * 0.15 * 0.85 / seen)
    assert removed / seen == pytest.approx(wanted["removed"], abs=chance)
    assert changed / seen == pytest.approx(wanted["changed_to_other"], abs=chance / 1.5)
    assert 1 - (removed + changed) / seen == pytest.approx(wanted["kept"], abs=1.2 * chance)
