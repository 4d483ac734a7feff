"""The sequences that a run with images or videos was pretrained on, for another task or pass of the same run.

The recipe decides what captions belong to: the first task whose builder has a component for a medium, in the option
that the builder's class names (`medium`). The builder names the one for a single caption (`caption_builder`), and
splits a record into the media of captions: an image, or the segments of a video.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from workbench.components.building import find, options_of
from workbench.core.errors import WorkbenchError
from workbench.pretraining.task import Task
from workbench.recipe.spec import Recipe, SequenceSpec, Spec, TaskSpec
from workbench.sequences.builders.image_caption import ImageCaptionBuilder
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class Medium:
    """The medium that a run's captions describe: images or videos.

    Attributes:
        task: the first one that reads it.
        option: the option of the task's builder for the component that makes the stream.
        stream: the name of the stream.
        builder: the builder of one caption with this medium.
    """

    task: TaskSpec
    option: str
    stream: str
    builder: str

    @property
    def stated(self) -> Spec:
        """The recipe's options of the task's builder."""
        stated = self.task.sequence.builder
        assert isinstance(stated, dict)
        return stated


def medium_of(recipe: Recipe) -> Medium:
    """The medium of the first task whose builder reads images or videos.

    Raises:
        WorkbenchError: there is none.
    """
    for task in recipe.tasks.values():
        stated = task.sequence.builder
        if isinstance(stated, str):
            continue
        part = find("builder", str(stated["builder"]))
        if stated.get(part.medium) is not None:
            stream = stated.get("stream", options_of(part).defaults.get("stream", "image"))
            return Medium(task, part.medium, str(stream), part.caption_builder)
    raise _blind(recipe, "image", "neither images nor videos", "`image_processor:` or `video:`")


def image_task(recipe: Recipe) -> TaskSpec:
    """The first task whose builder reads images.

    Raises:
        WorkbenchError: there is none.
    """
    for task in recipe.tasks.values():
        builder = task.sequence.builder
        if isinstance(builder, dict) and builder.get("image_processor") is not None:
            return task
    raise _blind(recipe, "image", "no images", "`image_processor:`")


def _blind(recipe: Recipe, stream: str, what: str, option: str) -> WorkbenchError:
    """The error for a run that reads no such medium."""
    seen = any(stream in network.streams for network in recipe.networks.values())
    advice = (
        f"its network has a stream `{stream}`, so name it as init_from of a recipe whose builder says what the rows of "
        f"an {stream} are, and take the run of that (of a Hugging Face folder: workbench pretrain FOLDER makes it)"
        if seen
        else "take a vision-language run"
    )
    return WorkbenchError(
        f"the run {recipe.name!r} reads {what}: none of its tasks ({', '.join(recipe.tasks)}) has a builder with "
        f"{option}; {advice}"
    )


def image_sequence(recipe: Recipe, builder: str, *, max_length: int | None = None, **options: Any) -> SequenceSpec:
    """A sequence spec with another builder, and with the recipe's own images and transforms.

    Args:
        builder: `question_image` or `image_caption`.
        max_length: tokens of the text; by default the recipe's own.
        options: of the builder.
    """
    own = image_task(recipe).sequence
    assert isinstance(own.builder, dict)
    length = own.builder.get("max_length") if max_length is None else max_length
    spec = {"builder": builder, "max_length": length, "image_processor": own.builder["image_processor"], **options}
    return SequenceSpec(spec, transforms=own.transforms)


def caption_sequence(recipe: Recipe, *, max_length: int | None = None, **options: Any) -> SequenceSpec:
    """A sequence spec for one caption with its image or video, with the recipe's transforms; see `image_sequence`."""
    medium = medium_of(recipe)
    own = medium.stated
    kept = {name: own[name] for name in (medium.option, "stream") if name in own}
    length = own.get("max_length") if max_length is None else max_length
    spec = {"builder": medium.builder, "max_length": length, **kept, **options}
    return SequenceSpec(spec, transforms=medium.task.sequence.transforms)


def media_of(task: Task, samples: Iterable[Sample]) -> list[Sample]:
    """A sample for each image, or each segment of a video, that has captions, as the task's builder splits them."""
    builder = task.builder
    if not isinstance(builder, ImageCaptionBuilder):
        return list(samples)
    return [medium for sample in samples for medium in builder.media(sample)]
