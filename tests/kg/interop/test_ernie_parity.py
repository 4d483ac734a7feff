"""ERNIE-THU's network, entity noising, dEA and fine-tuning heads against the released code's numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers.models import WordLevel

from kg.models.embeddings.entity_table import EntityTableEmbedding
from kg.objectives.dea import Dea
from kg.objectives.relations import Relations
from kg.objectives.types import Types
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import read_checkpoint_folder
from workbench.models.network import Network
from workbench.objectives.mlm import Mlm
from workbench.objectives.nsp import Nsp
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Rows, Sequence, text_fields
from workbench.text.tokenizer import Tokenizer

CLOSE = {"atol": 1e-5, "rtol": 0}


class Recorded:
    """The released code's random draws, in order; stands for a Generator and for Draws."""

    def __init__(self, draws: list[list]) -> None:
        self.draws = list(draws)

    def of(self, draw: tuple[int, ...]) -> Recorded:
        return self

    def random(self) -> float:
        kind, value = self.draws.pop(0)
        assert kind == "uniform"
        return value

    def integers(self, low: int, high: int) -> int:
        kind, value = self.draws.pop(0)
        assert kind == "randint"
        assert low <= value < high
        return value


def with_entities(ids: list[int], fields: dict[str, np.ndarray], number: int) -> Sequence:
    """A sequence whose entity stream says what the released id row (-1 = none) says, and has a row at [CLS]."""
    tokens = [i for i, e in enumerate(ids) if e >= 0 or i == 0]
    entity = {"entity_ids": np.array([ids[t] + 1 for t in tokens]), "token": Rows("text", np.array(tokens), bound=True)}
    return Sequence({"text": fields, "entity": entity}, (number,), str(number))


