# SPDX-License-Identifier: Apache-2.0
"""Sets of values for the chart, as users write them."""

from __future__ import annotations

import textwrap
from typing import Any

import yaml

from tests.kubelet.process import TIME_SLICING

# The block of the GPU operator's values.yaml (v25.3.1), with gpuhook's image in its three lines.
OPERATORS: dict[str, Any] = yaml.safe_load(
    """
devicePlugin:
  enabled: true
  repository: registry.example/gpus
  image: gpuhook
  version: v0.1.0
  imagePullPolicy: IfNotPresent
  imagePullSecrets: []
  args: []
  env:
  - name: PASS_DEVICE_SPECS
    value: "true"
  - name: FAIL_ON_INIT_ERROR
    value: "true"
  - name: DEVICE_LIST_STRATEGY
    value: envvar
  - name: DEVICE_ID_STRATEGY
    value: uuid
  - name: NVIDIA_VISIBLE_DEVICES
    value: all
  - name: NVIDIA_DRIVER_CAPABILITIES
    value: all
  resources: {}
  config:
    create: true
    name: "device-plugin-config"
    default: "default"
    data:
      default: |-
        version: v1
        flags:
          migStrategy: none
        sharing:
          timeSlicing:
            resources:
            - name: "nvidia.com/gpu"
              replicas: 4
  mps:
    root: "/run/nvidia/mps"
"""
)
THREE = {
    "default": "version: v1\nflags:\n  migStrategy: none\n",
    "mig-single": "version: v1\nflags:\n  migStrategy: single\n",
    "mig-mixed": "version: v1\nflags:\n  migStrategy: mixed\n",
}


def configuration(text: str) -> dict[str, Any]:
    """Return the values of one configuration."""
    return {"config": {"map": {"default": textwrap.dedent(text)}}}


MPS = configuration("""\
    version: v1
    sharing:
      mps:
        resources: [{name: nvidia.com/gpu, replicas: 4}]
    """)
GUARD = configuration("""\
    version: v1
    sharing:
      timeSlicing:
        resources: [{name: nvidia.com/gpu, replicas: 4, memory: fair}]
    gpuhook:
      guard: {action: kill}
    """)
TIME_SLICES = configuration("""\
    version: v1
    sharing:
      timeSlicing:
        resources: [{name: nvidia.com/gpu, replicas: 4, timeSlice: long}]
    """)
COMPUTE_MODE = configuration("""\
    version: v1
    sharing:
      memoryUnits:
        resources: [{name: nvidia.com/gpu, computeMode: default}]
    """)
HOST_FILES = configuration("""\
    version: v1
    flags:
      plugin: {deviceListStrategy: [host-files]}
    """)

NRI: dict[str, Any] = {
    "nri": {"enabled": True},
    "installer": {"enabled": True, "engine": "none"},
    "features": {"privileged": True},
    "runtimeClass": {"create": False},
    "runtimeClassName": "",
}
DRA: dict[str, Any] = {"devicePlugin": {"enabled": False}, "dra": {"enabled": True}}

