# SPDX-License-Identifier: Apache-2.0
"""Warnings go to the engine's log, the journal and the ledger, never to the container's streams."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract import bundles, engines, roots
from tests.contract.bundles import Bundle, Bundles
from tests.contract.cri import cri_of
from tests.contract.engines import Containerd
from tests.contract.installation import Installation, asks
from tests.contract.limiting import grant, uuid
from tests.contract.live import WAIT, prestart, wrapped
from tests.contract.runtimes import (
    BOTH,
    ENGINES,
    Container,
    Result,
    launcher,
    lifecycle,
    run,
    run_command,
)
from tests.simulated import stub_limits
from tests.waiting import eventually

WRITES = ["/bin/sh", "-c", "echo out; echo err >&2"]
REFUSED = {"acceptEnvWhenUnprivileged": False}
MOUNTS = {"acceptVolumeMounts": True}
HOSTILE = "x\nPRIORITY=0\nMESSAGE=forged\n\x1b[2Jlevel=error\u2028\x85\x7f"
FIELDS = {"MESSAGE", "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER", "GPUHOOK_CODE"}


@contextmanager
def journal() -> Iterator[tuple[Path, socket.socket]]:
    """Yield a directory to mount over /run/systemd, and the journal's socket in it."""
    with TemporaryDirectory(
        prefix="gpuhook-", dir="/tmp"
    ) as place:  # the paths of sockets are short
        (Path(place) / "journal").mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
            bound.bind(f"{place}/journal/socket")
            bound.setblocking(False)
            yield Path(place), bound


def read_messages(bound: socket.socket) -> list[dict[str, str]]:
    """Return the messages in a journal's socket, parsed by its native protocol."""
    messages: list[dict[str, str]] = []
    while True:
        try:
            raw = bound.recv(1 << 16).decode("utf-8")
        except BlockingIOError:
            return messages
        lines = raw.split("\n")
        assert lines.pop() == ""
        fields = dict(line.split("=", 1) for line in lines)
        assert len(fields) == len(lines), raw
        messages.append(fields)


