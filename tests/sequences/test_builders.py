"""Sequence builders: layout, windows, what truncation drops."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from workbench.components import building as parts
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.attention.visibility import visible
from workbench.sequences.builder import Builder
from workbench.text.tokenizer import Tokenizer

DRAWS = Draws(0, "task", "builder", number=(0,))


def build(name, tokenizer, max_length=32, **options) -> Builder:
    return parts.build("builder", {"builder": name, **options}, "", tokenizer=tokenizer, max_length=max_length)


def text_sample(text, draw=(0, 7), **more):
    return {"key": f"k{draw[-1]}", "corpus": "c", "draw": draw, "text": text, **more}


def tokens(tokenizer, sequence):
    return tokenizer.tokens(sequence.streams["text"]["input_ids"])


def test_document_layout(tokenizer):
    text = "The river Elbe flows."
    [sequence] = build("document", tokenizer)([text_sample(text, spans=[[4, 14, "Q1", 0.9]])], DRAWS)
    stream = sequence.streams["text"]
    assert tokens(tokenizer, sequence)[0] == "[CLS]"
    assert tokens(tokenizer, sequence)[-1] == "[SEP]"
    assert stream["special"].tolist() == [True] + [False] * (len(stream["special"]) - 2) + [True]
    assert stream["position_ids"].tolist() == list(range(len(stream["input_ids"])))
    assert stream["char_start"][0] == stream["char_end"][-1] == -1
    [span] = sequence.spans
    assert text[stream["char_start"][span.start] : stream["char_end"][span.end - 1]] == "river Elbe"
    assert (span.entity, span.score) == ("Q1", 0.9)
    assert (sequence.key, sequence.draw) == ("k7", (0, 7, 0))


def test_long_document_becomes_several_and_loses_nothing(tokenizer, sentences):
    text = " ".join(sentences)
    mentions = [
        [m.start(), m.end(), m.group(), 1.0] for m in re.finditer(r"Bob Dylan|Hamburg|Marie Curie|Warsaw", text)
    ]
    builder = build("document", tokenizer, max_length=12)
    sequences = builder([text_sample(text, spans=mentions)], DRAWS)
    assert len(sequences) > 5
    assert [s.draw for s in sequences] == [(0, 7, i) for i in range(len(sequences))]
    pieces = [s.streams["text"]["input_ids"][1:-1] for s in sequences]
    assert all(len(p) <= 10 for p in pieces)
    assert np.concatenate(pieces).tolist() == tokenizer.encode(text).ids.tolist()
    assert builder.take_dropped() == {}
    kept = []
    for sequence in sequences:
        stream = sequence.streams["text"]
        for span in sequence.spans:
            covered = text[stream["char_start"][span.start] : stream["char_end"][span.end - 1]]
            assert covered == span.entity
            kept.append(covered)
    assert kept == [m[2] for m in mentions]


def test_a_mention_longer_than_a_sequence_is_counted_once(tokenizer, sentences):
    builder = build("document", tokenizer, max_length=8)
    sequences = builder([text_sample(sentences[0], spans=[[0, 60, "Q1", 1.0]])], DRAWS)
    assert all(not sequence.spans for sequence in sequences)
    assert builder.take_dropped() == {"span cut off": 1}
    assert builder.take_dropped() == {}


def test_words_are_not_divided_where_it_can_be_avoided(tokenizer, sentences):
    text = " ".join(sentences)
    for sequence in build("document", tokenizer, max_length=16)([text_sample(text)], DRAWS):
        first = tokens(tokenizer, sequence)[1]
        assert not first.startswith("##")


def test_unaligned_spans_are_counted(tokenizer):
    builder = build("document", tokenizer)
    builder([text_sample("the   river", spans=[[4, 5, "Q1", 1.0]])], DRAWS)
    assert builder.take_dropped() == {"unaligned span": 1}


def test_window_comes_from_the_corpora_or_the_option(tokenizer):
    stated = build("document", tokenizer, 34, chars_per_token=4.0)
    assert (stated.window, stated.window_tokens) == (128, None)
    measured = build("document", tokenizer, 34)
    assert (measured.window, measured.window_tokens) == (None, 32)
    assert build("sentence_pair", tokenizer, 43).window_tokens == 36
    with pytest.raises(WorkbenchError, match=r"chars_per_token = -1.0; allowed: a number above 0"):
        build("document", tokenizer, 34, chars_per_token=-1.0)


def test_frames_of_other_roles(tokenizers):
    tokenizer = tokenizers["bpe"]
    [plain] = build("document", tokenizer, begin=None, end="eos")([text_sample("river")], DRAWS)
    assert tokens(tokenizer, plain)[-1] == "</s>"
    assert not plain.streams["text"]["special"][0]
    bare = build("document", tokenizer, begin=None, end=None)
    assert bare([text_sample("")], DRAWS) == []
    assert bare.take_dropped() == {"empty text": 1}


def test_too_small_max_length_is_reported(tokenizer):
    with pytest.raises(WorkbenchError, match=r"max_length = 2 leaves no room .* use at least 3"):
        build("document", tokenizer, 2)


def test_sample_of_another_kind_is_reported(tokenizer):
    sample = {"key": "a", "corpus": "photographs", "draw": (0,), "captions": ["x"]}
    with pytest.raises(WorkbenchError, match=r"sample 'a' of corpus 'photographs': it has no 'text' .*captions"):
        build("document", tokenizer)([sample], DRAWS)
    for name, field in (("image_caption", "captions"), ("question_image", "questions"), ("triple", "triples")):
        options = {} if name == "triple" else {"image_processor": None}
        with pytest.raises(WorkbenchError, match=f"has no '{field}'"):
            build(name, tokenizer, **options)([text_sample("x")], DRAWS)


def test_packed_documents_equal_documents_alone(tokenizer, sentences):
    samples = [
        text_sample(text, (0, i), spans=[[0, 3, f"Q{i}", 1.0]], mask_spans=[[4, 8]]) for i, text in enumerate(sentences)
    ]
    samples.append(text_sample("", (0, 99)))
    alone = {s.key: s for s in build("document", tokenizer, 48)(samples, DRAWS)}
    packed = build("packed", tokenizer, 48)(samples, DRAWS)
    assert len(packed) < len(alone)
    seen = []
    for sequence in packed:
        stream = sequence.streams["text"]
        assert len(stream["input_ids"]) <= 48
        assert stream["doc"].min() == 1
        for number, document in enumerate(sequence.meta["documents"], 1):
            rows = stream["doc"] == number
            single = alone[document["key"]]
            seen.append(document["key"])
            for field, values in single.streams["text"].items():
                if field != "word_ids":
                    np.testing.assert_array_equal(stream[field][rows], values, err_msg=field)
            words = stream["word_ids"][rows]
            shifted = words[words >= 0] - min(words[words >= 0], default=0)
            np.testing.assert_array_equal(shifted, single.streams["text"]["word_ids"][words >= 0])
            assert document["row"] == int(np.flatnonzero(rows)[0])
            for span in [*single.spans, *single.mask_spans]:
                places = [(s.start, s.end) for s in [*sequence.spans, *sequence.mask_spans]]
                assert (span.start + document["row"], span.end + document["row"]) in places
        words = stream["word_ids"][stream["word_ids"] >= 0]
        assert (np.diff(words) >= 0).all()
    assert sorted(seen) == sorted(alone)


@pytest.mark.parametrize("across", [False, True])
def test_full_contexts_hold_every_document_in_its_order(tokenizer, sentences, across):
    """All but the last have `max_length` tokens; who sees whom is as if it were written out."""
    samples = [text_sample(text, (0, i), spans=[[0, 3, f"Q{i}", 1.0]]) for i, text in enumerate(sentences)]
    alone = build("document", tokenizer, 24, begin=None, visibility="causal")(samples, DRAWS)
    options = {"begin": None, "visibility": "causal", "full": True, "across": across}
    packed = build("packed", tokenizer, 24, **options)(samples, DRAWS)
    assert [s.length("text") for s in packed[:-1]] == [24] * (len(packed) - 1)
    assert 0 < packed[-1].length("text") <= 24
    assert len({s.draw for s in packed}) == len(packed)
    for field in ("input_ids", "special", "char_start", "char_end"):
        whole, parts = ([s.streams["text"][field] for s in made] for made in (alone, packed))
        np.testing.assert_array_equal(np.concatenate(parts), np.concatenate(whole))
    document = np.concatenate([np.full(s.length("text"), i) for i, s in enumerate(alone)])
    first = 0
    for sequence in packed:
        stream, rows = sequence.streams["text"], np.arange(sequence.length("text"))
        own = document[first + rows]
        begins = np.zeros(len(rows), np.int64) if across else np.searchsorted(own, own)
        np.testing.assert_array_equal(stream["position_ids"], rows - begins)
        expected = (rows[:, None] >= rows) & (across | (own[:, None] == own))
        found = visible(*[{n: torch.from_numpy(stream[n]) for n in ("doc", "rank") if n in stream}] * 2)
        np.testing.assert_array_equal(found.numpy(), expected)
        assert [document["row"] for document in sequence.meta["documents"]] == np.unique(
            np.searchsorted(own, own)
        ).tolist()
        for span in sequence.spans:
            assert own[span.start] == own[span.end - 1]
            assert span.entity == f"Q{alone[own[span.start]].draw[1]}"
        first += len(rows)
    assert sum(len(s.spans) for s in packed) > len(packed)


def test_packed_refuses_labels(tokenizer):
    with pytest.raises(WorkbenchError, match=r"has labels \['nsp'\]"):
        build("packed", tokenizer)([text_sample("river", labels={"nsp": 0})], DRAWS)


def test_sentence_pair_splits_at_a_sentence(tokenizer):
    text = "The river flows. It is old."
    spans = [[4, 9, "Q1", 1.0], [23, 26, "Q2", 1.0]]
    [sequence] = build("sentence_pair", tokenizer)([text_sample(text, spans=spans)], DRAWS)
    stream = sequence.streams["text"]
    listed = tokens(tokenizer, sequence)
    assert [i for i, t in enumerate(listed) if t == "[SEP]"] == np.flatnonzero(stream["special"])[1:].tolist()
    middle = listed.index("[SEP]")
    assert listed[middle - 1] == "."
    assert stream["token_type_ids"].tolist() == [0] * (middle + 1) + [1] * (len(listed) - middle - 1)
    for span, (segment, begin, word) in zip(sequence.spans, ((text, 0, "river"), (text, 17, "old")), strict=True):
        covered = segment[begin:][stream["char_start"][span.start] : stream["char_end"][span.end - 1]]
        assert covered == word


def test_sentence_pair_takes_what_was_prepared_and_cuts_the_longer(tokenizer):
    second = "songs questions"
    sample = text_sample(
        "the river flows past old harbours and rivers flow",
        spans=[[0, 9, "Q1", 1.0]],
        second=second,
        second_spans=[[0, 5, "Q2", 1.0]],
        labels={"nsp": 1},
    )
    builder = build("sentence_pair", tokenizer, 11)
    [sequence] = builder([sample], DRAWS)
    stream = sequence.streams["text"]
    assert len(stream["input_ids"]) == 11
    total = len(tokenizer.encode(sample["text"])) + len(tokenizer.encode(second))
    assert builder.take_dropped() == {"truncated tokens": total - 8, "span cut off": 1}
    kept = stream["input_ids"][stream["token_type_ids"] == 1][:-1]
    assert kept.tolist() == tokenizer.encode(second).ids.tolist()
    first = stream["input_ids"][1 : stream["token_type_ids"].tolist().index(1) - 1]
    assert first.tolist() == tokenizer.encode(sample["text"]).ids.tolist()[-len(first) :]
    assert [s.entity for s in sequence.spans] == ["Q2"]
    assert sequence.labels == {"nsp": 1}


def test_sentence_pair_of_one_word(tokenizer):
    [sequence] = build("sentence_pair", tokenizer)([text_sample("river")], DRAWS)
    assert tokens(tokenizer, sequence).count("[SEP]") == 1


def caption_sample(**more):
    captions = ["A river flows.", "Old harbours in Hamburg.", "Songs"]
    return {"key": "i1", "corpus": "c", "draw": (0, 3), "captions": captions, **more}


def test_image_caption_each_and_one(tokenizer):
    spans = [[], [[16, 23, "Q1055", 1.0]], []]
    each = build("image_caption", tokenizer, image_processor=None)
    sequences = each([caption_sample(caption_spans=spans)], DRAWS)
    assert each.unit == "captions"
    assert [len(s.spans) for s in sequences] == [0, 1, 0]
    assert [s.meta["caption"] for s in sequences] == [0, 1, 2]
    assert len({s.draw for s in sequences}) == 3
    one = build("image_caption", tokenizer, captions="one", image_processor=None)
    assert one.unit is None
    drawn = {one([caption_sample(draw=(0, i))], DRAWS)[0].meta["caption"] for i in range(40)}
    assert drawn == {0, 1, 2}


def test_caption_spans_must_fit_the_captions(tokenizer):
    with pytest.raises(WorkbenchError, match="caption_spans has 1 lists for 3 captions"):
        build("image_caption", tokenizer, image_processor=None)([caption_sample(caption_spans=[[]])], DRAWS)


def test_long_caption_is_truncated_and_counted(tokenizer):
    builder = build("image_caption", tokenizer, 4, image_processor=None)
    [sequence] = builder(
        [caption_sample(captions=["river " * 5], caption_spans=[[[0, 5, "Q1", 1.0], [24, 29, "Q2", 1.0]]])], DRAWS
    )
    assert sequence.length("text") == 4
    assert [s.entity for s in sequence.spans] == ["Q1"]
    assert builder.take_dropped() == {"truncated tokens": 3, "span cut off": 1}


def test_question_carries_its_answers_outside_of_the_text(tokenizer):
    question = {"question_id": 5, "question": "Which river?", "answers": ["Elbe"] * 10}
    sample = {"key": "i1", "corpus": "c", "draw": (1, 2), "questions": [question, {**question, "question_id": 6}]}
    builder = build("question_image", tokenizer, image_processor=None)
    sequences = builder([sample], DRAWS)
    assert builder.unit == "questions"
    assert [s.meta["question_id"] for s in sequences] == [5, 6]
    assert sequences[0].meta["answers"] == ["Elbe"] * 10
    ids = sequences[0].streams["text"]["input_ids"][1:-1]
    assert ids.tolist() == tokenizer.encode("Which river?").ids.tolist()


TRIPLE = {"relation": "P17", "relation_text": "country of", "tail": "Q183", "tail_text": "old rivers"}


def triple_sample(**more):
    return {
        "key": "t",
        "corpus": "c",
        "draw": (0, 1),
        "id": "Q1055",
        "label": "Hamburg",
        "description": "harbours on the river",
        "triples": [TRIPLE],
        **more,
    }


def test_triple_layout(tokenizer):
    [sequence] = build("triple", tokenizer, 64)([triple_sample()], DRAWS)
    stream = sequence.streams["text"]
    expected = [tokenizer.encode(t).ids.tolist() for t in ("Hamburg", "country of", "old rivers")]
    ids, types = [tokenizer.id("cls")], [0]
    for part, kind in zip(expected, (0, 1, 0), strict=True):
        ids += [*part, tokenizer.id("sep")]
        types += [kind] * (len(part) + 1)
    assert stream["input_ids"].tolist() == ids
    assert stream["token_type_ids"].tolist() == types
    assert [(s.entity, s.end - s.start) for s in sequence.spans] == [
        ("Q1055", len(expected[0])),
        ("Q183", len(expected[2])),
    ]
    assert sequence.meta == {"head": "Q1055", "relation": "P17", "tail": "Q183"}


def test_triple_with_description_is_cut_at_its_longest(tokenizer):
    builder = build("triple", tokenizer, 24, head="description")
    [sequence] = builder([triple_sample(description="rivers flow past the old harbours " * 4)], DRAWS)
    assert sequence.length("text") == 24
    assert [s.entity for s in sequence.spans] == ["Q1055", "Q183"]
    assert builder.take_dropped()["truncated tokens"] > 10


def ernie_typing_rows(shared, name):
    content = json.loads((shared / "golden" / "ernie_thu" / "data_conventions" / name).read_text())
    for row in content["rows"]:
        example = row["example"]
        entities = [[s, e, q, score] for q, s, e, score in example["ents"] if score > content["threshold"]]
        sample = text_sample(example["sent"], spans=entities, mention=[example["start"], example["end"]])
        yield {**sample, "types": example["labels"]}, row["features"], content


def test_mention_equals_ernie_thu(shared):
    """Tokens, entity rows and labels of the published code, wherever the published code finds the entity (see
    test_alignment)."""
    folder = shared / "golden" / "ernie_thu" / "data_conventions"
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    table = dict(line.split("\t") for line in (folder / "entity2id.tsv").read_text().splitlines() if "\t" in line)
    compared = entities = 0
    for sample, features, content in ernie_typing_rows(shared, "typing_len32.json"):
        builder = build("mention", tokenizer, 32, types=content["label_list"])
        [sequence] = builder([sample], DRAWS)
        assert tokens(tokenizer, sequence) == features["tokens"]
        assert sequence.meta["labels"].tolist() == features["labels"]
        expected = {i: e for i, e in enumerate(features["input_ent"]) if e >= 0}
        found = {s.start: int(table[s.entity]) for s in sequence.spans if s.entity in table}
        assert expected.items() <= found.items()
        compared += 1
        entities += len(expected)
    assert compared > 5
    assert entities > 5


def test_mention_keeps_the_beginning_as_ernie_thu_or_moves_to_the_mention(shared):
    folder = shared / "golden" / "ernie_thu" / "data_conventions"
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    equal = moved = 0
    for sample, features, _ in ernie_typing_rows(shared, "typing_len9.json"):
        builder = build("mention", tokenizer, 9)
        [sequence] = builder([sample], DRAWS)
        [(first, last)] = [(mark.start, mark.end) for mark in sequence.marks]
        listed = tokens(tokenizer, sequence)
        assert listed[first - 1] == "。"
        if features and features["tokens"].count("。") == 2:
            assert listed == features["tokens"]
            equal += 1
        else:
            moved += 1
            assert last > first
    assert equal
    assert moved


def test_mention_rows_and_offsets(tokenizers):
    text = "Old rivers: the Elbe (in Hamburg) flows."
    start = text.index("Elbe")
    spans = [[25, 32, "Q1055", 1.0], [start, start + 4, "Q1644", 1.0]]
    for tokenizer in tokenizers.values():
        sample = text_sample(text, mention=[start, start + 4], spans=spans, types=["river", "place", "odd"])
        builder = build("mention", tokenizer, 64, marker=",", types=["place", "river"])
        [sequence] = builder([sample], DRAWS)
        stream = sequence.streams["text"]
        [(first, last)] = [(mark.start, mark.end) for mark in sequence.marks]
        assert text[stream["char_start"][first] : stream["char_end"][last - 1]] == "Elbe"
        assert stream["special"][first - 1]
        assert stream["special"][last]
        assert stream["char_start"][first - 1] == -1
        assert sequence.meta["labels"].tolist() == [1.0, 1.0]
        assert builder.take_dropped() == {"type outside the inventory": 1}
        for span, word in zip(sequence.spans, ("Hamburg", "Elbe"), strict=True):
            covered = text[stream["char_start"][span.start] : stream["char_end"][span.end - 1]]
            assert word in covered.strip("(),")


def test_mention_errors(tokenizer):
    with pytest.raises(WorkbenchError, match="the marker '☃' is not in the tokenizer's vocabulary"):
        build("mention", tokenizer, marker="☃")
    builder = build("mention", tokenizer, marker=",")
    with pytest.raises(WorkbenchError, match=r"mention \[2, 90\] is not inside the text of 5"):
        builder([text_sample("river", mention=[2, 90])], DRAWS)
    with pytest.raises(WorkbenchError, match="has no 'mention'"):
        builder([text_sample("river")], DRAWS)
