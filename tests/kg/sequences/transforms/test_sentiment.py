"""The transform `kg.sentiment`: what the tags say of each token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kg.lexicons.sentiment_lexicon import NEUTRAL, OTHER, TAGS
from kg.sequences.transforms.sentiment import SentimentTransform
from tests.contracts.material import draws, tokenizer
from tests.kg.sentiment_files import feeling_network, tagged_samples, tagged_sequences
from workbench.components.building import build
from workbench.components.controls import check_control
from workbench.core.errors import WorkbenchError
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

EXCUSED = "the tags of the contracts' samples are those of named entities"


def expected(sample: Sample, sequence: Sequence) -> list[tuple[int, int]]:
    """By a loop over characters."""
    text = sequence.streams["text"]
    made = []
    for start, end, kind in zip(text["char_start"], text["char_end"], text["token_type_ids"], strict=True):
        known = TAGS["u:neutral"]
        for begin, finish, name in sample["tags"] if kind == 0 else ():
            if start >= 0 and start < finish and begin < end:
                known = TAGS[name]
        made.append(tuple(known))
    return made


@pytest.mark.parametrize("max_length", [512, 24])
def test_all_tokens_of_a_tagged_word_have_what_it_says(max_length: int) -> None:
    samples = tagged_samples()
    by_key = {sample["key"]: sample for sample in samples}
    sequences = tagged_sequences(samples, max_length)
    assert len(sequences) == 8 or max_length == 24
    felt = 0
    for sequence in sequences:
        text = sequence.streams["text"]
        found = list(zip(text["part_of_speech_ids"].tolist(), text["polarity_ids"].tolist(), strict=True))
        assert found == expected(by_key[sequence.key], sequence)
        assert (text["label_ids"] == 3).all()
        felt += sum(polarity != 2 for _, polarity in found)
    assert felt > 30


def test_a_second_text_is_neutral() -> None:
    (sample,) = tagged_samples(1)
    pair = {**sample, "second": sample["text"]}
    builder = build("builder", {"builder": "sentence_pair", "split": False}, "", tokenizer=tokenizer(), max_length=512)
    (sequence,) = SentimentTransform()(builder([pair], draws()), draws())
    text = sequence.streams["text"]
    second = text["token_type_ids"] == 1
    assert second.any()
    assert (text["polarity_ids"][second] == 2).all()
    assert (text["polarity_ids"][~second] != 2).any()
    assert list(zip(text["part_of_speech_ids"], text["polarity_ids"], strict=True)) == expected(sample, sequence)


def test_a_text_behind_its_question_has_its_tags() -> None:
    (sample,) = tagged_samples(1)
    asked = {**sample, "second": "where is it?", "answers": [], "answer_spans": []}
    builder = build("builder", "passage", "", tokenizer=tokenizer(), max_length=512)
    (sequence,) = SentimentTransform()(builder([asked], draws()), draws())
    text = sequence.streams["text"]
    question = text["char_start"] < 0
    assert (text["polarity_ids"][question] == NEUTRAL).all()
    assert (text["polarity_ids"][~question] != NEUTRAL).any()


def test_choices_stand_behind_a_text_with_its_tags() -> None:
    (sample,) = tagged_samples(1)
    builder = build("builder", "choices", "", tokenizer=tokenizer(), max_length=512)
    for sequence in SentimentTransform()(builder([{**sample, "choices": ["a", "b"]}], draws()), draws()):
        text = sequence.streams["text"]
        assert (text["polarity_ids"] != NEUTRAL).any()


def test_texts_without_tags_and_with_others_are_refused() -> None:
    (sample,) = tagged_samples(1)
    assert (tagged_sequences([{**sample, "tags": []}])[0].streams["text"]["polarity_ids"] == 2).all()
    with pytest.raises(WorkbenchError, match=r"has no 'tags'.*`workbench prepare sentiment"):
        tagged_sequences([{name: value for name, value in sample.items() if name != "tags"}])
    with pytest.raises(WorkbenchError, match=r"the tag 'city'; allowed .* such as a:negative"):
        tagged_sequences([{**sample, "tags": [[0, 3, "city"]]}])
    empty = tagged_sequences([{**sample, "text": "", "tags": []}])
    assert all(len(s.streams["text"]["label_ids"]) == s.length("text") for s in empty)
    assert np.dtype(empty[0].streams["text"]["label_ids"].dtype).kind == "i" if empty else True


def test_without_knowledge_the_model_sees_no_polarity() -> None:
    """The control no-kg removes what the lexicon says, and nothing else; texts need no tags then."""
    samples = tagged_samples()
    network = feeling_network().eval()
    reported, bare = (tagged_sequences(samples, control=control) for control in (None, "no-kg"))
    for one, other in zip(reported, bare, strict=True):
        ours, theirs = one.streams["text"], other.streams["text"]
        assert (theirs["polarity_ids"] == NEUTRAL).all()
        assert (theirs["part_of_speech_ids"] == OTHER).all()
        same = ours.keys() - {"polarity_ids", "part_of_speech_ids"}
        assert all(np.array_equal(ours[name], theirs[name]) for name in same)
    with torch.inference_mode():
        seen, blind = (network(collate(sequences))["text"] for sequences in (reported, bare))
    assert not torch.allclose(seen, blind)
    assert tagged_sequences([{name: v for name, v in samples[0].items() if name != "tags"}], control="no-kg")
    transform = build("transform", {"transform": "kg.sentiment"}, "", control="no-kg")
    check_control("no-kg", [transform], "the run")
    assert not transform.known
