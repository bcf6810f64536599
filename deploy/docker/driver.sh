#!/bin/bash
# Runs spark-submit, and hands SIGTERM on to the Python program that it starts. Spark's JVM, told so itself, ends at
# once, and the program with it: before its compactions, and before it has given up its leases.
#
#   driver.sh .../bin/spark-submit ...
set -uo pipefail

# The pids of its Python programs, those that run tasks left out.
# shellcheck disable=SC2329 # called by the trap
programs_of() {
    local process stat fields
    for process in /proc/[0-9]*; do
        # A process may end while we look at it.
        { stat=$(<"$process/stat"); } 2>/dev/null || continue
        # Its name, in parentheses, may hold anything.
        read -ra fields <<<"${stat##*) }"
        if [ "${fields[1]}" = "$1" ] && [[ ${stat#*(} == python* ]] &&
            ! grep -aq 'pyspark\.daemon' "$process/cmdline" 2>/dev/null; then
            echo "${process#/proc/}"
        fi
    done
}

# shellcheck disable=SC2329
stop() {
    local programs
    mapfile -t programs < <(programs_of "$jvm")
    # Before there is a program there is nothing to end well.
    kill -s TERM "${programs[@]:-$jvm}"
}

trap stop TERM
# spark-submit becomes the JVM by exec, so this is the JVM's pid too.
"$@" &
jvm=$!
# A signal ends a wait.
while
    wait "$jvm"
    status=$?
    kill -s 0 "$jvm" 2>/dev/null
do :; done
exit "$status"
