# SPDX-License-Identifier: Apache-2.0
"""Programs of a host, run in its root directory: engines, systemctl."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import dataclass
from functools import partial

from gpuhook.engines.read import engine_config
from gpuhook.host.hot.state import PROGRAM_DIRS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.configure.host_files import Host
    from gpuhook.engines.read.engine_config import Version

NO_CHROOT = 126  # the status if chroot(2) is not permitted
_TIME = 60.0  # seconds
_KEPT = ("HOME", "LANG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS")
_DAEMONS = {"containerd": "containerd", "crio": "crio", "docker": "dockerd", "podman": "podman"}


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a program: exit status, standard output and errors.

    A program that cannot be started has the status of a shell, and the reason in `errors`.
    """

    command: str
    status: int
    output: str
    errors: str
    is_started: bool = True


class HostPrograms:
    """The programs of `host`. Below another root they run after chroot(2), which needs root.

    `paths` has programs by name that are used instead of those in the PATH; "" is a program that
    the host does not have.
    """

    def __init__(self, host: Host, paths: Mapping[str, str] | None = None) -> None:
        """Take the host."""
        self._host = host
        self._paths = dict(paths or {})
        self.is_elsewhere = not os.path.samestat(os.stat(host.root), os.stat("/"))

    @property
    def root(self) -> str:
        """The host's root directory, as seen from this process."""
        return self._host.root

    def find(self, name: str) -> str | None:
        """Return the host's path of an executable program, None if there is none."""
        if self.is_elsewhere and os.geteuid() != 0:
            return None
        given = self._paths.get(name)
        if given == "":
            return None
        for path in [given] if given else [f"{place}/{name}" for place in PROGRAM_DIRS]:
            found = self._host.status(path)
            if found and stat.S_ISREG(found.st_mode) and found.st_mode & 0o111:
                return path
        return None

    def run(self, words: tuple[str, ...]) -> Ran | None:
        """Run a program by name and return its result; None if the host does not have it."""
        program = self.find(words[0])
        if program is None:
            return None
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        # systemctl does nothing in a chroot; the host's root is not one.
        environment |= {"PATH": ":".join(PROGRAM_DIRS), "SYSTEMD_IGNORE_CHROOT": "1"}
        command = " ".join((self._paths.get(words[0], words[0]), *words[1:]))
        try:
            done = subprocess.run(
                [program, *words[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIME,
                env=environment,
                check=False,
                start_new_session=True,  # Ctrl-C of the terminal is this process's to handle
                preexec_fn=partial(_enter, self.root) if self.is_elsewhere else None,
            )
        except subprocess.TimeoutExpired:
            return Ran(command, 124, "", f"it did not finish within {_TIME:.0f} s")
        except subprocess.SubprocessError as error:
            return Ran(command, NO_CHROOT, "", str(error), is_started=False)
        except OSError as error:
            return Ran(command, 127, "", error.strerror or str(error), is_started=False)
        output, errors = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        return Ran(command, done.returncode, output, errors)

    def version(self, engine: str) -> Version | None:
        """Return the version of an engine's daemon, None if it is unknown."""
        ran = self.run((_DAEMONS[engine], "--version"))
        return engine_config.parse_version(ran.output) if ran and ran.status == 0 else None


def _enter(root: str) -> None:
    os.chroot(root)
    os.chdir("/")


def last_words(ran: Ran) -> str:
    """Return the last two lines of a program's errors, else of its output."""
    lines = [line.strip() for line in (ran.errors or ran.output).splitlines() if line.strip()]
    return " ".join(lines[-2:]) or f"it exited with status {ran.status}"
