# SPDX-License-Identifier: Apache-2.0
"""Install gpuhook on a host, which copies its tree and configures the engine; and uninstall it."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass

from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.configure_record import RecordStore, directory
from gpuhook.engines.configure.engine_plan import ENGINES
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import NO_CHROOT, HostPrograms, last_words
from gpuhook.errors import fault
from gpuhook.install import (
    container_directories,
    leftovers,
    mounted_host,
    runtime_tree,
    tree_copy,
    version_references,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.configure_engine import EngineResult, Where
    from gpuhook.engines.configure.configure_record import ConfigureRecord
    from gpuhook.engines.configure.engine_plan import EngineOptions
    from gpuhook.engines.configure.engine_restart import How
    from gpuhook.install.container_directories import ContainerFiles
    from gpuhook.install.runtime_tree import RuntimeTree
    from gpuhook.install.version_references import VersionReferences

DIRECTORY = "/opt/gpuhook"
RUNTIME, HOOK, PRESTART = "gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart"


@dataclass(frozen=True, slots=True)
class InstallPlace:
    """The host's root as seen from this process, and the host's directory of gpuhook."""

    root: str
    directory: str = DIRECTORY

    @property
    def here(self) -> str:
        """The directory as seen from this process."""
        return mounted_host.inside(self.root, self.directory)

    def program(self, name: str) -> str:
        """Return the host's path by which other programs call a program of gpuhook."""
        return f"{self.directory}/{tree_copy.PROGRAMS}/{name}"


@dataclass(frozen=True, slots=True)
class InstallOutcome:
    """The result of a run, or of a dry run. `kept` are versions that containers use, or may use.

    `unknown` has the reasons why hidden containers may use a version. `removed` are other files of
    gpuhook on the host, and `notes` are sentences about those that remain.
    """

    version: str
    is_new: bool
    engines: tuple[EngineResult, ...]
    kept: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_changed(self) -> bool:
        """Whether the host changed."""
        is_engine = any(one.writes or one.restarted for one in self.engines)
        return self.is_new or is_engine or bool(self.removed)


def place(root: str, at: str = DIRECTORY) -> InstallPlace:
    """Return the place below a host's root. Raises GH2100 and GH2102."""
    mounted_host.require_host(root)
    runtime_tree.require_launcher_path(at)
    return InstallPlace(root, posixpath.normpath(at))


def install(
    where: InstallPlace,
    tree: RuntimeTree | None,
    engines: tuple[Where, ...],
    wanted: EngineOptions,
    *,
    driver: str = "",
    how: How = "none",
    is_dry: bool = False,
) -> InstallOutcome:
    """Copy the tree, and configure the engines for it; an up-to-date host is not changed.

    `driver` is the content of the copy's driver file. Without a tree nothing is copied: the route
    cdi needs none. Versions that no container uses are removed, except the previous one. Raises
    GH2100 to GH2105, OSError, and the faults of `configure`; the copy then remains for the next
    run.
    """
    is_new = tree is not None and not (
        tree_copy.is_current(tree, where.here)
        and runtime_tree.has_driver_file(tree_copy.version_directory(where.here, tree.name), driver)
    )
    if tree is not None and is_new:
        tree_copy.require_usable(where.here, where.root)
    kept: list[str] = []
    unknown: tuple[str, ...] = ()
    if tree is not None and is_new and not is_dry:
        try:
            kept, unknown = _copied(where, tree, driver)
        except OSError as error:
            raise fault("GH2102", path=where.directory, reason=_reason(error)) from error
    done = [
        configure_engine.configure(Host(where.root), one, wanted, how=how, is_dry=is_dry)
        for one in engines
    ]
    others = tuple(name for name in kept if tree is not None and name != tree.name)
    return InstallOutcome(
        tree.name if tree else "", is_new, tuple(done), others, unknown if others else ()
    )


def is_replaced(where: InstallPlace, tree: RuntimeTree | None) -> bool:
    """Return whether the host now uses a version other than `tree`, which another pod installed."""
    return tree is not None and tree_copy.current_version(where.here) not in ("", tree.name)


def _copied(
    where: InstallPlace, tree: RuntimeTree, driver: str
) -> tuple[list[str], tuple[str, ...]]:
    """Copy the tree, test it and switch to it. `driver` is the content of its driver file.

    Returns the versions that exist then, and the reasons for those kept without a known user.
    """
    here = where.here
    with tree_copy.locked(here):
        before = tree_copy.current_version(here)
        is_copied = tree_copy.copy(tree, here, where.directory)
        try:
            _require_running(where, tree.name)
            runtime_tree.write_driver_file(tree_copy.version_directory(here, tree.name), driver)
        except BaseException:
            if is_copied:
                tree_copy.prune(here, frozenset(tree_copy.versions(here)) - {tree.name})
            raise
        tree_copy.use(tree.name, here)
        found = version_references.version_references(
            where.root, where.directory, _container_files(where)
        )
        others = found.versions if found.is_whole else tree_copy.versions(here)
        return tree_copy.prune(here, frozenset({*others, tree.name, before})), found.unknown


