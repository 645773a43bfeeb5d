# SPDX-License-Identifier: Apache-2.0
"""The booted node on which the command lines of the documentation run.

It has two T4 and an A100 with MIG. Its images are local ones with the names that the pages use, and
nothing is pulled; the registry of `docker push` is on the node.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Node
from tests.contract import image, package_builds
from tests.contract.build_cache import CHECKOUT
from tests.contract.runtimes import Result, run_command
from tests.documented import registry
from tests.documented.command_lines import CommandLine
from tests.documented.node_pages import (
    AMD_IMAGE,
    CUDA,
    IMAGE,
    MODULE,
    PYTORCH,
    ROCMINFO,
    SAMPLE,
    SMI_LIST,
    expected,
)
from tests.documented.page_files import page_files
from tests.documented.running import run_lines
from tests.engines.booted_node import BootedNode, booted_node
from tests.engines.test_booted import LEGACY
from tests.simulated import build

PLACE, SCRIPT = "/root/page", "/root/line"
FILES = {
    # The machine has no controller `pids`, and the node no network.
    "/etc/containers/containers.conf": '[containers]\nnetns = "none"\npids_limit = 0\n',
    "/etc/apt/apt.conf.d/yes": 'APT::Get::Assume-Yes "true";\n',
    "/srv/legacy.py": LEGACY,
    "/srv/registry.py": Path(registry.__file__).read_text(encoding="utf-8"),
    "/srv/image/usr/bin/rocminfo": ROCMINFO,
}
IMAGES = f"""
set -e
chmod 755 /srv/image/usr/bin/rocminfo
tar -C /srv/image -c . >/srv/image.tar
docker import /srv/image.tar {CUDA}
docker tag {CUDA} {PYTORCH}
docker tag {CUDA} {AMD_IMAGE}
podman import /srv/image.tar {IMAGE}
podman tag {IMAGE} {SAMPLE} docker.io/{AMD_IMAGE}
docker save {CUDA} {AMD_IMAGE} | ctr image import -
useradd --create-home --uid 1000 alice
install -d -o alice -m 700 /run/user/1000
cd /home/alice
runuser -u alice -- env XDG_RUNTIME_DIR=/run/user/1000 podman import /srv/image.tar {IMAGE}
runuser -u alice -- env XDG_RUNTIME_DIR=/run/user/1000 podman tag {IMAGE} docker.io/{AMD_IMAGE}
cp -a /etc/containerd /srv/containerd
systemd-run --unit registry python3 /srv/registry.py
"""
# Removes what the lines of a page have left.
RESET = f"""
docker ps --all --quiet | xargs --no-run-if-empty docker rm --force
podman rm --all --force --time 0
runuser -u alice -- env XDG_RUNTIME_DIR=/run/user/1000 podman rm --all --force --time 0
runc delete --force trainer
cd /srv/packages
[ -x /usr/bin/gpuhook ] || dpkg --install gpuhook-[dr]*.deb gpuhook_*.deb
[ ! -e /usr/bin/nvidia-ctk ] || dpkg --purge gpuhook-nvidia-compat
systemctl reset-failed
[ ! -e /opt/gpuhook ] || gpuhook node uninstall
for engine in docker containerd podman; do
    ! grep -qs $engine /var/lib/gpuhook/configured/*/record.json ||
        gpuhook configure undo $engine --restart
done
cp -a /srv/containerd/. /etc/containerd/
rm -rf {PLACE} /etc/gpuhook/config.yaml /etc/cdi/* /var/run/cdi/*
(cd /srv/local/usr/local && find . ! -type d) | (cd /usr/local && xargs rm -f)
rm -rf /run/nvidia/driver /dev/nvidia-caps-imex-channels /dev/nvidia-fs0
rm -f /etc/systemd/system/gpuhook-*.* /usr/share/containers/oci/hooks.d/gpuhook-*
mkdir {PLACE}
sed -i s/575.57.08/580.95.05/ {MODULE}
[ ! -e /sys/module/nvidia ] || gpuhook generate-cdi --output-file /var/run/cdi/nvidia.yaml
"""


@contextmanager
def documented_node(suite: str, place: Path) -> Iterator[BootedNode]:
    """Yield a booted node below `place`, which is removed in the end."""
    profile = place / "node.yaml"
    profile.write_text(dump_file.text(gpus(), "yaml"), encoding="utf-8")
    with booted_node(suite, place, str(profile)) as node:
        add_images(node)
        add_builds(node)
        yield node


def gpus() -> Node:
    """Return the facts of the node: minor 0 is the A100's, of which its instances' names depend."""
    mig, (t4,) = dump_file.load("a100-mig"), dump_file.load("t4").gpus
    other = replace(t4, index=1, minor=2, uuid=f"{t4.uuid}"[:-1] + "4")
    other = replace(other, pci_bus_id="00000000:00:1F.0")
    return replace(mig, gpus=(replace(t4, minor=1), other, replace(mig.gpus[0], index=2)))


def add_images(node: BootedNode) -> None:
    """Give the node the images of the pages, and a user."""
    node.image_root("debian", "image")
    for name, text in FILES.items():
        node.path(name).write_text(text, encoding="utf-8")
    node.check("bash", "-c", IMAGES)


def add_builds(node: BootedNode) -> None:
    """Give the node gpuhook's packages, and what `make` and `docker build` make."""
    packages = node.path("/srv/packages")
    packages.mkdir()
    for package in (*package_builds.built().glob("*.deb"), package_builds.tarball()):
        shutil.copyfile(package, packages / package.name)
    shutil.copy(build.smi_list(node.gpus.node.gpus), node.path(SMI_LIST))
    place = node.path("/srv/build")
    shutil.copytree(image.root(), place / "image", symlinks=True)
    stage = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8").rpartition("FROM scratch")[2]
    stage = re.sub("COPY --from=build", "COPY", stage)
    (place / "Dockerfile").write_text(f"FROM scratch{stage}", encoding="utf-8")
    command = [sys.executable, str(CHECKOUT / "packaging/install.py"), "--prefix", "/usr/local"]
    done = run_command([*command, "--destdir", node.path("/srv/local")])
    assert done.rc == 0, done


def run_page(node: BootedNode, page: str, lines: Iterable[CommandLine]) -> None:
    """Run the lines of a page on a node without what other pages have left."""
    node.run("bash", "-c", RESET)
    page_files(page, node.path(PLACE))

    def run(script: str) -> Result:
        # systemd-run would replace $ and ${} in a word.
        node.path(SCRIPT).write_text(f"cd {PLACE}\n{script}\n", encoding="utf-8")
        return node.run("bash", "-o", "pipefail", SCRIPT)

    run_lines(lines, run, expected(page))
