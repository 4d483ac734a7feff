"""The objective `distil`: each loss against the published formula on a padded batch, and a student that learns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.evaluation.conftest import make_texts, network, prepare, recipe_tree
from tests.objectives.conftest import built
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.objectives.distil import Distil
from workbench.pretraining.forward import ForwardPass, HeadInputs, ViewKey
from workbench.pretraining.objective import Head
from workbench.recipe.spec import NetworkSpec
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.sequences.batch import Batch, collate
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

EXCUSED = "its head compares the states of two networks, or what two other heads hand on"


def stack(words: Tokenizer, width: int, layers: int, heads: int = 2) -> Network:
    torch.manual_seed(width + layers)
    text = {"embedding": "token", "hidden_size": width, "max_positions": 64, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": heads, "dropout": 0.0, "attention_dropout": 0.0}
    spec = NetworkSpec(streams={"text": text}, layers=[{**layer, "repeat": layers}], init_range=0.3)
    return Network(spec, vocab_size=words.vocab_size).eval()


@pytest.fixture(scope="module")
def networks(tokenizer: Tokenizer) -> dict[str, Network]:
    return {"main": stack(tokenizer, 8, 2), "teacher": stack(tokenizer, 16, 4)}


@pytest.fixture(scope="module")
def batch(tokenizer: Tokenizer, make_samples: Any) -> Batch:
    return collate(built(tokenizer, make_samples(3)))


def passed(objective: Distil, networks: dict[str, Network], batch: Batch) -> tuple[Head, HeadInputs]:
    head = objective.head_among(networks["main"], networks)
    keep: dict[str, Any] = {"projections": head.reads_projections, "hidden": head.reads_hidden}
    forward = ForwardPass(networks, {"main": batch}, keep={name: kept for name, kept in keep.items() if kept})
    return head, HeadInputs(forward, ViewKey("main", "main"), {})


def mean_of(objective: Distil, networks: dict[str, Network], batch: Batch) -> tuple[Tensor, Head]:
    head, inputs = passed(objective, networks, batch)
    return head(inputs).loss / objective.count(batch), head


def hidden_states(model: Network, batch: Batch) -> list[Tensor]:
    """The rows before the first layer and after each, by the layers themselves."""
    found: list[Tensor] = [model.embed(batch)["text"]]
    from workbench.models.context import Context

    context = Context(batch)
    for layer in model.layers:
        found.append(layer({"text": found[-1]}, context)["text"])
    return found


def padded(rows: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """[batch, length, width], and which of them are rows."""
    lengths = batch.streams["text"].lengths
    grid = nn.utils.rnn.pad_sequence(list(rows.split(lengths)), batch_first=True)
    return grid, torch.arange(grid.shape[1])[None] < torch.tensor(lengths)[:, None]


def projections(model: Network, number: int, batch: Batch) -> tuple[list[Tensor], Tensor]:
    """q, k, v [batch, heads, length, size] of a layer, as Hugging Face's models have them, and the mask."""
    layer: Any = model.layers[number]
    rows, mask = padded(hidden_states(model, batch)[number], batch)
    three = layer.attention.attention.qkv(rows).chunk(3, -1)
    return [part.unflatten(-1, (2, -1)).transpose(1, 2) for part in three], mask


def test_logits_are_softened_as_in_distilbert_s_code() -> None:
    ours, theirs, other = torch.randn(3, 5, 7).unbind()
    objective = Distil("logits", of="a", taught_by=["b"], temperature=2.0)
    head = objective.head_among(None, {})  # type: ignore[arg-type]
    inputs: Any = type("", (), {"outputs": lambda _, name: {"logits": {"a": ours, "b": theirs, "c": other}[name]}})()
    wanted = nn.KLDivLoss(reduction="batchmean")((ours / 2).log_softmax(-1), (theirs / 2).softmax(-1)) * 2.0**2
    torch.testing.assert_close(head(inputs).loss / len(ours), wanted)
    assert head(inputs).metrics["agreement"][0] == (ours.argmax(-1) == theirs.argmax(-1)).sum()
    several = Distil("logits", of="a", taught_by=["b", "c"]).head_among(None, {})(inputs).loss  # type: ignore[arg-type]
    mean = (theirs.softmax(-1) + other.softmax(-1)) / 2
    torch.testing.assert_close(several, F.kl_div(ours.log_softmax(-1), mean, reduction="sum"))
    squares = Distil("logits_mse", of="a", taught_by=["b", "c"]).head_among(None, {})(inputs).loss  # type: ignore[arg-type]
    torch.testing.assert_close(squares / len(ours), F.mse_loss(ours, (theirs + other) / 2))


def test_hidden_states_are_compared_as_in_tinybert_and_cosines_as_in_distilbert(
    networks: dict[str, Network], batch: Batch
) -> None:
    ours, theirs = (hidden_states(model, batch) for model in networks.values())
    for layers, pairs in (("every", [(1, 2), (2, 4)]), ("embeddings", [(0, 0)]), ([3], [(1, 3)]), ("last", [(2, 4)])):
        found, head = mean_of(Distil("hidden", layers=layers), networks, batch)  # type: ignore[arg-type]
        fit_dense: Any = head.width
        torch.testing.assert_close(found, sum(nn.MSELoss()(fit_dense(ours[s]), theirs[t]) for s, t in pairs))
    found, head = mean_of(Distil("cosine", layers="last"), networks, batch)
    close = nn.CosineEmbeddingLoss(reduction="mean")
    torch.testing.assert_close(found, close(head.width(ours[2]), theirs[4], torch.ones(len(ours[2]))))  # type: ignore[operator]


