# SPDX-License-Identifier: Apache-2.0
"""The place of a case: its directory, the programs, and the transcript of its calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.record import commands, scenes, surface, transcript, trees
from tests.record.sandbox import ENVIRONMENT

PLACE = "/mnt/case"
BIN = f"{surface.PREFIX}/bin"
_SECONDS = 60


class Box:
    """The case's directory PLACE, and the calls in it, one after the other."""

    def __init__(self, scene: str) -> None:
        self.scene = scenes.SCENES[scene]
        self.node = f"/mnt/node/{scene}"
        self.env = {**ENVIRONMENT, **scenes.environment(scene)}
        self.watched = [PLACE, "/run"]
        self._sections: list[str] = []
        self._before: trees.Tree | None = None
        os.chdir(PLACE)

    @property
    def options(self) -> list[str]:
        """Return the options that point commands at the node."""
        return scenes.options(self.scene.name)

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> str:
        """Write a file below PLACE, or at an absolute path; return its path."""
        file = Path(PLACE, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(
            missing_ok=True
        )  # it may be a hard link to the scene's file, which must not change
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(mode)
        return str(file)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link below PLACE."""
        file = Path(PLACE, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def directory(self, path: str) -> str:
        """Make a directory below PLACE; return its path."""
        file = Path(PLACE, path)
        file.mkdir(parents=True, exist_ok=True)
        return str(file)

    def call(self, program: str, *words: str, stdin: str | bytes = b"", **env: str) -> int:
        """Run an installed program, and record its output; return the exit status."""
        self._look()
        self._title(program, words, env)
        done = subprocess.run(
            [program if "/" in program else f"{BIN}/{program}", *words],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env={**self.env, **env},
            timeout=_SECONDS,
            check=False,
        )
        self._outcome(done.returncode, done.stdout, done.stderr)
        return done.returncode

    def gpuhook(self, *words: str, stdin: str = "", **env: str) -> int:
        """Run the command line in a child of this process, which has imported its modules."""
        self._look()
        self._title("gpuhook", words, env)
        done = commands.run([*words], {**self.env, **env}, stdin)
        self._outcome(done.returncode, done.stdout, done.stderr)
        return done.returncode

    def transcript(self) -> str:
        """Return the transcript."""
        assert self._before is not None, "the case calls nothing"
        after = trees.read(self.watched)
        changes = trees.changes(self._before, after)
        return transcript.normal("".join([*self._sections, changes]))

    def look(self, when: str) -> None:
        """Record the changes of files until now, in addition to those at the end."""
        assert self._before is not None, "the case calls nothing"
        after = trees.read(self.watched)
        self._sections.append(f"== files, {when}\n{trees.changes(self._before, after)}")
        self._before = after

    def note(self, title: str, text: str) -> None:
        """Add another text to the transcript."""
        self._look()
        self._sections.append(f"== {title}\n{text}")

    def _look(self) -> None:
        if self._before is None:
            self._before = trees.read(self.watched)

    def _title(self, program: str, words: tuple[str, ...], env: dict[str, str]) -> None:
        shown = [f"{name}={value}" for name, value in env.items()]
        shown += [program, *words]
        self._sections.append("$ " + transcript.visible(" ".join(shown)) + "\n")

    def _outcome(self, status: int, out: bytes, err: bytes) -> None:
        self._sections.append(f"exit {status}\n")
        for name, data in (("stdout", out), ("stderr", err)):
            if data:
                self._sections.append(f"== {name}\n{transcript.document(data)}")
