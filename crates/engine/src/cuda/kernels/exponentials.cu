// The maximum of a row and the sum of e^(x - maximum), in one pass: a larger value rescales the sum.

struct Exponentials {
    float max = MINUS_INFINITY;
    float sum = 0.0f;

    // What is subtracted before exponentiation. A row in which every element is minus infinity has no maximum: its sum is 0.
    __device__ __forceinline__ float base() const { return max == MINUS_INFINITY ? 0.0f : max; }

    __device__ __forceinline__ void add(const float (&values)[VECTOR]) {
        const Exponentials before = *this;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) max = fmaxf(max, values[i]);
        sum *= expf(before.max - base());
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum += expf(values[i] - base());
    }

    // The result for the whole row, in each of its threads. All threads of the block must call it. NaN propagates to the sum.
    __device__ __forceinline__ Exponentials of_row() const {
        Exponentials row;
        row.max = row_max(max);
        row.sum = row_sum(sum * expf(max - row.base()));
        return row;
    }
};
