"""The tokens that another objective has masked, for objectives with other targets at the same tokens."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sequence


def hidden_tokens(sequence: Sequence, of: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows that an objective has hidden, and the ids of the tokens that stood there.

    Raises:
        WorkbenchError: that objective hides no tokens.
    """
    found = sequence.targets.get(of, {})
    if not {"rows", "labels"} <= found.keys():
        raise WorkbenchError(
            f"the objective {of!r} hides no tokens (sequence {sequence.key!r}); name one that does, such as mlm, "
            "as `of`, in the same view"
        )
    return np.asarray(found["rows"]), np.asarray(found["labels"])
