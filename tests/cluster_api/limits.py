# SPDX-License-Identifier: Apache-2.0
"""The checks that the limits of several kinds have in common.

Source: pkg/apis/resource/validation and apimachinery's content checks in Kubernetes 1.36.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Any

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SEMVER = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
EFFECTS = ("None", "NoSchedule", "NoExecute")


class Errors(list[str]):
    """The errors of an object, each with the path of the field."""

    def need(self, holds: object, path: str, reason: str) -> bool:
        """Add an error unless `holds`; returns whether it holds."""
        if not holds:
            self.append(f"{path}: {reason}")
        return bool(holds)

    def most(self, items: Collection[object], most: int, path: str) -> bool:
        count = len(items)
        return self.need(count <= most, path, f"Too many: {count}: must have at most {most} items")

    def known(self, one: Any, names: Iterable[str], path: str) -> bool:
        """Refuse other fields, as with fieldValidation=Strict: a typing error must not pass."""
        if not self.need(isinstance(one, dict), path, "must be an object"):
            return False
        extra = sorted(set(one) - set(names))
        return self.need(not extra, path, f"unknown fields {extra}")

    def unique(self, keys: Collection[object], path: str) -> None:
        self.need(len(set(keys)) == len(keys), path, "Duplicate value")

    def label(self, name: Any, path: str) -> None:
        self.need(isinstance(name, str) and LABEL.fullmatch(name), path, f"{name!r}: no DNS label")

    def subdomain(self, name: Any, path: str, most: int = 253) -> None:
        holds = isinstance(name, str) and SUBDOMAIN.fullmatch(name) and len(name) <= most
        self.need(holds, path, f"{name!r}: no DNS subdomain of at most {most} characters")

    def driver(self, name: Any, path: str) -> None:
        self.subdomain(name, path, 63)

    def pool(self, name: Any, path: str) -> None:
        holds = isinstance(name, str) and 0 < len(name) <= 253
        if self.need(holds, path, "must have 1 to 253 characters"):
            for part in name.split("/"):
                self.subdomain(part, path)

    def qualified(self, name: str, path: str) -> None:
        """Check the name of an attribute or capacity."""
        domain, slash, own = name.rpartition("/")
        if slash:
            self.driver(domain, path)
        fits = IDENTIFIER.fullmatch(own) and len(own) <= 32
        self.need(fits, path, f"{own!r}: no C identifier of at most 32 characters")

    def key(self, name: Any, path: str) -> None:
        """Check the key of a taint, which is the name of a label."""
        domain, slash, own = str(name).rpartition("/")
        if slash:
            self.subdomain(domain, path)
        self.need(LABEL_NAME.fullmatch(own), path, f"{name!r}: no label name")

    def opaque(self, one: Any, path: str) -> None:
        if self.known(one, ("driver", "parameters"), path):
            self.driver(one.get("driver"), f"{path}.driver")
            self.json_object(one.get("parameters"), f"{path}.parameters")

    def json_object(self, one: Any, path: str) -> None:
        """Check an object of any content: at most 10 KiB."""
        if self.need(isinstance(one, dict), path, "must be a JSON object"):
            size = len(json.dumps(one, separators=(",", ":")))
            self.need(size <= 10 << 10, path, f"Too long: {size}: may not be more than 10240 bytes")
