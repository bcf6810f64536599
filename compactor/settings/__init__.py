"""Settings: what users may choose, declared once for the command line, Python, Spark and YAML.

A **setting** is a field of a Pydantic model (`model.Settings`) with unit, default, bounds and help text. Its
**key** is the field's name; `names` maps it to the name that each **front** shows (command line,
Python, Spark, YAML).

fields, units       types of settings that users write as text: durations, sizes, rates, names
compaction          the model of compactions
document            reads YAML and JSON, and keeps the line of every value for error messages
arguments           checks the arguments of public functions against their annotations
mistakes, messages  turn an error of Pydantic into one line: the setting, the cause, the correction
"""
