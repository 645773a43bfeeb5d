# SPDX-License-Identifier: Apache-2.0
"""Variables of options without an explicit one: click derives them from the parameters' names."""

import click
import pytest

from gpuhook.cli import main

DRY_RUNS = {
    "attach": "GPUHOOK_ATTACH_DRY_RUN",
    "detach": "GPUHOOK_DETACH_DRY_RUN",
    "repair": "GPUHOOK_REPAIR_DRY_RUN",
    "limits set": "GPUHOOK_LIMITS_SET_DRY_RUN",
    "limits clear": "GPUHOOK_LIMITS_CLEAR_DRY_RUN",
}


@pytest.mark.parametrize(("words", "variable"), DRY_RUNS.items())
def test_variable_enables_a_dry_run(
    words: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1")
    command: click.Command = main
    context = click.Context(main, info_name="gpuhook", **main.context_settings)
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None
        command = found
        context = click.Context(command, parent=context, info_name=word)
    option = next(one for one in command.params if "--dry-run" in one.opts)
    assert option.resolve_envvar_value(context) == "1"
