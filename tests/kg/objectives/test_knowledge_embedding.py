"""Knowledge embedding: the released numbers, false triples, what is encoded, the vectors that a run writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from kg.graph.store import GraphStore
from kg.objectives._translation import FALSE, NOBODY, TranslationHead
from kg.objectives.knowledge_embedding import KnowledgeEmbedding, NegativeTriples
from kg.sequences.builders.described_triple import DescribedTripleBuilder
from kg.sequences.description_roles import CAST
from tests.contracts.material import VOCABULARY, draws, tiny_network, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import LossOutput
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sample

EXCUSED = "its sequences are descriptions of entities, which the samples of the contracts don't have"
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
WORDS = VOCABULARY.split()
ENTITIES = [f"Q{i}" for i in range(9)]
STATED = ENTITIES[:5]
TRIPLES = [(f"Q{i}", relation, f"Q{j}") for i, relation, j in [(0, "P1", 1), (0, "P1", 2), (3, "P2", 1), (4, "P1", 0)]]


# ---- the released numbers


def places(texts: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The first tokens of encoded texts [rows, tokens, size] behind each other, and where those of each are."""
    sizes = [len(encoded) for encoded in texts]
    return torch.cat([encoded[:, 0] for encoded in texts]), list(torch.arange(sum(sizes)).split(sizes))


def test_scores_and_loss_are_the_released_ones(shared: Path) -> None:
    folder = shared / "golden" / "kepler"
    config = json.loads((folder / "config.json").read_text())
    assert config["cases"]
    for stated in config["cases"]:
        check_case(folder, stated, config["mlm_padding_idx"])


def check_case(folder: Path, stated: dict[str, Any], padding: int) -> None:
    case = stated["case"]
    given = {k[2:]: v for k, v in load_file(folder / "inputs.safetensors").items() if k[0] == case}
    wanted = {k[2:]: v for k, v in load_file(folder / "outputs.safetensors").items() if k[0] == case}
    read = ["heads", "tails", "heads_r", "tails_r", "nHeads", "nTails"]
    described = stated["relation_from_description"]
    texts, found = places([given[name] for name in [*read, *(["relation_desc"] if described else [])]])
    names = ["head", "tail", "head_of_relation", "tail_of_relation", "false_heads", "false_tails", "relation"]
    targets = dict(zip(names, [*found, *([] if described else [given["relation_ids"]])], strict=True))
    for name in ("false_heads", "false_tails"):
        targets[name] = targets[name].view(stated["batch"], stated["negatives_per_side"])
    head = TranslationHead(stated["dim"], None if described else len(given["relation_embeddings"]), stated["gamma"])
    if head.relations is not None:
        head.relations.weight.data = given["relation_embeddings"]
    true, false = head.scores(texts, targets)
    torch.testing.assert_close(true[:, None], wanted["positive_scores"], **CLOSE)
    torch.testing.assert_close(false, wanted["negative_scores"], **CLOSE)
    loss = head.loss(true, false, targets).loss / stated["batch"]
    torch.testing.assert_close(loss, wanted["ke_loss"], **CLOSE)
    mlm = torch.nn.functional.cross_entropy(
        given["mlm_logits"].flatten(0, 1), given["mlm_targets"].flatten(), ignore_index=padding
    )
    torch.testing.assert_close(mlm, wanted["mlm_loss"], **CLOSE)
    torch.testing.assert_close(mlm + loss, wanted["total_loss"], **CLOSE)
    torch.testing.assert_close(mlm + 2 * loss, wanted["total_loss_two_ke_batches"], **CLOSE)


def test_relation_vectors_begin_within_the_released_range() -> None:
    weight = TranslationHead(50, 40, margin=4).relations.weight.detach()
    assert 0.95 < weight.abs().max() / (6 / 50) <= 1


# ---- a graph of nine entities, each described by words of its own


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    texts = {e: {"label": e, "description": " ".join(WORDS[3 * i : 3 * i + 2 + i % 3])} for i, e in enumerate(ENTITIES)}
    place = tmp_path_factory.mktemp("graphs") / "graph"
    return GraphStore.build(TRIPLES, place, entity_texts=texts, relation_labels={"P1": "flows", "P2": "songs about"})


def samples(triples: list[tuple[str, str, str]] = TRIPLES) -> list[Sample]:
    return [
        {"key": h, "id": h, "draw": (0, number), "triples": [{"relation": r, "tail": t}]}
        for number, (h, r, t) in enumerate(triples)
    ]


def objective(graph: GraphStore, **options: Any) -> KnowledgeEmbedding:
    made = KnowledgeEmbedding(graph, **options)
    made.name = "it"
    return made


def arranged(made: KnowledgeEmbedding, given: list[Sample], seed: int = 0) -> list[Sample]:
    return made.arrange(given, draws(seed))


