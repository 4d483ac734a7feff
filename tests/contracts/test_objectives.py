"""Contracts of the objectives: samples go through `arrange`, a builder and `corrupt` to a tiny network and the loss."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.case_finder import case_of, cases_of, make, over
from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import (
    draws,
    image_fields,
    make_samples,
    plain,
    sequence_of,
    small_samples,
    text_samples,
    tiny_network,
    tokenizer,
    travelled,
)
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import LossOutput, Objective
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Rows, Sample, Sequence


class Prepared:
    """Samples -> arranged -> sequences before and after `corrupt`, with the batch's own targets."""

    def __init__(
        self, name: str, samples: list[Sample] | None = None, seed: int = 0, part: Objective | None = None
    ) -> None:
        self.case: ObjectiveCase = case_of("objective", name)
        self.part = part or make("objective", name)
        self.samples = make_samples() if samples is None else samples
        arranged = self.part.arrange(self.samples, draws(seed))
        self.before = self.sequences(arranged, seed)
        self.corrupt(seed)

    def sequences(self, samples: list[Sample], seed: int) -> list[Sequence]:
        """Of the case's builder, with the image next to the text; or plain ones."""
        if self.case.sequence is None:
            return [sequence_of(sample, self.case.content) for sample in samples]
        made = build("builder", self.case.sequence, "", tokenizer=tokenizer(), max_length=512)(samples, draws(seed))
        for sequence, sample in zip(made, samples, strict=True):
            sequence.streams["image"] = image_fields(sample, self.case.content)
        return made

    def corrupt(self, seed: int = 0) -> None:
        self.after = copy.deepcopy(self.before)
        self.shared = self.part.corrupt(self.after, draws(seed))

    def batch(self, sequences: list[Sequence] | None = None) -> Batch:
        return collate(self.after if sequences is None else sequences, {"it": self.shared})

    def network(self) -> Network:
        return tiny_network(self.case.content)


def run(part: Objective, network: Network, batch: Batch, states: dict[str, Tensor] | None = None) -> LossOutput:
    torch.manual_seed(1)
    head = part.head(network).eval()
    return head(HeadInputs.of(network, batch, batch.targets.get("it", {}), states))


def labelled(case: ObjectiveCase, sequence: Sequence, name: str = "it") -> dict[str, np.ndarray]:
    """The rows of each stream whose contents the objective's labels are."""
    targets = [value for value in sequence.targets.get(name, {}).values() if isinstance(value, Rows)]
    return {target.stream: case.place(target.index) for target in targets}


def check_untouched(case: ObjectiveCase, before: Sequence, after: Sequence) -> None:
    """All is as before but the labelled rows and the entities that hang on them."""
    for field in ("draw", "key", "spans", "labels", "mask_spans", "marks", "meta"):
        assert plain(getattr(before, field)) == plain(getattr(after, field)), field
    assert before.streams.keys() == after.streams.keys()
    touched_rows = labelled(case, after)
    for stream, old in before.streams.items():
        new, touched = after.streams[stream], touched_rows.get("text" if stream == "entity" else stream, [])
        free, now_free = (
            ~np.isin(fields["token"] if stream == "entity" else np.arange(len(next(iter(fields.values())))), touched)
            for fields in (old, new)
        )
        for field, value in old.items():
            were, are = np.asarray(value[free]), np.asarray(new[field][now_free])
            np.testing.assert_array_equal(were, are, err_msg=f"{stream}.{field}")
        for field in set(new) - set(old) - {added.rpartition(".")[2] for added in case.adds}:
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
    there = Prepared(name, samples, part=travelled(made.part))
    assert plain([made.after, made.shared]) == plain([there.after, there.shared])
    if "seed" in made.case.excused:
        assert plain(Prepared(name, seed=1).after) == plain(made.after)


@over("objective")
def test_corrupt_touches_only_what_it_labels(name: str) -> None:
    made = Prepared(name)
    for before, after in zip(made.before, made.after, strict=True):
        check_untouched(made.case, before, after)
        assert ("originals" in made.case.excused) <= (not labelled(made.case, after))


