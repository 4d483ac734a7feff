"""One component of each kind that fails as `how` (raises, refuses, or returns nothing useful) in its method `when`."""

from __future__ import annotations

import multiprocessing
from typing import Any

from torch import nn

from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.token import TokenEmbedding
from workbench.pretraining.objective import GlobalBatchHead, Head, LossOutput, Objective
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.maskings import TokenMasking as TokenMasking
from workbench.sequences.protocols import Masking, Transform


class Break:
    """Fails as requested in the right method; otherwise returns its input."""

    def __init__(self, how: str, when: str) -> None:
        self.how, self.when = how, when

    def at(self, method: str, found: Any) -> Any:
        if method != self.when:
            return found
        if self.how == "raise in a worker" and not multiprocessing.current_process().daemon:
            return found
        if self.how.startswith("raise"):
            raise RuntimeError("boom")
        if self.how == "refuse":
            raise WorkbenchError("this cannot be")
        if self.how == "other rows":
            return {name: rows[1:] for name, rows in found.items()}
        return {"nothing": None, "a pair": (found, {}), "numbers": [1, 2]}[self.how]


class BrokenObjective(Objective):
    def __init__(self, how: str, when: str) -> None:
        self.broken = Break(how, when)
        self.broken.at("__init__", None)

    def arrange(self, samples: Any, draws: Any) -> Any:
        return self.broken.at("arrange", samples)

    def corrupt(self, sequences: Any, draws: Any) -> Any:
        return self.broken.at("corrupt", {})

    def count(self, batch: Any) -> Any:
        return self.broken.at("count", float(batch.size))

    def head(self, network: Any) -> Any:
        return self.broken.at("head", BrokenHead(network.sizes["text"], self.broken))


class BrokenHead(Head):
    def __init__(self, width: int, broken: Break) -> None:
        super().__init__()
        self.score, self.broken = nn.Linear(width, 1), broken

    def forward(self, seen: Any) -> Any:
        loss = self.score(seen.states["text"]).square().sum()
        return self.broken.at("forward", loss if self.broken.how == "a pair" else LossOutput(loss, {}))


class BrokenGlobalBatch(BrokenObjective):
    global_batch = True

    def head(self, network: Any) -> Any:
        return self.broken.at("head", BrokenGlobalBatchHead(network.sizes["text"], self.broken))


class BrokenGlobalBatchHead(GlobalBatchHead):
    def __init__(self, width: int, broken: Break) -> None:
        super().__init__()
        self.score, self.broken = nn.Linear(width, 1), broken

    def embed(self, seen: Any) -> Any:
        return self.broken.at("embed", {"score": self.score(seen.network.first_rows(seen.states, seen.batch, "text"))})

    def loss(self, embedded: Any, own: Any) -> Any:
        return self.broken.at("loss", LossOutput(embedded["score"][own].square().sum(), {}))


class BrokenTransform(Transform):
    def __init__(self, how: str) -> None:
        self.broken = Break(how, "__call__")

    def __call__(self, sequences: Any, draws: Any) -> Any:
        return self.broken.at("__call__", sequences)


class BrokenBuilder(DocumentBuilder):
    def __init__(self, tokenizer: Any, max_length: int, how: str) -> None:
        super().__init__(tokenizer, max_length)
        self.broken = Break(how, "__call__")

    def __call__(self, samples: Any, draws: Any) -> Any:
        return self.broken.at("__call__", super().__call__(samples, draws))


class BrokenMasking(Masking):
    def __init__(self, how: str) -> None:
        self.broken, self.inner = Break(how, "__call__"), TokenMasking()

    def __call__(self, sequences: Any, stream: Any, rate: Any, numbers: Any) -> Any:
        return self.broken.at("__call__", self.inner(sequences, stream, rate, numbers))


class BrokenLayer(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.broken = Break(how, "forward")

    def forward(self, hidden: Any, context: Any) -> Any:
        return self.broken.at("forward", hidden)


class BrokenEmbedding(TokenEmbedding):
    def __init__(self, vocab_size: int, hidden_size: int, how: str) -> None:
        super().__init__(hidden_size, vocab_size, 32)
        self.broken = Break(how, "forward")

    def forward(self, fields: Any) -> Any:
        return self.broken.at("forward", super().forward(fields))
