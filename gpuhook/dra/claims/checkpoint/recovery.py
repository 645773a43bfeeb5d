# SPDX-License-Identifier: Apache-2.0
"""The claims of the drivers before this one: what a kill, damage or a reboot left is completed.

A damaged or lost checkpoint is rebuilt from its former copy and from the CDI specs, which contain
their claims. After a reboot no container runs, and the kubelet prepares all claims again.
"""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from gpuhook.dra.claims.checkpoint import durable_file
from gpuhook.dra.claims.checkpoint.checkpoint_file import DamagedError
from gpuhook.host.hot import file_lock
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.dra.claims.checkpoint.checkpoint_file import Checkpoint, Claims
    from gpuhook.dra.claims.claim import ClaimName
    from gpuhook.dra.claims.claim_spec import ClaimSpecs

_AT_ONCE = 16  # calls of the API server


class RunningMark:
    """Shows other drivers of this node that this one runs, until the process ends."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raise OSError."""
        self._fd = file_lock.open_lock(f"{checkpoint.path}.running")
        self.is_alone = file_lock.is_locked(self._fd, 0)

    def share(self) -> None:
        """Let other drivers start; if this one is not alone, wait until the other has started."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def close(self) -> None:
        os.close(self._fd)


def recover(
    checkpoint: Checkpoint,
    specs: ClaimSpecs,
    exists: Callable[[ClaimName], bool],
    *,
    is_alone: bool,
) -> None:
    """Complete or undo what drivers before have begun; raises OSError, GH2604 and GH1590.

    `exists` returns whether a claim still has its devices, True if that is unknown. Work of another
    driver that still runs is left to it, unless `is_alone`.
    """
    with checkpoint.lock():
        durable_file.remove_temporary(checkpoint.path)  # written under the lock only
        found = _claims(checkpoint, specs, exists)
        if is_alone:
            durable_file.remove_temporary(specs.path_prefix)
            found = _settled(found, specs)
            for uid in set(specs.uids()) - found.keys():
                specs.remove(uid)
        checkpoint.write(found)
    if found:
        logger().info("prepared claims", count=len(found))


def _claims(
    checkpoint: Checkpoint, specs: ClaimSpecs, exists: Callable[[ClaimName], bool]
) -> Claims:
    """Return the claims of this boot."""
    try:
        claims, boot = checkpoint.load(checkpoint.path)
    except FileNotFoundError:
        return _rebuilt(checkpoint, specs, exists)
    except DamagedError as error:
        checkpoint.quarantine(checkpoint.path, str(error))
        return _rebuilt(checkpoint, specs, exists)
    return claims if boot == checkpoint.boot else {}


def _rebuilt(
    checkpoint: Checkpoint, specs: ClaimSpecs, exists: Callable[[ClaimName], bool]
) -> Claims:
    """Return the claims of the specs, and those of the former copy that still exist."""
    found = {uid: claim for uid in specs.uids() if (claim := specs.record(uid)) is not None}
    former: Claims = {}
    with suppress(FileNotFoundError):
        try:
            claims, boot = checkpoint.load(checkpoint.previous)
            former = claims if boot == checkpoint.boot else {}
        except DamagedError as error:
            checkpoint.quarantine(checkpoint.previous, str(error))
    doubtful = sorted(former.keys() - found.keys())
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = threads.map(lambda uid: exists(former[uid].claim.name), doubtful)
        found |= {uid: former[uid] for uid, known in zip(doubtful, answers, strict=True) if known}
    if found:
        logger().warning("the claims are restored from CDI specs", count=len(found))
    return found


def _settled(claims: Claims, specs: ClaimSpecs) -> Claims:
    """Return the claims without intents: one with a spec is complete, another did not begin."""
    settled = {}
    for uid, claim in claims.items():
        if claim.is_complete:
            settled[uid] = claim
        elif specs.record(uid) is not None:
            settled[uid] = replace(claim, is_complete=True)
    return settled
