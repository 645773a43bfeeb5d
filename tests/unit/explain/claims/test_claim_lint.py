# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra lint`: each objection, its line, and the API server's own checks."""

from __future__ import annotations

import copy
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

import gpuhook
from gpuhook.cli import main
from gpuhook.errors import GpuhookError
from gpuhook.explain.claims.rules import claim_lint, claim_schema
from gpuhook.explain.claims.rules.claim_rules import known_attributes
from gpuhook.explain.pods.manifest_value import Value
from gpuhook.explain.pods.pod_requests import REFUSED, WARNING
from gpuhook.vendors.catalogue import vendors
from tests.cluster_api import claim_limits
from tests.unit.explain.claims.pools import claim
from tests.unit.explain.claims.test_cel_selectors import with_library

GOOD = "- {name: a, exactly: {deviceClassName: gpu.nvidia.com}}"
EXACT = "- {{name: a, exactly: {{deviceClassName: gpu.nvidia.com, {}}}}}"
SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("dra-lint.json").read_text("utf-8")
)


def thing(kind: str, spec: str) -> str:
    """Return an object of resource.k8s.io/v1."""
    head = f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: a}}\n"
    return f"{head}spec: {{{spec}}}\n"


def found(text: str) -> list[tuple[str, str, str]]:
    """Return (id, result, what is said) of the objections to a manifest."""
    report = claim_lint.lint([("claim.yaml", text)])
    return [(one.id, one.result, one.said) for _, one in report.objections]


def test_equal_claims_are_validated_once_and_their_names_each() -> None:
    one = thing("ResourceClaim", f"devices: {{requests: [{GOOD[2:]}]}}")
    names = ("a", "b", "Not-a-name", "c")
    text = "---\n".join(one.replace("{name: a}\nspec", f"{{name: {name}}}\nspec") for name in names)
    text += "---\n" + one.replace("metadata: {name: a}\n", "")
    said = [said for _, _, said in found(text)]
    assert len(said) == 2
    assert "metadata.name: Invalid value" in said[0]
    assert "metadata: Required value" in said[1]


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["dra", "lint", *words], input=stdin, prog_name="gpuhook")


@pytest.mark.parametrize(
    "text",
    [
        claim(GOOD),
        claim(EXACT.format("count: 2, capacity: {requests: {memory: 10Gi}}")),
        claim(EXACT.format("tolerations: [{operator: Exists}]")),
        claim(GOOD, "constraints: [{matchAttribute: gpu.nvidia.com/uuid, requests: [a]}]"),
        claim("- {name: a, firstAvailable: [{name: x, deviceClassName: mig.nvidia.com}]}"),
        claim("- {name: a, deviceClassName: gpu.amd.com}").replace("/v1\n", "/v1beta1\n"),
        claim(EXACT.format("adminAccess: true, allocationMode: All")),
    ],
)
def test_good_claims_have_no_objection(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (claim(EXACT.format("count: 0")), "count: Invalid value: 0: must be greater than zero"),
        (claim(EXACT.format("allocationMode: All, count: 1")), "must not be specified"),
        (claim(EXACT.format("allocationMode: all")), "supported values: ExactCount, All"),
        (claim(EXACT.format("capacity: {requests: {memory: 1GB}}")), "must be a quantity"),
        (claim(EXACT.format("tolerations: [{operator: exists}]")), "Exists, Equal"),
        (claim(EXACT.format("selector: []")), 'unknown field "spec.devices.requests[0].exactly'),
        (claim("- {name: a, deviceClassName: x}"), "exactly one of `exactly`"),
        (claim("- {name: A, exactly: {deviceClassName: mig.nvidia.com}}"), "a DNS label"),
        (claim(f"{GOOD}\n{GOOD}"), 'requests[1].name: Duplicate value: "a"'),
        (claim("- {name: a, exactly: {}}"), "exactly.deviceClassName: Required value"),
        (claim(GOOD, "constraints: [{matchAttribute: uuid}]"), "the full name of an attribute"),
        (claim(GOOD, "constraints: [{requests: [a]}]"), "exactly one of `matchAttribute`"),
        (claim(GOOD, "constraints: [{matchAttribute: x.y/z, requests: [b]}]"), '"b": must be'),
        (claim(GOOD, "config: [{requests: [b], opaque: {driver: x.y, parameters: {}}}]"), '"b"'),
        (claim(GOOD, "config: [{opaque: {driver: X, parameters: {}}}]"), "the name of a driver"),
        (claim("\n".join(f"- {{name: a{n}, exactly: {{deviceClassName: gpu.nvidia.com}}}}"
                         for n in range(33))), "Too many: 33: must have at most 32 items"),
        (claim(GOOD).replace("/v1\n", "/v1alpha3\n"), "supported values: resource.k8s.io/v1,"),
        (claim(GOOD).replace("metadata: {name: c}", "metadata: {}"), "an object with a name"),
        (thing("DeviceClass", "extendedResourceName: gpu"), "name of an extended resource"),
        (thing("DeviceClass", "extendedResourceName: kubernetes.io/gpu"), "an extended resource"),
        (thing("ResourceClaimTemplate", "devices: {requests: []}"), 'field "spec.devices"'),
    ],
)  # fmt: skip
def test_what_the_api_server_refuses(text: str, said: str) -> None:
    refused = [one for _, result, one in found(text) if result == REFUSED]
    assert [one for one in refused if said in one], refused


