# SPDX-License-Identifier: Apache-2.0
"""The errors of a settings file, in sentences with the line and the key.

Cold: the wrapper reads the result in the compiled form.
"""

from __future__ import annotations

import json
import os
from typing import Any

import yaml

from gpuhook.device_plugin.config.grammar.value_kinds import shown
from gpuhook.errors import GpuhookError, fault, printable
from gpuhook.host import bounded_yaml
from gpuhook.host.hot import files, settings
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import jsonschema

    Path = tuple[str | int, ...]

_TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "object": "a section with keys",
    "string": "text",
}
# By the schema's pattern.
_PATTERNS = {
    "^/": "an absolute path",
    "^(/|$)": "an absolute path",
    "^[A-Za-z_][A-Za-z0-9_.-]*$": "the name of a variable",
}
_PATTERN = "VENDOR/CLASS, such as nvidia.com/gpu"
GENERATE = "generate"  # the section of generate-cdi's options
SECTIONS = frozenset((*(section for section, _ in settings.KEYS), GENERATE))
_MERGE = "tag:yaml.org,2002:merge"
_MAX_NAME = 80


def of_node() -> settings.Settings:
    """Return the settings of this node; GH1530 and GH1533 if they are broken.

    If the wrapper's compiled form is up to date, the file has been checked.
    """
    return settings.overridden(settings.from_document(document_of_node()))


def document_of_node() -> dict[str, object]:
    """Return the document of this node's settings file, {} without one; GH1530 if it is broken."""
    path = settings.path()
    if not os.path.exists(path):
        return {}
    document = settings.compiled(path, os.stat(path))
    if document is not None and "error" not in document:
        return document
    reason = problem(path)
    if reason:
        raise fault("GH1530", path=path, reason=reason)
    return load(path)


def load(file: str) -> dict[str, object]:
    """Return the document of a settings file; raises yaml.YAMLError or OSError.

    An empty section is valid: users may comment out all of its keys.
    """
    return _with_sections(_read(file)[0])


def _read(file: str) -> tuple[Any, yaml.Node | None]:
    try:
        content = files.read(file, bounded_yaml.LARGEST)
    except GpuhookError as error:
        reason = f"it is not a regular file of at most {bounded_yaml.LARGEST >> 10} KiB"
        raise yaml.YAMLError(reason) from error
    return bounded_yaml.read(content)


def _with_sections(read: Any) -> dict[str, object]:
    document: Any = {} if read is None else read
    if not isinstance(document, dict):
        return document  # type: ignore[no-any-return]  # problem() reports it
    return {
        key: {} if value is None and key in SECTIONS else value for key, value in document.items()
    }


def problem(file: str) -> str:
    """Return what makes a settings file unusable, "" if nothing does.

    Unknown keys do not: after a downgrade the node must continue (`unknown_keys` names them).
    """
    try:
        value, root = _read(file)
        document, tree = _with_sections(value), _Tree(root)
    except yaml.YAMLError as error:
        line, column, reason = bounded_yaml.place_and_reason(error)
        return f"line {line}, column {column}: {reason}" if line else reason
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeDecodeError as error:
        return str(error)
    wrong = [error for error in _errors(document) if not _is_unknown_key(error)]
    return "; ".join([*tree.twice, *(_sentence(error, tree) for error in wrong)])


def unknown_keys(file: str) -> str:
    """Return the keys of a usable settings file that no release knows, "" without any."""
    value, root = _read(file)
    tree = _Tree(root)
    errors = (error for error in _errors(_with_sections(value)) if _is_unknown_key(error))
    return "; ".join(_unknown(error, tree) for error in errors)


def lines(file: str) -> dict[tuple[str, str], int]:
    """Return (section, key) -> line of a usable settings file."""
    found = _Tree(_read(file)[1]).lines
    return {(str(path[0]), str(path[1])): line for path, line in found.items() if len(path) == 2}


