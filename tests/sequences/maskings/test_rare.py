"""The masking strategy `rare`, and the counts that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tests.contracts.cases import MaskingCase
from tests.contracts.material import selected, tokenizer
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.sequences.maskings import RareMasking
from workbench.sequences.sequence import Sequence, text_fields
from workbench.text.token_counts import read_token_counts, save_token_counts

FOLDER = TemporaryDirectory()  # kept as long as the tests run
COUNTS = Path(FOLDER.name) / "counts.json"
FREQUENT, RARE = 20, 21
SIZE = max(tokenizer().vocabulary.values()) + 1


def counted(path: Path) -> Path:
    """Token 20 is a hundred times as frequent as all others; token 22 was not found."""
    counts = np.full(SIZE, 9)
    counts[FREQUENT], counts[22] = 900, 0
    save_token_counts(path, counts, tokenizer().identity, {})
    return path


CASE = MaskingCase({"counts": str(counted(COUNTS))})


def test_a_token_is_drawn_by_the_square_root_of_its_inverse_frequency() -> None:
    """Of two tokens one is masked: the rare one ten times out of eleven."""
    masking = RareMasking(tokenizer(), str(COUNTS))
    sequence = Sequence({"text": text_fields(np.array([FREQUENT, RARE]))}, ())
    drawn = [int(selected(masking, sequence, "text", 0.5, generator(i))[0][0]) for i in range(2000)]
    share, wanted = float(np.mean(drawn)), 10 / 11
    assert abs(share - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / 2000)
    even = [
        int(selected(RareMasking(tokenizer(), str(COUNTS), exponent=1e-6), sequence, "text", 0.5, generator(i))[0][0])
        for i in range(400)
    ]
    assert abs(float(np.mean(even)) - 0.5) < 0.1


def test_what_counts_no_tokens_or_those_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    with pytest.raises(WorkbenchError, match=r"No such file.*; `workbench prepare token-counts"):
        read_token_counts(path, tokenizer())
    for text in ("{", "[]", '{"kind": "token counts", "counts": [-1]}', '{"kind": "token counts", "counts": [true]}'):
        path.write_text(text)
        with pytest.raises(WorkbenchError, match="holds no token counts"):
            read_token_counts(path, tokenizer())
    reported = json.loads(counted(path).read_text())
    path.write_text(json.dumps({**reported, "tokenizer": "another"}))
    with pytest.raises(WorkbenchError, match="of another tokenizer than the recipe's"):
        RareMasking(tokenizer(), str(path))
