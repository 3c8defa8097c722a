"""Which references to images there are, and which of them a tenant may name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import InvalidRequest
from paddock.domain.image_reference import RegistryImage, check_tenants, is_local

_TEXT = st.text("abc:/@.-_ 0129oci[]\\%~\n", max_size=40)
_LIKELY = st.builds(
    "{}{}".format, st.sampled_from(["oci:", "dir:/", "docker://", "docker:", "a.b:1/", "/"]), _TEXT
)


@pytest.mark.parametrize(
    ("reference", "registry", "whole"),
    [
        ("debian:12", "docker.io", "docker.io/library/debian:12"),
        ("team/image", "docker.io", "docker.io/team/image"),
        ("docker://registry.example/a/b:1", "registry.example", "registry.example/a/b:1"),
        ("localhost:5000/a", "localhost:5000", "localhost:5000/a"),
        ("localhost/a", "localhost", "localhost/a"),
        ("10.0.0.5:5000/a@sha256:" + "a" * 64, "10.0.0.5:5000", None),
    ],
)
def test_a_reference_names_its_registry(reference: str, registry: str, whole: str | None) -> None:
    image = RegistryImage.parse(reference)
    assert image.registry == registry
    assert str(image) == (whole or reference)
    check_tenants(reference)


@pytest.mark.parametrize("reference", ["oci:/x", "oci:x", "docker:debian", "sha256:" + "0" * 64])
def test_an_image_of_the_host_is_no_tenants(reference: str) -> None:
    assert is_local(reference)
    with pytest.raises(InvalidRequest, match="on the server's host"):
        check_tenants(reference)


@pytest.mark.parametrize(
    "host", ["0x7f.1", "127.1:80", "2130706433:80", "a..b", "10.0.0.256", "a.-b", f"{'a.' * 150}b"]
)
def test_a_host_that_programs_read_differently_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match="neither a template nor the name of an image"):
        check_tenants(f"{host}/x")


@given(_TEXT | _LIKELY)
def test_what_a_tenant_may_name_is_a_template_or_one_registry_and_path(reference: str) -> None:
    try:
        check_tenants(reference)
    except InvalidRequest:
        return
    if ":" not in reference and "/" not in reference:
        return  # no template has another name
    image = RegistryImage.parse(reference)
    assert not is_local(reference)
    assert str(RegistryImage.parse(str(image))) == str(image)
    assert not set(str(image)) & set(" \n\\%[]~")
    assert ".." not in image.path.split("/")
    assert not str(image).startswith(("-", "/", "."))
