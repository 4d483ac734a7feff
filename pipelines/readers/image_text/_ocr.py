"""Words of an image that OCR has read, as the fields `ocr_tokens` and `ocr_boxes` of samples.

Rosetta (TextVQA)       ocr_info: [{word, bounding_box: {top_left_x, top_left_y, width, height}}], boxes in 0..1
Microsoft Read (DocVQA) recognitionResults: [{width, height, lines: [{words: [{text, boundingBox: [x, y] * 4}]}]}]
Textract (Infographics) WORD: [{Text, Geometry: {BoundingBox: {Left, Top, Width, Height}}}], boxes in 0..1
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.readers.image_text.images import box_within
from pipelines.readers.reader import MalformedError

Word = tuple[str, list[float]]


def ocr_of(row: dict[str, Any], where: str) -> dict[str, Any]:
    """`ocr_tokens` and `ocr_boxes` of a row or a file in one of these forms; empty if it has none.

    Raises:
        MalformedError: it is damaged.
    """
    try:
        found = list(_words(row))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise MalformedError("words that were read, in a form that is not known", where, str(error)[:80]) from error
    words = [(word.strip(), box) for word, box in found if word.strip()]
    if not words:
        return {}
    placed = {"ocr_boxes": [box for _, box in words]} if any(box for _, box in words) else {}
    return {"ocr_tokens": [word for word, _ in words], **placed}


def _words(row: dict[str, Any]) -> Iterator[Word]:
    if row.get("ocr_info"):
        for word in row["ocr_info"]:
            box = word.get("bounding_box") or {}
            yield word["word"], _from_sides(box, "top_left_x", "top_left_y", "width", "height")
    elif "recognitionResults" in row:
        for page in row["recognitionResults"]:
            for line in page["lines"]:
                for word in line["words"]:
                    corners = word["boundingBox"]
                    xs, ys = corners[::2], corners[1::2]
                    box = [min(xs), min(ys), max(xs), max(ys)]
                    yield word["text"], box_within(box, page["width"], page["height"])
    elif "WORD" in row:
        for word in row["WORD"]:
            yield word["Text"], _from_sides(word["Geometry"]["BoundingBox"], "Left", "Top", "Width", "Height")
    else:
        for word in row.get("ocr_tokens") or ():
            yield word, []


def _from_sides(box: dict[str, float], left: str, top: str, width: str, height: str) -> list[float]:
    if left not in box:
        return []
    return box_within([box[left], box[top], box[left] + box[width], box[top] + box[height]], 1, 1)
