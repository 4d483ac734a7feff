"""The corpora of `benchmarks.tiny_systems`: what recipes of a kind name, from raw data by ordinary commands.

A recipe finds its corpora by their names in one folder (`vars.data`), the held-out part of each next to it. So a system
that needs something else needs a line here, or a folder of its own (`FOLDERS`) where others have another thing of the
same name, or a change to its recipe (`OVERRIDES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from timm.data import ImageNetInfo

from benchmarks.plays import write_dialogues
from benchmarks.raw_vision import RawVision
from benchmarks.real_data import BACKBONE, call
from benchmarks.reviews import write_reviews
from workbench.corpora.corpus import Corpus

Kind = Literal["text", "knowledge", "vision_language"]
Made = tuple[str, ...]
"""Where among the corpora something is put, and the arguments of `workbench` that make it."""

STATED = "fields={captions: sentence, labels: [label]}"
PARTS = (("train", ""), ("dev", "-held-out"))
"""What of the raw data is held out."""

MULTILINGUAL, DESCRIBED, REVIEWS, POOLED = "multi30k", "described", "reviews", "pooled"
FOLDERS = {
    "cove": MULTILINGUAL,
    "dual-encoder-pretrained": POOLED,
    "kelm": DESCRIBED,
    "kepler": DESCRIBED,
    "kg-bert": DESCRIBED,
    "sentilr": REVIEWS,
    "unicoder": MULTILINGUAL,
    "mbart": MULTILINGUAL,
    "mbert": MULTILINGUAL,
    "mt5": MULTILINGUAL,
    "wklm": DESCRIBED,
    "xlm": MULTILINGUAL,
    "xlm-roberta": MULTILINGUAL,
}
"""Systems that read other corpora than the rest of their kind, and where these lie among them."""
VIDEOS, VIDEO_FEATURES = "video-tokens", ["vars.backbone={backbone}", "vars.feature_size=1280"]
OVERRIDES = {
    "cbt": VIDEO_FEATURES,
    "e-bert": ["model.init_from={corpora}/bert"],
    "joint-entity": ["vars.vectors={corpora}/wordnet.safetensors"],
    "knowbert": ["vars.wiki={corpora}/entities.safetensors"],
    "knowbert-linkers": ["vars.wiki={corpora}/entities.safetensors"],
    "univl": VIDEO_FEATURES,
    "videobert": ["vars.backbone={backbone}", "vars.clustering={codes}"],
}
"""Changes to recipes of systems that continue from a model, name a file otherwise, or read features of videos by
another backbone; `{backbone}` and `{codes}` are what made those of the corpus of videos."""


def overrides_of(system: str, corpora: Path) -> list[str]:
    """The changes to a system's recipe that let it read the corpora."""
    videos = corpora / VIDEOS
    names = {"corpora": corpora, **(Corpus.open(videos).manifest.about if videos.is_dir() else {})}
    folder = corpora / FOLDERS.get(system, "")
    return [f"vars.data={folder}", *(each.format(**names) for each in OVERRIDES.get(system, ()))]


def prepare(kind: Kind, data: Path, corpora: Path) -> None:
    """Make what the systems of a kind read and is not there already."""
    corpora.mkdir(parents=True, exist_ok=True)
    for name, *command in MAKERS[kind](data, corpora):
        if not (corpora / name).exists():
            call(*command, "--output", str(corpora / name))


