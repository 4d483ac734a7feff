"""Fine-tuning and evaluating entity typing, end to end on a tiny world."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench
from kg.evaluation.task_options import TypingScoring, TypingTuning
from kg.evaluation.tasks.entity_typing import EntityTyping
from kg.evaluation.typing.type_inventory import OPEN_ENTITY, read_inventory
from tests.contracts.cases import EvaluationCase, World
from tests.kg.evaluation.conftest import make_world, recipe_tree, typing_records, write
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.runs.loaded_run import load
from workbench.runs.metrics_file import read_metrics
from workbench.training.pretrain import pretrain

QUICK = ["train.num_workers=0", "train.optimizer.weight_decay=0"]


def contract_world(folder: Path) -> World:
    make_world(folder)
    base = pretrain(recipe_from_dict(recipe_tree(folder, "entities")), folder / "base", until=1)
    corpus = str(folder / "typing")
    options: dict[str, Any] = {"epochs": 1.0, "batch_size": 8, "overrides": QUICK, "output": folder / "run"}
    return World(fine_tune(EntityTyping(), TypingTuning(run=base, corpus=corpus, **options)), corpus, base, {})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="session")
def tuned(world: Path, make_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typing") / "run"
    tuning = TypingTuning(
        run=make_run("entities"),
        corpus=str(world / "typing"),
        overrides=[*QUICK, "train.evaluate_every=60"],
        output=folder,
        epochs=30,
        batch_size=8,
        lr=2e-3,
        max_length=24,
        held_out=str(world / "typing-test"),
    )
    fine_tune(EntityTyping(), tuning)
    return folder


def test_a_text_has_no_more_tokens_than_the_model_positions(
    world: Path, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    corpus = str(world / "typing")
    run = make_run("none")
    fine_tune(
        EntityTyping(), TypingTuning(run=run, corpus=corpus, overrides=QUICK, output=tmp_path / "run", epochs=0.1)
    )
    assert load(tmp_path / "run").recipe.tasks["entity-typing"].sequence.builder["max_length"] == 40


def result(run: Path, name: str) -> dict:
    return json.loads((run / "evaluations" / f"{name}.json").read_text())


def run_evaluate(run: Path, corpus: Path, **options: Any) -> None:
    evaluate(EntityTyping(), TypingScoring(run=run, corpus=str(corpus), **{"batch_size": 5, **options}))


def test_a_held_out_pass_measures_what_typing_says(world: Path, tuned: Path) -> None:
    """With the types of the inventory and the rule of Open Entity; so train.best may name an F1."""
    run_evaluate(tuned, world / "typing-test", gold="inventory")
    reported = result(tuned, "entity-typing-typing-test-gold=inventory")["numbers"]
    last = read_metrics(tuned)[-1]
    assert {name: last[f"held_out/types/{name}"] for name in reported} == pytest.approx(reported)


def test_the_recipe_says_what_was_trained(tuned: Path) -> None:
    recipe = load(tuned).recipe
    spec = recipe.tasks["entity-typing"]
    assert spec.sequence.builder["types"] == ["city", "place", "town"]
    assert spec.sequence.builder["marker"] == "/"
    assert spec.sequence.transforms[0]["transform"] == "kg.entity_stream"
    assert recipe.train.max_steps == np.ceil(30 * 32 / 8)


def test_types_of_new_entities_come_from_their_vectors(tuned: Path, world: Path) -> None:
    run_evaluate(tuned, world / "typing-test")
    found = result(tuned, "entity-typing-typing-test")
    assert found["numbers"]["loose_micro/f1"] > 0.9
    assert found["variant"] == "rule positive, macro open_type, gold all"
    assert found["counts"]["mentions"] == 16
    assert found["baselines"]["linear probe on the entity vectors"]["loose_micro/f1"] > 0.9
    assert found["examples"][0]["mention"] == [7, 16]
    assert found["inputs"]["corpus"]["records"] == 16


@pytest.mark.parametrize("control", ["no-kg", "random-entities"])
def test_controls_take_the_vectors_away(tuned: Path, world: Path, control: str) -> None:
    run_evaluate(tuned, world / "typing-test")
    run_evaluate(tuned, world / "typing-test", control=control)
    plain, taken = (result(tuned, f"entity-typing-typing-test{end}") for end in ("", f"-{control}"))
    assert taken["control"] == control
    assert taken["numbers"]["loose_micro/f1"] < plain["numbers"]["loose_micro/f1"] - 0.1
    assert ("linear probe on the entity vectors" in taken["baselines"]) == (control == "random-entities")


def test_a_control_that_changes_nothing_is_refused(tuned: Path, world: Path) -> None:
    with pytest.raises(WorkbenchError, match="question-only would change nothing"):
        run_evaluate(tuned, world / "typing-test", control="question-only")
    with pytest.raises(WorkbenchError, match="shuffled-kg needs vectors of the shuffled graph"):
        run_evaluate(tuned, world / "typing-test", control="shuffled-kg")


def test_a_rule_and_a_limit(tuned: Path, world: Path) -> None:
    run_evaluate(tuned, world / "typing-test", rule="positive_or_top", macro="ernie", limit=3)
    found = result(tuned, "entity-typing-typing-test-limit=3-rule=positive_or_top-macro=ernie")
    assert found["variant"] == "rule positive_or_top, macro ernie, gold all"
    assert found["counts"]["mentions"] == 3
    assert found["counts"]["without prediction"] == 0


def test_what_is_easy_is_next_to(tuned: Path, world: Path) -> None:
    run_evaluate(tuned, world / "typing-test")
    found = result(tuned, "entity-typing-typing-test")
    assert found["counts"]["linked mentions"] == 16
    assert found["counts"]["gold types never predicted"] == 0
    assert found["classes"]["place"] == {"precision": 1, "recall": 1, "f1": 1, "gold": 16, "predicted": 16}
    assert sum(of["gold"] for of in found["classes"].values()) == 32
    always = found["baselines"]["always place"]  # every mention has it, and one type more
    assert always["loose_micro/precision"] == 1
    assert always["loose_micro/recall"] == pytest.approx(0.5)
    assert found["baselines"]["no type"]["strict_accuracy"] == 0
    assert found["baselines"]["no type"]["loose_micro/f1"] == 0


def test_gold_types_that_the_model_has_no_name_for_are_missed(tuned: Path, world: Path) -> None:
    corpus = world / "typing-wider"
    write(corpus, [{**record, "types": [*record["types"], "port", "bay"]} for record in typing_records(test=True)])
    found = {}
    for gold, end in (("all", ""), ("inventory", "-gold=inventory")):
        run_evaluate(tuned, corpus, gold=gold)
        found[gold] = result(tuned, f"entity-typing-typing-wider{end}")
        assert found[gold]["counts"]["gold types outside the inventory"] == 32
    for name in ("loose_micro/recall", "loose_macro/recall"):
        assert found["all"]["numbers"][name] == pytest.approx(found["inventory"]["numbers"][name] / 2)
    assert found["all"]["numbers"]["strict_accuracy"] == 0
    assert found["inventory"]["numbers"]["strict_accuracy"] > 0.8


def test_the_groups_of_ultra_fine_typing_are_next_to(tuned: Path, world: Path, tmp_path: Path) -> None:
    """`place` is a general type; `city` a fine one here, `town` an ultra-fine one. Each mention has one of the two."""
    listed = tmp_path / "types.txt"
    listed.write_text("\n".join([*OPEN_ENTITY, "city", *(f"fine {i}" for i in range(120)), "town"]))
    run_evaluate(tuned, world / "typing-test", groups=listed, limit=15)
    (found,) = (json.loads(path.read_text()) for path in (tuned / "evaluations").glob("*limit=15*groups=*.json"))
    assert {f"{group}/loose_macro/f1" for group in ("coarse", "fine", "ultra-fine")} <= found["numbers"].keys()
    assert found["numbers"]["coarse/loose_macro/recall"] == found["classes"]["place"]["recall"]
    assert found["numbers"]["fine/loose_macro/recall"] == found["classes"]["city"]["recall"]
    always = found["baselines"]["always place"]
    assert always["coarse/loose_macro/f1"] == 1
    assert always["fine/loose_macro/f1"] == always["ultra-fine/loose_macro/f1"] == 0
    assert found["inputs"]["read"]["type groups"].keys() == {str(listed)}


@pytest.mark.slow
def test_the_whole_inventory_of_ultra_fine_typing(
    world: Path, make_run: Callable[..., Path], shared: Path, tmp_path: Path
) -> None:
    listed, corpus = shared / "data/ufet/types.txt", str(world / "typing")
    tuning = TypingTuning(
        run=make_run("none"), corpus=corpus, types=str(listed), overrides=QUICK, output=tmp_path / "run", epochs=0.1
    )
    fine_tune(EntityTyping(), tuning)
    run_evaluate(tmp_path / "run", world / "typing-test", rule="positive_or_top", groups=listed, limit=3)
    (path,) = (tmp_path / "run/evaluations").glob("*.json")
    found = json.loads(path.read_text())
    assert found["counts"]["types"] == 10331
    assert found["counts"]["without prediction"] == found["counts"]["gold types outside the inventory"] == 0
    assert found["baselines"]["always place"]["coarse/loose_macro/f1"] == 1


def _with(listed: Path, name: str, other: str) -> str:
    """A list with two names in each other's places."""
    names = {name: other, other: name}
    return "\n".join(names.get(each, each) for each in listed.read_text().split("\n"))


