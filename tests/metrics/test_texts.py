"""Scores of texts in several scripts, by hand; of English ones next to rouge-score as it is."""

from __future__ import annotations

import pytest

from workbench.metrics.texts import text_scores
from workbench.text.sentences import sentences_apart, words_apart


def rouge(made: str, wanted: str) -> list[float]:
    numbers = text_scores([made], [wanted]).numbers
    return [round(numbers[name], 1) for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")]


@pytest.mark.parametrize("text", ["今天天气很好。", "Маленький мальчик бежит.", "für immer", "नमस्ते दुनिया"])
def test_a_text_is_all_of_itself_in_any_script(text: str) -> None:
    assert rouge(text, text) == [100.0] * 4


def test_what_differs_is_not_the_same() -> None:
    assert rouge("我有3个苹果", "天空是3蓝色")[0] == pytest.approx(100 * 2 * 1 / (6 + 6), abs=0.05)
    assert rouge("f r", "für") == rouge("fur", "für") == [0.0] * 4


def test_english_is_split_and_stemmed_as_by_rouge_score() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    made, wanted = "The cats' houses were re-painted in 1990; it_was fine.", "A cat repainted houses, it was 1990 fine!"
    theirs = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True).score(wanted, made)
    assert rouge(made, wanted)[:3] == [round(100 * theirs[name].fmeasure, 1) for name in theirs]


def test_sentences_in_another_order_are_a_good_summary() -> None:
    one, two = "Oslo lies in Norway.", "The river runs north."
    assert rouge(f"{two} {one}", f"{one} {two}")[3] == 100
    assert rouge(f"{two} {one}", f"{one} {two}")[2] == 50


def test_words_and_sentences() -> None:
    assert words_apart("L'été, 2 कुत्ते, 東京タワー") == ["L", "été", "2", "कुत्ते", *"東京タワ", "ー"]
    assert sentences_apart("One. Two!\nThree 他来了。我走。") == ["One.", "Two!", "Three 他来了。", "我走。"]
