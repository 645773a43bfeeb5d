# SPDX-License-Identifier: Apache-2.0
"""`gpuhook explain` of variables, images, bundles, pods and codes, on simulated nodes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.errors import catalogue
from tests.simulated.node import make_node

SCHEMAS = Path(__file__).parents[3] / "gpuhook/schemas"
VALIDATOR = jsonschema.Draft202012Validator(
    json.loads((SCHEMAS / "explain.json").read_text(encoding="utf-8"))
)
QUOTED = re.compile(r'[^"]*("([^"\\]|\\.)*"[^"]*)*')
GPU = "GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913"  # the GPU of profile t4


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "none.yaml"))


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments], input=stdin)


def explained_container(
    *arguments: str, stdin: str | None = None, status: int = 0
) -> dict[str, Any]:
    """Return the one container of the document, which fits its schema."""
    done = run(*arguments, "-o", "json", stdin=stdin)
    assert done.exit_code == status, done.stderr
    document = json.loads(done.stdout)
    VALIDATOR.validate(document)
    (container,) = document["containers"]
    found: dict[str, Any] = container
    return found


def env(*entries: str, node: str = "t4") -> list[str]:
    return [word for entry in entries for word in ("--env", entry)] + ["--inventory", node]


def test_each_name_leads_to_its_device() -> None:
    container = explained_container(
        *env("NVIDIA_VISIBLE_DEVICES=1,3::2,0000:1b:00.0,1", node="h100x8")
    )
    by_name = {one["name"]: one for one in container["devices"]}
    assert by_name["1"]["by"] == "name"
    assert by_name["3::2"]["by"] == "replica"
    assert by_name["3::2"]["device"] == "nvidia.com/gpu=3"
    assert container["replicas"] == ["3::2"]
    assert container["result"] == "gets"
    assert container["route"]["name"] == "wrapper"
    assert "/dev/nvidiactl" in container["changes"]["nodes"]


def test_unknown_name_refuses_the_container_and_lists_the_others() -> None:
    container = explained_container(*env("NVIDIA_VISIBLE_DEVICES=0,9"), status=1)
    assert container["result"] == "refused"
    assert container["fault"]["code"] == "GH1102"
    assert [one["fault"] is None for one in container["devices"]] == [True, False]
    assert container["changes"]["nodes"] == []


def test_refused_container_lists_its_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("gpu", "gds"):
        edits = {"deviceNodes": [{"path": f"/dev/nvidia-{kind}"}]}
        devices = [{"name": name, "containerEdits": edits} for name in ("0", "all")]
        spec = {"cdiVersion": "0.5.0", "kind": f"nvidia.com/{kind}", "devices": devices}
        (tmp_path / f"{kind}.yaml").write_text(yaml.safe_dump(spec))
    config = tmp_path / "config.yaml"
    config.write_text(f"cdi: {{specDirs: [{tmp_path}]}}\n")
    monkeypatch.setenv("GPUHOOK_CONFIG", str(config))
    wish = "--annotation=cdi.k8s.io/x=nvidia.com/gpu=0,nvidia.com/gpu=9"
    container = explained_container(wish, "--env", "NVIDIA_GDS=enabled", status=1)
    assert container["fault"]["code"] == "GH1102"
    paths = [Path(one["spec"]).name for one in container["specs"]]
    assert paths == ["gpu.yaml", "gds.yaml"]


def test_sources_have_an_order_and_reasons() -> None:
    container = explained_container(
        *env("NVIDIA_VISIBLE_DEVICES=0"),
        "--annotation=cdi.k8s.io/x=nvidia.com/gpu=0",
        "--mount=/var/run/nvidia-container-devices/0",
    )
    results = [(one["kind"], one["result"]) for one in container["sources"]]
    assert results == [("annotations", "won"), ("mounts", "beaten"), ("env", "beaten")]
    alone = explained_container("--mount=/var/run/nvidia-container-devices/0", "--inventory=t4")
    (source,) = alone["sources"]
    assert source["result"] == "refused"
    assert "acceptVolumeMounts" in source["reason"]
    assert [one["code"] for one in alone["warnings"]] == ["GH1007"]


def settings(tmp_path: Path, **request: Any) -> None:
    """Write the settings file of this node."""
    (tmp_path / "none.yaml").write_text(json.dumps({"request": request}), encoding="utf-8")


OLD = "CUDA_VERSION=8.0"


@pytest.fixture
def node(tmp_path: Path) -> list[str]:
    """Return the options of a simulated node with this machine's settings."""
    return make_node(tmp_path / "node", "t4").options


