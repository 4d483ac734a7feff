"""`finetune retrieval` and `evaluate retrieval` on a world of coloured squares."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

import workbench
from tests.contracts.cases import EvaluationCase, World
from tests.contracts.test_families import made
from tests.interop.worlds import tokenizer
from tests.vision.evaluation.conftest import make_squares, record, tree, write_corpus
from vision.evaluation.retrieval.pair_scores import ScoredPairs, score
from vision.evaluation.retrieval.retrieval_corpus import (
    ImageSubset,
    Matcher,
    Pairs,
    all_pairs,
    dual_scores,
    with_same_features,
)
from vision.evaluation.task_options import RetrievalScoring, RetrievalTuning, VqaScoring
from vision.evaluation.tasks.retrieval import OBJECTIVES, Retrieval, objective_spec, retrieval_result
from vision.evaluation.tasks.vqa import Vqa
from vision.metrics.retrieval_scores import rank_images
from vision.objectives.itc import Itc, ItcHead
from vision.objectives.itm import Itm, ItmHead
from workbench.components.controls import CONTROLS
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, open_run
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.run_or_checkpoint import recipe_at
from workbench.pretraining.forward import HeadInputs, NetworkOutput, read
from workbench.recipe.reading import load_recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.runs.metrics_file import read_metrics
from workbench.sequences.batch import collate
from workbench.sequences.image_stream import SAME_FEATURES
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Rows, Sequence
from workbench.training.pretrain import pretrain


def contract_world(folder: Path) -> World:
    make_squares(folder)
    itc = {"objective": "vision.itc", "size": 8, "pool_text": "mean", "pool_image": "mean", "apart": True}
    run, without = (
        pretrain(recipe_from_dict(tree(folder, objectives)), folder / name)
        for name, objectives in (("run", [{**itc, "view": "contrast"}]), ("words", [{"objective": "mlm"}]))
    )
    return World(run, str(folder / "test"), without, {})


CASE = EvaluationCase(world=contract_world)


def forward(run: EvaluatedRun, *streams: dict[str, Any]) -> NetworkOutput:
    merged = {name: fields for part in streams for name, fields in part.items()}
    batch = collate([Sequence(merged, (0,))])
    with torch.no_grad():
        return read(run.network, batch)


def plain_ranks(scores: np.ndarray, owner: list[int]) -> tuple[list[float], list[float]]:
    """Rank of each text's image, best rank among each image's texts; equals count half a place.

    Several of the captions are the same: their scores differ by 1e-7, those of others by 5e-4 at least.
    """

    def rank(mine: float, others: list[float]) -> float:
        equal = [abs(other - mine) < 1e-5 for other in others]
        better = [other > mine and not same for other, same in zip(others, equal, strict=True)]
        return 1 + sum(better) + 0.5 * sum(equal)

    of_images = [rank(row[o], [s for i, s in enumerate(row) if i != o]) for row, o in zip(scores, owner, strict=True)]
    of_texts = []
    for image in range(scores.shape[1]):
        column = list(zip(scores[:, image], owner, strict=True))
        best = max(s for s, o in column if o == image)
        of_texts.append(rank(best, [s for s, o in column if o != image]))
    return of_images, of_texts


def scored(run: Path, corpus: Corpus, k: int = 0, first_stage: Path | None = None, size: int = 8) -> ScoredPairs:
    options = RetrievalScoring(run=run, corpus=str(corpus.place), rerank=k, first_stage=first_stage)
    return score(Retrieval().open(options), corpus, k=k, first_stage=first_stage, size=size)


def matrix(found: ScoredPairs) -> np.ndarray:
    return np.asarray(found.scores.block(slice(0, found.scores.texts), slice(0, found.scores.images)))


def check(result: Any, scores: np.ndarray, owner: list[int]) -> None:
    of_images, of_texts = plain_ranks(scores, owner)
    for k in (1, 5, 10):
        assert result.numbers[f"image_retrieval/r{k}"] == pytest.approx(np.mean([rank <= k for rank in of_images]))
        assert result.numbers[f"text_retrieval/r{k}"] == pytest.approx(np.mean([rank <= k for rank in of_texts]))
    assert result.numbers["image_retrieval/median_rank"] == np.median(of_images)


def test_dual_encoder_scores_are_those_of_texts_and_images_alone(contrast: Path, test_corpus: Corpus) -> None:
    run = open_run(contrast, Itc, "")
    pairs = all_pairs(run, test_corpus, size=3)
    head = run.head
    assert isinstance(head, ItcHead)
    texts = torch.cat([head.vectors(forward(run, t.streams), "text") for t in pairs.texts])
    images = torch.cat([head.vectors(forward(run, i.streams), "image") for i in pairs.images])
    found = scored(contrast, test_corpus, size=4)
    np.testing.assert_allclose(matrix(found), (texts @ images.T).detach().numpy(), atol=1e-5)
    assert pairs.owner == [i // 2 for i in range(20)]
    assert pairs.captions[2] == "a green square on the left."
    check(retrieval_result(found, test_corpus, contrast), matrix(found), pairs.owner)


def test_vectors_apart_are_those_that_were_trained(contrast: Path, test_corpus: Corpus) -> None:
    """The objective's own view keeps text and image apart: next to each other they have the same vectors as alone."""
    run = open_run(contrast, Itc, "")
    scores, reported = dual_scores(run, test_corpus, size=5)
    owner = np.asarray(reported.owner)
    head, objective = run.head, run.objective.objective
    assert isinstance(head, ItcHead)
    samples = [
        test_corpus.read(0, i) | {"draw": (0, i), "captions": test_corpus.read(0, i)["captions"][:1]} for i in range(4)
    ]
    micro = run.task.micro_batch(samples, (0, 0, 0))
    batch = micro.views["contrast"]
    with torch.no_grad():
        alongside = head.embed(HeadInputs.of(run.network, batch, batch.targets[objective.name]))
    np.testing.assert_allclose(alongside["text"], scores.text[0:8:2], atol=1e-5)
    np.testing.assert_allclose(alongside["image"], scores.image[:4], atol=1e-5)
    assert owner[0:8:2].tolist() == [0, 1, 2, 3]


