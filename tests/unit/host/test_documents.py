# SPDX-License-Identifier: Apache-2.0
"""Documents that commands read."""

from __future__ import annotations

import sys

import pytest

from gpuhook.host import documents


def test_closed_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no sys.stdin after `<&-`."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match="it is closed") as caught:
        documents.read("-")
    assert caught.value.filename == documents.STANDARD_INPUT