def test_each_group_of_ultra_fine_typing_has_its_own_loss(
    world: Path, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    """Types of a group stand side by side, whatever order the corpus has them in; a group without any has no loss."""
    listed, corpus = tmp_path / "types.txt", str(world / "typing")
    listed.write_text("\n".join([*OPEN_ENTITY, *(f"fine {i}" for i in range(121)), "town", "city"]))
    tuning = TypingTuning(
        run=make_run("none"), corpus=corpus, groups=listed, overrides=QUICK, output=tmp_path / "run", epochs=0.1
    )
    fine_tune(EntityTyping(), tuning)
    (task,) = read_recipe(tmp_path / "run").tasks.values()
    assert isinstance(task.sequence.builder, dict)
    assert task.sequence.builder["types"] == ["place", "city", "town"]
    assert task.objectives[0]["groups"] == [1, 2]
    run_evaluate(tmp_path / "run", world / "typing-test", groups=listed, limit=3)
    other = tmp_path / "other.txt"
    for swapped, reported in (
        (("town", "fine 0"), "1, 2, and in those of this list they are 1, 1, 1, from 'city'"),
        (("town", "village"), "1, 2, and in those of this list they are 1, 1, from 'town'"),
    ):
        other.write_text(_with(listed, *swapped))
        with pytest.raises(
            WorkbenchError, match=rf"other\.txt: .*run was fine-tuned with another list .*{reported}.* Give"
        ):
            run_evaluate(tmp_path / "run", world / "typing-test", groups=other, limit=3)
    listed.write_text(listed.read_text().replace("town", "village"))
    with pytest.raises(WorkbenchError, match=r"1 of 3 types are not in the list that --groups names: town"):
        fine_tune(EntityTyping(), replace(tuning, output=tmp_path / "other"))


def test_a_run_that_was_not_fine_tuned(world: Path, make_run: Callable[..., Path]) -> None:
    with pytest.raises(WorkbenchError, match="workbench finetune entity-typing"):
        run_evaluate(make_run("entities"), world / "typing-test")


def test_inventories(world: Path, tmp_path: Path) -> None:
    corpus = Corpus.open(world / "typing")
    assert read_inventory(None, corpus) == ["city", "place", "town"]
    assert read_inventory("open-entity", corpus) == list(OPEN_ENTITY)
    assert read_inventory("town, place", corpus) == ["town", "place"]
    (tmp_path / "types.txt").write_text("town\nriver\n")
    (tmp_path / "types.json").write_text('["town", "river"]')
    assert read_inventory(str(tmp_path / "types.txt"), corpus) == ["town", "river"]
    assert read_inventory(str(tmp_path / "types.json"), corpus) == ["town", "river"]
    (tmp_path / "wrong.json").write_text('{"a": 1}')
    for wanted, message in [
        ("nowhere.txt", "no such file"),
        ("a,b", "no record"),
        ("town,place,town", "twice"),
        (str(tmp_path / "wrong.json"), "not a list"),
    ]:
        with pytest.raises(WorkbenchError, match=message):
            read_inventory(wanted, corpus)
    with pytest.raises(WorkbenchError, match="prepare a typing set"):
        read_inventory(None, Corpus.open(world / "facts"))


def test_predictions_say_what_knowledge_was_read_of_texts_that_are_linked_on_the_way(
    world: Path, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    tree = fine_tune(
        EntityTyping(),
        TypingTuning(
            run=make_run("tree"), corpus=str(world / "typing"), overrides=QUICK, output=tmp_path / "tree", epochs=0.1
        ),
    )
    text = "loton and maville are old ."
    model = workbench.load(tree)
    found = model.predict(text, mention="maville")
    assert found["knowledge"] == [
        {"mention": [0, 5], "facts": ["country italy"]},
        {"mention": [10, 17], "facts": ["country norway"]},
    ]
    assert model.predict(text, mention="maville", control="no-kg").keys() == {"key", "prediction", "probabilities"}
    with pytest.raises(WorkbenchError, match="input '1' has no mention; say --mention WORDS"):
        model.predict(text)
    with pytest.raises(WorkbenchError, match="its text has no 'paris', which is to be its mention"):
        model.predict(text, mention="paris")


def test_predictions_name_the_entities_of_a_stream(world: Path, tuned: Path) -> None:
    model = workbench.load(tuned)
    (sample,) = model.link("we saw loville today .", linker=world / "graph")
    found = model.predict({**sample, "mention": "loville"})
    assert found["knowledge"] == [{"mention": [7, 14], "entity": "t0"}]
    assert sum(found["probabilities"].values()) > 0
    with pytest.raises(WorkbenchError, match=r"the model .* reads no graph, .*--linker FOLDER.*--control no-kg"):
        model.predict("we saw loville today .", mention="loville")
    assert model.predict("we saw loville today .", mention="loville", linker=world / "graph") == found
