// D = steps(A B) on Hopper's tensor cores. A is [ROWS, DEPTH]; B is stored as [COLUMNS, DEPTH] (B_IS_DEEP) or as [DEPTH, COLUMNS]; both are
// bf16.
//
// A block computes tiles of 128 x 128, one after the other. One thread loads pieces of A and B, 64 deep, as far ahead as there are STAGES;
// two warpgroups alternate between tiles: while one multiplies, the other applies the steps to the sums in its registers, so that tensor
// cores do not wait for them. The two blocks of a cluster have vertically adjacent tiles, and each loads one half of the pieces of B, which
// both need.

#define TILE 128
#define PIECE 64
#define HALF_BYTES (TILE * PIECE)
#define PIECE_BYTES (2 * HALF_BYTES)
#define STAGE_BYTES (2 * PIECE_BYTES)
#define PIECES ((DEPTH + PIECE - 1) / PIECE)
#define COLUMN_TILES ((COLUMNS + TILE - 1) / TILE)
#define TILE_PAIRS ((ROWS + 2 * TILE - 1) / (2 * TILE) * COLUMN_TILES)
#define GROUPS 2

// A tensor map (TMA descriptor) of a matrix.
struct __align__(64) Matrix { uint64 words[16]; };

// Barriers in shared memory: a phase ends after the given number of arrivals, when all expected bytes are there.
__device__ __forceinline__ void barrier_start(uint32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void barrier_wait(uint32 barrier, int phase) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(barrier),
        "r"(phase)
        : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32 barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives at the barrier of a block of the cluster. Nothing was written that other blocks read: this releases to its own block only.
// Releasing to the whole cluster would wait for all stores of the steps.
__device__ __forceinline__ void barrier_arrive(uint32 barrier, int block) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(block)
                 : "memory");
}

// Loads a piece of a matrix into shared memory, in rows of 128 bytes; outside of the matrix it is 0.
__device__ __forceinline__ void fetch(uint32 to, const Matrix& matrix, int column, int row, uint32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&matrix),
                 "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}
// The same for both blocks of the cluster (multicast): of a B with contiguous rows, or, if columns are contiguous, in groups of 32.
__device__ __forceinline__ void fetch_for_both(uint32 to, const Matrix& matrix, int column, int row, uint32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(&matrix), "r"(column), "r"(row), "r"(barrier), "h"((uint16)3)
                 : "memory");
}
__device__ __forceinline__ void fetch_deep_for_both(uint32 to, const Matrix& matrix, int column, int depth, uint32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %3, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(&matrix), "r"(depth), "r"(0), "r"(column / 32), "r"(barrier), "h"((uint16)3)
        : "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Waits until the other group hands over.
__device__ __forceinline__ void turn_wait(int group) { asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory"); }
__device__ __forceinline__ void turn_give(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(1 + group) : "memory"); }

// Swaps half of the pairs of values with the thread whose index differs in the bit OTHER. After doing so with 1 and with 2, four threads
// have transposed their pairs.
template <int OTHER> __device__ __forceinline__ void swap(float (&values)[8], bool is_upper) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i / 2 & OTHER) continue;
        float given = is_upper ? values[i] : values[i + 2 * OTHER];
        float got = __shfl_xor_sync(0xffffffffu, given, OTHER);
        if (is_upper) values[i] = got;
        else values[i + 2 * OTHER] = got;
    }
}

// The operands of the steps for eight columns of a row and of the eighth row after it.
template <bool IS_WHOLE>
__device__ __forceinline__ void read_ahead(StepOperands<8> (&operands)[2], int row, int column STEP_PARAMETERS) {
#pragma unroll
    for (int eight = 0; eight < 2; eight++)
        if (IS_WHOLE || (row + 8 * eight < ROWS && column < COLUMNS)) read_operands<8>(operands[eight], row + 8 * eight, column STEP_ARGUMENTS);
}

