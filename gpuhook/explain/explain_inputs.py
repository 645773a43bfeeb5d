# SPDX-License-Identifier: Apache-2.0
"""The questions for an argument: a bundle, a file, or the name of a container."""

from __future__ import annotations

import json
import os
from typing import Any

from gpuhook.apply.live.live_injection import LiveRecord
from gpuhook.apply.spec import config_json
from gpuhook.containers import find
from gpuhook.containers.hot import ledger_warnings
from gpuhook.containers.warm import ledger_changes
from gpuhook.containers.warm.runtime_state import STOPPED
from gpuhook.errors import GpuhookError, fault
from gpuhook.explain import image_env, manifest_questions, question
from gpuhook.explain.question import Question
from gpuhook.host import documents
from gpuhook.host.hot import fastjson
from gpuhook.live import container_worker
from gpuhook.request import parse
from gpuhook.usage import injection_route
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.explain.claims.claim_objects import ClaimManifest

_YAML = (".yaml", ".yml")
# Of manifests with claims: their group, the field of pods, the prefix of extended resources.
_OF_CLAIMS = (b"resource.k8s.io", b"resourceClaims", b"deviceclass.resource.kubernetes.io/")


def bundle_question(path: str) -> Question:
    """Return the question of a bundle. Raises GH1915 if it has no config.json, GH1301, GH1316."""
    place = os.path.join(path, "config.json")
    try:
        raw = documents.read(place)
    except FileNotFoundError as error:
        raise fault("GH1915", path=path) from error
    return Question(
        question.BUNDLE, path, config_json.parsed(place, raw), path, has_root=True, raw=raw
    )


def text_questions(raw: bytes, where: str) -> list[Question]:
    """Return the questions of a config.json, an image's configuration, or manifests of pods.

    Raises GH1910 for any other text, GH1301 for a broken config.json, and what
    manifest_questions.questions() raises.
    """
    if not raw.strip():
        raise fault("GH1910", where=where, reason="it is empty")
    try:
        document = _json(raw)
    except ValueError as error:
        if not where.endswith(_YAML) and raw.lstrip()[:1] in (b"{", b"["):
            raise fault(
                "GH1910", where=where, reason=f"it cannot be read as JSON: {error}"
            ) from None
        return manifest_questions.questions(_text(raw, where), where)
    if isinstance(document, dict):
        if "ociVersion" in document or "process" in document:
            return [_config_question(raw, where)]
        if "kind" in document:
            return manifest_questions.questions(_text(raw, where), where)
    if image_env.is_image(document):
        return image_env.questions(document, where)
    reason = "it is not a config.json, an image configuration or a Kubernetes object"
    raise fault("GH1910", where=where, reason=reason)


def _json(raw: bytes) -> Any:
    """Return the value of a JSON document, also in UTF-16 or UTF-32; raises ValueError."""
    encoding = json.detect_encoding(raw)
    text = raw if encoding == "utf-8" else raw.decode(encoding).encode()
    return fastjson.loads(text, exact=True)


def container_question(text: str, state_roots: Sequence[str]) -> Question:
    """Return the question of a running container; raises the faults of find() and config().

    Raises GH1760 if its root file system does not answer. The edits of a vendor's runtime are
    removed from its variables: the question has the original request.
    """
    found = find.find(text, state_roots)
    spec = found.config()
    if not spec and found.status == STOPPED:
        raise fault("GH1738", id=found.name or found.id, status=found.status)
    if not spec:
        raise fault("GH1912", id=found.id)
    entry = ledger_changes.find_entry(found.state_root, found.id, found.pid) or {}
    held = injection_route.injected_devices(found, spec)
    names = [vendor.vocabulary.devices_env for vendor in vendors()]
    restored = [note for name in names for note in _restore_request(spec, name)]
    notes = [*restored, *_attach_notes(entry)]
    place = found.bundle or "."
    where = f"{found.id} ({found.engine or found.runtime or 'its runtime'}, pid {found.pid})"
    return Question(
        question.CONTAINER,
        where,
        spec,
        place,
        has_root=container_worker.call_in_child(found.id, lambda: _has_root(place, spec)),
        notes=tuple(notes),
        start_warnings=tuple(ledger_warnings.read(entry)),
        held=held,
    )


def _config_question(raw: bytes, where: str) -> Question:
    spec = config_json.parsed(where, raw)
    place = os.path.dirname(os.path.abspath(where))
    has_root = _has_root(place, spec)
    return Question(question.CONFIG, where, spec, place, has_root=has_root, raw=raw)


def _has_root(bundle: str, spec: dict[str, Any]) -> bool:
    path = question.root_path(spec)
    return bool(path) and os.path.isdir(os.path.join(bundle, path))


def _restore_request(spec: dict[str, Any], name: str) -> list[str]:
    """Remove the `void` that a runtime has appended to the variable `name`; return a note."""
    if parse.environment(spec).get(name) != "void":
        return []
    env = spec["process"]["env"]
    held = [n for n, entry in enumerate(env) if str(entry).startswith(name + "=")]
    if len(held) < 2:
        return []
    del env[held[-1]]
    first = env[held[-2]]
    note = f"{name}=void in its config.json: a runtime has already added its GPUs"
    return [f"{note}; this explains the request before that, {first}"]


def _attach_notes(entry: dict[str, Any]) -> list[str]:
    """Return a note on the device nodes that `gpuhook attach` added, by the ledger entry."""
    nodes = LiveRecord(entry.get("live")).edits.get("deviceNodes") or ()
    kept = [node["path"] for node in nodes if node["path"] not in entry.get("withdrawn", ())]
    if not kept or entry.get("route") == "prestart":
        return []
    return [f"gpuhook attach added {', '.join(kept)}, which the explanation does not include"]


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise fault("GH1910", where=where, reason="it is not text") from error


def is_present(path: str) -> bool:
    """Return whether a file of this name exists; it takes precedence over a container."""
    try:
        return os.path.exists(path)
    except ValueError:  # a zero byte
        return False


def named_questions(
    text: str, state_roots: Sequence[str], *, has_classes: bool = False
) -> tuple[list[Question], ClaimManifest | None]:
    """Return the questions of the directory, the file or else the container `text`.

    - is standard input. The manifest is None without claims, unless `has_classes` of other files.
    """
    if text != "-" and os.path.isdir(text):
        return [bundle_question(text)], None
    if text == "-" or is_present(text):
        where = documents.STANDARD_INPUT if text == "-" else text
        return _file_questions(documents.read(text), where, has_classes=has_classes)
    try:
        return [container_question(text, state_roots)], None
    except GpuhookError as error:
        if "/" in text or ":" in text or text.endswith((*_YAML, ".json")):
            raise fault("GH1911", path=text) from error
        raise


def _file_questions(
    raw: bytes, where: str, *, has_classes: bool
) -> tuple[list[Question], ClaimManifest | None]:
    found = text_questions(raw, where)
    is_manifest = not found or found[0].asked is not None
    if not is_manifest or not (has_classes or any(mark in raw for mark in _OF_CLAIMS)):
        return found, None
    from gpuhook.explain.claims import claim_manifests  # it loads the code of claims

    return found, claim_manifests.read(_text(raw, where), where)
