// Copies rows of results into slots of caches: a block has one row of one copy, from one result into one cache.
// A pair is x: the result's address, y: the cache's. A copy is x: the sample, y: the slot, z: its number of rows.

extern "C" __global__ void __launch_bounds__(128)
copy_results(const ulonglong2* pairs, const int4* copies, uint32 columns, uint32 length, uint32 capacity) {
    const int4 copy = copies[blockIdx.y];
    const uint32 row = blockIdx.x;
    if (row >= (uint32)copy.z) return;
    const ulonglong2 pair = pairs[blockIdx.z];
    const FROM* from = reinterpret_cast<const FROM*>(pair.x) + ((uint64)copy.x * length + row) * columns;
    TO* to = reinterpret_cast<TO*>(pair.y) + ((uint64)copy.y * capacity + row) * columns;
    for (uint32 column = threadIdx.x * VECTOR; column < columns; column += 128 * VECTOR) {
        float values[VECTOR];
        load<VECTOR>(from + column, values);
        store<VECTOR>(to + column, values);
    }
}
