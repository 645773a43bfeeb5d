# SPDX-License-Identifier: Apache-2.0
"""Build the root file system of the image around a runtime tree: program names, common files.

    python3 packaging/image/rootfs.py ROOT TREE

ROOT/TREE is the tree, made by tree.py; ROOT gets /usr/bin with the names of programs, /bin/sh, and
the few files that a C library looks for. Nothing else of a distribution is in the image.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "gpuhook": "bin/gpuhook",
    "gpuhook-runtime": "bin/gpuhook-runtime",
    "gpuhook-hook": "bin/gpuhook-hook",
    "gpuhook-prestart": "bin/gpuhook-prestart",
    "nvidia-device-plugin": "libexec/nvidia-device-plugin",
    "config-manager": "libexec/config-manager",
}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # Directories of the driver's libraries on Debian and on other distributions.
    "etc/ld.so.conf": "/usr/lib/x86_64-linux-gnu\n/usr/lib/aarch64-linux-gnu\n/usr/lib64\n",
}
DIRECTORIES = ("dev", "etc", "proc", "root", "run", "sys", "usr/bin", "usr/lib", "usr/lib64", "var")


def make(root: Path, tree: str) -> None:
    """Write the other files of `root`, and complete the tree's launchers."""
    sys.path[:0] = [str(root / tree.lstrip("/") / "lib/gpuhook")]
    from gpuhook.install import runtime_tree

    inside = root / tree.lstrip("/")
    runtime_tree.write_launchers(str(inside), tree, f"{tree}/bin", is_image=True)
    for directory in DIRECTORIES:
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for link, target in {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}.items():
        (root / link).symlink_to(target)
    (root / "var/run").symlink_to("../run")
    for name, program in PROGRAMS.items():
        (root / "usr/bin" / name).symlink_to(f"{tree}/{program}")
    for tool in sorted((inside / "tools").iterdir()):
        (root / "usr/bin" / tool.name).symlink_to(f"{tree}/tools/{tool.name}")
    for name, text in FILES.items():
        (root / name).write_text(text, encoding="utf-8")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("tree", help="where the tree is in the image, such as /opt/gpuhook")
    options = parser.parse_args()
    make(options.root, options.tree)


if __name__ == "__main__":
    main()
