# SPDX-License-Identifier: Apache-2.0
"""A call that is refused with a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuhook.errors import GpuhookError


@contextmanager
def refused(code: str, *words: str) -> Iterator[pytest.ExceptionInfo[GpuhookError]]:
    """Expect the fault `code`, with these words in its message."""
    with pytest.raises(GpuhookError) as caught:
        yield caught
    assert caught.value.code == code
    assert [word for word in words if word not in caught.value.message] == []
