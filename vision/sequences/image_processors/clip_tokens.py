"""The visual tokens of a video's clips (VideoBERT, arXiv:1904.01766)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from vision.images.boxes import WHOLE
from vision.images.decoding import place
from vision.sequences.image_processors.clips import ClipsProcessor, Sampling, spaced_places
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.options.bounds import Count, Name
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Fields, Sample, text_fields


class ClipTokensProcessor(ClipsProcessor):
    """Visual tokens of the clips of a video (VideoBERT, arXiv:1904.01766). They form a stream of tokens after a start
    token ([>] in the paper).

    Tokens are the codes 0, ..., codes - 1; `codes` is the mask and codes + 1 the start token, so the embedding has a
    table of codes + 2 rows.

    clustering: the identity of the vocabulary in the corpus (`meta.codes`); others are refused. `null` in a recipe:
    that of
        the task's corpus.
            codes: the number of tokens.
        codes: how many there are.
        backbone: the extractor of the features in the corpus; `null` in a recipe: that of the task's corpus.
        max_clips: the largest number of clips.
        every: only every n-th clip is read, n drawn from 1 to this number (the paper: 5); evaluation reads all.
    """

    reads = ("clips", "clips.codes")
    of_corpora: ClassVar[Mapping[str, str]] = {"backbone": "backbone", "clustering": "codes"}

    def __init__(
        self, clustering: Name, codes: Count, backbone: Name, max_clips: Count = 48, every: Sampling = 1
    ) -> None:
        super().__init__(backbone, max_clips, every)
        self.clustering, self.codes = clustering, codes

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        clips, rows = self._chosen(sample, rng)
        where = place(sample)
        if "codes" not in clips:
            raise missing(sample, "clips.codes")
        found = sample.get("meta", {}).get("codes")
        if found != self.clustering:
            raise WorkbenchError(
                f"{where}: the visual tokens are of {found!r}, but this model needs those of {self.clustering!r}. Look "
                "them up again with that vocabulary (`workbench prepare clip-tokens`), or train a model on this one"
            )
        codes = clips["codes"][rows].astype(np.int64)
        if len(codes) and not 0 <= codes.min() <= codes.max() < self.codes:
            detail = f"visual token {codes.max()}; codes = {self.codes} allows 0 to {self.codes - 1}"
            raise BadValueError(where, detail, clips, "visual token outside its vocabulary")
        fields = text_fields(np.concatenate([[self.codes + 1], codes]), special=np.arange(len(codes) + 1) == 0)
        fields["word_ids"] = np.arange(-1, len(codes), dtype=np.int64)
        boxes = np.concatenate([np.asarray([WHOLE], np.float32), spaced_places(clips["times"][rows])])
        return {**fields, "boxes": boxes}
