"""MPNet: one table of distances for the stack; what was pretrained with a stream of queries, there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.contracts.cases import FamilyCase
from tests.interop.worlds import texts, tokenizer
from workbench.cli.export import export
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.sequences.batch import Batch, Stream
from workbench.training.pretrain import pretrain

CONFIG = {
    "model_type": "mpnet",
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "layer_norm_eps": 1e-5,
}
CASE = FamilyCase(
    config=CONFIG,
    golden=("hf/mpnet",),
    rows={"mpnet.embeddings.position_embeddings.weight": slice(2, None)},
)


def text_of(sequences: list[list[int]]) -> Stream:
    ids = torch.tensor([token for sequence in sequences for token in sequence])
    lengths = [len(sequence) for sequence in sequences]
    places = torch.cat([torch.arange(n) for n in lengths])
    return Stream({"input_ids": ids, "position_ids": places}, torch.tensor([0, *lengths]).cumsum(0), lengths)


@torch.no_grad()
def check_states_and_logits(run: Path, model: Any) -> None:
    """Of a run's texts by themselves, against the library's model of the same weights."""
    loaded = load(run)
    network, head = loaded.model.networks["main"], loaded.model.heads["mlm"]
    sequences = [[2, 9, 5, 12, 7, 3], [2, 15, 3]]
    states = network(Batch({"text": text_of(sequences)}))["text"]
    logits = head.logits(network, states)
    begin = 0
    for ids in sequences:
        wanted = model(torch.tensor([ids]), output_hidden_states=True)
        here = slice(begin, begin + len(ids))
        torch.testing.assert_close(states[here], wanted.hidden_states[-1][0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits[here], wanted.logits[0], atol=1e-5, rtol=1e-5)
        begin += len(ids)


def pretraining(tmp_path: Path, **more: Any) -> Path:
    """The tiny size of the recipe, narrower, on a few texts; its first step changes nothing."""
    small = ["hidden_size=32", "max_positions=40"]
    changes = [f"model.streams.{stream}.{change}" for stream in ("text", "query") for change in small]
    changes += [
        f"tokenizer={tokenizer(tmp_path / 'tokenizer.json')}",
        f"tasks.text.corpora=[{texts(tmp_path / 'texts')}]",
        "tasks.text.sequence.max_length=40",
        "model.init_range=0.3",
        "train.max_steps=1",
        "train.lr=1e-30",
        "train.lr_schedule.warmup_steps=0",
        *(f"{key}={value}" for key, value in more.items()),
    ]
    return pretrain(load_recipe("mpnet-tiny", changes), tmp_path / "run")


def test_what_was_pretrained_with_queries_goes_out_and_comes_back(tmp_path: Path) -> None:
    run = pretraining(tmp_path / "first")
    export(run, tmp_path / "exported", "mpnet")
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "exported").eval()
    assert isinstance(model, transformers.MPNetForMaskedLM)
    check_states_and_logits(run, model)
    again = pretraining(tmp_path / "second", **{"model.init_from": tmp_path / "exported", "seed": 1})
    check_states_and_logits(again, model)
    first, second = (load(place).model.state_dict() for place in (run, again))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-20, rtol=0)  # a step of 1e-30 is seen in what is 0
