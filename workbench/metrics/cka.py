"""Linear CKA of two sets of states of the same items (Kornblith et al., arXiv:1905.00414, section 3).

With X [n, p] and Y [n, q], each column of mean 0,

    CKA = |Y^T X|^2 / (|X^T X| |Y^T Y|)          (Frobenius norms)

It does not change if X or Y is rotated or multiplied by a number. With K = X X^T and L = Y Y^T the squared norms are
sums of K_ij L_ij, K_ij^2 and L_ij^2 over pairs of items, so an item adds the sums of its row.
"""

from __future__ import annotations

import numpy as np

from workbench.metrics.tallies import Tally


def cka_tally(x: np.ndarray, y: np.ndarray) -> Tally:
    """The tally of CKA, of states [items, width] of each side.

    The interval over draws of items is right up to terms of second order: centring does not move it, as the rows of
    the centred K and L add up to 0.
    """
    x, y = (side - side.mean(0) for side in (x.astype(np.float64), y.astype(np.float64)))
    rows = np.stack([((one @ (one.T @ other)) * other).sum(1) for one, other in ((x, y), (x, x), (y, y))], 1)
    rows[:, 1:] /= np.maximum(rows[:, 1:].sum(0), 1e-300)  # norms, so that figures are near 1 / items
    scale = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    rows[:, 0] /= max(float(scale), 1e-300)
    return Tally("cka", rows)


def cka_table(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """CKA of every layer of one side with every layer of the other [layers, other layers], of states [layers, items,
    width]."""
    sides = [side - side.mean(1, keepdims=True) for side in (x.astype(np.float64), y.astype(np.float64))]
    norms = [np.array([np.linalg.norm(each.T @ each) for each in side]) for side in sides]
    squares = np.array([[np.sum((one.T @ other) ** 2) for other in sides[1]] for one in sides[0]])
    found: np.ndarray = squares / np.maximum(np.outer(*norms), 1e-300)
    return found
