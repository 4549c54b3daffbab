"""The registry: one handler per key, and which queue may run which."""

import pytest

from django_jobs.definition import Options
from django_jobs.exceptions import ConfigurationError, HandlerRefused, UnknownHandler
from django_jobs.handlers.base import Handler
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import BUILT_IN_KEYS, Registry, check_allowed, register_built_in


def send_mail():
    pass


def send_letter():
    pass


class Own(Handler):
    def __init__(self, key):
        self.key = key

    def handle(self, context):
        pass


def made_from(function, key="shop.send"):
    return FunctionHandler(key, function, takes_context=False)


@pytest.fixture
def registry():
    return Registry()


def test_a_registered_handler_is_found_by_its_key(registry):
    handler = made_from(send_mail)
    registry.register(handler)
    assert registry.find("shop.send") is handler
    assert registry.get("shop.send") is handler
    assert "shop.send" in registry
    assert list(registry) == ["shop.send"]
    assert len(registry) == 1


def test_only_handlers_are_registered(registry):
    class NoHandler:
        key = "shop.send"

        def handle(self, context):
            pass

    with pytest.raises(ConfigurationError, match=r"NoHandler.*handlers\.base\.Handler"):
        registry.register(NoHandler())
    assert "shop.send" not in registry


def test_what_is_not_registered_is_not_there(registry):
    assert registry.get("shop.send") is None
    assert "shop.send" not in registry
    assert len(registry) == 0


def test_only_a_key_that_is_not_registered_is_looked_for_further(registry):
    known, found, asked = made_from(send_mail), made_from(send_letter, "found"), []

    def finder(key):
        asked.append(key)
        return found if key == "found" else None

    registry.register(known)
    assert registry.get_verified("shop.send") is known
    assert registry.get_verified("found") is None  # there is nobody who could find it
    registry.finder = finder
    assert registry.get_verified("shop.send") is known
    assert asked == []
    assert registry.get_verified("found") is found
    assert registry.get_verified("nowhere") is None
    assert asked == ["found", "nowhere"]
    assert registry.get("found") is None


def test_an_unknown_key_is_refused_with_the_nearest_one(registry):
    registry.register(made_from(send_mail, "shop.jobs.send_mail"))
    registry.register(made_from(send_letter, "shop.jobs.burn"))
    with pytest.raises(UnknownHandler) as unknown:
        registry.find("shop.jobs.send_mial")
    assert str(unknown.value) == (
        "no handler is registered as 'shop.jobs.send_mial'; did you mean 'shop.jobs.send_mail'? "
        "(handlers are found in the modules jobs.py and tasks.py of installed apps)"
    )
    assert unknown.value.nearest == "shop.jobs.send_mail"


def test_an_unknown_key_like_no_other_gets_no_suggestion(registry):
    registry.register(made_from(send_mail))
    with pytest.raises(UnknownHandler) as unknown:
        registry.find("xyzzy")
    assert str(unknown.value).startswith("no handler is registered as 'xyzzy' (handlers are found")
    assert unknown.value.nearest == ""


def test_a_second_handler_of_the_same_key_is_a_mistake(registry):
    registry.register(made_from(send_mail))
    with pytest.raises(ConfigurationError, match=r"two handlers .* key 'shop.send'"):
        registry.register(made_from(send_letter))
    assert registry.find("shop.send").function is send_mail


def test_the_same_function_registered_again_is_no_mistake(registry):
    registry.register(made_from(send_mail))
    again = made_from(send_mail)
    registry.register(again)
    assert registry.find("shop.send") is again


def test_a_function_of_a_reloaded_module_replaces_its_former_self(registry):
    def reloaded():
        pass

    reloaded.__module__, reloaded.__qualname__ = send_mail.__module__, send_mail.__qualname__
    registry.register(made_from(send_mail))
    registry.register(made_from(reloaded))
    assert registry.find("shop.send").function is reloaded


def test_one_function_may_have_several_keys(registry):
    registry.register(made_from(send_mail, "old"))
    registry.register(made_from(send_mail, "new"))
    assert sorted(registry) == ["new", "old"]


def test_two_handlers_that_are_no_functions_are_two(registry):
    first = Own("shop.send")
    registry.register(first)
    registry.register(first)
    with pytest.raises(ConfigurationError, match="two handlers"):
        registry.register(Own("shop.send"))
    with pytest.raises(ConfigurationError, match="two handlers"):
        registry.register(made_from(send_mail))


def test_lambdas_of_one_module_are_told_apart(registry):
    one, two = [
        lambda: 1,
        lambda: 2,
    ]
    registry.register(made_from(one))
    with pytest.raises(ConfigurationError, match="two handlers"):
        registry.register(made_from(two))


