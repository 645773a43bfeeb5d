# SPDX-License-Identifier: Apache-2.0
"""The jobs of gpuhook's one CDI hook, as its arguments.

`gpuhook-hook apply` does them in a started container, the wrapper before the runtime starts.
"""

from __future__ import annotations

from os.path import basename

from gpuhook import __version__
from gpuhook.cdi.hot.names import is_text
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Hook

HOOK_NAME = "gpuhook-hook"
VERB = "apply"
LIMIT = "limit"
# Arguments of a newer gpuhook (docs/reference/compatibility-promise.md): those that an older one
# may ignore begin with OPTIONAL; SINCE names the first release that knows all others.
OPTIONAL = "--optional="
SINCE = "--since"
NEEDS = "--needs"  # the capabilities of a file whose name does not imply them
# The values of `--skip`: requested links and SONAME links, the loader's files, EGL's profile.
LINKS, LOADER, PROFILE = "links", "loader-cache", "profile"
_SKIPPABLE = (LINKS, LOADER, PROFILE)
# Options whose values are paths of the host.
HOST_OPTIONS = frozenset(("--host-root", "--ldconfig", "--libcuda"))
# Options whose values contain a path, with the sign before or after it.
PATH_BEHIND = {"--chmod": ":", NEEDS: "="}
PATH_BEFORE = {"--library": "="}
_LDCACHE = "update-ldcache"
HOOK_ENV = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]


class Jobs:
    """The work in a container's root file system, and the host on which it may be done."""

    __slots__ = (
        "chmod",
        "cuda_compat",
        "cuda_version",
        "driver_params",
        "driver_version",
        "fingerprint",
        "gpus",
        "hook_path",
        "host_root",
        "ldconfig",
        "libcuda",
        "libraries",
        "links",
        "needs",
        "optional",
        "since",
        "skipped",
        "whole",
    )

    def __init__(self, hook_path: str) -> None:
        self.hook_path = hook_path
        self.libraries: list[tuple[str, str]] = []  # (container path, SONAME)
        self.links: list[tuple[str, str]] = []  # (target, container path)
        self.gpus: list[tuple[str, str, str]] = []  # (minors, compute capability, brand)
        self.needs: dict[str, frozenset[str]] = {}  # container path: any of these capabilities
        self.cuda_compat = ""
        self.cuda_version = ""  # the highest of the driver
        self.driver_version = ""
        self.driver_params = False
        self.fingerprint = ""
        self.libcuda = ""
        self.host_root = "/"
        self.whole = False  # its files belong together, whatever a container requests
        self.ldconfig = ""  # the host's program that makes the loader cache; "": it is merged
        self.chmod: list[tuple[int, str]] = []  # (permission bits, container path)
        self.skipped: list[str] = []
        self.optional: list[str] = []  # arguments of a newer release, ignored and kept
        self.since = ""  # the first release that knows all the others

    def hook(self) -> Hook:
        """Return the createContainer hook that does these jobs.

        Its environment is explicit: without one, runc gives a hook the image's (CVE-2025-23266).
        """
        return {
            "hookName": "createContainer",
            "path": self.hook_path,
            "args": [HOOK_NAME, VERB, *self.arguments()],
            "env": list(HOOK_ENV),
        }

    def arguments(self) -> list[str]:
        """Return the arguments of `gpuhook-hook apply`, as parse() reads them."""
        args = self._lists()
        for option, attribute in _TEXT.items():
            value = getattr(self, attribute)
            if value and value != _DEFAULTS.get(option):
                args += [option, value]
        return args + [option for option, name in _SWITCHES.items() if getattr(self, name)]

    def _lists(self) -> list[str]:
        args: list[str] = []
        for path, soname in self.libraries:
            args += ["--library", f"{path}={soname}"]
        for target, path in self.links:
            args += ["--link", f"{target}::{path}"]
        for minors, capability, brand in self.gpus:
            args += ["--gpus", f"{minors}={capability},{brand}"]
        for path, capabilities in sorted(self.needs.items()):
            args += [NEEDS, f"{','.join(sorted(capabilities))}={path}"]
        for mode, path in self.chmod:
            args += ["--chmod", f"{mode:04o}:{path}"]
        for word in self.skipped:
            args += ["--skip", word]
        return args + self.optional

    def keep(self, is_wanted: Callable[[str], bool]) -> None:
        """Leave out the libraries and links whose paths `is_wanted` refuses, unless it is whole."""
        if self.whole:
            return
        self.libraries = [pair for pair in self.libraries if is_wanted(pair[0])]
        self.links = [link for link in self.links if is_wanted(link[1])]


def is_ours(hook: object, verb: str = VERB) -> bool:
    """Return whether an OCI or CDI hook is our `apply` hook, or that of another verb."""
    args = hook.get("args") if isinstance(hook, dict) else None
    return (
        isinstance(args, list)
        and len(args) >= 2
        and isinstance(args[0], str)
        and basename(args[0]) == HOOK_NAME
        and args[1] == verb
    )


def is_whole(edits: ContainerEdits) -> bool:
    """Return whether the edits of a spec belong together, whatever a container requests."""
    return any(is_ours(hook) and "--whole" in hook["args"] for hook in edits.get("hooks") or ())


def own_jobs(edits: ContainerEdits) -> list[Jobs]:
    """Return the jobs of our hooks in the edits of a spec, [] for a spec of another program."""
    return [of_hook(hook) for hook in edits.get("hooks") or () if is_ours(hook)]