@pytest.mark.parametrize(
    ("accept", "origin"), [("kubelet", "request.acceptAnnotations is kubelet, "), ("auto", "")]
)
def test_setting_that_ignores_annotations_is_named(
    accept: str, origin: str, node: list[str], tmp_path: Path
) -> None:
    settings(tmp_path, acceptAnnotations=accept, acceptEnvWhenUnprivileged=False)
    pod = "--annotation=io.kubernetes.container.name=POD" if accept == "auto" else "--env=A=B"
    (source,) = explained_container("--annotation=cdi.k8s.io/x=0", pod, *node)["sources"]
    assert f"wrote it, {origin}the container is unprivileged" in source["reason"]


def test_other_vendor_is_refused_under_request_too(node: list[str], tmp_path: Path) -> None:
    settings(tmp_path, acceptAnnotations="kubelet")
    foreign = "--annotation=cdi.k8s.io/x=vendor.example/gpu=0"
    container = explained_container(foreign, "--env=NVIDIA_VISIBLE_DEVICES=0", *node, status=1)
    assert "annotations that are not a grant" in container["fault"]["hint"]
    results = [(one["result"], one["reason"]) for one in container["sources"]]
    assert results == [("refused", "GH1009"), ("beaten", "cdi.k8s.io/x takes precedence")]


def explained(node: list[str], *entries: str, status: int = 0) -> dict[str, Any]:
    return explained_container(*(f"--env={entry}" for entry in entries), *node, status=status)


@pytest.mark.parametrize("chosen", [["nvidia.com/gpu=0"], ["all"], []])
def test_exclusive_devices_are_not_shared(chosen: list[str], tmp_path: Path) -> None:
    """Only for the devices that the setting names, no other container can request the GPU."""
    node = make_node(tmp_path / "node", "h100x8").options
    settings(tmp_path, exclusiveDevices=chosen)
    container = explained(node, "NVIDIA_VISIBLE_DEVICES=0,1")
    exclusive = [not one["note"] for one in container["isolation"]]
    assert exclusive == [bool(chosen), chosen == ["all"]]


def test_legacy_image_requests_all_gpus(node: list[str], tmp_path: Path) -> None:
    """It gets all GPUs and the whole driver, or the setting and its effect are shown."""
    container = explained(node, OLD)
    (source,) = container["sources"]
    assert (source["kind"], source["names"], source["result"]) == ("image", ["all"], "won")
    assert "a legacy image" in container["capabilities"]["rule"]
    assert len(container["capabilities"]["effective"]) == 7
    settings(tmp_path, legacyImages=False)
    container = explained(node, OLD)
    assert (container["result"], container["sources"]) == ("nothing", [])
    assert any("request.legacyImages" in one for one in container["ignored"])


def test_swarm_resources_replace_the_variable(node: list[str], tmp_path: Path) -> None:
    settings(tmp_path, swarmResources=["DOCKER_RESOURCE_GPU"])
    container = explained(node, f"DOCKER_RESOURCE_GPU={GPU}", "NVIDIA_VISIBLE_DEVICES=all")
    (source,) = container["sources"]
    assert (source["kind"], source["names"]) == ("resources", [GPU])
    assert any("NVIDIA_VISIBLE_DEVICES=all is ignored" in one for one in container["ignored"])
    container = explained(node, "DOCKER_RESOURCE_GPU=", "NVIDIA_VISIBLE_DEVICES=all")
    assert container["result"] == "nothing"
    assert any("is empty" in one for one in container["ignored"])


def test_capabilities_that_the_settings_allow(node: list[str], tmp_path: Path) -> None:
    settings(tmp_path, driverCapabilities=["utility"])
    container = explained(node, "NVIDIA_VISIBLE_DEVICES=0")
    assert container["capabilities"]["effective"] == ["utility"]
    assert "limited by request.driverCapabilities (utility)" in container["capabilities"]["rule"]
    refused = explained(
        node, "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=compute", status=1
    )
    assert refused["fault"]["code"] == "GH1027"


