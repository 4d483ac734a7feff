"""word2vec: what is drawn, and one step compared with gensim's; context2vec by its equations."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.objectives.neighbours import ContextHead, Neighbours, kept_shares
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields
from workbench.text.token_counts import save_token_counts

FOLDER = TemporaryDirectory()  # kept as long as the tests run
COUNTS = Path(FOLDER.name) / "counts.json"
SIZE = tokenizer().vocab_size
FOUND = np.random.default_rng(0).integers(1, 500, SIZE)
save_token_counts(COUNTS, FOUND, tokenizer().identity, {})


def labels_are_near(before: Any, after: Any, shared: Any) -> None:
    """Of skip-gram each label is the token of a row at most `window` rows away that is not left out."""
    target, ids = after.targets["it"], before.fields("text")["input_ids"]
    for row, label in zip(target["rows"].index, target["labels"], strict=True):
        near = [r for r in range(row - 2, row + 3) if r != row and 0 <= r < len(ids)]
        assert label in ids[near]


def words_are_the_labels(before: Any, after: Any, shared: Any) -> None:
    target = after.targets["it"]
    assert np.array_equal(before.fields("text")["input_ids"][target["rows"].index], target["labels"])
    assert np.array_equal(np.unique(target["of"].index), target["rows"].index)


def labels_are_the_words(before: Any, after: Any, shared: Any) -> None:
    target, ids = after.targets["it"], before.fields("text")["input_ids"]
    assert np.array_equal(ids[target["rows"].index], target["labels"])
    assert np.array_equal(target["rows"].index, np.flatnonzero(after.fields("text")["taken"]))


OPTIONS = {"counts": str(COUNTS), "subsample": 0.0}
CASES = {
    "": ObjectiveCase(
        {**OPTIONS, "window": 2}, {"rows": "a row has several"}, {"builder": "document"}, labels=20, small=0,
        recover=labels_are_near,
    ),
    "cbow": ObjectiveCase(
        {**OPTIONS, "by": "cbow"}, {"rows": "neighbours are read"}, {"builder": "document"}, labels=20, small=0,
        recover=words_are_the_labels,
    ),
    "context": ObjectiveCase(
        {**OPTIONS, "by": "context"}, {"rows": "the rows on both sides are read"}, {"builder": "document"}, small=1,
        recover=labels_are_the_words,
    ),
}  # fmt: skip


def vectors() -> Network:
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 8, "max_positions": None, "token_types": 0, "dropout": 0, "norm": None}
    return Network(NetworkSpec({"text": text}, [{"layer": "tap", "name": "vectors"}], init_range=0.5), vocab_size=SIZE)


def made(ids: list[int], **options: Any) -> tuple[Neighbours, Sequence]:
    objective = Neighbours(tokenizer(), **{**OPTIONS, **options})
    objective.name = "it"
    sequence = Sequence({"text": text_fields(np.array(ids))}, (0,))
    objective.corrupt([sequence], Draws(0, "t", "it", number=(0,)))
    return objective, sequence


BOTH = pytest.mark.parametrize("by", ["skip_gram", "cbow"])


def gradients(network: Network, head: Any, batch: Any, targets: Any) -> tuple[float, list[np.ndarray]]:
    """The loss, and its gradients of the vectors that are read and of those that are predicted."""
    weights = [network.embeddings["text"].token.weight, head.output.weight]
    loss = head(HeadInputs.of(network, batch, targets, network(batch))).loss
    return float(loss.detach()), [each.numpy() for each in torch.autograd.grad(loss, weights)]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@BOTH
def test_the_gradients_are_those_of_the_formula(by: str) -> None:
    """Each pair by itself: (sigmoid(q . u) - y) of the right word and of each negative, as in the released code."""
    objective, sequence = made([20, 21, 22, 23, 24, 25], by=by, negatives=30, window=2)
    network, batch = vectors(), collate([sequence])
    head = objective.head(network)
    torch.nn.init.normal_(head.output.weight)
    target, ids = sequence.targets["it"], sequence.fields("text")["input_ids"]
    read, predicted = (w.detach().numpy() for w in (network.embeddings["text"].token.weight, head.output.weight))
    wanted = [np.zeros_like(read), np.zeros_like(predicted)]
    total = 0.0
    for row, label, negatives in zip(target["rows"].index, target["labels"], target["negatives"], strict=True):
        near = ids[[row]] if by == "skip_gram" else ids[target["neighbours"].index[target["of"].index == row]]
        query = read[near].mean(0)
        words = np.array([label, *(n for n in negatives if n != label)])
        truth = np.arange(len(words)) == 0
        chance = sigmoid(predicted[words] @ query)
        total -= float(np.log(np.where(truth, chance, 1 - chance)).sum())
        np.add.at(wanted[1], words, (chance - truth)[:, None] * query)
        np.add.at(wanted[0], near, (chance - truth) @ predicted[words] / len(near))
    loss, found = gradients(network, head, batch, batch.targets["it"])
    assert loss == pytest.approx(total, rel=1e-5)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@BOTH
def test_steps_are_gensims(by: str) -> None:
    """Two words of a text, each with the one negative that gensim is left to draw. gensim looks its sigmoid up in a
    table, with an error of up to 0.015."""
    gensim = pytest.importorskip("gensim.models.word2vec")
    objective, sequence = made([20, 21], by=by, negatives=1, window=1)
    network, batch = vectors(), collate([sequence])
    head = objective.head(network)
    torch.nn.init.normal_(head.output.weight, std=0.5)
    model = gensim.Word2Vec(vector_size=8, window=1, negative=1, min_count=0, sg=by == "skip_gram", sample=0)
    model.build_vocab_from_freq({number: SIZE - number for number in range(SIZE)})
    assert model.wv.index_to_key == list(range(SIZE))
    weights = [network.embeddings["text"].token.weight, head.output.weight]
    model.wv.vectors[:], model.syn1neg[:] = (weight.detach().numpy() for weight in weights)
    begun = [weight.detach().numpy().copy() for weight in weights]
    model.cum_table[:] = np.where(np.arange(SIZE) < 30, 0, model.cum_table[-1])  # it draws the word 30
    rate = 0.5
    train = gensim.train_batch_sg if by == "skip_gram" else gensim.train_batch_cbow
    buffers = [np.zeros(8, np.float32) for _ in range(1 if by == "skip_gram" else 2)]
    train(model, [[20, 21]], rate, *buffers, False)
    order = [1, 0] if by == "skip_gram" else [0, 1]  # gensim first predicts the first word from its neighbour
    for number in order:
        one = {name: value[number : number + 1] for name, value in batch.targets["it"].items()}
        one["negatives"] = torch.tensor([[30]])
        if by == "cbow":
            one |= {"of": torch.tensor([number]), "neighbours": torch.tensor([1 - number])}
        for weight, gradient in zip(weights, gradients(network, head, batch, one)[1], strict=True):
            weight.data -= rate * torch.from_numpy(gradient)
    for ours, theirs, was in zip(weights, (model.wv.vectors, model.syn1neg), begun, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, atol=1e-2)
        assert np.abs(theirs - was).max() > 0.1


def test_negatives_follow_frequencies_and_frequent_words_are_left_out() -> None:
    _, sequence = made([20, 21] * 400, negatives=10, window=1)
    drawn = np.bincount(sequence.targets["it"]["negatives"].ravel(), minlength=SIZE)
    shares = np.where(np.isin(np.arange(SIZE), tokenizer().special_ids), 0, FOUND) ** 0.75
    wanted = shares / shares.sum()
    assert not drawn[tokenizer().special_ids].any()
    spread = np.sqrt(wanted * (1 - wanted) / drawn.sum())
    assert np.all(np.abs(drawn / drawn.sum() - wanted) <= 5 * spread)
    kept = kept_shares(np.array([0, 1, 100, 9899]), 0.01)
    np.testing.assert_allclose(kept, [1, 1, 1, np.sqrt(1 / 98.99) + 1 / 98.99])
    few = len(made([20, 21] * 400, window=1, subsample=1e-4)[1].targets["it"]["labels"])
    assert 0 < few < len(sequence.targets["it"]["labels"]) / 2


def test_no_pair_crosses_packed_texts_or_has_an_unknown_word() -> None:
    objective = Neighbours(tokenizer(), **OPTIONS, window=5)
    objective.name = "it"
    fields = {**text_fields(np.array([20, 21, tokenizer().id("unk"), 22, 23])), "doc": np.array([0, 0, 0, 1, 1])}
    sequence = Sequence({"text": fields}, (0,))
    objective.corrupt([sequence], Draws(0, "t", "it", number=(0,)))
    target = sequence.targets["it"]
    pairs = set(zip(fields["input_ids"][target["rows"].index], target["labels"], strict=True))
    assert pairs == {(20, 21), (21, 20), (22, 23), (23, 22)}


def both_ways() -> Network:
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 8, "max_positions": None, "token_types": 0, "dropout": 0, "norm": None}
    return Network(
        NetworkSpec({"text": text}, [{"layer": "two_way_lstm", "stream": "text"}], init_range=0.5), vocab_size=SIZE
    )


def test_a_word_is_predicted_from_its_context_and_not_from_itself() -> None:
    ids = [20, 21, 22, 23, 24]
    objective, sequence = made(ids, by="context", negatives=3)
    network, batch = both_ways(), collate([sequence])
    head, targets = objective.head(network), batch.targets["it"]
    assert isinstance(head, ContextHead)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    assert targets["rows"].tolist() == [1, 2, 3]  # those between two others
    loss = head(HeadInputs.of(network, batch, targets, network(batch))).loss
    total, rows = 0.0, network(batch)["text"].detach()
    with torch.no_grad():
        for row, label, negatives in zip([1, 2, 3], ids[1:4], targets["negatives"].tolist(), strict=True):
            around = torch.cat([rows[row - 1][:4], rows[row + 1][4:]])
            query = head.projection(torch.relu(head.joined(around)))
            total -= float(torch.log(torch.sigmoid(head.output.weight[label] @ query)))
            for other in (n for n in negatives if n != label):
                total -= float(torch.log(torch.sigmoid(-head.output.weight[other] @ query)))
    assert loss.item() == pytest.approx(total, rel=1e-4)
    fields = text_fields(np.array([*ids[:2], 40, *ids[3:]]))
    other = network(collate([Sequence({"text": fields}, (0,))]))
    queries = [head._queries(states, targets)[1] for states in (network(batch)["text"], other["text"])]
    torch.testing.assert_close(*queries, rtol=0, atol=0)


def test_context_is_of_one_text_and_needs_an_even_width() -> None:
    objective = Neighbours(tokenizer(), **OPTIONS, by="context")
    objective.name = "it"
    fields = {**text_fields(np.array([20, 21, 22, 23, 24, 25])), "doc": np.array([0, 0, 0, 1, 1, 1])}
    sequence = Sequence({"text": fields}, (0,))
    objective.corrupt([sequence], Draws(0, "t", "it", number=(0,)))
    assert sequence.targets["it"]["rows"].index.tolist() == [1, 4]
    odd = {"embedding": "token", "hidden_size": 7, "max_positions": None, "token_types": 0}
    network = Network(NetworkSpec({"text": odd}, [{"layer": "tap", "name": "vectors"}]), vocab_size=SIZE)
    with pytest.raises(WorkbenchError, match="the width of text is 7; allowed: even ones"):
        objective.head(network)
