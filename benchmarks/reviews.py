"""Reviews with ratings, which sentiment systems read, from published files.

The ratings are those of VADER's authors (Hutto & Gilbert 2014, `movieReviewSnippets_GroundTruth.txt` of the package
`vaderSentiment`): lines of number, mean of at least 20 persons' ratings from -4 to 4, sentence.
"""

from __future__ import annotations

import json
from pathlib import Path

LOWEST, WIDTH, CLASSES = -4, 2, 5


def write_reviews(ratings: Path, output: Path) -> Path:
    """JSON lines of `text` and the label `label`, the rating to the nearest of -4, -2, 0, 2 and 4 as "1" to "5"."""
    with ratings.open(encoding="utf-8", errors="replace") as lines, output.open("w", encoding="utf-8") as rows:
        for line in lines:
            _, rating, text = line.rstrip("\n").split("\t")
            label = min(max(round((float(rating) - LOWEST) / WIDTH), 0), CLASSES - 1) + 1
            rows.write(json.dumps({"text": text, "labels": {"label": str(label)}}) + "\n")
    return output
