"""The demo's first result as a figure (SVG): what each model reads, and the share of facts that it recalls.

Each model has a row: the sentence with the branch that K-BERT appends from the graph, and two bars. One bar shows the
facts that only the graph states, the other the facts that the text states, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from kg.graph.store import GraphStore
from pipelines.demo.plan import WORLD
from pipelines.demo.story import ACCURACY, SummaryNumbers

FIGURE = "figure.svg"
ROWS = {
    "k-bert": "K-BERT, with the graph",
    "bert": "BERT, without the graph",
    "k-bert-shuffled-graph": "K-BERT, with a shuffled graph",
}
"""Runs and their titles."""
KINDS = {"known": "of facts that only the graph states", "stated": "of facts that the text states, too"}
"""Bars: their class and the kind of facts."""
TITLE = "Does knowledge reach a prediction?"
WIDTH, TOP, ROW = 480, 92, 168
"""Narrow and tall: it is legible where a phone shows it, and no line is cut off in a wide font (DejaVu)."""
LEFT, LONGEST = 20, 440
LETTER = 8.2  # pixels of a letter of a token, on average
BARS, BAR = 86, 34  # the bars below the head of a row, and the height of one with its words
MOST_LETTERS = 38
SEED = 0  # of the demo's recipes, and so of their shuffled graph
STYLE = (
    "text{font:14px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1d2733}"
    ".title{font-size:18px;font-weight:650}.small{font-size:13px;fill:#5c6875}.name{font-weight:650}"
    ".page{fill:#fff;stroke:#d8dee4}.token{fill:#eef1f4;stroke:#b9c2cb}.asked{fill:#fff4d6;stroke:#c99a2e}"
    ".true{fill:#e3f3ea;stroke:#2c8a6b}.false{fill:#fbe7e9;stroke:#b0475f}.edge{stroke:#8a95a1;fill:none}"
    ".known{fill:#2c8a6b}.stated{fill:#6b7785}.chance{stroke:#1d2733;stroke-dasharray:3 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ec}.small{fill:#a3adb7}.page{fill:#161b22;stroke:#30363d}"
    ".token{fill:#262d36;stroke:#4b5561}.asked{fill:#3d3315;stroke:#c99a2e}.true{fill:#16382b;stroke:#4fb08e}"
    ".false{fill:#44222a;stroke:#d3768c}.known{fill:#2f9270}.stated{fill:#66717d}.chance{stroke:#e6e9ec}}"
)


@dataclass(frozen=True)
class Example:
    """A held-out fact: its sentence with the subject, and the objects in the graph and in the shuffled graph."""

    city: str
    between: str
    relation: str
    country: str
    shuffled: str


def example_fact() -> Example:
    """A short fact of the test set in the demo's folder, with the triple that each graph has for it.

    Raises:
        StopIteration: no sentence is short enough.
    """
    graph = GraphStore.open("corpora/graph/graph")
    shuffled = graph.under("shuffled-kg", SEED)
    with Path(f"{WORLD}/facts_heldout.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return next(found for row in rows if (found := _example(row, graph, shuffled)))


def _example(row: Mapping[str, Any], graph: GraphStore, shuffled: GraphStore) -> Example | None:
    text, subject, relation = row["text"], row["subject"], row["relation"]
    (begin, end), (low, high) = row["spans"][0][:2], row["mask_spans"][0][:2]
    tails = [tail for name, tail in shuffled.neighbours(subject) if name == relation]
    in_order = begin == 0 and end <= low and high == len(text) - 1
    if not in_order or len(text) > MOST_LETTERS or not tails or tails[0] == row["object"]:
        return None
    return Example(
        text[:end], text[end:low].strip(), graph.relation_label(relation), text[low:high], graph.name_of(tails[0])
    )


def facts_figure(summary: Mapping[str, Any], example: Example) -> str:
    """The figure of a summary (`pipelines.demo.summary`), as SVG for light and dark pages."""
    found = SummaryNumbers(summary["evaluations"])
    asked = found.row("facts", "k-bert", "facts-heldout")
    chance = asked["baselines"]["chance"][ACCURACY]
    height = TOP + ROW * len(ROWS) + 20
    body = [
        _text(LEFT, 34, TITLE, "title"),
        _text(
            LEFT,
            56,
            f"Country of {asked['counts']['sentences']} cities, among {asked['counts']['candidates']}",
            "small",
        ),
        _text(LEFT, 74, "candidates: the share that the model ranks first", "small"),
    ]
    for number, (run, title) in enumerate(ROWS.items()):
        shares = {
            kind: found.number("facts", run, f"facts-{part}", ACCURACY)
            for kind, part in (("known", "heldout"), ("stated", "stated"))
        }
        body += _row(TOP + ROW * number, title, shares, _branch(run, example), example)
        x, y = LEFT + LONGEST * chance, TOP + ROW * number + BARS
        marks = " ".join(f"M{x:.1f},{y + BAR * bar + 15} v14" for bar in range(len(KINDS)))
        body.append(f'<path class="chance" d="{marks}"/>')
    body.append(_text(LEFT, height - 14, f"dashed: chance, {_percent(chance)}", "small"))
    label = "; ".join(
        f"{title}: {_percent(found.number('facts', r, 'facts-heldout', ACCURACY))}" for r, title in ROWS.items()
    )
    lines = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{escape(label)}</title><style>{STYLE}</style>\n'
        f'<rect class="page" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>\n{lines}\n</svg>\n'
    )


def _branch(run: str, example: Example) -> tuple[str, str] | None:
    """The object of the branch and its class; None for the model without a graph."""
    return {"k-bert": (example.country, "true"), "k-bert-shuffled-graph": (example.shuffled, "false")}.get(run)


def _row(
    y: float, title: str, shares: Mapping[str, float], branch: tuple[str, str] | None, fact: Example
) -> Iterator[str]:
    yield _text(LEFT, y + 14, title, "name")
    x = float(LEFT)
    for word, kind in ((fact.city, "token"), (fact.between, "token"), ("[MASK]", "asked")):
        yield from _token(x, y + 24, word, kind)
        x += _width(word) + 6
    if branch:
        corner, low = LEFT + 16, y + 24 + 24 + 17
        yield f'<path class="edge" d="M{corner},{y + 48} V{low} H{corner + 14}"/>'
        x = corner + 14.0
        for word, kind in ((fact.relation, "token"), branch):
            yield from _token(x, low - 12, word, kind)
            x += _width(word) + 6
    for number, (kind, words) in enumerate(KINDS.items()):
        top = y + BARS + BAR * number
        yield _text(LEFT, top + 12, f"{_percent(shares[kind])} {words}", "")
        width = max(LONGEST * shares[kind], 1)
        yield f'<rect class="{kind}" x="{LEFT}" y="{top + 18}" width="{width:.1f}" height="8" rx="2"/>'


def _token(x: float, y: float, word: str, kind: str) -> Iterator[str]:
    width = _width(word)
    yield f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="24" rx="5"/>'
    yield _text(x + width / 2, y + 16.5, word, "", "middle")


def _width(word: str) -> float:
    return LETTER * len(word) + 14


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
