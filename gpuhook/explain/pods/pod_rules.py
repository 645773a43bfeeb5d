# SPDX-License-Identifier: Apache-2.0
"""The objections of Kubernetes to the GPU requests of a pod.

`kubectl apply --dry-run=server` checks the other parts of a manifest. Sources: the messages of
ValidateContainerResourceRequirements (kubernetes/pkg/apis/core/validation) and of the kubelet. The
kubelet sets the variables of the pod after those of device plugins, so the pod's values apply.
"""

from __future__ import annotations

from math import ceil

from gpuhook.errors import printable
from gpuhook.explain.pods import resource_names
from gpuhook.explain.pods.pod_requests import (
    API_SERVER,
    PENDING,
    REFUSED,
    SCHEDULER,
    Objection,
    kubelet_warning,
)
from gpuhook.host.quantity import MALFORMED, quantity
from gpuhook.host.suggestion import nearest
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from fractions import Fraction

    from gpuhook.explain.pods.manifest_value import Value
    from gpuhook.explain.pods.workloads import Pod
    from gpuhook.vendors.interfaces.vendor_interface import Vendor

_NOTHING = ("", "void", "none")


def pod_objections(pod: Pod) -> Iterator[Objection]:
    """Yield the objections to GPUs in the resources of a whole pod."""
    for section in ("limits", "requests"):
        for name, amount in pod.spec.at("resources", section).members().items():
            if resource_names.is_gpu(name):
                yield _refused(
                    "pod-level-gpu",
                    f'{pod.path}.resources.{section}[{name}]: Unsupported value: "{name}"',
                    f"{name}: {amount.text()} under resources.limits of the container that uses it",
                    amount,
                )


def resource_objections(resources: Value, path: str) -> Iterator[Objection]:
    """Yield the objections to the GPUs in a container's `resources`, at `path` in the object."""
    limits, requests = resources["limits"].members(), resources["requests"].members()
    for section, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{section}[{name}]"
            if resource_names.is_gpu(name):
                yield from _amount(name, amount, where)
            else:
                yield from _name(name, amount, where)
    for name, value in resources.members().items():
        if resource_names.is_gpu(name):
            instead = f"limits: {{{name}: {value.text() or '1'}}}, below resources"
            said = f'strict decoding error: unknown field "{path}.{name}"'
            yield _refused("resources-field", said, instead, value)
    for name in filter(resource_names.is_gpu, requests):
        yield from _request(name, requests[name], limits.get(name), path)


def _request(name: str, amount: Value, limit: Value | None, path: str) -> Iterator[Objection]:
    """Yield an objection to a request of GPUs that differs from the limit."""
    request = quantity(amount.text())
    if request is None:
        return
    if limit is None:
        yield _refused(
            "gpu-under-requests",
            f"{path}.limits: Required value: Limit must be set for non overcommitable resources",
            f"{name}: {_whole(request)} under limits; requests are optional",
            amount,
        )
        return
    number = quantity(limit.text())
    if number is not None and number != request:
        yield _refused(
            "unequal",
            f'{path}.requests: Invalid value: "{amount.text()}": must be equal to {name} limit '
            f"of {limit.text()}",
            f"{name}: {_whole(number)} in both, or only under limits",
            amount,
        )


def ephemeral_objections(resources: Value, path: str) -> Iterator[Objection]:
    """Yield an objection to GPUs in the `resources` of an ephemeral container."""
    names = (name for section in ("limits", "requests") for name in resources[section].members())
    for name in [*filter(resource_names.is_gpu, names)][:1]:
        variable = resource_names.vendor_of(name).vocabulary.devices_env
        yield _refused(
            "ephemeral-resources",
            f"{path}: Forbidden: cannot be set for an Ephemeral Container",
            "remove them: an ephemeral container gets no devices; request the GPU in a container "
            f"of the pod, or set {variable} in a separate pod",
            resources,
        )


def _name(name: str, amount: Value, path: str) -> Iterator[Objection]:
    """Yield an objection to the name of a GPU that no plugin offers."""
    if name == resource_names.OBSOLETE:
        said = f"0/1 nodes are available: 1 Insufficient {name}. (removed in 1.11)"
        instead = f"{resource_names.GPU}: {amount.text()}"
        yield Objection("obsolete", SCHEDULER, PENDING, said, instead, amount.where)
    elif resource_names.lacks_domain(name):
        like = nearest(f"nvidia.com/{name}", resource_names.USUAL)
        yield _refused(
            "resource-unqualified",
            f'{path}: Invalid value: "{name}": must be a standard resource type or fully qualified',
            f"{like or resource_names.GPU}: {amount.text() or '1'}",
            amount,
        )


