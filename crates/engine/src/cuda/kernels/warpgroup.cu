// Hopper's tensor cores: four warps multiply together, and operands are read from shared memory while the warps go on.

// How tensor cores find an operand: rows of 128 bytes, or of 64, whose chunks of 16 change places by eight rows. Where columns lie beside each other
// and do not end with a row, it is `beside` bytes to the next of them.
template <int LENGTH> __device__ __forceinline__ uint64 operand(uint32 address, int beside) {
    static_assert(LENGTH == 128 || LENGTH == 64, "there are other orders, which nothing uses");
    return (uint64)((address & 0x3ffff) >> 4) | ((uint64)(beside >> 4) << 16) | ((uint64)(8 * LENGTH >> 4) << 32) | (LENGTH == 128 ? 1ull : 2ull) << 62;
}

// What was written to registers before is there for the products that follow.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group of products.
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all groups but the last so many have ended.
template <int STILL_UNDER_WAY> __device__ __forceinline__ void products_ended() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(STILL_UNDER_WAY) : "memory");
}
// Nothing: but for the compiler these sums come from here, and cannot be used before.
template <int COUNT> __device__ __forceinline__ void sums_are_there(float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}
