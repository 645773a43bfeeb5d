# SPDX-License-Identifier: Apache-2.0
"""The questions to a terminal; Ctrl-C and the end of input raise click.Abort."""

from __future__ import annotations

import click

from gpuhook.host.hot import state
from gpuhook.install.runtime_names import names_of_gpus
from gpuhook.setup.setup_plan import BESIDE, RuntimeChoice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.setup.setup_facts import EngineFacts
    from gpuhook.setup.setup_plan import EngineStep

_ALL = "all"
_SECOND, _TAKE_OVER, _SKIP = "second", "take-over", "skip"


def ask_engines(engines: Sequence[EngineFacts]) -> list[EngineFacts]:
    """Return the engines to set up; the question has a default, and is not asked for one engine."""
    if len(engines) < 2:
        return list(engines)
    names = [one.name for one in engines]
    chosen = click.prompt(
        "Engine to set up", type=click.Choice([_ALL, *names]), default=_ALL, err=True
    )
    return [one for one in engines if chosen in (_ALL, one.name)]


def ask_runtime(engine: EngineFacts, message: str) -> RuntimeChoice | None:
    """Return the runtime to register beside or over another program's, None to skip the engine."""
    names = names_of_gpus(state.host_root())
    click.echo(message, err=True)
    click.echo(
        f"  {_SECOND}: register gpuhook as the runtime {BESIDE} of {engine.name}\n"
        f"  {_TAKE_OVER}: replace the runtime {' and '.join(names)}; undo restores it\n"
        f"  {_SKIP}: leave {engine.name} as it is",
        err=True,
    )
    choices = click.Choice([_SECOND, _TAKE_OVER, _SKIP])
    answer = click.prompt("Runtime", type=choices, default=_SECOND, err=True)
    if answer == _SKIP:
        return None
    return RuntimeChoice((BESIDE,)) if answer == _SECOND else RuntimeChoice(names, takes_over=True)


def ask_restart(step: EngineStep, running: int) -> bool:
    """Return whether to restart the engine; the default is no if that stops containers."""
    text = f"Restart {step.engine}"
    if step.ends_containers:
        text += f", which stops its containers ({running} running)"
    return click.confirm(text, default=not step.ends_containers, err=True)


def ask_consent() -> bool:
    """Return whether to carry out the plan."""
    return click.confirm("Carry out this plan", default=True, err=True)
