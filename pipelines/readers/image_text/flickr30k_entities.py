"""Flickr30k Entities (Plummer et al., ICCV 2015): captions with marked phrases and their boxes.

Sentences/1000092795.txt      [/EN#1/people Two young guys] with [/EN#2/bodyparts shaggy hair] look at ...
Annotations/1000092795.xml    <size>, <object> with <name> 1 </name> and <bndbox>, or <nobndbox> 1
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

from pipelines.readers.image_text.images import ImageReader, box_within
from pipelines.readers.reader import Malformed, MalformedError, Peek, parse_text
from pipelines.sources.files import files, lines, open_bytes, stem
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import FileTemplate, Location

PHRASE = re.compile(r"\[/EN#(\d+)((?:/[A-Za-z]+)+) ([^\[\]]+)\]")
SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class Flickr30kEntities(ImageReader):
    """There is a file of sentences for each image. The phrases become `caption_marks`, with their type, the number of
    their entity, which is the same in all captions of an image, and its boxes.

    Boxes are read from `Annotations` next to the folder of sentences, or in it, or from the folder `boxes`. Phrases of
    an image without a file there have no boxes.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".txt",)

    image_name: FileTemplate = "{id}.jpg"
    boxes: Location | None = None

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return bool(source.head) and PHRASE.search(source.head[0]) is not None

    def may_name(self, path: Path) -> bool:
        return path.suffix == ".xml" or super().may_name(path)

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        sentences = files(paths, self.suffixes)
        annotated = (self._boxes(path) for path in sentences)
        return [*super().inputs(paths), *(path for path in annotated if path is not None)]

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        for path in files(paths, self.suffixes):
            image = stem(path)
            places: dict[str, list[list[float]]] = {}
            annotated = self._boxes(path)
            with malformed:
                places = _places(annotated) if annotated is not None else {}
            captions, marks = [], []
            for number, line in lines(path):
                where = f"{path.name}:{number}"
                with malformed:
                    caption, marked = _marked(parse_text(line, where).strip(), places, where)
                    captions.append(caption)
                    marks.append(marked)
            fields = {"captions": captions, "caption_marks": marks, "meta": {"id": image}}
            yield (
                self.named(self.image_name, path.name, id=image, subset=""),
                {**fields, "key": image},
                f"{path.name}:1",
            )

    def _boxes(self, sentences: Path) -> Path | None:
        """The file of an image's boxes; None where there is none.

        Raises:
            WorkbenchError: the named folder does not exist.
        """
        if self.boxes is not None and not Path(self.boxes).is_dir():
            raise WorkbenchError(f"there is no folder {self.boxes} with the boxes (--option boxes=FOLDER)")
        alongside = (sentences.parent.parent / "Annotations", sentences.parent / "Annotations", sentences.parent)
        folders = alongside if self.boxes is None else (Path(self.boxes),)
        named = (folder / f"{stem(sentences)}.xml" for folder in folders)
        return next((path for path in named if path.is_file()), None)


def _marked(text: str, places: Mapping[str, list[list[float]]], where: str) -> tuple[str, list[list[Any]]]:
    """The caption without its marks, and its phrases: [start, end, type, number, boxes]."""
    caption, at, marks = "", 0, []
    for found in PHRASE.finditer(text):
        caption += text[at : found.start()]
        number, kinds, phrase = found.groups()
        marks.append([len(caption), len(caption) + len(phrase), kinds[1:], number, places.get(number, [])])
        caption, at = caption + phrase, found.end()
    caption += text[at:]
    if "[/EN#" in caption:
        raise MalformedError("a phrase that is not [/EN#number/type words]", where, repr(caption)[:80])
    return caption, marks


def _places(path: Path) -> dict[str, list[list[float]]]:
    """The boxes of each entity by its number, in 0..1.

    Raises:
        MalformedError: not XML, or not in the set's form.
    """
    with open_bytes(path) as handle:
        raw = handle.read()
    if b"<!" in raw:
        raise MalformedError("boxes with declarations of their own, which are not read", f"{path.name}:1")
    try:
        tree = ElementTree.fromstring(raw)
        width, height = (float(tree.findtext(f"size/{side}", "")) for side in ("width", "height"))
        found: dict[str, list[list[float]]] = {}
        for thing in tree.iter("object"):
            box = thing.find("bndbox")
            if box is not None:
                corners = box_within([float(box.findtext(side, "")) for side in SIDES], width, height)
                for name in thing.findall("name"):
                    found.setdefault((name.text or "").strip(), []).extend([corners] if corners else [])
    except (ElementTree.ParseError, ValueError) as error:
        raise MalformedError("boxes that are not as in the set", f"{path.name}:1", str(error)[:80]) from error
    return found
