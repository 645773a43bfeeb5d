# SPDX-License-Identifier: Apache-2.0
"""The Prometheus endpoint, scraped over HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from gpuhook.containers.hot import ledger
from gpuhook.device_plugin.config.gpuhook_section import Metrics as Settings
from gpuhook.device_plugin.kubelet.observer import Observer
from gpuhook.device_plugin.metrics import exposition
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.device_plugin.metrics.metrics_endpoint import MetricsEndpoint
from gpuhook.device_plugin.metrics.metrics_service import MetricsService
from gpuhook.device_plugin.metrics.scrape import Offered, Scrape, VendorReader
from gpuhook.device_plugin.metrics.unit_holders import Holder, Holdings
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit, UnitMemory
from gpuhook.host import http_endpoint
from gpuhook.host.http_endpoint import parse_address
from gpuhook.host.logs import logger
from gpuhook.vendors.nvidia.inventory.inventory import Driver as NoDriver
from gpuhook.vendors.nvidia.inventory.inventory import Node
from gpuhook.vendors.nvidia.nvidia_vendor import NvidiaVendor
from gpuhook.vendors.nvidia.plugin import nvidia_part
from gpuhook.vendors.usage.usage_device import ProcessOnDevice, UsageDevice

GPU, NAME = "GPU-0", "nvidia.com/gpu"
DEVICE = Device(GPU, "0", GPU, 0, (), (), "Tesla T4", 16 << 30)
T4 = Resource(NAME, tuple(Unit(f"{GPU}::{n}", DEVICE, n) for n in range(4)), "time-slicing")
A, B = "aa" * 32, "bb" * 32
HELD = Holdings(
    {
        f"{GPU}::0": Holder("demo", "trainer", "main"),
        f"{GPU}::1": Holder("demo", "inference", "main"),
    }
)


class Driver:
    """The driver of the T4."""

    def usage(self, *_: object) -> tuple[UsageDevice, ...]:
        sizes = ((101, 2 << 30), (102, 1 << 30), (103, 1 << 20))
        found = tuple(ProcessOnDevice(pid, memory) for pid, memory in sizes)
        return (UsageDevice(GPU, GPU, "0", total=16 << 30, used=5 << 30, processes=found),)

    @property
    def reader(self) -> VendorReader:
        return VendorReader("nvidia.com", "nvml", self.usage)


class UnloadedDriver(Driver):
    """A driver that is not loaded."""

    def usage(self, *_: object) -> tuple[UsageDevice, ...]:
        raise RuntimeError("NVML: Driver Not Loaded")


@pytest.fixture(autouse=True)
def node_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create /proc files of two containers, and their ledger entries."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    for pid, path in ((101, f"/kubepods/pod1/{A}"), (102, f"/kubepods/pod2/{B}"), (103, "/init")):
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(f"0::{path}\n")
    for identity, pod, n in ((A, "trainer", 0), (B, "inference", 1)):
        entry = {"pid": 0, "started": None, "devices": [f"nvidia.com/gpu={GPU}"]}
        names = {"namespace": "demo", "pod": pod, "container": "main"}
        ledger.record("/nowhere", identity, {**entry, **names, "replicas": [f"{GPU}::{n}"]})
    return tmp_path


def scrape_of(
    node_directory: Path,
    usage: Driver | None,
    held: Holdings = HELD,
    *,
    resource: Resource | None = None,
    unhealthy: frozenset[str] = frozenset(),
    timeout: float = 10.0,
) -> Scrape:
    async def holders() -> Holdings:
        return held

    reader = usage.reader if usage else VendorReader("nvidia.com", "nvml", None)
    offered = Offered((resource or T4,), unhealthy, readers=(reader,))
    return Scrape(holders, offered=offered, proc=str(node_directory / "proc"), timeout=timeout)


async def http(port: int, request: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the answer to the head of a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode("latin-1"))
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    return int(status.split()[1]), headers, body


def get(path: str = "/metrics", **headers: str) -> str:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"


def with_endpoint(
    scrape: Scrape, seen: Counters, scenario: Callable[[int], Awaitable[None]]
) -> None:
    """Run `scenario` with the port of an endpoint."""

    async def run() -> None:
        metrics = MetricsEndpoint("127.0.0.1:0", scrape, seen)
        assert await metrics.start() is None
        try:
            assert metrics.port
            await scenario(metrics.port)
        finally:
            await metrics.stop()
        assert metrics.port is None

    asyncio.run(run())


Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape_series(scrape: Scrape, seen: Counters | None = None) -> Series:
    """Return all series of one scrape over HTTP: value by name and sorted labels."""
    found: Series = {}

    async def scenario(port: int) -> None:
        status, headers, body = await http(port, get())
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=")
        assert int(headers["content-length"]) == len(body)
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                assert key not in found
                found[key] = sample.value

    with_endpoint(scrape, seen or Counters(), scenario)
    return found


def series_of(series: Series, name: str, *labels: str) -> dict[tuple[str, ...] | str, float]:
    """Return the series of a metric by the values of these labels."""
    result = {}
    for (metric, pairs), value in series.items():
        if metric == name:
            values = tuple(dict(pairs)[label] for label in labels)
            result[values[0] if len(values) == 1 else values] = value
    return result


def test_processes_are_read_from_proc_of_the_host(
    node_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver reports pids of the host."""
    monkeypatch.setattr(NvidiaVendor, "usage", Driver.usage)
    snapshot = NodeSnapshot(parts=(nvidia_part.part(Node(NoDriver())),))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def scrape() -> str:
        service = MetricsService(Counters(), Notifier(logger(), None), "", str(node_directory))
        await service.update(Settings(f"127.0.0.1:{port}"), snapshot, (T4,), {})
        _, _, body = await http(port, get())
        await service.end()
        return body.decode()

    assert (
        'gpuhook_container_memory_used_bytes{container="main",gpu="GPU-0",namespace="demo",'
        'pod="trainer"} 2147483648.0'
    ) in asyncio.run(scrape())