@pytest.mark.parametrize(
    ("value", "is_default"), [("ALL", True), ("ALL,foo", True), ("ALL,video", False)]
)
def test_capabilities_with_unknown_words(
    value: str, is_default: bool, node: list[str], tmp_path: Path
) -> None:
    """If the settings ignore each word, the default applies, and the rule is shown."""
    settings(tmp_path, onUnknownCapability="ignore", defaultDriverCapabilities=["utility"])
    container = explained(node, "NVIDIA_VISIBLE_DEVICES=0", f"NVIDIA_DRIVER_CAPABILITIES={value}")
    assert (container["capabilities"]["effective"] == ["utility"]) == is_default
    rule = container["capabilities"]["rule"]
    assert value in rule
    assert ("request.defaultDriverCapabilities applies (utility)" in rule) == is_default


def test_refusal_that_fails_the_create(node: list[str], tmp_path: Path) -> None:
    settings(tmp_path, acceptEnvWhenUnprivileged=False, onRefusal="fail")
    container = explained(node, "NVIDIA_VISIBLE_DEVICES=0", status=1)
    assert (container["result"], container["fault"]["code"]) == ("refused", "GH1026")
    (source,) = container["sources"]
    assert source["result"] == "refused"
    assert explained([*node, "--privileged"], "NVIDIA_VISIBLE_DEVICES=0")["result"] == "gets"


def test_mount_without_a_device_is_ignored(node: list[str], tmp_path: Path) -> None:
    settings(tmp_path, acceptVolumeMounts=True)
    path = "/var/run/nvidia-container-devices/cdi/gpu0"
    container = explained_container(f"--mount={path}", *node)
    assert any(path in one for one in container["ignored"])
    assert [one["code"] for one in container["warnings"]] == ["GH1028"]


def test_files_that_capabilities_leave_out_are_listed() -> None:
    container = explained_container(
        *env("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=utility")
    )
    capabilities = container["capabilities"]
    assert capabilities["effective"] == ["utility"]
    uvm = next(one for one in capabilities["left_out"] if one["path"] == "/dev/nvidia-uvm")
    assert uvm == {"what": "node", "path": "/dev/nvidia-uvm", "needed_by": ["compute"]}
    assert "/dev/nvidia-uvm" not in container["changes"]["nodes"]


def test_requirements_are_checked_against_the_requested_gpus() -> None:
    text = "cuda>=99 brand=nvidia,arch>=8.0"
    container = explained_container(
        *env("NVIDIA_VISIBLE_DEVICES=0", f"NVIDIA_REQUIRE_CUDA={text}"), status=1
    )
    requirements = container["requirements"]
    assert (requirements["verdict"], requirements["enforced"]) == ("unmet", True)
    assert requirements["note"].startswith("gpuhook refuses it; NVIDIA's runtime refuses it in leg")
    assert (container["result"], container["fault"]["code"]) == ("refused", "GH1043")
    assert "cuda>=99 (it is 13.0); arch>=8.0 (it is 7.5)" in container["fault"]["message"]
    terms = [t for a in requirements["items"][0]["alternatives"] for t in a["terms"]]
    assert {one["term"]: one["is"] for one in terms}["arch>=8.0"] == "7.5"


@pytest.mark.parametrize(
    ("variables", "enforced", "note", "result"),
    [
        (
            ["NVIDIA_REQUIRE_CUDA=cuda>=12"],
            True,
            "gpuhook starts it; so does NVIDIA's runtime",
            "gets",
        ),
        (["CUDA_VERSION=99.1.2"], True, "gpuhook refuses it", "refused"),
        (["CUDA_VERSION=13.9"], True, "gpuhook starts it with a warning", "gets"),
        (["CUDA_VERSION=of-ours"], True, "the image requires nothing", "gets"),
        (["NVIDIA_REQUIRE_CUDA=99"], True, "gpuhook refuses it", "refused"),
        (
            ["NVIDIA_REQUIRE_CUDA=cuda>=99", "NVIDIA_DISABLE_REQUIRE=true"],
            False,
            "NVIDIA_DISABLE_REQUIRE waives them, including for NVIDIA's runtime",
            "gets",
        ),
    ],
)
def test_results_of_requirements(
    variables: list[str], note: str, result: str, *, enforced: bool
) -> None:
    status = int(result == "refused")
    container = explained_container(*env("NVIDIA_VISIBLE_DEVICES=0", *variables), status=status)
    requirements = container["requirements"]
    assert requirements["note"].startswith(note)
    assert (requirements["enforced"], container["result"]) == (enforced, result)


