"""Which sequences of a micro-batch go on from those of the one before, where texts are read on."""

from __future__ import annotations

from workbench.errors import WorkbenchError
from workbench.keyed import Draw
from workbench.sequences.sequence import Sample, Sequence, Slot


def slots_of(samples: list[Sample], sequences: list[Sequence]) -> list[Slot]:
    """The slot of each sequence: that of the sample it was made of.

    Of several sequences of a sample (a window of more tokens than a sequence takes) the first one goes on from the
    micro-batch before; the next micro-batch goes on from the last one.

    Raises:
        WorkbenchError: a sequence of several texts, or of one with branches, from which nothing goes on.
    """
    slots: dict[Draw, Slot] = {sample["draw"]: sample["slot"] for sample in samples}
    found = []
    for sequence in sequences:
        packed = "documents" in sequence.meta
        if packed or any("branch" in fields for fields in sequence.streams.values()):
            why = "holds several texts (builder packed)" if packed else "has branches (kg.sentence_tree)"
            raise WorkbenchError(
                f"order: continuous: sequence {sequence.key!r} {why}, so that nothing can go on from it; choose "
                "the builder document without such steps, or order: shuffled"
            )
        draw = sequence.draw[:-1]
        slot = slots.get(draw)
        if slot is None:
            raise WorkbenchError(
                f"order: continuous: sequence {sequence.key!r} is of none of the texts that were read (its draw is "
                f"{sequence.draw}); a builder's or step's sequence has the draw of its sample, and a number"
            )
        slots[draw] = Slot(slot.number, False)
        found.append(slot)
    return found
