"""Visual tokens: a tree of clusters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from vision.video.clip_vocabulary import Vocabulary, sample_features
from workbench.core.errors import WorkbenchError

pytest.importorskip("sklearn")


def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Four far groups, each of two that are nearer."""
    rng = np.random.default_rng(0)
    centres = np.array([[x + dx, y] for x in (0, 100) for y in (0, 100) for dx in (0, 10)], np.float32)
    return np.repeat(centres, 30, 0) + rng.normal(size=(240, 2)).astype(np.float32), np.repeat(np.arange(8), 30)


def test_tokens_are_the_leaves_of_the_nearest_centres() -> None:
    features, groups = blobs()
    made = Vocabulary.fit(features, 4, 2, "b")
    assert made.size == 16
    codes = made(features)
    assert codes.dtype == np.int32
    pairs = {(int(group), int(code) // 4) for group, code in zip(groups // 2, codes, strict=True)}
    assert len(pairs) == 4, "the first level finds the four far groups"
    assert len({*zip(groups.tolist(), codes.tolist(), strict=True)}) <= 16
    for feature, code in zip(features[::17], codes[::17], strict=True):  # a loop over the definition
        node = 0
        for level in made.centres:
            node = node * 4 + int(np.square(level[node] - feature).sum(1).argmin())
        assert node == code
    near = {group: set(codes[groups == group].tolist()) for group in range(8)}
    assert all(not near[2 * g] & near[2 * g + 1] for g in range(4)), "the second level parts those that are near"


def test_few_features_have_tokens_of_their_own() -> None:
    made = Vocabulary.fit(np.eye(3, dtype=np.float32), 3, 3, "b")
    assert len(set(made(np.eye(3, dtype=np.float32)).tolist())) == 3
    with pytest.raises(WorkbenchError, match="3 clips cannot be cut into 4 clusters"):
        Vocabulary.fit(np.eye(3, dtype=np.float32), 4, 1, "b")


def test_it_is_written_and_read(tmp_path: Path) -> None:
    features, _ = blobs()
    made = Vocabulary.fit(features, 3, 2, "net@1")
    made.save(tmp_path / "v.safetensors")
    read = Vocabulary.open(tmp_path / "v.safetensors")
    assert (read.identity, read.backbone) == (made.identity, "net@1")
    np.testing.assert_array_equal(read(features), made(features))
    assert Vocabulary(made.centres, "net@2").identity != made.identity
    save_file({"level0": features}, tmp_path / "other.safetensors")
    for name in ("other.safetensors", "none.safetensors"):
        with pytest.raises(WorkbenchError, match="is not a vocabulary of clips"):
            Vocabulary.open(tmp_path / name)


def test_a_sample_of_features_is_drawn_evenly() -> None:
    batches = [np.full((10, 1), number, np.float32) for number in range(100)]
    assert len(sample_features(batches, 5000, 0)) == 1000
    found = sample_features(batches, 200, 0)
    assert len(found) == 200
    assert abs(found.mean() - 49.5) < 4 * 29 / np.sqrt(200)
    np.testing.assert_array_equal(found, sample_features(batches, 200, 0))
