"""How values become the bytes of a chunk, and back (SPEC section 5).

A chunk's payload is a tree of **nodes** (`node`): each has an encoding, its buffers and its children. An
encoding is a file of its own, named as the SPEC names it: it says what a node may state (`SHAPE`), which
types it fits, how it encodes and how it decodes what it distrusts. `registry` lists them. `choice` picks
one for an array by what a sample tells (`samples`); encodings below another are handed to it as functions,
so that no file imports the choice. `coding` makes a chunk of an array and an array of a chunk; `fitting`
stores in another way what readers would refuse. `reading` walks the nodes of a chunk, and `allowance`
bounds the memory that a hostile one may take. `template_decoder` decodes templates only as far as a query
needs them.
"""
