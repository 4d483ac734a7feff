"""Types of options with their bounds, for the signatures of components and commands and the keys of recipes.

`workbench.core.options.values` checks values against them. A numeric option has one of these types, or its own bounds
next to the type (`Annotated[int, Ge(2)]`). A string option has a `Literal`, or one of these types that says what the
text means. The upper bounds are far above anything that is trained today; they detect typing errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Len, Lt, MinLen
from pydantic import AfterValidator, BeforeValidator, StringConstraints

from workbench.core.files.urls import LOCAL_ONLY, WRITABLE, WRITTEN, url_of


@dataclass(frozen=True)
class Means:
    """The meaning of a text, for messages: "allowed: ..."."""

    words: str


def _from_text(value: Any) -> Any:
    """The number of a text such as `1e-4`, which YAML 1.1 reads as text because it has no dot."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _local(place: str) -> str:
    """A place that is a path.

    Raises:
        ValueError: it is a URL.
    """
    if url_of(place) is not None:
        raise ValueError(place)
    return place


def _read(place: str) -> str:
    """The path of a place that is read: a URL's local copy.

    Raises:
        WorkbenchError, MachineError: the URL cannot be fetched.
    """
    if url_of(place) is None:
        return place
    from workbench.core.files.stores import path_at  # loads fsspec, which no --help needs

    return str(path_at(place))


def _written(place: str) -> str:
    """A place that can be written.

    Raises:
        ValueError: it is a URL of another protocol.
    """
    url = url_of(place)
    if url is not None and url.partition("://")[0] not in WRITABLE:
        raise ValueError(place)
    return place


Number = Annotated[float, BeforeValidator(_from_text)]
"""Any finite number, also as YAML 1.1 writes it. An option needs bounds in addition."""

# whole numbers
Count = Annotated[int, Ge(1), Le(10**12)]
CountOrZero = Annotated[int, Ge(0), Le(10**12)]
Port = Annotated[int, Ge(1), Le(65535)]
Size = Annotated[int, Ge(1), Le(2**20)]
SizeOrZero = Annotated[int, Ge(0), Le(2**20)]
Heads = Annotated[int, Ge(1), Le(1024)]
Repeats = Annotated[int, Ge(1), Le(1000)]
Side = Annotated[int, Ge(1), Le(2**14)]
Cells = Annotated[int, Ge(1), Le(1024)]
Images = Annotated[int, Ge(1), Le(1024)]
Processes = Annotated[int, Ge(0), Le(1024)]
HashBits = Annotated[int, Ge(0), Le(16)]
Connections = Annotated[int, Ge(1), Le(1024)]
Retries = Annotated[int, Ge(0), Le(100)]
Seed = Annotated[int, Ge(0), Lt(2**32)]

# numbers
Share = Annotated[Number, Ge(0), Le(1)]
SomeShare = Annotated[Number, Gt(0), Le(1)]
PartShare = Annotated[Number, Gt(0), Lt(1)]
Warmup = CountOrZero | PartShare  # a number of updates, or a share of the run's updates
Dropout = Annotated[Number, Ge(0), Lt(1)]
Positive = Annotated[Number, Gt(0), Le(1e6)]
RotaryBase = Annotated[Number, Gt(1), Le(1e9)]
MeanSpan = Annotated[Number, Ge(1), Le(1000)]  # mean number of rows of a span
Seconds = Annotated[Number, Gt(0), Le(86_400)]
Ratio = Annotated[Number, Ge(1), Le(1e6)]
NotNegative = Annotated[Number, Ge(0), Le(1e6)]
LearningRate = Annotated[Number, Gt(0), Le(1000)]
Figure = Annotated[Number, Ge(-1e9), Le(1e9)]
Epsilon = Annotated[Number, Gt(0), Lt(1)]
Momentum = Annotated[Number, Ge(0), Lt(1)]
Betas = Annotated[list[Momentum], Len(2, 2)]
"""The decay rates of the two moments of an optimizer like Adam."""

# texts
Device = Literal["auto", "cpu", "cuda"]
ClusterAddress = Annotated[str, StringConstraints(pattern=r"^(auto|[^\s/:]+:\d{1,5})$"), Means("auto or HOST:PORT")]
Word = Annotated[str, StringConstraints(pattern=r"^[^\s./\\]+$"), Means("a word without '.', '/' and spaces")]
EveryNth = Annotated[str, StringConstraints(pattern=r"^every [1-9][0-9]{0,3}$"), Means("'every N'")]
FileName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\s./\\\x00-\x1f][^/\\\x00-\x1f]*$", max_length=200),
    Means("a name for a folder: not empty, no '/', no '.' in front"),
]
READ = "a path or URL"
_PLACE = StringConstraints(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")
Place = Annotated[str, _PLACE, Means(READ)]
"""A folder or file that is read, here or on a store. Who takes one opens URLs itself (`Corpus.open`)."""
OutputPlace = Annotated[str, _PLACE, AfterValidator(_written), Means(WRITTEN)]
"""A folder that is written, here or on an object store."""
Location = Annotated[str, _PLACE, AfterValidator(_read), Means(READ)]
"""A folder or file that is read; of a URL its local copy (`workbench.core.files.stores.local_copy`), so who takes one
needs no code of its own. An option of type `Path` is the same (`workbench.core.options.path_options`)."""
LocalPlace = Annotated[str, _PLACE, AfterValidator(_local), Means(LOCAL_ONLY)]
"""A folder or file of this machine; a URL is refused."""
Name = Annotated[str, MinLen(1), Means("a name, not empty")]
Source = Annotated[str, StringConstraints(pattern=r"\S"), Means("the source: a paper and its table, a readme")]
PanelPath = Annotated[
    str,
    StringConstraints(pattern=r"^[^\W\d][\w.]*:[^\W\d]\w*$"),
    Means("the import path of a panel, 'module:function'"),
]
Assignment = Annotated[str, Means("NAME=VALUE")]
Pattern = Annotated[str, MinLen(1), Means("a regular expression")]
FileTemplate = Annotated[
    str,
    StringConstraints(pattern=r"^[^\x00]+$"),
    Means("a file name with {subset} and {id} to be filled in"),
]
PartOf = Annotated[
    str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}/[1-9][0-9]{0,3}$"), Means("i/n, the i-th of n parts: 2/4")
]
Title = Annotated[str, Means("any text")]
Question = Annotated[str, Means("one text")]
ComponentName = Annotated[str, MinLen(1), Means("the name of a component, or 'package.module:Class'")]
Role = Annotated[str, MinLen(1), Means("the role of a special token (cls, sep, bos, eos), or null for none")]
ComponentSpec = Annotated[dict[str, Any], MinLen(1), Means("a mapping of a component's name and options")]
