// Hard targets.

// The row's class, or -1 if it is ignored. An invalid class is reported by its row, and ignored.
__device__ __forceinline__ int class_of_row(const int* targets, uint64 row, int* fault) {
    const int target = targets[row];
    if (HAS_IGNORED && target == IGNORED) return -1;
    if (target >= 0 && target < COLUMNS) return target;
    if (leads()) atomicMin(fault, (int)row);
    return -1;
}
