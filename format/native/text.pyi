import pyarrow as pa

def is_text(
    offsets: pa.Buffer, is_large: bool, data: pa.Buffer, validity: pa.Buffer | None
) -> bool: ...
