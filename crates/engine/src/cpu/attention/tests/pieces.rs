//! A prompt gives the same bits however it is cut into pieces, and however many keys there is room for.

use super::{Case, Inputs, PLAIN};

/// A whole prompt at once: as many keys as queries.
const WHOLE: Case = Case {
    batch: 1,
    heads: 4,
    kv_heads: Some(2),
    queries: 560,
    keys: 560,
    head_dim: 16,
    causal: true,
    offsets: true,
    ..PLAIN
};

/// The outputs of the queries from `first` on, `case.queries` of them, with room for `case.keys`.
fn piece(case: Case, whole: &Inputs, first: usize) -> Vec<u64> {
    let mut inputs = case.inputs();
    let (query, key) = (case.heads * case.head_dim, case.kv_heads() * case.head_dim);
    inputs.q.copy_from_slice(&whole.q[first * query..(first + case.queries) * query]);
    // What a query does not attend to may hold anything.
    for (to, from) in [(&mut inputs.k, &whole.k), (&mut inputs.v, &whole.v)] {
        let common = to.len().min(from.len());
        to[..common].copy_from_slice(&from[..common]);
        to[((first + case.queries) * key).min(common)..].fill(f64::NAN);
    }
    inputs.offsets = vec![first as i32];
    case.run(&inputs, 2).out.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn pieces_of_a_prompt_give_the_bits_of_the_whole() {
    for (bf16, window) in [(false, None), (true, None), (false, Some(290)), (true, Some(290)), (false, Some(3))] {
        let case = Case { bf16, window, ..WHOLE };
        let mut inputs = case.inputs();
        inputs.offsets = vec![0];
        let whole = piece(case, &inputs, 0);
        let row = case.heads * case.head_dim;
        for room in [560, 1000] {
            for (first, count) in [(0usize, 40usize), (558, 2), (128, 128), (250, 17), (300, 260), (254, 3), (511, 8)] {
                // A short room is enough for early pieces.
                for keys in [room, (first + count).next_multiple_of(2)] {
                    let part = piece(Case { queries: count, keys, ..case }, &inputs, first);
                    assert!(
                        part == whole[first * row..(first + count) * row],
                        "{first}, {count} of {case:?}, {keys} keys"
                    );
                }
            }
        }
    }
}
