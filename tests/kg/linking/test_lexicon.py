"""Words of scripts without spaces, and names that must not begin or end inside of one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kg.linking.lexicon import Lexicon
from kg.linking.linker import Linker

COUNTS = {"研究": 50.0, "研究生": 20.0, "生命": 30.0, "命": 3.0, "起源": 10.0, "上海": 40.0, "海水": 5.0, "水": 5.0}


@pytest.fixture
def lexicon() -> Lexicon:
    return Lexicon(list(COUNTS), np.array(list(COUNTS.values())))


def test_the_likeliest_words_together(lexicon: Lexicon) -> None:
    # 研究|生命|起源 is likelier than 研究生|命|起源: 50 * 30 > 20 * 3
    assert lexicon.within("研究生命起源") == {1, 3, 5}
    assert lexicon.within("a 研究生") == {3, 4}
    assert lexicon.within("上海水") == {1}, "上海|水 is likelier than a character that is no word and 海水"
    assert lexicon.within("天地 study") == set(), "characters that are no words stand alone"


def test_names_end_where_words_end(lexicon: Lexicon, tmp_path) -> None:
    names = [(name, name, 1.0) for name in ("海水", "上海", "生命起源", "究生")]
    plain, linker = Linker.from_names(names), Linker.from_names(names, lexicon=lexicon)
    text = "研究生命起源，上海水"
    assert [link[2] for link in plain.link(text)] == ["究生", "上海"]
    assert [link[2] for link in linker.link(text)] == ["上海"]
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
