# SPDX-License-Identifier: Apache-2.0
"""The catalogue of errors: a Markdown file per area, with a section per code.

It is the source of `gpuhook explain CODE` and docs/reference/errors.md. A section has, in this
order: the code as its heading; kind, sentence and hint, each on one line; cause, cure and example.
There is no cure if the hint says it all. Names in braces in the sentence and the hint are the
arguments of `fault()`. A page `docs/x.md` becomes a URL. retired.md lists the codes that are no
longer used.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Names of the classes, and the fault in words: they say who must act.
KINDS = {
    "UsageError": "the command line is wrong",
    "RequestError": "the request is wrong",
    "FileError": "a file is wrong",
    "DriverError": "the driver is missing, incomplete or of another version",
    "RefusedError": "a policy or the safety of the host forbids it",
    "HostError": "this host cannot do it",
}
AREAS = Path(__file__).parent
RETIRED = AREAS.with_name("retired.md")
_FACT = re.compile(r"\{(\w+)(?:![rs])?\}")
_FENCE = "```\n"
DOCS = "https://github.com/gpuhook/gpuhook/blob/main/"  # packages have no docs/
_PAGE = re.compile(r"\bdocs/[a-z/-]+\.md\b")
_RETIRED_ROW = re.compile(r"\| (GH\d{4}) \| (GH\d{4}|none) \| (.+) \|")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The section of a code. `example` are lines of a terminal or a file; `cure` may be empty."""

    code: str
    block: str  # the title of its area
    kind: str  # the name of the class
    message: str  # with {names} of facts
    hint: str
    cause: str
    cure: str
    example: str


@dataclass(frozen=True, slots=True)
class RetiredCode:
    """A code that is no longer used, and its replacement ("" for none)."""

    code: str
    replacement: str
    reason: str


@functools.cache
def explanations() -> dict[str, Explanation]:
    """Return the explanation of each code, in the order of the codes."""
    found = [one for path in AREAS.glob("*.md") for one in read(path)]
    return {one.code: one for one in sorted(found, key=lambda one: one.code)}


def read(path: Path) -> Iterator[Explanation]:
    """Yield the explanations of a file; ValueError names the section that is malformed."""
    title, *sections = path.read_text(encoding="utf-8").split("\n## ")
    for section in sections:
        try:
            yield _explanation(title.strip().removeprefix("# "), section)
        except ValueError as error:
            code = section.partition("\n")[0]
            raise ValueError(f"{path.name}: {code}: {error}") from error


def retired_codes() -> dict[str, RetiredCode]:
    """Return the rows of retired.md by their codes."""
    rows = _RETIRED_ROW.findall(RETIRED.read_text(encoding="utf-8"))
    return {
        code: RetiredCode(code, "" if replacement == "none" else replacement, reason)
        for code, replacement, reason in rows
    }


def with_angle_brackets(template: str) -> str:
    """Return a sentence or hint with <names> instead of the {names} of facts."""
    return _FACT.sub(r"<\1>", template)


def _explanation(block: str, section: str) -> Explanation:
    texts, example, rest = section.split(_FENCE)
    code, lines, cause, *cures = texts.strip().split("\n\n")
    kind, message, hint = lines.splitlines()
    if len(cures) > 1:
        raise ValueError("text after the cure")
    if rest.strip():
        raise ValueError("text after the example")
    return Explanation(
        code=code,
        block=block,
        kind=_value("kind", kind.strip()),
        message=_value("sentence", message.strip()),
        hint=_linked(_value("hint", hint.strip())),
        cause=_linked(_value("Cause", " ".join(cause.split()))),
        cure=_linked(_value("Cure", " ".join(cures[0].split()))) if cures else "",
        example=example.removesuffix("\n"),
    )


def _linked(text: str) -> str:
    """Return a text in which each page of the documentation is a URL."""
    return _PAGE.sub(rf"{DOCS}\g<0>", text)


def _value(label: str, text: str) -> str:
    """Return the text after a label; ValueError if the label is another one."""
    found, _, value = text.partition(": ")
    if found != label:
        raise ValueError(f"{label!r} expected before {text!r}")
    return value