def text(data: Path, corpora: Path) -> Iterator[Made]:
    """Articles, what is counted in them, their links and phrases; dialogues; texts in several languages."""
    dialogues = write_dialogues(data / "gutenberg/books.jsonl", corpora / "dialogues.jsonl")
    articles, tokenizer = str(corpora / "text"), str(corpora / "tokenizer.json")
    yield "text", "prepare", "text", str(data / "wikitext2/valid.txt"), "--split", "held-out=0.1"
    yield "tokenizer.json", "prepare", "tokenizer", articles, "--vocab-size", "1000"
    yield "similar-words.safetensors", "prepare", "similar-words", articles, "--tokenizer", tokenizer
    yield "token-counts.json", "prepare", "token-counts", articles, "--tokenizer", tokenizer
    yield "cells", "prepare", "cooccurrence", articles, "--tokenizer", tokenizer, "--split", "held-out=0.1"
    yield "linked", "prepare", "text", str(data / "wiki_linked/docs_train.jsonl"), "--split", "held-out=0.2"
    yield "linked-phrases", "prepare", "phrases", str(corpora / "linked")
    yield "linked-phrases-held-out", "prepare", "phrases", str(corpora / "linked-held-out")
    yield "dialogues", "prepare", "text", str(dialogues), "--split", "held-out=0.1"
    two = "fields={speakers: null}"  # whoever speaks in turn: a user and the assistant
    yield "chats", "prepare", "text", str(dialogues), "--option", two, "--split", "held-out=0.1"
    yield from _multilingual(data / "multi30k", MULTILINGUAL, corpora)


def _multilingual(data: Path, folder: str, corpora: Path) -> Iterator[Made]:
    """Texts in four languages, their translations, and a tokenizer of all."""
    languages = ("cs", "de", "en", "fr")
    for part, end in (("train", ""), ("val", "-held-out")):
        for language in languages:
            options = ("--language", language, "--option", "document=line")
            yield f"{folder}/{language}{end}", "prepare", "text", str(data / f"{part}.{language}"), *options
        pairs = (str(data / f"{part}.{language}") for language in languages)
        yield f"{folder}/pairs{end}", "prepare", "text", *pairs
    texts = (str(corpora / folder / language) for language in languages)
    options = ("--kind", "bpe", "--no-lowercase", "--size-exponent", "0.5", "--vocab-size", "1000")
    yield f"{folder}/tokenizer.json", "prepare", "tokenizer", *texts, *options


def knowledge(data: Path, corpora: Path) -> Iterator[Made]:
    """Wikipedia's own links to entities of CoDEx-M, and links by their names next to them; CoDEx-S, whose entities are
    all described, with the descriptions as texts; WordNet; sentences of relations, parsed ones, reviews, captions."""
    articles = (str(data / "wiki_linked/docs_train.jsonl"), "--split", "held-out=0.2")
    yield from _linked(data / "codex/codex-m", articles, corpora, "")
    yield "entities.safetensors", *_vectors(corpora / "graph", "10")
    texts = (str(data / "codex/entity_text_codex-s.jsonl"), "--option", "text_field=extract", "--on-error", "skip")
    yield from _linked(data / "codex/codex-s", (*texts, "--split", "held-out=0.1"), corpora, f"{DESCRIBED}/")
    for end in ("", "-held-out"):
        graph = str(corpora / DESCRIBED / f"graph{end}")
        yield f"{DESCRIBED}/sentences{end}", "prepare", "sentences", graph
    yield "entity-vocabulary.safetensors", "prepare", "entity-vocabulary", str(corpora / "wiki-linked")
    for part, end in PARTS:
        yield f"relations{end}", "prepare", "text", str(data / f"fewrel/wiki_{part}.jsonl")
    trees, parser = str(corpora / "trees.conllu"), ("--model", str(data / "en_core_web_sm"))
    yield "trees.conllu", "prepare", "parses", str(corpora / "text"), *parser
    yield "parsed", "prepare", "text", trees, "--split", "held-out=0.1"
    yield from _words_and_entities(corpora)
    yield from _wordnet(data, corpora)
    yield from _reviews(data, corpora)
    yield from _captions(data / "flickr8k", corpora)
    yield from _candidates(data, corpora)


def _vectors(graph: Path, epochs: str) -> Made:
    return "prepare", "vectors", str(graph), "--dim", "32", "--epochs", epochs


