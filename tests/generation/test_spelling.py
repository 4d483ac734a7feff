"""Token ids as people read them."""

from __future__ import annotations

from workbench.generation.decoding import Spelling
from workbench.text.tokenizer import Tokenizer


def test_an_objective_s_tokens_stand_among_the_words(tokenizer: Tokenizer) -> None:
    first = tokenizer.vocab_size
    spelling = Spelling(tokenizer, {first: "<extra_id_0>", first + 1: "<extra_id_1>"})
    words = tokenizer.encode("old river").ids.tolist()
    ids = [first, *words, first + 1, first, *words]
    assert spelling.text(ids) == "<extra_id_0> old river <extra_id_1> <extra_id_0> old river"
    assert spelling.tokens(ids)[0] == "<extra_id_0>"
    assert spelling.tokens(words) == tokenizer.tokens(words)
    assert spelling.text(words) == tokenizer.decode(words)
    assert Spelling(tokenizer, {}).tokens([first]) == [f"<{first}?>"]
