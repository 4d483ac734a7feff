"""CLIP's own tokenizer, by its vocab.json and merges.txt: the ids of its library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from workbench.text.tokenizer import Tokenizer

MERGES = ["t h", "th e</w>", "c a", "ca t</w>", "d o", "do g</w>", "p h", "o t", "ph ot", "phot o</w>", "o f</w>"]
TEXTS = [
    "a photo of the cat",
    "The  Dogs' dog's\tDOG\n cat's",
    "in 1984, 3.5 cats & dogs!!! (photo)",
    "Grüße aus Köln: naïve café ☃ 猫",
    "don't they'll we've i'm you're he'd",
    "typed <|endoftext|> here",
    "",
]


def bytes_as_letters() -> list[str]:
    """The letters that stand for the 256 bytes, in the order of GPT-2's code."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + number) for number in range(len(others))]


def clip_tokenizer(folder: Path) -> Path:
    """A folder with a small vocabulary of CLIP's kind: letters, letters that end words, merges, the two ends."""
    letters = bytes_as_letters()
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(pair.split()) for pair in MERGES)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}), "utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n", "utf-8")
    return folder


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_library(text: str, tmp_path: Path) -> None:
    folder = clip_tokenizer(tmp_path)
    ours, theirs = Tokenizer.load(folder), transformers.CLIPTokenizer.from_pretrained(str(folder))
    ids = theirs(text, split_special_tokens=True)["input_ids"]
    assert [ours.id("bos"), *ours.encode(text).ids.tolist(), ours.id("eos")] == ids
    if "<|" not in text:
        decoded = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ours.encode(text).ids).strip() == decoded


def test_words_are_found_again_in_the_text(tmp_path: Path) -> None:
    text = "The  Cat's PHOTO"
    encoded = Tokenizer.load(clip_tokenizer(tmp_path)).encode(text)
    pieces = [text[start:end] for start, end in zip(encoded.starts, encoded.ends, strict=True)]
    assert pieces == ["The", "Cat", "'", "s", "PHOTO"]


def test_saved_it_is_the_same(tmp_path: Path) -> None:
    one = Tokenizer.load(clip_tokenizer(tmp_path / "theirs"))
    one.save(tmp_path / "tokenizer.json")
    other = Tokenizer.load(tmp_path / "tokenizer.json")
    assert [other.encode(text).ids.tolist() for text in TEXTS] == [one.encode(text).ids.tolist() for text in TEXTS]
