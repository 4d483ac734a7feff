"""Word segmentation by a package for a language (`workbench.text.segmenters`).

K-BERT looks entities up by a segmenter's words too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from kg.graph.strings import open_array, open_strings, save_strings
from kg.linking.lexicon import Lexicon
from kg.linking.word_ends import WordEnds
from workbench.core.errors import WorkbenchError
from workbench.text import segmenters
from workbench.text.segmenters import SEGMENTERS, WITHOUT_SEGMENTER, LanguageDetection, unspaced

log = logging.getLogger(__name__)

AUTO = "auto"


class LinkingSegmenter(segmenters.Segmenter, WordEnds):
    """The words of a package of `SEGMENTERS`."""

    def __init__(self, name: str, versions: dict[str, str] | None = None) -> None:
        super().__init__(name, versions)
        self._last: tuple[str, frozenset[int]] = ("", frozenset())  # a run, and where its words end

    def _within(self, run: str, offset: int, wanted: Sequence[int]) -> Iterable[int]:
        if run != self._last[0]:
            self._last = run, frozenset(accumulate(map(len, self.cut(run)), initial=0))
        return (place for place in wanted if place - offset not in self._last[1])


def chosen_for(names: Iterable[str]) -> WordEnds | None:
    """The segmenter of the language that names look to be in; None, with a warning, where there is none installed."""
    language, unknown = LanguageDetection(), 0
    for name in names:
        unknown += not language.see(name) and any(map(unspaced, name))
    if unknown:
        log.warning(
            "%s names are in a script without spaces that no segmenter here knows (%s): they "
            "are found inside of longer words too; --words FILE cuts texts into the words of a list",
            *(f"{unknown:,}", WITHOUT_SEGMENTER),
        )
    chosen = language.segmenter
    if chosen is None:
        return None
    known = SEGMENTERS[chosen]
    try:
        found = LinkingSegmenter(chosen)
    except WorkbenchError:
        log.warning(
            "%s names look %s, which has no spaces: they are found inside of longer words too; "
            "pip install 'pretraining-workbench[%s]' cuts texts into words (%s), --words FILE by a list of them; "
            "--words none says that you mean it",
            *(f"{language.count:,}", known.language, known.extra, chosen),
        )
        return None
    log.info("texts in %s are cut into words by %s", known.language, found)
    return found


def save_word_ends(folder: Path, ends: WordEnds | None) -> dict[str, Any]:
    """Write the segmenter's data into a linker's folder; returns its entries of the meta data."""
    if isinstance(ends, Lexicon):
        save_strings(folder, "words", ends.words)
        np.save(folder / "word_counts.npy", ends.counts)
    segmenter = {"name": ends.name, "versions": ends.versions} if isinstance(ends, LinkingSegmenter) else None
    return {"lexicon": isinstance(ends, Lexicon), "segmenter": segmenter}


def open_word_ends(folder: Path, meta: dict[str, Any]) -> WordEnds | None:
    """The segmenter that `save_word_ends` wrote.

    Raises:
        WorkbenchError: a segmenter is not installed, or in another version.
    """
    if meta["lexicon"]:
        return Lexicon(open_strings(folder, "words"), open_array(folder, "word_counts"))
    segmenter = meta.get("segmenter")
    return None if segmenter is None else LinkingSegmenter(segmenter["name"], segmenter["versions"])
