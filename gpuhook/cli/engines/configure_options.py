# SPDX-License-Identifier: Apache-2.0
"""The options of `gpuhook configure ENGINE`, and the engine options that they set.

The spellings of `nvidia-ctk runtime configure` work too; --help does not list them.
"""

from __future__ import annotations

import re
import stat
from dataclasses import replace

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.engines.configure import engine_plan, engine_restart
from gpuhook.engines.configure.engine_plan import EngineOptions
from gpuhook.errors import fault
from gpuhook.install.runtime_names import default_name, default_sentence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.cli.options.parameters import F
    from gpuhook.engines.configure.host_files import Host

RUNTIME, HOOK = "gpuhook-runtime", "gpuhook-prestart"
ALIASES = {
    "--nvidia-runtime-name": "--runtime-name",
    "--nvidia-runtime-path": "--runtime-path",
    "--nvidia-runtime-hook-path": "--hook-path",
    "--oci-hook-path": "--hook-path",
    "--nvidia-set-as-default": "--set-as-default",
    "--drop-in-config": "--drop-in",
    "--cdi.enable": "--enable-cdi",
    "--cdi.enabled": "--enable-cdi",
}
_PLACES = ("/usr/bin", "/usr/local/bin", "/opt/gpuhook/bin")
# Every engine accepts such a name, and none takes it for an option or a path.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_WITH_HANDLERS = ("containerd", "crio")  # a RuntimeClass needs a handler with every route

host_root = parameters.host_root(
    metavar="DIR",
    type=click.Path(file_okay=False, exists=True),
    default="/",
    show_default=True,
    help="The root directory of the host, as seen from a container.",
)
dry_run = click.option(
    "--dry-run", "is_dry", is_flag=True, help="Print the changes as a diff, and write nothing."
)
of_user = click.option(
    "--user",
    "is_of_user",
    is_flag=True,
    show_envvar=True,
    help="Use this user's rootless Docker: the default if the user runs a rootless dockerd.",
)
restart = click.option(
    "--restart",
    type=click.Choice(engine_restart.HOWS),
    is_flag=False,
    flag_value="auto",
    default="none",
    show_default=True,
    show_envvar=True,
    help="Make the engine reload changed files: restart it with systemd, or send a signal if "
    "that is enough. --restart without a value is auto: use whichever works.",
)


class ConfigureCommand(command_sections.SectionedCommand):
    """A command that accepts the toolkit's spellings, and --restart without a value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; replace an alias by its option."""
        words = [_own(word, "".join(args[at + 1 : at + 2])) for at, word in enumerate(args)]
        return super().parse_args(ctx, words)


def _own(word: str, following: str) -> str:
    if word == "--restart" and following not in engine_restart.HOWS:
        return "--restart=auto"  # else click would take the engine as its value
    name, equals, value = word.partition("=")
    if name in ("--cdi.enable", "--cdi.enabled", "--enable-cdi") and equals:
        # The toolkit's flags accept a value.
        return "--enable-cdi" if value.lower() in ("true", "1", "t") else "--no-enable-cdi"
    return ALIASES.get(name, name) + equals + value


def _path_option(option: str, metavar: str, text: str) -> Callable[[F], F]:
    return click.option(
        option,
        metavar=metavar,
        default="",
        callback=parameters.not_empty,
        show_envvar=True,
        help=text,
    )


