# SPDX-License-Identifier: Apache-2.0
"""The files that the lines of a page name: examples of the pages, and a few others."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import yaml

from tests.documented.command_lines import FENCE, text_of, yaml_files

GUIDE = "docs/how-to/kubernetes.md"
SHARING = "docs/how-to/share-a-gpu.md"
# More GPUs than the profile t4 has.
TWO_GPUS = """\
apiVersion: v1
kind: Pod
metadata: {name: gpu-test-1}
spec:
  runtimeClassName: nvidia
  containers:
  - name: main
    image: nvidia/samples:vectoradd-cuda10.2
    resources: {limits: {nvidia.com/gpu: 2}}
"""
BROKEN = """\
version: v1
flags:
  renameByDefault: true
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: "4"
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: train}
spec:
  selector: {matchLabels: {app: train}}
  template:
    metadata: {labels: {app: train}}
"""


def page_files(page: str, directory: Path) -> None:
    """Write the files that a page shows, and those that it refers to, to a directory."""
    two = next(block for block in blocks(GUIDE) if "gpu-test-2" in block)
    one = two.partition("---")[0]
    spec = yaml.safe_dump({"spec": yaml.safe_load(one)["spec"]})
    found = {
        "pods.yaml": two,
        "pod.yaml": TWO_GPUS if page.endswith("troubleshooting.md") else one,
        "deployment.yaml": DEPLOYMENT + indent(spec, "    "),
        "plugin.yaml": plugin_config(),
        "broken.yaml": BROKEN,
        "fair.yaml": next(block for block in blocks(SHARING) if "memory: fair" in block),
        **yaml_files(page),
    }
    for name, text in found.items():
        (directory / name).write_text(text, encoding="utf-8")


def plugin_config() -> str:
    """Return the plugin's configuration in the values of the guide."""
    values = yaml.safe_load(yaml_files(GUIDE)["values.yaml"])
    return str(values["devicePlugin"]["config"]["data"]["default"])


def blocks(page: str) -> list[str]:
    """Return the YAML blocks of a page."""
    return [text for kind, text in FENCE.findall(text_of(page)) if kind == "yaml"]
