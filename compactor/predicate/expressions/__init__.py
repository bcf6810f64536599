"""Expressions: bound to a schema, checked by type, and evaluated with Arrow's compute functions.

binder              binds a syntax tree; functions is the table of functions by name
bound               a bound expression, and the rows that it is evaluated on
kinds               names the kinds of types that functions take
texts, numbers      the functions, by the kind of their first argument; moments has those of dates and
                    times, nested those of lists, maps and structs
comparing           compares values of different types exactly; arithmetic is `+ - * / %`
choosing            CASE and COALESCE, which evaluate each branch for its rows only
conversion, types   CAST, and the types that SQL names
"""
