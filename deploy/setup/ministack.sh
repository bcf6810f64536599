#!/bin/sh
# Puts ministack, an S3 server that is not moto, into .venv/ministack by pip, apart from the project's packages: it
# names versions of its own. Without it the contract of stores is tested on one S3 server.
set -eu

cd "$(dirname "$0")/../.."
version=1.5.33
target=.venv/ministack

say() { printf 'setup: %s\n' "$*"; }

if [ -d "$target/ministack-$version.dist-info" ]; then
    exit 0
fi
rm -rf "$target"
if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --target "$target" \
    "ministack==$version" >/dev/null 2>&1; then
    rm -rf "$target"
    say "pip could not install ministack $version: its tests are left out"
    exit 0
fi
say "ready: $target/bin/ministack"
