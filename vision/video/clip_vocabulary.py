"""Visual tokens: a tree of clusters over clip features (VideoBERT, Sun et al., arXiv:1904.01766, section 4.2).

Hierarchical k-means: all features are cut into `branches` clusters, each of these again, `levels` times. A clip's token
is the leaf that is reached through the nearest centre at every level; there are branches ** levels of them (12 ** 4 =
20,736 in the paper).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.drafts import atomic
from workbench.core.packages import library

BLOCK = 1024  # features that are looked up at once


class Vocabulary:
    """A tree of clusters.

    Args:
        centres: [nodes, branches, d] float32 for each level; a branch without features is infinite.
        backbone: the extractor of the features.
    """

    def __init__(self, centres: list[np.ndarray], backbone: str) -> None:
        self.centres, self.backbone = centres, backbone
        self.branches, self.levels = centres[0].shape[1], len(centres)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return int(self.branches**self.levels)

    @property
    def identity(self) -> str:
        """The identity of the tree, stored with the tokens."""
        total = hashlib.sha256(self.backbone.encode())
        for level in self.centres:
            total.update(level.tobytes())
        return f"k-means:{self.branches}^{self.levels}@{total.hexdigest()[:12]}"

    @classmethod
    def fit(cls, features: np.ndarray, branches: int, levels: int, backbone: str, seed: int = 0) -> Vocabulary:
        """The tree of features [n, d], by scikit-learn's mini-batch k-means.

        Raises:
            WorkbenchError: there are fewer features than branches.
        """
        if len(features) < branches:
            raise WorkbenchError(
                f"{len(features)} clips cannot be cut into {branches} clusters; add clips, or use fewer branches"
            )
        node, centres = np.zeros(len(features), np.int64), []
        for level in range(levels):
            found = np.full((branches**level, branches, features.shape[1]), np.inf, np.float32)
            for number in np.unique(node):
                inside = np.flatnonzero(node == number)
                found[number, : min(branches, len(inside))] = _clusters(features[inside], branches, seed)
            centres.append(found)
            node = _descend(found, node, features)
        return cls(centres, backbone)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """The tokens of features [n, d]: [n] int32."""
        node = np.zeros(len(features), np.int64)
        for centres in self.centres:
            node = _descend(centres, node, features)
        return node.astype(np.int32)

    def save(self, path: Path) -> None:
        """Write it as a .safetensors file, whole or not at all."""
        stated = {"backbone": self.backbone, "kind": "clip vocabulary"}
        with atomic(path) as file:
            file.write(save({f"level{i}": level for i, level in enumerate(self.centres)}, stated))

    @classmethod
    def open(cls, path: Path) -> Vocabulary:
        """
        Raises:
            WorkbenchError: there is no such file, or it holds something else.
        """
        try:
            with safe_open(path, "numpy") as file:
                stated: dict[str, Any] = file.metadata() or {}
                centres = [file.get_tensor(f"level{i}") for i in range(len(list(file.keys())))]
        except (SafetensorError, OSError) as error:
            raise WorkbenchError(
                f"{path} is not a vocabulary of clips ({error}); write one with `workbench prepare clip-vocabulary "
                f"CLIPS --output {quoted(path)}`"
            ) from error
        if stated.get("kind") != "clip vocabulary":
            raise WorkbenchError(f"{path} is not a vocabulary of clips; its metadata is {json.dumps(stated)[:200]}")
        return cls(centres, stated["backbone"])


def sample_features(batches: Iterable[np.ndarray], size: int, seed: int) -> np.ndarray:
    """At most `size` of all features, each with the same probability (reservoir sampling) [n, d] float32."""
    rng, seen = np.random.default_rng(seed), 0
    kept: list[np.ndarray] = []
    for features in batches:
        for row in features:
            if len(kept) < size:
                kept.append(row)
            elif (place := int(rng.integers(seen + 1))) < size:
                kept[place] = row
            seen += 1
    return np.asarray(kept, np.float32)


def _clusters(features: np.ndarray, branches: int, seed: int) -> np.ndarray:
    """Centres of features [n, d]: [min(branches, n), d]."""
    if len(features) <= branches:
        return features
    cluster = library("sklearn.cluster", "video", "clusters")
    means = cluster.MiniBatchKMeans(branches, random_state=seed, n_init=3, batch_size=4096)
    found: np.ndarray = means.fit(features.astype(np.float32)).cluster_centers_
    return found


def _descend(centres: np.ndarray, node: np.ndarray, features: np.ndarray) -> np.ndarray:
    """The nearest branch of each feature's node, as nodes of the next level [n]."""
    nearest = np.zeros(len(features), np.int64)
    for start in range(0, len(features), BLOCK):
        part = slice(start, start + BLOCK)
        distance = np.square(centres[node[part]] - features[part, None].astype(np.float32)).sum(-1)
        nearest[part] = distance.argmin(1)
    return node * centres.shape[1] + nearest
