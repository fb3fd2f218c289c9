// Products by four warps together, sixteen rows each, on Hopper: tensor cores read tiles from shared memory themselves. The chunks of a tile's rows
// of 128 bytes change places as `chunk_at` says, which is an order that tensor cores know.

static_assert(ROW_BYTES == 128 && HEAD_DIM == 64, "other rows would need another order");

// What threads have copied is there for tensor cores, once all have said so and met.
__device__ __forceinline__ void copies_become_operands() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// scores = left * tile^T, for the first COUNT times sixteen rows.
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

// out += weights * tile, for the first COUNT times sixteen rows. To wait for it here and not with the next tile's scores is faster: there are other
// warps that have something to do.
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
