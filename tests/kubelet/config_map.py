# SPDX-License-Identifier: Apache-2.0
"""A ConfigMap as the kubelet mounts it, and the ConfigMap of the GPU Operator."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

# The output of `kubectl get configmap -o yaml`, of a cluster that shares each T4 four times.
OPERATORS = Path(__file__).parent / "device-plugin-config.yaml"


def data(document: Path = OPERATORS) -> dict[str, str]:
    """Return the entries of a ConfigMap: text by name."""
    return dict(yaml.safe_load(document.read_text(encoding="utf-8"))["data"])


class ConfigMap:
    """A ConfigMap that is mounted on `directory`. The directory is created."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._version = 0
        directory.mkdir(parents=True)

    def publish(self, **content: str) -> None:
        """Publish new content as the kubelet does: a new directory, and a renamed link."""
        self._version += 1
        new = self.directory / f"..2026_{self._version}"
        new.mkdir()
        for name, text in content.items():
            (new / name).write_text(text, encoding="utf-8")
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"..data/{name}")
        data = self.directory / "..data"
        old = self.directory / data.readlink() if data.is_symlink() else None
        (self.directory / "..data_tmp").symlink_to(new.name)
        (self.directory / "..data_tmp").rename(data)
        for path in self.directory.iterdir():
            if not path.name.startswith("..") and path.name not in content:
                path.unlink()
        if old is not None:
            shutil.rmtree(old)
