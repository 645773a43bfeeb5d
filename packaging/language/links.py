# SPDX-License-Identifier: Apache-2.0
"""Find links of Markdown files to files and headings of this checkout that do not exist.

    PYTHONPATH=packaging python -m language.links

Reads the tracked Markdown files. Other sites are not asked. The exit status is 1 if a link is dead.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)|\b(?:href|src|srcset)=\"([^\"]+)\"")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def main() -> None:
    """Print each dead link as PATH:LINE: target (reason)."""
    command = ["git", "ls-files", "--", "*.md"]
    tracked = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    pages = [CHECKOUT / name for name in tracked.stdout.splitlines()]
    found = [one for page in pages if page.exists() for one in dead_links(page, CHECKOUT)]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))


def dead_links(page: Path, checkout: Path) -> Iterator[str]:
    """Yield a line for each link of the page whose file or heading does not exist."""
    for number, line in _prose(page.read_text(encoding="utf-8")):
        for match in _LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target = match[1] or match[2]
            if reason := _reason(page, target, checkout):
                yield f"{page.relative_to(checkout)}:{number}: {target} ({reason})"


def _reason(page: Path, target: str, checkout: Path) -> str:
    if _ELSEWHERE.match(target):
        return ""
    path, _, heading = target.partition("#")
    aimed = (page.parent / path).resolve() if path else page
    if not aimed.is_relative_to(checkout.resolve()):
        return "outside of the checkout"
    if not aimed.exists():
        return "no such file"
    if not heading or aimed.suffix != ".md":
        return ""
    known = heading in headings(aimed.read_text(encoding="utf-8"))
    return "" if known else "no such heading"


def headings(text: str) -> set[str]:
    """Return the anchors of headings as GitHub makes them; repeated ones get -1, -2."""
    counts: Counter[str] = Counter()
    anchors = set()
    for _, line in _prose(text):
        if match := re.match(r"#{1,6} +(.*)", line):
            bare = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[1]).strip().lower()
            anchor = re.sub(r"[^\w\- ]", "", bare).replace(" ", "-")
            anchors.add(f"{anchor}-{counts[anchor]}" if counts[anchor] else anchor)
            counts[anchor] += 1
    return anchors


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines outside of fenced blocks."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = re.match(r" *(`{3,}|~{3,})", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        elif not fence:
            yield number, line


if __name__ == "__main__":
    main()
