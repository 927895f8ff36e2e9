// The numbers of F(4, 7) (kernels.h), worked out by the compiler. Static, so that files compiled
// for one instruction set may use it.
#pragma once

#include "kernels.h"

namespace qt {

// Pairs of points +-p. Of all sets of small fractions these lose least: the result is off by 2.6
// times as much as a direct sum in floats, which is 115 dB below it. (Whole numbers and halves, as
// textbooks have them, lose 5 times as much.)
static constexpr double kWinogradPoints[kWinogradPairs] = {0.4, 0.8, 1.25, 2.5};

// Coefficients of a product of (z - q^2): the constant one first, the leading one is 1.
struct WinogradPolynomial {
    double of[kWinogradPairs + 1] = {};
};

// Over all pairs but `left_out` (-1: over all).
static consteval WinogradPolynomial winograd_product(int left_out) {
    WinogradPolynomial p;
    p.of[0] = 1;
    int degree = 0;
    for (int k = 0; k < kWinogradPairs; ++k) {
        if (k == left_out) continue;
        const double square = kWinogradPoints[k] * kWinogradPoints[k];
        ++degree;
        for (int i = degree; i >= 0; --i)
            p.of[i] = (i > 0 ? p.of[i - 1] : 0) - (i < degree ? square * p.of[i] : 0);
    }
    return p;
}

static constexpr WinogradPolynomial kWinogradProducts[kWinogradPairs + 1] = {
    winograd_product(0), winograd_product(1), winograd_product(2), winograd_product(3),
    winograd_product(-1)};
static_assert(kWinogradPairs == 4);

}  // namespace qt
