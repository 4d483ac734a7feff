"""A recipe's networks as a figure (SVG). Streams are columns. Layers are boxes from bottom to top; a repeated layer
shows its number. An arrow goes to a layer from the stream that it attends to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any
from xml.sax.saxutils import escape

from workbench.components.building import find
from workbench.recipe.recipe_listing import visibility_notes
from workbench.recipe.spec import NetworkSpec, Recipe

COLUMN, BOX, GAP, PAD, MARGIN = 192, 46, 30, 16, 28
_WIDTH = 162  # width of a box in one column
_LETTERS, _LETTER = 13.0, 0.58  # font size of names in pixels; mean width of a letter per font size, semi-bold
_COLOURS = ("#3d6fb4", "#2c8a6b", "#c0722d", "#7d5bb0", "#b0475f", "#4b8698")
_KNOWN = {"text": 0, "image": 1, "entity": 2, "target": 3, "query": 3, "video": 4, "speech": 5}
_STYLE = (
    "text{font-family:ui-sans-serif,system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1d2733}"
    ".name{font-size:13px;font-weight:600}.small{font-size:10.5px;fill:#5c6875}.title{font-size:17px;font-weight:650}"
    ".times{font-size:11.5px;font-weight:650;fill:#fff}.line{stroke:#8a95a1;stroke-width:1.4;fill:none}"
    ".group{fill:#f4f6f8;stroke:#b9c2cb;stroke-dasharray:5 4}"
)


@dataclass
class _Box:
    """A layer in some columns, at a height above the ground. `reads` are columns that it attends to in addition to its
    own."""

    name: str
    detail: str
    columns: list[int]
    low: float
    times: int = 1
    reads: list[int] = field(default_factory=list)
    both: bool = False


@dataclass
class _Stack:
    """The placed layers of a network. `lows` is the lowest free height of each column."""

    spec: NetworkSpec
    columns: list[str]
    lows: list[float]
    boxes: list[_Box] = field(default_factory=list)
    groups: list[tuple[float, float, int, int, int]] = field(default_factory=list)  # low, high, columns, times

    @property
    def width(self) -> float:
        return COLUMN * len(self.columns)

    @property
    def height(self) -> float:
        return max(self.lows)


def drawing(recipe: Recipe) -> str:
    """The SVG of a recipe's networks, side by side."""
    stacks = {name: _placed(spec) for name, spec in recipe.networks.items()}
    notes = [f"{name} follows {spec.follows} (decay {spec.decay:g})" for name, spec in recipe.followers.items()]
    notes += visibility_notes(recipe)
    notes += [f"{name}: {_label(task.objectives)}" for name, task in recipe.tasks.items()]
    head = 44 + 15 * len(notes) + (22 if len(stacks) > 1 else 0)
    width = max(sum(stack.width for stack in stacks.values()) + 2 * MARGIN, 11 + 6.2 * max(map(len, [*notes, ""])))
    height = head + max(stack.height for stack in stacks.values()) + MARGIN
    parts = [f'<text class="title" x="{MARGIN}" y="34">{escape(recipe.name)}</text>']
    parts += [
        f'<text class="small" x="{MARGIN}" y="{52 + 15 * i}">{escape(note)}</text>' for i, note in enumerate(notes)
    ]
    left = (width - sum(stack.width for stack in stacks.values())) / 2
    for name, stack in stacks.items():
        if len(stacks) > 1:
            parts.append(_text(left + stack.width / 2, head - 4, name, "name"))
        parts += _Pen(left, height - MARGIN).stack(stack)
        left += stack.width
    body = "\n".join(parts)
    arrow = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0.6 L7.4,4 L0,7.4 z" fill="#8a95a1"/></marker>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img"><title>{escape(f"The stack of {recipe.name}")}</title>'
        f"<style>{_STYLE}</style><defs>{arrow}</defs>\n"
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="10" fill="#fff" stroke="#e1e6eb"/>\n{body}\n</svg>\n'
    )


def _placed(spec: NetworkSpec) -> _Stack:
    names = _columns(spec)
    stack = _Stack(spec, names, [float(BOX + GAP)] * len(names))
    _place(spec.layers, stack)
    return stack


def _columns(spec: NetworkSpec) -> list[str]:
    """The streams in the order that makes layers of several streams narrowest, or in their own order."""
    streams = list(spec.streams)
    together = [set(_named(layer, streams)) for layer in _flat(spec.layers)]

    def spread(order: Iterable[str]) -> int:
        of_streams = list(order)
        places = [[of_streams.index(name) for name in of] for of in together if of]
        return sum(max(of) - min(of) for of in places)

    return list(min(permutations(streams), key=spread)) if len(streams) <= 6 else streams


def _flat(layers: list[Any]) -> Iterator[Mapping[str, Any]]:
    for layer in layers:
        yield from _flat(layer["group"]) if "group" in layer else [layer]


