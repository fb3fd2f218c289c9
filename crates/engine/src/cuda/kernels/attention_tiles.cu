// Attention tiles on tensor cores: rows of a head in registers as left operands, rows in shared memory as right ones.

__device__ __forceinline__ uint32 two_values(const bf16* from) { return *reinterpret_cast<const uint32*>(from); }
__device__ __forceinline__ uint32 two_values(const float* from) { return pack(from[0], from[1]); }
__device__ __forceinline__ void put_two(bf16* to, float first, float second) {
    *reinterpret_cast<uint32*>(to) = pack(first, second);
}
__device__ __forceinline__ void put_two(float* to, float first, float second) {
    *reinterpret_cast<float2*>(to) = make_float2(first, second);
}

// f32 values are rounded on their way into shared memory.
__device__ __forceinline__ void copy_chunk(uint32 to, const float* from, bool there) {
    float values[8] = {};
    if (there) load<8>(from, values);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pack(values[0], values[1])), "r"(pack(values[2], values[3])),
                 "r"(pack(values[4], values[5])), "r"(pack(values[6], values[7]))
                 : "memory");
}

// Sixteen rows of a head as left operands. `rows` begins at this thread's upper row; missing rows are zeros.
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

// Loads rows `first ..` of a head into shared memory, ROWS of them, with zeros where `there` is false. `thread` of THREADS does its part.
template <int ROWS, int THREADS, typename T, typename There>
__device__ __forceinline__ void copy_rows(uint32 to, const T* head, int stride, int first, int thread, There there) {
    if constexpr (THREADS % CHUNKS == 0) {
        // A thread stays in its column, so that all its addresses are a fixed distance apart.
        constexpr int STEP = THREADS / CHUNKS;
        const int start = thread / CHUNKS, chunk = thread % CHUNKS;
        const T* from = head + (uint64)(first + start) * stride + 8 * chunk;
#pragma unroll 8
        for (int i = 0; i < (ROWS + STEP - 1) / STEP; i++) {
            const int row = start + i * STEP;
            if (ROWS % STEP == 0 || row < ROWS)
                copy_chunk(chunk_at(to, row, chunk), from + (uint64)i * STEP * stride, there(first + row));
        }
    } else {
#pragma unroll 4
        for (int i = thread; i < ROWS * CHUNKS; i += THREADS) {
            const int row = i / CHUNKS, chunk = i % CHUNKS;
            copy_chunk(chunk_at(to, row, chunk), head + (uint64)(first + row) * stride + 8 * chunk, there(first + row));
        }
    }
}

// The address of this lane's row for products along the head (`tile` is a matrix of rows by depth): sixteen rows, two chunks.
__device__ __forceinline__ uint32 along_head(uint32 tile) {
    const int lane = threadIdx.x % 32;
    return chunk_at(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
// The same for products along the rows, and for rows that become left operands.
__device__ __forceinline__ uint32 along_rows(uint32 tile) {
    const int lane = threadIdx.x % 32;
    return chunk_at(tile, lane % 16, lane / 16);
}

// Sixteen rows of a head as left operands, from shared memory: `address` is from `along_rows`.
__device__ __forceinline__ void take_left(uint32 (&to)[DEPTH][4], uint32 address) {
#pragma unroll
    for (int d = 0; d < DEPTH; d++) load_matrices(to[d], further(address, d));
}

// products += left * tile^T, for the sixteen rows that begin `bytes` behind `address`, which is of `along_head`.
__device__ __forceinline__ void multiply_rows(float (&products)[2][4], const uint32 (&left)[DEPTH][4], uint32 address, int bytes) {
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        uint32 right[4];
        load_matrices(right, further(address, d) + bytes);
        multiply_add(products[0], left[d], right[0], right[1]);
        multiply_add(products[1], left[d], right[2], right[3]);
    }
}

// Sixteen by sixteen values of a result as a left operand.
__device__ __forceinline__ void as_left(uint32 (&left)[4], const float (&values)[2][4]) {
    left[0] = pack(values[0][0], values[0][1]), left[1] = pack(values[0][2], values[0][3]);
    left[2] = pack(values[1][0], values[1][1]), left[3] = pack(values[1][2], values[1][3]);
}

// sums += weights * tile, for the sixteen rows that begin `bytes` behind `address`, which is of `along_rows`, and the columns from
// 16 * `first_step`.
template <int COUNT>
__device__ __forceinline__ void add_rows(float (&sums)[COUNT][4], const uint32 (&weights)[4], uint32 address, int bytes, int first_step = 0) {
#pragma unroll
    for (int d = 0; d < COUNT / 2; d++) {
        uint32 right[4];
        load_transposed(right, further(address, first_step + d) + bytes);
        multiply_add(sums[2 * d], weights, right[0], right[1]);
        multiply_add(sums[2 * d + 1], weights, right[2], right[3]);
    }
}

// Transposes among four adjacent lanes: lane i's word j becomes lane j's word i.
__device__ __forceinline__ void exchange(uint32 (&words)[4]) {
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32 got = __shfl_xor_sync(0xffffffffu, odd ? words[i] : words[i + 1], 1);
        words[i] = odd ? got : words[i], words[i + 1] = odd ? words[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32 got = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i + 2], 2);
        words[i] = upper ? got : words[i], words[i + 2] = upper ? words[i + 2] : got;
    }
}

