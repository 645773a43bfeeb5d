# SPDX-License-Identifier: Apache-2.0
"""How far tests go that walk through many cases of one kind: `make test-deep` goes all the way.

The everyday run meets every kind of step and every fault at least once; GPUHOOK_TESTS=deep in the
environment asks for each place of each of them, more rounds and more examples. What is asserted of
a case is the same in both.
"""

from __future__ import annotations

import os

IS_DEEP = os.environ.get("GPUHOOK_TESTS") == "deep"


def depth(everyday: int, deep: int) -> int:
    """Return the number of rounds or examples, or the stride, of this run."""
    return deep if IS_DEEP else everyday
