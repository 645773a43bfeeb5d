# SPDX-License-Identifier: Apache-2.0
"""Known attacks on runc and crun, where gpuhook's work touches the same ground."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.attacks.attacker import link_to
from tests.attacks.watched import untouched
from tests.contract import roots
from tests.contract.bundles import Bundle, bundle
from tests.contract.installation import LIBRARIES, Installation, asks
from tests.contract.live import prestart, sleeping, started
from tests.contract.runtimes import BOTH, ENGINES, Result, run
from tests.contract.test_hostile import Canary
from tests.contract.test_live_hostile import SLEEP, with_busybox
from tests.contract.test_user_namespace import let_through, mapped
from tests.contract.views import questions
from tests.depth import depth
from tests.waiting import eventually

PARAMS = "/proc/driver/nvidia/params"
CORE_PATTERN = "/proc/sys/kernel/core_pattern"
LIST = ["/bin/sh", "-c", "ls -l /proc/self/fd /proc/1/fd; ls -ld /proc/self/cwd"]
FROM = re.compile(r"(\d+) -> (\S+)")


def driver_file(installation: Installation) -> str:
    """Return the path of a library of the driver, not of a link."""
    version = installation.node.node.driver.version
    return f"{LIBRARIES}/libcuda.so.{version}"


def descriptors(result: Result) -> list[tuple[str, str]]:
    """Return each listed descriptor and its file; numbers of pipes and processes differ."""
    assert result.rc == 0, result
    found = FROM.findall(result.stdout)
    return [(fd, re.sub(r"\d+", "", path.partition("[")[0])) for fd, path in found]


@ENGINES
def test_cve_2024_21626_no_descriptor_is_inherited(
    engine: str, node8: Installation, tmp_path: Path
) -> None:
    """A leaked descriptor of a host directory: the container has those that runc alone gives it."""
    made = [bundle(tmp_path / name, roots.copy("debian", tmp_path / "root" / name), LIST)
            for name in ("alone", "gpu")]  # fmt: skip
    config = made[1].config()
    config["process"]["env"] += asks("0")
    config["mounts"].append({"destination": "/etc/ld.so.conf.d", "type": "tmpfs"})  # a hook works
    made[1].write(config)
    alone = run(made[0], [engine], engine)
    found = node8.run_with_state(made[1], engine)
    assert descriptors(found) == descriptors(alone)


@ENGINES
def test_cve_2024_21626_working_directory(
    engine: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """The working directory /proc/self/fd/N: no N leads to a descriptor of gpuhook."""
    for number in range(3, depth(7, 24)):
        place = tmp_path / str(number)
        root = roots.copy("debian", place / "root")
        command = ["/bin/sh", "-c", "ls -d ../../../../../../../../etc/hosts.host; pwd -P"]
        made = bundle(place, root, command, asks("0"), process={"cwd": f"/proc/self/fd/{number}"})
        with untouched(canary):
            done = node8.run_with_state(made, engine)
        assert "hosts.host\n" not in done.stdout
        assert done.rc != 0 or "\n/" not in "\n" + done.stdout.replace("/proc/", ""), done


def over_proc(made: Bundle, volume: Path, where: str) -> None:
    """Mount a volume at /proc or below it: crun allows that."""
    made.mount(volume, where, "rbind", "rw", "rprivate")
    config = made.config()
    if where == "/proc":
        config["mounts"] = [
            one
            for one in config["mounts"]
            if (one["destination"], one["type"]) != ("/proc", "proc")
        ]
    made.write(config)


WATCHING = """#!{python}
import json, os, sys
path = {config!r}
document = json.load(open(path))
document["hooks"]["createContainer"].append({hook!r})
json.dump(document, open(path, "w"))
os.execv({program!r}, [{program!r}, *sys.argv[1:]])
"""


def runtime_with_last_hook(made: Bundle, engine: str, script: str) -> Path:
    """Return a low-level runtime that adds a hook after gpuhook's."""
    path = made.path / "low-level"
    hook = {"path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"]}
    program = shutil.which(engine)
    text = WATCHING.format(python=sys.executable, config=str(made.file), hook=hook, program=program)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("where", ["/proc", "/proc/driver"])
@pytest.mark.parametrize("propagation", ["private", "shared"])
def test_cve_2025_31133_mask_over_a_link(
    propagation: str, where: str, apart: Installation, canary: Canary, tmp_path: Path
) -> None:
    """A masked path that is a link: a volume over /proc leads no mask to a file of the host.

    The last hook sees the host's files as gpuhook's hook leaves them.
    """
    volume, target = tmp_path / "volume", canary.path / "shadow"
    link_to(volume / PARAMS[len(where) + 1 :], str(target))
    root = roots.copy("debian", tmp_path / "root")
    made = bundle(tmp_path / "b", root, ["/probe"], asks("0"))
    over_proc(made, volume, where)
    made.write(
        {**made.config(), "linux": {**made.config()["linux"], "rootfsPropagation": propagation}}
    )
    seen = tmp_path / "seen"
    low_level = runtime_with_last_hook(made, "crun", f"stat -c %s {target} > {seen}")
    size = target.stat().st_size
    driver = Path(apart.node.host_root, "proc/driver")
    script = f'mount --make-rshared / && mount --rbind {driver} /proc/driver && exec "$@"'
    runtime = ["unshare", "--mount", "sh", "-c", script, "sh", apart.runtime]
    with untouched(canary):
        done = run(made, runtime, "crun", env=apart.on(str(low_level)))
    assert done.rc == 0, done
    assert seen.read_text(encoding="utf-8") == f"{size}\n"


