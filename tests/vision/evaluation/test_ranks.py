"""Several ranks return the same numbers on images as one, and write the same file; each does its share."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.contracts.cases import World as Made
from tests.evaluation.test_objective_task import scored_by_ranks
from tests.training.command_processes import Forked
from tests.vision.evaluation import video_world as video_world
from tests.vision.evaluation.conftest import make_squares, record, tree, write_corpus
from tests.vision.evaluation.tasks import test_caption as of_captions
from tests.vision.evaluation.tasks import test_retrieval as of_retrieval
from tests.vision.evaluation.tasks import test_vqa as of_vqa
from tests.vision.evaluation.tasks import test_zero_shot as of_zero_shot
from vision.evaluation.retrieval import pair_scores as scores
from vision.evaluation.tasks.caption import Caption
from vision.evaluation.tasks.retrieval import Retrieval
from vision.evaluation.tasks.vqa import Vqa
from vision.evaluation.tasks.zero_shot import ZeroShot
from workbench.core.errors import MachineError
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring import evaluation as evaluating
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain


class Case(NamedTuple):
    """A task on a world; `shares` is how often the network is run on each of two ranks."""

    task: DownstreamTask[Any, Any]
    make: Callable[[Path], Made]
    shares: tuple[int, int]
    options: Mapping[str, Any] = MappingProxyType({})


def matching(folder: Path) -> Made:
    make_squares(folder)
    itc = {"objective": "vision.itc", "size": 8, "pool_text": "mean", "pool_image": "mean", "apart": True}
    run, other = (
        pretrain(recipe_from_dict(tree(folder, [objective])), folder / name)
        for name, objective in (("run", {"objective": "vision.itm"}), ("other", {**itc, "view": "contrast"}))
    )
    return Made(run, str(folder / "test"), other, {})


def of_videos(folder: Path, objectives: list[Any]) -> Made:
    video_world.make_videos(folder)
    run = pretrain(recipe_from_dict(video_world.tree(folder, objectives)), folder / "run")
    return Made(run, str(folder / "test"), run, {})


# three at once: of ten images, of texts apart from them, of 200 pairs, of the 40 and 20 that are re-ranked; retrieval
# twice, once more with the features of one image for all
CASES = {
    "vqa": Case(Vqa(), of_vqa.contract_world, (2, 2)),
    "vectors": Case(Retrieval(), of_retrieval.contract_world, (8, 8)),
    "matching": Case(Retrieval(), matching, (68, 66)),
    "re-ranking": Case(Retrieval(), matching, (22, 20), {"rerank": 2}),
    "captions": Case(Caption(), of_captions.contract_world, (0, 0)),
    # of four videos the sixteen captions that twelve segments have
    "vectors of videos": Case(Retrieval(), partial(of_videos, objectives=[video_world.NCE]), (8, 4)),
    "matching of videos": Case(Retrieval(), partial(of_videos, objectives=[video_world.PAIRS]), (64, 64)),
    "captions of videos": Case(
        Caption(), partial(of_videos, objectives=[video_world.WRITES]), (0, 0), {"max_new_tokens": 6}
    ),
    "zero-shot": Case(ZeroShot(), of_zero_shot.contract_world, (4, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_say_what_one_says(name: str, tmp_path: Path) -> None:
    task, make, shares, options = CASES[name]
    made = make(tmp_path)
    if "rerank" in options:
        options = {**options, "first_stage": made.without}
    scoring = task.scoring(run=made.run, corpus=made.corpus, batch_size=3, **made.options, **options)
    results: dict[int, Result] = {}
    accounts: dict[int, Any] = {}
    reads: dict[int, int] = {-1: 0, 0: 0, 1: 0}

    def score(rank: int, world: World) -> None:
        run = task.open(scoring).on(world)
        run.network.register_forward_hook(lambda *_: reads.update({rank: reads[rank] + 1}))
        results[rank] = task.score(run, Corpus.open(made.corpus), scoring)
        accounts[rank] = run.take_account()

    scored_by_ranks(score)
    assert task.gathers
    for rank in range(2):
        reported = ("numbers", "counts", "baselines", "variant")
        assert all(getattr(results[rank], what) == getattr(results[-1], what) for what in reported)
        assert accounts[rank] == accounts[-1]
    assert results[0].predictions.lines == results[-1].predictions.lines  # the main rank writes them
    assert (results[0].examples, results[0].failures) == (results[-1].examples, results[-1].failures)
    assert results[0].examples
    assert (results[1].examples, results[1].failures) == ([], [])
    if shares[0]:
        assert (reads[0], reads[1]) == shares
    assert 0 < reads[1] < reads[-1]


@pytest.mark.scale
def test_two_processes_write_the_file_of_one(tmp_path: Path) -> None:
    """As torchrun starts them, by gloo."""
    made = of_vqa.contract_world(tmp_path / "world")
    words = ["evaluate", "vqa", str(made.run), made.corpus, "--batch-size", "3"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = []
    for rank in range(2):
        at = {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        reported = [*words, "--predictions", str(tmp_path / "two.json")]
        ranks.append(Forked(reported, {**at, "WORLD_SIZE": "2"}, tmp_path / f"output-{rank}.txt"))
    ends = [rank.wait() for rank in ranks]
    assert [code for code, _ in ends] == [0, 0], ends
    [path] = (made.run / "evaluations").glob("*.json")
    two = json.loads(path.read_text())
    one = evaluate(
        Vqa(), Vqa.scoring(run=made.run, corpus=made.corpus, batch_size=3, predictions=tmp_path / "one.json")
    )
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "one.json").read_bytes()
    assert two == json.loads(json.dumps(one.record()))


@pytest.mark.parametrize(
    ("error", "size", "reported"),
    [
        (
            torch.OutOfMemoryError("of 80 GiB"),
            1,
            r"of memory on cpu \(of 80 GiB\)\. Lower --batch-size, or .*bfloat16",
        ),
        (RuntimeError("Connection closed by peer"), 2, "rank 1 of 2 lost the others.* give the same command again"),
    ],
)
def test_what_happens_to_a_machine_is_reported(
    error: Exception, size: int, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Caption, "open", opened)
    monkeypatch.setattr(evaluating, "distributed", lambda: nullcontext(World(size - 1, size)))
    corpus = write_corpus(tmp_path / "corpus", [record(0)])
    with pytest.raises(MachineError, match=reported):
        evaluate(Caption(), Caption.scoring(run=tmp_path, corpus=corpus))


def dtypes(module: torch.nn.Module, seen: set[torch.dtype]) -> None:
    def note(_: Any, __: Any, made: Any) -> None:
        if isinstance(made, Tensor):
            seen.add(made.dtype)

    for each in module.modules():
        if isinstance(each, torch.nn.Linear):
            each.register_forward_hook(note)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_networks_compute_in_half_precision_and_heads_do_not(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, half = matching(tmp_path), getattr(torch, precision)
    seen: dict[str, set[torch.dtype]] = {"network": set(), "head": set(), "first stage": set()}
    plain, first = Retrieval.open, scores._first_stage

    def opened(self: Retrieval, scoring: Any) -> Any:
        run = plain(self, scoring)
        dtypes(run.network.layers, seen["network"])
        dtypes(run.head, seen["head"])
        return run

    def opened_first(*reported: Any) -> Any:
        run = first(*reported)
        dtypes(run.network.layers, seen["first stage"])
        return run

    monkeypatch.setattr(Retrieval, "open", opened)
    monkeypatch.setattr(scores, "_first_stage", opened_first)
    scoring = Retrieval.scoring(run=made.run, corpus=made.corpus, rerank=2, first_stage=made.without)
    whole = evaluate(Retrieval(), scoring)
    assert all(of == {torch.float32} for of in seen.values())
    seen = {name: set() for name in seen}
    some = evaluate(Retrieval(), replace(scoring, precision=precision))
    assert seen == {"network": {half}, "head": {torch.float32}, "first stage": {half}}
    assert some.options == {**whole.options, "precision": precision}
    assert some.numbers.keys() == whole.numbers.keys()
    files = {path.name for path in (made.run / "evaluations").glob("*.json")}
    assert files == {"retrieval-test-rerank=2-first_stage=other.json"} | {
        f"retrieval-test-precision={precision}-rerank=2-first_stage=other.json"
    }
