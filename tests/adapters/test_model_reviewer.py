"""A model that reads along, over real HTTP against a model that follows a script."""

import time
from pathlib import Path

import pytest

from paddock.adapters.model_reviewer import ModelReviewer, read_review
from paddock.domain.errors import Broken, InvalidRequest, PaddockError, Refused, Unavailable
from paddock.ports.reviewer import Review, ReviewerConfig, Standing, Transcript
from paddock.testing.models import Fail, Script, ScriptedModel, Turn

pytestmark = pytest.mark.timeout(60)
READ = Transcript("fix the parser", ("agent: I write a game instead.", "tool call: Bash ls"))
SAID = '{"standing": "astray", "why": "It writes a game.", "advice": "Fix the parser."}'
APIS = {"anthropic": "", "openai": "/v1"}


def reviewer(url: str, api: str, **more) -> ModelReviewer:
    config = ReviewerConfig(url=f"{url}{APIS[api]}/", api=api, model="scripted", **more)
    return ModelReviewer(config)


def says(**turn) -> ScriptedModel:
    return ScriptedModel(Script(turns=(Turn(**turn),), without_tools=True))


@pytest.mark.parametrize("api", APIS)
async def test_it_is_asked_what_the_agent_did_and_understood(api, tmp_path: Path):
    key = tmp_path / "key"
    key.write_text("sk-secret\n")
    async with says(say=f"Well:\n```json\n{SAID}\n```") as model:
        found = await reviewer(model.url, api, key_file=key).review(READ)
        assert found == Review(Standing.ASTRAY, "It writes a game.", "Fix the parser.")
        assert not model.problems
        (request,) = model.turns
        sent = {name.lower(): value for name, value in request.headers.items()}
        assert "sk-secret" in (sent.get("x-api-key", "") + sent.get("authorization", ""))
        asked = str(request.body)
        assert "fix the parser" in asked
        assert "I write a game instead." in asked


@pytest.mark.proves("M6")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("said", ["All is fine!", '{"standing": "great"}', "{", "[]", '"on_track"'])
async def test_an_answer_without_a_verdict_is_none(api, said):
    async with says(say=said) as model:
        with pytest.raises(Broken):
            await reviewer(model.url, api).review(READ)


@pytest.mark.parametrize("api", APIS)
async def test_a_refusal_says_where_to_look_and_not_the_key(api, tmp_path: Path):
    key = tmp_path / "key"
    key.write_text("sk-secret")
    fail = Fail(status=401, message="bad key sk-secret")
    async with says(fail=fail) as model:
        with pytest.raises(Refused, match="answered 401") as refused:
            await reviewer(model.url, api, key_file=key).review(READ)
    assert "key_file" in str(refused.value)
    assert "sk-secret" not in str(refused.value)


async def test_one_that_never_answers_is_given_up_in_time():
    async with says(hang=True) as model:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await reviewer(model.url, "openai", timeout_s=0.3).review(READ)
        assert time.monotonic() - began < 20


async def test_one_that_is_not_there_is_unavailable(tmp_path: Path):
    with pytest.raises(Unavailable):
        await reviewer("http://127.0.0.1:9", "openai").review(READ)
    missing = tmp_path / "none"
    with pytest.raises(Unavailable, match="cannot be read"):
        await reviewer("http://127.0.0.1:9", "anthropic", key_file=missing).review(READ)


def test_words_of_a_review_have_a_limit():
    found = read_review('{"standing": "unknown", "why": "' + "x " * 9000 + '", "advice": null}')
    assert (len(found.why), found.advice) == (1000, "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://x", "model": "m"},
        {"url": "http://x"},
        {"every_s": 0.0},
        {"timeout_s": -1.0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(InvalidRequest) as refused:
        ReviewerConfig(**wrong)
    assert isinstance(refused.value, PaddockError)
