"""What single systems of `benchmarks.knowledge_results` read, and what is asked of single ones: made next to the
inputs.

WordNet's supersenses and word pairs, an entity vocabulary, candidates of mentions, tags of words, relations of marked
mentions, parses, captions with their photographs, words and entities in one space; triples and facts that are held out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.knowledge_systems import WEIGHTS
from kg.graph.store import GraphStore

Made = Callable[..., str]
"""Runs a command of `prepare` where its output (the first argument) is not there; returns the output's path."""

LINKED = "fewrel"
"""The labelled set whose mentions have their entities."""
PHOTOGRAPHS = 1280
MOST = 15
"""Facts that are asked for of a relation, at most."""
CODEX_PARTS = {"described-test": "test.txt", "described-valid": "valid.txt"}
CODEX_PARTS |= {f"{name}-false": path.replace(".txt", "_negatives.txt") for name, path in CODEX_PARTS.items()}

TEMPLATES = {
    "P101": "[X] works in the field of [Y] .",
    "P102": "[X] is a member of the [Y] .",
    "P106": "[X] is a [Y] .",
    "P1303": "[X] plays the [Y] .",
    "P131": "[X] is in [Y] .",
    "P136": "[X] makes [Y] .",
    "P140": "the religion of [X] is [Y] .",
    "P1412": "[X] speaks [Y] .",
    "P17": "[X] is in the country [Y] .",
    "P19": "[X] was born in [Y] .",
    "P20": "[X] died in [Y] .",
    "P27": "[X] is a citizen of [Y] .",
    "P30": "[X] is in the continent of [Y] .",
    "P37": "the official language of [X] is [Y] .",
    "P463": "[X] is a member of [Y] .",
    "P495": "[X] comes from [Y] .",
    "P509": "[X] died of [Y] .",
    "P530": "[X] has diplomatic relations with [Y] .",
    "P551": "[X] lives in [Y] .",
    "P69": "[X] studied at [Y] .",
}


def prepare_extras(data: Path, corpora: Path, sets: list[str], made: Made) -> None:
    """Everything, by the ordinary commands; what is there already is not made again.

    Args:
        sets: names of the labelled corpora.
    """
    single = ("--workers", "1")
    gold, graph, linker = (corpora / name for name in ("wiki-gold", "graph", "linker"))
    made("entity-vocabulary.safetensors", "entity-vocabulary", corpora / "wiki-linked")
    wordnet = made("wordnet", "triples", data / "wordnet")
    made("supersenses.json", "supersenses", wordnet, "--tokenizer", WEIGHTS)
    made("word-pairs", "word-pairs", wordnet, "--texts", gold, "--dim", "50", *single)
    joint = made("joint.txt", "joint-vectors", gold, "--graph", graph, "--min-count", "2", "--epochs", "10")
    made("mapped.safetensors", "vectors", graph, "--from", joint, "--map-to", WEIGHTS)
    made("relations", "text", data / "fewrel/wiki_dev.jsonl", *single)
    trees = made("trees.conllu", "parses", gold, "--model", data / "en_core_web_sm")
    made("parsed", "text", trees, *single)
    shown = (data / "flickr8k/captions_train.jsonl", "--images", data / "flickr8k/images_train.tar")
    captions = made("raw/captions", "image-text", *shown, "--resize", "64", "--limit", str(PHOTOGRAPHS), *single)
    made("captions-linked", "link", captions, "--linker", linker, *single)
    asked(data / "codex", corpora, made)

    offered = ("--linker", linker, "--candidates", "30", *single)
    senses = ("--senses", data / "wordnet/index.sense")
    felt = (
        "--lexicon",
        made("polarity.tsv", "sentiment-lexicon", data / "sentiment/en-sentiment.xml", *senses),
        *single,
    )
    made("wiki-candidates", "link", gold, *offered, "--supervise")
    made("wiki-tagged", "sentiment", corpora / "wiki-linked", *felt)
    made("facts-candidates", "link", corpora / "facts", *offered, "--supervise")
    made("facts-tagged", "sentiment", corpora / "facts", *felt)
    for name in sets:
        known = ("--supervise",) if name.startswith(LINKED) else ()
        made(f"{name}-candidates", "link", corpora / "raw" / name, *offered, *known)
        made(f"{name}-tagged", "sentiment", corpora / name, *felt)
    made("wordnet.safetensors", "vectors", wordnet, "--epochs", "3")
    examples = made("raw/senses", "text", data / "wordnet", *single)
    meant = ("--graph", wordnet, "--candidates", "30", *single)
    made("senses", "link", examples, *meant, "--supervise")
    for name in ("wiki", "facts", *sets):
        made(f"{name}-both", "link", corpora / f"{name}-candidates", *meant, "--alongside")


def asked(codex: Path, corpora: Path, made: Made) -> None:
    """Triples that are true and false, and facts that the graph of the systems lacks; vectors of the described part."""
    for name, path in CODEX_PARTS.items():
        made(name, "triples", codex / "codex-s" / path)
    made("described.safetensors", "vectors", corpora / "described", "--epochs", "30")
    templates = corpora / "raw/templates.tsv"
    templates.write_text("".join(f"{relation}\t{text}\n" for relation, text in TEMPLATES.items()), encoding="utf-8")
    held_out = unseen_triples(codex / "codex-m/valid.txt", corpora / "described", corpora / "raw/held-out.tsv")
    options = ("--templates", templates, "--triples", held_out, "--most", str(MOST), "--workers", "1")
    made("facts", "facts", corpora / "graph", *options)


def unseen_triples(source: Path, described: Path, output: Path) -> Path:
    """Those that the described part lacks too, as systems that read descriptions are trained on it."""
    if not output.exists():
        graph = GraphStore.open(str(described))
        lines = source.read_text(encoding="utf-8").splitlines()
        unseen = [line for line in lines if not _states(graph, *line.split("\t"))]
        output.write_text("".join(f"{line}\n" for line in unseen), encoding="utf-8")
    return output


def _states(graph: GraphStore, head: str, relation: str, tail: str) -> bool:
    return (
        head in graph and tail in graph and graph.relation_ids.find(relation) >= 0 and graph.has(head, relation, tail)
    )
