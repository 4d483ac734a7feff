"""The sequences that a run with images was pretrained on, for another task or pass of the same run."""

from __future__ import annotations

from typing import Any

from workbench.errors import WorkbenchError
from workbench.recipe.spec import Recipe, SequenceSpec, TaskSpec


def image_task(recipe: Recipe) -> TaskSpec:
    """The first task whose builder reads images.

    Raises:
        WorkbenchError: there is none.
    """
    for task in recipe.tasks.values():
        builder = task.sequence.builder
        if isinstance(builder, dict) and builder.get("image") is not None:
            return task
    raise WorkbenchError(
        f"the run {recipe.name!r} reads no images: none of its tasks ({', '.join(recipe.tasks)}) has a builder with "
        "`image:`; take a vision-language run"
    )


def image_sequence(recipe: Recipe, builder: str, *, max_length: int | None = None, **options: Any) -> SequenceSpec:
    """A sequence with the images and steps of the recipe's own, made by another builder.

    Args:
        builder: `question_image` or `image_caption`.
        max_length: tokens of the text; by default the recipe's own.
        options: of the builder.
    """
    own = image_task(recipe).sequence
    assert isinstance(own.builder, dict)
    length = own.builder.get("max_length") if max_length is None else max_length
    spec = {"builder": builder, "max_length": length, "image": own.builder["image"], **options}
    return SequenceSpec(spec, steps=own.steps)
