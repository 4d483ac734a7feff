"""`finetune vqa` and `evaluate vqa` on a world of coloured squares."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.cases import EvaluationCase, World
from tests.vision.evaluation.conftest import make_squares, record, tree, write_corpus, writer
from tests.vision.metrics.test_wups import write_wordnet
from vision.evaluation.task_options import VqaScoring, VqaTuning
from vision.evaluation.tasks.vqa import Vqa
from vision.evaluation.vqa.answer_predictions import questions_of
from vision.metrics.wordnet import Nouns
from vision.metrics.wups import alike
from vision.objectives.answers import Answers, AnswersHead
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, open_run
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.result import Result
from workbench.recipe.spec import InitFrom
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.runs.metrics_file import read_metrics
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain


def contract_world(folder: Path) -> World:
    make_squares(folder)
    base = pretrain(recipe_from_dict(tree(folder, [{"objective": "vision.itm"}])), folder / "base", until=1)
    reported: dict[str, Any] = {"overrides": ["train.max_steps=4"], "output": folder / "run", "min_count": 2}
    tuned = fine_tune(Vqa(), VqaTuning(run=base, corpus=str(folder / "train"), batch_size=16, lr=3e-3, **reported))
    return World(tuned, str(folder / "test"), base, {})


def writing_world(folder: Path) -> World:
    make_squares(folder)
    base = pretrain(recipe_from_dict(tree(folder, [{"objective": "vision.itm"}])), folder / "base", until=1)
    run = pretrain(recipe_from_dict(writer(folder, max_steps=3)), folder / "run")
    return World(run, str(folder / "test"), base, {"max_new_tokens": 6})


CASES = {"": EvaluationCase(world=contract_world), "writer": EvaluationCase(world=writing_world)}


MAIN = {"yes": 4, "no": 4, "red": 2, "green": 2, "blue": 2, "white": 2}
"""How often each answer is right in the first eight records."""


def opened(run: Path, control: str | None = None) -> EvaluatedRun:
    return open_run(run, Answers, "", control=control)


def scored(run: EvaluatedRun, corpus: Corpus, **options: Any) -> Result:
    return Vqa().score(run, corpus, VqaScoring(run=run.folder, corpus=str(corpus.place), **options))


def records(corpus: Corpus) -> list[dict[str, Any]]:
    return [sample for samples in sample_pass([corpus], size=3, unit=None) for sample in samples]


def one_by_one(run: EvaluatedRun, corpus: Corpus) -> dict[int, str]:
    """Every question alone: builder, network, head, most probable answer."""
    found = {}
    head = run.head
    assert isinstance(head, AnswersHead)
    for sample in records(corpus):
        for question in sample["questions"]:
            batch = collate(run.task.sequences([{**sample, "draw": (0, 0), "questions": [question]}]))
            with torch.no_grad():
                logits = head.logits(run.network, run.network(batch), batch)[0]
            found[question["question_id"]] = run.objective.objective.vocabulary.answers[int(logits.argmax())]
    return found


def test_finetuning_is_a_derived_recipe(answering: Path, matching: Path) -> None:
    base, recipe = read_recipe(matching), read_recipe(answering)
    task = recipe.tasks["vqa"]
    assert recipe.networks["main"].init_from == [InitFrom(str(matching))]
    assert task.sequence.builder["builder"] == "question_image"
    assert task.sequence.builder["image_processor"] == base.tasks["pairs"].sequence.builder["image_processor"]
    assert task.sequence.builder["max_length"] == 16
    assert task.objectives[0]["loss"] == "cross_entropy"
    assert task.objectives[0]["all_right"] is True
    assert sorted(task.objectives[0]["answers"]) == ["blue", "green", "no", "red", "white", "yes"]


def test_the_numbers_are_those_of_questions_asked_alone(answering: Path, test_corpus: Corpus) -> None:
    run = opened(answering)
    result = scored(run, test_corpus, batch_size=3)
    alone = one_by_one(run, test_corpus)
    questions = [question for sample in records(test_corpus) for question in sample["questions"]]
    right = [alone[q["question_id"]] == q["answers"][0] for q in questions]
    kinds = [q["answer_type"] for q in questions]
    assert result.numbers["accuracy"] == pytest.approx(100 * sum(right) / len(right))
    for kind in ("other", "yes/no"):
        mine = [hit for hit, other in zip(right, kinds, strict=True) if other == kind]
        assert result.numbers[f"accuracy/answer_type/{kind}"] == pytest.approx(100 * sum(mine) / len(mine))
    assert read_metrics(answering)[-1]["held_out/answers/accuracy"] == pytest.approx(result.numbers["accuracy"] / 100)
    assert result.variant == "single_answer"
    assert result.counts == {"questions": 20, "images": 10, "answers": 6}


def test_it_learns_to_look_and_the_controls_show_that_it_does(answering: Path, test_corpus: Corpus) -> None:
    seeing = scored(opened(answering), test_corpus)
    blind = scored(opened(answering, "question-only"), test_corpus)
    assert seeing.numbers["accuracy"] >= 90
    assert blind.numbers["accuracy"] <= 60


def test_the_majority_answer_is_the_training_sets(answering: Path, squares: Path, test_corpus: Corpus) -> None:
    result = scored(opened(answering), test_corpus)
    train = [q for sample in records(Corpus.open(squares / "train")) for q in sample["questions"]]
    counts = Counter(q["answers"][0] for q in train)
    best = min(counts, key=lambda answer: (-counts[answer], answer))
    questions = [q for sample in records(test_corpus) for q in sample["questions"]]
    expected = 100 * sum(q["answers"] == [best] for q in questions) / len(questions)
    assert result.baselines["majority answer"]["accuracy"] == pytest.approx(expected)
    assert "majority answer per question type" in result.baselines
    assert result.baselines["best of the vocabulary"]["accuracy"] == 100


def test_a_head_continues_with_the_answers_that_it_knows(
    answering: Path, squares: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """LXMERT's answers of pretraining are those of other sets as well; a row is its answer's, wherever that stands."""
    known = opened(answering).objective.objective.vocabulary.answers
    asked = [known[4], "purple", known[0], known[2]]
    for name, answers in (("some", asked), ("other", ["purple", "pink"]), ("turned", [*reversed(known)])):
        vocabulary = tmp_path / f"{name}.json"
        vocabulary.write_text(json.dumps([*answers, "blue", "red"] if name == "other" else answers))
        reported: dict[str, Any] = {
            "overrides": ["train.max_steps=1"],
            "answers": vocabulary,
            "output": tmp_path / name,
        }
        run = fine_tune(Vqa(), VqaTuning(run=answering, corpus=str(squares / "train"), lr=1e-9, **reported))
        heads = [opened(each).head for each in (answering, run)]
        before, after = ({k: v.clone() for k, v in head.state_dict().items()} for head in heads)
        vocabulary_now = opened(run).objective.objective.vocabulary.answers
        for row, answer in enumerate(vocabulary_now):
            if answer in known:
                torch.testing.assert_close(after["outer.weight"][row], before["outer.weight"][known.index(answer)])
                torch.testing.assert_close(after["outer.bias"][row], before["outer.bias"][known.index(answer)])
        torch.testing.assert_close(after["inner.weight"], before["inner.weight"])
    assert "head answers: 3 of its 4 classes are among the 6 there" in capfd.readouterr().err


def test_answers_that_are_not_known_any_more_leave_no_rows(
    answering: Path, squares: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As many answers need not be the same ones: of a file that is gone, or is another by now, nothing is taken."""
    own = tmp_path / "answers.json"
    known = list(opened(answering).objective.objective.vocabulary.answers)
    own.write_text(json.dumps(known))
    reported: dict[str, Any] = {"overrides": ["train.max_steps=1"], "corpus": str(squares / "train"), "lr": 1e-9}
    recipe = read_recipe(answering)
    tree = {"objective": "vision.answers", "answers": str(own), "loss": "cross_entropy", "name": "answers"}
    task = replace(recipe.tasks["vqa"], objectives=[tree])
    run = pretrain(replace(recipe, tasks={"vqa": task}), tmp_path / "run", until=1)
    turned = tmp_path / "turned.json"
    turned.write_text(json.dumps(known[::-1]))
    before = opened(run).head.state_dict()["outer.weight"].clone()
    own.write_text(json.dumps(known[::-1]))
    with pytest.raises(WorkbenchError, match=r"the answers at .* is not the one that .* was trained with"):
        fine_tune(Vqa(), VqaTuning(run=run, answers=turned, output=tmp_path / "changed", **reported))
    own.unlink()
    gone = fine_tune(Vqa(), VqaTuning(run=run, answers=turned, output=tmp_path / "gone", **reported))
    assert "has classes there that are not known any more; it keeps its fresh values" in capfd.readouterr().err
    after = opened(gone).head.state_dict()["outer.weight"]
    assert not any(torch.allclose(row, other, atol=1e-6) for row in after for other in before)


