"""The schema of samples: one table that is used to write, read, check, show and document records.

A new kind of annotation is a row here. Its `Value` describes the content, its `Codec` the storage. A field that marks
stretches of a text names it (`spans_of`); the stretches are then checked against that text and moved with its windows.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cache

from workbench.corpora.schema.field_values import (
    ARCS,
    ARRAYS,
    BOXES,
    IMAGE,
    LABELS,
    LINKS,
    MARK,
    MARKS,
    MEDIA,
    NAME,
    NAMED,
    NAMES,
    NEAR_WORDS,
    NUMBER,
    OBJECT,
    PHRASES,
    PLACES,
    QUESTIONS,
    SPOKEN,
    TEXT,
    TEXTS,
    TEXTS_BY_NAME,
    TIMES,
    TRIPLES,
    Value,
)
from workbench.corpora.schema.members import (
    AS_ARRAYS,
    AS_CLIPS,
    AS_FRAMES,
    AS_IMAGE,
    AS_MEDIA,
    AS_SOUND,
    AS_VIDEO,
    IN_JSON,
    Codec,
)
from workbench.sequences.sequence import SIBLINGS

KINDS = ("text", "image-text", "video-text", "speech-text", "triples")


@dataclass(frozen=True)
class SchemaField:
    """A field of samples.

    `content` is the description in the docs. `spans_of` names the field of texts whose characters the values count; for
    several texts there is a list of stretches for each. `quotes` names a list of texts that the stretches must equal;
    there are none, or one for each text. `each_of` names a list of the same length. `index_of` names the list in which
    the value is an index. A record of the field's kinds needs a `required` field, or a field that is `instead_of` it.
    Items may be cut from a `unit`: windows of a text, elements of a list. `foreign` are the members that WebDatasets
    commonly use for it.
    """

    name: str
    kinds: tuple[str, ...]
    value: Value
    content: str
    codec: Codec = IN_JSON
    required: bool = False
    instead_of: str | None = None
    unit: bool = False
    spans_of: str | None = None
    quotes: str | None = None
    index_of: str | None = None
    each_of: str | None = None
    foreign: tuple[str, ...] = ()

    @property
    def type(self) -> type | tuple[type, ...]:
        """The outermost type of its values; texts by name have stretches by name."""
        by_name = self.spans_of is not None and FIELDS[self.spans_of].value is TEXTS_BY_NAME
        return dict if by_name else self.value.type


_TEXT, _IMAGE, _TRIPLES = ("text",), ("image-text",), ("triples",)
_VIDEO, _SPEECH = ("video-text",), ("speech-text",)
_WRITTEN = (*_TEXT, *_IMAGE)
_DISCOVERED = (*_IMAGE, *_VIDEO)
SCHEMA = (
    SchemaField("text", _TEXT, TEXT, "the text, or a window of it", required=True, unit=True, foreign=("txt", "text")),
    SchemaField(
        "spans",
        _TEXT,
        LINKS,
        'linked mentions of entities, sorted; labels may follow the score, `{"right": 1}` where an annotation says '
        "whether this entity is right (`prepare link --supervise`)",
        spans_of="text",
    ),
    SchemaField(
        "mask_spans",
        _TEXT,
        MARKS,
        "stretches that the masking strategy `field` masks as a whole (a fact's object, a phrase)",
        spans_of="text",
    ),
    SchemaField("mention", _TEXT, MARK, "the mention to be typed", spans_of="text"),
    SchemaField("types", (*_TEXT, *_TRIPLES), NAMES, "types of the mention, or of the head entity"),
    SchemaField(
        "tags", _TEXT, NAMED, "labels of words or of spans (part of speech, named entities), sorted", spans_of="text"
    ),
    SchemaField(
        "dependencies",
        _TEXT,
        ARCS,
        "words, sorted, and the distance in characters to the beginning of their head (0: the root of the sentence)",
        spans_of="text",
    ),
    SchemaField("marks", _TEXT, NAMED, "spans with a role (head, tail, pronoun, ...), sorted", spans_of="text"),
    SchemaField("second", _TEXT, TEXT, "a second text: the other text of a pair, or the question on the text"),
    SchemaField("second_spans", _TEXT, LINKS, "linked mentions of entities in `second`, sorted", spans_of="second"),
    SchemaField("second_mask_spans", _TEXT, MARKS, "as `mask_spans`", spans_of="second"),
    SchemaField("answers", _TEXT, TEXTS, "right answers; an empty list if the question has no answer"),
    SchemaField(
        "answer_spans", _TEXT, PLACES, "the places of the answers in the text", spans_of="text", quotes="answers"
    ),
    SchemaField("choices", _WRITTEN, TEXTS, "texts to choose from"),
    SchemaField("choice_spans", _WRITTEN, LINKS, "linked mentions of entities in the choices", spans_of="choices"),
    SchemaField("answer", _WRITTEN, NUMBER, "the right choice", index_of="choices"),
    SchemaField("language", _TEXT, NAME, "the language of the text (`en`)"),
    SchemaField(
        "translations", _TEXT, TEXTS_BY_NAME, "the same text in several languages, by language", instead_of="text"
    ),
    SchemaField("turns", _TEXT, TEXTS, "the utterances of a dialogue, in order", instead_of="text"),
    SchemaField("speakers", _TEXT, NAMES, "the speaker of each turn; without them two speakers alternate"),
    SchemaField(
        "cooccurrences",
        _TEXT,
        NEAR_WORDS,
        "of a text that is one word: words near it in a corpus, with the number of times, each divided by its distance",
    ),
    SchemaField(
        "translation_spans", _TEXT, LINKS, "linked mentions of entities in the translations", spans_of="translations"
    ),
    SchemaField(
        "image", _IMAGE, IMAGE, "JPEG, PNG or WebP", AS_IMAGE, required=True, foreign=("jpg", "jpeg", "png", "webp")
    ),
    SchemaField(
        "media",
        _IMAGE,
        MEDIA,
        "images, sounds and videos by their role (left, right)",
        AS_MEDIA,
        instead_of="image",
    ),
    SchemaField("captions", _DISCOVERED, TEXTS, "captions of the image or video", unit=True, foreign=("txt", "text")),
    SchemaField(
        "caption_spans", _DISCOVERED, LINKS, "linked mentions of entities, for each caption", spans_of="captions"
    ),
    SchemaField(
        "caption_boxes",
        _IMAGE,
        BOXES,
        "the box of each caption's object, in 0..1 of the image's width and height; [] if it is unknown",
        each_of="captions",
    ),
    SchemaField(
        "caption_marks",
        _IMAGE,
        PHRASES,
        "phrases of each caption: their type, the number of their object, which is the same in all captions, and its "
        "boxes, as in `caption_boxes`",
        spans_of="captions",
    ),
    SchemaField(
        "questions",
        _IMAGE,
        QUESTIONS,
        "`{question_id, question, answers: [str], answer_type?, question_type?, answer?, answerable?, rationales?}`",
        unit=True,
    ),
    SchemaField("ocr_tokens", _IMAGE, TEXTS, "words that OCR finds in the image, in reading order"),
    SchemaField(
        "ocr_boxes",
        _IMAGE,
        BOXES,
        "the box of each word, in 0..1 of the image's width and height; [] if it is unknown",
        each_of="ocr_tokens",
    ),
    SchemaField(
        "regions",
        _IMAGE,
        ARRAYS,
        "`features [n, d]`, `boxes [n, 4]` (x1, y1, x2, y2 in 0..1); optional outputs of a detector: `classes`, "
        "`confidence`, `attributes`, `attribute_confidence [n]`, `scores [n, classes]`",
        AS_ARRAYS,
        foreign=("regions.npz",),
    ),
    SchemaField("video", _VIDEO, IMAGE, "a video", AS_VIDEO, required=True, foreign=("mp4", "webm", "avi")),
    SchemaField(
        "clips",
        _VIDEO,
        ARRAYS,
        "`features [n, d]`, `times [n, 2]` in seconds, of the clips of the video; optional their "
        "visual tokens, `codes [n]`",
        AS_CLIPS,
        instead_of="video",
        foreign=("clips.npz",),
    ),
    SchemaField("caption_times", _VIDEO, TIMES, "when each caption is spoken or shown", each_of="captions"),
    SchemaField("sound", _SPEECH, IMAGE, "speech", AS_SOUND, required=True, foreign=("wav", "flac", "mp3", "ogg")),
    SchemaField(
        "frames",
        _SPEECH,
        ARRAYS,
        "`features [n, d]`, a log-mel spectrum for every frame of the speech; `step []`, the seconds between two "
        "frames",
        AS_FRAMES,
        instead_of="sound",
        foreign=("frames.npz",),
    ),
    SchemaField("transcript", _SPEECH, TEXT, "the spoken text", foreign=("txt", "text")),
    SchemaField(
        "words",
        _SPEECH,
        SPOKEN,
        "when each word of the transcript is spoken, sorted",
        spans_of="transcript",
    ),
    SchemaField("id", _TRIPLES, NAME, "the head entity", required=True),
    SchemaField("label", _TRIPLES, TEXT, "the entity's name"),
    SchemaField("aliases", _TRIPLES, TEXTS, "the entity's other names"),
    SchemaField("description", _TRIPLES, TEXT, "a description of the entity"),
    SchemaField(
        "triples",
        _TRIPLES,
        TRIPLES,
        "`{relation, tail, relation_text?, tail_text?, qualifiers?}`, all triples of the head entity; "
        "qualifiers are a list of such objects without qualifiers",
        required=True,
        unit=True,
    ),
    SchemaField("labels", KINDS, LABELS, "classes and scores; copied to `Sequence.labels`", foreign=("cls",)),
    SchemaField("meta", KINDS, OBJECT, "provenance: source, licence, url, sha256, linker, backbone, ..."),
)
FIELDS = {field.name: field for field in SCHEMA}
READING = {
    "key": "the record's key",
    "corpus": "name of the corpus",
    "draw": "tuple of integers that identifies this sample in this epoch; keys every generator",
    SIBLINGS: "where the sample is an element of a list of the record (a caption): the whole list",
}
"""Fields that the reader adds to a sample; they are not stored."""


@cache
def fields_of(kind: str) -> dict[str, SchemaField]:
    """The fields that a sample of the kind may have, by name."""
    return {field.name: field for field in SCHEMA if kind in field.kinds}


def lacking(kind: str, names: Container[str]) -> list[str]:
    """The required fields that a sample of the kind lacks, each with its alternatives: "image or media"."""
    fields = fields_of(kind).values()
    wanted = [
        [field.name, *(f.name for f in fields if f.instead_of == field.name)] for field in fields if field.required
    ]
    return [" or ".join(either) for either in wanted if not any(name in names for name in either)]


@cache
def units_of(kind: str) -> tuple[str, ...]:
    """The fields that items of the kind may be cut from."""
    return tuple(field.name for field in fields_of(kind).values() if field.unit)


@cache
def field_of_member(member: str) -> SchemaField | None:
    """The field that a member of a shard belongs to; None for `json` and for members of no field."""
    return next((field for field in SCHEMA if field.codec.reads(member)), None)


@cache
def marks_of(text: str) -> tuple[SchemaField, ...]:
    """The fields that mark stretches of a field of texts."""
    return tuple(field for field in SCHEMA if field.spans_of == text)


@cache
def parallel_fields(unit: str) -> tuple[SchemaField, ...]:
    """The fields that have an element for each element of a list."""
    return tuple(field for field in SCHEMA if field.each_of == unit)


def links_among(fields: Iterable[str]) -> list[SchemaField]:
    """The fields among these that hold linked entities."""
    return [FIELDS[name] for name in fields if name in FIELDS and getattr(FIELDS[name].value, "entities", False)]
