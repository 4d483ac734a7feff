"""What a downstream task takes over from the pretrained run's recipe."""

from __future__ import annotations

from workbench.recipe.spec import Recipe, Spec


def knowledge_steps(recipe: Recipe) -> list[Spec]:
    """The steps of the first task that has any: what brings knowledge into its sequences."""
    return next((list(task.sequence.steps) for task in recipe.tasks.values() if task.sequence.steps), [])


def text_length(recipe: Recipe, wanted: int) -> int:
    """Tokens of a text: `wanted`, or as many as the networks have positions."""
    streams = [network.streams.get("text", {}) for network in recipe.networks.values()]
    return min([wanted, *(text["max_positions"] for text in streams if text.get("max_positions"))])
