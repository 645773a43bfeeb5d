# SPDX-License-Identifier: Apache-2.0
"""The OCI hooks in hooks.d directories, see oci-hooks(5)."""

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
    """A hook file and its program, "" if the file is not valid."""

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
    """Return the hooks of the directories; a later directory has precedence."""
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
        return OciHook(path, "", f"is not JSON: {error}")
    if not isinstance(document, dict):
        return OciHook(path, "", "is not a JSON object")
    # In version 0.1.0, the value of "hook" is the program.
    program = toml_document.text(
        toml_document.table(document, "hook").get("path")
    ) or toml_document.text(document.get("hook"))
    return OciHook(path, program, "" if program else "names no program")
