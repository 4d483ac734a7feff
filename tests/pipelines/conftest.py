"""Tiny raw inputs, written by the tests themselves."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.readers.formats import make_reader
from pipelines.readers.reader import Drop
from pipelines.sources.files import expand
from tests.pipelines.jobs import Job
from workbench.corpora.corpus import Corpus


@pytest.fixture
def photograph() -> Callable[..., bytes]:
    """Encoded noise: `photograph(seed, size, format)`."""

    def make(seed: int = 0, size: tuple[int, int] = (24, 16), format: str = "JPEG", mode: str = "RGB") -> bytes:
        channels = len(mode)
        pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], channels), np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels.squeeze(), mode).save(buffer, format)
        return buffer.getvalue()

    return make


@pytest.fixture
def json_lines(tmp_path: Path) -> Callable[[str, Iterable[Any]], Path]:
    def write(name: str, rows: Iterable[Any]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        return path

    return write


@pytest.fixture
def tar(tmp_path: Path) -> Callable[[str, dict[str, bytes]], Path]:
    def write(name: str, members: dict[str, bytes]) -> Path:
        path = tmp_path / name
        with tarfile.open(path, "w") as archive:
            for member, data in members.items():
                entry = tarfile.TarInfo(member)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return path

    return write


@pytest.fixture
def read() -> Callable[..., list[dict[str, Any]]]:
    """All samples of inputs, with the format detected unless it is named."""

    def samples(kind: str, *inputs: Path, format: str | None = None, **options: Any) -> list[dict[str, Any]]:
        paths = expand(inputs)
        return list(make_reader(kind, format, paths, options).samples(paths))

    return samples


@pytest.fixture
def drops() -> Callable[..., list[str]]:
    """The reasons for which a reader drops records."""

    def reasons(kind: str, *inputs: Path, **options: Any) -> list[str]:
        paths = expand(inputs)
        reader = make_reader(kind, None, paths, options)
        results = [reader.read(record) for record in reader.records(paths)]
        return [result.reason for result in results if isinstance(result, Drop)]

    return reasons


@pytest.fixture
def stored() -> Callable[[Path], list[dict[str, Any]]]:
    """All samples of a corpus."""

    def samples(folder: Path) -> list[dict[str, Any]]:
        corpus = Corpus.open(folder)
        return [corpus.read(s, r) for s, info in enumerate(corpus.shards) for r in range(info.records)]

    return samples


@pytest.fixture
def text_job(tmp_path: Path) -> Callable[..., Job]:
    """A job over a text input of the detected format."""

    def make(path: Path, output: str = "corpus", **settings: Any) -> Job:
        return Job(make_reader("text", None, [path], {}), "text", tmp_path / output, **settings)

    return make


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An English spaCy pipeline named chunks, whose parser has learned a sentence by heart."""
    spacy = pytest.importorskip("spacy")
    from spacy.tokens import Doc
    from spacy.training import Example

    nlp = spacy.blank("en")
    nlp.add_pipe("parser", config={"min_action_freq": 1})
    words = ["the", "old", "town", "sees", "a", "river"]
    heads, deps = [2, 2, 3, 3, 5, 3], ["det", "amod", "nsubj", "ROOT", "det", "dobj"]
    doc = Doc(nlp.vocab, words=words, heads=heads, deps=deps)
    example = Example(nlp.make_doc(doc.text), doc)
    optimizer = nlp.initialize(lambda: [example])
    for _ in range(30):
        nlp.update([example], sgd=optimizer)
    nlp.add_pipe("attribute_ruler").add([[{"LOWER": {"IN": ["town", "river"]}}]], {"POS": "NOUN"})
    folder = tmp_path_factory.mktemp("spacy") / "chunks"
    nlp.meta["name"] = "chunks"
    nlp.to_disk(folder)
    return folder
