# SPDX-License-Identifier: Apache-2.0
"""Requests of a container, by every source and in every form."""

from __future__ import annotations

from typing import Any

from tests.record import images
from tests.record.groups.creation import Creation, devices

FIRST = "GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21"
FOURTH = "GPU-a4630c9d-18f5-4e7a-b2d0-6c8f1e3b5907"
MIG_GPU = "GPU-8f5c2d19-4b7e-4a03-9d61-c2e80f7b35a4"
BELOW = "/var/run/nvidia-container-devices/"

VALUES = {
    "empty": "",
    "comma": ",",
    "space": " ",
    "void": "void",
    "void-in-list": "0,void",
    "none": "none",
    "none-and-index": "none,1",
    "all": "all",
    "all-in-list": "1,all",
    "index": "0",
    "index-7": "7",
    "index-padded": "07",
    "list": "0,1,3",
    "list-spaced": " 0 , 1 ",
    "list-twice": "1,1,0",
    "list-empty-parts": ",,1,,",
    "range": "1-3",
    "range-reversed": "3-1",
    "range-open": "3-",
    "range-too-far": "6-9",
    "uuid": FIRST,
    "uuid-minor-differs": FOURTH,
    "uuid-short": "GPU-a46",
    "uuid-short-no-prefix": "a4630c9d",
    "uuid-upper": FIRST.upper(),
    "uuid-ambiguous": "GPU-",
    "pci": "00000000:1B:00.0",
    "pci-short": "1B:00.0",
    "pci-domain": "0000:1b:00.0",
    "pci-lower": "00000000:1b:00.0",
    "pci-unknown": "00000000:AA:00.0",
    "index-and-uuid": f"0,{FIRST}",
    "replica": f"{FIRST}::2",
    "replica-index": "3::1",
    "replicas": f"{FIRST}::0,{FOURTH}::1",
    "replicas-same": f"{FIRST}::0,{FIRST}::1",
    "replica-bad": f"{FIRST}::x",
    "replica-empty": f"{FIRST}::",
    "replica-void": "::1",
    "cdi-name": "nvidia.com/gpu=2",
    "cdi-names": "nvidia.com/gpu=2,nvidia.com/gpu=4",
    "cdi-all": "nvidia.com/gpu=all",
    "cdi-uuid": f"nvidia.com/gpu={FOURTH}",
    "cdi-unknown-device": "nvidia.com/gpu=99",
    "cdi-unknown-class": "nvidia.com/tpu=0",
    "cdi-other-vendor": "example.com/net=eth0",
    "cdi-runtime-annotation": "runtime.nvidia.com/gpu=0",
    "cdi-subdomain": "management.nvidia.com/gpu=all",
    "cdi-no-name": "nvidia.com/gpu=",
    "unknown-index": "8",
    "unknown-uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "unknown-word": "gpu0",
    "word-no-gpu": "NoDevFiles",
    "negative": "-1",
    "huge": "9" * 40,
    "control": "a\x1bb",
    "long": "x" * 256,
    "longest": "x" * 255,
    "unicode": "gpü",
    "slash": "0/1",
    "mig-none-here": "0:0",
    "mig-enabled": "mig-enabled",
}

MIG_VALUES = {
    "index": "0:0",
    "indexes": "0:0,0:1",
    "index-gap": "1:3",
    "index-behind-gap": "1:4",
    "index-parent": "0",
    "index-parent-of-none": "2",
    "all": "all",
    "none": "none",
    "old-form": f"MIG-{MIG_GPU}/7/0",
    "old-form-unknown": f"MIG-{MIG_GPU}/70/0",
    "uuid": "MIG-5e0e5a0f-0000-5000-8000-000000000000",
    "parent-uuid": MIG_GPU,
    "replica": "0:0::1",
    "cdi": "nvidia.com/gpu=0:2",
    "cdi-mig": "nvidia.com/gpu=mig0:1",
    "two-of-one-instance": "1:1,1:2",
    "gpu-and-instance": "2,0:0",
    "range": "0:0-2",
    "pci": "00000000:47:00.0",
    "index-of-none": "2:0",
    "half": "0:",
}


def mount(below: str, source: str = "/dev/null") -> dict[str, Any]:
    """Return a mount that requests the name below the directory."""
    options = ["bind", "ro"]
    return {"destination": below, "type": "bind", "source": source, "options": options}


