"""Word segmenters for scripts without spaces: jieba for Chinese, Sudachi for Japanese.

Both segment by their own dictionaries. jieba's model of unknown words (HMM) is off: it joins their characters with
neighbouring ones, and names are unknown words more often than others.
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
"""The maximal number of characters per call of Sudachi, which refuses more than 49,149 bytes."""
JAPANESE = 0.05
"""The least share of texts with kana among Japanese texts; Chinese texts have none."""
KANA = "\u3041-\u3096\u30a1-\u30fa\u30fc\u31f0-\u31ff\uff66-\uff9f"
HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WITHOUT_SEGMENTER = "Thai, Lao, Khmer, Burmese"
"""The scripts of `UNSPACED` without a segmenter here."""


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
    """A segmenter: its language and characters, the packages whose versions decide its output, and their extra."""

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
        name: the segmenter's name.
        versions: the versions of its packages, if they must equal those of an earlier use.

    Raises:
        WorkbenchError: a package is not installed, or in another version.
    """

    def __init__(self, name: str, versions: dict[str, str] | None = None) -> None:
        self.name = name
        self.versions = _installed(name)
        if versions is not None and versions != self.versions:
            raise WorkbenchError(
                f"texts were segmented by {name} of {_version_list(versions)}, and {_version_list(self.versions)} is "
                "installed, which "
                "may segment differently; install those versions, or prepare the data again"
            )

    @cached_property
    def cut(self) -> Cut:
        """A function from a run of the language's characters to its words, in order. The dictionary is read once."""
        return SEGMENTERS[self.name].make()

    @cached_property
    def _runs(self) -> re.Pattern[str]:
        return re.compile(f"[{SEGMENTERS[self.name].characters}]{{2,}}")

    def words(self, text: str) -> np.ndarray:
        """The number of each character's word [characters] int64, counted from 1; 0 outside of the language's runs. A
        single such character between others is 0 too: any tokenizer separates it."""
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
        return f"{self.name} ({_version_list(self.versions)})"


class LanguageDetection:
    """The language of texts, detected from their characters. Texts with kana are Japanese. Texts in Han characters are
    Japanese too if 1 of 20 texts has kana."""

    def __init__(self) -> None:
        self.kana = self.han = 0

    def see(self, text: str) -> bool:
        """Add a text; returns whether it has a character of the two languages."""
        kana = not text.isascii() and _KANA.search(text) is not None
        han = not text.isascii() and not kana and _HAN.search(text) is not None
        self.kana += kana
        self.han += han
        return kana or han

    @property
    def count(self) -> int:
        """The number of texts with such characters."""
        return self.kana + self.han

    @property
    def segmenter(self) -> SegmenterName | None:
        """The name of the segmenter; None if no text has such a character."""
        if not self.count:
            return None
        return "sudachi" if self.kana >= JAPANESE * self.count else "jieba"


def shares(texts: Iterable[str]) -> tuple[float, float]:
    """The shares of Han characters and kana, and of other scripts without spaces, among the letters of texts."""
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
    """The installed segmenter of the language of one text, or None."""
    language = LanguageDetection()
    language.see(text)
    return None if language.segmenter is None else _if_installed(language.segmenter)


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
            f"segmenting {known.language} by {name} needs the package {error.name!r}: "
            f"pip install 'pretraining-workbench[{known.extra}]'"
        ) from error


def _version_list(versions: dict[str, str]) -> str:
    return ", ".join(f"{package} {number}" for package, number in versions.items())
