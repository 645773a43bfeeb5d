# SPDX-License-Identifier: Apache-2.0
"""The catalogue of errors: a Markdown file per area, in it a section per code.

`gpuhook explain CODE` and docs/errors.md are made of it. A section has, in this order: the code as
its heading; kind, sentence and hint, each on one line; cause, cure and example. Names in braces in
the sentence and the hint are the facts that `fault()` takes. retired.md lists the codes that are no
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

# Who must act, by the name of the class.
KINDS = {
    "RequestError": "the request is wrong",
    "FileError": "a file is wrong",
    "DriverError": "the driver is missing, incomplete or of another version",
    "RefusedError": "a policy or the safety of the host forbids it",
    "HostError": "this host cannot do it",
}
AREAS = Path(__file__).parent
RETIRED = AREAS.with_name("retired.md")
_FACT = re.compile(r"\{(\w+)\}")
_FENCE = "```\n"
_RETIRED_ROW = re.compile(r"\| (GH\d{4}) \| (GH\d{4}|none) \| (.+) \|")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The section of a code. `example` are lines of a terminal or a file."""

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
    """A code that is no longer used, and the code that replaces it, "" for none."""

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
    """Return what retired.md says of each code."""
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
    code, lines, cause, cure = texts.strip().split("\n\n")
    kind, message, hint = lines.splitlines()
    if rest.strip():
        raise ValueError("text after the example")
    return Explanation(
        code=code,
        block=block,
        kind=_value("kind", kind.strip()),
        message=_value("sentence", message.strip()),
        hint=_value("hint", hint.strip()),
        cause=_value("Cause", " ".join(cause.split())),
        cure=_value("Cure", " ".join(cure.split())),
        example=example.removesuffix("\n"),
    )


def _value(label: str, text: str) -> str:
    """Return what follows a label."""
    found, _, value = text.partition(": ")
    if found != label:
        raise ValueError(f"{label!r} expected before {text!r}")
    return value
