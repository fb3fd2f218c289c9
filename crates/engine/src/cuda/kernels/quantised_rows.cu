// Rows of quantised weights as numbers: all of a matrix before a product of many rows (expand), or those that an embedding looks up.
//
// Constants besides those of quantised.cu: COLUMNS, TO, LIMIT (rows of the table).

__device__ __forceinline__ void write_row(const unsigned char* weight, int row, TO* to, int first, int threads) {
    for (int unit = first; unit < ROW_SPANS * 16; unit += threads) {
        const int span = unit / 16, piece = unit / 4 % 4, thread = unit % 4;
        if (span * 128 + piece * 32 >= COLUMNS) continue;
        QuantisedSpan read;
        read.read(weight, row, span, thread);
        float values[8], four[4];
        read.values(piece, values);
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < 4; i++) four[i] = values[4 * half + i];
            store<4>(to + span * 128 + piece * 32 + place_in_piece(thread, 4 * half), four);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) expand(const unsigned char* weight, TO* to) {
    wait_for_previous();
    let_next_start();
    write_row(weight, blockIdx.x, to + (uint64)blockIdx.x * COLUMNS, threadIdx.x, 128);
}

extern "C" __global__ void __launch_bounds__(128) quantised_embedding(const unsigned char* weight, const int* numbers, TO* to, int* fault) {
    wait_for_previous();
    let_next_start();
    const int number = numbers[blockIdx.x];
    if (number < 0 || number >= LIMIT) {
        if (threadIdx.x == 0) atomicMin(fault, (int)blockIdx.x);
        return;
    }
    write_row(weight, number, to + (uint64)blockIdx.x * COLUMNS, threadIdx.x, 128);
}
