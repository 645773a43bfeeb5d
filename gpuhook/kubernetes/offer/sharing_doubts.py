# SPDX-License-Identifier: Apache-2.0
"""What is doubtful in shares that work: cards that share badly, little memory, many replicas."""

from __future__ import annotations

from gpuhook.kubernetes.config.configuration import MOST_CLIENTS, MPS
from gpuhook.kubernetes.offer.devices import capability, most_clients

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kubernetes.offer.sharing import Share

_MIB = 1 << 20
_LITTLE = 1 << 30  # bytes: a CUDA context alone takes a few hundred MiB
_MANY = MOST_CLIENTS  # of time slices too: nobody has use for as little of a GPU
_PASCAL = (6, 0)


def doubts(shares: tuple[Share, ...], strategy: str) -> tuple[str, ...]:
    """Return one warning for each kind of doubt, model and resource."""
    found: dict[str, None] = {}
    for share in shares:
        if share.replicas > 1:
            said = (_preemption(share, strategy), _memory(share), _number(share, strategy))
            found |= {f"{share.resource}: {text}": None for text in said if text}
    return tuple(found)


def _preemption(share: Share, strategy: str) -> str:
    known = capability(share.device.compute_capability)
    if strategy == MPS or known is None or known >= _PASCAL:
        return ""
    return (
        f"{_model(share)} (compute capability {share.device.compute_capability}) is older than "
        "Pascal: it has no compute preemption, so a long kernel of one container stops the "
        f"others on its {share.replicas} replicas"
    )


def _memory(share: Share) -> str:
    each = share.memory_each
    if each is None or each >= _LITTLE:
        return ""
    return (
        f"{share.replicas} replicas of {_model(share)} have {each // _MIB} MiB of memory each, "
        "less than 1 GiB"
    )


def _number(share: Share, strategy: str) -> str:
    if strategy == MPS:
        clients = most_clients(share.device.compute_capability)
        most = _MANY if clients is None else clients
        text = f"the MPS server of a {_model(share)} serves at most {most} clients"
    else:
        most = _MANY
        text = f"each gets 1/{share.replicas} of the time of a {_model(share)} when all are busy"
    return f"{share.replicas} replicas are many: {text}" if share.replicas > most else ""


def _model(share: Share) -> str:
    device = share.device
    name = device.model or "GPU"
    return f"{name} {device.profile}" if device.profile else name
