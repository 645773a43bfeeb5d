# SPDX-License-Identifier: Apache-2.0
"""containerd of a node: its configuration in each form, and its CRI, as a kubelet uses it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract import cri, roots
from tests.contract.cri import IMAGE, Cri
from tests.contract.views import View
from tests.engines.engine_node import EngineNode

CONFIG = "/etc/containerd/config.toml"
SOCKET = "/run/containerd/containerd.sock"
ARCHIVE = "/srv/image/image.tar"
PLACE = Path("/srv/pods")
SLEEP = ["/bin/sleep", "600"]
_IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
_CRI_2 = '[plugins."io.containerd.grpc.v1.cri"]\n'
# The node's image is its sandbox image, too; the machine may have no CAP_SYS_RESOURCE.
_SANDBOX = f'sandbox_image = "{IMAGE}"\n'
_RESTRICT = "restrict_oom_score_adj = true\n"


def packaged(node: EngineNode) -> str:
    """Return Debian's file, of version 2, with the settings of the tests."""
    before, table, after = node.check("cat", f"{CONFIG}.debian").partition(_CRI_2)
    assert table
    return f"{before}{table}    {_SANDBOX}    {_RESTRICT}{after}"


def default(node: EngineNode) -> str:
    """Return the output of `containerd config default` with the settings of the tests."""
    text = node.check("containerd", "config", "default")
    text = re.sub(r"(sandbox(?:_image)?) = ['\"].*['\"]", rf'\1 = "{IMAGE}"', text)
    return re.sub(r"(restrict_oom_score_adj) = false", r"\1 = true", text)


def migrated(node: EngineNode) -> str:
    """Return what `containerd config migrate` makes of Debian's file: version 3.

    containerd 1.x has no such command: for it, the output of `config dump`.
    """
    node.path("/tmp/old.toml").write_text(packaged(node), encoding="utf-8")
    verb = "dump" if is_before(node, 2) else "migrate"
    text = node.check("containerd", "--config", "/tmp/old.toml", "config", verb)
    return "".join(line for line in text.splitlines(True) if not line.startswith("imports = "))


def importing(node: EngineNode) -> str:
    """Return Debian's file that imports conf.d, whose file has other settings."""
    _drop_in(node, 'version = 2\n[timeouts]\n  "io.containerd.timeout.bolt.open" = "5s"\n')
    return f"{_IMPORTS}{packaged(node)}"


def imported(node: EngineNode) -> str:
    """Return a file that imports conf.d, whose file has all settings of the CRI plugin."""
    _drop_in(node, packaged(node))
    return f"{_IMPORTS}version = 2\n"


def _drop_in(node: EngineNode, text: str) -> None:
    directory = node.path("/etc/containerd/conf.d")
    directory.mkdir()
    (directory / "50-user.toml").write_text(text, encoding="utf-8")


def with_runtimes(node: EngineNode, **programs: str) -> str:
    """Return Debian's file with a table of handlers: name -> program."""
    text = packaged(node)
    for name, program in programs.items():
        runtime = f"{_CRI_2[:-2]}.containerd.runtimes.{name}"
        text += f'{runtime}]\nruntime_type = "io.containerd.runc.v2"\n'
        text += f'{runtime}.options]\nBinaryName = "{program}"\n'
    return text


def of_crun(node: EngineNode) -> str:
    """Return Debian's file whose default runtime is crun."""
    return with_runtimes(node, runc="/usr/bin/crun")


def of_docker(node: EngineNode) -> str:
    """Return Debian's file that disables the CRI plugin, as Docker's package does."""
    return 'disabled_plugins = ["cri"]\n' + packaged(node)


def of_nvidia(node: EngineNode) -> str:
    """Return Debian's file with the handler that NVIDIA's toolkit writes."""
    return with_runtimes(node, runc="/usr/sbin/runc", nvidia="/usr/bin/nvidia-container-runtime")


Form = Callable[[EngineNode], str]
FORMS: dict[str, Form] = {
    "packaged": packaged,
    "default": default,
    "migrated": migrated,
    "importing": importing,
    "imported": imported,
}


def version(node: EngineNode) -> str:
    """Return the version of the node's containerd."""
    return node.version("containerd", "--version")


def is_before(node: EngineNode, *wanted: int) -> bool:
    """Return whether the node's containerd is older than this version."""
    return tuple(map(int, version(node).split("."))) < wanted


@contextmanager
def configuration(node: EngineNode, form: Form = packaged) -> Iterator[Path]:
    """Write the configuration of this form, and remove it in the end; yield its path here."""
    directory = node.path("/etc/containerd")
    original = directory / "config.toml.debian"
    if not original.exists():
        shutil.copyfile(directory / "config.toml", original)
    config = directory / "config.toml"
    config.write_text(form(node), encoding="utf-8")
    try:
        yield config
    finally:
        shutil.rmtree(directory / "conf.d", ignore_errors=True)
        shutil.copyfile(original, config)


@contextmanager
def configured(node: EngineNode, *options: str, form: Form = packaged) -> Iterator[None]:
    """Run `gpuhook configure containerd`; undo must then restore each file of /etc/containerd."""
    with configuration(node, form):
        before = roots.listing(node.path("/etc/containerd"))
        node.check("gpuhook", "configure", "containerd", *options)
        try:
            yield
        finally:
            node.check("gpuhook", "configure", "undo", "containerd")
        assert roots.listing(node.path("/etc/containerd")) == before


@contextmanager
def containerd(node: EngineNode) -> Iterator[Cri]:
    """Run containerd with the configuration that the node has, and yield its CRI."""
    with (
        node.daemon(["containerd"], lambda: node.run("ctr", "version").rc == 0),
        cri.connected(node.path(SOCKET), PLACE, node.path("/")) as made,
    ):
        if not node.path(ARCHIVE).exists():
            cri.image(node.path(ARCHIVE).parent)
            for namespace in ("k8s.io", "default"):  # the CRI's, and that of ctr
                node.check("ctr", "--namespace", namespace, "images", "import", ARCHIVE)
        yield made


def gpus(seen: View) -> set[str]:
    """Return the nodes of GPUs, without those of the driver; the container can open them all."""
    assert all(entry.allowed for entry in seen.gpus().values()), seen.gpus()
    return {path for path in seen.gpus() if path[11:].isdecimal()}


def refused(node: EngineNode, code: str, *options: str) -> str:
    """Run `gpuhook configure containerd`, which must fail and change nothing; return its error."""
    before = roots.listing(node.path("/etc/containerd"))
    done = node.run("gpuhook", "configure", "containerd", *options)
    assert done.rc == 1, done
    assert f"Error {code}:" in done.stderr
    assert roots.listing(node.path("/etc/containerd")) == before
    return done.stderr


def requests(value: str) -> Allocation:
    """Return an allocation by NVIDIA_VISIBLE_DEVICES alone."""
    return Allocation(envs={"NVIDIA_VISIBLE_DEVICES": value})


def holders(node: EngineNode, pod: str) -> list[dict[str, Any]]:
    """Return the containers of a pod that `gpuhook ps` lists."""
    listed = json.loads(node.check("gpuhook", "ps", "-o", "json"))["containers"]
    return [one for one in listed if (one["namespace"], one["pod"]) == ("default", pod)]
