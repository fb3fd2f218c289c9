// Y = steps(X W') for few rows of X, as in decoding: limited by reading W, which goes straight into the tensor cores' registers.
//
// A block computes 16 columns of Y, which are rows of W, for all rows of X. Its warps share the depth in spans of 128 values and add their
// sums at the end, always in the same order. To the tensor cores the rows of W are the left operand and those of X the right one. Which
// product of a sum they compute first is of no importance, so a thread's values are adjacent ones: eight of each 32 (a piece).
//
// W is bf16, or quantised (QUANTISED: see quantised.cu). Then the tensor cores multiply whole numbers, which are exact in bf16, and the sums
// of a piece are scaled.
//
// Several matrices that are multiplied with the same X are parts of one launch, each with blocks of its own (PART_PARAMETERS, pick_part).
//
// Two matrices whose results have the same columns, such as a gate and what it is multiplied with, are phases: a block computes one
// after the other, with steps of its own each, and the second's may read the first's result.
//
// If NORM, X is normalised first (RMSNorm, with its weight `gamma`), by every block for itself.
//
// Constants: ROWS (of X), DEPTH (a multiple of 32), WARPS, SAMPLE_TILES (of eight rows of X), X_TYPE, X_SHARED (bytes from one row
// of X to the next in shared memory; 0: X is read where it is), TO, VECTOR (divides the columns of all parts), FIXED (whether W does not change, so that it may
// be read before the previous kernel has ended).

constexpr int TILE = 16;
constexpr int PIECE = 32;
constexpr int PIECES = DEPTH / PIECE;
constexpr int SPAN = 4; // pieces
constexpr int SPANS = (PIECES + SPAN - 1) / SPAN;
constexpr int SAMPLES = 8 * SAMPLE_TILES;

__device__ __forceinline__ uint4 read_once(const void* from) {
    uint4 words;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "l"(from));
    return words;
}

__device__ __forceinline__ void multiply(float (&sums)[4], uint32 upper0, uint32 lower0, uint32 upper1, uint32 lower1, uint32 x0, uint32 x1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(upper0), "r"(lower0), "r"(upper1), "r"(lower1), "r"(x0), "r"(x1));
}

// What a block has: a matrix of `columns` rows and its result, for each phase, and the first of the block's columns.
struct Part {
    const WEIGHT_TYPE* weight[PHASES];
    TO* to[PHASES];
    int columns, first;

    // The rows of the matrix that a thread has of a tile: one, and the eighth after it. Behind the last row it is the last.
    __device__ __forceinline__ int row_of(int which) const {
        const int row = first + threadIdx.x % 32 / 4 + 8 * which;
        return row < columns ? row : columns - 1;
    }
};

__device__ __forceinline__ Part pick_part(int block PART_PARAMETERS) {
    PICK_PART
}

#if QUANTISED
typedef QuantisedSpan Span;
__device__ __forceinline__ void read_span(Span (&spans)[2], const Part& part, int phase, int span) {
#pragma unroll
    for (int which = 0; which < 2; which++) spans[which].read(part.weight[phase], part.row_of(which), span, threadIdx.x % 4);
}
#else
struct Span { uint4 pieces[SPAN]; };
__device__ __forceinline__ void read_span(Span (&spans)[2], const Part& part, int phase, int span) {
#pragma unroll
    for (int which = 0; which < 2; which++)
#pragma unroll
        for (int piece = 0; piece < SPAN; piece++)
            if (PIECES % SPAN == 0 || span * SPAN + piece < PIECES)
                spans[which].pieces[piece] = read_once(part.weight[phase] + (uint64)part.row_of(which) * DEPTH + (span * SPAN + piece) * PIECE + threadIdx.x % 4 * 8);
}
#endif

__device__ __forceinline__ uint32 pair_of(float low, float high) {
    uint32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
// Four adjacent values of X as bf16.
__device__ __forceinline__ uint2 four_of(const bf16* from) { return *reinterpret_cast<const uint2*>(from); }
__device__ __forceinline__ uint2 four_of(const float* from) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    return make_uint2(pair_of(four.x, four.y), pair_of(four.z, four.w));
}
// A thread's eight values of a piece: adjacent ones or, where each half of a piece has a scale of its own, four of each half.
template <class T> __device__ __forceinline__ uint4 eight_of(const T* piece) {
    const int thread = threadIdx.x % 4;
#if QUANTISED && HALVES
    const uint2 first = four_of(piece + 4 * thread), second = four_of(piece + 16 + 4 * thread);
#else
    const uint2 first = four_of(piece + 8 * thread), second = four_of(piece + 8 * thread + 4);
#endif
    return make_uint4(first.x, first.y, second.x, second.y);
}

// Puts X into shared memory, as bf16.
#if X_SHARED
#if NORM
// Every thread keeps its values from the sum of squares to their use.
__device__ __forceinline__ void stage(const float* x, const float* gamma, unsigned char* staged) {
    constexpr int EACH = (DEPTH + 32 * WARPS * 4 - 1) / (32 * WARPS * 4);
    __shared__ float squares_of_warps[ROWS][WARPS];
    float values[ROWS][EACH][4];
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int place = (i * 32 * WARPS + threadIdx.x) * 4;
            if (DEPTH % (32 * WARPS * 4) != 0 && place >= DEPTH) break;
            load<4>(x + (uint64)row * DEPTH + place, values[row][i]);
#pragma unroll
            for (int k = 0; k < 4; k++) squares += values[row][i][k] * values[row][i][k];
        }
        squares = warp_sum(squares);
        if (threadIdx.x % 32 == 0) squares_of_warps[row][threadIdx.x / 32] = squares;
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        float squares = 0.0f;
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) squares += squares_of_warps[row][warp];
        const float inverse = 1.0f / sqrtf(squares / (float)DEPTH + EPS);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int place = (i * 32 * WARPS + threadIdx.x) * 4;
            if (DEPTH % (32 * WARPS * 4) != 0 && place >= DEPTH) break;
            float factors[4];
            load<4>(gamma + place, factors);
