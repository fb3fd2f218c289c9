// Converts the bytes of images: place, flip, normalise, erase, mix. See ops/prepare_images.rs for the computation, and ops/image_draws.rs
// for the rows of draws, whose offsets (TOP, LEFT ...) are constants here.

struct Area {
    int top, left, height, width;
    __device__ explicit Area(const int* words) : top(words[0]), left(words[1]), height(words[2]), width(words[3]) {}
    // Differences are computed in 64 bits: a sum of two words might overflow.
    __device__ bool has_row(int row) const { return row >= top && (long long)row - top < height; }
    __device__ bool has_column(int column) const { return column >= left && (long long)column - left < width; }
};

// A noise value of a box: two words give two adjacent values of a row.
__device__ __forceinline__ float noise(const int* draws, uint32 start, const Area& area, int channel, int row, int column) {
    uint64 line = (uint64)channel * (uint32)area.height + (uint32)(row - area.top);
    uint32 in_row = (uint32)(column - area.left);
    uint64 word = start + line * (2 * (((uint64)area.width + 1) / 2)) + in_row / 2 * 2;
    uint64 block = word / 4;
    uint4 words = philox(make_uint4((uint32)block, (uint32)(block >> 32), 0, 1), (uint32)draws[KEY], (uint32)draws[KEY + 1]);
    bool late = word % 4 >= 2;
    // 24 bits, at least 2^-24 and at most 1, so that the logarithm is finite.
    float u = (float)(((late ? words.z : words.x) >> 8) + 1) * (1.0f / 16777216.0f);
    float v = (float)(((late ? words.w : words.y) >> 8) + 1) * (1.0f / 16777216.0f);
    float sine, cosine;
    sincosf(6.28318530717958648f * v, &sine, &cosine);
    return sqrtf(-2.0f * logf(u)) * (in_row % 2 == 0 ? cosine : sine);
}

// VECTOR adjacent pixels of an image's row, all channels, before mixing.
__device__ __forceinline__ void picture(const unsigned char* pixels, const int* all_draws, const float* table, int sample, int row,
                                        int column, float (&to)[CHANNELS][VECTOR]) {
    const unsigned char* bytes = pixels + sample * PIXEL_BYTES;
    const int* draws = all_draws + sample * DRAWS_LENGTH;
    bool mirrored = draws[FLIPS] & 1, upside_down = draws[FLIPS] & 2;
    long long from_row = (long long)(upside_down ? HEIGHT - 1 - row : row) - draws[TOP];
    bool has_row = from_row >= 0 && from_row < HEIGHT;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        long long from_column = (long long)(mirrored ? WIDTH - 1 - (column + i) : column + i) - draws[LEFT];
        bool covered = has_row && from_column >= 0 && from_column < WIDTH;
        const unsigned char* pixel = bytes + (covered ? ((uint32)from_row * WIDTH + (uint32)from_column) * CHANNELS : 0);
#pragma unroll
        for (int channel = 0; channel < CHANNELS; channel++)
            to[channel][i] = table[channel * 256 + (covered ? pixel[channel] : 0)];
    }
#if MOST_BOXES > 0
    int boxes = min(draws[BOXES], MOST_BOXES);
    for (int index = 0; index < boxes; index++) {
        const int* words = draws + FIRST_BOX + index * BOX_LENGTH;
        Area area(words);
        if (!area.has_row(row)) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            if (!area.has_column(column + i)) continue;
#if NOISE
            // Rarely reached, and long: not unrolled.
#pragma unroll 1
            for (int channel = 0; channel < CHANNELS; channel++) {
                float number = noise(draws, (uint32)words[4], area, channel, row, column + i);
#pragma unroll
                for (int other = 0; other < CHANNELS; other++) to[other][i] = other == channel ? number : to[other][i];
            }
#else
#pragma unroll
            for (int channel = 0; channel < CHANNELS; channel++) to[channel][i] = __int_as_float(words[4 + channel]);
#endif
        }
    }
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    prepare_images(const unsigned char* __restrict__ pixels, const int* __restrict__ draws, const float* __restrict__ table_of_bytes,
                   float* __restrict__ images) {
    __shared__ float table[CHANNELS * 256];
    for (int i = threadIdx.x; i < CHANNELS * 256; i += BLOCK) table[i] = table_of_bytes[i];
    __syncthreads();
    for (uint64 unit = (uint64)blockIdx.x * BLOCK + threadIdx.x; unit < UNITS; unit += (uint64)gridDim.x * BLOCK) {
        int sample = (int)(unit / (HEIGHT * (WIDTH / VECTOR)));
        uint32 inside = (uint32)(unit % (HEIGHT * (WIDTH / VECTOR)));
        int row = inside / (WIDTH / VECTOR), column = inside % (WIDTH / VECTOR) * VECTOR;
        float own[CHANNELS][VECTOR];
        picture(pixels, draws, table, sample, row, column, own);

        const int* mixing = draws + sample * DRAWS_LENGTH + MIXING;
        const int* mixed = draws + sample * DRAWS_LENGTH + MIXED;
        bool blended = *mixing == 1, pasted = *mixing == 2 && Area(mixed).has_row(row);
        if (blended || pasted) {
            float other[CHANNELS][VECTOR];
            picture(pixels, draws, table, BATCH - 1 - sample, row, column, other);
            float own_share = __int_as_float(mixed[0]), other_share = __int_as_float(mixed[1]);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                bool shown = pasted && Area(mixed).has_column(column + i);
#pragma unroll
                for (int channel = 0; channel < CHANNELS; channel++) {
                    // Rounded after each step, like on the CPU.
                    float blend = __fadd_rn(__fmul_rn(own[channel][i], own_share), __fmul_rn(other[channel][i], other_share));
                    own[channel][i] = blended ? blend : shown ? other[channel][i] : own[channel][i];
                }
            }
        }
        float* to = images + ((uint64)sample * CHANNELS * HEIGHT + row) * WIDTH + column;
#pragma unroll
        for (int channel = 0; channel < CHANNELS; channel++) store<VECTOR>(to + (uint64)channel * HEIGHT * WIDTH, own[channel]);
    }
}
