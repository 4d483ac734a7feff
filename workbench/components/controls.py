"""Controls: what they remove, which parts read that, and whether these support them.

A control takes one thing away from a run (its knowledge, the truth of it, its images), so that what is left tells what
that was good for. It is one only if nothing in the run still brings it. So every part that reads what the control takes
away must support it:

    controls        the part's attribute that names what it supports; its argument `control` is then the recipe's, or
    None unaffected_by   those that remove nothing of what the part reads, although they take something of that kind: a
                    graph's descriptions stay the same when the tails of its triples are exchanged

What a part reads nobody needs to list: it is what was opened while it was made, and what it says of samples (`reads`,
`reads_spans`, the builder's `unit`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

from workbench.components.build_context import build_record_of, named
from workbench.core.errors import WorkbenchError, unknown

Control = Literal[
    "no-kg",
    "shuffled-kg",
    "permuted-kg",
    "random-entities",
    "mentions-only",
    "question-only",
    "shuffled-captions",
    "same-features",
]
CONTROLS: tuple[str, ...] = get_args(Control)
LINKS = "linked entities"
KNOWLEDGE = frozenset({"triples", "graph", "vectors"})
ABLATED: dict[str, frozenset[str]] = {
    "no-kg": frozenset({LINKS, *KNOWLEDGE, "supersenses"}),
    "shuffled-kg": frozenset({*KNOWLEDGE, "supersenses"}),
    "permuted-kg": frozenset({*KNOWLEDGE, "supersenses"}),
    "random-entities": KNOWLEDGE,
    "mentions-only": frozenset({LINKS, *KNOWLEDGE, "supersenses"}),
    "question-only": frozenset({"image"}),
    "shuffled-captions": frozenset({"captions"}),
    "same-features": frozenset({"image"}),
}
"""By control: kinds of what is opened, fields of samples, and kinds of parts."""
OF_SAMPLES = ("builder", "transform", "objective", "masking")
"""The kinds of parts whose `reads` names fields of samples; a layer's are streams."""


def check_declared(part: type, name: str) -> None:
    """What a class says of controls must be so.

    Raises:
        WorkbenchError: it names a control that does not exist, or supports one and is never told which the recipe has.
    """
    for attribute in ("controls", "unaffected_by"):
        stated = getattr(part, attribute, ())
        if isinstance(stated, str):
            raise WorkbenchError(f"{name}: `{attribute}` is the text {stated!r}; allowed: a tuple, ({stated!r},)")
        for control in stated:
            if control not in CONTROLS:
                raise unknown("control", control, CONTROLS, f"{name}, in its `{attribute}`")
    supported = getattr(part, "controls", ())
    if supported and "control" not in inspect.signature(part).parameters:
        raise WorkbenchError(
            f"{name} says that it supports {', '.join(supported)} (`controls`), but its __init__ takes no argument "
            "`control`, which says whether one holds; take it and support it, or leave `controls` out"
        )


def check_control(control: str | None, parts: Iterable[Any], where: str, *, inherited: bool = False) -> None:
    """Every part that reads what the control removes must support it, and there must be one.

    Args:
        parts: those of the run that are used; the parts inside of them are asked too.
        where: what they are of, for messages.
        inherited: the weights come from a run under this control: it changes something whatever the parts are.

    Raises:
        WorkbenchError: some part leaves there what the control removes; or none supports it.
    """
    if control is None:
        return
    asked = list(_with_inside(parts))
    supported = sorted({name for part in asked for name in getattr(part, "controls", ())})
    left = _left(control, asked)
    if left:
        allowed = [name for name in supported if not _left(name, asked)]
        raise WorkbenchError(
            f"control {control} would not be one in {where}: {'; '.join(left)}. Leave these parts out, or have them "
            f"support it (an argument `control`, and `controls` that name it; or `unaffected_by`, where it removes "
            f"nothing of what they read). Allowed as it is: "
            f"{', '.join(allowed) or 'none'}"
        )
    if control not in supported and not inherited:
        raise WorkbenchError(
            f"control {control} would change nothing in {where}: its parts support {', '.join(supported) or 'none'}"
        )


def supports_control(control: str, parts: Iterable[Any]) -> bool:
    """Whether a run of these parts, and those inside of them, may be under the control."""
    asked = list(_with_inside(parts))
    return not _left(control, asked) and any(control in getattr(part, "controls", ()) for part in asked)


def ablated_by(control: str | None, parts: Iterable[Any]) -> str:
    """In words, what a control removes of these parts and those inside of them; "" where it is None or none supports
    it."""
    heeding = (part for part in _with_inside(parts) if control in getattr(part, "controls", ()))
    found = dict.fromkeys(named(part).rpartition(": ")[2] for part in heeding)
    return f"control {control} removes what {', '.join(found)} would bring in" if found else ""


def _left(control: str, parts: Iterable[Any]) -> list[str]:
    """In words: the parts that read what the control removes and don't support it."""
    found = []
    for part in parts:
        spared = (*getattr(part, "controls", ()), *getattr(part, "unaffected_by", ()))
        read = sorted(_read_by(part) & ABLATED[control])
        if read and control not in spared:
            found.append(f"{named(part)} reads {', '.join(read)} and does not support it")
    return list(dict.fromkeys(found))


def _read_by(part: Any) -> set[str]:
    """What a part reads, in the words of `ABLATED`."""
    built = build_record_of(part)
    if built is None:
        return set()
    read = {*built.opened, built.kind}
    if built.kind in OF_SAMPLES:
        read |= {*getattr(part, "reads", ()), str(getattr(part, "unit", None))}
    return read | ({LINKS} if getattr(part, "reads_spans", False) or "spans" in read else set())


def _with_inside(parts: Iterable[Any]) -> Iterator[Any]:
    for part in parts:
        yield part
        built = build_record_of(part)
        yield from _with_inside(() if built is None else built.inside)
