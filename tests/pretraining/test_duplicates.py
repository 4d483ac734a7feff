"""Static masking: what is drawn for a sample comes again after `duplicates` epochs, and only then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.core.errors import WorkbenchError
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.pretraining.assembly import tasks_of
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.data import reader_of

TEXTS = [" ".join(f"Sentence {n} of story {t} continues." for n in range(9)) for t in range(7)]
Masked = tuple[list[int], list[int]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(TEXTS, "wordpiece", 200))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    infos = []
    for shard in (0, 1):
        with ShardWriter(tmp_path / f"part-{shard:06d}.tar", kind="text") as writer:
            for number, text in enumerate(TEXTS[shard::2]):
                writer.add(f"r{shard}-{number}", {"text": text})
        infos.append(writer.info)
    finish_corpus(tmp_path, kind="text", shards=[info for info in infos if info], provenance={})
    return tmp_path


def masked_by_epoch(corpus: Path, tokenizer: Tokenizer, duplicates: int | None) -> dict[int, dict[tuple, Masked]]:
    """By epoch and item: the ids that the model sees, and which of them are labelled."""
    sequence = {"builder": "sentence_pair", "max_length": 40}
    task = {"corpora": [str(corpus)], "sequence": sequence, "objectives": [{"objective": "mlm"}]}
    recipe = recipe_from_dict(
        {
            "model": {"streams": {"text": {"embedding": "token", "hidden_size": 8}}, "layers": [{"layer": "norm"}]},
            "tasks": {"text": task if duplicates is None else {**task, "duplicates": duplicates}},
            "train": {"max_steps": 1, "global_batch_size": 4, "micro_batch_size": 4, "lr": 1},
        }
    )
    reading = tasks_of(recipe, tokenizer)["text"]
    reader = reader_of(recipe, reading)
    found: dict[int, dict[tuple, Masked]] = {}
    for number in range(5 * reader.items(0) // 4):
        micro, places = reading.micro_batch(reader.micro_batch(number, 0), (0, number, 0)), reader.places(number, 0)
        batch = micro.views["main"]
        text, rows = batch.streams["text"], batch.targets["mlm"]["rows"].numpy()
        for i, place in enumerate(places):
            begin, end = text.starts[i], text.starts[i + 1]
            here = rows[(rows >= begin) & (rows < end)] - begin
            ids = text.fields["input_ids"][begin:end].tolist()
            found.setdefault(place.draw[1], {})[place.shard, place.item] = (ids, here.tolist())
    return found


def same(one: dict[tuple, Masked], other: dict[tuple, Masked]) -> float:
    both = one.keys() & other.keys()
    return float(np.mean([one[item] == other[item] for item in both]))


def test_masks_come_again_after_as_many_epochs(corpus: Path, tokenizer: Tokenizer) -> None:
    for duplicates in (1, 2):
        found = masked_by_epoch(corpus, tokenizer, duplicates)
        assert sorted(found) == [0, 1, 2, 3, 4]
        for epoch in range(1, 4):
            assert same(found[epoch], found[0]) == (1.0 if epoch % duplicates == 0 else pytest.approx(0, abs=0.2))


def test_without_them_they_are_drawn_anew(corpus: Path, tokenizer: Tokenizer) -> None:
    found = masked_by_epoch(corpus, tokenizer, None)
    assert all(same(found[epoch], found[0]) < 0.2 for epoch in range(1, 4))


def test_duplicates_are_a_number_of_epochs(corpus: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match="duplicates = 0"):
        masked_by_epoch(corpus, tokenizer, 0)
