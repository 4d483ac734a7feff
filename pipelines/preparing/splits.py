"""Held-out splits: which split of a preparation a sample belongs to.

By document: a document keeps its split when the inputs grow, are reordered, or are prepared with other options. The
document is the format's own, or the content of the image or of the texts: two copies never end up in different splits.

Of a graph, inductively: held-out entities are in no training triple. An entity's split depends on its id alone, so
the split of both ends of a triple is known from the triple. No list of the held-out entities is needed, whatever the
size of the graph. A held-out head takes its triples with it, as in any split. Triples from a training entity to a
held-out one belong to neither, and are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.sources.files import record_key
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import digest
from workbench.corpora.manifest import Manifest
from workbench.corpora.shards.record import content_of
from workbench.sequences.sequence import Sample

MAIN = ""
NAME = r"[A-Za-z0-9_-]+"
HELD_OUT_TAIL = "a triple of training whose tail is held out"


@dataclass(frozen=True)
class Splits:
    """Which samples are held out.

    Args:
        shares: of the documents, by the split's name.
        own: splits that the records name themselves (`meta.split`).
        inductive: samples are entities of a graph, and held-out ones are in no triple of the others.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    inductive: bool = False

    @classmethod
    def parse(cls, shares: Sequence[str], own: Sequence[str] = (), *, inductive: bool = False) -> Splits:
        """From `held-out=0.05` (`parse_splits`) and names (`check_parts`)."""
        parsed = parse_splits(shares)
        return cls(parsed, check_parts(own, parsed), inductive)

    @property
    def parts(self) -> list[str]:
        """The names of all splits; the corpus itself (`MAIN`) is the first."""
        return [MAIN, *self.shares, *self.own]

    def place(self, sample: Sample) -> tuple[str, Sample, int]:
        """The sample's split, the sample to store there, and the number of its dropped triples."""
        if not self.inductive:
            return part_of(sample, self.shares, self.own), sample, 0
        return part_of_entity(str(sample["id"]), self.shares), *without_held_out(sample, self.shares)


def parse_splits(texts: Sequence[str]) -> dict[str, float]:
    """Shares by name from `held-out=0.05`; a bare `0.05` is called `held-out`.

    Raises:
        WorkbenchError: not a name and a number, a share outside (0, 1), a name twice, or nothing left to train on.
    """
    splits: dict[str, float] = {}
    for text in texts:
        name, named, share_text = text.rpartition("=")
        name = name if named else "held-out"
        try:
            share = float(share_text)
        except ValueError:
            raise WorkbenchError(f"--split {text!r} is not NAME=SHARE, for example held-out=0.05") from None
        if not re.fullmatch(NAME, name):
            raise WorkbenchError(f"--split {text!r}: the name may have letters, digits, - and _")
        if not 0 < share < 1 or name in splits:
            problem = "is given twice" if name in splits else f"has the share {share}; it must lie between 0 and 1"
            raise WorkbenchError(f"--split {name!r} {problem}")
        splits[name] = share
    if sum(splits.values()) >= 1:
        raise WorkbenchError(
            f"the shares of --split add up to {sum(splits.values()):g}; keep some for the corpus itself"
        )
    return splits


def check_parts(own: Sequence[str], splits: Mapping[str, float]) -> tuple[str, ...]:
    """The names of the data set's own splits, each once.

    Raises:
        WorkbenchError: a name cannot be that of a folder, or `splits` has it too.
    """
    for name in own:
        if not re.fullmatch(NAME, name):
            raise WorkbenchError(f"--own-split {name!r}: the name may have letters, digits, - and _")
        if name in splits:
            raise WorkbenchError(f"--own-split {name} and --split {name} exclude each other; remove one of them")
    return tuple(dict.fromkeys(own))


def part_of(sample: Sample, splits: Mapping[str, float], own: Sequence[str] = ()) -> str:
    """The split of a sample: its name, or `""` for the corpus itself.

    A record's own split (`meta.split`) counts if it is one of `own`.
    """
    stated = sample.get("meta", {}).get("split")
    if own and stated in own:
        return str(stated)
    point = digest("split", document_of(sample)) / 2**128
    for name, share in splits.items():
        point -= share
        if point < 0:
            return name
    return MAIN


def document_of(sample: Sample) -> str:
    """The unit that is never torn apart: the format's document (`meta.document`), else the content of the original
    image or of the texts, else the record (of a graph or of videos)."""
    meta = sample.get("meta", {})
    stated = meta.get("document") or meta.get("source_sha256") or meta.get("sha256")
    texts = 0 if stated or sample.keys() & {"id", "media"} else content_of(sample)
    return str(stated or texts or sample["key"])


def part_folder(output: Path, part: str) -> Path:
    """The folder of a split's corpus: OUTPUT, or OUTPUT-split."""
    return output.with_name(f"{output.name}-{part}") if part else output


def split_of(manifest: Manifest) -> str:
    """The held-out split that a corpus is; `MAIN` for the corpus itself."""
    return str(manifest.provenance.get("part", MAIN))


def split_names(manifest: Manifest) -> list[str]:
    """The held-out splits of a corpus, in the order in which they were given; a split itself has none."""
    options = manifest.provenance.get("options")
    if not isinstance(options, dict) or split_of(manifest) != MAIN:
        return []
    return [*options.get("splits", {}), *options.get("own_splits", [])]


def part_of_entity(entity: str, splits: Mapping[str, float]) -> str:
    """The split of an entity: its name, or `""` for the corpus itself."""
    return part_of({"key": record_key(entity)}, splits)


def without_held_out(sample: Sample, splits: Mapping[str, float]) -> tuple[Sample, int]:
    """An entity's record without its triples to held-out entities, and their number; a held-out entity keeps all."""
    if part_of_entity(str(sample["id"]), splits) != MAIN:
        return sample, 0
    kept = [fact for fact in sample["triples"] if part_of_entity(str(fact["tail"]), splits) == MAIN]
    return {**sample, "triples": kept}, len(sample["triples"]) - len(kept)
