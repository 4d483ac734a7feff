"""Options of fetching the images of a list of URLs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pipelines.readers.formats import find_format, sorted_inputs
from pipelines.readers.image_text.url_list import UrlList
from pipelines.sources.web import Manners
from pipelines.stages.image_fetching import FetchImages
from pipelines.stages.media_checks import CheckImage
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Connections, Count, Retries, Seconds


@dataclass(frozen=True, kw_only=True)
class Fetching:
    """Whether and how images are fetched."""

    fetch: Annotated[bool, typer.Option("--fetch", help="Fetch the images of a list of URLs.")] = False
    connections: Annotated[Connections, typer.Option(help="Images fetched at once, in each process.")] = 64
    timeout: Annotated[Seconds, typer.Option(help="Timeout of an attempt, in seconds.")] = 20.0
    retries: Annotated[
        Retries, typer.Option(help="Further attempts after a temporary failure (429, 5xx, timeout).")
    ] = 2
    max_bytes: Annotated[Count, typer.Option(help="Larger files are not fetched.")] = 32 << 20
    private_hosts: Annotated[
        bool, typer.Option("--private-hosts", help="Fetch from addresses of the private network, too.")
    ] = False

    def stage(self, check: CheckImage, shard_size: int) -> FetchImages:
        manners = Manners(self.timeout, self.retries, self.max_bytes, self.private_hosts)
        return FetchImages(check, manners, self.connections, shard_size)


def check_list(name: str | None, paths: Sequence[Path]) -> None:
    """
    Raises:
        WorkbenchError: the format is no list of URLs.
    """
    names = [name] if name else list(sorted_inputs("image-text", paths))
    other = next((each for each in names if not issubclass(find_format("image-text", each), UrlList)), None)
    if other is not None:
        raise WorkbenchError(
            f"--fetch: the format {other} is not a list of URLs; allowed: conceptual-captions, url-table, url-parquet"
        )
