"""TextVQA (Singh et al., CVPR 2019): questions on the text in photographs, under `data`, ten answers each.

Rosetta's OCR words are in another file of the set; give both (`TextVQA_0.5.1_train.json
TextVQA_Rosetta_OCR_v0.2_train.json`), in any order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text._ocr import ocr_of
from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import ImageQuestions, question_of
from pipelines.readers.reader import Malformed, Peek, as_object, require
from pipelines.sources.files import files
from pipelines.sources.json_files import read_json, rows_of
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import FileTemplate

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextVqa(ImageReader):
    """The questions of an image are one record, with its words as `ocr_tokens` and their boxes as `ocr_boxes`.

    The split goes to `meta.split`. Questions of the test set have no answers. The files are held in memory.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    image_name: FileTemplate = "{id}.jpg"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        of_photographs = source.has_key("image_id") and (source.has_key("question_id") or source.has_key("ocr_info"))
        return source.has_key("data") and of_photographs

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        asked, read, splits = ImageQuestions[str](), dict[str, dict[str, Any]](), dict[str, str]()
        questions = 0
        for path in files(paths, self.suffixes):
            for number, row in enumerate(rows_of(read_json(path), "data", path)):
                where = f"{path.name}:data[{number}]"
                with malformed:
                    image = str(require(as_object(row, where), "image_id", (str, int), where))
                    questions += "question" in row
                    words = ocr_of(row, where)
                    if words:
                        read[image] = words
                    if "question" in row:
                        splits[image] = str(row.get("set_name") or "")
                        asked.add(image, question_of({"answers": [], **row}, where), where)
        if not questions:
            raise WorkbenchError(
                f"no questions in {', '.join(p.name for p in paths)}; give their file with that of the words"
            )
        if asked.images and not read:
            log.warning("there are no OCR words; give their file (Rosetta_OCR) with the questions")
        for image, own, where in asked:
            split = {"split": splits[image]} if splits[image] else {}
            name = self.named(self.image_name, where, id=image, subset=splits[image])
            yield name, {"key": image, "questions": own, **read.get(image, {}), "meta": split}, where
