// Tiles of attention on tensor cores: rows of a head in registers as left operands, rows in shared memory as right ones.

__device__ __forceinline__ uint32 two_values(const bf16* from) { return *reinterpret_cast<const uint32*>(from); }
__device__ __forceinline__ uint32 two_values(const float* from) { return pack(from[0], from[1]); }
__device__ __forceinline__ void put_two(bf16* to, float first, float second) {
    *reinterpret_cast<uint32*>(to) = pack(first, second);
}
__device__ __forceinline__ void put_two(float* to, float first, float second) {
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
}

// Values that are stored as f32 are rounded on their way into shared memory.
__device__ __forceinline__ void copy_chunk(uint32 to, const float* from, bool there) {
    float values[8] = {};
    if (there) load<8>(from, values);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pack(values[0], values[1])), "r"(pack(values[2], values[3])),
                 "r"(pack(values[4], values[5])), "r"(pack(values[6], values[7]))
                 : "memory");
}

// Sixteen rows of a head as left operands. `rows` begins at this thread's upper row; rows that are not there are zeros.
template <typename T>
__device__ __forceinline__ void load_left(uint32 (&to)[DEPTH][4], const T* rows, int stride, bool upper, bool lower) {
    const int column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        to[d][0] = upper ? two_values(rows + 16 * d + column) : 0;
        to[d][1] = lower ? two_values(rows + 8 * (uint64)stride + 16 * d + column) : 0;
        to[d][2] = upper ? two_values(rows + 16 * d + 8 + column) : 0;
        to[d][3] = lower ? two_values(rows + 8 * (uint64)stride + 16 * d + 8 + column) : 0;
    }
}

// Brings a tile of keys and values into shared memory, for all pairs of the block.
template <int THREADS>
__device__ __forceinline__ void load_keys(uint32 to, const bf16* k, const bf16* v, const int* padding, uint32 first_pair, uint32 pair_count,
                                          int first_key) {
#pragma unroll 2
    for (int i = threadIdx.x; i < PAIRS * KEY_TILE * CHUNKS; i += THREADS) {
        const int chunk = i % CHUNKS, row = i / CHUNKS % KEY_TILE, local = i / CHUNKS / KEY_TILE, key = first_key + row;
        const uint32 pair = min(first_pair + local, pair_count - 1);
        const bool there = key_counts(padding, pair, key, visible_keys(padding, pair));
        const uint64 token = there ? key : 0;
        const uint32 place = to + (2 * local * KEY_TILE + row) * ROW_BYTES + 16 * chunk;
        copy_chunk(place, head_of(k, pair, KEYS, K_STRIDE) + token * K_STRIDE + 8 * chunk, there);
        copy_chunk(place + KEY_TILE * ROW_BYTES, head_of(v, pair, KEYS, V_STRIDE) + token * V_STRIDE + 8 * chunk, there);
    }
}

// Where this lane's row begins for products along the head (`tile` is a matrix of rows by depth): sixteen rows, two chunks.
__device__ __forceinline__ uint32 along_head(uint32 tile) {
    const int lane = threadIdx.x % 32;
    return tile + (lane / 16 * 8 + lane % 8) * ROW_BYTES + lane / 8 % 2 * 16;
}
// The same for products along the rows.
__device__ __forceinline__ uint32 along_rows(uint32 tile) {
    const int lane = threadIdx.x % 32;
    return tile + (lane % 16) * ROW_BYTES + lane / 16 * 16;
}

// products += left * tile^T, for the sixteen rows at `address`, which is of `along_head`.
__device__ __forceinline__ void multiply_rows(float (&products)[2][4], const uint32 (&left)[DEPTH][4], uint32 address) {
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        uint32 right[4];
        load_matrices(right, address + 32 * d);
        multiply_add(products[0], left[d], right[0], right[1]);
        multiply_add(products[1], left[d], right[2], right[3]);
    }
}

// sums += weights * tile, for the sixteen rows at `address`, which is of `along_rows`.
__device__ __forceinline__ void add_rows(float (&sums)[CHUNKS][4], const float (&weights)[2][4], uint32 address) {
    const uint32 left[4] = {pack(weights[0][0], weights[0][1]), pack(weights[0][2], weights[0][3]),
                            pack(weights[1][0], weights[1][1]), pack(weights[1][2], weights[1][3])};
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        uint32 right[4];
        load_transposed(right, address + 32 * d);
        multiply_add(sums[2 * d], left, right[0], right[1]);
        multiply_add(sums[2 * d + 1], left, right[2], right[3]);
    }
}

// Writes sixteen rows of sums, each with its factor. `rows` begins at this thread's upper row.
template <typename T>
__device__ __forceinline__ void store_rows(T* rows, int stride, const float (&sums)[CHUNKS][4], bool upper, bool lower, float upper_factor,
                                           float lower_factor) {
    const int column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        if (upper) put_two(rows + 8 * chunk + column, sums[chunk][0] * upper_factor, sums[chunk][1] * upper_factor);
        if (lower)
            put_two(rows + 8 * (uint64)stride + 8 * chunk + column, sums[chunk][2] * lower_factor, sums[chunk][3] * lower_factor);
    }
}

// Sums and maxima over the four lanes that hold a row of a result.
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

#if DROPOUT
// Which of this thread's four weights of sixteen queries (rows) and eight keys are kept, a bit a weight. The random numbers of sixteen
// queries of a key lie in at most three blocks of eight: each lane makes one block of one key.
__device__ __forceinline__ uint32 kept_of_query_rows(uint64 stream, uint32 pair, int first_query, int first_key) {
    const int lane = threadIdx.x % 32, group = lane / 4;
    const uint32 made = kept_bits(stream, pair, (uint32)(column_of(first_query, first_key + lane % 8) / 8) + lane / 8);
    uint32 kept = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int key = 2 * (lane % 4) + i;
        const int place = (int)(column_of(first_query, first_key + key) % 8) + group;
        const uint32 upper = __shfl_sync(0xffffffffu, made, key + 8 * (place / 8));
        const uint32 lower = __shfl_sync(0xffffffffu, made, key + 8 * (place / 8 + 1));
        kept |= (upper >> (place % 8) & 1) << i | (lower >> (place % 8) & 1) << (2 + i);
    }
    return kept;
}

// The same for sixteen keys (rows) and eight queries: a key's random numbers lie in two blocks.
__device__ __forceinline__ uint32 kept_of_key_rows(uint64 stream, uint32 pair, int first_key, int first_query) {
    const int lane = threadIdx.x % 32, group = lane / 4;
    const uint32 made = kept_bits(stream, pair, (uint32)(column_of(first_query, first_key + lane / 2) / 8) + lane % 2);
    uint32 kept = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int key = group + 8 * i;
        const uint32 low = __shfl_sync(0xffffffffu, made, 2 * key), high = __shfl_sync(0xffffffffu, made, 2 * key + 1);
        const int place = (int)(column_of(first_query, first_key + key) % 8) + 2 * (lane % 4);
        kept |= ((low | high << 8) >> place & 3) << (2 * i);
    }
    return kept;
}
#endif
