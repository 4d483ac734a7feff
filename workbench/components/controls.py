"""Controls: what each one removes, which components read that, and whether these components support the control.

A control removes one thing from a run: its knowledge, the truth of that knowledge, or its images. The difference to the
run without the control measures how useful it was. The control is valid only if nothing in the run still contains what
it removes. So every component that reads it must support the control:

    controls        an attribute that names the controls that the component supports; the component takes an argument
                    `control`, which is the recipe's control or None
    unaffected_by   an attribute that names controls which remove nothing that the component reads, although they affect
                    data of that kind: a graph's descriptions stay the same when the tails of its triples are exchanged

Nobody needs to list what a component reads. It is what was opened while the component was built, and what the component
declares about samples (`reads`, `reads_spans`, the builder's `unit`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

from workbench.components.build_context import build_record_of, named
from workbench.core.errors import WorkbenchError, unknown

Control = Literal[
    "no-kg", "shuffled-kg", "permuted-kg", "random-entities", "mentions-only", "question-only", "shuffled-captions"
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
    "question-only": frozenset({"image", "image_processor"}),
    "shuffled-captions": frozenset({"captions"}),
}
"""By control: kinds of opened data, fields of samples, and kinds of components that it removes."""
OF_SAMPLES = ("builder", "transform", "objective", "masking")
"""The kinds of components whose `reads` names fields of samples; a layer's `reads` names streams."""


def check_declared(component: type, name: str) -> None:
    """Check what a class declares about controls.

    Raises:
        WorkbenchError: it names a control that does not exist, or supports one and takes no argument `control`.
    """
    for attribute in ("controls", "unaffected_by"):
        stated = getattr(component, attribute, ())
        if isinstance(stated, str):
            raise WorkbenchError(f"{name}: `{attribute}` is the text {stated!r}; allowed: a tuple, ({stated!r},)")
        for control in stated:
            if control not in CONTROLS:
                raise unknown("control", control, CONTROLS, f"{name}, in its `{attribute}`")
    supported = getattr(component, "controls", ())
    if supported and "control" not in inspect.signature(component).parameters:
        raise WorkbenchError(
            f"{name} declares that it supports {', '.join(supported)} (`controls`), but its __init__ has no argument "
            "`control`; add the argument and support the control, or leave `controls` out"
        )


def check_control(control: str | None, components: Iterable[Any], where: str, *, inherited: bool = False) -> None:
    """Check that every component that reads what the control removes supports it, and that at least one does.

    Args:
        components: the components of the run that are used; the components inside of them are checked too.
        where: the run or recipe, for messages.
        inherited: the weights come from a run under this control, so it has an effect whatever the components are.

    Raises:
        WorkbenchError: some component still reads what the control removes; or none supports the control.
    """
    if control is None:
        return
    asked = list(_with_inside(components))
    supported = sorted({name for component in asked for name in getattr(component, "controls", ())})
    left = _left(control, asked)
    if left:
        allowed = [name for name in supported if not _left(name, asked)]
        raise WorkbenchError(
            f"control {control} is not valid in {where}: {'; '.join(left)}. Leave these components out, or make "
            "them support it (an argument `control`, and `controls` that name it; or `unaffected_by`, if it removes "
            "nothing "
            f"that they read). Valid controls here: {', '.join(allowed) or 'none'}"
        )
    if control not in supported and not inherited:
        raise WorkbenchError(
            f"control {control} would change nothing in {where}: its components support "
            f"{', '.join(supported) or 'none'}"
        )


def supports_control(control: str, components: Iterable[Any]) -> bool:
    """Whether a run of these components, and those inside of them, is valid under the control."""
    asked = list(_with_inside(components))
    return not _left(control, asked) and any(control in getattr(component, "controls", ()) for component in asked)


def ablated_by(control: str | None, components: Iterable[Any]) -> str:
    """A sentence on what a control removes from these components and those inside of them; "" if it is None or none
    supports it."""
    supporting = (component for component in _with_inside(components) if control in getattr(component, "controls", ()))
    found = dict.fromkeys(named(component).rpartition(": ")[2] for component in supporting)
    return f"control {control} removes the contribution of {', '.join(found)}" if found else ""


def _left(control: str, components: Iterable[Any]) -> list[str]:
    """Descriptions of the components that read what the control removes and don't support it."""
    found = []
    for component in components:
        spared = (*getattr(component, "controls", ()), *getattr(component, "unaffected_by", ()))
        read = sorted(_read_by(component) & ABLATED[control])
        if read and control not in spared:
            found.append(f"{named(component)} reads {', '.join(read)} and does not support it")
    return list(dict.fromkeys(found))


def _read_by(component: Any) -> set[str]:
    """The data, fields and kinds that a component reads, in the terms of `ABLATED`."""
    built = build_record_of(component)
    if built is None:
        return set()
    read = {*built.opened, built.kind}
    if built.kind in OF_SAMPLES:
        read |= {*getattr(component, "reads", ()), str(getattr(component, "unit", None))}
    return read | ({LINKS} if getattr(component, "reads_spans", False) or "spans" in read else set())


def _with_inside(components: Iterable[Any]) -> Iterator[Any]:
    for component in components:
        yield component
        built = build_record_of(component)
        yield from _with_inside(() if built is None else built.inside)
