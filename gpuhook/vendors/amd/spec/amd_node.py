# SPDX-License-Identifier: Apache-2.0
"""The node that a CDI spec describes: this machine, another root, or a dump."""

from __future__ import annotations

from collections import Counter

from gpuhook.cdi.hot import compiled_spec
from gpuhook.cdi.hot.registry import Registry
from gpuhook.host.hot import state
from gpuhook.vendors.amd.hot import amd_sysfs, amd_words
from gpuhook.vendors.amd.hot.amd_plan_node import AmdPlanNode
from gpuhook.vendors.amd.hot.amd_words import DRM
from gpuhook.vendors.amd.inventory import amd_dump, inventory_worker
from gpuhook.vendors.amd.inventory.amd_inventory import AmdDriver
from gpuhook.vendors.amd.spec import amd_selection, amd_spec
from gpuhook.vendors.inventory.gpu_summary import GpuSummary, ProofDevice, ProofWay
from gpuhook.vendors.inventory.vendor_inventory import NodeDescription
from gpuhook.vendors.spec.spec_choices import DESCRIBED, SpecChoices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.spec.spec_choices import DescribedDevices

_PROOF = ProofWay(
    variable=amd_words.VOCABULARY.devices_env,
    kind=amd_words.KIND,
    runtime="amd",
    program=("ls", DRM),
    pattern="(renderD[0-9]+)",
    copies=("ls",),
)


def absence(host_root: str, inventory: str | None = None) -> str:
    """Return why a node has no AMD GPU for containers, "" if it may have one.

    A processor's graphics are often not in KFD: a node with only these is one without AMD GPUs.
    """
    if inventory is not None:
        node = amd_dump.load(inventory)
        return "" if node.gpus else amd_selection.NO_GPU
    root = host_root.rstrip("/")
    if amd_sysfs.gpu_addresses(root):
        return "" if amd_sysfs.has_kfd_gpu(root) else amd_selection.NOT_IN_KFD
    return amd_selection.NO_GPU if amd_sysfs.is_loaded(root) else amd_selection.NO_DRIVER


def describe(choices: SpecChoices) -> DescribedDevices:
    """Return the CDI spec of a node; raises what amd_spec.describe() raises."""
    if choices.inventory is not None:
        node = amd_dump.load(choices.inventory)
    else:
        node = inventory_worker.read(choices.host_root, choices.dev_root)
    return amd_spec.describe(node, choices)


def described_node(node: AmdNode, *, is_here: bool, may_be_empty: bool) -> NodeDescription:
    """Return the node of an inventory; raises what amd_spec.describe() raises."""
    layer, warnings = [], node.warnings
    if node.gpus or not may_be_empty:
        root = state.host_root()
        choices = SpecChoices(host_root=root, dev_root=root, has_numbers=not is_here)
        found = amd_spec.describe(node, choices)
        layer, warnings = [compiled_spec.of_spec(DESCRIBED, found.spec)], found.warnings
    registry = Registry([DESCRIBED], [layer], amd_words.VENDOR)
    return NodeDescription(AmdPlanNode(lambda _vendor, _way: registry, is_here=is_here), warnings)


def summary(host_root: str) -> GpuSummary | None:
    """Return the GPUs of a node, None without any; a container shows its render nodes."""
    if absence(host_root):
        return None
    node = inventory_worker.read(host_root, host_root)
    driver = node.driver or AmdDriver()
    version = driver.version or driver.kernel or ""
    counts = Counter(gpu.name or f"AMD GPU {gpu.device_id or ''}".rstrip() for gpu in node.gpus)
    pairs, _ = amd_selection.chosen(node, ())
    proofs = (
        ProofDevice(str(one.index), one.render_path.removeprefix(DRM), _PROOF) for _, one in pairs
    )
    return GpuSummary(
        driver=f"amdgpu {version}".rstrip(),
        gpus=tuple(f"{count} x {name}" for name, count in counts.items()),
        device=next(proofs, None),
    )
