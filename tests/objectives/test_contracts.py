"""Contracts that every objective, policy and builder of the core keeps. A part without a case fails the suite."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workbench.keyed import Draws, generator
from workbench.parts import building as parts
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows
from workbench.tasks.forward import Seen

OBJECTIVES: dict[str, dict[str, Any]] = {
    "mlm": {"builder": "document", "labels": lambda row: row},
    "clm": {"builder": "document", "visibility": "causal", "labels": lambda row: row + 1},
    "nsp": {"builder": "sentence_pair", "labels": None},
    "sop": {"builder": "sentence_pair", "labels": None},
    "classify": {"builder": "sentence_pair", "labels": None, "options": {"classes": ["0", "1", "2"], "dropout": 0.0}},
}
POLICIES: dict[str, dict[str, Any]] = {"token": {}, "whole_word": {}, "span": {}, "entity": {}, "field": {}}
BUILDERS: dict[str, dict[str, Any]] = {
    "document": {},
    "packed": {},
    "sentence_pair": {},
    "image_caption": {"image": "tiny_image_part:TinyImage"},
    "question_image": {"image": "tiny_image_part:TinyImage"},
    "triple": {},
    "mention": {"marker": "."},
}
ON_TOKENS = [name for name, case in OBJECTIVES.items() if case["labels"] is not None]
TINY_IMAGE = """
import numpy as np
from workbench.sequences.protocols import Image

class TinyImage(Image):
    def __call__(self, sample, rng):
        return {"features": rng.random((3, 2)).astype(np.float32), "boxes": np.zeros((3, 4), np.float32)}