class Golden:
    """The released model as our network, on the released batch after our own noising with the recorded draws."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.inputs = load_file(folder / "inputs.safetensors")
        self.outputs = load_file(folder / "outputs.safetensors")
        files = find_files(folder)
        assert files is not None
        self.weights = read_checkpoint_folder(files).tensors
        self.dea = Dea()
        self.dea.name = "dea"
        words = {name: i for i, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"])}
        self.tokenizer = Tokenizer(tokenizers.Tokenizer(WordLevel(words, unk_token="[UNK]")))
        self.draws = Recorded(json.loads((folder / "random_draws.json").read_text()))
        self.lengths = self.inputs["attention_mask"].sum(1).tolist()
        self.batch = self._batch()
        self.network = self._network()
        body = {n: t for n, t in self.weights.items() if n.startswith(("embeddings", "layers", "poolers"))}
        self.network.load_state_dict(body)

    def _batch(self) -> Batch:
        width = self.inputs["input_ids"].shape[1]
        sequences = []
        for number, (raw, n) in enumerate(zip(self.inputs["raw_instances"].numpy(), self.lengths, strict=True)):
            ids, _, types, _, entities, _ = raw[: 6 * width].reshape(6, width)[:, :n]
            sequences.append(with_entities(entities.tolist(), text_fields(ids, token_type_ids=types), number))
        targets = self.dea.corrupt(sequences, self.draws)
        return collate(sequences, {"dea": targets})

    def _network(self) -> Network:
        c = self.config
        fused = {
            "layer": "kg.aggregator",
            "streams": ["text", "entity"],
            "num_heads": [c["num_attention_heads"], c["ent_num_attention_heads"]],
            "intermediate_size": c["intermediate_size"],
        }
        kinds = {
            "sim": {
                "layer": "self",
                "stream": "text",
                "num_heads": c["num_attention_heads"],
                "intermediate_size": c["intermediate_size"],
            },
            "mix": {**fused, "entity_attention": False},
            "norm": fused,
        }
        text = {
            "embedding": "token",
            "vocab_size": c["vocab_size"],
            "hidden_size": c["hidden_size"],
            "max_positions": c["max_position_embeddings"],
        }
        entity = {"embedding": "kg.entity_table", "path": self.inputs["entity_table"][1:]}
        text_only = c["num_hidden_layers"] - len(c["layer_types"])
        layers = [kinds[kind] for kind in [*c["layer_types"], *["sim"] * text_only]]
        return Network(NetworkSpec({"text": text, "entity": entity}, layers, ["text"])).eval()

    def rows(self, padded: torch.Tensor) -> torch.Tensor:
        """Real rows of a padded [batch, length, ...] tensor."""
        return torch.cat([padded[i, :n] for i, n in enumerate(self.lengths)])

    def entity_rows(self, padded: torch.Tensor) -> torch.Tensor:
        return padded[self.inputs["ent_mask"].bool()]


@pytest.fixture(scope="module")
def golden(shared: Path) -> Golden:
    return Golden(shared / "golden/ernie_thu/pretraining")


def test_noising_gives_the_released_batch(golden: Golden) -> None:
    assert not golden.draws.draws
    wanted = golden.entity_rows(golden.inputs["input_ent"])
    entity = golden.batch.streams["entity"].fields
    assert torch.equal(golden.network.embeddings["entity"](entity), wanted)
    where = golden.inputs["attention_mask"].bool()
    text = golden.batch.streams["text"].fields
    for name in ("input_ids", "token_type_ids"):
        assert torch.equal(text[name], golden.inputs[name][where])
    assert torch.equal(entity["token"], torch.nonzero(golden.inputs["ent_mask"].bool()[where]).flatten())
    targets = golden.batch.targets["dea"]
    labels = golden.rows(golden.inputs["ent_labels"])
    assert torch.equal(targets["rows"], torch.nonzero(labels != -1).flatten())
    assert torch.equal(targets["labels"], labels[labels != -1])
    candidates = golden.network.embeddings["entity"]({"entity_ids": targets["candidates"]})
    assert torch.equal(candidates, golden.inputs["candidate"])


@torch.no_grad()
def test_states_of_every_layer(golden: Golden) -> None:
    seen = []
    hooks = [layer.register_forward_hook(lambda m, a, out: seen.append(out)) for layer in golden.network.layers]
    states = golden.network(golden.batch)
    for hook in hooks:
        hook.remove()
    embedded = golden.network.embeddings["text"](golden.batch.streams["text"].fields)
    torch.testing.assert_close(embedded, golden.rows(golden.outputs["embedding_output"]), **CLOSE)
    for i, hidden in enumerate(seen):
        torch.testing.assert_close(hidden["text"], golden.rows(golden.outputs[f"hidden_tokens.{i}"]), **CLOSE)
        torch.testing.assert_close(
            hidden["entity"], golden.entity_rows(golden.outputs[f"hidden_entities.{i}"]), **CLOSE
        )
    pooled = golden.network.pool(states, golden.batch)
    torch.testing.assert_close(pooled, golden.outputs["pooled_output"], **CLOSE)


@torch.no_grad()
def test_layers_beyond_the_list_are_of_text_alone(golden: Golden, shared: Path, tmp_path: Path) -> None:
    """As the released code builds them; the reference is Hugging Face's layer on the released states. Without their
    weights the folder is refused."""
    transformers, c = pytest.importorskip("transformers"), golden.config
    names = ("hidden_size", "num_attention_heads", "intermediate_size", "hidden_act")
    options = transformers.BertConfig(**{name: c[name] for name in names}, attn_implementation="eager")
    torch.manual_seed(0)
    layers = [transformers.models.bert.modeling_bert.BertLayer(options).eval() for _ in range(2)]
    count, weights = c["num_hidden_layers"], load_file(shared / "golden/ernie_thu/pretraining/weights.safetensors")
    for i, layer in enumerate(layers):
        weights |= {f"bert.encoder.layer.{count + i}.{name}": tensor for name, tensor in layer.state_dict().items()}
    save_file(weights, tmp_path / "weights.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**c, "num_hidden_layers": count + 2}))
    files = find_files(tmp_path)
    assert files is not None
    read = read_checkpoint_folder(files)
    assert read.unused == []
    network = Network(read.network).eval()
    network.embeddings["entity"] = golden.network.embeddings["entity"]
    network.load_state_dict(
        {n: t for n, t in read.tensors.items() if n.startswith(("embeddings", "layers", "poolers"))}
    )
    states = network(golden.batch)
    wanted = golden.outputs[f"hidden_tokens.{count - 1}"]
    mask = (1 - golden.inputs["attention_mask"][:, None, None].float()) * torch.finfo(torch.float32).min
    for layer in layers:
        found = layer(wanted, mask)
        wanted = found[0] if isinstance(found, tuple) else found
    torch.testing.assert_close(states["text"], golden.rows(wanted), **CLOSE)
    entities = golden.entity_rows(golden.outputs[f"hidden_entities.{count - 1}"])
    torch.testing.assert_close(states["entity"], entities, **CLOSE)
    (tmp_path / "config.json").write_text(json.dumps(c))
    with pytest.raises(WorkbenchError, match="32 of its tensors belong to the network"):
        read_checkpoint_folder(files)


@torch.no_grad()
def test_entity_logits_and_loss(golden: Golden) -> None:
    head = golden.dea.head(golden.network).eval()
    head.load_state_dict({n.removeprefix("dea."): t for n, t in golden.weights.items() if n.startswith("dea.")})
    states = golden.network(golden.batch)
    targets = golden.batch.targets["dea"]
    logits = head.logits(states["text"], golden.inputs["candidate"])
    torch.testing.assert_close(logits, golden.rows(golden.outputs["entity_logits"]), **CLOSE)
    out = head(HeadInputs.of(golden.network, golden.batch, targets, states))
    count = golden.dea.count(golden.batch)
    assert count == (golden.inputs["ent_labels"] != -1).sum()
    assert float(out.loss / count) == pytest.approx(float(golden.outputs["loss_dea"]), abs=1e-5)
    correct, of = out.metrics["accuracy"]
    wanted = golden.rows(golden.outputs["entity_logits"])[targets["rows"]].argmax(-1) == targets["labels"]
    assert (int(correct), of) == (int(wanted.sum()), count)


@torch.no_grad()
def test_token_and_sentence_logits_and_the_total_loss(golden: Golden) -> None:
    """The core's mlm and nsp heads on this network: all of the released loss."""
    states = golden.network(golden.batch)
    labels = golden.rows(golden.inputs["masked_lm_labels"])
    rows = torch.nonzero(labels != -1).flatten()
    losses = {}
    for objective, targets, logits in (
        (Mlm(golden.tokenizer), {"rows": rows, "labels": labels[rows]}, "mlm_logits"),
        (Nsp(), {"labels": golden.inputs["next_sentence_label"].flatten()}, "nsp_logits"),
    ):
        head = objective.head(golden.network).eval()
        prefix = f"{objective.name}."
        head.load_state_dict({n.removeprefix(prefix): t for n, t in golden.weights.items() if n.startswith(prefix)})
        out = head(HeadInputs.of(golden.network, golden.batch, targets, states))
        losses[objective.name] = float(out.loss) / len(targets["labels"])
        mlm = objective.name == "mlm"
        wanted = golden.rows(golden.outputs[logits]) if mlm else golden.outputs[logits]
        read = states["text"] if mlm else golden.network.pool(states, golden.batch)
        torch.testing.assert_close(head.logits(golden.network, read), wanted, **CLOSE)
        assert losses[objective.name] == pytest.approx(float(golden.outputs[f"loss_{objective.name}"]), abs=1e-5)
    total = float(golden.outputs["loss_without_dea"])
    assert sum(losses.values()) == pytest.approx(total, abs=1e-5)
    with_entities = total + float(golden.outputs["loss_dea"])
    assert with_entities == pytest.approx(float(golden.outputs["loss_total"]), abs=1e-5)


