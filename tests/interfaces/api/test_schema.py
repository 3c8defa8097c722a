"""The OpenAPI document is what was checked in, and the server keeps to it whatever is sent."""

import asyncio
import json
from dataclasses import dataclass
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
"""These go into a sandbox: one that runs and one that is stopped, by turns."""
PATHS = ("path", "source", "destination", "cwd")
FEW, MANY = 1, 10
"""Examples per route, valid and invalid ones each."""
PARTS = ("inside", 0, 1, 2, 3)
"""Routes that go into a sandbox, and a quarter of the others each."""


@dataclass(frozen=True)
class Known:
    """What there is for made-up requests to meet."""

    running: str
    """What the others do to it, nobody knows."""
    stopped: str
    awake: str
    """Only what goes inside meets this one, so that it runs to the end."""
    home: str
    ended: str
    working: str
    """Commands in it."""

    def of(self, operation, turn):
        """Every now and then it is one that exists, but for what would end it."""
        if operation.method == "delete" and not _is_inside(operation):
            return ""
        if operation.path.endswith("/watch"):  # it would be waited for without end
            return (self.stopped, "")[turn % 2]
        if _is_inside(operation):
            return (self.awake, self.stopped, "")[turn % 3]
        return (self.running, "")[turn % 2]


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


@pytest.fixture(scope="module")
async def schema(plane):
    document = (await plane.admin.get("/v1/openapi.json")).body
    return schemathesis.openapi.from_dict(document)


@pytest.fixture(scope="module")
async def known(plane):
    return await _made(plane.admin)


@pytest.mark.proves("Q1", "Q3")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
async def test_whatever_is_sent_the_answer_is_documented(plane, schema, known, part, examples):
    operations = _operations(schema, part)
    sender = _Sender(plane.url, plane.admin.token, examples, set())
    problems = await asyncio.to_thread(_try_all, operations, sender, known)
    assert not problems, "\n\n".join(problems)
    if part == "inside":
        assert (await plane.admin.get(f"/v1/sandboxes/{known.awake}"))["state"] == "running"
        # None of these can answer so but from inside.
        expected = {"POST exec", "POST commands", "GET stat", "PUT files", "GET archive"}
        assert expected <= sender.met


def _operations(schema, part):
    every = [found.ok() for found in schema.get_all_operations()]
    if part == "inside":
        return [each for each in every if _is_inside(each)]
    others = [each for each in every if not _is_inside(each) and _name(each) not in ENDLESS]
    return others[part :: len(PARTS) - 1]


def _name(operation):
    return f"{operation.method.upper()} {operation.path}"


async def _made(admin):
    made = [await admin.post("/v1/sandboxes", {"template": "plain"}) for _ in range(3)]
    running, stopped, awake = (each["id"] for each in made)
    await admin.post(f"/v1/sandboxes/{stopped}/stop")
    inside = f"/v1/sandboxes/{awake}"
    home = (await admin.post(f"{inside}/exec", {"cmd": ["pwd"]}))["stdout"].strip()
    ended = (await admin.post(f"{inside}/commands", {"cmd": ["true"]}))["id"]
    wish = {"cmd": ["cat"], "terminal": [80, 24]}
    working = await admin.post(f"{inside}/commands", wish)
    assert working.status == 201, working.body
    return Known(running, stopped, awake, home, ended, working["id"])


def _try_all(operations, sender, known):
    problems = []
    for operation in operations:
        for mode in GenerationMode:
            try:
                _try(operation, mode, sender, known)
            except (Unsatisfiable, SerializationNotPossible):
                continue  # nothing could be wrong with it, or only its kind of content
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - all are told at once
                notes = "\n".join(getattr(error, "__notes__", []))
                problems.append(f"{_name(operation)} ({mode}): {error!r:.1500}\n{notes[:1000]}")
    return problems


@dataclass(frozen=True)
class _Sender:
    url: str
    token: str
    examples: int
    met: set
    """Of what goes inside, what was done."""

    def send(self, case):
        headers = {"authorization": f"Bearer {self.token}"}
        response = case.call(base_url=self.url, headers=headers, timeout=20)
        if response.status_code < 300 and _is_inside(case.operation):
            self.met.add(
                f"{case.operation.method.upper()} {case.operation.path.rpartition('/')[2]}"
            )
        return response


def _is_inside(operation):
    verb = (operation.method.lower(), operation.path.rpartition("/")[2])
    return any(part in operation.path for part in INSIDE) and verb != ("post", "archive")


def _confine(case, known, turn):
    """There is no fence around this provider's: whatever is made up, nothing but `echo` is run, and
    no path leads out of one's home. The first time there is nobody and nothing that is not."""
    is_read = case.operation.method.lower() == "get"
    for told in (case.query, case.body):
        for name in PATHS if isinstance(told, dict) else ():
            if name in told:
                told[name] = _below(f"{known.home}/made-up", told[name])
        for name in ("user", "cwd") if isinstance(told, dict) and not turn else ():
            told.pop(name, None)
    if is_read and not turn and "path" in (case.query or {}):
        case.query["path"] = known.home
    if isinstance(case.body, dict) and isinstance(case.body.get("cmd"), list):
        case.body["cmd"] = ["echo", *case.body["cmd"][1:]]
    (case.query or {}).pop("cmd", None)
    if "command" in case.path_parameters and case.path_parameters["sandbox"] == known.awake:
        case.path_parameters["command"] = known.ended if is_read else known.working


def _below(home, path):
    if isinstance(path, list):
        return [_below(home, each) for each in path]
    return f"{home}/{path.replace('..', '__')}" if isinstance(path, str) else path


def _try(operation, mode, sender, known):
    turn = -1

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=sender.examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def attempt(case):
        nonlocal turn
        turn += 1
        box = known.of(operation, turn)
        if "sandbox" in case.path_parameters and box:
            case.path_parameters["sandbox"] = box
            (case.query or {}).pop("wake", None)  # it has to go on sleeping
        if _is_inside(operation):
            _confine(case, known, turn)
        response = sender.send(case)
        status = response.status_code
        assert status < 500 or status in HONEST, (
            f"{status}: {response.text}\n{case.as_curl_command()}"
        )
        case.validate_response(response, checks=CHECKS)

    attempt()
