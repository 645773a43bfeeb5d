# SPDX-License-Identifier: Apache-2.0
"""Find a container by its id, the beginning of one, a pid, its name, or its pod's names."""

from __future__ import annotations

import os
from itertools import accumulate

from gpuhook.containers import state_search
from gpuhook.containers.state_search import ContainerSearch
from gpuhook.containers.warm import membership
from gpuhook.containers.warm.runtime_state import STOPPED, UNREADABLE, Found
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_NEAR = 5
_PID_DIGITS = 10  # more than a pid has: at most 4194304
_MOST_LETTERS = 380  # of candidates: errors.fault cuts a text of 400


def find(text: str, roots: Sequence[str] = ()) -> Found:
    """Return the container that `text` names; also looks into the state roots `roots`.

    An id comes first. Otherwise all containers are meant of which `text` is the beginning of the
    id, the name, Compose's service (service, project/service), or the pod (namespace/pod/container,
    namespace/pod, pod/container, pod), and that of the process with this pid. Another user's
    container is meant only if none of root or this user is: users choose names and ids. Raises
    GH1735 if there is none, GH1736 if several match, GH1739 if its state cannot be read, GH1730 or
    GH1737 for a pid of no process or of the host.
    """
    search = ContainerSearch(roots)
    exact = search.of_id(lambda identity: identity == text)
    own = [found for found in exact if found.is_ours]
    if own:
        return _one(text, [f for f in own if f.status != UNREADABLE] or own, search)
    begun = search.of_id(lambda identity: bool(text) and identity.startswith(text))
    named = [*begun, *search.of_name(text), *search.of_pod(text)]
    ours = [found for found in named if found.is_ours]
    chosen = ours or exact or named or search.of_user(text)
    if text.isdecimal() and len(text) <= _PID_DIGITS:
        chosen = _with_process(text, chosen, search)
    return _one(text, chosen, search)


def everything(
    roots: Sequence[str] = (),
) -> tuple[list[Found], dict[str, GpuhookError]]:
    """Return all containers with processes, sorted by id, and why others cannot be read.

    The others are ours, and their state is broken: GH1739 by the directory of the state. Also looks
    into `roots`. Raises GH1746 for a directory without permission: the caller needs all containers.
    """
    search = ContainerSearch(roots)
    living = search.in_order()
    denied = search.denied()
    if denied is not None:
        raise denied
    return living, search.broken


def visible(roots: Sequence[str] = ()) -> tuple[list[Found], GpuhookError | None]:
    """Return the containers with processes that this user may see, sorted by id.

    Of one id, ours is the last: another user chooses ids. And GH1746 if there may be others. Also
    looks into `roots`.
    """
    search = ContainerSearch(roots)
    return search.in_order(), search.denied()


def _one(text: str, candidates: list[Found], search: ContainerSearch) -> Found:
    """Return the only candidate, or the only one that is not stopped; else raise."""
    chosen = [found for found in candidates if found.status != STOPPED] or candidates
    chosen = state_search.each_once(list(dict.fromkeys(chosen)))
    if len(chosen) > 1:
        raise fault("GH1736", name=text, candidates=_listed(chosen))
    if chosen and chosen[0].status == UNREADABLE:
        where = os.path.join(chosen[0].state_root, chosen[0].id)
        reason = search.trouble.get(where) or search.empty[where]
        raise fault("GH1739", path=where, reason=reason)
    if chosen:
        return chosen[0]
    trouble = [f"{path} ({reason})" for path, reason in search.trouble.items()]
    many = f"{len(trouble)} of them, such as " if len(trouble) > _NEAR else ""
    skipped = f"; not read: {many}{', '.join(trouble[:_NEAR])}" if trouble else ""
    places = ", ".join(search.looked) or "no state directory"
    raise fault("GH1735", name=text, places=places, skipped=skipped, near=search.near(text))


def _listed(candidates: list[Found]) -> str:
    """Return the first candidates, whole, and the number of the others."""
    words = list(map(_described, candidates))
    ends = accumulate(len(word) + len(", ") for word in words)
    shown = max(1, sum(end <= _MOST_LETTERS for end in ends))
    others = [f"{len(words) - shown} more"] if words[shown:] else []
    return ", ".join([*words[:shown], *others])


def _described(found: Found) -> str:
    names = " ".join(filter(None, (found.engine, found.name)))
    where = f" in {found.state_root}" if found.state_root and not found.name else ""
    return f"{found.id} ({names}{', ' if names else ''}{found.status}{where})"


def _with_process(text: str, named: list[Found], search: ContainerSearch) -> list[Found]:
    """Return `named` and the container of the process with this pid; its faults without any.

    Other users choose ids that are numbers: theirs are skipped if this container is ours.
    """
    try:
        found = membership.of_pid(int(text), search.living())
    except GpuhookError as error:
        if not named or error.code not in ("GH1730", "GH1737"):
            raise
        return named
    others = [one for one in named if one.is_ours or not found.is_ours]
    return [*(other for other in others if other.pid != found.pid), found]
