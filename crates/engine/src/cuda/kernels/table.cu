// Rows by number, a block a row. A number out of range is noted in `fault` (the smallest position wins) and leaves its row alone.

extern "C" __global__ void __launch_bounds__(128) embedding(const FROM* table, const int* numbers, TO* to, int* fault) {
    wait_for_previous();
    let_next_start();
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
