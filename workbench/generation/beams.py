"""Beam search: the most probable texts of every length, in parallel.

The `beams` running texts of a prompt have 2 x beams most probable continuations. Those that end, if they are among the
first `beams`, are finished, with the score
among the first `beams`, are finished, with the score

    log p(text) / (number of tokens) ** length_penalty

and the first `beams` of the others continue. The best `beams` finished ones are kept; `early_stopping` (`Decoding`)
decides when the search of a prompt is done. At `max_new_tokens` running texts are finished unchanged. Hugging Face's
`generate` does the same; the penalty is Wu et al.'s (arXiv:1609.08144, eq. 14), ((5 + length) / 6) ** alpha, without
its constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from workbench.generation.decoder import Decoder
from workbench.generation.decoding import Decoding, GeneratedText


@dataclass
class Search:
    """The search of one prompt: running texts with their log-probabilities, best first, and finished ones."""

    decoding: Decoding
    end: int | None
    running: list[tuple[list[int], float]] = field(default_factory=lambda: [([], 0.0)])
    finished: list[GeneratedText] = field(default_factory=list)

    def advance(self, log_probabilities: Tensor, length: int) -> list[int]:
        """Continue by one token, the text's `length`-th; returns for each new text the running one that it extends.

        Args:
            log_probabilities: of the next token, for each running text [running, vocab_size].
        """
        beams, vocabulary = self.decoding.beams, log_probabilities.shape[1]
        totals = (
            log_probabilities + log_probabilities.new_tensor([score for _, score in self.running])[:, None]
        ).flatten()
        best, places = totals.topk(min(2 * beams, len(totals)))
        last = length == self.decoding.max_new_tokens
        running: list[tuple[list[int], float]] = []
        origins: list[int] = []
        for rank, (score, place) in enumerate(zip(best.tolist(), places.tolist(), strict=True)):
            origin, token = divmod(place, vocabulary)
            so_far = self.running[origin][0]
            ended = token == self.end
            if (ended or last) and rank < beams:
                tokens = so_far if ended else [*so_far, token]
                self.finished.append(GeneratedText(tokens, score / length**self.decoding.length_penalty, ended))
            elif not ended and not last and len(running) < beams:
                running.append(([*so_far, token], score))
                origins.append(origin)
        self.finished = sorted(self.finished, key=lambda text: -text.score)[:beams]
        self.running = running
        if self._done(length):
            self.running, origins = [], []
        return origins

    def _done(self, length: int) -> bool:
        if not self.running or len(self.finished) < self.decoding.beams:
            return not self.running
        stopping, penalty = self.decoding.early_stopping, self.decoding.length_penalty
        if stopping == "true":
            return True
        suiting = self.decoding.max_new_tokens if stopping == "never" and penalty > 0 else length
        return self.running[0][1] / suiting**penalty <= self.finished[-1].score


def beam_search(decoder: Decoder, decoding: Decoding, prompts: int) -> list[GeneratedText]:
    """The best text of each prompt."""
    searches = [Search(decoding, decoder.continuation.end) for _ in range(prompts)]
    scores = decoder.begin().log_softmax(-1)
    for length in range(1, decoding.max_new_tokens + 1):
        tokens, rows, row = [], [], 0
        for search in searches:
            count = len(search.running)
            if not count:
                continue
            origins = search.advance(scores[row : row + count], length)
            tokens += [text[-1] for text, _ in search.running]
            rows += [row + origin for origin in origins]
            row += count
        if not tokens:
            break
        scores = decoder.step(tokens, rows).log_softmax(-1)
    return [search.finished[0] for search in searches]
