# shellcheck shell=bash
# What both scripts look for before they begin: a mistake is one line and exit code 2. To be sourced.

fail() {
    echo "${0##*/}: error: $*" >&2
    exit 2
}

# need_python INTERPRETER PACKAGE...: it is there and has them. -P: not those of the folder that one happens to be in.
need_python() {
    local python=$1 missing
    shift
    command -v "$python" >/dev/null ||
        fail "no Python at $python: run \`make setup\`, or set PYTHON to an interpreter with this project's packages"
    missing=$("$python" -P - "$@" <<'PY'
import importlib.util, sys
print(" ".join(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
PY
    ) || fail "$python does not run"
    [ -z "$missing" ] ||
        fail "$python has no $missing: run \`make setup\`, or set PYTHON to an interpreter with this project's packages"
}

# As Spark looks for it: at JAVA_HOME if that is set, else on PATH.
need_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java major
    command -v "$java" >/dev/null ||
        fail "no Java at ${JAVA_HOME:+JAVA_HOME, }$java: Spark needs Java 17 or newer; \`make setup\` tells how to get one"
    # From the like of `openjdk version "17.0.15"`, or 8 from `"1.8.0_402"`.
    major=$("$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
    [ "${major:-0}" -ge 17 ] || fail "$java is Java ${major:-of an unknown version}: Spark needs 17 or newer"
}
