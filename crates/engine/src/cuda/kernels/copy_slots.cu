// Copies rows between slots of caches, in place: a block has one row of one cache, and some of its columns, of all copies. All of
// them are held in shared memory before one is written, so that every copy reads its source as it was.
// A copy is x: the target slot, y: the source slot, z: its number of rows. Rows are copied in units of UNIT.

extern "C" __global__ void __launch_bounds__(256)
copy_slots(const uint64* caches, const int4* copies, uint32 count, uint32 row_units, uint32 capacity, uint32 chunk) {
    extern __shared__ uint4 memory[];
    UNIT* held = reinterpret_cast<UNIT*>(memory);
    UNIT* cache = reinterpret_cast<UNIT*>(caches[blockIdx.z]);
    const uint32 row = blockIdx.x, first = blockIdx.y * chunk;
    const uint32 units = row_units - first < chunk ? row_units - first : chunk;
    for (uint32 i = threadIdx.x; i < count * units; i += 256) {
        const int4 copy = copies[i / units];
        if (row < (uint32)copy.z) held[i] = cache[((uint64)copy.y * capacity + row) * row_units + first + i % units];
    }
    __syncthreads();
    for (uint32 i = threadIdx.x; i < count * units; i += 256) {
        const int4 copy = copies[i / units];
        if (row < (uint32)copy.z) cache[((uint64)copy.x * capacity + row) * row_units + first + i % units] = held[i];
    }
}
