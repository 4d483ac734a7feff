"""Fine-tuning that reads the entity tokens of marked mentions (LUKE)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kg.evaluation.task_options import RelationScoring, RelationTuning, TypingScoring, TypingTuning
from kg.evaluation.tasks.entity_typing import EntityTyping
from kg.evaluation.tasks.relations import RelationClassification
from kg.sequences.entity_vocabulary import save_entity_vocabulary
from tests.kg.evaluation.conftest import recipe_tree, typing_records, write
from tests.kg.evaluation.tasks.test_relations import pairs
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain


@pytest.fixture(scope="module")
def luke(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with entity tokens, trained for a step."""
    folder = tmp_path_factory.mktemp("luke")
    vocabulary = str(folder / "vocabulary.safetensors")
    save_entity_vocabulary(Path(vocabulary), Counter(f"t{i}" for i in range(8)), 8, {})
    tree = recipe_tree(world, "none")
    quiet = {"dropout": 0.0, "hidden_size": 32, "max_positions": 40}
    entity = {"embedding": "kg.entity_token", "vocabulary": vocabulary, "embedding_size": 8, **quiet}
    tree["model"]["streams"]["entity"] = entity
    aware = {**tree["model"]["layers"][0], "layer": "kg.entity_aware", "streams": ["text", "entity"]}
    del aware["stream"]
    tree["model"]["layers"] = [aware]
    tree["tasks"]["facts"]["sequence"]["transforms"] = [{"transform": "kg.entity_tokens", "vocabulary": vocabulary}]
    tree["tasks"]["facts"]["objectives"].append({"objective": "kg.mep"})
    return pretrain(recipe_from_dict(tree), folder / "run", until=1)


def unlinked(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**record, "spans": []} for record in records]


def relations(base: Path, folder: Path, *, linked: bool = False) -> RelationTuning:
    write(folder / "train", pairs(range(8)) if linked else unlinked(pairs(range(8))))
    options: dict[str, Any] = {"epochs": 20.0, "batch_size": 16, "lr": 5e-3, "overrides": ["train.num_workers=0"]}
    paths = {"corpus": str(folder / "train"), "output": folder / "run"}
    return RelationTuning(run=base, head="/", tail=".", read="entities", **options, **paths)


def test_relations_are_detected_by_the_entities_of_head_and_tail(luke: Path, tmp_path: Path) -> None:
    """Also where nothing is linked: the masked entities are built from the marks."""
    tuned = fine_tune(RelationClassification(), relations(luke, tmp_path))
    found = evaluate(RelationClassification(), RelationScoring(run=tuned, corpus=str(tmp_path / "train")))
    assert found.numbers["accuracy"] > 0.9


def test_types_are_detected_by_the_entity_of_the_mention(luke: Path, tmp_path: Path) -> None:
    write(tmp_path / "train", unlinked(typing_records(test=False)))
    options: dict[str, Any] = {"epochs": 1.0, "overrides": ["train.num_workers=0"]}
    wanted = TypingTuning(
        run=luke, corpus=str(tmp_path / "train"), marker="/", read="entities", output=tmp_path / "run", **options
    )
    recipe = recipe_of(EntityTyping(), wanted)
    (task,) = recipe.tasks.values()
    assert [step["marks"] for step in task.sequence.transforms] == [True]
    assert {"stream": "entity", "read": "entities"}.items() <= task.objectives[0].items()
    tuned = fine_tune(EntityTyping(), wanted)
    found = evaluate(EntityTyping(), TypingScoring(run=tuned, corpus=str(tmp_path / "train")))
    assert 0 <= found.numbers["loose_micro/f1"] <= 1


def test_a_stream_without_marked_rows_is_reported(make_run: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"no entity token for 'head' or 'tail'.*kg\.entity_tokens"):
        fine_tune(RelationClassification(), relations(make_run("entities"), tmp_path, linked=True))


def test_a_corpus_without_a_link_is_no_knowledge(make_run: Callable[..., Path], tmp_path: Path) -> None:
    """Although it has the field."""
    with pytest.raises(WorkbenchError, match=r"train.* has no linked entities.*workbench prepare link"):
        fine_tune(RelationClassification(), relations(make_run("entities"), tmp_path))