def hooks_in(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return our `apply` hooks in a config.json: an engine that applied our CDI spec added them."""
    return [hook for hook in _create_container_hooks(spec) if is_ours(hook)]


def is_beside_toolkit(spec: Mapping[str, Any]) -> bool:
    """Return whether a hook of NVIDIA's toolkit makes a config.json's loader cache.

    gpuhook's hook under NVIDIA's name is such a hook, too. Hooks see each other only in
    config.json.
    """
    return any(_LDCACHE in args for args in hook_arguments(spec))


def hook_arguments(spec: Mapping[str, Any]) -> list[list[Any]]:
    """Return the arguments of a config.json's createContainer hooks, without malformed ones."""
    hooks = [hook for hook in _create_container_hooks(spec) if isinstance(hook, dict)]
    return [hook["args"] for hook in hooks if isinstance(hook.get("args"), list)]


def _create_container_hooks(spec: Mapping[str, Any]) -> list[Any]:
    hooks = spec.get("hooks")
    stage = hooks.get("createContainer") if isinstance(hooks, dict) else None
    return stage if isinstance(stage, list) else []


def of_hook(hook: Mapping[str, object]) -> Jobs:
    """Return the jobs of one of our hooks, in the OCI or the CDI shape; GH1640 as parse()."""
    args = hook.get("args")
    words = [str(word) for word in args] if isinstance(args, list) else []
    return parse(words[2:], hook_path=str(hook.get("path")))


def parse(args: list[str], hook_path: str = "") -> Jobs:
    """Return the jobs in `args` (after the verb); GH1640 for malformed or unknown arguments."""
    _require_release(args)
    jobs = Jobs(hook_path)
    position = 0
    while position < len(args):
        option = args[position]
        if option.startswith(OPTIONAL) and is_text(option):
            jobs.optional.append(option)
            position += 1
            continue
        if option in _SWITCHES:
            setattr(jobs, _SWITCHES[option], True)
            position += 1
            continue
        if position + 1 >= len(args):
            raise fault("GH1640", argument=option, reason="it lacks its value")
        _set(jobs, option, args[position + 1])
        position += 2
    return jobs


def _set(jobs: Jobs, option: str, value: str) -> None:
    if not is_text(value):
        raise fault("GH1640", argument=option, reason=f"{value!r} is not an argument of a program")
    if option in _READERS:
        _READERS[option](jobs, option, value)
    elif option in _TEXT:
        if option == "--ldconfig":
            _absolute(option, value)
        setattr(jobs, _TEXT[option], value)
    else:
        reason = f"release {__version__} has no such option"
        raise fault("GH1640", argument=option, reason=reason)


def _require_release(args: list[str]) -> None:
    """Raise GH2143 if the arguments are for a newer release than this one."""
    if SINCE not in args[:-1]:
        return
    since = args[args.index(SINCE) + 1]
    if _release(SINCE, since) > _release(SINCE, __version__):
        raise fault("GH2143", since=since, version=__version__)


def _release(option: str, text: str) -> tuple[int, ...]:
    parts = text.partition("+")[0].split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < _MAX_DIGITS for part in parts):
        raise fault("GH1640", argument=option, reason=f"{text!r} is not a release")
    return tuple(map(int, parts))


_SWITCHES = {"--driver-params": "driver_params", "--whole": "whole"}


def _add_library(jobs: Jobs, option: str, value: str) -> None:
    path, _, soname = value.rpartition("=")
    _absolute(option, path)
    if not soname or "/" in soname:
        raise fault("GH1640", argument=option, reason=f"{value!r} has no SONAME")
    jobs.libraries.append((path, soname))


def _add_link(jobs: Jobs, option: str, value: str) -> None:
    target, found, path = value.partition("::")
    _absolute(option, path)
    if not found or not target:
        raise fault("GH1640", argument=option, reason=f"{value!r} is not TARGET::PATH")
    jobs.links.append((target, path))


def _add_chmod(jobs: Jobs, option: str, value: str) -> None:
    mode, _, path = value.partition(":")
    _absolute(option, path)
    if not mode or mode.strip("01234567") or int(mode, 8) > _MOST_BITS:
        raise fault("GH1640", argument=option, reason=f"{mode!r} is not a mode of a directory")
    jobs.chmod.append((int(mode, 8), path))


def _add_gpus(jobs: Jobs, option: str, value: str) -> None:
    minors, found, sort = value.partition("=")
    capability, comma, brand = sort.partition(",")
    if not minors or not found or not comma:
        raise fault("GH1640", argument=option, reason=f"{value!r} is not MINORS=ARCH,BRAND")
    jobs.gpus.append((minors, capability, brand))


def _add_needs(jobs: Jobs, option: str, value: str) -> None:
    capabilities, _, path = value.partition("=")
    _absolute(option, path)
    jobs.needs[path] = frozenset(capabilities.split(","))


def _add_skipped(jobs: Jobs, option: str, value: str) -> None:
    if value not in _SKIPPABLE:
        raise fault("GH1640", argument=option, reason=f"there is no such job: {value!r}")
    jobs.skipped.append(value)


_READERS = {
    "--chmod": _add_chmod,
    "--gpus": _add_gpus,
    "--library": _add_library,
    "--link": _add_link,
    NEEDS: _add_needs,
    "--skip": _add_skipped,
}
_TEXT = {
    "--cuda-compat": "cuda_compat",
    "--cuda-version": "cuda_version",
    "--driver-version": "driver_version",
    "--fingerprint": "fingerprint",
    "--host-root": "host_root",
    "--ldconfig": "ldconfig",
    "--libcuda": "libcuda",
    SINCE: "since",
}
_MAX_DIGITS = 9
_DEFAULTS = {"--host-root": "/"}
_MOST_BITS = 0o777  # no set-uid bits


def _absolute(option: str, path: str) -> None:
    if not path.startswith("/"):
        raise fault("GH1640", argument=option, reason=f"{path!r} is not an absolute path")
