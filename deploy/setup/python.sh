#!/bin/sh
# Makes the private environment .venv in the checkout and installs the project into it, editable,
# with everything for tests, lint and Spark. Does nothing if pyproject.toml and the compiled sources are
# still those that were installed. PYTHON=/path/to/python chooses the interpreter (3.11 or newer).
set -eu

cd "$(dirname "$0")/../.."
venv=.venv
stamp=$venv/installed

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer among: ${PYTHON:-python3.11 python3.12 python3.13 python3}.
  Debian 12, Ubuntu 24.04:  apt-get install python3 python3-venv
  Fedora:                   dnf install python3
  macOS:                    brew install python@3.12
  elsewhere installed:      make setup PYTHON=/path/to/python3.11"
}

# The environment holds absolute paths, so its place counts as much as its contents.
fingerprint() {
    "$1" -c 'import hashlib, os; print(hashlib.sha256(
        open("pyproject.toml", "rb").read() + open("format/_compiled.pyx", "rb").read()
        + os.getcwd().encode()).hexdigest())'
}

make_venv() {
    if "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        "$1" -m venv --clear "$venv"
    elif "$1" -m pip --version >/dev/null 2>&1 && "$1" -m venv --clear --without-pip "$venv"; then
        # Debian splits ensurepip off to python3-venv; the system's pip can put itself in as well.
        "$1" -m pip --quiet --python "$venv/bin/python" install pip ||
            fail "$1 could not install pip into $venv; try: apt-get install python3-venv"
    else
        fail "$1 cannot make environments: its venv module is incomplete and pip is missing.
  Debian, Ubuntu:  apt-get install python3-venv"
    fi
}

if is_new_enough "$venv/bin/python" && [ -f "$stamp" ] &&
    [ "$(cat "$stamp")" = "$(fingerprint "$venv/bin/python")" ]; then
    exit 0
fi

python=$(find_python)
say "making $venv with $("$python" --version) and installing the project, a minute or two"
make_venv "$python"
PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    "$venv/bin/python" -m pip install --quiet --editable '.[dev]' ||
    fail "pip could not install the project; its message is above"
fingerprint "$venv/bin/python" >"$stamp"
say "ready: $venv/bin/compactor"
