"""A table on S3, here a local moto server; on real S3 leave out the code that starts it.

    python object_storage.py        leaves nothing; needs lsm-compactor[s3] and moto[server]

Credentials, region and endpoint come from the usual AWS settings: profiles, roles, AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import logging
import os

import numpy as np
import pyarrow as pa

from compactor import CompactionSettings, Policy, Strategy, Table

try:
    import boto3
    from moto.server import ThreadedMotoServer
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"{missing.name} is not installed: pip install 'lsm-compactor[s3]' 'moto[server]'"
    ) from None

os.environ |= {
    "AWS_ACCESS_KEY_ID": "example",
    "AWS_SECRET_ACCESS_KEY": "example",
    "AWS_DEFAULT_REGION": "eu-central-1",
}


def readings(station: str, seed: int, rows: int = 5_000) -> pa.Table:
    """Returns a day of readings of one weather station."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "station": [station] * rows,
            "second": np.sort(random.integers(0, 86_400, rows)),
            "celsius": np.round(8 + 6 * random.standard_normal(rows), 1),
        }
    )


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto logs a line per request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
    try:
        use_bucket("weather")
    finally:
        server.stop()


def use_bucket(bucket: str) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(
        Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    url = f"s3://{bucket}/readings"
    stations = ["Graz", "Innsbruck", "Linz", "Salzburg", "Wien"]
    table = Table.create(url, readings(stations[0], 0), sort_by="station,second")
    for seed, station in enumerate(stations[1:], start=1):
        table.append(readings(station, seed))

    # A commit creates one object, only if it is absent: no locks, no other service.
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="readings/")["Contents"]
    for folder in ("_log", "data"):
        keys = [item["Key"] for item in listed if item["Key"].startswith(f"readings/{folder}/")]
        print(f"{len(keys)} objects in readings/{folder}/")

    # Reads every input by exactly one GET, whatever its size.
    report = table.compact(
        policy=Policy(strategy=Strategy.FULL), settings=CompactionSettings(compression_level=3)
    ).to_json()
    print(f"{report['input_fragments']} fragments merged by {report['gets']} GETs")

    # Reads only the fragments and row groups of the sorted run that may contain such rows.
    cold = table.scan(["second", "celsius"], where="station = 'Innsbruck' AND celsius < -8")
    print(f"{cold.to_table().num_rows} cold readings in Innsbruck")

    # Any other process, laptop or Spark job needs only the address.
    print(f"{Table.open(url)!r} verified: {table.verify().faults == []}")


if __name__ == "__main__":
    main()
