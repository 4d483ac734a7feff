"""Contracts of the objectives of kg and vision; `tests/contracts/cases.py` has their cases, and why some are excused.

Samples go through `arrange`, a plain builder and `corrupt` to a tiny network and the loss.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.cases import (
    CASES,
    FEATURES,
    GRID,
    PATCH,
    TABLE,
    VOCABULARY,
    Case,
    draws,
    make,
    make_samples,
    over,
    plain,
    sequence_of,
)
from workbench.errors import WorkbenchError
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Rows, Sample, Sequence
from workbench.tasks.forward import Seen
from workbench.tasks.objective import LossOutput, Objective


class Prepared:
    """Samples -> arranged -> sequences before and after `corrupt`, with the batch's own targets."""

    def __init__(
        self, name: str, samples: list[Sample] | None = None, seed: int = 0, part: Objective | None = None
    ) -> None:
        self.case = CASES["objective"][name]
        self.part = part or make("objective", name)
        self.samples = make_samples() if samples is None else samples
        arranged = self.part.arrange(self.samples, draws(seed))
        self.before = [sequence_of(sample, self.case.content) for sample in arranged]
        self.corrupt(seed)

    def corrupt(self, seed: int = 0) -> None:
        self.after = copy.deepcopy(self.before)
        self.shared = self.part.corrupt(self.after, draws(seed))

    def batch(self, sequences: list[Sequence] | None = None) -> Batch:
        return collate(self.after if sequences is None else sequences, {"it": self.shared})


def tiny_network(case: Case) -> Network:
    """A joint layer over text and image, entities beside them, poolers; no dropout."""
    torch.manual_seed(0)
    patches = {"embedding": "vision.patches", "grid": GRID, "patch": PATCH}
    regions = {
        "embedding": "vision.regions",
        "feature_size": FEATURES,
        "dropout": 0.0,
    }
    streams = {
        "text": {"embedding": "token", "hidden_size": 16, "vocab_size": VOCABULARY, "dropout": 0.0},
        "image": {**(patches if case.content == "patches" else regions), "hidden_size": 16},
        "entity": {"embedding": "kg.entity_table", "path": TABLE},
    }
    quiet = {"intermediate_size": 32, "dropout": 0.0, "attention_dropout": 0.0}
    layer = {"layer": "joint", "streams": ["text", "image"], "num_heads": 2, **quiet}
    return Network(NetworkSpec(streams, [layer], ["text", "image"], init_range=0.2))


def run(part: Objective, network: Network, batch: Batch, states: dict[str, Tensor] | None = None) -> LossOutput:
    torch.manual_seed(1)
    head = part.head(network).eval()
    return head(Seen.of(network, batch, batch.targets.get("it", {}), states))


def labelled(sequence: Sequence) -> dict[str, np.ndarray]:
    """The rows of each stream that the objective labelled."""
    targets = [value for value in sequence.targets.get("it", {}).values() if isinstance(value, Rows)]
    return {target.stream: target.index for target in targets}


def check_untouched(before: Sequence, after: Sequence, adds: tuple[str, ...]) -> None:
    """All is as before but the labelled rows and the entities that hang on them."""
    for field in ("draw", "key", "spans", "labels", "mask_spans", "meta"):
        assert plain(getattr(before, field)) == plain(getattr(after, field)), field
    assert before.streams.keys() == after.streams.keys()
    for stream, old in before.streams.items():
        new, touched = after.streams[stream], labelled(after).get("text" if stream == "entity" else stream, [])
        free, now_free = (
            ~np.isin(fields["token"] if stream == "entity" else np.arange(len(next(iter(fields.values())))), touched)
            for fields in (old, new)
        )
        for field, value in old.items():
            np.testing.assert_array_equal(value[free], new[field][now_free], err_msg=f"{stream}.{field}")
        for field in set(new) - set(old) - {added.rpartition(".")[2] for added in adds}:
            assert field in ("masked", "taken")
            assert not new[field][now_free].any()


@over("objective", "seed")
def test_objectives_depend_on_the_seed_alone(name: str) -> None:
    made = [Prepared(name, seed=seed) for seed in (3, 3, 4)]
    first, again, other = ([plain(p.before), plain(p.after), plain(p.shared)] for p in made)
    assert first == again
    assert first != other


@over("objective")
def test_objectives_travel_to_workers_and_keep_the_samples(name: str) -> None:
    samples = make_samples()
    before = plain(samples)
    made = Prepared(name, samples)
    assert plain(samples) == before
    travelled = Prepared(name, samples, part=pickle.loads(pickle.dumps(made.part)))
    assert plain([made.after, made.shared]) == plain([travelled.after, travelled.shared])
    if "seed" in made.case.excused:
        assert plain(Prepared(name, seed=1).after) == plain(made.after)


