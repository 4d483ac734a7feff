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
    seen = any("image" in network.streams for network in recipe.networks.values())
    advice = (
        "its network has a stream `image`, so name it as init_from of a recipe whose builder says what the rows of an "
        "image are, and take the run of that"
        if seen
        else "take a vision-language run"
    )
    raise WorkbenchError(
        f"the run {recipe.name!r} reads no images: none of its tasks ({', '.join(recipe.tasks)}) has a builder with "
        f"`image:`; {advice}"
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
