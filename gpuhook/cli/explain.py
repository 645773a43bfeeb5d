# SPDX-License-Identifier: Apache-2.0
"""`gpuhook explain`: what a container asks for, what it would get, and why."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from gpuhook.cli.options import container_options, node_options, parameters
from gpuhook.errors import GpuhookError
from gpuhook.explain import (
    error_codes,
    explain_document,
    explain_graph,
    explain_inputs,
    manifest_questions,
    node_context,
    question,
    simulate,
    spec_diff,
)
from gpuhook.explain.text import explain_text
from gpuhook.host import console, documents
from gpuhook.host.hot import settings
from gpuhook.live import container_worker
from gpuhook.node import settings_file
from gpuhook.request import parse
from gpuhook.vendors.nvidia.hot import requirements

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.explain.node_context import Ground
    from gpuhook.explain.question import Question

TEXT, WIDE, DIFF, DOT = "text", "wide", "diff", "dot"
_MOUNTS = "/var/run/nvidia-container-devices"


def _paths(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths; a usage error for one that is none in a container."""
    for path in value:
        if not path.startswith("/"):
            raise click.BadParameter(f"{path!r} is no absolute path", ctx, param)
    return value


def _pairs(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    """Return what a repeatable NAME=VALUE option says; a usage error for anything else."""
    pairs = [entry.partition("=") for entry in value]
    wrong = [entry for entry, (name, equals, _) in zip(value, pairs) if not name or not equals]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is no {param.metavar}", ctx, param)
    return {name: text for name, _, text in pairs}


@click.command()
@click.argument("what", required=False)
@click.option(
    "-e",
    "--env",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_pairs,
    help="A variable of the container, as of `docker run -e`; repeatable. Goes before what WHAT "
    "says, and needs no WHAT. For a pod, a variable of its image.",
)
@click.option(
    "--annotation",
    "annotations",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_pairs,
    help="An annotation of the container, such as cdi.k8s.io/x=nvidia.com/gpu=0; repeatable.",
)
@click.option(
    "--mount",
    "mounts",
    metavar="PATH",
    multiple=True,
    callback=_paths,
    help=f"A mount of /dev/null at this path, such as {_MOUNTS}/0; repeatable.",
)
@click.option("--privileged", is_flag=True, help="The container may administer the host.")
@parameters.output(
    TEXT,
    WIDE,
    console.JSON,
    console.YAML,
    help="A trace for people; wide with every file and alternative; or a document.",
)
@click.option("--diff", "is_diff", is_flag=True, help="Print config.json before and after only.")
@click.option("--dot", "is_dot", is_flag=True, help="Print a graph for Graphviz's dot only.")
@click.option(
    "--plugin-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The device plugin's configuration, which says what a pod's resources are; its defaults"
    " without it.",
)
@container_options.state_root
@node_options.node_options
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    *,
    what: str | None,
    env: dict[str, str],
    annotations: dict[str, str],
    mounts: tuple[str, ...],
    privileged: bool,
    output: str,
    is_diff: bool,
    is_dot: bool,
    state_roots: tuple[str, ...],
    plugin_config: str | None,
    **node: Any,
) -> None:
    """Tell what a container asks for, what it would get, and why, step by step.

    WHAT is a bundle's directory, a config.json, an image's configuration (docker image inspect,
    skopeo inspect --config), a manifest of Kubernetes (a pod, a deployment, kubectl get -o yaml),
    `-` for one of these on standard input, a running container as `gpuhook attach --help` names
    it, or the code of a fault, GH1102. Without WHAT, the options say what is asked for. For a
    running container that has GPUs from its engine's CDI or NVIDIA's stack, the answer names those.

    The node is this one: its CDI specs, or, where there are none, what generate-cdi would write
    now. With --inventory it is another one, and with --driver-root what is found there. Nothing is
    changed: the very code of gpuhook-runtime edits a copy of config.json, and its work in the root
    file system is only rehearsed.

    \b
    Examples:
      gpuhook explain --env NVIDIA_VISIBLE_DEVICES=0
      docker image inspect IMAGE | gpuhook explain - --env NVIDIA_VISIBLE_DEVICES=all
      gpuhook explain pod.yaml --inventory h100x8
      gpuhook explain 3f2a9c --diff
      gpuhook explain /run/bundle --dot | dot -Tsvg > request.svg
      gpuhook explain GH1102

    Exit status 1 where a container would be refused.
    """  # noqa: D301 # click's own mark: what follows it keeps its lines
    form = _form(ctx, output, is_diff=is_diff, is_dot=is_dot)
    if what is not None and error_codes.is_one(what) and not explain_inputs.is_there(what):
        if form in (DIFF, DOT):
            raise click.UsageError(f"a code has no --{form}")
        _print_code(error_codes.document(what), output)
        return
    asked = _questions(what, state_roots, is_imagined=bool(env or annotations or mounts))
    base = _ground(ctx, node)
    if any(one.asked or requirements.required_terms(parse.environment(one.spec)) for one in asked):
        base = node_context.with_facts(
            base, partial(node_options.load_node, **node, require_nodes=False)
        )
    image_env = [f"{name}={value}" for name, value in env.items()]
    asked = manifest_questions.allotted(asked, base.node, plugin_config, image_env)
    asked = [
        question.with_options(
            one,
            env={} if one.asked else env,
            annotations=annotations,
            mounts=mounts,
            privileged=privileged,
        )
        if env or annotations or mounts or privileged
        else one
        for one in asked
    ]
    with console.progress("working it out"):
        told, lines = _explained(asked, base, is_diff=form == DIFF)
    if form == DIFF:
        for line in lines:
            click.echo(line)
    else:
        _print(
            told,
            [_pod(one, is_wide=output == WIDE) for one in asked],
            form,
        )
    ctx.exit(0 if explain_document.is_well(told) else 1)


