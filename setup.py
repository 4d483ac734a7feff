"""The page of a package index: README.md without the links and figures of this folder, which an index does not have."""

import re
from pathlib import Path

from setuptools import setup

text = Path(__file__).with_name("README.md").read_text("utf-8")
text = re.sub(r"^!\[.*\]\((?!https?:).*\)\n\n", "", text, flags=re.MULTILINE)
text = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
setup(
    long_description=f"{text}\nThe pages named here are in `docs/` of the source distribution.\n",
    long_description_content_type="text/markdown",
)
