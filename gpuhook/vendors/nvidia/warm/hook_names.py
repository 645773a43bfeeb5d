# SPDX-License-Identifier: Apache-2.0
"""The hooks of NVIDIA's container toolkit by name, and the equivalent jobs of our hook.

Source: the toolkit's --disable-hook and --enable-hook. Its `chmod` is off unless enabled.
"""

from __future__ import annotations

from gpuhook.apply.rootfs import hook_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.vendors.nvidia.spec.generate_options import Choices

LINKS = "create-symlinks"
LOADER = "update-ldcache"
CUDA_COMPAT = "enable-cuda-compat"
PARAMS = "disable-device-node-modification"
PROFILE = "update-application-profile"
CHMOD = "chmod"
EVERY = "all"
_ON = (LINKS, LOADER, CUDA_COMPAT, PARAMS, PROFILE)
NAMES = (*_ON, CHMOD)
_SKIPPED = {LINKS: hook_args.LINKS, LOADER: hook_args.LOADER, PROFILE: hook_args.PROFILE}


def chosen(disabled: tuple[str, ...], enabled: tuple[str, ...]) -> frozenset[str]:
    """Return the disabled names; `all` means each, but never one of `enabled`."""
    named = NAMES if EVERY in disabled else disabled
    return frozenset(named) - frozenset(enabled)


def enabled_hooks(choices: Choices) -> frozenset[str]:
    """Return the names of the enabled hooks."""
    return choices.enabled_hooks.union(_ON) - choices.disabled_hooks


def skipped(enabled: frozenset[str]) -> list[str]:
    """Return the values of `--skip`: disabled jobs that follow from the driver's libraries."""
    return [word for name, word in _SKIPPED.items() if name not in enabled]


def chosen_hooks(job: Jobs) -> tuple[frozenset[str], frozenset[str]]:
    """Return (the disabled names, the enabled ones) that the arguments of a hook imply.

    If a driver's parameters need no mask, it is unknown whether that hook was disabled.
    """
    disabled = {name for name, word in _SKIPPED.items() if word in job.skipped}
    if not job.cuda_compat and any(soname == "libcuda.so.1" for _, soname in job.libraries):
        disabled.add(CUDA_COMPAT)
    return frozenset(disabled), frozenset((CHMOD,) if job.chmod else ())
