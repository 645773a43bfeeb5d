# SPDX-License-Identifier: Apache-2.0
"""Drop-ins of TOML: written whole, placed where no later file speaks against them, taken back."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from contextlib import suppress

from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.configure.overlay_files import Replaced
from gpuhook.engines.configure.toml import toml_edit, toml_lines, toml_marks
from gpuhook.engines.configure.toml.toml_lines import Setting
from gpuhook.engines.read import toml_document
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from gpuhook.engines.configure.engine_options import EngineNode, EngineOptions
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import ConfigPlace, EngineConfiguration

# The second comes after names such as 99-nvidia.conf, which the first does not.
NAMES = ("99-gpuhook.conf", "zz-gpuhook.conf")
_MARK = b"# gpuhook: `gpuhook configure undo "
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def check(engine: str, wanted: EngineOptions) -> None:
    """Raise a fault of what no engine can have."""
    if not _NAME.fullmatch(wanted.name):
        raise fault("GH2041", engine=engine, name=wanted.name)
    if wanted.is_default and wanted.route != "wrapper":
        raise fault("GH2042", engine=engine, route=wanted.route)


def check_read(configuration: EngineConfiguration) -> None:
    """Raise a fault where the engine would not start with the files that are there."""
    for trouble in configuration.fatal:
        if trouble.is_unread:
            raise fault("GH2027", where=trouble.where, said=trouble.said)
        engine = configuration.engine
        raise fault("GH2003", where=str(trouble.where), said=trouble.said, engine=engine)


def paths(node: EngineNode, directory: str) -> tuple[str, ...]:
    """Return the names that our drop-in may have, the one that was chosen or ours in order."""
    return (node.drop_in,) if node.drop_in else tuple(f"{directory}/{name}" for name in NAMES)


def less_ours(files: ConfigFiles, ours: Iterable[str]) -> Replaced:
    """Return the files as they are without our drop-ins."""
    return Replaced(files, {path: None for path in ours if is_ours(files.read(path))})


def is_ours(content: bytes | None) -> bool:
    """Return whether a drop-in is one that we wrote."""
    return content is not None and content.startswith(_MARK)


def placed(
    engine: str,
    files: ConfigFiles,
    possible: Sequence[str],
    document: Mapping[str, Any],
    against: Callable[[ConfigFiles], tuple[ConfigPlace, str] | None],
) -> list[ConfigChange]:
    """Return the changes after which a drop-in is there, and none of ours beside it.

    Of the possible paths it is the first against which no later file speaks; `against` tells the
    place of one that does, and its key. What others have in a file of that path stays in it.
    Raises a fault where there is none.
    """
    base = less_ours(files, possible)
    spoken = None
    for path in possible:
        there = base.read(path)
        content = text(engine, document) if there is None else _added(path, there, document)
        spoken = against(Replaced(base, {path: content}))
        if spoken is None:
            after = {one: None for one in possible if is_ours(files.read(one))} | {path: content}
            changes = [ConfigChange(one, files.read(one), new) for one, new in after.items()]
            return [one for one in changes if one.before != one.after]
    where, key = spoken or ("", "")
    raise fault("GH2052", where=str(where), key=key)


def _added(path: str, there: bytes, document: Mapping[str, Any]) -> bytes:
    """Return a file of others with ours in it, marked; raises GH2027."""
    try:
        return toml_edit.edited(there, list(_settings(document)))
    except toml_edit.CannotError as error:
        raise fault("GH2027", where=path, said=str(error)) from error


def _settings(document: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[Setting]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _settings(value, (*above, key))
        else:
            yield Setting((*above, key), value)


def text(engine: str, document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a drop-in."""
    import tomlkit

    return _MARK + f"{engine}` removes it\n".encode() + (tomlkit.dumps(document).encode())


def without(
    path: str, content: bytes, keys: Iterable[Sequence[str]], before: bytes | None
) -> bytes | None:
    """Return a drop-in less these keys and the tables that they leave empty; None: nothing left.

    Comments stay with what is left, and keys that were there before. Raises a fault of one that
    is no TOML.
    """
    own = b"".join(one for one in content.splitlines(keepends=True) if not is_ours(one))
    try:
        toml_document.parsed(content)
        was = toml_document.parsed(before or b"")
        left = toml_marks.without(own)
        now = toml_document.parsed(left)
        gone = [one for one in keys if _has(now, one) and not _has(was, one)]
        left = _less(left, gone) if gone else left
    except toml_document.UnreadableTomlError as error:
        where = f"{path}:{error.line}"
        raise fault(
            "GH2003", where=where, said=f"is no TOML: {error.reason}", engine="the engine"
        ) from (error)
    return left if left.strip() else None


def _has(document: Mapping[str, Any], key: Sequence[str]) -> bool:
    return key[-1] in toml_document.table(document, *key[:-1])


def _less(content: bytes, keys: Sequence[Sequence[str]]) -> bytes:
    """Return a file less these keys: by its lines, which keeps all comments, or by tomlkit."""
    wanted = toml_document.parsed(content)
    for key in keys:
        _remove(wanted, key)
    left = toml_lines.less(content, [tuple(key) for key in keys])
    with suppress(toml_document.UnreadableTomlError):
        if toml_document.parsed(left) == wanted:
            return left
    import tomlkit

    document = tomlkit.parse(content.decode("utf-8"))
    for key in keys:
        _remove(document, key)
    return tomlkit.dumps(document).encode()


def _remove(table: Any, key: Sequence[str]) -> None:
    name, *inner = key
    if not isinstance(table, MutableMapping) or name not in table:
        return
    if inner:
        _remove(table[name], inner)
        if len(table[name]):
            return
    del table[name]
