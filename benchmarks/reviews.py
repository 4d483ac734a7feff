"""Reviews with ratings, and what words feel like: what sentiment systems read, from other people's files.

The ratings are those of VADER's authors (Hutto & Gilbert 2014, `movieReviewSnippets_GroundTruth.txt` of the package
`vaderSentiment`): lines of number, mean of at least 20 persons' ratings from -4 to 4, sentence. The polarities are
TextBlob's `en-sentiment.xml` (De Smedt & Daelemans 2012), by word, part of speech and sense; WordNet's index adds the
part of speech of all other words.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

LOWEST, WIDTH, CLASSES = -4, 2, 5
_PARTS = {"JJ": "a", "NN": "n", "RB": "r", "VB": "v"}
_TYPES = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
"""Of lemmas in WordNet's index.sense."""


def write_reviews(ratings: Path, output: Path) -> None:
    """JSON lines of `text` and the label `label`, the rating to the nearest of -4, -2, 0, 2 and 4 as "1" to "5"."""
    with ratings.open(encoding="utf-8", errors="replace") as lines, output.open("w", encoding="utf-8") as rows:
        for line in lines:
            _, rating, text = line.rstrip("\n").split("\t")
            label = min(max(round((float(rating) - LOWEST) / WIDTH), 0), CLASSES - 1) + 1
            rows.write(json.dumps({"text": text, "labels": {"label": str(label)}}) + "\n")


def write_polarities(polarities: Path, wordnet: Path, output: Path) -> None:
    """Lines of word, part of speech and polarity; of a word's parts of speech the commonest first, as WordNet counts
    them in tagged text. A word without a polarity has 0."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for word in ElementTree.parse(polarities).getroot().iter("word"):
        if part := _PARTS.get(word.get("pos", "")[:2]):
            found[word.get("form", ""), part].append(float(word.get("polarity", 0)))
    counts = dict.fromkeys(found, 0) | _counts(wordnet)
    order = sorted(counts, key=lambda key: (key[0], -counts[key]))
    lines = (f"{word}\t{part}\t{score}\n" for word, part in order for score in found.get((word, part), [0.0]))
    output.write_text("".join(lines), encoding="utf-8")


def _counts(wordnet: Path) -> Counter[tuple[str, str]]:
    """How often a single word of a part of speech stands in tagged text, by index.sense (senseidx(5WN)): lines of
    `lemma%type:...`, place of the synset, number of the sense, count."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in (wordnet / "index.sense").read_text("utf-8").splitlines():
        sense, _, _, count = line.split()
        lemma, _, rest = sense.partition("%")
        if "_" not in lemma:
            counts[lemma, _TYPES[rest[0]]] += int(count)
    return counts
