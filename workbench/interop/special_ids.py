"""The ids of special tokens in the configuration of a release: those of the tokenizer, not the usual ones of a family.

Their `generate` begins and ends texts by them, and what their layers leave out is the padding.
"""

from __future__ import annotations

import logging
from typing import Any

from workbench.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
ROLES = ("bos", "eos")
PAD, START = "pad_token_id", "decoder_start_token_id"
TEXT = "text_config"  # where a configuration of several encoders has that of the text


def with_special_ids(config: dict[str, Any], tokenizer: Tokenizer, counted: bool) -> dict[str, Any]:
    """The configuration with the tokenizer's ids: of the padding, where the tokenizer has one, and of what else the
    configuration names.

    Args:
        counted: whether the family counts positions from its padding's id (`Release.counts_padding`), which then stays.
    """
    if isinstance(config.get(TEXT), dict):
        return {**config, TEXT: with_special_ids(config[TEXT], tokenizer, counted)}
    named = {role: config[f"{role}_token_id"] for role in (*ROLES, "pad") if f"{role}_token_id" in config}
    ids = {f"{role}_token_id": tokenizer.id(role) for role in ROLES if role in named and tokenizer.has(role)}
    first = next((role for role, value in named.items() if START in config and value == config[START]), None)
    if first is not None and tokenizer.has(first):
        ids[START] = tokenizer.id(first)
    if counted:
        _tell_taken(config, tokenizer)
    elif tokenizer.has("pad"):
        ids[PAD] = tokenizer.id("pad")
    return {**config, **ids}


def _tell_taken(config: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Say so where a token of texts has the id that the family takes for padding."""
    theirs = config[PAD]
    if not tokenizer.has("pad") or tokenizer.id("pad") != theirs:
        (token,) = tokenizer.tokens([theirs])
        logger.warning(
            "%s takes the token of id %d for padding and counts positions without it; in this tokenizer that is %r, so "
            "texts with it get other states there. Train the tokenizer so that padding has id %d (--kind bpe)",
            *(config.get("model_type"), theirs, token, theirs),
        )
