"""The folder of a run: its recipe, and the check whether another recipe may resume in it."""

from __future__ import annotations

import dataclasses
import fnmatch
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.components.building import find, options_of
from workbench.components.kinds import import_paths
from workbench.components.trust import CODE, allow, own_code
from workbench.core.errors import LISTED, NEAREST, WorkbenchError
from workbench.core.files.drafts import check_file, check_folder, is_draft, real_path, write_text
from workbench.core.files.lock import LOCK
from workbench.core.local_copies import with_urls
from workbench.optimization.lr_schedules import is_share
from workbench.recipe import reading
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree, dump_recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import read_data, run_id
from workbench.runs.metrics_file import read_metrics
from workbench.runs.names import DATA, FILES, FOLDERS, METRICS, RECIPE, TOKENIZER
from workbench.text.tokenizer import Tokenizer

MAY_CHANGE = (
    "name",
    "description",
    "paper*",
    "reported*",
    "panels*",
    "vars.*",
    "tokenizer",
    "model.init_from*",
    "model.*.init_from*",
    "tasks.*.held_out*",
    *(
        f"train.{key}"
        for key in (
            "num_workers",
            "log_every",
            "evaluate_every",
            "evaluate_steps",
            "save_every",
            "keep_last",
            "async_save",
            "parallel.*",
            "best",
            "stop*",
            "trackers*",
            "on_error",
            "skip_limit",
            "verify",
            "micro_batch_size_by",
            "compile",
            "activation_checkpointing",
            "parallel.*",
        )
    ),
)
"""Keys of a recipe that may change when a run resumes; all others decide the numbers.

`train.max_steps` may change too if the learning rate does not depend on it: the schedule does not take it, and the
warm-up is a number of steps. Values that depend on the progress of the run (a falling masking rate) follow the new
number from there on.
"""
MAX_STEPS = "train.max_steps"


def check_run(run: Path, recipe: Recipe) -> None:
    """Check that the recipe in the folder is this one, or that there is none; nothing is written.

    A folder without a checkpoint has nothing to resume: another recipe may start there.

    Raises:
        WorkbenchError: a folder with other content, a run of another recipe (the message lists the keys that differ), a
            run whose checkpoints are missing, or a folder or a pipe in place of a file.
    """
    check_folder(run)
    for name in FILES:
        check_file(run / name)
    for name in FOLDERS:
        check_folder(run / name)
    if Checkpoints(run).latest() is not None:
        before = read_recipe(run)
        check_same(before, recipe, run)
        check_tokenizer(before, recipe, run)
    elif (run / RECIPE).is_file():
        check_kept(run)
    elif run.is_dir() and any(entry.name != LOCK and not is_draft(entry, run / RECIPE) for entry in run.iterdir()):
        raise WorkbenchError(f"{run} is not empty and not a run (it has no {RECIPE}); choose another folder")


def open_run(run: Path, recipe: Recipe) -> None:
    """Write the resolved recipe into a folder that `check_run` allows. The files of an earlier start without a
    checkpoint are removed."""
    if Checkpoints(run).latest() is None and (run / RECIPE).is_file():
        saved = run / TOKENIZER
        if real_path(recipe.tokenizer or "") != real_path(saved):
            saved.unlink(missing_ok=True)
        Checkpoints(run).clear_best()
    write_text(run / RECIPE, dump_recipe(recipe))


def check_kept(run: Path) -> None:
    """Check that a folder without a checkpoint never had one.

    Raises:
        WorkbenchError: it had one; starting at step 0 would overwrite the record of that run.
    """
    if run_id(run) is not None:
        steps = [record["step"] for record in read_metrics(run)]
        reached = f" ({METRICS} reaches step {max(steps)})" if steps else ""
        raise WorkbenchError(
            f"{run} is a run that saved checkpoints{reached}, but there is none in {Checkpoints(run).folder}. Restore "
            f"them from a copy, or choose another run folder. To begin again at step 0 in this one, remove {run / DATA}"
        )


def keep_code(run: Path, recipe: Recipe) -> None:
    """Copy the code next to the recipe into the run's `code/`, so that it can be loaded anywhere, unchanged.

    The code is the modules of the recipe's components and their imports from there in turn; no other files.
    """
    _copy_code(run, import_paths(as_tree(recipe)), replace=True)


def keep_panels(run: Path, panels: list[str]) -> None:
    """Copy the code of a result's panels (import paths), so that a report of the run can be written anywhere.

    The code that the run was trained with stays as it is.
    """
    _copy_code(run, panels, replace=False)


def _copy_code(run: Path, names: list[str], *, replace: bool) -> None:
    for place, file in own_code(names).items():
        copy = run / CODE / place
        if not copy.exists() or (replace and not copy.samefile(file)):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def read_recipe(run: Path) -> Recipe:
    """The recipe of a run: its values. Components in the run's own code are built only if `trust_run` allows it.

    Raises:
        WorkbenchError: not a run folder.
    """
    check_file(run / RECIPE)
    if not (run / RECIPE).exists():
        raise WorkbenchError(f"{run} is not a run: it has no {RECIPE}")
    return reading.read_recipe(run / RECIPE)


def trust_run(run: Path, recipe: Recipe, trust: bool) -> None:
    """Allow the components in a run's own code to be imported from its folder.

    Raises:
        WorkbenchError: there are such components and `trust` is false; none of their code was run.
    """
    allow(import_paths(as_tree(recipe)), run, str(run), trust=trust)