@over("objective")
def test_corrupt_touches_only_what_it_labels(name: str) -> None:
    made = Prepared(name)
    for before, after in zip(made.before, made.after, strict=True):
        check_untouched(before, after, made.case.adds)
        assert ("originals" in made.case.excused) <= (not labelled(after))


@over("objective", "earlier hooks")
def test_rows_of_earlier_hooks_and_special_rows_are_left_alone(name: str) -> None:
    made = Prepared(name)
    rng = np.random.default_rng(0)
    for sequence in made.before:
        for stream in ("text", "image"):
            sequence.streams[stream]["taken"] = rng.random(sequence.length(stream)) < 0.5
    made.corrupt()
    for before, after in zip(made.before, made.after, strict=True):
        check_untouched(before, after, made.case.adds)
        for stream, rows in labelled(after).items():
            fields = before.streams[stream]
            assert not (fields["taken"] | fields.get("special", False))[rows].any()
            assert after.streams[stream]["taken"][rows].all()


@over("objective", "originals")
def test_originals_are_recoverable(name: str) -> None:
    made = Prepared(name)
    assert made.case.recover is not None
    assert sum(len(rows) for sequence in made.after for rows in labelled(sequence).values()) > 4
    assert plain(made.before) != plain([dataclasses.replace(s, targets={}) for s in made.after])
    for before, after in zip(made.before, made.after, strict=True):
        made.case.recover(before, after, made.shared)


@over("objective", "company")
def test_a_sequence_is_corrupted_the_same_in_any_company(name: str) -> None:
    made = Prepared(name)
    for before, after in zip(made.before, made.after, strict=True):
        alone = [copy.deepcopy(before)]
        made.part.corrupt(alone, draws())
        assert plain(alone) == plain([after])


@over("objective")
def test_the_count_is_what_the_loss_counts_and_gradients_are_finite(name: str) -> None:
    """As many rows of states have a gradient as labels are counted."""
    made = Prepared(name)
    network, batch = tiny_network(made.case), made.batch()
    count = made.part.count(batch)
    assert count > 0
    states = {stream: rows.detach().requires_grad_() for stream, rows in network(batch).items()}
    loss = run(made.part, network, batch, states).loss
    assert loss.ndim == 0
    assert torch.isfinite(loss)
    loss.backward()
    for stream, rows in states.items():
        read = 0 if rows.grad is None else int((rows.grad.abs().sum(1) > 0).sum())
        assert read * made.case.labels == (count if stream in made.case.reads else 0), stream
    head = made.part.head(network)
    head(Seen.of(network, batch, batch.targets["it"])).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
    assert network.embeddings["text"].token.weight.grad.abs().sum() > 0


@over("objective", "additive")
def test_the_loss_is_a_sum_over_sequences(name: str) -> None:
    made = Prepared(name)
    network = tiny_network(made.case)
    batches = [made.batch(), *(made.batch([sequence]) for sequence in made.after)]
    together, *alone = (run(made.part, network, batch).loss for batch in batches)
    torch.testing.assert_close(together, torch.stack(alone).sum(), rtol=1e-5, atol=1e-5)
    total, *counts = (made.part.count(batch) for batch in batches)
    assert total == sum(counts)


@over("objective")
def test_objectives_on_empty_and_small_samples(name: str) -> None:
    """No word and one word, with an image of one region; then no sample at all."""
    samples = [{**s, "captions": [c]} for s, c in zip(make_samples(3, 1), ["", "river", ""], strict=True)]
    made = Prepared(name, samples)
    loss = run(made.part, tiny_network(made.case), made.batch()).loss
    assert torch.isfinite(loss)
    loss.backward()
    assert made.part.arrange([], draws()) == []
    assert made.part.count(collate([], {"it": made.part.corrupt([], draws())})) == 0


@over("objective")
@pytest.mark.parametrize("without", [[1], [0, 1, 2]])
def test_sequences_without_an_image_are_passed_or_refused(name: str, without: list[int]) -> None:
    """An objective that needs both says so; none fails otherwise, or takes another sequence's rows."""
    made = Prepared(name, make_samples(3))
    for i in without:
        del made.before[i].streams["image"]
    if "no image" in made.case.excused:
        with pytest.raises(WorkbenchError, match=f"sequence 'k{without[0]}' .*image"):
            made.corrupt()
        return
    made.corrupt()
    network = tiny_network(made.case)
    loss = run(made.part, network, made.batch()).loss
    assert torch.isfinite(loss)
    alone = torch.stack([run(made.part, network, made.batch([sequence])).loss for sequence in made.after]).sum()
    torch.testing.assert_close(loss, alone, rtol=1e-5, atol=1e-5)
