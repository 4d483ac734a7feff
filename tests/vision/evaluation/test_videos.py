"""`finetune` and `evaluate`, `retrieval` and `caption`, on videos: a run's medium is what its recipe reads."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.vision.evaluation.conftest import tree as image_tree
from tests.vision.evaluation.video_world import NCE, PAIRS, WORDS, WRITES, make_videos, tree, video, write_videos
from vision.evaluation.retrieval.pair_scores import score
from vision.evaluation.retrieval.retrieval_corpus import all_pairs
from vision.evaluation.task_options import CaptionScoring, CaptionTuning, RetrievalScoring, RetrievalTuning
from vision.evaluation.tasks.caption import Caption
from vision.evaluation.tasks.retrieval import Retrieval, objective_spec
from vision.objectives.mil_nce import MilNce
from vision.sequences.matching import IMAGE
from workbench.cli.generation import generate
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.image_sequences import image_task, medium_of
from workbench.evaluation.scoring.passes import sample_pass
from workbench.generation.decoding import Decoding
from workbench.pretraining.forward import read
from workbench.recipe.reading import load_recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.runs.loaded_run import load
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence
from workbench.training.pretrain import pretrain


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="module")
def run(videos: Path) -> Path:
    """With both ways to compare, and a decoder."""
    return pretrain(recipe_from_dict(tree(videos, [NCE, PAIRS, WRITES, WORDS])), videos / "run")


def keys(videos: int) -> list[str]:
    """Of the segments of so many videos."""
    return [f"f{number}@{2 * place}-{2 * place + 2}" for number in range(videos) for place in range(3)]


def opened(run: Path, corpus: Path, **options: Any) -> tuple[EvaluatedRun, Corpus]:
    return Retrieval().open(RetrievalScoring(run=run, corpus=str(corpus), **options)), Corpus.open(corpus)


def tuned(run: Path, corpus: Path, output: Path, **options: Any) -> Path:
    reported: dict[str, Any] = {"epochs": 40, "batch_size": 16, "lr": 5e-3, **options}
    return fine_tune(Retrieval(), RetrievalTuning(run=run, corpus=str(corpus), output=output, **reported))


def test_candidates_are_the_segments_that_captions_are_of(run: Path, videos: Path) -> None:
    opened_run, corpus = opened(run, videos / "test")
    pairs = all_pairs(opened_run, corpus, size=3)
    assert pairs.owner == [3 * number + owner for number in range(4) for owner in (0, 1, 2, 2)]
    assert [shown.key for shown in pairs.shown[:4]] == ["f0@0-2", "f0@2-4", "f0@4-6", "f1@0-2"]
    assert [shown.record for shown in pairs.shown] == [number for number in range(4) for _ in range(3)]
    for number, image in enumerate(pairs.images):
        record = corpus.read(0, number // 3)["clips"]["features"][2 * (number % 3) :][:2]
        np.testing.assert_array_equal(image.streams["video"]["features"], record)
    assert pairs.captions[:4] == video(20)["captions"][:4]
    assert all(set(text.streams) == {"text"} for text in pairs.texts)
    assert opened_run.task.take_dropped() == {"captions behind the end of the video": 4}
    whole = {name: value for name, value in video(0).items() if name != "caption_times"}
    [medium] = opened_run.task.builder.media({**whole, "key": "f0", "draw": (0,)})
    assert (medium["key"], medium["captions"]) == ("f0", whole["captions"])


def alone(opened_run: EvaluatedRun, sequence: Sequence, stream: str) -> np.ndarray:
    """The mean of the states of one stream, before texts and videos see each other, of one sequence by itself."""
    with torch.no_grad():
        found = read(opened_run.network, collate([sequence]))
    return found.taps["apart"][stream].mean(0).numpy()


def test_scores_of_vectors_are_those_of_the_encoders_alone(run: Path, videos: Path) -> None:
    opened_run, corpus = opened(run, videos / "test")
    found, pairs = score(opened_run, corpus, size=3), all_pairs(opened_run, corpus, size=4)
    assert found.variant == "dual encoder (mil_nce)"
    texts = np.stack([alone(opened_run, text, "text") for text in pairs.texts])
    videos = np.stack([alone(opened_run, image, "video") for image in pairs.images])
    np.testing.assert_allclose(found.scores.block(slice(0, 16), slice(0, 12)), texts @ videos.T, atol=1e-5)
    assert (found.owner.tolist(), found.captions, found.shown) == (pairs.owner, pairs.captions, pairs.shown)


def test_scores_of_matching_are_those_of_each_pair(videos: Path, tmp_path: Path) -> None:
    run = pretrain(recipe_from_dict(tree(videos, [PAIRS])), tmp_path / "matching")
    opened_run, corpus = opened(run, videos / "test")
    found, pairs = score(opened_run, corpus, size=7), all_pairs(opened_run, corpus, size=4)
    assert found.variant == "matching of all pairs (pair_contrast)"
    head: Any = opened_run.head
    wanted = np.empty((16, 12))
    for i, text in enumerate(pairs.texts):
        for j, image in enumerate(pairs.images):
            batch = collate([Sequence({**text.streams, **image.streams}, (0,))])
            with torch.no_grad():
                states = opened_run.network(batch)
                wanted[i, j] = head.score(opened_run.network.pool(states, batch, "text"))
    np.testing.assert_allclose(found.scores.block(slice(0, 16), slice(0, 12)), wanted, atol=1e-5)


@pytest.mark.parametrize(("way", "objective"), [(None, "vision.mil_nce"), ("itm", "vision.pair_contrast")])
def test_what_was_learned_of_videos_finds_them(
    run: Path, videos: Path, tmp_path: Path, way: Any, objective: str
) -> None:
    found = tuned(run, videos / "train", tmp_path / "tuned", objective=way)
    [spec] = read_recipe(found).tasks["retrieval"].objectives
    assert spec["objective"] == objective
    result = evaluate(Retrieval(), RetrievalScoring(run=found, corpus=str(videos / "train"), batch_size=8))
    assert result.counts == {"texts": 20, "images": 15}
    for side in ("image_retrieval", "text_retrieval"):
        assert result.numbers[f"{side}/r5"] > 0.8 > 2 * result.baselines["chance"][f"{side}/r5"]
    assert result.baselines["same features"]["image_retrieval/mean_rank"] == pytest.approx(8)  # of 15 segments
    assert {example["key"] for example in result.examples} <= {*keys(5)}


def test_what_is_fine_tuned_is_fine_tuned_again(run: Path, videos: Path, tmp_path: Path) -> None:
    """The decoder's stream was left empty before, so it is no loss that it is empty again."""
    first = tuned(run, videos / "train", tmp_path / "first", epochs=1)
    again = tuned(first, videos / "train", tmp_path / "again", objective="itm", epochs=1)
    assert "target" in read_recipe(again).networks["main"].streams


