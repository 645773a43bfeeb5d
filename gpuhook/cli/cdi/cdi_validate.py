# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi validate`: checks specs by the rules of CDI, and against the host."""

from __future__ import annotations

import os

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.host import console
from gpuhook.spec_check import spec_report
from gpuhook.spec_check.host_check import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.spec_check.spec_report import SpecReport

SCHEMA = "gpuhook/cdi-validate/v1"


@click.command(cls=command_sections.SectionedCommand)
@click.argument("path", nargs=-1, callback=parameters.not_empty)
@click.option(
    "--host/--no-host",
    "is_host",
    default=None,
    help="Also check specs against this host: nodes, files and hooks must exist, be correct, "
    "and be writable only by root. Default: check specs in a spec directory only.",
)
@parameters.spec_dir
@parameters.output("text", "json", "yaml")
@click.pass_context
def validate(
    ctx: click.Context,
    path: tuple[str, ...],
    is_host: bool | None,
    spec_dir: tuple[str, ...],
    output: str,
) -> None:
    """Check the CDI specs in PATH, by default all specs that the engines on this host read.

    The checks cover the schema and the rules of CDI, the host, and, for whole directories, devices
    that two files describe. If both --host and --no-host are passed, the last one applies. The exit
    status is 1 if a check fails; warnings do not change it.
    """
    dirs = parameters.spec_dirs(spec_dir)
    if path:
        homes = {os.path.realpath(directory) for directory in dirs}
        judged = [
            spec_report.check_file(file, is_here=_is_here(file, homes, is_host)) for file in path
        ]
    else:
        judged = spec_report.directory_reports(dirs, is_here=is_host is not False)
    if output != "text":
        console.document({"schema": SCHEMA, "specs": [_entry(one) for one in judged]}, output)
    else:
        for one in judged:
            _print(one)
        if not judged:
            console.say(f"no CDI spec in {', '.join(dirs)}: run gpuhook generate-cdi")
    ctx.exit(0 if all(one.is_valid for one in judged) else 1)


def _is_here(file: str, homes: set[str], is_host: bool | None) -> bool:
    if is_host is not None:
        return is_host
    return os.path.realpath(os.path.dirname(file) or ".") in homes


def _print(one: SpecReport) -> None:
    if one.error is not None:
        error = one.error
        click.echo(f"Error {error.code}: {error.message}\nhint: {error.hint}", err=True)
        return
    for finding in one.findings:
        where = f"{one.path}: {finding.pointer}: " if finding.pointer else f"{one.path}: "
        click.echo(f"{finding.level}: {where}{finding.message}", err=True)
    if one.spec is not None and one.is_valid:
        count = len(one.spec["devices"])
        head = f"{one.path}: valid, cdiVersion {one.spec['cdiVersion']}, {one.spec['kind']}"
        click.echo(f"{head}, {count} device{'s' * (count != 1)}")


def _entry(one: SpecReport) -> dict[str, object]:
    findings = [
        {"level": finding.level, "pointer": finding.pointer, "message": finding.message, "code": ""}
        for finding in one.findings
    ]
    if one.error is not None:
        error = one.error
        findings = [{"level": ERROR, "pointer": "", "message": error.message, "code": error.code}]
    spec = one.spec or {}
    return {
        "path": one.path,
        "valid": one.is_valid,
        "kind": spec.get("kind", ""),
        "cdiVersion": spec.get("cdiVersion", ""),
        "devices": len(spec.get("devices", ())),
        "findings": findings,
    }
