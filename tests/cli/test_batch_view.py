"""What `show --batch` prints of a sequence: labels at the rows of their own stream, and as what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from workbench.cli.batch_view import sequence_view
from workbench.pretraining.objective import Objective
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Rows, Sequence, text_fields


class Names:
    """A tokenizer whose tokens are named after their numbers."""

    def tokens(self, ids: list[int]) -> list[str]:
        return [f"w{i}" for i in ids]


class Tokens(Objective):
    predicts = "tokens"


def batch() -> Batch:
    """Two sequences: texts of three and two rows, a caption each, entities on the first rows, all with labels."""
    made = []
    for i, length in enumerate((3, 2)):
        text, caption = text_fields(10 * i + np.arange(length)), text_fields(100 + 10 * i + np.arange(2))
        hung = Rows("text", np.array([0]), bound=True)
        sequence = Sequence({"text": text, "caption": caption}, (i,), f"k{i}")
        sequence.streams["entity"] = {"entity_ids": np.array([4 + i]), "token": hung}
        sequence.targets = {
            "mlm": {"rows": Rows("text", np.array([1])), "labels": np.array([40 + i])},
            "of_caption": {"rows": Rows("caption", np.array([0])), "labels": np.array([60 + i])},
            "dea": {"rows": Rows("text", np.array([0])), "labels": np.array([i])},
            "nsp": {"labels": np.array([i])},
        }
        made.append(sequence)
    return collate(made)


def printed(view: Any) -> list[str]:
    console = Console(width=200, no_color=True)
    with console.capture() as found:
        console.print(view)
    return found.get().splitlines()


def test_labels_stand_at_the_rows_of_their_stream() -> None:
    objectives = {"mlm": Tokens(), "of_caption": Tokens(), "dea": Objective(), "nsp": Objective()}
    lines = printed(sequence_view(batch(), 1, Names(), objectives))
    assert [line.strip() for line in lines] == [
        "k1",
        "w10 w11(w41)",
        "caption: w110(w61) w111",
        "entity: 1 rows, table rows 5",
        "dea labels: w10 1",
        "nsp label: 1",
    ]


def test_a_token_with_an_entity_is_underlined() -> None:
    view = sequence_view(batch(), 0, Names(), {})
    text = next(part for part in view.renderables if part.plain.strip().startswith("w0 "))
    assert [text.plain[s.start : s.end] for s in text.spans if "underline" in str(s.style)] == ["w0"]
