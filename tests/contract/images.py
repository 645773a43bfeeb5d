# SPDX-License-Identifier: Apache-2.0
"""Image archives for `ctr images import`, with one layer from a root file system."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def archive(place: Path, root: Path, name: str, env: list[str]) -> Path:
    """Write PLACE/image.tar, an OCI image layout with the image `name` of `root`."""
    layout = place / "layout"
    (layout / "blobs/sha256").mkdir(parents=True)
    tar = subprocess.run(["tar", "-C", str(root), "-c", "."], capture_output=True, check=True)
    layer = _blob(layout, _LAYER, tar.stdout)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": env, "Cmd": ["/bin/sleep", "1000"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _blob(layout, _CONFIG, json.dumps(config).encode()),
        "layers": [layer],
    }
    entry = _blob(layout, _MANIFEST, json.dumps(manifest).encode())
    entry["annotations"] = {"io.containerd.image.name": name}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]})
    (layout / "index.json").write_text(index, encoding="utf-8")
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="utf-8")
    path = place / "image.tar"
    subprocess.run(["tar", "-C", str(layout), "-cf", str(path), "."], check=True)
    return path


def _blob(layout: Path, media_type: str, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}
