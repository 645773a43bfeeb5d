# SPDX-License-Identifier: Apache-2.0
"""gpuhook installed in ways in which it does not work, or will not for long."""

from __future__ import annotations

import os
import shutil
from functools import partial

from gpuhook.node import node_readings
from tests.doctor.parts.gpuhook import (
    BIN,
    ENTRY,
    LIBRARY,
    PYTHON,
    SETTINGS,
    container,
    filled,
)
from tests.doctor.scene import Broken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.doctor.scene import Scene

HOOKS_D = "/usr/share/containers/oci/hooks.d/gpuhook-prestart.json"
READ_ONLY = (
    "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "40 22 0:30 / /run ro,nosuid,nodev - tmpfs tmpfs rw,size=1024k\n"
)


def without(scene: Scene, path: str) -> None:
    """Remove a file of the node."""
    scene.remove(path)


def mode(scene: Scene, path: str, bits: int) -> None:
    """Change the mode of a file."""
    scene.path(path).chmod(bits)


def owned(scene: Scene, path: str) -> None:
    """Give a file to a user."""
    os.chown(scene.path(path), 1000, 1000)


def not_isolated(scene: Scene) -> None:
    text = filled("gpuhook-runtime").replace('" -IS -c', '" -S -c')
    assert text != filled("gpuhook-runtime")
    scene.write(f"{BIN}/gpuhook-runtime", text, 0o755)


def hook_not_isolated(scene: Scene) -> None:
    scene.write(f"{BIN}/gpuhook-hook", filled("gpuhook-hook").replace(" -IS", "", 1), 0o755)


def other_python(scene: Scene, name: str) -> None:
    """Let the interpreter be of another version."""
    scene.write(f"/usr/bin/{name}", "an interpreter\n", 0o755)
    scene.remove(PYTHON)
    scene.path(PYTHON).symlink_to(name)


def no_package(scene: Scene) -> None:
    shutil.rmtree(scene.path(LIBRARY))


def no_command(scene: Scene) -> None:
    """Take the command line away, that has to compile the settings."""
    scene.remove(f"{BIN}/gpuhook")


def two_versions(scene: Scene) -> None:
    """Install an older one in another place."""
    library = "/usr/local/lib/gpuhook"
    scene.write(f"{library}/gpuhook/__init__.py", '__version__ = "0.0.1"\n')
    scene.write(f"{library}/gpuhook/__pycache__/__init__.cpython-311.pyc", "")
    for name in ("gpuhook_bundle.py", "gpuhook_os.py"):
        scene.write(f"{library}/{name}", "")
    for name in ("gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart", "gpuhook"):
        text = filled(name, LIB=library, BIN="/usr/local/bin")
        scene.write(f"/usr/local/bin/{name}", text, 0o755)


def hook_elsewhere(scene: Scene) -> None:
    """Let a spec call the hook of an installation that was left behind."""
    scene.write("/opt/old/bin/gpuhook-hook", filled("gpuhook-hook"), 0o755)
    hook = {
        "hookName": "createContainer",
        "path": "/opt/old/bin/gpuhook-hook",
        "args": ["gpuhook-hook", "apply"],
    }
    scene.write(
        "/etc/cdi/left.json",
        '{"cdiVersion": "0.5.0", "kind": "example.com/left", "devices": [{"name": "one",'
        f' "containerEdits": {{"hooks": [{hook}]}}}}]}}'.replace("'", '"'),
    )


def hooks_d(scene: Scene) -> None:
    """Let podman be told of a hook that was removed."""
    scene.write(
        HOOKS_D,
        '{"version": "1.0.0", "hook": {"path": "/opt/gone/gpuhook-prestart"},'
        ' "when": {"always": true}, "stages": ["prestart"]}',
    )


def settings(scene: Scene, text: str) -> None:
    scene.write(SETTINGS, text)


def read_only(scene: Scene) -> None:
    scene.write("/proc/1/mountinfo", READ_ONLY)


def no_directory(scene: Scene) -> None:
    shutil.rmtree(scene.path("/run/gpuhook"))
    scene.write("/run/gpuhook", "a file\n")


def broken_entry(scene: Scene) -> None:
    scene.write(ENTRY.replace("holder", "other"), '{"schema": "gpuhook/led')


def forgotten(scene: Scene) -> None:
    """Let a container run that the ledger does not know."""
    forgot = container("forgotten", recorded=False)
    scene.readings[node_readings.CONTAINERS]["containers"].append(forgot)


BROKEN = [
    Broken(
        "prestart launcher missing",
        "installation.launchers",
        partial(without, path=f"{BIN}/gpuhook-prestart"),
    ),
    Broken(
        "wrapper not executable",
        "installation.launchers",
        partial(mode, path=f"{BIN}/gpuhook-runtime", bits=0o644),
    ),
    Broken(
        "wrapper writable by everybody",
        "installation.owner",
        partial(mode, path=f"{BIN}/gpuhook-runtime", bits=0o777),
    ),
    Broken("package of a user's", "installation.owner", partial(owned, path=LIBRARY)),
    Broken(
        "interpreter gone",
        "installation.interpreter",
        partial(without, path="/usr/bin/python3.11"),
    ),
    Broken(
        "interpreter too old",
        "installation.interpreter",
        partial(other_python, name="python3.8"),
    ),
    Broken("wrapper not isolated", "installation.isolation", not_isolated),
    Broken("hook not isolated", "installation.isolation", hook_not_isolated),
    Broken("package gone", "installation.library", no_package),
    Broken(
        "byte code of another Python",
        "installation.byte-code",
        partial(other_python, name="python3.12"),
        is_warning=True,
    ),
    Broken("nothing compiles YAML", "installation.compiler", no_command),
    Broken(
        "spec calls the hook of an old installation",
        "installation.hook-path",
        hook_elsewhere,
        is_warning=True,
    ),
    Broken("hook file names no program", "installation.hooks-d", hooks_d),
    Broken("two versions installed", "installation.versions", two_versions, is_warning=True),
    Broken(
        "settings with a wrong word",
        "installation.settings",
        partial(settings, text="request:\n  onMissingDriver: stop\n"),
    ),
    Broken(
        "settings that are no YAML",
        "installation.settings",
        partial(settings, text="request: [\n"),
    ),
    Broken(
        "settings with an unknown key",
        "installation.settings",
        partial(settings, text="request:\n  onMissingDrivers: start\n"),
        is_warning=True,
    ),
    Broken("state directory read-only", "state.directory", read_only),
    Broken("state directory is a file", "state.directory", no_directory),
    Broken(
        "state directory writable by everybody",
        "state.directory",
        partial(mode, path="/run/gpuhook", bits=0o777),
        is_warning=True,
    ),
    Broken("entry of another user's", "state.files", partial(owned, path=ENTRY), is_warning=True),
    Broken("entry cut short", "state.entries", broken_entry, is_warning=True),
    Broken("container without an entry", "state.ledger", forgotten, is_warning=True),
]
