"""The choice among pairs that layers have read together, against a loop that reads every pair by itself."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.material import FEATURES, draws, make_samples, sequence_of, tokenizer
from vision.objectives.pair_contrast import PairContrast, others
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate

EXCUSED = "it needs a network with a tap, which the contracts' network has not; tested here"


def network() -> Network:
    torch.manual_seed(0)
    quiet = {"num_heads": 2, "intermediate_size": 32, "dropout": 0.0, "attention_dropout": 0.0}
    text = {"embedding": "token", "hidden_size": 16, "vocab_size": tokenizer().vocab_size, "dropout": 0.0}
    image = {"embedding": "vision.regions", "feature_size": FEATURES, "hidden_size": 16, "dropout": 0.0}
    layers = [{"layer": "tap", "name": "apart"}, {"layer": "joint", "streams": ["text", "image"], **quiet}]
    return Network(NetworkSpec({"text": text, "image": image}, layers, ["text"], init_range=0.5)).eval()


@pytest.mark.parametrize("exchange", ["text", "video"])
@pytest.mark.parametrize("negatives", [None, 2])
def test_the_loss_is_that_of_a_loop(exchange: str, negatives: int | None) -> None:
    objective = PairContrast("apart", exchange, negatives, video="image")
    objective.name = "it"
    arranged = objective.arrange(make_samples(9), draws())  # the eighth shows the first one's image, the ninth ...
    sequences = [sequence_of(sample) for sample in arranged]
    for sequence in sequences:
        del sequence.streams["entity"]
    objective.corrupt(sequences, draws())
    batch, net = collate(sequences, {}), network()
    head = objective.head(net).eval()
    got = head(HeadInputs.of(net, batch, batch.targets["it"]))
    ids = batch.targets["it"]["video"].tolist()
    total = 0.0
    for i in range(9):
        rivals = [j for j in [*range(i + 1, 9), *range(i)] if ids[j] != ids[i]][:negatives]
        scores = []
        for j in [i, *rivals]:
            text, video = (j, i) if exchange == "text" else (i, j)
            pair = batch.pick({"text": [text], "image": [video]})
            scores.append(head.match(net, net(pair), pair)[0])
        total -= torch.stack(scores).log_softmax(0)[0].item()
    assert objective.count(batch) == 9
    torch.testing.assert_close(got.loss.item(), total, atol=1e-5, rtol=1e-5)


def test_who_is_exchanged() -> None:
    assert others(torch.tensor([4, 4, 5]), None).tolist() == [[0, 2], [1, 2], [2, 0], [2, 1]]
    assert others(torch.tensor([4, 5, 6]), 1).tolist() == [[0, 1], [1, 2], [2, 0]]
    assert others(torch.tensor([4]), None).tolist() == others(torch.tensor([], dtype=torch.long), 3).tolist() == []


def test_layers_run_as_often_without_negatives() -> None:
    """Under shards the ranks with negatives would wait for those without."""
    objective, counts = PairContrast("apart", "text", None, video="image"), []
    objective.name = "it"
    for number in (3, 1):
        sequences = [sequence_of(sample) for sample in objective.arrange(make_samples(number), draws())]
        for sequence in sequences:
            del sequence.streams["entity"]
        objective.corrupt(sequences, draws())
        batch, net, runs = collate(sequences, {}), network(), list[int]()
        net.layers[1].register_forward_hook(lambda *_, runs=runs: runs.append(1))
        head = objective.head(net).eval()
        assert head(HeadInputs.of(net, batch, batch.targets["it"])).loss.isfinite()
        counts.append(len(runs))
    assert counts[0] == counts[1] == 2
