"""Places are paths of this machine or URLs of stores: which text is which.

No path has the name of a protocol: `pathlib` shortens `s3://bucket/x` to `s3:/bucket/x`, and a program that wrote there
would create a local folder `s3:`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from workbench.core.errors import WorkbenchError

PROTOCOLS = (
    *("http", "https", "ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs", "hf", "memory", "local"),
    *("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "lakefs"),
)
"""Protocols of file stores. Other protocols of fsspec open further URLs that a file names, run programs, talk to
servers of other kinds, or name places inside of files. None of them is opened, and no chain of protocols (`::`)."""
WRITABLE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "memory")
"""Protocols of object stores, whose files appear whole (`workbench.core.files.stores`)."""
WRITTEN = f"a path, or a URL of an object store ({', '.join(WRITABLE[:-1])})"
_URL = re.compile(r"[A-Za-z][\w+.-]*(::[A-Za-z][\w+.-]*)*://")
_SHORTENED = re.compile(r"([A-Za-z][\w+.-]+):/(?!/)(.*)", re.DOTALL)
_FILE = re.compile(r"file:(//)?(?=/)")
LOCAL_ONLY = "a path on this machine, not a URL"
HUB = "hub:"
"""What names of repositories of the Hugging Face hub begin with: `hub:ORG/NAME` is `hf://ORG/NAME`."""
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(@[\w.-]+)?(/[^/].*)?")


def is_url(place: str) -> bool:
    """Whether a place is fetched through fsspec (s3://, gs://, https://, memory://, ...); file:// is local.

    Raises:
        WorkbenchError: a URL that is not opened (`check_url`).
    """
    if "://" not in place or _FILE.match(place):
        return False
    check_url(place)
    return True


def check_url(url: str) -> None:
    """Check that a URL is that of a file store. Whoever opens one checks it again: names come from stores, too.

    Raises:
        WorkbenchError: another protocol, or several in a chain.
    """
    protocol = url.partition("://")[0]
    found = "URLs in a chain (::)" if "::" in url else f"URLs of {protocol}://"
    if "::" in url or protocol not in PROTOCOLS:
        way = f"Write {protocol.lower()}://" if protocol.lower() in PROTOCOLS else "Or copy the file to this machine"
        raise WorkbenchError(f"{url[:200]}: {found} are not opened; allowed: {', '.join(PROTOCOLS)}. {way}")


def url_of(place: str | os.PathLike[str]) -> str | None:
    """The URL that a place is, also of a path object that was built from one (`s3:/bucket/x`); None for a path.
    `hub:ORG/NAME` is the URL of a repository of models, `hf://ORG/NAME`.

    Raises:
        WorkbenchError: a URL that is not opened (`check_url`), or `hub:` without ORG/NAME.
    """
    text = os.fspath(place)
    if text.startswith(HUB) and not text.startswith(f"{HUB}//"):
        if not _REPOSITORY.fullmatch(text.removeprefix(HUB)):
            raise WorkbenchError(f"{text[:200]!r} names no repository of the Hugging Face hub; write {HUB}ORG/NAME")
        return f"hf://{text.removeprefix(HUB)}"
    if _FILE.match(text):
        return None
    shortened = _SHORTENED.fullmatch(text)
    url = text if _URL.match(text) else f"{shortened[1]}://{shortened[2]}" if shortened else None
    if url is not None:
        check_url(url)
    return url


def local_path(place: str | os.PathLike[str]) -> Path:
    """The path of a place that is no URL of a store; `file:///x` is `/x`."""
    return Path(_FILE.sub("", os.fspath(place), count=1))


def check_is_path(path: Path) -> None:
    """Check a path before a file or folder is created there.

    Raises:
        WorkbenchError: a folder on it has the name of a protocol, as in `s3:/bucket/x`.
    """
    named = next((part for part in path.parts if part.endswith(":") and part[:-1] in PROTOCOLS), None)
    if named is not None:
        url = url_of(named + "/" + "/".join(path.parts[path.parts.index(named) + 1 :]))
        raise WorkbenchError(f"{url}; allowed here: {LOCAL_ONLY}. Write to a folder and copy it there")
