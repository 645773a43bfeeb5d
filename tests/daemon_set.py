# SPDX-License-Identifier: Apache-2.0
"""The device plugin's own container as a runtime sees it: the config.json of its DaemonSet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MANIFEST = Path(__file__).parents[1] / "packaging/kubernetes/gpuhook.yaml"


def asking() -> dict[str, Any]:
    """Return what counts for its request for GPUs: variables, capabilities, mounts of the host."""
    (daemon_set,) = [
        one
        for one in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
        if one["kind"] == "DaemonSet"
    ]
    pod = daemon_set["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    sources = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    return {
        "process": {
            "env": [f"{one['name']}={one['value']}" for one in container["env"] if "value" in one],
            "capabilities": {"bounding": []},
        },
        "mounts": [
            {"destination": one["mountPath"], "source": sources[one["name"]], "type": "bind"}
            for one in container["volumeMounts"]
            if one["name"] in sources
        ],
    }
