"""The one error tree: stable codes, complete, and telling what to do."""

import pytest

from paddock.domain import errors
from paddock.domain.errors import PaddockError, ProviderError, leaves

# The codes are a published contract: a change here is a change of the API.
CODES = {
    "invalid_request": False,
    "not_found": False,
    "conflict": False,
    "unauthenticated": False,
    "forbidden": False,
    "approval_required": False,
    "limit_exceeded": False,
    "quota_exceeded": True,
    "too_large": False,
    "unsupported": False,
    "timed_out": True,
    "provider_unavailable": True,
    "provider_refused": False,
    "provider_broken": False,
}


def shipped_leaves() -> list[type[PaddockError]]:
    """Without what other tests may have derived from the tree."""
    return [leaf for leaf in leaves() if leaf.__module__ == errors.__name__]


@pytest.mark.proves("Q2")
def test_every_leaf_has_the_code_and_the_retryability_that_were_published():
    assert {leaf.code: leaf.retryable for leaf in shipped_leaves()} == CODES
    assert len(shipped_leaves()) == len(CODES)


@pytest.mark.proves("Q2")
def test_a_leaf_declares_its_code_itself_and_inherits_none():
    assert [leaf for leaf in shipped_leaves() if "code" not in vars(leaf)] == []


@pytest.mark.proves("Q2")
def test_the_faults_of_a_provider_are_told_from_all_others():
    faults = {leaf.code for leaf in leaves(ProviderError)}
    assert faults == {"provider_unavailable", "provider_refused", "provider_broken"}


@pytest.mark.proves("Q1")
@pytest.mark.parametrize("leaf", shipped_leaves(), ids=lambda leaf: leaf.code)
def test_an_error_as_a_dict_has_everything_a_caller_needs(leaf):
    assert leaf("what was found", remediation="what to do").as_dict() == {
        "code": leaf.code,
        "message": "what was found",
        "retryable": leaf.retryable,
        "remediation": "what to do",
    }


def test_an_error_as_text_ends_with_what_to_do_about_it():
    assert str(errors.NotFound("no such app")) == "no such app"
    assert str(errors.NotFound("no such app", remediation="make one")) == (
        "no such app\n  fix: make one"
    )


def test_the_drawing_of_the_tree_names_exactly_the_classes_there_are():
    drawn = {
        word for word in (errors.__doc__ or "").split() if word[0].isupper() and word.isalnum()
    }
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, PaddockError)
    }
    assert classes <= drawn
