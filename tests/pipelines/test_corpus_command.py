"""`prepare corpus`: a corpus of another one, without the raw files."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from pipelines.readers.reader import Drop
from pipelines.stages.pair_filters import CaptionWords, Where
from tests.pipelines.test_commands import prepare
from tests.pipelines.test_near_duplicates import encoded, photo
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.foreign import index_foreign
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter

WORKERS = ("--workers", 1)


@pytest.fixture
def laion(tmp_path, tar):
    """Img2dataset's layout: image, caption, and what the list said of them."""
    members = {}
    for i in range(8):
        reported = {"similarity": i / 10, "NSFW": "UNLIKELY", "caption": f"photo number {i}", "key": f"{i:05d}"}
        members[f"{i:05d}.jpg"] = encoded(photo(i, (320, 100 if i == 7 else 240)))
        members[f"{i:05d}.txt"] = reported["caption"].encode()
        members[f"{i:05d}.json"] = json.dumps(reported).encode()
    (tmp_path / "laion").mkdir()
    tar("laion/00000.tar", members)
    return tmp_path / "laion"


def test_a_foreign_webdataset_is_filtered_and_made_smaller(tmp_path, laion, stored):
    with pytest.raises(WorkbenchError, match="workbench index"):
        prepare("corpus", laion, "-o", tmp_path / "out", *WORKERS)
    index_foreign([laion], laion)
    conditions = ["--where", "similarity>=0.3", "--where", "NSFW=UNLIKELY", "--min-side", 101, "--resize", 64]
    prepare("corpus", laion, *conditions, "-o", tmp_path / "out", "--log-dropped", *WORKERS)
    kept = stored(tmp_path / "out")
    assert sorted(s["captions"][0] for s in kept) == [f"photo number {i}" for i in range(3, 7)]
    assert {Image.open(io.BytesIO(s["image"])).size for s in kept} == {(85, 64)}
    assert kept[0]["meta"]["similarity"] >= 0.3
    dropped = {"Where: not similarity>=0.3": 3, "CheckImage: too small": 1}
    assert Corpus.open(tmp_path / "out").manifest.dropped == dropped
    log = (tmp_path / "out" / "dropped" / "part-000000.jsonl").read_text().splitlines()
    assert json.loads(log[-1]) == {"record": "00000.tar:7", "reason": "CheckImage: too small"}


def test_near_duplicates_are_dropped_and_counted(tmp_path, json_lines, stored):
    (tmp_path / "images").mkdir()
    copies = {
        "a.jpg": encoded(photo(0)),
        "same.jpg": encoded(photo(0)),
        "near.jpg": encoded(photo(0), quality=40),
        "b.jpg": encoded(photo(1)),
        "c.jpg": encoded(photo(2)),
    }
    captions = [["a dog runs on the beach near the sea"], ["x"], ["y"]]
    captions += [
        ["A dog runs on the beach, near the sea!", "two women at a market"],
        ["a dog runs on the beach near the sea."],
    ]
    for name, data in copies.items():
        (tmp_path / "images" / name).write_bytes(data)
    rows = [{"image": name, "captions": c} for name, c in zip(copies, captions, strict=True)]
    prepare("image-text", json_lines("captions.jsonl", rows), "-o", tmp_path / "raw", *WORKERS)
    out = tmp_path / "out"
    arguments = [tmp_path / "raw", "-o", out, "--dedupe", "--near-images", 4, "--near-captions", 0.8]
    prepare("corpus", *arguments, "--shard-size", 2, "--workers", 2)
    assert {s["key"]: s["captions"] for s in stored(out)} == {"a": captions[0], "b": ["two women at a market"]}
    assert Corpus.open(out).manifest.dropped == {
        "dedupe: duplicate": 1,
        "dedupe: near-duplicate image": 1,
        "dedupe: near-duplicate captions": 1,
    }
    with pytest.raises(WorkbenchError, match="near_images was 4, is 3"):
        prepare("corpus", *arguments[:-3], 3, *arguments[-2:], "--shard-size", 2, *WORKERS)


