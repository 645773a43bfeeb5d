# SPDX-License-Identifier: Apache-2.0
"""The class of all errors of gpuhook."""

from __future__ import annotations


class GpuhookError(Exception):
    """An error with a stable code, one sentence and one hint."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Return the arguments for unpickling: the base class keeps only the message."""
        return type(self), (self.code, self.message, self.hint)