def test_training_without_the_image(matching: Path, squares: Path, test_corpus: Corpus) -> None:
    output = squares / "runs" / "blind"
    tuning = VqaTuning(
        run=matching,
        corpus=str(squares / "train"),
        overrides=["train.max_steps=40"],
        output=output,
        control="question-only",
        min_count=2,
        batch_size=16,
        lr=3e-3,
    )
    fine_tune(Vqa(), tuning)
    run = opened(output)
    assert run.loaded.recipe.control == "question-only"
    assert all(set(s.streams) == {"text"} for s in run.task.sequences(records(test_corpus)))
    assert scored(run, test_corpus).numbers["accuracy"] <= 60


def test_the_command_writes_a_result_with_images(answering: Path, squares: Path) -> None:
    corpus = str(squares / "test")
    evaluate(Vqa(), VqaScoring(run=answering, corpus=corpus, batch_size=4))
    evaluate(Vqa(), VqaScoring(run=answering, corpus=corpus, control="question-only", batch_size=4, limit=4))
    folder = answering / "evaluations"
    result = json.loads((folder / "vqa-test.json").read_text())
    control = json.loads((folder / "vqa-test-question-only-limit=4.json").read_text())
    assert result["task"] == "vqa"
    assert result["control"] is None
    assert control["control"] == "question-only"
    assert control["counts"]["images"] == 4
    assert len(result["examples"]) == len({e["image"] for e in result["examples"]}) == 10
    for example in result["examples"]:
        assert (answering / example["image"]).read_bytes().startswith(b"\x89PNG")
        assert set(example) == {"image", "question", "prediction", "answers", "accuracy"}
    assert result["inputs"]["corpus"]["records"] == 10


