// Adds the products of a piece of two rows of W with eight rows of X: sums of whole numbers times X, then scaled; offsets are multiplied with the
// sums of X, which are those with a row of ones.
__device__ __forceinline__ void multiply(float (&sums)[4], uint32 upper0, uint32 lower0, uint32 upper1, uint32 lower1, uint32 x0, uint32 x1);

__device__ __forceinline__ void scaled_products(float (&sums)[4], const QuantisedSpan (&rows)[2], int piece, const uint32 (&upper)[4],
                                                const uint32 (&lower)[4], const uint4& x) {
    float part[4] = {};
    auto add = [&](int half) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] += rows[i / 2].scale(piece, half) * part[i];
    };
    multiply(part, upper[0], lower[0], upper[1], lower[1], x.x, x.y);
    if (HALVES) {
        add(0);
#pragma unroll
        for (int i = 0; i < 4; i++) part[i] = 0.0f;
    }
    multiply(part, upper[2], lower[2], upper[3], lower[3], x.z, x.w);
    add(1);
    if (OFFSETS) {
        const uint32 ones = 0x3f803f80u;
        float totals[4] = {};
        multiply(totals, ones, ones, ones, ones, x.x, x.y);
        multiply(totals, ones, ones, ones, ones, x.z, x.w);
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] += rows[i / 2].offset(piece) * totals[i];
    }
}
