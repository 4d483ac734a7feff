"""Windows cover every text exactly, never cut a mention, and end where people would end them."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from workbench.corpora.shards.cuts import REACH, cut_points, windows


def decoded(points: list[int]) -> list[tuple[int, bool]]:
    return [(p >> 1, bool(p & 1)) for p in points]


def plain_windows(length: int, points: list[int], width: int) -> list[tuple[int, int]]:
    """The documented rule, one window at a time."""
    if length <= width:
        return [(0, length)]
    cuts = [*decoded(points), (length, True)]
    at, found = 0, []
    while at < length:
        reach = [c for c in cuts if at < c[0] <= at + width]
        later = [c for c in cuts if c[0] > at]
        strong = [c for c in reach if c[1] and c[0] - at >= width / 2]
        end = (strong or reach or later[:1])[-1][0]
        found.append((at, end))
        at = end
    return found


def random_text(rng: random.Random) -> tuple[str, list[list[int]]]:
    alphabet = ["word ", "a ", ". ", "! ", "\n\n", "x" * 90, "北京", "。", " ", "é", "e\u0301"]
    text = "".join(rng.choices(alphabet, k=rng.randint(0, 120)))
    spans = []
    for _ in range(rng.randint(0, 6)):
        if len(text) > 2:
            start = rng.randrange(len(text) - 1)
            spans.append([start, min(len(text), start + rng.randint(1, 150))])
    return text, sorted(spans)


def test_cut_points_are_ascending_inside_and_outside_mentions() -> None:
    rng = random.Random(1)
    for _ in range(300):
        text, spans = random_text(rng)
        positions = [p for p, _ in decoded(cut_points(text, spans))]
        assert positions == sorted(set(positions))
        assert all(0 < p < len(text) for p in positions)
        assert not any(start < p < end for p in positions for start, end in spans)


def test_a_cut_point_is_always_within_reach_without_mentions() -> None:
    rng = random.Random(2)
    for _ in range(200):
        text, _ = random_text(rng)
        walls = [0, *(p for p, _ in decoded(cut_points(text))), len(text)]
        assert max(b - a for a, b in pairwise(walls)) <= REACH


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two? Three", [5, 10]),
        ("Mr. Smith met J. Doe. He left.", [22]),
        ("今天。明天！", [3]),
        ("para\r\n\r\npara", [8]),
        ("a wrapped\nline. Next", [16]),
        ('He said "no." Then left.', [14]),
        ("", []),
        ("no end", []),
    ],
)
def test_strong_cut_points_follow_sentences_and_paragraphs(text: str, expected: list[int]) -> None:
    assert [p for p, strong in decoded(cut_points(text)) if strong] == expected


def test_weak_cut_points_fall_after_white_space_or_before_a_whole_character() -> None:
    spaced = "abcd " * 40
    assert all(spaced[p - 1] == " " for p, strong in decoded(cut_points(spaced)) if not strong)
    solid = "e\u0301" * 100
    points = decoded(cut_points(solid))
    assert points
    assert all(solid[p] == "e" for p, _ in points)


def test_windows_cover_and_follow_the_rule() -> None:
    rng = random.Random(3)
    for _ in range(60):
        texts = [random_text(rng) for _ in range(rng.randint(1, 6))]
        points = [cut_points(*t) for t in texts]
        lengths = np.array([len(t) for t, _ in texts])
        starts = np.cumsum([0, *map(len, points)])
        width = rng.choice([1, 3, 20, 64, 100, 500, 10_000])
        flat = np.array([p for row in points for p in row], np.int32)
        record, start, end = windows(lengths, starts, flat, width)
        found = [
            [(int(s), int(e)) for r, s, e in zip(record, start, end, strict=True) if r == i] for i in range(len(texts))
        ]
        assert found == [plain_windows(len(t), p, width) for (t, _), p in zip(texts, points, strict=True)]
        for (text, spans), own in zip(texts, found, strict=True):
            assert "".join(text[s:e] for s, e in own) == text
            assert all(any(s <= a and b <= e for s, e in own) for a, b in spans)
