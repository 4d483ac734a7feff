"""The tokenizer files of a checkpoint for its library: the same ids, with the special tokens of the network's texts.

`tokenizer.json` holds the tokens and the special ones around a text. `tokenizer_config.json` has the roles of tokens,
the number of tokens that the network reads, and the class: the library's plain one, as those of the families have rules
of their own about white space and capitals. Older versions read the roles from `special_tokens_map.json`.

The ids of special tokens in the configuration of a checkpoint are those of the tokenizer, not the usual ones of a
family. The library's `generate` begins and ends texts with them, and its layers ignore the padding.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from workbench.core.files.drafts import write_text
from workbench.recipe.spec import NetworkSpec
from workbench.runs.loaded_run import LoadedRun
from workbench.runs.names import TOKENIZER
from workbench.sequences.builder import Builder
from workbench.sequences.text_layout import Frame
from workbench.text.tokenizer import Tokenizer
from workbench.text.tokenizer_layouts import ROLES_FILE, SETTINGS_FILE

logger = logging.getLogger(__name__)


NAMES = (TOKENIZER, SETTINGS_FILE, ROLES_FILE)
PLAIN = "PreTrainedTokenizerFast"


def write_tokenizer(
    folder: Path,
    tokenizer: Tokenizer,
    network: NetworkSpec,
    frame: Frame | None,
    resumes: bool = True,
    longest: int | None = None,
) -> None:
    """Write the tokenizer files of the library.

    Args:
        network: that of the configuration next to them (`CheckpointFamily.network`).
        frame: of the texts that the network has read; None: without special tokens.
        resumes: whether a text that is read from left to right is continued, and so has no end token.
        longest: tokens at which the run cut its texts, if at fewer than the network has positions for.
    """
    roles = {f"{role}_token": token for role, token in sorted(tokenizer.roles.items())}
    if frame and "causal" in frame.visibilities and "eos_token" in roles:
        roles.setdefault("pad_token", roles["eos_token"])  # no row sees the padding behind it
    text = network.streams.get("text", {})
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if _distinguishes_segments(network) else None
    settings: dict[str, Any] = {
        "tokenizer_class": PLAIN,
        "clean_up_tokenization_spaces": False,
        "model_input_names": inputs or ["input_ids", "attention_mask"],
        **roles,
    }
    if lengths := [each for each in (text.get("max_positions"), longest) if each]:
        settings["model_max_length"] = min(lengths)
    write_text(folder / TOKENIZER, _in_frame(tokenizer, frame, resumes).to_str(pretty=True))
    write_text(folder / SETTINGS_FILE, json.dumps(settings, ensure_ascii=False, indent=2))
    write_text(folder / ROLES_FILE, json.dumps(roles, ensure_ascii=False, indent=2))


def warn_of_class(name: str, tokenizer: Tokenizer) -> None:
    """Warn where AutoTokenizer reads a folder with a class that splits texts by rules of its own, not by the file's.

    Args:
        name: that of the class (`CheckpointFamily.tokenizer_class`), or "".
    """
    if not name:
        return
    rules = json.loads(tokenizer.backend.to_str())
    if rules["model"]["type"] != "BPE" or (rules["normalizer"] or {}).get("type") != "NFC":
        logger.warning(
            "AutoTokenizer reads this folder with %s, which splits texts in another way; open it with %s",
            *(name, PLAIN),
        )


def texts_of(loaded: LoadedRun, network: str) -> Builder | None:
    """The builder of the texts of the first task that trains a network, or else of any."""
    tasks = sorted(loaded.tasks.values(), key=lambda task: all(o.network != network for o in task.objectives))
    return next((task.builder for task in tasks if isinstance(task.builder, Builder)), None)


def _in_frame(tokenizer: Tokenizer, frame: Frame | None, resumes: bool) -> tokenizers.Tokenizer:
    """The tokenizer with its template. A text that is continued has no end token."""
    begin = frame.begin if frame else []
    end = frame.end if frame and not (resumes and "causal" in frame.visibilities) else []
    before, after = ([str(tokenizer.backend.id_to_token(i)) for i in ids] for ids in (begin, end))
    first = [*before, "$A", *after]
    second = ["$B:1", *(f"{token}:1" for token in after)]
    special = [(token, tokenizer.vocabulary[token]) for token in {*before, *after}]
    framed = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    framed.post_processor = TemplateProcessing(single=first, pair=[*first, *second], special_tokens=special)
    return framed


def _distinguishes_segments(network: NetworkSpec) -> bool:
    """Whether the network reads the segment of a token, in its embedding or in a score bias."""
    score_biases = [layer.get("score_bias") for layer in network.layers]
    has_segments = any(isinstance(score_bias, dict) and score_bias.get("segments") for score_bias in score_biases)
    return has_segments or network.streams.get("text", {}).get("token_types", 0) > 1


ROLES = ("bos", "eos")
PAD, START = "pad_token_id", "decoder_start_token_id"
TEXT = "text_config"  # the key of the text's configuration in one of several encoders


def with_special_ids(config: dict[str, Any], tokenizer: Tokenizer, counted: bool) -> dict[str, Any]:
    """The configuration with the tokenizer's ids: of the padding, where the tokenizer has one, and of the other tokens
    that the configuration names.

    Args:
        counted: whether the family counts positions from its padding's id (`CheckpointFamily.counts_padding`), which
            then stays.
    """
    if isinstance(config.get(TEXT), dict):
        return {**config, TEXT: with_special_ids(config[TEXT], tokenizer, counted)}
    named = {role: config[f"{role}_token_id"] for role in (*ROLES, "pad") if f"{role}_token_id" in config}
    ids = {f"{role}_token_id": tokenizer.id(role) for role in ROLES if role in named and tokenizer.has(role)}
    first = next((role for role, value in named.items() if START in config and value == config[START]), None)
    if first is not None and tokenizer.has(first):
        ids[START] = tokenizer.id(first)
    if counted:
        _warn_taken(config, tokenizer)
    elif tokenizer.has("pad"):
        ids[PAD] = tokenizer.id("pad")
    return {**config, **ids}


def _warn_taken(config: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Warn where a token of texts has the id that the family uses for padding."""
    theirs = config[PAD]
    if not tokenizer.has("pad") or tokenizer.id("pad") != theirs:
        (token,) = tokenizer.tokens([theirs])
        logger.warning(
            "%s uses the token of id %d as padding and counts positions without it; in this tokenizer that is %r, so "
            "texts with it get other states there. Train the tokenizer so that padding has id %d (--kind bpe)",
            *(config.get("model_type"), theirs, token, theirs),
        )
