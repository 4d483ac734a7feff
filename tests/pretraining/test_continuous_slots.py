"""Sequences of texts that are read on know their slots, whatever a builder makes of a window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.writer import ShardWriter
from workbench.pretraining.task import Task, slots_of
from workbench.pretraining.window_lengths import window_of
from workbench.recipe.spec import SequenceSpec, TaskSpec
from workbench.sequences.sequence import Slot
from workbench.text.tokenizer import Tokenizer, train_tokenizer

TEXTS = [" ".join(f"Sentence {n} of the story continues." for n in range(length)) for length in (40, 3, 25, 1, 30)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(TEXTS, "wordpiece", 200))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    with ShardWriter(tmp_path / "c" / "part-000000.tar", kind="text") as writer:
        for number, text in enumerate(TEXTS):
            writer.add(f"r{number}", {"text": text})
    assert writer.info is not None
    finish_corpus(tmp_path / "c", kind="text", shards=[writer.info], provenance={})
    return Corpus.open(tmp_path / "c")


def task(tokenizer: Tokenizer, builder: str = "document", **options: Any) -> Task:
    sequence = SequenceSpec({"builder": builder, "max_length": 34, **options})
    spec = TaskSpec(
        corpora={"x": 1.0}, sequence=sequence, objectives=[{"objective": "mlm", "view": "a"}], order="continuous"
    )
    return Task("text", spec, seed=0, resources={"tokenizer": tokenizer})


def samples(reading: Task, corpus: Corpus, number: int) -> list[dict[str, Any]]:
    window = window_of(reading, [corpus])
    return Reader(
        [(corpus, 1.0)], seed=0, lanes=1, micro_batch_size=3, unit="text", window=window, order="continuous"
    ).micro_batch(number, 0)


def test_sequences_have_the_slots_of_their_samples(tokenizer: Tokenizer, corpus: Corpus) -> None:
    reading = task(tokenizer)
    seen = set()
    for number in range(6):
        read = samples(reading, corpus, number)
        micro = reading.micro_batch(read, (0, number, 0))
        assert micro.slots == [sample["slot"] for sample in read] == micro.to("cpu").slots
        assert [slot.number for slot in micro.slots] == [0, 1, 2]
        seen |= {slot.continues for slot in micro.slots}
    assert seen == {True, False}


def test_samples_of_another_order_have_no_slots(tokenizer: Tokenizer, corpus: Corpus) -> None:
    """As those of a user, or of an evaluation."""
    reading = task(tokenizer)
    read = [{"key": "mine", "text": "Of my own.", "draw": (0, 0, 0)}]
    assert reading.micro_batch(read, (0, 0, 0)).slots == []


def test_the_second_sequence_of_a_window_continues_from_nothing(tokenizer: Tokenizer, corpus: Corpus) -> None:
    reading = task(tokenizer, chars_per_token=12.0)
    for number in (0, 1):
        read = samples(reading, corpus, number)
        micro = reading.micro_batch(read, (0, number, 0))
        first = {slot.number: micro.slots.index(slot) for slot in reversed(micro.slots)}
        assert len(micro.slots) == len(micro.views["a"].keys) > 3
        assert [micro.slots[row] for row in sorted(first.values())] == [sample["slot"] for sample in read]
        assert not any(slot.continues for row, slot in enumerate(micro.slots) if row not in first.values())


def test_windows_to_be_read_on_nearly_all_fit_a_sequence(tokenizer: Tokenizer, corpus: Corpus) -> None:
    reading = task(tokenizer)
    read = [sample for number in range(8) for sample in samples(reading, corpus, number)]
    assert len(reading.sequences(read)) == len(read)


def test_what_nothing_continues_from_is_refused(tokenizer: Tokenizer, corpus: Corpus) -> None:
    for across in (False, True):
        packed = task(tokenizer, "packed", across=across)
        with pytest.raises(WorkbenchError, match=r"'r\d' holds several texts \(builder packed\), so that nothing can"):
            packed.micro_batch(samples(packed, corpus, 0), (0, 0, 0))
    reading = task(tokenizer)
    read = samples(reading, corpus, 0)
    sequences = reading.sequences(read)
    sequences[0].streams["text"]["branch"] = sequences[0].streams["text"]["position_ids"]
    with pytest.raises(WorkbenchError, match="has branches"):
        slots_of(read, sequences)
    with pytest.raises(WorkbenchError, match="belongs to none of the texts that were read"):
        slots_of([{"draw": (9, 9, 9), "slot": Slot(0, False)}], sequences[1:])