def _reason(error: OSError) -> str:
    path = error.filename2 or error.filename
    return f"{path}: {error.strerror}" if path else str(error)


def uninstall(
    where: InstallPlace, *, how: How = "none", is_dry: bool = False, forced: bool = False
) -> InstallOutcome:
    """Undo `install`: the engines' configurations, the other files of gpuhook, then the tree.

    A version that a container names is kept: its hooks are still called. So is the current version
    while a container runs with gpuhook's runtime: the engine calls the runtime to stop it. `forced`
    removes all versions. Raises the faults of `undo`.
    """
    files = Host(where.root)
    places = _container_files(where)
    is_there = tree_copy.exists(where.here)
    # Before undo, which removes the directories' names from the configurations.
    notes = _save_directories(where, files, places) if is_there and not is_dry else ()
    done = list(_undo_engines(where, files, how, is_dry=is_dry))
    used = tree_copy.current_version(where.here)
    found = version_references.version_references(where.root, where.directory, places)
    needed = frozenset() if forced else _needed(where, found, done)
    left = [name for name in tree_copy.versions(where.here) if name in needed]
    rest = leftovers.Leftovers()
    # Before the tree: after a kill, the next run finds the tree, and therefore these files.
    if not left:
        rest = leftovers.find(files, where.directory, is_installed=is_there)
        notes = rest.notes if is_dry else (*rest.notes, *leftovers.remove(files, rest.paths))
    if is_there and not is_dry:
        # For an OSError from here on: this program may run from the tree.
        import gpuhook.errors.kinds
        import gpuhook.errors.messages  # noqa: F401

        with tree_copy.locked(where.here):
            left = tree_copy.remove(where.here, needed)
            if not left:
                container_directories.forget(files, where.directory)
    unknown = found.unknown if left else ()
    return InstallOutcome(used, is_there, tuple(done), tuple(left), unknown, rest.paths, notes)


def _undo_engines(
    where: InstallPlace, files: Host, how: How, *, is_dry: bool
) -> Iterator[EngineResult]:
    """Undo the engines' configurations, and remove what a killed run left of their records."""
    for engine in ENGINES:
        if _record(where, files, engine):
            yield configure_engine.undo(
                files, configure_engine.Where(engine), how=how, is_dry=is_dry
            )
        elif not is_dry:
            RecordStore(files, directory(engine, None)).remove_remainder()


def _save_directories(where: InstallPlace, files: Host, places: ContainerFiles) -> tuple[str, ...]:
    """Save the list of state directories; returns a note if that fails."""
    try:
        container_directories.save(files, where.directory, places)
    except OSError as error:
        return (f"the list of state directories cannot be written: {_reason(error)}",)
    return ()


def _container_files(where: InstallPlace) -> ContainerFiles:
    files = Host(where.root)
    records = [record for engine in ENGINES if (record := _record(where, files, engine))]
    configured = {record.engine: record.config for record in records}
    made = frozenset(one.path for record in records for one in record.files if not one.digest)
    return container_directories.locate(files, configured, where.directory, made)


def _needed(
    where: InstallPlace, found: VersionReferences, undone: list[EngineResult]
) -> frozenset[str]:
    """Return the versions that containers of the host still need."""
    if not found.is_whole:
        return frozenset(tree_copy.versions(where.here))
    running = any(one.is_running for result in undone for one in result.stored)
    if found.has_programs or running:
        return found.versions | {tree_copy.current_version(where.here)}
    return found.versions


def _record(where: InstallPlace, files: Host, engine: str) -> ConfigureRecord | None:
    """Return the record of an engine, None if it is configured for another place."""
    record = RecordStore(files, directory(engine, None)).load()
    return record if record and record.wanted.program == where.program(RUNTIME) else None


def _require_running(where: InstallPlace, version: str) -> None:
    """Run the hook in the host's root. Raises GH2105 if it does not run.

    Without the permission for chroot(2), the hook is not tested.
    """
    program = f"{where.directory}/{tree_copy.VERSIONS}/{version}/bin/{HOOK}"
    programs = HostPrograms(Host(where.root), {HOOK: program})
    if not programs.is_elsewhere or os.geteuid() != 0:
        return
    ran = programs.run((HOOK, "--version"))
    if ran is None:
        raise fault("GH2105", program=program, reason="it is not an executable file")
    is_tested = ran.is_started or ran.status != NO_CHROOT
    if is_tested and ran.status:
        raise fault("GH2105", program=program, reason=last_words(ran))
