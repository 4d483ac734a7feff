"""What `benchmarks.knowledge_steps` measures next to makes the trees that the step makes, both its ways."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.tree_peer import Known, by_pairs, by_rows, sentence_tree
from kg.sequences.tree import BranchedMention, plant
from workbench.sequences.sequence import Sequence

TOKENS = list(range(10, 19))
MENTIONS = [(1, 3, ((50, 51), (52,))), (4, 5, ((60, 61, 62),)), (8, 9, ((70,),))]


@pytest.mark.parametrize("filling", [by_pairs, by_rows])
def test_a_tree_of_the_peer_is_ours(filling) -> None:
    ids = np.array(TOKENS)
    sequence = Sequence({"text": {"input_ids": ids, "position_ids": np.arange(len(ids))}}, ())
    plant(sequence, [BranchedMention(*mention) for mention in MENTIONS])
    text = sequence.streams["text"]
    tree = sentence_tree(Known(TOKENS, MENTIONS), 100, filling)
    assert tree.tokens == text["input_ids"].tolist()
    assert tree.positions == text["position_ids"].tolist()
    branch, anchor = text["branch"], text["anchor"]
    trunk = (branch[:, None] == 0) | (branch == 0)
    visible = (branch[:, None] == branch) | ((anchor[:, None] == anchor) & trunk & (anchor > 0))
    assert (tree.visible == visible).all()
    assert (sentence_tree(Known(TOKENS, MENTIONS), 7, filling).visible == visible[:7, :7]).all()
