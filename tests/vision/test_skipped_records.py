"""A record that was read but cannot be used: training stops at it, or leaves it out and counts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.writer import ShardWriter
from workbench.pretraining.loader import MicroBatches, MicroBatchId
from workbench.pretraining.task import Task
from workbench.recipe.spec import SequenceSpec, TaskSpec
from workbench.text.tokenizer import Tokenizer, train_tokenizer

DAMAGED = "r1"
PLACE = MicroBatchId("pairs", 0, 0)


@pytest.fixture
def corpus(tmp_path: Path, photo: Callable[[int], bytes]) -> Corpus:
    """Two pairs; the image of one ends in the middle."""
    images = [photo(i)[:2000] if f"r{i}" == DAMAGED else photo(i) for i in range(2)]
    records = [{"image": image, "captions": [f"caption number {i}"], "meta": {}} for i, image in enumerate(images)]
    return written(tmp_path / "corpus", records)


@pytest.fixture
def silent(tmp_path: Path, photo: Callable[[int], bytes]) -> Corpus:
    """Four images, of which the second has no caption."""
    captions = [["caption number 0"], [], ["caption number 2"], ["caption number 3"]]
    return written(
        tmp_path / "corpus", [{"image": photo(i), "captions": c, "meta": {}} for i, c in enumerate(captions)]
    )


def written(folder: Path, records: list[dict[str, Any]]) -> Corpus:
    with ShardWriter(folder / "part-000000.tar", kind="image-text") as writer:
        for i, record in enumerate(records):
            writer.add(f"r{i}", record)
    assert writer.info is not None
    finish_corpus(folder, kind="image-text", shards=[writer.info], provenance={"command": "test", "inputs": []})
    return Corpus.open(str(folder))


def batches(
    corpus: Corpus,
    on_error: Literal["stop", "skip"],
    *,
    captions: str = "each",
    exchange: str = "image",
    size: int = 2,
    media: list[str] | None = None,
    **options: Any,
) -> tuple[MicroBatches, Reader]:
    """The pairs exchange their images, so that a damaged one is met under the other key."""
    tokenizer = Tokenizer(train_tokenizer(["caption number 0 1 2 3 4 5 6 7"] * 3, "wordpiece", 60))
    image = {"image_processor": "vision.patches", "size": 16, "patch": 8}
    builder = {
        "builder": "image_caption",
        "max_length": 16,
        "image_processor": image,
        "captions": captions,
        "media": media,
    }
    spec = TaskSpec(
        corpora={corpus.place: 1.0},
        sequence=SequenceSpec(builder),
        objectives=[{"objective": "vision.itm", "rate": 1.0, "exchange": exchange}],
    )
    task = Task("pairs", spec, seed=0, resources={"tokenizer": tokenizer})
    reader = Reader(
        [(corpus, 1.0)], seed=0, lanes=1, micro_batch_size=size, unit=task.builder.unit, on_error=on_error, **options
    )
    return MicroBatches({"pairs": task}, {"pairs": reader}), reader


def test_stopping_names_the_record_whose_image_it_is(corpus: Corpus) -> None:
    made, _ = batches(corpus, "stop")
    with pytest.raises(WorkbenchError, match=rf"key '{DAMAGED}': the image is damaged"):
        made.micro_batch(PLACE)


def test_skipping_leaves_it_out_counts_it_and_gives_the_same_again(corpus: Corpus) -> None:
    made, reader = batches(corpus, "skip")
    first, second = made.micro_batch(PLACE), made.micro_batch(PLACE)
    assert first is not None
    assert second is not None
    assert first.dropped["undecodable image"] == 1
    assert reader.skipped["undecodable image"] == 2
    view = first.views["main"]
    assert len(view.streams["text"].offsets) - 1 == 1
    again = second.views["main"].streams["image"].fields["patches"]
    assert view.streams["image"].fields["patches"].equal(again)


@pytest.mark.parametrize("exchange", ["image", "caption"])
def test_a_damaged_one_of_several_media_is_found_in_its_record(
    exchange: str, tmp_path: Path, photo: Callable[[int], bytes]
) -> None:
    """Media are exchanged as an image is: the record whose own is damaged is left out."""
    media = [
        {"left": photo(2 * i), "right": photo(2 * i + 1)[: 2000 if f"r{i}" == DAMAGED else None]} for i in range(3)
    ]
    records = [{"media": two, "captions": [f"caption number {i}"], "meta": {}} for i, two in enumerate(media)]
    made, reader = batches(
        written(tmp_path / "corpus", records), "skip", size=3, exchange=exchange, media=["left", "right"]
    )
    micro = made.micro_batch(PLACE)
    assert micro is not None
    assert reader.skipped["undecodable image"] >= 1
    assert micro.views["main"].streams["image"].fields["image_number"].tolist() == [0] * 4 + [1] * 4 + [0] * 4 + [1] * 4


def test_mismatched_pairs_borrow_all_media(tmp_path: Path, photo: Callable[[int], bytes]) -> None:
    records = [{"media": {"left": photo(i)}, "captions": [f"caption number {i}"], "meta": {}} for i in range(2)]
    corpus = written(tmp_path / "corpus", records)
    true, exchanged = (
        batches(corpus, "stop", exchange=exchange, media=["left"])[0].micro_batch(PLACE)
        for exchange in ("caption", "image")
    )
    assert true is not None
    assert exchanged is not None
    left, right = (made.views["main"].streams["image"].fields["patches"].chunk(2) for made in (true, exchanged))
    assert [int((a != b).sum()) > 0 for a, b in zip(left, right, strict=True)] == [True, True]


def test_too_many_stop_all_the_same(corpus: Corpus) -> None:
    made, _ = batches(corpus, "skip", skip_limit=0)
    with pytest.raises(WorkbenchError, match="more than 0 samples could not be read"):
        made.micro_batch(PLACE)


def test_a_record_without_a_caption_stops_and_is_named(silent: Corpus) -> None:
    made, _ = batches(silent, "stop", captions="one", size=4)
    with pytest.raises(WorkbenchError, match=r"key 'r1': it has no 'captions' .*train\.on_error=skip"):
        made.micro_batch(PLACE)


@pytest.mark.parametrize("exchange", ["image", "caption"])
def test_a_record_without_a_caption_can_be_skipped(exchange: str, silent: Corpus) -> None:
    """It alone, also where captions are exchanged: it has none to lend."""
    made, reader = batches(silent, "skip", captions="one", size=4, exchange=exchange)
    micro = made.micro_batch(PLACE)
    assert micro is not None
    assert sorted(micro.views["main"].keys) == ["r0", "r2", "r3"]
    assert reader.skipped == {"no captions": 1}
