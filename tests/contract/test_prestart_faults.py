# SPDX-License-Identifier: Apache-2.0
"""Errors of the prestart hook: it prints one error, and the container does not start."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.contract import roots
from tests.contract.bundles import Bundle
from tests.contract.installation import CONTROL, LIBRARIES, Installation, asks
from tests.contract.live import Live, prestart, sleeping, started, wrapped
from tests.contract.runtimes import BOTH, CGROUPS, ENGINES, PAIRS, Result, run, run_command
from tests.contract.test_integrations import assert_nodes


def call_hook(installation: Installation, state: object, *words: str) -> Result:
    """Run the prestart hook with this state on its standard input."""
    text = state if isinstance(state, str) else json.dumps(state)
    return run_command(
        [str(installation.bindir / "gpuhook-hook"), "prestart", *words],
        {"PATH": "/usr/bin:/bin", **installation.env},
        stdin=text,
    )


def in_shell(script: str, installation: Installation, **env: str) -> Result:
    """Run a shell command with the environment of the installation."""
    own = {"PATH": "/usr/bin:/bin", **installation.env, **env}
    command = ["/bin/sh", "-c", script]
    return run_command(command, own)


def assert_refused(done: Result, code: str) -> None:
    """Assert that the hook printed exactly an error with this code, and a hint."""
    assert done.rc == 1, done
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"gpuhook-hook: error {code}: "), done
    assert lines[1].startswith("gpuhook-hook: hint: "), done
    assert len(lines) == 2, done


@pytest.fixture
def waiting(tmp_path: Path) -> Bundle:
    """Return the bundle of a container that requests a GPU, waits, and has no hook."""
    return sleeping(tmp_path, env=asks("2"))


@BOTH
def test_state_of_each_runtime_is_accepted(
    engine: str, cgroup: str, node8: Installation, waiting: Bundle
) -> None:
    """The bundle's key and the status differ between runtimes."""
    with started(waiting, node8, "runc" if cgroup == "v2" else engine, "host") as live:
        before = live.seen()
        base = {"ociVersion": "1.0.2", "id": live.id, "pid": live.pid}
        for state in (
            {**base, "bundle": str(waiting.path), "status": "created"},
            {**base, "bundlePath": str(waiting.path), "status": "running"},
        ):
            done = call_hook(node8, state, "--dry-run")
            assert done.rc == 0, done
            assert done.stdout.startswith(f"{live.id}: would do\n  device node ")
            assert (
                f"  device node {node8.device(2)} (c {node8.number(2)}, mode 0666)" in done.stdout
            )
        assert live.seen() == before
        done = call_hook(node8, {**base, "bundle": str(waiting.path)})
        assert done.rc == 0, done
        assert_nodes(live.view(), node8, CONTROL, 2)


@ENGINES
def test_dry_run_accepts_the_output_of_state(
    engine: str, node8: Installation, waiting: Bundle
) -> None:
    """`runc state` of a running container is valid input of a dry run."""
    with started(waiting, node8, engine) as live:
        before = live.seen()
        done = call_hook(node8, live.container.call("state").stdout, "--dry-run")
        assert done.rc == 0, done
        assert done.stdout.startswith(f"{live.id}: would do\n  device node ")
        assert live.seen() == before


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (" \n", "it is empty"),
        ("{", "line 1 column 2 (char 1)"),
        ("[]", "it is not a JSON object"),
        ('{"id": "x", "pid": 5}', "it names no bundle"),
        ('{"id": "x", "pid": 5, "bundle": 7}', "it names no bundle"),
        ('{"id": "x", "pid": 5, "bundle": "/\\u0000"}', "it names no bundle"),
        (
            '{"id": "x", "pid": 5, "bundle": "/nonexistent"}',
            "its bundle has no /nonexistent/config.json",
        ),
        ("\xff" * 10, "a value is expected"),
        ('{"pid": ' + "[" * 5000 + "]" * 5000 + ', "bundle": "/"}', "it is nested too deeply"),
    ],
)
def test_invalid_state_is_refused(state: str, reason: str, node8: Installation) -> None:
    """Input that is not a state, or a state without a bundle; the hint shows the usage."""
    done = call_hook(node8, state)
    assert_refused(done, "GH1642")
    assert done.stderr.splitlines()[0].endswith(reason)
    assert "`runc state ID | gpuhook-hook prestart --dry-run`" in done.stderr