@over("objective", "earlier hooks")
def test_rows_of_earlier_hooks_are_left_alone(name: str) -> None:
    made = Prepared(name)
    rng = np.random.default_rng(0)
    for sequence in made.before:
        for stream in ("text", "image"):
            sequence.streams[stream]["taken"] = rng.random(sequence.length(stream)) < 0.5
    made.corrupt()
    for before, after in zip(made.before, made.after, strict=True):
        check_untouched(made.case, before, after)
        for stream, rows in labelled(made.case, after).items():
            assert not before.streams[stream]["taken"][rows].any()
            assert after.streams[stream]["taken"][rows].all()


@over("objective", "earlier hooks", "originals")
def test_a_later_hook_leaves_what_an_earlier_one_labelled(name: str) -> None:
    made, again = Prepared(name), make("objective", name)
    again.name = "again"
    again.corrupt(made.after, draws(5))
    for sequence in made.after:
        first, second = (labelled(made.case, sequence, by) for by in ("it", "again"))
        for stream, rows in first.items():
            assert not set(rows.tolist()) & set(second[stream].tolist())


@over("objective", "special rows")
def test_special_rows_are_not_labelled(name: str) -> None:
    made = Prepared(name)
    for before, after in zip(made.before, made.after, strict=True):
        for stream, rows in labelled(made.case, after).items():
            assert not np.asarray(before.streams[stream].get("special", np.zeros(1 << 10, bool)))[rows].any()


@over("objective", "originals")
def test_originals_are_recoverable(name: str) -> None:
    made = Prepared(name)
    assert made.case.recover is not None
    assert sum(len(rows) for sequence in made.after for rows in labelled(made.case, sequence).values()) > 4
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
    """As many rows of states have a gradient as labels are counted; others where the case says why."""
    made = Prepared(name)
    network, batch = made.network(), made.batch()
    count = made.part.count(batch)
    assert count > 0
    states = {stream: rows.detach().requires_grad_() for stream, rows in network(batch).items()}
    found = run(made.part, network, batch, states)
    assert found.loss.ndim == 0
    assert torch.isfinite(found.loss)
    if "accuracy" in found.metrics:
        counted = float(found.metrics["accuracy"][1])
        assert (counted != count) == ("accuracy" in made.case.excused)
    found.loss.backward()
    for stream, rows in states.items():
        read = 0 if rows.grad is None else int((rows.grad.abs().sum(1) > 0).sum())
        wanted = count if stream in made.case.reads else 0
        if wanted and "rows" in made.case.excused:
            assert read > 0, stream
            assert read * made.case.labels != wanted, stream
        else:
            assert read * made.case.labels == wanted, stream
    head = made.part.head(network)
    head(HeadInputs.of(network, batch, batch.targets["it"])).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
    assert network.embeddings["text"].token.weight.grad.abs().sum() > 0


@over("objective", "additive")
def test_the_loss_is_a_sum_over_sequences(name: str) -> None:
    made = Prepared(name)
    network = made.network()
    batches = [made.batch(), *(made.batch([sequence]) for sequence in made.after)]
    together, *alone = (run(made.part, network, batch) for batch in batches)
    torch.testing.assert_close(together.loss, torch.stack([o.loss for o in alone]).sum(), rtol=1e-5, atol=1e-5)
    total, *counts = (made.part.count(batch) for batch in batches)
    assert total == sum(counts)
    if "metrics" in made.case.excused:
        return
    for metric, numbers in together.metrics.items():
        sums = [sum(float(one.metrics[metric][i]) for one in alone) for i in range(2)]
        assert [float(number) for number in numbers] == pytest.approx(sums, rel=1e-5, abs=1e-5), metric


