// Tensor cores: products of 16x16 by 16x8 tiles of bf16, accumulated in f32, and how their operands get into registers.
//
// With group = lane / 4 and pair = lane % 4, a thread holds
//   of the left operand (16 rows, 16 deep): (group, 2 pair), (group + 8, 2 pair), (group, 2 pair + 8), (group + 8, 2 pair + 8), and the
//   value to the right of each;
//   of the right operand (16 deep, 8 columns): (2 pair, group), (2 pair + 8, group), and the value below each;
//   of the result (16 rows, 8 columns): (group, 2 pair), (group, 2 pair + 1), (group + 8, 2 pair), (group + 8, 2 pair + 1).
// So the result of one product is, rounded, the left operand of the next.

// Tiles are laid out in shared memory so that eight rows' 16-byte chunks of one column are in different banks. Where a row's chunks are a power of
// two, they change places by the row's number; otherwise a row is one chunk longer, an odd number.
#define CHUNKS (HEAD_DIM / 8)
#define SWAPPED ((CHUNKS & (CHUNKS - 1)) == 0)
#define ROW_BYTES (16 * (SWAPPED ? CHUNKS : CHUNKS + 1))
// Steps of 16 along a head.
#define DEPTH (HEAD_DIM / 16)

// The address of a chunk of a row. Tiles are aligned to 256 bytes.
__device__ __forceinline__ uint32 chunk_at(uint32 tile, int row, int chunk) {
    // Rows of four chunks: two of them span all banks.
    const int swap = !SWAPPED ? 0 : CHUNKS >= 8 ? row % 8 : row / 2 % 4;
    return tile + row * ROW_BYTES + (chunk ^ swap) * 16;
}
// From the address of an even chunk, or of its neighbour, to the chunk 2 d further along the head.
__device__ __forceinline__ uint32 further(uint32 place, int d) { return SWAPPED ? place ^ (32 * d) : place + 32 * d; }

__device__ __forceinline__ uint32 shared_address(const void* pointer) { return (uint32)__cvta_generic_to_shared(pointer); }

// Starts an asynchronous copy of 16 bytes into shared memory; if `there` is false, writes zeros and reads nothing.
__device__ __forceinline__ void copy_chunk(uint32 to, const bf16* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// Commits a group of copies.
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups but the last STILL_UNDER_WAY have arrived.
template <int STILL_UNDER_WAY> __device__ __forceinline__ void copies_arrived() {
    asm volatile("cp.async.wait_group %0;" ::"n"(STILL_UNDER_WAY) : "memory");
}

// Loads four 8x8 matrices, whose rows are at the addresses of lanes 0-7, 8-15, 16-23 and 24-31.
__device__ __forceinline__ void load_matrices(uint32 (&to)[4], uint32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_transposed(uint32 (&to)[4], uint32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}

__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint32 (&left)[4], uint32 right0, uint32 right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

// Two values as bf16, the first in the lower half.
__device__ __forceinline__ uint32 pack(float low, float high) {
    uint32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
