"""Names that people bring from elsewhere are answered with what they are here; long lists are never printed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.app import COMMANDS, ELSEWHERE, app, version
from workbench.cli.recipes import list_recipes
from workbench.cli.show import show
from workbench.core.errors import LISTED, NEAREST, WorkbenchError, unknown
from workbench.interop.checkpoint_files import check_place, family_of
from workbench.recipe.foreign_names import KEYS
from workbench.recipe.reading import load_recipe, recipe_names
from workbench.recipe.trees import dump_recipe
from workbench.runs.folder import check_same


def refused(name: str, *overrides: str) -> str:
    with pytest.raises(WorkbenchError) as error:
        load_recipe(name, overrides)
    return str(error.value)


@pytest.mark.parametrize("count", [0, 1, LISTED, LISTED + 1, 60, 5000])
def test_a_message_names_a_few(count: int) -> None:
    names = [f"name-{number}" for number in range(count)]
    reported = str(unknown("thing", "name-x", names))
    mentioned = {name for name in names if re.search(rf"\b{name}\b", reported)}
    assert len(mentioned) == (count if count <= LISTED else NEAREST)


def test_the_nearest_of_many_come_first() -> None:
    reported = str(unknown("recipe", "brt", recipe_names()))
    assert "Did you mean 'bert' or 'bart'" in reported
    assert "the nearest: bert, bart" in reported


@pytest.mark.parametrize("key", sorted(KEYS))
def test_keys_of_other_libraries_say_what_they_are_here(key: str) -> None:
    """At the top, and in `train` where that has no such key; what is advised is a key that there is."""
    assert refused("tiny-text", f"{key}=1").endswith(f"unknown key {key!r}. The corresponding setting is {KEYS[key]}.")
    advised = re.findall(r"(?<=')train\.[^']+|train\.[a-z_.]+=\S*[^\s,.)]", KEYS[key])
    for override in advised:
        load_recipe("tiny-text", [override])


def test_a_key_of_train_and_of_a_task() -> None:
    assert "The corresponding setting is train.lr=1e-4." in refused("tiny-text", "train.learning_rate=1e-4")
    assert "The corresponding setting is tasks.NAME.sequence.max_length=128." in refused(
        "tiny-text", "tasks.text.max_length=8"
    )


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("bert-base-uncased", "bert"),
        ("roberta-base", "roberta"),
        ("openai/clip-vit-base-patch32", "clip"),
        ("openai-community/gpt2", "gpt-2"),
        ("facebook/bart-large", "bart"),
        ("google-t5/t5-small", "t5"),
        ("microsoft/deberta-v3-base", "deberta-v3"),
    ],
)
def test_a_model_of_the_hub_is_distinguished_from_a_recipe(name: str, recipe: str | None) -> None:
    reported = refused(name)
    assert "workbench pretrain FOLDER" in reported
    assert ("is the recipe" in reported) == (recipe is not None)
    assert recipe is None or f"is the recipe {recipe!r}" in reported


@pytest.mark.parametrize(
    ("given", "change"),
    [
        (["--max_steps", "20"], "train.max_steps=20"),
        (["--max-steps=20"], "train.max_steps=20"),
        (["--tasks.text.weight", "2"], "tasks.text.weight=2"),
        (["--seed"], "seed=..."),
        (["--schedule", "seed=1"], "schedule=..."),
        (["--weight_decay", "1"], "train.optimizer.weight_decay=0.01"),
        (["--bogus"], "The options are in --help"),
        (["--outptu", "x"], "--output"),
    ],
)
@pytest.mark.parametrize("command", [["pretrain", "tiny-text"], ["finetune", "classify", "run", "corpus"]])
def test_a_key_given_as_an_option_is_answered_with_the_change(
    command: list[str], given: list[str], change: str
) -> None:
    with pytest.raises(WorkbenchError, match=re.escape(change)) as error:
        app.run([*command, *given], "workbench")
    assert "KEY=VALUE" in str(error.value)


@pytest.mark.parametrize(
    ("given", "change"),
    [
        (["--num_train_epochs", "3"], "--epochs 3"),
        (["--learning_rate=2e-5"], "--lr 2e-5"),
        (["--per_device_train_batch_size", "8"], "--batch-size 8"),
        (["--max_steps", "20"], "train.max_steps=20"),
    ],
)
def test_an_option_of_another_library_is_answered_with_the_command_s_own(given: list[str], change: str) -> None:
    with pytest.raises(WorkbenchError, match=f"Write {re.escape(change)}[.]"):
        app.run(["finetune", "classify", "run", "corpus", *given], "workbench")


def test_a_missing_option_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.run(["export", "run", "--output", "out"], "workbench")
    assert "The checkpoint family: bert, gpt2," in capsys.readouterr().err


def test_a_command_without_a_recipe_knows_no_keys(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.run(["report", "run", "--max_steps", "20"], "workbench")
    assert "KEY=VALUE" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "advised"),
    [("onnx", "--also onnx"), ("int8", "--int8"), ("PyTorch", "--as bert"), ("zz", "components family")],
)
def test_a_file_format_is_no_family(name: str, advised: str) -> None:
    with pytest.raises(WorkbenchError, match=advised) as error:
        family_of(name)
    assert "nearest" not in str(error.value)


def test_a_run_that_is_a_name_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(WorkbenchError, match=r"downloaded for a bare name\. hub:openai/clip-vit-base-patch32 reads"):
        check_place(Path("openai/clip-vit-base-patch32"))
    with pytest.raises(WorkbenchError, match="hub:OWNER/bert-base-uncased reads"):
        check_place(Path("bert-base-uncased"))
    with pytest.raises(WorkbenchError, match="runs/mine is not a run: there is no such folder"):
        check_place(Path("runs/mine"))


def test_the_run_of_another_recipe_is_named_before_some_of_its_keys(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="of another recipe: 'tiny-text', not 'tiny-joint'") as error:
        check_same(load_recipe("tiny-text"), load_recipe("tiny-joint"), tmp_path)
    assert str(error.value).count(" -> ") == NEAREST
    with pytest.raises(WorkbenchError, match=r"with other values. These keys differ:\n  train.lr: 0"):
        check_same(load_recipe("tiny-text"), load_recipe("tiny-text", ["train.lr=0.5"]), tmp_path)


@pytest.mark.parametrize("word", ELSEWHERE)
def test_commands_of_other_programs(word: str) -> None:
    assert word not in COMMANDS
    with pytest.raises(WorkbenchError, match=re.escape(ELSEWHERE[word])):
        app.run([word, "x"], "workbench")
    advised = re.findall(r"workbench ([a-z-]+)", ELSEWHERE[word])
    assert {*advised} - {"--version"} <= {*COMMANDS}


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    app.run(["--version"], "workbench")
    assert capsys.readouterr().out == f"workbench {version()}\n"
    assert re.match(r"\d+\.\d+\.\d+", version())


def test_recipes_in_detail_and_by_words(capsys: pytest.CaptureFixture[str]) -> None:
    list_recipes("k-bert-tiny")
    reported = capsys.readouterr().out
    assert "kg.sentence_tree" in reported
    assert "vars.data=corpora" in reported
    assert "tasks.wiki.corpora=[...]" in reported
    assert "workbench pretrain k-bert-tiny" in reported
    list_recipes(kind="knowledge", with_words=["tree"])
    reported = capsys.readouterr().out
    assert "k-bert" in reported
    assert "lxmert" not in reported
    with pytest.raises(WorkbenchError, match="no recipe has 'zebra'"):
        list_recipes(with_words=["zebra"])


def test_missing_corpora_name_the_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.pretraining.task_corpora import check_corpora

    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkbenchError, match=r"If yours is elsewhere: 'tasks\.wiki\.corpora=\[FOLDER\]'$"):
        check_corpora(load_recipe("k-bert-tiny"))
    with pytest.raises(WorkbenchError, match=r"'tasks\.pairs\.corpora=\[FOLDER\]' or vars\.corpus=FOLDER$"):
        check_corpora(load_recipe("clip-tiny"))


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ("there is no tokenizer at corpora/tokenizer.json; expected", ["tokenizer=PLACE"]),
        ("there is no graph store at corpora/graph (no graph.json)", ["tasks.wiki.sequence.transforms[0].graph=PLACE"]),
        ("corpora/graphs is damaged", []),
        ("something else", []),
    ],
)
def test_missing_files_name_the_overrides(
    said: str, noted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.pretraining.task_corpora import places_named

    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkbenchError) as error, places_named(load_recipe("k-bert-tiny")):
        raise WorkbenchError(said)
    notes = getattr(error.value, "__notes__", [])
    assert notes == [f"If yours is elsewhere: {key}" for key in noted]


@pytest.mark.parametrize(
    ("verb", "objective", "fits"),
    [
        ("predict", {"objective": "classify", "classes": ["a", "b"]}, "has a head for classify"),
        ("predict", {"objective": "mine:Head"}, "Tasks: .*classify"),
        ("finetune", {"objective": "mlm"}, "Tasks: .*classify"),
    ],
)
def test_a_run_without_a_task_is_answered_with_the_tasks(
    verb: str, objective: dict[str, Any], fits: str, tmp_path: Path
) -> None:
    recipe = load_recipe("tiny-text")
    tasks = {name: replace(task, objectives=[objective]) for name, task in recipe.tasks.items()}
    (tmp_path / "recipe.yaml").write_text(dump_recipe(replace(recipe, tasks=tasks)))
    with pytest.raises(WorkbenchError, match=rf"names a run and no task; it is 'workbench {verb} TASK .*{fits}"):
        app.run([verb, str(tmp_path), "a text"], "workbench")


def test_show_says_what_a_run_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / "step-2").mkdir(parents=True)
    (run / "recipe.yaml").write_text(dump_recipe(load_recipe("tiny-text", ["train.max_steps=4"])))
    (run / "metrics.jsonl").write_text('{"step": 1, "mlm/loss": 4.5}\n{"step": 2, "mlm/loss": 4.25}\n')
    (run / "evaluations").mkdir()
    result = '{"task": "classify", "numbers": {"accuracy": 0.75}, "inputs": {"corpus": {"path": "corpora/x"}}}'
    (run / "evaluations" / "a.json").write_text(result)
    show(str(run))
    reported = "".join(capsys.readouterr().out.split())  # long lines are wrapped wherever
    for line in (
        "2 of 4; checkpoints at 2",
        "mlm/loss 4.25",
        "classify on corpora/x: accuracy 0.75",
        f"workbench pretrain {run}/recipe.yaml --output {run}",
    ):
        assert line.replace(" ", "") in reported


def test_show_of_nothing_says_what_it_takes(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="is no corpus, run, recipe or Hugging Face folder: there is no such file"):
        show(str(tmp_path / "nowhere"))
