# SPDX-License-Identifier: Apache-2.0
"""/etc/gpuhook/files.d/*.yaml: files that a site adds to the driver's, and files that it drops.

`add` is a list of files, `drop` a list of globs; schemas/files.json describes the keys. All files
of the directory apply together, in the order of their names. Broken ones are faults: a container
with a file that was to be dropped would be worse than no container.
"""

from __future__ import annotations

import json
import os
import posixpath
from dataclasses import dataclass
from typing import Any

from gpuhook.errors import fault
from gpuhook.host import bounded_yaml
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    import yaml

    Path = tuple[str | int, ...]

DIRECTORY = "/etc/gpuhook/files.d"
_SCHEMA = os.path.join(os.path.dirname(__file__), "../../../schemas/files.json")
_FORBIDDEN = ("/dev", "/proc", "/sys")
_MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Added:
    """A file to add. `kind` "" means by its content, no `capabilities` mean those of its name."""

    path: str  # below the driver root
    container_path: str  # "": the same path
    kind: str
    capabilities: tuple[str, ...]
    where: str  # "/etc/gpuhook/files.d/site.yaml, line 3"


@dataclass(frozen=True, slots=True)
class Rules:
    """The files that a site adds, and the globs of those that it drops."""

    add: tuple[Added, ...] = ()
    drop: tuple[str, ...] = ()


def read(directory: str = DIRECTORY) -> Rules:
    """Return the rules in `directory`, none if it does not exist.

    Raises GH1243 (not YAML), GH1244 (not valid by the schema), GH1245 (a forbidden path), GH1310
    (not a file) and OSError.
    """
    read = list(map(_read, rule_files(directory)))
    add = [one for rules in read for one in rules.add]
    drop = [one for rules in read for one in rules.drop]
    return Rules(tuple(add), tuple(drop))


def rule_files(directory: str) -> list[str]:
    """Return the paths of the files with rules, in order; raises OSError."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    return [os.path.join(directory, name) for name in names if name.endswith((".yaml", ".yml"))]


def _read(file: str) -> Rules:
    document, lines = _loaded(file)
    if document is None:
        return Rules()  # comments alone
    _check(document, file, lines)
    add = []
    for number, entry in enumerate(document.get("add", ())):
        line = lines.get(("add", number), 1)
        _require_place(file, line, entry.get("containerPath") or entry["path"])
        add.append(
            Added(
                path=posixpath.normpath(entry["path"]),
                container_path=entry.get("containerPath", ""),
                kind=entry.get("kind", ""),
                capabilities=tuple(sorted(set(entry.get("capabilities", ())))),
                where=f"{file}, line {line}",
            )
        )
    return Rules(tuple(add), tuple(document.get("drop", ())))


def _loaded(file: str) -> tuple[Any, dict[Path, int]]:
    """Return the document in a file, and the line of each key and entry; raises GH1243."""
    import yaml

    content = files.read(file)
    if len(content) > _MAX_SIZE:
        raise fault("GH1243", file=file, line=1, column=1, reason="it is larger than 1 MiB")
    try:
        document, tree = bounded_yaml.read(content)
    except (yaml.YAMLError, ValueError) as error:
        line, column, reason = bounded_yaml.place_and_reason(error)
        at = {"line": line or 1, "column": column or 1}
        raise fault("GH1243", file=file, reason=reason, **at) from error
    lines: dict[Path, int] = {}
    if tree is not None and document is not None:
        _take(tree, (), lines, depth=0)
    return document, lines


def _take(node: yaml.Node, path: Path, lines: dict[Path, int], depth: int) -> None:
    """Record the lines of a node and of its children, to the depth of a valid file."""
    import yaml

    lines[path] = node.start_mark.line + 1
    if depth > 3:
        return
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            _take(child, (*path, str(key.value)), lines, depth + 1)
            lines[(*path, str(key.value))] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            _take(child, (*path, number), lines, depth + 1)


def _check(document: object, file: str, lines: dict[Path, int]) -> None:
    import jsonschema

    with open(_SCHEMA, encoding="utf-8") as stream:
        validator = jsonschema.Draft202012Validator(json.load(stream))
    errors = sorted(validator.iter_errors(document), key=lambda error: list(map(str, error.path)))
    if not errors:
        return
    path = tuple(errors[0].absolute_path)
    while path and path not in lines:
        path = path[:-1]
    place = ".".join(map(str, errors[0].absolute_path)) or "the file"
    reason = errors[0].message[:200]
    raise fault("GH1244", file=file, line=lines.get(path, 1), where=place, reason=reason)


def _require_place(file: str, line: int, path: str) -> None:
    """Raise GH1245 for a path of the kernel's file systems in the container, or one with ".."."""
    whole = posixpath.normpath(path)
    is_kernels = any(whole == top or whole.startswith(top + "/") for top in _FORBIDDEN)
    if is_kernels or ".." in path.split("/"):
        raise fault("GH1245", file=file, line=line, path=path)
