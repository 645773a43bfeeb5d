# SPDX-License-Identifier: Apache-2.0
"""What the API server cannot decode: fields of mistyped names, texts that are numbers to YAML.

Only what looks like a known field is told: a newer Kubernetes may have fields that are not here.
Source: PodSpec and Container of the core/v1 API; the words are those of strict decoding and of Go.
"""

from __future__ import annotations

from gpuhook.explain.pods.pod_requests import API_SERVER, REFUSED, Objection
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.explain.pods.manifest_value import Value
    from gpuhook.explain.pods.workloads import Pod

_POD = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
        "workloadRef",
        "schedulingGroup",
    }
)
_CONTAINER = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "restartPolicyRules",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "targetContainerName",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    }
)


def of_pod(pod: Pod) -> Iterator[Objection]:
    """Return the objections to the fields of a pod's specification and its annotations."""
    yield from _mistyped(pod.spec, _POD, pod.path)
    place = f"{pod.path.removesuffix('spec')}metadata.annotations".lstrip(".")
    for name, value in pod.metadata["annotations"].members().items():
        if value.kind in ("number", "bool"):
            yield _not_a_string(f"ObjectMeta.{place}", f"{name}: {_quoted(value)}", value)


def of_container(container: Value, path: str) -> Iterator[Objection]:
    """Return the objections to the fields of a container at `path`, and to its variables."""
    yield from _mistyped(container, _CONTAINER, path)
    place = f"{path.partition('[')[0]}.env.value"
    for variable in container["env"].items():
        value = variable["value"]
        if value.kind in ("number", "bool"):
            written = f"{variable['name'].text()}: value: {_quoted(value)}"
            yield _not_a_string(f"EnvVar.{place}", written, value)


def _mistyped(value: Value, known: Iterable[str], path: str) -> Iterator[Objection]:
    known = frozenset(known)
    for name, member in value.members().items():
        like = None if name in known else nearest(name, known)
        if like is not None:
            said = f'strict decoding error: unknown field "{path}.{name}"'
            instead = f"{like} instead of {name}"
            yield Objection("unknown-field", API_SERVER, REFUSED, said, instead, member.where)


def _not_a_string(field: str, instead: str, value: Value) -> Objection:
    said = f"json: cannot unmarshal {value.kind} into Go struct field {field} of type string"
    return Objection("not-a-string", API_SERVER, REFUSED, said, instead, value.where)


def _quoted(value: Value) -> str:
    return f'"{value.text()}"'
