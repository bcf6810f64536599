"""Customers of two systems that are the same, found by rules and merged; a rerun writes what changed.

python entity_merge.py        leaves crm.ndjson, shop.ndjson, customers.yaml and ./customers
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from compactor import Table

SPEC = """\
datasets: [crm c, shop s]
equality:
  # The same mail address, however it is written; or the same telephone number, by its digits alone.
  - [eq, [lower, c.email], [lower, [trim, s.mail]]]
  - [eq, [digits, c.phone], [digits, s.tel]]
"""
CRM: list[dict[str, Any]] = [
    {"_id": "c1", "name": "Ada Berger", "email": "ada@example.org", "phone": "+43 1 555 01 01"},
    {"_id": "c2", "name": "Ben Huber", "email": "ben@example.org"},
    {"_id": "c3", "name": "Cleo Maier", "phone": "+43 1 555 03 03"},
]
SHOP: list[dict[str, Any]] = [
    {"_id": "s1", "mail": " Ada@Example.org ", "city": "Wien"},
    {"_id": "s2", "tel": "+43-1-555-0303", "city": "Graz"},
    {"_id": "s3", "tel": "(43) 1 5550303", "city": "Linz"},
    {"_id": "s4", "mail": "dov@example.org", "city": "Wels"},
]


def write(name: str, entities: list[dict[str, Any]]) -> None:
    Path(f"{name}.ndjson").write_text("".join(json.dumps(entity) + "\n" for entity in entities))


def merge() -> None:
    """The first line says what was written; then all that the table has."""
    command = ["entity-merge", "customers.yaml", "--output", "customers", "--ndjson", "-"]
    subprocess.run([sys.executable, "-m", "compactor", *command], check=True)


def main() -> None:
    Path("customers.yaml").write_text(SPEC)
    write("crm", CRM)
    write("shop", SHOP)
    print("Four people, of seven entries:", flush=True)
    merge()

    # Ben's address becomes known to be Dov's too: two that were apart are one now. What they were before
    # comes out as tombstones, for whoever follows the table.
    write("shop", [*SHOP[:3], {**SHOP[3], "mail": "ben@example.org"}])
    print("\nAfter a change of one entry:", flush=True)
    merge()

    print("\nNothing changed, nothing written:", flush=True)
    merge()
    customers = Table.open("customers")
    live = [row for row in customers.scan(["_id", "$ids"]).to_table().to_pylist() if row["$ids"]]
    print(f"\ncustomers is at version {customers.version}, with {len(live)} rows of people")


if __name__ == "__main__":
    main()
