"""The files by which the library of a release reads its tokenizer: the same ids, in the frame that the network reads.

`tokenizer.json` holds the tokens and the special ones around a text. `tokenizer_config.json` says which token has which
role, how many tokens the network reads, and of which class all that is: the library's plain one, as those of the
families have rules of their own about white space and capitals. Older versions look for the roles in
`special_tokens_map.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from workbench.files.drafts import write_text
from workbench.recipe.spec import NetworkSpec
from workbench.runs.loading import Loaded
from workbench.runs.names import TOKENIZER
from workbench.sequences.builder import Builder
from workbench.sequences.layout import Frame
from workbench.text.files import ROLES_FILE, SETTINGS_FILE
from workbench.text.tokenizer import Tokenizer

NAMES = (TOKENIZER, SETTINGS_FILE, ROLES_FILE)
PLAIN = "PreTrainedTokenizerFast"


def write_tokenizer(
    folder: Path, tokenizer: Tokenizer, network: NetworkSpec, frame: Frame | None, goes_on: bool = True
) -> None:
    """Write what the library reads of a tokenizer.

    Args:
        network: what the configuration beside it describes (`Release.network`).
        frame: of the texts that the network has read; None: no special token stands around them.
        goes_on: whether a text that is read from left to right is one to go on with, and so has no end.
    """
    roles = {f"{role}_token": token for role, token in sorted(tokenizer.roles.items())}
    text = network.streams.get("text", {})
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if _tells_segments(network) else None
    settings: dict[str, Any] = {
        "tokenizer_class": PLAIN,
        "clean_up_tokenization_spaces": False,
        "model_input_names": inputs or ["input_ids", "attention_mask"],
        **roles,
    }
    if text.get("max_positions"):
        settings["model_max_length"] = text["max_positions"]
    write_text(folder / TOKENIZER, _framed(tokenizer, frame, goes_on).to_str(pretty=True))
    write_text(folder / SETTINGS_FILE, json.dumps(settings, ensure_ascii=False, indent=2))
    write_text(folder / ROLES_FILE, json.dumps(roles, ensure_ascii=False, indent=2))


def frame_of(loaded: Loaded, network: str) -> Frame | None:
    """The special tokens around the texts of the first task that trains a network, or else of any."""
    tasks = sorted(loaded.transforms.values(), key=lambda task: all(o.network != network for o in task.objectives))
    return next((task.builder.frame for task in tasks if isinstance(task.builder, Builder)), None)


def _framed(tokenizer: Tokenizer, frame: Frame | None, goes_on: bool) -> tokenizers.Tokenizer:
    """The tokenizer with its template. A text to go on with has no end."""
    begin = frame.begin if frame else []
    end = frame.end if frame and not (goes_on and "causal" in frame.visibilities) else []
    before, after = ([str(tokenizer.backend.id_to_token(i)) for i in ids] for ids in (begin, end))
    first = [*before, "$A", *after]
    second = ["$B:1", *(f"{token}:1" for token in after)]
    special = [(token, tokenizer.vocabulary[token]) for token in {*before, *after}]
    framed = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    framed.post_processor = TemplateProcessing(single=first, pair=[*first, *second], special_tokens=special)
    return framed


def _tells_segments(network: NetworkSpec) -> bool:
    """Whether the network reads of which segment a token is, in its embedding or in a relation."""
    relations = [layer.get("relation") for layer in network.layers]
    told = any(isinstance(relation, dict) and relation.get("segments") for relation in relations)
    return told or network.streams.get("text", {}).get("token_types", 0) > 1
