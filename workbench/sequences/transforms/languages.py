"""The language of each token (XLM, arXiv:1901.07291, figure 1), for an embedding with a table of languages."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import MinLen

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.sequences.missing_fields import how_to_prepare
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Sequence


class LanguagesTransform(Transform):
    """Language ids of XLM (arXiv:1901.07291, figure 1). The field `language_ids` has for each row the number of its
    segment's language.

    The language is the sample's `language`; each of two translations has its own. The embedding reads the field:
    `extra: {language_ids: 15}`.

    Args:
        languages: their names; a language's number is its index here, from 0.
        default: the language of texts without one; by default they are refused.

    Raises:
        WorkbenchError: a language is named twice, the default is none of them, or a sequence is in none of them.
    """

    reads: tuple[str, ...] = ("language",)

    def __init__(self, languages: Annotated[list[Word], MinLen(1)], default: Word | None = None) -> None:
        self.numbers = {name: number for number, name in enumerate(languages)}
        if len(self.numbers) < len(languages):
            raise WorkbenchError(f"languages = {', '.join(languages)}: each may be named once")
        if default is not None and default not in self.numbers:
            raise unknown("language", default, self.numbers, "default of the transform languages")
        self.reads = () if default else self.reads
        self.default = (default,) if default else ()

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            named = sequence.languages or self.default
            numbers = np.array([self._number(language, sequence) for language in named], np.int64)
            if not len(numbers):
                raise WorkbenchError(
                    f"sequence {sequence.key!r} has no language. Prepare the corpus with one: "
                    f"{how_to_prepare('language')}"
                )
            text = sequence.fields("text")
            text["language_ids"] = numbers[np.minimum(text["token_type_ids"], len(numbers) - 1)]
        return sequences

    def _number(self, language: str, sequence: Sequence) -> int:
        if language not in self.numbers:
            raise unknown("language", language, self.numbers, f"the transform languages, at sequence {sequence.key!r}")
        return self.numbers[language]
