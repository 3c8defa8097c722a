"""Traces: one for each request, down to the guest, at a collector that speaks OTLP."""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from paddock.adapters.tracing import tracing
from paddock.domain.errors import PaddockError
from paddock.domain.guest import GuestAddress
from paddock.domain.tracing import within
from paddock.guest_client import Guest
from paddock.settings import Settings, TelemetryConfig
from tests.control_plane import disposable
from tests.harness.ports import free_port

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Collector:
    """What was sent, decoded, and as it was."""

    def __init__(self):
        self.spans, self.raw = [], b""

    async def take(self, request):
        self.raw += (body := await request.read())
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response()

    def named(self, name):
        found = [span for span in self.spans if span.name == name]
        assert found, (name, sorted(span.name for span in self.spans))
        return found[0]

    def above(self, span):
        return next(each for each in self.spans if each.span_id == span.parent_span_id)


def attributes(span):
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@asynccontextmanager
async def collecting():
    collector, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield collector, f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


def sending(endpoint):
    return Settings(telemetry=TelemetryConfig(otlp_endpoint=endpoint))


async def test_a_request_is_traced_from_the_caller_to_the_guest_without_what_it_holds():
    async with collecting() as (collector, endpoint):
        async with disposable(settings=sending(endpoint)) as plane:
            headers = {"traceparent": TRACEPARENT}
            wish = {"template": "plain", "env": {"KEY": "hush-env"}, "labels": {"l": "hush-label"}}
            box = await plane.admin.post("/v1/sandboxes", wish, headers=headers)
            assert box.status == 201, box.body
            path = f"/v1/sandboxes/{box['id']}"
            command = {"cmd": ["echo", "hush-prompt"], "stdin": "hush-stdin"}
            assert (await plane.admin.post(f"{path}/exec", command)).status == 200
            missing = await plane.admin.get(f"{path}/files?path=/hush-name", headers=headers)
            assert missing.status == 404
            me = (await plane.admin.get("/v1/me")).body
        created = collector.named("POST /v1/sandboxes")
        assert (created.trace_id.hex(), created.parent_span_id.hex()) == (TRACE, PARENT)
        asked = collector.named("provider create")
        made = collector.above(asked)
        assert made.name == "sandboxes create"
        assert collector.above(made) == created
        assert attributes(made)["paddock.sandbox.id"] == box["id"]
        assert attributes(made)["paddock.team.id"] == me["team"]["id"]
        assert attributes(asked)["paddock.provider"] == "reference"
        guest = collector.named("guest paddock.Guest/Exec")
        ran = collector.above(guest)
        assert ran.name == "commands run"
        assert attributes(ran)["paddock.sandbox.id"] == box["id"]
        request = collector.above(ran)
        assert request.trace_id.hex() != TRACE
        told = attributes(request)
        assert (told["http.route"], told["http.response.status_code"]) == (
            "/v1/sandboxes/{sandbox}/exec",
            200,
        )
        assert told["paddock.request.id"].startswith("req_")
        failed = [span for span in collector.spans if "error.type" in attributes(span)]
        assert "not_found" in {attributes(span)["error.type"] for span in failed}
        for held in (
            b"hush",
            plane.admin.token.encode(),
            plane.admin.token.partition(".")[2].encode(),
        ):
            assert held not in collector.raw


async def test_the_guest_is_told_which_trace_it_is_part_of(tmp_path):
    heads = []

    async def answer(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    path = str(tmp_path / "s")
    async with (
        collecting() as (collector, endpoint),
        await asyncio.start_unix_server(answer, path),
    ):
        async with (
            tracing(endpoint, 1.0, "test") as begin,
            Guest(GuestAddress(socket=path)) as guest,
        ):
            with within(begin("request", {})):
                for call in (guest.usage, guest.health):
                    with pytest.raises(PaddockError):
                        await call()
            with pytest.raises(PaddockError):
                await guest.usage()
        for name, head in {"paddock.Guest/Usage": heads[0], "health": heads[1]}.items():
            span = collector.named(f"guest {name}")
            assert f"traceparent: 00-{span.trace_id.hex()}-{span.span_id.hex()}-0".encode() in head
        assert b"traceparent" not in heads[-1], "nothing is said where nothing is traced"


@pytest.mark.slow
async def test_a_collector_that_is_not_there_disturbs_nobody():
    """Also when it ends: what cannot be sent is dropped, not tried until somebody listens."""
    async with (
        asyncio.timeout(60),
        disposable(settings=sending(f"http://127.0.0.1:{free_port()}")) as plane,
    ):
        answers = [await plane.admin.get("/v1/me") for _ in range(20)]
        assert {answer.status for answer in answers} == {200}
        await asyncio.sleep(1.5)
        assert (await plane.admin.get("/v1/me")).status == 200


def run(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


def test_nothing_of_it_is_imported_unless_it_is_wanted():
    done = run(
        "import sys, paddock.wiring.server; "
        "sys.exit(any(m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', 'requests')) "
        "for m in sys.modules))"
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_package_is_said_at_the_start(tmp_path):
    done = run(
        f"""
import os, sys
sys.modules["opentelemetry.sdk"] = None
os.environ["PADDOCK_TELEMETRY__OTLP_ENDPOINT"] = "http://127.0.0.1:1"
sys.argv = ["paddock", "up", "--data-dir={tmp_path}", "--port=0"]
from paddock.__main__ import main
sys.exit(main())
"""
    )
    assert done.returncode == 2, done.stderr
    assert "telemetry.otlp_endpoint is set, but a package for it is missing" in done.stderr
    assert "paddock-sandbox[otel]" in done.stderr
    assert not list(tmp_path.iterdir())
