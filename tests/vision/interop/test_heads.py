"""All heads of the library's LXMERT and VisualBERT for pretraining, of random weights: logits and losses are ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LxmertConfig, LxmertForPreTraining, VisualBertConfig, VisualBertForPreTraining

from vision.objectives.answers import Answers
from vision.objectives.itm import Itm
from vision.objectives.mrc import Mrc
from vision.objectives.mrfr import Mrfr
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import PretrainedWeights, read_checkpoint_folder
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.objectives.mlm import MlmHead
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import LossOutput
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.batch import Batch

CLOSE = {"atol": 1e-5, "rtol": 0.0}
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 24}
ROWS, REGIONS, TEXTS = 7, 5, 3
Jagged = Callable[..., Batch]


def released(model: nn.Module, folder: Path) -> tuple[Network, PretrainedWeights]:
    """Our network with the weights that the library writes, and all that was read."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    files = find_files(folder)
    assert files is not None
    read = read_checkpoint_folder(files)
    assert (read.unused, read.missing) == ([], [])
    spec = read.network
    tree = {"model": {"streams": spec.streams, "layers": spec.layers, "poolers": spec.poolers, "tie": spec.tie}}
    task = {
        "corpora": ["x"],
        "sequence": {"builder": "document", "max_length": 8},
        "objectives": [{"objective": "mlm"}],
    }
    train = {"max_steps": 1, "global_batch_size": 1, "micro_batch_size": 1, "lr": 1e-3}
    [network] = build_networks(recipe_from_dict({**tree, "tasks": {"t": task}, "train": train}), vocab_size=0).values()
    names = network.state_dict().keys()
    network.load_state_dict({name: tensor for name, tensor in read.tensors.items() if name in names})
    return network.eval(), read


def head_of(read: PretrainedWeights, name: str, head: Any) -> Any:
    """The head with the weights that were read for it, all of them."""
    head.load_state_dict({n.partition(".")[2]: t for n, t in read.tensors.items() if n.startswith(f"{name}.")})
    return head.eval()


@pytest.fixture
def words(jagged: Jagged) -> tuple[Tensor, dict[str, Tensor]]:
    """Ids of three texts of several lengths, and which of them are there."""
    torch.manual_seed(0)
    there = torch.arange(ROWS) < torch.tensor([7, 4, 5])[:, None]
    ids = torch.randint(5, 40, (TEXTS, ROWS)) * there
    places = torch.arange(ROWS).expand(TEXTS, ROWS)
    return there, {"input_ids": ids, "token_type_ids": torch.zeros_like(ids), "position_ids": places}


