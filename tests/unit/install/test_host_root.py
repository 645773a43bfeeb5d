# SPDX-License-Identifier: Apache-2.0
"""--host-root and GPUHOOK_HOST_ROOT: the same output, exit status and files in each command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.host.hot import state
from gpuhook.install import installation, runtime_tree
from tests.contract.roots import listing
from tests.simulated.node import make_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
# A call of each command with the option. HOST and OUT are replaced by paths.
CALLS = {
    "compare": ["--all", "--driver-root=HOST", "-o", "json"],
    "configure containerd": ["--config=/etc/containerd/config.toml", "--runtime-path=/bin/r"],
    "configure crio": ["--runtime-path=/bin/r"],
    "cdi generate": ["--driver-root=HOST", "--output-file=OUT/nvidia.yaml"],
    "configure docker": ["--runtime-path=/bin/r"],
    "configure podman": ["--hook-path=/bin/r"],
    "configure show": ["-o", "json"],
    "configure undo": ["docker"],
    "configure users": ["-o", "json"],
    "device-plugin": ["--print-config"],
    "doctor": ["--driver-root=HOST", "--checks", "driver,devices,gpus,specs"],
    "explain": ["--env", "NVIDIA_VISIBLE_DEVICES=all", "-o", "json", "--driver-root=HOST"],
    "explain ": ["--env", "NVIDIA_VISIBLE_DEVICES=all", "-o", "json"],
    "generate-cdi": ["--driver-root=HOST", "--output-file=OUT/nvidia.yaml"],
    "generate-cdi ": ["--mode=proc", "--driver-root=HOST"],
    "node install": ["--engine=docker", "--tree=TREE"],
    "inventory": ["--driver-root=HOST", "-o", "yaml"],
    "labels": ["--driver-root=HOST", "--output-file=OUT/gfd"],
    "support-bundle": ["--driver-root=HOST", "--file=OUT/bundle.tar.gz", "--no-logs", "-o", "name"],
    "system create-dev-char-symlinks": ["--create-all", "--dev-root=HOST"],
    "system create-device-nodes": ["--replace", "--dev-root=HOST"],
    "system load-kernel-modules": ["--dry-run"],
    "node uninstall": [],
}
SPEC = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [
    {"name": "all", "containerEdits": {"env": ["A=B"]}}]}  # fmt: skip


class HostCalls:
    """A host that can be created again at the same path, and calls of commands on it."""

    def __init__(self, place: Path) -> None:
        self.host, self._kept = place / "host", place / "kept"
        self.out, self.tree = place / "out", place / "tree"
        make_node(self.host, "t4")
        (self.host / "etc/docker").mkdir(parents=True)
        (self.host / "etc/docker/daemon.json").write_text("{}\n")
        (self.host / "etc/containerd").mkdir()
        (self.host / "etc/containerd/config.toml").write_text("version = 2\n")
        (self.host / "bin").mkdir()
        (self.host / "bin/r").touch(0o755)
        os.rename(self.host, self._kept)
        (self.tree / "launchers/bin").mkdir(parents=True)
        described = {"schema": runtime_tree.SCHEMA, "version": "1.0", "digest": "a" * 64}
        (self.tree / "tree.json").write_text(json.dumps(described))
        config = place / "config.yaml"
        config.write_text(json.dumps({"cdi": {"specDirs": [str(place / "cdi")]}}))
        (place / "cdi").mkdir()
        (place / "cdi/nvidia.json").write_text(json.dumps(SPEC))
        self.env = {"GPUHOOK_CONFIG": str(config), "GPUHOOK_STATE_DIR": str(self.out / "state")}

    def renew(self) -> None:
        """Restore the host."""
        for path in (self.host, self.out):
            shutil.rmtree(path, ignore_errors=True)
        subprocess.run(["cp", "-a", str(self._kept), str(self.host)], check=True)
        self.out.mkdir()

    def call(self, words: list[str], env: dict[str, str]) -> tuple[object, ...]:
        """Return the result of a call without the parts that differ between copies of the host."""
        self.renew()
        replaced = {"HOST": self.host, "OUT": self.out, "TREE": self.tree}
        for name, path in replaced.items():
            words = [word.replace(name, str(path)) for word in words]
        done = CliRunner().invoke(main, words, prog_name="gpuhook", env={**self.env, **env})
        files = {}
        for root in (self.host, self.out):
            for name, facts in listing(root).items():
                *rest, content = facts
                is_text = isinstance(content, bytes) and not name.endswith(".gz")
                files[f"{root.name}/{name}"] = (*rest, _plain(content) if is_text else b"")
        return done.exit_code, _plain(done.stdout), _plain(done.stderr), files


def _plain(text: object) -> object:
    """Return a text without inodes and times."""
    was = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    found = re.sub(r"\d+-\d+-\d{15,}|\d+-\d{15,}-\d+", "IDENTITY", was)
    found = re.sub(r'"checksum":"[0-9a-f]+"', "CHECKSUM", found)
    return re.sub(r"\d{4}-\d\d-\d\d[T ][0-9:.+Z]+|nvidia.com/gfd.timestamp=\d+", "TIME", found)


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_require_running", lambda where, version: None)
    monkeypatch.delenv(state.HOST_ROOT_ENV, raising=False)


@pytest.fixture(scope="module")
def host_calls(tmp_path_factory: pytest.TempPathFactory) -> HostCalls:
    """Yield a host that is restored before each call."""
    return HostCalls(tmp_path_factory.mktemp("host-calls"))


def commands(command: click.Command, *path: str) -> Iterator[str]:
    """Yield the commands that have the option."""
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from commands(below, *path, name)
    elif any("--host-root" in param.opts for param in command.params):
        yield " ".join(path)


def test_each_command_has_a_call() -> None:
    services = {"dra run"}  # with tests of its processes in faults/
    assert {call.strip() for call in CALLS} == set(commands(main)) - services


@pytest.mark.parametrize("call", CALLS)
def test_option_and_variable_have_the_same_effect(call: str, host_calls: HostCalls) -> None:
    """The option takes precedence over another value of the variable."""
    words = [*call.split(), *CALLS[call]]
    by_variable = host_calls.call(words, {state.HOST_ROOT_ENV: str(host_calls.host)})
    option = [*words, f"--host-root={host_calls.host}"]
    by_option = host_calls.call(option, {})
    for _ in range(5):  # containers of other tests may start and end
        if by_option == by_variable:
            break
        by_variable = host_calls.call(words, {state.HOST_ROOT_ENV: str(host_calls.host)})
        by_option = host_calls.call(option, {})
    assert by_option == by_variable
    assert by_option[0] in (0, 1), by_option[2]
    assert state.HOST_ROOT_ENV not in os.environ
    other = {state.HOST_ROOT_ENV: "/nowhere"}
    assert any(
        host_calls.call(option, other) in (by_option, host_calls.call(option, {})) for _ in range(5)
    )


def test_refused_call_restores_the_variable(host_calls: HostCalls) -> None:
    """The variable is as before, however the command ends."""
    for words in (["inventory", "-o", "wrong"], ["configure", "show", "wrong"]):
        assert host_calls.call([*words, f"--host-root={host_calls.host}"], {})[0] == 2
        assert state.HOST_ROOT_ENV not in os.environ


@pytest.mark.parametrize("call", sorted({call.strip() for call in CALLS} - {"device-plugin"}))
def test_missing_directory_is_refused(call: str, host_calls: HostCalls) -> None:
    """A typing error must not look like a host without a driver."""
    words = [*call.split(), *CALLS[call], "--host-root=/nowhere"]
    code, _, stderr, _ = host_calls.call(words, {})
    assert code == 2
    assert "'--host-root'" in str(stderr)
    assert "'/nowhere' does not exist" in str(stderr)
