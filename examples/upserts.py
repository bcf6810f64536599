"""Upserts: the newest row of a key wins, tombstones delete, late rows lose.

python upserts.py        leaves ./accounts and ./sales
"""

from __future__ import annotations

import pyarrow as pa

from compactor import (
    IngestOptions,
    Policy,
    RowFunction,
    RowKind,
    RowPolicy,
    Strategy,
    Table,
)


def accounts(*rows: tuple[int, int, str | None, str | None, bool]) -> pa.Table:
    """Returns change events as a database would send them: key, change number, columns, deletion flag."""
    columns = zip(*rows, strict=True)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("change", pa.int64()),
            ("mail", pa.string()),
            ("plan", pa.string()),
            ("deleted", pa.bool_()),
        ]
    )
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def show(table: Table) -> None:
    for row in table.scan(["id", "mail", "plan"]).to_table().to_pylist():
        print(f"  {row['id']}: {row['mail']}, {row['plan']}")


def main() -> None:
    # The key is the sort schema. `change` decides which row of a key is newest, regardless of arrival; a row
    # with `deleted` true removes older rows of its key.
    newest = RowPolicy(RowKind.LAST, sequence="change", delete_marker="deleted")
    table = Table.create(
        "accounts",
        accounts(
            (1, 10, "ada@example.org", "free", False),
            (2, 11, "ben@example.org", "free", False),
            (3, 12, "cleo@example.org", "team", False),
        ),
        "id",
        IngestOptions(rows=newest),
    )
    table.append(
        accounts(
            (1, 20, "ada@example.org", "team", False),  # upgraded
            (2, 21, None, None, True),  # closed
            (4, 22, "dov@example.org", "free", False),  # new
        )
    )
    # A delayed message, older than the current row, so it changes nothing.
    table.append(accounts((1, 15, "ada@old.example.org", "free", False)))
    print(f"accounts, of {len(table)} rows that were written:")
    show(table)

    # Readers see the same before and after. Superseded rows are removed from storage, and counted.
    before = table.scan().to_table()
    dropped = table.compact(policy=Policy(strategy=Strategy.FULL)).to_json()["dropped_by_reason"]
    assert table.scan().to_table() == before
    print(f"compaction left out {dropped['superseded']} superseded rows; {len(table)} are stored")

    # Aggregates: rows of a key become one, each column by its own function.
    sums = RowPolicy(
        RowKind.AGGREGATE,
        aggregates=(
            ("sold", RowFunction.SUM),
            ("best", RowFunction.MAX),
            ("tags", RowFunction.SET),
        ),
    )
    day = pa.table(
        {
            "shop": ["Graz", "Wien", "Graz"],
            "sold": [3, 5, 4],
            "best": [19.9, 35.0, 24.5],
            "tags": [["tea"], ["tea", "mugs"], ["pots", "tea"]],
        }
    )
    sales = Table.create("sales", day, "shop", IngestOptions(rows=sums))
    sales.append(pa.table({"shop": ["Wien"], "sold": [2], "best": [12.0], "tags": [["spoons"]]}))
    print("sales, summed while they are read and merged:")
    for row in sales.scan().to_table().to_pylist():
        print(f"  {row['shop']}: {row['sold']} sold, best {row['best']}, {', '.join(row['tags'])}")


if __name__ == "__main__":
    main()