def _linked(triples: Path, texts: tuple[str, ...], corpora: Path, folder: str) -> Iterator[Made]:
    """A graph, its valid triples held out, texts, a tokenizer of both, and the texts with their links."""
    graph, text = (str(corpora / folder / name) for name in ("graph", "text"))
    for part, end in (("train", ""), ("valid", "-held-out")):
        yield f"{folder}graph{end}", "prepare", "triples", str(triples), "--option", f"part={part}"
    yield f"{folder}text", "prepare", "text", *texts
    yield f"{folder}tokenizer.json", "prepare", "tokenizer", text, graph, "--vocab-size", "4000"
    for end in ("", "-held-out"):
        yield f"{folder}wiki-linked{end}", "prepare", "link", f"{text}{end}", "--graph", graph, "--keep"


def _words_and_entities(corpora: Path) -> Iterator[Made]:
    """BERT, and vectors of entities mapped into the space of its words."""
    overrides = (f"vars.data={corpora}", "train.save_every=0")
    yield "bert", "pretrain", "bert-tiny", *overrides
    linked, more = str(corpora / "wiki-linked"), ("--min-count", "2", "--epochs", "10")
    yield "joint.txt", "prepare", "joint-vectors", linked, *more
    mapped = ("--from", str(corpora / "joint.txt"), "--map-to", str(corpora / "bert"))
    yield "mapped.safetensors", "prepare", "vectors", str(corpora / "graph"), *mapped


def _wordnet(data: Path, corpora: Path) -> Iterator[Made]:
    """WordNet as a graph; its vectors, the supersenses of words, and pairs of words that it relates."""
    graph = corpora / "wordnet"
    yield "wordnet", "prepare", "triples", str(data / "wordnet")
    yield "wordnet.safetensors", *_vectors(graph, "3")
    tokenizer = ("--tokenizer", str(corpora / "tokenizer.json"))
    yield "supersenses.json", "prepare", "supersenses", str(graph), *tokenizer
    texts = ("--texts", str(corpora / "text"), "--split", "held-out=0.02")
    yield "word-pairs", "prepare", "word-pairs", str(graph), *texts, "--dim", "32"


def _candidates(data: Path, corpora: Path) -> Iterator[Made]:
    """Candidates: of a wiki and of WordNet in texts, of the wiki for links that people made, of WordNet in examples of
    senses."""
    yield "examples", "prepare", "text", str(data / "wordnet"), "--split", "held-out=0.02"
    graph, wordnet = (("--graph", str(corpora / name), "--candidates", "30") for name in ("graph", "wordnet"))
    for end in ("", "-held-out"):
        text, examples, once = (str(corpora / f"{name}{end}") for name in ("text", "examples", "text-once"))
        yield f"text-once{end}", "prepare", "link", text, *graph
        yield f"text-linked{end}", "prepare", "link", once, *wordnet, "--alongside"
        links = str(corpora / f"wiki-links{end}")
        yield f"wiki-links{end}", "prepare", "link", text, *graph, "--supervise"
        yield f"mentions{end}", "prepare", "mentions", links, *graph[:2]
        yield f"senses{end}", "prepare", "link", examples, *wordnet, "--supervise"


def _captions(data: Path, corpora: Path) -> Iterator[Made]:
    """Captions of images, linked to WordNet."""
    for part, end in PARTS:
        yield f"captions{end}", "prepare", "image-text", str(data / f"captions_{part}.jsonl")
        linked = (str(corpora / f"captions{end}"), "--graph", str(corpora / "wordnet"))
        yield f"captions-linked{end}", "prepare", "link", *linked


