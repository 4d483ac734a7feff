"""LUKE by its released code's rules against Hugging Face's classes with random weights, with and without its
attention."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from kg.objectives.relations import Relations
from kg.objectives.types import Types
from kg.sequences.entity_vocabulary import MASK, save_entity_vocabulary
from tests.contracts.material import tokenizer
from tests.interop.worlds import equal, model_of, recipe_file, text_task, texts, there_and_back
from tests.interop.worlds import tokenizer as tokenizer_file
from workbench.components.building import build
from workbench.core.keyed import Draws
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.family import FamilyConfig
from workbench.interop.init_from import initialise
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.spec import InitFrom
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Mark, Rows, Sequence, text_fields

WORDS = [[0, 7, 5, 9, 11, 6, 2], [0, 4, 8, 2], [0, 12, 13, 5, 2]]
MENTIONS = [[(5, 1, 3), (MASK, 4, 6)], [], [(MASK, 2, 3)]]
"""Of each text: entity, first token, behind the last."""
PAD = 1
READ: dict[str, Any] = {"read": "entities", "stream": "entity"}


def theirs(kind: str, **more: Any) -> tuple[Any, FamilyConfig]:
    """A class of theirs with random weights, and its configuration."""
    transformers = importlib.import_module("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 48, "max_position_embeddings": 20, "entity_vocab_size": 9, "entity_emb_size": 12}
    config = transformers.LukeConfig(**sizes, type_vocab_size=1, layer_norm_eps=1e-5, **more)
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model, FamilyConfig(config.to_dict())


def ours(model: nn.Module, config: FamilyConfig) -> tuple[Network, dict[str, Tensor]]:
    """The network with their weights, and what there is of heads."""
    checkpoint_family = make_family("kg.luke")
    tensors, unused = to_ours(model.state_dict(), checkpoint_family.rules(config))
    assert not [name for name in unused if not name.startswith("classifier")]
    network = Network(checkpoint_family.network(config)).eval()
    own = network.state_dict().keys()
    left = network.load_state_dict({name: t for name, t in tensors.items() if name in own}, strict=False)
    assert [name for name in left.missing_keys if not name.startswith("poolers")] == []
    return network, {name: tensor for name, tensor in tensors.items() if name not in own}


def padded() -> dict[str, Tensor]:
    """The texts as they take them."""
    width, most = max(map(len, WORDS)), max(map(len, MENTIONS))
    found = {
        "input_ids": torch.full((3, width), PAD),
        "attention_mask": torch.zeros(3, width),
        "entity_ids": torch.zeros(3, most, dtype=torch.long),
        "entity_attention_mask": torch.zeros(3, most),
        "entity_position_ids": torch.full((3, most, 4), -1),
    }
    for i, (words, entities) in enumerate(zip(WORDS, MENTIONS, strict=True)):
        found["input_ids"][i, : len(words)] = torch.tensor(words)
        found["attention_mask"][i, : len(words)] = 1
        for j, (entity, start, end) in enumerate(entities):
            found["entity_ids"][i, j], found["entity_attention_mask"][i, j] = entity, 1
            found["entity_position_ids"][i, j, : end - start] = torch.arange(start, end)
    return found


def jagged() -> list[Sequence]:
    """The same texts as we do."""
    sequences = []
    for i, (words, entities) in enumerate(zip(WORDS, MENTIONS, strict=True)):
        ids, first, behind = (np.array([e[k] for e in entities], np.int64) for k in range(3))
        entity = {"entity_ids": ids, "position_ids": first, "last_position_ids": behind - 1}
        entity |= {"token": Rows("text", first, bound=True), "token_type_ids": np.zeros(len(ids), np.int64)}
        sequences.append(Sequence({"text": text_fields(np.array(words)), "entity": entity}, (i,)))
    return sequences


def rows(states: Tensor, lists: list[list[Any]]) -> Tensor:
    """Their padded states, one sequence after another."""
    return torch.cat([row[: len(listed)] for row, listed in zip(states, lists, strict=True)])


@pytest.mark.parametrize("aware", [True, False])
@torch.no_grad()
def test_states_and_pooled_output(aware: bool) -> None:
    model, config = theirs("LukeModel", use_entity_aware_attention=aware)
    expected = model(**padded())
    prefixed = nn.Module()
    prefixed.luke = model
    network, _ = ours(prefixed, config)
    batch = collate(jagged())
    states = network(batch)
    torch.testing.assert_close(states["text"], rows(expected.last_hidden_state, WORDS), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        states["entity"], rows(expected.entity_last_hidden_state, MENTIONS), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(network.pool(states, batch), expected.pooler_output, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("aware", [True, False])
@torch.no_grad()
def test_logits_and_losses_of_masked_words_and_entities(aware: bool) -> None:
    model, config = theirs("LukeForMaskedLM", use_entity_aware_attention=aware)
    model.tie_weights()
    model.lm_head.decoder.weight = (
        model.luke.embeddings.word_embeddings.weight
    )  # as in the released code; here they do not tie it
    words, entities = torch.full((3, 7), -100), torch.full((3, 2), -100)
    words[0, 2], words[2, 3] = 17, 8
    entities[0, 1], entities[2, 0] = 7, 3
    expected = model(**padded(), labels=words, entity_labels=entities)
    network, heads = ours(model, config)
    batch, checkpoint_family = collate(jagged()), make_family("kg.luke")
    targets = {"mlm": ([2, 7 + 4 + 3], [17, 8]), "mep": ([1, 2], [7, 3])}
    for name, (places, labels) in targets.items():
        objective = build("objective", checkpoint_family.heads(config)[name], name, tokenizer=tokenizer())
        head = objective.head(network).eval()
        head.load_state_dict({n.removeprefix(f"{name}."): t for n, t in heads.items() if n.startswith(f"{name}.")})
        seen = HeadInputs.of(network, batch, {"rows": torch.tensor(places), "labels": torch.tensor(labels)})
        stream, lists = ("text", WORDS) if name == "mlm" else ("entity", MENTIONS)
        logits = expected.logits if name == "mlm" else expected.entity_logits
        found = head.logits(network, seen.states[stream])
        torch.testing.assert_close(found, rows(logits, lists), atol=1e-5, rtol=1e-5)
        loss = expected.mlm_loss if name == "mlm" else expected.mep_loss
        torch.testing.assert_close(head(seen).loss / 2, loss, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "objective", "names"),
    [
        ("LukeForEntityClassification", Types(3, **READ), ["mention"]),
        ("LukeForEntityPairClassification", Relations(["a", "b", "c"], **READ), ["head", "tail"]),
    ],
)
@torch.no_grad()
def test_heads_on_marked_mentions(kind: str, objective: Types | Relations, names: list[str]) -> None:
    """Theirs of one mention has a bias and that of two none, ours the other way round; both begin as zero."""
    model, config = theirs(kind, num_labels=3)
    network, _ = ours(model, config)
    objective.name = "it"
    (first, *_) = jagged()  # the text that has two entities
    first.marks = [Mark(name, row, row + 1, "entity") for row, name in enumerate(names)]
    first.meta["labels"], first.labels = np.array([0.0, 1.0, 0.0]), {"relation": "b"}
    objective.corrupt([first], Draws(0, number=(0,)))
    head = objective.head(network).eval()
    linear = head.classifier if len(names) == 2 else head.typing
    linear.weight.copy_(model.classifier.weight)
    for bias in (linear.bias, model.classifier.bias):
        if bias is not None:
            nn.init.zeros_(bias)
    batch = collate([first])
    target = torch.tensor([1]) if len(names) == 2 else torch.tensor([[0.0, 1.0, 0.0]])
    expected = model(**{name: values[:1] for name, values in padded().items()}, labels=target)
    seen = HeadInputs.of(network, batch, batch.targets["it"])
    torch.testing.assert_close(head.logits(seen), expected.logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(head(seen).loss / objective.count(batch), expected.loss, atol=1e-5, rtol=1e-5)


def test_a_release_becomes_a_run_and_a_release_again(tmp_path: Path) -> None:
    model, config = theirs("LukeForMaskedLM")
    model.tie_weights()
    model.lm_head.decoder.weight.data.copy_(model.luke.embeddings.word_embeddings.weight)
    model.save_pretrained(tmp_path / "theirs")
    vocabulary, corpus = tmp_path / "entities.safetensors", texts(tmp_path / "texts", spans=[[0, 3, "Q1", 1.0]])
    save_entity_vocabulary(vocabulary, Counter(f"Q{i}" for i in range(6)), 6, {})
    vocabularies = {"text": {"vocab_size": 40}, "entity": {"vocabulary": str(vocabulary)}}
    model_spec = {**model_of("kg.luke", config, **vocabularies), "init_from": str(tmp_path / "theirs")}
    task = text_task(corpus, "mlm", "kg.mep")
    heads = make_family("kg.luke").heads(config)
    task["objectives"] = [heads["mlm"], heads["mep"]]
    task["sequence"]["transforms"] = [{"transform": "kg.entity_tokens", "vocabulary": str(vocabulary)}]
    words = str(tokenizer_file(tmp_path / "tokenizer.json"))
    recipe = recipe_file(tmp_path / "r.yaml", model_spec, task, tokenizer=words)
    written = there_and_back(tmp_path, recipe, "kg.luke")
    weights = load_file(tmp_path / "theirs" / "model.safetensors")
    unread = {"luke.embeddings.position_embeddings.weight": slice(2, None)}
    unread |= {"luke.entity_embeddings.position_embeddings.weight": slice(-2)}
    equal({name: t for name, t in written.items() if name in weights}, weights, unread)
    assert weights.keys() <= written.keys()


def test_starting_from_roberta_the_queries_begin_as_its_only_ones(tmp_path: Path) -> None:
    _, config = theirs("LukeModel")
    roberta, reported = make_family("roberta"), FamilyConfig({**config, "model_type": "roberta"})
    plain = Network(roberta.network(reported))
    write_checkpoint_folder(
        tmp_path / "theirs", exported_weights("roberta", plain, roberta.network(reported), nn.ModuleDict(), {})
    )
    network = Network(make_family("kg.luke").network(config))
    root = PretrainingModel({"main": network}, {}, {})
    spec = make_family("kg.luke").network(config)
    spec.init_from = [InitFrom(weights=str(tmp_path / "theirs"))]
    initialise(root, "main", spec)
    for layer, source in zip(network.layers, plain.layers, strict=True):
        queries = source.attention.attention.qkv.weight[:32]
        for kind in ("w2e_query", "e2w_query", "e2e_query"):
            assert torch.equal(getattr(layer.attention.attention, kind).weight, queries)
