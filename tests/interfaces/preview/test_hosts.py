"""Host names of previews say which port of which sandbox."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.domain.errors import InvalidRequest
from paddock.domain.ids import dns_label, new_id
from paddock.interfaces.preview import PreviewHost, parse_preview_host, preview_host

ports = st.integers(1, 65535)
names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", fullmatch=True)
ids = st.floats(0, 2**40).map(lambda _: new_id("sbx"))
domains = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z]{2,6}){0,2}", fullmatch=True)


@settings(deadline=None)
@given(ports, names | ids, domains, st.randoms())
def test_a_host_leads_back_to_its_port_and_sandbox_in_any_case(port, sandbox, domain, random):
    host = preview_host(port, sandbox, domain)
    mixed = "".join(random.choice((char.lower(), char.upper())) for char in host)
    for spelling in (host, mixed, f"{host}."):
        assert parse_preview_host(spelling, domain) == PreviewHost(port, sandbox)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_a_preview_s_host_or_none(text):
    found = parse_preview_host(text)
    assert found is None or parse_preview_host(preview_host(found.port, found.sandbox)) == found


def test_an_id_stands_in_its_dns_form():
    sandbox = new_id("sbx")
    host = preview_host(8080, sandbox)
    assert host == f"8080-{dns_label(sandbox)}.preview.localhost"
    assert "_" not in host
    assert parse_preview_host(host) == PreviewHost(8080, sandbox)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "preview.localhost",
        "web.preview.localhost",
        "3000.preview.localhost",
        "3000-.preview.localhost",
        "3000--x.preview.localhost",
        "-web.preview.localhost",
        "0-web.preview.localhost",
        "03000-web.preview.localhost",
        "65536-web.preview.localhost",
        "3000-web.preview.localhost.evil.test",
        "3000-web.evilpreview.localhost",
        "a.3000-web.preview.localhost",
        "3000-we_b.preview.localhost",
        f"3000-{'x' * 59}.preview.localhost",
        "٣-web.preview.localhost",
        "",
    ],
)
def test_what_is_no_preview_s_host_is_none(host):
    assert parse_preview_host(host) is None


@pytest.mark.parametrize(
    ("port", "sandbox"), [(0, "web"), (65536, "web"), (1, ""), (1, "-a"), (1, "a.b"), (1, "x" * 62)]
)
def test_what_cannot_stand_in_a_host_name_is_refused(port, sandbox):
    with pytest.raises(InvalidRequest):
        preview_host(port, sandbox)