def test_a_held_out_pass_measures_what_retrieval_says(apart: Path, test_corpus: Corpus) -> None:
    """Over all micro-batches together, while the loss looks at each step alone; so train.best may name a recall."""
    found = evaluate(Retrieval(), RetrievalScoring(run=apart, corpus=str(test_corpus.place))).numbers
    last = read_metrics(apart)[-1]
    assert {name: last[f"held_out/itc/{name}"] for name in found} == pytest.approx(found)


def test_matching_scores_every_pair(matching: Path, test_corpus: Corpus) -> None:
    run = open_run(matching, Itm, "")
    pairs = all_pairs(run, test_corpus, size=4)
    head = run.head
    assert isinstance(head, ItmHead)
    scores = np.empty((20, 10))
    for t, text in enumerate(pairs.texts):
        for i, image in enumerate(pairs.images):
            found = forward(run, text.streams, image.streams)
            with torch.no_grad():
                exchanged, matched = head.logits(run.network, found.states, found.batch)[0].tolist()
            scores[t, i] = matched - exchanged
    found = scored(matching, test_corpus, size=7)
    np.testing.assert_allclose(matrix(found), scores, atol=1e-4)
    assert "itm" in found.variant


def test_reranking_everything_is_ranking_by_matching(matching: Path, contrast: Path, test_corpus: Corpus) -> None:
    alone = scored(matching, test_corpus)
    both = scored(matching, test_corpus, k=20, first_stage=contrast)
    numbers = [retrieval_result(found, test_corpus, matching).numbers for found in (alone, both)]
    assert numbers[0] == pytest.approx(numbers[1])
    assert "first 20" in both.variant
    assert set(both.checkpoints) == {"checkpoint", "first stage"}


