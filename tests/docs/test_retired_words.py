"""Words that this project no longer uses (docs/STYLE.md): none is left in code, documentation or help.

python -m tests.docs.test_retired_words [PLACE ...]     lists what is left, of some files or folders
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile", "docs")
PLACES += ("workbench", "kg", "vision", "pipelines", "tests", "benchmarks", "examples")
SUFFIXES = (".md", ".py", ".yaml", ".css", ".svg")
SPARED = ("docs/STYLE.md", "tests/docs/test_retired_words.py")
SPARED += ("kg/linking/common_words.py", "pipelines/demo/scenes.py")  # data: words and sentences
SPARED += ("tests/training/conftest.py", "tests/interop/worlds.py")
SPARED += (
    "tests/evaluation/conftest.py",
    "tests/evaluation/tasks/test_classify.py",
    "tests/evaluation/tasks/test_classify_speech.py",
)
RETIRED = {
    r"tell(?!\()(s|ing)?|(un)?told": "reports, logs, detects, says, distinguishes",
    r"(take|takes|taking|taken|took) away": "ablate, remove",
    r"(go|goes|going|gone|went) on": "resume, continue",
    r"beside(?! corpus\.json)": "next to, besides, compared with, in addition to",
    r"made of|what it is of|what (he|they|it) (is|are) of": "built from, or the noun",
    r"mend(s|ed|ing)?": "fix",
    r"amiss": "invalid, wrong",
    r"reckon(s|ed|ing)?": "estimate",
    r"learnt": "learned",
    r"parted": "separated, split",
    r"held against": "compared with",
    r"blam(e|es|ed|ing)": "error context",
    r"heed(s|ed|ing)?": "support",
    r"step[-_]?wide": "global-batch",
    r"polic(y|ies)": "masking strategy",
    r"films?": "video",
    r"pictures?|pictured": "image (photograph), figure (plot)",
    r"(of )?other people('s)?": "pretrained, published, precomputed, Hugging Face",
    r"(of )?somebody else('s)?|strangers?": "another project's, third-party, users",
    r"releases?(?!\()": "checkpoint family, checkpoint, version",
    r"a past|pasts|past (keys|rows)": "KV cache",
    r"Root|Seen|Sight": "PretrainingModel, HeadInputs, ViewKey",
    r"a part of (a|the) recipe|parts? (of|in) (a|the) recipe|"
    r"(a|the|every|each|any|these|all|own|which) parts?(?! of| i/n| in )": (
        "component (of a recipe); say which split, segment or share otherwise"
    ),
    r"gives": "returns, has, yields",
    r"stands? (beside|by|for itself)|stands? in (the|a|its) (recipe|run|corpus|manifest|log|file)": "is next to, is in",
    r"by its look|tells apart|so-many-th|so and so": "detected, distinguishes",
}
WORDS = "|".join(f"(?P<w{number}>{words})" for number, words in enumerate(RETIRED))
WITHIN = "(un)?told|tells?|learnt|beside|(go|goes|gone|going)_on|pictures?|heeds?|mend(s|ed)?|strangers?|step_wide"
WITHIN += "|(?<!mp_)(?<!offload_)polic(y|ies)"
"""Those that are retired within names, too, such as `test_a_bug_is_told`."""
NAMES = re.compile(rf"_(?:{WITHIN})(?![a-zA-Z])|(?<![a-zA-Z])(?:{WITHIN})_(?=[a-z])")
PATTERN = re.compile(rf"\b(?<!-)(?:{WORDS})(?![\w-])")


def left(places: tuple[str, ...] = PLACES) -> Iterator[str]:
    """Every place that still has a retired word: file, line, the word, what to write instead."""
    for place in places:
        root = ROOT / place
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            name = path.relative_to(ROOT).as_posix()
            if not path.is_file() or name in SPARED or (path.suffix not in SUFFIXES and path.name != "Makefile"):
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for found in PATTERN.finditer(line):
                    instead = list(RETIRED.values())[int(str(found.lastgroup)[1:])]
                    yield f"{name}:{number}: {found[0]!r} -> {instead}"
                if path.suffix == ".py":
                    yield from (f"{name}:{number}: {found[0]!r} in a name" for found in NAMES.finditer(line))


@pytest.mark.parametrize("place", PLACES)
def test_no_retired_word_is_left(place: str) -> None:
    found = list(left((place,)))
    assert not found, f"{len(found)} retired words, the first: {found[:20]}"


def test_a_retired_word_is_found() -> None:
    assert PATTERN.search("what the run tells")
    assert not PATTERN.search("retelling, stepwise, partial")
    assert NAMES.search("def test_a_bug_is_told_with_its_name")
    assert not NAMES.search("def recommended_size")


if __name__ == "__main__":
    for each in left(tuple(sys.argv[1:]) or PLACES):
        sys.stdout.write(each + "\n")
