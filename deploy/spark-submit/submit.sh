#!/usr/bin/env bash
# Runs a compactor command by spark-submit.
#
#   submit.sh [spark-submit options] -- compact s3://bucket/table --full --json
#
# Packs the two packages of this checkout for the executors. Their Python needs the dependencies of
# pyproject.toml (an image has them; elsewhere ship an environment by --archives).
# PYTHON: the interpreter of driver and executors; the checkout's environment by default.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$here/checks.sh"
python=${PYTHON:-}
if [ -z "$python" ]; then
    python=$root/.venv/bin/python
    [ -x "$python" ] || python=python3
fi

options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
[ $# -gt 1 ] || fail "usage: submit.sh [spark-submit options] -- compactor arguments"
shift
need_python "$python" pyspark pyarrow
need_java

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" - "$root" "$work/compactor.zip" <<'PY'
import pathlib, sys, zipfile
root, target = pathlib.Path(sys.argv[1]), sys.argv[2]
with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
    for package in ("compactor", "format"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".md", ".typed", ".properties"):
                archive.write(path, path.relative_to(root))
PY

spark_home=$("$python" -c 'import pyspark; print(pyspark.__path__[0])')
export SPARK_HOME=${SPARK_HOME:-$spark_home}
export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$python}
export PYSPARK_DRIVER_PYTHON=${PYSPARK_DRIVER_PYTHON:-$python}
"$SPARK_HOME/bin/spark-submit" "${options[@]}" --py-files "$work/compactor.zip" \
    "$here/compactor_job.py" "$@"
