#!/bin/sh
# Makes the private environment .venv in the checkout and installs the project into it, editable,
# with everything for tests, lint and Spark: the versions in deploy/lock, and no file without its hash. They are
# for every Python that the project supports, on Linux, macOS and Windows. Does nothing if pyproject.toml, the
# locks and the compiled sources are still those that were installed. PYTHON=/path/to/python chooses the interpreter (3.11 or newer).
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
        b"".join(open(name, "rb").read() for name in ("pyproject.toml", "format/_compiled.pyx",
        "deploy/lock/build.lock", "deploy/lock/dev.lock")) + os.getcwd().encode()).hexdigest())'
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
install() {
    # --no-deps: the locks name all. --no-build-isolation: what builds is what build.lock has installed.
    # Warnings are those of setuptools about itself.
    PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONWARNINGS=ignore \
        "$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation "$@" ||
        fail "pip could not install $*; its message is above.
  A package index that lacks a version, or has other files of it: make lock takes those that it has."
}
install --require-hashes -r deploy/lock/build.lock
install --require-hashes -r deploy/lock/dev.lock
install --editable .
fingerprint "$venv/bin/python" >"$stamp"
say "ready: $venv/bin/compactor"
