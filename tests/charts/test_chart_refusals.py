# SPDX-License-Identifier: Apache-2.0
"""Contradictory values are refused, with a hint."""

from __future__ import annotations

from typing import Any

import pytest

from tests.charts.rendering import refused, rendered
from tests.charts.values import GUARD, OPERATORS, THREE

MAP = {"default": "version: v1\n"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"namespace": "x"}, "pass --namespace"),
        ({"config": {"map": MAP, "name": "x"}}, "set only one of them"),
        (OPERATORS | {"config": {"map": MAP}}, "config and devicePlugin.config"),
        ({"config": {"map": {"a": "", "b": ""}}}, "set one of a, b as the default"),
        ({"config": {"map": THREE, "default": "mig"}}, 'The default configuration "mig"'),
        (
            {"config": {"map": THREE, "fallbackStrategies": ["single"]}},
            "(now: single)",
        ),
        ({"config": {"default": "a"}}, "there are no configurations"),
        (
            {"config": {"map": {"default": "a: [b"}}},
            'The configuration "default" is not valid YAML',
        ),
        (
            {"config": {"map": {"default": "version: v1\nsharing: [a]"}}},
            'sharing of the configuration "default" is not a mapping',
        ),
        (
            {"config": {"map": {"default": "version: v1\ngpuhook: 3"}}},
            'gpuhook of the configuration "default" is not a mapping',
        ),
        ({"devicePlugin": {"config": {"data": MAP}}}, "devicePlugin.config.create=true"),
        ({"devicePlugin": {"config": {"create": True}}}, "which is empty"),
        ({"devicePlugin": {"version": "v1"}}, "need devicePlugin.image"),
        (GUARD | {"hostPID": False}, "set hostPID=true"),
        ({"mountPropagation": "Bidirectional"}, "mountPropagation"),
        ({"mountPropagation": None}, "mountPropagation"),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "set metrics.enabled=true"),
        ({"metrics": {"prometheusRule": {"enabled": True}}}, "set metrics.enabled=true"),
        ({"metrics": {"grafanaDashboard": {"enabled": True}}}, "set metrics.enabled=true"),
        (
            {"metrics": {"enabled": True}, "fullnameOverride": "1gpu"},
            "begin with a letter",
        ),
        (
            {
                "metrics": {
                    "enabled": True,
                    "serviceMonitor": {"enabled": True},
                    "podMonitor": {"enabled": True},
                }
            },
            "enable only one of them",
        ),
    ],
)
def test_template_refuses(values: dict[str, Any], words: str) -> None:
    assert words in refused(values)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"devicePlugins": {}}, "devicePlugins"),
        ({"devicePlugin": {"enable": True}}, "enable"),
        ({"migStrategy": "both"}, "migStrategy"),
        ({"deviceListStrategy": "envvar,cdi"}, "deviceListStrategy"),
        ({"deviceListStrategy": []}, "deviceListStrategy"),
        ({"amd": {"deviceLabels": ["vram", "colour"]}}, "deviceLabels"),
        ({"amd": {"deviceLabels": []}}, "deviceLabels"),
        ({"config": {"map": {"default": {"version": "v1"}}}}, "config.map.default"),
        ({"config": {"map": {"a/b": ""}}}, "a/b"),
        ({"config": {"fallbackStrategies": ["first"]}}, "fallbackStrategies"),
        ({"compatWithCPUManager": "true"}, "compatWithCPUManager"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"image": {"repository": "g\uff50u"}}, "image.repository"),
        ({"image": {"repository": "gpuhook latest"}}, "image.repository"),
        ({"image": {"tag": "a b"}}, "image.tag"),
        ({"devicePlugin": {"image": "a:b"}}, "devicePlugin.image"),
        ({"nameOverride": "gpu.hook"}, "nameOverride"),
        ({"fullnameOverride": "Gpu"}, "fullnameOverride"),
        ({"namespaceOverride": "n" * 64}, "namespaceOverride"),
        ({"installer": {"engine": "rkt"}}, "engine"),
        ({"installer": {"installDir": "opt"}}, "installDir"),
        ({"metrics": {"port": 0}}, "port"),
        ({"metrics": {"podMonitor": {"interval": "15"}}}, "interval"),
        ({"kubeletRootDir": "/var/lib/kubelet/"}, "kubeletRootDir"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "app.kubernetes.io/name"),
        ({"commonLabels": {"helm.sh/chart": "x"}}, "helm.sh/chart"),
        ({"devicePlugin": {"env": [{"value": "x"}]}}, "name"),
    ],
)
def test_schema_refuses(values: dict[str, Any], key: str) -> None:
    error = refused(values)
    assert "don't meet the specifications of the schema" in error
    assert key in error


def test_default_namespace_needs_a_value() -> None:
    assert "allowDefaultNamespace=true" in refused({}, namespace="default")
    assert rendered({"allowDefaultNamespace": True}, namespace="default")
    assert rendered({"namespaceOverride": "gpus"}, namespace="default")


def test_default_namespace_without_a_plugin_is_refused() -> None:
    """The installer alone is refused in the namespace `default`, too."""
    values = {"devicePlugin": {"enabled": False}, "installer": {"enabled": True}}
    assert "allowDefaultNamespace" in refused(values, namespace="default")
