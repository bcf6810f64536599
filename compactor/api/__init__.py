"""Opens tables from Python. Rows come and go by Arrow's stream interface.

    from compactor import Table

    table = Table.open("s3://bucket/logs")
    table.append(pa.table({...}))
    errors = table.scan(["timestamp", "message"], where="level = 'ERROR' AND service LIKE 'api%'")
    polars.DataFrame(errors)
    duckdb.sql("SELECT count(*) FROM errors")

A `Table` stays at the version at which it was opened until its own next commit or `refresh`. Each method does
what the command of its name does; the command line is made of these methods.
"""
