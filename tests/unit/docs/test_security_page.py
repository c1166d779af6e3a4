"""docs/development/security.md: each of its statements is proved by the test that stands here."""

import re

from robust_eval.config.groups import PROJECT

PAGE = (PROJECT / "docs" / "development" / "security.md").read_text(encoding="utf-8")
PROOFS = {
    "The command line and the configuration files": "unit/config/test_overrides.py::"
    "test_runs_lie_in_the_folder_where_the_command_is_given_or_in_one_that_it_names",
    "Installed packages that register parts": "unit/config/test_plugins.py::"
    "test_entry_points_are_options_and_what_cannot_be_loaded_is_left_out_with_a_reason",
    "A model's own Python code": "integration/model/local/test_transformers.py::"
    "test_code_that_a_model_brings_is_announced_whenever_it_may_run",
    "The environment variable that `model.api_key_env` names": "stress/experiment/test_served_runs.py::"
    "test_a_key_is_found_nowhere_whatever_becomes_of_the_run",
    "Text from a model or a server is shown with its control characters escaped": "integration/cli/"
    "test_hostile_server.py::test_nothing_that_it_sends_reaches_the_terminal_a_log_a_page_or_markdown",
    "Text from a model, a server or a data set is text in a page": "unit/report/test_page.py::"
    "test_texts_of_questions_and_models_are_escaped",
    "A reply that is larger than any real one": "integration/model/served/transport/test_client.py::"
    "test_a_bomb_takes_the_memory_of_a_reply_and_no_more",
    "A reply with impossible numbers": "integration/model/served/test_served_model.py::"
    "test_a_reply_that_cannot_be_believed_is_asked_again_and_then_an_error_and_leaves_nothing_behind",
    "An endless count or nesting": "integration/model/served/test_served_model.py::"
    "test_what_a_server_counts_or_nests_without_end_is_an_error_like_others",
    "Impossible log-probabilities in the store": "integration/model/served/test_served_model.py::"
    "test_a_stored_answer_that_cannot_be_believed_is_asked_again",
    "A redirect to another host": "integration/model/served/transport/test_client.py::"
    "test_a_redirect_to_another_place_is_not_followed",
    "A data set is read as data": "unit/dataset/test_record.py::test_a_list_or_one_that_is_written_as_text",
    "A file that is not a regular file": "unit/dataset/test_jsonl.py::"
    "test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for",
    "A data set, a table of answers, a log": "integration/runtime/test_file_limits.py::"
    "test_bombs_cost_little_and_are_refused_in_a_sentence",
    "Ordinary large files are read": "integration/runtime/test_file_limits.py::test_what_is_alike_and_no_bomb_is_read",
    "Weights that are pickled code": "integration/model/local/test_transformers.py::"
    "test_weights_that_are_a_pickle_of_code_are_refused_and_do_not_run",
    "Code that ships with a model does not run": "integration/model/local/test_transformers.py::"
    "test_code_that_a_model_brings_does_not_run_unless_it_is_trusted",
    "`repeat=FOLDER` and `gate` take settings from a folder": "integration/cli/test_repeat.py::"
    "test_of_a_folder_hydra_is_given_the_settings_and_nothing_else",
    "A setting of the folder that runs code": "integration/cli/test_repeat.py::"
    "test_what_no_folder_is_trusted_with_has_to_be_said_again",
    "A setting that names an input": "integration/cli/test_repeat.py::"
    "test_what_is_read_is_that_of_a_run_under_ones_own_mlruns_or_has_to_be_said",
    "A repeated run elsewhere": "integration/cli/test_repeat.py::"
    "test_a_run_with_the_options_of_this_package_is_repeated_wherever_it_lies",
    "`label`, `compare`, `export` and `gate` use the tracker": "integration/cli/test_label.py::"
    "test_a_folder_does_not_say_to_which_tracker_figures_go",
    "A link in a folder does not lead": "unit/runtime/test_parquet_files.py::"
    "test_a_link_that_somebody_left_in_a_folder_is_not_written_through",
    "A setting that would be filled in from the environment": "integration/cli/test_repeat.py::"
    "test_a_configuration_that_no_run_wrote_is_refused",
    "Options in the `conf/` of the current folder": "unit/config/test_overrides.py::"
    "test_options_in_the_folder_where_one_stands_take_the_place_of_none_of_ours",
    "Other people's runs that are compared": "unit/runs/test_finished_runs.py::"
    "test_a_damaged_file_is_said_in_one_line_that_names_the_run",
    "Values under keys that look like secrets": "unit/runtime/test_text.py::"
    "test_a_text_under_the_name_of_a_secret_is_found_wherever_it_stands",
    "An address that holds a password or a query": "unit/test_refused_settings.py::"
    "test_settings_that_make_no_sense_are_refused_in_one_sentence",
    "A key is in no file, no log and no argument": "stress/experiment/test_served_runs.py::"
    "test_a_key_is_in_no_file_of_the_home_and_in_no_argument_of_a_process_that_is_killed",
}
"""How each statement of the page begins, and the test of it."""


def test_every_statement_of_the_page_has_a_test_that_is_there():
    statements = [" ".join(found.split()) for found in re.findall(r"^- (.+?)$(?=\n(?:-|\n))", PAGE, re.S | re.M)]
    assert len(statements) == PAGE.count("\n- ") == len(PROOFS)
    for statement, (beginning, proof) in zip(statements, PROOFS.items(), strict=True):
        assert statement.startswith(beginning)
        file, name = proof.split("::")
        assert f"\ndef {name}(" in (PROJECT / "tests" / file).read_text(encoding="utf-8"), proof