@with_library
@pytest.mark.parametrize(
    ("expression", "kind", "result"),
    [
        ("?!", "expression", REFUSED),
        ("1 + 1", "expression", REFUSED),
        ("[1].sum() == 1", "not-judged", WARNING),
        ("device.attributes['gpu.nvidia.com'].productname == 'x'", "attribute", WARNING),
        ("device.attributes['resource.kubernetes.io'].pciRoot == 'x'", "attribute", WARNING),
        ("device.driver == 'gpu.nvidia.con'", "driver-name", WARNING),
        ("device.attributes['gpu.nvidia.co'].type == 'gpu'", "driver-name", WARNING),
    ],
)
def test_expressions_are_checked(expression: str, kind: str, result: str) -> None:
    text = claim(EXACT.format(f'selectors: [{{cel: {{expression: "{expression}"}}}}]'))
    (one,) = found(text)
    assert one[:2] == (kind, result)


def test_other_names_are_checked() -> None:
    text = claim("- {name: a, exactly: {deviceClassName: gpu.nvidia.cm}}")
    ((kind, result, said),) = found(text)
    assert (kind, result) == ("class", WARNING)
    assert "gpu.nvidia.cm" in said
    both = "".join(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\n"
        f"metadata: {{name: {name}}}\nspec: {{extendedResourceName: nvidia.com/gpu}}\n---\n"
        for name in ("b", "a")
    )
    ((kind, result, said),) = found(both)
    assert (kind, result) == ("same-resource", WARNING)
    assert said.startswith("DeviceClass a (claim.yaml:6) has the same extendedResourceName")


@pytest.mark.parametrize(("name", "warnings"), [("memroy", 1), ("multiprocessors", 0), ("x", 0)])
def test_a_misspelled_capacity_is_a_warning(name: str, warnings: int) -> None:
    """A capacity of another driver is none."""
    text = claim(EXACT.format(f"capacity: {{requests: {{{name}: 10}}}}"))
    expected = [("capacity", WARNING, f"gpuhook has no capacity {name}")]
    assert found(text) == warnings * expected


def test_parameters_of_the_driver_are_checked_with_their_line() -> None:
    config = (
        "config:\n- opaque:\n    driver: gpu.nvidia.com\n    parameters:\n"
        "      apiVersion: gpuhook.io/v1\n      kind: GpuConfig\n      timeSlice: forever\n"
    )
    report = claim_lint.lint([("claim.yaml", claim(GOOD, config))])
    ((title, one),) = report.objections
    assert (title, one.by, one.result) == ("ResourceClaim/c", "DRA driver", REFUSED)
    assert "spec.devices.config[0].opaque.parameters.timeSlice" in one.said
    assert one.instead == "one of default, short, medium, long"
    assert one.where == "claim.yaml:14"


