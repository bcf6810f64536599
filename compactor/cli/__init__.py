"""The command line: a thin shell over the public interface of `compactor.api`.

`commands` lists the commands, and imports the module of a command when it is called. A command opens its
table (`tables`), calls one method, and prints the report: results on stdout, progress and errors on stderr
(`output`, `display`). `main` runs it and maps each error to one line and an exit code.

setting_options  makes options from the fields of settings models; shared_options, spark_options,
                 engine_options and telemetry add those that several commands have
usage            rewrites click's own errors; main handles signals, pipes closed pipes
frugal           keeps imports of heavy libraries fast
write, read, look, maintain, compact, watch, ...  implement the commands
"""
