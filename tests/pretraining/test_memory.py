"""What networks remember of texts that are read on: segments with a memory are one text, and a lane is a lane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.forward import ForwardPass, ViewKey
from workbench.pretraining.memory import Memory
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict, with_overrides
from workbench.sequences.batch import Batch, MicroBatch, Stream
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.data import reader_of

TEXTS = [
    " ".join(f"Sentence {n} of story {s} continues." for n in range(length)) for s, length in enumerate((9, 2, 7, 5))
]
MAIN = ViewKey("main", "main")
FIELDS = ("input_ids", "token_type_ids")
LAYERS: dict[str, dict[str, Any]] = {
    "rotary, pre": {"rotary": 100.0, "norm_place": "pre"},
    "alibi": {"score_bias": "alibi"},
    "buckets": {"score_bias": {"score_bias": "buckets", "num_buckets": 8, "max_distance": 300}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus `texts` of few long texts, and a tokenizer."""
    made = tmp_path_factory.mktemp("world")
    with ShardWriter(made / "texts" / "part-000000.tar", kind="text") as writer:
        for number, text in enumerate(TEXTS):
            writer.add(f"r{number}", {"text": text})
    assert writer.info is not None
    finish_corpus(made / "texts", kind="text", shards=[writer.info], provenance={})
    Tokenizer(train_tokenizer(TEXTS, "wordpiece", 120)).save(made / "tokenizer.json")
    return made


def recipe(folder: Path, layer: str = "rotary, pre", memory: int = 500, **text: Any) -> Recipe:
    """A causal model of texts without special tokens, whose segments joined are the text."""
    options = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0, **LAYERS[layer]}
    sequence = {"builder": "document", "max_length": 16, "begin": None, "end": None, "visibility": "causal"}
    tree = {
        "tokenizer": str(folder / "tokenizer.json"),
        "model": {
            "streams": {
                "text": {"embedding": "token", "hidden_size": 32, "max_positions": None, "dropout": 0.0, **text}
            },
            "layers": [{"layer": "self", "stream": "text", "repeat": 2, **options}],
            "init_range": 0.3,
            "memory": memory,
        },
        "tasks": {
            "text": {
                "corpora": [str(folder / "texts")],
                "order": "continuous",
                "sequence": sequence,
                "objectives": [{"objective": "clm"}],
            }
        },
        "train": {"max_steps": 5, "global_batch_size": 4, "micro_batch_size": 2, "lr": 0.01},
    }
    return recipe_from_dict(tree, "tiny")


def opened(made: Recipe) -> tuple[PretrainingModel, Any]:
    """The model in evaluation mode, and a function that returns the micro-batch at (number, lane)."""
    tokenizer = Tokenizer.load(str(made.tokenizer))
    tasks = tasks_of(made, tokenizer)
    reader = reader_of(made, tasks["text"])

    def micro_batch(number: int, lane: int) -> MicroBatch:
        return tasks["text"].micro_batch(reader.micro_batch(number, lane), (0, number, lane))

    return make_model(made, tasks, tokenizer).eval(), micro_batch


def states(root: PretrainingModel, micro: MicroBatch, memory: Memory) -> tuple[Tensor, ...]:
    """The states of each sequence, with this memory, which continues."""
    networks = {name: root.network(name) for name in root.networks}
    with torch.no_grad():
        found = ForwardPass(networks, micro.views, recall=memory.at(micro)).read(MAIN).states["text"]
    memory.commit()
    return found.split(micro.views["main"].streams["text"].lengths)


def alone(root: PretrainingModel, parts: list[dict[str, Tensor]]) -> Tensor:
    """The states of segments that are read as one text."""
    fields = {name: torch.cat([part[name] for part in parts]) for name in FIELDS}
    places = torch.arange(len(fields["input_ids"]))
    stream = Stream({**fields, "position_ids": places, "rank": places}, torch.tensor([0, len(places)]), [len(places)])
    with torch.no_grad():
        return root.network()(Batch({"text": stream}))["text"]


def segments(micro: MicroBatch) -> list[dict[str, Tensor]]:
    text = micro.views["main"].streams["text"]
    parts = {name: text.fields[name].split(text.lengths) for name in FIELDS}
    return [{name: parts[name][n] for name in FIELDS} for n in range(len(text.lengths))]


