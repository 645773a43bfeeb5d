# SPDX-License-Identifier: Apache-2.0
"""Files of engines in memory: Docker 26.1, podman 5.4 and containerd 1.7 wrote them."""

from __future__ import annotations

import gzip
from pathlib import Path

HERE = Path(__file__).parent
DOCKER_CONFIG = (HERE / "config.v2.json").read_bytes()  # of Compose
DOCKER_ID = "136f9af7b874deef3ac823f80a6a04be689a72d80734976177ee4a2487149b35"
PODMAN_DATABASE = gzip.decompress((HERE / "db.sql.gz").read_bytes())
PODMAN_ID = "0922030a282b4de7b29fbfbdf7bb20ab977137508c305deeb6d743641a419aea"
CONTAINERD_DATABASE = gzip.decompress((HERE / "meta.db.gz").read_bytes())


class MemoryFiles:
    """The files of a node in memory."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents

    def read(self, path: str) -> bytes | None:
        return self._contents.get(path)

    def names(self, path: str) -> list[str]:
        below = (one[len(path) + 1 :] for one in self._contents if one.startswith(path + "/"))
        return sorted({one.partition("/")[0] for one in below})