def shipped() -> str:
    """Return the text of the settings file that ships: every key, commented out."""
    from importlib import resources

    return resources.files("gpuhook.schemas").joinpath("config.yaml").read_text("utf-8")


def schema() -> dict[str, Any]:
    """Return the schema of the settings."""
    from importlib import resources

    text = resources.files("gpuhook.schemas").joinpath("config.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def faults_of(document: object) -> list[tuple[tuple[str | int, ...], str]]:
    """Return place and sentence of all errors of a document, unknown keys included."""
    found = []
    for error in _errors(document):
        sentence = "there is no such key" if _is_unknown_key(error) else _why(error)
        found.append((tuple(error.absolute_path), sentence))
    return found


class _Tree:
    """The lines of a file's keys and entries, and the keys that occur twice."""

    def __init__(self, root: yaml.Node | None) -> None:
        self.lines: dict[Path, int] = {}
        self.twice: list[str] = []
        if root is not None:
            self._take(root, ())

    def at(self, path: Path) -> str:
        """Return the place of a path in words: "line 3: limits.onFailure"."""
        line = self.lines.get(path)
        name = ".".join(printable(str(step), _MAX_NAME) for step in path)
        return (f"line {line}: " if line else "") + (name or "the file")

    def _take(self, node: yaml.Node, path: Path) -> None:
        self.lines.setdefault(path, node.start_mark.line + 1)
        for step, line, child in _children(node):
            place = (*path, step)
            if place in self.lines:
                first = self.lines[place]
                self.lines[place] = line
                self.twice.append(f"{self.at(place)}: it occurs twice, first in line {first}")
            else:
                self.lines[place] = line
                self._take(child, place)


def _children(node: yaml.Node) -> Iterator[tuple[str | int, int, yaml.Node]]:
    """Return key or index, line and node of each child of a node."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            # Merged keys may be overridden, so they can occur twice by design.
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                yield key.value, key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield index, value.start_mark.line + 1, value


def _errors(document: object) -> list[jsonschema.ValidationError]:
    # Together a tenth of a second; a checked file is not checked again.
    import jsonschema

    validator = jsonschema.Draft202012Validator(schema())
    return sorted(validator.iter_errors(document), key=lambda error: list(error.absolute_path))


def _is_unknown_key(error: jsonschema.ValidationError) -> bool:
    return error.validator == "additionalProperties"


def _unknown(error: jsonschema.ValidationError, tree: _Tree) -> str:
    """Return for each unknown key of a section the similar one, or the known ones."""
    schema: Any = error.schema
    found: Any = error.instance
    known = list(schema["properties"])
    path = tuple(error.absolute_path)
    sentences = []
    for key in found:
        if key in known:
            continue
        near = nearest(str(key), known)
        hint = f"did you mean {near}?" if near else f"known here are {', '.join(known)}"
        sentences.append(f"{tree.at((*path, key))}: there is no such key; {hint}")
    return "; ".join(sentences)


def _sentence(error: jsonschema.ValidationError, tree: _Tree) -> str:
    return f"{tree.at(tuple(error.absolute_path))}: {_why(error)}"


def _why(error: jsonschema.ValidationError) -> str:
    """Return what a value must be and what it is."""
    wanted: Any = error.validator_value
    found: Any = error.instance
    kind = error.validator
    if kind == "enum":
        near = nearest(found, wanted) if isinstance(found, str) else None
        meant = f"; did you mean {near}?" if near else ""
        return f"it must be {_either(wanted)}, but is {shown(found)}{meant}"
    if kind == "type":
        return f"it must be {_TYPES[str(wanted)]}, but is {shown(found)}"
    if kind == "pattern":
        return f"it must be {_PATTERNS.get(str(wanted), _PATTERN)}, but is {shown(found)}"
    if kind == "uniqueItems":
        return f"it names {_repeated(found)} twice"
    return "it must not be empty"  # minItems, minLength


def _either(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _repeated(entries: list[Any]) -> str:
    return next(shown(entry) for i, entry in enumerate(entries) if entry in entries[:i])
