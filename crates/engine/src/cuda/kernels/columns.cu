// Reduces groups of rows, each to one row of the result. A block processes one group and LANES * VECTOR columns of it: each thread
// takes VECTOR of them in every SLICES-th row, then the slices are combined, always in the same order.

constexpr int TILE = LANES * VECTOR;
constexpr int TILES = (COLUMNS + TILE - 1) / TILE;
constexpr int BLOCK = LANES * SLICES;

// The thread's position.
struct Place {
    uint64 group, first_row, end_row;
    int slice, lane, column;
    bool inside;
};

__device__ __forceinline__ Place place_of_thread(uint64 rows, uint64 group_rows) {
    Place place;
    place.group = blockIdx.x / TILES;
    place.slice = threadIdx.x / LANES;
    place.lane = threadIdx.x % LANES;
    place.column = (int)(blockIdx.x % TILES) * TILE + place.lane * VECTOR;
    place.inside = place.column < COLUMNS;
    place.first_row = place.group * group_rows + place.slice;
    place.end_row = min((place.group + 1) * group_rows, rows);
    return place;
}