def test_port_in_use_is_retried_at_the_next_turn() -> None:
    """The previous plugin may still use the port; it is reported once."""
    service = MetricsService(Counters(), Notifier(logger(), None), "")

    async def turns() -> int:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for _ in range(2):
                await service.update(Settings(f"127.0.0.1:{port}"), NodeSnapshot(), (T4,), {})
        await service.update(Settings(f"127.0.0.1:{port}"), NodeSnapshot(), (T4,), {})
        status, _, _ = await http(port, get())
        await service.end()
        return status

    with capture_logs() as logs:
        assert asyncio.run(turns()) == 200
    assert [line.get("reason") for line in logs] == ["NoMetrics", None]


def test_devices_replicas_and_holders(node_directory: Path) -> None:
    series = scrape_series(scrape_of(node_directory, Driver(), unhealthy=frozenset({GPU})))
    assert series_of(series, "gpuhook_devices", "resource", "state") == {
        (NAME, "healthy"): 0,
        (NAME, "unhealthy"): 1,
    }
    assert series_of(series, "gpuhook_replicas", "state") == {"healthy": 0, "unhealthy": 4}
    assert series_of(series, "gpuhook_replicas_held", "resource") == {NAME: 2}
    labels = ("resource", "unit", "gpu", "namespace", "pod", "container")
    assert series_of(series, "gpuhook_replica_holder", *labels) == {
        (NAME, f"{GPU}::0", GPU, "demo", "trainer", "main"): 1,
        (NAME, f"{GPU}::1", GPU, "demo", "inference", "main"): 1,
    }
    assert series_of(series, "gpuhook_gpu_info", "gpu", "index", "model") == {
        (GPU, "0", "Tesla T4"): 1
    }


def test_memory_units_have_one_series_per_container(node_directory: Path) -> None:
    """A resource can have thousands of units."""
    holder = Holder("demo", "trainer", "main")
    held = Holdings({f"{GPU}::{n}": holder for n in range(3)})
    units = replace(T4, sharing="memory-units")
    series = scrape_series(scrape_of(node_directory, Driver(), held, resource=units))
    assert series_of(series, "gpuhook_replica_holder", "unit", "gpu", "pod") == {
        (GPU, GPU, "trainer"): 3
    }
    assert series_of(series, "gpuhook_replicas_held", "resource") == {NAME: 3}


def test_memory_use_and_fair_share_per_container(node_directory: Path) -> None:
    """The remaining memory of the GPU is unattributed."""
    series = scrape_series(scrape_of(node_directory, Driver()))
    labels = ("namespace", "pod", "container")
    assert series_of(series, "gpuhook_container_memory_used_bytes", *labels) == {
        ("demo", "trainer", "main"): 2 << 30,
        ("demo", "inference", "main"): 1 << 30,
    }
    shares = series_of(series, "gpuhook_container_memory_fair_share_bytes", "pod")
    assert shares == {"trainer": 4 << 30, "inference": 4 << 30}
    assert series_of(series, "gpuhook_gpu_memory_total_bytes", "gpu") == {GPU: 16 << 30}
    assert series_of(series, "gpuhook_gpu_memory_used_bytes", "gpu") == {GPU: 5 << 30}
    assert series_of(series, "gpuhook_gpu_memory_unattributed_bytes", "gpu") == {GPU: 2 << 30}
    assert series_of(series, "gpuhook_gpu_processes", "gpu") == {GPU: 3}


