# SPDX-License-Identifier: Apache-2.0
"""Calls of generate-cdi in the same process."""

from __future__ import annotations

import io
import os
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout

import click

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_VARIABLES = ("GPUHOOK_GENERATE_CDI_", "NVIDIA_CTK_CDI_GENERATE_")


def run(words: Sequence[str], vendor: str, root: click.Context, *, is_again: bool = False) -> None:
    """Call generate-cdi with the arguments `words`; raises its faults, GH1528 for wrong usage.

    It describes one vendor's GPUs: those of --vendor in `words`, else those of the one with the
    name `vendor`. `root` is the context of the command `gpuhook`. With `is_again`, `words` are all
    options of an existing spec: variables do not change them.
    """
    from gpuhook.cli.generate.generate_cdi import generate_cdi  # not needed if all specs are fresh

    make = generate_cdi.make_context
    try:
        with (
            _without_variables() if is_again else nullcontext(),
            make("generate-cdi", list(words), parent=root, obj=vendor) as ctx,
        ):
            generate_cdi.invoke(ctx)
    except click.ClickException as error:
        raise fault("GH1528", words=" ".join(words), reason=error.format_message()) from error


@contextmanager
def _without_variables() -> Iterator[None]:
    hidden = {name: os.environ[name] for name in os.environ if name.startswith(_VARIABLES)}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def text(
    words: Sequence[str], vendor: str, fmt: str, root: click.Context, *, is_again: bool = False
) -> str:
    """Return the spec of the arguments `words`, in the format `fmt`; prints and writes nothing.

    Raises as run() does.
    """
    kept = list(words)
    for name in ("--output-file", "--output"):  # of a file, or of a format
        while name in kept:
            place = kept.index(name)
            del kept[place : place + 2]
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        run([*kept, "-o", fmt], vendor, root, is_again=is_again)
    return printed.getvalue()
