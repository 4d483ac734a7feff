"""Reading tokenizers from the common file layouts. Where two files differ, a warning says which is used."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json

logger = logging.getLogger(__name__)

ROLES_FILE, SETTINGS_FILE = "special_tokens_map.json", "tokenizer_config.json"
_LAYOUTS = (
    "tokenizer.json, a folder with tokenizer.json, vocab.txt (BERT), or vocab.json + merges.txt (GPT-2, RoBERTa, CLIP)"
)
Roles = dict[str, str]
_STATED = ("cls", "sep", "pad", "mask", "unk", "bos", "eos")
CLIP_BEGIN, CLIP_END, WORD_END = "<|startoftext|>", "<|endoftext|>", "</w>"
CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
"""The pattern of words in CLIP's original code."""


def read_tokenizer(path: Path) -> tuple[tokenizers.Tokenizer, Roles]:
    """The tokenizer at `path` (a file or a folder) and the roles that files next to it state.

    Raises:
        WorkbenchError: nothing there, or not a tokenizer.
    """
    if not path.exists():
        raise WorkbenchError(
            f"there is no tokenizer at {path}; expected {_LAYOUTS}. `workbench prepare tokenizer CORPORA --output "
            f"{path}` trains one"
        )
    folder = path if path.is_dir() else path.parent
    files = {name: _settings(folder / name) for name in (SETTINGS_FILE, ROLES_FILE)}  # the more specific last
    settings = files[SETTINGS_FILE] | files[ROLES_FILE]
    backend = _from_folder(path, settings) if path.is_dir() else _from_file(path, settings)
    for line in _differences(folder, files, backend, listed=path.is_dir()):
        _report(f"{folder}: {line}")
    return backend, _roles(backend, settings)


@cache  # a command may read a tokenizer several times
def _report(line: str) -> None:
    logger.warning("%s", line)


def _differences(
    folder: Path, files: dict[str, dict[str, Any]], backend: tokenizers.Tokenizer, listed: bool
) -> Iterator[str]:
    """The facts that two files of a folder state differently.

    Args:
        listed: whether lists of tokens are compared, too; a user who names the file itself has chosen between them.
    """
    lower = files[SETTINGS_FILE].get("do_lower_case")
    lowers = backend.normalizer is not None and "A" not in backend.normalizer.normalize_str("A")
    if lower is not None and bool(lower) != lowers:
        does = "makes capitals small" if lowers else "keeps capitals"
        yield f"{SETTINGS_FILE} says do_lower_case = {lower}, but the tokenizer {does}; the tokenizer is used as it is"
    for role in _STATED:
        stated = {name: token for name, file in files.items() if (token := _token(file, role)) is not None}
        if len({*stated.values()}) > 1:
            yield (
                f"the {role} token is "
                + ", ".join(f"{token!r} in {name}" for name, token in stated.items())
                + (f"; that of {ROLES_FILE} is used")
            )
        for name, token in stated.items():
            if backend.token_to_id(token) is None:
                yield f"{name} names the {role} token {token!r}, which is not in the vocabulary; it is left out"
    added = files[SETTINGS_FILE].get("added_tokens_decoder")
    lists = {SETTINGS_FILE: {each.get("content", ""): int(i) for i, each in added.items()}} if added else {}
    lists |= {name: _vocabulary(folder / name) for name in ("vocab.txt", "vocab.json") if listed}
    for name, tokens in lists.items():
        wrong = [token for token, number in tokens.items() if backend.token_to_id(token) != number]
        if wrong:
            yield (
                f"{name} has {len(wrong):,} tokens that the tokenizer lacks or that have another id in it, such as "
                f"{wrong[0]!r}; the tokenizer is used as it is"
            )


def _vocabulary(path: Path) -> dict[str, int]:
    """The ids of the tokens in a list of tokens; none where there is no such file."""
    if not path.is_file():
        return {}
    if path.suffix == ".json":
        found = parse_json(_text(path))
        return found if isinstance(found, dict) else {}
    tokens = [line.rstrip("\r\n") for line in _text(path).split("\n")]
    while tokens and not tokens[-1]:
        tokens.pop()
    return {token: i for i, token in enumerate(tokens)}


def _from_folder(folder: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    for name in ("tokenizer.json", "vocab.txt"):
        if (folder / name).is_file():
            return _from_file(folder / name, settings)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _merged(folder)
    found = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise WorkbenchError(f"{folder} holds no tokenizer: found {found}; expected {_LAYOUTS}")


def _from_file(path: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    if path.suffix == ".txt":
        return _wordpiece(path, settings)
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises plain Exception for a bad definition
        raise WorkbenchError(
            f"{path} is not a tokenizer definition, or a damaged one ({error}); expected {_LAYOUTS}; in a "
            "run, a copy of its recipe's `tokenizer`"
        ) from error


def _wordpiece(path: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    vocabulary = _vocabulary(path)
    if "[UNK]" not in vocabulary:
        raise WorkbenchError(
            f"{path}: a BERT vocab.txt has one token per line and holds [UNK]; found {len(vocabulary)} tokens"
        )
    plain = [t for t in vocabulary if not (t.startswith("[") and t.endswith("]"))]
    lowercase = bool(settings.get("do_lower_case", all(t == t.lower() for t in plain)))
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens([t for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if t in vocabulary])
    return backend


def _merged(folder: Path) -> tokenizers.Tokenizer:
    """The byte-level BPE of GPT-2, or that of CLIP, whose tokens mark the ends of words."""
    files = str(folder / "vocab.json"), str(folder / "merges.txt")
    try:
        model = models.BPE.from_file(*files)
        backend = tokenizers.Tokenizer(model)
        if backend.token_to_id(CLIP_BEGIN) is not None:
            return _clip(models.BPE.from_file(*files, end_of_word_suffix=WORD_END, unk_token=CLIP_END))
    except Exception as error:  # the library raises plain Exception for bad files
        raise WorkbenchError(f"{folder}: vocab.json + merges.txt are not a byte-level BPE ({error})") from error
    return _byte_level(backend)


def _byte_level(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")
    backend.add_special_tokens([t for t in special if backend.token_to_id(t) is not None])
    return backend


def _clip(model: models.BPE) -> tokenizers.Tokenizer:
    """CLIP's tokenizer: lower case, single spaces; words are letters, single digits or symbols, split into bytes."""
    backend = tokenizers.Tokenizer(model)
    one_space = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), one_space, normalizers.Lowercase()])
    words = pre_tokenizers.Split(tokenizers.Regex(CLIP_WORDS), behavior="removed", invert=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace(WORD_END, " ")])
    backend.add_special_tokens([CLIP_BEGIN, CLIP_END])
    return backend


def _settings(path: Path) -> dict[str, Any]:
    """The settings of one of Hugging Face's additional files; none where there is no such file."""
    if not path.is_file():
        return {}
    try:
        settings: dict[str, Any] = parse_json(_text(path))
    except ValueError as error:
        raise WorkbenchError(f"{path} is not valid JSON: {error}") from error
    return settings


def _roles(backend: tokenizers.Tokenizer, settings: dict[str, Any]) -> Roles:
    stated = {role: token for role in _STATED if (token := _token(settings, role)) is not None}
    return {role: token for role, token in stated.items() if backend.token_to_id(token) is not None}


def _token(settings: dict[str, Any], role: str) -> str | None:
    """The token of a role in a file; None where it states none."""
    stated = settings.get(f"{role}_token")
    token = stated.get("content") if isinstance(stated, dict) else stated
    return token if isinstance(token, str) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise WorkbenchError(f"{path} is not UTF-8: {error}") from error