def test_first_rows_are_compared_as_in_bert_pkd(networks: dict[str, Network], batch: Batch) -> None:
    found, head = mean_of(Distil("first_row", layers="inner"), networks, batch)
    firsts = batch.streams["text"].offsets[:-1]
    s, t = (hidden_states(networks[name], batch)[layer][firsts] for name, layer in (("main", 1), ("teacher", 2)))
    s = head.width(s)  # type: ignore[operator]
    apart = s / s.norm(dim=1, keepdim=True) - t / t.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found, (apart**2).sum(1).mean())


def test_scores_are_compared_as_in_tinybert(networks: dict[str, Network], batch: Batch) -> None:
    """By the mean over each sequence, which is the published one over a batch where all are equally long."""
    found, _ = mean_of(Distil("scores", layers="last"), networks, batch)
    (qs, ks, _), mask = projections(networks["main"], 1, batch)
    (qt, kt, _), _ = projections(networks["teacher"], 3, batch)
    both = [q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 for q, k in ((qs, ks), (qt, kt))]
    each = [nn.MSELoss()(*(part[i][:, seen][:, :, seen] for part in both)) for i, seen in enumerate(mask)]
    torch.testing.assert_close(found, torch.stack(each).mean())


@pytest.mark.parametrize("heads", [None, 4])
def test_relations_are_compared_as_in_minilm(networks: dict[str, Network], batch: Batch, heads: int | None) -> None:
    objective = Distil("relations", layers="last", relations=["qk", "vv"], relation_heads=heads)
    found, _ = mean_of(objective, networks, batch)
    wanted = torch.zeros(())
    for one, other in ((0, 1), (2, 2)):
        log_softs = []
        for model, number in ((networks["main"], 1), (networks["teacher"], 3)):
            parts, mask = projections(model, number, batch)
            if heads:
                parts = [part.transpose(1, 2).flatten(2).unflatten(2, (heads, -1)).transpose(1, 2) for part in parts]
            scores = parts[one] @ parts[other].transpose(-1, -2) / parts[one].shape[-1] ** 0.5
            log_softs.append(scores.masked_fill(~mask[:, None, None], -1e9).log_softmax(-1))
        per_row = F.kl_div(*log_softs, log_target=True, reduction="none").sum(-1).mean(1)
        wanted = wanted + per_row[mask].mean()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_what_cannot_be_compared_is_refused(networks: dict[str, Network], batch: Batch, tokenizer: Tokenizer) -> None:
    def refused(words: str, **options: Any) -> None:
        with pytest.raises(WorkbenchError, match=words):
            mean_of(Distil(**options), networks | {"wide": stack(tokenizer, 8, 3, heads=4)}, batch)

    refused("name them: of: classify", loss="logits")
    refused("unknown network 'typo'", loss="hidden", teacher="typo")
    refused("teacher's 3, which is no multiple", loss="hidden", teacher="wide")
    refused("each from 1 to 4", loss="hidden", layers=[5])
    refused("embeddings have no attention", loss="scores", layers="embeddings")
    refused("2 heads and its teacher 4", loss="scores", teacher="wide", layers="last")
    refused("does not divide the width 8", loss="relations", relation_heads=3, layers="last")


def test_a_student_comes_closer_to_its_teacher_and_resumes_exactly(tmp_path: Path) -> None:
    rows = [{"text": f"the red house is number {n}", "labels": {"hour": "ab"[n % 2]}} for n in range(16)]
    corpus = prepare(tmp_path, "labelled", rows)
    hour = {"objective": "classify", "classes": ["a", "b"], "label": "hour", "dropout": 0.0}
    small, large = ({**network(width), "poolers": ["text"]} for width in (8, 16))
    objectives = [
        hour,
        {**hour, "name": "said", "network": "teacher", "targets": "classify", "weight": 0},
        {"objective": "distil", "loss": "logits", "of": "classify", "taught_by": ["said"], "temperature": 2},
        {"objective": "distil", "name": "states", "loss": "hidden", "weight": {"from": 1, "to": 0, "shape": "cosine"}},
        {"objective": "distil", "name": "relations", "loss": "relations", "layers": "last"},
    ]
    tree = recipe_tree(
        make_texts(tmp_path), {"teacher": {**large, "frozen": True, "init_range": 0.5}, "main": small}, objectives
    )
    tree["tasks"]["text"]["corpora"] = [corpus]
    tree["train"] |= {"max_steps": 12, "lr": 1e-2, "log_every": 4}
    whole = load(pretrain(recipe_from_dict(tree), tmp_path / "run"))
    assert not whole.model.heads["said"].training
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for name in ("states", "relations", "distil"):
        assert lines[-1][f"{name}/loss"] < lines[0][f"{name}/loss"]
    assert verify_resume(recipe_from_dict(tree), tmp_path / "compared", steps=4).equal
