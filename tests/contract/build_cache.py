# SPDX-License-Identifier: Apache-2.0
"""What the tests build once: programs, packages, root file systems, interpreters.

Each is in a directory below GPUHOOK_TEST_CACHE (default: build/test-cache of the checkout), under
its name and a hash of its recipe: a changed recipe is built again. Nothing writes to a finished
directory: tests use copies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def cache() -> Path:
    """Return the directory of finished builds; create it if it is missing."""
    place = Path(os.environ.get("GPUHOOK_TEST_CACHE") or CHECKOUT / "build" / "test-cache")
    place.mkdir(parents=True, exist_ok=True)
    return place.resolve()


def built(name: str, recipe: str, build: Callable[[Path], None]) -> Path:
    """Return the directory `name` that `build(empty_directory)` made for this `recipe`.

    Two test runs build it once: a lock file is held meanwhile. A build that fails leaves nothing
    under the final name.
    """
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    final = cache() / f"{name}-{digest}"
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.is_dir():
            draft = cache() / f".{name}.draft"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            build(draft)
            draft.rename(final)
    return final
