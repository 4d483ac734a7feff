"""Evaluating facts, end to end on a tiny world."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kg.evaluation.facts.cloze_corpus import read_candidates, read_facts
from kg.evaluation.task_options import FactsScoring
from kg.evaluation.tasks.facts import FactRanking
from kg.graph.store import GraphStore
from tests.contracts.cases import EvaluationCase, World
from tests.kg.evaluation.conftest import COUNTRIES, WORDINGS, fact, make_world, recipe_tree, write
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import open_run
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.objectives.mlm import Mlm
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain


def contract_world(folder: Path) -> World:
    make_world(folder)
    tree = recipe_tree(folder, "none")
    run = pretrain(recipe_from_dict(tree), folder / "run", until=5)
    tree["tasks"]["facts"]["sequence"]["visibility"] = "causal"
    tree["tasks"]["facts"]["objectives"] = [{"objective": "clm"}]
    without = pretrain(recipe_from_dict(tree), folder / "left-to-right", until=1)
    return World(run, str(folder / "facts"), without, {"candidates": folder / "candidates.json"})


CASE = EvaluationCase(world=contract_world)


def reported(run: Path, corpus: Path, **options: Any) -> FactsScoring:
    wanted = {"candidates": corpus.parent / "candidates.json", "batch_size": 4, **options}
    return FactsScoring(run=run, corpus=str(corpus), **wanted)


def run_evaluate(run: Path, corpus: Path, **options: Any) -> dict:
    return asdict(evaluate(FactRanking(), reported(run, corpus, **options)))


def test_a_model_that_was_taught_knows(world: Path, make_run: Callable[..., Path]) -> None:
    found = run_evaluate(make_run("none"), world / "facts")
    assert found["numbers"]["accuracy"] > 0.7
    assert found["counts"] == {"sentences": 24, "candidates": 4, "candidates that are true too": 0}
    assert found["baselines"]["chance"]["accuracy"] == pytest.approx(0.25)
    assert found["baselines"]["chance"]["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert found["baselines"]["most frequent objects"]["hits@10"] == 1
    example = found["examples"][0]
    assert example["text"][slice(*example["mask"])] == example["object"]


def test_each_mention_is_counted_once(world: Path, make_run: Callable[..., Path], tmp_path: Path) -> None:
    """Though a sentence is read for each length of its candidates."""
    corpus, listed = Corpus.open(world / "facts"), json.loads((world / "candidates.json").read_text())
    listed["country"].append({"id": "c9", "label": f"{COUNTRIES[0]} {COUNTRIES[1]}"})
    (tmp_path / "candidates.json").write_text(json.dumps(listed))
    slots = [sample["mask_spans"][0][:2] for sample in corpus]
    spans = [sample["spans"] for sample in corpus]
    mentions = sum(span[:2] != slot for of, slot in zip(spans, slots, strict=True) for span in of)
    found = run_evaluate(make_run("tree"), world / "facts", candidates=tmp_path / "candidates.json")
    assert found["used"]["mentions"] + sum(found["dropped"].values()) == mentions
    assert found["counts"]["facts that the graph states"] == found["counts"]["sentences"]


def test_scores_are_split_by_how_often_a_subject_is_linked(world: Path, make_run: Callable[..., Path]) -> None:
    """Each town is in two sentences for testing; the counts are made here by hand."""
    found = evaluate(FactRanking(), reported(make_run("none"), world / "facts", frequencies=world / "facts"))
    links = Counter(span[2] for sample in Corpus.open(world / "facts") for span in sample["spans"])
    often = [links[sample["meta"]["subject"]] for sample in Corpus.open(world / "facts")]
    right = [line["gold"] == line["prediction"] for line in found.predictions]
    for bucket, low, high in (("1-9", 1, 9), ("10-99", 10, 99)):
        own = [of for of, times in zip(right, often, strict=True) if low <= times <= high]
        name = f"accuracy/subject_links/{bucket}"
        assert (name in found) == bool(own)
        if own:
            assert found[name] == pytest.approx(np.mean(own))
            assert name in found.intervals
    assert "accuracy/subject_links/0" not in found
    assert found.inputs["frequencies"]["sha256"] == Corpus.open(world / "facts").identity
    with pytest.raises(WorkbenchError, match=r"'facts-unseen' links none of the facts' subjects .* the same names"):
        evaluate(FactRanking(), reported(make_run("none"), world / "facts", frequencies=world / "facts-unseen"))


def test_a_run_says_in_which_folder_it_reads(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    pretrain(recipe_from_dict(recipe_tree(Path(), "tree")), tmp_path / "run", until=1)
    monkeypatch.chdir(tmp_path)
    message = r"run was trained there was graph.*evaluate and finetune.*KEY=VALUE"
    with pytest.raises(WorkbenchError, match=message):
        load("run")
    (world / "runs").mkdir(exist_ok=True)
    (tmp_path / "run").rename(world / "runs" / "moved")
    found = load(world / "runs" / "moved")  # a folder above the run has the graph
    assert [*found.data_identities["graph"]] == [str(world / "graph")]


def test_ranks_equal_a_loop_over_single_sentences(world: Path, make_run: Callable[..., Path]) -> None:
    run = open_run(make_run("tree"), Mlm, "")
    corpus = Corpus.open(world / "facts-unseen")
    facts = read_facts(corpus, read_candidates(world / "candidates.json"))
    result = FactRanking().score(run, corpus, reported(make_run("tree"), world / "facts-unseen", batch_size=3))
    ranks = []
    for number, sample in enumerate(facts["country"].samples):
        scores = []
        (start, end), text = sample["mask_spans"][0][:2], sample["text"]
        for label in facts["country"].candidates.labels:
            grown = len(label) - (end - start)
            spans = [
                [s + grown * (s >= end), e + grown * (s >= end), *rest] for s, e, *rest in sample["spans"] if s != start
            ]
            filled = {"text": text[:start] + label + text[end:], "spans": spans, "draw": (number,)}
            (sequence,) = run.task.sequences([{**filled, "mask_spans": [[start, start + len(label)]]}])
            (slot,) = sequence.mask_spans
            wanted = sequence.streams["text"]["input_ids"][slot.start : slot.end].copy()
            sequence.streams["text"]["input_ids"][slot.start : slot.end] = run.tokenizer.id("mask")
            batch = collate([sequence])
            with torch.inference_mode():
                rows = run.network(batch)["text"][slot.start : slot.end]
                logs = run.head.logits(run.network, rows).log_softmax(-1).numpy()
            scores.append(logs[np.arange(len(wanted)), wanted].sum())
        gold = facts["country"].candidates.places[sample["meta"]["object"]]
        ranks.append(1 + sum(s > scores[gold] for s in scores))
    assert result.numbers["accuracy"] == pytest.approx(np.mean(np.array(ranks) == 1))
    assert result.numbers["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))


def test_facts_without_links_are_no_measure_of_a_model_that_reads_the_graph(
    world: Path, make_run: Callable[..., Path]
) -> None:
    corpus = world / "facts-unlinked"
    linked = [fact(town, WORDINGS[0]) for town in range(4)]
    write(corpus, [{name: record[name] for name in record if name != "spans"} for record in linked])
    why = r"transform kg.sentence_tree reads linked entities, .*facts-unlinked has none; link"
    with pytest.raises(WorkbenchError, match=why):
        run_evaluate(make_run("tree"), corpus)
    assert run_evaluate(make_run("tree"), corpus, control="no-kg")["counts"]["sentences"] == 4
    assert run_evaluate(make_run("none"), corpus)["counts"]["sentences"] == 4


def test_controls(world: Path, make_run: Callable[..., Path]) -> None:
    left = "truth that is left under "
    for control in ("no-kg", "permuted-kg", "random-entities", "mentions-only", "shuffled-kg"):
        found = run_evaluate(make_run("tree"), world / "facts", control=control)
        assert found["control"] == control
        assert (left + control in found["inputs"]["read"]) == (control != "no-kg")
    (share,) = found["inputs"]["read"][left + "shuffled-kg"].values()
    guessed = r"the true tail is guessed from what is shown in \d+\.\d %, without it in \d+\.\d %"
    assert re.match(rf"seed \d+, \d+\.\d\d % of the triples are still true; {guessed}", share)
    assert {"graph", "tokenizer", "candidates"} <= found["inputs"]["read"].keys()
    with pytest.raises(
        WorkbenchError, match="its components support mentions-only, no-kg, permuted-kg, random-entities, shuf"
    ):
        run_evaluate(make_run("tree"), world / "facts", control="question-only")
    with pytest.raises(WorkbenchError, match="its components support none"):
        run_evaluate(make_run("none"), world / "facts", control="no-kg")


def test_a_control_changes_what_the_model_sees(world: Path, make_run: Callable[..., Path]) -> None:
    samples = [{**fact, "draw": (i,)} for i, fact in enumerate(Corpus.open(world / "facts-unseen"))]

    def tokens(control: str | None) -> list[list[int]]:
        task = open_run(make_run("tree"), Mlm, "", control=control).task
        return [s.streams["text"]["input_ids"].tolist() for s in task.sequences(samples)]

    plain, without, shuffled = tokens(None), tokens("no-kg"), tokens("shuffled-kg")
    mentions, mask = tokens("mentions-only"), open_run(make_run("tree"), Mlm, "").tokenizer.id("mask")
    assert all(len(w) < len(m) <= len(p) for w, m, p in zip(without, mentions, plain, strict=True))
    for bare, marked in zip(without, mentions, strict=True):
        assert sorted(marked) == sorted([*bare, *[mask] * (len(marked) - len(bare))])
    assert shuffled != plain
    assert tokens("shuffled-kg") == shuffled


def test_the_only_right_answer_competes_with_all(world: Path) -> None:
    facts = read_facts(Corpus.open(world / "facts-unseen"), read_candidates(world / "candidates.json"))["country"]
    assert [c.also_right for c in facts.clozes] == [()] * 6


def test_wrong_inputs(world: Path, make_run: Callable[..., Path], tmp_path: Path) -> None:
    run, corpus = make_run("none"), world / "facts"
    wrong = tmp_path / "candidates.json"
    with pytest.raises(WorkbenchError, match="no candidates at"):
        run_evaluate(run, corpus, candidates=wrong)
    wrong.write_text('["france"]')
    with pytest.raises(WorkbenchError, match="not JSON of the form"):
        run_evaluate(run, corpus, candidates=wrong)
    wrong.write_text('{"country": [{"id": "c0", "label": "france"}, {"id": "x", "label": "y"}]}')
    with pytest.raises(WorkbenchError, match="not among the candidates"):
        run_evaluate(run, corpus, candidates=wrong)
    with pytest.raises(WorkbenchError, match="no relation, subject, object"):
        run_evaluate(run, world / "typing")
    with pytest.raises(WorkbenchError, match="unknown task 'wiki'"):
        run_evaluate(run, corpus, task="wiki")


def test_a_sentence_is_never_cut(world: Path, tmp_path: Path) -> None:
    """Training splits a text in two segments at random; a cloze stays whole."""
    tree = recipe_tree(world, "none")
    tree["tasks"]["facts"]["sequence"] = {"builder": "sentence_pair", "max_length": 24}
    tree["train"] |= {"max_steps": 1, "lr_schedule": "linear"}
    run = open_run(pretrain(recipe_from_dict(tree), tmp_path / "run"), Mlm, "")
    samples = [{**sample, "draw": (i,)} for i, sample in enumerate(Corpus.open(world / "facts"))]
    for sequence in run.task.sequences(samples):
        text = sequence.streams["text"]
        assert (text["input_ids"] == run.tokenizer.id("sep")).sum() == 1
        assert not text["token_type_ids"].any()
        assert len(sequence.mask_spans) == 1
    longer = [{**sample, "text": f"{sample['text']} It is old."} for sample in samples]
    training = run.loaded.tasks["facts"].sequences(longer)
    assert any(s.streams["text"]["token_type_ids"].any() for s in training)


def two_countries(world: Path, folder: Path) -> Corpus:
    """Of the first town a sentence about another country than the graph's, and one about the graph's."""
    record = fact(0, WORDINGS[0])
    write(folder, [{**record, "meta": {**record["meta"], "object": "c2"}}, record])
    return Corpus.open(folder)


def test_what_the_graph_states_does_not_compete(world: Path, tmp_path: Path) -> None:
    graph = GraphStore.build([("t0", "country", "c1"), ("t0", "river", "c3")], tmp_path / "graph")
    corpus = two_countries(world, tmp_path / "corpus")
    candidates = read_candidates(world / "candidates.json")
    alone, known = (read_facts(corpus, candidates, graphs)["country"] for graphs in ((), (graph,)))
    assert [cloze.also_right for cloze in alone.clozes] == [(0,), (2,)]
    assert [cloze.also_right for cloze in known.clozes] == [(0, 1), (1, 2)]
    oracle = [1.0, 1.0, 1.0, 0.0]  # all that is true scores alike
    assert known.rank_by(oracle)[0] == [1, 1]
    elsewhere = GraphStore.build([("x", "country", "c1")], tmp_path / "elsewhere")
    with pytest.raises(WorkbenchError, match="have no triples of the 1 subjects"):
        read_facts(corpus, candidates, [elsewhere])


def test_a_limit_does_not_change_what_competes(world: Path, tmp_path: Path) -> None:
    corpus = two_countries(world, tmp_path / "corpus")
    candidates = read_candidates(world / "candidates.json")
    whole, first = (read_facts(corpus, candidates, limit=limit)["country"] for limit in (None, 1))
    assert len(first.clozes) == 1
    assert first.clozes[0].also_right == whole.clozes[0].also_right == (0,)


def test_the_command_takes_graphs(world: Path, make_run: Callable[..., Path]) -> None:
    found = run_evaluate(make_run("none"), world / "facts", known=[str(world / "graph")])
    assert found["inputs"]["read"]["graph"] == {str(world / "graph"): GraphStore.open(world / "graph").identity}
    assert found["counts"]["candidates that are true too"] == 0
