"""The allowed supersenses of each token, in one JSON file that `prepare supersenses` writes.

Levine et al., "SenseBERT: Driving Some Sense into BERT", ACL 2020 (arXiv:1908.05646), section 3.2. A(w) is the union of
the classes of all synsets that one of the base forms of w names. It is empty for words of up to 3 characters, for stop
words (`kg.linking.common_words`) and for tokens that are no whole words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kg.graph.shuffle import FALSE_FACTS
from kg.graph.store import GraphStore
from kg.lexicons.base_forms import base_forms
from kg.linking.common_words import ENGLISH
from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.drafts import write_text
from workbench.core.files.text_files import parse_json
from workbench.text.tokenizer import Tokenizer

KIND = "supersenses"
ROUNDS = 100
"""How often words that met their own supersenses are exchanged again."""
SHORT = 3
"""Words of so many characters are often abbreviations, and have no supersense."""


class SupersenseTable(NamedTuple):
    """The names of the classes, and by the id of a token whether it may be of each: bool [tokens, classes]."""

    classes: list[str]
    allowed: np.ndarray

    def under(self, control: str | None, seed: int) -> SupersenseTable:
        """What a control leaves of them: `no-kg` nothing, `shuffled-kg` those of other words at each word, and
        `permuted-kg` those of any word at each.

        Words exchange theirs, so that as many have each of them, and single ones, as before; none keeps its own where
        there are enough others (`shuffled-kg`). The same seed makes the same exchange.
        """
        if control == "no-kg":
            return SupersenseTable(self.classes, np.zeros_like(self.allowed))
        if control not in FALSE_FACTS:
            return self
        words = np.flatnonzero(self.allowed.any(1))
        allowed = self.allowed.copy()
        rows = self.allowed[words]
        order = (
            _exchanged(rows, seed) if control == "shuffled-kg" else np.random.default_rng(seed).permutation(len(rows))
        )
        allowed[words] = rows[order]
        return SupersenseTable(self.classes, allowed)


def find_supersenses(graph: GraphStore, tokenizer: Tokenizer) -> SupersenseTable:
    """The supersenses of the tokens of a vocabulary, from a graph of synsets whose types are their classes.

    Raises:
        WorkbenchError: the graph has no types, or no token is a word of it.
    """
    meanings = _meanings(graph)
    classes = sorted({name for found in meanings.values() for name in found})
    if not classes:
        raise WorkbenchError(
            f"the graph {graph.path} has no types, which are the classes of senses; prepare WordNet's folder `dict` "
            "(workbench prepare triples dict --output CORPUS)"
        )
    numbers = {name: number for number, name in enumerate(classes)}
    allowed = np.zeros((tokenizer.vocab_size, len(classes)), np.bool_)
    for token, word in _whole_words(tokenizer):
        for name in senses_of(word, meanings):
            allowed[token, numbers[name]] = True
    if not allowed.any():
        raise WorkbenchError(
            f"no token of the vocabulary is a word of the graph {graph.path} with a sense; give a larger vocabulary "
            "(SenseBERT's has 60,000 tokens), or a graph of the vocabulary's language"
        )
    return SupersenseTable(classes, allowed)


def senses_of(word: str, meanings: Mapping[str, set[str]]) -> set[str]:
    """The classes that a word may be of, A(w).

    Args:
        word: in small letters.
        meanings: the classes of each base form.
    """
    if len(word) <= SHORT or word in ENGLISH:
        return set()
    return {
        name
        for part in ("noun", "verb", "adj", "")
        for form in base_forms(word, part)
        for name in meanings.get(form, ())
        if form == word or name.partition(".")[0] == part
    }


def save_supersenses(path: Path, senses: SupersenseTable, tokenizer: str, provenance: Mapping[str, Any]) -> None:
    """Write the file, whole or not at all.

    Args:
        tokenizer: its identity.
        provenance: how it was made.
    """
    found = {str(token): np.flatnonzero(row).tolist() for token, row in enumerate(senses.allowed) if row.any()}
    record = {"kind": KIND, "tokenizer": tokenizer, "provenance": dict(provenance), "classes": senses.classes}
    write_text(path, json.dumps({**record, "allowed": found}, ensure_ascii=False) + "\n")


def read_supersenses(path: str | Path, tokenizer: Tokenizer) -> SupersenseTable:
    """The supersenses of the tokens; what was read is noted for the run.

    Raises:
        WorkbenchError: there is no such file, it holds something else, or it is of another tokenizer.
    """
    make = f"`workbench prepare supersenses GRAPH --tokenizer TOKENIZER --output {quoted(path)}`"
    try:
        raw = Path(path).read_bytes()
        record = parse_json(raw)
    except OSError as error:
        raise WorkbenchError(f"supersenses {path}: {error.strerror or error}; {make} finds them") from error
    except ValueError as error:  # no JSON, or not in UTF-8
        raise WorkbenchError(f"{path} holds no supersenses ({error}); {make} finds them") from error
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise WorkbenchError(f"{path} holds no supersenses; {make} finds them")
    if record.get("tokenizer") != tokenizer.identity:
        raise WorkbenchError(f"{path} has the supersenses of another tokenizer's tokens; {make} with the recipe's")
    try:
        classes = [str(name) for name in record["classes"]]
        allowed = np.zeros((tokenizer.vocab_size, len(classes)), np.bool_)
        for token, row in record["allowed"].items():
            allowed[int(token), np.asarray(row, np.int64)] = True
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise WorkbenchError(f"{path} is damaged ({type(error).__name__}: {error}); {make} finds them again") from error
    note(KIND, path, hashlib.sha256(raw).hexdigest())
    return SupersenseTable(classes, allowed)


def _exchanged(rows: np.ndarray, seed: int) -> np.ndarray:
    """Whose row each row gets: an order of all [rows], at random, in which a row meets its like as seldom as may be."""
    rng = np.random.default_rng(seed)
    kinds = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    order = rng.permutation(len(rows))
    for _ in range(ROUNDS):
        same = np.flatnonzero(kinds[order] == kinds)
        if not len(same):
            break
        others = rng.permutation(np.setdiff1d(np.arange(len(rows)), same))[: len(same)]
        both = np.concatenate([same, others])
        order[both] = order[rng.permutation(both)]
    return order


def _meanings(graph: GraphStore) -> dict[str, set[str]]:
    """The types of the entities of each name, in small letters."""
    found: dict[str, set[str]] = {}
    for row in range(graph.num_entities):
        texts = graph.texts_of(row)
        types = texts.get("types", ())
        if types:
            for name in (graph.label_of(row), *texts.get("aliases", ())):
                found.setdefault(name.lower(), set()).update(types)
    return found


def _whole_words(tokenizer: Tokenizer) -> Iterator[tuple[int, str]]:
    """The tokens that are a word by themselves, in small letters: what they spell is one token again."""
    ids = tokenizer.ordinary_ids.tolist()
    spelt = [tokenizer.decode([token]) for token in ids]
    for token, text, encoded in zip(ids, spelt, tokenizer.encode_batch(spelt), strict=True):
        if encoded.ids.tolist() == [token] and text.strip().isalpha():
            yield token, text.strip().lower()