def _named(layer: Mapping[str, Any], streams: list[str]) -> dict[str, str]:
    """The streams that a layer's options name, with the option."""
    values = [(key, name) for key, value in layer.items() for name in (value if isinstance(value, list) else [value])]
    return {name: key for key, name in values if isinstance(name, str) and name in streams and key != "name"}


def _place(layers: list[Any], stack: _Stack) -> None:
    for layer in layers:
        if "group" in layer:
            _place_group(layer, stack)
        else:
            _place_layer(layer, stack)


def _place_group(layer: Mapping[str, Any], stack: _Stack) -> None:
    within = [stack.columns.index(name) for each in _flat([layer]) for name in _named(each, stack.columns)]
    columns = sorted(set(within)) or list(range(len(stack.columns)))
    low = max(stack.lows[column] for column in columns)
    for column in columns:
        stack.lows[column] = low + PAD
    _place(layer["group"], stack)
    high = max(stack.lows[column] for column in columns) - GAP + PAD
    stack.groups.append((low, high, columns[0], columns[-1], int(layer.get("repeat", 1))))
    for column in columns:
        stack.lows[column] = high + GAP


def _place_layer(layer: Mapping[str, Any], stack: _Stack) -> None:
    named = _named(layer, stack.columns)
    home = [name for name, key in named.items() if key in ("stream", "streams")] or list(stack.columns)
    others = [name for name in named if name not in home]
    if "query" in layer:  # the rows of the query read the stream, not the other way round
        home, others = others, home
    apart = getattr(find("layer", layer["layer"]), "drawn_apart", False) if ":" not in layer["layer"] else False
    columns, reads = ([stack.columns.index(name) for name in of] for of in (sorted(home), sorted(others)))
    if "query" in layer:
        columns, reads = columns + reads, []
    span = range(min(columns), max(columns) + 1)
    low = max(stack.lows[column] for column in (*span, *reads))
    times = int(layer.get("repeat", 1))
    box = _Box(str(layer["layer"]), _detail(layer), sorted(columns), low, times, reads, bool(apart))
    stack.boxes.append(box)
    for column in (*span, *reads):
        stack.lows[column] = low + BOX + GAP


def _detail(layer: Mapping[str, Any]) -> str:
    heads, inner = layer.get("num_heads"), layer.get("intermediate_size")
    parts = [f"{' + '.join(map(str, heads)) if isinstance(heads, list) else heads} heads"] if heads else []
    shared = layer.get("share") or layer.get("shared")
    parts += [str(inner)] if isinstance(inner, int) and not shared else []
    parts += ["shared weights" if shared in (True, "all") else f"shared {shared}"] if shared else []
    parts += [str(layer["name"])] if layer["layer"] == "tap" else []
    return " · ".join(parts)


def _label(objectives: list[Any]) -> str:
    """The kinds of objectives, with their names where they have one: names distinguish two of a kind."""
    kinds = [str(spec["objective"]).rpartition(".")[2] for spec in objectives]
    names = [spec.get("name", kind) for spec, kind in zip(objectives, kinds, strict=True)]
    return ", ".join(kind if name == kind else f"{name} ({kind})" for name, kind in zip(names, kinds, strict=True))