def test_requirements_are_not_checked_without_gpus() -> None:
    container = explained_container(
        *env("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_REQUIRE_CUDA=cuda>=99")
    )
    requirements = container["requirements"]
    assert (requirements["enforced"], container["result"]) == (False, "nothing")
    assert "are not checked" in requirements["note"]
    files = explained_container(
        *env("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_REQUIRE_CUDA=brand=geforce")
    )
    assert (files["requirements"]["verdict"], files["result"]) == ("met", "files-only")
    old = env("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_REQUIRE_CUDA=cuda>=99")
    files = explained_container(*old, status=1)
    assert (files["requirements"]["verdict"], files["result"]) == ("unmet", "refused")


def test_memory_limit_on_another_node() -> None:
    container = explained_container(
        *env(f"NVIDIA_VISIBLE_DEVICES={GPU}", "NVIDIA_GPU_MEMORY_LIMIT=2048")
    )
    (limit,) = container["memory"]
    assert (limit["gpu"], limit["limit"], limit["trouble"]) == (GPU, 2 << 30, "")
    (one,) = container["isolation"]
    assert one["memory_by"] == "driver"


def test_void_requests_nothing() -> None:
    container = explained_container(*env("NVIDIA_VISIBLE_DEVICES=void"))
    assert container["result"] == "nothing"
    assert any("void" in sentence for sentence in container["ignored"])


DOCKER = [{"Config": {"Env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"]}}]
OCI = {"architecture": "amd64", "config": {"Env": ["NVIDIA_VISIBLE_DEVICES=all"]}}
SKOPEO = {"Name": "x", "Env": ["NVIDIA_VISIBLE_DEVICES=all"]}
CREATED = [
    {
        "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=void"]},
        "HostConfig": {"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]},
    }
]


@pytest.mark.parametrize("document", [DOCKER, OCI, SKOPEO, CREATED])
def test_image_document_in_each_form(document: object) -> None:
    container = explained_container("-", "--inventory=t4", stdin=json.dumps(document))
    assert container["kind"] == "image"
    assert container["sources"][0]["names"] == ["all"]
    asked = explained_container(
        "-", "--inventory=t4", "-e", "NVIDIA_VISIBLE_DEVICES=0", stdin=json.dumps(DOCKER)
    )
    assert asked["sources"][0]["names"] == ["0"]


def bundle(directory: Path, *entries: str) -> Path:
    (directory / "rootfs/etc").mkdir(parents=True)
    spec = {"ociVersion": "1.0.2", "process": {"env": [*entries]}, "root": {"path": "rootfs"}}
    (directory / "config.json").write_text(json.dumps(spec), encoding="utf-8")
    return directory


def test_bundle_is_explained_and_not_changed(tmp_path: Path) -> None:
    place = bundle(tmp_path / "bundle", "NVIDIA_VISIBLE_DEVICES=0")
    before = {path: path.lstat().st_mtime_ns for path in place.rglob("*")}
    container = explained_container(str(place), "--inventory=t4")
    assert container["changes"]["root_is_known"]
    assert any("ld.so.cache" in change for change in container["changes"]["root"])
    assert {path: path.lstat().st_mtime_ns for path in place.rglob("*")} == before
    assert not (tmp_path / "state").exists()
    alone = explained_container(str(place / "config.json"), "--inventory=t4")
    assert alone["changes"] == container["changes"]