def test_matching_reranks_what_the_vectors_find(run: Path, videos: Path) -> None:
    scoring = RetrievalScoring(run=run, corpus=str(videos / "test"), rerank=3)
    assert evaluate(Retrieval(), scoring).variant.startswith("pair_contrast re-ranks the first 3 of a dual encoder")


def test_a_segment_is_distinguished_from_others_of_its_video(run: Path, videos: Path) -> None:
    """Pretraining takes all that is said in a video for true; a caption that is to find its segment must not."""
    corpus = Corpus.open(videos / "train")
    samples = next(sample_pass([corpus], size=8, unit="captions"))
    recipe = read_recipe(run)
    assert objective_spec(recipe, None) == {**NCE, "positives": "segment"}
    builder = load(run).tasks["reported"].builder.evaluating()
    arranged = builder.arrange(samples[:4], Draws(0, "t", number=(0,)))
    each: list[tuple[Any, int]] = [("video", 1), ("segment", 3)]
    for positives, distinct in each:
        reported = MilNce(positives=positives).arrange(arranged, Draws(0, "t", number=(0,)))
        assert len({sample["labels"][IMAGE] for sample in reported}) == distinct


def test_other_objectives_learn_what_is_compared(videos: Path, tmp_path: Path) -> None:
    plain = pretrain(recipe_from_dict(tree(videos, [WORDS, WRITES])), tmp_path / "plain")
    tuning: dict[str, Any] = {"epochs": 1, "batch_size": 8}
    found = tuned(plain, videos / "train", tmp_path / "vectors", objective="itc", overrides=APART, **tuning)
    assert read_recipe(found).tasks["retrieval"].objectives[0]["image"] == "video"
    found = tuned(plain, videos / "train", tmp_path / "hard", hard_negatives="margin", **tuning)
    assert evaluate(Retrieval(), RetrievalScoring(run=found, corpus=str(videos / "test"))).counts["images"] == 12
    with pytest.raises(WorkbenchError, match="neither itc nor itm"):
        tuned(plain, videos / "train", tmp_path / "none")


