"""Lists the encodings.

To add one, write its file, add its number to `node.Encoding` and its module here, and let `choice` try it;
its loops go to `lsm_fragment.native.encodings`, its bytes to SPEC section 5, an example to `tests/golden`.
"""

from __future__ import annotations

from typing import Final

from lsm_fragment.encodings import (
    constant,
    decimal,
    dictionary,
    fixed_list,
    letters,
    multiple,
    null,
    packed,
    plain,
    run_length,
    template,
    varlen,
    vocabulary,
)
from lsm_fragment.encodings import list as list_
from lsm_fragment.encodings import struct as struct_
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.encodings.reading import EncodingModule
from lsm_fragment.native.encodings.decode import declare

_ALL: Final[tuple[EncodingModule, ...]] = (
    null, plain, constant, packed, run_length, dictionary, varlen, list_, fixed_list, struct_, decimal,
    multiple, template, letters, vocabulary,
)  # fmt: skip

MODULES: Final = {int(module.ENCODING): module for module in _ALL}
LESS_THAN_TEXT: Final = frozenset(
    {template.ENCODING.name, letters.ENCODING.name, vocabulary.ENCODING.name}
)
"""Names of the encodings that hold strings in fewer bytes than their text."""
NAMES: Final = {int(encoding): encoding.name for encoding in Encoding}
NUMBERS: Final = {encoding.name: int(encoding) for encoding in Encoding}

for _module in _ALL:
    _children, _has_width, _has_param = _module.SHAPE
    declare(_module.ENCODING, -1 if _children is None else _children, _has_width, _has_param)
