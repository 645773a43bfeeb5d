# SPDX-License-Identifier: Apache-2.0
"""The log of the cold programs: structlog lines on standard error, for people or for machines.

The hot path writes its own single line. Importing this module costs 50 ms, so a program imports it
only when it is about to log.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

_ORDER = ("timestamp", "level", "event", "code", "container", "pod", "gpu", "replica")


def configure(form: str = "text", *, debug: bool = False) -> None:
    """Send log lines to standard error: logfmt for "text", one JSON object for "json".

    Without `debug`, lines below "info" are dropped.
    """
    renderer = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.LogfmtRenderer(key_order=_ORDER, drop_missing=True)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if debug else logging.INFO
        ),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _Sink())),
        cache_logger_on_first_use=False,
    )


class _Sink:
    """A stream for log lines: standard error as it is at the time.

    A line that cannot be written, as its reader has exited or the disk is full, is lost; the
    program continues.
    """

    def write(self, text: str) -> int:
        """Write `text` if possible; returns its length."""
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream if possible."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def logger(**fields: object) -> Any:
    """Return a logger whose lines carry `fields` (container, pod, gpu, replica, code)."""
    return structlog.get_logger(**fields)