@pytest.mark.parametrize("redirection", ["<&-", "0>/dev/null"])
@pytest.mark.parametrize("program", ["gpuhook-hook", "gpuhook-prestart"])
def test_unreadable_input_is_refused(program: str, redirection: str, node8: Installation) -> None:
    """The launcher also reports an unreadable standard input."""
    done = in_shell(f"{node8.bindir}/{program} prestart {redirection}", node8)
    assert_refused(done, "GH1642")
    reason = "it is not open for reading" if program == "gpuhook-hook" else "it is empty"
    assert done.stderr.splitlines()[0].endswith(reason)


@pytest.mark.parametrize("word", ["--dryrun", "--help-me", "x"])
def test_unknown_option_is_refused(word: str, node8: Installation) -> None:
    """The error does not mention CDI specs."""
    done = call_hook(node8, {}, word)
    assert_refused(done, "GH1640")
    assert word in done.stderr
    assert "generate-cdi" not in done.stderr


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        (None, "it names no id"),
        (5, "it names no id"),
        ("", "it names no id"),
        ("../x", "its id is '../x', which no runtime accepts"),
    ],
)
def test_state_without_a_valid_id_is_refused(
    identity: object, reason: str, node8: Installation, waiting: Bundle
) -> None:
    """The ledger could not record the container."""
    with started(waiting, node8) as live:
        before = live.seen()
        state = {"id": identity, "pid": live.pid, "bundle": str(waiting.path)}
        done = call_hook(node8, {name: state[name] for name in state if state[name] is not None})
        assert_refused(done, "GH1642")
        assert done.stderr.splitlines()[0].endswith(reason)
        assert live.seen() == before


@pytest.mark.parametrize(
    ("pid", "code", "reason"),
    [
        (0, "GH1643", "pid is 0, which is not the container's process on the host"),
        (1, "GH1643", "pid is 1, which is not the container's process on the host"),
        (None, "GH1642", "it names no pid"),
        (-5, "GH1642", "its pid -5 is not a process number"),
        (True, "GH1642", "its pid true is not a process number"),
        (46.5, "GH1642", "its pid 46.5 is not a process number"),
        ("9679", "GH1642", 'its pid "9679" is not a process number'),
        ([], "GH1642", "its pid [] is not a process number"),
        (4194305, "GH1730", "4194305"),
        (10**30, "GH1730", f"{10**30}"),
        ("own", "GH1642", "does not belong to this container: it is in the host's mount namespace"),
    ],
)
def test_state_without_a_valid_pid_is_refused(
    pid: object, code: str, reason: str, node8: Installation, waiting: Bundle
) -> None:
    """The pid is missing, has exited, or is a process on the host."""
    number = os.getpid() if pid == "own" else pid
    before = roots.listing(waiting.root)
    state = {"id": "gpuhook-test-x", "pid": number, "bundle": str(waiting.path)}
    done = call_hook(node8, state)
    assert_refused(done, code)
    assert reason in done.stderr.splitlines()[0]
    assert ("for the prestart or createRuntime stage" in done.stderr) == (code == "GH1643")
    assert roots.listing(waiting.root) == before


@pytest.mark.parametrize("status", ["running", "paused", "stopped"])
def test_started_container_is_refused(status: str, node8: Installation, waiting: Bundle) -> None:
    """The hook does not inject GPUs after the program has started, as in poststart of crun."""
    with started(waiting, node8) as live:
        before = live.seen()
        state = {"id": live.id, "pid": live.pid, "bundle": str(waiting.path), "status": status}
        done = call_hook(node8, state)
        assert_refused(done, "GH1643")
        assert f"the state shows that the container is {status}" in done.stderr
        assert live.seen() == before


def test_process_of_another_container_is_refused(
    node8: Installation, waiting: Bundle, tmp_path: Path
) -> None:
    """The root of the process is not that of the bundle."""
    with started(sleeping(tmp_path / "other"), node8) as live:
        before = live.seen()
        state = {"id": "gpuhook-test-x", "pid": live.pid, "bundle": str(waiting.path)}
        done = call_hook(node8, state)
        assert_refused(done, "GH1642")
        assert (
            f"its pid {live.pid} does not belong to this container: its root is not the root of"
            in (done.stderr)
        )
        assert live.seen() == before


