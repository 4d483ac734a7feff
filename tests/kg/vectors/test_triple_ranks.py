"""Filtered realistic ranks against a plain loop and against pykeen's evaluator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kg.graph.store import GraphStore
from kg.vectors.frequency import FrequencyScores
from kg.vectors.networks import PykeenScores, entity_vectors, further_vectors, make_network, relation_vectors
from kg.vectors.options import VectorOptions
from kg.vectors.scores import VectorScores
from kg.vectors.triple_ranks import SampledTriples, link_prediction, rank_triples, rows_of
from kg.vectors.vectors import GraphVectors, load_vectors, save_vectors
from workbench.core.errors import WorkbenchError

ENTITIES, RELATIONS = 40, 3


class Table:
    """Scores read from a table [heads, relations, tails]; few distinct values, so that ties are common."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.scores = torch.from_numpy(rng.integers(5, size=(ENTITIES, RELATIONS, ENTITIES)).astype(np.float32))

    def triples(self, triples):
        return self.scores[tuple(triples.T)]

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


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("name", ["TransE", "DistMult", "ComplEx", "RotatE", "HolE", "SimplE", "CP"])
def test_vectors_alone_score_as_pykeen_does(name, inverse, tmp_path):
    store = GraphStore.build([(f"e{h}", f"r{r}", f"e{t}") for h, r, t in random_triples(0, 400)], tmp_path / "g")
    network = make_network(store, VectorOptions(model=name, dim=7, seed=1, inverse=inverse)).eval()
    kept = entity_vectors(network), relation_vectors(network, store.num_relations)
    more = further_vectors(network, name, store.num_relations)
    made = GraphVectors(list(store.ids), kept[0], list(store.relation_ids), kept[1], {"model": name}, more=more)
    save_vectors(made, tmp_path / "v.safetensors")
    vectors = load_vectors(tmp_path / "v.safetensors")
    if more:
        with pytest.raises(WorkbenchError, match=f"the vectors of {name} lack entity.1.*Train them again"):
            VectorScores(replace(made, more={}), store)
    theirs, ours = PykeenScores(network), VectorScores(vectors, store)
    h, r, t = torch.from_numpy(store.triple_rows[:50].astype(np.int64)).T
    close = {"atol": 5e-5, "rtol": 1e-5}
    torch.testing.assert_close(ours.tails(h, r), theirs.tails(h, r), **close)
    if not inverse:  # else pykeen asks for heads by the inverse relation, which a file of vectors does not have
        torch.testing.assert_close(ours.heads(r, t), theirs.heads(r, t), **close)
    rows = torch.stack([h, r, t], 1)
    torch.testing.assert_close(ours.triples(rows), theirs.triples(rows), **close)


def test_a_few_candidates_are_wrong_ones_whatever_the_batches():
    table, known, triples = Table(0), random_triples(0, 400), random_triples(50, 40)
    options = {"sampled": SampledTriples(5, seed=3), "num_entities": ENTITIES}
    some, again = (rank_triples(table, triples, known, RELATIONS, size, **options) for size in (7, 1000))
    np.testing.assert_array_equal(some.head, again.head)
    np.testing.assert_array_equal(some.tail, again.tail)
    assert set(some.tail_competing) == {6}
    other = rank_triples(table, triples, known, RELATIONS, sampled=SampledTriples(5, seed=4), num_entities=ENTITIES)
    assert (other.tail != some.tail).any()
    whole, every = (
        rank_triples(table, triples, known, RELATIONS, sampled=sampled, num_entities=ENTITIES)
        for sampled in (None, SampledTriples(ENTITIES))
    )
    np.testing.assert_array_equal(whole.head, every.head)
    np.testing.assert_array_equal(whole.tail_competing, every.tail_competing)


def test_the_frequency_of_entities_at_an_end_of_a_relation():
    trained = np.array([[0, 0, 1], [2, 0, 1], [3, 1, 4], [0, 0, 3]])
    scores = FrequencyScores(trained, 5)
    assert scores.tails(torch.tensor([4, 4]), torch.tensor([0, 1])).tolist() == [[0, 2, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert scores.heads(torch.tensor([0]), torch.tensor([1])).tolist() == [[2, 0, 1, 0, 0]]
    rows = torch.tensor([[0, 0, 1], [3, 1, 4], [1, 0, 1]])
    assert scores.triples(rows).tolist() == pytest.approx([2 / 3 * 2 / 3, 1, 0])


def test_rows_of_counts_unknown_ones(tmp_path):
    store = GraphStore.build([("a", "r", "b"), ("b", "s", "c")], tmp_path / "g")
    rows, left_out = rows_of(store, [("c", "s", "a"), ("a", "x", "b"), ("q", "r", "b")])
    assert (rows.tolist(), left_out) == ([[2, 1, 0]], 2)
    assert rows_of(store, [])[0].shape == (0, 3)