def test_functions_of_two_modules_are_two_however_they_are_named(registry):
    def other():
        pass

    other.__module__, other.__qualname__ = "elsewhere", send_mail.__qualname__
    registry.register(made_from(send_mail))
    with pytest.raises(ConfigurationError, match="two handlers"):
        registry.register(made_from(other))


def test_options_are_those_that_were_said_where_the_handler_was_declared(registry):
    said = Options(queue="mail")
    registry.register(FunctionHandler("with", send_mail, takes_context=False, options=said))
    registry.register(Own("without"))
    odd = Own("odd")
    odd.options = {"queue": "mail"}
    registry.register(odd)
    assert registry.options_of("with") is said
    for key in ("without", "odd", "unknown"):
        assert registry.options_of(key) == Options()


def test_a_queue_without_a_list_runs_every_handler_that_is_not_built_in():
    check_allowed("shop.send", "mail", None)


@pytest.mark.parametrize("key", sorted(BUILT_IN_KEYS))
def test_a_built_in_handler_runs_only_where_it_is_named(key):
    with pytest.raises(HandlerRefused, match=rf"'{key}' runs only on queues that name it"):
        check_allowed(key, "mail", None)
    with pytest.raises(HandlerRefused):
        check_allowed(key, "mail", ())
    check_allowed(key, "mail", (key,))


def test_the_built_in_handlers_are_the_four_that_reach_far():
    assert {"command", "shell", "event", "url"} == BUILT_IN_KEYS


@pytest.mark.parametrize("none", [(), [], frozenset()], ids=repr)
def test_an_empty_list_allows_nothing(none):
    with pytest.raises(HandlerRefused) as refused:
        check_allowed("shop.send", "mail", none)
    assert str(refused.value) == (
        "the queue 'mail' does not allow the handler 'shop.send' (it allows none at all); "
        "add it to QUEUES['mail']['HANDLERS']"
    )


def test_a_list_allows_what_it_names_and_nothing_else():
    allowed = ["shop.send", "shop.count"]
    check_allowed("shop.send", "mail", allowed)
    with pytest.raises(HandlerRefused) as refused:
        check_allowed("shop.burn", "mail", allowed)
    assert "(it allows shop.count, shop.send)" in str(refused.value)


@pytest.mark.parametrize("key", ["shop.send ", "SHOP.SEND", "shop", "shop.sen", "shop.send.x", ""])
def test_a_list_is_compared_letter_by_letter(key):
    with pytest.raises(HandlerRefused):
        check_allowed(key, "mail", ("shop.send", "*"))


PATH = f"{__name__}.OtherHandler"


class OtherHandler(Handler):
    key = "other"

    def validate(self, payload):
        pass

    def handle(self, context):
        pass


def test_a_handler_named_by_its_path_is_made_when_it_is_asked_for(registry):
    registry.register_path("other", PATH)
    assert "other" in registry
    assert list(registry) == ["other"]
    assert len(registry) == 1
    assert registry.loaded() == []
    handler = registry.find("other")
    assert isinstance(handler, OtherHandler)
    assert registry.get("other") is registry.get_verified("other") is handler
    assert registry.loaded() == [handler]
    assert len(registry) == len(list(registry)) == 1


def test_all_handlers_named_by_their_paths_can_be_loaded_at_once(registry):
    registry.register(made_from(send_mail))
    registry.register_path("other", PATH)
    registry.load()
    assert [handler.key for handler in registry.loaded()] == ["shop.send", "other"]


@pytest.mark.parametrize("key", sorted(BUILT_IN_KEYS))
def test_a_built_in_handler_is_found_by_its_key(key):
    registry = Registry()
    register_built_in(registry)
    assert registry.find(key).key == key


def test_a_path_leads_to_a_job_as_well():
    registry = Registry()
    register_built_in(registry)
    assert registry.find("django_jobs.carry_on").function.__name__ == "carry_on"


def test_the_key_of_a_handler_named_by_its_path_is_taken(registry):
    registry.register_path("other", PATH)
    with pytest.raises(ConfigurationError, match="two handlers"):
        registry.register(made_from(send_mail, "other"))
    registry.register(OtherHandler())
    registry.register_path("other", PATH)
    registry.register(made_from(send_letter, "taken"))
    with pytest.raises(ConfigurationError, match="two handlers"):
        registry.register_path("taken", PATH)


def test_a_near_key_is_named_also_where_its_handler_is_not_loaded(registry):
    registry.register_path("other", PATH)
    with pytest.raises(UnknownHandler, match="did you mean 'other'"):
        registry.find("others")
