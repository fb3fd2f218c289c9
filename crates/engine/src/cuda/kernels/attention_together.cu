// Multiplication by a warpgroup (four warps, sixteen rows each) on Hopper: tensor cores read tiles from shared memory themselves. The
// chunks of a tile's rows of 128 bytes are swizzled by `chunk_at` in an order that tensor cores support.

static_assert(ROW_BYTES == 128 && HEAD_DIM == 64, "other rows would need another order");

// Makes the threads' copies visible to tensor cores, once all threads have called it and synchronised.
__device__ __forceinline__ void copies_become_operands() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// scores = left * tile^T, for the first COUNT groups of sixteen rows.
template <int COUNT>
__device__ __forceinline__ void multiply_tile(float (&scores)[COUNT][2][4], const uint32 (&left)[DEPTH][4], uint32 tile) {
    auto& sums = reinterpret_cast<float (&)[8 * COUNT]>(scores);
    const uint64 right = operand(tile, 16);
    products_begin();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) multiply_along_head(sums, left[d], right + 2 * d, d > 0);
    products_end();
    products_ended<0>();
    pin(sums);
}

// out += weights * tile, for the first COUNT groups of sixteen rows. Waiting here is faster than with the next tile's scores: other warps
// have work to do.
template <int COUNT>
__device__ __forceinline__ void add_tile(float (&out)[CHUNKS][4], uint32 (&weights)[COUNT][4], uint32 tile) {
    auto& sums = reinterpret_cast<float (&)[4 * CHUNKS]>(out);
    const uint64 right = operand(tile, 16);
    pin(sums);
#pragma unroll
    for (int n = 0; n < COUNT; n++) pin(weights[n]);
    products_begin();
#pragma unroll
    for (int n = 0; n < COUNT; n++) multiply_along_rows(sums, weights[n], right + n * ROW_BYTES, 1);
    products_end();
    products_ended<0>();
    pin(sums);
}
