# SPDX-License-Identifier: Apache-2.0
"""Mode wsl: the GPUs of Windows, all of which are behind one device node, /dev/dxg.

There is one device, `all`: WSL cannot give a container one GPU of several.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.driver import site_files, site_rules
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot
from gpuhook.vendors.nvidia.hot.host_fingerprint import fingerprint
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Driver, Node
from gpuhook.vendors.nvidia.modes import wsl_store
from gpuhook.vendors.nvidia.modes.platform import DXG
from gpuhook.vendors.nvidia.spec import device_selection, driver_edits, gpu_spec
from gpuhook.vendors.nvidia.spec.generate_options import Described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.modes.wsl_store import DriverStore
    from gpuhook.vendors.nvidia.spec.generate_options import Choices


def describe(where: Roots, choices: Choices) -> Described:
    """Return the spec of a WSL system.

    Raises GH1217 without /dev/dxg, GH1218 without a driver, GH1219 if single GPUs are requested,
    GH1243 to GH1245 for broken rules of the site.
    """
    others = [name for name in choices.device_ids if name != device_selection.EVERY]
    if others or not choices.with_all:
        raise fault("GH1219", what=", ".join(others) or "no device `all`")
    device = _device(where.dev)
    store = _store(where)
    common, missing = _common(where, choices, store)
    spec = gpu_spec.of_parts(choices.kind, [gpu_spec.whole_device([device], choices)], common)
    return Described(spec, (), (*store.warnings, *missing))


def _store(where: Roots) -> DriverStore:
    root = DriverRoot(where.driver)
    rules = site_rules.read(where.files_dir)
    store = wsl_store.find(root, where.library_search_paths)
    files, links, warnings = site_files.changed(rules, root, store.files, store.links)
    messages = (*store.warnings, *warnings)
    return replace(store, files=tuple(files), links=tuple(links), warnings=messages)


def _device(dev_root: str) -> DeviceNode:
    path = dev_root.rstrip("/") + DXG
    try:
        status = os.stat(path)
    except OSError as error:
        raise fault("GH1217", path=path, reason="no such device node") from error
    if not stat.S_ISCHR(status.st_mode):
        raise fault("GH1217", path=path, reason="it is not a character device")
    return DeviceNode.of_status(DXG, path, status)


def _common(where: Roots, choices: Choices, store: DriverStore) -> tuple[ContainerEdits, list[str]]:
    node = Node(
        driver=Driver(),
        files=store.files,
        links=store.links,
        fingerprint=fingerprint(where.host, store.witness),
    )

    def adjust(job: Jobs) -> None:
        job.cuda_compat, job.libcuda = "", store.witness

    found, missing = driver_edits.common(node, choices, adjust=adjust)
    if choices.hooks == "none":
        _keep_in_place(found, store)
    return found, missing


def _keep_in_place(edits: ContainerEdits, store: DriverStore) -> None:
    """Add the libraries at their own paths: without a hook they are bound elsewhere only.

    The front libraries open the others by path.
    """
    sources = {mount["hostPath"] for mount in edits["mounts"]}
    options = edits["mounts"][0]["options"]
    bound = {mount["containerPath"] for mount in edits["mounts"]}
    for file in store.files:
        if file.host_path in sources and file.container_path not in bound:
            edits["mounts"].append(
                {
                    "hostPath": file.host_path,
                    "containerPath": file.container_path,
                    "options": list(options),
                }
            )
