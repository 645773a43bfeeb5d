# SPDX-License-Identifier: Apache-2.0
"""Which of the sources counts, and which may not: the node's policy over a request."""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot.settings import KUBELET, NONE
from gpuhook.request.parse import ANNOTATIONS, MOUNTS, OWN_CHOICE, POD_ANNOTATIONS, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.host.hot.settings import Settings


class Verdict:
    """The source that won (or None), the ones it beat, and (source, reason) of those refused."""

    __slots__ = ("beaten", "chosen", "refused")

    def __init__(self) -> None:
        self.chosen: Source | None = None
        self.beaten: list[Source] = []
        self.refused: list[tuple[Source, str]] = []


def judge(sources: list[Source], spec: dict[str, Any], settings: Settings) -> Verdict:
    """Return the verdict over `sources`, which come in the order of precedence."""
    verdict = Verdict()
    for source in sources:
        if verdict.chosen is not None:
            verdict.beaten.append(source)
            continue
        reason = _objection(source, spec, settings)
        if reason:
            verdict.refused.append((source, reason))
        else:
            verdict.chosen = source
    return verdict


def _objection(source: Source, spec: dict[str, Any], settings: Settings) -> str:
    if source.kind in (ANNOTATIONS, POD_ANNOTATIONS) and settings.accept_annotations == NONE:
        return "the setting request.acceptAnnotations is none"
    if source.kind == MOUNTS and not settings.accept_volume_mounts:
        return "the setting request.acceptVolumeMounts is off"
    if source.kind not in OWN_CHOICE:
        return ""
    if not settings.accept_env_when_unprivileged and not privileged(spec):
        because = f"{source.origin}, " if source.origin else ""
        if source.kind == POD_ANNOTATIONS and settings.accept_annotations == KUBELET:
            because += "request.acceptAnnotations is kubelet, "
        return (
            f"{because}the container is unprivileged and request.acceptEnvWhenUnprivileged is off"
        )
    return ""


def require_own_vendor(source: Source, default_kind: str, spec: dict[str, Any]) -> None:
    """Raise GH1009 for a source that is not a grant and names another vendor than `default_kind`'s.

    Pods and images choose these: with them they may ask for GPUs, but not for whatever else the
    CDI specs of the host describe (another vendor's devices, management access, host directories).
    In a privileged container, vendors whose names are below that one's are the same vendor's.
    """
    vendor = default_kind.partition("/")[0]
    for name in source.names if source.kind in OWN_CHOICE else ():
        kind, equals, _ = name.partition("=")
        asked = kind.partition("/")[0]
        if not equals or "/" not in kind or asked == vendor:
            continue
        if not asked.endswith("." + vendor) or not privileged(spec):
            raise fault("GH1009", name=name, where=source.where, vendor=vendor)


def privileged(spec: dict[str, Any]) -> bool:
    """Return whether the container may administer the host: CAP_SYS_ADMIN in its bounding set."""
    process = spec.get("process")
    capabilities = process.get("capabilities") if isinstance(process, dict) else None
    bounding = capabilities.get("bounding") if isinstance(capabilities, dict) else None
    return isinstance(bounding, list) and "CAP_SYS_ADMIN" in bounding
