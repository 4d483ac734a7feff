"""Windows fill their sequences, whatever the vocabulary and the texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.pretraining.task import Task
from workbench.pretraining.window_lengths import RECORDS, characters_per_token, window_of
from workbench.recipe.spec import SequenceSpec, TaskSpec
from workbench.text.tokenizer import Tokenizer, train_tokenizer

LONG = "Incomprehensibilities characterise institutionalisation. "
SHORT = "I am as he is so do as we do. "


def corpus(folder: Path, texts: list[str], shard_size: int = 40) -> Corpus:
    infos = []
    for first in range(0, len(texts), shard_size):
        with ShardWriter(folder / f"part-{first:06d}.tar", kind="text") as writer:
            for number, text in enumerate(texts[first : first + shard_size], first):
                writer.add(f"r{number}", {"text": text})
        assert writer.info is not None
        infos.append(writer.info)
    finish_corpus(folder, kind="text", shards=infos, provenance={})
    return Corpus.open(folder)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer([LONG * 30 + SHORT * 30], "wordpiece", 300))


def task(tokenizer: Tokenizer, **options: object) -> Task:
    sequence = SequenceSpec({"builder": "document", "max_length": 66, **options})
    spec = TaskSpec(corpora={"x": 1.0}, sequence=sequence, objectives=[{"objective": "mlm"}])
    return Task("text", spec, seed=0, resources={"tokenizer": tokenizer})


@pytest.mark.parametrize("text", [LONG, SHORT], ids=["long words", "short words"])
def test_windows_have_as_many_tokens_as_a_sequence_takes(tmp_path: Path, tokenizer: Tokenizer, text: str) -> None:
    opened = corpus(tmp_path / "c", [text * (3 + n % 7) for n in range(200)])
    window = window_of(task(tokenizer), [opened])
    assert window is not None
    tokens = len(tokenizer.encode((text * 40)[:window]))
    assert 0.9 * 64 <= tokens <= 1.1 * 64
    assert window_of(task(tokenizer), [Corpus.open(tmp_path / "c")]) == window
    assert window_of(task(tokenizer, chars_per_token=2.0), [opened]) == 128


def test_corpora_count_by_their_weights(tmp_path: Path, tokenizer: Tokenizer) -> None:
    both = [corpus(tmp_path / "long", [LONG] * 5), corpus(tmp_path / "short", [SHORT] * 5)]
    long, short = (characters_per_token([one], tokenizer) for one in both)
    assert long > 1.5 * short
    assert characters_per_token(both, tokenizer, [1.0, 0.0]) == pytest.approx(long)
    assert characters_per_token(both, tokenizer, [1.0, 3.0]) == pytest.approx(4 / (1 / long + 3 / short))


def test_few_records_of_a_large_corpus_are_read(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = corpus(tmp_path / "c", [f"{SHORT} {n}" for n in range(900)], shard_size=90)
    read: list[tuple[int, int]] = []
    whole = Corpus.read
    monkeypatch.setattr(Corpus, "read", lambda self, s, r: read.append((s, r)) or whole(self, s, r))
    characters_per_token([opened], tokenizer)
    assert len(read) == len(set(read)) == RECORDS
    assert len({shard for shard, _ in read}) == 4


def test_a_corpus_without_text_is_reported(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(WorkbenchError, match="there is no text in c to measure the windows on"):
        characters_per_token([corpus(tmp_path / "c", [""] * 3)], tokenizer)


def test_a_corpus_of_another_kind_is_left_to_the_reader(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = corpus(tmp_path / "c", [SHORT])
    monkeypatch.setattr(opened, "kind", "triples")  # it refuses the corpus and says why
    assert window_of(task(tokenizer), [opened]) is None
