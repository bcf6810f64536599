"""Finds the same customers in two systems by rules, and merges them; a rerun writes only changes.

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
version: 2
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


def merge(*options: str) -> None:
    """Merges, and prints the figures of the run and the rows of the table."""
    command = ["entity-merge", "customers.yaml", "--output", "customers", "--ndjson", "-"]
    subprocess.run([sys.executable, "-m", "compactor", *command, *options], check=True)


def main() -> None:
    Path("customers.yaml").write_text(SPEC)
    write("crm", CRM)
    write("shop", SHOP)
    print("Four people, of seven entries:", flush=True)
    merge()

    # Dov turns out to have Ben's address, so two customers become one. Their old ids become tombstones, for
    # readers that follow the table. That ends two of four, and more than a fifth has to be allowed.
    write("shop", [*SHOP[:3], {**SHOP[3], "mail": "ben@example.org"}])
    print("\nAfter a change of one entry:", flush=True)
    merge("--allow-changes")

    print("\nNothing changed, nothing written:", flush=True)
    merge()
    customers = Table.open("customers")
    live = [row for row in customers.scan(["_id", "$ids"]).to_table().to_pylist() if row["$ids"]]
    print(f"\ncustomers is at version {customers.version}, with {len(live)} rows of people")


if __name__ == "__main__":
    main()