"""


@pytest.mark.parametrize(
    ("kind", "cases"),
    [("objective", OBJECTIVES), ("policy", POLICIES), ("builder", BUILDERS)],
    ids=lambda x: str(x)[:9],
)
def test_every_part_has_a_case(kind, cases):
    """Of the core; those of kg and vision have theirs in tests/contracts/cases.py. A part that cannot be held to these
    contracts has tests of its own, in a file that says why (`EXCUSED`)."""
    excused = {name for name in parts.short_names(kind) if _excuse(name)}
    assert sorted(set(cases) | excused) == [name for name in parts.short_names(kind) if "." not in name]


def _excuse(name):
    path = Path(__file__).with_name(f"test_{name}.py")
    return path.is_file() and "\nEXCUSED = " in path.read_text()


@pytest.fixture
def tiny_image(tmp_path, monkeypatch):
    (tmp_path / "tiny_image_part.py").write_text(TINY_IMAGE)
    monkeypatch.syspath_prepend(str(tmp_path))


def draws(part, seed=0, number=(0,)):
    return Draws(seed, "task", part, number=number)


def objective(name, tokenizer, **options):
    options = {**OBJECTIVES[name].get("options", {}), **options}
    made = parts.build("objective", {"objective": name, **options}, "", tokenizer=tokenizer)
    made.name = name
    return made


def prepared(made, tokenizer, samples, seed=0, max_length=512, builder=None):
    """Sequences as they are before `corrupt`, and after."""
    case = OBJECTIVES[made.name]
    spec = {"builder": builder or case["builder"], "visibility": case.get("visibility", "bidirectional")}
    build = parts.build("builder", spec, "", tokenizer=tokenizer, max_length=max_length)
    samples = copy.deepcopy(samples)
    if made.name == "classify":
        samples = [{**sample, "labels": {"label": i % 3}} for i, sample in enumerate(samples)]
    arranged = made.arrange(samples, draws("arrange", seed))
    clean = build(arranged, draws("build", seed))
    return clean, corrupted(made, clean, seed)


def corrupted(made, sequences, seed=0):
    copies = [sequence.copy() for sequence in sequences]
    made.corrupt(copies, draws("corrupt", seed))
    return copies


def same(a, b):
    """Whether two sequences are equal, arrays included."""
    return pickle.dumps(a) == pickle.dumps(b) if type(a) is type(b) else False


def extreme_samples():
    """No token, one token, and white space alone."""
    base = {"corpus": "c", "spans": [], "mask_spans": []}
    return [{**base, "key": f"e{i}", "draw": (9, i), "text": t} for i, t in enumerate(["", "river", " \n "])]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_same_seed_same_output(name, tokenizer, make_samples):
    samples = make_samples(12)
    runs = [prepared(objective(name, tokenizer), tokenizer, samples, seed=s)[1] for s in (3, 3, 4)]
    assert same(runs[0], runs[1])
    if name != "clm":
        assert not same(runs[0], runs[2])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_samples_given_are_not_changed(name, tokenizer, make_samples):
    samples = make_samples(6)
    before = copy.deepcopy(samples)
    objective(name, tokenizer).arrange(samples, draws("arrange"))
    assert samples == before


@pytest.mark.parametrize("name", ON_TOKENS)
def test_labels_are_the_originals_at_the_selected_positions(name, tokenizer, make_samples):
    place = OBJECTIVES[name]["labels"]
    clean, after = prepared(objective(name, tokenizer), tokenizer, make_samples(20))
    for original, sequence in zip(clean, after, strict=True):
        ids = original.streams["text"]["input_ids"]
        target = sequence.targets[name]
        labelled = place(target["rows"].index)
        assert (np.diff(target["rows"].index) > 0).all()
        np.testing.assert_array_equal(target["labels"], ids[labelled])
        np.testing.assert_array_equal(np.flatnonzero(sequence.streams["text"]["taken"]), labelled)
        changed = np.flatnonzero(sequence.streams["text"]["input_ids"] != ids)
        assert set(changed.tolist()) <= set(labelled.tolist())
        recovered = sequence.streams["text"]["input_ids"].copy()
        recovered[labelled] = target["labels"]
        np.testing.assert_array_equal(recovered, ids)


@pytest.mark.parametrize("name", ON_TOKENS)
def test_taken_rows_are_left_alone(name, tokenizer, make_samples):
    place = OBJECTIVES[name]["labels"]
    made = objective(name, tokenizer)
    clean, _ = prepared(made, tokenizer, make_samples(20))
    rng = np.random.default_rng(0)
    for sequence in clean:
        sequence.streams["text"]["taken"] |= rng.random(sequence.length("text")) < 0.5
    for original, sequence in zip(clean, corrupted(made, clean), strict=True):
        taken = original.streams["text"]["taken"]
        assert not taken[place(sequence.targets[name]["rows"].index)].any()
        before, after = original.streams["text"]["input_ids"], sequence.streams["text"]["input_ids"]
        np.testing.assert_array_equal(before[taken], after[taken])


def test_a_later_hook_leaves_what_an_earlier_one_labelled(tokenizer, make_samples):
    first, second = objective("mlm", tokenizer, rate=0.4), objective("mlm", tokenizer, rate=0.4)
    second.name = "again"
    clean, after = prepared(first, tokenizer, make_samples(10))
    for sequence in corrupted(second, after, seed=5):
        rows = [set(sequence.targets[n]["rows"].index.tolist()) for n in ("mlm", "again")]
        assert rows[0]
        assert rows[1]
        assert not rows[0] & rows[1]
    assert clean


@pytest.mark.parametrize("name", ON_TOKENS)
def test_a_sequence_is_corrupted_the_same_in_any_company(name, tokenizer, make_samples):
    made = objective(name, tokenizer)
    clean, after = prepared(made, tokenizer, make_samples(6))
    for original, sequence in zip(clean, after, strict=True):
        [alone] = corrupted(made, [original])
        assert same(alone.targets, sequence.targets)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_empty_and_one_token_samples(name, tokenizer, make_network):
    made = objective(name, tokenizer)
    _, after = prepared(made, tokenizer, extreme_samples())
    assert len(after) == 3
    batch = collate(after)
    network = make_network()
    loss = made.head(network)(Seen.of(network, batch, batch.targets[name])).loss
    assert torch.isfinite(loss)
    assert made.count(batch) == {"mlm": 1, "clm": 4, "nsp": 0, "sop": 0, "classify": 3}[name]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_loss_is_a_sum_over_sequences_with_finite_gradients(name, tokenizer, make_samples, make_network):
    made, network = objective(name, tokenizer), make_network()
    head = made.head(network)
    _, after = prepared(made, tokenizer, make_samples(5))

    def loss(sequences):
        batch = collate(sequences)
        return head(Seen.of(network, batch, batch.targets[name])), made.count(batch)

    together, count = loss(after)
    alone = [loss([sequence]) for sequence in after]
    assert count == sum(n for _, n in alone) > 0
    torch.testing.assert_close(together.loss, sum(o.loss for o, _ in alone), rtol=1e-5, atol=1e-5)
    right, counted = together.metrics["accuracy"]
    assert int(right) == sum(int(o.metrics["accuracy"][0]) for o, _ in alone)
    assert float(counted) == count
    together.loss.backward()
    gradients = [p.grad for p in [*head.parameters(), network.embeddings["text"].token.weight]]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)
    assert any(g.abs().sum() > 0 for g in gradients)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_labels_give_zero_with_a_gradient(name, tokenizer, make_network):
    made, network = objective(name, tokenizer), make_network()
    head = made.head(network)
    _, after = prepared(made, tokenizer, extreme_samples()[:1])
    for sequence in after:
        target = sequence.targets[name]
        sequence.targets[name] = (
            {
                key: Rows("text", np.zeros(0, np.int64)) if isinstance(value, Rows) else np.full_like(value, -100)[:0]
                for key, value in target.items()
            }
            if "rows" in target
            else {"labels": np.full_like(target["labels"], -100)}
        )
    batch = collate(after)
    loss = head(Seen.of(network, batch, batch.targets[name])).loss
    assert float(loss.detach()) == 0.0
    loss.backward()
    assert all(p.grad is not None for p in head.parameters())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_travel_to_workers(name, tokenizer, make_samples):
    made = objective(name, tokenizer)
    copied = pickle.loads(pickle.dumps(made))
    samples = make_samples(4)
    assert same(prepared(made, tokenizer, samples)[1], prepared(copied, tokenizer, samples)[1])


def sequences_of(tokenizer, samples):
    build = parts.build("builder", "document", "", tokenizer=tokenizer, max_length=512)
    return build(samples, draws("build"))


@pytest.mark.parametrize("name", POLICIES)
def test_masked_rate_is_within_binomial_bounds(name, tokenizer, make_samples):
    policy = parts.build("policy", {"policy": name, **POLICIES[name]})
    sequences = sequences_of(tokenizer, make_samples(250))
    for rate in (0.15, 0.4):
        free = sum(int((~s.streams["text"]["special"]).sum()) for s in sequences)
        selected = sum(len(rows) for i, s in enumerate(sequences) for rows in policy(s, rate, generator(i)))
        assert abs(selected - rate * free) < 4 * np.sqrt(rate * (1 - rate) * free), (selected, rate * free)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_select_free_rows_once(name, tokenizer, make_samples):
    policy = parts.build("policy", {"policy": name, **POLICIES[name]})
    rng = np.random.default_rng(0)
    for i, sequence in enumerate(sequences_of(tokenizer, make_samples(40))):
        text = sequence.streams["text"]
        text["taken"] = rng.random(len(text["taken"])) < 0.3
        for rate in (0.01, 0.15, 0.9, 1.0):
            groups = policy(sequence, rate, generator(i))
            rows = np.concatenate(groups)
            assert len(rows) == len(np.unique(rows)) > 0
            assert not (text["special"] | text["taken"])[rows].any()
        assert same(policy(sequence, 0.2, generator(i, 1)), policy(sequence, 0.2, generator(i, 1)))


@pytest.mark.parametrize("name", POLICIES)
def test_policies_on_empty_and_one_token(name, tokenizer):
    policy = parts.build("policy", {"policy": name, **POLICIES[name]})
    empty, one, blank = sequences_of(tokenizer, extreme_samples())
    assert policy(empty, 0.15, generator(0)) == []
    assert policy(blank, 0.15, generator(0)) == []
    one.streams["text"]["special"][2:] = True  # "river" may be several tokens: leave one
    assert [rows.tolist() for rows in policy(one, 0.15, generator(0))] == [[1]]
    one.streams["text"]["taken"][:] = True
    assert policy(one, 0.15, generator(0)) == []


def builder_samples(make_samples):
    question = {"question_id": 1, "question": "the old river", "answers": ["the old river"]}
    triple = {"relation": "P1", "relation_text": "flows past", "tail": "Q2", "tail_text": "Hamburg"}
    extra = {"captions": ["small boats", ""], "questions": [question], "triples": [triple, triple], "label": "river"}
    return [{**s, **extra, "id": s["key"], "mention": [0, 3], "types": ["x"]} for s in make_samples(9, 30)]


@pytest.mark.parametrize("name", BUILDERS)
def test_builders(name, tokenizer, make_samples, tiny_image):
    def build():
        return parts.build("builder", {"builder": name, **BUILDERS[name]}, "", tokenizer=tokenizer, max_length=64)

    samples = builder_samples(make_samples)
    before = copy.deepcopy(samples)
    builder = build()
    sequences = builder(samples, draws("build"))
    assert samples == before
    assert builder.unit in (None, "text", "captions", "questions", "triples")
    assert builder.window is None or builder.window > 0
    assert same(sequences, pickle.loads(pickle.dumps(build()))(samples, draws("build")))
    assert len({s.draw for s in sequences}) == len(sequences) > 0
    assert {s.key for s in sequences} <= {s["key"] for s in samples}
    for sequence in sequences:
        text = sequence.streams["text"]
        assert len({len(values) for values in text.values()}) == 1
        assert 0 < len(text["input_ids"]) <= 64
        assert not text["taken"].any()
        assert np.isin(text["input_ids"][text["special"]], tokenizer.special_ids).all() or name == "mention"
        assert not np.isin(text["input_ids"][~text["special"]], tokenizer.special_ids).any()
        for span in [*sequence.spans, *sequence.mask_spans]:
            assert 0 < span.start < span.end < len(text["input_ids"])
            assert not text["special"][span.start : span.end].any() or name == "mention"
    assert collate(sequences).size == len(sequences)
    assert isinstance(builder.take_dropped(), dict)
    assert builder.take_dropped() == {}


@pytest.mark.parametrize("name", [n for n in BUILDERS if n != "packed"])
def test_builders_give_a_sample_the_same_sequences_in_any_company(name, tokenizer, make_samples, tiny_image):
    builder = parts.build("builder", {"builder": name, **BUILDERS[name]}, "", tokenizer=tokenizer, max_length=64)
    samples = builder_samples(make_samples)
    together = builder(samples, draws("build"))
    alone = [sequence for sample in samples for sequence in builder([sample], draws("build", number=(8,)))]
    assert same(pickle.loads(pickle.dumps(together)), pickle.loads(pickle.dumps(alone))) or all(
        same(a, b) for a, b in zip(together, alone, strict=True)
    )


@pytest.mark.parametrize("name", ["document", "packed", "sentence_pair"])
def test_builders_on_empty_and_one_token(name, tokenizer):
    builder = parts.build("builder", name, "", tokenizer=tokenizer, max_length=16)
    sequences = builder(extreme_samples(), draws("build"))
    ids = [i for s in sequences for i in s.streams["text"]["input_ids"].tolist()]
    assert [i for i in ids if i not in tokenizer.special_ids] == tokenizer.encode("river").ids.tolist()


@pytest.mark.parametrize("objectives", [["mlm"], ["clm"]], ids=str)
def test_packed_loss_equals_documents_alone(objectives, tokenizer, make_samples, make_network):
    """The same corrupted documents, packed by hand from the document builder's: equal sums of losses."""
    [name] = objectives
    options = {"rate": 1.0, "mask": 1.0, "random": 0.0} if name == "mlm" else {}
    made, network = objective(name, tokenizer, **options), make_network()
    head = made.head(network)

    def total(builder):
        batch = collate(prepared(made, tokenizer, make_samples(7, 12), max_length=64, builder=builder)[1])
        return head(Seen.of(network, batch, batch.targets[name])).loss, made.count(batch), batch.size

    (alone, labels, many), (packed, same_labels, few) = total("document"), total("packed")
    assert labels == same_labels
    assert few < many
    torch.testing.assert_close(packed, alone, rtol=1e-5, atol=1e-4)
