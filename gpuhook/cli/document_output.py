# SPDX-License-Identifier: Apache-2.0
"""The documents that commands of gpuhook print, for a command that hands them on.

They run in processes of their own and with a limit of time, as what they look at may keep them
waiting. No interpreter is started: what is imported already serves them all.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout

from gpuhook.cli import main
from gpuhook.host import worker_pool
from gpuhook.host.worker import NoAnswerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_AT_ONCE = min(4, os.cpu_count() or 1)
_LONGEST = 400


def documents(
    commands: Mapping[str, Sequence[str]], seconds: float
) -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each command line with the JSON document that it prints, and "".

    With None and a reason where it prints none within so many seconds.
    """
    answers = worker_pool.each(
        lambda name: _said(commands[name]), list(commands), seconds, _AT_ONCE
    )
    for name, answer in answers:
        if isinstance(answer, NoAnswerError):
            yield name, None, answer.reason
        else:
            yield name, *answer


def _said(words: Sequence[str]) -> tuple[Any, str]:
    """Return what a command prints as JSON, or None and what it says is wrong."""
    data, talk = io.StringIO(), io.StringIO()
    status: object = 0
    with redirect_stdout(data), redirect_stderr(talk):
        try:
            main.main(list(words), prog_name="gpuhook")
        except SystemExit as end:
            status = end.code
    try:
        return json.loads(data.getvalue()), ""
    except ValueError as error:
        return None, talk.getvalue().strip()[:_LONGEST] or f"exit status {status}: {error}"
