#!/bin/sh
# Makes the lock files anew from pyproject.toml: versions and hashes of what the image installs.
# Needs uv (pip install uv). Says nothing and changes nothing but the two files.
set -eu

cd "$(dirname "$0")/../.."
lock() {
    uv pip compile --quiet --generate-hashes --python-version 3.11 --no-emit-index-url --no-emit-find-links \
        --custom-compile-command deploy/docker/lock.sh "$@"
}

lock --extra spark --output-file deploy/docker/requirements.lock pyproject.toml
lock --output-file deploy/docker/build.lock deploy/docker/build.in