def check_same(old: Recipe, new: Recipe, run: Path) -> None:
    """Check that the recipes agree in all keys that decide the numbers.

    Raises:
        WorkbenchError: such a key differs.
    """
    before, after, keys = _compared(old, new)
    schedule = new.train.lr_schedule["lr_schedule"]
    free = MAY_CHANGE if _goes_by_max_steps(new.train.lr_schedule) else [*MAY_CHANGE, MAX_STEPS]
    fixed = [key for key in keys if not any(fnmatch.fnmatchcase(key, pattern) for pattern in free)]
    if fixed:
        shown = fixed if len(fixed) <= LISTED else fixed[:NEAREST]
        listed = "\n".join(f"  {key}: {before.get(key, 'not there')} -> {after.get(key, 'not there')}" for key in shown)
        if len(shown) < len(fixed):
            listed += f"\n  and {len(fixed) - len(shown)} more"
        other = "with other values" if old.name == new.name else f"of another recipe: {old.name!r}, not {new.name!r}"
        warmup = new.train.lr_schedule.get("warmup_steps", 0)
        longer = (
            f"\nThe learning rate goes by {MAX_STEPS} (lr_schedule: {schedule}, warmup_steps: {warmup}), so another "
            f"number would make it jump; to train longer, start a new run from these weights: model.init_from={run}"
        )
        raise WorkbenchError(
            f"{run} holds a run {other}. These keys differ:\n{listed}\nResume with the old values, or choose "
            f"another run folder{longer if MAX_STEPS in fixed and old.name == new.name else ''}"
        )


EMBEDDINGS = "model.*streams.*"


def check_overrides(old: Recipe, new: Recipe, trained: Sequence[str]) -> None:
    """Check that the overrides of a trained model's recipe change nothing that it was trained with.

    Args:
        trained: the first words of such keys. Below them, places of files, the keys that may change in a run and the
            embeddings of streams (E-BERT's vectors for a trained BERT) are free.

    Raises:
        WorkbenchError: such a key differs.
    """
    _, after, keys = _compared(old, new)
    fixed = [
        key
        for key in keys
        if key.partition(".")[0] in trained
        and (
            key == "tokenizer"
            or not (any(fnmatch.fnmatchcase(key, p) for p in (*MAY_CHANGE, EMBEDDINGS)) or _is_place(after.get(key)))
        )
    ]
    if fixed:
        raise WorkbenchError(
            f"overrides change {', '.join(fixed)}, with which the weights were trained; allowed here: places of files, "
            "and keys below tasks that need no training. To train with other values: pretrain or finetune"
        )


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and Path(value).exists()


def _compared(old: Recipe, new: Recipe) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Both recipes by their keys, and the keys that differ."""
    before, after = recipe_values(old), recipe_values(new)
    return before, after, [key for key in {**before, **after} if _differ(before.get(key), after.get(key))]


def _differ(one: Any, other: Any) -> bool:
    """Whether two values of a recipe differ. That of a checkpoint has tensors too, which compare elementwise."""
    unequal = one != other
    return bool(unequal.any() if hasattr(unequal, "any") else unequal)


def _goes_by_max_steps(lr_schedule: Mapping[str, Any]) -> bool:
    """Whether the learning rate falls towards the end of the run, or rises in a share of it."""
    asks = "max_steps" in options_of(find("lr_schedule", lr_schedule["lr_schedule"])).names
    return asks or is_share(lr_schedule.get("warmup_steps"))


def check_tokenizer(old: Recipe, new: Recipe, run: Path) -> None:
    """Check that the run resumes with the tokenizer of its training, wherever the recipe finds it now.

    Raises:
        WorkbenchError: the recipe names another one (by its content), or none; or the run's own copy was changed.
    """
    saved = run / TOKENIZER
    _check_copy(saved, new.tokenizer)
    if not saved.is_file() or new.tokenizer is None:
        same = (old.tokenizer is None) == (new.tokenizer is None)
    else:
        try:
            same = Tokenizer.load(new.tokenizer).identity == Tokenizer.load(saved).identity
        except WorkbenchError:
            if new.tokenizer != old.tokenizer:
                raise
            same = True  # the run was moved without its inputs
    if not same:
        raise WorkbenchError(
            f"{run} was trained with the tokenizer in {saved}, but the recipe names {new.tokenizer}, which is another; "
            f"continue with tokenizer={saved}, or choose another run folder"
        )


def _check_copy(saved: Path, named: str | None) -> None:
    """Check that the run's copy is the recorded tokenizer. The message says whether the recipe's tokenizer could
    replace it."""
    record = read_data(saved.parent)
    known = set(record["read"].get("tokenizer", {}).values()) if record else set()
    if not saved.is_file() or not known or _identity(str(saved)) in known:
        return
    fix = "copy it back from where it is still as it was"
    if named is not None and Path(named).resolve() != saved.resolve() and _identity(named) in known:
        fix = f"remove it: it is then copied again from {named}, which is the right one"
    raise WorkbenchError(
        f"{saved} is not the tokenizer that the run was trained with: it was changed or damaged since ({DATA} has its "
        f"checksum); {fix}"
    )


def _identity(tokenizer: str) -> str | None:
    """The identity of a tokenizer; None if it is missing or damaged."""
    try:
        return Tokenizer.load(tokenizer).identity
    except WorkbenchError:
        return None


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """The values of a recipe by their dotted keys."""
    return dict(_flat(with_urls(dataclasses.asdict(recipe))))


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for i, inner in enumerate(value):
            yield from _flat(inner, f"{place}[{i}]")
    else:
        yield place, value
