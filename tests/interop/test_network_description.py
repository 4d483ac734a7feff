"""A network and its heads, spelt out: what groups of options say is compared option by option."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.interop.network_description import differences_of_heads, model_description, spelt_out
from workbench.recipe.spec import NetworkSpec

THEIRS = {"objective": "mlm", "head": {"transform": {"activation": "gelu", "norm_eps": 1e-12}}}
SAME: list[dict[str, Any]] = [{}, {"head": {}}, {"head": {"bias": True}}, {"head": {"transform": {"norm_eps": 1e-12}}}]
OTHER: dict[str, tuple[dict[str, Any], str]] = {
    "norm": ({"transform": {"norm_eps": 1e-5}}, "head.transform.norm_eps is 1e-12 there, 1e-05 here"),
    "not tied": ({"tied": False}, "head.tied is True there, False here"),
    "no bias": ({"transform": {"bias": False}}, "head.transform.bias is True there, False here"),
    "none": ({"transform": None}, "head.transform.activation is gelu there, None here"),
}


def test_defaults_that_are_written_down_make_no_difference() -> None:
    for options in SAME:
        assert differences_of_heads({"mlm": {"objective": "mlm", "rate": 0.3, **options}}, {"mlm": THEIRS}) == []


@pytest.mark.parametrize("name", OTHER)
def test_what_a_head_computes_otherwise_is_reported(name: str) -> None:
    head, line = OTHER[name]
    assert f"mlm: {line}" in differences_of_heads({"mlm": {"objective": "mlm", "head": head}}, {"mlm": THEIRS})


def test_a_part_is_spelt_out_with_every_option_of_its_groups() -> None:
    full = spelt_out("objective", {"objective": "clm", "head": {"bias": True}}, {})
    assert (full["head.tied"], full["head.bias"], full["head.transform"]) == (True, True, None)
    assert "head" not in full


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"bias": False}, (False, False)),
        ({"bias": False, "attention_bias": True}, (True, True)),
        ({"bias": False, "qkv_bias": True}, (False, True)),
    ],
)
def test_a_default_that_is_another_option_follows_that_one_s_default(options: Any, wanted: Any) -> None:
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 9}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, **options}
    (found,) = model_description(NetworkSpec({"text": text}, [layer])).layers
    assert (found["attention_bias"], found["qkv_bias"]) == wanted
