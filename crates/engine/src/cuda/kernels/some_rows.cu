// Y = steps(X W') for some tens of rows of X, as in decoding many sequences: limited by reading W, as with few rows (few_rows.cu), but X is
// too large for every block to read all of it.
//
// A cluster of SPLIT blocks computes 64 columns of Y, which are rows of W, for all rows of X. Its blocks share the depth: each streams its
// chunks of W and X through a ring of STAGES places in shared memory, those of W while the previous kernel is still running. At the end each
// block adds up the sums of all for its share of the columns, always in the same order, applies the steps and stores them.
//
// To the tensor cores the rows of W are the left operand and those of X the right one. Parts and phases are those of few_rows.cu.
//
// Constants: ROWS (of X), DEPTH (a multiple of 64), SAMPLE_TILES (of eight rows of X, an even number), SPLIT (1, 2, 4 or 8), STAGES, TO,
// VECTOR (divides the columns of all parts, and 8), FIXED (whether W does not change, so that it may be read before the previous kernel has
// ended).

constexpr int TILE = 64;
constexpr int CHUNK = 64; // values, 128 bytes
constexpr int CHUNKS = DEPTH / CHUNK;
constexpr int THREADS = 128;
constexpr int SAMPLES = 8 * SAMPLE_TILES;
constexpr int STAGE_BYTES = (TILE + SAMPLES) * 128;
// From one sample's sums to the next: four off a multiple of 32, so that a warp stores them without conflicts.
constexpr int SUMS = TILE + 4;

__device__ __forceinline__ uint32 shared_address(const void* at) { return (uint32)__cvta_generic_to_shared(at); }
__device__ __forceinline__ void copy_16_bytes(uint32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups but the last STAGES - 2 have arrived.
__device__ __forceinline__ void wait_for_group() { asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory"); }
__device__ __forceinline__ void load_tiles(uint32 (&tiles)[4], uint32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void multiply(float (&sums)[4], const uint32 (&w)[4], uint32 x0, uint32 x1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x0), "r"(x1));
}
// Waits for all blocks of the cluster, and sees what they wrote.
__device__ __forceinline__ void cluster_barrier() {
#if SPLIT > 1
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}
// A number in the shared memory of a block of the cluster.
__device__ __forceinline__ float read_from(int block, const float* at) {
#if SPLIT > 1
    float value;
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];\n}"
                 : "=f"(value)
                 : "r"(shared_address(at)), "r"(block)
                 : "memory");
    return value;
#else
    return *at;
#endif
}

// What a cluster has: a matrix of `columns` rows and its result, for each phase, and the first of the cluster's columns.
struct Part {
    const bf16* weight[PHASES];
    TO* to[PHASES];
    int columns, first;
};

__device__ __forceinline__ Part pick_part(int block PART_PARAMETERS) {
    PICK_PART
}

// Where 16 bytes of a row lie in shared memory: eight rows' bytes of the same place are in different banks.
__device__ __forceinline__ uint32 place_of(int row, int unit) { return row * 128 + (unit ^ row % 8) * 16; }

// Starts to load a chunk of `count` rows of a matrix, of which those behind the last are the last.
template <int count> __device__ __forceinline__ void load_chunk(uint32 to, const bf16* matrix, int first, int rows, int chunk) {
#pragma unroll
    for (int i = 0; i < count * 8 / THREADS; i++) {
        const int unit = threadIdx.x + i * THREADS, row = unit / 8;
        const int from = first + row < rows ? first + row : rows - 1;
        copy_16_bytes(to + place_of(row, unit % 8), matrix + (uint64)from * DEPTH + chunk * CHUNK + unit % 8 * 8);
    }
}

// Adds a warp's products of a chunk: 16 rows of W with all of X.
__device__ __forceinline__ void add_products(float (&sums)[SAMPLE_TILES][4], uint32 stage) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < CHUNK / 16; k++) {
        uint32 w[4];
        load_tiles(w, stage + place_of(warp * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int tile = 0; tile < SAMPLE_TILES; tile += 2) {
            uint32 x[4];
            load_tiles(x, stage + TILE * 128 + place_of(tile * 8 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
            multiply(sums[tile], w, x[0], x[1]);
            multiply(sums[tile + 1], w, x[2], x[3]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) CLUSTER
some_rows(const bf16* x, const float*, const Run* run PART_PARAMETERS PHASE_PARAMETERS) {
    extern __shared__ __align__(128) unsigned char memory[];
    float* parts = reinterpret_cast<float*>(memory + STAGES * STAGE_BYTES);
    const uint32 ring = shared_address(memory);
    const int block = blockIdx.x % SPLIT, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Part own = pick_part(blockIdx.x / SPLIT PART_ARGUMENTS);
    const int first = CHUNKS * block / SPLIT, count = CHUNKS * (block + 1) / SPLIT - first, total = PHASES * count;
    const auto load_w = [&](int i) {
        const bf16* weight = own.weight[0];
        if (PHASES > 1 && i >= count) weight = own.weight[PHASES - 1];
        load_chunk<TILE>(ring + i % STAGES * STAGE_BYTES, weight, own.first, own.columns, first + i % count);
    };
    const auto load_x = [&](int i) {
        load_chunk<SAMPLES>(ring + i % STAGES * STAGE_BYTES + TILE * 128, x, 0, ROWS, first + i % count);
    };
    if (FIXED)
        for (int i = 0; i < STAGES - 1 && i < total; i++) load_w(i);
    wait_for_previous();
    let_next_start();
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < total) {
            if (!FIXED) load_w(i);
            load_x(i);
        }
        end_group();
    }
    int i = 0;
#pragma unroll
    for (int phase = 0; phase < PHASES; phase++) {
        float sums[SAMPLE_TILES][4] = {};
        for (int end = i + count; i < end; i++) {
            wait_for_group();
            // The chunk has arrived for all threads, and all are done with the one before, whose place is free now.
            __syncthreads();
            if (i + STAGES - 1 < total) load_w(i + STAGES - 1), load_x(i + STAGES - 1);
            end_group();
            add_products(sums, ring + i % STAGES * STAGE_BYTES);
        }
        // A thread's sums are of two rows of W and two of X. In shared memory they are ordered as Y is.
#pragma unroll
        for (int tile = 0; tile < SAMPLE_TILES; tile++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                parts[(tile * 8 + lane % 4 * 2 + k % 2) * SUMS + warp * 16 + lane / 4 + k / 2 * 8] = sums[tile][k];
        cluster_barrier();
        // A thread has the same columns in every phase.
        constexpr int SHARE = TILE / SPLIT;
        for (int place = threadIdx.x * VECTOR; place < ROWS * SHARE; place += THREADS * VECTOR) {
            const int row = place / SHARE, within = block * SHARE + place % SHARE, column = own.first + within;
            if (column >= own.columns) continue;
            float values[VECTOR] = {};
#pragma unroll
            for (int other = 0; other < SPLIT; other++)
#pragma unroll
                for (int k = 0; k < VECTOR; k++) values[k] += read_from(other, parts + row * SUMS + within + k);
            APPLY_STEPS
            store<VECTOR>(own.to[phase] + (uint64)row * own.columns + column, values);
        }
        // Until then the sums must stay, for the other blocks too.
        cluster_barrier();
    }
}
