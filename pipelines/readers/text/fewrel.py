"""FewRel as published (Han et al., EMNLP 2018): one JSON object with the sentences of each relation.

`{"P931": [{"tokens": [...], "h": ["tokyo airport", "Q1234", [[5, 6]]], "t": [...]}, ...], ...}`, where `h` and `t` are
head and tail: name, id, and the numbers of the tokens of each place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.reader import MalformedError, Peek, Record
from pipelines.readers.text.related_mentions import RelatedMentions
from pipelines.sources.files import files, stem
from pipelines.sources.json_files import read_json, rows_of
from workbench.sequences.sequence import Sample

MENTIONS = {"h": "head", "t": "tail"}
_OPENING = re.compile(r'\{\s*"[^"]+"\s*:\s*\[\s*\{')


@dataclass(frozen=True)
class FewRel(RelatedMentions):
    """The sentences in the form of `related_mentions`, with the key of their list as `labels.relation`."""

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return _OPENING.match(source.text.lstrip()) is not None and all(map(source.has_key, ("tokens", *MENTIONS)))

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for path in files(paths, self.suffixes):
            tree, number = read_json(path), 0
            for relation in tree:
                for place, row in enumerate(rows_of(tree, relation, path)):
                    number += 1
                    line = json.dumps({"relation": relation, "row": row}).encode()
                    yield Record((stem(path), number, line), len(line), f"{path.name}:{relation}:{place}")

    def sample(self, record: Record) -> Sample:
        name, number, line = record.data
        episode = json.loads(line)
        row = episode["row"]
        mentions = {role: row.get(key) for key, role in MENTIONS.items()} if isinstance(row, dict) else {}
        if not all(isinstance(found, list) and len(found) == 3 for found in mentions.values()) or not mentions:
            raise MalformedError("head and tail are not [name, id, places]", record.where, str(row)[:60])
        pointed = {
            role: {"name": found[0], "id": found[1], "spans": found[2]} for role, found in mentions.items() if found
        }
        whole = json.dumps({"relation": episode["relation"], "tokens": row.get("tokens"), **pointed})
        return super().sample(record._replace(data=(name, number, whole.encode())))