class _Pen:
    """Draws a placed stack whose left lower corner is at a point of the page."""

    def __init__(self, left: float, ground: float) -> None:
        self.left, self.ground = left, ground

    def stack(self, stack: _Stack) -> Iterator[str]:
        for low, high, first, last, times in stack.groups:
            yield from self._group(low, high, first, last, times)
        tops = [float(BOX)] * len(stack.columns)
        for box in sorted(stack.boxes, key=lambda box: box.low):
            for column in box.columns:
                yield self._up(column, tops[column], box.low)
                tops[column] = box.low + BOX
        for column, top in enumerate(tops):
            if not any(column in box.reads and box.low >= top for box in stack.boxes):
                yield self._up(column, top, top + GAP - 4)
        for number, name in enumerate(stack.columns):
            yield from self._stream(number, name, stack)
        for box in stack.boxes:
            yield from self._box(box, stack)

    def _x(self, column: float) -> float:
        return self.left + COLUMN * (column + 0.5)

    def _up(self, column: int, low: float, high: float) -> str:
        path = f"M{self._x(column):.1f},{self.ground - low:.1f} V{self.ground - high:.1f}"
        return f'<path class="line" marker-end="url(#tip)" d="{path}"/>'

    def _stream(self, column: int, name: str, stack: _Stack) -> Iterator[str]:
        spec = stack.spec.streams[name]
        size = spec.get("hidden_size")
        detail = " · ".join(map(str, filter(None, (spec.get("embedding"), size))))
        yield self._rectangle([column], 0, _colour(name, stack), round_=BOX / 2, strong=True)
        yield _text(self._x(column), self.ground - BOX / 2 - 3, name, "name", "#fff")
        yield _text(self._x(column), self.ground - BOX / 2 + 13, detail, "small", "#f3f6f9")

    def _box(self, box: _Box, stack: _Stack) -> Iterator[str]:
        middle = self.ground - box.low - BOX / 2
        for other in box.reads:
            yield self._across(other, box.columns[0] if other < box.columns[0] else box.columns[-1], middle, box, stack)
        cells = [[column] for column in box.columns] if box.both else [box.columns]
        for columns in cells:
            colour = _colour(stack.columns[columns[0]], stack) if len(columns) == 1 else "#5a6b7d"
            if box.times > 1:
                for shift in (8, 4):
                    yield self._rectangle(columns, box.low, colour, shift=shift)
            yield self._rectangle(columns, box.low, colour)
            x = (self._x(columns[0]) + self._x(columns[-1])) / 2
            room = self._x(columns[-1]) - self._x(columns[0]) + _WIDTH - 2 * PAD
            yield _text(x, middle + (-2 if box.detail else 4.5), box.name, "name", room=room)
            if box.detail:
                yield _text(x, middle + 13, box.detail, "small")
            if box.times > 1:
                yield from self._times(self._x(columns[-1]) + _WIDTH / 2, middle - BOX / 2, box.times, colour)
        if box.both:
            first, last = self._x(box.columns[0]) + _WIDTH / 2, self._x(box.columns[-1]) - _WIDTH / 2
            for y, ends in ((middle - 6, (first, last)), (middle + 6, (last, first))):
                yield f'<path class="line" marker-end="url(#tip)" d="M{ends[0]:.1f},{y:.1f} H{ends[1]:.1f}"/>'

    def _across(self, other: int, column: int, middle: float, box: _Box, stack: _Stack) -> str:
        """A line from the stream that is read, up to the layer's height and over to the layer."""
        below = [each.low + BOX for each in stack.boxes if other in each.columns and each.low + BOX <= box.low]
        top, edge = max(below, default=float(BOX)), _WIDTH / 2 * (1 if other > column else -1)
        return (
            f'<path class="line" marker-end="url(#tip)" d="M{self._x(other):.1f},{self.ground - top:.1f} V{middle:.1f} '
            f'H{self._x(column) + edge:.1f}"/>'
        )

    def _group(self, low: float, high: float, first: int, last: int, times: int) -> Iterator[str]:
        x, width = self._x(first) - COLUMN / 2 + 4, COLUMN * (last - first + 1) - 8
        y = self.ground - high
        yield f'<rect class="group" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{high - low:.1f}" rx="10"/>'
        if times > 1:
            yield from self._times(x + width - 6, y, times, "#5a6b7d")

    def _times(self, x: float, y: float, times: int, colour: str) -> Iterator[str]:
        text = f"×{times}"
        width = 12 + 7 * len(text)
        yield f'<rect x="{x - width + 6:.1f}" y="{y - 10:.1f}" width="{width}" height="19" rx="9.5" fill="{colour}"/>'
        yield _text(x - width / 2 + 6, y + 4, text, "times")

    def _rectangle(
        self, columns: list[int], low: float, colour: str, *, shift: float = 0, round_: float = 8, strong: bool = False
    ) -> str:
        x = self._x(columns[0]) - _WIDTH / 2 + shift
        width = self._x(columns[-1]) - self._x(columns[0]) + _WIDTH
        fill = f'fill="{colour}"' if strong else f'fill="{_light(colour)}" stroke="{colour}"'
        y = self.ground - low - BOX - shift
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOX}" rx="{round_:g}" {fill}/>'


def _colour(stream: str, stack: _Stack) -> str:
    """The colour of a stream. A known name has the same colour in every drawing; other streams get unused colours."""
    streams = list(stack.spec.streams)
    free = [number for number in range(len(_COLOURS)) if number not in {_KNOWN.get(name) for name in streams}]
    unknown = [name for name in streams if name not in _KNOWN]
    return _COLOURS[_KNOWN[stream] if stream in _KNOWN else free[unknown.index(stream) % len(free)]]


def _light(colour: str) -> str:
    """The colour on white, at 13 %."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * 0.13):02x}" for part in parts)


def _text(x: float, y: float, text: str, kind: str, colour: str = "", room: float = 0.0) -> str:
    """An SVG text. `room` is its maximal width: a longer name gets a smaller font, from the mean width of letters."""
    size = min(_LETTERS, room / (_LETTER * len(text))) if room and text else _LETTERS
    parts = [f"fill:{colour}"] if colour else []
    parts += [f"font-size:{size:.1f}px"] if size < _LETTERS else []
    style = f' style="{";".join(parts)}"' if parts else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle"{style}>{escape(text)}</text>'
