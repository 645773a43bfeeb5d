# SPDX-License-Identifier: Apache-2.0
"""A spec of gpuhook's written anew, as it was: with its kind, its names and its hook.

Without a note of how it was made, that is offered only where the node's devices are those that the
spec has, so that nobody gets more than before.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compiled_spec
from gpuhook.doctor.check import Mend
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import driver_user_space
from gpuhook.doctor.facts import spec_facts as specs
from gpuhook.entry import cold_command
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.spec import device_selection, spec_records
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from gpuhook.vendors.nvidia.warm import hook_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.spec_facts import SpecFile
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs
    from gpuhook.vendors.nvidia.inventory import inventory


def mend(node: ExaminedNode, one: SpecFile) -> Mend | None:
    """Return what writes the spec again, None where that is not ours, or might change what it is.

    Where generate-cdi has noted how it was made, it is made so again. Without, a spec with a part
    of the GPUs, or of the driver's files, may be meant so.
    """
    if node.tree.root == "/" and one.path in {made.path for made in spec_records.all_of_node()}:
        return Mend(f"write {one.path} again, with the options that it was made with", _refresh)
    known, jobs = facts.inventory_of(node), one.jobs()
    if one.author != specs.GPUHOOK or known is None or not jobs or node.tree.root != "/":
        return None
    if any(job.whole for job in jobs):
        return None  # a Tegra's: NVML alone does not tell what is in it
    choices = _choices(one, jobs[0])
    if set(one.device_names) != set(_names(known, choices)) or not _is_whole(one):
        return None
    root = driver_user_space.driver_user_space(node).root
    return Mend(f"write {one.path} again for this node", partial(write, one.path, choices, root))


def _refresh() -> None:
    """Let `gpuhook refresh` write this node's specs again; raises GH1122 where it fails."""
    trouble = cold_command.Compiler(sys.argv[0]).refresh(lambda: True, "--force")
    if trouble:
        raise fault("GH1122", reason=trouble)


def _choices(one: SpecFile, job: Jobs) -> Choices:
    """Return the choices that a spec was made by, as far as it shows them."""
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


def _names(known: inventory.Node, choices: Choices) -> Iterable[str]:
    """Yield the names that a spec of the node's devices has."""
    for gpu in known.gpus:
        for instance in device_selection.offered(gpu) if gpu.lost is None else ():
            yield from device_selection.names(gpu, choices.strategies, instance)
    if choices.with_all:
        yield device_selection.EVERY


def _is_whole(one: SpecFile) -> bool:
    """Return whether a spec was made for all capabilities, as far as its files show."""
    names = [mount["containerPath"].rpartition("/")[2] for mount in one.items("mounts")]
    stems = {name.partition(".so")[0] for name in names}
    return {"libcuda", "libnvidia-ml", "libnvidia-encode", "libGLX_nvidia"} <= stems


def write(path: str, choices: Choices, driver_root: str = "/") -> None:
    """Describe this machine and write its spec, as generate-cdi does.

    Raises OSError, and the faults of asking the driver, of describing, and of writing (GH1111).
    """
    from gpuhook.cdi import validate  # with jsonschema, which only who mends needs
    from gpuhook.vendors.nvidia.inventory import discover, dump_file

    node = discover.node(discover.roots(driver_root, None, choices.host_root))
    found = describe(node, choices)
    validate.check(found.spec, path)
    spec_file.write(found.spec, path, path.rpartition(".")[2])
    compiled_spec.store(path, os.stat(path), found.spec)
    dump_file.write_node_json(node, device_selection.aliases(found.gpus, choices.strategies), path)
