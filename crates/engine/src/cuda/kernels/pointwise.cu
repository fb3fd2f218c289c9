// Applies steps to all values, VECTOR adjacent ones per thread at a time.
extern "C" __global__ void __launch_bounds__(256) pointwise(const FROM* from, TO* to, const Run* run, const uint64 COUNT STEP_PARAMETERS) {
    wait_for_previous();
    let_next_start();
    for (uint64 unit = blockIdx.x * 256ull + threadIdx.x; unit < COUNT; unit += gridDim.x * 256ull) {
        uint64 at = unit * VECTOR;
        float values[VECTOR];
        load<VECTOR>(from + at, values);
        apply_steps<VECTOR>(values, at / COLUMNS, (int)(at % COLUMNS), run STEP_ARGUMENTS);
        store<VECTOR>(to + at, values);
    }
}
