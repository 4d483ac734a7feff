"""Words that no space separates: what hides whole words hides those of a segmenter."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.material import selected
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Numbers
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.segmentation import cut_by
from workbench.pretraining.task_corpora import as_corpora_say
from workbench.recipe.reading import load_recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.protocols import Masking
from workbench.sequences.selection import RowGroups, Selection
from workbench.sequences.sequence import Sequence
from workbench.text import segmenters
from workbench.text.segmenters import Segmenter, shares
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.pretrain import pretrain

CHINESE = [
    "北京是中华人民共和国的首都，人口超过两千万。这里有许多大学和研究机构。",
    "使用语言模型来预测下一个词的概率。模型在大规模语料上训练。",
    "患者入院后给予抗感染治疗，症状明显好转。医生建议继续观察。",
] * 3
ENGLISH = ["Many people live in the capital. They like the river.", "A model predicts the next word. It learns."] * 4
THAI = ["กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย มีประชากรมาก"] * 4


@pytest.fixture(autouse=True)
def package() -> None:
    pytest.importorskip("rjieba")


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer(train_tokenizer(CHINESE + ENGLISH, request.param, 400))


def corpus_of(folder: Path, texts: list[str]) -> Path:
    with ShardWriter(folder / "part-000000.tar", kind="text") as writer:
        for number, text in enumerate(texts):
            writer.add(f"r{number}", {"text": text})
    assert writer.info is not None
    finish_corpus(folder, kind="text", shards=[writer.info], provenance={})
    return folder


def recipe_of(corpus: Path, objective: dict[str, Any], tokenizer: Path | None = None, **more: Any) -> Any:
    return recipe_from_dict(
        {
            "model": {
                "streams": {"text": {"embedding": "token", "hidden_size": 8}},
                "layers": [{"layer": "self", "stream": "text", "num_heads": 1, "intermediate_size": 8}],
            },
            "tasks": {
                "text": {
                    "corpora": [str(corpus)],
                    "sequence": {"builder": "document", "max_length": 64},
                    "objectives": [objective],
                }
            },
            "train": {"max_steps": 2, "global_batch_size": 4, "micro_batch_size": 4, "lr": 1e-3, "num_workers": 0},
            "tokenizer": None if tokenizer is None else str(tokenizer),
            **more,
        }
    )


@cache
def jieba() -> Any:
    import rjieba

    return rjieba.Jieba().cut


def words(text: str) -> list[tuple[int, int]]:
    """Where each word of a text lies, by jieba itself: signs between Han characters are no part of a run."""
    found, begin = [], 0
    for run in "".join(c if "\u4e00" <= c <= "\u9fff" else "|" for c in text).split("|"):
        ends = [0, *accumulate(map(len, jieba()(run, False)))]
        found += [(begin + a, begin + b) for a, b in pairwise(ends)]
        begin += len(run) + 1
    return found


def test_words_are_those_of_the_segmenter_for_every_kind_of_tokenizer(tokenizer: Tokenizer) -> None:
    for text in (*CHINESE[:3], f"a {CHINESE[0]} in between", *ENGLISH[:2]):
        encoded = tokenizer.encode(text)
        of_token = [
            next((place for place in words(text) if place[0] <= start < place[1]), (-1, int(pretoken)))
            for start, pretoken in zip(encoded.starts, encoded.pretokens, strict=True)
        ]
        solid = np.flatnonzero(encoded.ends > encoded.starts)
        one_word = [of_token[a] == of_token[b] for a, b in pairwise(solid)]
        assert (np.diff(encoded.words[solid]) == 0).tolist() == one_word


def test_a_part_of_a_text_has_words_too(tokenizer: Tokenizer) -> None:
    encoded = tokenizer.encode(" ".join(CHINESE))
    begin = int(np.flatnonzero(encoded.starts >= len(CHINESE[0]))[0])
    part = encoded.part(begin, begin + 12)
    assert (np.diff(part.words) == np.diff(encoded.words[begin : begin + 12])).all()


def test_english_is_not_touched(tokenizer: Tokenizer) -> None:
    for text in ENGLISH:
        for by in (tokenizer, tokenizer.cut_by(Segmenter("jieba"))):
            encoded = by.encode(text)
            assert encoded.words.tolist() == encoded.pretokens.tolist()


def masked(recipe: Any, tokenizer: Tokenizer) -> Iterator[tuple[Sequence, list[np.ndarray]]]:
    """Sequences, and the groups of rows that the masking strategy of the first objective chooses in each."""
    task = tasks_of(recipe, cut_by(recipe, tokenizer))["text"]
    samples = [{"key": str(i), "draw": (0, i), "text": text} for i, text in enumerate(CHINESE)]
    for sequence in task.sequences(samples, (0, 0, 0)):
        masking = task.objectives[0].objective.masking
        assert masking is not None
        yield sequence, selected(masking, sequence, "text", 0.3, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("masking", "most"),
    [
        ("whole_word", 1),
        ({"masking": "ngram", "unit": "word", "lengths": [4, 3, 2, 1]}, 4),
        ({"masking": "ngram", "unit": "word", "lengths": [0, 0, 1]}, 3),
    ],
)
def test_what_is_hidden_are_whole_words(masking: Any, most: int, tmp_path: Path) -> None:
    """bert-wwm hides a word, MacBERT up to four: never a part of one (arXiv:1906.08101, 2004.13922)."""
    tokenizer = Tokenizer(train_tokenizer(CHINESE, "wordpiece", 400))
    recipe = as_corpora_say(recipe_of(corpus_of(tmp_path, CHINESE), {"objective": "mlm", "masking": masking}))
    assert recipe.segmenter == "jieba"
    several = 0
    for (sequence, groups), text in zip(masked(recipe, tokenizer), CHINESE, strict=True):
        fields, places = sequence.fields("text"), words(text)
        for rows in groups:
            begin, end = int(fields["char_start"][rows[0]]), int(fields["char_end"][rows[-1]])
            crossed = [place for place in places if place[0] < end and begin < place[1]]
            assert all(begin <= a and b <= end for a, b in crossed), text[begin:end]
            assert len(crossed) <= most
            several += len(rows) > 1
    assert several > 5


@pytest.mark.parametrize(
    ("objective", "by"),
    [
        ({"objective": "mlm", "masking": "whole_word"}, "masking 'whole_word'"),
        ({"objective": "mlm", "masking": "span"}, "masking 'span'"),
        ({"objective": "mlm", "masking": {"masking": "ngram", "unit": "word", "lengths": [1]}}, "masking 'ngram'"),
        ({"objective": "mlm", "masking": "kg.sentiment_words"}, "masking 'kg.sentiment_words'"),
        ({"objective": "mlm", "replace": {"per": "word"}}, "per = 'word'"),
        ({"objective": "mplm"}, "masking 'whole_word'"),
        ({"objective": "denoising"}, "noise 'infill'"),
        ({"objective": "mlm"}, None),
        ({"objective": "mlm", "masking": {"masking": "ngram", "lengths": [1]}}, None),
        ({"objective": "denoising", "noises": [{"noise": "delete", "rate": 0.1}]}, None),
    ],
)
def test_whatever_goes_by_words_is_known(
    objective: dict[str, Any], by: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(corpus_of(tmp_path, CHINESE), objective)
    assert as_corpora_say(recipe).segmenter == (None if by is None else "jieba")
    if by is not None:
        monkeypatch.setattr(segmenters, "version", _not_installed)
        with pytest.raises(WorkbenchError, match=r"pretraining-workbench\[chinese\].*segmenter=none") as reported:
            as_corpora_say(recipe)
        assert by in str(reported.value)
        assert as_corpora_say(recipe_of(tmp_path, objective, segmenter="none")).segmenter == "none"


class Unsaid(Masking):
    """Its code names words."""

    def __call__(self, sequences: Any, stream: str, rate: float, numbers: Numbers) -> RowGroups:
        return RowGroups(sequences[0].fields(stream)["word_ids"], [1], [0])


class SaidNot(Unsaid):
    by_words = False


class Wordless(Masking):
    def __call__(self, sequences: Any, stream: str, rate: float, numbers: Numbers) -> RowGroups:
        return RowGroups([], [], [])


class Longest(Masking):
    def __call__(self, sequences: Any, stream: str, rate: float, numbers: Numbers) -> RowGroups:
        return Selection(sequences, stream, rate, numbers).shuffled_words()


def test_a_masking_strategy_that_does_not_say_goes_by_words_where_its_code_does() -> None:
    assert [part.goes_by_words() for part in (Unsaid, SaidNot, Wordless, Longest)] == [True, False, False, True]


def _not_installed(package: str) -> str:
    raise PackageNotFoundError(package)


@pytest.mark.parametrize("name", ["bert-wwm", "macbert", "spanbert", "bart"])
def test_the_recipes_go_by_words_and_english_needs_none(name: str, tmp_path: Path) -> None:
    for texts, wanted in ((CHINESE, "jieba"), (ENGLISH, None), ([*ENGLISH, "The sign says 北京."], None)):
        corpus = corpus_of(tmp_path / str(len(list(tmp_path.iterdir()))), texts)
        assert as_corpora_say(load_recipe(name, [f"tasks.text.corpora=[{corpus}]"])).segmenter == wanted


def test_scripts_that_nothing_cuts_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recipe = recipe_of(corpus_of(tmp_path, THAI), {"objective": "mlm", "masking": "whole_word"})
    with caplog.at_level(logging.WARNING):
        assert as_corpora_say(recipe).segmenter is None
    assert "(Thai, Lao, Khmer, Burmese): the words are those of the tokenizer's pre-tokenizer" in caplog.text
    assert shares(THAI)[1] > 0.5


def test_a_run_keeps_its_segmenter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Tokenizer(train_tokenizer(CHINESE, "wordpiece", 400)).save(tmp_path / "tokenizer.json")
    corpus = corpus_of(tmp_path / "zh", CHINESE)
    recipe = recipe_of(corpus, {"objective": "mlm", "masking": "whole_word"}, tmp_path / "tokenizer.json")
    run = pretrain(recipe, tmp_path / "run", until=1)
    assert "segmenter: jieba" in (run / "recipe.yaml").read_text()
    kept = json.loads((run / "data.json").read_text())["read"]["segmenter"]
    assert kept == {"jieba": f"jieba (rjieba {version('rjieba')})"}
    monkeypatch.setattr(segmenters, "version", lambda package: "99.0")
    with pytest.raises(WorkbenchError, match="segmenter jieba: other content"):
        pretrain(recipe, run)
    monkeypatch.undo()
    pretrain(recipe, run)


def test_a_tokenizer_takes_its_segmenter_to_the_workers(tokenizer: Tokenizer) -> None:
    there = pickle.loads(pickle.dumps(tokenizer.cut_by(Segmenter("jieba"))))
    assert there.segmenter.name == "jieba"
    assert there.encode(CHINESE[0]).words.tolist() == tokenizer.encode(CHINESE[0]).words.tolist()
    with noted() as read:
        cut_by(recipe_of(Path(), {"objective": "mlm"}), tokenizer)
    assert not read
