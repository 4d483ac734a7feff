"""Answers as classification: losses against plain loops, counts, soft labels."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from vision.answers.answer_vocabulary import AnswerVocabulary
from vision.objectives.answers import Answers, AnswersHead, FusedAnswersHead
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError
from workbench.models.initialisation import initialise
from workbench.models.network import Network
from workbench.sequences.sequence import Sequence

STILL = {"seed": "nothing is drawn", "originals": "no row is changed"}
UNKNOWN = {"accuracy": "a question without a known answer is asked and not learned"}
CASES = {
    "": ObjectiveCase({"answers": ["yes", "no", "red"]}, STILL),
    "best": ObjectiveCase({"answers": ["yes", "no", "red"], "loss": "cross_entropy"}, STILL | UNKNOWN),
    "fused": ObjectiveCase(
        {"answers": ["yes", "no", "red"], "fused": ["text", "image"]},
        STILL | {"rows": "the means of all rows are read"},
        reads=("text", "image"),
    ),
    "drawn": ObjectiveCase(
        {"answers": ["yes", "no", "red"], "loss": "drawn"}, UNKNOWN | {"originals": STILL["originals"]}
    ),
}

ASKED = [
    ["yes"] * 10,
    ["red"] * 3 + ["yes"] * 2 + ["unknown"] * 5,
    ["unknown"] * 10,
    ["2"] * 4 + ["no"] * 6,
]


def answers(**options: Any) -> Answers:
    objective = Answers(["yes", "no", "red", "2"], **options)
    objective.name = "answers"
    return objective


@pytest.fixture
def asked(sequences: list[Sequence]) -> list[Sequence]:
    made = copy.deepcopy(sequences[: len(ASKED)])
    for sequence, given in zip(made, ASKED, strict=True):
        sequence.meta["answers"] = given
    return made


def logits_of(network: Network, batch: Any) -> torch.Tensor:
    torch.manual_seed(0)
    head = answers().head(network)
    assert isinstance(head, AnswersHead)
    return head.logits(network, network(batch), batch)


def test_sets_of_right_answers(asked: list[Sequence], corrupted: Any) -> None:
    asked[0].meta["answers"] = ["red", "yes"]
    _, batch = corrupted(answers(all_right=True), asked[:2])
    assert batch.targets["answers"]["scores"].tolist() == [[1, 0, 1, 0], [1, 0, 1, 0]]


def test_bce_is_the_sum_over_answers(
    asked: list[Sequence], tiny: Callable[..., Network], corrupted: Any, loss: Any
) -> None:
    network = tiny()
    _, batch = corrupted(answers(), asked)
    output = loss(answers(), network, batch)
    scores = [[1, 0, 0, 0], [0.6, 0, 0.9, 0], [0, 0, 0, 0], [0, 1, 0, 1]]
    expected = 0.0
    for row, wanted in zip(logits_of(network, batch).tolist(), scores, strict=True):
        for z, y in zip(row, wanted, strict=True):
            expected += -(y * math.log(1 / (1 + math.exp(-z))) + (1 - y) * math.log(1 - 1 / (1 + math.exp(-z))))
    assert batch.targets["answers"]["scores"].tolist() == [pytest.approx(row) for row in scores]
    assert output.loss.item() == pytest.approx(expected, rel=1e-5)
    assert answers().count(batch) == 4


def test_cross_entropy_takes_the_best_answer(
    asked: list[Sequence], tiny: Callable[..., Network], corrupted: Any, loss: Any
) -> None:
    network = tiny()
    objective = answers(loss="cross_entropy")
    _, batch = corrupted(objective, asked)
    logits = logits_of(network, batch).log_softmax(1)
    expected = -(logits[0, 0] + logits[1, 2] + logits[3, 1])
    assert loss(objective, network, batch).loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert objective.count(batch) == 3  # the third has no answer in the vocabulary


def test_one_answer_is_drawn_by_the_scores(
    asked: list[Sequence], tiny: Callable[..., Network], corrupted: Any, loss: Any
) -> None:
    """LXMERT's pretraining: the label is an answer, as often as its share of the scores."""
    network, objective = tiny(), answers(loss="drawn")
    drawn = torch.cat([corrupted(objective, asked, seed)[1].targets["answers"]["labels"] for seed in range(300)])
    labels = drawn.view(300, 4)
    assert (labels[:, 0] == 0).all()
    assert set(labels[:, 1].tolist()) == {0, 2}
    assert abs(float((labels[:, 1] == 2).float().mean()) - 0.9 / 1.5) < 4 * math.sqrt(0.24 / 300)
    assert (labels[:, 2] == -100).all(), "no answer in the vocabulary"
    assert set(labels[:, 3].tolist()) == {1, 3}
    _, batch = corrupted(objective, asked)
    logits = logits_of(network, batch).log_softmax(1)
    expected = -torch.stack([logits[i, label] for i, label in enumerate(labels[0].tolist()) if label >= 0]).sum()
    assert loss(objective, network, batch).loss.item() == pytest.approx(float(expected.detach()), rel=1e-5)
    assert objective.count(batch) == 3


