"""Words and regions as elements of one sequence, each with a visual feature (VL-BERT, arXiv:1908.08530, section 3.2).

    region:  norm(e + norm_o(v_i) + type + position)     e = [IMG], of the last row [END]
    word:    norm(w + norm_t(v_last))                    w = word + position + segment

Regions have no order: all have the position that follows the text's, except the last row, which has the next one. The
layer computes it from the text with the image in the batch, since retrieval pairs an image with any text.

v are the rows of `vision.visual_feature`; the last row of an image represents it as a whole (`whole: last` of
`vision.regions`). The last row here is a separate row without a feature in the published code; here it is as in VOLTA.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from vision.models.embeddings._rows import vector
from workbench.core.options.bounds import Count, Dropout, Epsilon, Word
from workbench.models.context import Context
from workbench.models.initialisation import initialise
from workbench.sequences.sequence_checks import check_limits


class VisualElementsLayer(nn.Module):
    """Visual elements of VL-BERT (arXiv:1908.08530, section 3.2): words and regions become elements of one sequence,
    each with a visual feature. It is the first layer of a stack; its words and regions have no norm yet (`norm: null`
    of `token`).

    Args:
        max_positions: rows of the table of positions, tied to the text's by `tie: {layers.0.position: text.position}`.
            null: regions have no positions.
        masked_element: masked regions have a learned vector in the place of [IMG] (VOLTA, where their classes are
            predicted).
        texts_alone: texts without an image get a learned vector as their visual feature (the released code).
        stream, image: of the words, and of the regions.
    """

    def __init__(
        self,
        sizes: dict[str, int],
        max_positions: Count | None = None,
        masked_element: bool = False,
        texts_alone: bool = False,
        stream: Word = "text",
        image: Word = "image",
        norm_eps: Epsilon = 1e-12,
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__()
        size = sizes[stream]
        self.stream, self.image = stream, image
        self.reads = self.changes = (stream, image)
        self.element, self.end, self.type_vector = vector(size), vector(size), vector(size)
        self.masked_element = vector(size) if masked_element else None
        self.alone = vector(size) if texts_alone else None
        self.position = nn.Embedding(max_positions, size) if max_positions else None
        self.norm_text, self.norm_image, self.norm = (nn.LayerNorm(size, norm_eps) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    @torch.no_grad()
    def initialise(self, scale: float) -> None:
        """BERT's initialisation, except that visual features are 0 at first, so that words are unchanged if the network
        starts from a text model (the published code: visual_scale_text_init and visual_scale_object_init are 0)."""
        for child in self.children():
            initialise(child, scale)
        for norm in (self.norm_text, self.norm_image):
            nn.init.zeros_(norm.weight)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        new = dict(hidden)
        if self.image in hidden:
            new[self.image] = self._finished(self._regions(hidden[self.image], context))
        if self.stream in hidden:
            new[self.stream] = self._finished(self._words(hidden, context))
        return new

    def _finished(self, rows: Tensor) -> Tensor:
        finished: Tensor = self.dropout(self.norm(rows))
        return finished

    def _regions(self, visual: Tensor, context: Context) -> Tensor:
        fields, layout = context.fields(self.image), context.layout(self.image)
        elements = self.element.expand(len(visual), -1)
        if self.masked_element is not None and "masked" in fields:
            elements = torch.where(fields["masked"][:, None], self.masked_element, elements)
        begins = torch.zeros(len(visual) + 1, dtype=torch.bool, device=visual.device)
        last = begins.index_fill_(0, layout.offsets, True)[1:]  # another sequence begins behind it
        rows = torch.where(last[:, None], self.end, elements) + self.norm_image(visual) + self.type_vector
        if self.position is None:
            return rows
        return rows + self.position(self._positions(context) + last)

    def _positions(self, context: Context) -> Tensor:
        """The position after the text of each region's sequence [regions], whichever text the image is paired with.

        Raises:
            WorkbenchError: a text is as long as the table of positions.
        """
        assert self.position is not None
        regions = context.layout(self.image)
        there = self.stream in context.batch.streams
        texts = context.layout(self.stream).lengths if there else [0] * len(regions.lengths)
        longest = max((length for length, found in zip(texts, regions.lengths, strict=True) if found), default=0)
        limits = {"position_ids": self.position.num_embeddings}
        check_limits({"position_ids": np.array([longest + 1])}, limits, "an image behind its text")
        counts = regions.offsets.diff()
        behind = context.layout(self.stream).offsets.diff() if any(texts) else torch.zeros_like(counts)
        return torch.repeat_interleave(behind, counts, output_size=regions.rows)

    def _words(self, hidden: dict[str, Tensor], context: Context) -> Tensor:
        """The words with the last row of their image, from the batch or from the cache."""
        words, lengths = hidden[self.stream], context.layout(self.stream).offsets.diff()
        nothing = words.new_zeros(len(lengths), words.shape[1])
        if self.alone is not None:
            # the sum, as the counting of operations does not support a bare parameter
            nothing = nothing + self.norm_text(self.alone + nothing[:1])
        if self.image in hidden:
            visual, layout = hidden[self.image], context.layout(self.image)
            if context.keeps("keys") or context.keeps("rows"):
                visual, layout = context.recall((self.image,), visual)
            ends, counts = layout.offsets[1:], layout.offsets.diff()
            if len(visual):
                whole = self.norm_text(visual[(ends - 1).clamp(min=0)])
                nothing = torch.where((counts > 0)[:, None], whole, nothing)
        return words + torch.repeat_interleave(nothing, lengths, dim=0, output_size=len(words))
