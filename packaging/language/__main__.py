# SPDX-License-Identifier: Apache-2.0
"""Find words that plain technical English does without.

    PYTHONPATH=packaging python -m language [--warnings] [PATH ...]

Reads docstrings, comments and strings of Python files (of tests other than the demo: docstrings
and comments), the prose of Markdown files, titles and descriptions of JSON files, and scripts,
manifests and units. The exit status is 1 if it finds an error. With --warnings, it also lists
words that have correct uses; they do not change the status.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).parents[2]
EXCEPTIONS = Path(__file__).parent / "exceptions.txt"
READ = {
    ".json", ".md", ".path", ".py", ".service", ".sh", ".timer", ".toml", ".tpl", ".txt", ".yaml",
    ".yml",
}  # fmt: skip
# This package names the words.
UNREAD = ("packaging/language/", "gpuhook/errors/messages.py", "tests/record/expected/")
# The texts of JSON files.
JSON_TEXT = re.compile(r'"(?:title|description)": ("[^"]*")')

# Regular expressions of whole phrases, and what to write.
ERRORS = {
    r"anew": "again, new",
    r"mend(s|ed|ing)?": "fix",
    r"whoever": "the caller, the process",
    r"somebody(?:'s)?": "a user, a process",
    r"nobody(?:'s)?": "no one, no process",
    r"of (its|their) own(?! (?!and|as|at|by|for|from|in|is|on|or|that|to|with)[a-z])": "its own X",
    r"of ours": "gpuhook's X, or the thing's name",
    r"held for": "marked",
    r"told": "reported, printed, given",
    r"(stands?|stood) in": "is in",
    r"(lies|lie|lay) in": "is in",
    r"(look|see|decide|say)s? for (themselves|itself)": "name who does what",
    r"another \w+ than": "an X other than",
    r"(is|are|was|were) of another": "belongs to another, is from another",
    r"ended by (a )?signal": "killed by a signal",
    r"met an error": "had an error",
    r"one \w+ less": "one X fewer",
    r"comma list": "comma-separated",
}
WARNINGS = {
    r"where": "if (condition)",
    r"beside": "in addition to",
    r"counts?": "applies",
    r"tells?": "prints, reports",
    r"(asks?|asked|asking) for": "requests",
    r"(is|are|was|were|be|been) given": "is assigned, gets",
    r"stays?": "remains",
    r"(is|are) there": "exists",
    r"what is none": "what is not one",
    r"is none": "is not one",
    r"rooms?": "folder",
    r"doors?": "integration",
}


def main() -> None:
    """Print each finding as PATH:LINE: phrase (what to write)."""
    parser = argparse.ArgumentParser(prog="language", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--warnings", action="store_true", help="list words with correct uses, too")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: all)")
    options = parser.parse_args()
    excepted = exceptions(EXCEPTIONS.read_text(encoding="utf-8"))
    found = False
    for path in sources(options.paths):
        for number, phrase, better in findings(path, ERRORS):
            if (path, phrase.lower()) not in excepted:
                found = True
                print(f"{path}:{number}: {phrase!r} (write: {better})")
        for number, phrase, better in findings(path, WARNINGS) if options.warnings else ():
            print(f"{path}:{number}: warning: {phrase!r} (perhaps: {better})")
    sys.exit(found)


def exceptions(text: str) -> set[tuple[str, str]]:
    """Return the pairs of path and phrase that lines "PATH: PHRASE" allow."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {(path, phrase) for path, _, phrase in (line.partition(": ") for line in lines)}


def sources(paths: list[Path]) -> list[str]:
    """Return the tracked files with prose, as paths in the checkout."""
    command = ["git", "ls-files", "--", *(str(path.absolute()) for path in paths)]
    tracked = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    return [
        path
        for path in tracked.stdout.splitlines()
        if Path(path).suffix in READ and not path.startswith(UNREAD) and "_pb2" not in path
    ]


def findings(path: str, phrases: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the phrase as it is written, and what to write instead."""
    text = (CHECKOUT / path).read_text(encoding="utf-8")
    for number, line in prose(path, text):
        for phrase, better in phrases.items():
            for match in re.finditer(rf"(?<![\w-]){phrase}(?![\w-])", line, re.IGNORECASE):
                yield number, match[0], better


def prose(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that people read, without code in back quotes, numbered from 1."""
    lines = _python(path, text) if path.endswith(".py") else _lines(path, text)
    for number, line in lines:
        yield number, re.sub(r"`+[^`]*`+", "``", line)


def _lines(path: str, text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        fence = path.endswith(".md") and line.lstrip().startswith("```")
        fenced ^= fence
        if not fence and not fenced:
            yield number, line if not path.endswith(".json") else " ".join(JSON_TEXT.findall(line))


def _python(path: str, text: str) -> Iterator[tuple[int, str]]:
    kinds = {tokenize.COMMENT, tokenize.STRING}
    kinds |= {getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.string.startswith(('"""', 'r"""'))
        data = (
            path.startswith("tests/")
            and "/demo/" not in path
            and token.type != tokenize.COMMENT
            and not docstring
        )
        if token.type in kinds and not data:
            for offset, line in enumerate(token.string.split("\n")):
                yield token.start[0] + offset, line


if __name__ == "__main__":
    main()
