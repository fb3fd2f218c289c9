// Moves units of VECTOR values: SOURCE_OF and TARGET_OF are the source and target indices, in units; a negative source means zeros.
extern "C" __global__ void __launch_bounds__(256) move(const FROM* from, TO* to) {
    wait_for_previous();
    let_next_start();
    for (uint64 i = blockIdx.x * 256ull + threadIdx.x; i < COUNT; i += gridDim.x * 256ull) {
        long long source = SOURCE_OF(i);
        float values[VECTOR];
        if (source >= 0) {
            load<VECTOR>(from + source * VECTOR, values);
        } else {
#pragma unroll
            for (int k = 0; k < VECTOR; k++) values[k] = 0.0f;
        }
        store<VECTOR>(to + TARGET_OF(i) * VECTOR, values);
    }
}
