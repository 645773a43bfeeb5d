# SPDX-License-Identifier: Apache-2.0
"""`nvidia-ctk` as a name of gpuhook: translates its command lines to those of `gpuhook`.

Source: the commands of NVIDIA's container toolkit 1.20. Commands on the toolkit itself are refused
with an alternative.
"""

from __future__ import annotations

import os
import sys

from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROGRAM = "nvidia-ctk"
_USAGE = """usage: nvidia-ctk COMMAND    (gpuhook, under the name of NVIDIA's toolkit)

  cdi generate|list|transform root    gpuhook generate-cdi, cdi list, cdi transform root
  runtime configure --runtime=ENGINE  gpuhook configure ENGINE
  system create-dev-char-symlinks     gpuhook system create-dev-char-symlinks
  system create-device-nodes          gpuhook system create-device-nodes
  config [default]                    gpuhook config show, config default
  info                                gpuhook inventory
  hook NAME                           gpuhook-hook toolkit NAME
"""
_TRUE = frozenset(("1", "t", "true", "T", "TRUE", "True"))
# An option of the toolkit -> gpuhook's, "" for none; `=` ends an option with a value.
_CONFIGURE = {
    "--config": "--config=",
    "--config-mode": "--route=",
    "--config-source": "=",
    "--drop-in-config": "--drop-in=",
    "--dry-run": "--dry-run",
    "--executable-path": "=",
    "--nvidia-runtime-hook-path": "--hook-path=",
    "--nvidia-runtime-name": "--runtime-name=",
    "--runtime-name": "--runtime-name=",
    "--nvidia-runtime-path": "--runtime-path=",
    "--runtime-path": "--runtime-path=",
    "--nvidia-set-as-default": "--set-as-default",
    "--set-as-default": "--set-as-default",
    "--cdi.enabled": "",  # configure always enables CDI
    "--cdi.enable": "",
    "--enable-cdi": "",
}
_MODES = {"oci-hook": "hook"}
_DEFAULT_DROP_IN = "RUNTIME_SPECIFIC_DEFAULT"
# An option of gpuhook -> the toolkit's variables for it; the first one that is set applies.
_NODES_VARIABLES = {
    "--driver-root": ("ROOT", "NVIDIA_DRIVER_ROOT", "DRIVER_ROOT"),
    "--dev-root": ("NVIDIA_DEV_ROOT", "DEV_ROOT"),
}
_LINKS_VARIABLES = {
    "--driver-root": ("NVIDIA_DRIVER_ROOT", "DRIVER_ROOT"),
    "--dev-char-path": ("DEV_CHAR_PATH",),
}
_LINKS_SWITCHES = {
    "--create-all": "CREATE_ALL",
    "--create-device-nodes": "CREATE_DEVICE_NODES",
    "--load-kernel-modules": "LOAD_KERNEL_MODULES",
    "--dry-run": "DRY_RUN",
}


def main() -> None:
    """Run the command of gpuhook for the command line of the toolkit."""
    gpuhook, *argv = sys.argv
    try:
        words = translated(argv, os.environ)
    except GpuhookError as error:
        sys.stderr.write(f"Error {error.code}: {error.message}\nhint: {error.hint}\n")
        sys.exit(1)
    if not words:
        sys.stdout.write(_USAGE)
        sys.exit(0)
    sys.argv = [gpuhook, *words]
    from gpuhook.cli import main as command

    command(prog_name="gpuhook")


def translated(argv: list[str], environment: Mapping[str, str]) -> list[str]:
    """Return the arguments of `gpuhook` for those of `nvidia-ctk`, [] if it would print its usage.

    Raises GH2142 for a command without a counterpart.
    """
    everywhere, rest = _without_flags(argv, environment)
    if not rest or rest[0] in ("help", "h", "--help", "-h"):
        return []
    if rest[0] in ("--version", "-v", "-version"):
        return ["--version"]
    for length in (2, 1):
        name = " ".join(rest[:length])
        command = _COMMANDS.get(name)
        if command is not None and (length == 2 or len(rest) == 1 or rest[1].startswith("-")):
            return [*everywhere, *command(rest[length:], environment)]
    if rest[0] in _GROUPS and (len(rest) == 1 or rest[1] in ("help", "-h", "--help")):
        return []
    name = " ".join(word for word in rest[:2] if not word.startswith("-"))
    raise fault(
        "GH2142",
        command=f"{PROGRAM} {name}",
        reason="unknown command",
        instead="run `nvidia-ctk --help` to list the commands, and `gpuhook --help` for those of "
        "gpuhook",
    )


