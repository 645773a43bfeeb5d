# SPDX-License-Identifier: Apache-2.0
"""The client of the API server, on a real HTTPS server."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuhook.device_plugin.api_server import node_label
from gpuhook.device_plugin.api_server.client import MERGE_PATCH, ApiServer, GoneError, is_forbidden
from gpuhook.device_plugin.api_server.node_events import NodeEvents, event
from gpuhook.device_plugin.api_server.node_label import CONFIG_LABEL, NodeLabel
from gpuhook.device_plugin.api_server.service_account import ApiAccess, in_cluster
from gpuhook.device_plugin.notifier import NORMAL, WARNING
from gpuhook.errors import GpuhookError
from tests.unit.api_stand_in import Answer, ApiStandIn, Asked, certificate, serving, status

SECONDS = 20


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[ApiStandIn]:
    with serving(tmp_path) as made:
        yield made


def node(label: str | None, version: int) -> dict[str, object]:
    labels = {"a": "b"} if label is None else {"a": "b", CONFIG_LABEL: label}
    return {"metadata": {"name": "n1", "labels": labels, "resourceVersion": str(version)}}


def code(error: pytest.ExceptionInfo[GpuhookError]) -> str:
    return error.value.code


def test_access_is_that_of_a_pod(tmp_path: Path) -> None:
    """Two variables and a token make it; without one of them there is no API server."""
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert in_cluster(environ, str(tmp_path)) is None
    (tmp_path / "token").touch()
    token, ca = str(tmp_path / "token"), str(tmp_path / "ca.crt")
    assert in_cluster(environ, str(tmp_path)) == ApiAccess("fd00::1", 6443, token, ca)
    assert in_cluster({}, str(tmp_path)) is None
    odd = {**environ, "KUBERNETES_SERVICE_PORT": "tcp://"}
    assert in_cluster(odd, str(tmp_path)) is None


def test_labels_are_read_with_the_token_of_the_moment(stand_in: ApiStandIn, tmp_path: Path) -> None:
    """The kubelet replaces the token's file; only the metadata of the node is asked for."""
    server = ApiServer(stand_in.access)
    stand_in.otherwise = lambda asked: asked.reply(node("a100", 7))
    assert node_label.read_labels(server, "n1") == ({"a": "b", CONFIG_LABEL: "a100"}, "7")
    (tmp_path / "token").write_text("second", encoding="ascii")
    node_label.read_labels(server, "n1")
    tokens = [asked.headers["Authorization"] for asked in stand_in.asked]
    assert tokens == ["Bearer first", "Bearer second"]
    assert stand_in.asked[0].path == "/api/v1/nodes/n1"
    assert "PartialObjectMetadata" in stand_in.asked[0].headers["Accept"]


def test_a_server_of_another_ca_is_not_spoken_to(tmp_path: Path) -> None:
    """The token is not given to who cannot prove that it is the cluster's; a new CA is read."""
    with serving(tmp_path, secret="impostor") as stand_in:
        server = ApiServer(stand_in.access)
        stand_in.otherwise = lambda asked: asked.reply(node(None, 1))
        with pytest.raises(GpuhookError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            node_label.read_labels(server, "n1")
        assert code(caught) == "GH1862"
        assert stand_in.asked == []
        shutil.copy(tmp_path / "impostor.crt", tmp_path / "ca.crt")
        assert node_label.read_labels(server, "n1")[1] == "1"


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_missing_file_is_a_sentence(stand_in: ApiStandIn, tmp_path: Path, missing: str) -> None:
    """A pod without its projected volume learns which file it misses."""
    (tmp_path / missing).unlink()
    with pytest.raises(GpuhookError, match=missing) as caught:
        node_label.read_labels(ApiServer(stand_in.access), "n1")
    assert code(caught) == "GH1862"


def test_nobody_there(tmp_path: Path) -> None:
    """A port without a listener is a fault that names the port."""
    certificate(tmp_path)
    (tmp_path / "token").touch()
    access = ApiAccess("127.0.0.1", 1, str(tmp_path / "token"), str(tmp_path / "ca.crt"))
    for scheme in ("https", "http"):
        one = ApiAccess(access.host, access.port, access.token_path, access.ca_path, scheme)
        with pytest.raises(GpuhookError, match=r"cannot reach the API server at 127\.0\.0\.1:1: "):
            node_label.watch_node(ApiServer(one), "n1", "1", 1)


def test_a_missing_permission_names_its_rule(stand_in: ApiStandIn) -> None:
    """The sentence has what to add to the ClusterRole, and what is off without it."""
    stand_in.otherwise = status(403, "nodes is forbidden")
    with pytest.raises(GpuhookError) as caught:
        node_label.set_labels(ApiServer(stand_in.access), "n1", {"a": "b"})
    assert is_forbidden(caught.value)
    assert "may not patch nodes, which is needed for feature labels" in caught.value.message
    assert 'resources ["nodes"], verbs ["patch"]' in caught.value.hint


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b"null", b"\xff", b"[" * 100_000])
def test_an_odd_answer_is_a_fault(stand_in: ApiStandIn, answer: bytes) -> None:
    """What is not an object ends nothing but the call."""

    def odd(asked: Asked) -> None:
        asked.send_response(200)
        asked.send_header("Content-Length", str(len(answer)))
        asked.end_headers()
        asked.wfile.write(answer)

    stand_in.otherwise = odd
    with pytest.raises(GpuhookError) as caught:
        node_label.read_labels(ApiServer(stand_in.access), "n1")
    assert code(caught) == "GH1862"


