# SPDX-License-Identifier: Apache-2.0
"""Generate messages.py and docs/reference/errors.md from gpuhook/errors/catalogue."""

from __future__ import annotations

import re

from gpuhook.errors.catalogue import DOCS, KINDS, explanations, with_angle_brackets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors.catalogue import Explanation

_PAGE = re.compile(rf"{re.escape(DOCS)}docs/([\w/-]+\.md)")
_TABLE_HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
"""Three lines per code: code and kind, sentence, hint. Generated from catalogue/: make generate.

HOT, and loaded with the first error only. A string loads faster than a dict of 700 entries.
"""

TEXTS = """
'''
_PAGE_HEAD = """\
# Errors

Every gpuhook error has a code. `gpuhook explain GH1102` prints its section of this page. Words in
angle brackets are placeholders for the details of a case. The first two digits of a code are its
area.

Exit statuses of commands: 0 for success; 1 for an error of this page, or if a check found a fault
(`doctor`, `cdi validate`, `inspect --exit-code`); 2 for an invalid command line. `gpuhook-runtime`
and `gpuhook-hook` exit with 1, and write code, message and hint to the engine's log file and to
standard error.

"""


def files() -> dict[str, str]:
    """Return both files, by their paths in the checkout."""
    found = list(explanations().values())
    return {"gpuhook/errors/messages.py": table(found), "docs/reference/errors.md": page(found)}


def table(found: list[Explanation]) -> str:
    """Return the module with the texts that programs print."""
    rows = "".join(f"{one.code} {one.kind}\n{one.message}\n{one.hint}\n" for one in found)
    return _TABLE_HEAD + rows.replace("\\", r"\\") + '"""\n'


def page(found: list[Explanation]) -> str:
    """Return the page of all errors."""
    parts = [_PAGE_HEAD, *(_entry_of_contents(one) for one in found), "\n"]
    block = ""
    for one in found:
        if one.block != block:
            block = one.block
            parts.append(f"## {block}\n\n")
        parts.append(_PAGE.sub(r"[docs/\1](../\1)", _entry(one)))
    return "".join(parts).rstrip("\n") + "\n"


def _entry_of_contents(one: Explanation) -> str:
    return f"- [{one.code}](#{one.code.lower()}) {_escaped(with_angle_brackets(one.message))}\n"


def _entry(one: Explanation) -> str:
    hint = with_angle_brackets(one.hint)
    way = "" if re.fullmatch(r"<\w+>", hint) else f"\n\n*{_escaped(hint)}*"
    cure = f"{one.cure}\n\n" if one.cure else ""
    return (
        f"### {one.code}\n\n**{_escaped(with_angle_brackets(one.message))}** ({KINDS[one.kind]})"
        f"{way}\n\n{one.cause}\n\n{cure}```\n{one.example}\n```\n\n"
    )


def _escaped(template: str) -> str:
    return template.replace("<", "&lt;").replace(">", "&gt;").replace("*", "\\*")
