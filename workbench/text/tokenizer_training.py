"""Training tokenizers: the same texts yield the same vocabulary, whatever the process, the machine or the threads.

The `tokenizers` trainers keep words in hash tables with a random seed. Byte-level BPE is not affected. WordPiece
numbers its continuation characters in table order, which decides ties between merges, so they are registered beforehand
in sorted order. Unigram assigns scores in table order to single characters that its pruning lost, and sums floats in
that order, so scores are levelled, rounded and sorted afterwards.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from workbench.core.errors import WorkbenchError

Kind = Literal["wordpiece", "bpe", "unigram", "word"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_PARALLEL = "TOKENIZERS_PARALLELISM"
_PENALTY = 1e-4  # added by the unigram trainer to the least score for each character that it restores


def train_tokenizer(
    texts: Iterable[str], kind: Kind = "wordpiece", vocab_size: int = 30522, *, lowercase: bool = True
) -> tokenizers.Tokenizer:
    """Train a tokenizer.

    Args:
        texts: the corpus; a one-time iterator is spooled to disk if the kind needs two passes.
        kind: `wordpiece` (BERT's normaliser and special tokens), `bpe` (byte-level, RoBERTa's special tokens) or
            `unigram` (NFKC, SentencePiece-like spaces, RoBERTa's special tokens), or `word` (the commonest words, which
            are cut as for `wordpiece`; all others are unknown).
        vocab_size: number of tokens, special ones included; a small corpus may yield fewer.
        lowercase: fold case (wordpiece: accents too, as BERT uncased does).

    Raises:
        WorkbenchError: unknown kind, or a vocabulary too small for the special tokens and the alphabet.
    """
    train = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram, "word": _word}.get(kind)
    if train is None:
        raise WorkbenchError(f"unknown kind of tokenizer {kind!r}; allowed: wordpiece, bpe, unigram, word")
    least = 300 if kind == "bpe" else 20
    if vocab_size < least:
        raise WorkbenchError(f"vocab_size = {vocab_size} is too small for a {kind} tokenizer; use at least {least}")
    with _all_cores():
        return train(texts, vocab_size, lowercase)


def _of_bert(model: Any, lowercase: bool) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def _wordpiece(texts: Iterable[str], vocab_size: int, lowercase: bool) -> tokenizers.Tokenizer:
    def fresh(model: Any) -> tokenizers.Tokenizer:
        return _of_bert(model, lowercase)

    with _repeatable(texts) as passes:
        alphabet = _alphabet(fresh(models.WordLevel()), passes, vocab_size // 2)
        learner = fresh(models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size, special_tokens=[*BERT_SPECIAL, *alphabet], limit_alphabet=0, show_progress=False
        )
        learner.train_from_iterator(passes, trainer)
    vocabulary = learner.get_vocab(with_added_tokens=False)
    backend = fresh(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.add_special_tokens(BERT_SPECIAL)
    return backend


def _alphabet(counter: tokenizers.Tokenizer, texts: Iterable[str], limit: int) -> list[str]:
    """The characters that begin or continue a word, the commonest `limit`, each sorted; continuations with `##`."""
    counts: Counter[str] = Counter()
    continuing: set[str] = set()
    for word, count in _word_counts(counter, texts).items():
        continuing.update(word[1:])
        for character in word:
            counts[character] += count
    common = sorted(counts, key=lambda c: (-counts[c], c))[:limit]
    return sorted(common) + [f"##{c}" for c in sorted(continuing & set(common))]


def _word_counts(counter: tokenizers.Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    trainer = trainers.WordLevelTrainer(vocab_size=1, show_progress=False)
    counter.train_from_iterator(texts, trainer)
    counts: dict[str, int] = json.loads(trainer.__getstate__())["WordLevelTrainer"]["words"]
    return counts


def _word(texts: Iterable[str], vocab_size: int, lowercase: bool) -> tokenizers.Tokenizer:
    counts = _word_counts(_of_bert(models.WordLevel(), lowercase), texts)
    common = sorted(counts.keys() - {*BERT_SPECIAL}, key=lambda word: (-counts[word], word))
    vocabulary = {word: i for i, word in enumerate([*BERT_SPECIAL, *common][:vocab_size])}
    backend = _of_bert(models.WordLevel(vocabulary, unk_token="[UNK]"), lowercase)
    backend.add_special_tokens(BERT_SPECIAL)
    return backend


def _bpe(texts: Iterable[str], vocab_size: int, lowercase: bool) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=ROBERTA_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def _unigram(texts: Iterable[str], vocab_size: int, lowercase: bool) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram())
    chain: list[Any] = [normalizers.NFKC()]
    backend.normalizer = normalizers.Sequence([*chain, normalizers.Lowercase()] if lowercase else chain)
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=ROBERTA_SPECIAL, unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    vocabulary = json.loads(backend.to_str())["model"]["vocab"]
    backend.model = models.Unigram(_levelled(vocabulary), unk_id=ROBERTA_SPECIAL.index("<unk>"))
    return backend


def _levelled(vocabulary: list[list[Any]]) -> list[tuple[str, float]]:
    """Pieces in a fixed order: special ones, then by score; restored characters all get the least score."""
    special = [(piece, float(score)) for piece, score in vocabulary if piece in ROBERTA_SPECIAL]
    pieces = [(piece, float(score)) for piece, score in vocabulary if piece not in ROBERTA_SPECIAL]
    least = min((score for _, score in pieces), default=0.0)
    restored = least + _PENALTY * (sum(len(piece) == 1 for piece, _ in pieces) + 1)
    levelled = [(p, round(least if len(p) == 1 and s <= restored else s, 6)) for p, s in pieces]
    return special + sorted(levelled, key=lambda item: (-item[1], item[0]))


class _Threads:
    """Whether the library's threads may be used: a fork of a process does not have its threads and would wait for them
    forever."""

    started = False
    lost = False

    @classmethod
    def forked(cls) -> None:
        cls.lost = cls.lost or cls.started


os.register_at_fork(after_in_child=_Threads.forked)


@contextmanager
def _all_cores() -> Iterator[None]:
    """Let the library use its threads, as encoding does not (see `workbench.text.tokenizer`)."""
    before = os.environ.get(_PARALLEL)
    os.environ[_PARALLEL] = "false" if _Threads.lost else "true"
    _Threads.started = True
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PARALLEL]
        else:
            os.environ[_PARALLEL] = before


@contextmanager
def _repeatable(texts: Iterable[str]) -> Iterator[Iterable[str]]:
    """The texts as an iterable that can be read twice."""
    if iter(texts) is not texts:
        yield texts
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        for text in texts:
            spool.write(json.dumps(text) + "\n")
        yield _Spooled(spool)


class _Spooled:
    """Texts in a file, one JSON string per line; each pass begins anew."""

    def __init__(self, spool: Any) -> None:
        self.spool = spool

    def __iter__(self) -> Iterator[str]:
        self.spool.seek(0)
        return (json.loads(line) for line in self.spool)
