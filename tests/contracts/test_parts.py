"""Contracts of the embeddings, steps and image parts that a recipe can name.

A part of kg or vision, objectives included, without a case in `tests/contracts/cases.py` fails the suite.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.contracts.cases import (
    CASES,
    CONTRACTS,
    GRID,
    draws,
    embedded_fields,
    make,
    make_samples,
    over,
    picture,
    plain,
    step_sequences,
)
from workbench.errors import WorkbenchError
from workbench.keyed import generator
from workbench.models.network import initialise
from workbench.parts.building import SHIPPED, short_names
from workbench.parts.kinds import KINDS
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence
from workbench.tasks.objective import Objective

CALLS = {
    "embedding": ("forward", ["self", "fields"]),
    "step": ("__call__", ["self", "sequences", "draws"]),
    "image": ("__call__", ["self", "sample", "rng"]),
    "builder": ("__call__", ["self", "samples", "draws"]),
    "policy": ("__call__", ["self", "sequence", "rate", "rng"]),
}


@cache
def classes_of(room: str) -> list[type]:
    """The classes that a package defines."""
    package = importlib.import_module(room)
    names = [info.name for info in pkgutil.walk_packages(package.__path__, f"{room}.") if "__main__" not in info.name]
    modules = {name: importlib.import_module(name) for name in names}
    return [c for name, m in modules.items() for c in vars(m).values() if inspect.isclass(c) and c.__module__ == name]


def is_a(kind: str, part: type) -> bool:
    """Whether a class is a part of this kind, by its base or by what its method takes."""
    if kind == "objective":
        return issubclass(part, Objective) and part.head is not Objective.head
    method, arguments = CALLS[kind]
    found = getattr(part, method, None)
    alike = inspect.isfunction(found) and list(inspect.signature(found).parameters) == arguments
    return alike and f"{part.__module__}:{part.__name__}" != KINDS[kind].base


@pytest.mark.parametrize("kind", ["objective", *CALLS])
def test_every_part_has_a_short_name_and_a_case(kind: str) -> None:
    classes = [c for room in SHIPPED for c in classes_of(room) if is_a(kind, c) and "._" not in c.__module__]
    assert {f"{c.__module__}:{c.__name__}" for c in classes} == {KINDS[kind].path(name) for name in short_names(kind)}
    others = [
        name for name in short_names(kind) if "." in name or kind == "embedding"
    ]  # the core's: in their own tests
    excused = {name for name in others if has_contracts_of_its_own(name)}
    assert sorted({name.split()[0] for name in CASES[kind]} | excused) == sorted(others)


def has_contracts_of_its_own(name: str) -> bool:
    """A part that cannot be held to these has tests of its own, in a file that says why (`EXCUSED`)."""
    files = Path(__file__).resolve().parents[1].rglob(f"test_{name.rpartition('.')[2]}.py")
    return any("\nEXCUSED = " in path.read_text("utf-8") for path in files)


def test_excuses_are_from_contracts_and_have_reasons() -> None:
    for kind, cases in CASES.items():
        for name, case in cases.items():
            assert set(case.excused) <= CONTRACTS[kind], name
            assert all(len(reason.split()) > 2 for reason in case.excused.values()), name


# ---- embeddings


def embed(name: str, **more: Tensor) -> tuple[nn.Module, dict[str, Tensor], Tensor]:
    """The embedding, evaluating; fields of three sequences of equal length; what it makes of them."""
    embedding: nn.Module = make("embedding", name).eval()
    fields = {**embedded_fields(CASES["embedding"][name].content), **more}
    return embedding, fields, embedding(fields)


@over("embedding")
def test_each_sequence_is_embedded_by_itself(name: str) -> None:
    embedding, fields, together = embed(name)
    assert together.shape == (3 * GRID * GRID, embedding.hidden_size)
    assert together.isfinite().all()
    for i in range(3):
        alone = embedding({field: value.chunk(3)[i] for field, value in fields.items()})
        torch.testing.assert_close(alone, together.chunk(3)[i], atol=1e-5, rtol=1e-5)


@over("embedding", "no rows")
def test_a_stream_without_rows(name: str) -> None:
    embedding, fields, _ = embed(name)
    assert embedding({field: value[:0] for field, value in fields.items()}).shape == (0, embedding.hidden_size)


@over("embedding", "gradients")
def test_trainable_parameters_get_finite_gradients(name: str) -> None:
    embedding, fields, _ = embed(name)
    masked = torch.arange(3 * GRID * GRID) % 5 == 1
    out = embedding.train()({**fields, "masked": masked})
    (out * torch.randn(out.shape)).sum().backward()
    for parameter_name, parameter in embedding.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in embedding.parameters())


@over("embedding")
def test_excuses_of_embeddings_are_true(name: str) -> None:
    embedding, excused = make("embedding", name), CASES["embedding"][name].excused
    learned = [p.requires_grad for p in embedding.parameters()]
    assert ("gradients" in excused) == (not any(learned))
    assert ("frozen" in excused) == (all(learned) and not list(embedding.buffers()))


@over("embedding", "masked")
def test_masked_rows_do_not_know_their_content(name: str) -> None:
    masked = torch.arange(3 * GRID * GRID) >= 2 * GRID * GRID
    embedding, fields, hidden = embed(name, masked=masked)
    content = CASES["embedding"][name].content
    changed = fields[content].clone()
    changed[2 * len(changed) // 3 :] = 7
    torch.testing.assert_close(embedding({**fields, content: changed})[masked], hidden[masked])
    shown = embedding({field: value for field, value in fields.items() if field != "masked"})
    torch.testing.assert_close(shown[~masked], hidden[~masked])
    assert not torch.isclose(shown[masked], hidden[masked]).all(1).any()


@over("embedding", "frozen")
def test_what_is_frozen_stays(name: str) -> None:
    embedding, fields, _ = embed(name)
    learned = {n: p for n, p in embedding.named_parameters() if p.requires_grad}
    everything = {**dict(embedding.named_parameters()), **dict(embedding.named_buffers())}
    frozen = {n: t.clone() for n, t in everything.items() if n not in learned}
    assert frozen
    initialise(embedding, 0.5)
    out = embedding.train()(fields)
    if learned:
        out.square().sum().backward()
        torch.optim.SGD(learned.values(), 0.1).step()
    assert all(torch.equal(t, everything[n]) for n, t in frozen.items())


@over("embedding")
def test_embeddings_are_saved_and_loaded(name: str) -> None:
    embedding, fields, wanted = embed(name)
    assert torch.equal(pickle.loads(pickle.dumps(embedding))(fields), wanted)
    other = make("embedding", name).eval()
    for tensor in other.state_dict().values():
        tensor.zero_()
    other.load_state_dict(embedding.state_dict())
    assert torch.equal(other(fields), wanted)


# ---- steps


def step_input(name: str) -> list[Sequence]:
    """The sequences for a step; without the stream that it adds."""
    sequences = step_sequences()
    for sequence in sequences:
        for added in CASES["step"][name].adds:
            sequence.streams.pop(added, None)
    return sequences


def tokens(sequence: Sequence, rows: Any) -> list[int]:
    """The words of the sentence at these rows; what a step inserted has none."""
    return [word for word in sequence.streams["text"]["word_ids"][rows].tolist() if word >= 0]


def same_or_cut(name: str, before: list[Any], after: list[Any]) -> bool:
    """Whether both are the same, or, where a step may cut, the second is the first with gaps."""
    rest = iter(before)
    return all(each in rest for each in after) if "keeps" in CASES["step"][name].excused else before == after


@over("step")
def test_steps_depend_on_their_input_alone(name: str) -> None:
    step = make("step", name)
    given = step_input(name)
    before = plain(given)
    made = plain(step(given, draws()))
    drawn = "seed" in CASES["step"][name].excused
    for again in (step, pickle.loads(pickle.dumps(step))):
        assert plain(again(step_input(name), draws(seed=0 if drawn else 1))) == made
    assert drawn == any(plain(step(step_input(name), draws(seed=seed))) != made for seed in range(1, 9))
    assert [plain(step([sequence], draws())[0]) for sequence in step_input(name)] == made
    assert step([], draws()) == []
    for sequence in given:
        for added in CASES["step"][name].adds:
            stream, _, field = added.partition(".")
            (sequence.streams[stream] if field else sequence.streams).pop(field or stream)
    assert plain(given) == before


@over("step")
def test_streams_stay_whole(name: str) -> None:
    given = step_input(name)
    made = make("step", name)(copy.deepcopy(given), draws())
    assert [(s.draw, s.key, s.labels) for s in made] == [(s.draw, s.key, s.labels) for s in given]
    for before, after in zip(given, made, strict=True):
        for fields in after.streams.values():
            assert len({len(values) for values in fields.values()}) == 1
        assert plain(after.streams["image"]) == plain(before.streams["image"])
        old, new = before.streams["text"], after.streams["text"]
        sentence = new["word_ids"] >= 0
        assert same_or_cut(name, old["word_ids"].tolist(), new["word_ids"][sentence].tolist())
        for field in set(old) - {"word_ids"}:
            assert new[field].dtype == old[field].dtype
            assert same_or_cut(name, old[field].tolist(), new[field][sentence].tolist()), field
        assert new["taken"][~sentence].all(), "no objective labels what a step inserted"
        assert not new["special"][~sentence].any()
    assert collate(made).size == len(given)


@over("step")
def test_what_points_into_the_text_points_at_the_same_tokens(name: str) -> None:
    given = step_input(name)
    for before, after in zip(given, make("step", name)(copy.deepcopy(given), draws()), strict=True):
        for spans in ("spans", "mask_spans"):
            old, new = (
                [(tokens(s, slice(span.start, span.end)), span.entity, span.score) for span in getattr(s, spans)]
                for s in (before, after)
            )
            assert same_or_cut(name, sorted(old), sorted(new))
        for span in after.mask_spans:
            assert (after.streams["text"]["word_ids"][span.start : span.end] >= 0).all()
        documents = before.streams["text"].get("doc", np.zeros(before.length("text")))
        starts = {tokens(before, [span.start])[0] for span in before.spans}
        starts |= set(np.flatnonzero(np.diff(documents, prepend=-1)).tolist())
        hung = tokens(after, after.streams["entity"]["token"])
        assert len(hung) == after.length("entity")
        assert set(hung) <= starts
        if "entity" in before.streams:
            assert same_or_cut(name, tokens(before, before.streams["entity"]["token"]), hung)
        if "mention" in after.meta or "keeps" not in CASES["step"][name].excused:
            found = [tokens(s, slice(*s.meta.get("mention", (0, 0)))) for s in (before, after)]
            assert found[0] == found[1]


@over("step", "keeps")
def test_no_mention_and_no_token_is_lost(name: str) -> None:
    given = step_input(name)
    for before, after in zip(given, make("step", name)(copy.deepcopy(given), draws()), strict=True):
        assert len(tokens(after, slice(None))) == before.length("text")
        assert [s.entity for s in after.spans] == [s.entity for s in before.spans]


@over("step", "dropped")
def test_what_a_step_drops_is_told_once(name: str) -> None:
    step = make("step", name)
    step(step_input(name), draws())
    dropped = step.take_dropped()
    assert dropped
    assert all(isinstance(reason, str) and number > 0 for reason, number in dropped.items())
    assert step.take_dropped() == {}


# ---- images


@over("image", "seed")
def test_images_are_augmented_by_the_generator(name: str) -> None:
    part, sample = make("image", name), make_samples(1)[0]
    assert plain(part(sample, generator(1))) != plain(part(sample, generator(2)))


@over("image")
def test_images_depend_on_sample_and_generator_alone(name: str) -> None:
    part = make("image", name)
    for sample in make_samples(2):
        before, state = plain(sample), torch.random.get_rng_state()
        fixed, drawn = plain(part(sample, None)), plain(part(sample, generator(1)))
        for fields in (part(sample, None), part(sample, generator(1))):
            for values in fields.values():  # they are the caller's own
                values[...] = 0
        travelled = pickle.loads(pickle.dumps(part))
        assert plain(travelled(sample, None)) == plain(part(sample, None)) == fixed
        assert plain(travelled(sample, generator(1))) == plain(part(sample, generator(1))) == drawn
        assert plain(sample) == before
        assert torch.equal(torch.random.get_rng_state(), state)
        assert (fixed == drawn) or "seed" not in CASES["image"][name].excused


@over("image")
def test_image_rows_are_finite_and_have_boxes(name: str) -> None:
    part = make("image", name)
    tiny = {**make_samples(1)[0], "image": picture(3, 1, 1), "regions": make_samples(1, regions=1)[0]["regions"]}
    made = [part(sample, rng) for sample in [*make_samples(3), tiny] for rng in (None, generator(5))]
    for fields in made:
        boxes = fields["boxes"]
        assert boxes.dtype == np.float32
        assert boxes.shape == (len(boxes), 4)
        assert ((boxes >= 0) & (boxes <= 1)).all()
        assert (boxes[:, :2] <= boxes[:, 2:]).all()
        assert all(np.isfinite(values).all() for values in fields.values())
        assert {len(values) for field, values in fields.items() if field != "pixels"} == {len(boxes)}
    batch = collate([Sequence({"image": fields}, (i,)) for i, fields in enumerate(made)])
    assert batch.streams["image"].lengths == [len(fields["boxes"]) for fields in made]


@over("image")
def test_a_sample_without_its_image_is_named(name: str) -> None:
    sample = make_samples(1)[0]
    del sample[CASES["image"][name].needs]
    with pytest.raises(WorkbenchError, match="corpus 'c', key 'k0'"):
        make("image", name)(sample, None)