@over("objective")
def test_objectives_on_empty_and_small_samples(name: str) -> None:
    """No word and one word, with an image of one region; then no sample at all."""
    made = Prepared(name, small_samples())
    assert len(made.after) == 3
    assert made.part.count(made.batch()) == made.case.small
    loss = run(made.part, made.network(), made.batch()).loss
    assert torch.isfinite(loss)
    loss.backward()
    assert made.part.arrange([], draws()) == []
    assert made.part.count(collate([], {"it": made.part.corrupt([], draws())})) == 0


def passes(made: Prepared, batch: Batch) -> list[int]:
    """How often the head makes each layer of the network run."""
    network = made.network()
    counts = [0] * len(network.layers)
    for i, layer in enumerate(network.layers):
        layer.register_forward_hook(lambda *_, i=i: counts.__setitem__(i, counts[i] + 1))
    run(made.part, network, batch)
    return counts


@over("objective", "passes")
def test_the_passes_of_a_head_do_not_depend_on_the_samples(name: str) -> None:
    """Under shards, ranks whose heads made other passes would wait for each other in vain."""
    made, one = Prepared(name), Prepared(name, make_samples(1))
    of_equal = Prepared(name, make_samples(1) * 3)
    expected = passes(made, made.batch())
    assert passes(one, one.batch()) == expected
    assert passes(of_equal, of_equal.batch()) == expected
    if "no labels" not in made.case.excused:
        for sequence in of_equal.after:
            sequence.targets["it"] = without_labels(sequence.targets["it"])
        assert passes(of_equal, of_equal.batch()) == expected
    if "no image" not in made.case.excused:
        bare = Prepared(name)
        for sequence in bare.before:
            sequence.streams.pop("image", None)
        bare.corrupt()
        assert passes(bare, bare.batch()) == expected


def without_labels(targets: dict[str, Any]) -> dict[str, Any]:
    """The targets of a sequence that has nothing to be predicted."""
    if any(isinstance(value, Rows) for value in targets.values()):
        none = np.zeros(0, np.int64)
        return {key: Rows(v.stream, none) if isinstance(v, Rows) else v[:0] for key, v in targets.items()}
    return {key: np.full_like(value, -100 if key == "labels" else 0) for key, value in targets.items()}


@over("objective", "no labels")
def test_no_labels_give_zero_with_a_gradient(name: str) -> None:
    made = Prepared(name, make_samples(2))
    for sequence in made.after:
        sequence.targets["it"] = without_labels(sequence.targets["it"])
    network, batch = made.network(), made.batch()
    assert made.part.count(batch) == 0
    head = made.part.head(network)
    loss = head(HeadInputs.of(network, batch, batch.targets["it"])).loss
    assert float(loss.detach()) == 0.0
    loss.backward()
    assert all(p.grad is not None for p in head.parameters())


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
    network = made.network()
    loss = run(made.part, network, made.batch()).loss
    assert torch.isfinite(loss)
    if "additive" not in made.case.excused:
        alone = torch.stack([run(made.part, network, made.batch([sequence])).loss for sequence in made.after]).sum()
        torch.testing.assert_close(loss, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n, found in cases_of("objective").items() if found.case.whole is not None])
def test_packed_loss_equals_documents_alone(name: str) -> None:
    """The same corrupted documents, packed and alone: equal sums of losses."""
    case: ObjectiveCase = case_of("objective", name)
    part, network = make("objective", name, **(case.whole or {})), tiny_network()

    def total(builder: str) -> tuple[Tensor, float, int]:
        spec = {**(case.sequence or {}), "builder": builder}
        made = build("builder", spec, "", tokenizer=tokenizer(), max_length=64)(text_samples(7, 12), draws())
        part.corrupt(made, draws())
        batch = collate(made)
        return run(part, network, batch).loss, part.count(batch), batch.size

    (alone, labels, many), (packed, same_labels, few) = total("document"), total("packed")
    assert labels == same_labels
    assert few < many
    torch.testing.assert_close(packed, alone, rtol=1e-5, atol=1e-4)
