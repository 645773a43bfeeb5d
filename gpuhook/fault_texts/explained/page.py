# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md: every fault on one page, made of the texts that programs print."""

from __future__ import annotations

import re

from gpuhook.fault_texts import explained

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.fault_texts.explained import Explanation

_HEAD = """\
# Errors

Every error of gpuhook's has a code. `gpuhook explain GH1102` prints what is told here; words in
angle brackets stand for the facts of a case. The first two digits say what the error is about.

Exit statuses: a command ends with 0 when it did what was asked, 1 with an error of this page or
when it found something wrong (`doctor`, `cdi validate`, `inspect --exit-code`), 2 when it was
called wrongly. `gpuhook-runtime` and `gpuhook-hook` end with 1, and write code, message and hint
into the log that the engine named and on standard error.

"""
_FACT = re.compile(r"\{(\w+)\}")


def text() -> str:
    """Return the page."""
    found = list(explained.all_of_them())
    parts = [_HEAD, *(_entry_of_contents(one) for one in found), "\n"]
    block = ""
    for one in found:
        if one.block != block:
            block = one.block
            parts.append(f"## {block}\n\n")
        parts.append(_entry(one))
    return "".join(parts).rstrip("\n") + "\n"


def sentence(template: str) -> str:
    """Return a message or hint with <names> where facts stand."""
    return _FACT.sub(r"<\1>", template)


def _entry_of_contents(one: Explanation) -> str:
    return f"- [{one.code}](#{one.code.lower()}) {_escaped(sentence(one.message))}\n"


def _entry(one: Explanation) -> str:
    hint = sentence(one.hint)
    way = "" if re.fullmatch(r"<\w+>", hint) else f"\n\n*{_escaped(hint)}*"
    return (
        f"### {one.code}\n\n**{_escaped(sentence(one.message))}** ({one.kind}){way}\n\n"
        f"{one.cause}\n\n{one.cure}\n\n```\n{one.example}\n```\n\n"
    )


def _escaped(template: str) -> str:
    return template.replace("<", "&lt;").replace(">", "&gt;").replace("*", "\\*")