@pytest.mark.parametrize("status", ["creating", "stopped"])
def test_state_is_not_checked_without_a_request(
    status: str, node8: Installation, tmp_path: Path
) -> None:
    """A container that requests no GPU starts with any state; a dry run prints the reason."""
    made = sleeping(tmp_path)
    state = {"pid": "none", "bundle": str(made.path), "status": status}
    assert call_hook(node8, state) == Result(0, "", "")
    done = call_hook(node8, {**state, "id": "x"}, "--dry-run")
    assert done == Result(0, "x: nothing to do: it requests no GPU\n", "")


def test_dry_run_after_the_wrapper(apart: Installation, waiting: Bundle) -> None:
    """The dry run names the wrapper, even if the process has exited."""
    with wrapped(waiting, apart) as live:
        expected = f"{live.id}: nothing to do: gpuhook-runtime injected its GPUs\n"
        for pid in (live.pid, 4194305):
            state = {"id": live.id, "pid": pid, "bundle": str(waiting.path)}
            assert call_hook(apart, state, "--dry-run") == Result(0, expected, "")
            assert call_hook(apart, state) == Result(0, "", "")


def test_dry_run_without_a_driver(apart: Installation, waiting: Bundle, tmp_path: Path) -> None:
    """Only the image requests GPUs, and the node has no driver."""
    waiting.write({**waiting.config(), "process": {"env": asks("all"), "args": ["/probe"]}})
    state = tmp_path / "state"
    state.write_text(json.dumps({"id": "x", "pid": 5, "bundle": str(waiting.path)}), "utf-8")
    script = f"{apart.bindir}/gpuhook-hook prestart --dry-run <{state}"
    done = in_shell(script, apart, GPUHOOK_HOST_ROOT=str(tmp_path))
    assert done.rc == 0, done
    assert done.stdout == (
        "x: nothing to do: only its image requests a GPU, and the node has no driver\n"
    )


def test_dry_run_to_a_full_device_is_an_error(node8: Installation, tmp_path: Path) -> None:
    """The error names standard output."""
    state = tmp_path / "state"
    state.write_text(json.dumps({"id": "x", "bundle": str(sleeping(tmp_path).path)}), "utf-8")
    script = f"{node8.bindir}/gpuhook-hook prestart --dry-run <{state} >/dev/full"
    done = in_shell(script, node8)
    assert_refused(done, "GH1490")
    assert "standard output: No space left on device" in done.stderr


def break_node(name: str, installation: Installation, made: Bundle) -> tuple[str, dict[str, Any]]:
    """Break one thing on the node or in the bundle; return the expected code and the stage."""
    config = made.config()
    if name == "unknown device":
        config["process"]["env"] = asks("17")
        made.write(config)
        return "GH1102", {}
    if name == "unknown capability":
        config["process"]["env"] = asks("2", "nonsense")
        made.write(config)
        return "GH1020", {}
    if name == "settings":
        installation.config.write_text("cdi: [", encoding="utf-8")
        return "GH1530", {}
    if name == "no spec":
        installation.refuse_stale()
        installation.spec.unlink()
        return "GH1104", {}
    if name == "no node":
        text = installation.spec.read_text(encoding="utf-8")
        host = f"{installation.node.dev_root}{installation.device(2)}"
        installation.spec.write_text(
            text.replace(f"hostPath: {host}\n", "hostPath: /gone\n"), "utf-8"
        )
        return "GH1302", {}
    if name == "no library":
        text = installation.spec.read_text(encoding="utf-8")
        library = f"hostPath: {installation.node.driver_root}{LIBRARIES}/libnvidia-ml.so."
        assert library in text
        installation.spec.write_text(text.replace(library, f"{library}9."), encoding="utf-8")
        return "GH1752", {}
    assert name == "createContainer"
    return "GH1643", {"stage": "createContainer"}


BROKEN = ["unknown device", "unknown capability", "settings", "no spec", "no node", "no library"]
BROKEN += ["createContainer"]


