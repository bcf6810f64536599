#!/bin/sh
# Creates .venv in the checkout and installs the project into it, editable, with everything for tests, lint and Spark:
# exactly the versions and hashes in deploy/lock, for every supported Python on Linux, macOS and Windows. Does nothing
# if pyproject.toml, the locks and the compiled sources are unchanged. `python.sh demo` installs only what the demo uses,
# unless there is an environment with everything. PYTHON=/path/to/python chooses the interpreter (3.11 or newer), CC
# the C compiler. If there is none, root on Debian or Ubuntu gets gcc by apt, and other users get
# Clang as a Python package (ziglang) in .venv.
set -eu

cd "$(dirname "$0")/../.."
venv=.venv
set=dev
[ "${1:-}" != demo ] || [ -f $venv/installed-dev ] || set=demo
stamp=$venv/installed-$set

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

# The environment contains absolute paths, so its location matters too.
fingerprint() {
    "$1" -c 'import glob, hashlib, os; print(hashlib.sha256(
        b"".join(open(name, "rb").read() for name in ("pyproject.toml", "setup.py",
        *sorted(glob.glob("format/lsm_fragment/native/**/*.p[yx][xd]", recursive=True)),
        "deploy/lock/build.lock", "deploy/lock/dev.lock", "deploy/lock/demo.lock")) + os.getcwd().encode()).hexdigest())'
}

make_venv() {
    if "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        "$1" -m venv --clear "$venv"
    elif "$1" -m pip --version >/dev/null 2>&1 && "$1" -m venv --clear --without-pip "$venv"; then
        # Debian moves ensurepip to python3-venv; the system's pip can install itself too.
        "$1" -m pip --quiet --python "$venv/bin/python" install pip ||
            fail "$1 could not install pip into $venv; try: apt-get install python3-venv"
    else
        fail "$1 cannot make environments: its venv module is incomplete and pip is missing.
  Debian, Ubuntu:  apt-get install python3-venv"
    fi
}

# compiles COMMAND: tests for a C compiler that finds Python's headers. COMMAND may be several words.
compiles() {
    printf '#include <Python.h>\n' >"$venv/probe.c"
    # shellcheck disable=SC2086
    $1 -I"$headers" -c "$venv/probe.c" -o "$venv/probe.o" >/dev/null 2>&1
    found=$?
    rm -f "$venv/probe.c" "$venv/probe.o"
    return $found
}

install_by_apt() {
    packages="gcc libc6-dev"
    [ -f "$headers/Python.h" ] || packages="$packages $(basename "$headers")-dev"
    say "the modules in format/lsm_fragment/native need a C compiler and Python's headers; installing $packages by apt"
    apt-get update -qq || say "apt-get update failed"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages >/dev/null ||
        say "apt could not install $packages"
}

# Sets CC if the compiler that built Python does not work.
find_compiler() {
    headers=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    compiler=${CC:-$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}
    compiles "$compiler" && return
    [ -z "${CC:-}" ] || fail "CC is $CC, which does not compile a module for $python; unset it to have one chosen"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install_by_apt
        for CC in "$compiler" gcc; do
            if compiles "$CC"; then
                export CC
                return
            fi
        done
    fi
    [ -f "$headers/Python.h" ] || fail "the headers of $python are missing: $headers/Python.h
  Debian, Ubuntu:  sudo apt-get install python3-dev
  Fedora:          sudo dnf install python3-devel
  elsewhere:       make setup PYTHON=/path/to/another/python3.11"
    say "no C compiler; installing one into $venv (ziglang, 100 MB)"
    install --require-hashes -r deploy/lock/compiler.lock
    CC="$PWD/$venv/bin/python -m ziglang cc"
    compiles "$CC" || fail "$CC does not compile a module for $python; install gcc or clang"
    export CC
}

if is_new_enough "$venv/bin/python" && [ -f "$stamp" ] &&
    [ "$(cat "$stamp")" = "$(fingerprint "$venv/bin/python")" ]; then
    exit 0
fi

python=$(find_python)
say "making $venv with $("$python" --version) and installing the project, one to three minutes"
make_venv "$python"
install() {
    # --no-deps: the locks are complete. --no-build-isolation: build with the packages of build.lock.
    # Warnings are about setuptools itself.
    PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONWARNINGS=ignore \
        "$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation "$@" ||
        fail "pip could not install $*; its message is above.
  A package index that lacks a version, or has other files of it: make lock takes those that it has."
}
install --require-hashes -r deploy/lock/build.lock
install --require-hashes -r "deploy/lock/$set.lock"
find_compiler
install --editable .
rm -f $venv/installed-*
fingerprint "$venv/bin/python" >"$stamp"
say "ready: $venv/bin/compactor"
