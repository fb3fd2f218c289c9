// Available to every kernel. COLUMNS, VECTOR and other constants are defined before.

typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef unsigned short uint16;

// bf16 as its bits; arithmetic is in float.
struct __align__(2) bf16 { uint16 bits; };

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((uint32)x.bits << 16); }

// To nearest, ties to even; NaN stays NaN.
__device__ __forceinline__ bf16 narrow_to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
__device__ __forceinline__ float rounded(float x) { return widen(narrow_to_bf16(x)); }

__device__ __forceinline__ void put(float* to, float x) { *to = x; }
__device__ __forceinline__ void put(bf16* to, float x) { *to = narrow_to_bf16(x); }

// A kernel that calls these two may be started before the previous one has ended (programmatic dependent launch): whatever it does before
// `wait_for_previous` must not depend on other kernels. `let_next_start` lets the next one start as soon as all blocks have called it.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// N values at an address aligned to their size, up to 16 bytes at a time.
template <int N> __device__ __forceinline__ void load(const float* from, float (&to)[N]) {
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 four = *reinterpret_cast<const float4*>(from + i);
            to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = from[i];
    }
}
template <int N> __device__ __forceinline__ void load(const bf16* from, float (&to)[N]) {
    if constexpr (N == 8) {
        uint4 words = *reinterpret_cast<const uint4*>(from);
        uint32 all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[2 * i] = __uint_as_float(all[i] << 16);
            to[2 * i + 1] = __uint_as_float(all[i] & 0xffff0000u);
        }
    } else if constexpr (N == 4) {
        uint2 words = *reinterpret_cast<const uint2*>(from);
        to[0] = __uint_as_float(words.x << 16), to[1] = __uint_as_float(words.x & 0xffff0000u);
        to[2] = __uint_as_float(words.y << 16), to[3] = __uint_as_float(words.y & 0xffff0000u);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = widen(from[i]);
    }
}
template <int N> __device__ __forceinline__ void store(float* to, const float (&from)[N]) {
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4)
            *reinterpret_cast<float4*>(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = from[i];
    }
}
template <int N> __device__ __forceinline__ void store(bf16* to, const float (&from)[N]) {
    if constexpr (N == 8) {
        uint32 all[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(all[i]) : "f"(from[2 * i + 1]), "f"(from[2 * i]));
        *reinterpret_cast<uint4*>(to) = make_uint4(all[0], all[1], all[2], all[3]);
    } else if constexpr (N == 4) {
        uint2 words;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words.x) : "f"(from[1]), "f"(from[0]));
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words.y) : "f"(from[3]), "f"(from[2]));
        *reinterpret_cast<uint2*>(to) = words;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = narrow_to_bf16(from[i]);
    }
}

// The parameters of a run.
struct Run {
    uint64 seed;
    uint64 step;
};

// Counter-based random numbers, the same as on the CPU: see random.rs.
__device__ __forceinline__ uint64 mix(uint64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
__device__ __forceinline__ uint64 stream_key(const Run* run, uint64 place) {
    return mix((mix(mix(run->seed + 0x9e3779b97f4a7c15ull) ^ run->step)) + place);
}
__device__ __forceinline__ uint4 philox(uint4 counter, uint32 key0, uint32 key1) {
#pragma unroll
    for (int i = 0; i < 10; i++) {
        uint32 high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        uint32 high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key0, low1, high0 ^ counter.w ^ key1, low0);
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    return counter;
}
// The dropout factors of N adjacent columns of a row: 0, or the scale of kept values. N divides 8, and the column is a multiple of N.
template <int N>
__device__ __forceinline__ void mask_factors(uint64 key, uint64 row, int column, uint32 threshold, float scale, float (&factors)[N]) {
    uint4 words = philox(make_uint4((uint32)(column / 8), (uint32)row, (uint32)(row >> 32), 0), (uint32)key, (uint32)(key >> 32));
    uint32 all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < N; i++) {
        int place = column % 8 + i;
        uint32 number = (all[place / 2] >> (16 * (place % 2))) & 0xffffu;
        factors[i] = number >= threshold ? scale : 0.0f;
    }
}

// Activations and their derivatives. The normal distribution's tail above a value, and its density there times sqrt(2 pi): Abramowitz and
// Stegun's 7.1.26, accurate to 1.5e-7. `erff` and `expf` take several times as many instructions, and GELU over the widest activations
// would be limited by them instead of memory.
__device__ __forceinline__ float normal_tail(float size, float& density) {
    float t;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(1.0f + 0.23164190f * size));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(density) : "f"(-0.72134752f * size * size));
    float tail = t * (0.127414796f + t * (-0.142248368f + t * (0.7107068705f + t * (-0.7265760135f + t * 0.5307027145f))));
    return tail * density;
}
// |x|, clamped to where the tail vanishes, to avoid infinity times 0. NaN stays NaN.
__device__ __forceinline__ float size_with_tail(float x) {
    float size;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(size) : "f"(fabsf(x)), "f"(16.0f));
    return size;
}
// x times the distribution below x.
__device__ __forceinline__ float gelu(float x) {
    float density, size = size_with_tail(x), tail = normal_tail(size, density);
    return fmaxf(x, 0.0f) - size * tail;
}
__device__ __forceinline__ float gelu_slope(float x) {
    float density, size = size_with_tail(x), tail = normal_tail(size, density);
    return (x < 0.0f ? tail : 1.0f - tail) + copysignf(size, x) * 0.39894228040143268f * density;
}
__device__ __forceinline__ float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}
__device__ __forceinline__ float gelu_tanh_slope(float x) {
    float t = tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.79788456080286536f * (1.0f + 3.0f * 0.044715f * x * x);
}
__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }
__device__ __forceinline__ float relu_slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ __forceinline__ float silu_slope(float x) {
    float s = 1.0f / (1.0f + expf(-x));
    return s * (1.0f + x * (1.0f - s));
}
__device__ __forceinline__ float quick_gelu(float x) { return x / (1.0f + expf(-1.702f * x)); }
__device__ __forceinline__ float quick_gelu_slope(float x) { return silu_slope(1.702f * x); }
__device__ __forceinline__ float tanh_(float x) { return tanhf(x); }
__device__ __forceinline__ float tanh_slope(float x) {
    float t = tanhf(x);
    return 1.0f - t * t;
}

// Sums and maxima over a warp; every lane gets the result.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}
