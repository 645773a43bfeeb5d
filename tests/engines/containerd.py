# SPDX-License-Identifier: Apache-2.0
"""containerd of a node: its configuration in each form, and its CRI, as a kubelet uses it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract import cri, roots
from tests.contract.cri import IMAGE, Cri
from tests.engines.engine_node import EngineNode

CONFIG = "/etc/containerd/config.toml"
SOCKET = "/run/containerd/containerd.sock"
ARCHIVE = "/srv/image/image.tar"
PLACE = Path("/srv/pods")
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
    """Return what `containerd config migrate` makes of Debian's file: version 3 from 2.0 on."""
    node.path("/tmp/old.toml").write_text(packaged(node), encoding="utf-8")
    return node.check("containerd", "--config", "/tmp/old.toml", "config", "migrate")


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


FORMS: dict[str, Callable[[EngineNode], str]] = {
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
def configuration(node: EngineNode, form: str = "packaged") -> Iterator[Path]:
    """Write the configuration of this form, and remove it in the end; yield its path here."""
    directory = node.path("/etc/containerd")
    original = directory / "config.toml.debian"
    if not original.exists():
        shutil.copyfile(directory / "config.toml", original)
    config = directory / "config.toml"
    config.write_text(FORMS[form](node), encoding="utf-8")
    try:
        yield config
    finally:
        shutil.rmtree(directory / "conf.d", ignore_errors=True)
        shutil.copyfile(original, config)


@contextmanager
def configured(node: EngineNode, *options: str, form: str = "packaged") -> Iterator[None]:
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


@contextmanager
def settings(node: EngineNode, text: str) -> Iterator[None]:
    """Write /etc/gpuhook/config.yaml, and remove it in the end."""
    file = node.path("/etc/gpuhook/config.yaml")
    file.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        file.unlink()
