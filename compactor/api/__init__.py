"""The public Python interface: tables, and rows through Arrow's stream interface.

    from compactor import Table

    table = Table.open("s3://bucket/logs")
    table.append(pa.table({...}))
    errors = table.scan(["timestamp", "message"], where="level = 'ERROR' AND service LIKE 'api%'")
    polars.DataFrame(errors)
    duckdb.sql("SELECT count(*) FROM errors")

`view` has `TableView`, a table at one version, for reading; `table` adds the methods that change it, and
`scan` has `Scan`, the rows that a view returns lazily. A `Table` stays at its version until its own next
commit or `refresh`. Each method does what the command of its name does; the command line is built on these
methods.
"""
