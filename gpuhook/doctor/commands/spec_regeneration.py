# SPDX-License-Identifier: Apache-2.0
"""Writes a CDI spec of gpuhook again with the options that it was made with.

If there is no record of these options, the spec is written again only if the node's devices are
those of the spec, so that no container gets more than before.
"""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compiled_spec
from gpuhook.entry import cold_command
from gpuhook.errors import fault
from gpuhook.node_facts.check import Fix
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import driver_user_space
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs as specs
from gpuhook.vendors.nvidia.spec import device_selection, spec_records
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from gpuhook.vendors.nvidia.warm import hook_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.node_facts.cdi_specs import SpecFile
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.vendors.nvidia.inventory.inventory import Node as Inventory
    from gpuhook.vendors.nvidia.spec.spec_records import Generated


def spec_fix(node: ExaminedNode, one: SpecFile) -> Fix | None:
    """Return the fix that writes the spec again, None if that might change what it gives.

    generate-cdi records the options of a spec. Without that record, a spec with a part of the GPUs
    or of the driver's files may be intended.
    """
    if _record(node, one) is not None:
        return Fix(f"regenerate {one.path} with its original options", _refresh)
    inventory, jobs = facts.inventory_of(node), one.jobs()
    if one.author != specs.GPUHOOK or inventory is None or not jobs or node.tree.root != "/":
        return None
    if any(job.whole for job in jobs):
        return None  # of a Tegra: NVML does not have all that it contains
    choices = _choices(one, jobs[0])
    if set(one.device_names) != set(_names(inventory, choices)) or not _is_whole(one):
        return None
    root = driver_user_space.driver_user_space(node).root
    return Fix(f"regenerate {one.path} for this node", partial(write, one.path, choices, root))


def command_with_installed_hook(node: ExaminedNode, one: SpecFile, hook: str) -> str:
    """Return the command that writes a spec again without its option --hook-path.

    It is "" if that option of the spec was not `hook`: gpuhook then chooses the hook.
    """
    made = _record(node, one)
    if made is None or hook not in made.words:
        return ""
    at = made.words.index(hook)
    words = made.words[: at - 1] + made.words[at + 1 :]
    return shlex.join(["gpuhook", "generate-cdi", *words])


def _record(node: ExaminedNode, one: SpecFile) -> Generated | None:
    """Return the record of a spec, None without one, and for a tree of another node."""
    records = spec_records.all_of_node() if node.tree.root == "/" else []
    return next((made for made in records if made.path == one.path), None)


def _refresh() -> None:
    """Run `gpuhook refresh`; raises GH1122 if it fails."""
    trouble = cold_command.Compiler(sys.argv[0]).refresh(lambda: True, "--force")
    if trouble:
        raise fault("GH1122", reason=trouble)


def _choices(one: SpecFile, job: Jobs) -> Choices:
    """Return the options that a spec was made with, as far as it shows them."""
    vendor, _, device_class = one.kind.partition("/")
    disabled, enabled = hook_names.chosen_hooks(job)
    return Choices(
        vendor=vendor,
        device_class=device_class,
        strategies=tuple(dict.fromkeys(map(device_selection.strategy, _own_names(one)))),
        with_all=device_selection.EVERY in one.device_names,
        hook_path=job.hook_path,
        host_root=job.host_root,
        disabled_hooks=disabled,
        enabled_hooks=enabled,
        ldconfig_path=job.ldconfig,
    )


def _own_names(one: SpecFile) -> list[str]:
    return [name for name in one.device_names if name != device_selection.EVERY]


def _names(node: Inventory, choices: Choices) -> Iterable[str]:
    """Yield the device names that a new spec of the node would have."""
    for gpu in node.gpus:
        for instance in device_selection.offered(gpu) if gpu.lost is None else ():
            yield from device_selection.names(gpu, choices.strategies, instance)
    if choices.with_all:
        yield device_selection.EVERY


def _is_whole(one: SpecFile) -> bool:
    """Return whether a spec has the driver's files for all capabilities."""
    names = [mount["containerPath"].rpartition("/")[2] for mount in one.items("mounts")]
    stems = {name.partition(".so")[0] for name in names}
    return {"libcuda", "libnvidia-ml", "libnvidia-encode", "libGLX_nvidia"} <= stems


def write(path: str, choices: Choices, driver_root: str = "/") -> None:
    """Write the spec of this machine, as generate-cdi does.

    Raises OSError, GH1111, and the faults of the inventory and of the spec generator.
    """
    from gpuhook.cdi import validate  # late: it imports jsonschema
    from gpuhook.vendors.nvidia import discover
    from gpuhook.vendors.nvidia.inventory import dump_file

    node = discover.node(discover.roots(driver_root, None, choices.host_root))
    found = describe(node, choices)
    validate.check(found.spec, path)
    spec_file.write(found.spec, path, path.rpartition(".")[2])
    compiled_spec.store(path, os.stat(path), found.spec)
    dump_file.write_node_json(node, device_selection.aliases(found.gpus, choices.strategies), path)
