# shellcheck shell=bash
# Preconditions of both scripts: a mistake gives one line and exit code 2. To be sourced.

fail() {
    echo "${0##*/}: error: $*" >&2
    exit 2
}

# need_python INTERPRETER PACKAGE...: checks that both exist. -P: ignore packages in the current folder.
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

# Looks where Spark does: at JAVA_HOME if set, else on PATH.
need_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java major
    command -v "$java" >/dev/null ||
        fail "no Java at ${JAVA_HOME:+JAVA_HOME, }$java: Spark needs Java 17 or newer; \`make setup\` tells how to get one"
    # 17 for `openjdk version "17.0.15"`, 8 for `"1.8.0_402"`.
    major=$("$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
    [ "${major:-0}" -ge 17 ] || fail "$java is Java ${major:-of an unknown version}: Spark needs 17 or newer"
}
