//! Fixed position tables: one row per position, one column per dimension.

use vitreous_engine::{Error, Graph, Result, Value};

use crate::settings::{Size, check_fixed_table};

/// Adds a table of fixed positions to a graph, as the constant `positions`. It is the one thing that takes memory while a
/// graph is built, so it is computed only if it is small enough and there is room for it.
pub(crate) fn fixed_table(g: &mut Graph, rows: usize, dim: usize, table: impl FnOnce() -> Vec<f32>) -> Result<Value> {
    let refused = |rule| Error::Rule { op: "positions", path: "config".to_string(), inputs: Vec::new(), rule };
    check_fixed_table(rows, dim).map_err(|refusal| refused(refusal.0))?;
    g.constant("positions", [rows, dim], table())
}

/// `PE(pos, 2i) = sin(pos / 10000^(2i/d))`, `PE(pos, 2i+1) = cos(pos / 10000^(2i/d))`.
pub fn sinusoidal(count: usize, dim: usize) -> Vec<f32> {
    let frequencies: Vec<f64> = (0..dim).map(|column| 10000f64.powf(-((column / 2 * 2) as f64) / dim as f64)).collect();
    let mut table = Vec::with_capacity(count * dim);
    for position in 0..count {
        for (column, frequency) in frequencies.iter().enumerate() {
            let angle = position as f64 * frequency;
            table.push(if column % 2 == 0 { angle.sin() } else { angle.cos() } as f32);
        }
    }
    table
}

/// Marian's table: the values of [`sinusoidal`], all sines before all cosines.
pub fn sines_then_cosines(count: usize, dim: usize) -> Vec<f32> {
    let beside = sinusoidal(count, dim);
    let rows = beside.chunks_exact(dim.max(1));
    let apart =
        |row: &[f32]| -> Vec<f32> { row.iter().step_by(2).chain(row.iter().skip(1).step_by(2)).copied().collect() };
    rows.flat_map(apart).collect()
}

/// Whisper's table: all sines before all cosines, of `position / 10000^(i / (d/2 - 1))`.
pub fn whisper(count: usize, dim: usize) -> Vec<f32> {
    let half = dim / 2;
    let step = 10000f64.ln() / half.saturating_sub(1).max(1) as f64;
    let mut table = Vec::with_capacity(count * dim);
    for position in 0..count {
        let angle = |i: usize| position as f64 * (-step * i as f64).exp();
        table.extend((0..half).map(|i| angle(i).sin() as f32));
        table.extend((0..dim - half).map(|i| angle(i).cos() as f32));
    }
    table
}

/// MAE's table for a grid of patches, in row-major order: the first half of the dimensions encodes the column, the
/// second the row, each as all sines, then all cosines, of `index / 10000^(i / (d/4))`.
pub fn sin_cos_2d(grid: Size, dim: usize) -> Vec<f32> {
    let quarter = dim / 4;
    let mut table = Vec::with_capacity(grid.height * grid.width * dim);
    for row in 0..grid.height {
        for column in 0..grid.width {
            for place in [column, row] {
                let angle = |i: usize| place as f64 * 10000f64.powf(-(i as f64) / quarter as f64);
                table.extend((0..quarter).map(|i| angle(i).sin() as f32));
                table.extend((0..quarter).map(|i| angle(i).cos() as f32));
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinusoidal_rows_have_the_values_of_the_paper() {
        let table = sinusoidal(50, 128);
        assert_eq!(table.len(), 50 * 128);
        assert!(table[..128].iter().enumerate().all(|(column, &x)| x == (column % 2) as f32));
        assert!((table[128] - 0.8415).abs() < 5e-5 && (table[129] - 0.5403).abs() < 5e-5);
        // PE(7, 6) and PE(7, 7): both of 7 / 10000^(6/128).
        let angle = 7.0 / 10000f64.powf(6.0 / 128.0);
        assert_eq!(table[7 * 128 + 6..7 * 128 + 8], [angle.sin() as f32, angle.cos() as f32]);
    }
}
