# SPDX-License-Identifier: Apache-2.0
"""Graphics in containers: each ICD that a spec mounts names a library that it mounts too."""

from __future__ import annotations

import posixpath

from gpuhook.doctor.check import SPECS, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.checks.cdi.specs import DRIVER, each
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import driver_user_space
from gpuhook.doctor.facts import spec_facts as specs
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.spec_facts import SpecFile

_DIRECTORIES = ("/vulkan/", "/egl_vendor.d/", "/egl_external_platform.d/")
_KEY = "library_path"
_32_BIT = ("/usr/lib/i386-linux-gnu", "/usr/lib32", "/usr/lib")
_64_BIT = ("/usr/lib64", "/lib64")


def _icds(node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    files = [m["hostPath"] for m in one.items("mounts") if _is_icd(m["containerPath"])]
    if not files:
        return [absent(f"{one.path} mounts no files of Vulkan or EGL", one.path)]
    mounted = {posixpath.basename(mount["containerPath"]) for mount in one.items("mounts")}
    found = [finding for path in files for finding in _icd(node, one, path, mounted)]
    return found or [ok(f"Vulkan and EGL find their libraries by {one.path}", one.path, *files)]


def _is_icd(path: str) -> bool:
    return path.endswith(".json") and any(place in path for place in _DIRECTORIES)


def _icd(node: ExaminedNode, one: SpecFile, path: str, mounted: set[str]) -> Iterable[Finding]:
    content = node.tree.read(path)
    if content is None:
        return  # that a mounted file is missing is told elsewhere
    try:
        wanted = list(_libraries(documents.parse_json(content)))
    except ValueError:
        said = f"{path} is no JSON"
    else:
        lacking = [name for name in wanted if not _has(posixpath.basename(name), mounted)]
        if not lacking:
            return
        said = f"{path} names {', '.join(lacking)}, which {one.path} does not mount"
    branch = (
        facts.module_version(node) or driver_user_space.driver_user_space(node).version
    ).partition(".")[0]
    debian = f"libnvidia-gl-{branch}" if branch else "nvidia-driver-libs"
    yield Finding(
        WARNING,
        said,
        subject=path,
        meaning='graphics find no GPU in containers: vulkaninfo says "Found no drivers!" '
        "(ERROR_INCOMPATIBLE_DRIVER), and EGL finds no device or only llvmpipe",
        command=f"{facts.install(node, debian, 'nvidia-driver-libs')} && "
        f"{specs.rewrite(node, one)}",
        looked_at=(path, one.path),
    )


def _libraries(value: Any) -> Iterator[str]:
    """Yield each library_path in a manifest, at whatever depth its kind has it."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == _KEY and isinstance(item, str):
                yield item
            else:
                yield from _libraries(item)
    elif isinstance(value, list):
        for item in value:
            yield from _libraries(item)


def _has(name: str, mounted: set[str]) -> bool:
    """Return whether a library is mounted, as itself or as the file behind its SONAME."""
    stem = name.partition(".so")[0] + ".so"
    return any(other == name or other.startswith(stem + ".") for other in mounted)


def _compat32(_node: ExaminedNode, one: SpecFile) -> Iterable[Finding]:
    directories = {posixpath.dirname(m["containerPath"]) for m in one.items("mounts")}
    is_apart = directories & set(_64_BIT)  # then /usr/lib has the 32-bit ones
    if directories & set(_32_BIT[: 3 if is_apart else 2]):
        return [ok(f"{one.path} gives 32-bit libraries too", one.path)]
    said = f"{one.path} gives no 32-bit libraries: Steam and Wine need those, CUDA does not"
    return [absent(said, one.path)]


CHECKS: tuple[Check, ...] = (
    Check(
        "specs.graphics",
        SPECS,
        "The Vulkan and EGL files in the specs name libraries that are in them too",
        each(_icds),
        needs=(DRIVER, "specs.mounts"),
    ),
    Check(
        "specs.compat32",
        SPECS,
        "Whether containers get 32-bit libraries",
        each(_compat32),
        needs=(DRIVER,),
    ),
)
