// Gradients that travel as bf16: rounded before they are sent, and f32 again behind.

extern "C" __global__ void to_wire(const float* gradients, bf16* wire, uint64 values) {
    uint64 stride = (uint64)gridDim.x * blockDim.x;
    for (uint64 i = (uint64)blockIdx.x * blockDim.x + threadIdx.x; i < values; i += stride) {
        wire[i] = narrow_to_bf16(gradients[i]);
    }
}

extern "C" __global__ void from_wire(const bf16* wire, float* gradients, uint64 values) {
    uint64 stride = (uint64)gridDim.x * blockDim.x;
    for (uint64 i = (uint64)blockIdx.x * blockDim.x + threadIdx.x; i < values; i += stride) {
        gradients[i] = widen(wire[i]);
    }
}
