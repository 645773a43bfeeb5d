# SPDX-License-Identifier: Apache-2.0
"""The integrations by which a container gets its GPUs, each as one call."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.contract import engines, runtimes
from tests.contract.bundles import CGROUP, PATH, bundle, merged_objects
from tests.contract.engines import Containerd
from tests.contract.installation import KIND, Installation, asks
from tests.contract.runtimes import Result

RUNTIMES = {
    "runc": ("runc", "host"),
    "runc-v2": ("runc", "v2"),
    "crun": ("crun", "host"),
    "crun-v2": ("crun", "v2"),
}
HOOKED = {f"{name}-prestart": where for name, where in RUNTIMES.items()}
WRAPPED = (*RUNTIMES, "ctr", "podman-runtime")
PRESTART = (*HOOKED, "ctr-prestart", "podman-prestart")
ALL = (*WRAPPED, *PRESTART, "podman-cdi")
_LOST = 3  # times that podman can lose a container's output
MKNOD = ("--cap-add", "MKNOD")


@dataclass(frozen=True)
class Integrations:
    """The integrations of one installation; `place` is for files of containers and engines.

    Those by containerd call `containerd()`, which starts it for the first container.
    """

    installation: Installation
    place: Path
    containerd: Callable[[], Containerd] | None = None

    def through(
        self,
        integration: str,
        root: Path,
        args: Sequence[str],
        value: str = "0",
        env: Sequence[str] = (),
    ) -> Result:
        """Run a container that requests `value` by `integration` and return its result."""
        if integration != "podman-cdi":
            return self.by_env(integration, root, args, [*asks(value), *env])
        devices = [word for name in value.split(",") for word in ("--device", f"{KIND}={name}")]
        return self.by_podman(root, args, [*devices, *_options(env)], runtime="runc")

    def by_env(
        self, integration: str, root: Path, args: Sequence[str], env: Sequence[str]
    ) -> Result:
        """Run a container that requests its GPUs by variables."""
        if integration in PRESTART:
            return self.by_hook(integration, root, args, env)
        if integration in RUNTIMES:
            return self.by_runtime(integration, root, args, env)
        if integration == "ctr":
            return self.by_containerd(root, args, env)
        return self.by_podman(root, args, _options(env))

    def by_runtime(
        self, integration: str, root: Path, args: Sequence[str], env: Sequence[str]
    ) -> Result:
        """Call gpuhook-runtime with a bundle."""
        engine, cgroup = RUNTIMES[integration]
        made = bundle(self.place / "bundle", root, args, env)
        return self.installation.run(made, engine, cgroup)

    def by_hook(
        self, integration: str, root: Path, args: Sequence[str], env: Sequence[str]
    ) -> Result:
        """Run a container by a plain runtime that calls the prestart hook."""
        hooks = self.installation.hooks
        if integration == "ctr-prestart":
            return self.by_base_spec(root, args, env)
        if integration == "podman-prestart":
            directory = self.place / "hooks.d"
            directory.mkdir(exist_ok=True)
            (directory / "gpuhook-prestart.json").write_text(json.dumps(hooks), encoding="utf-8")
            return self.by_podman(root, args, _options(env), "/usr/bin/runc", hooks=directory)
        engine, cgroup = HOOKED[integration]
        made = bundle(self.place / "bundle", root, args, env, hooks={"prestart": [hooks["hook"]]})
        return runtimes.run(made, [engine], engine, cgroup)

    def by_base_spec(self, root: Path, args: Sequence[str], env: Sequence[str]) -> Result:
        """Run a container by containerd and plain runc, with the base spec that has the hook."""
        daemon = self._daemon()
        spec = base_spec(self.installation, daemon.ctr("oci", "spec").stdout)
        spec["hooks"] = {"prestart": [self.installation.hooks["hook"]]}
        process = {"args": list(args), "env": [PATH, *env]}
        own = {"process": process, "root": {"path": str(root)}}
        place = {"linux": {"cgroupsPath": f"/{CGROUP}/{uuid4().hex[:12]}"}}
        return daemon.run_spec(merged_objects(merged_objects(spec, own), place))

    def by_containerd(self, root: Path, args: Sequence[str], env: Sequence[str]) -> Result:
        """Run a container by containerd, which calls gpuhook-runtime."""
        runtime = self.installation.launcher(self.place / "runtime")
        return self._daemon().run(root, args, runtime, env)

    def _daemon(self) -> Containerd:
        assert self.containerd is not None
        return self.containerd()

    def by_podman(
        self,
        root: Path,
        args: Sequence[str],
        options: Sequence[str],
        runtime: str = "",
        engine: str = "runc",
        hooks: Path | None = None,
    ) -> Result:
        """Run a container by podman, which calls `runtime` (default: gpuhook-runtime) and reads
        this installation's specs.

        `engine` is the low-level runtime, `hooks` a directory of OCI hooks. podman can lose the
        output of a container that ends at once: a successful one without output runs again.
        """
        result = self._podman("podman", root, args, options, runtime, engine, hooks)
        for attempt in range(_LOST):
            if result.rc or result.stdout:
                break
            place = f"podman-{attempt}"  # podman binds its state to its run root
            result = self._podman(place, root, args, options, runtime, engine, hooks)
        return result

    def _podman(
        self,
        place: str,
        root: Path,
        args: Sequence[str],
        options: Sequence[str],
        runtime: str,
        engine: str,
        hooks: Path | None,
    ) -> Result:
        return engines.podman(
            self.place / place,
            root,
            args,
            [*MKNOD, *options],
            runtime or self.installation.runtime,
            engine,
            self.installation.specs,
            self.installation.on(engine),
            state=self.installation.state,
            hooks=hooks,
        )


def visible_devices(integration: str, value: str) -> str:
    """Return NVIDIA_VISIBLE_DEVICES in a container that requested `value`.

    The prestart hook runs too late to change the environment.
    """
    return value if integration in PRESTART else "void"


def base_spec(installation: Installation, default: str) -> dict[str, Any]:
    """Return the output of the installed base-spec for containerd's `default`."""
    program = installation.share / "containerd/base-spec"
    made = subprocess.run([program], input=default, check=True, capture_output=True, text=True)
    return dict(json.loads(made.stdout))


def _options(env: Sequence[str]) -> list[str]:
    return [word for entry in env for word in ("--env", entry)]
