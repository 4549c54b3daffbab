"""Which modules are changed, against which tests, and on which databases."""

from __future__ import annotations

URL = "tests/unit/handlers/url"
NAMES = f"{URL}/test_hostile.py"
LIMITS = f"{URL}/test_limits.py"
CALLS = f"{URL}/test_calls.py"
LIMITS_OF_THE_PAGE = f"{URL}/test_documented.py::test_the_limits_of_the_page_are_those_in_force"
SHELL = "tests/unit/handlers/shell"
PARTS = ("", "_sealed", "_fields", "_limits")
FIELDS_FIRST = ("_fields", "_limits", "", "_sealed")
ALLOWED = [
    "tests/unit/handlers/test_command_argv.py",
    "tests/unit/handlers/test_command.py",
    f"{SHELL}/test_handler_programs.py",
]
REACH = ["tests/unit/test_conf_reach.py", *ALLOWED, "tests/unit/handlers/test_event.py"]
SETTINGS = [f"tests/unit/test_conf{part}.py" for part in ("", "_urls", "_breakers", "_keys")]
CONFORMANCE = "tests/conformance/test_database.py"
INSIDE = f"{CONFORMANCE}::TestDatabaseBackendInsideATransaction"
OPTIMISTIC = f"{CONFORMANCE}::TestDatabaseBackendWithoutSkipLocked"
ACKING = "tests/integration/test_ack.py"
ENDED = [
    f"tests/integration/test_enqueue_again.py::test_{name}"
    for name in (
        "that_a_job_without_a_result_has_ended_is_known_for_an_hour",
        "a_result_that_is_kept_for_longer_needs_no_second_note",
    )
]
KEYS = "tests/integration/test_key_rows.py"
BOUNDS = "tests/integration/test_claim_bounds.py"
CANCELLING = "tests/integration/test_cancel.py"
GIVING_BACK = "tests/integration/test_give_back.py"
LOCKED = "tests/integration/test_locked_rows.py"
CLAIMING = "tests/integration/test_claim.py"
KEPT = "tests/integration/test_attempts_kept.py"
UNANSWERED = "tests/integration/test_unanswered.py"
FORGOTTEN = "tests/integration/guards/test_forgotten.py"
CURSORS = "tests/integration/test_claim_cursors.py"
# Of a long suite, those that tell of a module: whoever survives runs all of its tests.
WORK_ONCE = [
    f"{INSIDE}::test_{name}"
    for name in (
        "the_work_of_a_key_is_done_once",
        "a_job_that_ends_without_its_work_leaves_it_to_be_done",
        "every_way_out_of_a_lease_lets_the_next_one_go_on",
        "both_kinds_of_key_have_to_let_a_job_go",
        "work_that_is_done_needs_no_place_to_be_skipped",
        "waiters_go_on_in_their_order",
    )
]
KEYS_LOCKED = [
    f"{LOCKED}::test_who_judges_keys_has_them_alone",
    f"{LOCKED}::test_a_key_that_somebody_else_made_meanwhile_is_locked_as_well",
]
CLAIMS = [
    f"{suite}::test_{name}"
    for suite in (INSIDE, OPTIMISTIC)
    for name in (
        "suspects_come_one_at_a_time",
        "jobs_before_a_suspect_come_without_it",
        "of_two_jobs_due_at_once_the_earlier_id_is_fetched_first",
        "an_earlier_due_goes_before_an_earlier_id",
        "a_priority_goes_before_an_earlier_due",
        "a_queue_gives_only_its_own_jobs",
    )
]
CLAIMS += [
    f"{OPTIMISTIC}::test_a_row_that_was_given_back_since_it_was_seen_comes_with_its_own_counters"
]
CLAIMS_LOCKED = [
    f"{LOCKED}::test_{name}"
    for name in (
        "claims_neither_wait_for_each_other_nor_hide_what_is_left",
        "a_given_job_is_not_claimed_beside_who_has_it",
        "what_a_claim_has_read_is_its_own_until_it_is_leased",
        "promotions_do_not_wait_for_each_other",
        "where_nothing_can_be_skipped_what_was_promoted_and_claimed_meanwhile_stays_so",
    )
]
ADMISSION = ("admission", "decided", "finding_handlers", "policies")