def test_another_refusal_has_the_servers_words(stand_in: ApiStandIn) -> None:
    """A status that is no missing permission may pass by itself."""
    stand_in.answers = [status(401, "Unauthorized"), lambda asked: asked.reply([], 500)]
    for words in ("401 Unauthorized", "500 Internal Server Error"):
        with pytest.raises(GpuhookError, match=words) as caught:
            node_label.read_labels(ApiServer(stand_in.access), "n1")
        assert code(caught) == "GH1864"
        assert not is_forbidden(caught.value)


def test_labels_that_are_no_text_are_none(stand_in: ApiStandIn) -> None:
    """A label's value becomes the name of a file."""
    odd = {"metadata": {"labels": {CONFIG_LABEL: ["x"], "n": 5, "a": "b"}}}
    stand_in.otherwise = lambda asked: asked.reply(odd)
    assert node_label.read_labels(ApiServer(stand_in.access), "n1") == ({"a": "b"}, "")


def test_server_that_never_answers_does_not_keep_the_process_from_ending() -> None:
    """Threads of the loop's own executor are waited for at the end; these are not."""
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


def test_labels_are_merged(stand_in: ApiStandIn) -> None:
    """None takes a label away, and those of others are not sent."""
    stand_in.otherwise = lambda asked: asked.reply({})
    node_label.set_labels(ApiServer(stand_in.access), "n/1", {"x/y": "1", "x/z": None})
    (asked,) = stand_in.asked
    assert (asked.command, asked.path) == ("PATCH", "/api/v1/nodes/n%2F1")
    assert asked.headers["Content-Type"] == MERGE_PATCH
    assert asked.body == {"metadata": {"labels": {"x/y": "1", "x/z": None}}}


