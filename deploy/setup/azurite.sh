#!/bin/sh
# Puts Azurite, Microsoft's emulator of Azure Blob Storage, into .venv/azurite by npm. Without Node the contract of
# stores is not tested on Azure.
set -eu

cd "$(dirname "$0")/../.."
version=3.37.0
target=.venv/azurite

say() { printf 'setup: %s\n' "$*"; }

if [ -x "$target/node_modules/.bin/azurite-blob" ] || command -v azurite-blob >/dev/null; then
    exit 0
fi
if ! command -v npm >/dev/null; then
    say "no npm to get azurite by: the tests of Azure are left out"
    exit 0
fi
if ! npm install --silent --no-audit --no-fund --omit=dev --omit=optional --ignore-scripts \
    --prefix "$target" "azurite@$version" >/dev/null 2>&1; then
    rm -rf "$target"
    say "npm could not install azurite $version: the tests of Azure are left out"
    exit 0
fi
say "ready: $target/node_modules/.bin/azurite-blob"
