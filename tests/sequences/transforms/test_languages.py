"""The transform `languages`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.cases import TransformCase
from tests.contracts.material import draws, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.builders.packed import PackedBuilder
from workbench.sequences.builders.translation_pair import TranslationPairBuilder
from workbench.sequences.transforms.languages import LanguagesTransform

STEP = LanguagesTransform(["en", "de", "fr"])
CASE = TransformCase(
    {"languages": ["en", "de"]}, {"dropped": "no sequence and no token is left out"}, ("text.language_ids",)
)


def text(key: str, words: str, **fields: Any) -> dict[str, Any]:
    return {"key": key, "draw": (0, int(key)), "text": words, **fields}


def test_every_row_is_of_its_segments_language() -> None:
    translations = {"fr": "river river", "en": "river"}
    (pair,) = TranslationPairBuilder(tokenizer(), 32).evaluating()(
        [{"key": "0", "translations": translations}], draws()
    )
    (pair,) = STEP([pair], draws())
    assert pair.streams["text"]["language_ids"].tolist() == [2, 2, 2, 2, 0, 0, 0]
    (alone,) = STEP(DocumentBuilder(tokenizer(), 32)([text("0", "river river", language="de")], draws()), draws())
    assert alone.streams["text"]["language_ids"].tolist() == [1, 1, 1, 1]


def test_texts_of_different_languages_are_not_packed_together() -> None:
    samples = [text(str(i), "river", language=("de", "fr")[i % 2]) for i in range(6)]
    packed = STEP(PackedBuilder(tokenizer(), 9)(samples, draws()), draws())
    assert [sorted(set(s.streams["text"]["language_ids"].tolist())) for s in packed] == [[1], [2]]


def test_what_is_in_no_language_or_another_is_refused() -> None:
    document = DocumentBuilder(tokenizer(), 32)
    with pytest.raises(WorkbenchError, match=r"'7' has no language.*--language en"):
        STEP(document([text("7", "river")], draws()), draws())
    with pytest.raises(WorkbenchError, match=r"language 'it'.*de, en, fr"):
        STEP(document([text("7", "river", language="it")], draws()), draws())
    with pytest.raises(WorkbenchError, match="each may be named once"):
        LanguagesTransform(["en", "en"])
    with pytest.raises(WorkbenchError, match="unknown language 'it' in default"):
        LanguagesTransform(["en", "de"], "it")


def test_what_says_no_language_may_be_in_a_default_one() -> None:
    transform = LanguagesTransform(["en", "de"], default="de")
    samples = [text("0", "river"), text("1", "river", language="en")]
    unsaid, said = transform(DocumentBuilder(tokenizer(), 32)(samples, draws()), draws())
    assert set(unsaid.streams["text"]["language_ids"].tolist()) == {1}
    assert set(said.streams["text"]["language_ids"].tolist()) == {0}
    assert (transform.reads, STEP.reads) == ((), ("language",))
