"""The controls of builders with images, and images without augmentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from workbench.components import building
from workbench.core.keyed import Draws
from workbench.sequences.builder import Builder
from workbench.sequences.image_stream import NO_PARTNER, shuffled_captions
from workbench.sequences.sequence import Fields, Sample
from workbench.text.tokenizer import Tokenizer, train_tokenizer

CALLS: list[tuple[str, bool]] = []


class Recorded:
    """An image processor that notes for which sample it was called and whether with a generator."""

    def __call__(self, sample: Sample, rng: np.random.Generator | None) -> Fields:
        CALLS.append((sample["key"], rng is not None))
        return {"features": np.full((2, 3), float(sample["key"]), np.float32), "boxes": np.zeros((2, 4), np.float32)}


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(["caption 0 1 2 3 4 5 6 7 8 9 what is it"] * 3, "wordpiece", 60))


@pytest.fixture
def build(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Builder]:
    CALLS.clear()
    monkeypatch.setattr("workbench.sequences.image_stream.build", lambda *a, **k: Recorded())

    def made(name: str, control: str | None = None) -> Builder:
        spec = {"builder": name, "max_length": 12, "image_processor": "recorded:Recorded"}
        return building.build("builder", spec, "", tokenizer=tokenizer, control=control)

    return made


def pairs(*keys: int) -> list[Sample]:
    """One sample per key; the caption says the key, and equal keys are captions of one image."""
    return [
        {"key": str(key), "corpus": "tiny", "draw": (0, i), "captions": [f"caption {key}"], "image": b""}
        for i, key in enumerate(keys)
    ]


def draws(seed: int = 0) -> Draws:
    return Draws(seed, "task", "builder", "build", number=(0, 0, 0))


@pytest.mark.parametrize(
    "keys", [(0, 1), (0, 1, 2, 3, 4), (0, 0, 0, 1, 1, 2, 2), (0, 0, 0, 0, 1, 2, 3, 1), (5, 5, 5, 6, 6, 6)]
)
def test_shuffled_captions_are_those_of_other_images(keys: tuple[int, ...]) -> None:
    seen = set()
    for seed in range(20):
        shuffled, lost = shuffled_captions(pairs(*keys), draws(seed))
        said = [sample["captions"][0].split()[1] for sample in shuffled]
        assert lost == 0
        assert [sample["key"] for sample in shuffled] == [str(key) for key in keys]
        assert all(word != sample["key"] for word, sample in zip(said, shuffled, strict=True))
        assert sorted(said) == sorted(map(str, keys))
        seen.add(tuple(said))
    assert len(seen) > 1 or len(set(keys)) == 2
    assert shuffled_captions(pairs(*keys), draws(3)) == shuffled_captions(pairs(*keys), draws(3))


def test_samples_without_another_image_are_counted(build: Callable[..., Builder]) -> None:
    builder = build("image_caption", "shuffled-captions")
    sequences = builder(pairs(0, 0, 0, 1), draws())
    assert sorted(s.key for s in sequences) == ["0", "1"]
    assert builder.take_dropped() == {NO_PARTNER: 2}


def test_shuffled_captions_keep_the_images(build: Callable[..., Builder], tokenizer: Tokenizer) -> None:
    samples = pairs(0, 1, 2, 3)
    plain = build("image_caption")(samples, draws())
    shuffled = build("image_caption", "shuffled-captions")(samples, draws())
    for before, after in zip(plain, shuffled, strict=True):
        assert np.array_equal(before.streams["image"]["features"], after.streams["image"]["features"])
        assert before.streams["text"]["input_ids"].tolist() != after.streams["text"]["input_ids"].tolist()


@pytest.mark.parametrize("name", ["image_caption", "question_image"])
def test_question_only_leaves_the_image_out(build: Callable[..., Builder], name: str) -> None:
    samples = [{**s, "questions": [{"question": "what is it", "answers": ["1"]}]} for s in pairs(0, 1)]
    seeing, blind = build(name)(samples, draws()), build(name, "question-only")(samples, draws())
    assert all(set(s.streams) == {"text", "image"} for s in seeing)
    assert all(set(s.streams) == {"text"} for s in blind)
    for one, other in zip(seeing, blind, strict=True):
        assert np.array_equal(one.streams["text"]["input_ids"], other.streams["text"]["input_ids"])
    assert "question-only" in build(name).controls  # type: ignore[attr-defined]


def test_without_augmentation_an_image_is_made_once_per_sample(build: Callable[..., Builder]) -> None:
    sample: dict[str, Any] = pairs(7)[0] | {"questions": [{"question": "what is it", "answers": ["1"]}] * 3}
    builder: Any = build("question_image")
    builder([sample], draws())
    assert CALLS == [("7", True)] * 3
    CALLS.clear()
    builder.image.augment = False
    sequences = builder([sample, *pairs(8)[:0]], draws())
    assert CALLS == [("7", False)]
    sequences[0].streams["image"]["masked"] = np.ones(2, np.bool_)
    assert "masked" not in sequences[1].streams["image"]
