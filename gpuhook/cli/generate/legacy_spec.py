# SPDX-License-Identifier: Apache-2.0
"""A spec of gpuhook's of which nobody has noted how it was made: told from the spec itself.

After a boot the notes below /run are gone, and a spec in /etc/cdi is still there. What it was
limited to cannot be told, so it is written again only if what is written has the same devices and
no more of the driver.
"""

from __future__ import annotations

import os

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compiled_spec
from gpuhook.cli.generate import generate_call
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.spec.generate_options import DEFAULT_HOOK_PATH
from gpuhook.vendors.nvidia.warm import hook_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs

# Each of another driver capability: a spec without one of them was limited.
_TELLING = {"libcuda", "libnvidia-ml", "libnvidia-encode", "libGLX_nvidia"}
_CONTROL = "/dev/nvidiactl"


def words(found: Compiled, job: Jobs) -> list[str]:
    """Return the options of generate-cdi that a spec shows; `job` is its hook's."""
    vendor, _, device_class = found.kind.partition("/")
    given = ["--vendor", vendor, "--class", device_class, "--host-root", job.host_root]
    names = [name for name in found.names() if name != device_selection.EVERY]
    for strategy in dict.fromkeys(map(device_selection.strategy, names)):
        given += ["--device-name-strategy", strategy]
    if len(names) == len(found.names()):
        given.append("--no-all-device")
    if job.hook_path not in ("", DEFAULT_HOOK_PATH):
        given += ["--hook-path", job.hook_path]
    disabled, enabled = hook_names.chosen_hooks(job)
    for option, hooks in (("--disable-hook", disabled), ("--enable-hook", enabled)):
        given += [word for name in sorted(hooks) for word in (option, name)]
    if job.ldconfig:
        given += ["--ldconfig-path", job.ldconfig]
    for option, root in (("driver", _driver_root(found)), ("dev", _dev_root(found))):
        given += [f"--{option}-root", root]
    return [*given, "--output", found.path]


def require_same(found: Compiled, given: tuple[str, ...], root: click.Context) -> None:
    """Raise GH1527 where `given` would describe other devices, or more files, than `found`.

    Raises also as describing does.
    """
    now = spec_file.parser(".json")(generate_call.text(given, "json", root).encode(), found.path)
    new = compiled_spec.of_spec(found.path, now)
    if set(new.names()) != set(found.names()):
        raise fault("GH1527", path=found.path, what="its devices are not those of the node now")
    more = sorted((_stems(new) & _TELLING) - _stems(found))
    if more:
        raise fault("GH1527", path=found.path, what=f"it was made without {', '.join(more)}")


def _stems(found: Compiled) -> set[str]:
    mounts = found.edits.get("mounts") or ()
    return {os.path.basename(mount["containerPath"]).partition(".so")[0] for mount in mounts}


def _driver_root(found: Compiled) -> str:
    """Return the root that the driver is below: where a library is on the host shows it."""
    for mount in found.edits.get("mounts") or ():
        host, inside = mount["hostPath"], mount["containerPath"]
        if ".so." in inside and host.endswith(inside):
            return host[: -len(inside)] or "/"
    return "/"


def _dev_root(found: Compiled) -> str:
    for node in found.edits.get("deviceNodes") or ():
        if node["path"] == _CONTROL:
            return (node.get("hostPath") or _CONTROL)[: -len(_CONTROL)] or "/"
    return "/"
