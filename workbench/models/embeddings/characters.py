"""Vectors of words from their spelling: convolutions over characters and highways (Kim et al., arXiv:1508.06615; ELMo,
Peters et al., arXiv:1802.05365; CharacterBERT, arXiv:2010.10392)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Size
from workbench.models.initialisation import initialise
from workbench.text.tokenizer import Tokenizer

BEGIN, END = 257, 258
"""The characters around a word. 0 is none, and 1 to 256 are bytes."""
FILTERS = (32, 32, 64, 128, 256, 512, 1024)
CARRIED = -2.0
"""The initial bias of the gates of a highway, as in the code that was released with ELMo."""


class CharactersEmbedding(nn.Module):
    """Vector of a token from the bytes of its spelling (character CNN of ELMo, arXiv:1802.05365). Convolutions of the
    widths 1, 2, ... over the bytes, ReLU of the greatest value of each filter, highways, and a linear layer:

        y = g relu(W x + b) + (1 - g) x,  g = sigmoid(V x + c)    (arXiv:1505.00387, equation 3)

    The spelling is that of the tokenizer's vocabulary; a special token is one character of its own. The stream has no
    table of tokens, so an objective that predicts tokens needs a head of its own (`head: {tied: false}`).

    Args:
        tokenizer: given by the recipe.
        hidden_size: width of the output rows.
        character_size: width of the vectors of bytes.
        filters: number of filters of the widths 1, 2, ...
        highways: number of highways behind the filters.
        longest: bytes of a token that are read, with one before and one behind; the others are left out.
        copies: how often the row holds the vector, for a layer that reads halves of it (`two_way_lstm`).

    Raises:
        WorkbenchError: `longest` is below the widest filter, or `hidden_size` no multiple of `copies`.
    """

    spellings: Tensor

    def __init__(
        self,
        hidden_size: Size,
        tokenizer: Tokenizer,
        character_size: Size = 16,
        filters: Annotated[list[Size], MinLen(1)] = [*FILTERS],  # noqa: B006
        highways: Count = 2,
        longest: Size = 50,
        copies: Count = 1,
    ) -> None:
        super().__init__()
        if longest < max(3, len(filters)) or hidden_size % copies:
            raise WorkbenchError(
                f"longest = {longest}, hidden_size = {hidden_size}; allowed: longest of at least 3 and of the widest "
                f"filter ({len(filters)}), and a hidden_size that is a multiple of copies = {copies}"
            )
        self.hidden_size, self.copies = hidden_size, copies
        self.limits = {"input_ids": tokenizer.vocab_size}
        table = spellings(tokenizer, longest)
        self.register_buffer("spellings", torch.from_numpy(table), persistent=False)
        self.character = nn.Embedding(END + 1 + len(tokenizer.special_ids), character_size)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(character_size, count, width) for width, count in enumerate(filters, 1)
        )
        self.highways = nn.ModuleList(nn.Linear(sum(filters), 2 * sum(filters)) for _ in range(highways))
        self.project = nn.Linear(sum(filters), hidden_size // copies)

    def initialise(self, scale: float) -> None:
        """Filters from U(-0.05, 0.05), highways that let their input pass, all else from N(0, scale^2)."""
        for child in (self.character, self.project, self.highways):
            initialise(child, scale)
        for highway in self.highways:
            assert isinstance(highway, nn.Linear)
            nn.init.normal_(highway.weight, std=highway.in_features**-0.5)
            nn.init.constant_(highway.bias[highway.in_features :], CARRIED)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            assert convolution.bias is not None
            nn.init.uniform_(convolution.weight, -0.05, 0.05)
            nn.init.zeros_(convolution.bias)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """input_ids [rows] -> [rows, hidden_size]."""
        letters = self.character(self.spellings[fields["input_ids"]]).transpose(1, 2)
        states = torch.cat([F.relu(convolution(letters).amax(-1)) for convolution in self.convolutions], -1)
        for highway in self.highways:
            changed, gate = highway(states).chunk(2, -1)
            gate = gate.sigmoid()
            states = gate * F.relu(changed) + (1 - gate) * states
        rows: Tensor = self.project(states).repeat(1, self.copies)
        return rows


def spellings(tokenizer: Tokenizer, longest: int) -> np.ndarray:
    """The characters of each token [vocab_size, longest], int64: `BEGIN`, its bytes + 1, `END`, zeros."""
    special = {number: END + 1 + place for place, number in enumerate(tokenizer.special_ids.tolist())}
    table = np.zeros((tokenizer.vocab_size, longest), np.int64)
    for token, number in tokenizer.vocabulary.items():
        inside = [special[number]] if number in special else [byte + 1 for byte in token.encode()[: longest - 2]]
        table[number, : len(inside) + 2] = [BEGIN, *inside, END]
    return table
