#!/usr/bin/env bash
# Runs a compactor command by spark-submit.
#
#   submit.sh [spark-submit options] -- compact s3://bucket/table --strategy full --json
#
# PYTHON: interpreter of driver and executors, by default of the checkout's environment. The package must be installed,
# because compiled modules cannot be imported from a zip: use an image, or ship an environment by --archives and name
# its interpreter in PYSPARK_PYTHON (docs/how-to/spark.md).
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
need_python "$python" compactor pyspark pyarrow
need_java

spark_home=$("$python" -c 'import pyspark; print(pyspark.__path__[0])')
export SPARK_HOME=${SPARK_HOME:-$spark_home}
export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$python}
export PYSPARK_DRIVER_PYTHON=${PYSPARK_DRIVER_PYTHON:-$python}
exec "$SPARK_HOME/bin/spark-submit" "${options[@]}" "$here/compactor_job.py" "$@"