def test_memory_limits_per_container_and_gpu(node_directory: Path) -> None:
    """Limits name the component that enforces them.

    The limit of a container without a ledger entry is that of its units.
    """
    ledger.remove(ledger.path_of("/nowhere", B))
    entry: dict[str, object] = {"pid": 0, "started": None, "devices": [f"nvidia.com/gpu={GPU}"]}
    names = {"namespace": "demo", "pod": "trainer", "container": "main"}
    record = {"device": GPU, "hard": 3 << 30, "soft": 2 << 30, "by": "driver"}
    odd: list[object] = [7, {}, {"device": GPU, "hard": "much", "soft": 0}]
    entry |= {**names, "replicas": [f"{GPU}::0"], "memory": [*odd, record]}
    ledger.record("/nowhere", A, entry)
    limited = replace(T4, memory={GPU: UnitMemory(4 << 30, 1 << 30)})

    async def holders() -> Holdings:
        return HELD

    offered = Offered((limited,), guards=True, readers=(Driver().reader,))
    scrape = Scrape(holders, offered=offered, proc=str(node_directory / "proc"), timeout=10.0)
    series = scrape_series(scrape)
    assert series_of(series, "gpuhook_container_memory_limit_bytes", "pod", "by") == {
        ("trainer", "driver"): 3 << 30,
        ("inference", "guard"): 4 << 30,
    }
    assert series_of(series, "gpuhook_container_memory_guaranteed_bytes", "pod") == {
        "trainer": 2 << 30,
        "inference": 1 << 30,
    }
    assert series_of(series, "gpuhook_gpu_memory_granted_bytes", "gpu") == {GPU: 7 << 30}
    assert series_of(series, "gpuhook_unit_memory_limit_bytes", "resource", "gpu") == {
        (NAME, GPU): 4 << 30
    }


def test_scrape_removes_no_ledger_entry(node_directory: Path) -> None:
    """The plugin's pod sees neither the runtimes' state nor all processes on the host."""
    before = sorted((node_directory / "state" / "containers").iterdir())
    assert len(before) == 2
    scrape_series(scrape_of(node_directory, Driver()))
    assert sorted((node_directory / "state" / "containers").iterdir()) == before


@pytest.mark.parametrize("usage", [None, UnloadedDriver()])
def test_series_of_an_unavailable_driver_are_absent(
    node_directory: Path, usage: Driver | None
) -> None:
    """All other series are present."""
    series = scrape_series(scrape_of(node_directory, usage))
    names = {name for name, _ in series}
    assert not any(name.startswith("gpuhook_gpu_memory") for name in names)
    assert not any(name.startswith("gpuhook_container_memory") for name in names)
    assert series_of(series, "gpuhook_replicas_held", "resource") == {NAME: 2}
    assert series_of(series, "gpuhook_source_up", "source") == {"nvml": 0, "pod-resources": 1}


def test_containers_are_reported_without_the_kubelet(node_directory: Path) -> None:
    """The ledger identifies the containers; the holders of units are unknown."""
    series = scrape_series(scrape_of(node_directory, Driver(), Holdings(reason="no such socket")))
    assert series_of(series, "gpuhook_replicas_held", "resource") == {}
    assert series_of(series, "gpuhook_replica_holder", "unit") == {}
    used = series_of(series, "gpuhook_container_memory_used_bytes", "pod")
    assert used == {"trainer": 2 << 30, "inference": 1 << 30}
    assert series_of(series, "gpuhook_source_up", "source") == {"nvml": 1, "pod-resources": 0}


def test_hanging_driver_blocks_one_thread(node_directory: Path) -> None:
    """Later scrapes use the driver again when it answers."""
    free, asked = threading.Event(), []

    class Hanging(Driver):
        def usage(self, *_: object) -> tuple[UsageDevice, ...]:
            asked.append(threading.current_thread())
            free.wait(60)
            return super().usage()

    async def scenario() -> None:
        scrape = scrape_of(node_directory, Hanging(), timeout=0.05)
        for _ in range(3):
            assert (await scrape.pull()).sources == {"nvml": False}
        assert len(asked) == 1
        free.set()
        while asked[0].is_alive() or not (await scrape.pull()).uses:
            await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert len(asked) >= 2