def _explained(
    asked: Sequence[Question], base: Ground, *, is_diff: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the document of the answers, and the lines of the difference if that is wanted."""

    def work() -> tuple[dict[str, Any], list[str]]:
        found = [simulate.simulate(one, base) for one in asked]
        changes = [line for one in found if is_diff for line in spec_diff.lines(one)]
        return explain_document.explain_document(found, base), changes

    roots = [one.where for one in asked if one.has_root]
    return container_worker.call_in_child(", ".join(roots), work) if roots else work()


def _form(ctx: click.Context, output: str, *, is_diff: bool, is_dot: bool) -> str:
    """Return in which form to print; a usage error for two, but -o may be set for all calls."""
    named = ctx.get_parameter_source("output") is click.core.ParameterSource.COMMANDLINE
    forms = [DIFF] * is_diff + [DOT] * is_dot
    if len(forms) + named > 1:
        raise click.UsageError("--diff, --dot and -o each name a form: name one")
    return forms[0] if forms else output


def _questions(
    what: str | None, state_roots: tuple[str, ...], *, is_imagined: bool
) -> list[Question]:
    if what == "-":
        return explain_inputs.of_text(documents.read(what), documents.STANDARD_INPUT)
    if what is not None:
        return explain_inputs.of_name(what, state_roots)
    if not is_imagined:
        raise click.UsageError("name WHAT to explain, or say it with --env")
    return [question.imagined(question.OPTIONS, "a container as the options say")]


def _ground(ctx: click.Context, node: dict[str, Any]) -> Ground:
    """Return the node in question: another one where options say so, else this one."""
    load = partial(node_options.load_node, **node, require_nodes=False)
    others = ("inventory", "driver_root", "dev_root", "nvml_library")
    sources = {name: ctx.get_parameter_source(name) for name in others}
    # In the environment they say where this node's own parts are.
    told = [name for name in others if sources[name] is click.core.ParameterSource.COMMANDLINE]
    chosen, trouble = settings.Settings(), None
    if node["inventory"] is not None:
        return node_context.of_node(load(), chosen, node["inventory"])
    try:
        chosen = settings_file.of_node()
    except GpuhookError as error:
        trouble = error
    if told:
        return node_context.asked_of(
            chosen, trouble, load, f"the node of --{told[0].replace('_', '-')}"
        )
    return node_context.here(chosen, trouble, load)


def _pod(asked: Question, *, is_wide: bool) -> list[str]:
    """Return the lines on what a manifest says, none for what is in no manifest."""
    if asked.asked is None:
        return []
    from gpuhook.explain.text import pod_text  # it loads what reads manifests

    return pod_text.lines(asked.asked, asked.allocated, is_wide=is_wide)


def _print(told: dict[str, Any], pods: list[list[str]], output: str) -> None:
    if output == DOT:
        for line in explain_graph.lines(told):
            click.echo(line)
    elif output in (TEXT, WIDE):
        for line in explain_text.lines(told, pods, is_wide=output == WIDE):
            click.echo(line)
    else:
        console.document(told, output)


def _print_code(told: dict[str, Any], output: str) -> None:
    if output not in (TEXT, WIDE):
        console.document(told, output)
        return
    for line in explain_text.of_code(told):
        click.echo(line)
