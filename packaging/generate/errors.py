# SPDX-License-Identifier: Apache-2.0
"""gpuhook/errors/messages.py and docs/errors.md, made of gpuhook/errors/catalogue."""

from __future__ import annotations

import re

from gpuhook.errors.catalogue import KINDS, explanations, with_angle_brackets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors.catalogue import Explanation

_TABLE_HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
"""Code and kind, sentence, hint: three lines per code. `make generate` makes it of catalogue/.

HOT, and loaded with the first error only. One string is loaded faster than a dict of 700.
"""

TEXTS = """
'''
_PAGE_HEAD = """\
# Errors

Every error of gpuhook's has a code. `gpuhook explain GH1102` prints what is told here; words in
angle brackets stand for the facts of a case. The first two digits say what the error is about.

Exit statuses: a command ends with 0 when it did what was asked, 1 with an error of this page or
when it found something wrong (`doctor`, `cdi validate`, `inspect --exit-code`), 2 when it was
called wrongly. `gpuhook-runtime` and `gpuhook-hook` end with 1, and write code, message and hint
into the log that the engine named and on standard error.

"""


def files() -> dict[str, str]:
    """Return both files, by their paths in the checkout."""
    found = list(explanations().values())
    return {"gpuhook/errors/messages.py": table(found), "docs/errors.md": page(found)}


def table(found: list[Explanation]) -> str:
    """Return the module that has what programs print."""
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
        parts.append(_entry(one))
    return "".join(parts).rstrip("\n") + "\n"


def _entry_of_contents(one: Explanation) -> str:
    return f"- [{one.code}](#{one.code.lower()}) {_escaped(with_angle_brackets(one.message))}\n"


def _entry(one: Explanation) -> str:
    hint = with_angle_brackets(one.hint)
    way = "" if re.fullmatch(r"<\w+>", hint) else f"\n\n*{_escaped(hint)}*"
    return (
        f"### {one.code}\n\n**{_escaped(with_angle_brackets(one.message))}** ({KINDS[one.kind]})"
        f"{way}\n\n{one.cause}\n\n{one.cure}\n\n```\n{one.example}\n```\n\n"
    )


def _escaped(template: str) -> str:
    return template.replace("<", "&lt;").replace(">", "&gt;").replace("*", "\\*")
