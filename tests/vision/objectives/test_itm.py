"""Image-text matching."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from tests.vision.evaluation.conftest import write_corpus
from vision.objectives.itm import Itm, ItmHead
from vision.sequences.matching import image_id
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.passes import sample_pass
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

UNCHANGED = {"originals": "no row is changed"}
CASES = {
    "": ObjectiveCase({}, UNCHANGED),
    "vilbert": ObjectiveCase(
        {"exchange": "image", "pool": ["text", "image"]},
        UNCHANGED | {"no image": "a product of pooled outputs needs both"},
        reads=("text", "image"),
    ),
    "poolers": ObjectiveCase(
        {"pool": ["text", "image"], "pooled_size": 64},
        UNCHANGED | {"no image": "a product of pooled outputs needs both"},
        reads=("text", "image"),
    ),
}


def itm(**options: object) -> Itm:
    objective = Itm(**options)
    objective.name = "itm"
    return objective


def arranged(objective: Itm, samples: list[Sample], seed: int = 0) -> list[Sample]:
    return objective.arrange(samples, Draws(seed, "task", "itm", number=(0, 0)))


@pytest.mark.parametrize("exchange", ["caption", "image", "either"])
def test_labels_say_whether_the_pair_is_true(exchange: str, samples: list[Sample]) -> None:
    originals = [dict(sample) for sample in samples]
    seen = set()
    kept = set()
    for seed in range(20):
        for before, after in zip(samples, arranged(itm(exchange=exchange), samples, seed), strict=True):
            label = after["labels"]["matched"]
            seen.add(label)
            other = next(s for s in samples if s["captions"] == after["captions"])
            shown = next(s for s in samples if s["image"] == after["image"])
            assert (label == 1) == (image_id(other) == image_id(shown))
            assert np.array_equal(after["regions"]["features"], shown["regions"]["features"])
            same = {name for name in ("image", "captions") if after[name] == before[name]}
            assert same, "one of the two stays"
            kept |= same if label == 0 else set()
            assert (label == 1) == (after["captions"] == before["captions"] and after["image"] == before["image"])
    assert seen == {0, 1}
    assert kept == {"caption": {"image"}, "image": {"captions"}, "either": {"image", "captions"}}[exchange]
    assert originals == samples, "the given samples are left as they are"


def test_the_second_of_two_captions_is_exchanged(samples: list[Sample]) -> None:
    """VisualBERT: the first one is always of the photograph."""
    for sample in samples:
        own = sample["captions"][0]
        sample |= {"captions": [own, f"{own} again"], "caption_spans": [[], [[0, 7, sample["key"], 1.0]]]}
    seen = set()
    for seed in range(10):
        for before, after in zip(samples, arranged(itm(exchange="second_caption"), samples, seed), strict=True):
            label = after["labels"]["matched"]
            assert after["captions"][0] == before["captions"][0]
            assert after["image"] == before["image"]
            assert (label == 1) == (after["captions"] == before["captions"])
            owner = next(s for s in samples if after["captions"][1] in s["captions"])
            assert (label == 1) == (image_id(owner) == image_id(before))
            assert after["caption_spans"][1] == owner["caption_spans"][owner["captions"].index(after["captions"][1])]
            seen.add(label)
    assert seen == {0, 1}


def test_a_single_caption_has_no_second_one(samples: list[Sample]) -> None:
    with pytest.raises(WorkbenchError, match="sample '0' has 1; use the builder caption_pair"):
        arranged(itm(exchange="second_caption", rate=1.0), samples)


def test_streams_of_two_widths_need_a_pooled_size() -> None:
    with pytest.raises(WorkbenchError, match="Set pooled_size"):
        ItmHead(["text", "image"], {"text": 4, "image": 6})
    assert ItmHead(["text", "image"], {"text": 4, "image": 6}, 5).classifier.in_features == 5


def test_the_rate_is_half(samples: list[Sample]) -> None:
    labels = [s["labels"]["matched"] for seed in range(200) for s in arranged(itm(), samples, seed)]
    assert abs(sum(labels) - 800) < 4 * np.sqrt(1600 * 0.25)
    assert all(s["labels"]["matched"] == 1 for s in arranged(itm(rate=0.0), samples))
    assert all(s["labels"]["matched"] == 0 for s in arranged(itm(rate=1.0), samples))


def test_one_image_is_never_its_own_mismatch(samples: list[Sample]) -> None:
    same = samples[6:]
    for seed in range(10):
        out = arranged(itm(rate=1.0), same, seed)
        assert [s["labels"]["matched"] for s in out] == [1, 1]
        assert [s["captions"] for s in out] == [s["captions"] for s in same]
    copies = [{**s, "key": str(i), "meta": {"sha256": "same"}} for i, s in enumerate(samples)]
    assert all(s["labels"]["matched"] == 1 for s in arranged(itm(rate=1.0), copies))
    say_the_same = [{**s, "captions": ["a dog"]} for s in samples]
    assert all(s["labels"]["matched"] == 1 for s in arranged(itm(rate=1.0), say_the_same))


@pytest.mark.parametrize("exchange", ["caption", "image", "either"])
def test_an_exchanged_text_is_none_of_the_records_texts_of_the_image(
    exchange: str, tmp_path: Path, photo: Callable[[int], bytes]
) -> None:
    """Counted on a corpus with three captions an image, each an item: some of them are true of several images."""
    said = {i: {f"it is {'red' if i % 2 else 'blue'}", f"there are {i % 3}", f"image {i}"} for i in range(12)}
    corpus = write_corpus(
        tmp_path / "corpus", [{"image": photo(i), "captions": sorted(of), "meta": {}} for i, of in said.items()]
    )
    true = wrong = 0
    (samples,) = sample_pass([Corpus.open(corpus)], size=36, unit="captions")
    owner = {sample["image"]: said[int(sample["key"][1:])] for sample in samples}
    for seed in range(20):
        for after in arranged(itm(exchange=exchange, rate=1.0), samples, seed):
            wrong += after["labels"]["matched"] == 0
            true += after["labels"]["matched"] == 0 and after["captions"][0] in owner[after["image"]]
    assert (wrong, true) == (720, 0)


@pytest.mark.parametrize("exchange", ["caption", "image"])
def test_the_same_question_about_two_images_is_no_mismatch(exchange: str, samples: list[Sample]) -> None:
    texts = ["what colour is it?", "what colour is it?", "is it red?", "what is it?"]
    asked = [{**s, "captions": [], "questions": [{"question": t}]} for s, t in zip(samples, texts, strict=False)]
    for seed in range(20):
        for before, after in zip(asked, arranged(itm(rate=1.0, exchange=exchange), asked, seed), strict=True):
            question, shown = after["questions"][0]["question"], after["image"]
            assert after["labels"]["matched"] == 0
            true = {s["questions"][0]["question"] for s in asked if s["image"] == shown}
            assert question not in true, "exchanged, and still a true pair"
            assert (shown == before["image"]) == (exchange == "caption")


def test_one_itm_leaves_the_pairs_of_another_alone(samples: list[Sample]) -> None:
    """Each would label pairs as true that the other one exchanged, or give one back what it had lost."""
    first, second = itm(), itm(exchange="image")
    second.name = "more"
    kinds = set()
    for seed in range(10):
        once = arranged(first, samples, seed)
        twice = arranged(second, once, seed + 1)
        for sample, after_one, after in zip(samples, once, twice, strict=True):
            true = any(after["captions"] == s["captions"] and after["image"] == s["image"] for s in samples)
            assert after["labels"] == {"matched": int(true)}
            changed = after_one["captions"] != sample["captions"], after["image"] != after_one["image"]
            assert not all(changed)
            kinds.add(changed)
    assert len(kinds) == 3


def test_same_seed_same_output(samples: list[Sample]) -> None:
    def said(seed: int) -> list[str]:
        return [s["captions"][0] for s in arranged(itm(), samples, seed)]

    assert said(3) == said(3)
    assert len({tuple(said(seed)) for seed in range(5)}) > 1


def test_caption_spans_move_with_the_caption(samples: list[Sample]) -> None:
    linked = [{**s, "caption_spans": [[[0, 3, f"Q{i}", 1.0]]]} for i, s in enumerate(samples)]
    linked[2].pop("caption_spans")
    for out in arranged(itm(rate=1.0), linked):
        number = int(out["captions"][0].split()[-1])
        assert out.get("caption_spans") == linked[number].get("caption_spans")


def test_targets_and_loss(tiny: Callable, sequences: list[Sequence], corrupted: Callable, loss: Callable) -> None:
    for i, sequence in enumerate(sequences[:-1]):
        sequence.labels["matched"] = i % 2
    objective = itm()
    _, batch = corrupted(objective, sequences)
    assert batch.targets["itm"]["labels"].tolist() == [0, 1, 0, 1, 0, 1, 0, -100]
    assert objective.count(batch) == 7
    network = tiny()
    head = objective.head(network)
    output = loss(objective, network, batch, head)
    states = network(batch)
    wanted = 0.0
    for i in range(7):
        start = int(batch.streams["text"].offsets[i])
        pooled = torch.tanh(network.poolers["text"].dense(states["text"][start]))
        wanted -= float(head.classifier(pooled).log_softmax(-1)[i % 2])
    assert float(output.loss) == pytest.approx(wanted, rel=1e-5)
    output.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
    hits, count = output.metrics["accuracy"]
    assert 0 <= int(hits) <= int(count) == 7


def test_the_product_of_two_poolers(tiny: Callable, sequences: list[Sequence]) -> None:
    network, batch = tiny(), collate(sequences)
    head = itm(pool=["text", "image"]).head(network)
    states = network(batch)
    pooled = network.pool(states, batch, "text") * network.pool(states, batch, "image")
    torch.testing.assert_close(head.logits(network, states, batch), head.classifier(pooled))


def test_a_missing_pooler_is_named(tiny: Callable) -> None:
    network = tiny()
    del network.poolers["image"]
    with pytest.raises(WorkbenchError, match=r"'image' has no pooler; set model.poolers: \[text, image\]"):
        itm(pool=["text", "image"]).head(network)
