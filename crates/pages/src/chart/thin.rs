//! Long series in few points, such that the line drawn looks the same.

/// At most four points a column of the picture: the first, the lowest, the highest and the last that fall into it, so that no
/// spike is lost. Points are places, in the order of the line; it may run back.
pub(super) fn thin(places: &[(f64, f64)], column: f64) -> Vec<(f64, f64)> {
    let mut kept = Vec::new();
    for group in places.chunk_by(|a, b| (a.0 / column).floor() == (b.0 / column).floor()) {
        if group.len() <= 4 {
            kept.extend_from_slice(group);
            continue;
        }
        let by_height = |a: &usize, b: &usize| group[*a].1.total_cmp(&group[*b].1);
        let lowest = (0..group.len()).min_by(by_height).unwrap_or(0);
        let highest = (0..group.len()).max_by(by_height).unwrap_or(0);
        let mut chosen = [0, lowest, highest, group.len() - 1];
        chosen.sort_unstable();
        for (index, &point) in chosen.iter().enumerate() {
            if index == 0 || chosen[index - 1] != point {
                kept.push(group[point]);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spikes_survive_and_few_points_are_left_alone() {
        let few = [(0.0, 1.0), (0.1, 2.0), (5.0, 3.0)];
        assert_eq!(thin(&few, 1.0), few);
        let many: Vec<(f64, f64)> =
            (0..100_000).map(|i| (i as f64 / 1000.0, if i == 54_321 { 99.0 } else { (i % 7) as f64 })).collect();
        let thinned = thin(&many, 1.0);
        assert!(thinned.len() <= 400, "{}", thinned.len());
        assert!(thinned.contains(&(54.321, 99.0)));
        assert_eq!((thinned.first(), thinned.last()), (many.first(), many.last()));
    }
}
