# SPDX-License-Identifier: Apache-2.0
"""The hooks of NVIDIA's container toolkit in its CDI specs, as jobs of our hook.

Source: `nvidia-cdi-hook --help` of the toolkit 1.18 to 1.20; older specs have `nvidia-ctk hook
NAME`.
"""

from __future__ import annotations

from os.path import basename

from gpuhook.apply.rootfs.hook_args import Jobs, hook_arguments, parse
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.warm import hook_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CDI_HOOK = "nvidia-cdi-hook"
CTK = "nvidia-ctk"
STATE_FILE = "--container-spec"
_COMPAT = "/usr/local/cuda/compat"
_QUIETING = frozenset(("--debug", "-d", "--quiet", "-q"))
# The options of each hook; all of them have a value.
_OPTIONS = {
    hook_names.LINKS: ("--link",),
    hook_names.LOADER: ("--ldconfig-path", "--folder"),
    hook_names.CUDA_COMPAT: (
        "--host-driver-version",
        "--host-cuda-version",
        "--cuda-compat-container-root",
    ),
    hook_names.PARAMS: (),
    hook_names.PROFILE: (),
    hook_names.CHMOD: ("--mode", "--path"),
}


class Call:
    """One call of a hook: its name, "" if missing, and the values of its options."""

    __slots__ = ("name", "values")

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, list[str]] = {}

    @property
    def is_known(self) -> bool:
        """Return whether gpuhook implements the hook."""
        return self.name in _OPTIONS

    def last(self, option: str, default: str = "") -> str:
        """Return the value of an option; of several, the last one applies."""
        return self.values.get(option, [default])[-1]

    def all(self, option: str) -> list[str]:
        """Return the values of an option that may be repeated or have commas, each once."""
        each = [part for value in self.values.get(option, ()) for part in value.split(",")]
        return list(dict.fromkeys(part for part in each if part))


def call(words: list[str]) -> Call:
    """Return the call in the arguments after the program's name; GH2140 for an unknown option."""
    rest = [word for word in words if word.partition("=")[0] not in _QUIETING]
    if rest[:1] == ["hook"]:
        rest = rest[1:]  # `nvidia-ctk hook NAME`
    made = Call(rest[0] if rest and not rest[0].startswith("-") else "")
    if not made.is_known:
        return made
    following = iter(rest[1:])
    for word in following:
        option, equals, value = word.partition("=")
        # The toolkit's own parser takes one dash as well.
        option = "--" + option.lstrip("-") if option.startswith("-") else option
        if option not in (*_OPTIONS[made.name], STATE_FILE):
            raise fault("GH2140", hook=made.name, argument=word)
        if not equals:
            value = next(following, "")
        made.values.setdefault(option, []).append(value)
    return made


def jobs_of(made: Call) -> Jobs:
    """Return the jobs of a call; GH1640 for a malformed value.

    The libraries of a loader cache are skipped: they depend on the container's files.
    """
    args: list[str] = []
    for link in made.all("--link"):
        args += ["--link", link]
    for path in made.all("--path"):
        args += ["--chmod", f"{made.last('--mode')}:{path}"]
    if made.name == hook_names.PARAMS:
        args.append("--driver-params")
    if made.name == hook_names.CUDA_COMPAT:
        args += ["--cuda-compat", made.last("--cuda-compat-container-root", _COMPAT)]
        args += ["--driver-version", made.last("--host-driver-version")]
        args += ["--cuda-version", made.last("--host-cuda-version")]
    return parse(args)


def calls_in(spec: Mapping[str, Any]) -> list[Call]:
    """Return the calls of a config.json's createContainer hooks, without malformed ones."""
    arguments = [args for args in hook_arguments(spec) if all(isinstance(one, str) for one in args)]
    return [call(words) for words in map(_behind_program, arguments) if words]


def _behind_program(args: list[str]) -> list[str]:
    name = basename(args[0]) if args else ""
    if name == CTK and "hook" in args:
        return args[args.index("hook") :]
    return args[1:] if name == CDI_HOOK else []
