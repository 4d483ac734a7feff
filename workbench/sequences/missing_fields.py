"""The error where a component reads a field that a corpus does not have: the field, and how to prepare it."""

from __future__ import annotations

import json
from typing import Any

from workbench.core.errors import BadValueError
from workbench.sequences.sequence import Sample

_TEXT = "workbench prepare text FILE.jsonl --output CORPUS"
_IMAGES = "workbench prepare image-text FILE.jsonl --images FOLDER --output CORPUS"
_VIDEOS = "workbench prepare video-text FILE.jsonl --videos FOLDER --output CORPUS"
_SPEECH = "workbench prepare speech-text FILE.jsonl --sounds FOLDER --output CORPUS"
_OSLO = {"text": "Oslo lies in Norway."}
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "turns": (_TEXT, {"turns": ["Where does Oslo lie?", "In Norway."], "speakers": ["Ann", "Ben"]}),
    "text": (_TEXT, _OSLO),
    "second": (_TEXT, {**_OSLO, "second": "Where does Oslo lie?"}),
    "answers": (_TEXT, {**_OSLO, "second": "Where?", "answers": ["Norway"], "answer_spans": [[13, 19]]}),
    "choices": (_TEXT, {**_OSLO, "choices": ["It is a city.", "It is a river."], "answer": 0}),
    "answer": (_TEXT, {**_OSLO, "choices": ["It is a city.", "It is a river."], "answer": 0}),
    "mention": (_TEXT, {**_OSLO, "mention": [0, 4], "types": ["city"]}),
    "marks": (_TEXT, {**_OSLO, "marks": [[0, 4, "head"], [13, 19, "tail"]]}),
    "tags": (_TEXT, {**_OSLO, "tags": [[0, 4, "city"], [13, 19, "country"]]}),
    "labels": (_TEXT, {**_OSLO, "labels": {"label": "geography"}}),
    "image": (_IMAGES, {"image": "oslo.jpg", "captions": ["a harbour"]}),
    "captions": (_IMAGES, {"image": "oslo.jpg", "captions": ["a harbour"]}),
    "video": (_VIDEOS, {"video": "oslo.mp4", "captions": ["a harbour"], "times": [[0, 4.5]]}),
    "caption_times": (_VIDEOS, {"video": "oslo.mp4", "captions": ["a harbour"], "times": [[0, 4.5]]}),
    "sound": (_SPEECH, {"sound": "oslo.wav", "transcript": "Oslo lies in Norway."}),
    "transcript": (_SPEECH, {"sound": "oslo.wav", "transcript": "Oslo lies in Norway."}),
    "words": (_SPEECH, {"sound": "oslo.wav", "words": [{"word": "Oslo", "start": 0.1, "end": 0.5}]}),
    "questions": (_IMAGES, {"question_id": 1, "image": "oslo.jpg", "question": "Where is it?", "answer": "Oslo"}),
}
_COMMANDS = {
    "spans": "workbench prepare link CORPUS --graph GRAPH --output LINKED",
    "mask_spans": "workbench prepare phrases CORPUS --output PHRASES",
    "regions": "workbench prepare regions CORPUS --backbone NETWORK --output FEATURES",
    **{
        f"regions.{name}": "workbench prepare regions CORPUS --backbone NETWORK --scores --output FEATURES"
        for name in ("classes", "confidence", "scores")
    },
    **{
        f"regions.{name}": "workbench index FOLDER --kind image-text" for name in ("attributes", "attribute_confidence")
    },
    "clips": "workbench prepare clips CORPUS --backbone NETWORK --output CLIPS",
    "clips.codes": "workbench prepare clip-tokens CLIPS --vocabulary VOCABULARY --output TOKENS",
    "frames": _SPEECH,
    "triples": "workbench prepare triples GRAPH.tsv --output CORPUS",
    "description": "workbench prepare triples GRAPH.tsv --entities DESCRIPTIONS.tsv --output CORPUS",
    "language": "workbench prepare text FILES --language en --output CORPUS",
    "dependencies": "workbench prepare text TREES.conllu --output CORPUS",
    "translations": "workbench prepare text FILE.en FILE.de --output CORPUS",
}


def how_to_prepare(field: str) -> str:
    """The command that adds a field to the samples of a corpus, and the line of JSON that it reads."""
    if field in _COMMANDS:
        return f"`{_COMMANDS[field]}`"
    command, line = LINES.get(field, (_TEXT, {**_OSLO, field: "..."}))
    return f"`{command}` with lines such as {json.dumps(line)}"


def missing(sample: Sample, field: str, of: str = "") -> BadValueError:
    """The error for a sample without a field that a component reads; a run that skips bad samples leaves it out.

    Args:
        of: the missing entry of the field, where it exists: "of a head and a tail".
    """
    where = f"sample {sample.get('key', '?')!r} of corpus {sample.get('corpus', '?')!r}"
    lacking = f"{field!r} {of}".rstrip()
    detail = (
        f"it has no {lacking} (it has {', '.join(sorted(sample))}), which the recipe's components read. Prepare it: "
        f"{how_to_prepare(field)}; or choose another corpus or builder"
    )
    return BadValueError(where, detail, sample.get("draw"), f"no {field}")  # each sample's draw is an object of its own
