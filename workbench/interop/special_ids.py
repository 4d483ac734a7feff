"""The ids of special tokens in the configuration of a release: those of the tokenizer, not the usual ones of a family.

Their `generate` begins and ends texts by them. The padding's id stays: families compute positions from it (RoBERTa).
"""

from __future__ import annotations

from typing import Any

from workbench.text.tokenizer import Tokenizer

ROLES = ("bos", "eos")
START = "decoder_start_token_id"


def with_special_ids(config: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """The configuration with the tokenizer's ids, where it names a token and the tokenizer has one of that role."""
    named = {role: config[f"{role}_token_id"] for role in (*ROLES, "pad") if f"{role}_token_id" in config}
    ids = {f"{role}_token_id": tokenizer.id(role) for role in ROLES if role in named and tokenizer.has(role)}
    first = next((role for role, value in named.items() if START in config and value == config[START]), None)
    if first is not None and tokenizer.has(first):
        ids[START] = tokenizer.id(first)
    return {**config, **ids}
