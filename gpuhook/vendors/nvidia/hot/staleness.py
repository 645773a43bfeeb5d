# SPDX-License-Identifier: Apache-2.0
"""Which CDI specs are gpuhook's own, and which of these describe another state of this host.

Loaded only after a container was refused, and by commands.
"""

from __future__ import annotations

from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.hot.rootfs import hook_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs


def own_jobs(spec: Compiled) -> list[Jobs]:
    """Return the jobs of our hooks in a spec, [] for a spec of another program."""
    hooks = spec.edits.get("hooks") or ()
    return [hook_args.of_hook(hook) for hook in hooks if hook_args.is_ours(hook)]


def is_stale(spec: Compiled) -> bool:
    """Return whether a spec is gpuhook's and describes another state of this host."""
    return any(host_fingerprint.changes(job) for job in own_jobs(spec)[:1])
