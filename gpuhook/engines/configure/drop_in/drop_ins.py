# SPDX-License-Identifier: Apache-2.0
"""Drop-ins of TOML: their names, their text, and the settings that a later file overrides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gpuhook.engines.configure import plan_checks
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.config_files import ReplacedFiles
from gpuhook.engines.read.engine_config import ConfigPlace
from gpuhook.engines.toml import toml_edit, toml_text
from gpuhook.engines.toml.toml_edit import Setting
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration, Runtime

    # Returns the place and the key of a setting that overrides gpuhook's, None for none.
    Conflict = Callable[[ConfigFiles], tuple[ConfigPlace, str] | None]

# The second name sorts after names such as 99-nvidia.conf, the first does not.
NAMES = ("99-gpuhook.conf", "zz-gpuhook.conf")
_MARK = b"# gpuhook: `gpuhook configure undo "
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def check_options(engine: str, options: EngineOptions) -> None:
    """Raise GH2041 for a name that no runtime can have, GH2042 for a default without a runtime."""
    for name in options.names:
        if not _NAME.fullmatch(name):
            raise fault("GH2041", engine=engine, name=name)
    if options.is_default and options.route != "wrapper":
        raise fault("GH2042", engine=engine, route=options.route)


def check_places(engine: str, node: EngineNode, main: str, drop_ins: str) -> None:
    """Raise GH2053 for a file that the engine does not read.

    It reads the file `main`, and drop-ins that match `drop_ins`, such as "/etc/crio/crio.conf.d/*".
    """
    if node.config and node.config != main:
        raise fault("GH2053", where=node.config, engine=engine, read=main)
    directory, _, ending = drop_ins.rpartition("*")
    name = node.drop_in.removeprefix(directory)
    if node.drop_in and (name == node.drop_in or "/" in name or not name.endswith(ending)):
        raise fault("GH2053", where=node.drop_in, engine=engine, read=drop_ins)


def check_runtimes(
    engine: str, runtimes: Mapping[str, Runtime], options: EngineOptions, default_program: str
) -> None:
    """Raise GH2000 if a runtime of another program has a name and must not be replaced."""
    for name in options.names:
        runtime = runtimes.get(name)
        if runtime and not options.takes_over and not options.is_own(runtime.path):
            raise plan_checks.name_in_use(engine, runtime, default_program)


def paths(node: EngineNode, directory: str) -> tuple[str, ...]:
    """Return the possible paths of the drop-in: the one of the options, or the usual ones."""
    return (node.drop_in,) if node.drop_in else tuple(f"{directory}/{name}" for name in NAMES)


def without_own(files: ConfigFiles, possible: Iterable[str]) -> ReplacedFiles:
    """Return the files without gpuhook's drop-ins."""
    return ReplacedFiles({path: None for path in possible if is_ours(files.read(path))}, files)


def is_ours(content: bytes | None) -> bool:
    """Return whether gpuhook wrote a drop-in."""
    return content is not None and content.startswith(_MARK)


@dataclass(frozen=True, slots=True)
class DropIn:
    """The drop-in of an engine, which reads all its files by `read`.

    It gets the first of the `possible` paths in which another file does not override it. `main` is
    the engine's main file, `default_key` the key of the default runtime.
    """

    engine: str
    files: ConfigFiles
    possible: Sequence[str]
    read: Callable[[ConfigFiles], EngineConfiguration]
    main: str
    default_key: tuple[str, ...]

    def runtime_changes(
        self, options: EngineOptions, program: str, document: Mapping[str, Any]
    ) -> list[ConfigChange]:
        """Return the changes that add the document, none if the engine has the runtime already.

        Raises GH2052 if another file overrides the runtime or the default runtime in every path.
        """

        def conflict(files: ConfigFiles) -> tuple[ConfigPlace, str] | None:
            configuration = self.read(files)
            for name in options.names:
                runtime = configuration.runtimes.get(name)
                if runtime is not None and runtime.path != program:
                    return runtime.where, f"runtimes.{name}"
            if options.is_default and configuration.default != options.name:
                return self._place_of_default(files, configuration.files), self.default_key[-1]
            return None

        before = without_own(self.files, self.possible)
        has_all = self.read(before).runtimes.keys() >= set(options.names)
        return [] if has_all and conflict(before) is None else self.changes(document, conflict)

    def changes(
        self, document: Mapping[str, Any], conflict: Conflict = lambda _: None
    ) -> list[ConfigChange]:
        """Return the changes after which one drop-in has the document, without a `conflict`.

        What another program wrote into a file of that path is kept. Raises GH2052 if every path has
        a conflict.
        """
        files, base = self.files, without_own(self.files, self.possible)
        overriding = None
        for path in self.possible:
            old = base.read(path)
            content = (
                text(self.engine, document)
                if old is None
                else toml_edit.edited(path, old, list(_settings(document)))
            )
            overriding = conflict(ReplacedFiles({path: content}, base))
            if overriding is None:
                own = {one: None for one in self.possible if is_ours(files.read(one))}
                after = own | {path: content}
                rewritten = [ConfigChange(one, files.read(one), new) for one, new in after.items()]
                return [one for one in rewritten if one.before != one.after]
        where, key = overriding or ("", "")
        raise fault("GH2052", where=where, key=key)

    def _place_of_default(self, files: ConfigFiles, read_files: Sequence[str]) -> ConfigPlace:
        for path in reversed(read_files):
            line = toml_document.line_of(files.read(path) or b"", self.default_key)
            if line:
                return ConfigPlace(path, line)
        return ConfigPlace(self.main)


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
        left = toml_edit.without_keys(path, left, removed) if removed else left
    except toml_document.UnreadableTomlError as error:
        raise plan_checks.not_toml("the engine", path, error) from error
    return left if left.strip() else None


def _has(document: Mapping[str, Any], key: Sequence[str]) -> bool:
    return key[-1] in toml_document.table(document, *key[:-1])
