# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Numbers the distinct strings of several dictionaries."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from lsm_fragment.native.nulls cimport require
from lsm_fragment.native.words cimport hash_of, offset

cdef uint8_t NOTHING = 0  # address of empty data: memcpy and memcmp must not get NULL


cdef class StringTable:
    """Distinct strings, numbered in the order of insertion."""

    cdef int64_t max_count
    cdef int64_t max_bytes
    cdef int64_t slots
    cdef uint64_t* table  # a slot holds the upper half of the hash and number + 1; half of the slots stay free
    cdef int64_t* ends
    cdef uint8_t* data
    cdef readonly int64_t count

    def __cinit__(self, int64_t max_count, int64_t max_bytes):
        """max_count, max_bytes: capacity in strings, and in bytes of them."""
        require(0 < max_count < 1 << 31 and max_bytes > 0, "its size")
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.slots = 2
        while self.slots < 2 * max_count:
            self.slots *= 2
        self.table = <uint64_t*>calloc(self.slots, sizeof(uint64_t))
        self.ends = <int64_t*>malloc((max_count + 1) * sizeof(int64_t))
        self.data = <uint8_t*>malloc(max_bytes)
        if self.table == NULL or self.ends == NULL or self.data == NULL:
            raise MemoryError(f"no memory for a table of {max_count} strings")
        self.ends[0] = 0

    def __dealloc__(self):
        free(self.table)
        free(self.ends)
        free(self.data)

    @property
    def held_bytes(self):
        """The memory of the table."""
        return self.slots * sizeof(uint64_t) + (self.max_count + 1) * sizeof(int64_t) + self.max_bytes

    def number(self, const offset[::1] offsets, const uint8_t[::1] data, int32_t[::1] numbers):
        """Numbers each string, adding new ones. Returns False if the capacity is exhausted.

        offsets: of the strings in `data`, checked by the caller.
        """
        cdef int64_t place
        cdef int32_t number = 0
        cdef const uint8_t* base = &data[0] if data.shape[0] else &NOTHING
        require(offsets.shape[0] == numbers.shape[0] + 1, "its numbers")
        with nogil:
            for place in range(numbers.shape[0]):
                number = self.number_of(base + offsets[place], offsets[place + 1] - offsets[place])
                if number < 0:
                    break
                numbers[place] = number
        return number >= 0

    cdef int32_t number_of(self, const uint8_t* value, int64_t length) noexcept nogil:
        cdef uint64_t hashed = hash_of(value, length), mask = self.slots - 1
        cdef uint64_t slot = hashed & mask, entry
        cdef int64_t known, start
        while True:
            entry = self.table[slot]
            if entry == 0:
                break
            if (entry ^ hashed) >> 32 == 0:
                known = <int64_t>(entry & 0xFFFFFFFFULL) - 1
                start = self.ends[known]
                if self.ends[known + 1] - start == length and memcmp(self.data + start, value, length) == 0:
                    return <int32_t>known
            slot = (slot + 1) & mask
        start = self.ends[self.count]
        if self.count == self.max_count or length > self.max_bytes - start:
            return -1
        memcpy(self.data + start, value, length)
        self.count += 1
        self.ends[self.count] = start + length
        self.table[slot] = (hashed & 0xFFFFFFFF00000000ULL) | <uint64_t>self.count
        return <int32_t>(self.count - 1)
