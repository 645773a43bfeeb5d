# SPDX-License-Identifier: Apache-2.0
"""Links and the loader's files in a root file system.

Made by the wrapper before the runtime starts, or by the hook inside the container's mounts. Nothing
of the image is executed or loaded. A second run changes nothing.
"""

from __future__ import annotations

import os

from gpuhook.apply.rootfs import loader_replay
from gpuhook.errors import fault
from gpuhook.host.hot import bundle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.rootfs.loader_files import Tree
    from gpuhook.apply.rootfs.provision import Provision
    from gpuhook.apply.rootfs.root_directory import Root


def provide(root: Tree, provision: Provision, *, is_replayed: bool = False) -> list[OSError]:
    """Make links, files and the loader's files in `root`; return the errors of missing ones.

    With `is_replayed`, the loader's files are recorded on the node for other containers.
    """
    failures: list[OSError] = []
    for target, path in provision.links:
        try:
            root.link(target, path)
        except OSError as error:
            failures.append(_named(error, path))
    for path, content in provision.files:
        try:
            root.write(path, content)
        except OSError as error:
            failures.append(_named(error, path))
    if provision.libraries:
        try:
            _provide_loader(root, provision, is_replayed=is_replayed)
        except OSError as error:
            failures.append(_named(error, "the loader's files in /etc"))
    return failures


def _named(error: OSError, path: str) -> OSError:
    error.filename = path
    return error


def _provide_loader(root: Tree, provision: Provision, *, is_replayed: bool) -> None:
    whole, now = provision.together or provision, provision.entries_now
    recording = None
    if is_replayed and provision.index is None:
        inputs = (whole.libraries, whole.links, whole.preferred, now)
        recording = loader_replay.replay(root, inputs)
        if recording is None:
            return
    bundle.load("gpuhook.apply.rootfs.loader_files")
    from gpuhook.apply.rootfs import loader_files  # a replay does not need it

    preferred = [(os.fsencode(name), os.fsencode(path)) for name, path in whole.preferred]
    own = [pair for pair in now or whole.own_entries() if pair not in preferred]
    tree = root if recording is None else recording
    loader_files.write(tree, own, preferred, whole.behind, provision.index)
    if recording is not None:
        recording.keep()


def require_writable(root: Root) -> None:
    """Raise GH1305 if the root file system is mounted read-only: no runtime can mount into it."""
    if os.statvfs(f"/proc/self/fd/{root.directory('/')}").f_flag & os.ST_RDONLY:
        raise fault("GH1305", path=root.path)
