"""The head of objectives that predict tokens: every way in which a recipe may say it, compared with the equation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.options.values import check
from workbench.models.network import Network
from workbench.objectives import _token_head
from workbench.objectives._token_head import BertHeadOptions, HeadOptions, HeadTransform, TokenHead, TokenLoss
from workbench.objectives.clm import Clm
from workbench.objectives.mlm import Mlm
from workbench.text.tokenizer import Tokenizer


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("embedding_size", [16, 12])
@pytest.mark.parametrize("transform", [None, HeadTransform("tanh", 0.1, bias=True), HeadTransform(bias=False)], ids=str)
def test_logits_are_those_of_the_equation(
    make_network: Callable[..., Network], tied: bool, embedding_size: int, transform: HeadTransform | None
) -> None:
    network = make_network(embedding_size=embedding_size)
    head = TokenHead(network, "text", HeadOptions(tied, bias=True, transform=transform), scaled=True)
    own = dict(head.named_parameters())
    for parameter in own.values():
        torch.nn.init.normal_(parameter)
    rows = torch.randn(5, 16)
    table = network.embeddings["text"].token.weight if tied else own["output.weight"]
    if transform is None:
        before = F.linear(rows / 4, own["projection.weight"]) if tied and embedding_size == 12 else rows / 4
    else:
        shaped = F.linear(rows / 4, own["dense.weight"], own.get("dense.bias"))
        shaped = torch.tanh(shaped) if transform.activation == "tanh" else F.gelu(shaped)
        mean, variance = shaped.mean(-1, keepdim=True), shaped.var(-1, keepdim=True, unbiased=False)
        before = (shaped - mean) / (variance + transform.norm_eps).sqrt() * own["norm.weight"] + own.get("norm.bias", 0)
    torch.testing.assert_close(head.logits(network, rows), before @ table.T + own["bias"], atol=1e-4, rtol=1e-4)
    assert ("dense.bias" in own) == (transform is not None and transform.bias)


def test_what_a_recipe_does_not_say_is_as_the_objective_has_it(
    make_network: Callable[..., Network], tokenizer: Tokenizer
) -> None:
    def of(objective: str, **head: object) -> list[str]:
        made = build("objective", {"objective": objective, "head": head}, tokenizer=tokenizer)
        return sorted(made.head(make_network()).state_dict())

    bert = ["bias", "dense.bias", "dense.weight", "norm.bias", "norm.weight"]
    assert of("mlm") == of("mlm", transform={"norm_eps": 1e-5}) == bert
    assert of("mlm", tied=False) == [*bert, "output.weight"]
    assert of("mlm", transform=None) == ["bias"]
    assert of("mlm", transform={"bias": False}) == ["bias", "dense.weight", "norm.weight"]
    assert of("clm") == []
    assert of("clm", bias=True) == ["bias"]
    assert of("clm", tied=False) == ["output.weight"]
    assert check(BertHeadOptions, {}, "head") == Mlm(tokenizer).head_options
    assert check(HeadOptions, {}, "head") == Clm().head_options


def test_a_head_with_its_own_matrix_needs_no_table(make_network: Callable[..., Network]) -> None:
    network = make_network()
    del network.embeddings["text"].token
    rows = torch.randn(5, 16)
    head = TokenHead(network, "text", HeadOptions(tied=False, bias=True))
    assert head.output is not None
    assert head.output.weight.shape == (network.vocab_size, 16)
    torch.testing.assert_close(head.logits(network, rows), rows @ head.output.weight.T)
    with pytest.raises(WorkbenchError, match=r"no stream 'text' with a token table .*tied: false"):
        TokenHead(network, "text", HeadOptions())


def _scored(bias: bool, factor: float, *, learns: bool = True, frozen: bool = False) -> list[Tensor]:
    """The loss and accuracy of 23 rows over 50 classes, some not counted, then the gradients of rows, table and bias,
    where the rows depend on the table, too (tied)."""
    draws = torch.Generator().manual_seed(0)
    table = torch.randn(50, 16, generator=draws).requires_grad_(not frozen)
    own = torch.randn(50, generator=draws).requires_grad_() if bias else None
    rows = torch.randn(23, 16, generator=draws).requires_grad_()
    labels = torch.randint(0, 50, (23,), generator=draws)
    labels[::5] = -100
    with torch.set_grad_enabled(learns):
        output = TokenLoss().of_rows(rows + table[labels.clamp_min(0)], table, own, labels)
        right, counted = output.metrics["accuracy"]
        found = [output.loss, torch.as_tensor(right), torch.as_tensor(counted)]
    leaves = [leaf for leaf in (rows, table, own) if leaf is not None and leaf.requires_grad]
    return [*found, *(torch.autograd.grad(output.loss * factor, leaves) if learns else ())]


@pytest.mark.parametrize("chunk", [1, 7, 22])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "way", [{}, {"learns": False}, {"frozen": True}], ids=["trained", "no gradients", "frozen table"]
)
def test_scores_in_chunks_have_the_loss_and_the_gradients_of_all_at_once(
    way: dict[str, bool], bias: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _scored(bias, 0.3, **way)
    monkeypatch.setattr(_token_head, "CHUNKED", ("cpu",))
    monkeypatch.setattr(_token_head, "CHUNK", chunk)
    made: list[int] = []
    forward = TokenLoss.forward
    monkeypatch.setattr(
        TokenLoss, "forward", lambda self, *given: (made.append(len(given[0])), forward(self, *given))[1]
    )
    chunked = _scored(bias, 0.3, **way)
    assert max(made) == chunk
    assert sum(made) == 23
    for one, other in zip(plain, chunked, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-6)
        assert one.dtype == other.dtype


def test_chunks_in_16_bit_are_as_near_to_float32_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast holds in the chunks, and gradients are added up in float32."""
    exact = _scored(True, 1.0)
    with torch.autocast("cpu", torch.bfloat16):
        plain = _scored(True, 1.0)
        monkeypatch.setattr(_token_head, "CHUNKED", ("cpu",))
        monkeypatch.setattr(_token_head, "CHUNK", 4)
        chunked = _scored(True, 1.0)
    for right, one, other in zip(exact[3:], plain[3:], chunked[3:], strict=True):
        assert one.dtype == other.dtype
        assert not torch.equal(right, other)
        assert (right - other).norm() <= 1.5 * (right - one).norm()


def test_a_cpu_scores_all_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_token_head, "CHUNK", 1)
    monkeypatch.setattr(_token_head.ChunkedLoss, "apply", None)
    assert len(_scored(True, 1.0)) == 6
