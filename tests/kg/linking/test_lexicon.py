"""Words of scripts without spaces, and names that must not begin or end inside of one."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Iterable
from itertools import chain, combinations, pairwise

import numpy as np
import pytest

from kg.linking.lexicon import Lexicon
from kg.linking.linker import Linker

COUNTS = {"研究": 50.0, "研究生": 20.0, "生命": 30.0, "命": 3.0, "起源": 10.0, "上海": 40.0, "海水": 5.0, "水": 5.0}


@pytest.fixture
def lexicon() -> Lexicon:
    return Lexicon(list(COUNTS), np.array(list(COUNTS.values())))


def within(lexicon: Lexicon, text: str) -> set[int]:
    return lexicon.within(text, range(len(text) + 1))


def test_the_likeliest_words_together(lexicon: Lexicon) -> None:
    # 研究|生命|起源 is likelier than 研究生|命|起源: 50 * 30 > 20 * 3
    assert within(lexicon, "研究生命起源") == {1, 3, 5}
    assert within(lexicon, "a 研究生") == {3, 4}
    assert within(lexicon, "上海水") == {1}, "上海|水 is likelier than a character that is no word and 海水"
    assert within(lexicon, "天地 study") == set(), "characters that are no words stand alone"


@pytest.mark.parametrize("seed", range(5))
def test_the_path_of_the_greatest_sum(seed: int) -> None:
    rng = random.Random(seed)
    words = sorted({"".join(rng.choices("甲乙丙丁", k=rng.randint(1, 5))) for _ in range(30)})
    counts = np.array([float(rng.randint(1, 1000)) for _ in words])
    lexicon, whole = Lexicon(words, counts), counts.sum()
    share = {word: count / whole for word, count in zip(words, counts, strict=True)}

    def score(ends: Iterable[int], run: str) -> float:
        return sum(math.log(share.get(run[i:j], 1 / whole)) for i, j in pairwise([0, *ends, len(run)]))

    for _ in range(30):
        run = "".join(rng.choices("甲乙丙丁戊", k=rng.randint(1, 9)))
        found = {place - 2 for place in within(lexicon, f"a {run}，甲乙") if place < len(run) + 2}
        ends = [place for place in range(1, len(run)) if place not in found]
        cuts = chain.from_iterable(combinations(range(1, len(run)), n) for n in range(len(run)))
        possible = [
            cut for cut in cuts if all(j - i == 1 or run[i:j] in share for i, j in pairwise([0, *cut, len(run)]))
        ]
        assert score(ends, run) == pytest.approx(max(score(cut, run) for cut in possible))
        place = rng.randint(0, len(run))
        assert lexicon.within(run, [place]) == {place} & within(lexicon, run), "one place alone"


def test_names_end_where_words_end(lexicon: Lexicon, tmp_path) -> None:
    names = [(name, name, 1.0) for name in ("海水", "上海", "生命起源", "究生")]
    plain, linker = Linker.from_names(names), Linker.from_names(names, lexicon=lexicon)
    text = "研究生命起源，上海水"
    assert [link[2] for link in plain.link(text)] == ["究生", "上海"]
    assert [link[2] for link in linker.link(text)] == ["生命起源", "上海"], "究生 is none, and hides nothing"
    assert [link[2] for link in linker.link("生命起源，海水")] == ["生命起源", "海水"], "of several words too"
    assert linker.version != plain.version
    linker.save(tmp_path / "linker")
    loaded = Linker.load(tmp_path / "linker")
    for other in (
        loaded,
        pickle.loads(pickle.dumps(loaded)),
        pickle.loads(pickle.dumps(Linker.from_names(names, lexicon=lexicon))),
    ):
        assert other.link(text) == linker.link(text)
        assert other.version == linker.version
