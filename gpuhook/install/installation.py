# SPDX-License-Identifier: Apache-2.0
"""gpuhook on a host: its tree copied, its engine configured; and both taken back."""

from __future__ import annotations

import os
import posixpath
import subprocess
from dataclasses import dataclass
from functools import partial

from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.configure_record import RecordStore, directory
from gpuhook.engines.configure.engine_table import ENGINES
from gpuhook.engines.configure.host_files import Host
from gpuhook.errors import fault
from gpuhook.install import (
    container_directories,
    driver_file,
    launchers,
    leftovers,
    mounted_host,
    tree_copy,
    version_references,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.configure_engine import EngineResult, Where
    from gpuhook.engines.configure.configure_record import ConfigureRecord
    from gpuhook.engines.configure.engine_options import EngineOptions
    from gpuhook.engines.configure.engine_restart import How
    from gpuhook.install.container_directories import ContainerFiles
    from gpuhook.install.runtime_tree import RuntimeTree
    from gpuhook.install.version_references import VersionReferences

DIRECTORY = "/opt/gpuhook"
RUNTIME, HOOK, PRESTART = "gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart"
_PATIENCE = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class InstallPlace:
    """Where gpuhook is on a host: the host's root as seen from here, and the host's directory."""

    root: str
    directory: str = DIRECTORY

    @property
    def here(self) -> str:
        """Return the directory as seen from here."""
        return mounted_host.inside(self.root, self.directory)

    def program(self, name: str) -> str:
        """Return the path on the host by which others call a program."""
        return f"{self.directory}/{tree_copy.PROGRAMS}/{name}"


@dataclass(frozen=True, slots=True)
class InstallOutcome:
    """What was done, or would be; `kept` are versions that containers name, or that may be.

    Each of `unknown` is a reason why containers that cannot be seen could name a version. `removed`
    are other files of gpuhook on the host, and `notes` are sentences about those that remain.
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
        """Whether anything of the host is another than before."""
        is_engine = any(one.writes or one.restarted for one in self.engines)
        return self.is_new or is_engine or bool(self.removed)


def place(root: str, at: str = DIRECTORY) -> InstallPlace:
    """Return the place below a host's root. Raises GH2100 and GH2102 for what is none."""
    mounted_host.require(root)
    launchers.require_usable(at)
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
    """Copy the tree, and configure the engines for it; a host that has all of it stays as it is.

    `driver` is driver_file.text() for the copy. Without a tree nothing is copied: the route cdi
    needs none. A version that no container names and that was not the last one is removed. Raises
    GH2100 to GH2105, OSError, and what configuring raises; the copy then stays, and is found again.
    """
    is_new = tree is not None and not (
        tree_copy.is_there(tree, where.here)
        and driver_file.is_current(tree_copy.version_directory(where.here, tree.name), driver)
    )
    if tree is not None and is_new:
        tree_copy.require_usable(where.here, where.root)
    kept: list[str] = []
    unknown: tuple[str, ...] = ()
    if tree is not None and is_new and not is_dry:
        try:
            kept, unknown = _copied(where, tree, driver)
        except OSError as error:
            raise fault("GH2102", path=where.directory, reason=_said(error)) from error
    done = [
        configure_engine.configure(Host(where.root), one, wanted, how=how, is_dry=is_dry)
        for one in engines
    ]
    others = tuple(name for name in kept if tree is not None and name != tree.name)
    return InstallOutcome(
        tree.name if tree else "", is_new, tuple(done), others, unknown if others else ()
    )


def is_replaced(where: InstallPlace, tree: RuntimeTree | None) -> bool:
    """Return whether another version than `tree` is used by now: the host is another pod's."""
    return tree is not None and tree_copy.used(where.here) not in ("", tree.name)


def _copied(
    where: InstallPlace, tree: RuntimeTree, driver: str
) -> tuple[list[str], tuple[str, ...]]:
    """Copy the tree, try it and use it. `driver` is the content of its driver_file.

    Returns the versions that exist then, and why unused ones were kept where that is unknown.
    """
    here = where.here
    with tree_copy.locked(here):
        before = tree_copy.used(here)
        is_copied = tree_copy.copy(tree, here, where.directory)
        try:
            _require_running(where, tree.name)
            driver_file.write(tree_copy.version_directory(here, tree.name), driver)
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


def _said(error: OSError) -> str:
    path = error.filename2 or error.filename
    return f"{path}: {error.strerror}" if path else str(error)


def uninstall(
    where: InstallPlace, *, how: How = "none", is_dry: bool = False, forced: bool = False
) -> InstallOutcome:
    """Take back what `install` did: the engines' configurations, then the tree, then the rest.

    A version that a container names stays, and so does its directory: its hooks are still to be
    called. So does the one in use while a container runs by our runtime: the engine calls that to
    stop it. With `forced` all goes all the same. Raises what undoing raises.
    """
    files = Host(where.root)
    places = _container_files(where)
    is_there = tree_copy.is_begun(where.here)
    unsaved: tuple[str, ...] = ()
    if is_there and not is_dry:  # the configurations name the directories until they are undone
        try:
            container_directories.keep(files, where.directory, places)
        except OSError as error:
            unsaved = (f"the list of state directories cannot be written: {_said(error)}",)
    done = [
        configure_engine.undo(files, configure_engine.Where(engine), how=how, is_dry=is_dry)
        for engine in ENGINES
        if _record(where, files, engine)
    ]
    used = tree_copy.used(where.here)
    found = version_references.version_references(where.root, where.directory, places)
    needed = frozenset() if forced else _needed(where, found, done)
    left = [name for name in tree_copy.versions(where.here) if name in needed]
    rest = leftovers.Leftovers()
    notes = unsaved
    if not left:  # before the tree: a run that is killed finds the tree again, and so the rest
        rest = leftovers.find(files, where.directory, is_installed=is_there)
        notes = rest.notes if is_dry else (*rest.notes, *leftovers.remove(files, rest.paths))
    if is_there and not is_dry:
        # For an OSError from here on: the tree can be our own.
        import gpuhook.errors.messages  # noqa: F401

        with tree_copy.locked(where.here):
            left = tree_copy.remove(where.here, needed)
            if not left:
                container_directories.forget(files, where.directory)
    unknown = found.unknown if left else ()
    return InstallOutcome(used, is_there, tuple(done), tuple(left), unknown, rest.paths, notes)


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
        return found.versions | {tree_copy.used(where.here)}
    return found.versions


def _record(where: InstallPlace, files: Host, engine: str) -> ConfigureRecord | None:
    """Return how an engine was configured for this place, None for a package's programs."""
    record = RecordStore(files, directory(engine, None)).load()
    return record if record and record.wanted.program == where.program(RUNTIME) else None


def _require_running(where: InstallPlace, version: str) -> None:
    """Run the hook as the host would, in its root; raises GH2105 where it cannot be run.

    Who may not change its root directory cannot try it, and goes on.
    """
    if os.path.samestat(os.stat(where.root), os.stat("/")) or os.geteuid() != 0:
        return
    program = f"{where.directory}/{tree_copy.VERSIONS}/{version}/bin/{HOOK}"
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={},
            timeout=_PATIENCE,
            check=False,
            preexec_fn=partial(_enter, where.root),
        )
    except subprocess.SubprocessError as error:
        if isinstance(error, subprocess.TimeoutExpired):
            raise fault("GH2105", program=program, reason="it does not end") from error
        return  # chroot(2) is refused
    except OSError as error:
        raise fault("GH2105", program=program, reason=error.strerror) from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"it ends with {done.returncode}"
        raise fault("GH2105", program=program, reason=reason)


def _enter(root: str) -> None:
    os.chroot(root)
    os.chdir("/")
