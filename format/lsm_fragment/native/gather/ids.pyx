# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Numbers the distinct strings of many dictionaries."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from lsm_fragment.native.nulls cimport require
from lsm_fragment.native.words cimport hash_of, offset

cdef uint8_t NOTHING = 0  # where data without bytes begins, since memcpy and memcmp must not get NULL


cdef class StringTable:
    """Distinct strings, numbered in the order in which they came."""

    cdef int64_t most
    cdef int64_t room
    cdef int64_t slots
    cdef uint64_t* table  # a slot is the upper half of the hash and 1 + the number; half of the slots stay free
    cdef int64_t* ends
    cdef uint8_t* data
    cdef readonly int64_t count

    def __cinit__(self, int64_t most, int64_t room):
        """most: how many strings there may be. room: how many bytes they may have."""
        require(0 < most < 1 << 31 and room > 0, "its size")
        self.most = most
        self.room = room
        self.slots = 2
        while self.slots < 2 * most:
            self.slots *= 2
        self.table = <uint64_t*>calloc(self.slots, sizeof(uint64_t))
        self.ends = <int64_t*>malloc((most + 1) * sizeof(int64_t))
        self.data = <uint8_t*>malloc(room)
        if self.table == NULL or self.ends == NULL or self.data == NULL:
            raise MemoryError(f"no memory for a table of {most} strings")
        self.ends[0] = 0

    def __dealloc__(self):
        free(self.table)
        free(self.ends)
        free(self.data)

    @property
    def held_bytes(self):
        """The memory that it takes."""
        return self.slots * sizeof(uint64_t) + (self.most + 1) * sizeof(int64_t) + self.room

    def number(self, const offset[::1] offsets, const uint8_t[::1] data, int32_t[::1] numbers):
        """Gives each string its number, a new one if it is new. Returns whether there was room for all.

        offsets: where strings begin in `data`, which must have them.
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
        if self.count == self.most or length > self.room - start:
            return -1
        memcpy(self.data + start, value, length)
        self.count += 1
        self.ends[self.count] = start + length
        self.table[slot] = (hashed & 0xFFFFFFFF00000000ULL) | <uint64_t>self.count
        return <int32_t>(self.count - 1)
