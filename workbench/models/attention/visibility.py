"""The visibility of tokens: five integers per token and one predicate; a sixth exempts tokens from a layer's window.

    visible(q, k) =  doc[q] == doc[k]
                and  rank[k] <= rank[q]  and  (until[k] == 0 or rank[q] < until[k])
                and  (branch[q] == branch[k]  or  anchor[q] == anchor[k] and (branch[q] == 0 or branch[k] == 0))

Bidirectional attention is rank 0 everywhere; causal is rank = position; a prefix language model has rank 0 in the
prefix and 1..n after it; until = r hides a key from rank r on (MPNet, arXiv:2004.09297: a mask replaces a token until
that is predicted); K-BERT's visible matrix (arXiv:1909.07606, eq. 3) is branch = number of the injected
triple, 0 on the trunk, and anchor = number of the mention to which the branch belongs. True means: may attend.

    near(q, k) =  |place[q] - place[k]| <= window  or  everywhere[q] or everywhere[k]

is required as well in a layer with a window. The tokens that Longformer (arXiv:2004.05150, section 3.1) and BigBird
(arXiv:2007.14062, section 2) call global have everywhere = 1: they see all rows, and all rows see them, as far as the
predicate above allows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Integers = Mapping[str, Tensor]


def visible(queries: Integers, keys: Integers) -> Tensor | None:
    """The predicate, broadcast: integers of the queries [..., q] and of the keys [..., k] -> bool [..., q, k].

    A missing integer is 0 everywhere. None where everything is visible by construction (no integers on either side).
    """
    terms = []
    for name, compare in (("doc", torch.eq), ("rank", torch.ge)):
        pair = _pair(name, queries, keys)
        if pair is not None:
            terms.append(compare(*pair))
    if "until" in keys:
        until, rank = keys["until"].unsqueeze(-2), queries.get("rank")
        terms.append((until == 0) | ((0 if rank is None else rank.unsqueeze(-1)) < until))
    branches = _pair("branch", queries, keys)
    if branches is not None:
        q_branch, k_branch = branches
        anchors = _pair("anchor", queries, keys)
        same = anchors[0] == anchors[1] if anchors is not None else torch.ones_like(q_branch == k_branch)
        terms.append((q_branch == k_branch) | (same & ((q_branch == 0) | (k_branch == 0))))
    if not terms:
        return None
    mask = terms[0]
    for term in terms[1:]:
        mask = mask & term
    return mask


def near(queries: Integers, keys: Integers, q_places: Tensor, k_places: Tensor, window: int) -> Tensor:
    """The pairs that a window allows: integers and places [..., q] and [..., k] -> bool [..., q, k]."""
    found = (q_places.unsqueeze(-1) - k_places.unsqueeze(-2)).abs() <= window
    everywhere = _pair("everywhere", queries, keys)
    return found if everywhere is None else found | (everywhere[0] > 0) | (everywhere[1] > 0)


def _pair(name: str, queries: Integers, keys: Integers) -> tuple[Tensor, Tensor] | None:
    """The integers as [..., q, 1] and [..., 1, k]; None where neither side has them."""
    q, k = queries.get(name), keys.get(name)
    if q is None and k is None:
        return None
    zero = torch.zeros(1, dtype=torch.long, device=(q if q is not None else k).device)  # type: ignore[union-attr]
    return (q if q is not None else zero).unsqueeze(-1), (k if k is not None else zero).unsqueeze(-2)
