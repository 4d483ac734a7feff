"""clm: next tokens within documents, causal visibility, no look at the future."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import token_originals
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.objectives.clm import Clm
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate

CASE = ObjectiveCase(
    {},
    {
        "seed": "nothing is drawn",
        "special rows": "the end is predicted too",
    },
    sequence={"builder": "document", "visibility": "causal"},
    small=4,
    recover=partial(token_originals, ahead=1),
    place=lambda rows: rows + 1,
    whole={},
)

DRAWS = Draws(0, "task", "clm", number=(0,))


def built(tokenizer, samples, builder="packed", visibility="causal"):
    spec = {"builder": builder, "visibility": visibility}
    sequences = build("builder", spec, "", tokenizer=tokenizer, max_length=64)(samples, DRAWS)
    Clm().corrupt(sequences, DRAWS)
    return sequences


def test_rank_and_labels_equal_the_plain_loop(tokenizer, make_samples):
    for sequence in built(tokenizer, make_samples(9, 14)):
        text = sequence.streams["text"]
        doc, ids = text["doc"].tolist(), text["input_ids"].tolist()
        ranks = [doc[:i].count(d) for i, d in enumerate(doc)]
        assert text["rank"].tolist() == ranks
        rows = [i for i in range(len(ids) - 1) if doc[i] == doc[i + 1]]
        assert sequence.targets["clm"]["rows"].index.tolist() == rows
        assert sequence.targets["clm"]["labels"].tolist() == [ids[i + 1] for i in rows]


def test_of_a_prefix_nothing_is_predicted(tokenizer, make_samples):
    for sequence in built(tokenizer, make_samples(4, 14), "sentence_pair", "prefix"):
        ids, types = (sequence.streams["text"][name] for name in ("input_ids", "token_type_ids"))
        first = int(types.argmax())
        assert sequence.targets["clm"]["rows"].index.tolist() == list(range(first - 1, len(ids) - 1))
        assert sequence.targets["clm"]["labels"].tolist() == ids[first:].tolist()


def test_sequences_seen_in_both_directions_are_refused(tokenizer, make_samples):
    with pytest.raises(WorkbenchError, match="visibility: causal"):
        built(tokenizer, make_samples(2, 8), "document", "bidirectional")


def test_states_do_not_depend_on_later_tokens(tokenizer, make_samples, make_network):
    network = make_network()
    [sequence] = built(tokenizer, make_samples(1, 12), "document")
    states = network(collate([sequence]))["text"]
    changed = sequence.copy()
    changed.streams["text"]["input_ids"][6:] = tokenizer.ordinary_ids[0]
    again = network(collate([changed]))["text"]
    torch.testing.assert_close(states[:6], again[:6])
    assert not torch.allclose(states[6:], again[6:])


def test_head_is_the_tied_table(tokenizer, make_samples, make_network):
    network = make_network()
    head = Clm().head(network)
    assert list(head.parameters()) == []
    sequences = built(tokenizer, make_samples(3, 12))
    batch = collate(sequences)
    states = network(batch)
    output = head(HeadInputs.of(network, batch, batch.targets["clm"], states))
    table = network.embeddings["text"].token.weight
    total = 0.0
    for row, label in zip(batch.targets["clm"]["rows"], batch.targets["clm"]["labels"], strict=True):
        total -= float(torch.log_softmax(states["text"][row] @ table.T, 0)[label].detach())
    np.testing.assert_allclose(float(output.loss.detach()), total, rtol=1e-5)


def test_labels_are_smoothed_in_training_alone(tokenizer, make_samples):
    """Training takes Szegedy et al.'s mix of a label and all tokens, a held-out pass the label."""
    batch = collate(built(tokenizer, make_samples(3, 14)))
    torch.manual_seed(0)
    given = {"vocab_size": tokenizer.vocab_size}
    streams = {"text": {"embedding": "token", "hidden_size": 8, "max_positions": 64, "dropout": 0.0}}
    network = Network(NetworkSpec(streams, [{"layer": "norm", "stream": "text"}], init_range=0.5), **given)
    head = Clm(smoothing=0.1).head(network)
    rows = network(batch)["text"][batch.targets["clm"]["rows"]]
    log_p = head.logits(network, rows).log_softmax(-1)
    hard = -log_p.gather(1, batch.targets["clm"]["labels"][:, None]).sum()
    inputs = HeadInputs.of(network, batch, batch.targets["clm"])
    torch.testing.assert_close(head.train()(inputs).loss, 0.9 * hard - 0.1 * log_p.mean(1).sum())
    torch.testing.assert_close(head.eval()(inputs).loss, hard)
