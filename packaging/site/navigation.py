# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs: the sections and tables of docs/README.md are the navigation of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINE = re.compile(r"(#{2,3}) (.+)|\| \[([^]]+)\]\(([^)]+\.md)\) \|")


def on_config(config: Any) -> Any:
    """Return the configuration with the navigation."""
    index = Path(config["docs_dir"], "README.md").read_text(encoding="utf-8")
    config["nav"] = [{"Documentation": "README.md"}, *navigation(index)]
    return config


def navigation(index: str) -> list[dict[str, Any]]:
    """Return mkdocs' navigation: a list of {title: page} and {title: list}, nested by headings."""
    levels: list[list[dict[str, Any]]] = [[]]
    for line in index.splitlines():
        if not (found := _LINE.match(line)):
            continue
        marks, heading, title, page = found.groups()
        if page:
            levels[-1].append({title: page})
            continue
        del levels[len(marks) - 1 :]
        levels[-1].append({heading: []})
        levels.append(levels[-1][-1][heading])
    return levels[0]
