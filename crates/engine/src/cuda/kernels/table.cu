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
