"""Several texts as one, so that a search and its tables are asked once for all of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter

from kg.linking.names import Found

SEPARATOR = "\x1e"
"""Between two texts. It is in no word and in no name: names are split at it, as at a blank. A text may have it too."""
BATCH = 1 << 15
"""Characters of the texts that are joined. Larger texts stay alone."""
CONTEXT_BATCH = 1 << 17
"""The same where the words around are looked at: a call of numpy costs the same for more of them."""


class JoinedTexts:
    """Texts that were `read`, as one `text`; `starts` are their places in it, [texts + 1]."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.text = SEPARATOR.join(texts)
        self.starts = list(accumulate((len(text) + 1 for text in texts), initial=0))

    def by_text(self, found: Sequence[Found]) -> Iterator[tuple[int, Sequence[Found]]]:
        """The number of each text with names, and the names that were found in it."""
        place = 0
        while place < len(found):
            number = bisect_right(self.starts, found[place][1]) - 1
            after = bisect_left(found, self.starts[number + 1], place, key=itemgetter(1))
            yield number, found[place:after]
            place = after


def batches(texts: Iterable[str], characters: int) -> Iterator[list[str]]:
    """Consecutive texts of some `characters` together."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text) + 1
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
