"""mlm of pairs that belong together."""

from __future__ import annotations

import numpy as np

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import token_originals, tokenizer
from vision.objectives.matched_mlm import MatchedMlm
from workbench.core.keyed import Draws
from workbench.objectives.mlm import Mlm
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

CASE = ObjectiveCase(sequence={"builder": "document"}, small=1, recover=token_originals)
DRAWS = Draws(0, "task", "mlm", number=(0,))


def texts(*matched: int) -> list[Sequence]:
    labels = [{} if m < 0 else {"matched": m} for m in matched]
    return [
        Sequence({"text": text_fields(np.arange(10, 40))}, (i,), str(i), labels=own) for i, own in enumerate(labels)
    ]


def test_words_of_exchanged_pairs_are_hidden_and_not_predicted() -> None:
    plain, ours = texts(1, 0, -1), texts(1, 0, -1)
    for part, sequences in ((Mlm(tokenizer(), 0.3), plain), (MatchedMlm(tokenizer(), 0.3), ours)):
        part.corrupt(sequences, DRAWS)
    for one, other in zip(plain, ours, strict=True):
        assert np.array_equal(one.streams["text"]["input_ids"], other.streams["text"]["input_ids"])
    counts = [len(sequence.targets["mlm"]["labels"]) for sequence in ours]
    assert counts[1] == 0
    assert [counts[0], counts[2]] == [len(plain[i].targets["mlm"]["labels"]) for i in (0, 2)]
    assert min(counts[0], counts[2]) > 0
    assert MatchedMlm(tokenizer()).count(collate(ours)) == sum(counts)


def test_a_batch_of_exchanged_pairs_alone_has_no_labels() -> None:
    sequences = texts(0, 0)
    MatchedMlm(tokenizer(), 0.3).corrupt(sequences, DRAWS)
    batch = collate(sequences)
    assert MatchedMlm(tokenizer()).count(batch) == 0
    assert batch.targets["mlm"]["rows"].tolist() == []
