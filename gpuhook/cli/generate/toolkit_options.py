# SPDX-License-Identifier: Apache-2.0
"""The names of generate-cdi's options in `nvidia-ctk cdi generate` of NVIDIA's toolkit.

Unit files and scripts for the toolkit work unchanged. --help does not list these names. A variable
of the toolkit applies if neither the option nor gpuhook's variable is set, and takes precedence
over the settings file; its lists are separated by commas.
"""

from __future__ import annotations

import os
from typing import Any

import click

from gpuhook.apply.rootfs.hook_args import HOOK_NAME
from gpuhook.cli.generate import generate_argv, generate_section

HOOK_PATH = "--hook-path"
_FOREIGN_HOOK = "gpuhook.foreign_hook"
# gpuhook's option -> the toolkit's.
_OPTIONS = {
    "--mode": ("--discovery-mode",),
    "--vendor": ("--cdi-vendor",),
    "--class": ("--cdi-class",),
    "--device-id": ("--device-ids", "--device", "--devices"),
    "--device-name-strategy": ("--device-name-strategies",),
    "--library-search-path": ("--library-search-paths",),
    "--config-search-path": ("--config-search-paths",),
    "--feature-flag": ("--feature-flags",),
    "--disable-hook": ("--disable-hooks",),
    "--enable-hook": ("--enable-hooks",),
    HOOK_PATH: ("--nvidia-cdi-hook-path", "--nvidia-ctk-path"),
    "--csv-file": ("--csv.file",),
    "--csv-ignore-pattern": ("--csv.ignore-pattern",),
    "--csv-compat-container-root": ("--csv.compat-container-root",),
}
ALIASES = {alias: own for own, aliases in _OPTIONS.items() for alias in aliases}
_GENERATE = "NVIDIA_CTK_CDI_GENERATE_"
VARIABLES = {
    "--output-file": "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH",
    "--format": _GENERATE + "OUTPUT_FORMAT",
    "--mode": _GENERATE + "MODE",
    "--driver-root": "NVIDIA_CTK_DRIVER_ROOT",
    "--dev-root": "NVIDIA_CTK_DEV_ROOT",
    "--device-name-strategy": _GENERATE + "DEVICE_NAME_STRATEGIES",
    "--vendor": _GENERATE + "VENDOR",
    "--class": _GENERATE + "CLASS",
    HOOK_PATH: "NVIDIA_CTK_CDI_HOOK_PATH",
    "--ldconfig-path": _GENERATE + "LDCONFIG_PATH",
    "--library-search-path": _GENERATE + "LIBRARY_SEARCH_PATHS",
    "--config-search-path": _GENERATE + "CONFIG_SEARCH_PATHS",
    "--disable-hook": _GENERATE + "DISABLED_HOOKS",
    "--enable-hook": _GENERATE + "ENABLED_HOOKS",
    "--feature-flag": _GENERATE + "FEATURE_FLAGS",
    "--no-all-device": _GENERATE + "NO_ALL_DEVICE",
    "--device-id": _GENERATE + "DEVICE_IDS",
    "--csv-file": _GENERATE + "CSV_FILES",
    "--csv-ignore-pattern": _GENERATE + "CSV_IGNORE_PATTERNS",
    "--csv-compat-container-root": _GENERATE + "CSV_CONTAINER_COMPAT_ROOT",
}


class ToolkitCommand(generate_section.Configured):
    """A command that also accepts the toolkit's names of its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args`, with the toolkit's names in them and in the environment replaced."""
        found = self._environment(ctx)
        ctx.default_map = {**(ctx.default_map or {}), **found}
        ctx.meta[generate_argv.ADOPTED] = frozenset(found)
        return super().parse_args(ctx, self._renamed(ctx, args))

    def _options(self) -> dict[str, click.Option]:
        options = (param for param in self.params if isinstance(param, click.Option))
        return {name: option for option in options for name in option.opts}

    def _environment(self, ctx: click.Context) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, option in self._options().items():
            text = os.environ.get(VARIABLES.get(name, ""), "")
            if not text or option.name is None:
                continue
            if name == HOOK_PATH and not _is_our_hook(text):
                ctx.meta[_FOREIGN_HOOK] = text
            else:
                found[option.name] = text.split(",") if option.multiple else text
        return found

    def _renamed(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return `args` with gpuhook's names; values of options are unchanged."""
        options = self._options()
        renamed: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                return [*renamed, word, *words]
            name, equals, value = word.partition("=")
            own = ALIASES.get(name, name)
            takes_value = own in options and not options[own].is_flag
            if takes_value and not equals:
                following = next(words, None)
                pair = [own] if following is None else [own, following]
            else:
                pair = [own + equals + value]
            given = value if equals else pair[-1]
            if name != own == HOOK_PATH and len(pair) + len(equals) > 1 and not _is_our_hook(given):
                ctx.meta[_FOREIGN_HOOK] = given
                continue
            renamed += pair
        return renamed


def _is_our_hook(path: str) -> bool:
    return os.path.basename(path) == HOOK_NAME


def foreign_hook(ctx: click.Context) -> str:
    """Return the hook program of the toolkit that the options name, "" for none.

    It is ignored: it does not understand the jobs of gpuhook's hook.
    """
    path: str = ctx.meta.get(_FOREIGN_HOOK, "")
    return path
