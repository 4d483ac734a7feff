"""WUPS against nltk's similarity on a small WordNet with shortcuts, several roads up and irregular plurals."""

from __future__ import annotations

import random
from itertools import accumulate, product
from pathlib import Path

import nltk
import pytest
from nltk.corpus.reader.wordnet import WordNetCorpusReader

from vision.metrics.wordnet import Nouns
from vision.metrics.wups import alike, equal, wups
from workbench.core.errors import WorkbenchError

WORDS = 60


def write_wordnet(folder: Path, seed: int = 0) -> list[str]:
    """WordNet's files with `WORDS` nouns of one or two senses, each below one to three others; returns the words."""
    draw = random.Random(seed)
    folder.mkdir(parents=True)
    words = ["entity", *(f"{('box', 'man', 'leaf', 'cat')[i % 4]}{i}" for i in range(1, WORDS))]
    senses = [word for word in words for _ in range(1 + (word != "entity" and draw.random() < 0.4))]
    above = [sorted(draw.sample(range(i), min(i, draw.randint(1, 3)))) for i in range(len(senses))]
    kinds = [["@" if draw.random() < 0.8 else "@i" for _ in up] for up in above]
    licence = "  1 This software and database is being provided\n  2 WordNet 3.0 Copyright 2006\n"
    places = [0] * len(senses)
    for _ in range(2):  # a synset is called by its place in the file, which is as long whatever the places are
        lines = []
        for i, word in enumerate(senses):
            up = " ".join(f"{kind} {places[u]:08d} n 0000" for kind, u in zip(kinds[i], above[i], strict=True))
            lines.append(f"{places[i]:08d} 03 n 01 {word} 0 {len(above[i]):03d} {up} | a gloss; {word}  ")
        ends = list(accumulate((len(line) + 1 for line in lines), initial=len(licence)))
        places = ends[:-1]
    (folder / "data.noun").write_text(licence + "\n".join(lines) + "\n")
    index = []
    for word in words:
        own = [f"{place:08d}" for place, sense in zip(places, senses, strict=True) if sense == word]
        index.append(f"{word} n {len(own)} 1 @ {len(own)} 0 {' '.join(own)}  ")
    (folder / "index.noun").write_text(licence + "\n".join(sorted(index)) + "\n")
    (folder / "noun.exc").write_text("boxen4 box4\n")
    return words


def peer(folder: Path) -> WordNetCorpusReader:
    """nltk's reader, which wants all files to be there."""
    for kind in ("verb", "adj", "adv"):
        for name in (f"data.{kind}", f"index.{kind}", f"{kind}.exc"):
            (folder / name).write_text("  1 WordNet 3.0 Copyright 2006\n" if name.startswith(("data", "index")) else "")
    for name in ("index.sense", "cntlist.rev"):
        (folder / name).write_text("")
    (folder / "lexnames").write_text("".join(f"{i:02d}\tnoun.c{i}\t1\n" for i in range(45)))
    nltk.data.path.append(str(folder.parents[1]))
    return WordNetCorpusReader(str(folder), None)


@pytest.mark.filterwarnings("ignore")
def test_the_similarity_is_nltks(tmp_path: Path) -> None:
    words = write_wordnet(tmp_path / "corpora" / "wordnet")
    folder = tmp_path / "corpora" / "wordnet"
    nouns, theirs = Nouns(folder), peer(folder)
    asked = 0
    for one, other in product(words[::3], words[::2]):
        for x, y in product(theirs.synsets(one, "n"), theirs.synsets(other, "n")):
            asked += 1
            assert nouns.similarity(x.offset(), y.offset()) == pytest.approx(x.wup_similarity(y)), (x, y)
    assert asked > 500


@pytest.mark.filterwarnings("ignore")
def test_the_senses_of_a_word_are_nltks(tmp_path: Path) -> None:
    words = write_wordnet(tmp_path / "corpora" / "wordnet")
    folder = tmp_path / "corpora" / "wordnet"
    nouns, theirs = Nouns(folder), peer(folder)
    plurals = [f"{word}s" for word in words[:8]] + ["boxen4", "Box4", "nothing", "nothings", "box4ses", ""]
    for word in words + plurals:
        assert nouns.synsets(word) == [synset.offset() for synset in theirs.synsets(word, "n")], word
    assert nouns.synsets("boxen4") == nouns.synsets("box4") != []


def test_the_score_of_sets() -> None:
    def measure(one: str, other: str) -> float:
        return {frozenset("ab"): 0.5, frozenset("ac"): 0.2}.get(frozenset((one, other)), float(one == other))

    assert wups(["a"], ["a"], measure) == 1
    assert wups(["a"], ["b"], measure) == 0.5
    assert wups(["a"], ["a", "b"], measure) == 0.5  # b is only half found
    assert wups(["a", "b"], ["a"], measure) == 0.5
    assert wups(["b", "a"], ["a", "b", "a"], measure) == 1
    assert wups(["a"], ["b", "c"], measure) == pytest.approx(0.1)  # min(0.5, 0.5 * 0.2)
    assert wups([], ["a"], measure) == 0
    assert wups(["a"], ["a", "b"], equal) == 0


def test_below_the_threshold_a_tenth_counts(tmp_path: Path) -> None:
    words = write_wordnet(tmp_path / "dict")
    nouns = Nouns(tmp_path / "dict")
    one, other = words[5], words[9]
    all_ = alike(nouns, 0.0)(one, other)
    assert 0 < all_ < 0.95
    assert alike(nouns, all_ + 0.01)(one, other) == pytest.approx(0.1 * all_)
    assert alike(nouns, all_)(one, other) == all_
    assert alike(nouns, 0.9)("no such word", "no such word") == 1
    assert alike(nouns, 0.0)("no such word", one) == 0


def test_a_folder_without_wordnet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"Give the folder that holds index.noun and data.noun"):
        Nouns(tmp_path)
    write_wordnet(tmp_path / "dict")
    (tmp_path / "dict" / "data.noun").write_text("00001740 what is this\n")
    with pytest.raises(WorkbenchError, match=r"is no data file of WordNet"):
        Nouns(tmp_path / "dict")
