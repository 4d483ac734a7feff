"""Names of torch's `MultiheadAttention`: tables of rules."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.interop.bert_names import both
from workbench.interop.rules import RowRanges, Rule, SameTensor, Stack


def divided_attention(theirs: str, ours: str, size: int, same: bool) -> Iterator[Rule]:
    """The rules of a torch `MultiheadAttention` to another stream, whose query is a separate map here.

    Args:
        size: width of the queries.
        same: the two streams have one width; then torch keeps the maps as one.
    """
    parts = ((0, size), (size, 3 * size))
    names = (f"{ours}.query", f"{ours}.key_value")

    def split(parameter: str) -> Rule:
        targets = tuple((f"{name}.{parameter}", part) for name, part in zip(names, parts, strict=True))
        return RowRanges(f"{theirs}.in_proj_{parameter}", targets, 3 * size)

    if same:
        yield split("weight")
    else:
        yield SameTensor(f"{theirs}.q_proj_weight", f"{names[0]}.weight")
        yield Stack((f"{theirs}.k_proj_weight", f"{theirs}.v_proj_weight"), f"{names[1]}.weight")
    yield split("bias")
    yield from both(f"{theirs}.out_proj", f"{ours}.output")