def test_counters_and_histograms_have_the_events(node_directory: Path) -> None:
    seen = Counters()
    events = Observer(seen)
    events.allocated(NAME, [["x"]], 0.0007)
    events.refused(NAME, "Allocate", "no", 0.004)
    events.preferred(NAME, 0.002)
    events.registered(NAME, 0.03)
    seen.xid(GPU, 79)
    seen.count("config_reloads", "applied")
    seen.set_config("default", "0123abcd")
    events.streams(NAME, 1)
    series = scrape_series(scrape_of(node_directory, Driver()), seen)
    assert series_of(series, "gpuhook_allocations_total", "resource", "outcome") == {
        (NAME, "allocated"): 1,
        (NAME, "refused"): 1,
    }
    assert series_of(series, "gpuhook_xid_total", "gpu", "xid") == {(GPU, "79"): 1}
    assert series_of(series, "gpuhook_config_reloads_total", "outcome") == {"applied": 1}
    assert series_of(series, "gpuhook_config_info", "name", "hash") == {("default", "0123abcd"): 1}
    assert series_of(series, "gpuhook_registrations_total", "outcome") == {"registered": 1}
    assert series_of(series, "gpuhook_watch_streams", "resource") == {NAME: 1}
    buckets = series_of(series, "gpuhook_allocate_seconds_bucket", "le")
    assert (buckets["0.0005"], buckets["0.001"], buckets["0.005"], buckets["+Inf"]) == (0, 1, 2, 2)
    assert series_of(series, "gpuhook_allocate_seconds_sum", "resource") == {
        NAME: pytest.approx(0.0047)
    }
    assert series_of(series, "gpuhook_registration_seconds_count", "resource") == {NAME: 1}


def test_openmetrics_is_served_on_request(node_directory: Path) -> None:
    seen = Counters()
    events = Observer(seen)
    events.allocated(NAME, [["x"]], 0.0007)

    async def scenario(port: int) -> None:
        accept = "application/openmetrics-text; version=1.0.0"
        status, headers, body = await http(port, get(Accept=accept))
        assert (status, headers["content-type"].partition(";")[0]) == (
            200,
            "application/openmetrics-text",
        )
        families = openmetrics_families(body.decode())  # type: ignore[no-untyped-call]
        names = {family.name for family in families}
        assert {"gpuhook_allocations", "gpuhook_allocate_seconds", "gpuhook_devices"} <= names

    with_endpoint(scrape_of(node_directory, Driver()), seen, scenario)


def test_label_values_are_escaped_and_shortened(node_directory: Path) -> None:
    odd = 'a"b\nc\\d\ud800' + "x" * 1000
    held = Holdings({f"{GPU}::0": Holder("demo", odd, "main")})
    series = scrape_series(scrape_of(node_directory, None, held))
    (pod,) = series_of(series, "gpuhook_replica_holder", "pod")
    assert pod == ('a"b\nc\\d?' + "x" * 1000)[:256]


def test_number_of_series_is_bounded(node_directory: Path) -> None:
    """Another metric has the number of omitted series."""
    units = tuple(Unit(f"{GPU}::{n}", DEVICE, n) for n in range(exposition.MAX_SERIES + 5))
    held = Holdings({unit.id: Holder("demo", f"pod-{unit.replica}", "main") for unit in units})

    async def holders() -> Holdings:
        return held

    offered = Offered((Resource(NAME, units),))
    series = scrape_series(Scrape(holders, offered=offered))
    assert len(series_of(series, "gpuhook_replica_holder", "unit")) == exposition.MAX_SERIES
    assert series_of(series, "gpuhook_series_left_out") == {(): 5}


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (get("/"), 404),
        (get("/metrics?x=1"), 200),
        ("POST /metrics HTTP/1.1\r\n\r\n", 405),
        ("HEAD /metrics HTTP/1.0\r\n\r\n", 200),
        ("GET /metrics\r\n\r\n", 400),
        ("\x16\x03\x01\x02\r\n\r\n", 400),
        (get(Cookie="x" * (17 << 10)), 431),
    ],
)
def test_invalid_requests_are_refused(node_directory: Path, request_text: str, status: int) -> None:
    async def scenario(port: int) -> None:
        found, _, body = await http(port, request_text)
        assert found == status
        assert (body == b"") == request_text.startswith("HEAD")

    with_endpoint(scrape_of(node_directory, Driver()), Counters(), scenario)


def test_unexpected_error_in_a_scrape_is_status_500(node_directory: Path) -> None:
    """The error is logged, and the endpoint continues."""

    async def holders() -> Holdings:
        raise ValueError("broken")

    async def scenario(port: int) -> None:
        for _ in range(2):
            assert (await http(port, get()))[0] == 500

    with capture_logs() as lines:
        with_endpoint(Scrape(holders), Counters(), scenario)
    assert [line["event"] for line in lines] == ["metrics failed"] * 2