// Writes a row of sums with its factor: the upper (0) or the lower (1) one of this thread, which begins at `to`. All lanes of a warp must
// call this, `there` or not.
template <int COUNT>
__device__ __forceinline__ void store_row(bf16* to, const float (&sums)[COUNT][4], int which, bool there, float factor) {
    if constexpr (COUNT % 4 == 0) {
        // Four lanes hold two columns of each chunk; they exchange them for whole chunks, which are written at once.
#pragma unroll
        for (int first = 0; first < COUNT; first += 4) {
            uint32 words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) words[i] = pack(sums[first + i][2 * which] * factor, sums[first + i][2 * which + 1] * factor);
            exchange(words);
            if (there)
                *reinterpret_cast<uint4*>(to + 8 * (first + threadIdx.x % 4)) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    } else {
#pragma unroll
        for (int n = 0; n < COUNT; n++)
            if (there) put_two(to + 8 * n + 2 * (threadIdx.x % 4), sums[n][2 * which] * factor, sums[n][2 * which + 1] * factor);
    }
}
template <int COUNT>
__device__ __forceinline__ void store_row(float* to, const float (&sums)[COUNT][4], int which, bool there, float factor) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        if (there) put_two(to + 8 * n + 2 * (threadIdx.x % 4), sums[n][2 * which] * factor, sums[n][2 * which + 1] * factor);
}

// Writes sixteen rows of sums, each with its factor. `rows` begins at this thread's upper row.
template <typename T, int COUNT>
__device__ __forceinline__ void store_rows(T* rows, int stride, const float (&sums)[COUNT][4], bool upper, bool lower, float upper_factor,
                                           float lower_factor) {
    store_row(rows, sums, 0, upper, upper_factor);
    store_row(rows + 8 * (uint64)stride, sums, 1, lower, lower_factor);
}

template <int COUNT> __device__ __forceinline__ void clear(float (&sums)[COUNT][4]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0.0f;
}

// Sums and maxima over the four lanes of a row of a result.
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

#if DROPOUT
// Which weights of a key are kept for the sixteen queries from `first_query` (a multiple of 16), one bit per query. The key is that of the
// lane's couple of lanes. The random numbers of sixteen queries are in two blocks of eight, or in three, where keys do not begin with a
// block: each lane of a couple makes one of the first two.
__device__ __forceinline__ uint32 kept_window(uint64 stream, uint32 pair, int first_query, int key) {
    const int half = threadIdx.x % 2;
    const uint64 column = column_of(first_query, key);
    const uint32 block = (uint32)(column / 8);
    uint32 kept = kept_bits(stream, pair, block + half) << (8 * half);
    kept |= __shfl_xor_sync(0xffffffffu, kept, 1);
    if (QUERIES % 8 != 0) kept = (kept | kept_bits(stream, pair, block + 2) << 16) >> (column % 8);
    return kept;
}

// The same for consecutive tiles of queries: the third block is the first one of the next tile, and is passed on in `next`.
__device__ __forceinline__ uint32 kept_window_in_turn(uint64 stream, uint32 pair, int first_query, int key, uint32& next) {
    if (QUERIES % 8 == 0) return kept_window(stream, pair, first_query, key);
    const int half = threadIdx.x % 2;
    const uint64 column = column_of(first_query, key);
    uint32 kept = kept_bits(stream, pair, (uint32)(column / 8) + 1 + half) << (8 + 8 * half);
    kept |= __shfl_xor_sync(0xffffffffu, kept, 1);
    const uint32 window = (kept | next) >> (column % 8);
    next = kept >> 16;
    return window;
}

// Which of this thread's weights of sixteen queries (rows) and sixteen keys are kept: for its keys 2 pair, 2 pair + 1, and eight further,
// bit 0 for its upper row, bit 8 for its lower one.
__device__ __forceinline__ void kept_of_query_rows(uint32 (&kept)[4], uint64 stream, uint32 pair, int first_query, int first_key) {
    const int lane = threadIdx.x % 32;
    const uint32 window = kept_window(stream, pair, first_query, first_key + lane / 2);
#pragma unroll
    for (int i = 0; i < 4; i++) kept[i] = __shfl_sync(0xffffffffu, window, 2 * (i / 2 * 8 + 2 * (lane % 4) + i % 2)) >> (lane / 4);
}
__device__ __forceinline__ bool is_kept(const uint32 (&kept)[4], int half, int i) { return kept[2 * half + i % 2] & (i / 2 ? 0x100 : 1); }

// Which of this thread's weights of sixteen keys (rows) and sixteen queries are kept, one bit per weight, four to eight queries.
__device__ __forceinline__ uint32 kept_of_key_rows(uint32 window) {
    const int lane = threadIdx.x % 32;
    uint32 kept = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32 of_key = __shfl_sync(0xffffffffu, window, 2 * (lane / 4 + 8 * i)) >> (2 * (lane % 4));
        kept |= (of_key & 3) << (2 * i) | (of_key >> 8 & 3) << (4 + 2 * i);
    }
    return kept;
}
#endif
