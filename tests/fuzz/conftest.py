# SPDX-License-Identifier: Apache-2.0
"""The directory of the targets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.fuzz_target import SCRATCH, scratch_directory


@pytest.fixture(scope="session", autouse=True)
def _scratch() -> Iterator[None]:
    with scratch_directory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv(SCRATCH, place)
        yield