POD = """
apiVersion: v1
kind: Pod
metadata: {{name: p{annotations}}}
spec:
  {fields}
  resourceClaims: [{claims}]
  containers: [{{name: c, resources: {{claims: [{used}]}}}}]
---
"""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, []),
        ({"used": "{name: x}"}, [("unused", WARNING), ("claim-reference", REFUSED)]),
        ({"used": "{name: g, request: b}"}, [("claim-request", REFUSED)]),
        ({"used": ""}, [("unused", WARNING)]),
        ({"fields": "nodeName: n1"}, [("node-name", "pending")]),
        (
            {"annotations": ", annotations: {kubernetes.io/config.source: file}"},
            [("static-pod", REFUSED)],
        ),
        ({"claims": "{name: g}"}, [("claim-source", REFUSED)]),
        (
            {"claims": "{name: g, resourceClaimName: c, resourceClaimTemplateName: t}"},
            [("claim-source", REFUSED)],
        ),
        (
            {"claims": "{name: g, resourceClaimName: c}, {name: g, resourceClaimName: c}"},
            [("claim-name", REFUSED)],
        ),
        (
            {"fields": "ephemeralContainers: [{name: d, resources: {claims: [{name: g}]}}]"},
            [("ephemeral-claims", REFUSED)],
        ),
    ],
)
def test_pods_whose_claims_cannot_work(
    values: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    usual = {
        "annotations": "", "fields": "hostPID: false", "claims": "{name: g, resourceClaimName: c}",
        "used": "{name: g, request: a}",
    }  # fmt: skip
    text = POD.format(**usual | values) + claim(GOOD)
    assert [one[:2] for one in found(text)] == expected


def test_a_static_pod_is_known_by_its_directory() -> None:
    text = POD.format(
        annotations="", fields="", claims="{name: g, resourceClaimName: c}", used="{name: g}"
    )
    report = claim_lint.lint([("/etc/kubernetes/manifests/p.yaml", text)])
    assert [one.id for _, one in report.objections] == ["static-pod"]


def test_command_prints_lines_or_a_document(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(claim(GOOD))
    bad.write_text(claim(EXACT.format("count: 0")))
    told = run(str(good))
    assert (told.exit_code, told.stdout) == (0, f"{good}: valid\n")
    told = run(str(good), str(bad))
    assert told.exit_code == 1
    assert told.stdout.startswith(f"{bad}:7: ResourceClaim/c: refused by the API server: ")
    for output in ("json", "yaml"):
        told = run(str(good), "-", "-o", output, stdin=bad.read_text())
        document: Any = yaml.safe_load(told.stdout)
        jsonschema.validate(document, SCHEMA)
        assert (document["valid"], document["objects"]) == (False, 2)


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    other, broken, empty = (tmp_path / name for name in ("other.yaml", "broken.yaml", "empty"))
    other.write_text("kind: ConfigMap\n")
    broken.write_text("{")
    empty.write_text("")
    assert "GH2631" in run(str(other)).stderr
    assert "ConfigMap" in run(str(other)).stderr
    assert "GH2631" in run(str(empty)).stderr
    assert "GH1930" in run(str(broken)).stderr
    assert run(str(tmp_path / "missing.yaml")).exit_code == 1
    assert run().exit_code == 2
    good = tmp_path / "good.yaml"
    good.write_text(claim(GOOD))
    assert "GH2630" in run(str(good), "--class-file", str(good)).stderr


def test_class_file_has_the_names_of_the_cluster(tmp_path: Path) -> None:
    text = claim("- {name: a, exactly: {deviceClassName: special}}")
    path, classes = tmp_path / "claim.yaml", tmp_path / "classes.yaml"
    path.write_text(text)
    classes.write_text(
        "apiVersion: v1\nkind: List\nitems:\n- {kind: DeviceClass, metadata: {name: special}}\n"
    )
    assert "no DeviceClass special" in run(str(path)).stdout
    assert run(str(path), "--class-file", str(classes)).stdout == f"{path}: valid\n"


BASE: dict[str, Any] = yaml.safe_load(
    claim(
        """
        - name: a
          exactly:
            deviceClassName: gpu.nvidia.com
            count: 1
            selectors: [{cel: {expression: "true"}}]
            tolerations: [{key: x.y/z, operator: Equal, value: v, effect: NoSchedule}]
            capacity: {requests: {memory: 1Gi}}
        - name: b
          firstAvailable: [{name: x, deviceClassName: mig.nvidia.com, allocationMode: All}]
        """,
        """
        constraints: [{requests: [a, b/x], matchAttribute: resource.kubernetes.io/pcieRoot}]
        config: [{requests: [a], opaque: {driver: gpu.example.com, parameters: {k: v}}}]
        """,
    )
)
VALUES = st.one_of(
    st.none(), st.integers(-1, 70), st.sampled_from(["", "A", "a", "x.y", "a/b", "All", "1Gi"]),
    st.lists(st.sampled_from(["a", "zz"]), max_size=40), st.just({}), st.just({"unknown": "1x"}),
)  # fmt: skip


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    own = [path] if path else []
    if not isinstance(value, (dict, list)):
        return own
    below = value.items() if isinstance(value, dict) else enumerate(value)
    return own + [one for key, inner in below for one in _paths(inner, (*path, key))]


def test_the_basic_claim_is_accepted_by_both() -> None:
    assert claim_limits.claim_errors(BASE["spec"]) == []
    assert found(yaml.safe_dump(BASE)) == []


TOLERATION = ("devices", "requests", 0, "exactly", "tolerations", 0)


@given(st.sampled_from(_paths(BASE["spec"])), VALUES)
@example((*TOLERATION, "operator"), "Exists")  # beside a value
@example((*TOLERATION, "value"), "-v-")
@example((*TOLERATION, "operator"), "In")
def test_whatever_the_stand_in_of_the_api_server_refuses_has_an_objection(
    path: tuple[Any, ...], value: Any
) -> None:
    """Both were written from the rules of Kubernetes, but not from each other."""
    document = copy.deepcopy(BASE)
    place = document["spec"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    try:
        refused = bool(claim_limits.claim_errors(document["spec"]))
    except (AttributeError, TypeError):
        refused = True  # a type that the stand-in does not read
    if refused and value is not None:  # null is a missing value
        assert [one for _, result, one in found(yaml.safe_dump(document)) if result == REFUSED]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["apiVersion", "kind", "metadata", "spec", "devices", "requests", "name", "exactly",
                 "selectors", "cel", "expression", "config", "opaque", "constraints", "items"]
            ),
            inner,
            max_size=4,
        ),
    ),
    st.sampled_from(["ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "Pod"]),
)  # fmt: skip
def test_any_object_has_objections_and_no_crash(value: Any, kind: str) -> None:
    for spec in ({"spec": value}, {"spec": {"devices": value}}, {"spec": {"spec": value}}):
        with suppress(GpuhookError):
            claim_lint.lint([("x.yaml", json.dumps({"kind": kind, **spec}))])


def test_hostile_manifests() -> None:
    huge = claim(EXACT.format(f'selectors: [{{cel: {{expression: "{"x" * 20_000}"}}}}]'))
    assert any("1 to 10240 characters" in said for _, _, said in found(huge))
    names = claim('- {name: "\\u001b[31m", exactly: {deviceClassName: "\\ud83d\\ude00"}}')
    told = run("-", stdin=names)
    assert told.exit_code == 1
    assert "\x1b" not in told.stdout
    aliases = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 8)}]\n" for n in range(9)
    )
    assert "GH1930" in run("-", stdin=aliases).stderr
    assert run("-", stdin="kind: ResourceClaim\nspec: " + "[" * 5000).exit_code == 1
    many = "".join(f"---\n{claim(GOOD, name=f'c{n}')}" for n in range(300))
    assert found(many) == []


