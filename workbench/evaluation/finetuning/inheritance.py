"""Settings that a downstream task inherits from the pretrained run's recipe."""

from __future__ import annotations

from typing import Any

from workbench.components.building import find, options_of
from workbench.core.errors import WorkbenchError
from workbench.recipe.spec import Recipe, SequenceSpec, Spec

LENGTH = 128


def knowledge_transforms(recipe: Recipe) -> list[Spec]:
    """The transforms of the first task that has any. They add knowledge to its sequences."""
    return next((list(task.sequence.transforms) for task in recipe.tasks.values() if task.sequence.transforms), [])


def text_length(recipe: Recipe, wanted: int, stream: str = "text") -> int:
    """Tokens of a text: `wanted`, or as many as the networks have positions for the stream."""
    streams = [network.streams.get(stream, {}) for network in recipe.networks.values()]
    return min([wanted, *(text["max_positions"] for text in streams if text.get("max_positions"))])


def length_next_to_transforms(recipe: Recipe) -> int | None:
    """The recipe's own length of a text if a transform adds tokens, for which its `max_length` leaves room. A longer
    text would take this room. None if no transform adds tokens."""
    for task in recipe.tasks.values():
        builder = task.sequence.builder
        own = builder.get("max_length") if isinstance(builder, dict) else None
        if own is not None and any(transform.get("max_length", 0) > own for transform in task.sequence.transforms):
            return int(own)
    return None


def of_marks(transform: Spec) -> Spec:
    """The transform for a task that reads the rows of marked spans: a transform that can add these rows adds them."""
    return (
        {**transform, "marks": True}
        if "marks" in options_of(find("transform", str(transform["transform"]))).names
        else transform
    )


def text_sequence(
    recipe: Recipe,
    builder: str,
    max_length: int | None,
    default: int = LENGTH,
    marks: bool = False,
    **options: Any,
) -> SequenceSpec:
    """A sequence spec for texts: a builder with the recipe's transforms, which add knowledge.

    Args:
        max_length: tokens of a text. None: the default, or less if the networks have fewer positions or the transforms
            need room.
        marks: whether the task reads rows of marked spans (`of_marks`).
        options: of the builder.
    """
    length = max_length or min(text_length(recipe, default), length_next_to_transforms(recipe) or default)
    transforms = knowledge_transforms(recipe)
    transforms = [of_marks(transform) for transform in transforms] if marks else transforms
    return SequenceSpec({"builder": builder, "max_length": length, **options}, transforms=transforms)


def spoken_sequence(recipe: Recipe, max_length: int | None) -> tuple[SequenceSpec, str]:
    """A sequence spec for speech as the first task with speech reads it, and the name of its stream.

    Args:
        max_length: words; by default as many as that task's.

    Raises:
        WorkbenchError: no task reads speech.
    """
    for task in recipe.tasks.values():
        stated = task.sequence.builder
        own = {"builder": stated} if isinstance(stated, str) else stated
        part = find("builder", str(own["builder"]))
        if "frames" in part.reads:
            builder_options = {**own, "split": False, **({"max_length": max_length} if max_length else {})}
            return SequenceSpec(builder_options, transforms=task.sequence.transforms), str(
                {**options_of(part).defaults, **own}["stream"]
            )
    raise WorkbenchError(
        f"the run {recipe.name!r} reads no speech: none of its tasks ({', '.join(recipe.tasks)}) has the builder "
        "`spoken_words`; take a run of a recipe that has (speechbert)"
    )
