"""An exported folder's tokenizer, read by its library: our ids, our special tokens, and what the model takes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers

from tests.contracts.case_finder import cases_of, over
from tests.contracts.test_families import made
from tests.loaded_runs import encode_texts
from workbench.cli.export import export
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.family import CheckpointFamily
from workbench.interop.run_or_checkpoint import load
from workbench.text.tokenizer import ROLES, Tokenizer, train_tokenizer
from workbench.text.tokenizer_training import Kind

TEXTS = ["A red Boat is old .", "Ein grünes Haus", "snowman ☃ here", " two  spaces", ""]
LEARNT = ["a red boat is old .", "ein Haus, two spaces here", "the blue house is new"] * 3
SENTINELS = 100
"""T5 appends as many to a tokenizer that has none."""
ENCODERS = ("bert", "roberta", "albert", "electra", "mpnet", "xlnet")


@cache
def words(kind: Kind) -> Tokenizer:
    sizes: dict[Kind, int] = {"wordpiece": 60, "bpe": 300, "unigram": 40}
    return Tokenizer(train_tokenizer(LEARNT, kind, sizes[kind], lowercase=False))


def there_and_out(name: str, kind: Kind, tmp_path: Path) -> Path:
    """A checkpoint of the family with a bare tokenizer, opened and written by the command."""
    marks = make_family(cases_of("family")[name].part).marks.values()
    tokenizer = words(kind).with_tokens([*marks])
    checkpoint_family, config, network = made(name, vocab_size=tokenizer.vocab_size + SENTINELS)
    part = cases_of("family")[name].part
    write_checkpoint_folder(
        tmp_path / "in", exported_weights(part, network, checkpoint_family.network(config), torch.nn.ModuleDict(), {})
    )
    tokenizer.save(tmp_path / "in" / "tokenizer.json")
    export(tmp_path / "in", tmp_path / "out", part)
    return tmp_path / "out"


@over("family", "text")
def test_the_library_reads_the_same_ids(name: str, tmp_path: Path) -> None:
    family = make_family(cases_of("family")[name].part)
    check_ids(there_and_out(name, "wordpiece", tmp_path), "wordpiece", family)


def test_a_class_that_splits_texts_in_its_own_way_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    there_and_out("qwen3", "wordpiece", tmp_path / "named")
    assert "Qwen2Tokenizer" not in caplog.text
    there_and_out("qwen2", "wordpiece", tmp_path)
    assert "AutoTokenizer reads this folder with Qwen2Tokenizer" in caplog.text


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_of_every_kind_of_tokenizer(name: str, kind: Kind, tmp_path: Path) -> None:
    check_ids(there_and_out(name, kind, tmp_path), kind)


def check_ids(folder: Path, kind: Kind, family: CheckpointFamily | None = None) -> None:
    """Those of the library, its special tokens, its segments and its greatest length are ours. Of a family that is
    none of the library's, or for which it insists on a class, by the class that the folder names."""
    loaded = load(folder)
    ours, frame = loaded.tokenizer, loaded.tasks["text"].builder.frame
    assert ours is not None
    marks = [] if family is None else family.marks.values()
    assert ours.identity == words(kind).with_tokens([*marks]).identity
    named = family is not None and family.tokenizer_class
    known = not named and "model_type" in json.loads((folder / "config.json").read_text())
    theirs = (transformers.AutoTokenizer if known else transformers.PreTrainedTokenizerFast).from_pretrained(folder)
    causal = frame.visibility == "causal" and (family is None or family.resumes)
    for text in TEXTS:
        ids = ours.encode(text).ids.tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids
        assert theirs(text)["input_ids"] == [*frame.begin, *ids, *([] if causal else frame.end)]
        assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)
    stream, _ = frame.lay([ours.encode(text) for text in TEXTS[:2]])
    pair = theirs(*TEXTS[:2])
    if not causal:
        assert pair["input_ids"] == stream["input_ids"].tolist()
        assert pair.get("token_type_ids", stream["token_type_ids"].tolist()) == stream["token_type_ids"].tolist()
    for role in ROLES:
        assert getattr(theirs, f"{role}_token_id") == (ours.id(role) if ours.has(role) else None), role
    longest = loaded.recipe.networks["main"].streams["text"]["max_positions"]
    assert theirs.model_max_length == longest if longest else theirs.model_max_length > 10**20


@torch.no_grad()
@pytest.mark.parametrize("name", ENCODERS)
def test_the_model_takes_what_its_tokenizer_gives(name: str, tmp_path: Path) -> None:
    """A batch with padding, straight into the model of the same folder."""
    folder = there_and_out(name, "bpe", tmp_path)
    texts = ["a red", "old", "boat"]
    given = transformers.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    theirs = model(**given).last_hidden_state[:, 0]
    torch.testing.assert_close(encode_texts(load(folder), texts, pool="summary"), theirs, atol=1e-4, rtol=1e-4)


def test_a_token_that_is_taken_for_padding_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    there_and_out("roberta", "wordpiece", tmp_path)
    assert "roberta uses the token of id 1 as padding" in caplog.text
    assert "'[UNK]'" in caplog.text
    caplog.clear()
    there_and_out("roberta", "bpe", tmp_path)
    assert "as padding" not in caplog.text
