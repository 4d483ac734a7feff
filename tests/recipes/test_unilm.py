"""UniLM: four visibilities in a micro-batch, and what a run trained on them does elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from tests.loaded_runs import encode_texts, generate_texts
from workbench.cli.export import export
from workbench.core.keyed import Draws
from workbench.evaluation.analysis.encoding import Encoder
from workbench.evaluation.analysis.generation import Generator
from workbench.generation.decoding import Decoding
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import LoadedRun, load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain

LINES = ["They like the river and Norway.", "They like the river."]


@pytest.fixture(scope="module")
def run(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = ["train.max_steps=2", "train.lr_schedule.warmup_steps=1", "model.streams.text.hidden_size=32"]
    corpora = [f"tokenizer={world.tokenizer}", f"tasks.text.corpora=['{world.text}']"]
    recipe = load_recipe("unilm-tiny", [*small, *corpora])
    return pretrain(recipe, Path(tmp_path_factory.mktemp("runs")) / "unilm")


@pytest.fixture(scope="module")
def unilm(run: Path) -> LoadedRun:
    return load(run)


def test_sequences_of_a_micro_batch_differ_and_those_of_both_directions_are_asked_for_their_order(
    unilm: LoadedRun,
) -> None:
    words = "They like the river. It flows past Norway. Boats look for songs. "
    samples = [{"key": f"k{i}", "draw": (0, i), "text": f"{i} {words}"} for i in range(60)]
    batch = unilm.tasks["text"].micro_batch(samples, (0, 0, 0)).views["main"]
    text = batch.streams["text"]
    labels = batch.targets["nsp"]["labels"].tolist()
    kinds = set()
    for label, types, rank in zip(
        labels, text.fields["token_type_ids"].split(text.lengths), text.fields["rank"].split(text.lengths), strict=True
    ):
        kinds.add(tuple(types.unique().tolist()))
        assert (label == -100) == (types[0] > 1)
        assert bool(rank.any()) == (types[0] > 1)
    assert kinds == {(0, 1), (2,), (3,), (4, 5)}
    assert {0, 1} < set(labels)


def test_the_end_is_hidden_behind_a_prefix_and_nowhere_else(unilm: LoadedRun) -> None:
    end, ends = unilm.tokenizer.id("sep"), {}
    samples = [{"key": f"k{i}", "draw": (0, i), "text": f"{i} {LINES[0]} Boats look."} for i in range(200)]
    for number in range(2):
        view = unilm.tasks["text"].micro_batch(samples, (0, number, 0)).views["main"]
        types, asked = view.streams["text"].fields["token_type_ids"], view.targets["mlm"]
        for row, label in zip(asked["rows"].tolist(), asked["labels"].tolist(), strict=True):
            seen = int(types[row])
            ends[seen] = ends.get(seen, 0) + (label == end)
    assert ends.pop(5) > 3  # a target's
    assert not any(ends.values())


def test_sequences_of_four_visibilities_together_have_the_states_they_have_alone(unilm: LoadedRun) -> None:
    task, network = unilm.tasks["text"], unilm.model.network().eval()
    samples = [{"key": f"k{i}", "draw": (0, i), "text": f"{i} {LINES[0]} Boats look for songs."} for i in range(24)]
    arranged = task.builder.arrange(samples, Draws(0, number=()))
    assert len({sample["visibility"] for sample in arranged}) == 4
    sequences = task.sequences(arranged)
    together = network(collate(sequences))["text"].split([sequence.length("text") for sequence in sequences])
    for sequence, states in zip(sequences, together, strict=True):
        torch.testing.assert_close(network(collate([sequence]))["text"], states, atol=1e-5, rtol=1e-5)


def test_it_leaves_as_bert_and_reads_texts_so_there(run: Path, unilm: LoadedRun, tmp_path: Path) -> None:
    export(run, tmp_path / "bert", "bert")
    theirs = AutoModel.from_pretrained(tmp_path / "bert").eval()
    [sequence] = Encoder(unilm)._texts([{"key": "", "draw": (0,), "text": LINES[0]}], ())
    ids = torch.from_numpy(sequence.streams["text"]["input_ids"])[None]
    ours = unilm.model.network().eval()(collate([sequence]))["text"]
    torch.testing.assert_close(ours, theirs(input_ids=ids).last_hidden_state[0], atol=1e-5, rtol=1e-5)


def test_texts_are_encoded_in_both_directions(unilm: LoadedRun) -> None:
    [sequence] = Encoder(unilm)._texts([{"key": "", "draw": (0,), "text": LINES[0]}], ())
    assert "rank" not in sequence.streams["text"]
    assert set(sequence.streams["text"]["token_type_ids"]) == {0}
    vectors = encode_texts(unilm, LINES, pool="pooled")
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-4)


def test_texts_are_generated_behind_a_prefix(unilm: LoadedRun) -> None:
    generator = Generator(unilm, Decoding(max_new_tokens=4))
    assert generator.placed.name == "mlm"
    prompt = generator._prompt({"key": "0", "draw": (0,), "text": LINES[0]})
    assert set(prompt.streams["text"]["token_type_ids"]) == {4}
    assert not prompt.streams["text"]["rank"].any()
    together = generate_texts(unilm, LINES, Decoding(max_new_tokens=4))
    assert together == [generate_texts(unilm, [line], Decoding(max_new_tokens=4))[0] for line in LINES]
