#!/bin/bash
# Runs spark-submit, and forwards SIGTERM to the Python program that it starts. On SIGTERM Spark's JVM would exit at
# once and take the program with it, before its compactions end and its leases are released.
#
#   driver.sh .../bin/spark-submit ...
set -uo pipefail

# Pids of its Python programs, except those that run tasks.
# shellcheck disable=SC2329 # called by the trap
programs_of() {
    local process stat fields
    for process in /proc/[0-9]*; do
        # A process may end meanwhile.
        { stat=$(<"$process/stat"); } 2>/dev/null || continue
        # The process name, in parentheses, may contain anything.
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
    # The signal may come before the JVM, or before its pid is noted.
    [ -n "${jvm:=${!-}}" ] || exit 143
    mapfile -t programs < <(programs_of "$jvm")
    # Without a program yet, stop the JVM.
    kill -s TERM "${programs[@]:-$jvm}"
}

jvm=
trap stop TERM
# spark-submit execs the JVM, so this is also the JVM's pid.
"$@" &
# A stop in between may have noted it, and changed $!.
: "${jvm:=$!}"
# Signals interrupt wait.
while
    wait "$jvm"
    status=$?
    kill -s 0 "$jvm" 2>/dev/null
do :; done
exit "$status"
