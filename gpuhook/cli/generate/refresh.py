# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh`: writes the stale CDI specs of this node again."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import click

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compiled_spec
from gpuhook.cli.generate import generate_call, refresh_plan
from gpuhook.cli.options import command_sections, parameters
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console, system_mounts
from gpuhook.host.error_text import worded
from gpuhook.host.hot import settings, state
from gpuhook.host.hot.file_lock import FileLock
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.spec.spec_case import FAILED, FORGOTTEN, STALE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cli.generate.refresh_plan import VendorCase
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.spec.spec_case import SpecCase

SCHEMA = "gpuhook/refresh/v1"
WRITTEN = "written"
_LOCK_SECONDS = 60.0
_EXAMPLES = """
\b
Examples:
  gpuhook refresh
  gpuhook refresh --dry-run
  gpuhook refresh --force -o json
"""


@click.command(cls=command_sections.SectionedCommand, epilog=_EXAMPLES)
@parameters.dry_run
@click.option("--force", "is_forced", is_flag=True, help="Regenerate all specs, even fresh ones.")
@parameters.output("text", "json", "yaml")
@click.pass_context
def refresh(ctx: click.Context, /, *, is_dry: bool, is_forced: bool, output: str) -> None:
    """Regenerate the stale CDI specs of this node.

    Specs become stale after a reboot, a driver upgrade, or a change of GPUs, partitions or
    MIG devices. refresh regenerates each stale spec of `gpuhook generate-cdi` with its original
    options. If no directory that engines read has a spec of a vendor's GPUs, it writes nvidia.yaml
    or amd.yaml to the last directory of cdi.specDirs.
    Fresh specs and specs of other programs are not changed.

    A node without a driver or a GPU needs no spec: an existing gpuhook spec remains, but no
    container gets a GPU from it.

    The exit status is 0 if all specs are fresh or there is nothing to do, 1 if a spec could not be
    written, and 2 for wrong usage.
    """
    cases = [one.case for one in refreshed(ctx.find_root(), is_dry=is_dry, is_forced=is_forced)]
    _show(cases, output, is_dry=is_dry)
    ctx.exit(1 if any(one.state == FAILED for one in cases) else 0)


def refreshed(root: click.Context, *, is_dry: bool, is_forced: bool = False) -> list[VendorCase]:
    """Write the stale specs, and return the cases of all; if `is_dry`, only return the cases.

    `root` is the context of the command `gpuhook`. Raises GH1526, GH1530, and GH1594 without /proc.
    """
    system_mounts.require()
    chosen = settings.load(_compile_settings)
    look = partial(refresh_plan.refresh_cases, chosen, root, is_forced=is_forced)
    with console.progress("comparing the specs with the node"):
        cases = look()
    if not is_dry and any(one.case.state in (STALE, FORGOTTEN) for one in cases):
        with console.progress("writing the specs"), _locked():
            # Another process may have written them.
            cases = [replace(one, case=_outcome(one.vendor, one.case, root)) for one in look()]
    return cases


def _compile_settings(path: str) -> None:
    """Check the settings file and store its compiled form: checking takes half of the time."""
    from gpuhook.node import settings_file

    reason = settings_file.problem(path)
    document: dict[str, object] = {"error": reason} if reason else settings_file.load(path)
    settings.store(path, os.stat(path), document)


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock for writing specs; GH1526 if another process holds it for too long."""
    path = os.path.join(state.directory(), "refresh.lock")
    late = partial(fault, "GH1526", path=path, seconds=f"{_LOCK_SECONDS:g}")
    with FileLock(path, _LOCK_SECONDS, late):
        yield


def _outcome(vendor: Vendor, case: SpecCase, root: click.Context) -> SpecCase:
    """Handle one spec, and return its case; its failure does not affect the others."""
    try:
        if case.state == FORGOTTEN:
            vendor.forget_spec(case.path)
        if case.state != STALE:
            return case
        if case.is_new and os.path.lexists(case.path):
            raise fault("GH1529", path=case.path)
        if case.check is not None:
            case.check(_new_spec(vendor, case, root))
        os.makedirs(os.path.dirname(case.path), 0o755, exist_ok=True)
        # The name decides, not a variable with another format.
        fmt = os.path.splitext(case.path)[1][1:]
        words = [*case.words, "--format", fmt]
        generate_call.run(words, vendor.name, root, is_again=not case.is_new)
    except (GpuhookError, OSError) as error:
        return replace(case, state=FAILED, error=worded(error))
    return replace(case, state=WRITTEN)


def _new_spec(vendor: Vendor, case: SpecCase, root: click.Context) -> Compiled:
    now = generate_call.text(case.words, vendor.name, "json", root, is_again=True)
    return compiled_spec.of_spec(case.path, spec_file.parser(".json")(now.encode(), case.path))


def _document(case: SpecCase) -> dict[str, object]:
    document: dict[str, object] = {
        "path": case.path,
        "state": case.state,
        "reason": case.reason,
    }
    if case.error is not None:
        document["error"] = {
            "code": case.error.code,
            "message": case.error.message,
            "hint": case.error.hint,
        }
    return document


def _show(cases: list[SpecCase], output: str, *, is_dry: bool) -> None:
    if output != "text":
        document: dict[str, object] = {
            "schema": SCHEMA,
            "dryRun": is_dry,
            "specs": [_document(one) for one in cases],
        }
        if not cases:
            document["reason"] = nothing_to_do()
        console.document(document, output)
        return
    for one in cases:
        click.echo(f"{one.path}: {one.state}: {one.reason}")
        if one.error is not None:
            click.echo(f"Error {one.error.code}: {one.error.message}", err=True)
            click.echo(f"hint: {one.error.hint}", err=True)
    if not cases:
        click.echo(f"nothing to do: {nothing_to_do()}")


def nothing_to_do() -> str:
    """Return why a node without cases needs no spec."""
    absences = [vendor.absence(state.host_root()) for vendor in vendors()]
    return "; ".join(absences) if all(absences) else "cdi.specDirs names no directory"
