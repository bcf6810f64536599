"""Users' files, read and written as Arrow batches: columnar ones, and texts of several kinds.

`read.open_table_file` opens a file as `FileBatches` (`source`): a schema and a stream of batches, in bounded
memory. `write.open_table_sink` opens a **sink**, whose file appears whole or not at all (`staging`, `whole`).

places      where bytes are: local files, pipes, stores; unfinished begins files, fetched copies from stores
columnar    files with types of their own; foreign_types, kept_types, int96, parquet_codes handle their quirks
source      files of text: one pass finds types, and holds the first rows that it parsed
ndjson      lines of JSON: json_arrays makes arrays, json_columns finds types, json_mistakes explains
csv         cells of text: csv_rows cuts them, readings finds the types of columns
layouts     what the ending does not tell; flat_texts finds the types of such columns
lines       lines by a pattern (line_patterns, grok), and fixed: columns of fixed width; records cuts both
xml         elements by a path: xml_elements parses, xml_shapes finds types and makes arrays
segments    cuts EDIFACT, X12 and HL7 v2; segment_rows reads rows of them, segment_text writes
text_values converts text to values; number_text is exact
sinks       write batches; jsontext, csvtext, xmltext, fixedtext, plain_text render whole columns as text
problems    turns libraries' errors into one line, and finds the failing row; promote splits maps into columns
"""
