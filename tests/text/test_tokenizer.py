"""Tokenizers: offsets into the original text, roles, files, deterministic training."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers as tokenizers_library

from workbench.core.errors import WorkbenchError
from workbench.text.tokenizer import Tokenizer, train_tokenizer

KINDS = ["wordpiece", "bpe", "unigram", "word"]
HARD = [
    "",
    " ",
    "Hamburg",
    "  Café\u0301 NAÏVE  ",
    "ﬁne ㎏ ½ Ⅷ ｆｕｌｌ",
    "İstanbul ẞ Ǆ",
    "日本 東京",
    "👩‍👩‍👧 emoji 𝔘𝔫𝔦",
    "zero\u200bwidth \u00a0nbsp\ttab\r\nline",
    "e\u0301e\u0323\u0301 stacked",
    "The river\nElbe — flows…",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HARD)
def test_offsets_index_the_original_text(tokenizers, kind, text):
    encoded = tokenizers[kind].encode(text)
    assert len({len(column) for column in encoded.columns}) == 1
    covered = np.zeros(len(text), bool)
    for start, end in zip(encoded.starts.tolist(), encoded.ends.tolist(), strict=True):
        assert 0 <= start <= end <= len(text)
        piece = text[start:end]
        assert piece == piece.lstrip(), f"a token begins with white space: {piece!r}"
        covered[start:end] = True
    lost = [c for c, seen in zip(text, covered, strict=True) if not seen and not c.isspace()]
    assert [c for c in lost if c.isalnum()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_token_surface_is_the_normalised_original(tokenizers, kind):
    tokenizer = tokenizers[kind]
    text = "Café  in Genève, NAÏVE İ ﬂows"
    encoded = tokenizer.encode(text)
    for token, start, end in zip(tokenizer.tokens(encoded.ids), encoded.starts, encoded.ends, strict=True):
        if kind == "bpe" or "unk" in token.lower():
            continue
        surface = token.removeprefix("##").lstrip("▁")
        original = tokenizer.backend.normalizer.normalize_str(text[start:end])
        assert surface in original, (token, text[start:end])


def test_first_byte_level_token_of_a_word_does_not_own_the_space(tokenizers):
    text = "in the river"
    encoded = tokenizers["bpe"].encode(text)
    assert 3 in encoded.starts.tolist()
    assert 7 in encoded.starts.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_spelled_special_tokens_stay_text(tokenizers, kind):
    tokenizer = tokenizers[kind]
    spelled = " ".join(tokenizer.roles.values())
    ids = tokenizer.encode(spelled).ids
    allowed = {tokenizer.id("unk")}
    assert set(ids.tolist()) & set(tokenizer.special_ids.tolist()) <= allowed
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode(spelled).ids.tolist() == ids.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_batch_equals_one_by_one(tokenizers, kind, sentences):
    for text, encoded in zip(sentences, tokenizers[kind].encode_batch(sentences), strict=True):
        for a, b in zip(encoded.columns, tokenizers[kind].encode(text).columns, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(tokenizers, kind, tmp_path, sentences):
    original = tokenizers[kind]
    path = original.save(tmp_path / "run" / "tokenizer.json")
    for place in (path, path.parent):
        loaded = Tokenizer.load(place)
        assert loaded.roles == original.roles
        assert loaded.vocab_size == original.vocab_size
        assert loaded.encode(sentences[2]).ids.tolist() == original.encode(sentences[2]).ids.tolist()
    assert sorted(p.name for p in path.parent.iterdir()) == ["tokenizer.json"]


def test_of_words_the_commonest_are_known():
    tokenizer = Tokenizer(train_tokenizer(["The cat, the Dog; a cat"] * 2, "word", 20))
    known = sorted(tokenizer.vocabulary, key=tokenizer.vocabulary.get)
    assert known[5:] == ["cat", "the", ",", ";", "a", "dog"]
    assert tokenizer.tokens(tokenizer.encode("the dogs a cat").ids) == ["the", "[UNK]", "a", "cat"]


def test_unusual_roles_survive_saving(tokenizers, tmp_path):
    backend = tokenizers["wordpiece"].backend.from_str(tokenizers["wordpiece"].backend.to_str())
    backend.add_special_tokens(["<<M>>"])
    tokenizer = Tokenizer(backend, {"mask": "<<M>>"})
    loaded = Tokenizer.load(tokenizer.save(tmp_path))
    assert loaded.id("mask") == tokenizer.id("mask") == backend.token_to_id("<<M>>")


def test_huggingface_folder_states_the_roles(tokenizers, tmp_path):
    tokenizers["bpe"].save(tmp_path)
    config = {"cls_token": {"content": "<pad>"}, "do_lower_case": True, "mask_token": "not there"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = Tokenizer.load(tmp_path)
    assert loaded.roles["cls"] == "<pad>"
    assert loaded.roles["mask"] == "<mask>"


def test_stated_padding_and_truncation_are_not_used(tokenizers, tmp_path):
    backend = tokenizers["wordpiece"].backend.from_str(tokenizers["wordpiece"].backend.to_str())
    backend.enable_truncation(3)
    backend.enable_padding(length=64)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert 3 < len(Tokenizer.load(tmp_path).encode("the river flows past old Hamburg")) < 64


def test_bert_vocabulary_tokenizes_as_the_release(shared):
    folder = shared / "golden" / "ernie_thu" / "data_conventions"
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    for row in json.loads((folder / "alignment.json").read_text()):
        assert tokenizer.tokens(tokenizer.encode(row["text"]).ids) == row["tokens"]


def test_cased_vocabulary_is_recognised(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nParis\nparis\n", encoding="utf-8")
    cased = Tokenizer.load(tmp_path)
    assert cased.tokens(cased.encode("Paris paris").ids) == ["Paris", "paris"]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    uncased = Tokenizer.load(tmp_path)
    assert uncased.tokens(uncased.encode("Paris paris").ids) == ["paris", "paris"]


def test_old_byte_level_layout(tokenizers, tmp_path, sentences):
    tokenizers["bpe"].backend.model.save(str(tmp_path))
    loaded = Tokenizer.load(tmp_path)
    lower = sentences[0].lower()
    assert loaded.encode(lower).ids.tolist() == tokenizers["bpe"].encode(lower).ids.tolist()
    assert loaded.id("mask") == tokenizers["bpe"].id("mask")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, "", "there is no tokenizer at"),
        ("tokenizer.json", "{}", "is not a tokenizer definition"),
        ("tokenizer.json", "not json", "is not a tokenizer definition"),
        ("vocab.txt", "a\nb\n", r"holds \[UNK\]"),
        ("readme.md", "x", "holds no tokenizer: found readme.md"),
    ],
)
def test_bad_files_are_reported(tmp_path, name, content, message):
    folder = tmp_path / "tokenizer"
    if name:
        folder.mkdir()
        (folder / name).write_text(content)
    with pytest.raises(WorkbenchError, match=message):
        Tokenizer.load(folder)


def test_ids_with_gaps_have_rows_in_a_table(sentences):
    definition = json.loads(train_tokenizer(sentences, "wordpiece", 300).to_str())
    vocabulary = definition["model"]["vocab"]
    moved = max(vocabulary, key=vocabulary.get)
    vocabulary[moved] += 7
    gaps = Tokenizer(tokenizers_library.Tokenizer.from_str(json.dumps(definition)))
    assert gaps.vocab_size == vocabulary[moved] + 1


def test_definition_that_cannot_encode_is_reported(sentences):
    backend = train_tokenizer(sentences, "wordpiece", 300)
    definition = json.loads(backend.to_str())
    definition["model"]["unk_token"] = "[UMK]"  # a flipped bit
    damaged = Tokenizer(type(backend).from_str(json.dumps(definition)))
    with pytest.raises(WorkbenchError, match=r"cannot encode this text.*UNK.*damaged"):
        damaged.encode("☃")


def test_vocabulary_that_is_not_utf8_is_reported(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\n\xff\n")
    with pytest.raises(WorkbenchError, match="not UTF-8"):
        Tokenizer.load(tmp_path)


def test_missing_role_is_reported(tokenizers):
    backend = tokenizers["wordpiece"].backend
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    bare = Tokenizer(Backend(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "a": 2}, unk_token="[UNK]")))
    with pytest.raises(WorkbenchError, match=r"no mask token; it has .*cls = '\[CLS\]'"):
        bare.id("mask")
    with pytest.raises(WorkbenchError, match="'<x>' is not in the vocabulary"):
        Tokenizer(backend, {"mask": "<x>"})
    with pytest.raises(WorkbenchError, match="unknown special-token role 'msk'"):
        Tokenizer(backend, {"msk": "[MASK]"})


def test_ordinary_ids_are_the_rest(tokenizers):
    for tokenizer in tokenizers.values():
        both = np.concatenate([tokenizer.ordinary_ids, tokenizer.special_ids])
        assert sorted(both.tolist()) == list(range(tokenizer.vocab_size))


TRAIN = """
import hashlib, sys
from workbench.text.tokenizer import train_tokenizer
texts = [line.rstrip("\\n") for line in sys.stdin]
print([hashlib.sha256(train_tokenizer(iter(texts), kind, size).to_str().encode()).hexdigest()
       for kind, size in (("wordpiece", 200), ("bpe", 400), ("unigram", 120))])