def mounts(*names: str, **more: Any) -> dict[str, Any]:
    """Return the parts of a config.json with such mounts."""
    known: list[Any] = images.config([])["mounts"]
    return {"mounts": [*known, *(mount(BELOW + name) for name in names)], **more}


MOUNTED = {"GPUHOOK_REQUEST_ACCEPT_VOLUME_MOUNTS": "true"}
CDI = "cdi.k8s.io/"
KUBELET = {"io.kubernetes.cri.container-type": "container"}
SANDBOX = {"io.kubernetes.cri.container-type": "sandbox"}
CRIO = "io.kubernetes.cri-o.Annotations"


def annotated(*values: str, **more: str) -> dict[str, Any]:
    """Return the parts of a config.json with annotations that name devices."""
    names = {f"{CDI}plugin_{index}": value for index, value in enumerate(values)}
    return {"annotations": {**names, **more}}


_ENV = [Creation(f"env-{name}", devices(value)) for name, value in VALUES.items()]
_ENV += [
    Creation(f"uuids-{name}", devices(VALUES[name]), scene="h100-uuid")
    for name in ("all", "index", "list", "range", "uuid", "pci", "replica", "cdi-name", "none")
]
_ENV += [Creation(f"mig-{name}", devices(v), scene="mig") for name, v in MIG_VALUES.items()]
_ENV += [
    Creation(f"lost-{name}", devices(value), scene="lost")
    for name, value in {"all": "all", "good": "1", "gone": "2", "both": "1,2"}.items()
]
_ENV += [
    Creation("env-unset"),
    Creation("env-twice", (*devices("0"), *devices("1"))),
    Creation("env-void-last", (*devices("0"), *devices("void"))),
    Creation("env-without-equals", ("NVIDIA_VISIBLE_DEVICES", "A=B")),
    Creation("env-lower-case", ("nvidia_visible_devices=0",)),
    Creation("env-in-another", ("NOTE=NVIDIA_VISIBLE_DEVICES=0",)),
    Creation("env-many-names", devices(",".join(f"x{n}" for n in range(4097)))),
    Creation("env-nulls", raw=images.text([*devices("0")]).replace('"PATH', 'null,5,"PATH')),
]

