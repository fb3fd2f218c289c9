// Hopper's tensor cores: four warps multiply together, and operands are read from shared memory while the warps go on.

// How tensor cores find an operand: rows of 128 bytes, whose chunks of 16 change places by eight rows. Where columns lie beside each other and do
// not end with a row, it is `beside` bytes from 64 of them to the next.
__device__ __forceinline__ uint64 operand(uint32 address, int beside) {
    return (uint64)((address & 0x3ffff) >> 4) | ((uint64)(beside >> 4) << 16) | (64ull << 32) | (1ull << 62);
}

// What was written to registers before is there for the products that follow: see `pin`.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group of products.
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all groups but the last so many have ended.
template <int STILL_UNDER_WAY> __device__ __forceinline__ void products_ended() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(STILL_UNDER_WAY) : "memory");
}
// Nothing: but for the compiler these registers are read and written here. What products begin with is not computed behind this, and what they
// end with is not used before.
template <int COUNT> __device__ __forceinline__ void pin(float (&registers)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int COUNT> __device__ __forceinline__ void pin(uint32 (&registers)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(registers[i])::"memory");
}