def test_spec_of_another_node_is_not_stale(tmp_path: Path) -> None:
    """The hook of the engine's spec describes that node, not this one."""
    words = ["generate-cdi", "--inventory=t4", "--format=json"]
    made = CliRunner().invoke(main, words).stdout
    hook = dict(json.loads(made)["containerEdits"]["hooks"][0])
    assert hook.pop("hookName") == "createContainer"
    place = bundle(tmp_path / "bundle", "NVIDIA_VISIBLE_DEVICES=void")
    document = json.loads((place / "config.json").read_text())
    document["hooks"] = {"createContainer": [hook]}
    (place / "config.json").write_text(json.dumps(document))
    assert explained_container(str(place), "--inventory=t4")["result"] == "gets"


def test_difference_is_that_of_config_json(tmp_path: Path) -> None:
    place = bundle(tmp_path / "bundle", "NVIDIA_VISIBLE_DEVICES=0")
    lines = run(str(place), "--inventory=t4", "--diff").stdout.splitlines()
    assert any(line.startswith("-") and "NVIDIA_VISIBLE_DEVICES=0" in line for line in lines)
    assert any(line.startswith("+") and '"/dev/nvidia0"' in line for line in lines)
    nothing = bundle(tmp_path / "other", "PATH=/bin")
    assert run(str(nothing), "--inventory=t4", "--diff").stdout == ""


def test_graph_shows_the_way_from_request_to_nodes() -> None:
    lines = run(*env("NVIDIA_VISIBLE_DEVICES=0"), "--dot").stdout.splitlines()
    assert lines[0] == "digraph explain {"
    assert lines[-1] == "}"
    assert any('"0/device nvidia.com/gpu=0" -> "0/node /dev/nvidia0"' in line for line in lines)


def test_hostile_name_is_escaped_in_terminal_and_graph(tmp_path: Path) -> None:
    name = 'NVIDIA_VISIBLE_DEVICES=a"];\\x b'
    for form in ("--dot", "--diff", "--output=text"):
        done = run(*env(name, "NVIDIA_REQUIRE_X=\x1b[2J"), form)
        assert done.exit_code == 1
        assert "\x1b" not in done.stdout
    dot = run(*env(name), "--dot").stdout
    assert all(QUOTED.fullmatch(line) for line in dot.splitlines())


def test_yaml_equals_json() -> None:
    arguments = env("NVIDIA_VISIBLE_DEVICES=all", node="a100-mig")
    one = yaml.safe_load(run(*arguments, "-o", "yaml").stdout)
    assert one == json.loads(run(*arguments, "-o", "json").stdout)
    VALIDATOR.validate(one)


@pytest.mark.parametrize("code", ["GH1102", "gh1102"])
def test_code_is_explained(code: str) -> None:
    done = run(code)
    titles = [line for line in done.stdout.splitlines() if line in ("Cause", "Cure", "Example")]
    assert done.stdout.startswith("GH1102: <name>: no such device")
    assert "\nfor example: nvidia.com/gpu=4: no such device; /var/run/cdi/" in done.stdout
    assert titles == ["Cause", "Cure", "Example"]
    document = json.loads(run(code, "-o", "json").stdout)
    schema = json.loads((SCHEMAS / "explain-code.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["cause"] in " ".join(done.stdout.split())


def test_code_without_a_cure() -> None:
    """Its text has no empty part, and its document has an empty cure."""
    document = json.loads(run("GH1022", "-o", "json").stdout)
    schema = json.loads((SCHEMAS / "explain-code.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["cure"] == ""
    assert "Cure" not in run("GH1022").stdout.splitlines()


@pytest.mark.parametrize("code", sorted(catalogue.retired_codes()))
def test_retired_code(code: str) -> None:
    """It has its reason, and the code that replaces it."""
    document = json.loads(run(code, "-o", "json").stdout)
    schema = json.loads((SCHEMAS / "explain-retired-code.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    lines = [f"{code}: no longer used", f"reason: {document['reason']}"]
    if document["replacement"]:
        lines.append(f"replaced by: {document['replacement']}")
    assert run(code.lower()).stdout.splitlines() == lines


@pytest.mark.parametrize(
    ("code", "nearest"), [("GH1199", "GH1123"), ("GH110", "GH1101"), ("GH100800", "GH1008")]
)
def test_unknown_code_names_the_nearest(code: str, nearest: str) -> None:
    known = set(catalogue.explanations())
    done = run(code)
    assert done.exit_code == 1
    assert f"GH1914: there is no error code {code}" in done.stderr
    named = re.findall(r"GH\d{4}", done.stderr.splitlines()[0].partition("nearest")[2])
    assert 0 < len(named) <= 3
    assert set(named) <= known
    assert nearest in named


def test_unknown_code_without_a_similar_one() -> None:
    done = run("GH9999")
    assert "nearest" not in done.stderr
    assert "there is no error code GH9999; the codes are from GH1003 to GH" in done.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "GH1910"),
        ("kind: Pod\nspec: 5\n", "GH1932"),
        ("{", "GH1910"),
        ("{}", "GH1910"),
        ("[]", "GH1910"),
        ('{"Env": 3}', "GH1910"),
    ],
)
def test_unknown_documents_are_refused(text: str, code: str) -> None:
    done = run("-", stdin=text)
    assert done.exit_code == 1
    assert code in done.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000 + "]" * 100_000, "it is nested too deeply"),
        ('{"process": {}}\n  x', "line 2, column 3: there is more after the value"),
        (
            '{"process": {},\n}',
            "Expecting property name enclosed in double quotes: line 2 column 1",
        ),
    ],
)
def test_malformed_json_is_refused_with_the_reason(text: str, reason: str) -> None:
    assert f"it cannot be read as JSON: {reason}" in run("-", stdin=text).stderr