def test_a_watch_that_is_too_old(stand_in: ApiStandIn) -> None:
    """The server says so by its status, or by a line of the stream."""

    def stream(asked: Asked) -> None:
        asked.begin()
        asked.line({"type": "BOOKMARK", "object": node(None, 8)})
        asked.line({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
        asked.end()

    server = ApiServer(stand_in.access)
    stand_in.answers = [status(410, "too old"), stream]
    with pytest.raises(GoneError):
        node_label.watch_node(server, "n1", "1", 60)
    changes = node_label.watch_node(server, "n1", "1", 60)
    assert changes.next() == {"type": "BOOKMARK", "object": node(None, 8)}
    with pytest.raises(GoneError):
        changes.next()
    changes.close()
    query = parse_qs(urlsplit(stand_in.asked[1].path).query)
    assert query["fieldSelector"] == ["metadata.name=n1"]
    assert (query["watch"], query["resourceVersion"]) == (["true"], ["1"])


def test_a_waiting_watch_can_be_interrupted(stand_in: ApiStandIn) -> None:
    """Another thread's next() ends, so that the plugin can."""
    over = threading.Event()

    def silent(asked: Asked) -> None:
        asked.begin()
        over.wait(SECONDS)

    stand_in.otherwise = silent
    changes = node_label.watch_node(ApiServer(stand_in.access), "n1", "1", 300)
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


class Label:
    """A NodeLabel and what it tells; its pauses are over at once."""

    def __init__(self, stand_in: ApiStandIn) -> None:
        self.values: list[str | None] = []
        self.faults: list[str] = []
        self.pauses: list[float] = []
        self._sent = asyncio.Event()
        self.label = NodeLabel(
            ApiServer(stand_in.access), "n1", self._changed, self._failed, sleep=self._sleep
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


def silence(over: threading.Event, *changes: object) -> Answer:
    """Return an answer that streams the changes and then waits."""

    def answer(asked: Asked) -> None:
        asked.begin()
        for change in changes:
            asked.line(change)
        over.wait(SECONDS)

    return answer


def test_the_label_is_followed(stand_in: ApiStandIn) -> None:
    """Each change is reported once, across ended watches, faults and an outdated version."""
    over = threading.Event()

    def first(asked: Asked) -> None:
        asked.begin()
        asked.line({"type": "ADDED", "object": node("a", 2)})
        asked.line({"type": "MODIFIED", "object": node("b", 3)})
        asked.line({"type": "MODIFIED", "object": node("b", 4)})
        asked.line({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}})
        asked.end()

    stand_in.answers = [
        status(500, "not yet"),
        status(500, "not yet"),
        lambda asked: asked.reply(node("a", 1)),
        first,
        status(410, "too old"),
        lambda asked: asked.reply(node("b", 10)),
        silence(over, {"type": "MODIFIED", "object": node(None, 11)}),
    ]

    async def main() -> Label:
        followed = Label(stand_in)
        await followed.until(["a", "b", None])
        return followed

    followed = asyncio.run(main())
    over.set()
    assert followed.faults == ["GH1864", "well"]
    assert followed.pauses == [1, 2, 1, 1]
    versions = [
        parse_qs(urlsplit(asked.path).query).get("resourceVersion") for asked in stand_in.asked
    ]
    assert versions == [None, None, None, ["1"], ["9"], None, ["10"]]


def test_a_label_that_may_not_be_read_is_left_alone(stand_in: ApiStandIn) -> None:
    """One refusal ends it: no loop of errors."""
    stand_in.otherwise = status(403, "forbidden")

    async def main() -> Label:
        followed = Label(stand_in)
        await asyncio.wait_for(followed.label.run(), SECONDS)
        return followed

    followed = asyncio.run(main())
    assert (followed.values, followed.faults, followed.pauses) == ([], ["GH1863"], [])
    assert len(stand_in.asked) == 1


class Teller:
    """NodeEvents with its own clock."""

    def __init__(self, stand_in: ApiStandIn) -> None:
        self.now = 1000.0
        self.faults: list[str] = []
        self.events = NodeEvents(
            ApiServer(stand_in.access),
            "n1",
            lambda error: self.faults.append(error.code),
            clock=lambda: self.now,
        )

    def create(self, *, reason: str = "GpuUnhealthy", key: str = "GPU-0", text: str = "m") -> bool:
        return asyncio.run(self.events.create(WARNING, reason, key, text))


def test_an_event_is_one_of_the_node(stand_in: ApiStandIn) -> None:
    """kubectl finds it by the node's name, and it has the fields of core/v1."""
    stand_in.otherwise = lambda asked: asked.reply(asked.body, 201)
    assert Teller(stand_in).create(text="GPU 0 reported XID 79")
    (asked,) = stand_in.asked
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


def test_the_same_event_is_told_once_in_a_while(stand_in: ApiStandIn) -> None:
    """The next event has the number of suppressed ones; other GPUs are reported at once."""
    stand_in.otherwise = lambda asked: asked.reply(asked.body, 201)
    teller = Teller(stand_in)
    assert [teller.create() for _ in range(4)] == [True, False, False, False]
    assert teller.create(key="GPU-1")
    teller.now += 301
    assert teller.create(text="x" * 2000)
    message = stand_in.asked[-1].body["message"]
    assert message.endswith("x... (3 similar events suppressed)")
    assert len(message) == 1024


def test_a_storm_of_events_is_ten_a_minute(stand_in: ApiStandIn) -> None:
    """The limit applies to all keys, and the table of sent events is bounded."""
    stand_in.otherwise = lambda asked: asked.reply(asked.body, 201)
    teller = Teller(stand_in)
    assert sum(teller.create(key=f"GPU-{n}") for n in range(600)) == 10
    assert len(teller.events._sent) <= 256
    teller.now += 61
    assert teller.create(key="GPU-999")


def test_events_that_may_not_be_created_are_off(stand_in: ApiStandIn) -> None:
    """A missing permission is said once, and nothing is sent any more."""
    stand_in.otherwise = status(403, "events is forbidden")
    teller = Teller(stand_in)
    assert [teller.create(key=f"GPU-{n}") for n in range(5)] == [False] * 5
    assert teller.faults == ["GH1863"]
    assert len(stand_in.asked) == 1


def test_an_event_that_failed_is_told_the_next_time(stand_in: ApiStandIn) -> None:
    """A server that is away for a while costs one message, and the news is not lost."""
    teller = Teller(stand_in)
    stand_in.answers = [status(500, "away"), status(500, "away")]
    stand_in.otherwise = lambda asked: asked.reply(asked.body, 201)
    assert [teller.create() for _ in range(3)] == [False, False, True]
    assert teller.faults == ["GH1864"]