"""


def test_training_is_the_same_in_every_process(sentences):
    texts = "\n".join(sentences * 3)
    command = [sys.executable, "-c", TRAIN]
    results = {
        subprocess.run(command, input=texts, capture_output=True, text=True, check=True).stdout for _ in range(3)
    }
    assert len(results) == 1
    assert len(results.pop()) > 100


FORKED = """
import os, sys
from workbench.text.tokenizer import Tokenizer, train_tokenizer
tokenizer = Tokenizer(train_tokenizer(["the old river flows"] * 50, "wordpiece", 60))
tokenizer.encode_batch(["the river"] * 50)
child = os.fork()
if child == 0:
    os._exit(0 if len(tokenizer.encode_batch(["the river"] * 50)) == 50 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_encoding_in_a_forked_worker_is_quiet():
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert (result.returncode, result.stderr) == (0, "")


def test_training_in_a_fork_of_a_process_that_trained(sentences):
    """The threads of the first training are not there in the fork; its training must not wait for them."""
    train_tokenizer(sentences, "wordpiece", 200)
    process = multiprocessing.get_context("fork").Process(target=train_tokenizer, args=(sentences, "wordpiece", 200))
    process.start()
    process.join(timeout=600)
    hangs = process.is_alive()
    process.kill()
    assert not hangs
    assert process.exitcode == 0


def test_training_learns_words(sentences):
    tokenizer = Tokenizer(train_tokenizer(sentences * 5, "wordpiece", 220, lowercase=False))
    assert "Hamburg" not in tokenizer.tokens(tokenizer.encode("hamburg").ids)
    assert tokenizer.tokens(tokenizer.encode("capital").ids) == ["capital"]
    assert tokenizer.decode(tokenizer.encode("capital of rivers").ids) == "capital of rivers"
    assert tokenizer.vocab_size == 220


def test_training_from_nothing_or_with_bad_options(sentences):
    assert Tokenizer(train_tokenizer([], "wordpiece", 100)).vocab_size == 5
    with pytest.raises(WorkbenchError, match="unknown kind of tokenizer 'wordpeice'"):
        train_tokenizer(sentences, "wordpeice", 100)  # type: ignore[arg-type]
    with pytest.raises(WorkbenchError, match="use at least 300"):
        train_tokenizer(sentences, "bpe", 100)


@pytest.mark.parametrize("listed", [False, True])
def test_a_tokenizer_of_special_tokens_alone_is_refused(tmp_path: Path, listed: bool) -> None:
    special = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    bare = tokenizers_library.Tokenizer(tokenizers_library.models.WordPiece(special, unk_token="[UNK]"))
    bare.add_special_tokens([*special])
    bare.save(str(tmp_path / "tokenizer.json"))
    advice = "prepare tokenizer"
    if listed:
        (tmp_path / "vocab.txt").write_text("\n".join([*special, "river"]))
        advice = r"vocab\.txt lies next to it"
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        with pytest.raises(WorkbenchError, match=rf"has only special tokens \(\[CLS\], .*{advice}"):
            Tokenizer.load(place)
    if listed:
        assert len(Tokenizer.load(tmp_path / "vocab.txt").ordinary_ids) == 1


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tokenizer_config.json": {"do_lower_case": True}}, "do_lower_case = True, but the tokenizer keeps capitals"),
        ({"tokenizer_config.json": {"mask_token": "[NO]"}}, "names the mask token '[NO]', which is not in the"),
        (
            {"tokenizer_config.json": {"mask_token": "a"}, "special_tokens_map.json": {"mask_token": "b"}},
            "the mask token is 'a' in tokenizer_config.json, 'b' in special_tokens_map.json; that of special",
        ),
        (
            {"tokenizer_config.json": {"added_tokens_decoder": {"7": {"content": "a"}}}},
            "_config.json has 1 tok",
        ),
        ({"vocab.json": {"a": 1, "b": 1}}, "vocab.json has 1 tokens that the tokenizer lacks or that have another id"),
    ],
)
def test_files_of_a_folder_that_differ_are_reported(tmp_path, caplog, files, said):
    vocabulary = {"[UNK]": 0, "a": 1, "b": 2}
    tokenizers_library.Tokenizer(tokenizers_library.models.WordLevel(vocabulary, unk_token="[UNK]")).save(
        str(tmp_path / "tokenizer.json")
    )
    Tokenizer.load(tmp_path)
    assert not caplog.text
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    Tokenizer.load(tmp_path)
    Tokenizer.load(tmp_path)
    assert caplog.text.count(said) == 1
