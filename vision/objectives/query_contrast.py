"""Image-text contrast in which an image has several vectors, of which the best counts (BLIP-2, arXiv:2301.12597).

    score of a text i and an image j = s max over queries q of t_i . v_jq

with t the vector of the text, v_q those of the learned queries that have read the image. The loss is that of
`vision.itc` with these scores. The text is hidden from the queries, and they from it (the unimodal mask), so give the
objective a view of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor

from vision.metrics.retrieval_scores import best_products
from vision.objectives.itc import Itc, ItcHead
from workbench.core.options.bounds import Size, Word
from workbench.objectives.contrast import Temperature
from workbench.pretraining.forward import HeadInputs, NetworkOutput

if TYPE_CHECKING:
    from workbench.models.network import Network


class QueryContrast(Itc):
    """Image-text contrastive loss of learned queries, of which the best counts (BLIP-2, arXiv:2301.12597, section 3.1).
    A text is compared with each query of an image; every image has equally many.

    Args:
        size: width of the common space.
        temperature: 1 / s at the start.
        negatives: over the `step`, or only the `micro-batch`.
        same_image: role of other captions of a pair's own image, as for `vision.itc`.
        text: the stream of the texts, whose first row is compared.
        image: the stream of the queries.
    """

    def __init__(
        self,
        size: Size = 256,
        temperature: Temperature = 0.07,
        negatives: Literal["step", "micro-batch"] = "step",
        same_image: Literal["ignored", "negative"] = "ignored",
        text: Word = "text",
        image: Word = "queries",
    ) -> None:
        super().__init__(
            size,
            temperature=temperature,
            negatives=negatives,
            same_image=same_image,
            apart=True,
            text=text,
            image=image,
            bias=True,
        )

    def head(self, network: Network) -> QueryContrastHead:
        return QueryContrastHead(self, self.compared_widths(network))


class QueryContrastHead(ItcHead):
    """The head of `vision.itc` with several vectors of an image."""

    def vectors(self, read: NetworkOutput, stream: str) -> Tensor:
        """As of `MediaContrastHead`; of an image [sequences, queries, size]."""
        if stream == self.streams["text"]:
            return super().vectors(read, stream)
        return self.space.placed(stream, read.states[stream].unflatten(0, (read.batch.size, -1)))

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        """The vectors `text` [sequences, size] and `image` [sequences, queries, size], the `scale` s."""
        embedded = super().embed(inputs)
        scale = self.logit_scale.detach().exp()
        return {**embedded, "scale": scale.expand(len(embedded["text"]))}

    def products(self, queries: Tensor, keys: Tensor) -> Tensor:
        return best_products(queries, keys) if keys.ndim == 3 else best_products(keys, queries).T
