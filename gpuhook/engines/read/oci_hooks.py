# SPDX-License-Identifier: Apache-2.0
"""OCI hooks that engines run for containers which they choose, after oci-hooks(5)."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from gpuhook.engines.read import toml_document
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.read.config_files import ConfigFiles

NVIDIA_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
GPUHOOK_HOOKS = ("gpuhook-prestart", "gpuhook-hook")


@dataclass(frozen=True, slots=True)
class OciHook:
    """A hook file: the program that it has run, "" if the file cannot be understood."""

    file: str
    path: str
    reason: str = ""

    @property
    def gives_gpus(self) -> bool:
        """Whether its program is NVIDIA's or gpuhook's hook."""
        name = posixpath.basename(self.path)
        return name.removesuffix(".real") in NVIDIA_HOOKS or self.is_gpuhooks

    @property
    def is_gpuhooks(self) -> bool:
        """Whether its program is gpuhook's hook."""
        return posixpath.basename(self.path).startswith(GPUHOOK_HOOKS)


def read(files: ConfigFiles, directories: Iterable[str]) -> tuple[OciHook, ...]:
    """Return the hooks of directories, of which a later one has the higher precedence."""
    chosen: dict[str, str] = {}
    for directory in directories:
        for name in files.names(directory):
            if name.endswith(".json"):
                chosen[name] = f"{directory}/{name}"
    return tuple(_hook(path, files.read(path) or b"") for _, path in sorted(chosen.items()))


def _hook(path: str, content: bytes) -> OciHook:
    try:
        document = documents.parse_json(content)
    except ValueError as error:
        return OciHook(path, "", f"is no JSON: {error}")
    if not isinstance(document, dict):
        return OciHook(path, "", "is no JSON object")
    # Version 0.1.0 has the program under "hook" itself.
    program = toml_document.text(
        toml_document.table(document, "hook").get("path")
    ) or toml_document.text(document.get("hook"))
    return OciHook(path, program, "" if program else "names no program")