def test_number_with_many_digits_is_read() -> None:
    assert run("-", stdin=f'{{"process": {{}}, "x": {"9" * 5000}}}').exit_code == 0


def test_missing_path_is_a_fault(tmp_path: Path) -> None:
    assert "GH1911" in run(str(tmp_path / "no.json")).stderr


@pytest.mark.parametrize("image", ["nvidia/cuda:12.4.1-base-ubuntu22.04", "ubuntu:24.04"])
def test_name_of_an_image_has_a_hint(image: str) -> None:
    done = run(image)
    assert f"GH1911: {image}" in done.stderr
    assert "docker image inspect IMAGE | gpuhook explain -" in done.stderr


def test_nothing_to_explain_is_a_usage_error() -> None:
    assert "pass WHAT to explain, -f pod.yaml, or --env" in run().stderr


def test_directory_without_a_bundle_is_a_fault(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert done.exit_code == 1
    assert "GH1915" in done.stderr
    assert "--bundle" not in done.stderr  # an option of the runtime


def test_usage_errors() -> None:
    assert run().exit_code == 2
    assert run("--env", "NVIDIA_VISIBLE_DEVICES").exit_code == 2


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  runtimeClassName: nvidia
  containers:
  - {name: good, image: cuda, resources: {limits: {nvidia.com/gpu: 2}}}
  - {name: bad, image: cuda, resources: {requests: {nvidia.com/gpu: 1}}}
  - {name: many, image: cuda, resources: {limits: {nvidia.com/gpu: 7}}}
"""
REPLICAS = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"


def containers_of_pod(path: Path, *options: str) -> list[dict[str, Any]]:
    document = json.loads(run(str(path), "--inventory=h100x8", "-o", "json", *options).stdout)
    VALIDATOR.validate(document)
    schema = json.loads((SCHEMAS / "pod.json").read_text(encoding="utf-8"))
    for container in document["containers"]:
        jsonschema.Draft202012Validator(schema).validate(container["pod"])
    found: list[dict[str, Any]] = document["containers"]
    return found


def test_pods_with_one_generated_name_are_two_pods(tmp_path: Path) -> None:
    """Each has all GPUs of the node, and the other's objection does not apply to it."""
    text = """\
kind: Pod
metadata: {{generateName: job-}}
spec:
  nodeSelector: {{nvidia.com/gpu.product: {}}}
  containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"""
    path = tmp_path / "pod.yaml"
    path.write_text("---\n".join(map(text.format, ("Tesla-T4", "other"))), encoding="utf-8")
    document = json.loads(run(str(path), "--inventory=t4", "-o", "json").stdout)
    one, other = document["containers"]
    assert [one["result"], other["result"]] == ["gets", "pending"]
    assert [found["id"] for found in other["pod"]["objections"]] == ["node-selector"]


def test_pod_gets_what_the_device_plugin_allocates(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(POD, encoding="utf-8")
    good, bad, many = containers_of_pod(path)
    assert {one["result"] for one in (good, bad, many)} == {"not-created"}  # the whole pod
    assert [one["because_of"] for one in (good, bad, many)] == [["bad"], [], ["bad"]]
    assert good["sources"][0]["names"] == [
        device["uuid"] for device in good["pod"]["allocation"]["resources"][0]["devices"]
    ]
    assert [one["sharing"] for one in good["isolation"]] == ["none", "none"]
    done = run(str(path), "--inventory=h100x8")
    assert done.exit_code == 1
    assert "nvidia.com/gpu" in done.stdout


def test_pod_with_shared_gpus_shows_its_replicas(tmp_path: Path) -> None:
    path, plugin = tmp_path / "pod.json", tmp_path / "plugin.yaml"
    pod = yaml.safe_load(POD)
    del pod["spec"]["containers"][1:]
    path.write_text(json.dumps(pod), encoding="utf-8")
    plugin.write_text(f"version: v1\n{REPLICAS}\n", encoding="utf-8")
    (good,) = containers_of_pod(path, f"--plugin-config={plugin}")
    assert len(good["replicas"]) == 2
    assert {one["sharing"] for one in good["isolation"]} == {"time-slicing"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-e", "A=1", "--dot", "--diff"], "cannot be used together"),
        (["-e", "A=1", "--dot", "-o", "json"], "cannot be used together"),
        (["GH1102", "--diff"], "a code has no --diff"),
        (["--annotation", "A"], "'A' is not KEY=VALUE"),
        (["--env", "A"], "'A' is not NAME=VALUE"),
        (["--mount", "rel"], "'rel' is not an absolute path"),
        (["--mount", ""], "'' is not an absolute path"),
    ],
)
def test_contradictory_options_are_usage_errors(words: list[str], told: str) -> None:
    done = run("--inventory", "t4", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_output_option_of_the_call_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_EXPLAIN_OUTPUT", "json")
    done = run("--inventory", "t4", "-e", "NVIDIA_VISIBLE_DEVICES=0", "--dot")
    assert done.exit_code == 0
    assert done.stdout.startswith("digraph")


def test_text_without_objects_is_a_fault() -> None:
    done = run("-", stdin="hello")
    assert done.exit_code == 1
    assert "pod template: no object has a `kind`\n" in done.stderr


def test_extra_requests_have_results_and_reasons() -> None:
    switches = ("NVIDIA_GDS=enabled", "NVIDIA_MOFED=1", "NVIDIA_IMEX_CHANNELS=all")
    container = explained_container(*env("NVIDIA_VISIBLE_DEVICES=0", *switches))
    found = {one["where"]: (one["result"], one["reason"]) for one in container["extras"]}
    assert found["NVIDIA_GDS"] == ("won", "it is unknown here whether the node has it")
    assert found["NVIDIA_MOFED"] == ("ignored", "NVIDIA_MOFED=1 is not NVIDIA_MOFED=enabled")
    assert found["NVIDIA_IMEX_CHANNELS"][0] == "ignored"
    assert container["result"] == "gets"
    assert [one["name"] for one in container["devices"]] == ["0"]
    assert container["ignored"] == []
    text = run(*env("NVIDIA_VISIBLE_DEVICES=0", *switches)).stdout
    assert "NVIDIA_GDS requests nvidia.com/gds=all in addition" in text
    graph = run(*env("NVIDIA_VISIBLE_DEVICES=0", *switches), "--dot").stdout
    assert "NVIDIA_GDS" in graph
    assert "NVIDIA_MOFED" not in graph


def test_extra_requests_require_gpus() -> None:
    (one,) = explained_container(*env("NVIDIA_GDS=enabled"))["extras"]
    assert one["result"] == "ignored"
    assert "containers with GPUs" in one["reason"]


def test_mig_administration_requires_privileges() -> None:
    asked = env("NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_MIG_CONFIG_DEVICES=all")
    container = explained_container(*asked, status=1)
    assert container["fault"]["code"] == "GH1038"
    (one,) = container["extras"]
    assert one["result"] == "refused"
    assert "privileged" in one["reason"]
