"""Words of scripts without spaces, by a package that knows a language: Chinese by jieba, Japanese by Sudachi.

Both cut by their own dictionaries. jieba's model of unknown words (HMM) is off: it joins their characters with those
next to them, and names are unknown words more often than others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import numpy as np

from workbench.core.errors import WorkbenchError

Cut = Callable[[str], Iterable[str]]
SegmenterName = Literal["jieba", "sudachi"]

UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x312F),  # radicals, kana, Bopomofo
    (0x31F0, 0x31FF),  # small kana
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # halfwidth kana
    (0x20000, 0x3FFFF),
)
LONGEST = 10_000
"""Characters of a run that Sudachi is given at once; it refuses more than 49,149 bytes."""
JAPANESE = 0.05
"""Texts in kana are that share at least of the texts of Japanese; those of Chinese have none."""
KANA = "\u3041-\u3096\u30a1-\u30fa\u30fc\u31f0-\u31ff\uff66-\uff9f"
HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WITHOUT_SEGMENTER = "Thai, Lao, Khmer, Burmese"
"""The scripts of `UNSPACED` that no segmenter here knows."""


def unspaced(character: str) -> bool:
    """Whether a character belongs to a script that is written without spaces between words."""
    code = ord(character)
    return code >= UNSPACED[0][0] and any(first <= code <= last for first, last in UNSPACED)


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
class SegmenterPackage:
    """A segmenter: its language and that one's characters, the packages whose versions decide how it cuts, the extra
    that has them."""

    language: str
    characters: str
    packages: tuple[str, ...]
    extra: str
    make: Callable[[], Cut]


SEGMENTERS: dict[str, SegmenterPackage] = {
    "jieba": SegmenterPackage("Chinese", HAN, ("rjieba",), "chinese", _jieba),
    "sudachi": SegmenterPackage("Japanese", HAN + KANA, ("sudachipy", "sudachidict_small"), "japanese", _sudachi),
}


class Segmenter:
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
                "may cut otherwise; install those versions, or make anew what was made with them"
            )

    @cached_property
    def cut(self) -> Cut:
        """A run of characters of the language -> its words, which make the run again. Reads the dictionary once."""
        return SEGMENTERS[self.name].make()

    @cached_property
    def _runs(self) -> re.Pattern[str]:
        return re.compile(f"[{SEGMENTERS[self.name].characters}]{{2,}}")

    def words(self, text: str) -> np.ndarray:
        """Of each character the word that it is in, counted from 1 over the text; 0 outside of the language's runs
        [characters] int64. A single such character between others is a word that any tokenizer finds too: 0."""
        found = np.zeros(len(text), np.int64)
        number = 0
        for run in () if text.isascii() else self._runs.finditer(text):
            sizes = [len(word) for word in self.cut(run.group())]
            found[run.start() : run.end()] = np.repeat(np.arange(number + 1, number + 1 + len(sizes)), sizes)
            number += len(sizes)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.versions)

    def __str__(self) -> str:
        return f"{self.name} ({_told(self.versions)})"


class Looks:
    """What language texts look to be in, by their characters. Those with kana are Japanese, and so are others in Han
    characters where 1 of 20 has kana."""

    def __init__(self) -> None:
        self.kana = self.han = 0

    def see(self, text: str) -> bool:
        """Whether there is a character of the two languages in one more text."""
        kana = not text.isascii() and _KANA.search(text) is not None
        han = not text.isascii() and not kana and _HAN.search(text) is not None
        self.kana += kana
        self.han += han
        return kana or han

    @property
    def seen(self) -> int:
        """Texts with such characters."""
        return self.kana + self.han

    @property
    def segmenter(self) -> SegmenterName | None:
        """The name of the segmenter; None where no text has such a character."""
        if not self.seen:
            return None
        return "sudachi" if self.kana >= JAPANESE * self.seen else "jieba"


def shares(texts: Iterable[str]) -> tuple[float, float]:
    """Of the letters of texts the share in Han characters and kana, and that in other scripts without spaces."""
    letters = known = others = 0
    for text in texts:
        spaced = sum(map(str.isalpha, text))
        mine = 0 if text.isascii() else len(_BOTH.findall(text))
        without = 0 if text.isascii() else sum(map(unspaced, text))
        letters += spaced
        known += mine
        others += max(0, without - mine)
    return known / max(letters, 1), others / max(letters, 1)


def segmenter_for(text: str) -> Segmenter | None:
    """The segmenter of the language of one text, where it needs one that is installed."""
    looks = Looks()
    looks.see(text)
    return None if looks.segmenter is None else _if_installed(looks.segmenter)


_KANA, _HAN, _BOTH = re.compile(f"[{KANA}]"), re.compile(f"[{HAN}]"), re.compile(f"[{HAN}{KANA}]")


@cache
def _if_installed(name: str) -> Segmenter | None:
    try:
        return Segmenter(name)
    except WorkbenchError:
        return None


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
