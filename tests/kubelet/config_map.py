# SPDX-License-Identifier: Apache-2.0
"""A ConfigMap in a directory, as the kubelet mounts it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


class ConfigMap:
    """Files behind the link `..data`, which is replaced by each update."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._number = 0
        directory.mkdir()

    def update(self, **texts: str) -> None:
        """Replace the content, all of it at once."""
        self._number += 1
        made = self.directory / f"..{self._number}"
        made.mkdir()
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8")
        new, data = self.directory / "..data_tmp", self.directory / "..data"
        old = self.directory / os.readlink(data) if data.is_symlink() else None
        new.symlink_to(made.name)
        new.rename(data)
        for name in texts:
            link = self.directory / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        if old is not None:
            shutil.rmtree(old)
