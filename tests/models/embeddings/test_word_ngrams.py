"""The embedding `word_ngrams`, compared with gensim's FastText."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.word_ngrams import WordNgramsEmbedding, ngram_hashes

CASE = EmbeddingCase(
    {"hidden_size": 8, "buckets": 50}, {"masked": "hidden tokens have an id of their own"}, content="input_ids"
)


@pytest.mark.parametrize("sizes", [(3, 6), (1, 2), (5, 5)])
def test_hashes_are_those_of_gensim(sizes: tuple[int, int]) -> None:
    fasttext = pytest.importorskip("gensim.models.fasttext")
    for word in ["river", "a", "", "naïve", "日本語", "👩‍👧x"]:
        wanted = fasttext.ft_ngram_hashes(word, *sizes, 1000)
        assert [value % 1000 for value in ngram_hashes(word, *sizes)] == wanted


def test_vectors_are_those_of_gensim() -> None:
    fasttext = pytest.importorskip("gensim.models.fasttext")
    made = WordNgramsEmbedding(8, tokenizer(), tokenizer().vocab_size, buckets=50)
    special = {*tokenizer().special_ids.tolist()}
    words = {number: word for word, number in tokenizer().vocabulary.items() if number not in special}
    theirs = fasttext.FastTextKeyedVectors(8, 3, 6, 50)
    theirs.index_to_key = [*words.values()]
    theirs.key_to_index = {word: place for place, word in enumerate(words.values())}
    theirs.vectors_vocab = made.token.weight.detach().numpy()[[*words]]
    theirs.vectors_ngrams = made.ngram.weight.detach().numpy()[:50]
    theirs.recalc_char_ngram_buckets()
    theirs.adjust_vectors()
    found = made({"input_ids": torch.tensor([*words])}).detach().numpy()
    np.testing.assert_allclose(found, theirs.vectors, atol=1e-6)
    alone = torch.tensor([*special])
    torch.testing.assert_close(made({"input_ids": alone}), made.token.weight[alone])


def test_a_range_without_lengths_is_refused() -> None:
    with pytest.raises(WorkbenchError, match="at least shortest = 3"):
        WordNgramsEmbedding(8, tokenizer(), 30, longest=2)
