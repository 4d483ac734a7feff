"""Names of the objects in an image as rows of their own (Oscar, Li et al., arXiv:2004.06165)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import MinLen

from vision.sequences.region_targets import special_rows
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import path_at
from workbench.core.files.text_files import read_lines
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, CountOrZero, Location, Name, Role, Word
from workbench.sequences.missing_fields import how_to_prepare
from workbench.sequences.protocols import CountingTransform
from workbench.sequences.sequence import Fields, Rows, Sequence, text_fields
from workbench.text.tokenizer import Tokenizer


class ObjectTagsTransform(CountingTransform):
    """Object tags of an image (Oscar, arXiv:2004.06165, section 3). It adds a stream with the names of the classes that
    a detector found: the most confident region first, each name once, and a last token. The rows belong to the image,
    so that an image taken by itself keeps them.

    Args:
        names: the name of each class, by its number. A list, or a file with a line for each; of names with commas
            between them, as bottom-up attention has, the first is read.
        stream: the name of the new stream.
        image: the stream of the regions, with their `classes`.
        most: most rows, the last token included; a name that does not fit whole is left out, with those behind it.
        position: the position of the first row, such as the greatest length of the text.
        segment: `token_type_ids` of the rows.
        end: role of the last token; null for none.

    Raises:
        WorkbenchError: regions have no classes, or one has no name.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        names: Annotated[list[Name], MinLen(1)] | Location,
        stream: Word = "tags",
        image: Word = "image",
        most: Count = 15,
        position: CountOrZero = 0,
        segment: CountOrZero = 1,
        end: Role | None = "sep",
    ) -> None:
        super().__init__()
        listed = read_lines(path_at(names)) if isinstance(names, str) else names
        self.names = [name.partition(",")[0].strip() for name in listed]
        ids = [encoded.ids for encoded in tokenizer.encode_batch(self.names)]
        self.ids = dict(zip(self.names, ids, strict=True))
        self.stream, self.image = stream, image
        self.end = [] if end is None else [tokenizer.id(end)]
        self.most, self.position, self.segment = most, position, segment

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            if sequence.length(self.image):
                words = [self.ids[name] for name in self._found(sequence)]
                sequence.streams[self.stream] = self._rows(words)
        return sequences

    def _found(self, sequence: Sequence) -> list[str]:
        """The names of the classes of the regions, each once, the most confident first."""
        fields = sequence.streams[self.image]
        if "classes" not in fields:
            raise WorkbenchError(
                f"transform vision.object_tags: the regions of {sequence.key!r} have no classes. Prepare them: "
                f"{how_to_prepare('regions.classes')}"
            )
        classes = fields["classes"][~special_rows(fields)]
        sure = fields.get("confidence", np.zeros(len(fields["classes"])))[~special_rows(fields)]
        ordered = classes[np.argsort(-sure, kind="stable")].tolist()
        if wrong := [number for number in ordered if not 0 <= number < len(self.names)]:
            raise WorkbenchError(
                f"transform vision.object_tags: a region of {sequence.key!r} has the class {wrong[0]}, and names has "
                f"{len(self.names)}; give the names of the detector's classes, with its background if that has a number"
            )
        return list(dict.fromkeys(self.names[number] for number in ordered))

    def _rows(self, words: list[np.ndarray]) -> Fields:
        ends = np.cumsum([0, *map(len, words)])
        kept = int(np.searchsorted(ends, self.most - len(self.end), side="right")) - 1
        self.used["object tags"] += kept
        self.dropped["object tags over most"] += len(words) - kept
        ids = np.concatenate([*words[:kept], np.array(self.end, np.int64)])
        numbers = np.repeat(np.arange(kept), [len(word) for word in words[:kept]])
        special = np.arange(len(ids)) >= len(numbers)
        word_ids = np.concatenate([numbers, np.full(len(self.end), -1)])
        fields = text_fields(ids, token_type_ids=np.full(len(ids), self.segment), word_ids=word_ids, special=special)
        fields["position_ids"] += self.position
        fields["of"] = Rows(self.image, np.zeros(len(ids), np.int64), bound=True)
        return fields
