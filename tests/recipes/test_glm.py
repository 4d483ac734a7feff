"""GLM: blanks of tokens and of documents learned by one head, and what a run does with a text and with a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.loaded_runs import encode_texts, generate_texts
from workbench.core.errors import WorkbenchError
from workbench.evaluation.analysis.encoding import Encoder
from workbench.generation.decoding import Decoding
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import LoadedRun, load
from workbench.training.pretrain import pretrain

PROMPTS = ["They like the [MASK] and Norway.", "They like", "[MASK]"]
SMALL = ["train.max_steps=4", "train.lr_schedule.warmup_steps=1", "model.streams.text.hidden_size=32"]


@pytest.fixture(scope="module")
def glm(world: Any, tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """The tiny size with the documents of the size `doc`."""
    corpus, document = f"['{world.text}']", load_recipe("glm-doc").tasks["document"]
    objectives = f"tasks.document.objectives={document.objectives}"
    sequence = "tasks.document.sequence={builder: document, max_length: 64}"
    more = ["schedule=sampled", f"tasks.document.corpora={corpus}", sequence, objectives]
    given = [f"tokenizer={world.tokenizer}", f"tasks.text.corpora={corpus}"]
    return load(pretrain(load_recipe("glm-tiny", [*SMALL, *given, *more]), Path(tmp_path_factory.mktemp("r")) / "glm"))


def test_both_levels_have_one_head(glm: LoadedRun) -> None:
    assert list(glm.model.heads) == ["blanks"]
    levels = {name: task.objectives[0].objective.level for name, task in glm.tasks.items()}  # type: ignore[attr-defined]
    assert levels == {"text": "span", "document": "document"}


def test_a_text_without_blanks_is_encoded_in_both_directions(glm: LoadedRun) -> None:
    [sequence] = Encoder(glm)._texts([{"key": "", "draw": (0,), "text": "They like"}], ())
    assert not {"rank", "block_ids"} & sequence.streams["text"].keys()
    vectors = encode_texts(glm, ["They like", "the river"])
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-4)


def test_blanks_of_prompts_are_filled_alone_as_together(glm: LoadedRun) -> None:
    decoding = Decoding(max_new_tokens=5)
    together = generate_texts(glm, PROMPTS, decoding)
    assert together == [generate_texts(glm, [prompt], decoding)[0] for prompt in PROMPTS]


def test_what_is_written_in_a_blank_has_its_own_limit(glm: LoadedRun) -> None:
    with pytest.raises(WorkbenchError, match=r"2 block_ids and --max-new-tokens is 63.* 64 block_ids: at most 62 new"):
        generate_texts(glm, PROMPTS[:1], Decoding(max_new_tokens=63))
    assert generate_texts(glm, PROMPTS[:1], Decoding(max_new_tokens=62))


def test_a_span_longer_than_the_table_is_refused_before_the_network_reads_it(glm: LoadedRun) -> None:
    task = glm.tasks["document"]
    samples = [{"key": "k", "draw": (0, 0), "text": "They like the river and the bridge of Norway. " * 3}]
    task.micro_batch(samples, (0, 0, 0))
    limits, task.limits = task.limits, {"text": {"block_ids": 5}}
    with pytest.raises(
        WorkbenchError, match=r"place in a blank .* block_positions = 5: enlarge it, or cut shorter spans"
    ):
        task.micro_batch(samples, (0, 0, 0))
    task.limits = limits
