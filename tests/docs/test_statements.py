"""Each statement of two pages of the reference on order, bounds and eligibility, and the tests that hold it.

A statement whose words change, or whose test goes, fails here: look whether both still say the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
GRAPHS: Final = "generated/test_graphs::test_a_graph_gives_the_rows_that_duckdb_gives"
STAGES: Final = "spark/test_pipeline_stages::test_where_order_is_defined_stages_give_the_same_bytes"
# Words of a statement, and tests; those in the folder of the page's name without it.
PIPELINES: Final[dict[str, tuple[str, ...]]] = {
    "No file is written into the folder of a table": (
        "test_messages::test_a_mistake_of_an_output_is_told_with_file_line_and_node",
        "common/test_table_folder::test_a_file_at_any_depth_of_a_table_is_inside_it",
    ),
    # Nodes
    "rows per batch at most, fewer of heavy rows; changes memory, not results": (
        "test_nodes::test_a_batch_size_changes_no_byte",
        "test_nodes::test_wide_rows_do_not_go_beyond_the_limit_while_they_wait", GRAPHS,
    ),
    "(default: those that the process may use); changes no result": (
        "test_threads::test_results_do_not_depend_on_threads",
    ),
    "What is read ahead is bounded and charged to": (
        "test_threads::test_sources_read_ahead_where_memory_allows_it",
        "test_threads::test_a_bounded_number_of_items_is_made_ahead",
    ),
    "several files, in order of name": (
        "test_nodes::test_several_files_are_one_source_in_the_order_of_their_names", GRAPHS,
    ),
    "Only the columns that the graph uses are read": (
        "test_projection::test_every_kind_of_file_reads_the_columns_used",
        "test_projection::test_used_columns_go_back_to_the_sources",
    ),
    "filters rows, computes columns by [expressions]": (GRAPHS,),
    "allows window functions in columns, see [windows]": (
        "test_windows::test_windows_give_what_plain_python_gives_whatever_the_batches",
    ),
    "Inputs must agree on columns and types (the order may differ": (
        "test_merges::test_inputs_that_do_not_agree_are_refused",
        "test_merges::test_columns_in_another_order_agree",
    ),
    "sends each row to the first branch whose condition holds": (
        "test_nodes::test_a_route_gives_each_row_to_its_first_branch", GRAPHS,
    ),
    "sorts stably; spills sorted runs to local disk when memory is short": (
        "test_order_and_bounds::test_rows_of_equal_keys_keep_their_order_in_a_sort", GRAPHS,
    ),
    "returns one row per group, in key order; groups go to local disk when memory is short": (
        "test_nodes::test_blocking_stages_give_the_same_rows_with_and_without_memory",
        "test_nodes::test_any_number_of_groups_goes_through_little_memory", GRAPHS,
    ),
    "Without `group_by` all rows make one row, and so do no rows": (
        "spark/test_pipeline_stages::test_all_rows_or_none_make_one_row_in_stages", GRAPHS,
    ),
    "the groups come in its order": (
        "test_aggregate_functions::test_rows_that_are_sorted_by_their_groups_give_groups_in_that_order",
        "test_nodes::test_groups_of_sorted_rows_leave_as_they_are_done",
        "test_windows::test_rows_of_a_window_are_in_order_for_what_comes_next", GRAPHS,
    ),
    "returns one row per time window and group, in that order": (
        "test_windows::test_windows_of_time_are_those_of_duckdb",
        "test_aggregate_functions::test_rows_in_overlapping_windows_of_time_come_in_their_order", GRAPHS,
    ),
    "Holds the complete build side before the first look-up": (
        "test_order_and_bounds::test_the_first_row_finds_what_the_end_of_the_build_side_has",
    ),
    "Reads the probe side in its own thread if it is a source, a result that is held, or transforms of one": (
        "test_nodes::test_a_probe_side_that_is_held_is_read_in_a_thread_of_its_own",
        "test_order_and_bounds::test_the_probe_side_of_a_hash_join_is_read_in_a_thread_or_its_files_are",
    ),
    "partitions both sides by key onto local disk; rows still come in probe order": (
        "test_nodes::test_a_combine_gives_the_same_bytes_when_its_build_side_does_not_fit",
        "test_join_kinds::test_neither_memory_nor_batches_change_a_row_of_a_hash_join",
    ),
    "unmatched build rows come after the probe rows, in build order": (
        "test_order_and_bounds::test_the_first_row_finds_what_the_end_of_the_build_side_has",
        "test_join_kinds::test_a_hash_join_gives_duckdbs_rows_in_its_order", GRAPHS,
    ),
    "Null and NaN never match |": ("test_join_kinds::test_a_hash_join_gives_duckdbs_rows_in_its_order",),
    "Does not sort a side that the graph guarantees to be sorted by the keys, in any direction": (
        "test_joins::test_inputs_that_are_sorted_are_not_sorted_again",
        "test_classification::test_a_sort_merge_join_goes_by_the_order_of_keys_that_an_input_is_in",
    ),
    "Rows come by key, then by probe row, then by build row. Unmatched build rows follow the other rows": (
        "test_joins::test_a_sort_merge_join_gives_duckdbs_rows_in_the_order_of_keys", GRAPHS,
    ),
    "Rows come by keys and `column`, then by probe row; for one probe row by `from` (null first)": (
        "test_joins::test_a_range_join_gives_duckdbs_rows_in_the_order_of_points", GRAPHS,
    ),
    "Rows come by keys and time, then by probe row": (
        "test_joins::test_an_asof_join_gives_duckdbs_rows_in_the_order_of_time", GRAPHS,
    ),
    "First the rows of all outputs are written; then tables are committed": (
        "test_places::test_no_table_is_committed_before_the_rows_of_all_are_written",
    ),
    "Outputs never overwrite inputs or each other": (
        "test_places::test_nothing_is_written_over_a_source",
        "test_places::test_a_file_of_a_split_is_not_written_over_another_place",
    ),
    # Aggregate functions
    "of several such rows the first": (
        "test_aggregate_functions::test_every_function_gives_duckdbs_values", GRAPHS,
    ),
    "of the first or last row in the order of the input, null included": (
        "test_aggregate_functions::test_every_function_gives_duckdbs_values", GRAPHS,
    ),
    "the texts in the order of the input": (
        "test_aggregate_functions::test_every_function_gives_duckdbs_values", GRAPHS,
    ),
    "the number of groups and values is not limited by memory": (
        "test_aggregate_functions::test_more_values_than_memory_give_the_same_results",
    ),
    "2,000,000 rows in 200,000 groups work with 64 MiB": (
        "test_order_and_bounds::test_two_million_rows_in_many_groups_are_aggregated_in_64_mib",
    ),
    "else the run ends with an error that names the stage": (
        "test_aggregate_functions::test_the_text_of_a_group_that_does_not_fit_into_memory_is_one_clear_error",
    ),
    "Keys compare by value: integers of any width and sign": (
        "test_join_kinds::test_keys_of_different_types_are_equal_if_their_values_are",
    ),
    "has at most 1,000 characters": (
        "test_bounds::test_a_separator_has_at_most_1_000_characters",
    ),
    # Places
    "One HEAD finds the version of an object, one GET for each pass over a text file reads it": (
        "test_s3::test_sources_outputs_and_dead_letters_may_be_objects",
    ),
    "if it was replaced in between, the run ends with an error": (
        "test_s3::test_an_object_replaced_between_two_passes_is_refused",
        "test_s3_parquet::test_an_object_replaced_between_its_ranges_is_refused",
    ),
    "copied to local disk, by one GET; of a Parquet file from 4 MiB on, only the columns that are used": (
        "test_s3_parquet::test_only_the_columns_that_are_read_are_fetched",
        "test_bounds::test_parquet_from_4_mib_on_is_read_by_the_ranges_of_its_columns",
    ),
    "by GETs of ranges, if they are less than half of it": (
        "test_s3_parquet::test_a_file_of_which_most_is_read_is_copied_by_one_get",
    ),
    "one PUT, or an upload in parts that is completed at the end; a failed run aborts it": (
        "test_s3::test_sources_outputs_and_dead_letters_may_be_objects",
        "test_s3::test_large_objects_are_uploads_of_several_parts_and_a_failure_leaves_none",
    ),
    "standard output, once all outputs are written; until then the rows wait": (
        "test_streams::test_a_failed_run_prints_no_row",
    ),
    "is read once. So `fields` must declare its columns": (
        "test_streams::test_a_pipe_is_read_once_in_a_run",
        "test_streams::test_settings_of_streams_are_checked",
    ),
    "Its rows are passed on as they come": (
        "test_order_and_bounds::"
        "test_rows_of_a_pipe_that_stays_open_are_written_as_they_come",
    ),
    "in blocks of what comes within a tenth of a second": (
        "test_bounds::test_a_read_of_a_stream_returns_what_comes_within_a_tenth_of_a_second",
    ),
    "by two sources and in both [phases]": ("test_streams::test_a_pipe_is_read_once_in_a_run",),
    # Windows
    "Windows leave bad rows out, but include rows whose group fails later": (
        "test_windows::test_rows_that_an_argument_is_not_defined_of_are_in_no_window",
        "test_windows::test_rows_of_a_window_keep_their_groups_and_are_one_document",
    ),
    "ties keep their order": (
        "test_windows::test_windows_give_what_plain_python_gives_whatever_the_batches", GRAPHS,
    ),
    "The frame is SQL's `ROWS`": ("test_window_functions::test_functions_are_those_of_duckdb", GRAPHS),
    "up to 1,000,000, like `n`; these are held in memory and charged": (
        "test_window_functions::test_what_is_looked_back_at_is_charged",
        "test_windows::test_mistakes_in_a_window_are_named",
    ),
    "`filter` applies before the window": (
        "test_windows::test_windows_give_what_plain_python_gives_whatever_the_batches", GRAPHS,
    ),
    "Results come by partition, then in order": (
        "test_windows::test_windows_give_what_plain_python_gives_whatever_the_batches", GRAPHS,
    ),
    "batch boundaries do not change the result, and a NaN leaves with its row": (
        "test_window_functions::test_frames_of_floats_do_not_depend_on_batches_and_a_nan_leaves_with_its_row",
        "test_window_functions::test_running_sums_of_floats_go_from_left_to_right_whatever_the_batches",
    ),
    "A row is in each window that contains its time; the start is inclusive, the end exclusive": (
        "test_time_windows::test_a_row_is_in_every_window_that_holds_its_time_and_no_other", GRAPHS,
    ),
    "one that puts a row into more than 10,000 windows": (
        "test_bounds::test_a_row_is_in_at_most_10_000_windows_of_time",
    ),
    # Merge orders
    "All orders that keep the order within inputs are equally likely": (
        "test_order_and_bounds::test_seeds_give_all_orders_that_keep_those_within_inputs_equally_often",
    ),
    "the rows of `inputs[0]`, then those of `inputs[1]`": (
        "test_merges::test_concat_gives_one_input_after_the_other_and_the_same_bytes_again", GRAPHS,
    ),
    "read ahead into a channel of 1,024 records each; a full channel blocks its reader": (
        "test_order_and_bounds::"
        "test_later_inputs_of_a_concat_wait_in_channels_and_others_are_read_in_their_turn",
        "test_merges::test_peers_of_a_gated_source_produce_no_more_than_their_channel_holds",
    ),
    "order of arrival; the order within an input is kept": (
        "test_merges::test_a_fused_interleave_keeps_the_order_within_each_input",
    ),
    "no source waits for another, and a slow consumer blocks all readers": (
        "test_order_and_bounds::"
        "test_rows_of_a_pipe_that_stays_open_are_written_as_they_come",
        "test_merges::test_a_source_that_has_nothing_holds_up_none_of_a_fused_interleave",
        "test_merges::test_a_blocked_writer_bounds_what_is_produced",
    ),
    "round-robin, until every input is exhausted": (
        "test_merges::test_inputs_behind_transforms_are_taken_in_turn",
        "test_merges::test_many_rows_are_taken_in_turn_too", GRAPHS,
    ),
    "it depends on the seed and the row counts of the inputs, not on timing": (
        "test_order_and_bounds::test_a_seed_orders_rows_by_their_number_alone",
        "test_merges::test_a_seed_gives_the_same_order_whatever_the_timing",
    ),
    "in id order: `entity:": (
        "test_entity_mode::test_its_inputs_may_be_any_nodes_and_its_rows_go_to_any",
        "test_entity_mode::test_the_worked_example_comes_out_of_a_pipeline",
    ),
    "all inputs are held: exceeding `memory.limit` is an error": (
        "test_entity_mode::test_more_than_memory_allows_is_an_error_that_names_the_node",
    ),
    "sorted by `sort_by`, as all inputs must be; equal keys by input": (
        "test_merges::test_sorted_inputs_are_merged_by_key_and_others_refused", GRAPHS,
    ),
    # How rows are held
    "One pure function decides, for both the executor and `--explain`": (
        "test_classification::test_what_is_explained_is_what_is_classified",
    ),
    "hash join for an output that is no table and not sorted, directly or through transforms": (
        "test_classification::test_what_feeds_one_output_is_held_as_the_table_says",
        "test_classification::test_a_join_streams_to_an_output_that_holds_few_rows",
        "test_join_kinds::test_a_hash_join_for_an_output_holds_its_build_side_and_few_rows",
        "test_nodes::test_a_fused_chain_holds_no_more_of_ten_times_the_rows",
    ),
    "the result is built first and drained as it is consumed; spills batch by batch": (
        "test_classification::test_what_feeds_one_output_is_held_as_the_table_says",
        "test_nodes::test_sources_that_others_take_too_are_not_fused_into_a_merge",
    ),
    "**any node with several consumers, or consumed by a windowed transform or as a build side**": (
        "test_classification::test_what_feeds_two_nodes_is_materialized",
        "test_classification::test_what_roots_a_window_is_materialized",
        "test_classification::test_what_feeds_a_joins_build_side_is_materialized",
        "test_classification::test_an_output_of_correlated_rows_is_held_and_others_are_not",
    ),
    "held until all consumers are done; spills whole": (
        "test_nodes::test_rows_that_several_take_are_held_until_the_last_has_them",
        "test_shared_nodes::test_a_node_gives_several_what_it_gives_to_one",
    ),
    "is charged until the node makes the next": (
        "test_run_report::test_each_node_holds_the_charge_of_the_batch_that_it_passed_on",
    ),
    "These take at most a quarter of `memory.limit` together": (
        "test_run_report::test_batches_get_smaller_in_a_long_graph_so_that_they_fit_together",
    ),
    "Above 80% of `memory.limit`, built results spill as much as needed": (
        "resources/test_budget::test_nothing_is_spilled_below_the_soft_threshold",
        "resources/test_budget::test_stages_spill_by_priority_and_only_as_many_as_needed",
        "test_nodes::test_blocking_stages_give_the_same_rows_with_and_without_memory",
    ),
    "Exceeding the limit is an error that names the stage": (
        "test_nodes::test_beyond_the_limit_an_error_names_the_stage",
        "test_joins::test_beyond_the_limit_an_error_names_the_node",
    ),
    "they spill the rows of one key, or the intervals that contain one value": (
        "test_merge_join::test_many_rows_of_one_key_on_both_sides_are_crossed_in_little_memory",
        "test_range_join::test_intervals_beyond_memory_spill_and_give_the_same_rows",
    ),
    "takes at most `memory.limit` and 200 MiB": (
        "test_process_memory::test_a_run_stays_within_its_limit_and_a_constant",
    ),
    "which are a quarter of `memory.limit` and at most 64 MiB for all sources together": (
        "test_order_and_bounds::test_sources_keep_rows_within_a_quarter_of_the_limit_for_all_together",
        "test_bounds::test_all_sources_together_keep_64_mib_of_the_rows_that_tell_their_types",
    ),
    "half of `memory.limit` is charged for it, or less if other stages leave less": (
        "test_database::test_a_query_takes_its_part_of_the_memory_while_it_is_open",
        "test_database::test_a_query_gets_its_part_of_the_memory_and_64_mib_at_least",
        "test_database::test_a_query_takes_what_other_stages_leave",
    ),
    "What does not fit is in a folder for temporary files, which the run removes": (
        "test_database::test_more_rows_than_memory_go_to_a_folder_that_ends_with_the_run",
    ),
    "that of a killed run is removed by the next run": (
        "resources/test_scratch::test_a_folder_goes_with_its_process_and_one_of_a_killed_process_with_the_next",
    ),
    "its only input is an interleave without seed that has no other consumer": (
        "test_classification::test_an_output_of_an_interleave_of_sources_alone_is_live",
        "test_classification::test_with_any_one_condition_broken_it_is_not",
        "test_classification::test_an_output_of_the_init_phase_is_not_live",
    ),
    "are counted the same way in both cases": ("test_nodes::test_counters_are_the_same_live_and_not",),
    "the rows already written, 256 records, 1,024 per source, and the batches in flight": (
        "test_merges::test_a_blocked_writer_bounds_what_is_produced",
    ),
    # Report
    "SIGINT and SIGTERM end a run with exit code 130, and nothing of it is visible": (
        "test_places::test_sigterm_leaves_nothing_behind",
    ),
    "Once outputs begin to appear, all do first": (
        "cli/test_interrupts::test_an_interruption_while_outputs_appear_takes_effect_when_all_have",
    ),
    # Documents
    "and there are at most 10,000": (
        "test_bounds::test_an_output_is_split_into_at_most_10_000_files",
    ),
    "Its start and end travel with the rows, in order, independent of batches": (
        "test_documents::test_a_documents_end_follows_its_last_record_across_batches",
    ),
    "the documents of its first input, then those of the second": (
        "test_documents::test_documents_pass_a_concat_in_order_of_its_inputs",
    ),
    "so their result is a single document": (
        "test_documents::test_rows_that_a_merge_mixes_are_one_document_with_one_open_and_one_close",
        "test_documents::test_joins_and_live_outputs_take_documents_as_rows",
    ),
    "value, keeping row order": (
        "test_documents::test_an_output_is_split_by_value_in_whose_files_rows_keep_their_order",
    ),
    "| 100,000 rows |": ("test_documents::test_an_output_is_split_by_rows", GRAPHS),
    # Bad records
    "`row` counts all rows of the source from 1, including bad ones": (
        "test_bad_records::test_lines_that_are_no_records_are_put_aside_with_their_rows",
    ),
    "Rows with equal values form a group, across sources": (
        "test_bad_records::test_a_group_with_a_bad_record_is_put_aside_whole",
    ),
    "So do groups of which an output holds more than `max_group_buffer` rows (default 10,000": (
        "test_bad_records::test_a_group_of_more_than_max_group_buffer_is_given_up",
        "test_bounds::test_a_group_has_at_most_10_000_rows_unless_the_pipeline_says_otherwise",
    ),
    "Until then outputs hold its rows": (
        "test_classification::test_an_output_of_correlated_rows_is_held_and_others_are_not",
        "test_bad_records::test_without_bad_records_all_groups_are_written_in_order",
    ),
    "A bad line of NDJSON or CSV belongs to the group of its key": (
        "test_bad_records::test_bad_lines_whose_key_is_readable_fail_their_groups",
        "test_bad_records::test_the_key_of_a_row_that_is_not_utf8_fails_its_group",
    ),
    "(but for the `where` of a table, which then ends the run)": (
        "test_messages::test_the_condition_of_a_table_that_fails_for_a_row_ends_the_run",
    ),
    "2 for a mistake in the pipeline, 3 for files and rows": (
        "test_messages::test_the_exit_code_of_a_mistake_is_that_of_its_kind",
    ),
    "Aggregates, combines and entity merges are refused": (
        "test_bad_records::test_mistakes_of_correlation_keys_are_named",
    ),
    "Text files that a pattern matches may lack rows, and a header too: they are empty documents": (
        "test_text_sources::test_empty_files_of_a_pattern_have_no_rows",
        "test_text_sources::test_a_file_without_rows_that_alone_matches_a_pattern_is_empty", GRAPHS,
    ),
    "`fields` are needed if no file of a pattern names a column": (
        "test_text_sources::test_files_of_a_pattern_that_all_lack_rows_give_none",
    ),
    "for a file without rows that `path` names itself": (
        "test_text_sources::test_a_single_file_without_rows_has_the_declared_columns",
    ),
    "for NDJSON whose lines are all bad": (
        "test_bad_records::test_of_lines_that_are_all_bad_the_first_reason_is_told",
    ),
    "If a disk or store fails at this last step": (
        "test_messages::test_a_failed_move_is_told_with_the_outputs_that_are_in_place",
    ),
    "cycles, chains of more than 200 nodes,": (
        "test_config::test_a_longer_chain_is_refused_before_anything_runs",
        "test_config::test_the_longest_chain_that_is_taken_runs",
    ),
    "it is the wider. Other differences need `fields`": (
        "test_text_sources::test_other_types_in_another_file_need_fields",
        "test_text_sources::test_json_of_another_kind_in_another_file_is_text_by_fields", GRAPHS,
    ),
    "**Text files are read once** if all columns used": (
        "test_projection::test_declared_columns_are_read_in_one_pass",
        "test_guesses::test_types_that_hold_take_one_pass",
    ),
    "guesses types from the first 100,000 rows or 16 MiB of them": (
        "test_bounds::test_types_are_guessed_from_100_000_rows_or_16_mib",
    ),
    "from the seventeenth large file of a pattern on": (
        "test_bounds::test_types_of_sixteen_large_files_of_a_pattern_are_guessed",
    ),
    "If a later value is not of its type": (
        "test_guesses::test_a_later_value_of_another_type_makes_the_run_begin_again",
        "test_guesses::test_a_field_that_appears_later_makes_the_run_begin_again",
    ),
    "Results and messages are those of types known from the start": (
        "test_guesses::test_random_files_give_what_known_types_give",
        "test_guesses::test_a_mistake_in_the_file_comes_before_that_of_a_row",
        "test_guesses::test_nodes_that_fit_only_the_guess_are_refused",
    ),
    "what is beyond those rows a second time": (
        "files/test_one_pass::test_only_what_is_not_held_is_parsed_again",
        "test_guesses::test_a_column_without_a_value_so_far_is_not_guessed",
    ),
    "Values in columns that nothing uses are not checked": (
        "test_projection::test_bad_rows_of_unused_columns_are_bad_by_their_cells_alone",
    ),
    "such an output is refused before anything runs": (
        "test_formats::test_writers_without_maps_refuse_them_before_anything_runs",
    ),
    # Init phase
    "published before the sources of all other outputs are opened": (
        "test_phases::test_later_sources_read_what_the_init_phase_wrote",
    ),
    "If the rest fails, they stay": (
        "test_phases::test_what_the_first_phase_wrote_stays_when_the_second_fails",
    ),
    # Spark stages
    "with `memory.limit` per task": (
        "spark/test_pipeline_stages::test_tasks_spill_under_a_limit_of_their_own",
    ),
    "one per file; for a table, one per 128 MiB or so": (STAGES,),
    "the tasks of their inputs: no shuffle": (
        "test_stages::test_rows_are_shuffled_before_what_needs_those_of_other_tasks", STAGES,
    ),
    "undefined; here input by input": (
        "spark/test_pipeline_stages::test_where_it_is_not_stages_give_the_same_rows",
    ),
    "**one** task has all rows, on its local disk beyond memory": (
        "test_stages::test_rows_are_shuffled_before_what_needs_those_of_other_tasks", STAGES,
    ),
    "key ranges that fit into memory (or `--shuffle-partitions N` of them)": (
        "spark/test_pipeline_stages::test_tasks_after_a_shuffle_are_as_many_as_its_bytes_need", STAGES,
    ),
    "ranges of the group keys; over time windows, or without `group_by`, **one** task": (
        "test_stages::test_rows_are_shuffled_before_what_needs_those_of_other_tasks", STAGES,
    ),
    "ranges of `partition_by`; without it **one** task": (
        "test_stages::test_rows_are_shuffled_before_what_needs_those_of_other_tasks", STAGES,
    ),
    "hashes of the keys, on both sides | undefined: sort afterwards": (
        "test_stages::test_rows_are_shuffled_before_what_needs_those_of_other_tasks",
        "spark/test_pipeline_stages::test_where_it_is_not_stages_give_the_same_rows",
    ),
    "a table: fragments of all tasks, one commit": (
        "spark/test_pipeline_stages::test_a_table_gets_the_fragments_of_all_tasks_in_one_commit",
    ),
    "Where the order is defined, files have the same bytes as from one process": (
        STAGES, "spark/test_pipeline_graphs::test_graphs_on_spark_give_the_rows_that_duckdb_gives",
    ),
    "and so are dead letters (joined rows are numbered in output order)": (
        "spark/test_pipeline_stages::test_bad_records_go_to_the_same_dead_letters",
    ),
    "joins other than `hash`, or by expressions or columns of different types": (
        "test_stages::test_what_needs_one_process_is_refused",
        "spark/test_pipeline_stages::test_keys_that_are_no_columns_of_one_type_are_refused",
    ),
    "A `slide` longer than `size` is refused": (
        "test_time_windows::test_mistakes_in_sizes_name_the_setting",
    ),
    "A run that fails or is interrupted removes the fragments": (
        "test_places::test_a_run_that_fails_leaves_no_fragment_of_a_table",
    ),
}  # fmt: skip
FILES: Final[dict[str, tuple[str, ...]]] = {
    "the rows beyond some 128 MiB, and all rows where a late one turns numbers or times into text": (
        "test_one_pass::test_only_what_is_not_held_is_parsed_again",
    ),
    "pipes, devices and standard input are refused at once": (
        "test_files::test_a_pipe_is_refused_instead_of_waited_for",
        "cli/test_cli::test_what_is_no_file_to_ingest_or_to_write_is_told_with_what_to_do",
    ),
    "They must be local, too": (
        "api/test_conveniences::test_only_local_files_are_appended_and_written",
    ),
    "**Types come from the whole file**": (
        "test_ndjson::test_a_type_holds_all_values_of_the_file_wherever_blocks_end",
        "test_csv::test_types_hold_over_many_blocks",
        "test_one_pass::test_a_type_that_the_last_row_widens_is_that_of_all_rows",
    ),
    "all rows are compared before they are written, and sorted if necessary": (
        "test_sortedness::test_what_a_file_says_of_its_order_is_not_believed",
    ),
    "**Rows are counted.**": (
        "test_row_counts::test_a_footer_with_another_number_of_rows_than_its_row_groups_is_refused",
        "test_row_counts::test_a_stream_that_ends_before_its_end_is_refused_wherever_it_is_cut",
    ),
    "A text file may have 10,000 columns, counting nested fields": (
        "test_ndjson::test_a_key_too_many_is_named_with_its_line",
        "test_csv::test_a_header_of_too_many_columns_is_refused_at_once",
        "test_xml::test_more_columns_than_text_files_may_have_are_refused",
    ),
    "A line of NDJSON may have about 16 MiB, a row of CSV 4 MiB": (
        "test_ndjson::test_a_line_longer_than_a_block_is_read_and_beyond_the_bound_refused",
        "test_csv::test_a_row_beyond_the_bound_is_refused",
    ),
    "NDJSON is parsed in blocks of fewer than 16 million values": (
        "test_ndjson::test_keys_that_vary_take_no_memory_by_the_square_of_their_number",
        "test_ndjson::test_objects_of_a_list_that_have_other_keys_each_are_refused_before_columns_are_made",
    ),
    "**A record has at most 4 MiB**": ("test_lines::test_a_line_without_end_is_refused",),
    "which takes linear time for any text": (
        "test_lines::test_no_pattern_takes_more_than_linear_time",
    ),
    "A value that its column has no room for is refused with row and column": (
        "test_fixed::test_a_value_without_room_is_refused_by_row_and_column",
    ),
    "values that would not be read back because of a `pad` other than a blank": (
        "test_fixed::test_a_value_that_padding_would_change_is_refused_by_row_and_column",
        "test_fixed::test_values_come_back_from_any_padding_or_are_refused",
    ),
    "**Hostile files are refused** with their line": (
        "test_xml::test_what_is_hostile_or_not_sound_is_refused_with_its_line",
        "test_xml::test_rows_and_tags_without_bounds_are_refused_in_bounded_memory",
    ),
    "gives the bytes that were read": (
        "test_segments::test_what_was_read_is_written_with_the_same_bytes",
    ),
    "Rows are streamed in sort order. The file appears whole or not at all": (
        "test_write::test_an_error_half_way_leaves_the_old_file_and_nothing_beside_it",
    ),
    "A Parquet file declares the order of its rows twice": (
        "test_sortedness::test_parquet_says_how_its_rows_are_sorted_as_far_as_it_orders_them_alike",
    ),
    "An export of some columns declares the sort columns only up to the first one left out": (
        "test_sortedness::test_only_the_columns_that_an_export_keeps_count",
    ),
}  # fmt: skip
TABLES: Final = (
    "| node | settings | what",
    "| `mode` | order |",
    "| what feeds one",
    "| node | tasks |",
)


def page(name: str) -> str:
    return (ROOT / f"docs/reference/{name}.md").read_text()


@pytest.mark.parametrize(
    ("of", "words", "tests"),
    [
        (of, words, tests)
        for of, held in (("pipelines", PIPELINES), ("files", FILES))
        for words, tests in held.items()
    ],
)
def test_a_statement_of_the_reference_is_held_by_tests(
    of: str, words: str, tests: tuple[str, ...]
) -> None:
    assert " ".join(page(of).split()).count(words) == 1, "the page says it no longer, or twice"
    for name in tests:
        module, _, test = name.partition("::")
        path = ROOT / "tests" / (module if "/" in module else f"{of}/{module}")
        assert re.search(rf"^def {test}\(", path.with_suffix(".py").read_text(), re.MULTILINE), name


def test_each_row_of_the_tables_of_order_and_bounds_has_a_statement() -> None:
    lines = page("pipelines").splitlines()
    for header in TABLES:
        start = next(n for n, line in enumerate(lines) if line.startswith(header))
        for line in lines[start + 2 :]:
            if not line.startswith("|"):
                break
            row = " ".join(line.split())
            assert any(words in row for words in PIPELINES), row
