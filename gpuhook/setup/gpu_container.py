# SPDX-License-Identifier: Apache-2.0
"""The proof: a container of the engine that was set up lists its devices, which must be one GPU.

Docker and podman run an image that they import and remove. The runtime of containerd and CRI-O runs
a bundle: only a pod uses their handler.
"""

from __future__ import annotations

import json
import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass

from gpuhook.engines.configure.host_programs import HostPrograms, last_words
from gpuhook.errors import fault
from gpuhook.setup.engine_program import WITH_IMAGES, EngineProgram, engine_program
from gpuhook.setup.minimal_root import minimal_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.host_files import Host
    from gpuhook.engines.configure.host_programs import Ran
    from gpuhook.setup.minimal_root import MinimalRoot
    from gpuhook.setup.setup_facts import SetupFacts
    from gpuhook.setup.setup_plan import EngineStep
    from gpuhook.vendors.gpu_summary import ProofDevice

UNREAD = "{engine} has not read its configuration yet"
_RUNTIME = "gpuhook-runtime"


@dataclass(frozen=True, slots=True)
class ContainerProof:
    """A container that saw exactly its device: the command, and the lines that it printed."""

    command: str
    lines: tuple[str, ...]


def not_provable(step: EngineStep, facts: SetupFacts) -> str:
    """Return why no container can prove the step, "" if one can."""
    if not facts.devices:
        return facts.no_device
    if step.engine not in WITH_IMAGES:
        is_wrapper = step.options.route == "wrapper"
        return "" if is_wrapper else f"only a pod proves the route {step.options.route}"
    return UNREAD.format(engine=step.engine) if step.is_pending else ""


def prove(step: EngineStep, device: ProofDevice, host: Host) -> ContainerProof:
    """Run the container; it gets the C library for the files of the device's driver.

    Raises GH2115 if it does not see exactly its device, and OSError.
    """
    engine = engine_program(step.where, host)
    way = device.way
    with minimal_root(engine.programs, device.files, way.copies, way.libraries) as root:
        if step.engine in WITH_IMAGES:
            with _image(engine, root) as image:
                options = request_options(step, device)
                ran = _run_image(engine, image, options, way.program)
        else:
            ran = _run_bundle(step, root, device, host)
    seen = {one for one in re.findall(way.pattern, ran.output) if one[:4] == device.id[:4]}
    if ran.status or seen != {device.id}:
        reason = f"status {ran.status}: {last_words(ran)}"
        if not ran.status:
            reason = f"it sees {', '.join(sorted(seen)) or 'no GPU'}, and requested {device.id}"
        raise fault("GH2115", engine=step.engine, reason=reason, command=ran.command)
    return ContainerProof(ran.command, tuple(ran.output.splitlines()))


def request_options(step: EngineStep, device: ProofDevice) -> tuple[str, ...]:
    """Return the options with which a user requests a device from Docker or podman."""
    way, options = device.way, step.options
    variable = ("--env", f"{way.variable}={device.name}")
    if options.route == "cdi":
        return ("--device", f"{way.kind}={device.name}")
    if options.route == "wrapper":
        runtime = way.runtime if way.runtime in options.names else options.name
        return ("--runtime", runtime, *variable)
    return ("--gpus", f"device={device.name}") if step.engine == "docker" else variable


@contextmanager
def _image(engine: EngineProgram, root: MinimalRoot) -> Iterator[str]:
    """Import the root file system as an image, and remove it."""
    name = f"localhost/gpuhook-setup:{secrets.token_hex(4)}"
    root.pack()
    try:
        ran = engine.run("import", root.archive, name)
        if ran.status:
            raise fault("GH2115", engine=engine.name, reason=last_words(ran), command=ran.command)
        yield name
    finally:
        engine.run("rmi", "--force", name)


def _run_image(
    engine: EngineProgram, image: str, options: tuple[str, ...], program: tuple[str, ...]
) -> Ran:
    name = image.partition("/")[2].replace(":", "-")
    words = ("--rm", "--pull=never", "--network=none", f"--name={name}", *options, image)
    try:
        return engine.run("run", *words, *program)
    finally:  # --rm does not remove it if the call was killed
        engine.run("rm", "--force", name)


def _run_bundle(step: EngineStep, root: MinimalRoot, device: ProofDevice, host: Host) -> Ran:
    """Run a bundle by the program that the engine's handler names."""
    runtime = EngineProgram(_RUNTIME, HostPrograms(host, {_RUNTIME: step.options.program}))
    name = f"gpuhook-setup-{secrets.token_hex(4)}"
    ran = runtime.run("spec", "--bundle", root.place)
    if ran.status:
        raise fault("GH2115", engine=step.engine, reason=last_words(ran), command=ran.command)
    path = f"{root.place}/config.json"
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    spec["root"] = {"path": root.path, "readonly": False}
    spec["process"] |= {"terminal": False, "args": [*device.way.program]}
    spec["process"]["env"].append(f"{device.way.variable}={device.name}")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(spec, file)
    try:
        return runtime.run("run", "--bundle", root.place, name)
    finally:
        runtime.run("delete", "--force", name)