@pytest.mark.parametrize(
    ("name", "engine", "cgroup"),
    [(name, *PAIRS[index % len(PAIRS)]) for index, name in enumerate(BROKEN)],
)
def test_broken_node_stops_the_container(
    name: str, engine: str, cgroup: str, apart: Installation, waiting: Bundle
) -> None:
    """The hook prints the error, and the root file system and the ledger do not change."""
    code, stage = break_node(name, apart, waiting)
    errors = waiting.path / "said"
    config = waiting.config()
    hooks = prestart(apart, **stage)
    (hook,) = next(iter(hooks.values()))
    hook["args"] = ["sh", "-c", f'exec "$0" "$@" 2>{errors}', hook["path"], "prestart"]
    hook["path"] = "/bin/sh"
    waiting.write({**config, "hooks": hooks})
    before = {p for p in roots.listing(waiting.root) if "nvidia" in p or "gpuhook" in p}
    done = run(waiting, [engine], engine, cgroup)
    assert done.rc != 0, done
    assert_refused(Result(1, "", errors.read_text(encoding="utf-8")), code)
    after = {p for p in roots.listing(waiting.root) if "nvidia" in p or "gpuhook" in p}
    assert after == before
    assert apart.entries() == []
    group = config["linux"]["cgroupsPath"]
    assert not [kind for kind in CGROUPS.iterdir() if Path(f"{kind}{group}").exists()]


@pytest.mark.parametrize(
    ("stage", "engine", "cgroup", "reason"),
    [
        ("createContainer", "runc", "host", "pid is 1"),
        ("createContainer", "crun", "host", "pid is 0"),
        ("poststart", "crun", "host", "the container is running"),
        ("poststop", "runc", "host", "the container is stopped"),
        ("poststop", "crun", "host", "the container is stopped"),
    ],
)
def test_unsupported_stage_is_refused(
    stage: str, engine: str, cgroup: str, reason: str, apart: Installation, tmp_path: Path
) -> None:
    """The hook recognizes the stage by the pid or the status in the state."""
    # A container that must be running for the hook waits until the hook has run.
    script = "until grep -q GH /state/hook.log; do sleep 0.1; done" if stage == "poststart" else ":"
    made = sleeping(tmp_path, env=asks("2"), args=["/bin/sh", "-c", script])
    config = made.config()
    state = {
        "destination": "/state",
        "type": "bind",
        "source": str(apart.state),
        "options": ["rbind", "ro"],
    }
    apart.state.mkdir(parents=True, exist_ok=True)
    hooks = prestart(apart, stage=stage)
    made.write({**config, "mounts": [*config["mounts"], state], "hooks": hooks})
    run(made, [engine], engine, cgroup)
    log = (apart.state / "hook.log").read_text(encoding="utf-8")
    assert "GH1643: the prestart hook was called at an unsupported stage: " in log
    assert reason in log
    assert apart.entries() == []


def test_hook_of_start_container_is_not_found(apart: Installation, tmp_path: Path) -> None:
    """The runtime looks for a startContainer hook in the container's root."""
    made = sleeping(tmp_path, env=asks("2"), args=["/bin/sh", "-c", "exit 0"])
    made.write({**made.config(), "hooks": prestart(apart, stage="startContainer")})
    done = run(made)
    assert done.rc != 0
    assert "no such file or directory" in done.stderr
    assert apart.entries() == []


def test_second_hook_changes_nothing(node8: Installation, waiting: Bundle) -> None:
    """The hook runs twice for one container."""
    with started(waiting, node8) as live:
        state = {"id": live.id, "pid": live.pid, "bundle": str(waiting.path)}
        assert call_hook(node8, state).rc == 0
        before = live.seen()
        assert call_hook(node8, {**state, "status": "running"}).rc == 0
        expected = f"{live.id}: nothing to do: the prestart hook injected its GPUs\n"
        assert call_hook(node8, state, "--dry-run") == Result(0, expected, "")
        after = live.seen()
        assert (after.files, after.nodes, after.mounts) == (
            before.files,
            before.nodes,
            before.mounts,
        )
        assert_detached(live, node8)


def assert_detached(live: Live, installation: Installation) -> None:
    """Detach what the hook injected."""
    live.detach("2")
    assert installation.device(2) not in live.view().gpus()