def test_the_failures_are_the_wrong_answers_that_it_is_surest_of(answering: Path, test_corpus: Corpus) -> None:
    blind = scored(opened(answering, "question-only"), test_corpus)
    shown = [example["confidence"] for example in blind.failures]
    assert shown == sorted(shown, reverse=True)
    assert 0 < len(shown) == len({example["image"] for example in blind.failures}) <= 10
    assert all(example["accuracy"] == 0 for example in blind.failures)
    by_question = {(e["question"], e["prediction"]) for e in blind.failures}
    assert all(prediction not in ("maybe", "") for _, prediction in by_question)


def test_what_test_servers_take(answering: Path, squares: Path, tmp_path: Path) -> None:
    unanswered = [record(i) for i in range(40, 44)]
    for made in unanswered:
        made["questions"] = [{**question, "answers": []} for question in made["questions"]]
    corpus, file, other = (
        write_corpus(tmp_path / "corpus", unanswered),
        tmp_path / "results.json",
        tmp_path / "gqa.json",
    )
    result = evaluate(Vqa(), VqaScoring(run=answering, corpus=corpus, predictions=file, gqa_predictions=other))
    assert result.numbers == {}
    assert result.counts["questions answered"] == 8
    assert result.options == {}
    known = one_by_one(opened(answering), Corpus.open(corpus))
    assert json.loads(file.read_text()) == [{"question_id": name, "answer": answer} for name, answer in known.items()]
    gqa = [{"questionId": str(name), "prediction": answer} for name, answer in known.items()]
    assert json.loads(other.read_text()) == gqa
    evaluate(Vqa(), VqaScoring(run=answering, corpus=corpus, gqa_predictions=other))
    with pytest.raises(WorkbenchError, match=r"none of the questions of .* has answers.*--predictions FILE"):
        evaluate(Vqa(), VqaScoring(run=answering, corpus=corpus))


