// Rows by number, a block a row. A number out of range is noted in `fault` (the smallest position wins) and leaves its row alone.

extern "C" __global__ void __launch_bounds__(128) embedding(const FROM* table, const int* numbers, TO* to, int* fault) {
    uint64 position = blockIdx.x;
    int number = numbers[position];
    if (number < 0 || number >= LIMIT) {
        if (threadIdx.x == 0) atomicMin(fault, (int)position);
        return;
    }
    for (int column = threadIdx.x * VECTOR; column < COLUMNS; column += 128 * VECTOR) {
        float values[VECTOR];
        load<VECTOR>(table + (uint64)number * COLUMNS + column, values);
        store<VECTOR>(to + position * COLUMNS + column, values);
    }
}

// The block owns a row of the table's gradient and goes through all numbers in order, so that sums are always the same.
extern "C" __global__ void __launch_bounds__(128) embedding_gradient(const FROM* dy, const int* numbers, TO* to, int* fault,
                                                                           const int NUMBERS) {
    __shared__ int some[128];
    int row = blockIdx.x;
    for (int first_column = 0; first_column < COLUMNS; first_column += 128) {
        int column = first_column + threadIdx.x;
        float sum = 0.0f;
        for (int first = 0; first < NUMBERS; first += 128) {
            int position = first + threadIdx.x;
            int number = position < NUMBERS ? numbers[position] : -1;
            if (row == 0 && first_column == 0 && position < NUMBERS && (number < 0 || number >= LIMIT)) atomicMin(fault, position);
            some[threadIdx.x] = number;
            if (__syncthreads_or(number == row) && column < COLUMNS) {
                for (int i = 0; i < 128; i++)
                    if (some[i] == row) sum += widen(dy[(uint64)(first + i) * COLUMNS + column]);
            }
            __syncthreads();
        }
        if (column < COLUMNS) put(to + (uint64)row * COLUMNS + column, sum);
    }
}

// Row `blockIdx.x` of all slots' new rows goes to its slot's offset.
extern "C" __global__ void __launch_bounds__(128) write_rows(const FROM* rows, const int* offsets, TO* cache, int* fault) {
    int slot = blockIdx.x / ROWS_PER_SLOT, row = blockIdx.x % ROWS_PER_SLOT;
    int offset = offsets[slot];
    if (offset < 0 || offset > LIMIT - ROWS_PER_SLOT) {
        if (threadIdx.x == 0) atomicMin(fault, slot);
        return;
    }
    for (int column = threadIdx.x * VECTOR; column < COLUMNS; column += 128 * VECTOR) {
        float values[VECTOR];
        load<VECTOR>(rows + (uint64)blockIdx.x * COLUMNS + column, values);
        store<VECTOR>(cache + ((uint64)slot * LIMIT + offset + row) * COLUMNS + column, values);
    }
}
