# SPDX-License-Identifier: Apache-2.0
"""The options of a spec of gpuhook without a record, derived from the spec.

A boot removes the records below /run, but not a spec in /etc/cdi. The spec does not show its device
selection, so it is written again only if the new one has the same devices and no further driver
parts.
"""

from __future__ import annotations

import os

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.spec import device_selection
from gpuhook.vendors.nvidia.warm import hook_names
from gpuhook.vendors.spec_choices import DEFAULT_HOOK_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.compiled_spec import Compiled

# One library for each driver capability: a spec without one of them was limited.
_CAPABILITY_LIBRARIES = {"libcuda", "libnvidia-ml", "libnvidia-encode", "libGLX_nvidia"}
_CONTROL = "/dev/nvidiactl"


def words(found: Compiled, job: Jobs) -> list[str]:
    """Return the options of generate-cdi for a spec; `job` is the job of its hook."""
    vendor, _, device_class = found.kind.partition("/")
    given = ["--vendor", vendor, "--class", device_class, "--host-root", job.host_root]
    names = [name for name in found.names() if name != device_selection.EVERY]
    for strategy in dict.fromkeys(map(device_selection.strategy, names)):
        given += ["--device-name-strategy", strategy]
    if len(names) == len(found.names()):
        given.append("--no-all-device")
    if job.hook_path != DEFAULT_HOOK_PATH and os.access(job.hook_path, os.X_OK):
        given += ["--hook-path", job.hook_path]
    disabled, enabled = hook_names.chosen_hooks(job)
    for option, hooks in (("--disable-hook", disabled), ("--enable-hook", enabled)):
        given += [word for name in sorted(hooks) for word in (option, name)]
    if job.ldconfig:
        given += ["--ldconfig-path", job.ldconfig]
    given += ["--driver-root", _driver_root(found), "--dev-root", _dev_root(found)]
    return [*given, "--output-file", found.path]


def require_same(found: Compiled, new: Compiled) -> None:
    """Raise GH1527 if the spec `new` describes other devices, or more files, than `found`."""
    if set(new.names()) != set(found.names()):
        raise fault("GH1527", path=found.path, what="the node now has different devices")
    more = sorted((_stems(new) & _CAPABILITY_LIBRARIES) - _stems(found))
    if more:
        raise fault("GH1527", path=found.path, what=f"it was generated without {', '.join(more)}")


def _stems(found: Compiled) -> set[str]:
    mounts = found.edits.get("mounts") or ()
    return {os.path.basename(mount["containerPath"]).partition(".so")[0] for mount in mounts}


def _driver_root(found: Compiled) -> str:
    """Return the driver root, by the host path of the first library.

    Other files may be elsewhere: the site's rules add any file on the host.
    """
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
