"""URLs without their secrets: user info, and the values of a query as in signed URLs.

Files and messages are passed on, so `***` stands for a secret in all of them. A checksum of the whole URL, without its
password, follows as `#0123456789ab`: URLs that differ in a hidden value stay different, and one is the same each time.
"""

from __future__ import annotations

import hashlib
import re

HIDDEN = "***"
HOW_TO_GIVE = (
    "Name the whole URL again, as KEY=URL where it is in a recipe. Or name it without them, and give access by the "
    "variables of the store's library, or by fsspec's, such as FSSPEC_HTTPS='{\"headers\": {\"Authorization\": ...}}'"
)
_URL = re.compile(
    r"(?<![\w+.-])[A-Za-z][\w+.-]{0,30}://(?:(?!\[/|::|,\s*[A-Za-z][\w+.-]{0,30}://)[^\s'\"`<>\x00-\x1f])+"
)
_CONTAINERS = ("abfs", "abfss", "az", "adl", "oci", "ocilake")
"""Protocols whose URLs have a container or a bucket before the `@`."""


def without_secrets(text: str) -> str:
    """A text with `***` in place of the secrets of all URLs in it; applied twice it is the same.

    >>> without_secrets("there is no https://ann:pw@host/x.txt?sig=abc&v=2; check the address")
    'there is no https://***@host/x.txt?sig=***&v=***#3ad8f1e5d2c4; check the address'
    """
    return _URL.sub(lambda found: _cut(found[0]), text) if "://" in text else text


def has_secrets(url: str) -> bool:
    """Whether a URL has user info or values of a query."""
    return without_secrets(url) != url


def is_cut(url: str) -> bool:
    """Whether a URL has lost its secrets (`without_secrets`)."""
    return any(mark in url for mark in (f"://{HIDDEN}@", f"={HIDDEN}", f"?{HIDDEN}"))


def _cut(found: str) -> str:
    url = found.rstrip(".,;:!)]}")  # of the sentence or the list around it
    place, _, query = url.partition("#")[0].partition("?")
    protocol, _, rest = place.partition("://")
    authority, slash, path = rest.partition("/")
    user, _, host = authority.rpartition("@")
    public = protocol in _CONTAINERS and ":" not in user
    head = f"{protocol}://{'' if not user else f'{user}@' if public else f'{HIDDEN}@'}{host}{slash}{path}"
    hidden = [_hidden(part, protocol) for part in query.split("&")] if query else []
    whole = head + ("?" + "&".join(hidden) if hidden else "")
    if whole == (f"{place}?{query}" if query else place):
        return found
    named = f"{protocol}://{user.partition(':')[0]}@{host}{slash}{path}?{query}"
    return f"{whole}#{hashlib.sha256(named.encode()).hexdigest()[:12]}{found[len(url) :]}"


def _hidden(part: str, protocol: str) -> str:
    """A part of a query without its value. Other stores than web servers may have a `?` in names and patterns."""
    name, equals, _ = part.partition("=")
    return f"{name}={HIDDEN}" if equals else HIDDEN if protocol in ("http", "https") else part