_OLD = ("CUDA_VERSION=12.4.1",)
_IMAGES = [
    Creation("image-of-old", _OLD),
    Creation("image-of-old-caps", (*_OLD, "NVIDIA_DRIVER_CAPABILITIES=utility")),
    Creation("image-of-old-void", (*_OLD, *devices("void"))),
    Creation("image-of-old-newer-cuda", ("CUDA_VERSION=14.0",)),
    Creation("image-of-old-same-major", ("CUDA_VERSION=13.9",)),
    Creation("image-of-new", (*_OLD, "NVIDIA_REQUIRE_CUDA=cuda>=12.4")),
    Creation("image-of-old-off", _OLD, variables={"GPUHOOK_REQUEST_LEGACY_IMAGES": "false"}),
    Creation(
        "image-of-old-has-nodes",
        _OLD,
        {"linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]}},
    ),
    Creation("image-of-old-nvidia", (*_OLD, *devices("1"), "NVIDIA_DRIVER_CAPABILITIES=all")),
]

_MOUNTS = [
    Creation("mount-index", oci=mounts("0"), variables=MOUNTED),
    Creation("mount-indexes", oci=mounts("0", "3"), variables=MOUNTED),
    Creation("mount-all", oci=mounts("all"), variables=MOUNTED),
    Creation("mount-void", oci=mounts("void"), variables=MOUNTED),
    Creation("mount-uuid", oci=mounts(FOURTH), variables=MOUNTED),
    Creation("mount-replica", oci=mounts(f"{FIRST}::1"), variables=MOUNTED),
    Creation("mount-cdi", oci=mounts("cdi/nvidia.com/gpu/2"), variables=MOUNTED),
    Creation("mount-cdi-equals", oci=mounts("cdi/nvidia.com/gpu=2"), variables=MOUNTED),
    Creation("mount-cdi-malformed", oci=mounts("cdi/gpu0"), variables=MOUNTED),
    Creation("mount-cdi-malformed-and-index", oci=mounts("cdi/gpu0", "3"), variables=MOUNTED),
    Creation("mount-cdi-other-vendor", oci=mounts("cdi/example.com/net/a"), variables=MOUNTED),
    Creation("mount-unknown", oci=mounts("nothing"), variables=MOUNTED),
    Creation("mount-and-env", devices("1"), mounts("0"), variables=MOUNTED),
    Creation("mount-off", oci=mounts("0")),
    Creation("mount-off-and-env", devices("1"), mounts("0")),
    Creation("mount-off-same-env", devices("0"), mounts("0")),
    Creation("mount-control", oci=mounts("a\x1bb"), variables=MOUNTED),
    Creation("mount-dots", oci=mounts("../nvidia-container-devices/./2"), variables=MOUNTED),
    Creation("mount-of-old-mig", oci=mounts(f"MIG-{MIG_GPU}/7/0"), scene="mig", variables=MOUNTED),
    Creation(
        "mount-another-source",
        oci={"mounts": [mount(BELOW + "0", "/dev/zero")]},
        variables=MOUNTED,
    ),
    Creation(
        "mount-odd-source",
        oci={"mounts": [mount(BELOW + "0", "/dev//null")]},
        variables=MOUNTED,
    ),
    Creation("mount-odd-shapes", oci={"mounts": [mount(BELOW + "0"), 5, None]}, variables=MOUNTED),
    Creation("mount-no-list", oci={"mounts": "all"}, variables=MOUNTED),
]

_CRIO_KUBELET = '{"cdi.k8s.io/plugin_0":"nvidia.com/gpu=1"}'
_ANNOTATIONS = [
    Creation("annotation", oci=annotated("nvidia.com/gpu=1")),
    Creation("annotation-list", oci=annotated("nvidia.com/gpu=1,nvidia.com/gpu=3")),
    Creation("annotation-two", oci=annotated("nvidia.com/gpu=1", "nvidia.com/gpu=3")),
    Creation("annotation-and-env", devices("0"), annotated("nvidia.com/gpu=1")),
    Creation("annotation-and-void", devices("void"), annotated("nvidia.com/gpu=1")),
    Creation("annotation-all", oci=annotated("nvidia.com/gpu=all")),
    Creation("annotation-replica", oci=annotated(f"nvidia.com/gpu={FIRST}::1")),
    Creation("annotation-plain", oci=annotated("1")),
    Creation("annotation-unknown", oci=annotated("nvidia.com/gpu=9")),
    Creation("annotation-other-vendor", oci=annotated("example.com/net=eth0")),
    Creation("annotation-empty", oci=annotated("")),
    Creation("annotation-no-string", oci={"annotations": {CDI + "x": 5}}),
    Creation("annotation-no-object", devices("0"), {"annotations": ["cdi.k8s.io/x"]}),
    Creation("annotation-containerd", oci=annotated("nvidia.com/gpu=1", **KUBELET)),
    Creation("annotation-sandbox", oci=annotated("nvidia.com/gpu=1", **SANDBOX)),
    Creation("annotation-crio", oci=annotated("nvidia.com/gpu=1", **{CRIO: _CRIO_KUBELET})),
    Creation("annotation-crio-pod", oci=annotated("nvidia.com/gpu=2", **{CRIO: _CRIO_KUBELET})),
    Creation("annotation-crio-broken", oci=annotated("nvidia.com/gpu=1", **{CRIO: "{"})),
    Creation(
        "annotation-crio-two",
        oci=annotated("nvidia.com/gpu=1", "nvidia.com/gpu=2", **{CRIO: _CRIO_KUBELET}),
    ),
    Creation(
        "annotation-pod-names",
        oci=annotated(
            "nvidia.com/gpu=1",
            **{
                "io.kubernetes.cri.sandbox-name": "trainer-0",
                "io.kubernetes.cri.sandbox-namespace": "team-a",
                "io.kubernetes.cri.container-name": "main",
            },
        ),
    ),
]
for _accept in ("kubelet", "any", "none"):
    _variables = {"GPUHOOK_REQUEST_ACCEPT_ANNOTATIONS": _accept}
    for _name, _more in {"caller": {}, "containerd": KUBELET, "sandbox": SANDBOX}.items():
        _oci = annotated("nvidia.com/gpu=1", **_more)
        _ANNOTATIONS.append(
            Creation(f"annotation-{_accept}-{_name}", oci=_oci, variables=_variables)
        )

CASES = (*_ENV, *_IMAGES, *_MOUNTS, *_ANNOTATIONS)
