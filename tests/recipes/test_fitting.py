"""What does not fit is found before the first step: positions, images, and corpora without what a step reads."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.test_recipes import small_recipe, small_root
from workbench.core.errors import WorkbenchError
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.pretraining.assembly import make_model
from workbench.pretraining.checks import check_fields, check_fit, check_links
from workbench.pretraining.task import build_tasks
from workbench.pretraining.task_corpora import check_corpora, fields_read
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.transforms.languages import LanguagesTransform
from workbench.text.tokenizer import Tokenizer


def changed(recipe: Recipe, change: Any) -> Recipe:
    tree = dataclasses.asdict(recipe)
    change(tree)
    return recipe_from_dict(tree)


def tasks_of(recipe: Recipe, world: Any) -> dict[str, Any]:
    given = {"tokenizer": Tokenizer.load(world.tokenizer), "control": recipe.control}
    return build_tasks(recipe.tasks, seed=0, resources=given)


def test_a_builder_with_more_tokens_than_positions_is_named_with_the_limit(world: Any) -> None:
    recipe = changed(
        small_recipe("bert", world), lambda tree: tree["model"]["streams"]["text"].update(max_positions=500)
    )
    with pytest.raises(
        WorkbenchError, match=r"tasks\.text\.sequence\.max_length = 512 .* 500 positions .*max_positions"
    ):
        small_root(recipe)


def test_positions_beyond_the_table_are_found_on_the_cpu(world: Any) -> None:
    recipe = small_recipe("tiny-knowledge", world)
    tasks = tasks_of(recipe, world)
    make_model(recipe, tasks, Tokenizer.load(world.tokenizer))
    task = tasks["text"]
    sample = {"key": "a", "draw": (0, 0, 0), "text": "Oslo lies in Norway.", "spans": [[0, 4, "T0", 1.0]]}
    vocabulary = task.limits["text"]["input_ids"]
    assert task.limits["text"] == {"input_ids": vocabulary, "position_ids": 128, "token_type_ids": 2}
    assert task.sequences([sample], (0, 0, 0))
    task.limits = {"text": {"position_ids": 5}}
    with pytest.raises(WorkbenchError, match=r"text\.sequence: sequence 'a', .* position \d+, .* max_positions = 5"):
        task.sequences([sample], (0, 0, 0))


@pytest.mark.parametrize(("option", "value"), [("patch", 16), ("size", 64)])
def test_patches_are_those_of_the_embedding(world: Any, option: str, value: int) -> None:
    def change(tree: Any) -> None:
        tree["tasks"]["pairs"]["sequence"]["builder"]["image_processor"][option] = value

    recipe = changed(small_recipe("clip", world), change)
    with pytest.raises(
        WorkbenchError, match=r"tasks\.pairs\.sequence\.image_processor: (patch|grid) = \d+, but model\.streams\.image"
    ):
        small_root(recipe)


def corpus_without_links(folder: Path) -> str:
    with ShardWriter(folder / "part-000000.tar", kind="text") as writer:
        writer.add("r0", {"text": "Oslo lies in Norway.", "meta": {}})
    assert writer.info is not None
    finish_corpus(folder, kind="text", shards=[writer.info], provenance={"command": "test"})
    return str(folder)


@pytest.mark.parametrize("name", ["tiny-knowledge", "demo-ernie-thu"])
def test_knowledge_needs_linked_entities(
    world: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    recipe, plain = small_recipe(name, world), corpus_without_links(tmp_path / "plain")
    tasks = list(tasks_of(recipe, world).values())
    check_links(tasks, None)
    for task in tasks:
        task.spec.corpora = {plain: 1.0, str(world.text): 1.0}
    check_links(tasks, None)
    assert f"{plain} has no linked entities" in caplog.text
    for task in tasks:
        task.spec.corpora = {plain: 1.0}
    with pytest.raises(WorkbenchError, match=r"reads linked entities, and .*plain has none; link it first"):
        check_links(tasks, None)
    check_links(tasks, "no-kg")


def test_what_a_masking_strategy_masks_must_be_in_the_corpus(world: Any, tmp_path: Path) -> None:
    tasks, plain = tasks_of(small_recipe("ernie-baidu", world), world), corpus_without_links(tmp_path / "plain")
    check_links(tasks.values(), None)
    check_fields(tasks.values())
    for task in tasks.values():
        task.spec.corpora = {plain: 1.0}
    check_links([tasks["basic"], tasks["phrase"]], None)
    check_fields([tasks["basic"], tasks["entity"]])
    with pytest.raises(
        WorkbenchError,
        match=r"tasks\.entity: the objective mlm, by its masking strategy, reads linked entities, and .*plain has",
    ):
        check_links([tasks["entity"]], None)
    with pytest.raises(
        WorkbenchError,
        match=r"the objective mlm, by its masking strategy, reads 'mask_spans', .*`workbench prepare phrases",
    ):
        check_fields([tasks["phrase"]])


@pytest.mark.parametrize("name", ["xlnet", "mpnet"])
def test_what_a_masking_strategy_masks_must_be_there(world: Any, tmp_path: Path, name: str) -> None:
    def with_masking(masking: str) -> Any:
        spec = changed(small_recipe(name, world), lambda tree: None).tasks["text"].objectives[0]
        recipe = changed(
            small_recipe(name, world),
            lambda tree: tree["tasks"]["text"].update(objectives=[{**spec, "masking": masking}]),
        )
        task = tasks_of(recipe, world)["text"]
        task.spec.corpora = {corpus_without_links(tmp_path / masking): 1.0}
        return task

    with pytest.raises(
        WorkbenchError, match=r"tasks\.text: the objective (plm|mlm), by its masking strategy, reads linked entities"
    ):
        check_links([with_masking("entity")], None)
    with pytest.raises(
        WorkbenchError, match=r"the objective (plm|mlm), by its masking strategy, reads 'mask_spans', .*prepare phrases"
    ):
        check_fields([with_masking("field")])


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ernie-baidu", {"text": "prepare text", "spans": "prepare link", "mask_spans": "prepare phrases"}),
        ("ernie-baidu-dialogue", {"turns": "prepare text"}),
        ("llama-chat", {"turns": "prepare text"}),
        ("xlm", {"text": "prepare text", "language": "--language en"}),
        ("joint-entity", {"captions": "prepare image-text", "spans": "prepare link"}),
    ],
)
def test_a_missing_corpus_is_reported_with_what_it_holds(tmp_path: Path, name: str, fields: dict[str, str]) -> None:
    recipe = load_recipe(name, [f"vars.data={tmp_path}"])
    with pytest.raises(WorkbenchError, match="there is no corpus at") as raised:
        check_corpora(recipe)
    reported = str(raised.value)
    assert f"reads {', '.join(fields)} of it" in reported
    for field, command in fields.items():
        assert re.search(f"'{field}' by `workbench [^`]*{command}", reported), reported


@pytest.mark.parametrize(
    ("name", "fields", "reported"),
    [
        ("tiny-joint", ["captions"], "'captions' by `workbench prepare image-text"),
        ("uniter-tiny", ["captions", "regions"], "'captions' by `workbench prepare image-text"),
        ("cbt-tiny", ["captions", "clips"], "'captions' by `workbench prepare video-text"),
    ],
)
def test_a_corpus_of_images_that_is_missing_is_reported_as_one(name: str, fields: list[str], reported: str) -> None:
    recipe = load_recipe(name, ["vars.corpus=nowhere"])
    with pytest.raises(WorkbenchError, match="there is no corpus at") as raised:
        check_corpora(recipe)
    assert fields_read(recipe, "nowhere")[:2] == fields
    assert reported in str(raised.value)
    assert "prepare text" not in str(raised.value)


def test_a_corpus_that_a_step_reads_is_reported_with_the_command_that_makes_it() -> None:
    with pytest.raises(WorkbenchError, match=r"by `workbench prepare text .*`workbench prepare sentiment CORPUS"):
        check_corpora(load_recipe("sentilr-tiny"))


def test_a_corpus_of_pairs_that_is_missing_is_reported_as_one(tmp_path: Path) -> None:
    assert fields_read(load_recipe("xlm-tiny"), "corpora/pairs") == ["translations"]
    assert fields_read(load_recipe("macbert"), "corpora/text") == ["text"]


def test_a_corpus_that_a_command_makes_for_an_objective_is_reported_with_it(tmp_path: Path) -> None:
    recipe = load_recipe(
        "libert", [f"vars.data={tmp_path}", f"tasks.text.corpora=[{corpus_without_links(tmp_path / 'text')}]"]
    )
    with pytest.raises(WorkbenchError, match=r"no corpus at .*word-pairs") as raised:
        check_corpora(recipe)
    reported = str(raised.value)
    assert "Prepare it: `workbench prepare word-pairs GRAPH --texts CORPUS --output PAIRS`" in reported
    assert reported.endswith("If yours is elsewhere: 'tasks.words.corpora=[FOLDER]'")


def test_a_control_is_advised_where_the_parts_support_it(world: Any, tmp_path: Path) -> None:
    """WKLM's replacements are built from linked entities and a graph under any control."""
    for name, supports in (("tiny-knowledge", True), ("wklm", False)):
        (task, *_) = tasks_of(small_recipe(name, world), world).values()
        task.spec.corpora = {corpus_without_links(tmp_path / name): 1.0}
        with pytest.raises(WorkbenchError, match=r"link it first \(workbench prepare link\)") as raised:
            check_links([task], None)
        assert ("or train without knowledge (control no-kg)" in str(raised.value)) == supports