@pytest.mark.parametrize("layer", LAYERS)
def test_segments_with_a_memory_of_all_are_one_text(folder: Path, layer: str) -> None:
    root, micro_batch = opened(recipe(folder, layer))
    longest = 0
    for lane in (0, 1):
        memory = Memory()
        read: list[list[dict[str, Tensor]]] = [[], []]
        for number in range(20):
            micro = micro_batch(number, lane)
            assert len(micro.slots) == 2
            found = states(root, micro, memory)
            for slot, segment, given in zip(micro.slots, segments(micro), found, strict=True):
                before = read[slot.number] if slot.continues else []
                read[slot.number] = [*before, segment]
                expected = alone(root, read[slot.number])[-len(given) :]
                torch.testing.assert_close(given, expected, atol=1e-4, rtol=1e-4)
                longest = max(longest, len(read[slot.number]))
    assert longest > 3


def test_a_memory_has_the_last_rows_and_changes_what_is_seen(folder: Path) -> None:
    root, micro_batch = opened(recipe(folder, memory=20))
    memory = Memory()
    seen = False
    for number in range(8):
        micro = micro_batch(number, 0)
        given = states(root, micro, memory)
        forgetful = states(root, micro, Memory())
        for slot, one, other in zip(micro.slots, given, forgetful, strict=True):
            assert torch.allclose(one, other, atol=1e-4, rtol=1e-4) != slot.continues
            seen |= slot.continues
        lengths = memory.state_dict()["text/0/main/main/streams.text.lengths"].tolist()
        assert max(lengths) <= 20
    assert seen


def test_a_memory_continues_from_what_is_saved_and_from_the_micro_batch_before_alone(folder: Path) -> None:
    root, micro_batch = opened(recipe(folder))
    memory = Memory()
    for lane in (0, 1):
        for number in (0, 1):
            states(root, micro_batch(number, lane), memory)
    state = memory.state_dict()
    again = Memory.of(state, [1], torch.device("cpu"))
    assert again.state_dict().keys() == {name for name in state if name.startswith("text/1/")}
    third = micro_batch(2, 1)
    assert any(slot.continues for slot in third.slots)
    expected = states(root, third, memory.copy())
    assert all(map(torch.equal, states(root, third, again), expected))
    assert all(map(torch.equal, states(root, third, memory), expected))
    fourth, left_out = micro_batch(3, 1), Memory.of(state, [1], torch.device("cpu"))
    assert all(map(torch.equal, states(root, fourth, left_out), states(root, fourth, Memory())))


def test_what_is_read_twice_or_for_nothing_is_remembered_once(folder: Path) -> None:
    root, micro_batch = opened(recipe(folder))
    memory = Memory()
    states(root, micro_batch(0, 0), memory)
    second = micro_batch(1, 0)
    with root.remembering(memory), torch.no_grad():
        for _ in range(2):
            root(second, ["clm"])
    once = memory.copy()
    memory.commit()
    states(root, second, once)
    assert all(torch.equal(tensor, memory.state_dict()[name]) for name, tensor in once.state_dict().items())
    before = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    states(root, micro_batch(2, 0), memory.copy())
    assert all(torch.equal(tensor, before[name]) for name, tensor in memory.state_dict().items())
    assert root.remembered is None


def test_a_table_of_positions_is_refused(folder: Path) -> None:
    with pytest.raises(
        WorkbenchError, match=r"model\.memory = 500: .* model\.streams\.text has no row. Set its max_pos"
    ):
        opened(recipe(folder, max_positions=64))
    opened(recipe(folder, memory=0, max_positions=64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.memory": -1}, "model.memory = -1"),
        ({"model.memory": 2**21}, "model.memory = 2097152"),
        ({"model.memory": 1.5}, "model.memory = 1.5"),
        ({"tasks.text.order": "read_on"}, "tasks.text.order"),
    ],
)
def test_values_out_of_bounds_are_refused(folder: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        with_overrides(recipe(folder), [f"{name}={value}" for name, value in change.items()])