def batch_of(made: KnowledgeEmbedding, graph: GraphStore, given: list[Sample] | None = None, seed: int = 0) -> Batch:
    builder = DescribedTripleBuilder(tokenizer(), 32, graph)
    sequences = builder(arranged(made, samples() if given is None else given, seed), draws(seed))
    return collate(sequences, {"it": made.corrupt(sequences, draws(seed))})


def run(made: KnowledgeEmbedding, network: Network, batch: Batch) -> LossOutput:
    torch.manual_seed(1)
    return made.head(network)(HeadInputs.of(network, batch, batch.targets["it"]))


def by_loops(made: KnowledgeEmbedding, network: Network, cast: list[Sample], graph: GraphStore) -> float:
    """The loss from the equations, each text read by itself: the sum over triples."""
    torch.manual_seed(1)
    head = made.head(network)
    builder = DescribedTripleBuilder(tokenizer(), 32, graph)
    total = 0.0
    for sample in cast:
        vectors: dict[str, list[Tensor]] = {}
        for sequence in builder([sample], draws()):
            batch = collate([sequence])
            vectors.setdefault(sequence.role, []).append(network(batch)["text"][0].detach())
        (h,), (t,) = vectors["head"], vectors["tail"]
        (h_r,), (t_r,) = vectors.get("head of relation", [h]), vectors.get("tail of relation", [t])
        r = (
            vectors["relation"][0]
            if head.relations is None
            else head.relations.weight[sample["labels"]["relation"]].detach()
        )

        def score(a: Tensor, b: Tensor, r: Tensor = r) -> float:
            return made.margin - float(((a + r - b).abs() ** made.norm).sum()) ** (1 / made.norm)

        def log_sigmoid(x: float) -> float:
            return -math.log(1 + math.exp(-x))

        false = [score(other, t_r) for other in vectors["false head"]]
        false += [score(h_r, other) for other in vectors["false tail"]]
        true = (score(h_r, t) + score(h, t_r)) / 2
        total -= (log_sigmoid(true) + sum(map(log_sigmoid, (-s for s in false))) / len(false)) / 2
    return total


@pytest.mark.parametrize(
    "options",
    [{}, {"norm": 1, "margin": 2.0}, {"relations": "texts"}, {"conditioned": True}, {"negatives": NegativeTriples(3)}],
    ids=["released", "norm 1", "KEPLER-Rel", "KEPLER-Cond", "3 each"],
)
def test_the_loss_of_what_is_read_once_is_that_of_every_text_by_itself(graph: GraphStore, options: Any) -> None:
    made, network = objective(graph, **options), tiny_network().eval()
    batch = batch_of(made, graph)
    assert made.count(batch) == len(TRIPLES)
    assert len(batch.targets["it"]["encoded"]) < batch.size
    found = run(made, network, batch)
    wanted = by_loops(made, network, arranged(made, samples()), graph)
    assert float(found.loss) == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def test_gradients_reach_the_network_and_the_relations(graph: GraphStore) -> None:
    made, network = objective(graph), tiny_network()
    batch = batch_of(made, graph)
    head = made.head(network)
    head(HeadInputs.of(network, batch, batch.targets["it"])).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
    assert network.embeddings["text"].token.weight.grad.abs().sum() > 0


def test_the_loss_is_a_sum_over_triples(graph: GraphStore) -> None:
    made, network = objective(graph), tiny_network().eval()
    together = run(made, network, batch_of(made, graph))
    alone = [run(made, network, batch_of(made, graph, [sample])) for sample in samples()]
    torch.testing.assert_close(together.loss, torch.stack([one.loss for one in alone]).sum(), **CLOSE)
    for i in range(2):
        assert float(together.metrics["accuracy"][i]) == sum(float(one.metrics["accuracy"][i]) for one in alone)


# ---- false triples


def false_triples(sample: Sample) -> set[tuple[str, str, str]]:
    ((relation, tail),) = [(t["relation"], t["tail"]) for t in sample["triples"]]
    heads = {(p.entity, relation, tail) for p in sample[CAST] if p.role == "false head"}
    return heads | {(sample["id"], relation, p.entity) for p in sample[CAST] if p.role == "false tail"}


def test_false_triples_are_all_those_that_the_graph_does_not_state(graph: GraphStore) -> None:
    made = objective(graph, negatives=NegativeTriples(200))
    found = false_triples(arranged(made, samples())[0])
    heads = {(e, "P1", "Q1") for e in STATED} | {("Q0", "P1", e) for e in STATED}
    assert found == heads - set(TRIPLES)


def test_unfiltered_ones_differ_from_the_triple_alone(graph: GraphStore) -> None:
    made = objective(graph, negatives=NegativeTriples(200, filtered=False))
    found = false_triples(arranged(made, samples())[0])
    assert ("Q0", "P1", "Q2") in found
    assert ("Q0", "P1", "Q1") not in found