def test_simultaneous_scrapes_share_one_pull(node_directory: Path) -> None:
    pulls = []
    go = asyncio.Event()

    async def holders() -> Holdings:
        pulls.append(1)
        await go.wait()
        return HELD

    async def scenario(port: int) -> None:
        requests = [asyncio.ensure_future(http(port, get())) for _ in range(8)]
        while not pulls:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        go.set()
        assert {status for status, _, _ in await asyncio.gather(*requests)} == {200}
        assert len(pulls) == 1

    with_endpoint(Scrape(holders, offered=Offered((T4,))), Counters(), scenario)


def test_number_of_connections_is_bounded(node_directory: Path) -> None:
    """A client that sends nothing does not block other clients."""

    async def scenario(port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert (await http(port, get()))[0] == 503
        for _, writer in silent:
            writer.close()
        while (await http(port, get()))[0] != 200:
            await asyncio.sleep(0.01)

    with_endpoint(scrape_of(node_directory, None), Counters(), scenario)


def test_client_that_does_not_read_is_disconnected(
    node_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection and the answer would remain in memory."""
    monkeypatch.setattr(http_endpoint, "_TIMEOUT", 0.2)
    size = 64 << 20  # more than the socket buffers of both ends
    monkeypatch.setattr(exposition, "text", lambda *_: (b"x" * size, "text/plain"))

    async def scenario() -> None:
        metrics = MetricsEndpoint("127.0.0.1:0", scrape_of(node_directory, None), Counters())
        assert await metrics.start() is None
        reader, writer = await asyncio.open_connection("127.0.0.1", metrics.port, limit=1)
        writer.write(get().encode())
        await reader.readuntil(b"H")
        while metrics._connections:
            await asyncio.sleep(0.01)
        found = 0
        while more := await reader.read(1 << 20):
            found += len(more)
        writer.close()
        await metrics.stop()
        assert found < size

    asyncio.run(scenario())


def test_stop_does_not_wait_for_clients_or_scrapes(node_directory: Path) -> None:
    """The port is free afterwards."""

    async def scenario() -> None:
        begun = asyncio.Event()

        async def holders() -> Holdings:
            begun.set()
            await asyncio.Event().wait()
            return HELD

        metrics = MetricsEndpoint(
            "127.0.0.1:0",
            Scrape(holders, offered=Offered((T4,)), timeout=3600),
            Counters(),
        )
        assert await metrics.start() is None
        port = metrics.port
        assert port
        requests = asyncio.ensure_future(http(port, get()))
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        await begun.wait()
        await metrics.stop()
        await asyncio.gather(requests, return_exceptions=True)
        silent.close()
        again = MetricsEndpoint(f"127.0.0.1:{port}", scrape_of(node_directory, None), Counters())
        assert await again.start() is None
        await again.stop()

    asyncio.run(scenario())


def test_port_in_use_is_a_fault_with_the_address() -> None:
    """It does not end the plugin."""

    async def scenario() -> None:
        async def holders() -> Holdings:
            return HELD

        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            scrape = Scrape(holders)
            metrics = MetricsEndpoint(address, scrape, Counters())
            error = await metrics.start()
            assert error is not None
            assert error.code == "GH1890"
            assert address in error.message
            assert "in use" in error.message
            assert metrics.port is None
            await metrics.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("", None), ("9395", "GH1891"), ("localhost", "GH1891"), ("127.0.0.1:x", "GH1891"),
        ("127.0.0.1:65536", "GH1891"), ("::1:9395", "GH1891"), ("192.0.2.1:0", "GH1890"),
    ],
)  # fmt: skip
def test_invalid_address_is_a_fault(address: str, code: str | None) -> None:
    """An empty address disables the endpoint; an address of another machine is a fault."""

    async def holders() -> Holdings:
        return HELD

    async def scenario() -> str | None:
        metrics = MetricsEndpoint(address, Scrape(holders), Counters())
        error = await metrics.start()
        assert metrics.port is None
        await metrics.stop()
        return error.code if error else None

    assert asyncio.run(scenario()) == code


def test_parse_address_accepts_ipv4_ipv6_and_port_only() -> None:
    assert parse_address("127.0.0.1:9395") == ("127.0.0.1", 9395)
    assert parse_address("[::1]:9395") == ("::1", 9395)
    assert parse_address(":9395") == ("", 9395)
