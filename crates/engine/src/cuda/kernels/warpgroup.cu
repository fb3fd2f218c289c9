// Hopper's tensor cores: four warps (a warpgroup) multiply together, asynchronously, with operands in shared memory.

// The descriptor of an operand: rows of 128 bytes, whose chunks of 16 are swizzled by eight rows. If columns are contiguous and span
// several rows, the stride between groups of 64 is `beside` bytes.
__device__ __forceinline__ uint64 operand(uint32 address, int beside) {
    return (uint64)((address & 0x3ffff) >> 4) | ((uint64)(beside >> 4) << 16) | (64ull << 32) | (1ull << 62);
}

// Orders earlier register writes before the following products: see `pin`.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Commits a group of products.
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most this many groups are in flight.
template <int STILL_UNDER_WAY> __device__ __forceinline__ void products_ended() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(STILL_UNDER_WAY) : "memory");
}
// Emits nothing, but tells the compiler that these registers are read and written here: inputs of products are computed before it, and
// results used after it.
template <int COUNT> __device__ __forceinline__ void pin(float (&registers)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int COUNT> __device__ __forceinline__ void pin(uint32 (&registers)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(registers[i])::"memory");
}
