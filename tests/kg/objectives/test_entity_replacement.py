"""Entity replacement: which mentions are replaced, what follows them, the labels in any builder, the loss."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from kg.graph.store import GraphStore
from kg.objectives.entity_replacement import EntityReplacement, mentions_apart
from tests.contracts.material import plain, tiny_network, tokenizer, travelled
from workbench.components.building import build
from workbench.core.keyed import Draws
from workbench.objectives.mlm import Mlm
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

EXCUSED = "its loss reads the rows on both sides of a mention, which neighbouring mentions share"

TOWNS = ["Oslo", "Lima", "La Paz", "Cairo", "San Salvador"]
RIVERS = ["Nile", "Rio Negro", "Volga"]
LABELS = {f"T{i}": name for i, name in enumerate(TOWNS)} | {f"R{i}": name for i, name in enumerate(RIVERS)}
LABELS |= {"X0": "Mount Sajama"}
ENTITIES = list(LABELS)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    kinds = {"T": "town", "R": "river", "X": "mountain"}
    texts = {entity: {"label": label, "types": [kinds[entity[0]]]} for entity, label in LABELS.items()}
    folder = tmp_path_factory.mktemp("types") / "graph"
    GraphStore.build([], folder, entity_texts=texts)
    return str(folder)


def made(graph: str, rate: float = 0.5) -> EntityReplacement:
    part = EntityReplacement(graph, rate)
    part.name = "it"
    return part


def samples(count: int, mentions: int = 8, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        text, spans = "", []
        for _ in range(mentions):
            entity = ENTITIES[rng.integers(len(ENTITIES))]
            text += " ".join(["people", "near", "the"][: rng.integers(4)]) + " "
            spans.append([len(text), len(text) + len(LABELS[entity]), entity, 0.75])
            text += LABELS[entity] + " "
        found.append({"key": f"k{number}", "corpus": "c", "draw": (0, 0, number), "text": text, "spans": spans})
    return found


def draws(seed: int = 0) -> Draws:
    return Draws(seed, "task", number=(0,))


def test_replacements_are_those_that_are_reported_and_nothing_else_changes(graph: str) -> None:
    before = samples(200)
    kept = copy.deepcopy(before)
    after = made(graph).arrange(before, draws())
    assert before == kept
    expected = replaced = 0.0
    for old, new in zip(before, after, strict=True):
        assert len(old["spans"]) == len(new["spans"])
        rebuilt, end, last, chance = "", 0, False, 0.0
        for was, now in zip(old["spans"], new["spans"], strict=True):
            label = now[4]["it"] if len(now) > 4 else None
            assert (label is None) == (was[2] == "X0")
            assert (now[2] != was[2]) == (label == 1)
            assert now[3] == 0.75
            assert now[2][0] == was[2][0]  # of the same type
            assert new["text"][now[0] : now[1]] == LABELS[now[2]]
            assert not (last and label == 1)
            last = label == 1
            rebuilt += new["text"][end : now[0]] + LABELS[was[2]]
            end = now[1]
            chance = 0.0 if label is None else 0.5 * (1 - chance)
            expected += chance
            replaced += label == 1
        assert rebuilt + new["text"][end:] == old["text"]
    assert expected > 500
    assert abs(replaced - expected) < 5 * (0.25 * 1600) ** 0.5


def test_draws_belong_to_the_sample_alone(graph: str) -> None:
    part, given = made(graph), samples(6)
    whole = part.arrange(given, draws())
    assert [travelled(part).arrange([sample], draws())[0] for sample in given[::-1]] == whole[::-1]
    assert part.arrange(given, draws(1)) != whole


def test_fields_of_the_text_follow_and_marked_mentions_stay(graph: str) -> None:
    text = "Oslo and Lima and Cairo"
    sample = {
        "draw": (0,),
        "text": text,
        "second": "Lima",
        "second_spans": [[0, 4, "T1", 1.0]],
        "spans": [[0, 4, "T0", 1.0], [0, 4, "T3", 0.5], [9, 13, "T1", 1.0], [18, 23, "T3", 1.0]],
        "mask_spans": [[14, 23, "", 1.0]],
        "tags": [[9, 12, "beginning"]],
        "mention": [0, 4],
    }
    part = made(graph, rate=1.0)
    new = part.arrange([sample], draws())[0]
    (first, second, third) = new["spans"]  # the other candidate of a replaced mention is gone
    assert first[4] == {"it": 1}
    assert len(second) == len(third) == 4  # a tag and a mask stand in them
    assert [new["text"][s[0] : s[1]] for s in (second, third)] == ["Lima", "Cairo"]
    assert [new["text"][s[0] : s[1]] for s in (*new["tags"], *new["mask_spans"])] == ["Lim", "and Cairo"]
    assert new["text"][slice(*new["mention"])] == LABELS[first[2]] != "Oslo"
    assert new["second_spans"][0][4] == {"it": 1}
    assert new["second"] == LABELS[new["second_spans"][0][2]] != "Lima"


def test_overlapping_mentions() -> None:
    spans = [[0, 4, "a"], [0, 8, "b"], [6, 9, "c"], [9, 12, "d"], [9, 12, "e"], [2, 3, "f"]]
    assert mentions_apart(spans) == [1, 3]
    assert mentions_apart([]) == []


def rows_of(builder: str, part: EntityReplacement, given: list[Sample], **options: Any) -> list[Sequence]:
    spec = {"builder": builder, "max_length": 96, **options}
    return build("builder", spec, "", tokenizer=tokenizer(), max_length=96)(part.arrange(given, draws()), draws())


@pytest.mark.parametrize("builder", ["document", "packed", "sentence_pair"])
def test_labels_find_their_rows(graph: str, builder: str) -> None:
    """In each builder as many mentions have the label 1 as stand in the rows with another name."""
    part, given = made(graph), samples(9, mentions=5)
    sequences = rows_of(builder, part, given)
    spans = [span for sequence in sequences for span in sequence.spans]
    part.corrupt(sequences, draws())
    wanted = [now[4]["it"] for new in part.arrange(given, draws()) for now in new["spans"] if len(now) > 4]
    assert sorted(s.labels["it"] for s in spans if s.labels) == sorted(wanted)
    batch = collate(sequences)
    assert part.count(batch) == len(wanted)
    assert int(batch.targets["it"]["labels"].sum()) == sum(wanted)
    for sequence in sequences:
        text, target = sequence.streams["text"], sequence.targets["it"]
        inside = np.zeros(len(text["taken"]), bool)
        for span in sequence.spans:
            inside[span.start : span.end] = True
        np.testing.assert_array_equal(text["taken"], inside)
        by_start = {span.start: span for span in sequence.spans if span.labels}
        for first, before, after, label in zip(
            *(np.asarray(target[name]).tolist() for name in ("rows", "before", "after", "labels")), strict=True
        ):
            assert (before, after) == (first - 1, by_start[first].end)
            assert by_start[first].labels == {"it": label}


def test_masks_stay_outside_mentions_and_earlier_rows_are_left_alone(graph: str) -> None:
    part, mlm = made(graph), Mlm(tokenizer(), rate=1.0)
    mlm.name = "mlm"
    sequences = rows_of("document", part, samples(4))
    part.corrupt(sequences, draws())
    mlm.corrupt(sequences, draws())
    for sequence in sequences:
        masked = np.asarray(sequence.targets["mlm"]["rows"])
        assert len(masked)
        assert not any(span.start <= row < span.end for span in sequence.spans for row in masked)
    taken = rows_of("document", part, samples(4))
    for sequence in taken:
        sequence.streams["text"]["taken"][:] = True
    part.corrupt(taken, draws())
    assert part.count(collate(taken)) == 0


def test_loss_is_that_of_a_loop_with_finite_gradients(graph: str) -> None:
    part = made(graph)
    sequences = rows_of("document", part, samples(5))
    part.corrupt(sequences, draws())
    batch, network = collate(sequences), tiny_network()
    head = part.head(network)
    states = torch.randn(int(batch.streams["text"].offsets[-1]), 16, requires_grad=True)
    out = head(HeadInputs.of(network, batch, batch.targets["it"], {"text": states}))
    total, right, both, said, gold, at = torch.tensor(0.0), 0, 0, 0, 0, 0
    for sequence in sequences:
        for span in sequence.spans:
            if span.labels:
                around = torch.cat([states[at + span.start - 1], states[at + span.end]])
                z = (head.score.weight[0] * around).sum() + head.score.bias[0]
                y = span.labels["it"]
                p = 1 / (1 + torch.exp(-z))
                total = total - torch.log(p if y else 1 - p)
                right += (z > 0) == y
                both, said, gold = both + int((z > 0) and y), said + int(z > 0), gold + y
        at += sequence.length("text")
    torch.testing.assert_close(out.loss, total, rtol=1e-5, atol=1e-5)
    count = part.count(batch)
    found = {name: (float(a), float(b)) for name, (a, b) in out.metrics.items()}
    assert found == {"accuracy": (right, count), "precision": (both, said), "recall": (both, gold)}
    out.loss.backward()
    assert states.grad is not None
    assert torch.isfinite(states.grad).all()


def test_texts_without_mentions_have_no_labels(graph: str) -> None:
    part = made(graph)
    given = [{"key": "a", "draw": (0,), "text": "people", "spans": []}, {"key": "b", "draw": (1,), "text": "near"}]
    assert plain(part.arrange(given, draws())) == plain(given)
    sequences = rows_of("document", part, given)
    part.corrupt(sequences, draws())
    batch, network = collate(sequences), tiny_network()
    assert part.count(batch) == 0
    assert float(part.head(network)(HeadInputs.of(network, batch, batch.targets["it"])).loss.detach()) == 0
    assert part.arrange([], draws()) == []
