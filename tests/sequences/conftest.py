"""The tokenizers of the text room's tests."""

from tests.text.conftest import sentences, tokenizer, tokenizers

__all__ = ["sentences", "tokenizer", "tokenizers"]
