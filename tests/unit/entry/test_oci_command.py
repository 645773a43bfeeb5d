# SPDX-License-Identifier: Apache-2.0
"""The runtime's command line is parsed like that of runc and crun."""

from __future__ import annotations

import pytest

from gpuhook.entry import oci_command


@pytest.mark.parametrize(
    "options",
    [
        ["--bundle", "/b"],
        ["--bundle=/b"],
        ["-bundle", "/b"],
        ["-bundle=/b"],
        ["-b", "/b"],
        ["-b=/b"],
        ["-b/b"],
        ["--bundle", "/a", "--bundle", "/b"],
        ["--console-socket", "/s", "-b", "/b", "--pid-file=/p", "--no-pivot"],
        ["--preserve-fds", "3", "--bundle", "/b"],
        ["--pidfd-socket", "/s", "--bundle", "/b"],
    ],
)
@pytest.mark.parametrize("verb", ["create", "run"])
def test_bundle_in_every_form(verb: str, options: list[str]) -> None:
    """Every form of the bundle option is read; the last one applies."""
    command = oci_command.parse(["--root", "/r", verb, *options, "id"])
    assert (command.name, command.bundle, command.identity) == (verb, "/b", "id")


def test_bundle_defaults_to_the_working_directory() -> None:
    assert oci_command.parse(["create", "id"]).bundle == "."


def test_global_options() -> None:
    """The log, its format and the state root are read, in both forms of an option."""
    command = oci_command.parse(
        ["--log", "/l", "--log-format=json", "--systemd-cgroup", "--root=/r", "create", "id"]
    )
    assert (command.log, command.log_format, command.root) == ("/l", "json", "/r")
    assert command.name == "create"


@pytest.mark.parametrize(
    "argv",
    [
        ["exec", "ctr", "tool", "create"],
        ["state", "create"],
        ["--root", "create", "state", "x"],
        ["--log", "run", "kill", "create", "9"],
        ["delete", "--force", "run"],
        ["--cgroup-manager", "create", "list"],
        [],
        ["--version"],
    ],
)
def test_command_names_as_values_are_not_commands(argv: list[str]) -> None:
    """`create` or `run` as a value, an id or an argument is not the command."""
    assert oci_command.parse(argv).name not in oci_command.EDITED


@pytest.mark.parametrize("identity", ["create", "run"])
def test_container_named_like_a_command(identity: str) -> None:
    """A container may have the name of a command."""
    command = oci_command.parse(["create", "--bundle", "/b", identity])
    assert (command.name, command.identity) == ("create", identity)


def test_crun_options_after_the_id() -> None:
    """crun accepts options after the id, and another config file."""
    command = oci_command.parse(["create", "id", "--bundle", "/b", "--config", "/c.json"])
    assert (command.identity, command.bundle, command.config) == ("id", "/b", "/c.json")


def test_double_dash_ends_options() -> None:
    """The word after -- is the id, whatever it is."""
    assert oci_command.parse(["create", "-b", "/b", "--", "-id"]).identity == "-id"
