"""Where words end by a package that knows a language: Chinese by jieba, Japanese by Sudachi.

Both cut by their own dictionaries. jieba's model of unknown words (HMM) is off: it joins their characters with those
beside them, and names are unknown words more often than others. K-BERT looks entities up by a segmenter's words too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from kg.graph.strings import open_array, open_strings, save_strings
from kg.linking.boundaries import unspaced
from kg.linking.lexicon import Lexicon
from kg.linking.word_ends import WordEnds
from workbench.errors import WorkbenchError

log = logging.getLogger(__name__)
Cut = Callable[[str], Iterable[str]]

AUTO = "auto"
LONGEST = 10_000
"""Characters of a run that Sudachi is given at once; it refuses more than 49,149 bytes."""
JAPANESE = 0.05
"""Names in kana are that share at least of the names of Japanese; those of Chinese have none."""
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff9d]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def _jieba() -> Cut:
    import rjieba

    cut = rjieba.Jieba().cut
    return lambda run: cut(run, False)


def _sudachi() -> Cut:
    from sudachipy import Dictionary, SplitMode

    dictionary = Dictionary(dict="small")
    tokenizer = dictionary.tokenizer() if hasattr(dictionary, "tokenizer") else dictionary.create()

    def cut(run: str) -> Iterator[str]:
        for start in range(0, len(run), LONGEST):
            yield from (word.surface() for word in tokenizer.tokenize(run[start : start + LONGEST], SplitMode.C))

    return cut


@dataclass(frozen=True)
class Known:
    """A segmenter: its language, the packages whose versions decide how it cuts, the extra that has them."""

    language: str
    packages: tuple[str, ...]
    extra: str
    make: Callable[[], Cut]


SEGMENTERS = {
    "jieba": Known("Chinese", ("rjieba",), "chinese", _jieba),
    "sudachi": Known("Japanese", ("sudachipy", "sudachidict_small"), "japanese", _sudachi),
}


class Segmenter(WordEnds):
    """The words of a package of `SEGMENTERS`. Pickles as its name and its packages' versions.

    Args:
        name: which.
        versions: of its packages, where those have to be the ones that it was used with before.

    Raises:
        WorkbenchError: a package is not installed, or in another version.
    """

    def __init__(self, name: str, versions: dict[str, str] | None = None) -> None:
        self.name = name
        self.versions = _installed(name)
        if versions is not None and versions != self.versions:
            raise WorkbenchError(
                f"texts were cut into words by {name} of {_told(versions)}, and here is {_told(self.versions)}, which "
                "may cut otherwise; install those versions, or make the linker again"
            )
        self._cut = SEGMENTERS[name].make()
        self._last: tuple[str, frozenset[int]] = ("", frozenset())  # a run, and where its words end

    def __reduce__(self) -> tuple[Any, ...]:
        return Segmenter, (self.name, self.versions)

    def __str__(self) -> str:
        return f"{self.name} ({_told(self.versions)})"

    def _within(self, run: str, offset: int, wanted: Sequence[int]) -> Iterable[int]:
        if run != self._last[0]:
            self._last = run, frozenset(accumulate(map(len, self._cut(run)), initial=0))
        return (place for place in wanted if place - offset not in self._last[1])


def chosen_for(names: Iterable[str]) -> WordEnds | None:
    """The segmenter of the language that names look to be in; None, with a warning, where there is none installed.

    Names with kana are Japanese, and so are others in Han characters where 1 of 20 has kana.
    """
    kana = han = others = 0
    for name in names:
        if name.isascii():
            continue
        if _KANA.search(name):
            kana += 1
        elif _HAN.search(name):
            han += 1
        else:
            others += any(map(unspaced, name))
    if others:
        log.warning(
            "%s names are in a script without spaces that no segmenter here knows (Thai, Lao, Khmer, Burmese): they "
            "are found inside of longer words too; --words FILE cuts texts into the words of a list",
            f"{others:,}",
        )
    if not kana + han:
        return None
    name = "sudachi" if kana >= JAPANESE * (kana + han) else "jieba"
    known = SEGMENTERS[name]
    try:
        found = Segmenter(name)
    except WorkbenchError:
        log.warning(
            "%s names look %s, which has no spaces: they are found inside of longer words too; "
            "pip install 'pretraining-workbench[%s]' cuts texts into words (%s), --words FILE by a list of them; "
            "--words none says that you mean it",
            *(f"{kana + han:,}", known.language, known.extra, name),
        )
        return None
    log.info("texts in %s are cut into words by %s", known.language, found)
    return found


def save_word_ends(folder: Path, ends: WordEnds | None) -> dict[str, Any]:
    """Write what tells where words end into a linker's folder; returns what its meta data say of that."""
    if isinstance(ends, Lexicon):
        save_strings(folder, "words", ends.words)
        np.save(folder / "word_counts.npy", ends.counts)
    segmenter = {"name": ends.name, "versions": ends.versions} if isinstance(ends, Segmenter) else None
    return {"lexicon": isinstance(ends, Lexicon), "segmenter": segmenter}


def open_word_ends(folder: Path, meta: dict[str, Any]) -> WordEnds | None:
    """What `save_word_ends` wrote.

    Raises:
        WorkbenchError: a segmenter is not installed, or in another version.
    """
    if meta["lexicon"]:
        return Lexicon(open_strings(folder, "words"), open_array(folder, "word_counts"))
    segmenter = meta.get("segmenter")
    return None if segmenter is None else Segmenter(segmenter["name"], segmenter["versions"])


def _installed(name: str) -> dict[str, str]:
    """The versions of a segmenter's packages.

    Raises:
        WorkbenchError: one is not installed.
    """
    known = SEGMENTERS[name]
    try:
        return {package: version(package) for package in known.packages}
    except PackageNotFoundError as error:
        raise WorkbenchError(
            f"cutting {known.language} into words by {name} needs the package {error.name!r}: "
            f"pip install 'pretraining-workbench[{known.extra}]'"
        ) from error


def _told(versions: dict[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())
