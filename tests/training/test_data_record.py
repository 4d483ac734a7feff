"""A run records its data: it continues with the same data only, and so do evaluations and fine-tuning."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import workbench
from kg.graph.store import GraphStore
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.spec import Recipe
from workbench.runs.data_record import check_data, keep_data, read_data, refuse_changed, refuse_other
from workbench.runs.names import DATA
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain


@pytest.fixture
def own(recipe: Recipe, world_folder: Path, tmp_path: Path) -> Recipe:
    """The recipe on copies of its data that may be changed."""
    for name in ("train", "held-out"):
        shutil.copytree(world_folder / name, tmp_path / name)
    shutil.copy(world_folder / "tokenizer.json", tmp_path / "tokenizer.json")
    task = replace(recipe.tasks["text"], corpora={str(tmp_path / "train"): 1.0}, held_out=[str(tmp_path / "held-out")])
    return replace(recipe, tasks={"text": task}, tokenizer=str(tmp_path / "tokenizer.json"))


def prepare_again(folder: Path) -> None:
    """Another corpus of as many records at the same place."""
    records = Corpus.open(folder).records
    shutil.rmtree(folder)
    with ShardWriter(folder / "part-000000.tar", kind="text") as writer:
        for i in range(records):
            writer.add(f"r{i}", {"text": "the old river runs past another town.", "spans": [], "meta": {}})
    assert writer.info is not None
    finish_corpus(folder, kind="text", shards=[writer.info], provenance={})


def test_a_run_continues_with_its_own_data_alone(own: Recipe, tmp_path: Path) -> None:
    run = pretrain(own, tmp_path / "run", until=2)
    record = read_data(run)
    assert record is not None
    train = str(tmp_path / "train")
    assert record["read"]["corpus"] == {train: Corpus.open(train).identity}
    assert record["read"]["tokenizer"] == {own.tokenizer: Tokenizer.load(str(own.tokenizer)).identity}
    prepare_again(tmp_path / "held-out")  # recipes may name others too
    pretrain(own, run, until=3)
    reported = f"not that of the steps before 2:\n  corpus {tmp_path / 'held-out'}: other content\n"
    assert reported in (run / "log.txt").read_text()
    prepare_again(tmp_path / "train")
    with pytest.raises(
        WorkbenchError, match=rf"trained on other data:\n  corpus {train}: other content\n.*--accept-changes"
    ):
        pretrain(own, run, until=4)
    assert read_data(run)["read"] == record["read"]  # type: ignore[index]
    pretrain(own, run, until=4, accept_changes=True)
    accepted = {"step": 3, "changes": [f"corpus {train}: other content"], "before": record["read"]}
    assert read_data(run)["accepted"] == [accepted]  # type: ignore[index]
    assert "continues from step 3 with changes" in (run / "log.txt").read_text()
    (run / DATA).unlink()
    pretrain(own, run, until=5)
    assert read_data(run)["since_step"] == 4  # type: ignore[index]


def test_a_changed_shard_stops_training(own: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "train" / "part-000000.tar"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"river", b"RIVER", 1))
    with pytest.raises(WorkbenchError, match=r"part-000000\.tar: the checksum of this shard differs"):
        pretrain(own, tmp_path / "run", until=20)
    careless = replace(own, train=replace(own.train, verify=False))
    pretrain(careless, tmp_path / "careless", until=1)


def test_data_may_move(own: Recipe, tmp_path: Path) -> None:
    run = pretrain(own, tmp_path / "run", until=2)
    record = json.loads((run / DATA).read_bytes())
    record["read"]["corpus"] = {"elsewhere": record["read"]["corpus"][str(tmp_path / "train")]}
    (run / DATA).write_text(json.dumps(record))
    pretrain(own, run, until=3)
    workbench.load(run)


def test_a_changed_tokenizer_of_a_run_is_refused(own: Recipe, tmp_path: Path) -> None:
    run = pretrain(own, tmp_path / "run", until=1)
    path = run / "tokenizer.json"
    path.write_text(path.read_text().replace('"river"', '"rIver"'))
    with pytest.raises(WorkbenchError, match=r"the tokenizer at .* is not the one that .* was trained with"):
        workbench.load(run)
    with noted() as read:
        Tokenizer.load(path)
    with pytest.raises(WorkbenchError, match=r"the tokenizer at .* changed since .* was trained with it"):
        refuse_changed(run, read)  # as fine-tuning does


@pytest.mark.parametrize("damage", ['"rIver"', "{"])
def test_a_damaged_tokenizer_of_a_run_is_named_with_advice_that_fixes(own: Recipe, tmp_path: Path, damage: str) -> None:
    run = pretrain(own, tmp_path / "run", until=1)
    path = run / "tokenizer.json"
    whole = path.read_text()
    path.write_text(whole.replace('"river"', damage))
    with pytest.raises(WorkbenchError, match=rf"^{path} is not the tokenizer .* copied again from {own.tokenizer},"):
        pretrain(own, run, until=2)
    with pytest.raises(WorkbenchError, match=rf"^{path} is not the tokenizer .* copy it back from"):
        pretrain(replace(own, tokenizer=str(path)), run, until=2)
    path.unlink()
    pretrain(own, run, until=2)
    assert path.read_text() == whole


def test_the_advice_after_the_recipes_tokenizer_changed_holds(own: Recipe, tmp_path: Path) -> None:
    run = pretrain(own, tmp_path / "run", until=1)
    path = Path(str(own.tokenizer))
    path.write_text(path.read_text().replace('"river"', '"rIver"'))
    with pytest.raises(WorkbenchError, match=rf"names {path}, which is another; continue with tokenizer={run}/token"):
        pretrain(own, run, until=2)
    pretrain(replace(own, tokenizer=str(run / "tokenizer.json")), run, until=2)


def graph(folder: Path, tail: str) -> GraphStore:
    shutil.rmtree(folder, ignore_errors=True)
    return GraphStore.build([("Q1", "P1", tail)], folder)


def test_a_graph_built_again_from_other_triples(tmp_path: Path) -> None:
    with noted() as read:
        first = graph(tmp_path / "graph", "Q2")
    assert read == {"graph": {str(tmp_path / "graph"): first.identity}}
    run = tmp_path / "run"
    keep_data(run, check_data(run, read, {}, 0, World()))
    graph(tmp_path / "graph", "Q2")
    with noted() as same:
        GraphStore.open(tmp_path / "graph")
    assert same == read
    with noted() as other:
        graph(tmp_path / "graph", "Q3")
    for check in (refuse_other, refuse_changed):
        check(run, same)
        with pytest.raises(WorkbenchError, match=r"the graph at .*graph"):
            check(run, other)
    with pytest.raises(WorkbenchError, match=r"graph .*: other content"):
        check_data(run, other, {}, 5, World())
    with noted() as elsewhere:
        graph(tmp_path / "meant", "Q3")
    refuse_changed(run, elsewhere)  # the recipe names it, so it was meant
    with pytest.raises(WorkbenchError, match="is not the one"):
        refuse_other(run, elsewhere)


def test_an_inner_block_keeps_what_it_collects(tmp_path: Path) -> None:
    with noted() as outer:
        with noted() as inner:
            graph(tmp_path / "graph", "Q2")
        assert list(inner) == ["graph"]
    assert outer == {}


def test_ranks_that_read_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = {"corpus": {"a": "1", "b": "2"}}, {"corpus": {"a": "1", "b": "3"}}
    monkeypatch.setattr(World, "gather", lambda self, value: [value, theirs])
    with pytest.raises(WorkbenchError, match="rank 1 reads other data than rank 0:\n  corpus b: other content"):
        check_data(tmp_path, mine, {}, 0, World())


@pytest.mark.parametrize("content", [b"\xff", b"[]", b"{}", b'{"since_step": 0, "read": {"a": 1}, "held_out": {}}'])
def test_a_damaged_record(tmp_path: Path, content: bytes) -> None:
    (tmp_path / DATA).write_bytes(content)
    with pytest.raises(WorkbenchError, match=r"data\.json is damaged .*remove it"):
        read_data(tmp_path)
    assert read_data(tmp_path / "nowhere") is None


def test_a_tokenizer_is_the_same_in_every_copy(own: Recipe, tmp_path: Path) -> None:
    first = Tokenizer.load(str(own.tokenizer))
    first.save(tmp_path / "folder")
    assert Tokenizer.load(tmp_path / "folder").identity == first.identity
