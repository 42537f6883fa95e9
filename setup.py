"""Give the package the README with absolute links; everything else stands in pyproject.toml.

The README links to files and pictures of the repository by relative paths, so that it works in
every clone. The page of the package is shown where these files are not.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
LINK = re.compile(r"(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


def with_absolute_links(text: str, repository: str) -> str:
    """Return Markdown whose relative links lead into the repository, as it stands at HEAD."""
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def absolute(link: re.Match[str]) -> str:
        place = f"{raw}/HEAD" if link["picture"] else f"{repository}/blob/HEAD"
        return f"{link['picture']}[{link['words']}]({place}/{link['path']})"

    return LINK.sub(absolute, text)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=with_absolute_links(
            (HERE / "README.md").read_text(encoding="utf-8"), project["urls"]["Repository"]
        ),
        long_description_content_type="text/markdown",
    )
