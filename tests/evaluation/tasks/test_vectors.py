"""Vectors of words: cosines and analogies by hand, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, network, prepare, pretrain_on, recipe_tree
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result
from workbench.evaluation.search_options import VectorsScoring
from workbench.evaluation.task_panels import near_words
from workbench.evaluation.tasks.vectors import WordSimilarity, read_analogies
from workbench.recipe.trees import recipe_from_dict
from workbench.report.run import load_run
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

PAIRS = [("red", "blue", 8.0), ("house", "boat", 5.5), ("red", "house", 1.0), ("good", "bad", 7.0), ("old", "new", 6.0),
         ("zzzz", "new", 0.5)]  # fmt: skip
ANALOGIES = ": colours\nred green house boat\nred blue old new\ngood bad old unheardof\n"


def pairs(folder: Path) -> str:
    rows = [{"text": a, "second": b, "labels": {"rating": gold}} for a, b, gold in PAIRS]
    return prepare(folder, "pairs", rows)


def contract_world(folder: Path) -> World:
    made = make_texts(folder)
    tree = recipe_tree(made, {"one": network(8), "two": network(8)}, [{"objective": "mlm", "network": "one"}])
    tree["tasks"]["text"]["objectives"].append({"objective": "mlm", "name": "b", "network": "two", "view": "other"})
    without = pretrain(recipe_from_dict(tree), folder / "runs" / "several")
    return World(pretrain_on(made), pairs(folder), without, {})


CASE = EvaluationCase(excused={"states": "it reads the embedding alone"}, world=contract_world)


def scored(run: Path, folder: Path, **options: object) -> Result:
    return evaluate(WordSimilarity(), VectorsScoring(run=run, corpus=pairs(folder), **options), show=False)  # type: ignore


def table(run: Path) -> tuple[torch.Tensor, dict[str, int]]:
    """Normalised rows of the embedding at the first position, and the words' numbers."""
    loaded = load(run)
    assert loaded.tokenizer is not None
    embedding = loaded.model.network().embeddings["text"].eval()
    ids = torch.arange(loaded.tokenizer.vocab_size)
    zeros = torch.zeros_like(ids)
    rows = embedding({"input_ids": ids, "position_ids": zeros, "token_type_ids": zeros}).detach()
    return torch.nn.functional.normalize(rows, dim=-1), loaded.tokenizer.vocabulary


def test_similarity_and_analogies_are_those_of_the_table(pretrained: Path, tmp_path: Path) -> None:
    (tmp_path / "analogies.txt").write_text(ANALOGIES)
    found = scored(pretrained, tmp_path, analogies=tmp_path / "analogies.txt")
    rows, number = table(pretrained)
    known = [(a, b, gold) for a, b, gold in PAIRS if a in number and b in number]
    cosines = {(a, b): float(rows[number[a]] @ rows[number[b]]) for a, b, _ in known}
    lines = {(a, b): line["prediction"] for (a, b, _), line in zip(PAIRS, found.predictions.lines, strict=True)}
    for pair, cosine in cosines.items():
        assert lines[pair] == pytest.approx(cosine, abs=1e-6)
    gold = [each[2] for each in PAIRS]
    assert found.numbers["spearman"] == pytest.approx(stats.spearmanr([*lines.values()], gold).statistic)
    assert found.counts["pairs"] == len(PAIRS)
    right = []
    special = {*load(pretrained).tokenizer.special_ids.tolist()}  # type: ignore[union-attr]
    for line in ANALOGIES.splitlines()[1:3]:
        a, b, c, d = (number[word] for word in line.split())
        scores = rows @ (rows[b] - rows[a] + rows[c])
        scores[[a, b, c, *special]] = -9
        right.append(int(scores.argmax()) == d)
    assert found.numbers["analogy_accuracy"] == np.mean(right)
    assert (found.counts["analogies"], found.counts["analogies with words that are no single token"]) == (2, 1)
    assert "Words and their nearest words" in str(near_words(load_run(pretrained)))


def test_what_has_no_vectors_or_ratings_is_refused(pretrained: Path, tmp_path: Path) -> None:
    plain = prepare(tmp_path, "plain", [{"text": "red", "labels": {"rating": 1}}])
    with pytest.raises(WorkbenchError, match="has no pairs of words"):
        evaluate(WordSimilarity(), VectorsScoring(run=pretrained, corpus=plain))
    named = prepare(tmp_path, "named", [{"text": "red", "second": "blue", "labels": {"rating": "high"}}])
    with pytest.raises(WorkbenchError, match="rating = 'high'; allowed: a number"):
        evaluate(WordSimilarity(), VectorsScoring(run=pretrained, corpus=named))
    (tmp_path / "three.txt").write_text("red green house\n")
    for path, message in [("three.txt", "line 1: .*allowed: four words"), ("none.txt", "cannot be read")]:
        with pytest.raises(WorkbenchError, match=message):
            read_analogies(tmp_path / path)
