"""The scores of mentions are those of one candidate after the other, as they were before the text was kept."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left

import numpy as np
import pytest

from kg.graph.store import GraphStore
from kg.linking.context import WINDOW
from kg.linking.folding import fold
from kg.linking.joined_texts import JoinedTexts
from kg.linking.linker import Linker
from kg.linking.scoring import CONTEXT

WORD = re.compile(r"[^\W\u4e00-\u9fff]+|[\u4e00-\u9fff]")


def around(text, start, end):
    """The hashes of the distinct words around a mention, sorted."""
    matches = list(WORD.finditer(fold(text, "ignore")))
    hashes = [zlib.crc32(match.group().encode()) for match in matches]
    starts = [match.start() for match in matches]
    before, after = bisect_left(starts, start), bisect_left(starts, end)
    return np.unique(np.array(hashes[max(0, before - WINDOW) : before] + hashes[after : after + WINDOW], np.uint32))


def fit(about, entity, context):
    part = slice(about.offsets[entity], about.offsets[entity + 1])
    words = about.words[part]
    if not len(words) or not len(context):
        return 0.0
    place = np.minimum(np.searchsorted(words, context), len(words) - 1)
    return float(about.weights[part][place[words[place] == context]].sum(dtype=np.float64))


def plain_ranked(linker, number, context):
    """One candidate after the other, as the formula has it."""
    made = linker.tables
    part = slice(made.offsets[number], made.offsets[number + 1])
    entities = made.entities[part].tolist()
    logits = np.log(made.priors[part].astype(np.float64))
    if linker.profiles is not None:
        logits += CONTEXT * np.array([fit(linker.profiles, e, context) for e in entities])
    shares = np.exp(logits - logits.max())
    shares = (shares / shares.sum()).tolist()
    ranked = sorted(zip(entities, shares, strict=True), key=lambda item: (-item[1], item[0]))
    return [(made.ids[entity], share) for entity, share in ranked]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Entities with shared names, described by words that texts repeat; some are described by none."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(120)] + ["北"]
    entities = {
        f"Q{i:03d}": {
            "label": f"n{rng.integers(25)}" + (" x" if i % 7 == 0 else ""),
            "description": " ".join(rng.choice(words, rng.integers(1, 90))) if i % 5 else "",
        }
        for i in range(140)
    }
    triples = [(f"Q{a:03d}", "r", f"Q{b:03d}") for a, b in rng.integers(0, 140, (200, 2)).tolist()]
    return GraphStore.build(triples, tmp_path_factory.mktemp("g") / "graph", entity_texts=entities)


def texts(seed):
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(140)] + [f"n{i}" for i in range(25)] * 3 + ["北", "x", ",", "W3"]
    for length in (1, 2, 5, 40, 130, 400):
        yield " ".join(rng.choice(words, length)) + "北"


@pytest.mark.parametrize("context", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_one_candidate_after_the_other(store, seed, context):
    linker = Linker.from_store(store, context=context)
    for text in texts(seed):
        found = linker._gazetteer.find(text)
        if not found:
            continue
        reported = linker._links.scorer.ranked(JoinedTexts([text]), found, 30)
        for (number, start, end), ranked in zip(found, reported, strict=True):
            wanted = plain_ranked(linker, number, around(text, start, end))
            assert [entity for entity, _ in ranked] == [entity for entity, _ in wanted]
            assert [share for _, share in ranked] == pytest.approx([share for _, share in wanted], rel=1e-13, abs=0)
        first = linker._links.scorer.ranked(JoinedTexts([text]), found, 1)
        assert first == [ranked[:1] for ranked in reported]
        for number, start, end in found[:3]:
            alone = linker.candidates(text[start:end], text, start, end)
            assert alone == reported[found.index((number, start, end))]


@pytest.mark.parametrize("most", [1, 3])
def test_a_batch_of_texts_has_the_links_of_each_text(store, monkeypatch, most):
    """Also where a text ends within a name, or has the sign that separates the texts of a batch."""
    monkeypatch.setattr("kg.linking.linker.CONTEXT_BATCH", 900)
    linker = Linker.from_store(store)
    many = [text for seed in range(6) for text in texts(seed)]
    many += ["n1", "x n1", "", "\x1en1\x1ex", "n1\u200b X", "北 n1 x", "n1\n\n", "\n x n3  x"]
    assert list(linker.link_many(many, candidates=most)) == [linker.link(text, candidates=most) for text in many]


def test_what_is_kept_of_names_is_bounded(store, monkeypatch):
    monkeypatch.setattr("kg.linking.scoring.KEPT_CANDIDATES", 10)
    linker, again = Linker.from_store(store), Linker.from_store(store)
    for text in texts(9):
        links = linker.link(text)
        assert links == again.link(text)
    assert linker._links.scorer._words < 10 * 30 * 90
