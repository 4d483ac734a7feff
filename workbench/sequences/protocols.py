"""Base classes of the components of sequences besides the builder: transforms, image processors, maskings, noises.

As components of any kind they may support controls (`controls`, `unaffected_by`: `workbench.components.controls`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Listing
from types import CodeType
from typing import Any, ClassVar

import numpy as np

from workbench.core.keyed import Draws, Numbers
from workbench.sequences.entities import Entities
from workbench.sequences.selection import RowGroups
from workbench.sequences.sequence import Fields, Sample, Sequence

WORDS = frozenset({"word_ids", "shuffled_words"})
"""The names in code that depends on words."""


class Transform:
    """Changes the sequences of the builder: injects knowledge, adds a stream, restricts the visibility.

    It may have `take_dropped() -> dict[str, int]`: the items left out since the last call, by reason; and
    `take_used() -> dict[str, int]`: the items added, by kind (`mentions`, `branches`). Items left out because there was
    no room have a reason such as `branches over max_length`.

    `reads_spans` says that it reads the entities that are linked to the text: a corpus without any is then refused.
    `entity_stream` is the stream whose `entity_ids` are rows of the `known_entities`: an embedding of that stream must
    have the same ones. `reads` names other fields of samples that it needs, which must be in the corpora, unless the
    builder `provides` their values. `prepared_by` is the command that makes its corpora from others, where no single
    field shows it: for messages.
    """

    reads: tuple[str, ...] = ()
    reads_spans: bool = False
    entity_stream: str | None = None
    prepared_by: str = ""

    def known_entities(self) -> Entities | None:
        """The entities that it knows; it ignores others. None where it knows all, or does not depend on a set."""
        return None

    def facts_of(self, entity: str) -> list[str]:
        """The facts that it brings with a mention of an entity, as words: for baselines that know nothing else."""
        return []

    def injected(self, sequence: Sequence) -> list[dict[str, Any]]:
        """What it brought into a sequence that it has changed, for people: for each mention its `mention` [start, end]
        in characters, with its `entity` or the `facts` that the network reads."""
        return []

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        """The sequences of one micro-batch, changed in place or new."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


class CountingTransform(Transform):
    """A transform that counts: `used` has the items that it adds, `dropped` those that it leaves out, by reason."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def take_used(self) -> dict[str, int]:
        """The items added since the last call, by kind."""
        used, self.used = dict(+self.used), Counter()
        return used

    def take_dropped(self) -> dict[str, int]:
        """The items left out since the last call, by reason."""
        dropped, self.dropped = dict(+self.dropped), Counter()
        return dropped


class ImageProcessor:
    """Makes the `image` stream of a sample.

    `reads` names the fields of samples that it is built from, where these are not their image: for messages on a
    missing corpus. `of_corpora` names options that a recipe may leave to its corpora (`null`), with the key of the
    corpus's own record (`about` in its corpus.json).
    """

    reads: tuple[str, ...] = ()
    of_corpora: ClassVar[Mapping[str, str]] = {}

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        """The stream's fields, arrays [rows, ...]; `rng` None means no augmentation."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


class Masking:
    """Chooses the tokens that a masked objective masks.

    `reads` names fields of samples that it reads, and `reads_spans` says that it reads linked entities: the corpora are
    refused if none has them. `by_words` says whether it depends on `word_ids`; None: as the code of `__call__` shows
    (`names_words`).
    """

    reads: tuple[str, ...] = ()
    reads_spans: bool = False
    by_words: ClassVar[bool | None] = None

    @classmethod
    def goes_by_words(cls, **options: Any) -> bool:
        """Whether it depends on `word_ids` with these options: a segmenter then finds words that no space separates."""
        return names_words(cls)

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of rows of a stream of tokens, each masked as a whole; about `rate` of the free rows of each sequence
        together. What is chosen in a sequence depends on it and its `numbers` alone."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


class Noise:
    """Damages a text that is to be restored (BART): masks, deletes, moves tokens of a stream.

    It leaves special rows at their places, and changes no row that is `taken`; the rows that it makes are `taken`.
    `by_words` says whether it depends on `word_ids`; None: as the code of `__call__` shows (`names_words`).
    """

    by_words: ClassVar[bool | None] = None

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        """Change the rows of a stream, in place; the caller renumbers positions (`workbench.sequences.rows`)."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


def names_words(kind: type[Masking | Noise]) -> bool:
    """Whether a masking strategy or noise depends on words: by its `by_words`, or else where its `__call__` names
    `word_ids` or `shuffled_words`. Functions that it calls are not examined."""
    if kind.by_words is not None:
        return kind.by_words
    code = getattr(kind.__call__, "__code__", None)
    return code is not None and not WORDS.isdisjoint(_named_in(code))


def _named_in(code: CodeType) -> Iterator[Any]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named_in(constant)
        else:
            yield constant
