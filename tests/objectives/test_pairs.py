"""nsp and sop: which second segment a sample gets, and the head."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws, generator
from workbench.objectives._pair import PairHead
from workbench.objectives.nsp import Nsp
from workbench.objectives.sop import Sop
from workbench.sequences.builders.sentence_pair import SentencePairBuilder
from workbench.sequences.segments import in_two, segments_of, sentence_pairs, swapped


def draws(number=0):
    return Draws(0, "task", "pair", number=(number,))


def moved(mentions, by):
    return [[m[0] + by, m[1] + by, *m[2:]] for m in mentions]


def test_splitting_keeps_the_text_and_the_mentions(make_samples):
    cuts = set()
    for seed, sample in enumerate(make_samples(40)):
        pair = in_two(sample, generator(seed).random())
        first, second = pair["text"], pair["second"]
        assert first + second == sample["text"]
        assert pair["follows"]
        assert first.rstrip().endswith(".")
        everything = [*pair["spans"], *moved(pair["second_spans"], len(first))]
        assert everything == sample["spans"]
        assert [*pair["mask_spans"], *moved(pair["second_mask_spans"], len(first))] == sample["mask_spans"]
        cuts.add(len(first))
        assert in_two(pair, 0.5) is pair
        assert swapped(swapped(pair)) == {**pair, "follows": False}
    assert len(cuts) > 10


def test_no_cut_inside_a_mention():
    sample = {"text": "St. Paul. is old", "spans": [[0, 8, "Q1", 1.0]]}
    for seed in range(20):
        assert in_two(sample, seed / 20)["text"] == "St. Paul. "
    assert "second" not in in_two({"text": "Paris", "spans": []}, 0.5)
    assert "second" not in in_two({"text": "New York", "spans": [[0, 8, "Q60", 1.0]]}, 0.5)
    assert "second" not in in_two({"text": "One sentence, of several words."}, 0.5)


def test_pairs_of_sentences_are_the_text_two_by_two():
    """The last of an odd number goes to the pair before it; a mention over two sentences keeps them together."""
    text = "One. Two. Three is old. Four! Five?"
    spans = [[0, 3, "Q1", 1.0], [24, 28, "Q4", 1.0], [30, 34, "Q5", 1.0]]
    sample = {"text": text, "spans": spans, "draw": (7,)}
    pairs = sentence_pairs(sample)
    assert [(p["text"], p["second"]) for p in pairs] == [("One. ", "Two. "), ("Three is old. ", "Four! Five?")]
    assert [p["draw"] for p in pairs] == [(7, 0), (7, 1)]
    assert [p["follows"] for p in pairs] == [True, True]
    assert pairs[0]["spans"] == [[0, 3, "Q1", 1.0]]
    assert [p["second_spans"] for p in pairs] == [[], [[0, 4, "Q4", 1.0], [6, 10, "Q5", 1.0]]]
    joined = sentence_pairs({"text": text, "spans": [[5, 20, "Q2", 1.0]]})
    assert [(p["text"], p["second"]) for p in joined] == [("One. ", "Two. Three is old. "), ("Four! ", "Five?")]
    for whole in ({"text": "One sentence."}, {"text": ""}, {"text": "A. B.", "second": "C."}):
        assert sentence_pairs(whole) == [whole]


def test_next_sentences_of_pairs_of_sentences(make_samples, tokenizer):
    samples = make_samples(24)
    arranged = Nsp(pairs="sentences").arrange(samples, draws())
    assert [s["text"] for s in arranged] == [p["text"] for sample in samples for p in sentence_pairs(sample)]
    assert len(arranged) > len(samples)
    seconds = {p["second"] for sample in samples for p in sentence_pairs(sample)}
    assert {s["second"] for s in arranged} <= seconds
    labels = [s["labels"]["nsp"] for s in arranged]
    assert set(labels) == {0, 1}
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / len(labels) ** 0.5
    sequences = SentencePairBuilder(tokenizer, 64)(arranged, draws())
    assert len({s.draw for s in sequences}) == len({s.group for s in sequences}) == len(arranged)
    assert [s.labels["nsp"] for s in sequences] == labels


def test_half_of_the_seconds_are_another_records(make_samples):
    labels = []
    for number in range(25):
        samples = [{**s, "draw": (number, *s["draw"])} for s in make_samples(32, seed=number)]
        arranged = Nsp().arrange(samples, draws(number))
        own = {s["key"]: s["text"] for s in samples}
        seconds = []
        for sample in arranged:
            label = sample["labels"]["nsp"]
            labels.append(label)
            together = sample["text"] + sample["second"]
            assert (together == own[sample["key"]]) == (label == 0)
            assert sample["follows"] == (label == 0)
            seconds.append(sample["second"])
        # They are exchanged, so every second is still read once.
        assert sorted(seconds) == sorted(own[s["key"]][len(s["text"]) :] for s in arranged)
    assert set(labels) == {0, 1}
    assert abs(sum(labels) - len(labels) / 2) < 4 * np.sqrt(len(labels)) / 2


def test_a_third_each_follows_comes_before_or_is_another_records(make_samples):
    counts = np.zeros(3, int)
    for number in range(25):
        samples = [{**s, "draw": (number, *s["draw"])} for s in make_samples(32, seed=number)]
        own = {s["key"]: s["text"] for s in samples}
        for sample in Nsp(random=1 / 3, previous=1 / 3).arrange(samples, draws(number)):
            first, second, whole = sample["text"], sample["second"], own[sample["key"]]
            label = sample["labels"]["nsp"]
            assert label == (0 if whole == first + second else 2 if whole == second + first else 1)
            assert sample["follows"] == (label == 0)
            counts[label] += 1
    total = counts.sum()
    assert (np.abs(counts - total / 3) < 4 * np.sqrt(total * 2 / 9)).all()


def test_shares_of_more_than_one_together_are_refused():
    with pytest.raises(WorkbenchError, match=r"random = 0.6, previous = 0.6; allowed: shares of at most 1 together"):
        Nsp(random=0.6, previous=0.6)


def test_labels_do_not_depend_on_who_else_is_there(make_samples):
    samples = make_samples(16)
    whole = {s["key"]: s["labels"]["nsp"] for s in Nsp().arrange(samples, draws())}
    some = {s["key"]: s["labels"]["nsp"] for s in Nsp().arrange(samples[:7], draws())}
    assert some == {key: whole[key] for key in some}


@pytest.mark.parametrize("objective", [Nsp(random=1.0), Sop(swap=1.0)])
def test_what_a_mixture_reads_otherwise_than_in_both_directions_stays_as_it_is(objective, make_samples):
    """UniLM: the target follows its source, and what is read one way is one segment."""
    seen = ["bidirectional", "prefix", "causal", "anticausal"] * 4
    samples = [{**s, "visibility": v} for s, v in zip(make_samples(16), seen, strict=True)]
    arranged = objective.arrange(samples, draws())
    for before, after in zip(samples, arranged, strict=True):
        both = before["visibility"] == "bidirectional"
        assert after["labels"].pop(objective.name) == (1 if both else -100)
        assert both or after == {**before, "labels": {}}


def test_windows_of_one_record_are_no_random_seconds(make_samples):
    samples = [{**s, "key": "book"} for s in make_samples(8)]
    labels = [s["labels"]["nsp"] for s in Nsp().arrange(samples, draws())]
    assert set(labels) == {0, -100}


def test_sop_swaps_half(make_samples):
    samples = make_samples(300, 30)
    swaps = 0
    for original, sample in zip(samples, Sop().arrange(samples, draws()), strict=True):
        swap = sample["labels"]["sop"]
        first, second = sample["text"], sample["second"]
        assert original["text"] == (second + first if swap else first + second)
        for side in segments_of(sample):
            for start, end, entity, _ in side["spans"]:
                assert side["text"][start:end] == entity.removeprefix("Q-")
        swaps += swap
    assert abs(swaps - 150) < 4 * np.sqrt(75)


def test_nsp_and_sop_respect_each_other(make_samples):
    samples, others = make_samples(40), Draws(0, "task", "sop", number=(0,))
    after_nsp = Sop().arrange(Nsp().arrange(samples, draws()), others)
    assert {(s["labels"]["nsp"], s["labels"]["sop"]) for s in after_nsp} == {(1, -100), (0, 0), (0, 1)}
    after_sop = Nsp().arrange(Sop().arrange(samples, others), draws())
    assert {(s["labels"]["sop"], s["labels"]["nsp"]) for s in after_sop} == {(1, -100), (0, 0), (0, 1)}


def test_samples_that_cannot_be_split_have_no_label():
    samples = [{"key": str(i), "corpus": "c", "draw": (i,), "text": "boats"} for i in range(4)]
    for made in (Nsp(), Sop()):
        assert {s["labels"][made.name] for s in made.arrange(samples, draws())} == {-100}


def test_head_equals_hugging_face_bert(shared, make_network):
    folder = shared / "golden" / "hf" / "bert"
    weights, outputs = load_file(folder / "weights.safetensors"), load_file(folder / "outputs.safetensors")
    network = make_network(hidden_size=32)
    pooler = network.poolers["text"].dense
    pooler.weight.data, pooler.bias.data = (weights[f"bert.pooler.dense.{p}"] for p in ("weight", "bias"))
    head = PairHead(network)
    head.load_state_dict({f"classifier.{p}": weights[f"cls.seq_relationship.{p}"] for p in ("weight", "bias")})
    logits = head.logits(network, network.poolers["text"](outputs["hidden.3"][:, 0]))
    torch.testing.assert_close(logits, outputs["seq_relationship_logits"], rtol=0, atol=1e-5)
