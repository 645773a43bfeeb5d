# SPDX-License-Identifier: Apache-2.0
"""Graphics in containers: a spec mounts the library of each ICD that it mounts."""

from __future__ import annotations

import posixpath

from gpuhook.doctor.checks.cdi.specs import DRIVER, each
from gpuhook.host import documents
from gpuhook.node_facts.check import WARNING, Finding, absent, check, ok
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import driver_packages, driver_user_space
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs as specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from gpuhook.node_facts.cdi_specs import SpecFile
    from gpuhook.node_facts.check import ExaminedNode, Findings

_DIRECTORIES = ("/vulkan/", "/egl_vendor.d/", "/egl_external_platform.d/")
_KEY = "library_path"
_32_BIT = ("/usr/lib/i386-linux-gnu", "/usr/lib32", "/usr/lib")
_64_BIT = ("/usr/lib64", "/lib64")


@check(
    "specs.graphics",
    "The specs include the libraries that their Vulkan and EGL files refer to",
    needs=(DRIVER, "specs.mounts"),
)
@each
def _icds(node: ExaminedNode, one: SpecFile) -> Findings:
    files = [m["hostPath"] for m in one.items("mounts") if _is_icd(m["containerPath"])]
    if not files:
        return absent(f"{one.path} mounts no Vulkan or EGL files", one.path)
    mounted = {posixpath.basename(mount["containerPath"]) for mount in one.items("mounts")}
    found = [finding for path in files for finding in _icd(node, one, path, mounted)]
    return found or [ok(f"{one.path} includes the Vulkan and EGL libraries", one.path, *files)]


def _is_icd(path: str) -> bool:
    return path.endswith(".json") and any(place in path for place in _DIRECTORIES)


def _icd(node: ExaminedNode, one: SpecFile, path: str, mounted: set[str]) -> Iterable[Finding]:
    content = node.tree.read(path)
    if content is None:
        return  # specs.mounts reports a missing file
    try:
        libraries = list(_libraries(documents.parse_json(content)))
    except ValueError as error:
        message = f"{path} is not valid JSON: {error}"
    else:
        lacking = [name for name in libraries if not _has(posixpath.basename(name), mounted)]
        if not lacking:
            return
        message = f"{path} refers to {', '.join(lacking)}, which {one.path} does not mount"
    branch = (
        facts.module_version(node) or driver_user_space.driver_user_space(node).version
    ).partition(".")[0]
    yield Finding(
        WARNING,
        message,
        subject=path,
        meaning='graphics find no GPU in containers: vulkaninfo prints "Found no drivers!" '
        "(ERROR_INCOMPATIBLE_DRIVER), and EGL finds no device or only llvmpipe",
        command=f"{driver_packages.graphics(node.tree, branch)} && "
        f"{specs.rewrite_command(node, one)}",
        looked_at=(path, one.path),
    )


def _libraries(value: Any) -> Iterator[str]:
    """Yield each library_path in a manifest; the depth depends on its kind, and has no limit."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if isinstance(one.get(_KEY), str):
                yield one[_KEY]
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)


def _has(name: str, mounted: set[str]) -> bool:
    """Return whether a library is mounted, under its name or with a version."""
    stem = name.partition(".so")[0] + ".so"
    return any(other == name or other.startswith(stem + ".") for other in mounted)


@check("specs.compat32", "Containers get 32-bit libraries", needs=(DRIVER,))
@each
def _compat32(_node: ExaminedNode, one: SpecFile) -> Findings:
    directories = {posixpath.dirname(m["containerPath"]) for m in one.items("mounts")}
    has_lib64 = directories & set(_64_BIT)  # then /usr/lib has the 32-bit ones
    if directories & set(_32_BIT[: 3 if has_lib64 else 2]):
        return ok(f"{one.path} has 32-bit libraries", one.path)
    message = f"{one.path} has no 32-bit libraries: Steam and Wine need them, CUDA does not"
    return absent(message, one.path)


CHECKS = (_icds, _compat32)
