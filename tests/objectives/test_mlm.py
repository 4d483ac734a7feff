"""mlm: what the selected tokens become, its options and its head."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import draws, make_samples, token_originals, tokenizer
from vision.sequences.image_processors.clip_tokens import ClipTokensProcessor
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws, Numbers
from workbench.objectives.mlm import Mlm, MlmHead
from workbench.pretraining.forward import ViewKey
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import SoftTargets, soft_cross_entropy
from workbench.recipe.spec import Follower
from workbench.sequences.batch import MicroBatch, collate
from workbench.sequences.protocols import Masking
from workbench.sequences.replacement import ReplacementOptions, TokenReplacement
from workbench.sequences.selection import RowGroups
from workbench.sequences.sequence import Sequence, Span, text_fields
from workbench.text.similar_words import save_similar_words

CASE = ObjectiveCase(
    sequence={"builder": "document"},
    small=1,
    recover=token_originals,
    whole={"rate": 1.0, "replace": {"mask": 1.0, "random": 0.0}},
)

DRAWS = Draws(0, "task", "mlm", number=(0,))


def corrupted(made, tokenizer, samples):
    clean = build("builder", "document", "", tokenizer=tokenizer, max_length=512)(samples, DRAWS)
    after = [sequence.copy() for sequence in clean]
    made.corrupt(after, DRAWS)
    return clean, after


def shares(clean, after, made):
    """How many of the selected became the mask, another token, or stayed."""
    masked = changed = stayed = 0
    for a, b in zip(clean, after, strict=True):
        rows = b.targets["mlm"]["rows"].index
        old, new = a.streams["text"]["input_ids"][rows], b.streams["text"]["input_ids"][rows]
        masked += int((new == made.replace.mask_id).sum())
        stayed += int((new == old).sum())
        changed += int(((new != old) & (new != made.replace.mask_id)).sum())
    return np.array([masked, changed, stayed])


def test_replacement_shares(tokenizer, make_samples):
    made = Mlm(tokenizer, rate=0.5)
    counts = shares(*corrupted(made, tokenizer, make_samples(200)), made)
    total, n = counts.sum(), len(tokenizer.ordinary_ids)
    expected = np.array([0.8, 0.1 * (1 - 1 / n), 0.1 + 0.1 / n])
    assert total > 5000
    assert (np.abs(counts - expected * total) < 4 * np.sqrt(expected * (1 - expected) * total)).all()


def test_the_rate_may_move_with_the_progress_of_the_run(tokenizer, make_samples):
    samples = make_samples(200)
    clean = build("builder", "document", "", tokenizer=tokenizer, max_length=512)(samples, DRAWS)
    free = sum((~sequence.streams["text"]["special"]).sum() for sequence in clean)

    def found(made, progress):
        after = [sequence.copy() for sequence in clean]
        made.corrupt(after, Draws(0, "task", "mlm", number=(0,), progress=progress))
        return sum(len(sequence.targets["mlm"]["labels"]) for sequence in after)

    falling = Mlm(tokenizer, rate=0.5, final_rate=0.1)
    for progress, rate in ((0.0, 0.5), (0.25, 0.4), (1.0, 0.1)):
        assert found(falling, progress) == pytest.approx(rate * free, rel=0.15)
    assert found(Mlm(tokenizer, rate=0.3), 0.0) == found(Mlm(tokenizer, rate=0.3), 0.7)


def test_shares_may_be_extreme(tokenizer, make_samples):
    for mask, random, place in ((1.0, 0.0, 0), (0.0, 1.0, 1), (0.0, 0.0, 2)):
        made = Mlm(tokenizer, replace=ReplacementOptions(mask, random))
        counts = shares(*corrupted(made, tokenizer, make_samples(20)), made)
        assert counts.argmax() == place
        assert counts[place] >= 0.9 * counts.sum()


def test_random_tokens_are_ordinary(tokenizer, make_samples):
    made = Mlm(tokenizer, rate=1.0, replace=ReplacementOptions(mask=0.0, random=1.0))
    _, after = corrupted(made, tokenizer, make_samples(60))
    seen = {i for s in after for i in s.streams["text"]["input_ids"][~s.streams["text"]["special"]].tolist()}
    assert not seen & set(tokenizer.special_ids.tolist())
    assert len(seen) > 0.9 * len(tokenizer.ordinary_ids)


def test_replacement_per_group(tokenizer, make_samples):
    made = Mlm(tokenizer, rate=0.5, masking="span", replace=ReplacementOptions(random=0.0, mask=0.5, per="group"))
    clean, after = corrupted(made, tokenizer, make_samples(60))
    fates = []
    for a, b in zip(clean, after, strict=True):
        groups = made.masking([a], "text", made.rate, DRAWS.numbers([a.draw]))
        for rows in groups.by_sequence(np.zeros(1, np.int64))[0]:
            became = b.streams["text"]["input_ids"][rows] == made.replace.mask_id
            assert became.all() or not became.any()
            fates.append(bool(became.all()))
    assert 0.4 < np.mean(fates) < 0.6


def test_max_predictions(tokenizer, make_samples):
    made = Mlm(tokenizer, rate=0.5, masking="whole_word", max_predictions=4)
    _, after = corrupted(made, tokenizer, make_samples(10))
    assert {len(s.targets["mlm"]["labels"]) for s in after} == {4}
    assert all(s.streams["text"]["taken"].sum() == 4 for s in after)


def test_masking_strategy_with_options_and_injected_tokens(tokenizer, make_samples):
    made = Mlm(
        tokenizer, rate=0.05, masking={"masking": "field", "probability": 1.0}, replace=ReplacementOptions(1.0, 0.0)
    )
    clean, after = corrupted(made, tokenizer, make_samples(10))
    for sequence in after:
        [span] = sequence.mask_spans
        assert (sequence.streams["text"]["input_ids"][span.start : span.end] == made.replace.mask_id).all()
    blocked = [sequence.copy() for sequence in clean]
    for sequence in blocked:
        sequence.mask_spans = [Span(1, 4, "")]
        sequence.streams["text"]["taken"][2] = True
    made.corrupt(blocked, DRAWS)
    assert all(2 not in s.targets["mlm"]["rows"].index for s in blocked)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "rate = 0.0"),
        ({"replace": {"mask": 0.9, "random": 0.2}}, "shares of at most 1"),
        ({"replace": {"per": "words"}}, "replace.per = 'words'; allowed: token, word, group"),
        ({"replace": {"masks": 0.9}}, "unknown key 'masks'"),
        ({"head": {"transform": {"norm_eps": 2}}}, "head.transform.norm_eps = 2"),
        ({"max_predictions": 0}, "max_predictions = 0"),
        ({"masking": "wholeword"}, "unknown masking 'wholeword'.* Did you mean 'whole_word'"),
        ({"masking": {"masking": "span", "q": 1}}, "unknown option 'q'"),
    ],
)
def test_options_are_checked(tokenizer, options, message):
    with pytest.raises(WorkbenchError, match=message):
        build("objective", {"objective": "mlm", **options}, tokenizer=tokenizer)


def test_head_equals_hugging_face_bert(shared, make_network, tokenizer):
    """The pretrained head's logits from the published last state (golden numbers of BertForPreTraining)."""
    folder = shared / "golden" / "hf" / "bert"
    weights, outputs = load_file(folder / "weights.safetensors"), load_file(folder / "outputs.safetensors")
    network = make_network(hidden_size=32)
    table = weights["bert.embeddings.word_embeddings.weight"]
    network.embeddings["text"].token = torch.nn.Embedding.from_pretrained(table)
    head = MlmHead(network)
    names = {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"}
    state = {f"{n}.{p}": weights[f"{r}.{p}"] for n, r in names.items() for p in ("weight", "bias")}
    head.load_state_dict({**state, "bias": weights["cls.predictions.bias"]})
    logits = head.logits(network, outputs["hidden.3"].flatten(0, 1))
    torch.testing.assert_close(logits, outputs["prediction_logits"].flatten(0, 1), rtol=0, atol=1e-5)


def test_head_of_a_network_without_tokens(make_network):
    network = make_network()
    del network.embeddings["text"]
    with pytest.raises(WorkbenchError, match="no stream 'text' with a token table"):
        MlmHead(network)


def test_soft_targets_are_those_of_the_moving_average(make_network, tokenizer, make_samples):
    """Network and head of the follower, at the same masked positions, ramped by the run's progress."""
    made = Mlm(tokenizer, soft=SoftTargets("slow", 0.4, ramp=0.5))
    network, slow = make_network(), make_network().requires_grad_(False)
    root = PretrainingModel(
        {"main": network, "slow": slow},
        {"mlm": made.head(network)},
        {"mlm": ViewKey("main", "main")},
        {"slow": Follower("main", 0.9)},
    )
    for parameter in root.averages.parameters():
        parameter.normal_(std=0.5)
    _, after = corrupted(made, tokenizer, make_samples(4))
    batch = collate(after)
    root.progress = 0.25
    output = root(MicroBatch("text", {"main": batch}, {}), ["mlm"])["mlm"]
    targets = batch.targets["mlm"]
    logits, taught = (
        head.logits(of, of(batch)["text"][targets["rows"]])
        for head, of in ((root.heads["mlm"], network), (root.averages["slow"]["mlm"], slow))
    )
    torch.testing.assert_close(output.loss, soft_cross_entropy(logits, targets["labels"], taught, 0.2))
    output.loss.backward()
    assert all(p.grad is None for p in [*slow.parameters(), *root.averages.parameters()])


def test_a_head_without_soft_targets_is_not_copied(make_network, tokenizer):
    assert Mlm(tokenizer).head(make_network()).averaged() is None


def words_selected(sequence):
    """The selected rows, word by word."""
    rows = sequence.targets["mlm"]["rows"].index
    words = sequence.streams["text"]["word_ids"][rows]
    return np.split(rows, np.flatnonzero(np.diff(words)) + 1)


@pytest.fixture
def similar(tokenizer, make_samples, tmp_path):
    """(file, words): to each word of the samples but those of one token belong two of as many tokens."""
    words = set()
    for sequence in build("builder", "document", "", tokenizer=tokenizer, max_length=512)(make_samples(300), DRAWS):
        text = sequence.streams["text"]
        for rows in np.split(np.arange(len(text["word_ids"])), np.flatnonzero(np.diff(text["word_ids"])) + 1):
            words.add(tuple(text["input_ids"][rows].tolist()))
    known = sorted(word for word in words if len(word) > 1)
    table = known + [(t, *rest) for _, *rest in known for t in tokenizer.ordinary_ids[:2].tolist()]
    near = np.full((len(table), 2), -1)
    near[: len(known)] = len(known) + np.arange(2 * len(known)).reshape(-1, 2)
    save_similar_words(tmp_path / "near.safetensors", table, near, tokenizer.identity, {})
    return str(tmp_path / "near.safetensors"), {word: [table[i] for i in near[k]] for k, word in enumerate(known)}


def test_a_word_is_masked_replaced_or_kept_as_a_whole(tokenizer, make_samples):
    made = Mlm(tokenizer, rate=0.5, masking="whole_word", replace=ReplacementOptions(0.5, 0.0, "word"))
    fates = []
    for a, b in zip(*corrupted(made, tokenizer, make_samples(200)), strict=True):
        for rows in words_selected(b):
            masked = b.streams["text"]["input_ids"][rows] == made.replace.mask_id
            assert masked.all() or (b.streams["text"]["input_ids"][rows] == a.streams["text"]["input_ids"][rows]).all()
            fates.append(bool(masked[0]))
    assert abs(np.mean(fates) - 0.5) < 4 * np.sqrt(0.25 / len(fates))


def test_words_become_similar_ones_at_the_published_shares(tokenizer, make_samples, similar):
    file, near = similar
    made = Mlm(tokenizer, rate=0.5, masking="whole_word", replace=ReplacementOptions(per="word", similar=file))
    counts, drawn = np.zeros(3, int), np.zeros(2, int)  # similar, other, as it was
    for a, b in zip(*corrupted(made, tokenizer, make_samples(300)), strict=True):
        old, new = a.streams["text"]["input_ids"], b.streams["text"]["input_ids"]
        np.testing.assert_array_equal(b.targets["mlm"]["labels"], old[b.targets["mlm"]["rows"].index])
        for rows in words_selected(b):
            were, are = tuple(old[rows].tolist()), tuple(new[rows].tolist())
            if were in near:
                place = near[were].index(are) if are in near[were] else None
                counts[0 if place is not None else 2 if are == were else 1] += 1
                drawn[place or 0] += place is not None
            else:
                assert made.replace.mask_id not in are
    total, expected = counts.sum(), np.array([0.8, 0.1, 0.1])
    assert total > 1000
    assert (np.abs(counts - expected * total) < 4 * np.sqrt(expected * (1 - expected) * total) + 0.01 * total).all()
    assert abs(drawn[0] - drawn.sum() / 2) < 2 * np.sqrt(drawn.sum())


def test_a_word_without_similar_ones_or_selected_in_part_becomes_random_tokens(tokenizer, tmp_path):
    first, second, alone = tokenizer.ordinary_ids[:3].tolist()
    save_similar_words(
        tmp_path / "near.safetensors", [(first,), (second,)], np.array([[1], [0]]), tokenizer.identity, {}
    )
    near = str(tmp_path / "near.safetensors")

    def replaced(fields, mask, rows, seed):
        replacing = TokenReplacement(tokenizer, ReplacementOptions(mask, 0.0, "word", near))
        groups = RowGroups(rows, [len(rows)], [0])
        replacing([Sequence({"text": fields}, ())], "text", groups, Numbers.of(np.random.default_rng(seed)))
        return fields["input_ids"]

    assert replaced(text_fields(np.array([first])), 0.0, [0], 0).tolist() == [first]
    became = []
    for seed in range(200):
        fields = text_fields(np.array([first, alone, first, alone]), word_ids=np.array([0, 0, 1, 2]))
        became.append(replaced(fields, 1.0, [0, 2, 3], seed))
    part, kept, whole, unknown = np.array(became).T
    assert set(whole) == {second}
    assert set(kept) == {alone}
    for random in (part, unknown):
        assert len(set(random)) > 20
        assert np.isin(random, tokenizer.ordinary_ids).all()


def test_similar_words_are_of_the_run_s_tokenizer_and_per_word(tokenizer, tmp_path, similar):
    save_similar_words(tmp_path / "other.safetensors", [(1,)], np.array([[-1]]), "another", {})
    with pytest.raises(WorkbenchError, match="those of another tokenizer"):
        Mlm(tokenizer, replace=ReplacementOptions(per="word", similar=str(tmp_path / "other.safetensors")))
    with pytest.raises(WorkbenchError, match="similar words with per = 'token'; allowed: per = 'word'"):
        Mlm(tokenizer, replace=ReplacementOptions(similar=similar[0]))


class Replay:
    """Numbers that are what SpanBERT's published code has drawn."""

    def __init__(self, draws, left_out):
        uniform = [drawn for kind, drawn in draws if kind == "uniform"]
        self.uniform = iter([drawn for place, drawn in enumerate(uniform) if place not in left_out])
        self.token = iter([drawn for kind, drawn in draws if kind == "token"])
        self.keys = np.zeros(1, np.uint64)

    def random(self, counts):
        return np.array([next(self.uniform) for _ in range(counts.sum())])

    def integers(self, below, counts):
        return np.array([next(self.token) for _ in range(counts.sum())], np.int64)


def test_tokens_become_what_they_become_in_spanbert(shared, monkeypatch, tokenizer):
    """Of every recorded example, a draw for each span or for each token; before these there the published code draws
    once more for the span."""
    for example in json.loads((shared / "golden/spanbert/masking/examples.json").read_text()):
        whole, spans = example["settings"]["replacement_method"] == "span", example["merged_spans"]
        made = Mlm(tokenizer, replace=ReplacementOptions(per="group" if whole else "token"))
        made.replace.mask_id, made.replace.ordinary = 4, np.arange(100)
        recorded = [np.arange(first, last + 1) for first, last in spans]
        groups = RowGroups(np.concatenate(recorded), [len(rows) for rows in recorded], np.zeros(len(recorded)))
        made.masking = type("Recorded", (Masking,), {"__call__": lambda *_, groups=groups: groups})()
        begins = np.cumsum([0, *(1 + len(rows) for rows in recorded)])
        replay = Replay(example["draws"], [] if whole else begins)
        draws = Draws(0, number=(0,))
        monkeypatch.setattr(draws, "numbers", lambda _, replay=replay: replay)
        one = Sequence({"text": text_fields(np.array(example["sentence"]))}, (0,))
        made.corrupt([one], draws)
        assert one.streams["text"]["input_ids"].tolist() == example["masked_sentence"]
        target = np.zeros(len(example["sentence"]), np.int64)
        target[one.targets["mlm"]["rows"].index] = one.targets["mlm"]["labels"]
        assert target.tolist() == example["mlm_target"]


def test_codes_of_another_vocabulary_are_masked_by_the_code_behind_them() -> None:
    objective = build(
        "objective", {"objective": "mlm", "rate": 0.5, "codes": 6, "stream": "video"}, "", tokenizer=tokenizer()
    )
    objective.name = "it"
    part, seen = ClipTokensProcessor("tree", 6, "made-up"), set()
    for i, sample in enumerate(make_samples(40)):
        sequence = Sequence({"video": part(sample, None)}, (i,))
        before = sequence.streams["video"]["input_ids"].copy()
        objective.corrupt([sequence], draws())
        rows, labels = sequence.targets["it"]["rows"].index, sequence.targets["it"]["labels"]
        assert 0 not in rows, "the row that begins is none to be predicted"
        np.testing.assert_array_equal(labels, before[rows])
        seen |= set(sequence.streams["video"]["input_ids"][rows].tolist())
    assert 6 in seen
    assert seen <= set(range(7))
    spec = {"objective": "mlm", "codes": 6, "replace": {"similar": "x", "per": "word"}}
    with pytest.raises(WorkbenchError, match="similar words are those of a tokenizer"):
        build("objective", spec, "", tokenizer=tokenizer())
