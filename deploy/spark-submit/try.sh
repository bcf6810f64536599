#!/usr/bin/env bash
# Tries submit.sh on this machine in half a minute: starts an S3 server (moto), ingests files into a table, compacts it by
# submit.sh, and verifies it. Nothing leaves the machine or stays on it.
#
#   try.sh [spark-submit options]        --master local[2] by default
#
# PYTHON: an interpreter with the project and its test dependencies, by default of the checkout's environment.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$here/checks.sh"
[ $# -gt 0 ] || set -- --master 'local[2]'
[[ $1 == -* ]] || fail "$1 is no option of spark-submit; usage: try.sh [spark-submit options]"
need_python "$python" compactor pyspark pyarrow moto flask
need_java

work=$(mktemp -d)
server=
stop() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
unset AWS_PROFILE AWS_SESSION_TOKEN
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_DEFAULT_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 PYTHON=$python
"$python" -m moto.server -H 127.0.0.1 -p "$port" >"$work/server.log" 2>&1 &
server=$!
unreachable() {
    cat "$work/server.log" >&2
    echo "try.sh: error: the S3 server on port $port did not come up; what it said is above" >&2
    exit 1
}
"$python" - <<'PY' || unreachable
import boto3, botocore.config
# Retry while the server starts.
config = botocore.config.Config(retries={"total_max_attempts": 12, "mode": "standard"}, connect_timeout=5)
boto3.client("s3", config=config).create_bucket(Bucket="try")
PY
# Another process may have taken the port meanwhile and answered.
kill -0 "$server" 2>/dev/null || unreachable

table=s3://try/logs
cd "$work"
for writer in 1 2 3 4; do
    for ((i = writer; i <= 10000; i += 4)); do
        printf '{"service": "service-%d", "line": %d, "message": "of writer %d"}\n' $((i % 7)) "$i" "$writer"
    done >"writer-$writer.ndjson"
done
compactor() { "$python" -m compactor.cli.main "$@"; }
for file in writer-*.ndjson; do compactor ingest "$table" "$file" --sort-by service,line; done
"$here/submit.sh" "$@" -- compact "$table" --strategy full --json >report.json
"$python" - <<'PY'
import json
report = json.load(open("report.json"))
print(f"compacted by spark-submit: {report['input_fragments']} fragments into {report['output_fragments']}, "
      f"{report['rows_out']:,} rows, {report['gets']} GETs")
assert report["gets"] == report["input_fragments"] == 4 and report["rows_out"] == 10_000, report
PY
compactor verify "$table"
