# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Turns floats into integers: by their order, or as decimals of few digits (SPEC section 5)."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from format.native.words cimport MOST_FRACTION_DIGITS, power_of_ten

ctypedef fused pattern:
    uint16_t
    uint32_t
    uint64_t

cdef double ROUNDER = 6755399441055744.0  # 1.5 * 2^52: what is added to it loses its fraction
cdef double MOST_ROUNDED = 1125899906842624.0  # 2^50


cdef inline bint to_integer(double value, double power, int64_t* integer) noexcept nogil:
    """Sets the integer whose quotient by the power equals the value to the bit. Returns whether there is one."""
    cdef double scaled = value * power, back
    if not -MOST_ROUNDED < scaled < MOST_ROUNDED:  # NaN too
        return False
    integer[0] = <int64_t>((scaled + ROUNDER) - ROUNDER)
    back = <double>integer[0] / power
    return memcmp(&back, &value, 8) == 0


def find_digits(const double[::1] values, int64_t most_others):
    """Returns the fewest digits after the point that all values have but `most_others`; -1 if there are none."""
    cdef int digits
    cdef int64_t row, others, integer
    with nogil:
        for digits in range(MOST_FRACTION_DIGITS + 1):
            others = 0
            for row in range(values.shape[0]):
                others += not to_integer(values[row], power_of_ten(digits), &integer)
                if others > most_others:
                    break
            if others <= most_others:
                break
    return digits if others <= most_others else -1


def to_integers(const double[::1] values, int digits, int64_t[::1] out, uint32_t[::1] others):
    """Multiplies values to integers; those that are none take the integer before them.

    Returns how many are none; `others` gets their rows. Returns -1 if there are more than it has room for.
    """
    cdef int64_t row, integer = 0, last = 0, count = 0, most = others.shape[0]
    cdef double power = power_of_ten(digits)
    with nogil:
        for row in range(values.shape[0]):
            if to_integer(values[row], power, &integer):
                last = integer
            elif count == most:
                count = -1
                break
            else:
                others[count] = <uint32_t>row
                count += 1
            out[row] = last
    return count


def order(const pattern[::1] patterns, pattern[::1] out):
    """Maps patterns of floats to signed integers in the order of the floats; and such integers to patterns.

    All bits but the sign are inverted where the sign is set. `out` may be `patterns`.
    """
    cdef int64_t row
    cdef pattern sign
    cdef pattern others = <pattern>(<pattern>-1 >> 1)
    with nogil:
        for row in range(patterns.shape[0]):
            sign = patterns[row] >> (8 * sizeof(pattern) - 1)
            out[row] = patterns[row] ^ (<pattern>(0 - sign) & others)
