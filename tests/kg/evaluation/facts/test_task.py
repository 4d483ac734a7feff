"""Evaluating facts, end to end on a tiny world."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kg.evaluation.facts.reading import read_candidates, read_facts
from kg.evaluation.facts.task import FactRanking, FactsScoring
from tests.kg.evaluation.conftest import WORDINGS, fact, write
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.evaluating import evaluate
from workbench.evaluation.opening import open_run
from workbench.evaluation.passes import all_records
from workbench.objectives.mlm import Mlm
from workbench.sequences.batch import collate


def told(run: Path, corpus: Path, **options: Any) -> FactsScoring:
    wanted = {"candidates": corpus.parent / "candidates.json", "batch_size": 4, **options}
    return FactsScoring(run=run, corpus=str(corpus), **wanted)


def run_evaluate(run: Path, corpus: Path, **options: Any) -> dict:
    evaluate(FactRanking(), told(run, corpus, **options))
    end = f"-{options['control']}" if options.get("control") else ""
    return json.loads((run / "evaluations" / f"facts-{corpus.name}{end}.json").read_text())


def test_a_model_that_was_told_knows(world: Path, make_run: Callable[..., Path]) -> None:
    found = run_evaluate(make_run("none"), world / "facts")
    assert found["numbers"]["accuracy"] > 0.7
    assert found["counts"] == {"sentences": 24, "candidates": 4}
    assert found["baselines"]["chance"]["accuracy"] == pytest.approx(0.25)
    assert found["baselines"]["chance"]["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert found["baselines"]["most frequent objects"]["hits@10"] == 1
    example = found["examples"][0]
    assert example["text"][slice(*example["mask"])] == example["object"]


def test_ranks_equal_a_loop_over_single_sentences(world: Path, make_run: Callable[..., Path]) -> None:
    run = open_run(make_run("tree"), Mlm, "")
    corpus = Corpus.open(world / "facts-unseen")
    facts = read_facts(corpus, read_candidates(world / "candidates.json"))
    result = FactRanking().score(run, corpus, told(make_run("tree"), world / "facts-unseen", batch_size=3))
    ranks = []
    for number, sample in enumerate(facts["country"].samples):
        scores = []
        (start, end), text = sample["mask_spans"][0][:2], sample["text"]
        for label in facts["country"].labels:
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
        gold = facts["country"].ids.index(sample["meta"]["object"])
        ranks.append(1 + sum(s > scores[gold] for s in scores))
    assert result.numbers["accuracy"] == pytest.approx(np.mean(np.array(ranks) == 1))
    assert result.numbers["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))


def test_facts_without_links_are_no_measure_of_a_model_that_reads_the_graph(
    world: Path, make_run: Callable[..., Path]
) -> None:
    corpus = world / "facts-unlinked"
    linked = [fact(town, WORDINGS[0]) for town in range(4)]
    write(corpus, [{name: record[name] for name in record if name != "spans"} for record in linked])
    with pytest.raises(WorkbenchError, match=r"SentenceTree reads linked entities, .*facts-unlinked has none; link"):
        run_evaluate(make_run("tree"), corpus)
    assert run_evaluate(make_run("tree"), corpus, control="no-kg")["counts"]["sentences"] == 4
    assert run_evaluate(make_run("none"), corpus)["counts"]["sentences"] == 4


def test_controls(world: Path, make_run: Callable[..., Path]) -> None:
    for control in ("no-kg", "shuffled-kg"):
        found = run_evaluate(make_run("tree"), world / "facts", control=control)
        assert found["control"] == control
    with pytest.raises(WorkbenchError, match="its parts heed no-kg, shuffled-kg"):
        run_evaluate(make_run("tree"), world / "facts", control="random-entities")
    with pytest.raises(WorkbenchError, match="its parts heed none"):
        run_evaluate(make_run("none"), world / "facts", control="no-kg")


def test_a_control_changes_what_the_model_sees(world: Path, make_run: Callable[..., Path]) -> None:
    samples = [{**fact, "draw": (i,)} for i, fact in enumerate(all_records(Corpus.open(world / "facts-unseen")))]

    def tokens(control: str | None) -> list[list[int]]:
        task = open_run(make_run("tree"), Mlm, "", control=control).task
        return [s.streams["text"]["input_ids"].tolist() for s in task.sequences(samples)]

    plain, without, shuffled = tokens(None), tokens("no-kg"), tokens("shuffled-kg")
    assert all(len(w) < len(p) for w, p in zip(without, plain, strict=True))
    assert shuffled != plain
    assert tokens("shuffled-kg") == shuffled


def test_other_right_answers_do_not_compete(world: Path, make_run: Callable[..., Path]) -> None:
    corpus = Corpus.open(world / "facts-unseen")
    candidates = read_candidates(world / "candidates.json")
    facts = read_facts(corpus, candidates)["country"]
    assert [c.also_right for c in facts.clozes] == [()] * 6
    sample = {**facts.samples[0], "meta": {**facts.samples[0]["meta"], "object": "c0"}}

    class Two:
        records = 2

        shards = corpus.shards

        def read(self, shard: int, record: int) -> dict:
            return sample if record else facts.samples[0]

    two = read_facts(Two(), candidates, limit=2)["country"]  # type: ignore[arg-type]
    assert two.clozes[0].also_right == (0,)


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
