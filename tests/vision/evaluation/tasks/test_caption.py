"""`evaluate caption` and `finetune caption` on a world of coloured squares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cases import EvaluationCase, World
from tests.vision.evaluation.conftest import make_squares, record, tree, write_corpus
from vision.evaluation.task_options import CaptionScoring, CaptionTuning
from vision.evaluation.tasks.caption import Caption, baselines
from vision.metrics.caption_scores import caption_scores
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.generation import Generator, without_captions
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.passes import sample_pass
from workbench.generation.decoding import Decoding
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain


def captioner(folder: Path, **train: Any) -> dict[str, Any]:
    reported = tree(folder, [{"objective": "clm"}], **train)
    reported["tasks"]["pairs"]["sequence"]["visibility"] = "causal"
    return reported


def contract_world(folder: Path) -> World:
    make_squares(folder)
    run = pretrain(recipe_from_dict(captioner(folder)), folder / "run")
    without = pretrain(recipe_from_dict(tree(folder, [{"objective": "mlm"}])), folder / "words")
    return World(run, str(folder / "test"), without, {"max_new_tokens": 8})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return contract_world(tmp_path_factory.mktemp("captions"))


@pytest.mark.parametrize("beams", [1, 3])
def test_the_scores_are_those_of_what_was_written(world: World, beams: int) -> None:
    scoring = CaptionScoring(run=world.run, corpus=world.corpus, max_new_tokens=8, beams=beams)
    result = evaluate(Caption(), scoring)
    generator = Generator(load(world.run), Decoding(max_new_tokens=8, beams=beams))
    corpus = Corpus.open(world.corpus)
    [samples] = sample_pass([corpus], size=corpus.records, unit=None)
    texts = [generator.spelling.text(made.tokens).strip() for made in generator(without_captions(samples))]
    assert [line["prediction"] for line in result.predictions.lines] == texts
    assert [line["gold"] for line in result.predictions.lines] == [sample["captions"] for sample in samples]
    assert result.numbers == pytest.approx(caption_scores(texts, [sample["captions"] for sample in samples]))
    assert result.counts == {"images": len(samples), "references": 2 * len(samples)}
    alongside = [json.loads(line) for file in (world.run / "evaluations").glob("*.jsonl") for line in file.open()]
    assert result.predictions.lines[0] in [{name: line[name] for name in line if name != "adds"} for line in alongside]


def test_baselines_are_captions_that_no_model_wrote() -> None:
    references = [["a red square", "a red one"], ["a blue square", "the blue one"]]
    training: Any = [{"captions": ["A dog."]}, {"captions": ["a dog", "a cat"]}, {}]
    found = baselines(references, training)
    assert found["most frequent caption"] == caption_scores(["a dog", "a dog"], references)
    assert found["another image's caption"] == caption_scores(["a blue square", "a red square"], references)
    own = caption_scores(["a red square", "a blue square"], [["a red one"], ["the blue one"]])
    assert found["its own first caption"] == own
    assert baselines([["a dog"]], None) == {}


@pytest.mark.long
def test_a_run_that_learns_to_caption_beats_another_images_caption(world: World, tmp_path: Path) -> None:
    folder = Path(world.corpus).parent
    tuning = CaptionTuning(
        run=world.run, corpus=str(folder / "train"), output=tmp_path / "tuned", epochs=60, batch_size=8, lr=5e-3
    )
    run = fine_tune(Caption(), tuning)
    result = evaluate(Caption(), CaptionScoring(run=run, corpus=str(folder / "train"), max_new_tokens=10))
    assert result.numbers["cider"] > result.baselines["another image's caption"]["cider"] + 50


def test_what_cannot_be_captioned_is_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"words: .*none of its objectives \(mlm\)"):
        evaluate(Caption(), CaptionScoring(run=world.without, corpus=world.corpus))
    bare = [{name: value for name, value in record(i).items() if name != "captions"} for i in range(3)]
    corpus = write_corpus(tmp_path / "bare", bare)
    with pytest.raises(WorkbenchError, match="has no captions"):
        evaluate(Caption(), CaptionScoring(run=world.run, corpus=corpus))
    with pytest.raises(WorkbenchError, match="at most"):
        evaluate(Caption(), CaptionScoring(run=world.run, corpus=world.corpus, max_new_tokens=60))


def test_captions_that_are_only_compared_cannot_be_shuffled(world: World) -> None:
    """An evaluation uses every image's own captions: the control would be reported for unchanged numbers."""
    with pytest.raises(WorkbenchError, match="control shuffled-captions would change nothing"):
        evaluate(Caption(), CaptionScoring(run=world.run, corpus=world.corpus, control="shuffled-captions"))
