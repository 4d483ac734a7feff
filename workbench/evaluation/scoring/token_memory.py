"""A memory of the states that came before each token of a corpus, which predicts tokens (kNN-LM).

Khandelwal et al., "Generalization through Memorization: Nearest Neighbor Language Models" (arXiv 1911.00172). With N
the k states of the memory nearest to the state f of a text, by the squared distance, and w_j the token that came after
the j-th of them,

    p_kNN(w | f) = sum over j in N with w_j = w of softmax over N of (- |f - f_j|^2 / temperature)
    p(w | f) = share p_kNN(w | f) + (1 - share) p_LM(w | f)

The state is the one that the head reads. The paper's is the input of the last feed-forward sublayer, and it searches
with quantised states. Here the search is exact, and the memory stays in RAM: 4 bytes for each number of a state.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 256
"""Number of states whose distances to the whole memory are in memory at once."""
ALONE, PERMUTED = "the network alone", "a memory of permuted tokens"
"""The costs of the same tokens that are reported as baselines: without the memory, and with its tokens exchanged at
random, which leaves it their frequencies."""


class MemoryWriter:
    """Collects the states and the tokens of a pass."""

    def __init__(self) -> None:
        self.states: list[Tensor] = []
        self.tokens: list[Tensor] = []

    def __call__(self, states: Tensor, tokens: Tensor, nats: Tensor) -> Tensor:
        """States [rows, size], the token after each [rows], and its cost [rows], which is returned."""
        self.states.append(states.float().cpu())
        self.tokens.append(tokens.cpu())
        return nats


class TokenMemory:
    """The states and the tokens of a corpus.

    Args:
        neighbours: k.
        share: of the memory's probability.
        temperature: of the distances.
        seed: of the permuted tokens.
    """

    def __init__(
        self, written: MemoryWriter, neighbours: int, share: float, temperature: float = 1.0, seed: int = 0
    ) -> None:
        self.states, self.tokens = torch.cat(written.states), torch.cat(written.tokens)
        self.neighbours, self.share, self.temperature = min(neighbours, len(self.tokens)), share, temperature
        self.permuted = self.tokens[torch.randperm(len(self.tokens), generator=torch.Generator().manual_seed(seed))]

    def __call__(self, states: Tensor, tokens: Tensor, nats: Tensor) -> Tensor:
        """The costs of tokens in nats [rows, 3]: with the memory, by the network alone, with permuted tokens."""
        found = [self._shares(*part) for part in zip(states.split(BLOCK), tokens.split(BLOCK), strict=True)]
        remembered = torch.cat(found).to(nats).double() if found else nats.new_zeros(0, 2).double()
        mixed = self.share * remembered + (1 - self.share) * (-nats.double()).exp()[:, None]
        true, permuted = (-mixed.log()).unbind(1)
        return torch.stack([true, nats.double(), permuted], dim=1)

    def _shares(self, states: Tensor, tokens: Tensor) -> Tensor:
        """p_kNN of tokens by the memory, and by that of permuted tokens [rows, 2]."""
        distances = torch.cdist(states.float().cpu(), self.states).square()
        nearest, places = distances.topk(self.neighbours, largest=False)
        weights = (-nearest / self.temperature).softmax(-1)
        return torch.stack(
            [(weights * (own[places] == tokens.cpu()[:, None])).sum(1) for own in (self.tokens, self.permuted)], dim=1
        )
