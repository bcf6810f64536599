"""How values become the bytes of a chunk, and back (SPEC section 5).

A chunk's payload is a tree of **nodes** (`node`): each has an encoding, its buffers and its children. Each
encoding has its own file, named as in the SPEC: which node fields it uses (`SHAPE`), which types it fits,
how it encodes, and how it decodes untrusted nodes. `registry` lists the encodings. `choice` picks one for an
array from a sample (`samples`); an encoding receives the encoders of its children as functions, so that no
file imports `choice`. `coding` converts an array to a chunk and back; `fitting` re-encodes what would exceed
the readers' limits. `reading` walks the nodes of a chunk, and `allowance` bounds the memory that a hostile
chunk may take. `template_decoder` decodes templates only as far as a query needs them.
"""