@ENGINES
def test_cve_2025_31133_null_device_of_the_image(
    engine: str, apart: Installation, canary: Canary, tmp_path: Path
) -> None:
    """A /dev/null of the image that is a link: the mask's source is a file of the host."""
    root = roots.copy("debian", tmp_path / "root")
    link_to(root / "dev/null", str(canary.path / "shadow"))
    made = bundle(tmp_path / "b", root, ["/probe", *questions(PARAMS)], asks("0"))
    config = made.config()
    shown = {"destination": "/proc", "type": "bind", "source": "/proc", "options": ["rbind"]}
    config["mounts"] = [shown, *(m for m in config["mounts"] if m["destination"] != "/proc")]
    made.write(config)
    driver = Path(apart.node.host_root, "proc/driver")
    script = f'mount --rbind {driver} /proc/driver && exec "$@"'
    runtime = ["unshare", "--mount", "sh", "-c", script, "sh", apart.runtime]
    with untouched(canary):
        view = run(made, runtime, engine, env=apart.on(engine)).view
    assert b"ModifyDeviceFiles: 0\n" in view.paths[PARAMS].content


@BOTH
def test_cve_2025_52565_node_mounted_over_a_link(
    engine: str, cgroup: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """A device that is bound over a link in /dev, as runc did with /dev/console.

    In a user namespace gpuhook binds nodes: none is bound over a file of /proc.
    """
    let_through(Path(node8.node.driver_root) / "any")
    made = mapped(sleeping(tmp_path, args=SLEEP))
    with_busybox(made.root)
    with started(made, node8, engine, cgroup) as live, untouched(canary):
        script = f"/busybox ln -s {CORE_PATTERN} {node8.device(2)}"
        assert live.inside("/busybox", "sh", "-c", script).rc == 0
        before = live.mounts()
        error = live.refused("GH1750", "attach", "--device", "2")
        assert "a link to a file in /proc" in error
        assert live.mounts() == before


@BOTH
@pytest.mark.parametrize("target", [CORE_PATTERN, "/proc/1/attr/current"])
def test_cve_2025_52881_attach_mounts_nothing_in_proc(
    target: str, engine: str, cgroup: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """A mount over a file of /proc redirects writes of labels and sysctls.

    A container without CAP_SYS_ADMIN leads no mount of an attach there by a link.
    """
    made = sleeping(tmp_path, args=SLEEP)
    with_busybox(made.root)
    link_to(made.root / driver_file(node8)[1:], target)
    with started(made, node8, engine, cgroup) as live, untouched(canary):
        before = live.seen()
        error = live.refused("GH1750", "attach", "--device", "2")
        assert "a link to a file in /proc" in error
        assert live.seen() == before


@ENGINES
def test_cve_2025_52881_prestart_mounts_nothing_in_proc(
    engine: str, node8: Installation, canary: Canary, tmp_path: Path
) -> None:
    """The same link in an image, with the prestart hook: the container does not start."""
    made = sleeping(tmp_path, env=asks("2"), args=["/bin/true"])
    link_to(made.root / driver_file(node8)[1:], CORE_PATTERN)
    made.write({**made.config(), "hooks": prestart(node8)})
    with untouched(canary):
        done = run(made, [engine], engine)
    assert done.rc != 0
    log = node8.state / "hook.log"
    assert "a link to a file in /proc" in log.read_text(encoding="utf-8")


HUNT = """
import os, sys, time
found, looked = set(), set()
while not os.path.exists("/stop"):
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            if b"gpuhook" not in open(f"/proc/{pid}/cmdline", "rb").read():
                continue
        except OSError:
            continue
        looked.add(pid)
        for name in ("exe", "root/etc", "cwd/.", "fd/3", "mem"):
            try:
                os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
                found.add(name)
            except OSError:
                pass
print(len(looked), sorted(found), flush=True)
"""


def test_cve_2019_5736_programs_are_not_reachable(node8: Installation, tmp_path: Path) -> None:
    """The host's program behind /proc/PID/exe of a process that works in the container.

    The container shares the host's pids, so that it sees gpuhook's processes.
    """
    made = sleeping(tmp_path, args=["/hunt/python", "-IS", "/hunt/hunt.py"])
    config = made.config()
    spaces = config["linux"]["namespaces"]
    config["linux"]["namespaces"] = [one for one in spaces if one["type"] != "pid"]
    made.write(config)
    (tmp_path / "hunt").mkdir()
    (tmp_path / "hunt/hunt.py").write_text(HUNT, encoding="utf-8")
    for path in ("/usr/lib", "/usr/bin", "/lib64"):
        made.mount(Path(path), path)
    (tmp_path / "hunt/python").symlink_to("/usr/bin/python3")
    made.mount(tmp_path / "hunt", "/hunt")
    with started(made, node8) as live:
        for _ in range(depth(1, 20, 200)):
            for verb in ("attach", "detach"):
                live.gpuhook(verb, "--device", "2", via=["env"])
        (made.root / "stop").touch()
        eventually(lambda: "[" in live.container.output)
        looked, _, found = live.container.output.partition(" ")
    assert int(looked) > 0
    assert found == "[]\n"
