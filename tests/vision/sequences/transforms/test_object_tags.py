"""The transform `vision.object_tags`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts import material
from vision.sequences.transforms.object_tags import ObjectTagsTransform
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

EXCUSED = "the contract's regions have no classes, which it reads"
DRAWS = Draws(0, "transform", number=())
NAMES = ["background", "river", "boats,small boats", "people"]
CLASSES = [3, 1, 3, 2]


def sequence(classes: list[int] | None = CLASSES, special: bool = False) -> Sequence:
    n = len(classes or CLASSES)
    image: dict[str, Any] = {"boxes": np.zeros((n, 4), np.float32), "confidence": np.array([0.1, 0.5, 0.9, 0.5])[:n]}
    if classes is not None:
        image["classes"] = np.array(classes)
    if special:
        image["special"] = np.arange(n) == 2
    return Sequence({"text": text_fields(np.arange(3)), "image": image}, (0,))


def test_names_come_once_and_the_surest_first(tmp_path: Path) -> None:
    tokenizer = material.tokenizer()
    file = tmp_path / "objects.txt"
    file.write_text("\n".join(NAMES))
    spelt = {name: tokenizer.encode(name).ids.tolist() for name in ("people", "river", "boats")}
    for names in (NAMES, str(file)):
        transform = ObjectTagsTransform(tokenizer, names, most=99, position=20)
        tags = transform([sequence()], DRAWS)[0].streams["tags"]
        wanted = spelt["people"] + spelt["river"] + spelt["boats"]
        assert tags["input_ids"].tolist() == [*wanted, tokenizer.id("sep")]
        assert tags["position_ids"].tolist() == list(range(20, 21 + len(wanted)))
        assert tags["special"].tolist() == [False] * len(wanted) + [True]
        assert set(tags["token_type_ids"]) == {1}
        assert transform.take_used() == {"object tags": 3}
    row = ObjectTagsTransform(tokenizer, NAMES, most=99)([sequence(special=True)], DRAWS)[0].streams["tags"]
    assert row["input_ids"].tolist() == [*spelt["river"], *spelt["boats"], *spelt["people"], tokenizer.id("sep")]


def test_a_name_that_does_not_fit_is_left_out_and_counted() -> None:
    tokenizer = material.tokenizer()
    people = tokenizer.encode("people").ids.tolist()
    transform = ObjectTagsTransform(tokenizer, NAMES, most=len(people) + 1)
    assert transform([sequence()], DRAWS)[0].streams["tags"]["input_ids"].tolist() == [*people, tokenizer.id("sep")]
    assert transform.take_dropped() == {"object tags over most": 2}


def test_tags_go_with_their_image() -> None:
    found = ObjectTagsTransform(material.tokenizer(), NAMES)([sequence(), Sequence({}, (1,))], DRAWS)
    assert set(found[0].alone("image").streams) == {"image", "tags"}
    assert set(found[0].alone("text").streams) == {"text"}
    assert collate(found).streams["tags"].lengths[1] == 0


@pytest.mark.parametrize(("classes", "message"), [(None, "have no classes"), ([4], "has the class 4, and names has 4")])
def test_classes_without_a_name_are_refused(classes: list[int] | None, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        ObjectTagsTransform(material.tokenizer(), NAMES)([sequence(classes)], DRAWS)