SETS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "operator": OPERATORS,
    "time-slicing": {"config": {"map": {"default": TIME_SLICING}}},
    "three": {"config": {"map": THREE}},
    "three-by-default": {"config": {"map": THREE, "default": "mig-mixed"}},
    "external": {"config": {"name": "my-configs", "default": "a"}},
    "external-operator": {"devicePlugin": {"config": {"name": "my-configs", "default": ""}}},
    "fallback-empty": {
        "config": {"map": {"a": "version: v1", "b": "version: v1"}, "fallbackStrategies": ["empty"]}
    },
    "mps": MPS,
    "mps-elsewhere": MPS | {"mps": {"root": "/var/lib/mps"}},
    "guard": GUARD,
    "guard-looks-everywhere": GUARD | {"features": {"foreignCgroups": True}},
    "time-slices": TIME_SLICES,
    "compute-mode": COMPUTE_MODE,
    "host-files": HOST_FILES | {"runtimeClassName": "", "runtimeClass": {"create": False}},
    "no-handler": {
        "deviceListStrategy": "cdi-cri",
        "features": {"privileged": True},
        "runtimeClass": {"create": False},
        "runtimeClassName": "",
    },
    "mig-by-value": {"migStrategy": "mixed"},
    "flat": {
        "migStrategy": "none",
        "failOnInitError": False,
        "deviceListStrategy": "envvar,cdi-annotations",
        "deviceIDStrategy": "index",
        "nvidiaDriverRoot": "/run/nvidia/driver",
        "gdrcopyEnabled": True,
        "gdsEnabled": True,
        "mofedEnabled": False,
        "deviceDiscoveryStrategy": "auto",
        "compatWithCPUManager": None,
        "cdi": {"nvidiaHookPath": "/opt/hook"},
    },
    "strategies-as-list": {"deviceListStrategy": ["cdi-cri", "envvar"]},
    "features-by-hand": {
        "config": {"name": "my-configs"},
        "features": {"mps": False, "guard": True, "timeSlices": True, "mig": True},
    },
    "digest": {"image": {"repository": "r.example/g", "digest": "sha256:" + "0" * 64}},
    "secrets": {"imagePullSecrets": ["a", {"name": "b"}], "installer": {"enabled": True}},
    "metrics": {"metrics": {"enabled": True, "port": 9400}},
    "service-monitor": {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}},
    "pod-monitor": {
        "metrics": {"enabled": True, "podMonitor": {"enabled": True, "labels": {"a": "b"}}}
    },
    "alerts": {
        "metrics": {
            "enabled": True,
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
            "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}},
        }
    },
    "api": {"apiAccess": {"nodeConfig": True, "events": True}, "gfd": {"labelNode": True}},
    "events-alone": {"apiAccess": {"events": True}, "gfd": {"enabled": False}},
    "no-label-access": {"config": {"map": THREE}, "apiAccess": {"nodeConfig": False}},
    "installer": {"installer": {"enabled": True}},
    "installer-all": {
        "devicePlugin": {"enabled": False},
        "runtimeClass": {"handler": "gpuhook", "name": "gpuhook"},
        "installer": {
            "enabled": True,
            "installDir": "/var/opt/gpuhook",
            "engine": "containerd",
            "route": "cdi",
            "setAsDefault": True,
            "takeOver": True,
            "config": "/etc/containerd/config.toml",
            "dropIn": "/etc/containerd/conf.d/g.toml",
            "restart": "signal",
            "undoOnExit": True,
            "env": [{"name": "A", "value": "b"}],
        },
    },
    "installer-files-alone": {"installer": {"enabled": True, "engine": "none"}},
    "another-account": {"serviceAccount": {"create": False, "name": "mine"}},
    "private-root": {"mountPropagation": "None", "installer": {"enabled": True}},
    "k0s": {"kubeletRootDir": "/var/lib/k0s/kubelet", "hostPID": False},
    "names": {"fullnameOverride": "gpus", "namespaceOverride": "other", "commonLabels": {"a": "b"}},
    "anywhere": {
        "affinity": None,
        "tolerations": [],
        "nodeSelector": {"a": "b"},
        "priorityClassName": "",
        "podLabels": {"team": "x"},
        "podAnnotations": {"y": "z"},
        "podSecurityContext": {"fsGroup": 0},
        "updateStrategy": {"type": "OnDelete"},
    },
    "amd-only": {
        "amd": {
            "nodes": "only",
            "pulse": 30,
            "resourceNamingStrategy": "mixed",
            "deviceLabels": ["vram", "firmware"],
        },
    },
    "amd-and-nvidia": {"amd": {"nodes": "mixed", "deviceListStrategy": ["envvar", "cdi-cri"]}},
    "amd-unprivileged": {"amd": {"nodes": "only", "privileged": False}, "affinity": None},
    "own-security": {"devicePlugin": {"securityContext": {"privileged": True}}},
    "env-by-field": {
        "devicePlugin": {
            "env": [
                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
            ],
            "args": ["--strict-config"],
        }
    },
    "plugin-off": {"devicePlugin": {"enabled": False}},
    "beside": {"runtimeClass": {"name": "gpuhook", "handler": "gpuhook"}},
    "dra": DRA,
    "dra-beside-the-plugin": {
        "dra": {"enabled": True, "nodeLabel": "example.com/gpus=dra"},
        "amd": {"nodes": "mixed"},
    },
    "dra-anywhere": {
        "devicePlugin": {"enabled": False},
        "dra": {"enabled": True, "nodeLabel": "example.com/gpus="},
        "affinity": None,
    },
    "dra-with-handler": TIME_SLICES
    | DRA
    | {"dra": {"enabled": True, "runtimeClassName": "nvidia"}},
    "dra-on-handlers": DRA | {"dra": {"enabled": True, "runtimeClassName": "nvidia"}},
    "dra-mps": MPS | DRA,
    "dra-guard": GUARD | DRA | {"dra": {"enabled": True, "runtimeClassName": "nvidia"}},
    "dra-mig": DRA | {"dra": {"enabled": True, "runtimeClassName": "x"}, "migStrategy": "mixed"},
    "dra-own-names": DRA
    | {
        "dra": {
            "enabled": True,
            "serviceAccount": {"create": False, "name": "mine"},
            "deviceClasses": {"create": False},
            "admissionPolicy": False,
            "args": [],
            "env": [{"name": "POD_UID", "value": "x"}],
        },
        "kubeletRootDir": "/var/lib/k0s/kubelet",
        "namespaceOverride": "other",
    },
    "dra-amd-only": DRA | {"amd": {"nodes": "only"}, "installer": {"enabled": True}},
    "nri": NRI,
    "nri-and-dra": DRA
    | NRI
    | {"nri": {"enabled": True, "privileged": False, "env": [{"name": "A"}]}},
}
