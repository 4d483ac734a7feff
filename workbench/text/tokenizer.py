"""Tokenizers: text to token ids, word numbers and character offsets, with one interface for every kind.

The offsets always index the original text, even if the tokenizer lower-cases, strips accents or applies NFKC. They
never include the leading white space of byte-level and SentencePiece-like tokens, since mentions are aligned by
character (`workbench.sequences.alignment`). The spelling of a special token in a text (a literal `[MASK]`) is plain
text and never becomes the special token.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.packages import TOKENIZER, located
from workbench.text.segmenters import Segmenter, segmenter_for
from workbench.text.tokenizer_layouts import ROLES_FILE, read_tokenizer
from workbench.text.tokenizer_training import train_tokenizer

__all__ = ["ROLES", "Encoding", "Tokenizer", "train_tokenizer"]

ROLES: dict[str, tuple[str, ...]] = {
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "pad": ("[PAD]", "<pad>"),
    "mask": ("[MASK]", "<mask>"),
    "unk": ("[UNK]", "<unk>"),
    "bos": ("[BOS]", "<s>", "<bos>", "<|startoftext|>", "<|begin_of_text|>", "<|endoftext|>", "[CLS]"),
    "eos": ("[EOS]", "</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "[SEP]"),
}
# A loader worker uses one core, and threads do not survive a fork: encoding stays on the caller's thread.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

FEW = 50
"""Only tokenizers with at most so many tokens are checked for ordinary words; the check of large ones takes time."""
TAKE = "take the whole one, or train one with `workbench prepare tokenizer`"
_SPACES = np.array([ord(c) for c in map(chr, range(0x3001)) if c.isspace()], np.uint32)


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text's tokens, without special ones: four int64 arrays of one length.

    `pretokens` numbers the units of the tokenizer's pre-tokenizer, from 0; `starts`, `ends` are half-open character
    offsets in the text (equal if a token is only white space). `text` is the whole text, if there is one; `segmenter`
    the chosen segmenter of words without spaces, if any.
    """

    ids: np.ndarray
    pretokens: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    text: str = ""
    segmenter: Segmenter | None = None

    def part(self, begin: int, end: int) -> Encoding:
        """The tokens [begin, end); offsets and numbers stay those of the whole text."""
        if (begin, end) == (0, len(self.ids)):
            return self
        ids, pretokens, starts, ends = (column[begin:end] for column in self.columns)
        return Encoding(ids, pretokens, starts, ends, self.text, self.segmenter)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """ids, pretokens, starts, ends."""
        return self.ids, self.pretokens, self.starts, self.ends

    @property
    def words(self) -> np.ndarray:
        """The number of each token's word [tokens]: a unit of the pre-tokenizer, and in Chinese and Japanese a word of
        the chosen segmenter, or else of the installed segmenter for the text's language."""
        visible = (self.ends > self.starts) & (self.pretokens >= 0)
        if self.text.isascii() or not visible.any():
            return self.pretokens
        begin, end = int(self.starts[visible].min()), int(self.ends[visible].max())
        text = self.text[begin:end]
        segmenter = self.segmenter or segmenter_for(text)
        if segmenter is None:
            return self.pretokens
        characters = segmenter.words(text)
        return _numbered(self.pretokens, np.where(visible, characters[np.where(visible, self.starts - begin, 0)], -1))

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer:
    """A `tokenizers.Tokenizer` with special tokens by role.

    Args:
        backend: the tokenizer; it is copied, and its own padding, truncation and template are not used.
        roles: role -> token string, if it is not one of the usual spellings in `ROLES`.

    Attributes:
        segmenter: the chosen segmenter of texts without spaces (`cut_by`), which then decides the words of sequences.
            Otherwise words are the units of the pre-tokenizer.
        vocab_size: rows of an embedding table for its tokens, special ones included: the greatest id + 1.

    Raises:
        WorkbenchError: a role that does not exist, or a role's token that is not in the vocabulary.
    """

    def __init__(self, backend: tokenizers.Tokenizer, roles: dict[str, str] | None = None) -> None:
        self._setup(backend.to_str(), dict(roles or {}))

    segmenter: Segmenter | None = None

    def __repr__(self) -> str:
        return f"<Tokenizer: {self.vocab_size:,} tokens>"

    def _setup(self, definition: str, roles: dict[str, str]) -> None:
        self.backend = tokenizers.Tokenizer.from_str(definition)
        self.backend.no_padding()
        self.backend.no_truncation()
        self.backend.post_processor = None
        self.backend.encode_special_tokens = True
        self.roles = _usual_roles(self.backend) | roles
        self.vocab_size = max(self.vocabulary.values(), default=-1) + 1
        for role, token in roles.items():
            if role not in ROLES:
                raise WorkbenchError(f"unknown special-token role {role!r}; roles: {', '.join(ROLES)}")
            if self.backend.token_to_id(token) is None:
                raise WorkbenchError(
                    f"the {role} token {token!r} is not in the vocabulary of {self.vocab_size} tokens; "
                    "name one that is, or train the tokenizer with it"
                )
        vocabulary = self.vocabulary
        self._role_ids = {role: vocabulary[token] for role, token in self.roles.items()}
        self.vocabulary_spaces = any(token[:1] in "▁Ġ " for token in vocabulary)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a `tokenizer.json`, a Hugging Face tokenizer folder, a BERT `vocab.txt`, or `package:NAME`; what is at a
        URL is fetched.

        Raises:
            WorkbenchError: no such file, not a tokenizer, or one without ordinary tokens.
        """
        place = located(path, TOKENIZER)
        backend, roles = read_tokenizer(place)
        tokenizer = cls(backend, roles)
        if tokenizer.vocab_size <= FEW and not len(tokenizer.ordinary_ids):
            listed = (place if place.is_dir() else place.parent) / "vocab.txt"
            whole = f"{listed} lies next to it: give that file, as tokenizer={listed}" if listed.is_file() else TAKE
            raise WorkbenchError(
                f"the tokenizer {path} has only special tokens ({', '.join(sorted(tokenizer.vocabulary))}), so that "
                f"every text is unknown to it; {whole}"
            )
        note("tokenizer", path, tokenizer.identity)
        return tokenizer

    def with_tokens(self, tokens: Sequence[str]) -> Tokenizer:
        """This tokenizer with additional tokens, which are matched literally in texts; their ids follow all others.

        Raises:
            WorkbenchError: one is in the vocabulary already.
        """
        for token in tokens:
            if self.backend.token_to_id(token) is not None:
                raise WorkbenchError(f"the token {token!r} is in the vocabulary already; leave it out")
        other = Tokenizer(self.backend, self.roles)
        other.backend.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in tokens])
        return Tokenizer(other.backend, self.roles)

    def cut_by(self, segmenter: Segmenter) -> Tokenizer:
        """This tokenizer with the words of a segmenter."""
        other = copy.copy(self)
        other.segmenter = segmenter
        return other

    @property
    def identity(self) -> str:
        """A checksum of the definition and the roles, the same for every copy and layout."""
        state = json.dumps([self.backend.to_str(), self.roles], sort_keys=True)
        return hashlib.sha256(state.encode()).hexdigest()

    def save(self, path: str | Path) -> Path:
        """Write `tokenizer.json` (path ends in .json) or a folder with it; roles with unusual names go next to it."""
        target = Path(path)
        if target.suffix != ".json":
            target = target / "tokenizer.json"
        write_text(target, self.backend.to_str(pretty=True))
        if self.roles != _usual_roles(self.backend):
            tokens = {f"{role}_token": token for role, token in sorted(self.roles.items())}
            write_text(target.parent / ROLES_FILE, json.dumps(tokens, ensure_ascii=False, indent=2))
        return target

    def __getstate__(self) -> dict[str, Any]:
        return {"definition": self.backend.to_str(), "roles": self.roles, "segmenter": self.segmenter}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._setup(state["definition"], state["roles"])
        self.segmenter = state["segmenter"]

    @property
    def vocabulary(self) -> dict[str, int]:
        """The id of every token, special ones included."""
        return dict(self.backend.get_vocab(with_added_tokens=True))

    def id(self, role: str) -> int:
        """The id of a special token by role: cls, sep, pad, mask, unk, bos, eos.

        Raises:
            WorkbenchError: the tokenizer has no such token.
        """
        token = self.roles.get(role)
        if token is None:
            found = ", ".join(f"{r} = {t!r}" for r, t in sorted(self.roles.items())) or "none"
            raise WorkbenchError(
                f"the tokenizer has no {role} token; it has {found}. Choose an objective and builder that need none, "
                f"or a tokenizer with one (usual spellings: {', '.join(ROLES.get(role, ())) or 'unknown role'})"
            )
        return self._role_ids[role]

    def has(self, role: str) -> bool:
        return role in self.roles

    @cached_property
    def special_ids(self) -> np.ndarray:
        """Sorted ids of all special tokens: those with a role and those the tokenizer declares."""
        declared = [i for i, t in self.backend.get_added_tokens_decoder().items() if t.special]
        return np.unique(np.array([*declared, *(self.backend.token_to_id(t) for t in self.roles.values())], np.int64))

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Sorted ids of all other tokens, from which random tokens are drawn."""
        return np.setdiff1d(np.array(sorted(self.backend.get_vocab().values()), np.int64), self.special_ids)

    def encode(self, text: str) -> Encoding:
        """The tokens of one text, without special ones."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """The tokens of many texts; much cheaper than one by one.

        Raises:
            WorkbenchError: the definition cannot encode one of them (a model that lacks its unknown token).
        """
        listed = list(texts)
        try:
            encodings = self.backend.encode_batch(listed, add_special_tokens=False)
        except Exception as error:
            if type(error) is not Exception:  # the library's own errors are plain ones
                raise
            raise WorkbenchError(
                f"the tokenizer cannot encode this text ({error}): its definition is damaged, or was edited by hand; "
                "train it again, or take the original"
            ) from error
        return self._encoded(listed, encodings)

    def _encoded(self, texts: list[str], encodings: list[tokenizers.Encoding]) -> list[Encoding]:
        """The tokens of each text: stretches of the arrays of all, as an array costs more than the tokens of one."""
        of_texts = [encoding.ids for encoding in encodings]
        bounds = [0, *accumulate(map(len, of_texts))]
        ids = np.fromiter(chain.from_iterable(of_texts), np.int64, bounds[-1])
        pairs = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
        starts, ends = np.fromiter(pairs, np.int64, 2 * bounds[-1]).reshape(-1, 2).T.copy()
        numbers = chain.from_iterable(encoding.word_ids for encoding in encodings)
        pretokens = np.fromiter((-1 if number is None else number for number in numbers), np.int64, bounds[-1])
        if self.vocabulary_spaces:
            before = np.repeat([0, *accumulate(map(len, texts[:-1]))], np.diff(bounds)) if texts else starts
            starts = _after_space("".join(texts), starts + before, ends + before) - before
        spelled = self._spelled_special[ids]
        if spelled.any():
            ids[spelled] = self.id("unk")
        parts = [slice(begin, end) for begin, end in pairwise(bounds)]
        return [
            Encoding(ids[part], pretokens[part], starts[part], ends[part], text, self.segmenter)
            for text, part in zip(texts, parts, strict=True)
        ]

    @cached_property
    def _spelled_special(self) -> np.ndarray:
        """bool [ids]: special tokens other than the unknown one, which a text must not produce by spelling them."""
        table = np.zeros(int(max(self.backend.get_vocab().values(), default=0)) + 1, np.bool_)
        table[self.special_ids] = True
        if self.has("unk"):
            table[self.id("unk")] = False
        return table

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, without special ones."""
        return str(self.backend.decode([int(i) for i in ids], skip_special_tokens=True))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The token strings of ids, for people to read."""
        return [self.backend.id_to_token(int(i)) or f"<{int(i)}?>" for i in ids]


def _numbered(pretokens: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Word numbers of tokens from the segmenter's words `found`: 0 for none, -1 for white space, which belongs to the
    next token."""
    blank = np.flatnonzero(found < 0)
    follows = blank[(blank + 1 < len(found)) & (pretokens[np.minimum(blank + 1, len(found) - 1)] == pretokens[blank])]
    found[follows] = found[follows + 1]
    found = np.maximum(found, 0)
    if not found.any():
        return pretokens
    cut = (found[1:] > 0) | (found[:-1] > 0)
    begins = np.where(cut, np.diff(found) != 0, np.diff(pretokens) != 0)
    numbers = np.cumsum(np.append(0, begins))
    return np.where(pretokens < 0, -1, numbers)


def _after_space(text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Each start moved over white space, at most to its end."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    space = np.append(np.isin(codes, _SPACES), False)
    if not space[starts].any():
        return starts
    solid = np.where(space, len(space), np.arange(len(space)))
    following = np.minimum.accumulate(solid[::-1])[::-1]
    return np.minimum(following[starts], ends)


def _usual_roles(backend: tokenizers.Tokenizer) -> dict[str, str]:
    """Role -> the first of its usual spellings that the vocabulary has."""
    found = {}
    for role, spellings in ROLES.items():
        present = [s for s in spellings if backend.token_to_id(s) is not None]
        if present:
            found[role] = present[0]
    return found