TESTS = {
    "wire/signing.py": ["tests/unit/wire/test_signing.py"],
    "wire/opening.py": [f"tests/unit/wire/test_opening{part}.py" for part in PARTS],
    "wire/envelope.py": [
        "tests/unit/wire/test_envelope.py",
        *(f"tests/unit/wire/test_opening{part}.py" for part in FIELDS_FIRST),
    ],
    "texts.py": [
        "tests/unit/wire/test_opening_limits.py",
        "tests/unit/handlers/test_command.py",
        "tests/unit/test_texts.py",
    ],
    "conf/model.py": [*REACH, *SETTINGS],
    "conf/allow_lists.py": REACH,
    "handlers/command.py": [*ALLOWED, "tests/unit/test_conf_reach.py"],
    "handlers/event.py": ["tests/unit/handlers/test_event.py"],
    "handlers/shell/handler.py": [
        f"{SHELL}/test_{name}.py" for name in ("handler_programs", "real_path", "process")
    ],
    "worker/admission.py": [f"tests/unit/worker/test_{name}.py" for name in ADMISSION],
    "backends/database/settle.py": [GIVING_BACK, LOCKED, INSIDE, KEPT, UNANSWERED],
    "backends/database/ack.py": [ACKING, *ENDED, *WORK_ONCE],
    "backends/database/keys.py": [KEYS, FORGOTTEN, *KEYS_LOCKED, INSIDE],
    "backends/database/claim.py": [
        BOUNDS,
        LOCKED,
        INSIDE,
        CLAIMING,
        *CLAIMS,
        CURSORS,
        *CLAIMS_LOCKED,
    ],
    "backends/database/cancel.py": [CANCELLING, LOCKED, INSIDE],
    "handlers/registry.py": [
        f"tests/unit/handlers/test_registry{part}.py" for part in ("", "_configured")
    ],
    "handlers/url/url.py": [f"{URL}/test_url.py"],
    "handlers/url/request.py": [f"{URL}/test_request.py"],
    "handlers/url/allow_list.py": [f"{URL}/test_allow_list.py"],
    "handlers/url/handler.py": [
        f"{URL}/test_handler_redirects.py",
        f"{URL}/test_request.py",
        CALLS,
        f"{URL}/test_http_answers.py",
        LIMITS,
    ],
    "handlers/url/http.py": [
        f"{URL}/test_http_connecting.py",
        LIMITS_OF_THE_PAGE,
        CALLS,
        f"{URL}/test_http_answers.py",
        LIMITS,
    ],
    "handlers/url/addresses.py": [
        f"{URL}/test_addresses.py",
        f"{LIMITS}::test_a_name_that_leads_nowhere_fails",
        f"{LIMITS}::test_a_resolver_that_does_not_answer_is_left",
        f"{LIMITS}::test_a_lookup_keeps_no_process_from_ending",
        LIMITS_OF_THE_PAGE,
        f"{NAMES}::test_one_bad_answer_of_several_refuses_the_name",
        f"{NAMES}::test_a_name_that_flips_between_public_and_loopback_is_asked_for_once",
        f"{CALLS}::test_the_resolver_of_the_machine_knows_localhost",
        f"{CALLS}::test_an_address_in_the_url_is_called_without_a_lookup",
    ],
}

# Of what needs a site: the databases, one after the other, each for those that are left.
ON_EACH = ("sqlite", "postgres")
ON_ANY = ("sqlite",)  # their tests import models, and ask no database
DATABASES = {
    "wire/envelope.py": ON_ANY,
    "conf/model.py": ON_ANY,
    "handlers/registry.py": ON_ANY,
    "backends/database/settle.py": ON_EACH,
    "backends/database/ack.py": ON_EACH,
    "backends/database/keys.py": ON_EACH,
    "backends/database/claim.py": ON_EACH,
    "backends/database/cancel.py": ON_EACH,
}
