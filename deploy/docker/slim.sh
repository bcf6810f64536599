#!/bin/sh
# Removes from an environment what workers do not use: tests, examples, headers, bytecode and pip.
#
#   slim.sh /opt/venv
set -eu

packages=$(echo "$1"/lib/python3.*/site-packages)
[ -d "$packages" ] || { echo "slim: error: $1 is no environment" >&2; exit 1; }

rm -rf "$packages"/pyspark/examples "$packages"/pyspark/data
rm -f "$packages"/pyspark/bin/*.cmd
# pyarrow's headers are only for building extensions; pandas and numpy ship their tests.
rm -rf "$packages"/pyarrow/include "$packages"/pyarrow/tests "$packages"/pandas/tests
find "$packages/numpy" -type d -name tests -prune -exec rm -rf {} +
find "$1" -type d -name __pycache__ -prune -exec rm -rf {} +
rm -rf "$packages"/pip "$packages"/pip-*.dist-info "$packages"/setuptools "$packages"/setuptools-*.dist-info \
    "$1"/bin/pip*
