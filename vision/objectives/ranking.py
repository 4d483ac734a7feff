"""Matching fine-tuned for retrieval: a pair against wrong ones, including the hardest of the micro-batch.

    margin  sum over hard images v' of t, and hard texts t' of v, of max(0, m + s(t, v') - s(t, v)), and likewise t'
            (UNITER, arXiv:1909.11740, section 4 and its appendix on retrieval with hard negatives; s = p(match))
    choice  - log softmax over { (t, v), (random t', v), (t, random v'), (hard t', v) } of the log-odds of a match, at
            (t, v)  (ViLBERT, arXiv:1908.02265, section 3.2: a four-way choice)

The hardest are those of the micro-batch that the model itself, without dropout or gradient, finds most likely; never
of a pair with the same image or the same text. Every text is read with every image for that, so a micro-batch of n
costs n^2 + 2 n (1 + hard) passes, and its size limits the search.

UNITER's published code searches 399 others of the whole training set, texts and images in turn, and scores by a
separate linear map to one number, which starts from the second row of the matching's; here it is p(match) of the
matching itself. ViLBERT draws the hard one from the 100 images nearest to its own by the features of a network; its
published code uses their captions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from annotated_types import MinLen
from torch import Tensor
from torch.nn import functional as F

from vision.choices import Way
from vision.objectives.hard_itm import rivals
from vision.objectives.itm import Itm, ItmHead
from vision.sequences.matching import IMAGE, check_true_pair, image_id, labelled
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws, digest
from workbench.core.options.bounds import Count, Positive, Size, Word
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, LossOutput
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Rows, Sample, Sequence
from workbench.sequences.transfer import rows_where
from workbench.training.modes import evaluating

if TYPE_CHECKING:
    from workbench.models.network import Network


class Ranking(Itm):
    """Image-text matching as ranking, with hard negatives of the micro-batch, for fine-tuning on retrieval.

    Args:
        way: see above.
        hard: with `margin`, the number of images of each text and texts of each image; fewer if there are no more (31
        in
            UNITER's published code).
        margin: m, in probability (0.2 in UNITER's released code).
        pool, pooled_size: as of `vision.itm`, whose head is trained further.
        image: the stream of the images, or of videos.
    """

    def __init__(
        self,
        way: Way = "margin",
        hard: Count = 31,
        margin: Positive = 0.2,
        pool: Annotated[list[Word], MinLen(1)] = ["text"],  # noqa: B006 - never changed
        pooled_size: Size | None = None,
        image: Word = "image",
    ) -> None:
        super().__init__(rate=0.0, pool=pool, pooled_size=pooled_size)
        self.way, self.hard, self.margin, self.image = way, hard, margin, image

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        return [labelled(sample, IMAGE, image_id(sample)) for sample in samples]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            check_true_pair(sequence, ("text", self.image), self.name, "a text and an image")
            if any(isinstance(v, Rows) and v.stream == self.image for v in sequence.streams["text"].values()):
                raise WorkbenchError(
                    f"objective {self.name!r}: hard negatives read every text with every {self.image}, but these texts "
                    f"refer to rows of their own {self.image}; fine-tune this run without --hard-negatives"
                )
            said = digest("text", sequence.streams["text"]["input_ids"].tobytes().hex()) >> 65
            sequence.targets[self.name] = {
                "image": np.asarray([sequence.labels[IMAGE]], np.int64),
                "text": np.asarray([said], np.int64),
                "drawn": draws.of(sequence.draw).random((1, 2)),
            }
        return {}

    def count(self, batch: Batch) -> float:
        """With `margin` the wrong pairs, with `choice` the pairs with a wrong one."""
        if self.name not in batch.targets:
            return 0.0
        others = rivals(batch.targets[self.name]).sum(1)
        return float((2 * others.clamp(max=self.hard) if self.way == "margin" else others > 0).sum())

    def head(self, network: Network) -> RankingHead:
        super().head(network)  # reports a missing pooler
        return RankingHead(self, self.widths(network))


class RankingHead(ItmHead):
    """The head of matching, trained by comparison."""

    def __init__(self, options: Ranking, sizes: dict[str, int]) -> None:
        super().__init__(options.pool, sizes, options.pooled_size)
        self.way, self.hard, self.margin, self.image = options.way, options.hard, options.margin, options.image

    def forward(self, inputs: HeadInputs) -> LossOutput:
        others = rivals(inputs.targets)
        scores = self._all(inputs).masked_fill(~others, float("-inf"))
        asked = rows_where(rivals({name: inputs.known(name) for name in ("image", "text")}).any(1), others.device)
        if not len(asked):  # nothing to compare with; the parameters stay in the graph
            nothing = self.log_odds(inputs, torch.zeros(1, 2, dtype=torch.long)).sum() * 0
            return LossOutput(nothing, {"accuracy": (nothing.detach(), 0.0)})
        pairs = self._margin_pairs(scores) if self.way == "margin" else self._choices(scores, others, asked, inputs)
        flat = pairs.reshape(-1, 2)
        found = self.log_odds(inputs, torch.cat([torch.stack([asked, asked], 1), flat]))
        true, wrong = found[: len(asked)], found[len(asked) :]
        if self.way == "choice":
            logits = torch.cat([true[:, None], wrong.reshape(len(asked), -1)], 1)
            right = (logits.detach().argmax(1) == 0).sum()
            loss = F.cross_entropy(logits, torch.zeros_like(asked), reduction="sum")
            return LossOutput(loss, {"accuracy": (right, float(len(asked)))})
        own = torch.zeros(inputs.batch.size, device=found.device).index_copy(0, asked, true.sigmoid())
        at = torch.cat([flat[: len(flat) // 2, 0], flat[len(flat) // 2 :, 1]])  # the text is the query, then the image
        loss = (self.margin + wrong.sigmoid() - own[at]).clamp(min=0).sum()
        right = (wrong.detach().sigmoid() < own.detach()[at]).sum()
        return LossOutput(loss, {"accuracy": (right, float(len(wrong)))})

    def log_odds(self, inputs: HeadInputs, pairs: Tensor) -> Tensor:
        """The log-odds of a match, for texts with images [n, 2]: [n] float32. Streams that belong to an image come with
        it, all others with the text."""
        texts, images = pairs.T.tolist()
        hanging = inputs.batch.linked_to(self.image)
        batch = inputs.batch.pick({name: images if name in hanging else texts for name in inputs.batch.streams})
        return self.match(inputs.network, inputs.run(batch).states, batch)

    @torch.no_grad()
    def _all(self, inputs: HeadInputs) -> Tensor:
        """Every text with every image [n, n], in groups as large as the micro-batch."""
        size = inputs.batch.size
        with evaluating(inputs.network):
            rows = [
                self.log_odds(inputs, torch.stack([torch.full((size,), text), torch.arange(size)], 1))
                for text in range(size)
            ]
        return torch.stack(rows)

    def _margin_pairs(self, scores: Tensor) -> Tensor:
        """The hardest images of each text, then the hardest texts of each image [n, 2]: text, image."""
        of_texts, of_images = self._hardest(scores), self._hardest(scores.T)
        return torch.cat([of_texts, of_images.flip(1)])

    def _hardest(self, scores: Tensor) -> Tensor:
        """[n, 2]: the query, and one of its highest allowed scores."""
        best, other = scores.topk(min(self.hard, scores.shape[1]), 1)
        asks = torch.arange(len(scores), device=scores.device)[:, None].expand_as(other)
        return torch.stack([asks, other], -1)[best > float("-inf")]

    def _choices(self, scores: Tensor, others: Tensor, asked: Tensor, inputs: HeadInputs) -> Tensor:
        """[asked, 3, 2]: a random text, a random image, the hardest text; text, image."""
        amounts = others.sum(1)
        drawn = (inputs.targets["drawn"].to(amounts.device) * amounts[:, None]).long()
        ranked = others.long().sort(dim=1, stable=True, descending=True).indices  # the allowed ones come first
        text, image = ranked.gather(1, drawn.clamp(max=others.shape[1] - 1)).T
        hardest, own = scores.argmax(0), torch.arange(len(scores), device=scores.device)
        wrong = [torch.stack(pair, 1) for pair in ((text, own), (own, image), (hardest, own))]
        return torch.stack(wrong, 1)[asked]