def _valid_names(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of a runtime; a usage error for one that an engine could not use."""
    for value in values:
        if not _NAME.fullmatch(value):
            raise click.BadParameter("it is not a valid runtime name", ctx, param)
    return tuple(dict.fromkeys(values))


def runtime_names(text: str) -> Callable[[F], F]:
    """Return the decorator for --runtime-name; `text` is what its help says of the default."""
    return click.option(
        "--runtime-name",
        "names",
        metavar="NAME",
        multiple=True,
        callback=_valid_names,
        show_envvar=True,
        help="The name of the runtime: the handler of a RuntimeClass, docker run --runtime; "
        f"repeatable: each is a name of the same runtime. {text}.",
    )


def _route(engine: str) -> Callable[[F], F]:
    choices = engine_plan.routes(engine)
    nri = "; nri: the engine asks gpuhook's NRI plugin" if "nri" in choices else ""
    return click.option(
        "--route",
        type=click.Choice(choices),
        show_envvar=True,
        help="wrapper: a runtime that runs gpuhook-runtime; hook: the engine's own runtime with "
        f"gpuhook's OCI hook; cdi: the engine applies CDI specs itself{nri}. Default: wrapper; for "
        "podman, hook.",
    )


_OPTIONS = (
    runtime_names(default_sentence()),
    click.option(
        "--set-as-default/--no-set-as-default",
        "is_default",
        default=False,
        show_envvar=True,
        help="Make it the default runtime of the engine.",
    ),
    click.option(
        "--take-over",
        "takes_over",
        is_flag=True,
        show_envvar=True,
        help="Replace another program's runtime with that name; undo restores it.",
    ),
    click.option(
        "--enable-cdi/--no-enable-cdi",
        "has_cdi",
        default=None,
        hidden=True,
        help="Accepted for compatibility with nvidia-ctk: every route enables CDI.",
    ),
    _path_option("--runtime-path", "PATH", f"The path of {RUNTIME} on the host."),
    _path_option("--hook-path", "PATH", f"The path of {HOOK} on the host."),
    _path_option("--config", "FILE", "The engine's main configuration file."),
    _path_option("--drop-in", "FILE", "The drop-in file to write."),
    host_root,
    dry_run,
    restart,
    parameters.output("text", "json", "yaml"),
)

_ENABLE_CRI = click.option(
    "--enable-cri",
    "enables_cri",
    is_flag=True,
    show_envvar=True,
    help="Remove cri from disabled_plugins (Docker's package adds it); the kubelet needs it.",
)
# The help and the examples of each engine's command.
_TEXTS = {
    "containerd": (
        "Register the runtime with containerd, or enable CDI; also on Kubernetes, k3s and RKE2.",
        "containerd --dry-run",
        "containerd --runtime-name gpuhook --restart",
        "containerd --config /var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "undo containerd --restart",
    ),
    "crio": (
        "Register the runtime with CRI-O, in a drop-in file.",
        "crio --dry-run",
        "crio --set-as-default --restart",
        "undo crio --restart",
    ),
    "docker": (
        (
            "Register the runtime in Docker's daemon.json, or in the rootless daemon.json if run "
            "as a user."
        ),
        "docker --dry-run",
        "docker --take-over --restart",
        "docker --route cdi",
        "undo docker --restart",
    ),
    "podman": (
        "Register the hook or the runtime with Podman, or with rootless Podman if run as a user.",
        "podman --dry-run",
        "podman --route wrapper",
        "undo podman",
    ),
}


def engine_command(name: str, function: Callable[..., None]) -> click.Command:
    """Return the command that configures an engine by `function`."""
    options = [_route(name), *_OPTIONS]
    if name == "containerd":
        options.insert(4, _ENABLE_CRI)  # below the options of the runtime
    if name == "docker":
        options.insert(-4, of_user)
    text, *examples = _TEXTS[name]
    lines = "".join(f"\n  gpuhook configure {words}" for words in examples)
    command = click.command(
        name=name, cls=ConfigureCommand, help=text, epilog=f"\b\nExamples:{lines}"
    )
    return command(parameters.with_options(function, options))


def engine_options(
    engine: str,
    host: Host,
    *,
    route: str | None,
    names: tuple[str, ...],
    runtime_path: str,
    hook_path: str,
    has_cdi: bool | None,
    **flags: bool,
) -> tuple[EngineOptions, list[str]]:
    """Return the options of the engine, and warnings; raises GH2010, GH2011 and OSError."""
    chosen = route or engine_plan.default_route(engine)
    warnings = []
    if has_cdi is False:
        warnings.append("--enable-cdi=false has no effect: gpuhook's devices need CDI")
    is_named = chosen == "wrapper" or (engine in _WITH_HANDLERS and chosen != "nri")
    if names and not is_named:
        warnings.append(_no_effect("--runtime-name", chosen, engine))
    if flags["takes_over"] and chosen in ("cdi", "nri") and not is_named:
        warnings.append(_no_effect("--take-over", chosen, engine))
    if flags["is_default"] and chosen == "nri":
        warnings.append(_no_effect("--set-as-default", chosen, engine))
        flags["is_default"] = False
    programs = []
    needed = {"wrapper": RUNTIME, "hook": HOOK}.get(chosen, "")
    for option, name, given in (
        ("--runtime-path", RUNTIME, runtime_path),
        ("--hook-path", HOOK, hook_path),
    ):
        path = given or _program_path(host, name)
        if given and not given.startswith("/"):
            raise click.BadParameter("it is not an absolute path", param_hint=f"'{option}'")
        if needed == name and not path:
            raise fault("GH2010", name=name, root=host.root, option=option)
        if needed == name and given:
            _require_program(host, given, option)
        elif given:
            warnings.append(_no_effect(option, chosen, engine))
        programs.append(path or f"{_PLACES[0]}/{name}")
    first, *others = names or (default_name(host.root),)
    options = EngineOptions(chosen, first, programs[0], programs[1], **flags)  # type: ignore[arg-type]
    return replace(options, further_names=tuple(others)), warnings


def _no_effect(option: str, route: str, engine: str) -> str:
    return f"{option} has no effect: the {route} route of {engine} does not use it"


def _program_path(host: Host, name: str) -> str:
    paths = (f"{place}/{name}" for place in _PLACES)
    return next((path for path in paths if _is_program(host, path)), "")


def _require_program(host: Host, path: str, option: str) -> None:
    """Raise GH2011 unless a path is a program on the host."""
    if _is_program(host, path):
        return
    found = host.status(path)
    if found is None:
        reason = "does not exist"
    elif stat.S_ISREG(found.st_mode):
        reason = "is not executable"
    else:
        reason = "is not a regular file"
    raise fault("GH2011", path=path, root=host.root, said=reason, option=option)


def _is_program(host: Host, path: str) -> bool:
    found = host.status(path)
    return bool(found and stat.S_ISREG(found.st_mode) and found.st_mode & 0o111)
