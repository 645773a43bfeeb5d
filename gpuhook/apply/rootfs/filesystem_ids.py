# SPDX-License-Identifier: Apache-2.0
"""The file system identity of a container's root: what is made in a container must be its own.

What is read in a container is read with no more rights than it has either.
"""

from __future__ import annotations

import os


class Identity:
    """Within it, files are opened and made as this user and group of the host.

    (0, 0) changes nothing. Root's other groups are left behind too.
    """

    def __init__(self, uid: int, gid: int) -> None:
        self._ids = (uid, gid) if (uid or gid) and os.geteuid() == 0 else None
        self._groups: list[int] = []

    def __enter__(self) -> None:
        if self._ids:
            self._groups = os.getgroups()
            os.setgroups([])
            os.setegid(self._ids[1])
            os.seteuid(self._ids[0])

    def __exit__(self, *exc: object) -> None:
        if self._ids:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(self._groups)
