# SPDX-License-Identifier: Apache-2.0
"""Create, attach and detach where openat2 is refused.

ENOSYS is the answer of a kernel before 5.6, EPERM that of a seccomp filter that does not know the
call. The filter applies to all programs below it: wrapper, runtime, hooks and command line.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.installation import CONTROL, Installation, asks
from tests.contract.live import sleeping, started
from tests.contract.roots import with_ldconfig
from tests.contract.test_attach import assert_as_before, gpu_questions
from tests.contract.test_integrations import assert_nodes
from tests.simulated import older_kernel
from tests.simulated.older_kernel import OPENAT2


@pytest.mark.parametrize(("engine", "error"), [("runc", errno.ENOSYS), ("crun", errno.EPERM)])
def test_container_without_openat2(
    engine: str, error: int, node8: Installation, tmp_path: Path
) -> None:
    via = [sys.executable, older_kernel.__file__, str(OPENAT2), str(error)]
    made = sleeping(tmp_path, env=asks("1"))
    with_ldconfig(made.root)
    with started(made, node8, engine, "host", *via, *node8.command_with_state()) as live:
        files = roots.listing(made.root)
        assert "Seccomp_filters:\t1" in Path(f"/proc/{live.pid}/status").read_text()
        assert_nodes(live.view(gpu_questions(node8)), node8, CONTROL, 1)
        assert (made.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1").is_symlink()
        for verb, indexes in (("attach", (1, 2)), ("detach", (1,))):
            done = live.gpuhook(verb, "--device", "2", via=via)
            assert done.rc == 0, done
            assert_nodes(live.view(gpu_questions(node8)), node8, CONTROL, *indexes)
        assert_as_before(made.root, files)
