// The gradient of a table: rows of dy added to the rows of the table that they came from. A block has ROWS rows of the table, PIECE
// of their columns, and CHUNK of the numbers, which it goes through in order, so that sums are always the same. A number out of range
// is noted in `fault` (the smallest position wins).

#define THREADS 256
#define WARPS (THREADS / 32)
// Numbers that a warp looks through before what it found is added.
#define SCANNED 512
// Rows of dy that are loaded at once.
#define TOGETHER 8

extern "C" __global__ void __launch_bounds__(THREADS) embedding_gradient(const FROM* dy, const int* numbers, float* to, int* fault,
                                                                        const int NUMBERS, const int CHUNK) {
    // Position behind the start, and row: of the numbers that are ours, in order.
    __shared__ int found[WARPS][SCANNED];
    __shared__ int counts[WARPS];
    __shared__ float sums[ROWS * PIECE];
    int first_row = blockIdx.x * ROWS, first_column = blockIdx.y * PIECE;
    int begin = blockIdx.z * CHUNK, end = min(NUMBERS, begin + CHUNK);
    int columns = min(PIECE, COLUMNS - first_column);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < ROWS * PIECE; i += THREADS) sums[i] = 0.0f;
    __syncthreads();
    for (int start = begin; start < end; start += WARPS * SCANNED) {
        int count = 0;
        for (int i = lane; i < SCANNED; i += 32) {
            int position = start + warp * SCANNED + i;
            int number = position < end ? numbers[position] : 0;
            bool valid = number >= 0 && number < LIMIT;
            if (!valid && blockIdx.x == 0 && blockIdx.y == 0) atomicMin(fault, position);
            bool ours = position < end && valid && number >= first_row && number < first_row + ROWS;
            unsigned all = __ballot_sync(0xffffffffu, ours);
            if (ours) found[warp][count + __popc(all & ((1u << lane) - 1))] = (position - start) * ROWS + number - first_row;
            count += __popc(all);
        }
        if (lane == 0) counts[warp] = count;
        __syncthreads();
        for (int column = threadIdx.x; column < columns; column += THREADS) {
            const FROM* from = dy + (uint64)start * COLUMNS + first_column + column;
            for (int part = 0; part < WARPS; part++) {
                const int* some = found[part];
                int count = counts[part], i = 0;
                for (; i + TOGETHER <= count; i += TOGETHER) {
                    float values[TOGETHER];
#pragma unroll
                    for (int j = 0; j < TOGETHER; j++) values[j] = widen(from[(uint64)(some[i + j] / ROWS) * COLUMNS]);
#pragma unroll
                    for (int j = 0; j < TOGETHER; j++) sums[some[i + j] % ROWS * PIECE + column] += values[j];
                }
                for (; i < count; i++) sums[some[i] % ROWS * PIECE + column] += widen(from[(uint64)(some[i] / ROWS) * COLUMNS]);
            }
        }
        __syncthreads();
    }
    for (int row = 0; row < ROWS && first_row + row < LIMIT; row++)
        for (int column = threadIdx.x; column < columns; column += THREADS)
            to[((uint64)blockIdx.z * LIMIT + first_row + row) * COLUMNS + first_column + column] = sums[row * PIECE + column];
}

// Adds the sums of all chunks, in order.
extern "C" __global__ void __launch_bounds__(THREADS) add_chunks(const float* chunks, float* to, const int CHUNKS) {
    uint64 at = (uint64)blockIdx.x * THREADS + threadIdx.x, values = (uint64)LIMIT * COLUMNS;
    if (at >= values) return;
    float sum = 0.0f;
    for (int chunk = 0; chunk < CHUNKS; chunk++) sum += chunks[chunk * values + at];
    to[at] = sum;
}