def test_numbers_with_many_digits_are_values() -> None:
    text = claim(EXACT.format(f"count: {'9' * 5000}"))
    assert any("count" in said for _, result, said in found(text) if result == REFUSED)


def test_paths_of_the_schema_lead_to_lines() -> None:
    node = yaml.compose("a: [{b: 1}]\nc:\n  d: x\n")
    value = Value(node, "f")
    assert claim_schema.place(value, ["c", "d"]).where == "f:3"
    assert claim_schema.place(value, ["a", 7, "b"]).where == "f:1"
    assert claim_schema.path_text(["a", 0, "b"]) == "a[0].b"


def test_attributes_of_the_drivers_are_known() -> None:
    """The lists for lint have what devices of the profiles have."""
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.dra.pool.node_pool import node_pool
    from gpuhook.dra.pool.sharing_form import sharing_forms

    seen: dict[str, set[str]] = {}
    for profile in ("t4", "a100-mig", "h100x8", "mi300x8", "mi300x-cpx", "radeon"):
        for vendor in vendors():
            part = vendor.dumped_part(profile)
            if part is not None:
                pool = node_pool(part, sharing_forms(Configuration(), part.inventory), "n")
                names = {name for one in pool.devices for name in one.attributes}
                names |= {name for one in pool.devices for name in one.capacity}
                seen.setdefault(pool.driver, set()).update(names)
    assert set(seen) == {vendor.dra_driver for vendor in vendors()}
    for driver, names in seen.items():
        own = {name for name in names if "/" not in name} - {"memory", "slots"}
        assert own <= set(known_attributes(driver))
        others = {re.sub(".*/", "", name) for name in names if "/" in name}
        assert others <= set(known_attributes("resource.kubernetes.io"))
