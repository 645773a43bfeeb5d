# SPDX-License-Identifier: Apache-2.0
"""`create` and `run`: from a bundle's config.json to one that gives the container its GPUs.

HOT. request -> policy -> resolve -> ContainerEdits -> apply, and the jobs in the root file system
that would otherwise be a hook's. Imported only for a config.json that may ask for a GPU.
"""

from __future__ import annotations

import os
import time

from gpuhook import fastjson, files, state
from gpuhook.container import ledger, oci, record
from gpuhook.errors import GpuhookError, fault
from gpuhook.grant import request, resolve
from gpuhook.programs import bundled, granting, rootfs_jobs, told_replicas
from gpuhook.vendors.nvidia import jobs, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.programs.oci_command import Command


class Create:
    """One create: the call, and how this node grants.

    `launcher` is the path of our program that the engine has called. `trouble` is what is wrong
    with the settings: no GPU is given under an unknown policy.
    """

    def __init__(
        self,
        command: Command,
        grants: granting.Granting,
        launcher: str,
        trouble: GpuhookError | None = None,
    ) -> None:
        self.command = command
        self.launcher = launcher
        self.grants = grants
        self.log = grants.log
        self._trouble = trouble
        self._began = time.monotonic()

    def edit(self, path: str, raw: bytes, low_level: str) -> None:
        """Rewrite the config.json at `path`, whose content is `raw`, if it asks for GPUs.

        Raises a GpuhookError or OSError if the container was given a GPU and cannot have it;
        config.json is untouched then.
        """
        spec = oci.parsed(path, raw)
        taken_back = record.take_back(spec)
        source = self.grants.source(spec)
        engine_hooks = granting.our_hooks(spec)
        if source is None:
            is_changed = False
            if engine_hooks or request.limits_memory(spec, words.VOCABULARY):
                is_changed = self._note_engine(spec, engine_hooks, low_level)
            if is_changed or taken_back:
                files.replace(path, fastjson.dumps(spec))
            return
        if self._trouble is not None:
            raise self._trouble
        grant = self.grants.of(spec, source)
        memory: list[dict[str, Any]] = []
        if grant is not None:
            memory = self._apply(spec, source, grant, engine_hooks, low_level)
        if grant is not None or taken_back:
            # Without a grant: what an earlier create gave, when there was a driver, goes.
            files.replace(path, fastjson.dumps(spec))
        if grant is not None:
            self._enter_in_ledger(spec, source, grant, low_level, "wrapper", memory=memory)

    def _apply(
        self,
        spec: dict[str, Any],
        source: request.Source,
        grant: resolve.Grant,
        engine_hooks: list[dict[str, Any]],
        low_level: str,
    ) -> list[dict[str, Any]]:
        """Apply the grant to `spec` and do the jobs of its hook that no engine's hook will do.

        Returns the ledger's records of its memory limits.
        """
        before = record.survey(spec)
        todo = self.grants.jobs(grant, granting.capabilities_of(spec))
        brought = [hook["args"] for hook in engine_hooks]
        todo = [job for job in todo if job.hook()["args"] not in brought]
        void = words.VOCABULARY.devices_env + "=void"
        env = grant.edits.get("env") or []
        grant.edits["env"] = env if void in env else [*env, void]
        oci.apply(spec, grant.edits)
        _remove_foreign_hooks(spec)
        outcome = rootfs_jobs.do(self.command.bundle, spec, grant.edits, todo)
        for hook in outcome.hooks:
            oci.add_hook(spec, hook)
        for what in outcome.left_out:
            self.log.warning(fault("GH1641", what=what))
        # In a user namespace they are not among config.json's: there they are bound.
        nodes = [node["path"] for node in grant.edits.get("deviceNodes") or ()]
        names = [*grant.devices, *source.names]
        memory, entries = self._limit(spec, nodes, names, low_level)
        grant.edits["env"] += entries
        record.write(spec, before, grant.edits)
        return memory

    def _note_engine(
        self, spec: dict[str, Any], engine_hooks: list[dict[str, Any]], low_level: str
    ) -> bool:
        """Check and enter a container to which its engine has applied our CDI spec already.

        Returns whether `spec` was changed.
        """
        for hook in engine_hooks:
            granting.require_fresh(jobs.of_hook(hook), self.grants.settings.spec_dirs)
        before = record.survey(spec)
        memory, entries = self._limit(spec, [], [], low_level)
        if memory and self._trouble is not None:
            raise self._trouble
        if memory:
            record.write(spec, before, {"env": entries})
        if engine_hooks or memory:
            grant = resolve.Grant()
            self._enter_in_ledger(spec, None, grant, low_level, "cdi+wrapper", memory=memory)
        is_voided = bool(engine_hooks) and _voided(spec)
        return is_voided or bool(memory)

    def _limit(
        self, spec: dict[str, Any], nodes: list[str], names: list[str], low_level: str
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Limit the container's memory of its devices, if that is limited.

        Returns the ledger's records, and the variables that were set for it.
        """
        if not request.limits_memory(spec, words.VOCABULARY):
            return [], []
        bundled.load("gpuhook.programs.memory.at_create")
        from gpuhook.programs.memory import at_create

        root = self.command.root or state.runtime_root(low_level)
        has = at_create.Has([*oci.device_paths(spec), *nodes], names)
        return at_create.add(spec, has, self.grants, self.launcher, root)

    def _enter_in_ledger(
        self,
        spec: dict[str, Any],
        source: request.Source | None,
        grant: resolve.Grant,
        low_level: str,
        route: str,
        *,
        memory: list[dict[str, Any]],
    ) -> None:
        command = self.command
        if not ledger.is_id(command.identity):
            return  # the runtime will refuse the id
        root = command.root or state.runtime_root(low_level)
        if os.path.isdir(os.path.join(root, command.identity)):
            return  # and one that is in use, whose entry stays as it is
        nodes = oci.device_paths(spec)
        told = told_replicas.of(spec, grant.devices, lambda: self.grants.covered(nodes))
        creator = os.getppid()  # the launcher, which becomes the runtime
        entry: dict[str, Any] = {
            **ledger.pod_of(spec.get("annotations")),
            "bundle": os.path.abspath(command.bundle),
            "devices": grant.devices,
            "nodes": nodes,
            "replicas": grant.replicas or told,
            "requested": source.names if source else [],
            "source": source.where if source else "",
            "route": route,
            "runtime": low_level,
            "pid": creator,
            "started": ledger.start_time(creator),
            "milliseconds": round((time.monotonic() - self._began) * 1000, 2),
        }
        if memory:
            entry["memory"] = memory
        trouble = ledger.enter(root, command.identity, entry)
        if trouble is not None:
            self.log.warning(trouble)


def _voided(spec: dict[str, Any]) -> bool:
    """Leave one entry of the devices' variable, `void`; returns whether there were others.

    Engines append CDI's entry to the image's, and getenv(3) finds the first.
    """
    name = words.VOCABULARY.devices_env
    env = spec["process"]["env"]
    held = [entry for entry in env if isinstance(entry, str) and entry.startswith(name + "=")]
    if len(held) < 2:
        return False
    oci.set_variable(spec, name + "=void")
    return True


def _remove_foreign_hooks(spec: dict[str, Any]) -> None:
    """Remove NVIDIA's prestart hooks: they would give the container its GPUs a second time."""
    hooks = spec.get("hooks")
    stage = hooks.get("prestart") if isinstance(hooks, dict) else None
    if isinstance(stage, list):
        stage[:] = [
            hook
            for hook in stage
            if not (
                isinstance(hook, dict)
                and str(hook.get("path")).rpartition("/")[2] in words.FOREIGN_HOOKS
            )
        ]
