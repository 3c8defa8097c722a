"""Settings: where they come from, in which order, and what every mistake is answered with."""

import os
from pathlib import Path

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.settings import NOT_SETTINGS, Settings, keys, load, variable
from tests.repository.checkout import ROOT


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working directory, where no settings file is found by accident."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refused(config=None, **environ: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        load(config, environ)
    assert caught.value.remediation
    return caught.value


def test_without_anything_there_are_the_defaults(place):
    assert load(None, {}) == Settings()


@pytest.mark.proves("G3")
def test_a_file_is_read_and_the_environment_goes_before_it(place):
    file = write(place / "any.toml", 'provider = "local"\n[local]\nfirst_id = 7\nruntime = "runc"')
    settings = load(file, {"PADDOCK_LOCAL__FIRST_ID": "8", "HOME": "/"})
    assert (settings.provider, settings.local.first_id, settings.local.runtime) == (
        "local",
        8,
        "runc",
    )


def test_the_first_file_found_is_the_only_one(place):
    write(place / "paddock.toml", "[local]\nfirst_id = 1")
    named = write(place / "named.toml", "[local]\nfirst_id = 2")
    asked = write(place / "asked.toml", "[local]\nfirst_id = 3")
    found = [
        load(None, {}),
        load(None, {"PADDOCK_CONFIG": str(named)}),
        load(asked, {"PADDOCK_CONFIG": str(named)}),
    ]
    assert [settings.local.first_id for settings in found] == [1, 2, 3]


def test_every_kind_of_value_can_stand_in_a_variable(place):
    settings = load(
        None,
        {
            "PADDOCK_LOCAL__DATA_DIR": "/srv/data",
            "PADDOCK_LOCAL__POOL_SIZE_MIB": "4096",
            "PADDOCK_LOCAL__FAST_CGROUPS": "false",
            "PADDOCK_LOCAL__WARM": '{"base": 2}',
            "PADDOCK_LOCAL__RUNTIME": "",
            "PADDOCK_LOG__LEVEL": "debug",
        },
    )
    assert settings.local.data_dir == Path("/srv/data")
    assert settings.local.pool_size_mib == 4096
    assert settings.local.fast_cgroups is False
    assert settings.local.warm == {"base": 2}
    assert settings.log.level == "debug"


def test_a_relative_path_is_relative_to_where_it_is_written(place):
    file = write(place / "etc" / "paddock.toml", '[local]\ndata_dir = "data"')
    assert load(file, {}).local.data_dir == place / "etc" / "data"
    assert load(None, {"PADDOCK_LOCAL__DATA_DIR": "data"}).local.data_dir == place / "data"
    home = load(None, {"PADDOCK_LOCAL__DATA_DIR": "~/data"}).local.data_dir
    assert home == Path.home() / "data"


def test_a_file_that_was_named_must_be_there(place):
    missing = place / "none.toml"
    assert f"--config: {missing} does not exist" in refused(missing).message
    assert "PADDOCK_CONFIG" in refused(PADDOCK_CONFIG=str(missing)).message
    assert "is not a file" in refused(place).message


def test_a_file_that_is_no_toml_says_where(place):
    broken = write(place / "paddock.toml", "[local]\nfirst_id = = 1")
    found = refused()
    assert "paddock.toml is not TOML" in found.message
    assert "line 2" in found.message
    broken.write_bytes(b"# \xff")
    assert "is not UTF-8" in refused().message


def test_a_file_that_may_not_be_read_says_so(place):
    if os.geteuid() == 0:
        (place / "paddock.toml").symlink_to("/proc/self/mem")
    else:
        write(place / "paddock.toml", "").chmod(0)
    assert "cannot be read" in refused().message


