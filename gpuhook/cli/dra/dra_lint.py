# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra lint`: checks claims, templates, device classes and pods without a cluster."""

from __future__ import annotations

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.errors import printable
from gpuhook.host import console, documents

_MAX_LINE = 4096


@click.command(cls=command_sections.SectionedCommand)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@parameters.class_files
@parameters.output("text", "json", "yaml")
@click.pass_context
def lint(
    ctx: click.Context, files: tuple[str, ...], class_files: tuple[str, ...], output: str
) -> None:
    """Check ResourceClaims, their templates, DeviceClasses, and the claims of pods.

    FILE is a manifest with any number of objects; - is standard input. No cluster is needed. The
    command checks fields, values and limits as the API server does, CEL expressions, the parameters
    for gpuhook's drivers, the names of classes, drivers and attributes, and whether the pods can
    have claims. `gpuhook explain FILE` shows which devices of a node match.

    \b
    Examples:
      gpuhook dra lint claim.yaml
      kubectl get resourceclaims,deviceclasses -A -o yaml | gpuhook dra lint -

    The exit status is 1 if an object would be refused, or a pod would wait forever.
    """  # noqa: D301 # click keeps the lines after this mark
    from gpuhook.explain.claims import claim_questions  # they load the code of claims
    from gpuhook.explain.claims.rules import claim_lint

    classes = [one for path in class_files for one in claim_questions.classes_of(path)]
    texts = [
        (
            documents.STANDARD_INPUT if path == "-" else path,
            documents.read(path).decode("utf-8", "replace"),
        )
        for path in dict.fromkeys(files)
    ]
    report = claim_lint.lint(texts, classes)
    if output != "text":
        console.document(report.document(), output)
    else:
        for line in report.lines():
            click.echo(printable(line, _MAX_LINE))
    ctx.exit(0 if report.is_valid else 1)