def test_what_a_filter_drops_shadows_nothing(tmp_path, json_lines, stored):
    """The first of two near duplicates is too small: the second one stays."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "small.png").write_bytes(encoded(photo(0).resize((32, 24)), "PNG"))
    (tmp_path / "images" / "large.png").write_bytes(encoded(photo(0), "PNG"))
    rows = [{"image": name, "caption": name} for name in ("small.png", "large.png")]
    prepare("image-text", json_lines("captions.jsonl", rows), "-o", tmp_path / "raw", *WORKERS)
    prepare("corpus", tmp_path / "raw", "-o", tmp_path / "out", "--min-side", 100, "--near-images", 4, *WORKERS)
    assert [s["key"] for s in stored(tmp_path / "out")] == ["large"]


def test_a_text_corpus_is_split_and_keeps_its_texts(tmp_path, json_lines, stored):
    rows = [{"text": f"text number {i}", "language": "en" if i % 2 else "de", "views": i} for i in range(10)]
    prepare("text", json_lines("t.jsonl", rows), "-o", tmp_path / "raw", *WORKERS)
    prepare("corpus", tmp_path / "raw", "--where", "views>5", "-o", tmp_path / "out", *WORKERS)
    assert [s["text"] for s in stored(tmp_path / "out")] == [f"text number {i}" for i in range(6, 10)]
    prepare("corpus", tmp_path / "raw", "--split", "dev=0.5", "-o", tmp_path / "half", *WORKERS)
    parts = [{s["text"] for s in stored(tmp_path / name)} for name in ("half", "half-dev")]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 10
    with pytest.raises(WorkbenchError, match="of kind text; options of captions"):
        prepare("corpus", tmp_path / "raw", "--min-words", 3, "-o", tmp_path / "other", *WORKERS)


def test_captions_of_videos_are_left_out_with_their_times(tmp_path, stored):
    videos = {
        "spoken": {"captions": ["a dog", "a dog runs home"], "caption_times": [[0.0, 1.0], [1.0, 3.0]]},
        "silent": {},
        "short": {"captions": ["a cat"], "caption_times": [[0.0, 2.0]]},
    }
    with ShardWriter(tmp_path / "videos" / "part-000000.tar", kind="video-text") as writer:
        for key, said in videos.items():
            writer.add(
                key,
                {
                    "clips": {"features": np.zeros((2, 4), np.float16), "times": np.float32([[0, 1], [1, 3]])},
                    **said,
                    "meta": {},
                },
            )
    finish_corpus(tmp_path / "videos", kind="video-text", shards=[writer.info], provenance={"command": "test"})
    prepare("corpus", tmp_path / "videos", "--min-words", 3, "-o", tmp_path / "reported", *WORKERS)
    [kept] = stored(tmp_path / "reported")
    assert (kept["key"], kept["captions"]) == ("spoken", ["a dog runs home"])
    assert np.asarray(kept["caption_times"]).tolist() == [[1.0, 3.0]]
    prepare("corpus", tmp_path / "videos", "-o", tmp_path / "all", *WORKERS)
    assert [each["key"] for each in stored(tmp_path / "all")] == [*videos]
    with pytest.raises(WorkbenchError, match="of kind video-text; options of images"):
        prepare("corpus", tmp_path / "videos", "--resize", 64, "-o", tmp_path / "other", *WORKERS)


@pytest.mark.parametrize(
    ("condition", "meta", "found"),
    [
        ("similarity>=0.3", {"similarity": 0.3}, None),
        ("similarity > 0.3", {"similarity": "0.3"}, "not similarity > 0.3"),
        ("language=en", {"language": "en"}, None),
        ("language!=en", {"language": "en"}, "not language!=en"),
        ("width<=100", {"width": "wide"}, "width is no number"),
        ("width<=100", {}, "no width"),
        ("label=1", {}, None),
    ],
)
def test_conditions(condition, meta, found):
    sample = {"key": "a", "meta": meta, "labels": {"label": 1}}
    assert Where(condition)(sample) == (sample if found is None else Drop(found))


def test_conditions_that_are_none():
    with pytest.raises(WorkbenchError, match="'similarity' is not a condition; allowed"):
        Where("similarity")
    with pytest.raises(WorkbenchError, match="> compares numbers; 'en' is not a number"):
        Where("language>en")


def test_captions_by_their_words():
    sample = {"captions": ["one", "one two", "one two three"], "caption_spans": [[], [[0, 3, "Q1", 1.0]], []]}
    assert CaptionWords(2, 2)(sample) == {"captions": ["one two"], "caption_spans": [[[0, 3, "Q1", 1.0]]]}
    assert CaptionWords(4)(sample) == Drop("no caption of so many words")
    assert CaptionWords(1)(sample) == sample
    labelled, asked = {"labels": {"true": 1}}, {"questions": [{"question": "What?", "answers": []}]}
    assert CaptionWords(1)(labelled) == Drop("no caption of so many words")
    with pytest.raises(WorkbenchError, match="--min-words 3 is more than --max-words 2"):
        CaptionWords(3, 2)
    assert CaptionWords(0, 9)(labelled) == labelled
    assert CaptionWords(1)(asked) == asked
