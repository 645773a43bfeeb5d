# SPDX-License-Identifier: Apache-2.0
"""`gpuhook doctor`: the faults of a node, their meaning and their fixes."""

from __future__ import annotations

import difflib
import os
from typing import Any

import click

from gpuhook.cli.diagnosis import doctor_target
from gpuhook.cli.options import command_sections, container_options, node_options, parameters
from gpuhook.doctor import doctor_document, doctor_text, fix
from gpuhook.doctor.check_list import checks, section_titles
from gpuhook.doctor.examination import examine
from gpuhook.errors import fault
from gpuhook.host import console
from gpuhook.host.terminal import terminal_features
from gpuhook.node_facts.check import FAILED, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.cli.diagnosis.doctor_target import DoctorTarget
    from gpuhook.doctor.examination import Examination
    from gpuhook.doctor.fix import FixResult
    from gpuhook.node_facts.check import Check

_EXAMPLES = """
\b
Examples:
  gpuhook doctor
  gpuhook doctor --checks driver,devices.uvm
  gpuhook doctor --root /mnt/node -o json
  gpuhook doctor --from gpuhook-bundle-node7.tar.gz
  gpuhook doctor --fix --dry-run
"""


def _check_ids(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return the ids for the words of --checks (ids, prefixes of ids, sections), None for none."""
    if not values:
        return None
    words = [word.strip() for value in values for word in value.split(",")]
    words = [word for word in dict.fromkeys(words) if word]
    found: list[str] = []
    for word in words:
        meant = [
            check.id
            for check in checks()
            if word in (check.id, check.section, check.id.partition(".")[0])
        ]
        if not meant:
            raise click.BadParameter(_unknown(word), ctx, param)
        found += meant
    if not found:
        raise click.BadParameter("it names no check", ctx, param)
    return tuple(dict.fromkeys(found))


def _completed(
    ctx: click.Context,  # noqa: ARG001 # click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[str]:
    """Return the values of --checks with this prefix, for shell completion, also after a comma."""
    before, comma, last = incomplete.rpartition(",")
    known = dict.fromkeys([*section_titles(), *(check.id for check in checks())])
    return [before + comma + word for word in known if word.startswith(last)]


def _unknown(word: str) -> str:
    known = [*(check.id for check in checks()), *section_titles()]
    near = difflib.get_close_matches(word, known, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"unknown check {word}{meant} (`gpuhook doctor --list` lists the checks)"


@click.command(cls=command_sections.SectionedCommand, epilog=_EXAMPLES)
@click.option(
    "--checks",
    "chosen",
    metavar="ID,...",
    multiple=True,
    callback=_check_ids,
    shell_complete=_completed,
    envvar="GPUHOOK_DOCTOR_CHECKS",
    show_envvar=True,
    help="Run only these checks and their prerequisites: ids, or sections such as "
    "driver; repeatable.",
)
@click.option("--list", "is_list", is_flag=True, help="List the checks without running them.")
@click.option(
    "--root",
    metavar="DIR",
    callback=parameters.not_empty,
    type=click.Path(file_okay=False),
    show_envvar=True,
    help="Check the node whose files are in DIR. --driver-root and --dev-root are then paths "
    "inside DIR. Only the files are read, unless DIR is the root of this node as seen from a "
    "container (kubectl debug node/NAME mounts it at /host).",
)
@click.option(
    "--from",
    "bundle",
    metavar="BUNDLE",
    type=click.Path(exists=True, dir_okay=False),
    help="Check the node from a file made by `gpuhook support-bundle`, in its state at that time.",
)
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Print all checks, including those that passed or do not apply. Default with --checks.",
)
@click.option(
    "--fix",
    "is_fix",
    is_flag=True,
    help="Apply the safe fixes, show each change, then check again.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="With --fix: only show the changes.")
@parameters.output(
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    help="wide adds the evidence and the skipped checks; name prints the ids of failed "
    "checks and warnings, for --checks.",
)
@parameters.no_headers
@container_options.state_root
@node_options.place_options
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    *,
    chosen: tuple[str, ...] | None,
    is_list: bool,
    root: str | None,
    bundle: str | None,
    is_all: bool,
    is_fix: bool,
    is_dry: bool,
    output: str,
    no_headers: bool,
    state_roots: tuple[str, ...],
    host_root: str,
    **place: Any,
) -> None:
    """Find out why containers get no GPUs: each fault, what it means and how to fix it.

    The output shows only problems; --all adds the other checks. The checks cover the driver, device
    nodes, GPUs, CDI specs, engines, Kubernetes, the installation of gpuhook, and running
    containers. doctor also works on nodes with a vendor's own stack, and needs no gpuhook
    configuration. It changes nothing without --fix. Run it as root: many files of a node are
    readable only by root.

    The first fault is the root cause of the faults below it; checks that depend on a failed check
    are skipped. The exit status is 1 if a check fails, and 0 if there are only warnings.
    """
    _require_sense(root, bundle, is_list=is_list, is_fix=is_fix, is_dry=is_dry)
    if is_list:
        _print_list(chosen, output, no_headers=no_headers)
        return
    if bundle is not None:
        node = doctor_target.target_of_bundle(bundle)
    else:
        place_of_node = doctor_target.node_place(host_root, **place)
        node = doctor_target.target_of_options(root, place_of_node, state_roots)
    if os.geteuid() != 0 and node.is_live:
        console.say("not running as root: some checks are skipped")
    found, fixes = _examination(node, chosen, is_fix=is_fix, is_dry=is_dry)
    if output in (console.JSON, console.YAML):
        where = bundle or root or host_root
        console.document(
            doctor_document.doctor_document(found, where, is_live=node.is_live, fixes=fixes), output
        )
    else:
        _print(found, fixes, output, is_all=is_all or chosen is not None)
    ctx.exit(0 if found.is_well else 1)


def _require_sense(
    root: str | None, bundle: str | None, *, is_list: bool, is_fix: bool, is_dry: bool
) -> None:
    """Raise a usage error for contradictory options; GH1903 for --fix on another node."""
    if is_list:
        if is_fix or bundle is not None:
            raise click.UsageError("--list runs no checks: use it without --fix and --from")
        return
    if is_dry and not is_fix:
        raise click.UsageError("--dry-run requires --fix")
    if bundle is not None and root is not None:
        raise click.UsageError("--from and --root cannot be used together: each names a node")
    if is_fix and (bundle or root):
        raise fault("GH1903", path=bundle or root)


def _examination(
    node: DoctorTarget, chosen: tuple[str, ...] | None, *, is_fix: bool, is_dry: bool
) -> tuple[Examination, list[FixResult] | None]:
    """Return the last examination of the node, and the fixes; None without --fix."""

    def look() -> Examination:
        with console.progress("looking at the node"):
            return examine(node.look(), checks(), chosen)

    if is_fix and not is_dry:
        return fix.apply_fixes(look, console.say)
    found = look()
    return found, fix.planned_fixes(found) if is_fix else None


def _print(
    found: Examination, fixes: Sequence[FixResult] | None, output: str, *, is_all: bool
) -> None:
    if output == console.NAME:
        wrong = [*found.of(FAILED), *found.of(WARNING)]
        console.names(dict.fromkeys(one.check.id for one in wrong))
        return
    is_wide, is_quiet = output == console.WIDE, console.is_quiet()
    is_all = is_all and not is_quiet
    lines = doctor_text.lines(
        found,
        is_wide=is_wide and not is_quiet,
        is_all=is_all,
        has_colour=terminal_features.has_colour(),
    )
    for line in [*lines, *doctor_text.fix_lines(fixes)]:
        click.echo(line)
    if is_quiet:  # a node without GPUs has no findings
        for said in doctor_text.without_gpu(found):
            click.echo(said, err=True)
    more = "" if is_all or is_wide else "; --all lists all checks"
    console.say(doctor_text.summary(found) + more)


def _print_list(chosen: Sequence[str] | None, output: str, *, no_headers: bool) -> None:
    listed: list[Check] = [one for one in checks() if chosen is None or one.id in chosen]
    sections = list(section_titles())
    listed.sort(key=lambda check: sections.index(check.section))
    if output in (console.JSON, console.YAML):
        console.document(doctor_document.listing(listed), output)
        return
    if output == console.NAME:
        console.names(check.id for check in listed)
        return
    lines = [[check.id, check.section, check.title] for check in listed]
    headers = ["CHECK", "SECTION", "MAKES SURE THAT"]
    if output == console.WIDE:
        headers.append("NEEDS")
        lines = [
            [*line, ",".join(check.needs) or "-"] for line, check in zip(lines, listed, strict=True)
        ]
    console.rows(headers, lines, no_headers=no_headers, is_wide=output == console.WIDE)
