"""Hostile values of recipes and runs that would run code, read files or fill memory: lists for the tests."""

from __future__ import annotations

import io
import struct
import zipfile

PARTS = [
    "subprocess:run",
    "subprocess:Popen",
    "os:system",
    "builtins:exec",
    "functools:partial",
    "shutil:rmtree",
    "this:d",
    "antigravity:webbrowser",
    "idlelib.idle:idlelib",
    "__main__:main",
    "workbench.__main__:main",
    "torch:load",
    "torch.hub:load",
    "torch:nn",
    "torch.nn:Module",
    "torch.nn:Linear",
    "torch.utils.cpp_extension:BuildExtension",
    "numpy:float64",
    "numpy:load",
    "typer:Typer",
    "yaml:unsafe_load",
    "workbench.training.pretrain:pretrain",
    "workbench.components.kinds:KINDS",
    "workbench.pretraining.objective:Objective",
    "kg.graph.store:GraphStore",
    "..planted:Planted",
    ".planted:Planted",
    "planted.:Planted",
    "planted:Planted.__init__",
    "planted/../planted:Planted",
    "planted:",
    ":Planted",
    "planted:__class__",
    "nowhere.at.all:Planted",
]
"""Names that stand for no part of any kind."""

INTERPOLATIONS = [
    "${oc.env:SECRET}",
    "${oc.env:SECRET,none}",
    "a ${oc.env:SECRET} b",
    "${oc.decode:${oc.env:SECRET}}",
    "${oc.create:{a: 1}}",
    "${oc.dict.values:train}",
    "${oc.select:train.lr}",
    "${${vars.corpus}}",
    "${vars.${seed}}",
    "\\${oc.env:SECRET}",
]
"""Values of a recipe that read something else than its own keys."""

URLS = [
    "reference://a",
    "jupyter://host/corpus",
    "github://org:repo@main/corpus",
    "zip://corpus::memory://a.zip",
    "simplecache::memory://corpus",
    "dask://corpus",
    "data://text;base64,AAAA",
    "nowhere://corpus",
    "memory://gone",
]
"""Places of a corpus that are none."""

DEEP = {
    "list.yaml": "[" * 5000 + "]" * 5000,
    "mapping.yaml": "{a: " * 5000 + "1" + "}" * 5000,
    "open.yaml": "[" * 100_000,
    "block.yaml": "\n".join(" " * n + "a:" for n in range(1500)),
}
"""Recipes that are nested more deeply than any program reads."""

BAD_YAML = ["[" * 50_000, "[" * 3000 + "]" * 3000, "1" * 5000, "[1", "&a [*a]"]
"""Values that no option can have: two are nested too deeply, a number is too long, one is cut off, one holds itself."""

IMAGES = {
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n",
    "html": b"<!doctype html><title>Not found</title>",
    "svg": b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>',
    "pdf": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n",
    "passwords": b"root:x:0:0:root:/root:/bin/bash\n",
    "empty": b"",
    "cut off": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
}
"""What is no image that may be opened; the first would be run by Ghostscript."""

CONTROL = "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x7f"
"""Sets a terminal's title, clears it, colours it, goes back."""


def npz(header: str, data: bytes = b"", *, states: int | None = None, compressed: bool = False) -> bytes:
    """A `regions.npz` of one array with a header as given.

    Args:
        states: how many bytes the zip file says that the member has; by default the truth.
    """
    padded = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + data
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        archive.writestr("features.npy", body)
    made = buffer.getvalue()
    return made if states is None else made.replace(struct.pack("<I", len(body)), struct.pack("<I", states))


def arrays() -> dict[str, bytes]:
    """Region arrays that are damaged, or ask for more memory than they have bytes."""
    plain = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"
    return {
        "14.9 TiB": npz(plain % "(2000000, 2048000)"),
        "more than an integer": npz(plain % "(4294967296, 4294967296, 4294967296)"),
        "negative": npz(plain % "(-1, 4)", bytes(16)),
        "no bytes an element": npz("{'descr': '<U0', 'fortran_order': False, 'shape': (99999999999,), }"),
        "inflates": npz(plain % "(16777216,)", bytes(64 << 20), compressed=True),
        "inflates to more than it says": npz(plain % "(16777216,)", bytes(64 << 20), compressed=True, states=1000),
        "says more than it has": npz(plain % "(4,)", bytes(16), states=1 << 31),
        "objects": npz("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
        "nested": npz("{'descr': " + "[" * 3000 + "]" * 3000 + ", 'fortran_order': False, 'shape': (1,), }"),
        "no header": npz("{'descr': ("),
        "no archive": b"PK\x03\x04" + bytes(60),
        "nothing": b"",
    }
