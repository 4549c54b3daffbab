"""What a script is made of: all that it uses, and nothing that Redis would make in vain."""

import re

import pytest

from django_jobs.backends.redis.scripts import SCRIPTS


def made_in(text):
    return re.findall(r"^local function (\w+)", text, re.MULTILINE)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_makes_no_function_that_it_does_not_use(name):
    text = re.sub(r"--.*", "", SCRIPTS[name].text)
    for function in made_in(text):
        assert len(re.findall(rf"\b{function}\b", text)) > 1, function


def test_a_script_has_what_its_functions_need_in_their_turn():
    assert {"held", "state_of", "within"} <= set(made_in(SCRIPTS["renew"].text))
    assert "bury" not in made_in(SCRIPTS["renew"].text)
