"""E-BERT on a plain BERT: the states are those of Hugging Face's BERT, given the entity's vector among its words'."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from kg.vectors import mapping
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.interop.worlds import SPECIAL, WORDS, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.interop.run_or_checkpoint import load
from workbench.runs.data_record import START
from workbench.sequences.batch import collate

SIZE = 16
TEXT = "The old river runs past a small town."
MENTIONS = [("Q1", "old river"), ("Q2", "small town")]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.manual_seed(0)
    transformers = importlib.import_module("transformers")
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS) + 2,
        hidden_size=SIZE,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
        initializer_range=0.3,
    )
    model = transformers.BertForMaskedLM(config).eval()
    folder = tmp_path_factory.mktemp("bert")
    model.save_pretrained(folder)
    tokenizer(folder / "tokenizer.json", ("/",))
    vectors = torch.randn(2, SIZE, generator=torch.Generator().manual_seed(1))
    for file, to in (
        ("mapped", mapping.words_of(folder).read),
        ("foreign", {START: {"another": "bert 0"}}),
        ("none", {}),
    ):
        provenance = {"mapped": {"to": to}} if to else {}
        found = GraphVectors(["Q1", "Q2"], vectors, ["P1"], torch.zeros(1, SIZE), provenance)
        save_vectors(found, folder / f"{file}.safetensors")
    return model, folder, vectors


def words_of(form: str) -> list[Any]:
    """What stands in the text, word by word; a number is the row of an entity's vector."""
    text = TEXT
    for row, (_, mention) in enumerate(MENTIONS):
        text = text.replace(mention, f"<{row}> / {mention}" if form == "concat" else f"<{row}>")
    words = ["[CLS]", *text.replace(".", " .").split(), "[SEP]"]
    return [int(word[1]) if word[0] == "<" else word for word in words]


@pytest.mark.parametrize("form", ["concat", "replace", None])
def test_states_and_logits_are_berts(form: str | None, bert: Any) -> None:
    model, folder, vectors = bert
    place = f"{folder}/mapped.safetensors"
    steps = f"[{{transform: kg.entity_words, table: {place}, max_length: 40, form: {form}}}]"
    changes = ["model.streams.text.embedding=kg.word_or_entity", f"model.streams.text.path={place}"]
    loaded = load(folder, [*changes, f"tasks.text.sequence.transforms={steps}"] if form else [])
    assert loaded.tokenizer is not None
    spans = [[TEXT.index(mention), TEXT.index(mention) + len(mention), entity, 1.0] for entity, mention in MENTIONS]
    sample = {"key": "a", "corpus": "c", "draw": (0,), "text": TEXT, "spans": spans}
    batch = collate(loaded.tasks["text"].sequences([sample]))
    table = model.bert.embeddings.word_embeddings.weight
    vocabulary = loaded.tokenizer.vocabulary
    words = words_of(form) if form else ["[CLS]", *TEXT.replace(".", " .").split(), "[SEP]"]
    rows = [vectors[w] if isinstance(w, int) else table[vocabulary.get(w, vocabulary["[UNK]"])] for w in words]
    with torch.no_grad():
        wanted = model.bert(inputs_embeds=torch.stack(rows)[None]).last_hidden_state[0]
        states = loaded.model.network()(batch)["text"]
        head: Any = loaded.model.heads["mlm"]
        logits = head.logits(loaded.model.network(), states)
        torch.testing.assert_close(states, wanted, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits, model.cls(wanted), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("file", "made"), [("foreign", "made for the weights bert 0"), ("none", "made for no model's weights")]
)
def test_vectors_in_another_space_than_the_words_are_refused(file: str, made: str, bert: Any) -> None:
    folder: Path = bert[1]
    changes = ["model.streams.text.embedding=kg.word_or_entity", f"model.streams.text.path={folder}/{file}.safetensors"]
    with pytest.raises(WorkbenchError, match=rf"{file}\.safetensors was {made}, .*--map-to"):
        load(folder, changes)


def test_a_change_that_needs_training_is_refused(bert: Any) -> None:
    folder: Path = bert[1]
    with pytest.raises(WorkbenchError, match=r"embeddings\.text\.token\.weight"):
        load(folder, ["model.streams.text.hidden_size=32"])
