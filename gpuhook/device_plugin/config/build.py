# SPDX-License-Identifier: Apache-2.0
"""Checked values to a Configuration and back: the shape of the file and that of the facts."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from gpuhook.device_plugin.config import configuration as facts
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.grammar import config_keys
from gpuhook.device_plugin.config.grammar.name_values import ALL_XIDS, VENDOR
from gpuhook.device_plugin.config.grammar.value_kinds import ValueKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.grammar.grammar import Entries, Key, Section

Values = dict[str, Any]
STRATEGIES = {
    "timeSlicing": facts.TIME_SLICING,
    "mps": facts.MPS,
    "memoryUnits": facts.MEMORY_UNITS,
}
UNITS_NAME = VENDOR + "gpumem"  # of memory units without `rename`
_NO_MPS_ROOT = ""


def configuration(values: Values) -> Configuration:
    """Return the Configuration of checked values without contradictions; defaults are filled in."""
    default = Configuration()
    resources = values.get("resources", {})
    return Configuration(
        flags=_flags(values),
        gpus=_namings(resources.get("gpus")) or default.gpus,
        mig=_namings(resources.get("mig")),
        sharing=_sharing(values.get("sharing", {})),
        imex=facts.Imex(**_known(values, "imex")),
        own=_own(values.get("gpuhook", {})),
    )


def document(made: Configuration) -> Values:
    """Return the values of a file, as plain data, that says all of a Configuration."""
    values: Values = {
        "version": facts.VERSION,
        "flags": _plain(made.flags, "flags")
        | {"plugin": _plain(made.flags.plugin, "flags.plugin")}
        | {"gfd": _plain(made.flags.gfd, "flags.gfd")},
        "resources": {
            "gpus": [{"pattern": entry.pattern, "name": entry.name} for entry in made.gpus],
            "mig": [{"pattern": entry.pattern, "name": entry.name} for entry in made.mig],
        },
        "sharing": _plain_sharing(made.sharing),
        "imex": _plain(made.imex, "imex"),
        "gpuhook": _plain_own(made.own),
    }
    return values


def _flags(values: Values) -> facts.Flags:
    given = values.get("flags", {})
    known = _known(values, "flags")
    known["dev_root"] = known.get("dev_root") or None
    known["mps_root"] = known.get("mps_root") or values.get("mps", {}).get("root", _NO_MPS_ROOT)
    return facts.Flags(
        **known,
        plugin=facts.PluginFlags(**_known(given, "plugin", "flags.plugin")),
        gfd=facts.LabelFlags(**_known(given, "gfd", "flags.gfd")),
    )


def _namings(entries: list[Values] | None) -> tuple[facts.Naming, ...]:
    return tuple(facts.Naming(**entry) for entry in entries or ())


def _sharing(sharing: Values) -> facts.Sharing:
    for key, strategy in STRATEGIES.items():
        given = sharing.get(key)
        if given is None:
            continue
        return facts.Sharing(
            strategy=strategy,
            rename_by_default=given.get("renameByDefault", False),
            # MPS limits are a client's: a second replica would be no second share.
            refuses_more_than_one=strategy == facts.MPS
            or given.get("failRequestsGreaterThanOne", False),
            resources=tuple(shared(entry, key) for entry in given["resources"]),
            policy=given.get("policy", facts.PACKED),
        )
    return facts.Sharing()


def shared(entry: Values, strategy: str) -> facts.SharedResource:
    """Return what the values of one entry say; `strategy` is a key of STRATEGIES."""
    known = {key.field: entry[key.name] for key in _entry_keys(strategy) if key.name in entry}
    if isinstance(known.get("replicas"), dict):
        known |= {"replicas": 0, "replica_memory": known["replicas"]["memory"]}
    if strategy == "memoryUnits":
        known = {"rename": UNITS_NAME, "unit": facts.DEFAULT_UNIT} | known
    return facts.SharedResource(**known)


def guard(values: Values) -> facts.Guard:
    """Return what the values of gpuhook.guard say."""
    return facts.Guard(**_known({"guard": values}, "guard", "gpuhook.guard"))


def interposer(entry: Values) -> facts.Interposer:
    """Return what the values of one entry of gpuhook.interposers say."""
    edits = entry["containerEdits"]
    return facts.Interposer(
        entry["name"],
        env=edits.get("env", ()),
        mounts=tuple(
            facts.InterposerMount(
                mount["hostPath"], mount["containerPath"], "rw" not in mount.get("options", ())
            )
            for mount in edits.get("mounts", ())
        ),
        device_nodes=tuple(node["path"] for node in edits.get("deviceNodes", ())),
    )


def _own(own: Values) -> facts.Own:
    health = _known(own, "health", "gpuhook.health")
    for name, flag in (("ignored_xids", "ignores_all"), ("enabled_xids", "enables_all")):
        if health.get(name) == ALL_XIDS:
            del health[name]
            health[flag] = True
    return facts.Own(
        **_known({"gpuhook": own}, "gpuhook"),
        health=facts.Health(**health),
        metrics=facts.Metrics(**_known(own, "metrics", "gpuhook.metrics")),
        guard=guard(own.get("guard", {})),
        interposers=tuple(interposer(entry) for entry in own.get("interposers", ())),
    )


def _known(values: Values, name: str, path: str = "") -> Values:
    """Return the values of one section by their fields, without the sections in it."""
    section = _section(path or name)
    given = values.get(name, {})
    return {key.field: given[key.name] for key in section.keys if key.field and key.name in given}


@cache
def _entry_keys(strategy: str) -> tuple[Key, ...]:
    kind = dict(config_keys.walk())[f"sharing.{strategy}.resources"].kind
    return cast("Entries", kind).section.keys


def _section(path: str) -> Section:
    kind = dict(config_keys.walk())[path].kind
    return cast("Section", kind)


def _plain(made: object, path: str) -> Values:
    """Return a dataclass of scalars as the section of a file."""
    values: Values = {}
    for key in _section(path).keys:
        if not key.field or not isinstance(key.kind, ValueKind):
            continue
        value = getattr(made, key.field)
        if value is not None or path == "flags.gfd":  # None there: a sleep without an end
            values[key.name] = key.kind.plain(value)
    return values


def _plain_sharing(sharing: facts.Sharing) -> Values:
    key = next((key for key, name in STRATEGIES.items() if name == sharing.strategy), None)
    if key is None:
        return {}
    entries = [_plain_entry(entry, key) for entry in sharing.resources]
    return {key: _plain(sharing, f"sharing.{key}") | {"resources": entries}}


def _plain_entry(entry: facts.SharedResource, strategy: str) -> Values:
    """Return an entry as a file has it, without what is nobody's choice."""
    default = facts.SharedResource(entry.name)
    values: Values = {}
    for key in _entry_keys(strategy):
        value = getattr(entry, key.field)
        if key.required or key.name == "devices" or value != getattr(default, key.field):
            values[key.name] = key.kind.plain(value) if isinstance(key.kind, ValueKind) else value
    if entry.replica_memory is not None:
        values["replicas"] = {"memory": entry.replica_memory}
    return values


def _plain_interposer(made: facts.Interposer) -> Values:
    mounts = [
        {
            "hostPath": mount.host_path,
            "containerPath": mount.container_path,
            "options": ["ro" if mount.read_only else "rw"],
        }
        for mount in made.mounts
    ]
    edits = {
        "env": [f"{name}={value}" for name, value in made.env],
        "mounts": mounts,
        "deviceNodes": [{"path": path} for path in made.device_nodes],
    }
    return {
        "name": made.name,
        "containerEdits": {key: value for key, value in edits.items() if value},
    }


def _plain_own(own: facts.Own) -> Values:
    health = _plain(own.health, "gpuhook.health")
    if own.health.ignores_all:
        health["ignoredXids"] = ALL_XIDS
    if own.health.enables_all:
        health["enabledXids"] = ALL_XIDS
    metrics = _plain(own.metrics, "gpuhook.metrics")
    return _plain(own, "gpuhook") | {
        "health": health,
        "metrics": metrics,
        "guard": _plain(own.guard, "gpuhook.guard"),
        "interposers": [_plain_interposer(made) for made in own.interposers],
    }
