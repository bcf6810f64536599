# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Turns floats into integers: by their order, or as decimals of few digits (SPEC section 5)."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from lsm_fragment.native.gil cimport let_go, take_back
from lsm_fragment.native.words cimport MAX_FRACTION_DIGITS, power_of_ten

ctypedef fused pattern:
    uint16_t
    uint32_t
    uint64_t

cdef extern from *:
    """
    static const double ROUNDER = 6755399441055744.0;  /* 1.5 * 2^52: what is added to it loses its fraction */
    static const double MAX_ROUNDED = 1125899906842624.0;  /* 2^50 */
    #define STRETCH 64

    /* Multiplies the first values, a multiple of STRETCH, all of which are quotients of integers. Returns how many. */
    FOR_EACH_LEVEL static int64_t multiply_stretches(const double* values, int64_t rows, double power, int64_t* out) {
        union { double value; uint64_t bits; } back, given;
        double rounded[STRETCH];
        int64_t row = 0;
        for (; row + STRETCH <= rows; row += STRETCH) {
            uint64_t others = 0;
            for (int64_t at = 0; at < STRETCH; at++) {
                double scaled = values[row + at] * power;
                given.value = values[row + at];
                rounded[at] = (scaled + ROUNDER) - ROUNDER;
                back.value = rounded[at] / power;
                others |= back.bits ^ given.bits;
                others |= !(scaled > -MAX_ROUNDED) | !(scaled < MAX_ROUNDED);
            }
            if (others)
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
    """Sets the integer whose quotient by the power equals the value to the bit. Returns whether there is one."""
    cdef double scaled = value * power, back
    if not -MAX_ROUNDED < scaled < MAX_ROUNDED:  # NaN too
        return False
    integer[0] = <int64_t>((scaled + ROUNDER) - ROUNDER)
    back = <double>integer[0] / power
    return memcmp(&back, &value, 8) == 0


def find_digits(const double[::1] values, int64_t max_others):
    """Returns the fewest digits after the point that all values have but `max_others`; -1 if there are none."""
    cdef int digits
    cdef int64_t row, others, integer
    state = let_go(values.shape[0])
    for digits in range(MAX_FRACTION_DIGITS + 1):
        others = 0
        for row in range(values.shape[0]):
            others += not to_integer(values[row], power_of_ten(digits), &integer)
            if others > max_others:
                break
        if others <= max_others:
            break
    take_back(state)
    return digits if others <= max_others else -1


def to_integers(const double[::1] values, int digits, int64_t[::1] out, uint32_t[::1] others):
    """Multiplies values to integers; those that are none take the integer before them.

    Returns how many are none; `others` gets their rows. Returns -1 if there are more than it has room for.
    """
    cdef int64_t row, done, start = 0, integer = 0, last = 0, count = 0, most = others.shape[0]
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
                elif count == most:
                    count = -1
                    break
                else:
                    others[count] = <uint32_t>row
                    count += 1
                out[row] = last
            start += STRETCH
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