def _amount(name: str, amount: Value, path: str) -> Iterator[Objection]:
    """Yield the objections to a number of GPUs; servers print the amount in several forms."""
    text = amount.text()
    number = quantity(text)
    if number is None:
        yield _refused("quantity", f"{path}: {MALFORMED}", f"{name}: 1", amount)
        return
    if number < 0:
        said = f'{path}: Invalid value: "{text}": must be greater than or equal to 0'
        yield _refused("negative", said, f"{name}: 1, or nothing", amount)
    if number.denominator != 1:
        yield _refused(
            "fraction",
            f'{path}: Invalid value: "{text}": must be an integer',
            f"{name}: {_whole(number)}; for a part of a GPU, request one unit of a shared "
            "resource: configure the plugin to divide the GPU (sharing.timeSlicing, "
            "sharing.memoryUnits) or use MIG",
            amount,
        )


def _whole(number: Fraction) -> int:
    """Return the next whole amount, at least one."""
    return max(1, ceil(number))


def container_objections(
    container: Value, env: Mapping[str, str], gpus: Mapping[str, int]
) -> Iterator[Objection]:
    """Yield the objections to one container with these variables and GPUs."""
    for vendor in vendors():
        yield from _vendor_objections(vendor, container, env, gpus)
    yield from _not_strings(container)
    yield from _zero(container, env)
    privileged = container.at("securityContext", "privileged")
    held = _listed(gpus)
    if privileged.is_true() and gpus:
        yield kubelet_warning(
            "privileged",
            f"is privileged: it has the nodes of all GPUs of the machine, but is allocated {held}",
            "no privileged: true; the capabilities that it needs instead",
            privileged.where,
        )


def _listed(gpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in gpus.items())


def _vendor_objections(
    vendor: Vendor, container: Value, env: Mapping[str, str], gpus: Mapping[str, int]
) -> Iterator[Objection]:
    """Yield the objections to the requests of one vendor's GPUs.

    By default, the plugin names GPUs whose driver has files to a runtime, in a variable, and passes
    the device nodes of others.
    """
    name = vendor.vocabulary.devices_env
    own = {one: n for one, n in gpus.items() if resource_names.vendor_of(one).name == vendor.name}
    place = next((v for v in container["env"].items() if v["name"].text() == name), container)
    yield from _variable(vendor, place.where, env.get(name), _listed(own))
    if len(own) > 1 and vendor.traces.HAS_FILES:
        yield kubelet_warning(
            "several-resources",
            f"requests {' and '.join(own)}: each is allocated separately, and the kubelet keeps "
            f"one of their values of {name}, in no defined order",
            "one of them; or use the list strategy cdi-cri, which adds all devices",
            container["resources"].where,
        )


def _variable(vendor: Vendor, where: str, value: str | None, held: str) -> Iterator[Objection]:
    """Yield an objection to the devices' variable; `held` are the allocated GPUs, "" for none."""
    if value is None:
        return
    name = vendor.vocabulary.devices_env
    shown = f"{name}={printable(value, 80)}"
    if held and not vendor.traces.HAS_FILES:
        if value not in _NOTHING:
            yield kubelet_warning(
                "devices-by-hand",
                f"{shown} in the pod is another request, to a runtime that reads it: the "
                f"container may get these GPUs in addition to its allocation, {held}",
                f"no {name} in env: the device plugin passes the device nodes",
                where,
            )
    elif held:
        what = "no GPU" if value in _NOTHING else "these GPUs"
        yield kubelet_warning(
            "devices-by-hand",
            f"{shown} in the pod overrides the variable of the device plugin (list strategy "
            f"envvar): the container gets {what}, but is allocated {held}",
            f"no {name} in env: the device plugin sets it",
            where,
        )
    elif value not in _NOTHING:
        yield kubelet_warning(
            "devices-unbooked",
            f"{shown} uses GPUs without the scheduler's knowledge: other pods can also get them",
            resource_names.request_of(vendor),
            where,
        )


def _not_strings(container: Value) -> Iterator[Objection]:
    """Yield an objection to each variable of a vendor whose value is a number or a boolean."""
    words = [vendor.vocabulary for vendor in vendors()]
    names = [name for one in words for name in (one.devices_env, one.capabilities_env)]
    variables = set(filter(None, names))
    for variable in container["env"].items():
        name, value = variable["name"].text(), variable["value"]
        if name in variables and value.kind in ("number", "bool"):
            yield _refused(
                "not-a-string",
                f"json: cannot unmarshal {value.kind} into Go struct field EnvVar.env.value of "
                "type string",
                f'{name}: value: "{value.text()}"',
                value,
            )


def _zero(container: Value, env: Mapping[str, str]) -> Iterator[Objection]:
    for name, amount in container.at("resources", "limits").members().items():
        vendor = resource_names.vendor_of(name)
        variable = vendor.vocabulary.devices_env
        images = vendor.requests.REQUESTING_IMAGES
        if images is None or variable in env:
            continue
        if resource_names.is_gpu(name) and amount.text() == "0":
            yield kubelet_warning(
                "zero",
                f"{name}: 0 does not hide GPUs: the kubelet does not call the device plugin, and "
                f"{variable}=all of a {images.name} image applies if the node's runtime accepts it",
                f'env: {variable}: "void"',
                amount.where,
            )


def _refused(identifier: str, said: str, instead: str, value: Value) -> Objection:
    return Objection(identifier, API_SERVER, REFUSED, said, instead, value.where)
