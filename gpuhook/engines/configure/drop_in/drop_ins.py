# SPDX-License-Identifier: Apache-2.0
"""Drop-ins of TOML: their names, their text, and the settings that a later file overrides."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from gpuhook.engines.configure import toml_edit, toml_text
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.configure.toml_edit import Setting
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.config_files import ReplacedFiles
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME, ConfigPlace
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration, Runtime

    # The place and the key of a setting that has precedence over gpuhook's, None for none.
    Conflict = Callable[[ConfigFiles], tuple[ConfigPlace, str] | None]

# The second name sorts after names such as 99-nvidia.conf, the first does not.
NAMES = ("99-gpuhook.conf", "zz-gpuhook.conf")
_MARK = b"# gpuhook: `gpuhook configure undo "
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def check_options(engine: str, options: EngineOptions) -> None:
    """Raise GH2041 for a name that no runtime can have, GH2042 for a default without a runtime."""
    if not _NAME.fullmatch(options.name):
        raise fault("GH2041", engine=engine, name=options.name)
    if options.is_default and options.route != "wrapper":
        raise fault("GH2042", engine=engine, route=options.route)


def check_configuration(configuration: EngineConfiguration) -> None:
    """Raise GH2027 for a file that gpuhook does not read, GH2003 if the engine would not start."""
    for trouble in configuration.fatal:
        if trouble.is_unread:
            raise fault("GH2027", where=trouble.where, said=trouble.said)
        engine = configuration.engine
        raise fault("GH2003", where=str(trouble.where), said=trouble.said, engine=engine)


def check_runtime(
    engine: str, runtime: Runtime | None, options: EngineOptions, default_program: str
) -> None:
    """Raise GH2000 if a runtime of another program has the name and must not be replaced."""
    if runtime is None or options.takes_over or runtime.path == options.program:
        return
    if posixpath.basename(runtime.path) != GPUHOOK_RUNTIME:
        raise fault(
            "GH2000",
            where=str(runtime.where),
            name=options.name,
            engine=engine,
            program=runtime.path or default_program,
        )


def paths(node: EngineNode, directory: str) -> tuple[str, ...]:
    """Return the possible paths of the drop-in: the one of the options, or the usual ones."""
    return (node.drop_in,) if node.drop_in else tuple(f"{directory}/{name}" for name in NAMES)


def without_own(files: ConfigFiles, possible: Iterable[str]) -> ReplacedFiles:
    """Return the files without gpuhook's drop-ins."""
    return ReplacedFiles({path: None for path in possible if is_ours(files.read(path))}, files)


def is_ours(content: bytes | None) -> bool:
    """Return whether gpuhook wrote a drop-in."""
    return content is not None and content.startswith(_MARK)


def changes(
    engine: str,
    files: ConfigFiles,
    possible: Sequence[str],
    document: Mapping[str, Any],
    conflict: Conflict,
) -> list[ConfigChange]:
    """Return the changes after which one drop-in has the document.

    It gets the first of the possible paths for which there is no `conflict`. What another program
    wrote into a file of that path is kept. Raises GH2052 if every path has a conflict.
    """
    base = without_own(files, possible)
    overriding = None
    for path in possible:
        old = base.read(path)
        content = text(engine, document) if old is None else _added(path, old, document)
        overriding = conflict(ReplacedFiles({path: content}, base))
        if overriding is None:
            after = {one: None for one in possible if is_ours(files.read(one))} | {path: content}
            rewritten = [ConfigChange(one, files.read(one), new) for one, new in after.items()]
            return [one for one in rewritten if one.before != one.after]
    where, key = overriding or ("", "")
    raise fault("GH2052", where=str(where), key=key)


def runtime_conflict(
    read: Callable[[ConfigFiles], EngineConfiguration],
    options: EngineOptions,
    program: str,
    default_key: tuple[str, ...],
    main: str,
) -> Conflict:
    """Return a check whether another file overrides the runtime or the default runtime.

    `default_key` is the key of the default runtime, `main` the engine's main file.
    """

    def conflict(files: ConfigFiles) -> tuple[ConfigPlace, str] | None:
        configuration = read(files)
        runtime = configuration.runtimes.get(options.name)
        if runtime is not None and runtime.path != program:
            return runtime.where, f"runtimes.{options.name}"
        if options.is_default and configuration.default != options.name:
            place = _last_place(files, configuration.files, default_key) or ConfigPlace(main)
            return place, default_key[-1]
        return None

    return conflict


def _last_place(
    files: ConfigFiles, read_files: Sequence[str], key: tuple[str, ...]
) -> ConfigPlace | None:
    for path in reversed(read_files):
        line = toml_document.line_of(files.read(path) or b"", key)
        if line:
            return ConfigPlace(path, line)
    return None


def _added(path: str, content: bytes, document: Mapping[str, Any]) -> bytes:
    """Return another program's file with the document in it, marked. Raises GH2027."""
    try:
        return toml_edit.edited(content, list(_settings(document)))
    except toml_edit.CannotError as error:
        raise fault("GH2027", where=path, said=str(error)) from error


def _settings(document: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[Setting]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _settings(value, (*above, key))
        else:
            yield Setting((*above, key), value)


def text(engine: str, document: Mapping[str, Any]) -> bytes:
    """Return the content of a new drop-in."""
    import tomlkit

    return _MARK + f"{engine}` removes it\n".encode() + (tomlkit.dumps(document).encode())


def without(
    path: str, content: bytes, keys: Iterable[Sequence[str]], before: bytes | None
) -> bytes | None:
    """Return an edited drop-in without these keys and without the tables that this leaves empty.

    Comments remain, and so do keys that the file had `before`. None if nothing else is left.
    Raises GH2003 for a file that is not TOML.
    """
    own = b"".join(one for one in content.splitlines(keepends=True) if not is_ours(one))
    try:
        toml_document.parsed(content)
        was = toml_document.parsed(before or b"")
        left = toml_text.without_marked_lines(own)
        now = toml_document.parsed(left)
        removed = [tuple(one) for one in keys if _has(now, one) and not _has(was, one)]
        left = toml_edit.without_keys(left, removed) if removed else left
    except toml_document.UnreadableTomlError as error:
        where, reason = f"{path}:{error.line}", f"is not TOML: {error.reason}"
        raise fault("GH2003", where=where, said=reason, engine="the engine") from error
    except toml_edit.CannotError as error:
        raise fault("GH2027", where=path, said=str(error)) from error
    return left if left.strip() else None


def _has(document: Mapping[str, Any], key: Sequence[str]) -> bool:
    return key[-1] in toml_document.table(document, *key[:-1])
