# SPDX-License-Identifier: Apache-2.0
"""The ways by which a container comes to its GPUs, each as one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.contract import engines, runtimes
from tests.contract.bundles import bundle
from tests.contract.engines import Containerd
from tests.contract.product import KIND, Product, asks
from tests.contract.runtimes import Result, launcher

RUNTIMES = {
    "runc": ("runc", "host"),
    "runc-v2": ("runc", "v2"),
    "crun": ("crun", "host"),
    "crun-v2": ("crun", "v2"),
}
WRAPPED = (*RUNTIMES, "ctr", "podman-runtime")
ALL = (*WRAPPED, "podman-cdi")
MKNOD = ("--cap-add", "MKNOD")


@dataclass(frozen=True)
class Doors:
    """The doors of one installation; `place` is for what containers and engines need."""

    product: Product
    place: Path
    containerd: Callable[[], Containerd]

    def through(
        self, door: str, root: Path, args: Sequence[str], value: str = "0", env: Sequence[str] = ()
    ) -> Result:
        """Run a container that asks for `value` through `door` and return how it ended."""
        if door in RUNTIMES:
            return self.by_runtime(door, root, args, [*asks(value), *env])
        if door == "ctr":
            return self.by_containerd(root, args, [*asks(value), *env])
        if door == "podman-runtime":
            return self.by_podman(root, args, _options([*asks(value), *env]))
        devices = [word for name in value.split(",") for word in ("--device", f"{KIND}={name}")]
        return self.by_podman(root, args, [*devices, *_options(env)], runtime="runc")

    def by_runtime(self, door: str, root: Path, args: Sequence[str], env: Sequence[str]) -> Result:
        """Call gpuhook-runtime with a bundle."""
        engine, cgroup = RUNTIMES[door]
        made = bundle(self.place / "bundle", root, args, env)
        own = self.product.on(engine)
        return runtimes.run(made, [self.product.runtime], engine, cgroup, env=own)

    def by_containerd(self, root: Path, args: Sequence[str], env: Sequence[str]) -> Result:
        """Let containerd call gpuhook-runtime."""
        own = launcher(self.place / "runtime", [self.product.runtime], self.product.on("runc"))
        return self.containerd().run(root, args, own, env)

    def by_podman(
        self,
        root: Path,
        args: Sequence[str],
        options: Sequence[str],
        runtime: str = "",
        engine: str = "runc",
    ) -> Result:
        """Let podman call gpuhook-runtime or `runtime`; it sees our CDI specs.

        `engine` is the low-level runtime that it comes to.
        """
        return engines.podman(
            self.place / "podman",
            root,
            args,
            [*MKNOD, *options],
            runtime or self.product.runtime,
            engine,
            self.product.specs,
            self.product.on(engine),
            state=self.product.state,
        )


def _options(env: Sequence[str]) -> list[str]:
    return [word for entry in env for word in ("--env", entry)]
