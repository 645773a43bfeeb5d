# SPDX-License-Identifier: Apache-2.0
"""The client of the API server, with a real HTTPS server."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuhook.device_plugin.api_server import node_label
from gpuhook.device_plugin.api_server.client import (
    MERGE_PATCH,
    ApiServer,
    GoneError,
    Purpose,
    is_conflict,
    is_forbidden,
    is_missing,
)
from gpuhook.device_plugin.api_server.node_events import NodeEvents, event
from gpuhook.device_plugin.api_server.node_label import CONFIG_LABEL, NodeLabel
from gpuhook.device_plugin.api_server.service_account import ApiAccess, in_cluster
from gpuhook.device_plugin.notifier import NORMAL, WARNING
from gpuhook.errors import GpuhookError
from tests.unit.api_stand_in import Answer, ApiStandIn, Asked, certificate, serving, status

SECONDS = 20


@pytest.fixture
def api_stand_in(tmp_path: Path) -> Iterator[ApiStandIn]:
    with serving(tmp_path) as made:
        yield made


def node(label: str | None, version: int) -> dict[str, object]:
    labels = {"a": "b"} if label is None else {"a": "b", CONFIG_LABEL: label}
    return {"metadata": {"name": "n1", "labels": labels, "resourceVersion": str(version)}}


def code(error: pytest.ExceptionInfo[GpuhookError]) -> str:
    return error.value.code


def test_in_cluster_access_needs_variables_and_a_token(tmp_path: Path) -> None:
    """If one is missing, there is no API server."""
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert in_cluster(environ, str(tmp_path)) is None
    (tmp_path / "token").touch()
    token, ca = str(tmp_path / "token"), str(tmp_path / "ca.crt")
    assert in_cluster(environ, str(tmp_path)) == ApiAccess("fd00::1", 6443, token, ca)
    assert in_cluster({}, str(tmp_path)) is None
    malformed_port = {**environ, "KUBERNETES_SERVICE_PORT": "tcp://"}
    assert in_cluster(malformed_port, str(tmp_path)) is None


def test_labels_are_read_with_the_current_token(api_stand_in: ApiStandIn, tmp_path: Path) -> None:
    """The kubelet replaces the token file. Only the metadata of the node is requested."""
    server = ApiServer(api_stand_in.access)
    api_stand_in.otherwise = lambda asked: asked.reply(node("a100", 7))
    assert node_label.read_labels(server, "n1") == ({"a": "b", CONFIG_LABEL: "a100"}, "7")
    (tmp_path / "token").write_text("second", encoding="ascii")
    node_label.read_labels(server, "n1")
    tokens = [asked.headers["Authorization"] for asked in api_stand_in.asked]
    assert tokens == ["Bearer first", "Bearer second"]
    assert api_stand_in.asked[0].path == "/api/v1/nodes/n1"
    assert "PartialObjectMetadata" in api_stand_in.asked[0].headers["Accept"]


def test_server_with_another_ca_gets_no_request(tmp_path: Path) -> None:
    """The token must not be sent to it; a changed CA file is read again."""
    with serving(tmp_path, secret="impostor") as api_stand_in:
        server = ApiServer(api_stand_in.access)
        api_stand_in.otherwise = lambda asked: asked.reply(node(None, 1))
        with pytest.raises(GpuhookError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            node_label.read_labels(server, "n1")
        assert code(caught) == "GH1862"
        assert api_stand_in.asked == []
        shutil.copy(tmp_path / "impostor.crt", tmp_path / "ca.crt")
        assert node_label.read_labels(server, "n1")[1] == "1"


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_missing_token_or_ca_is_named(
    api_stand_in: ApiStandIn, tmp_path: Path, missing: str
) -> None:
    (tmp_path / missing).unlink()
    with pytest.raises(GpuhookError, match=missing) as caught:
        node_label.read_labels(ApiServer(api_stand_in.access), "n1")
    assert code(caught) == "GH1862"


def test_port_without_a_listener_is_a_fault(tmp_path: Path) -> None:
    certificate(tmp_path)
    (tmp_path / "token").touch()
    access = ApiAccess("127.0.0.1", 1, str(tmp_path / "token"), str(tmp_path / "ca.crt"))
    for scheme in ("https", "http"):
        one = ApiAccess(access.host, access.port, access.token_path, access.ca_path, scheme)
        with pytest.raises(GpuhookError, match=r"cannot reach the API server at 127\.0\.0\.1:1: "):
            node_label.watch_node(ApiServer(one), "n1", "1", 1)


def test_missing_permission_has_the_rule_to_add(api_stand_in: ApiStandIn) -> None:
    """The hint has the rule for the ClusterRole, and the message the feature that needs it."""
    api_stand_in.otherwise = status(403, "nodes is forbidden")
    with pytest.raises(GpuhookError) as caught:
        node_label.set_labels(ApiServer(api_stand_in.access), "n1", {"a": "b"})
    assert is_forbidden(caught.value)
    assert "may not patch nodes, which is needed for feature labels" in caught.value.message
    assert 'resources ["nodes"], verbs ["patch"]' in caught.value.hint


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b"null", b"\xff", b"[" * 100_000])
def test_malformed_answer_is_a_fault(api_stand_in: ApiStandIn, answer: bytes) -> None:
    def answer_malformed(asked: Asked) -> None:
        asked.send_response(200)
        asked.send_header("Content-Length", str(len(answer)))
        asked.end_headers()
        asked.wfile.write(answer)

    api_stand_in.otherwise = answer_malformed
    with pytest.raises(GpuhookError) as caught:
        node_label.read_labels(ApiServer(api_stand_in.access), "n1")
    assert code(caught) == "GH1862"


def test_other_error_status_has_the_reason_of_the_server(api_stand_in: ApiStandIn) -> None:
    """It is not a missing permission, and may be temporary."""
    api_stand_in.answers = [status(401, "Unauthorized"), lambda asked: asked.reply([], 500)]
    for words in ("401 Unauthorized", "500 Internal Server Error"):
        with pytest.raises(GpuhookError, match=words) as caught:
            node_label.read_labels(ApiServer(api_stand_in.access), "n1")
        assert code(caught) == "GH1864"
        assert not is_forbidden(caught.value)


def test_objects_are_replaced_and_deleted(api_stand_in: ApiStandIn) -> None:
    """A missing object and a conflict differ from other refusals."""
    server = ApiServer(api_stand_in.access)
    path, purpose = "/apis/g/v1/things/a", Purpose("update", "things", "things", "g")
    api_stand_in.answers = [
        lambda asked: asked.reply({"spec": asked.body}),
        lambda asked: asked.reply({"kind": "Status", "status": "Success"}),
        status(404, "not found"),
        status(409, "the object has been modified"),
        status(403, "no"),
    ]
    assert server.replace(path, {"x": 1}, purpose) == {"spec": {"x": 1}}
    assert server.delete(path, purpose)["status"] == "Success"
    found = []
    for _ in range(3):
        with pytest.raises(GpuhookError) as caught:
            server.replace(path, {}, purpose)
        found.append((is_missing(caught.value), is_conflict(caught.value), caught.value.hint))
    assert [one[:2] for one in found] == [(True, False), (False, True), (False, False)]
    assert 'apiGroups ["g"]' in found[2][2]
    asked = [(one.command, one.path) for one in api_stand_in.asked]
    assert asked == [("PUT", path), ("DELETE", path)] + 3 * [("PUT", path)]


def test_labels_that_are_not_strings_are_ignored(api_stand_in: ApiStandIn) -> None:
    """The value of the label becomes a file name."""
    malformed_labels = {"metadata": {"labels": {CONFIG_LABEL: ["x"], "n": 5, "a": "b"}}}
    api_stand_in.otherwise = lambda asked: asked.reply(malformed_labels)
    assert node_label.read_labels(ApiServer(api_stand_in.access), "n1") == ({"a": "b"}, "")


def test_hanging_server_does_not_block_the_end_of_the_loop() -> None:
    """The end of a loop waits for threads of its own executor, and not for these threads."""
    gate = threading.Event()

    class Hanging:
        def __getattr__(self, _name: str) -> object:
            return lambda *_arguments, **_options: gate.wait()

    async def ended() -> None:
        server: ApiServer = Hanging()  # type: ignore[assignment]
        events = NodeEvents(server, "n1", lambda _error: None)
        label = NodeLabel(server, "n1", lambda _value: None, lambda _error: None)
        tasks = [
            asyncio.ensure_future(events.create(NORMAL, "Reason", "key", "message")),
            asyncio.ensure_future(label.run()),
        ]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(ended())
    assert not gate.is_set()
    gate.set()


def test_labels_are_sent_as_a_merge_patch(api_stand_in: ApiStandIn) -> None:
    """None removes a label; labels of others are not sent."""
    api_stand_in.otherwise = lambda asked: asked.reply({})
    node_label.set_labels(ApiServer(api_stand_in.access), "n/1", {"x/y": "1", "x/z": None})
    (asked,) = api_stand_in.asked
    assert (asked.command, asked.path) == ("PATCH", "/api/v1/nodes/n%2F1")
    assert asked.headers["Content-Type"] == MERGE_PATCH
    assert asked.body == {"metadata": {"labels": {"x/y": "1", "x/z": None}}}


def test_expired_watch_raises_gone_error(api_stand_in: ApiStandIn) -> None:
    """The server reports it by its status, or by a line of the stream."""

    def stream(asked: Asked) -> None:
        asked.begin()
        asked.line({"type": "BOOKMARK", "object": node(None, 8)})
        asked.line({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
        asked.end()

    server = ApiServer(api_stand_in.access)
    api_stand_in.answers = [status(410, "too old"), stream]
    with pytest.raises(GoneError):
        node_label.watch_node(server, "n1", "1", 60)
    changes = node_label.watch_node(server, "n1", "1", 60)
    assert changes.next() == {"type": "BOOKMARK", "object": node(None, 8)}
    with pytest.raises(GoneError):
        changes.next()
    changes.close()
    query = parse_qs(urlsplit(api_stand_in.asked[1].path).query)
    assert query["fieldSelector"] == ["metadata.name=n1"]
    assert (query["watch"], query["resourceVersion"]) == (["true"], ["1"])


def test_waiting_watch_can_be_interrupted(api_stand_in: ApiStandIn) -> None:
    """next() of another thread ends, so that the plugin can end."""
    over = threading.Event()

    def silent(asked: Asked) -> None:
        asked.begin()
        over.wait(SECONDS)

    api_stand_in.otherwise = silent
    changes = node_label.watch_node(ApiServer(api_stand_in.access), "n1", "1", 300)
    ended: list[object] = []

    def wait() -> None:
        try:
            ended.append(changes.next())
        except GpuhookError as error:
            ended.append(error.code)

    thread = threading.Thread(target=wait)
    thread.start()
    changes.interrupt()
    thread.join(SECONDS)
    assert ended in ([None], ["GH1862"])
    changes.interrupt()
    changes.close()
    over.set()


class FollowedLabel:
    """A NodeLabel and its reports, without pauses."""

    def __init__(self, api_stand_in: ApiStandIn) -> None:
        self.values: list[str | None] = []
        self.faults: list[str] = []
        self.pauses: list[float] = []
        self._sent = asyncio.Event()
        self.label = NodeLabel(
            ApiServer(api_stand_in.access), "n1", self._changed, self._failed, sleep=self._sleep
        )

    def _changed(self, value: str | None) -> None:
        self.values.append(value)
        self._sent.set()

    def _failed(self, error: GpuhookError | None) -> None:
        self.faults.append(error.code if error else "well")

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def until(self, values: list[str | None]) -> None:
        """Run until these values are reported."""
        task = asyncio.create_task(self.label.run())
        while self.values != values:
            await asyncio.wait_for(self._sent.wait(), SECONDS)
            self._sent.clear()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def stream_then_wait(over: threading.Event, *changes: object) -> Answer:
    """Return an answer that streams the changes, and then waits."""

    def answer(asked: Asked) -> None:
        asked.begin()
        for change in changes:
            asked.line(change)
        over.wait(SECONDS)

    return answer


def test_each_change_of_the_label_is_reported_once(api_stand_in: ApiStandIn) -> None:
    """Ended watches, faults and an outdated version do not repeat a report."""
    over = threading.Event()

    def first(asked: Asked) -> None:
        asked.begin()
        asked.line({"type": "ADDED", "object": node("a", 2)})
        asked.line({"type": "MODIFIED", "object": node("b", 3)})
        asked.line({"type": "MODIFIED", "object": node("b", 4)})
        asked.line({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}})
        asked.end()

    api_stand_in.answers = [
        status(500, "not yet"),
        status(500, "not yet"),
        lambda asked: asked.reply(node("a", 1)),
        first,
        status(410, "too old"),
        lambda asked: asked.reply(node("b", 10)),
        stream_then_wait(over, {"type": "MODIFIED", "object": node(None, 11)}),
    ]

    async def main() -> FollowedLabel:
        followed = FollowedLabel(api_stand_in)
        await followed.until(["a", "b", None])
        return followed

    followed = asyncio.run(main())
    over.set()
    assert followed.faults == ["GH1864", "well"]
    assert followed.pauses == [1, 2, 1, 1]
    versions = [
        parse_qs(urlsplit(asked.path).query).get("resourceVersion") for asked in api_stand_in.asked
    ]
    assert versions == [None, None, None, ["1"], ["9"], None, ["10"]]


def test_forbidden_label_is_not_retried(api_stand_in: ApiStandIn) -> None:
    api_stand_in.otherwise = status(403, "forbidden")

    async def main() -> FollowedLabel:
        followed = FollowedLabel(api_stand_in)
        await asyncio.wait_for(followed.label.run(), SECONDS)
        return followed

    followed = asyncio.run(main())
    assert (followed.values, followed.faults, followed.pauses) == ([], ["GH1863"], [])
    assert len(api_stand_in.asked) == 1


class EventSender:
    """NodeEvents with a fake clock."""

    def __init__(self, api_stand_in: ApiStandIn) -> None:
        self.now = 1000.0
        self.faults: list[str] = []
        self.events = NodeEvents(
            ApiServer(api_stand_in.access),
            "n1",
            lambda error: self.faults.append(error.code),
            clock=lambda: self.now,
        )

    def create(self, *, reason: str = "GpuUnhealthy", key: str = "GPU-0", text: str = "m") -> bool:
        return asyncio.run(self.events.create(WARNING, reason, key, text))


def test_event_refers_to_the_node(api_stand_in: ApiStandIn) -> None:
    """kubectl finds it by the name of the node; it has the fields of core/v1."""
    api_stand_in.otherwise = lambda asked: asked.reply(asked.body, 201)
    assert EventSender(api_stand_in).create(text="GPU 0 reported XID 79")
    (asked,) = api_stand_in.asked
    assert asked.path == "/api/v1/namespaces/default/events"
    body = asked.body
    assert body["involvedObject"] == {
        "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1",
    }  # fmt: skip
    assert (body["type"], body["reason"]) == ("Warning", "GpuUnhealthy")
    assert body["message"] == "GPU 0 reported XID 79"
    assert body["metadata"]["namespace"] == "default"
    assert body["metadata"]["name"].startswith("n1.")
    long = event("n" * 253, NORMAL, "r", "m")
    assert len(long["metadata"]["name"]) <= 253


def test_repeated_event_is_suppressed_for_five_minutes(api_stand_in: ApiStandIn) -> None:
    """The next event has the number of suppressed ones. Events of other GPUs are sent at once."""
    api_stand_in.otherwise = lambda asked: asked.reply(asked.body, 201)
    sender = EventSender(api_stand_in)
    assert [sender.create() for _ in range(4)] == [True, False, False, False]
    assert sender.create(key="GPU-1")
    sender.now += 301
    assert sender.create(text="x" * 2000)
    message = api_stand_in.asked[-1].body["message"]
    assert message.endswith("x... (3 similar events suppressed)")
    assert len(message) == 1024


def test_at_most_ten_events_are_sent_per_minute(api_stand_in: ApiStandIn) -> None:
    """The limit applies to all keys, and the table of sent events is bounded."""
    api_stand_in.otherwise = lambda asked: asked.reply(asked.body, 201)
    sender = EventSender(api_stand_in)
    assert sum(sender.create(key=f"GPU-{n}") for n in range(600)) == 10
    assert len(sender.events._sent) <= 256
    sender.now += 61
    assert sender.create(key="GPU-999")


def test_forbidden_events_are_disabled(api_stand_in: ApiStandIn) -> None:
    """The missing permission is reported once."""
    api_stand_in.otherwise = status(403, "events is forbidden")
    sender = EventSender(api_stand_in)
    assert [sender.create(key=f"GPU-{n}") for n in range(5)] == [False] * 5
    assert sender.faults == ["GH1863"]
    assert len(api_stand_in.asked) == 1


def test_failed_event_is_sent_again(api_stand_in: ApiStandIn) -> None:
    """The failure is reported once."""
    sender = EventSender(api_stand_in)
    api_stand_in.answers = [status(500, "away"), status(500, "away")]
    api_stand_in.otherwise = lambda asked: asked.reply(asked.body, 201)
    assert [sender.create() for _ in range(3)] == [False, False, True]
    assert sender.faults == ["GH1864"]
