"""Corpora on object stores as folders of this machine: only their corpus.json is here.

The shards of such a corpus.json have URLs in place of file names; who reads them fetches them (`Corpus`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from workbench.core.errors import WorkbenchError
from workbench.core.files.cache import default_folder
from workbench.core.files.stores import Store, fetched, hash_of, name_of
from workbench.core.files.urls import is_url
from workbench.core.local_copies import stands_for
from workbench.core.options.path_options import Remote
from workbench.core.url_secrets import HOW_TO_GIVE, has_secrets
from workbench.corpora.manifest import FILE_NAME, check_below, parse_manifest


@contextmanager
def opened_corpus(url: str) -> Iterator[Path]:
    """A local folder with the corpus.json of a corpus at a URL.

    Raises:
        WorkbenchError: there is no corpus, or its corpus.json is damaged.
        MachineError: the store does not answer.
    """
    if has_secrets(url):
        raise WorkbenchError(f"{url}: a local {FILE_NAME} would keep the user and password of this URL. {HOW_TO_GIVE}")
    store = Store(url.rstrip("/"))
    data = store.read(FILE_NAME)
    if data is None:
        raise WorkbenchError(f"there is no corpus at {url}: it has no {FILE_NAME}")
    manifest = parse_manifest(data, store.at(FILE_NAME))
    check_below(manifest, store.at(FILE_NAME))
    shards = [
        replace(info, name=_absolute(store, info.name), index=_absolute(store, info.index)) for info in manifest.shards
    ]
    folder = stands_for(default_folder() / "corpora" / hash_of(url) / name_of(url), url)
    bundle = manifest.bundle and {**manifest.bundle, "name": _absolute(store, manifest.bundle["name"])}
    linked = replace(manifest, shards=shards, bundle=bundle)
    place = folder / FILE_NAME
    if not place.is_file() or parse_manifest(place.read_bytes(), str(place)) != linked:
        linked.write(folder)
    yield folder


@contextmanager
def opened_input(url: str) -> Iterator[Path]:
    """A local path for a corpus at a URL, or for a file there, which is fetched.

    Raises:
        WorkbenchError: there is neither.
        MachineError: the store does not answer, or the disk is full.
    """
    if Store(url.rstrip("/")).read(FILE_NAME) is None:
        yield fetched(url)
        return
    with opened_corpus(url) as folder:
        yield folder


def _absolute(store: Store, name: str) -> str:
    return name if is_url(name) else store.at(name)


CorpusFolder = Annotated[Path, Remote(opened_corpus)]
"""The type of an option that names a corpus: a path, or a URL."""
CorpusOrFile = Annotated[Path, Remote(opened_input)]
"""The type of an option that names a corpus or a file: a path, or a URL."""