@torch.no_grad()
def test_fine_tuning_heads(golden: Golden, shared: Path) -> None:
    """Those of our objectives, on the pooled output."""
    folder = shared / "golden/ernie_thu/finetuning"
    weights, inputs, outputs = (load_file(folder / f"{n}.safetensors") for n in ("weights", "inputs", "outputs"))
    classes = [str(row) for row in range(len(weights["classifier.bias"]))]
    states = golden.network(golden.batch)
    for objective, name in (
        (Types(len(weights["typing.weight"])), "typing"),
        (Relations(classes), "relation"),
    ):
        head = objective.head(golden.network).eval()
        head.load_state_dict({n: t for n, t in weights.items() if n in head.state_dict()})
        labels = inputs[f"{name}_labels"]
        seen = HeadInputs.of(golden.network, golden.batch, {"labels": labels}, states)
        torch.testing.assert_close(head.logits(seen), outputs[f"{name}_logits"], **CLOSE)
        torch.testing.assert_close(head(seen).loss / labels.numel(), outputs[f"{name}_loss"], **CLOSE)


def test_recorded_noising_of_many_batches(shared: Path) -> None:
    records = json.loads((shared / "golden/ernie_thu/data_conventions/entity_noising.json").read_text())
    for record in records:
        dea = Dea()
        dea.name = "dea"
        before = record["entity_ids_before"]
        sequences = [with_entities(ids, text_fields(np.arange(len(ids))), i) for i, ids in enumerate(before)]
        draws = Recorded(record["draws"])
        candidates = dea.corrupt(sequences, draws)["candidates"]
        assert draws.draws == []
        assert (candidates - 1).tolist() == record["candidate_entity_ids"]
        for sequence, after, mask, labels in zip(
            sequences, record["entity_ids_after"], record["ent_mask"], record["ent_labels"], strict=True
        ):
            entity = sequence.streams["entity"]
            assert entity["token"].index.tolist() == np.flatnonzero(mask).tolist()
            assert (entity["entity_ids"] - 1).tolist() == [after[i] for i in np.flatnonzero(mask)]
            targets = sequence.targets["dea"]
            assert targets["rows"].index.tolist() == [i for i, label in enumerate(labels) if label != -1]
            assert targets["labels"].tolist() == [label for label in labels if label != -1]


def test_frozen_table_is_no_parameter(golden: Golden) -> None:
    table = golden.network.embeddings["entity"]
    assert isinstance(table, EntityTableEmbedding)
    assert list(table.parameters()) == []
    assert not any("entity.vectors" in name for name in golden.network.state_dict())
