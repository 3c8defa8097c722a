"""The OpenAPI document is what was checked in, and the server keeps to it whatever is sent."""

import asyncio
import json
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.errors import SerializationNotPossible
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from paddock.settings import ServerConfig, Settings
from tests.control_plane import disposable

CHECKED_IN = Path(__file__).parents[3] / "docs/reference/openapi.json"
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
HONEST = {501, 502, 503, 504}
"""What the provider cannot do, or cannot do now."""
ENDLESS = {"GET /v1/events/stream", "GET /v1/approvals/stream"}
INSIDE = ("/exec", "/commands", "/files", "/archive", "/terminal")
"""On the reference provider these reach the host itself, so its sandbox is a stopped one."""
EXAMPLES = 10


@pytest.fixture(scope="module")
async def plane():
    limits = ServerConfig(requests_per_second=1e6, requests_burst=1e6)
    async with disposable(settings=Settings(server=limits)) as made:
        yield made


async def test_the_document_is_the_one_that_was_checked_in(plane):
    served = (await plane.admin.get("/v1/openapi.json")).body
    assert served == json.loads(CHECKED_IN.read_text()), "run make docs"


@pytest.mark.proves("U11")
async def test_every_route_tells_of_limits_and_when_to_come_back(plane):
    document = (await plane.admin.get("/v1/openapi.json")).body
    answers = document["components"]["responses"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, name in (("413", "TooLarge"), ("429", "TooMany"), ("503", "Unavailable")):
                told = operation["responses"][status]
                if "$ref" not in told:
                    assert path == "/readyz", "which has its own"
                    continue
                assert told == {"$ref": f"#/components/responses/{name}"}, (method, path)
    for name in ("TooMany", "Unavailable"):
        assert answers[name]["headers"]["Retry-After"]["required"]
    assert "WWW-Authenticate" in answers["Unauthenticated"]["headers"]
    assert all("X-Request-ID" in answer["headers"] for answer in answers.values())


@pytest.mark.proves("Q1")
async def test_every_list_refuses_a_cursor_that_cannot_be_its_own(plane):
    box = (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).body
    document = (await plane.admin.get("/v1/openapi.json")).body
    lists = []
    for path, operations in document["paths"].items():
        asked = {each["name"] for each in operations.get("get", {}).get("parameters", ())}
        if {"cursor", "limit"} <= asked:
            lists.append(path.replace("{sandbox}", box["id"]).replace("{task}", "any"))
    assert len(lists) > 12
    for path in lists:
        assert "{" not in path, "say here what it is a list of"
        for cursor in ("!", "%27%20OR%201", "zz%00z", "../x"):
            answer = await plane.admin.get(f"{path}?path=/&cursor={cursor}")
            assert (answer.status, answer.error["code"]) == (400, "invalid_request"), path
            assert "query.cursor" in answer.error["message"], path
            assert "next_cursor" in answer.error["remediation"], path
    for path in ("/v1/sandboxes", "/v1/snapshots", "/v1/events"):
        assert (await plane.admin.get(f"{path}?cursor=zzz")).status == 400, path


@pytest.mark.proves("Q1", "Q3")
@pytest.mark.timeout(600)
async def test_whatever_is_sent_the_answer_is_documented(plane):
    stopped = (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).body
    await plane.admin.post(f"/v1/sandboxes/{stopped['id']}/stop")
    running = (await plane.admin.post("/v1/sandboxes", {"template": "plain"})).body
    document = (await plane.admin.get("/v1/openapi.json")).body
    problems = await asyncio.to_thread(
        _try_all, document, plane.url, plane.admin.token, (stopped["id"], running["id"])
    )
    assert not problems, "\n\n".join(problems)


def _try_all(document, url, token, sandboxes):
    problems = []
    schema = schemathesis.openapi.from_dict(document)
    for found in schema.get_all_operations():
        operation = found.ok()
        name = f"{operation.method.upper()} {operation.path}"
        if name in ENDLESS:
            continue
        for mode in GenerationMode:
            try:
                _try(operation, mode, url, token, sandboxes)
            except (Unsatisfiable, SerializationNotPossible):
                continue  # nothing could be wrong with it, or only its kind of content
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - all are told at once
                notes = "\n".join(getattr(error, "__notes__", []))
                problems.append(f"{name} ({mode}): {error!r:.1500}\n{notes[:1000]}")
    return problems


def _try(operation, mode, url, token, sandboxes):
    stopped, running = sandboxes
    known = stopped if any(part in operation.path for part in INSIDE) else running
    turn = 0

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def attempt(case):
        nonlocal turn
        turn += 1
        # Every second time it is one that exists, but for what would end it.
        if turn % 2 and "sandbox" in case.path_parameters and operation.method != "delete":
            case.path_parameters["sandbox"] = known
            (case.query or {}).pop("wake", None)  # it has to go on sleeping
        headers = {"authorization": f"Bearer {token}"}
        response = case.call(base_url=url, headers=headers, timeout=20)
        status = response.status_code
        assert status < 500 or status in HONEST, (
            f"{status}: {response.text}\n{case.as_curl_command()}"
        )
        case.validate_response(response, checks=CHECKS)

    attempt()
