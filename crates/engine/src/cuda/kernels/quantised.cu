// Quantised weights in the order in which threads read them: see quantised.rs. A row's values are whole numbers; 32 of them (a piece), or 16
// (HALVES), share a scale and may share an offset. Four pieces are a span, of which each of four threads has eight values per piece.
//
// A row has, one after the other, of all its spans: the numbers' lower four bits (LOW_WORDS = 4 words per thread) or all eight (8 words), one
// word per thread for each further bit (PLANES), scales as f16, and offsets as f16 (OFFSETS).
//
// Constants: ROW_BYTES, ROW_SPANS, LOW_WORDS, PLANES, HALVES, OFFSETS, ZERO (the number that stands for 0).

constexpr int SCALE_WORDS = HALVES ? 4 : 2;
constexpr int PLANES_AT = ROW_SPANS * 4 * LOW_WORDS; // in words
constexpr int SCALES_AT = PLANES_AT + ROW_SPANS * 4 * PLANES;
constexpr int OFFSETS_AT = SCALES_AT + ROW_SPANS * SCALE_WORDS;

__device__ __forceinline__ float half_of(uint32 pair, int which) {
    float value;
    const uint16 bits = (uint16)(which ? pair >> 16 : pair);
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

struct QuantisedSpan {
    uint32 low[LOW_WORDS];
    uint32 planes[PLANES ? PLANES : 1];
    uint32 scales[SCALE_WORDS];
    uint32 offsets[2];

    __device__ __forceinline__ void read(const unsigned char* weight, int row, int span, int thread) {
        const uint32* words = reinterpret_cast<const uint32*>(weight + (uint64)row * ROW_BYTES);
#pragma unroll
        for (int i = 0; i < LOW_WORDS; i += 4) {
            const uint4 four = *reinterpret_cast<const uint4*>(words + (span * 4 + thread) * LOW_WORDS + i);
            low[i] = four.x, low[i + 1] = four.y, low[i + 2] = four.z, low[i + 3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < PLANES; i++) planes[i] = words[PLANES_AT + (span * 4 + thread) * PLANES + i];
#pragma unroll
        for (int i = 0; i < SCALE_WORDS; i++) scales[i] = words[SCALES_AT + span * SCALE_WORDS + i];
        if (OFFSETS)
#pragma unroll
            for (int i = 0; i < 2; i++) offsets[i] = words[OFFSETS_AT + span * 2 + i];
    }

    // The scale of a piece, or of a half of it.
    __device__ __forceinline__ float scale(int piece, int half) const {
        const int which = HALVES ? 2 * piece + half : piece;
        return half_of(scales[which / 2], which % 2);
    }
    __device__ __forceinline__ float offset(int piece) const { return OFFSETS ? half_of(offsets[piece / 2], piece % 2) : 0.0f; }

    // A thread's eight numbers of a piece, less ZERO, as pairs of bf16, in which they are exact.
    __device__ __forceinline__ void unpack(int piece, uint32 (&pairs)[4]) const {
#if LOW_WORDS == 4
        // A pair is made of the numbers i and i + 4 of a word. 0x4300 is 128 as bf16, whose last bit counts 1.
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32 pair = low[piece] >> (4 * i) & 0x000f000fu;
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                const uint32 bits = planes[plane] >> (8 * piece) & 0xffu;
                pair |= ((bits | bits << 12) >> i & 0x00010001u) << (4 + plane);
            }
            const uint32 one = 0x3f803f80u, zero = 0x80008000u | 0x43004300u | ZERO << 16 | ZERO;
            asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pairs[i]) : "r"(pair | 0x43004300u), "r"(one), "r"(zero));
        }
#else
        // Bytes, 2^23 more of which is a float whose last bit counts 1.
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32 word = low[2 * piece + i / 2];
            const float first = __uint_as_float(__byte_perm(word, 0x4b000000u, i % 2 ? 0x7442 : 0x7440)) - (8388608.0f + ZERO);
            const float second = __uint_as_float(__byte_perm(word, 0x4b000000u, i % 2 ? 0x7443 : 0x7441)) - (8388608.0f + ZERO);
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[i]) : "f"(second), "f"(first));
        }
#endif
    }

    // The same as values. `place` says where in the piece each is.
    __device__ __forceinline__ void values(int piece, float (&to)[8]) const {
        uint32 pairs[4];
        unpack(piece, pairs);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float number = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16);
            to[i] = scale(piece, i / 4) * number + offset(piece);
        }
    }
};

// Where a thread's value of a piece is in it.
__device__ __forceinline__ int place_in_piece(int thread, int value) {
    return HALVES ? value / 4 * 16 + 4 * thread + value % 4 : 8 * thread + value;
}