def test_a_held_out_triple_is_none_of_its_own_false_ones(graph: GraphStore) -> None:
    made = objective(graph, negatives=NegativeTriples(200))
    assert ("Q7", "P1", "Q8") not in false_triples(arranged(made, samples([("Q7", "P1", "Q8")]))[0])


def test_draws_depend_on_the_seed_and_the_sample_alone(graph: GraphStore) -> None:
    made = objective(graph, negatives=NegativeTriples(4))
    first, again, other = (arranged(made, samples(), seed) for seed in (3, 3, 4))
    assert first == again != other
    assert [arranged(made, [sample], 3)[0] for sample in samples()] == first


def test_entities_without_a_text_are_no_false_ends(tmp_path: Path) -> None:
    texts = {e: {"label": f"the town {e}"} for e in ENTITIES[:4]}
    sparse = GraphStore.build(TRIPLES, tmp_path / "graph", entity_texts=texts)
    found = false_triples(arranged(objective(sparse, negatives=NegativeTriples(50)), samples())[0])
    assert {e for h, _, t in found for e in (h, t)} <= set(ENTITIES[:4])


@pytest.mark.parametrize("filtered", [True, False])
def test_entities_in_no_triple_are_no_false_ends(graph: GraphStore, filtered: bool) -> None:
    """An inductive split holds them out: their texts are there, and training must not meet them."""
    assert set(graph.ids) > set(STATED)
    made = objective(graph, negatives=NegativeTriples(200, filtered=filtered))
    met = {e for sample in arranged(made, samples()) for h, _, t in false_triples(sample) for e in (h, t)}
    assert met == set(STATED)


@pytest.mark.parametrize("filtered", [True, False])
def test_those_of_the_micro_batch_are_its_entities(graph: GraphStore, filtered: bool) -> None:
    made = objective(graph, negatives=NegativeTriples(50, source="micro-batch", filtered=filtered))
    batch = batch_of(made, graph)
    assert set(batch.roles) == {"head", "tail"}
    targets = batch.targets["it"]
    at = {int(targets["head"][number]): head for number, (head, _, _) in enumerate(TRIPLES)}
    at |= {int(targets["tail"][number]): tail for number, (_, _, tail) in enumerate(TRIPLES)}
    for number, (head, relation, tail) in enumerate(TRIPLES):
        right = set(TRIPLES) if filtered else {(head, relation, tail)}
        heads, tails = ({at[place] for place in targets[side][number].tolist()} for side in FALSE)
        assert heads == {e for e in at.values() if (e, relation, tail) not in right}
        assert tails == {e for e in at.values() if (head, relation, e) not in right}
    assert torch.isfinite(run(made, tiny_network(), batch).loss)


def test_a_triple_alone_in_its_micro_batch_has_its_own_entities_or_none(tmp_path: Path) -> None:
    texts = {e: {"description": word} for e, word in (("a", "river"), ("b", "songs"))}
    small = GraphStore.build([(h, "P", t) for h in "ab" for t in "ab"], tmp_path / "graph", entity_texts=texts)
    made = objective(small, negatives=NegativeTriples(2, source="micro-batch"))
    batch = batch_of(made, small, samples([("a", "P", "b")]))
    assert set(batch.targets["it"]["false_heads"].flatten().tolist()) == {NOBODY}
    found = run(made, tiny_network(), batch)
    assert float(found.metrics["accuracy"][1]) == 0
    assert torch.isfinite(found.loss)


# ---- the control, and what does not fit


def test_the_control_reads_tails_of_the_shuffled_graph(graph: GraphStore) -> None:
    made = objective(graph, control="shuffled-kg", seed=1)
    shuffled = set(graph.under("shuffled-kg", 1).triples())
    reported = arranged(made, samples())
    ends = [[p.entity for p in sample[CAST][:2]] for sample in reported]
    assert {(h, r, t) for (h, t), (_, r, _) in zip(ends, TRIPLES, strict=True)} == shuffled
    assert shuffled != set(TRIPLES)


def test_sequences_that_are_not_whole_triples_are_refused(graph: GraphStore) -> None:
    made = objective(graph)
    sequences = DescribedTripleBuilder(tokenizer(), 32, graph)(arranged(made, samples()), draws())
    with pytest.raises(WorkbenchError, match=r"one each of head, tail.*kg\.described_triple"):
        made.corrupt(sequences[1:], draws())


def test_an_entity_that_the_graph_does_not_hold_is_named(graph: GraphStore) -> None:
    with pytest.raises(WorkbenchError, match="no entity 'Q99'"):
        arranged(objective(graph), samples([("Q0", "P1", "Q99")]))


def test_nothing_gives_nothing(graph: GraphStore) -> None:
    made = objective(graph)
    assert made.arrange([], draws()) == []
    assert made.count(collate([], {"it": made.corrupt([], draws())})) == 0
    assert np.array_equal(made.corrupt([], draws())["encoded"], np.zeros(0))
