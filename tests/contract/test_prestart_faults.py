# SPDX-License-Identifier: Apache-2.0
"""What the prestart hook cannot work with: one sentence, no container, and nothing left behind."""

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


def told(installation: Installation, state: object, *words: str) -> Result:
    """Call the prestart hook with this on its standard input."""
    text = state if isinstance(state, str) else json.dumps(state)
    return run_command(
        [str(installation.bindir / "gpuhook-hook"), "prestart", *words],
        {"PATH": "/usr/bin:/bin", **installation.env},
        stdin=text,
    )


def in_shell(script: str, installation: Installation, **env: str) -> Result:
    """Run a line of shell where gpuhook is installed."""
    own = {"PATH": "/usr/bin:/bin", **installation.env, **env}
    command = ["/bin/sh", "-c", script]
    return run_command(command, own)


def assert_refused(done: Result, code: str) -> None:
    """Assert that the hook says what is wrong in a sentence, with a hint."""
    assert done.rc == 1, done
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"gpuhook-hook: error {code}: "), done
    assert lines[1].startswith("gpuhook-hook: hint: "), done
    assert len(lines) == 2, done


@pytest.fixture
def waiting(tmp_path: Path) -> Bundle:
    """Give the bundle of a container that requests a GPU, waits, and has no hook."""
    return sleeping(tmp_path, env=asks("2"))


@BOTH
def test_dialects(engine: str, cgroup: str, node8: Installation, waiting: Bundle) -> None:
    """Every runtime's way to write a state will do."""
    with started(waiting, node8, "runc" if cgroup == "v2" else engine, "host") as live:
        before = live.seen()
        base = {"ociVersion": "1.0.2", "id": live.id, "pid": live.pid}
        for state in (
            {**base, "bundle": str(waiting.path), "status": "created"},
            {**base, "bundlePath": str(waiting.path), "status": "running"},
        ):
            done = told(node8, state, "--dry-run")
            assert done.rc == 0, done
            assert done.stdout.startswith(f"{live.id}: would do\n  device node ")
            assert (
                f"  device node {node8.device(2)} (c {node8.number(2)}, mode 0666)" in done.stdout
            )
        assert live.seen() == before
        done = told(node8, {**base, "bundle": str(waiting.path)})
        assert done.rc == 0, done
        assert_nodes(live.view(), node8, CONTROL, 2)


@ENGINES
def test_by_hand(engine: str, node8: Installation, waiting: Bundle) -> None:
    """What `runc state` prints of a running container will do for a dry run."""
    with started(waiting, node8, engine) as live:
        before = live.seen()
        done = told(node8, live.container.call("state").stdout, "--dry-run")
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
def test_no_state(state: str, reason: str, node8: Installation) -> None:
    """Input that is no state, or a state without bundle; a person learns what the hook needs."""
    done = told(node8, state)
    assert_refused(done, "GH1642")
    assert done.stderr.splitlines()[0].endswith(reason)
    assert "`runc state ID | gpuhook-hook prestart --dry-run`" in done.stderr


@pytest.mark.parametrize("redirection", ["<&-", "0>/dev/null"])
@pytest.mark.parametrize("program", ["gpuhook-hook", "gpuhook-prestart"])
def test_no_input(program: str, redirection: str, node8: Installation) -> None:
    """An unreadable standard input is reported as that, by the launcher too."""
    done = in_shell(f"{node8.bindir}/{program} prestart {redirection}", node8)
    assert_refused(done, "GH1642")
    reason = "it is not open for reading" if program == "gpuhook-hook" else "it is empty"
    assert done.stderr.splitlines()[0].endswith(reason)


@pytest.mark.parametrize("word", ["--dryrun", "--help-me", "x"])
def test_no_option(word: str, node8: Installation) -> None:
    """Of an option that there is not, nothing is said about CDI specs."""
    done = told(node8, {}, word)
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
def test_no_id(identity: object, reason: str, node8: Installation, waiting: Bundle) -> None:
    """A container of which the ledger could not know gets nothing."""
    with started(waiting, node8) as live:
        before = live.seen()
        state = {"id": identity, "pid": live.pid, "bundle": str(waiting.path)}
        done = told(node8, {name: state[name] for name in state if state[name] is not None})
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
        ("own", "GH1642", "is not of this container: it has the host's mount namespace"),
    ],
)
def test_no_process(
    pid: object, code: str, reason: str, node8: Installation, waiting: Bundle
) -> None:
    """A stage that tells no pid, a process that is gone, one of the host's."""
    number = os.getpid() if pid == "own" else pid
    before = roots.listing(waiting.root)
    state = {"id": "gpuhook-test-x", "pid": number, "bundle": str(waiting.path)}
    done = told(node8, state)
    assert_refused(done, code)
    assert reason in done.stderr.splitlines()[0]
    assert ("for the stage prestart" in done.stderr) == (code == "GH1643")
    assert roots.listing(waiting.root) == before


@pytest.mark.parametrize("status", ["running", "paused", "stopped"])
def test_too_late(status: str, node8: Installation, waiting: Bundle) -> None:
    """A container whose program has begun, as crun says in poststart, gets nothing."""
    with started(waiting, node8) as live:
        before = live.seen()
        state = {"id": live.id, "pid": live.pid, "bundle": str(waiting.path), "status": status}
        done = told(node8, state)
        assert_refused(done, "GH1643")
        assert f"the state says that the container is {status}" in done.stderr
        assert live.seen() == before


