"""Questions on documents: DocVQA (Mathew et al., WACV 2021), InfographicVQA, and ST-VQA (Biten et al., ICCV 2019).

Questions are under `data`. Each answer is right, and similar ones are, too: the corpus is scored by ANLS.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pipelines.readers.image_text._ocr import ocr_of
from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import ImageQuestions, question_of
from pipelines.readers.reader import Malformed, MalformedError, Peek, as_object
from pipelines.sources.files import files
from pipelines.sources.json_files import read_json, rows_of
from vision.metrics.vqa_accuracy import RULE
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location

log = logging.getLogger(__name__)

IMAGES = ("image", "image_local_name", "file_path")
FOLDERS = ("ocr_results", "spdocvqa_ocr", "infographicsvqa_ocr", "ocr")


@dataclass(frozen=True)
class DocVqa(ImageReader):
    """The questions of a page are one record, with the words of the page as `ocr_tokens` and their boxes as
    `ocr_boxes`.

    `ocr` is the folder of the files with these words, one for each image and with its name; by default `ocr_results`
    next to the questions, if it exists. Pages of one document go to the same split. The published split goes to
    `meta.split`. The questions are held in memory.
    """

    apart: ClassVar[bool] = True
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    ocr: Location | None = None

    @classmethod
    def detect(cls, source: Peek) -> bool:
        of_documents = source.has_key("questionId") or (source.has_key("question_id") and source.has_key("file_path"))
        return source.has_key("data") and of_documents

    def about(self) -> Mapping[str, Any]:
        return {RULE: "anls"}

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        folder = self._words(files(paths, self.suffixes)[0])
        return [*super().inputs(paths), *(sorted(folder.glob("*.json")) if folder else ())]

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        asked, documents = ImageQuestions[str](), dict[str, dict[str, Any]]()
        for path in files(paths, self.suffixes):
            tree = read_json(path)
            for number, row in enumerate(rows_of(tree, "data", path)):
                where = f"{path.name}:data[{number}]"
                with malformed:
                    image = _image(as_object(row, where), where)
                    asked.add(image, question_of(_usual(row), where), where)
                    documents.setdefault(image, {"row": row, "split": tree.get("dataset_split")})
        folder = self._words(files(paths, self.suffixes)[0])
        lacking = 0
        for image, questions, where in asked:
            row, words = documents[image]["row"], {}
            with malformed:
                words = ocr_of(row, where) or _read(folder, row, image)
            lacking += not words
            split = row.get("data_split") or row.get("set_name") or documents[image]["split"]
            document = row.get("ucsf_document_id") or row.get("docId")
            known = {"split": split, "document": document and str(document)}
            meta = {name: value for name, value in known.items() if value}
            yield image, {"questions": questions, **words, "meta": meta}, where
        if lacking:
            log.warning("%s of %s images have no OCR words", f"{lacking:,}", f"{len(asked.images):,}")

    def _words(self, alongside: Path) -> Path | None:
        """The folder of the files of words.

        Raises:
            WorkbenchError: the named folder does not exist.
        """
        if self.ocr is not None:
            if not Path(self.ocr).is_dir():
                raise WorkbenchError(
                    f"there is no folder {self.ocr} with the words of the images (--option ocr=FOLDER)"
                )
            return Path(self.ocr)
        there = (alongside.parent / name for name in FOLDERS if (alongside.parent / name).is_dir())
        return next(there, None)


def _image(row: dict[str, Any], where: str) -> str:
    name = next((row[field] for field in IMAGES if isinstance(row.get(field), str)), None)
    if name is None:
        raise MalformedError("no image", where, f"one of {', '.join(IMAGES)}; fields: {', '.join(row)}")
    return str(name)


def _usual(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the field names of other sets; the questions of test sets have no answers."""
    kinds = row.get("question_types")
    kind = {"question_type": "/".join(map(str, kinds))} if isinstance(kinds, list) and kinds else {}
    return {"answers": [], **row, **({"question_id": row["questionId"]} if "questionId" in row else {}), **kind}


def _read(folder: Path | None, row: dict[str, Any], image: str) -> dict[str, Any]:
    """The words of an image's own file; empty without one."""
    if folder is None:
        return {}
    name = str(row.get("ocr_output_file") or f"{PurePosixPath(image).stem}.json")
    path = folder / PurePosixPath(name).name
    if not path.is_file():
        return {}
    try:
        return ocr_of(read_json(path), f"{path.name}:1")
    except MalformedError:
        raise
    except WorkbenchError as error:
        raise MalformedError("words that were read, and no JSON", f"{path.name}:1", str(error)[:160]) from error