#pragma unroll
            for (int k = 0; k < 4; k++) factors[k] *= values[row][i][k] * inverse;
            *reinterpret_cast<uint2*>(staged + row * X_SHARED + place * 2) = make_uint2(pair_of(factors[0], factors[1]), pair_of(factors[2], factors[3]));
        }
    }
}
#else
__device__ __forceinline__ void stage(const X_TYPE* x, const float*, unsigned char* staged) {
    constexpr int UNITS = ROWS * DEPTH / 8, AT_ONCE = 8;
    for (int first = threadIdx.x; first < UNITS; first += 32 * WARPS * AT_ONCE) {
        uint2 loaded[AT_ONCE][2];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int unit = first + i * 32 * WARPS;
            if (unit < UNITS) loaded[i][0] = four_of(x + unit * 8), loaded[i][1] = four_of(x + unit * 8 + 4);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int unit = first + i * 32 * WARPS, place = unit * 8;
            if (unit < UNITS)
                *reinterpret_cast<uint4*>(staged + place / DEPTH * X_SHARED + place % DEPTH * 2) =
                    make_uint4(loaded[i][0].x, loaded[i][0].y, loaded[i][1].x, loaded[i][1].y);
        }
    }
}
#endif
#endif

// Adds up a warp's products with its spans. The first one is there.
__device__ __forceinline__ void sum_products(float (&sums)[SAMPLE_TILES][4], Span (&current)[2], const Part& own, int phase, const X_TYPE* x,
                                             const unsigned char* staged) {
    const int group = threadIdx.x % 32 / 4;
    for (int span = threadIdx.x / 32; span < SPANS; span += WARPS) {
        Span next[2];
        if (span + WARPS < SPANS) read_span(next, own, phase, span + WARPS);
#pragma unroll
        for (int part = 0; part < SPAN; part++) {
            const int piece = span * SPAN + part;
            if (PIECES % SPAN != 0 && piece >= PIECES) break;
#if QUANTISED
            uint32 upper[4], lower[4];
            current[0].unpack(part, upper);
            current[1].unpack(part, lower);
#else
            const uint4 above = current[0].pieces[part], below = current[1].pieces[part];
            const uint32 upper[4] = {above.x, above.y, above.z, above.w}, lower[4] = {below.x, below.y, below.z, below.w};
#endif
#pragma unroll
            for (int tile = 0; tile < SAMPLE_TILES; tile++) {
                const int row = tile * 8 + group;
                uint4 values = make_uint4(0, 0, 0, 0);
#if X_SHARED
                if (row < ROWS) values = eight_of(reinterpret_cast<const bf16*>(staged + row * X_SHARED) + piece * PIECE);
#else
                if (row < ROWS) values = eight_of(x + (uint64)row * DEPTH + piece * PIECE);
#endif
#if QUANTISED
                scaled_products(sums[tile], current, part, upper, lower, values);
#else
                multiply(sums[tile], upper[0], lower[0], upper[1], lower[1], values.x, values.y);
                multiply(sums[tile], upper[2], lower[2], upper[3], lower[3], values.z, values.w);
#endif
            }
        }
#pragma unroll
        for (int which = 0; which < 2; which++) current[which] = next[which];
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
few_rows(const X_TYPE* x, const float* gamma, const Run* run PART_PARAMETERS PHASE_PARAMETERS) {
    extern __shared__ __align__(16) unsigned char memory[];
    float* parts = reinterpret_cast<float*>(memory);
    unsigned char* staged = memory + WARPS * TILE * SAMPLES * 4;
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4;
    const Part own = pick_part(blockIdx.x PART_ARGUMENTS);
    Span current[2];
    if (FIXED && warp < SPANS) read_span(current, own, 0, warp);
    wait_for_previous();
    let_next_start();
    if (!FIXED && warp < SPANS) read_span(current, own, 0, warp);
#if X_SHARED
    stage(x, gamma, staged);
    __syncthreads();
#endif
#pragma unroll
    for (int phase = 0; phase < PHASES; phase++) {
        float sums[SAMPLE_TILES][4] = {};
        sum_products(sums, current, own, phase, x, staged);
        if (phase + 1 < PHASES && warp < SPANS) read_span(current, own, phase + 1, warp);
        // The sums of the phase before were read.
        if (phase > 0) __syncthreads();
        // A thread's sums are of two rows of W and two of X. In shared memory they are ordered as Y is.
#pragma unroll
        for (int tile = 0; tile < SAMPLE_TILES; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                parts[(warp * SAMPLES + tile * 8 + threadIdx.x % 4 * 2 + i % 2) * TILE + group + i / 2 * 8] = sums[tile][i];
        __syncthreads();
        // A thread has the same columns in every phase.
        for (int place = threadIdx.x * VECTOR; place < ROWS * TILE; place += 32 * WARPS * VECTOR) {
            const int row = place / TILE, column = own.first + place % TILE;
            if (column >= own.columns) continue;
            float values[VECTOR] = {};
#pragma unroll
            for (int other = 0; other < WARPS; other++)
#pragma unroll
                for (int i = 0; i < VECTOR; i++) values[i] += parts[other * SAMPLES * TILE + place + i];
            APPLY_STEPS
            store<VECTOR>(own.to[phase] + (uint64)row * own.columns + column, values);
        }
    }
}
