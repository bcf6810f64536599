#!/bin/sh
# Regenerates the lock files from pyproject.toml, with versions and hashes of all packages.
#
#   dev.lock       make setup, for every Python and system that the project supports
#   build.lock     build tools for the project, and for PySpark, which is distributed as source
#   compiler.lock  a C compiler, for machines without one where apt cannot install it
#   image.lock     the container image
#   peers.lock     make peers
#   demo.lock      make demo
#
# Keeps current versions that still fit; --upgrade takes the latest. A package has the same version in all files.
set -eu

cd "$(dirname "$0")/../.."
uv=$(command -v uv) || {
    .venv/bin/python -m venv build/uv
    build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
    uv=build/uv/bin/uv
}
options=$*
lock() {
    file=$1
    shift
    # shellcheck disable=SC2086 # options are words
    "$uv" pip compile --quiet --generate-hashes --python-version 3.11 --no-emit-index-url --no-emit-find-links \
        --custom-compile-command "make lock" $options --output-file "deploy/lock/$file.lock" "$@"
}

lock dev --universal --extra dev --overrides deploy/lock/overrides.in pyproject.toml
lock build --universal --constraint deploy/lock/dev.lock deploy/lock/build.in
lock compiler --universal deploy/lock/compiler.in
lock image --python-platform linux --constraint deploy/lock/dev.lock \
    --extra s3 --extra spark --extra worker --extra pipelines --extra gcs --extra azure pyproject.toml
lock peers --universal --constraint deploy/lock/dev.lock --extra peers pyproject.toml
lock demo --universal --constraint deploy/lock/dev.lock --extra s3 pyproject.toml deploy/lock/demo.in
