"""Tables with other rows than the source's: more tokens, more positions, other classes.

Rows of tokens are matched by the token's string where both sides have a tokenizer, so that added, removed and
re-ordered tokens find their vector; otherwise the first rows are the first rows. Rows of classes, of heads that name
their tensors with such rows, are matched by the class's name. Rows that the source doesn't have keep their fresh
values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.interop.weight_sources import RUN, WeightSource, classes_of
from workbench.recipe.spec import Spec

logger = logging.getLogger(__name__)
SHOWN = 5


class Vocabularies(NamedTuple):
    """Token -> row, of the weights to start from and of ours; None where there is no tokenizer."""

    theirs: Mapping[str, int] | None
    ours: Mapping[str, int] | None

    @property
    def differ(self) -> bool:
        return self.theirs is not None and self.ours is not None and dict(self.theirs) != dict(self.ours)


def grown(
    target: nn.Module, tensors: Mapping[str, Tensor], vocabularies: Vocabularies, where: str
) -> dict[str, Tensor]:
    """The tensors; tables with other rows are filled up with the target's own.

    Raises:
        WorkbenchError: a table of tokens has fewer rows here, and tokenizers are missing; or no token is in common.
    """
    own = target.state_dict(keep_vars=True)
    by_token, tables = _by_token(target), _tables(target)
    made = {}
    for name, tensor in tensors.items():
        fits = tensor.dim() == own[name].dim() and tensor.shape[1:] == own[name].shape[1:]
        if name in by_token and fits and (vocabularies.differ or len(tensor) != len(own[name])):
            made[name] = _by_strings(name, own[name], tensor, vocabularies, where)
        elif name in tables and name not in by_token and fits and len(tensor) != len(own[name]):
            made[name] = _first_rows(name, own[name], tensor, where)
        else:
            made[name] = tensor
    return made


def _by_strings(name: str, own: Tensor, tensor: Tensor, vocabularies: Vocabularies, where: str) -> Tensor:
    theirs, ours = vocabularies
    if theirs is None or ours is None:
        if len(tensor) > len(own):
            raise WorkbenchError(
                f"{where}: {name} has {len(tensor):,} rows there and {len(own):,} here, and "
                f"{'the weights come' if theirs is None else 'the recipe comes'} without a tokenizer, which would "
                "match the tokens; put the tokenizer there, or set the table's vocab_size to that of the weights"
            )
        return _first_rows(name, own, tensor, where)
    pairs = [(row, theirs[t]) for t, row in ours.items() if theirs.get(t, len(tensor)) < len(tensor) and row < len(own)]
    if not pairs:
        raise WorkbenchError(f"{where}: {name}: the tokenizers have no token in common; start without these weights")
    grown = _with_rows(own, tensor, pairs)
    new = [token for token, row in sorted(ours.items(), key=lambda item: item[1]) if token not in theirs]
    left = sum(token not in ours for token in theirs)
    more = ", ..." if len(new) > SHOWN else ""
    named = f" ({', '.join(new[:SHOWN])}{more})" if new else ""
    logger.info(
        "%s: %s: %d of %d rows by their tokens; %d are new and keep their fresh values%s; %d of there are left out",
        *(where, name, len(pairs), len(own), len(own) - len(pairs), named, left),
    )
    return grown


def by_class(
    heads: Mapping[str, nn.Module],
    tensors: Mapping[str, Tensor],
    objectives: Mapping[str, Spec],
    source: WeightSource,
    where: str,
) -> dict[str, Tensor]:
    """The tensors, where those with a row for each class of a head (`Head.by_class`) have the rows of our classes.

    A run's head starts with fresh values where its classes are not known any more. The rows of a checkpoint that names
    no classes are used if their number is the same.

    Args:
        heads: ours, by the names of their objectives.
        objectives: their entries in the recipe.
    """
    made = dict(tensors)
    for name, head in heads.items():
        own = head.state_dict()
        rows = [key for key in (f"{name}.{each}" for each in getattr(head, "by_class", ())) if key in tensors]
        there, here = (specs.get(name, {}) for specs in (source.heads, objectives))
        if not rows or there == here or there.get("objective") != here.get("objective"):
            continue
        ours, known = classes_of(here), source.classes(name)
        if ours is None or (known is None and source.family != RUN):
            continue
        wide = any(tensors[key].shape[1:] != own[key.partition(".")[2]].shape[1:] for key in rows)
        if wide or known is None or any(len(tensors[key]) != len(known) for key in rows):
            why = "reads rows of another width there" if wide else "has classes there that are not known any more"
            logger.warning("%s: head %s %s; it keeps its fresh values", where, name, why)
            made = {key: tensor for key, tensor in made.items() if not key.startswith(f"{name}.")}
        elif ours is not None and ours != known:
            place = {each: row for row, each in enumerate(known)}
            pairs = [(row, place[each]) for row, each in enumerate(ours) if each in place]
            made |= {key: _with_rows(own[key.partition(".")[2]], tensors[key], pairs) for key in rows}
            logger.info(
                "%s: head %s: %d of its %d classes are among the %d there; the others keep their fresh values",
                *(where, name, len(pairs), len(ours), len(known)),
            )
    return made


def _with_rows(own: Tensor, tensor: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    """Our tensor with rows (ours, theirs) of the other one."""
    made = own.detach().clone()
    if pairs:
        here, there = torch.tensor(pairs).unbind(1)
        made[here] = tensor[there].to(made)
    return made


def _first_rows(name: str, own: Tensor, tensor: Tensor, where: str) -> Tensor:
    rows = min(len(own), len(tensor))
    grown = own.detach().clone()
    grown[:rows] = tensor[:rows].to(grown)
    logger.warning(
        "%s: %s has %d rows there and %d here: the first %d are copied%s",
        *(where, name, len(tensor), len(own), rows, "; the rest keeps its fresh values" if rows < len(own) else ""),
    )
    return grown


def _by_token(target: nn.Module) -> set[str]:
    return {f"{prefix}.{name}" for prefix, module in target.named_modules() for name in getattr(module, "by_token", ())}


def _tables(target: nn.Module) -> set[str]:
    """The tables of embeddings."""
    return {
        f"{prefix}.weight"
        for prefix, module in target.named_modules(remove_duplicate=False)
        if isinstance(module, nn.Embedding) and prefix.startswith("embeddings.")
    }
