"""The head of objectives that predict tokens: every way in which a recipe may say it, compared with the equation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from workbench.components.building import build
from workbench.core.options.values import check
from workbench.models.network import Network
from workbench.objectives._token_head import BertHeadOptions, HeadOptions, HeadTransform, TokenHead
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