// Applies the steps to 64 rows of a tile and stores them. This thread's sums are of its row and the eighth after it. Operands were loaded
// for the first columns, and at the end are those of the rows below: memory latency exceeds the time of the steps.
template <bool IS_WHOLE>
__device__ __forceinline__ void finish(float (&sums)[64], StepOperands<8> (&first)[2], int row, int column, int quarter, TO* to, const Run* run STEP_PARAMETERS) {
    StepOperands<8> second[2];
#pragma unroll
    for (int part = 0; part < 4; part++) {
        StepOperands<8>(&operands)[2] = part % 2 ? second : first;
        StepOperands<8>(&ahead)[2] = part % 2 ? first : second;
        int next = part == 3 ? row + 64 : row;
        if (part < 3 || next % TILE >= 64) read_ahead<IS_WHOLE>(ahead, next, column + (part + 1) % 4 * 32 STEP_ARGUMENTS);
        float values[2][8];
#pragma unroll
        for (int eight = 0; eight < 2; eight++) {
#pragma unroll
            for (int i = 0; i < 8; i++) values[eight][i] = sums[part * 16 + i / 2 * 4 + eight * 2 + i % 2];
            if (!B_IS_DEEP) {
                // They are two adjacent values of each eight columns: four threads swap, and each has eight.
                swap<1>(values[eight], quarter & 1);
                swap<2>(values[eight], quarter & 2);
            }
            int here = row + 8 * eight, there = column + part * 32;
            if (IS_WHOLE || (here < ROWS && there < COLUMNS)) {
                apply_steps<8>(values[eight], operands[eight], here, there, run STEP_ARGUMENTS);
                store<8>(to + (uint64)here * COLUMNS + there, values[eight]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1)
product_with_steps(const __grid_constant__ Matrix a, const __grid_constant__ Matrix b, TO* to, const Run* run STEP_PARAMETERS) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) uint64 barriers[2 * STAGES];
    uint32 stages = (uint32)__cvta_generic_to_shared(memory);
    uint32 full = (uint32)__cvta_generic_to_shared(barriers), empty = full + 8 * STAGES;
    int block = blockIdx.x % 2, group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_start(full + 8 * stage, 1);
            // Both blocks write there: both must have emptied theirs.
            barrier_start(empty + 8 * stage, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_wait();
    int stage = 0;
    if (group == GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == GROUPS * 128) {
            int phase = 1;
            for (int pair = blockIdx.x / 2; pair < TILE_PAIRS; pair += gridDim.x / 2) {
                int row = (pair / COLUMN_TILES * 2 + block) * TILE, column = pair % COLUMN_TILES * TILE + block * (TILE / 2);
                for (int depth = 0; depth < PIECES * PIECE; depth += PIECE) {
                    uint32 ready = full + 8 * stage, at = stages + stage * STAGE_BYTES, half = at + PIECE_BYTES + block * HALF_BYTES;
                    barrier_wait(empty + 8 * stage, phase);
                    barrier_expect(ready, STAGE_BYTES);
                    fetch(at, a, depth, row, ready);
                    if (B_IS_DEEP) fetch_deep_for_both(half, b, column, depth, ready);
                    else fetch_for_both(half, b, column, depth, ready);
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        int thread = threadIdx.x % 128, lane = thread % 32, quarter = lane % 4, phase = 0;
        bool is_mine = group == 0;
        if (group == 1) turn_give(0);
        for (int pair = blockIdx.x / 2; pair < TILE_PAIRS; pair += gridDim.x / 2, is_mine = !is_mine) {
            if (!is_mine) {
                stage += PIECES % STAGES, phase ^= PIECES / STAGES % 2;
                if (stage >= STAGES) stage -= STAGES, phase ^= 1;
                continue;
            }
            // The next phase of a barrier can only be identified if the other group has seen the previous one.
            turn_wait(group);
            float sums[2][64];
            int before = 0;
            for (int piece = 0; piece < PIECES; piece++) {
                barrier_wait(full + 8 * stage, phase);
                uint32 at = stages + stage * STAGE_BYTES;
                uint64 upper = operand(at, 16), lower = operand(at + HALF_BYTES, 16);
                uint64 right = operand(at + PIECE_BYTES, B_IS_DEEP ? 16 : HALF_BYTES);
                products_begin();
#pragma unroll
                for (int sixteen = 0; sixteen < PIECE / 16; sixteen++) {
                    // In units of 16 bytes: 16 values of a row, or 16 rows.
                    uint64 part = right + (B_IS_DEEP ? 2 : 128) * sixteen;
                    multiply(sums[0], upper + 2 * sixteen, part, piece + sixteen > 0);
                    multiply(sums[1], lower + 2 * sixteen, part, piece + sixteen > 0);
                }
                products_end();
                // Then the previous products have finished, and their stage is empty.
                products_ended<1>();
                if (piece > 0 && thread < 2) barrier_arrive(empty + 8 * before, thread);
                before = stage;
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            if (pair + gridDim.x / 2 < TILE_PAIRS) turn_give(1 - group);
            int row = (pair / COLUMN_TILES * 2 + block) * TILE + thread / 32 * 16 + lane / 4;
            int column = pair % COLUMN_TILES * TILE + 8 * quarter;
            bool is_whole = ROWS % (2 * TILE) == 0 && COLUMNS % TILE == 0;
            if (!is_whole) is_whole = row - lane / 4 + 80 <= ROWS && column - 8 * quarter + TILE <= COLUMNS;
            StepOperands<8> operands[2];
            read_ahead<false>(operands, row, column STEP_ARGUMENTS);
            products_ended<0>();
            pin(sums[0]);
            pin(sums[1]);
            if (thread < 2) barrier_arrive(empty + 8 * before, thread);
            // Half of the sums at a time, moved to the front: registers cannot be indexed dynamically, and unrolling it all exceeds the
            // instruction cache.
#pragma unroll 1
            for (int half = 0; half < 2; half++, row += 64) {
                if (is_whole) finish<true>(sums[0], operands, row, column, quarter, to, run STEP_ARGUMENTS);
                else finish<false>(sums[0], operands, row, column, quarter, to, run STEP_ARGUMENTS);
#pragma unroll
                for (int i = 0; i < 64; i++) sums[0][i] = sums[1][i];
            }
        }
    }
    // A block must not exit while the other one still arrives at its barriers.
    __syncwarp();
    cluster_wait();
}
