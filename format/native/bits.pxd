"""What other modules take of the packing by bits."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef uint8_t* pack_words(uint8_t* entries, uint8_t* out, uint64_t* words, int64_t count) noexcept nogil
