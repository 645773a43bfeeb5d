# SPDX-License-Identifier: Apache-2.0
"""The plan of `gpuhook refresh` for specs of device nodes alone.

Such a spec has its options in it, and describing the node is cheap: it is stale if it would differ
now.
"""

from __future__ import annotations

import os

from gpuhook.cdi import spec_file, spec_notes
from gpuhook.cdi.hot import registry
from gpuhook.cdi.hot.spec_versions import VERSIONS
from gpuhook.cli.generate import generate_call, refresh_plan
from gpuhook.cli.generate.refresh_plan import FOREIGN, FRESH, KEPT, NO_SPEC, STALE, UNCHANGED, Case
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.engines.read import podman_config
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.spec_choices import DEFAULT_VERSION, SPEC_VERSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interfaces.vendor_interface import Vendor

_CHANGED = "its devices have changed"
_VERSION = "--cdi-version"


def device_cases(settings: Settings, root: click.Context, *, is_forced: bool) -> list[Case]:
    """Return a case for each spec, and of the first spec of a vendor whose GPUs have none."""
    known = registry.load(settings.spec_dirs, generate_call.compile_spec).all()
    return [
        case
        for vendor in vendors()
        if vendor.spec_maker() is not None
        for case in _cases(vendor, known, settings, root, is_forced=is_forced)
    ]


def _cases(
    vendor: Vendor,
    known: list[Compiled],
    settings: Settings,
    root: click.Context,
    *,
    is_forced: bool,
) -> list[Case]:
    absent = vendor.absence(state.host_root())
    mine = {
        os.path.realpath(spec.path): spec.path
        for spec in known
        if spec.kind == f"{vendor.domain}/gpu"
    }
    found = [_case(vendor, path, absent, root, is_forced=is_forced) for path in mine.values()]
    if not found and not absent and settings.spec_dirs:
        path = os.path.join(settings.spec_dirs[-1], f"{vendor.name}.yaml")
        older, _ = _older_version()
        words = _words(vendor, [*older, "--output-file", path])
        found = [Case(path, STALE, NO_SPEC, words, is_new=True)]
    return found


def _words(vendor: Vendor, options: list[str]) -> tuple[str, ...]:
    return ("--vendor", vendor.name, *options)


def _case(vendor: Vendor, path: str, absent: str, root: click.Context, *, is_forced: bool) -> Case:
    options = _options(path)
    if options is None:
        return Case(path, UNCHANGED, FOREIGN)
    older, why = ([], "") if _VERSION in options else _older_version()
    words = _words(vendor, [*options, *older, "--output-file", path])
    reason = "--force" if is_forced else _change(path, words, root, why or _CHANGED)
    if absent:
        more = f" ({reason})" if reason else ""
        return Case(path, KEPT, f"{absent}{more}; no container gets a GPU from it", words)
    return Case(path, STALE, reason, words) if reason else Case(path, UNCHANGED, FRESH, words)


def _older_version() -> tuple[list[str], str]:
    """Return the option for podman if it reads only specs of older versions of CDI, and why."""
    version = HostPrograms(Host(state.host_root())).version("podman")
    if version is None or not podman_config.has_cdi(version):
        return [], ""
    read = podman_config.newest_cdi(version)
    if VERSIONS.index(read) >= VERSIONS.index(DEFAULT_VERSION):
        return [], ""
    oldest = max(read, SPEC_VERSIONS[0], key=VERSIONS.index)
    why = f"podman {'.'.join(map(str, version))} reads CDI {read} at most"
    return [_VERSION, oldest], why


def _options(path: str) -> list[str] | None:
    try:
        return spec_notes.options(spec_file.read(path))
    except GpuhookError:
        return None  # it was removed, or replaced by a broken file


def _change(path: str, words: tuple[str, ...], root: click.Context, changed: str) -> str:
    """Return why a spec is not the one that these options make now (`changed`), "" if it is."""
    fmt = os.path.splitext(path)[1][1:]
    try:
        now = generate_call.text(words, fmt, root)
        return "" if files.read(path, refresh_plan.MAX_SPEC) == now.encode() else changed
    except (GpuhookError, OSError) as error:
        return str(error)  # writing it again reports it