@pytest.mark.parametrize(
    ("text", "key", "meant", "fix"),
    [
        ("[local]\ndata_dirr = 1", "local.data_dirr", "local.data_dir?", "[local] may have"),
        ('providr = "local"', "providr", "provider?", "the file may have"),
        ("[lokal]\nfirst_id = 1", "lokal", "local?", "the file may have"),
        ("[local.sub]\nx = 1", "local.sub", "", "[local] may have: data_dir"),
    ],
)
def test_an_unknown_key_is_an_error_that_knows_what_was_meant(place, text, key, meant, fix):
    write(place / "paddock.toml", text)
    found = refused()
    assert f"paddock.toml: there is no setting {key}" in found.message
    assert meant in found.message
    assert fix in found.remediation


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[local]\nfirst_id = 'x'", "local.first_id is 'x', which is not a whole number"),
        ("[local]\nfirst_id = '5'", "local.first_id is '5', which is not a whole number"),
        ("[local]\nfast_cgroups = 1", "local.fast_cgroups is 1, which is not true or false"),
        ("[local]\nruntime = 'cron'", "one of '', 'crun', 'runc', 'runsc'; did you mean crun?"),
        ("[local]\ndata_dir = 5", "local.data_dir is 5, which is not a path"),
        ("[local]\nwarm = 5", "local.warm is 5, which is not a table from text to a whole"),
        ("[local.warm]\nbase = 'x'", "local.warm is {'base': 'x'}, which is not a table"),
        ("provider = 1", "provider is 1, which is not text"),
        ("local = 1", "local is 1, but it is a table of settings"),
        ("provider = {a = 1}", "provider is {'a': 1}, which is not text"),
    ],
)
def test_a_wrong_value_is_shown_with_what_is_expected(place, text, says):
    write(place / "paddock.toml", text)
    found = refused().message
    assert found.startswith("paddock.toml: ")
    assert says in found


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PADDOCK_LOCAL__FIRST_ID", "x", "is 'x', which is not a whole number"),
        ("PADDOCK_LOCAL__FAST_CGROUPS", "maybe", "is 'maybe', which is not true or false"),
        ("PADDOCK_LOCAL__WARM", "base", "is 'base', which is not a table"),
        ("PADDOCK_LOCAL__DATA_DIR", "", "is '', which is not a path"),
        ("PADDOCK_LOG__LEVEL", "debgu", "did you mean debug?"),
        ("PADDOCK_LOCAL__DATADIR", "/x", "no setting; did you mean PADDOCK_LOCAL__DATA_DIR?"),
        ("PADDOCK_CONFG", "/x", "no setting; did you mean PADDOCK_CONFIG?"),
        ("PADDOCK_LOCAL", "/x", "is no setting"),
        ("PADDOCK_LOCAL_DATA_DIR", "/x", "did you mean PADDOCK_LOCAL__DATA_DIR?"),
    ],
)
def test_a_wrong_variable_is_named(place, name, value, says):
    found = refused(None, **{name: value})
    assert found.message.startswith(f"the variable {name} ")
    assert says in found.message


def test_variables_that_are_no_settings_are_left_alone(place):
    environ = dict.fromkeys(NOT_SETTINGS - {"PADDOCK_CONFIG"}, "x")
    assert load(None, {**environ, "PADDOCK_TEST_ROOTFS": "/x", "PADDOCK": "x"}) == Settings()


@pytest.mark.proves("G3")
def test_every_setting_has_one_name_in_the_environment():
    names = [variable(key) for key, _ in keys()]
    assert len(names) == len(set(names))
    assert variable("local.data_dir") == "PADDOCK_LOCAL__DATA_DIR"


def test_every_setting_and_every_other_variable_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert not [key for key, _ in keys() if f"| `{key}` |" not in page]
    assert not [name for name in NOT_SETTINGS if f"| `{name}" not in page]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[egress.hosts]\n'x y' = '10.0.0.1'", "egress.hosts has 'x y' = '10.0.0.1'"),
        ("[egress.hosts]\n'a.example' = 'b'", "egress.hosts has 'a.example' = 'b'"),
        ("[egress]\ngateway_uid = 0", "egress.gateway_uid is 0"),
    ],
)
def test_settings_of_egress_that_make_no_sense_are_refused(place, text, says):
    write(place / "paddock.toml", text)
    assert says in refused().message


def test_a_list_in_a_variable_is_words_or_json():
    for text in ("docker, local", '["docker", "local"]'):
        assert load(None, {"PADDOCK_SERVER__PROVIDERS": text}).server.providers == (
            "docker",
            "local",
        )
    with pytest.raises(InvalidRequest, match="PADDOCK_SERVER__PROVIDERS"):
        load(None, {"PADDOCK_SERVER__PROVIDERS": "[1]"})
