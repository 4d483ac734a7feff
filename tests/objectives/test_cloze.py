"""The scores of the words of a cloze, compared with those of Hugging Face's masked language model."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.objectives.cloze import Cloze
from workbench.objectives.mlm import MlmHead
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.builders.cloze import ClozeBuilder
from workbench.sequences.sequence import Sample, Sequence
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it masks the place of a pattern, which the samples of the contracts don't have"
DRAWS = Draws(0, "t", "cloze", number=(0,))
WORDS = {"city": "Hamburg", "river": "in"}


def cloze(tokenizer: Tokenizer, words: dict[str, str] | None = None) -> Cloze:
    objective = Cloze(tokenizer, words or WORDS, label="kind")
    objective.name = "cloze"
    return objective


def sequences(tokenizer: Tokenizer, *samples: Sample) -> list[Sequence]:
    read = [{"key": str(n), "draw": (n,), **sample} for n, sample in enumerate(samples)]
    return ClozeBuilder(tokenizer, 40, "{text} is {mask} .")(read, DRAWS)


def words_of_one_token(tokenizer: Tokenizer, count: int) -> list[str]:
    """Words that the tokenizer reads as one token each."""
    spelled = (t for t in sorted(tokenizer.vocabulary) if t.isalpha() and len(tokenizer.encode(f"a {t}").ids) == 2)
    return [word for word, _ in zip(spelled, range(count), strict=False)]


def test_scores_and_loss_are_those_of_hugging_face(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    first, second = words_of_one_token(tokenizer, 2)
    objective = cloze(tokenizer, {"city": first, "river": second})
    made = sequences(tokenizer, {"text": "people in Paris", "labels": {"kind": "river"}}, {"text": "boats"})
    objective.corrupt(made, DRAWS)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
    )
    theirs = BertForMaskedLM(config).eval()
    text = {"embedding": "token", "hidden_size": 16, "max_positions": 40, "dropout": 0.0, "token_types": 2}
    ours = Network(NetworkSpec(streams={"text": text}, layers=[]), vocab_size=tokenizer.vocab_size)
    head: Any = objective.head(ours)
    with torch.no_grad():
        ours.embeddings["text"].token.weight.copy_(theirs.bert.embeddings.word_embeddings.weight)  # type: ignore
        theirs_head = theirs.cls.predictions
        theirs_head.bias.normal_()
        head.dense.load_state_dict(theirs_head.transform.dense.state_dict())
        head.norm.load_state_dict(theirs_head.transform.LayerNorm.state_dict())
        head.bias.copy_(theirs_head.bias)
    batch = collate(made)
    ids = batch.streams["text"].fields["input_ids"]
    assert (ids == tokenizer.id("mask")).sum() == 2
    assert objective.count(batch) == 1
    bounds = batch.streams["text"].offsets.tolist()
    states = [theirs.bert(ids[a:b][None]).last_hidden_state[0] for a, b in pairwise(bounds)]
    output = head(HeadInputs.of(ours, batch, batch.targets["cloze"], {"text": torch.cat(states)}))
    logits = [theirs(ids[a:b][None]).logits[0][ids[a:b] == tokenizer.id("mask")] for a, b in pairwise(bounds)]
    wanted = torch.cat(logits)[:, objective.ids]
    torch.testing.assert_close(output.outputs["logits"], wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(output.loss, -wanted[0].log_softmax(0)[1], rtol=0, atol=1e-5)
    assert output.outputs["gold"].tolist() == [1]
    assert {name for name, _ in head.named_parameters()} == {name for name, _ in MlmHead(ours).named_parameters()}


def test_words_that_are_no_single_tokens_are_refused(tokenizer: Tokenizer) -> None:
    first, second = words_of_one_token(tokenizer, 2)
    for words, message in [
        ({"a": first, "b": "Donaudampfschiff"}, "the vocabulary has no 'Donaudampfschiff', the word of the class 'b'"),
        ({"a": first, "b": f"{first} {second}"}, f"the word '{first} {second}' of the class 'b' is 2 tokens"),
        ({"a": first, "b": first}, "two classes have the same token"),
        ({"a": first}, "classes has 1 entries"),
    ]:
        with pytest.raises(WorkbenchError, match=message):
            cloze(tokenizer, words)
    assert cloze(tokenizer, {"a": first, "b": second}).names == ["a", "b"]


def test_sequences_without_a_pattern_are_refused(tokenizer: Tokenizer) -> None:
    first, second = words_of_one_token(tokenizer, 2)
    (made,) = sequences(tokenizer, {"text": "people in Paris"})
    made.mask_spans.clear()
    with pytest.raises(WorkbenchError, match="has 0 marked places of 0 tokens; use the builder `cloze`"):
        cloze(tokenizer, {"a": first, "b": second}).corrupt([made], DRAWS)
