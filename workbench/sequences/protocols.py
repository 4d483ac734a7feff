"""What the parts of a sequence are, next to its builder: steps, images, maskings, noises. Each kind is a base class.

As a part of any kind they may support controls (`controls`, `unaffected_by`: `workbench.components.controls`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any, ClassVar

import numpy as np

from workbench.core.keyed import Draws
from workbench.sequences.entities import Entities
from workbench.sequences.sequence import Fields, Sample, Sequence

WORDS = frozenset({"word_ids", "shuffled_words"})
"""What code names that goes by words."""


class Transform:
    """Changes the sequences that the builder made: injects knowledge, adds a stream, narrows who sees whom.

    It may have `take_dropped() -> dict[str, int]`: what it left out since the last call, by reason; and
    `take_used() -> dict[str, int]`: what it brought in, by what that is (`mentions`, `branches`). What it left out of
    that for want of room has the reason `branches over max_length`.

    `reads_spans` says that it reads the entities that are linked to the text: a corpus without any is then refused.
    `entity_stream` is the stream whose `entity_ids` are rows of the `known_entities`: an embedding of that stream must
    have the same ones. `reads` names other fields of samples that it goes by, which must be in the corpora,
    unless the builder `gives` what they say. `prepared_by` is the command that makes its corpora of others, where no
    field by itself says it: for messages.
    """

    reads: tuple[str, ...] = ()
    reads_spans: bool = False
    entity_stream: str | None = None
    prepared_by: str = ""

    def known_entities(self) -> Entities | None:
        """The entities that it knows, and others it passes over; None where it knows all, or that of none is asked."""
        return None

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        """The sequences of one micro-batch, changed in place or made anew."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


class CountingTransform(Transform):
    """A step that counts: `used` of what it brings in, `dropped` of what it leaves out, by reason."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def take_used(self) -> dict[str, int]:
        """What was brought in since the last call, by what it is."""
        used, self.used = dict(+self.used), Counter()
        return used

    def take_dropped(self) -> dict[str, int]:
        """What was left out since the last call, by reason."""
        dropped, self.dropped = dict(+self.dropped), Counter()
        return dropped


class ImageProcessor:
    """Makes the `image` stream of a sample.

    `reads` names the fields of samples that it is built from, where that is not their image: told of a corpus that is
    not there. `of_corpora` names options that a recipe may leave to its corpora (`null`), with the key of what a corpus
    says of itself (`about` in its corpus.json).
    """

    reads: tuple[str, ...] = ()
    of_corpora: ClassVar[Mapping[str, str]] = {}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        """The stream's fields, arrays [rows, ...]; `rng` None means no augmentation."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


class Masking:
    """Chooses which tokens a masked objective hides.

    `reads` names fields of samples that it reads, and `reads_spans` says that it reads linked entities: corpora that
    are all without are then refused. `by_words` says whether it goes by `word_ids`; None: as the code of `__call__`
    looks (`names_words`).
    """

    reads: tuple[str, ...] = ()
    reads_spans: bool = False
    by_words: ClassVar[bool | None] = None

    @classmethod
    def goes_by_words(cls, **options: Any) -> bool:
        """Whether it goes by `word_ids` with these options: a segmenter then finds words that no space separates."""
        return names_words(cls)

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of rows of a stream of tokens, each hidden as a whole; about `rate` of the free rows together."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


class Noise:
    """Damages a text that is to be restored (BART): hides, deletes, moves tokens of a stream.

    It leaves special rows at their places, and changes no row that is `taken`; the rows that it makes are `taken`.
    `by_words` says whether it goes by `word_ids`; None: as the code of `__call__` looks (`names_words`).
    """

    by_words: ClassVar[bool | None] = None

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        """Change the rows of a stream, in place; who calls numbers positions anew (`workbench.sequences.rows`)."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


def names_words(part: type[Masking | Noise]) -> bool:
    """Whether a masking strategy or noise goes by words: as it says, or else where its `__call__` names `word_ids` or
    `shuffled_words`. Of what it calls in turn nothing is known."""
    if part.by_words is not None:
        return part.by_words
    code = getattr(part.__call__, "__code__", None)
    return code is not None and not WORDS.isdisjoint(_named_in(code))


def _named_in(code: CodeType) -> Iterator[Any]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named_in(constant)
        else:
            yield constant
