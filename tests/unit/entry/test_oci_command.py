# SPDX-License-Identifier: Apache-2.0
"""The runtime's command line is understood as runc and crun understand it."""

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
    """Every form of the bundle option is read, and of several the last counts."""
    command = oci_command.parse(["--root", "/r", verb, *options, "id"])
    assert (command.name, command.bundle, command.identity) == (verb, "/b", "id")


def test_no_bundle_is_the_working_directory() -> None:
    """Without the option the bundle is the working directory."""
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
def test_words_that_are_no_command(argv: list[str]) -> None:
    """`create` or `run` as a value, an id or an argument is not the command."""
    assert oci_command.parse(argv).name not in oci_command.EDITED


@pytest.mark.parametrize("identity", ["create", "run"])
def test_container_named_like_a_command(identity: str) -> None:
    """A container may be called like a command."""
    command = oci_command.parse(["create", "--bundle", "/b", identity])
    assert (command.name, command.identity) == ("create", identity)


def test_crun_options_after_the_id() -> None:
    """Crun takes options behind the id, and another config file."""
    command = oci_command.parse(["create", "id", "--bundle", "/b", "--config", "/c.json"])
    assert (command.identity, command.bundle, command.config) == ("id", "/b", "/c.json")


def test_double_dash_ends_options() -> None:
    """What follows -- is the id, whatever it looks like."""
    assert oci_command.parse(["create", "-b", "/b", "--", "-id"]).identity == "-id"