def test_dialogues_need_no_text_of_two_sentences(world: Any, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "part-000000.tar", kind="text") as writer:
        writer.add("r0", {"turns": ["Where?", "There."], "meta": {}})
    assert writer.info is not None
    finish_corpus(tmp_path, kind="text", shards=[writer.info], provenance={"command": "test"})
    (task,) = tasks_of(small_recipe("ernie-baidu-dialogue", world), world).values()
    task.spec.corpora = {str(tmp_path): 1.0}
    check_fields([task])


def test_fields_that_no_record_has_are_reported_before_the_first_step(world: Any, tmp_path: Path) -> None:
    recipe, plain = small_recipe("tiny-knowledge", world), corpus_without_links(tmp_path / "plain")
    (task, *_) = tasks_of(recipe, world).values()
    task.spec.corpora = {plain: 1.0}
    check_fields([task])
    task.builder.reads = ("translations",)
    with pytest.raises(WorkbenchError, match=r"reads 'translations', .*`workbench prepare text FILE\.en FILE\.de"):
        check_fields([task])
    task.builder.reads, task.transforms = (), [LanguagesTransform(["en"])]
    with pytest.raises(
        WorkbenchError, match=r"transforms\[0\] reads 'language', .*`workbench prepare text .*--language en"
    ):
        check_fields([task])
    task.builder.provides = ("language",)
    check_fields([task])
    task.transforms = []
    for part, where in ((task.builder, "sequence.builder"), (task.objectives[0].objective, "the objective")):
        part.reads = ("tags",)
        reported = rf"{where}.* reads 'tags', which no record has in .*plain \(it has text.*: `workbench prepare"
        with pytest.raises(WorkbenchError, match=reported):
            check_fields([task])
        part.reads = ()


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_texts_of_single_sentences_are_no_pairs(world: Any, tmp_path: Path, objective: str) -> None:
    recipe, plain = small_recipe("bert", world), corpus_without_links(tmp_path / "plain")
    tree = dataclasses.asdict(recipe)
    tree["tasks"]["text"]["objectives"] = [{"objective": objective}]
    (task,) = tasks_of(recipe_from_dict(tree), world).values()
    check_fields([task])
    task.spec.corpora = {plain: 1.0}
    with pytest.raises(
        WorkbenchError, match=rf"objective {objective} needs texts of two sentences .*plain.*\"second\""
    ):
        check_fields([task])
    task.spec.corpora = {plain: 1.0, str(world.text): 1.0}
    check_fields([task])


def test_streams_that_all_begin_at_position_0_are_reported(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Rotary positions of an image and a text that a joint layer reads as one sequence."""
    recipe = small_recipe("llava", world)
    root, _ = small_root(recipe)
    found = tasks_of(recipe, world)
    caplog.clear()
    check_fit(found.values(), root)
    assert "rotary" not in caplog.text
    for each in found.values():
        each.transforms = each.transforms[:1]
    check_fit(found.values(), root)
    assert "reads the streams projected and text as one sequence with rotary positions" in caplog.text
    assert "with streams: [projected, text]" in caplog.text
