"""A sequence of a batch in the terminal: its streams and the labels of each objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from rich.console import Group
from rich.text import Text
from torch import Tensor

from workbench.generation.decoding import Spelling
from workbench.pretraining.objective import Objective
from workbench.sequences.batch import Batch, Stream
from workbench.text.tokenizer import Tokenizer

BRANCH_STYLES = ("", "cyan", "magenta", "blue", "yellow")
Labels = dict[int, int]  # by row of a stream, or by sequence


def sequence_view(
    batch: Batch, i: int, tokenizer: Tokenizer | None, objectives: Mapping[str, Objective] | None = None
) -> Group:
    """The i-th sequence of a batch.

    A stream of tokens is one line. A token that an objective hides or replaces is red; the token to be predicted
    follows it (`Objective.predicts`). Injected branches are coloured. A token that rows of another stream are attached
    to is underlined. Below are the integer fields that say more than the order of the rows: positions that don't count
    the rows, and the visibility. Other streams show their number of rows and first boxes. Labels that are not tokens
    are numbers, in a line for each objective.
    """
    own = {token: name for objective in (objectives or {}).values() for token, name in objective.own_tokens.items()}
    spelling = None if tokenizer is None else Spelling(tokenizer, own)
    parts = [Text(f"  {batch.keys[i]}", style="dim")]
    for name in sorted(batch.streams, key=lambda name: ("input_ids" not in batch.streams[name].fields, name != "text")):
        stream = batch.streams[name]
        if not stream.lengths[i]:
            continue
        if "input_ids" in stream.fields:
            parts.append(_tokens(batch, name, i, spelling, _wanted(batch, name, objectives or {})))
            parts += _integers(stream, i)
        if "input_ids" not in stream.fields or "boxes" in stream.fields:
            parts.append(_rows(name, stream, i))
    parts += _numbers(batch, i, spelling, objectives or {})
    return Group(*parts)


def _wanted(batch: Batch, stream: str, objectives: Mapping[str, Objective]) -> Labels:
    """The tokens to be predicted, by row of a stream."""
    wanted: Labels = {}
    for name, (of, labels) in _row_labels(batch):
        if of == stream and name in objectives and objectives[name].predicts == "tokens":
            wanted |= labels
    return wanted


def _row_labels(batch: Batch) -> Iterator[tuple[str, tuple[str, Labels]]]:
    """The objectives that have labels for rows: name, stream, labels by row."""
    for name, links in batch.links.items():
        rows, labels = batch.targets[name].get("rows"), batch.targets[name].get("labels")
        if "rows" not in links or rows is None or labels is None or labels.shape != rows.shape:
            continue
        if not labels.is_floating_point():
            yield name, (links["rows"], dict(zip(rows.tolist(), labels.tolist(), strict=True)))


def _tokens(batch: Batch, name: str, i: int, spelling: Spelling | None, wanted: Labels) -> Text:
    stream = batch.streams[name]
    hung = _hung(batch, name)
    line = Text("  " if name == "text" else f"  {name}: ")
    for row in _range(stream, i):
        branch = int(stream.fields["branch"][row]) if "branch" in stream.fields else 0
        style = BRANCH_STYLES[branch % len(BRANCH_STYLES)] + (" underline" if row in hung else "")
        token = _name(int(stream.fields["input_ids"][row]), spelling)
        line.append(token, style="bold red" if row in wanted else style.strip())
        if row in wanted:
            line.append(f"({_name(wanted[row], spelling)})", style="green")
        line.append(" ")
    return line


def _integers(stream: Stream, i: int) -> Iterator[Text]:
    """A line for each integer field of rows, except fields of zeros and positions that count the rows."""
    for field, numbers in stream.fields.items():
        if field == "input_ids" or field in stream.links or numbers.ndim > 1 or numbers.dtype != torch.long:
            continue
        values = numbers[stream.starts[i] : stream.starts[i + 1]].tolist()
        if any(values) and not (field == "position_ids" and values == list(range(len(values)))):
            yield Text(f"  {field}: {', '.join(_stretches(values))}", style="dim")


def _stretches(values: list[int]) -> Iterator[str]:
    """Runs of equal, rising or falling numbers, each as one word: `3 x 0`, `1 to 5`, `9 to 7`, `4`."""
    begin = 0
    while begin < len(values):
        end = begin + 1
        by = values[end] - values[begin] if end < len(values) else 0
        while abs(by) <= 1 and end < len(values) and values[end] - values[end - 1] == by:
            end += 1
        first, last = values[begin], values[end - 1]
        yield str(first) if end == begin + 1 else f"{first} to {last}" if by else f"{end - begin} x {first}"
        begin = end


def _hung(batch: Batch, stream: str) -> set[int]:
    """The rows of a stream that entities of another stream are attached to."""
    hung: set[int] = set()
    for other in batch.streams.values():
        for field, of in other.links.items():
            if of == stream and "entity_ids" in other.fields:
                hung |= set(other.fields[field][other.fields["entity_ids"] > 0].tolist())
    return hung


def _numbers(batch: Batch, i: int, spelling: Spelling | None, objectives: Mapping[str, Objective]) -> Iterator[Text]:
    """Labels that are not tokens: of the sequence, or of its rows next to each row."""
    of_rows = dict(_row_labels(batch))
    for name, targets in batch.targets.items():
        labels = targets.get("labels")
        if name in of_rows:
            stream, by_row = of_rows[name]
            shown = [
                f"{_at(batch.streams[stream], row, spelling)} {by_row[row]}"
                for row in _range(batch.streams[stream], i)
                if row in by_row
            ]
            if shown and (name not in objectives or objectives[name].predicts != "tokens"):
                yield Text(f"  {name} labels: {', '.join(shown)}", style="green")
        elif labels is not None and labels.ndim == 1 and not labels.is_floating_point():
            of = _labelled(targets, batch.size)
            if i in of:
                label = int(labels[of.index(i)])
                yield Text(f"  {name} label: {label if label != -100 else 'none'}", style="green")


def _at(stream: Stream, row: int, spelling: Spelling | None) -> str:
    return _name(int(stream.fields["input_ids"][row]), spelling) if "input_ids" in stream.fields else f"row {row}:"


def _name(token: int, spelling: Spelling | None) -> str:
    return str(token) if spelling is None else spelling.tokens([token])[0]


def _range(stream: Stream, i: int) -> range:
    return range(stream.starts[i], stream.starts[i + 1])


def _rows(name: str, stream: Stream, i: int) -> Text:
    rows = slice(stream.starts[i], stream.starts[i + 1])
    facts = [f"{stream.lengths[i]} rows"]
    if "entity_ids" in stream.fields:
        facts.append("table rows " + " ".join(str(e) for e in stream.fields["entity_ids"][rows].tolist()))
    if "boxes" in stream.fields:
        boxes = stream.fields["boxes"][rows][:3].numpy()
        facts.append("boxes " + " ".join(np.array2string(b, precision=2, floatmode="fixed") for b in boxes) + " ...")
    if "masked" in stream.fields:
        facts.append(f"{int(stream.fields['masked'][rows].sum())} masked")
    return Text(f"  {name}: {', '.join(facts)}", style="dim")


def _labelled(targets: Mapping[str, Tensor], size: int) -> list[int]:
    """The sequence of each label: every one has one, or the first of each question with choices."""
    if len(targets["labels"]) == size and "choices" not in targets:
        return [*range(size)]
    choices = targets.get("choices")
    return [] if choices is None else (choices.cumsum(0) - choices).tolist()
