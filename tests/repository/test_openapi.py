"""Conventions that every route of the OpenAPI document keeps."""

import json

import pytest

from paddock.domain.event import EventKind
from tests.repository.checkout import ROOT

DOCUMENT = json.loads((ROOT / "docs/reference/openapi.json").read_text())
WITHOUT_KEY = {
    "/v1/session": "who asks has shown nothing yet, so there is no team whose key it could be; a "
    "link opens once, and a session nobody uses ends by itself",
    "/v1/templates": "a template is what its name says: the same recipe again changes nothing",
    "/v1/sandboxes/{sandbox}/files/directory": "its path names it, and a second is refused",
    "/v1/sandboxes/{sandbox}/commands/{command}/kill": "makes nothing, and can be asked again",
    "/v1/tasks/{task}/cancel": "makes nothing, and can be asked again",
    "/v1/tasks/{task}/pause": "makes nothing, and can be asked again",
    "/v1/tasks/{task}/resume": "makes nothing, and can be asked again",
}


def creates():
    for path, operations in DOCUMENT["paths"].items():
        if "post" in operations and {"201", "202"} & set(operations["post"]["responses"]):
            yield path, operations["post"]


def test_every_create_can_be_repeated_with_a_key():
    missing = {
        path
        for path, operation in creates()
        if "Idempotency-Key" not in [each["name"] for each in operation.get("parameters", [])]
    }
    assert missing == set(WITHOUT_KEY)
    assert len(list(creates())) > len(WITHOUT_KEY) + 10


@pytest.mark.proves("U7")
def test_every_kind_of_event_is_listed():
    assert DOCUMENT["components"]["schemas"]["EventKind"]["enum"] == list(EventKind)
