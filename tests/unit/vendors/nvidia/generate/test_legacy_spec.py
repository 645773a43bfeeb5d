# SPDX-License-Identifier: Apache-2.0
"""The options of a spec without a record."""

from __future__ import annotations

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi.hot import compiled_spec
from gpuhook.vendors.nvidia.generate import legacy_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import DeviceNode, Mount, Spec


def test_a_library_of_the_site_is_not_in_the_driver_root() -> None:
    """The site's rules add files of any directory: the first library is the driver's."""
    paths = {
        "/usr/lib/libcuda.so.1": "/usr/lib/libcuda.so.1",
        "/opt/site/usr/lib/libsite.so.1": "/usr/lib/libsite.so.1",
    }
    mounts: list[Mount] = [
        {"hostPath": host, "containerPath": inside} for host, inside in paths.items()
    ]
    nodes: list[DeviceNode] = [
        {"path": "/dev/nvidiactl"},
        {"path": "/dev/nvidia-uvm", "hostPath": "/other/dev/nvidia-uvm"},
    ]
    spec: Spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
        "containerEdits": {"deviceNodes": nodes, "mounts": mounts},
    }
    found = compiled_spec.of_spec("/etc/cdi/nvidia.yaml", spec)
    words = legacy_spec.words(found, hook_args.Jobs("/usr/bin/gpuhook-hook"))
    roots = [words[words.index(f"--{name}-root") + 1] for name in ("driver", "dev")]
    assert roots == ["/", "/"]
