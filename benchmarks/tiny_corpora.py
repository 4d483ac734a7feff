"""The corpora of `benchmarks.tiny_systems`: what recipes of a kind name, from raw data by `workbench prepare`.

A recipe finds its corpora by their names in one folder (`vars.data`), the held-out part of each beside it. So a system
that needs something else needs a line here, or a folder of its own (`FOLDERS`) where others have another thing of the
same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from benchmarks.plays import write_dialogues
from benchmarks.real_data import call

Kind = Literal["text", "knowledge"]
Made = tuple[str, ...]
"""Where among the corpora something is put, and the arguments of `workbench prepare` that make it."""

MULTILINGUAL, DESCRIBED = "multi30k", "described"
FOLDERS = {"xlm": MULTILINGUAL, "kepler": DESCRIBED, "kg-bert": DESCRIBED, "wklm": DESCRIBED}
"""Systems that read other corpora than the rest of their kind, and where these lie among them."""


def prepare(kind: Kind, data: Path, corpora: Path) -> None:
    """Make what the systems of a kind read and is not there already."""
    corpora.mkdir(parents=True, exist_ok=True)
    for name, *command in MAKERS[kind](data, corpora):
        if not (corpora / name).exists():
            call("prepare", *command, "--output", str(corpora / name))


def text(data: Path, corpora: Path) -> Iterator[Made]:
    """Articles, their similar words, links and phrases; dialogues; texts in several languages."""
    dialogues = write_dialogues(data / "gutenberg/books.jsonl", corpora / "dialogues.jsonl")
    articles, tokenizer = str(corpora / "text"), str(corpora / "tokenizer.json")
    yield "text", "text", str(data / "wikitext2/valid.txt"), "--split", "held-out=0.1"
    yield "tokenizer.json", "tokenizer", articles, "--vocab-size", "1000"
    yield "similar-words.safetensors", "similar-words", articles, "--tokenizer", tokenizer
    yield "linked", "text", str(data / "wiki_linked/docs_train.jsonl"), "--split", "held-out=0.2"
    yield "linked-phrases", "phrases", str(corpora / "linked")
    yield "linked-phrases-held-out", "phrases", str(corpora / "linked-held-out")
    yield "dialogues", "text", str(dialogues), "--split", "held-out=0.1"
    yield from _multilingual(data / "multi30k", MULTILINGUAL, corpora)


def _multilingual(data: Path, folder: str, corpora: Path) -> Iterator[Made]:
    """Texts in four languages, their translations, and a tokenizer of all."""
    languages = ("cs", "de", "en", "fr")
    for part, end in (("train", ""), ("val", "-held-out")):
        for language in languages:
            told = ("--language", language, "--option", "document=line")
            yield f"{folder}/{language}{end}", "text", str(data / f"{part}.{language}"), *told
        yield f"{folder}/pairs{end}", "text", *(str(data / f"{part}.{language}") for language in languages)
    texts = (str(corpora / folder / language) for language in languages)
    told = ("--kind", "bpe", "--no-lowercase", "--size-exponent", "0.5", "--vocab-size", "1000")
    yield f"{folder}/tokenizer.json", "tokenizer", *texts, *told


def knowledge(data: Path, corpora: Path) -> Iterator[Made]:
    """Wikipedia's own links to entities of CoDEx-M, and links by their names beside them; and CoDEx-S, whose entities
    are all described, with the descriptions as texts."""
    articles = (str(data / "wiki_linked/docs_train.jsonl"), "--split", "held-out=0.2")
    yield from _linked(data / "codex/codex-m", articles, corpora, "")
    yield "entities.safetensors", "vectors", str(corpora / "graph"), "--dim", "32", "--epochs", "10"
    texts = (str(data / "codex/entity_text_codex-s.jsonl"), "--option", "text_field=extract", "--on-error", "skip")
    yield from _linked(data / "codex/codex-s", (*texts, "--split", "held-out=0.1"), corpora, f"{DESCRIBED}/")


def _linked(triples: Path, texts: tuple[str, ...], corpora: Path, folder: str) -> Iterator[Made]:
    """A graph, its valid triples held out, texts, a tokenizer of both, and the texts with their links."""
    graph, text = (str(corpora / folder / name) for name in ("graph", "text"))
    for part, end in (("train", ""), ("valid", "-held-out")):
        yield f"{folder}graph{end}", "triples", str(triples), "--option", f"part={part}"
    yield f"{folder}text", "text", *texts
    yield f"{folder}tokenizer.json", "tokenizer", text, graph, "--vocab-size", "4000"
    for end in ("", "-held-out"):
        yield f"{folder}wiki-linked{end}", "link", f"{text}{end}", "--graph", graph, "--keep"


MAKERS: dict[Kind, Callable[[Path, Path], Iterator[Made]]] = {"text": text, "knowledge": knowledge}