def _without_flags(argv: list[str], environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return (gpuhook's global flags, the words from the command on)."""
    flags = {"-q"} if environment.get("NVIDIA_CTK_QUIET") in _TRUE else set()
    words = list(argv)
    while words:
        if words[0] in ("-d", "--debug"):
            flags.add("--debug")
        elif words[0] in ("-q", "--quiet"):
            flags.add("-q")
        elif words[0] == "--config" and len(words) > 1:
            del words[0]  # the toolkit's settings do not apply to gpuhook
        elif not words[0].startswith("--config="):
            break
        del words[0]
    return sorted(flags), words


def _list(words: list[str], environment: Mapping[str, str]) -> list[str]:
    pairs = _pairs(words, {"--spec-dir"})
    directories = [value or "" for name, value in pairs if name == "--spec-dir"]
    if not directories:
        directories = [environment.get("NVIDIA_CTK_CDI_SPEC_DIRS", "")]
    each = [one for value in directories for one in value.split(",") if one]
    others = [name for name, _ in pairs if name != "--spec-dir"]
    return ["cdi", "list", *others, *(f"--spec-dir={one}" for one in each), "-o", "name"]


def _generate(words: list[str], _environment: Mapping[str, str]) -> list[str]:
    return ["generate-cdi", *(_renamed(word, "--output", "--output-file") for word in words)]


def _transform(words: list[str], _environment: Mapping[str, str]) -> list[str]:
    words = [_renamed(word, "--output", "--output-file") for word in words]
    return ["cdi", "transform", "root", *words[words[:1] == ["root"] :]]


def _configure(words: list[str], _environment: Mapping[str, str]) -> list[str]:
    engine = "docker"
    made: list[str] = []
    valued = {name for name, own in _CONFIGURE.items() if own.endswith("=")} | {"--runtime"}
    for name, value in _pairs(words, valued):
        own = _CONFIGURE.get(name)
        if name == "--runtime":
            engine = value or engine
        elif name in ("--help", "-h"):
            made.append("--help")
        elif own is None:
            raise fault(
                "GH2142",
                command=f"{PROGRAM} runtime configure {name}",
                reason="unknown option",
                instead="run `gpuhook configure --help` to list the options",
            )
        elif own.endswith("=") and len(own) > 1:
            made += _valued(own, value or "")
        elif own.startswith("-") and (value is None or value in _TRUE):
            made.append(own)
    return ["configure", engine, *made]


def _valued(own: str, value: str) -> list[str]:
    """Return the option of gpuhook with its value; [] if the value is gpuhook's default."""
    if not value or (own == "--drop-in=" and value == _DEFAULT_DROP_IN):
        return []
    if own == "--route=":
        return [own + _MODES[value]] if value in _MODES else []
    if own in ("--runtime-path=", "--hook-path=") and not value.startswith("/"):
        return []  # a bare name: gpuhook knows the paths of its programs
    return [own + value]


def _nodes(words: list[str], environment: Mapping[str, str]) -> list[str]:
    words = [_renamed(word, "--root", "--driver-root") for word in words]
    given = _options_of_variables(words, _NODES_VARIABLES, {}, environment)
    return ["system", "create-device-nodes", *words, *given]


def _links(words: list[str], environment: Mapping[str, str]) -> list[str]:
    given = _options_of_variables(words, _LINKS_VARIABLES, _LINKS_SWITCHES, environment)
    return ["system", "create-dev-char-symlinks", *words, *given]


def _renamed(word: str, name: str, own: str) -> str:
    return own + word[len(name) :] if word.partition("=")[0] == name else word


def _options_of_variables(
    words: list[str],
    variables: Mapping[str, tuple[str, ...]],
    switches: Mapping[str, str],
    environment: Mapping[str, str],
) -> list[str]:
    """Return the options for the toolkit's variables, unless `words` has the option."""
    there = {word.partition("=")[0] for word in words}
    made = []
    for option, names in variables.items():
        value = next((environment[name] for name in names if environment.get(name)), "")
        if value and option not in there:
            made.append(f"{option}={value}")
    for option, name in switches.items():
        if environment.get(name) in _TRUE and option not in there:
            made.append(option)
    return made


def _settings(*command: str) -> Callable[[list[str], Mapping[str, str]], list[str]]:
    """Return the translation of a command on settings; its options edit the toolkit's file."""

    def words_of(words: list[str], _environment: Mapping[str, str]) -> list[str]:
        if not words:
            return [*command]
        toolkit = " ".join(one for one in command if one != "show")
        raise fault(
            "GH2142",
            command=f"{PROGRAM} {toolkit} {words[0].partition('=')[0]}",
            reason="it edits the toolkit's config.toml, which gpuhook does not read",
            instead="edit /etc/gpuhook/config.yaml, or convert the file with "
            "`gpuhook config import`",
        )

    return words_of


def _pairs(words: list[str], valued: set[str]) -> list[tuple[str, str | None]]:
    """Return (option, value or None) for each word; options in `valued` take the next word."""
    made: list[tuple[str, str | None]] = []
    following = iter(words)
    for word in following:
        name, equals, value = word.partition("=")
        if name.startswith("-") and not name.startswith("--") and len(name) > 2:
            name = "-" + name  # the toolkit accepts one dash too
        if equals:
            made.append((name, value))
        else:
            made.append((name, next(following, "") if name in valued else None))
    return made


_GROUPS = ("cdi", "runtime", "system")
_COMMANDS: dict[str, Callable[[list[str], Mapping[str, str]], list[str]]] = {
    # generate-cdi knows the toolkit's options and variables.
    "cdi generate": _generate,
    "cdi list": _list,
    "cdi transform": _transform,
    "config": _settings("config", "show"),
    "config default": _settings("config", "default"),
    "config create-default": _settings("config", "default"),
    "config generate-default": _settings("config", "default"),
    "info": lambda words, _: ["inventory", *words],
    "runtime configure": _configure,
    "system create-dev-char-symlinks": _links,
    "system create-device-nodes": _nodes,
}