APART = ["tasks.retrieval.objectives[0].tap=apart"]


@pytest.mark.long
def test_a_decoder_writes_of_the_clips_alone(run: Path, videos: Path, tmp_path: Path) -> None:
    tuning = CaptionTuning(
        run=run, corpus=str(videos / "train"), output=tmp_path / "tuned", epochs=60, batch_size=16, lr=5e-3
    )
    found = fine_tune(Caption(), tuning)
    task = load(found).tasks["caption"]
    samples = next(sample_pass([Corpus.open(videos / "train")], size=4, unit="captions"))
    batch = task.micro_batch(samples, (0,)).views["masked" if "masked" in task.views else "main"]
    special = {task.builder.tokenizer.id(role) for role in ("cls", "sep")}
    assert batch.streams["text"].lengths == [2] * batch.size, "nothing of the caption is read"
    assert set(batch.streams["text"].fields["input_ids"].tolist()) == special
    said = [task.builder.tokenizer.encode(sample["captions"][0]).ids.tolist() for sample in samples]
    ends = batch.streams["target"].offsets.tolist()
    written = batch.streams["target"].fields["input_ids"].tolist()
    parts = [written[start:end] for start, end in pairwise(ends)]
    assert [part[2:] for part in parts] == said[: batch.size], "behind the token that starts it, and [CLS]"
    result = evaluate(Caption(), CaptionScoring(run=found, corpus=str(videos / "train"), max_new_tokens=10))
    assert result.counts == {"images": 15, "references": 20}
    assert result.numbers["cider"] > result.baselines["another image's caption"]["cider"] + 50
    assert [line["key"] for line in result.predictions.lines[:3]] == ["f0@0-2", "f0@2-4", "f0@4-6"]
    assert [len(line["gold"]) for line in result.predictions.lines[:3]] == [1, 1, 2]
    blind = CaptionScoring(run=found, corpus=str(videos / "train"), max_new_tokens=10, control="question-only")
    assert evaluate(Caption(), blind).numbers["cider"] < result.numbers["cider"] - 50


def test_what_was_pretrained_writes_at_once(run: Path, videos: Path, tmp_path: Path) -> None:
    result = evaluate(Caption(), CaptionScoring(run=run, corpus=str(videos / "test"), max_new_tokens=6))
    assert result.counts["images"] == 12
    output = tmp_path / "texts.jsonl"
    generate(run, videos / "test", Decoding(max_new_tokens=6), output, limit=2)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["key"] for line in lines] == keys(2)
    assert [line["text"].strip() for line in lines[:3]] == [line["prediction"] for line in result.predictions.lines[:3]]


@pytest.mark.long
def test_what_cannot_write_or_be_compared_learns_what_can(run: Path, videos: Path, tmp_path: Path) -> None:
    mute = pretrain(recipe_from_dict(tree(videos, [NCE])), tmp_path / "mute")
    reported: dict[str, Any] = {"run": mute, "corpus": str(videos / "train")}
    for refused in (
        lambda: fine_tune(Caption(), CaptionTuning(**reported)),
        lambda: evaluate(Caption(), CaptionScoring(**reported)),
    ):
        why = r"objectives \(joint\) predicts the next token.* on the same corpora: univl"
        with pytest.raises(WorkbenchError, match=why):
            refused()
    with pytest.raises(WorkbenchError, match="reads no images: none of its tasks"):
        image_task(read_recipe(run))
    bare = write_videos(tmp_path / "bare", [{k: v for k, v in video(0).items() if not k.startswith("caption")}])
    with pytest.raises(WorkbenchError, match="has no captions"):
        evaluate(Retrieval(), RetrievalScoring(run=run, corpus=bare))


@pytest.mark.parametrize(
    ("recipe", "option", "stream"),
    [
        ("univl", "video", "video"),
        ("videobert", "video", "video"),
        ("uniter", "image_processor", "image"),
        ("visualbert", "image_processor", "image"),
    ],
)
def test_a_recipe_says_what_its_captions_are_of(recipe: str, option: str, stream: str) -> None:
    medium = medium_of(load_recipe(recipe))
    assert (medium.option, medium.stream) == (option, stream)
    assert medium.stated[option] is not None


def test_a_text_model_has_no_medium(videos: Path) -> None:
    with pytest.raises(WorkbenchError, match="reads neither images nor videos"):
        medium_of(load_recipe("bert"))
    reported = image_tree(videos, [{"objective": "mlm"}])
    assert medium_of(recipe_from_dict(reported)).builder == "image_caption"
