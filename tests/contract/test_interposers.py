# SPDX-License-Identifier: Apache-2.0
"""An interposer, which a configuration attaches to a shared GPU, in a real container."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpuhook.device_plugin.allocate import allocation_context as contexts
from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Specs
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config.config_source import ConfigSource
from gpuhook.device_plugin.offer import resources
from gpuhook.vendors.nvidia.plugin import nvidia_part
from tests.contract import compiled
from tests.contract.bundles import Bundles
from tests.contract.installation import Installation
from tests.contract.kubelet_side import apply_allocation
from tests.contract.views import questions

CONFIGURATION = """\
version: v1
sharing:
  timeSlicing:
    resources:
    - {{name: nvidia.com/gpu, replicas: 4, interposer: between}}
gpuhook:
  interposers:
  - name: between
    containerEdits:
      env:
      - LD_PRELOAD=/opt/between/interposer.so
      - INTERPOSED=libcuda.so.1
      - INTERPOSER_LOG=/run/between/log
      - INTERPOSER_SHARE={{index}} {{uuid}} 1/{{replicas}}
      mounts:
      - {{hostPath: {place}/interposer.so, containerPath: /opt/between/interposer.so}}
      - {{hostPath: "{place}/{{uuid}}", containerPath: /run/between, options: [rw]}}
"""


def test_configured_interposer_is_loaded_before_the_driver(
    apart: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    uuid = str(apart.gpu(2).uuid)
    place = tmp_path / "between"
    (place / uuid).mkdir(parents=True)
    shutil.copy(compiled.interposer(), place)
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION.format(place=place))
    configuration = config_source.load(ConfigSource(file=str(file)), strict=True).configuration
    (resource,) = resources.offered(apart.node.node, configuration).resources
    context = contexts.context(configuration, nvidia_part.part(apart.node.node), Specs())
    allocation = allocate(resource, [f"{uuid}::1"], context)

    runs = [["/dlprobe", "libcuda.so.1", "libnvidia-ml.so.1"]]
    bundle = bundle_of("debian", ["/probe", *questions(runs=runs)])
    apply_allocation(allocation, bundle)
    view = apart.run(bundle).view
    libraries = view.runs[0].found()
    assert "error" in libraries["libcuda.so.1"]
    assert "real" in libraries["libnvidia-ml.so.1"]
    assert (place / uuid / "log").read_text() == f"2 {uuid} 1/4\n"
    assert "ro" in view.mounts["/opt/between/interposer.so"].options
    assert "rw" in view.mounts["/run/between"].options
