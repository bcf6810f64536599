# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Converts floats to integers: by order, or as decimals with few digits (SPEC section 5)."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.words cimport MAX_FRACTION_DIGITS, power_of_ten

ctypedef fused pattern:
    uint16_t
    uint32_t
    uint64_t

cdef extern from *:
    """
    static const double ROUNDER = 6755399441055744.0;  /* 1.5 * 2^52: adding it rounds to an integer */
    static const double MAX_ROUNDED = 1125899906842624.0;  /* 2^50 */
    #define STRETCH 64

    /* Multiplies leading stretches of STRETCH values as long as all of a stretch are exact. Returns the values done. */
    FOR_EACH_LEVEL static int64_t multiply_stretches(const double* values, int64_t rows, double power, int64_t* out) {
        union { double value; uint64_t bits; } back, given;
        double rounded[STRETCH];
        int64_t row = 0;
        for (; row + STRETCH <= rows; row += STRETCH) {
            uint64_t inexact = 0;
            for (int64_t at = 0; at < STRETCH; at++) {
                double scaled = values[row + at] * power;
                given.value = values[row + at];
                rounded[at] = (scaled + ROUNDER) - ROUNDER;
                back.value = rounded[at] / power;
                inexact |= back.bits ^ given.bits;
                inexact |= !(scaled > -MAX_ROUNDED) | !(scaled < MAX_ROUNDED);
            }
            if (inexact)
                break;
            for (int64_t at = 0; at < STRETCH; at++)
                out[row + at] = (int64_t)rounded[at];
        }
        return row;
    }
    """
    const double ROUNDER
    const double MAX_ROUNDED
    enum: STRETCH
    int64_t multiply_stretches(const double* values, int64_t rows, double power, int64_t* out) noexcept nogil


cdef inline bint to_integer(double value, double power, int64_t* integer) noexcept nogil:
    """Sets the integer that, divided by the power, gives the value to the bit. Returns whether there is one."""
    cdef double scaled = value * power, back
    if not -MAX_ROUNDED < scaled < MAX_ROUNDED:  # NaN too
        return False
    integer[0] = <int64_t>((scaled + ROUNDER) - ROUNDER)
    back = <double>integer[0] / power
    return memcmp(&back, &value, 8) == 0


def find_digits(const double[::1] values, int64_t max_exceptions):
    """Returns the fewest fraction digits that fit all values but `max_exceptions`; -1 if none do."""
    cdef int digits
    cdef int64_t row, exceptions, integer
    state = release_gil(values.shape[0])
    for digits in range(MAX_FRACTION_DIGITS + 1):
        exceptions = 0
        for row in range(values.shape[0]):
            exceptions += not to_integer(values[row], power_of_ten(digits), &integer)
            if exceptions > max_exceptions:
                break
        if exceptions <= max_exceptions:
            break
    restore_gil(state)
    return digits if exceptions <= max_exceptions else -1


def to_integers(const double[::1] values, int digits, int64_t[::1] out, uint32_t[::1] exceptions):
    """Multiplies values to integers; exceptions get the integer before them.

    exceptions: receives their rows. Returns the number of exceptions; -1 if they exceed its length.
    """
    cdef int64_t row, done, start = 0, integer = 0, last = 0, count = 0, max_count = exceptions.shape[0]
    cdef double power = power_of_ten(digits)
    with nogil:
        while start < values.shape[0] and count >= 0:
            done = multiply_stretches(&values[start], values.shape[0] - start, power, &out[start])
            start += done
            if done:
                last = out[start - 1]
            for row in range(start, min(start + STRETCH, values.shape[0])):
                if to_integer(values[row], power, &integer):
                    last = integer
                elif count == max_count:
                    count = -1
                    break
                else:
                    exceptions[count] = <uint32_t>row
                    count += 1
                out[row] = last
            start += STRETCH
    return count


def order(const pattern[::1] patterns, pattern[::1] out):
    """Maps bit patterns of floats to signed integers of the same order, and such integers back to patterns.

    Inverts all bits but the sign where the sign is set. `out` may be `patterns`.
    """
    cdef int64_t row
    cdef pattern sign
    cdef pattern all_but_sign = <pattern>(<pattern>-1 >> 1)
    with nogil:
        for row in range(patterns.shape[0]):
            sign = patterns[row] >> (8 * sizeof(pattern) - 1)
            out[row] = patterns[row] ^ (<pattern>(0 - sign) & all_but_sign)
