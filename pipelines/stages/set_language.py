"""Noting what language texts are in."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.core.options.bounds import Word
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class SetLanguage:
    """The `language` of every text whose record does not say it."""

    language: Word

    def __call__(self, sample: Sample) -> Sample:
        return {**sample, "language": self.language} if "text" in sample and "language" not in sample else sample
