"""Character spans -> token rows: against a plain loop and the conventions of ERNIE-THU's published code."""

from __future__ import annotations

import json

import numpy as np
import pytest

from workbench.sequences.alignment import align, token_rows
from workbench.text.tokenizer import Tokenizer

KINDS = ["wordpiece", "bpe", "unigram"]


def plain_loop(starts, ends, begin, finish):
    hit = [i for i, (s, e) in enumerate(zip(starts, ends, strict=True)) if s < finish and e > begin and s < e]
    return (hit[0], hit[-1] + 1) if hit else None


@pytest.mark.parametrize("kind", KINDS)
def test_rows_equal_the_plain_loop(tokenizers, kind, sentences):
    rng = np.random.default_rng(0)
    for text in [*sentences, "  Café\u0301 ﬁne  (日本) ｆｕｌｌ "]:
        encoded = tokenizers[kind].encode(text)
        begins = rng.integers(0, len(text) - 1, 60)
        ends = np.minimum(begins + rng.integers(1, 25, 60), len(text))
        mentions = [[int(b), int(e), f"Q{i}", 0.5] for i, (b, e) in enumerate(zip(begins, ends, strict=True))]
        aligned = align(encoded, mentions)
        expected = [(m, plain_loop(encoded.starts, encoded.ends, m[0], m[1])) for m in mentions]
        assert [(s.entity, s.start, s.end) for s in aligned.spans] == [(m[2], *rows) for m, rows in expected if rows]
        assert aligned.unaligned == sum(rows is None for _, rows in expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_mention_of_letters_aligns_and_covers_its_text(tokenizers, kind):
    text = 'She saw "Hamburg" (Germany) in naïve Café-Genève, 東京.'
    encoded = tokenizers[kind].encode(text)
    for mention in ("Hamburg", "Germany", "naïve", "Café", "Genève", "東京"):
        start = text.index(mention)
        [span] = align(encoded, [[start, start + len(mention), "Q1", 1.0]]).spans
        assert encoded.starts[span.start] <= start
        assert encoded.ends[span.end - 1] >= start + len(mention)
        covered = text[encoded.starts[span.start] : encoded.ends[span.end - 1]]
        assert mention in covered
        assert len(covered) <= len(mention) + 2


def test_nothing_but_space_is_unaligned(tokenizers):
    text = "the   river"
    for tokenizer in tokenizers.values():
        aligned = align(tokenizer.encode(text), [[4, 5, "Q1", 1.0], [6, 11, "Q2", 1.0], [3, 3, "Q3", 1.0]])
        assert [span.entity for span in aligned.spans] == ["Q2"]
        assert aligned.unaligned == 2


def test_no_tokens_and_no_mentions(tokenizer):
    empty = tokenizer.encode("")
    assert align(empty, [[0, 1, "Q1", 1.0]]) == ([], 1)
    assert align(tokenizer.encode("river"), []) == ([], 0)


def test_partial_mentions_are_covered_or_dropped():
    starts, ends = np.array([0, 3, 6]), np.array([3, 6, 9])
    from workbench.text.tokenizer import Encoding

    encoded = Encoding(np.arange(3), np.arange(3), starts, ends)
    mentions = [[0, 3, "whole", 1.0], [1, 3, "begins inside", 1.0], [3, 8, "ends inside", 1.0]]
    assert [s.entity for s in align(encoded, mentions).spans] == ["whole", "begins inside", "ends inside"]
    dropped = align(encoded, mentions, "drop")
    assert [s.entity for s in dropped.spans] == ["whole"]
    assert dropped.unaligned == 2


def test_offsets_that_do_not_ascend():
    starts, ends = np.array([0, 4, 2, 6]), np.array([2, 6, 4, 8])
    first, last = token_rows(starts, ends, np.array([2, 4, 0]), np.array([4, 6, 8]))
    assert (first.tolist(), last.tolist()) == ([2, 1, 0], [3, 2, 4])


def test_mentions_with_id_and_score_missing(tokenizer):
    [span] = align(tokenizer.encode("the river"), [[4, 9]]).spans
    assert (span.entity, span.score) == ("", 1.0)


def release_rows(entities):
    """entity -> first and all rows in the published code's output."""
    rows: dict[str, list[int]] = {}
    for i, entity in enumerate(entities):
        if entity != "UNK":
            rows.setdefault(entity, []).append(i)
    return rows


def test_first_token_equals_ernie_thu_where_the_release_finds_one(shared):
    folder = shared / "golden" / "ernie_thu" / "data_conventions"
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    found, named, lost = 0, 0, []
    for row in json.loads((folder / "alignment.json").read_text()):
        aligned = align(tokenizer.encode(row["text"]), [[s, e, q, 1.0] for q, s, e in row["mentions"]])
        assert aligned.unaligned == 0
        named += len({part for part in row["entity_first_token"] if part != "UNK"})
        first, everything = release_rows(row["entity_first_token"]), release_rows(row["entity_all_tokens"])
        for span in aligned.spans:
            if span.entity in first:
                found += 1
                assert first[span.entity] == [span.start]
                assert set(everything[span.entity]) <= set(range(span.start, span.end))
            else:
                lost.append((row["text"], span))
    assert found == named > 0
    # The published code loses a mention straight after "("; here it has its token.
    for text, span in lost:
        encoded = tokenizer.encode(text)
        assert text[encoded.starts[span.start] - 1] == "("


def test_punctuation_inside_a_mention_belongs_to_it(shared):
    """The published code assigns no entity to the apostrophe of `Blowin' in the Wind`; a mention here is contiguous."""
    folder = shared / "golden" / "ernie_thu" / "data_conventions"
    row = json.loads((folder / "alignment.json").read_text())[0]
    encoded = Tokenizer.load(folder / "vocab.txt").encode(row["text"])
    [span] = align(encoded, [[16, 35, "Q1065", 1.0]]).spans
    assert row["tokens"][span.start : span.end] == ["blow", "##in", "'", "in", "the", "wind"]
    assert row["entity_all_tokens"][span.start : span.end].count("UNK") == 1
