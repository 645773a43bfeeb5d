# SPDX-License-Identifier: Apache-2.0
"""The owner of a runtime's state, as a user namespace sees it."""

from __future__ import annotations

import pytest

from gpuhook.containers.warm import runtime_state
from gpuhook.host.hot import files, state

MAP = b"         0       1000          1\n         1     100000      65536\n"


@pytest.mark.parametrize(
    ("root", "owner"),
    [
        ("/run/user/1000/crun", 0),
        ("/run/user/100004/runc", 5),
        ("/run/user/4242/runc", 4242),
        ("/run/crun", 0),
    ],
)
def test_user_of_a_runtime_directory_in_a_user_namespace(
    root: str, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `podman unshare`, the directory on the host's user 1000 is that of root."""
    monkeypatch.setattr(state, "is_rootless", lambda: True)
    monkeypatch.setattr(files, "read", lambda _path, _most: MAP)
    assert runtime_state._user_of(root) == owner