def test_the_vocabulary_may_be_a_file(tmp_path: Path) -> None:
    AnswerVocabulary(("yes", "no", "red")).save(tmp_path / "answers.json")
    with noted() as opened:
        assert Answers(str(tmp_path / "answers.json")).vocabulary.answers == ("yes", "no", "red")
    assert list(opened["answers"]) == [str(tmp_path / "answers.json")], "a run records what it read"
    with pytest.raises(WorkbenchError, match=r"no file lost\.json .*workbench prepare answers CORPUS"):
        Answers("lost.json")


@pytest.mark.parametrize("kind", ["bce", "cross_entropy", "drawn"])
def test_a_question_about_another_image_has_no_answer(
    kind: str, asked: list[Sequence], tiny: Callable[..., Network], corrupted: Any, loss: Any
) -> None:
    """A question that itm exchanged: the loss is that of the others alone."""
    network, objective = tiny(), answers(loss=kind)
    for sequence, matched in zip(asked, (1, 0, 1, 1), strict=True):
        sequence.labels["matched"] = matched
    _, batch = corrupted(objective, asked)
    _, others = corrupted(objective, [asked[i] for i in (0, 2, 3)])
    assert objective.count(batch) == objective.count(others)
    all_four, three = loss(objective, network, batch), loss(objective, network, others)
    assert all_four.loss.item() == pytest.approx(three.loss.item(), rel=1e-5)
    assert [float(v) for v in all_four.metrics["accuracy"]] == pytest.approx(
        [float(v) for v in three.metrics["accuracy"]]
    )


def test_the_metric_is_the_score_of_the_most_probable_answer(
    asked: list[Sequence], tiny: Callable[..., Network], corrupted: Any, loss: Any
) -> None:
    network = tiny()
    _, batch = corrupted(answers(), asked)
    chosen = logits_of(network, batch).argmax(1).tolist()
    reached, count = loss(answers(), network, batch).metrics["accuracy"]
    scores = batch.targets["answers"]["scores"]
    assert float(reached) == pytest.approx(sum(float(scores[i, c]) for i, c in enumerate(chosen)))
    assert count == 4


@pytest.mark.parametrize("kind", ["bce", "cross_entropy", "drawn"])
def test_questions_with_an_answer_in_the_vocabulary_are_counted(
    kind: str, asked: list[Sequence], tiny: Callable[..., Network], corrupted: Any, loss: Any
) -> None:
    network, objective = tiny(), answers(loss=kind)
    _, batch = corrupted(objective, asked)
    known, count = loss(objective, network, batch).metrics["in_vocabulary"]
    assert (known, count) == (3, 4)  # nobody knew an answer to the third


def test_gradients_reach_text_and_image(
    asked: list[Sequence], tiny: Callable[..., Network], corrupted: Any, loss: Any
) -> None:
    network = tiny()
    _, batch = corrupted(answers(), asked)
    loss(answers(), network, batch).loss.backward()
    for name in ("text", "image"):
        gradients = [p.grad for p in network.embeddings[name].parameters() if p.grad is not None]
        assert any(g.abs().sum() > 0 for g in gradients), name
        assert all(torch.isfinite(g).all() for g in gradients)


def test_a_fused_head_multiplies_the_mean_rows_of_text_and_image(
    asked: list[Sequence], tiny: Callable[..., Network], corrupted: Any
) -> None:
    """A stream without rows is left out, in a sequence and in a batch (question-only)."""
    network = tiny()
    objective = answers(fused=["text", "image"])
    asked[1].streams["image"] = {name: values[:0] for name, values in asked[1].streams["image"].items()}
    _, batch = corrupted(objective, asked)
    head = objective.head(network).eval()
    assert isinstance(head, FusedAnswersHead)
    states = network(batch)
    for row, logits in enumerate(head.logits(network, states, batch)):
        product = torch.ones(16)
        for name in ("text", "image"):
            begin, end = batch.streams[name].offsets[row : row + 2].tolist()
            if end > begin:
                norm, _, linear, _ = head.maps[name]
                mean = states[name][begin:end].mean(0)
                scaled = (mean - mean.mean()) / (mean.var(unbiased=False) + norm.eps).sqrt()
                product = product * (linear.weight @ scaled + linear.bias).clamp(min=0)
        torch.testing.assert_close(logits, head.outer.weight @ product + head.outer.bias, atol=1e-5, rtol=1e-4)
    for sequence in asked:
        del sequence.streams["image"]
    _, blind = corrupted(objective, asked)
    assert torch.isfinite(head.logits(network, network(blind), blind)).all()


def test_biases_begin_at_the_frequencies_of_the_answers(tiny: Callable[..., Network]) -> None:
    shares = [0.5, 0.3, 0.1, 0.01]
    for fused in (None, ["text"]):
        head = answers(frequencies=shares, fused=fused).head(tiny())
        initialise(head, 0.02)
        torch.testing.assert_close(head.state_dict()["outer.bias"].sigmoid(), torch.tensor(shares))
    with pytest.raises(WorkbenchError, match="frequencies has 1 entries for 4 answers"):
        answers(frequencies=[0.5])


def test_wrong_inputs(sequences: list[Sequence], tiny: Callable[..., Network], corrupted: Any) -> None:
    with pytest.raises(WorkbenchError, match="has no answers"):
        corrupted(answers(), sequences)
    with pytest.raises(WorkbenchError, match="two or more different answers"):
        Answers(["yes", "yes"])
    bare = tiny()
    del bare.poolers["text"]
    with pytest.raises(WorkbenchError, match="poolers"):
        answers().head(bare)
