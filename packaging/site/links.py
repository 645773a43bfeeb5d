# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs: links to files of the repository outside docs/ become links to GitHub."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_REPOSITORY = "https://github.com/gpuhook/gpuhook/blob/main/"
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the text of a page with its links changed."""
    directory = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def link(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if "://" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(directory, target))
        if path.startswith("docs/") and path.endswith((".md", ".svg")):
            return found[0]
        return f"]({_REPOSITORY}{path}{anchor})"

    return _LINK.sub(link, markdown)