def test_reranking_reads_only_the_candidates(
    matching: Path, contrast: Path, test_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    plain = Matcher.__call__

    def counting(self: Matcher, texts: np.ndarray, images: np.ndarray) -> torch.Tensor:
        counted.append(len(texts))
        return plain(self, texts, images)

    monkeypatch.setattr(Matcher, "__call__", counting)
    scored(matching, test_corpus, k=3, first_stage=contrast, size=8)
    assert sum(counted) == 3 * 20 + 3 * 10


@pytest.mark.parametrize("way", ["contrast", "matching", "rerank"])
def test_images_of_the_same_features_are_not_found(
    contrast: Path, matching: Path, squares: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every caption ranks all images in the middle; of many images the first ones are next to the result."""
    corpus = str(squares / "test")
    stages: dict[str, Any] = {"rerank": 4, "first_stage": contrast} if way == "rerank" else {}
    options = RetrievalScoring(run=contrast if way == "contrast" else matching, corpus=corpus, batch_size=3, **stages)
    reported = evaluate(Retrieval(), options)
    control = evaluate(Retrieval(), replace(options, control="same-features"))
    for numbers in (control.numbers, reported.baselines["same features"]):
        # of equal scores the first stage takes any four, which are then re-ranked
        assert numbers["image_retrieval/mean_rank"] == pytest.approx(5.5, abs=0.8 if way == "rerank" else 1e-6)
    assert control.numbers != reported.numbers
    assert control.baselines.keys() == {"chance"}
    monkeypatch.setattr("vision.evaluation.tasks.retrieval.FEW", 4)
    few = evaluate(Retrieval(), options)
    assert few.baselines.keys() == {"chance", "same features, 4 images", "chance, 4 images"}
    assert few.baselines["same features, 4 images"]["image_retrieval/mean_rank"] == pytest.approx(2.5, abs=1e-6)
    assert (few.numbers, few.used, few.counts) == (reported.numbers, reported.used, reported.counts)
    assert evaluate(Retrieval(), replace(options, limit=1, rerank=0, first_stage=None)).baselines.keys() == {"chance"}


class Numbered(Transform):
    """Writes which image it is into its rows."""

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            rows = sequence.streams["image"]
            floats = {n: v for n, v in rows.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"}
            rows |= {name: values + int(sequence.key[-1]) for name, values in floats.items()}
        return sequences


def test_a_leak_shows_where_all_features_are_the_same(contrast: Path, test_corpus: Corpus) -> None:
    """What a step brings next to the features: the control can fail."""
    run = Retrieval().open(RetrievalScoring(run=contrast, corpus=str(test_corpus.place)))
    part = with_same_features(run, test_corpus, ImageSubset(0, 10))
    same = matrix(score(run, test_corpus, part))
    assert np.ptp(same, axis=1).max() < 1e-5
    run.task.transforms.append(Numbered())
    assert np.ptp(matrix(score(run, test_corpus, part)), axis=1).min() > 1e-3


def test_learning_beats_its_controls(train: Callable[..., Path], squares: Path, test_corpus: Corpus) -> None:
    itc = {"objective": "vision.itc", "size": 16, "pool_text": "mean", "pool_image": "mean"}
    options: dict[str, Any] = {"max_steps": 100, "global_batch_size": 32, "micro_batch_size": 32}
    run = train("contrast-long", [{**itc, "apart": True}], **options)
    found = scored(run, test_corpus, size=8)
    trained = retrieval_result(found, test_corpus, run)
    control = evaluate(Retrieval(), RetrievalScoring(run=run, corpus=str(squares / "test"), control="same-features"))
    chance = trained.baselines["chance"]["image_retrieval/r1"]
    assert chance == pytest.approx(0.1)
    # equal descriptions: at best 1.2 (r1 0.8); five seeds of 60 steps gave 1.2 to 1.65, their controls 4.45 to 5.7
    assert trained.numbers["image_retrieval/mean_rank"] <= 2.5
    assert control.numbers["image_retrieval/mean_rank"] >= 3.5


def test_finetuning_continues_with_the_runs_objective(contrast: Path, matching: Path, squares: Path) -> None:
    for run, wanted in ((contrast, "itc"), (matching, "itm")):
        output = squares / "runs" / f"retrieval-{wanted}"
        tuning = RetrievalTuning(
            run=run,
            corpus=str(squares / "train"),
            overrides=["train.max_steps=1", "train.lr_schedule.warmup_steps=0"],
            output=output,
            batch_size=8,
            lr=1e-4,
            control="shuffled-captions",
        )
        fine_tune(Retrieval(), tuning)
        recipe = read_recipe(output)
        spec = recipe.tasks["retrieval"].objectives[0]
        assert spec["objective"] == OBJECTIVES[wanted]
        assert recipe.control == "shuffled-captions"
        assert bool(spec.get("apart")) == (wanted == "itc")


def test_the_command_writes_a_result(contrast: Path, squares: Path) -> None:
    corpus = str(squares / "test")
    evaluate(Retrieval(), RetrievalScoring(run=contrast, corpus=corpus, control="same-features", batch_size=4))
    result = json.loads((contrast / "evaluations" / "retrieval-test-same-features.json").read_text())
    assert result["control"] == "same-features"
    assert result["counts"] == {"texts": 20, "images": 10}
    assert len(result["examples"]) == 12
    for example in result["examples"]:
        assert (contrast / example["image"]).is_file()
        assert 1 <= example["rank"] <= 10


def test_the_control_same_features_is_offered_where_it_works() -> None:
    """An evaluation of retrieval has it and no other; no training has it, nor any other evaluation."""
    of_retrieval = get_args(get_args(get_type_hints(RetrievalScoring)["control"])[0])
    assert of_retrieval == (SAME_FEATURES,)
    assert SAME_FEATURES not in CONTROLS
    for options in (RetrievalTuning, VqaScoring):
        assert {one for of in get_args(get_type_hints(options)["control"]) for one in get_args(of)} == {*CONTROLS}


def test_wrong_inputs(
    contrast: Path, matching: Path, squares: Path, test_corpus: Corpus, train: Callable[..., Path]
) -> None:
    corpus = str(squares / "test")
    with pytest.raises(WorkbenchError, match="add their number with --rerank"):
        evaluate(Retrieval(), RetrievalScoring(run=matching, corpus=corpus, first_stage=contrast))
    with pytest.raises(WorkbenchError, match="--first-stage"):
        scored(matching, test_corpus, k=2, size=4)
    with pytest.raises(WorkbenchError, match="neither itc nor itm"):
        objective_spec(read_recipe(train("words", [{"objective": "mlm"}], max_steps=1)), None)
    with pytest.raises(WorkbenchError, match="Did you mean 'itm'"):
        objective_spec(read_recipe(matching), "itmm")
    mixing = train("mixing", [{"objective": "vision.itc", "size": 8}], max_steps=1)
    with pytest.raises(WorkbenchError, match="no separate vector"):
        scored(mixing, test_corpus, size=4)


def test_images_that_nothing_is_said_of_are_reported(contrast: Path, test_corpus: Corpus, tmp_path: Path) -> None:
    """The command that the message names leaves them out."""
    with ShardWriter(tmp_path / "some/part-000000.tar", kind="image-text") as writer:
        for number in range(4):
            sample = test_corpus.read(0, number)
            kept = {name: sample[name] for name in ("image", "captions", "meta") if name != "captions" or number}
            writer.add(f"i{number}", {**kept, "labels": {"true": 1}})
    assert writer.info is not None
    finish_corpus(tmp_path / "some", kind="image-text", shards=[writer.info], provenance={"command": "test"})
    with pytest.raises(WorkbenchError, match=r"1 of 4 records of corpus 'some' have no captions.*--min-words 1"):
        evaluated(contrast, Corpus.open(tmp_path / "some"))


def test_pairs_hold_each_image_once(contrast: Path, test_corpus: Corpus) -> None:
    pairs: Pairs = all_pairs(open_run(contrast, Itc, ""), test_corpus, ImageSubset(limit=7), size=3)
    assert (len(pairs.images), len(pairs.texts)) == (7, 14)
    assert all(set(t.streams) == {"text"} for t in pairs.texts)
    assert all(set(i.streams) == {"image"} for i in pairs.images)


def evaluated(run: Path, corpus: Corpus, **options: Any) -> Result:
    reported = RetrievalScoring(run=run, corpus=str(corpus.place), batch_size=4, **options)
    return Retrieval().score(Retrieval().open(reported), corpus, reported)


def test_folds_are_the_mean_of_parts_that_are_ranked_alone(contrast: Path, test_corpus: Corpus) -> None:
    run = open_run(contrast, Itc, "")
    whole = evaluated(contrast, test_corpus, folds=2)
    parts = []
    for first in (0, 5):
        pairs = all_pairs(run, test_corpus, ImageSubset(first, 5), size=3)
        assert pairs.owner == [i // 2 for i in range(10)]
        found = score(run, test_corpus, ImageSubset(first, 5), size=4)
        assert found.captions == pairs.captions
        parts.append(retrieval_result(found, test_corpus, contrast))
    assert pairs.captions[0] == "a green square on the right."  # of the sixth image
    for name, value in whole.numbers.items():
        assert value == pytest.approx(np.mean([part.numbers[name] for part in parts]))
    assert whole.counts == {"texts": 20, "images": 10, "folds": 2}
    assert whole.baselines["chance"]["image_retrieval/r1"] == pytest.approx(1 / 5)
    with pytest.raises(
        WorkbenchError, match=r"cannot be split into 3 of equal size; allowed: --folds 1, 2, or --limit 9"
    ):
        evaluated(contrast, test_corpus, folds=3)
    with pytest.raises(WorkbenchError, match=r"allowed: --folds 1, 2, 5, 10$"):
        evaluated(contrast, test_corpus, folds=20)


def test_only_the_first_captions_of_each_image(contrast: Path, test_corpus: Corpus) -> None:
    result = evaluated(contrast, test_corpus, captions=1)
    assert (result.counts["texts"], result.counts["images"]) == (10, 10)
    pairs = all_pairs(open_run(contrast, Itc, ""), test_corpus, ImageSubset(captions=1), size=3)
    assert pairs.owner == list(range(10))
    assert all(caption.startswith("a ") for caption in pairs.captions)


def test_the_failures_are_the_captions_whose_image_is_found_last(contrast: Path, test_corpus: Corpus) -> None:
    result = evaluated(contrast, test_corpus)
    ranks = [example["rank"] for example in result.failures]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] == int(max(rank_images(scored(contrast, test_corpus).scores, [i // 2 for i in range(20)])))
    assert len({example["right"] for example in result.failures}) == len(result.failures) > 0
    assert all((contrast / example["right"]).is_file() for example in result.failures)


@pytest.mark.parametrize("way", ["margin", "choice"])
def test_matching_continues_against_hard_negatives(matching: Path, squares: Path, way: Any, tmp_path: Path) -> None:
    reported: dict[str, Any] = {"run": matching, "corpus": str(squares / "train"), "batch_size": 8}
    quick = ["train.max_steps=2", "train.lr_schedule.warmup_steps=0", "train.lr=1e-9"]
    run = fine_tune(
        Retrieval(), RetrievalTuning(hard_negatives=way, output=tmp_path / "run", overrides=quick, **reported)
    )
    spec = read_recipe(run).tasks["retrieval"].objectives[0]
    assert spec == {"objective": "vision.ranking", "name": "itm", "way": way}
    before, after = (open_run(place, Itm, "").head for place in (matching, run))
    for name, weights in before.state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], weights, atol=1e-6, rtol=0)
    assert evaluated(run, Corpus.open(squares / "test"), limit=3).numbers["r_mean"] > 0
    assert objective_spec(read_recipe(run), "itm") == spec
    with pytest.raises(WorkbenchError, match="need matching"):
        Retrieval().setup(RetrievalTuning(hard_negatives=way, objective="itc", **reported), read_recipe(matching))


def test_a_users_contrast_continues(
    train: Callable[..., Path], squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_contrast.py").write_text(
        "from vision.objectives.itc import Itc\n\n\nclass Warm(Itc):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    stated = {"objective": "their_contrast:Warm", "size": 8, "pool_text": "mean", "pool_image": "mean", "apart": True}
    quick = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0"]
    reported: dict[str, Any] = {"corpus": str(squares / "train"), "batch_size": 8, "overrides": quick}
    run = fine_tune(Retrieval(), RetrievalTuning(run=train("theirs", [stated]), output=tmp_path / "run", **reported))
    assert read_recipe(run).tasks["retrieval"].objectives == [stated]
    assert evaluated(run, Corpus.open(squares / "test")).counts["images"] > 1


class WithEntities(Transform):
    """Hangs an entity on the first token of every text."""

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            sequence.streams["entity"] = {"entity_ids": np.array([7]), "token": Rows("text", np.array([0]), bound=True)}
        return sequences


def test_the_streams_that_hang_on_a_text_stay_with_it(matching: Path, test_corpus: Corpus) -> None:
    run = open_run(matching, Itm, "")
    run.task.transforms = [WithEntities()]
    pairs = all_pairs(run, test_corpus, size=4)
    assert all(set(text.streams) == {"text", "entity"} for text in pairs.texts)
    assert all(set(image.streams) == {"image"} for image in pairs.images)


def test_a_momentum_contrast_continues_as_a_plain_one_with_its_space() -> None:
    wanted = {"objective": "vision.itc", "name": "itc", "size": 256, "tap": "encoded"}
    assert objective_spec(load_recipe("albef"), None) == objective_spec(load_recipe("albef"), "itc") == wanted
    assert objective_spec(load_recipe("albef"), "itm") == {"objective": "vision.itm"}


def test_what_reads_no_images_is_refused_alike_by_evaluation_and_fine_tuning(tmp_path: Path) -> None:
    """A released model's network reads images, but nothing says how an image becomes its rows: no advice to fine-tune
    it."""
    checkpoint_family, config, network = made("vision.uniter")
    heads: dict[str, Any] = {}
    write_checkpoint_folder(
        tmp_path,
        exported_weights("vision.uniter", network, checkpoint_family.network(config), torch.nn.ModuleDict(), heads),
    )
    tokenizer(tmp_path / "tokenizer.json")
    reported = "its network has a stream `image`, so name it as init_from"
    with pytest.raises(WorkbenchError, match=reported):
        Retrieval().open(RetrievalScoring(run=tmp_path, corpus="nothing"))
    with pytest.raises(WorkbenchError, match=reported):
        Vqa().open(VqaScoring(run=tmp_path, corpus="nothing"))
    with pytest.raises(WorkbenchError, match=reported):
        Retrieval().setup(RetrievalTuning(run=tmp_path, corpus="nothing", objective="itm"), recipe_at(tmp_path))


def test_what_is_found_for_a_query_has_the_scores_of_the_evaluation(contract: World) -> None:
    corpus = Corpus.open(contract.corpus)
    wanted = scored(contract.run, corpus)
    model = workbench.load(contract.run)
    texts = model.predict(wanted.captions[:2], "retrieval", among=contract.corpus, best=3)
    for line, row in zip(texts, matrix(wanted), strict=False):
        best = sorted(zip(row.tolist(), [shown.key for shown in wanted.shown], strict=True), reverse=True)[:3]
        assert [each["score"] for each in line["prediction"]] == pytest.approx([score for score, _ in best], abs=1e-5)
        assert line["prediction"][0]["key"] in [key for score, key in best if score > best[0][0] - 1e-5]
    (found,) = model.predict([corpus[0]["image"]], "retrieval", among=contract.corpus, best=2, batch_size=3)
    column = sorted(matrix(wanted)[:, 0].tolist(), reverse=True)[:2]
    assert [each["score"] for each in found["prediction"]] == pytest.approx(column, abs=1e-5)
    assert found["prediction"][0]["caption"] in wanted.captions


def test_a_found_image_is_named_by_its_file(matching: Path, tmp_path: Path) -> None:
    photo = {**record(3), "meta": {"image": "photos/3.png"}}
    write_corpus(tmp_path / "photos", [photo, record(4)])
    model = workbench.load(matching)
    (line,) = model.predict(["a square"], "retrieval", among=tmp_path / "photos", best=2)
    assert {each["key"]: each.get("image") for each in line["prediction"]} == {"r0": "photos/3.png", "r1": None}
    (line,) = model.predict([photo["image"]], "retrieval", among=tmp_path / "photos", best=9)
    assert {each.get("image") for each in line["prediction"]} == {"photos/3.png", None}


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> World:
    return contract_world(tmp_path_factory.mktemp("contract"))