def inside(place: Path, installation: Installation, command: list[str]) -> list[str]:
    """Return a command that has `place` at /run/systemd and the state directory at /run/gpuhook."""
    installation.state.mkdir(exist_ok=True)
    script = (
        "mkdir -p /run/systemd /run/gpuhook"
        f" && mount --bind {place} /run/systemd && mount --bind {installation.state} /run/gpuhook"
        ' && exec "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


def codes(warnings: list[dict[str, str]]) -> list[str]:
    return [one["code"] for one in warnings]


def gpuhook_json(installation: Installation, *words: str) -> dict[str, Any]:
    """Return the JSON output of `gpuhook`, checked by its schema."""
    return installation.gpuhook(*words, "-o", "json").document(words[0])


def streams(container: Container) -> tuple[str, str]:
    """Start a created container, and return its streams after it has exited."""
    assert container.call("start").rc == 0
    eventually(lambda: container.state["status"] == "stopped")
    return container.output, container.errors


def streams_without_gpuhook(engine: str, bundle: Bundle) -> tuple[str, str]:
    """Return the streams of the same container with the low-level runtime alone."""
    with lifecycle(bundle, [engine], engine) as container:
        assert container.create().rc == 0
        return streams(container)


@ENGINES
@pytest.mark.parametrize("log_format", ["json", "text"])
def test_create_writes_nothing_to_the_streams(
    engine: str, log_format: str, node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The container's streams are the same as without gpuhook."""
    mine = node8.apart(tmp_path / "node", request=REFUSED)
    made = bundle_of("musl", WRITES, asks("0"))
    expected = streams_without_gpuhook(engine, made)
    assert expected == ("out\n", "err\n")
    (made.path / "log").unlink(missing_ok=True)
    with journal() as (place, bound):
        runtime = [*inside(place, mine, [mine.runtime]), "--log-format", log_format]
        with lifecycle(made, runtime, engine, env=mine.on(engine)) as container:
            created = container.create()
            assert created.rc == 0, created
            assert streams(container) == expected
            (message,) = read_messages(bound)
    assert message.keys() == {*FIELDS, "GPUHOOK_CONTAINER"}
    assert (message["GPUHOOK_CODE"], message["PRIORITY"]) == ("GH1007", "4")
    assert message["SYSLOG_IDENTIFIER"] == "gpuhook-runtime"
    assert message["GPUHOOK_CONTAINER"] == container.id
    assert message["MESSAGE"].startswith(f"container {container.id}: GH1007: ignored the request")
    if log_format == "json":
        levels = [json.loads(line)["level"] for line in created.log.splitlines()]
        assert levels == ["warning", "info"]
    else:
        assert ' level=warning msg="gpuhook-runtime: GH1007: ' in created.log


@BOTH
def test_warning_in_ledger_explain_and_ps(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The container started without a GPU: its entry has the warning, and it holds no GPU."""
    mine = node8.apart(tmp_path / "node", request=REFUSED)
    made = bundle_of("musl", WAIT, asks("0"))
    with wrapped(made, mine, engine, cgroup) as live:
        recorded = mine.entry()
        assert codes(recorded["warnings"]) == ["GH1007"]
        assert recorded["route"] == ""
        ps = ("ps", "--no-nvml", "--recorded")
        listed = gpuhook_json(mine, *ps)
        assert listed["containers"] == []
        (without,) = listed["without_gpu"]
        assert (without["id"], codes(without["warnings"])) == (live.id, ["GH1007"])
        table = mine.gpuhook(*ps)
        assert "1 container started without a requested GPU (GH1007)" in table.stderr
        assert "WARNINGS" not in table.stdout
        wide = mine.gpuhook(*ps, "-o", "wide").stdout.splitlines()
        assert wide[0].endswith("WARNINGS")
        assert wide[1].startswith(live.id)
        assert wide[1].endswith("GH1007")
        explained = gpuhook_json(mine, "explain", live.id, *live.roots)["containers"][0]
        assert codes(explained["start_warnings"]) == ["GH1007"]
        text = mine.gpuhook("explain", live.id, *live.roots).stdout
        assert "Warnings at its start\n  GH1007: ignored the request" in text
        assert text.count("GH1007: ") == 2  # as the reason, and in the list of warnings
        # Attach, repair and detach keep the warnings of the start.
        live.attach("1")
        assert mine.entry()["route"] == "attach"
        (note,) = gpuhook_json(mine, "explain", live.id, *live.roots)["containers"][0]["notes"]
        assert f"{mine.device(1)}, which the explanation does not include" in note
        assert codes(mine.entry()["warnings"]) == ["GH1007"]
        (holder,) = gpuhook_json(mine, *ps)["containers"]
        assert (holder["gpus"], codes(holder["warnings"])) == ([mine.gpu(1).uuid], ["GH1007"])
        assert live.gpuhook("repair").rc == 0
        live.detach("1")
        assert codes(mine.entry()["warnings"]) == ["GH1007"]


def test_ps_shows_the_codes_of_warnings(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The container has a GPU and a warning."""
    mine = node8.apart(tmp_path / "node", request=MOUNTS)
    made = bundle_of("musl", WAIT, asks("0"))
    add_invalid_mount(made, "bad")
    with mine.lifecycle(made) as container:
        assert container.create().rc == 0
        assert codes(mine.entry()["warnings"]) == ["GH1028"]
        (holder,) = gpuhook_json(mine, "ps", "--no-nvml", "--recorded")["containers"]
        assert codes(holder["warnings"]) == ["GH1028"]
        head, row = mine.gpuhook("ps", "--no-nvml", "--recorded").stdout.splitlines()
        assert head.endswith("WARNINGS")
        assert row.endswith("GH1028")


def add_invalid_mount(made: Bundle, name: str) -> None:
    """Add a mount of /dev/null at a path that names no CDI device: GH1028."""
    made.mount(Path("/dev/null"), f"/var/run/nvidia-container-devices/cdi/{name}")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_control_characters_in_a_warning(
    log_format: str, node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """They forge no line in the log, no field in the journal and nothing on a terminal."""
    mine = node8.apart(tmp_path / "node", request=MOUNTS)
    made = bundle_of("musl", WAIT)
    add_invalid_mount(made, HOSTILE)
    with journal() as (place, bound):
        log = made.path / "log"
        words = ["--root", str(made.path / "state"), "--log", str(log), "--log-format", log_format]
        words += ["create", "--bundle", str(made.path), "hostile"]
        done = run_command(
            inside(place, mine, [mine.runtime, *words]), {**os.environ, **mine.on("/bin/true")}
        )
        assert (done.rc, done.stdout, done.stderr) == (0, "", "")
        (message,) = read_messages(bound)
    assert message.keys() == {*FIELDS, "GPUHOOK_CONTAINER"}
    assert (message["PRIORITY"], message["GPUHOOK_CODE"]) == ("4", "GH1028")
    assert message["MESSAGE"].isprintable()
    lines = log.read_text(encoding="utf-8").splitlines()
    assert len(lines) == (2 if log_format == "json" else 1)
    assert all(line.isprintable() for line in lines)
    (recorded,) = mine.entry()["warnings"]
    assert recorded["message"].isprintable()


def test_full_journal_loses_messages(
    node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The create does not wait, and the number of warnings is limited."""
    mine = node8.apart(tmp_path / "node", request=MOUNTS)
    made = bundle_of("musl", WAIT)
    for number in range(300):
        add_invalid_mount(made, f"bad{number}")
    with journal() as (place, bound):
        words = ["--root", str(made.path / "state"), "--log", str(made.path / "log")]
        words += ["create", "--bundle", str(made.path), "many"]
        for _ in range(2):
            done = run_command(
                inside(place, mine, [mine.runtime, *words]), {**os.environ, **mine.on("/bin/true")}
            )
            assert (done.rc, done.stderr) == (0, "")
        assert 0 < len(read_messages(bound)) <= 64
    assert len((made.path / "log").read_text(encoding="utf-8").splitlines()) == 64
    assert len(mine.entry()["warnings"]) == 16


def test_warnings_with_containerd(
    containerd: Containerd, node8: Installation, tmp_path: Path
) -> None:
    """`ctr run` prints the container's streams, and the low-level runtime's error."""
    mine = node8.apart(tmp_path / "node", request=REFUSED)
    runtime = mine.launcher(tmp_path / "gpuhook-runtime")
    root = roots.copy("musl", tmp_path / "root")
    done = containerd.run(root, WRITES, runtime, env=asks("0"))
    assert (done.rc, done.stdout, done.stderr) == (0, "out\n", "err\n")
    missing = containerd.run(root, ["/missing"], runtime, env=asks("0"))
    assert missing.rc != 0
    assert "/missing" in missing.stderr
    assert "GH1007" not in missing.stderr


def test_warnings_with_the_cri(node8: Installation, tmp_path: Path) -> None:
    """The log that `kubectl logs` prints has only the container's output."""
    mine = node8.apart(tmp_path / "node", request=REFUSED)
    with cri_of(mine, tmp_path) as containerd, containerd.pod("quiet") as pod:
        variables = dict([asks("0")[0].split("=")])
        speaks = containerd.container(pod, WRITES, Allocation(), variables)
        done = containerd.ended(speaks)
        assert (done.rc, done.stdout, done.stderr) == (0, "out\n", "err\n")
        waits = containerd.container(pod, WAIT, Allocation(), variables, name="waits")
        task = containerd.place / "state/io.containerd.runtime.v2.task/k8s.io" / waits.id
        assert '"level":"warning"' in (task / "log.json").read_text(encoding="utf-8")


@ENGINES
@pytest.mark.parametrize("name", ["gpuhook-runtime", "runc"])
def test_warnings_with_podman(engine: str, name: str, node8: Installation, tmp_path: Path) -> None:
    """podman prints the container's streams, and the low-level runtime's error.

    podman passes --log to a runtime whose name it knows.
    """
    mine = node8.apart(tmp_path / "node", request=REFUSED)
    root = roots.copy("musl", tmp_path / "root")
    runtime = launcher(tmp_path / name, [mine.runtime])
    options = ["--env", asks("0")[0]]

    def called(args: list[str], low_level: str = engine) -> Result:
        env = mine.on(low_level)
        place = tmp_path / f"podman-{uuid4().hex[:8]}"
        return engines.podman(place, root, args, options, runtime, engine, env=env)

    done = called(WRITES)
    assert (done.rc, done.stdout, done.stderr) == (0, "out\n", "err\n")
    missing = called(["/missing"])
    assert missing.rc != 0
    assert "/missing" in missing.stderr
    assert "GH1007" not in missing.stderr
    logs = tmp_path / "logs"
    script = f'case "$*" in *"create "*) echo "$*" >> {logs}; echo broken >&2; exit 1 ;; esac'
    broken = launcher(tmp_path / "broken", ["/bin/sh", "-c", script, "sh"])
    failed = called(WRITES, str(broken))
    assert failed.rc != 0
    assert "broken" in failed.stderr
    assert "GH1007" not in failed.stderr
    assert ("--log " in logs.read_text(encoding="utf-8")) is (name == "runc")


def hooked(place: Path, installation: Installation, env: list[str]) -> Bundle:
    """Return a bundle with gpuhook's prestart hook."""
    root = roots.copy("musl", place / "root")
    return bundles.bundle(place / "bundle", root, WRITES, env, hooks=prestart(installation))


@ENGINES
def test_warning_of_a_hook(engine: str, node8: Installation, tmp_path: Path) -> None:
    """It goes to hook.log, the journal and the ledger, not to the streams."""
    mine = node8.apart(tmp_path / "node", request=REFUSED)
    made = hooked(tmp_path, mine, asks("0"))
    made.write(
        {**made.config(), "annotations": {"run.oci.hooks.stderr": str(tmp_path / "hook.stderr")}}
    )
    with (
        journal() as (place, bound),
        lifecycle(made, inside(place, mine, [engine]), engine) as container,
    ):
        assert container.create().rc == 0
        assert streams(container) == ("out\n", "err\n")
        (message,) = read_messages(bound)
    assert (message["GPUHOOK_CODE"], message["SYSLOG_IDENTIFIER"]) == ("GH1007", "gpuhook-hook")
    assert message["GPUHOOK_CONTAINER"] == container.id
    if engine == "crun":
        assert (tmp_path / "hook.stderr").read_text(encoding="utf-8") == ""
    (line,) = (mine.state / "hook.log").read_text(encoding="utf-8").splitlines()
    assert " level=warning " in line
    recorded = mine.entry()
    assert (recorded["id"], codes(recorded["warnings"])) == (container.id, ["GH1007"])


def test_error_of_a_hook_precedes_its_warning(node8: Installation, tmp_path: Path) -> None:
    """runc prints the standard error of a hook that fails."""
    mine = node8.apart(tmp_path / "node", request=MOUNTS)
    made = hooked(tmp_path, mine, asks("77"))
    add_invalid_mount(made, "bad")
    done = run(made, ["runc"])
    assert done.rc != 0
    assert "stderr: gpuhook-hook: error GH1102" in done.stderr
    assert "GH1028" in (mine.state / "hook.log").read_text(encoding="utf-8")


def test_dry_run_prints_its_warnings(node8: Installation, tmp_path: Path) -> None:
    """A dry run writes neither the ledger nor hook.log."""
    mine = node8.apart(tmp_path / "node", request=REFUSED)
    made = hooked(tmp_path, mine, asks("0"))
    state = {"id": "dry", "pid": os.getpid(), "status": "creating", "bundle": str(made.path)}
    done = run_command(
        [str(mine.bindir / "gpuhook-hook"), "prestart", "--dry-run"],
        {**os.environ, **mine.env},
        stdin=json.dumps(state),
    )
    assert done.rc == 0
    assert done.stderr.startswith("gpuhook-hook: warning GH1007: ")
    assert mine.entries() == []
    assert not (mine.state / "hook.log").exists()


@ENGINES
def test_hook_adds_its_warning_to_the_wrappers_entry(
    engine: str, mine: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """The ledger's entry has the warnings of both."""
    mine.settings["request"] = MOUNTS
    mine.configure()
    stub_limits.fail_setting(mine.node, uuid(mine, 2), stub_limits.NO_PERMISSION)
    made = bundle_of("musl", WRITES, asks("2"))
    grant(mine, made, 2, 4096, 4096)
    add_invalid_mount(made, "bad")
    with lifecycle(made, mine.command_with_state(), engine, "v2", mine.on(engine)) as container:
        assert container.create().rc == 0
        assert codes(mine.entry()["warnings"]) == ["GH1028", "GH1647"]
        assert streams(container) == ("out\n", "err\n")
