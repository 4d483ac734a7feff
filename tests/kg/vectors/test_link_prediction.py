"""Filtered realistic ranks against a plain loop and against pykeen's evaluator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kg.graph.store import GraphStore
from kg.vectors.link_prediction import TransE, link_prediction, rows_of
from kg.vectors.networks import PykeenScores

ENTITIES, RELATIONS = 40, 3


class Table:
    """Scores read from a table [heads, relations, tails]; few distinct values, so that ties are common."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.scores = torch.from_numpy(rng.integers(5, size=(ENTITIES, RELATIONS, ENTITIES)).astype(np.float32))

    def tails(self, heads, relations):
        return self.scores[heads, relations]

    def heads(self, relations, tails):
        return self.scores[:, relations, tails].T


def random_triples(seed, count):
    rng = np.random.default_rng(seed)
    return np.unique(np.stack([rng.integers(n, size=count) for n in (ENTITIES, RELATIONS, ENTITIES)], axis=1), axis=0)


def plain_ranks(scores, triples, known, side):
    truth = {tuple(row) for row in np.concatenate([known, triples]).tolist()}
    ranks = []
    for h, r, t in triples.tolist():
        better = equal = 0
        for e in range(ENTITIES):
            candidate = (e, r, t) if side == "head" else (h, r, e)
            if candidate == (h, r, t) or candidate in truth:
                continue
            score, own = scores[candidate], scores[h, r, t]
            better += bool(score > own)
            equal += bool(score == own)
        ranks.append(((1 + better) + (1 + better + equal)) / 2)
    return np.array(ranks)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("batch_size", [7, 1000])
def test_against_a_plain_loop(seed, batch_size):
    table, known, triples = Table(seed), random_triples(seed, 400), random_triples(seed + 50, 40)
    found = link_prediction(table, triples, known, RELATIONS, batch_size)
    sides = {side: plain_ranks(table.scores, triples, known, side) for side in ("head", "tail")}
    sides["both"] = np.concatenate([sides["head"], sides["tail"]])
    for side, ranks in sides.items():
        scores = getattr(found, side)
        assert scores.mrr == pytest.approx((1 / ranks).mean())
        assert scores.hits == {k: pytest.approx((ranks <= k).mean()) for k in (1, 3, 10)}
        assert scores.examples == len(ranks)
    assert found.as_dict()["both"]["mrr"] == found.both.mrr


def test_against_pykeen_and_by_vectors_alone():
    pykeen_models = pytest.importorskip("pykeen.models")
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.triples import CoreTriplesFactory

    known, triples = random_triples(0, 400), random_triples(1, 60)
    factory = CoreTriplesFactory(torch.from_numpy(known), ENTITIES, RELATIONS)
    model = pykeen_models.TransE(triples_factory=factory, embedding_dim=8, random_seed=0)
    theirs = RankBasedEvaluator(filtered=True).evaluate(
        model, torch.from_numpy(triples), additional_filter_triples=torch.from_numpy(known), use_tqdm=False
    )
    ours = link_prediction(PykeenScores(model), triples, known, RELATIONS)
    for side in ("head", "tail", "both"):
        scores = getattr(ours, side)
        assert scores.mrr == pytest.approx(theirs.get_metric(f"{side}.realistic.inverse_harmonic_mean_rank"))
        assert scores.hits[3] == pytest.approx(theirs.get_metric(f"{side}.realistic.hits_at_3"))
    entity, relation = (rows[0]().detach() for rows in (model.entity_representations, model.relation_representations))
    assert link_prediction(TransE(entity, relation), triples, known, RELATIONS).both.mrr == pytest.approx(ours.both.mrr)


def test_rows_of_counts_strangers(tmp_path):
    store = GraphStore.build([("a", "r", "b"), ("b", "s", "c")], tmp_path / "g")
    rows, left_out = rows_of(store, [("c", "s", "a"), ("a", "x", "b"), ("q", "r", "b")])
    assert (rows.tolist(), left_out) == ([[2, 1, 0]], 2)
    assert rows_of(store, [])[0].shape == (0, 3)
