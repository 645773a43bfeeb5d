# SPDX-License-Identifier: Apache-2.0
"""The node's policy for requests: what applies and what is rejected.

It covers sources, vendors, extra devices, capabilities, and a node without a driver.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot import fastjson
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

# The decision on an extra.
WON, REFUSED, IGNORED = "won", "refused", "ignored"
IDS = "ids"  # how a variable of an extra is read: as a list
_IMEX_IGNORED = "the setting request.ignoreImexChannels is on"


class Verdict:
    """The source that applies (or None), those it wins over, and refused ones with the reason."""

    __slots__ = ("beaten", "chosen", "refused")

    def __init__(self) -> None:
        self.chosen: Source | None = None
        self.beaten: list[Source] = []
        self.refused: list[tuple[Source, str]] = []


def judge(sources: list[Source], spec: dict[str, Any], settings: Settings) -> Verdict:
    """Return the verdict on `sources`, which are in the order of precedence."""
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
    """Return a warning, GH1007, for each source of a verdict that is refused.

    Raises GH1026 instead if the settings say so.
    """
    found = []
    for refused, reason in verdict.refused:
        if verdict.chosen is not None and verdict.chosen.names == refused.names:
            continue  # another source requests the same devices
        names = ", ".join(refused.names[:8])
        if settings.on_refusal == FAIL:
            raise fault("GH1026", names=names, where=refused.where, reason=reason)
        found.append(fault("GH1007", names=names, where=refused.where, reason=reason))
    return found


def without_driver(source: Source, settings: Settings, missing: tuple[str, str]) -> GpuhookError:
    """Return the warning GH1008: a container starts without GPUs because the node has no driver.

    `missing` is VendorNode.missing_driver(). Raises GH1006 if the settings refuse that.
    """
    reason, cure = missing
    what = "the driver's files" if source.names == [NOTHING_BUT_FILES] else "GPUs"
    if settings.on_missing_driver != "start":
        raise fault("GH1006", where=source.where, what=what, reason=reason, cure=cure)
    return fault("GH1008", where=source.where, what=what, reason=reason)


def refused_capability(word: str, allowed: Sequence[str]) -> GpuhookError:
    """Return GH1027, the fault of a capability that is named and not among the `allowed` ones."""
    return fault("GH1027", word=word, allowed=", ".join(allowed))


def judge_extra(extra: Extra, spec: dict[str, Any], settings: Settings) -> Extra:
    """Return an extra with the decision of the node's policy."""
    if extra.result != WON:
        return extra
    if extra.is_list and settings.ignore_imex_channels:
        extra.is_reported = False  # the setting applies to every container
        return extra.out(IGNORED, _IMEX_IGNORED)
    reason = _objection(Source(extra.kind, extra.where, extra.names), spec, settings)
    return extra.out(REFUSED, reason) if reason else extra


def leave_out(extra: Extra, settings: Settings, warnings: list[GpuhookError]) -> None:
    """Add GH1041 to `warnings`: an extra does not apply; raises it if the settings say so."""
    found = fault("GH1041", where=extra.where, reason=extra.reason)
    if extra.result == REFUSED and settings.on_refusal == FAIL:
        raise found
    if extra.is_reported:
        warnings.append(found)


def permitted_names(
    source: Source, settings: Settings, words: Vocabulary, warnings: list[GpuhookError]
) -> list[str]:
    """Return the names of a source without the IMEX channels that the node's settings ignore.

    Without this check, the author of an image could request by CDI name in a variable what the
    settings refuse. Annotations come from an engine, or from a driver for dynamic resources. Adds
    to `warnings`.
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
    """Raise GH1009 for a source that is not a grant and names a vendor other than `default_kind`'s.

    Pods and images choose such sources: they may request GPUs, but not the other devices that the
    CDI specs of the host describe (another vendor's devices, management access, host directories).
    In a privileged container, a vendor whose name is a subdomain of that vendor is accepted.
    """
    vendor = default_kind.partition("/")[0]
    for name in source.names if source.kind in OWN_CHOICE else ():
        kind, equals, _ = name.partition("=")
        requested = kind.partition("/")[0]
        if not equals or "/" not in kind or requested == vendor:
            continue
        if not requested.endswith("." + vendor) or not privileged(spec):
            raise fault("GH1009", name=name, where=source.where, vendor=vendor)


def privileged(spec: dict[str, Any]) -> bool:
    """Return whether the container may administer the host: CAP_SYS_ADMIN in its bounding set."""
    return "CAP_SYS_ADMIN" in fastjson.array(spec, "process", "capabilities", "bounding")