def test_questions_without_answers_among_others_are_counted_apart(answering: Path, tmp_path: Path) -> None:
    some = [record(i) for i in range(40, 44)]
    some[0]["questions"][1]["answers"] = []
    result = scored(opened(answering), Corpus.open(write_corpus(tmp_path / "corpus", some)))
    assert (result.counts["questions"], result.counts["without answers"]) == (7, 1)
    few = VqaTuning(run=answering, corpus=str(tmp_path / "corpus"), min_count=1)
    assert "yes" in Vqa().setup(few, read_recipe(answering)).objective["answers"]


def test_a_question_of_a_single_answer_is_left_out_and_named(
    answering: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    some = [record(i) for i in range(40, 44)]
    for question in (question for made in some for question in made["questions"]):
        question["answers"] = question["answers"] * 10
    some[0]["questions"][1]["answers"] = ["maybe"]
    result = scored(opened(answering), Corpus.open(write_corpus(tmp_path / "corpus", some)))
    assert (result.variant, result.numbers["accuracy"]) == ("official_2015", 100)
    assert (result.counts["questions"], result.counts["left out, of a single answer"]) == (7, 1)
    assert result.baselines["best of the vocabulary"]["accuracy"] == 100
    assert "1 of 8 questions have a single answer and are not scored" in caplog.text
    assert "(401)" in caplog.text


def test_a_corpus_may_say_that_its_answers_are_read(answering: Path, tmp_path: Path) -> None:
    """Near answers score, and the words of the image are next to the number; the option has the last word."""
    some = [{**record(i), "ocr_tokens": ["exit", "greex", "x"]} for i in range(40, 44)]
    for made in some:
        made["questions"] = made["questions"][:1]
        made["questions"][0]["answers"] += ["greet"]
    corpus = Corpus.open(write_corpus(tmp_path / "corpus", some, vqa_variant="anls"))
    result = scored(opened(answering), corpus)
    colours = [made["questions"][0]["answers"][0] for made in some]
    assert (result.variant, result.numbers["anls"]) == ("anls", 100)
    assert "accuracy" not in result.numbers
    assert result.counts["of several answers, each right"] == 4
    assert colours.count("green") == 1
    read = result.baselines["best of the words read in the image"]
    assert read == {"anls": 100 * 4 / 5}, "one letter of five is wrong, in every image"
    assert result.baselines["best of the vocabulary"] == {"anls": 100}
    tuning = VqaTuning(run=answering, corpus=str(corpus.place), min_count=1)
    objective = Vqa().setup(tuning, read_recipe(answering)).objective
    assert (objective["all_right"], objective["form"]) == (True, "plain")
    exact = scored(opened(answering), corpus, variant="single_answer")
    assert exact.baselines["best of the words read in the image"] == {"accuracy": 0}
    write_corpus(tmp_path / "wrong", some, vqa_variant="anl")
    with pytest.raises(WorkbenchError, match="Did you mean 'anls'"):
        scored(opened(answering), Corpus.open(tmp_path / "wrong"))


def test_an_id_that_occurs_twice_is_reported_with_what_to_do(answering: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", [record(1), record(1)])
    with pytest.raises(WorkbenchError, match=r"id 10 occurs twice .*'r1'.*workbench prepare image-text.*--on-error sk"):
        evaluate(Vqa(), VqaScoring(run=answering, corpus=str(tmp_path / "corpus")))


def test_answers_over_sets_by_wordnet(answering: Path, squares: Path, tmp_path: Path) -> None:
    write_wordnet(tmp_path / "dict")
    index = tmp_path / "dict" / "index.noun"
    index.write_text(index.read_text().replace("box4 ", "red ").replace("man5 ", "blue "))
    some = [record(i) for i in range(40, 44)]
    some[0]["questions"][0]["answers"] = ["red", "blue"]
    corpus = Corpus.open(write_corpus(tmp_path / "corpus", some))
    result = scored(opened(answering), corpus, wordnet=tmp_path / "dict")
    assert result.numbers["accuracy"] == 100
    assert result.numbers["set_accuracy"] == 100 * 7 / 8  # one of two is not all of them
    nouns = Nouns(tmp_path / "dict")
    for threshold in (0.9, 0.0):
        expected = 100 * (7 + alike(nouns, threshold)("red", "blue")) / 8
        assert result.numbers[f"wups/{threshold}"] == pytest.approx(expected)
    assert result.numbers["wups/0.0"] > result.numbers["wups/0.9"] > result.numbers["set_accuracy"]
    assert result.baselines["majority answer"]["wups/0.0"] < result.numbers["wups/0.0"]


def test_questions_without_a_type_are_distinguished_by_their_first_words(answering: Path, tmp_path: Path) -> None:
    some = [record(i) for i in range(40, 44)]
    for made in some:
        for question in made["questions"]:
            del question["question_type"], question["answer_type"]
    result = scored(opened(answering), Corpus.open(write_corpus(tmp_path / "corpus", some)))
    by_words = result.baselines["majority answer per first two words"]["accuracy"]
    assert by_words >= result.baselines["majority answer"]["accuracy"] > 0


def test_the_answers_of_several_corpora_make_the_vocabulary(matching: Path, squares: Path, tmp_path: Path) -> None:
    more = record(40)
    more["questions"][0]["answers"] = ["mauve"]
    other = write_corpus(tmp_path / "more", [{**more, "questions": more["questions"][:1]}])
    base, reported = read_recipe(matching), {"run": matching, "corpus": str(squares / "train"), "min_count": 1}
    alone = Vqa().setup(VqaTuning(**reported), base).objective["answers"]
    both = Vqa().setup(VqaTuning(answers_of=[other], **reported), base).objective["answers"]
    assert both == [*alone, "mauve"]
    (tmp_path / "rows.json").write_text(json.dumps({"no": 2, "yes": 1, "": 0}))
    published = Vqa().setup(VqaTuning(answers=tmp_path / "rows.json", **reported), base).objective["answers"]
    assert published == ["yes", "no"], "without the blank one"
    (tmp_path / "rows.json").write_text(json.dumps(["qux", "quux"]))
    with pytest.raises(WorkbenchError, match=r"none of its 2 answers belongs to the \d+ questions of .*another set"):
        Vqa().setup(VqaTuning(answers=tmp_path / "rows.json", **reported), base)
    with pytest.raises(WorkbenchError, match="give one"):
        Vqa().setup(VqaTuning(answers=tmp_path / "rows.json", answers_of=[other], **reported), base)
    (tmp_path / "rows.json").write_text(json.dumps({"no": 2, "yes": 0}))
    with pytest.raises(WorkbenchError, match="with their classes"):
        Vqa().setup(VqaTuning(answers=tmp_path / "rows.json", **reported), base)


def test_how_many_questions_have_an_answer_in_the_vocabulary_is_reported(
    matching: Path, squares: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = str(squares / "train")
    asked = [question["answers"][0] for question in questions_of(Corpus.open(corpus))]
    counts = Counter(asked).most_common()
    least = counts[1][1]  # the two most frequent answers at least
    known = {answer for answer, count in counts if count >= least}
    covered = sum(answer in known for answer in asked)
    assert 0 < covered < len(asked)
    with caplog.at_level("INFO"):
        Vqa().setup(VqaTuning(run=matching, corpus=corpus, min_count=least), read_recipe(matching))
    assert f"{covered} of {len(asked)} questions have an answer among the {len(known)} of the vocabulary" in caplog.text


def test_wrong_inputs(answering: Path, matching: Path, squares: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="fine-tune it first: workbench finetune vqa"):
        evaluate(Vqa(), VqaScoring(run=matching, corpus=str(squares / "test")))
    with pytest.raises(WorkbenchError, match="would change nothing"):
        opened(answering, "no-kg")


def test_a_corpus_without_questions(matching: Path, captions_only: str, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="has no questions"):
        fine_tune(Vqa(), VqaTuning(run=matching, corpus=captions_only, output=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_dual_encoder_is_asked_with_a_head_that_reads_text_and_image(
    apart: Path, squares: Path, test_corpus: Corpus
) -> None:
    """Its layers mix no streams."""
    options: dict[str, Any] = {"run": apart, "corpus": str(squares / "train"), "batch_size": 16, "lr": 3e-3}
    found = {}
    for control in (None, "question-only"):
        output = squares / "runs" / f"asked-{control}"
        run = fine_tune(Vqa(), VqaTuning(overrides=["train.max_steps=60"], output=output, control=control, **options))
        found[control] = scored(opened(run), test_corpus).numbers["accuracy"]
        recipe = read_recipe(run)
        assert recipe.tasks["vqa"].objectives[0]["fused"] == ["text", "image"]
        again = Vqa().setup(VqaTuning(**{**options, "run": run}), recipe)
        assert again.objective["fused"] == ["text", "image"], "a run that was asked so stays so"
    assert found[None] >= 90
    assert found["question-only"] <= 60


def test_a_head_that_cannot_see_the_image_is_not_trained_blind(apart: Path, squares: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"run": apart, "corpus": str(squares / "train"), "min_count": 2, "read": "pooled"}
    for more in ([], ["tasks.vqa.objectives[0].fused=[text]"]):
        with pytest.raises(WorkbenchError, match=r"'answers' would be trained blind: .* see 'image'.*--read f"):
            fine_tune(Vqa(), VqaTuning(output=tmp_path / "run", overrides=more, **options))
        assert not (tmp_path / "run").exists()
    quick = ["train.max_steps=1", "train.lr_schedule.warmup_steps=0"]
    blind = VqaTuning(output=tmp_path / "blind", control="question-only", overrides=quick, **options)
    assert fine_tune(Vqa(), blind) == tmp_path / "blind"


def test_the_share_of_each_answer_type_and_few_steps_are_logged(
    matching: Path, answering: Path, squares: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = str(squares / "train")
    with caplog.at_level("INFO"):
        recipe_of(Vqa(), VqaTuning(run=matching, corpus=corpus, min_count=9))
    assert "among the 2 of the vocabulary (other 0%, yes/no 100%)" in caplog.text
    assert "8 steps at a rate of 5e-05 hardly train the new head" in caplog.text
    caplog.clear()
    recipe_of(Vqa(), VqaTuning(run=answering, corpus=corpus))
    recipe_of(Vqa(), VqaTuning(run=matching, corpus=corpus, lr=1e-2))
    faster = ["train.groups=[{match: heads, lr_factor: 10}]"]
    recipe_of(Vqa(), VqaTuning(run=matching, corpus=corpus, lr=1e-3, overrides=faster))
    assert "hardly" not in caplog.text, "the head is not new; its weights move far enough"


def test_answers_of_annotators_have_frequencies(matching: Path, tmp_path: Path) -> None:
    some = [record(i) for i in range(8)]
    for question in (question for made in some for question in made["questions"]):
        question["answers"] = question["answers"] * 10
    tuning = VqaTuning(run=matching, corpus=write_corpus(tmp_path / "corpus", some))
    objective = Vqa().setup(tuning, read_recipe(matching)).objective
    found = dict(zip(objective["answers"], objective["frequencies"], strict=True))
    assert objective["loss"] == "bce"
    assert found == {name: pytest.approx((count + 0.5) / 17, rel=1e-3) for name, count in MAIN.items()}
