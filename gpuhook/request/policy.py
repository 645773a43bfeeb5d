# SPDX-License-Identifier: Apache-2.0
"""What of a request applies and what is refused: all of the node's policy is here.

The sources, the vendors, what a container requests in addition to its devices, capabilities, and a
node without a driver.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot.settings import FAIL, KUBELET, NONE
from gpuhook.request.parse import ANNOTATIONS, MOUNTS, OWN_CHOICE, POD_ANNOTATIONS, Source
from gpuhook.request.resolve import NOTHING_BUT_FILES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuhook.errors import GpuhookError
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.extra_requests import Extra
    from gpuhook.request.parse import Vocabulary

# What comes of an extra.
WON, REFUSED, IGNORED = "won", "refused", "ignored"
IDS = "ids"  # how a variable of an extra is read: as a list
_IMEX_IGNORED = "the setting request.ignoreImexChannels is on"


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


def objections(verdict: Verdict, settings: Settings) -> list[GpuhookError]:
    """Return a warning for each source of a verdict that is refused, GH1007.

    Raises GH1026 in its place if the settings say so.
    """
    found = []
    for refused, reason in verdict.refused:
        if verdict.chosen is not None and verdict.chosen.names == refused.names:
            continue  # nothing is lost: another source requests the same
        names = ", ".join(refused.names[:8])
        if settings.on_refusal == FAIL:
            raise fault("GH1026", names=names, where=refused.where, reason=reason)
        found.append(fault("GH1007", names=names, where=refused.where, reason=reason))
    return found


def without_driver(source: Source, settings: Settings) -> GpuhookError:
    """Return the warning GH1008: a container starts without what a driver would give it.

    Raises GH1006 if the settings refuse it.
    """
    what = "the driver's files" if source.names == [NOTHING_BUT_FILES] else "GPUs"
    if settings.on_missing_driver != "start":
        raise fault("GH1006", where=source.where, what=what)
    return fault("GH1008", where=source.where, what=what)


def refused_capability(word: str, allowed: Sequence[str]) -> GpuhookError:
    """Return GH1027, the fault of a capability that is named and not among the `allowed` ones."""
    return fault("GH1027", word=word, allowed=", ".join(allowed))


def judge_extra(extra: Extra, spec: dict[str, Any], settings: Settings) -> Extra:
    """Return an extra with what the node's policy makes of it."""
    if extra.result != WON:
        return extra
    if extra.is_list and settings.ignore_imex_channels:
        extra.is_told = False  # the setting says so of every container
        return extra.out(IGNORED, _IMEX_IGNORED)
    reason = _objection(Source(extra.kind, extra.where, extra.names), spec, settings)
    return extra.out(REFUSED, reason) if reason else extra


def leave_out(extra: Extra, settings: Settings, warnings: list[GpuhookError]) -> None:
    """Add GH1041 to `warnings`: an extra does not apply; raises it if the settings say so."""
    found = fault("GH1041", where=extra.where, reason=extra.reason)
    if extra.result == REFUSED and settings.on_refusal == FAIL:
        raise found
    if extra.is_told:
        warnings.append(found)


def permitted_names(
    source: Source, settings: Settings, words: Vocabulary, warnings: list[GpuhookError]
) -> list[str]:
    """Return the names of a source without the channels that it may not request on this node.

    The author of an image's variables would else have by their CDI names what the node's settings
    refuse. Annotations are an engine's, or a driver's for dynamic resources. Adds to `warnings`.
    """
    if not settings.ignore_imex_channels or source.kind == ANNOTATIONS:
        return list(source.names)
    lists = [kind for how, kind, _ in words.extras.values() if how == IDS]
    found = [name for name in source.names if name.partition("=")[0] not in lists]
    if len(found) < len(source.names):
        warnings.append(fault("GH1041", where=source.where, reason=_IMEX_IGNORED))
    return found


def require_privilege(
    names: Sequence[str], where: str, spec: dict[str, Any], words: Vocabulary
) -> None:
    """Raise GH1038 if an unprivileged container names a device that manages the whole node."""
    for name in names:
        kind, _, device = name.partition("=")
        if kind in words.privileged_kinds and device != "none" and not privileged(spec):
            raise fault("GH1038", where=where, name=name)


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