def of_rows(there: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The labelled rows among those that are there, and their labels."""
    return {"rows": (labels[there] != -100).nonzero()[:, 0], "labels": labels[there][labels[there] != -100]}


@torch.no_grad()
def test_lxmert(words: Any, jagged: Jagged, tmp_path: Path) -> None:
    there, fields = words
    counts = {"num_qa_labels": 9, "num_object_labels": 7, "num_attr_labels": 5}
    layers = {"l_layers": 2, "r_layers": 1, "x_layers": 2}
    config = LxmertConfig(vocab_size=40, **SMALL, **counts, **layers, visual_feat_dim=16, visual_pos_dim=4)
    theirs = LxmertForPreTraining(config).eval()
    network, read = released(theirs, tmp_path)
    features, boxes = torch.randn(TEXTS, REGIONS, 16), torch.rand(TEXTS, REGIONS, 4)
    hidden = torch.tensor([[1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
    objects, attributes = (torch.randint(0, n, (TEXTS, REGIONS)) for n in (7, 5))
    sure = torch.rand(2, TEXTS, REGIONS) * hidden
    labels = torch.where((torch.rand(TEXTS, ROWS) < 0.4) & there, fields["input_ids"], -100)
    matched, answers = torch.tensor([1, 0, 1]), torch.tensor([4, 0, 8])
    inputs = {
        "input_ids": fields["input_ids"],
        "attention_mask": there.long(),
        "visual_feats": features,
        "visual_pos": boxes,
    }
    given = {"obj": (objects, sure[0]), "attr": (attributes, sure[1]), "feat": (features, hidden)}
    found = theirs(**inputs)
    batch = jagged(
        text=(there, fields), image=(torch.ones(TEXTS, REGIONS).bool(), {"features": features, "boxes": boxes})
    )
    states = network(batch)

    def seen(**targets: Tensor) -> HeadInputs:
        return HeadInputs.of(network, batch, targets, states)

    mlm = head_of(read, "mlm", MlmHead(network))
    torch.testing.assert_close(mlm.logits(network, states["text"]), found.prediction_logits[there], **CLOSE)
    itm = head_of(read, "itm", Itm().head(network))
    torch.testing.assert_close(itm.logits(network, states, batch), found.cross_relationship_score, **CLOSE)
    asked = Answers([str(n) for n in range(9)], loss="drawn").head(network)
    asked = head_of(read, "answers", asked)
    torch.testing.assert_close(asked.logits(network, states, batch), found.question_answering_score, **CLOSE)
    rows = hidden.flatten().nonzero()[:, 0]
    mrfr = head_of(read, "mrfr", Mrfr(loss="smooth_l1", tied=False).head(network))
    features_of = mrfr(seen(rows=rows, features=features.flatten(0, 1)[rows]))
    classes = {}
    for name, count, wanted, trust in (("objects", 7, objects, sure[0]), ("attributes", 5, attributes, sure[1])):
        head = head_of(read, name, Mrc(count, of="mrfr").head(network))
        targets = {"labels": wanted.flatten()[rows], "weights": trust.flatten()[rows]}
        classes[name] = head(with_made(seen(**targets), features_of))
    expected = theirs.obj_predict_head(found_vision(theirs, inputs))
    torch.testing.assert_close(
        mrfr.predict(network, features_of.outputs["hidden"]), expected["feat"].flatten(0, 1)[rows], **CLOSE
    )
    total = theirs(**inputs, labels=labels, obj_labels=given, matched_label=matched, ans=answers).loss
    cells = TEXTS * REGIONS
    visual = features_of.loss + sum(output.loss for output in classes.values())
    words_lost = mlm(seen(**of_rows(there, labels))).loss / (labels != -100).sum()
    pairs = itm(seen(labels=matched)).loss / TEXTS
    known = torch.nn.functional.one_hot(answers, 9).float()
    answered = asked(seen(scores=known, asked=torch.ones(TEXTS).bool(), labels=answers)).loss / TEXTS
    ours = words_lost + pairs + answered + visual / cells * config.visual_loss_normalizer
    torch.testing.assert_close(ours, total, **CLOSE)


def found_vision(theirs: Any, inputs: dict[str, Tensor]) -> Tensor:
    states: Tensor = theirs.lxmert(**inputs).vision_output
    return states


def with_made(inputs: HeadInputs, output: LossOutput) -> HeadInputs:
    """The same, for a head that comes after mrfr's."""
    inputs._forward.outputs["mrfr"] = output.outputs
    return inputs


@torch.no_grad()
def test_visual_bert(words: Any, jagged: Jagged, tmp_path: Path) -> None:
    there, fields = words
    config = VisualBertConfig(vocab_size=40, **SMALL, num_hidden_layers=2, visual_embedding_dim=16)
    theirs = VisualBertForPreTraining(config).eval()
    network, read = released(theirs, tmp_path)
    features, regions = torch.randn(TEXTS, REGIONS, 16), torch.ones(TEXTS, REGIONS).bool()
    labels = torch.where((torch.rand(TEXTS, ROWS) < 0.4) & there, fields["input_ids"], -100)
    matched = torch.tensor([1, 0, 1])
    found = theirs(
        input_ids=fields["input_ids"],
        attention_mask=there.long(),
        visual_embeds=features,
        visual_attention_mask=regions.long(),
        visual_token_type_ids=torch.ones(TEXTS, REGIONS).long(),
        labels=torch.cat([labels, torch.full((TEXTS, REGIONS), -100)], 1),
        sentence_image_labels=1 - matched,
    )
    batch = jagged(text=(there, fields), image=(regions, {"features": features}))
    states = network(batch)
    mlm, itm = head_of(read, "mlm", MlmHead(network)), head_of(read, "itm", Itm().head(network))
    torch.testing.assert_close(mlm.logits(network, states["text"]), found.prediction_logits[:, :ROWS][there], **CLOSE)
    matching = itm.logits(network, states, batch).flip(1)
    torch.testing.assert_close(matching, found.seq_relationship_logits, **CLOSE)
    words_lost = mlm(HeadInputs.of(network, batch, of_rows(there, labels), states)).loss / (labels != -100).sum()
    pairs = itm(HeadInputs.of(network, batch, {"labels": matched}, states)).loss / TEXTS
    torch.testing.assert_close(words_lost + pairs, found.loss, **CLOSE)
