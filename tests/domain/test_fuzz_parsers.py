"""Fuzz targets: recipes, command policies and health manifests of tenants are read or refused."""

import json
import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.adapters.providers.local.templates.recipes import Recipes
from paddock.adapters.shell_script import read_script
from paddock.domain import app_health, ignoring
from paddock.domain.app_health import HealthWish, Web, check_health
from paddock.domain.command_policy import CommandPolicy, Rule, Verdict, judge, policy_of
from paddock.domain.errors import PaddockError
from paddock.domain.prompt_template import check_template
from paddock.domain.rough_script import read_roughly
from paddock.domain.template import Template
from tests.harness.fuzz import fuzzed

_WORDS = st.text(string.ascii_lowercase + "*[]!?/.{}$'\"\\ \n\t;|&<>()`=-~#\0é\ud800", max_size=30)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _WORDS)
_FIELDS = st.sampled_from(
    "name source kind reference packages setup env user workdir hardened runtime snapshot_ignore "
    "rules default unknown verdict command debian image tar".split()
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_FIELDS, inner, max_size=6)
    ),
    max_leaves=15,
)
_VERDICTS = st.sampled_from(Verdict)


def tried(work: Any) -> Any:
    """Its result; None for an error that says what is wrong."""
    try:
        return work()
    except PaddockError as error:
        assert error.message
        return None


@fuzzed(150)
@given(_JSON)
def test_any_document_is_a_policy_or_refused(document):
    tried(lambda: policy_of(document))
    tried(lambda: policy_of({"rules": document, "default": "deny", "unknown": "ask"}))


@fuzzed(300)
@given(st.lists(st.tuples(_VERDICTS, _WORDS), max_size=4), _VERDICTS, st.lists(_WORDS, min_size=1))
def test_any_policy_judges_any_command(rules, default, argv):
    made = tried(
        lambda: CommandPolicy(
            tuple(Rule(f"r{n}", verdict, command) for n, (verdict, command) in enumerate(rules)),
            default,
        )
    )
    if made is not None:
        assert judge(made, argv, read_script).verdict in Verdict
        assert judge(made, ["sh", "-c", " ".join(argv)], read_script).verdict in Verdict


@fuzzed(300)
@given(st.text(max_size=200) | _WORDS)
def test_any_script_is_read_roughly(text):
    read_roughly(text)
    tried(lambda: check_template(text, {}))


@fuzzed(150)
@given(_JSON)
def test_any_recipe_is_a_template_or_refused(document):
    def made() -> Template:
        try:
            return msgspec.json.decode(json.dumps(document), type=Template)
        except msgspec.MsgspecError as error:
            raise PaddockError(str(error)) from error

    if (template := tried(made)) is not None:
        assert template.digest()


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    place = tmp_path_factory.mktemp("recipes")
    (place / "outside.json").write_text("{}")
    (place / "own").mkdir()
    return Recipes(place / "own")


@fuzzed(200)
@given(_WORDS | st.sampled_from(["../outside", "/etc/passwd", "a" * 300, "a\0b", ".", ".."]), _JSON)
def test_a_recipe_is_looked_for_in_its_directory_only(recipes, name, document):
    (recipes.directory / "given.json").write_text(json.dumps(document))
    found = tried(lambda: recipes.get(name))
    assert found is None or found.name == name or name == "given"
    tried(lambda: recipes.get("given"))


@fuzzed(300)
@given(st.lists(_WORDS, max_size=4), _WORDS)
def test_any_paths_to_leave_out_are_rules_or_refused(paths, workdir):
    def made() -> Any:
        ignoring.check_workdir(workdir)
        return ignoring.parsed(paths, ignoring.places_of_work("user", workdir))

    for rule in tried(made) or ():
        rule.meets("a")
        rule.covers("/home/user/a")


@fuzzed(300)
@given(
    st.integers(), _WORDS, st.lists(_WORDS, max_size=3), st.lists(_WORDS, max_size=3), st.floats()
)
def test_any_health_manifest_is_a_wish_or_refused(port, path, names, globs, within_s):
    wish = HealthWish(
        web=Web(port % 70000, path),
        workers=tuple(names),
        restart=("web",),
        restart_on=tuple(globs),
        within_s=within_s,
    )
    if tried(lambda: check_health(wish, names) or wish) is not None:
        for glob in globs:
            app_health.meets(glob, "src/a/b.css")
