# SPDX-License-Identifier: Apache-2.0
"""The log of the cold programs: structlog lines on standard error, for people or for machines.

The hot path writes its own single line; importing this costs 50 ms, so a program does it only when
it is going to log.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog

FORMATS = ("text", "json")
_ORDER = ("timestamp", "level", "event", "code", "container", "pod", "gpu", "replica")


def configure(form: str = "text", *, debug: bool = False, stream: TextIO | None = None) -> None:
    """Send log lines to `stream` (standard error): logfmt for "text", one JSON object for "json".

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
        logger_factory=structlog.PrintLoggerFactory(file=stream or sys.stderr),
        cache_logger_on_first_use=False,
    )


def logger(**fields: object) -> Any:
    """Return a logger whose lines carry `fields` (container, pod, gpu, replica, code)."""
    return structlog.get_logger(**fields)