def test_another_containers_process(node8: Installation, waiting: Bundle, tmp_path: Path) -> None:
    """A process whose root is another bundle's gets nothing."""
    with started(sleeping(tmp_path / "other"), node8) as live:
        before = live.seen()
        state = {"id": "gpuhook-test-x", "pid": live.pid, "bundle": str(waiting.path)}
        done = told(node8, state)
        assert_refused(done, "GH1642")
        assert f"its pid {live.pid} is not of this container: its root is not that of" in (
            done.stderr
        )
        assert live.seen() == before


@pytest.mark.parametrize("status", ["creating", "stopped"])
def test_asks_for_nothing(status: str, node8: Installation, tmp_path: Path) -> None:
    """A container that requests no GPU is not held up, whatever its state; a dry run says why."""
    made = sleeping(tmp_path)
    state = {"pid": "none", "bundle": str(made.path), "status": status}
    assert told(node8, state) == Result(0, "", "")
    done = told(node8, {**state, "id": "x"}, "--dry-run")
    assert done == Result(0, "x: nothing to do: it requests no GPU\n", "")


def test_given_by_the_wrapper(apart: Installation, waiting: Bundle) -> None:
    """A dry run says who gave the GPUs, also where the process is gone."""
    with wrapped(waiting, apart) as live:
        said = f"{live.id}: nothing to do: gpuhook-runtime injected its GPUs\n"
        for pid in (live.pid, 4194305):
            state = {"id": live.id, "pid": pid, "bundle": str(waiting.path)}
            assert told(apart, state, "--dry-run") == Result(0, said, "")
            assert told(apart, state) == Result(0, "", "")


def test_no_driver(apart: Installation, waiting: Bundle, tmp_path: Path) -> None:
    """If only an image asks, and the node has no driver, the dry run says that."""
    waiting.write({**waiting.config(), "process": {"env": asks("all"), "args": ["/probe"]}})
    state = tmp_path / "state"
    state.write_text(json.dumps({"id": "x", "pid": 5, "bundle": str(waiting.path)}), "utf-8")
    script = f"{apart.bindir}/gpuhook-hook prestart --dry-run <{state}"
    done = in_shell(script, apart, GPUHOOK_HOST_ROOT=str(tmp_path))
    assert done.rc == 0, done
    assert done.stdout == (
        "x: nothing to do: only its image requests a GPU, and the node has no driver\n"
    )


def test_nobody_reads_the_dry_run(node8: Installation, tmp_path: Path) -> None:
    """A dry run that cannot be printed says so of standard output."""
    state = tmp_path / "state"
    state.write_text(json.dumps({"id": "x", "bundle": str(sleeping(tmp_path).path)}), "utf-8")
    script = f"{node8.bindir}/gpuhook-hook prestart --dry-run <{state} >/dev/full"
    done = in_shell(script, node8)
    assert_refused(done, "GH1490")
    assert "standard output: No space left on device" in done.stderr


def broken(name: str, installation: Installation, made: Bundle) -> tuple[str, dict[str, Any]]:
    """Break one thing on the node or in the bundle; return the code, and the hook's stage."""
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
def test_container_does_not_start(
    name: str, engine: str, cgroup: str, apart: Installation, waiting: Bundle
) -> None:
    """The runtime says why, its container is gone, and the image is as it was."""
    code, stage = broken(name, apart, waiting)
    said = waiting.path / "said"
    config = waiting.config()
    hooks = prestart(apart, **stage)
    (hook,) = next(iter(hooks.values()))
    hook["args"] = ["sh", "-c", f'exec "$0" "$@" 2>{said}', hook["path"], "prestart"]
    hook["path"] = "/bin/sh"
    waiting.write({**config, "hooks": hooks})
    before = {p for p in roots.listing(waiting.root) if "nvidia" in p or "gpuhook" in p}
    done = run(waiting, [engine], engine, cgroup)
    assert done.rc != 0, done
    assert_refused(Result(1, "", said.read_text(encoding="utf-8")), code)
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
def test_other_stages(
    stage: str, engine: str, cgroup: str, reason: str, apart: Installation, tmp_path: Path
) -> None:
    """In the stages that it does not serve the hook says so, as far as a state tells the stage."""
    # One that is to be running when it is looked at waits until it has been.
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
    assert "GH1643: the prestart hook was called in an unsupported stage: " in log
    assert reason in log
    assert apart.entries() == []


def test_a_hook_that_is_not_in_the_container(apart: Installation, tmp_path: Path) -> None:
    """In startContainer the runtime does not find the hook's file, and nothing starts."""
    made = sleeping(tmp_path, env=asks("2"), args=["/bin/sh", "-c", "exit 0"])
    made.write({**made.config(), "hooks": prestart(apart, stage="startContainer")})
    done = run(made)
    assert done.rc != 0
    assert "no such file or directory" in done.stderr
    assert apart.entries() == []


def test_after_it_was_done(node8: Installation, waiting: Bundle) -> None:
    """Called twice for one container, the hook changes nothing the second time."""
    with started(waiting, node8) as live:
        state = {"id": live.id, "pid": live.pid, "bundle": str(waiting.path)}
        assert told(node8, state).rc == 0
        before = live.seen()
        assert told(node8, {**state, "status": "running"}).rc == 0
        said = f"{live.id}: nothing to do: the prestart hook injected its GPUs\n"
        assert told(node8, state, "--dry-run") == Result(0, said, "")
        after = live.seen()
        assert (after.files, after.nodes, after.mounts) == (
            before.files,
            before.nodes,
            before.mounts,
        )
        assert_detached(live, node8)


def assert_detached(live: Live, installation: Installation) -> None:
    """Assert that what the hook gave can be taken away."""
    live.detach("2")
    assert installation.device(2) not in live.view().gpus()