def _reviews(data: Path, corpora: Path) -> Iterator[Made]:
    """Reviews with their words' polarities, and a tokenizer of them."""
    plain, ratings = corpora / REVIEWS / "text", data / "sentiment/movieReviewSnippets_GroundTruth.txt"
    rated = write_reviews(ratings, corpora / "reviews.jsonl")
    yield f"{REVIEWS}/text", "prepare", "text", str(rated), "--split", "held-out=0.1"
    yield f"{REVIEWS}/tokenizer.json", "prepare", "tokenizer", str(plain), "--vocab-size", "4000"
    senses = ("--senses", str(data / "wordnet/index.sense"))
    yield "polarity.tsv", "prepare", "sentiment-lexicon", str(data / "sentiment/en-sentiment.xml"), *senses
    for end in ("", "-held-out"):
        lexicon = ("--lexicon", str(corpora / "polarity.tsv"))
        yield f"{REVIEWS}/reviews-tagged{end}", "prepare", "sentiment", f"{plain}{end}", *lexicon


def vision_language(data: Path, corpora: Path) -> Iterator[Made]:
    """Captions of photos, questions about others and statements about drawings, features and classes of the cells of
    all, the names of the classes, answers, articles, a tokenizer of captions and articles; videos built from the
    photos, captions read aloud."""
    write_class_names(corpora / "objects.txt")
    texts = [str(corpora / name) for name in ("image-text", "text")]
    grid = (*BACKBONE, "--grid", "4", "--scores")
    for part, end in PARTS:
        yield f"image-text{end}", "prepare", "image-text", str(data / f"flickr8k/captions_{part}.jsonl")
        yield f"image-text-grid{end}", "prepare", "regions", f"{texts[0]}{end}", *grid
        pooled = (f"{texts[0]}{end}", *BACKBONE, "--grid", "1")
        yield f"{POOLED}/image-text-grid{end}", "prepare", "regions", *pooled
        yield f"questions{end}", "prepare", "image-text", str(data / f"vqa_v2/questions_{part}.jsonl")
        yield f"questions-grid{end}", "prepare", "regions", str(corpora / f"questions{end}"), *grid
        stated = ("--format", "media-jsonl", "--option", "media_field=images", "--option", STATED)
        yield f"statements{end}", "prepare", "image-text", str(data / f"nlvr/{part}.jsonl"), *stated
        yield f"statements-grid{end}", "prepare", "regions", str(corpora / f"statements{end}"), *grid
    yield "answers.json", "prepare", "answers", str(corpora / "questions"), "--min-count", "3"
    yield "text", "prepare", "text", str(data / "wikitext2/valid.txt"), "--split", "held-out=0.1"
    yield "tokenizer.json", "prepare", "tokenizer", *texts, "--vocab-size", "4000"
    yield from _videos_and_speech(RawVision(data, corpora / "raw"), corpora)


def write_class_names(file: Path) -> None:
    """The names of the classes of the backbone of the grid, a line each."""
    known = ImageNetInfo()
    file.write_text("".join(f"{known.index_to_description(number)}\n" for number in range(known.num_classes())))


def _videos_and_speech(raw: RawVision, corpora: Path) -> Iterator[Made]:
    """Videos, features of their clips, the tokens of these; spectra of speech with the times of its words."""
    vocabulary = "clip-vocabulary.safetensors"
    for part, end in PARTS:
        videos, spoken = raw.videos(part), raw.spoken(part)
        yield f"videos{end}", "prepare", "video-text", str(videos), "--videos", str(videos.with_suffix(""))
        clips = (*BACKBONE, "--size", "128", "--rate", "2")
        yield f"clips{end}", "prepare", "clips", str(corpora / f"videos{end}"), *clips
        sounds = ("--sounds", str(spoken.with_suffix("")), "--mels", "20")
        yield f"speech{end}", "prepare", "speech-text", str(spoken), *sounds
    yield vocabulary, "prepare", "clip-vocabulary", str(corpora / "clips"), "--branches", "6", "--levels", "2"
    for _, end in PARTS:
        known = ("--vocabulary", str(corpora / vocabulary))
        yield f"{VIDEOS}{end}", "prepare", "clip-tokens", str(corpora / f"clips{end}"), *known


MAKERS: dict[Kind, Callable[[Path, Path], Iterator[Made]]] = {
    "text": text,
    "knowledge": knowledge,
    "vision_language": vision_language,
}
