# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra status`: the drivers of this node, their devices and their claims."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.dra import node_place
from gpuhook.cli.options import command_sections, parameters
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DRIVERS = ("DRIVER", "SOCKET", "REGISTERED", "POOL", "DEVICES", "TAINTED", "SLICES", "CLAIMS")
CLAIMS = ("CLAIM", "DRIVER", "DEVICES", "STATE", "PODS")
_NOTHING = "-"


@click.command(cls=command_sections.SectionedCommand)
@node_place.options
@parameters.output("table", "json", "yaml")
@parameters.no_headers
def status(kubelet_root: str | None, cdi_directory: str, output: str, no_headers: bool) -> None:
    """Show the DRA drivers of this node, and the claims that they have prepared.

    The command reads the files and the sockets of the drivers and of the kubelet, and does not use
    the API server. A driver that runs reports its registration, its pool, its ResourceSlices, and
    the features of the API server.
    """
    place = node_place.place(kubelet_root, cdi_directory)
    document = node_place.imported("driver_status").status(place)
    if output != console.TABLE:
        console.document(document, output)
    elif document["drivers"]:
        console.rows(DRIVERS, list(_drivers(document)), no_headers=no_headers)
        claims = list(_claims(document))
        if claims:
            click.echo()
            console.rows(CLAIMS, claims, no_headers=no_headers)
    for warning in _warnings(document):
        console.warn(warning)
    if not document["drivers"] and output == console.TABLE:
        console.say(f"no DRA driver of gpuhook has run on this node ({place.kubelet})")


def _drivers(document: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each socket of a driver; without one, the driver does not run."""
    for driver in document["drivers"]:
        claims = str(len(driver["claims"]))
        for socket in driver["sockets"] or [{"path": "", "state": None}]:
            state = socket["state"]
            path = socket["path"] or "none: it does not run"
            if state is None:
                nothing = [_NOTHING] * (len(DRIVERS) - 3)
                yield driver["name"], path, *nothing, claims
                continue
            devices = (state["pool"] or {}).get("devices", [])
            yield (
                driver["name"],
                path,
                _registered(state["registration"]),
                (state["pool"] or {}).get("name") or _NOTHING,
                str(len(devices)),
                str(sum(bool(one["taints"]) for one in devices)),
                str(len(state["slices"])) if state["published"] else "not published",
                claims,
            )


def _registered(outcome: str) -> str:
    return {"registered": "yes", "": "not yet"}.get(outcome, "refused")


def _claims(document: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for driver in document["drivers"]:
        for claim in driver["claims"]:
            yield (
                f"{claim['namespace']}/{claim['name']}",
                driver["name"],
                ",".join(_device(one) for one in claim["devices"]),
                "prepared" if claim["complete"] else "begun",
                ",".join(claim["pods"]) or _NOTHING,
            )


def _device(one: dict[str, Any]) -> str:
    return f"{one['device']}/{one['share']}" if one["share"] else str(one["device"])


def _warnings(document: dict[str, Any]) -> Iterator[str]:
    """Yield what does not work, and the taints of devices."""
    if document["kubelet"]["trouble"]:
        yield f"the pods of the claims are not known: {document['kubelet']['trouble']}"
    for driver in document["drivers"]:
        name = driver["name"]
        if driver["checkpoint"]["trouble"]:
            yield f"{name}: the claims are those of CDI specs: {driver['checkpoint']['trouble']}"
        for socket in driver["sockets"]:
            if socket["trouble"]:
                yield f"{name}: {socket['path']}: {socket['trouble']}"
            yield from _of_state(name, socket["state"] or {})


def _of_state(name: str, state: dict[str, Any]) -> Iterator[str]:
    outcome = state.get("registration", "")
    if outcome not in {"", "registered"}:
        yield f"{name}: the kubelet has not registered the driver: {outcome}"
    if state.get("trouble"):
        yield f"{name}: the slices are not up to date: {state['trouble']}"
    for one in (state.get("pool") or {}).get("devices", []):
        for taint in one["taints"]:
            value = f"={taint['value']}" if taint["value"] else ""
            since = f" since {taint['since']}" if taint["since"] else ""
            yield f"{name}: {one['name']}: {taint['key']}{value}:{taint['effect']}{since}"
