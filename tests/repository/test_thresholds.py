"""One constant for each threshold: code, documents and tests say the same number."""

import json
import re
import sys

import pytest

from paddock.domain.secret import LARGEST
from paddock.interfaces.api.app import describe
from paddock.interfaces.api.paging import MAX_PAGE
from paddock.services.pools import LARGEST_POOL
from paddock.settings import Settings, keys
from tests.repository.checkout import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from thresholds import THRESHOLDS

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]*limits\.md#([a-z0-9-]+)\)")
_ROW = re.compile(r"^\| `([a-z0-9_.]+)` \|([^|]*)\|", re.M)


@pytest.mark.proves("G4")
def test_a_number_in_the_documents_is_the_one_in_the_code():
    """A page that names a threshold links to it, and says the value that the code has."""
    shown = {each.anchor: each.shown for each in THRESHOLDS}
    said = [
        (page.name, text, anchor)
        for page in PAGES
        for text, anchor in _LINK.findall(page.read_text())
    ]
    assert said
    assert [each for each in said if shown.get(each[2]) != each[1]] == []


@pytest.mark.proves("G4")
def test_every_default_in_the_settings_page_is_the_one_in_the_code():
    rows = dict(_ROW.findall((ROOT / "docs/reference/settings.md").read_text()))
    wrong = {}
    for key, _ in keys():
        default = Settings()
        for name in key.split("."):
            default = getattr(default, name)
        told = re.fullmatch(r"`(.*)`", rows[key].strip())
        if told and isinstance(default, bool | int | float) and json.loads(told[1]) != default:
            wrong[key] = (told[1], default)
    assert wrong == {}


@pytest.mark.proves("G4")
def test_the_document_of_the_api_has_the_limits_of_the_code():
    document = describe()
    schemas = document["components"]["schemas"]
    size = schemas["ChangePool"]["properties"]["size"]["anyOf"][0]
    assert size["maximum"] == LARGEST_POOL
    value = schemas["PutSecret"]["properties"]["value"]["anyOf"][0]
    assert value["maxLength"] == LARGEST
    pages = [
        parameter["schema"]["maximum"]
        for operations in document["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", [])
        if parameter["name"] == "limit" and parameter["in"] == "query"
    ]
    assert MAX_PAGE in pages


def test_anchors_are_told_apart():
    anchors = [each.anchor for each in THRESHOLDS]
    assert sorted(set(anchors)) == sorted(anchors)
