# SPDX-License-Identifier: Apache-2.0
"""A call that is refused with a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuhook.errors import GpuhookError


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[GpuhookError]]:
    """Expect the fault `code`."""
    with pytest.raises(GpuhookError) as caught:
        yield caught
    assert caught.value.code == code
