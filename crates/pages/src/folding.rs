//! Blocks that repeat, shown once: models are mostly the same layer many times.

/// Neighbours in a model that belong together: one thing alone, or a block and those after it that are the same inside.
#[derive(Debug, PartialEq, Eq)]
pub struct Fold<'a, T> {
    /// The path of the first block, e.g. `blocks.0`; `None` for a single part.
    pub block: Option<&'a str>,
    /// The parts of each of the equal blocks.
    pub repeats: Vec<&'a [T]>,
}

impl<'a, T> Fold<'a, T> {
    /// The parts of the first block.
    pub fn first(&self) -> &'a [T] {
        self.repeats.first().copied().unwrap_or_default()
    }
}

/// Folds a model's parts, in their order. `path` names a part; `inside` is what of it must be the same for two blocks to be.
pub fn fold<'a, T, K: PartialEq>(
    parts: &'a [T],
    path: impl Fn(&'a T) -> &'a str,
    inside: impl Fn(&'a T) -> K,
) -> Vec<Fold<'a, T>> {
    let mut folds: Vec<Fold<'a, T>> = Vec::new();
    let mut last: Vec<K> = Vec::new();
    let together = |a: &'a T, b: &'a T| block_of(path(a)).is_some() && block_of(path(a)) == block_of(path(b));
    let mut rest = parts;
    while let Some(first) = rest.first() {
        let length = 1 + rest.windows(2).take_while(|pair| together(&pair[0], &pair[1])).count();
        let group;
        (group, rest) = rest.split_at(length);
        let block = block_of(path(first));
        let these: Vec<K> = if block.is_some() { group.iter().map(&inside).collect() } else { Vec::new() };
        match folds.last_mut() {
            Some(fold) if block.is_some() && fold.block.is_some() && these == last => fold.repeats.push(group),
            _ => folds.push(Fold { block, repeats: vec![group] }),
        }
        last = these;
    }
    folds
}

/// `blocks.3` of `blocks.3.attention`.
pub fn block_of(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once('.')?;
    let number = rest.split('.').next()?;
    number.parse::<usize>().ok()?;
    Some(&path[..path.len() - rest.len() + number.len()])
}

/// The name of a part inside its block: `attention` of `blocks.3.attention`. What belongs to the block itself is its residual sum.
pub fn name_inside(path: &str) -> &str {
    match block_of(path) {
        None => path,
        Some(block) => match path[block.len()..].trim_start_matches('.') {
            "" => "residual",
            name => name,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_are_the_same_inside_are_one() {
        let parts = ["embed.1x", "b.0.a", "b.0.m", "b.1.a", "b.1.m", "b.2.a", "b.2.x", "b.3.a", "head"];
        let folds = fold(&parts, |part| part, |part| name_inside(part));
        let shown: Vec<(Option<&str>, usize, usize)> =
            folds.iter().map(|fold| (fold.block, fold.repeats.len(), fold.first().len())).collect();
        let alone = (None, 1, 1);
        assert_eq!(shown, [alone, (Some("b.0"), 2, 2), (Some("b.2"), 1, 2), (Some("b.3"), 1, 1), alone]);
        assert_eq!(folds[1].repeats, [&["b.0.a", "b.0.m"], &["b.1.a", "b.1.m"]]);
    }

    #[test]
    fn names_inside_a_block() {
        assert_eq!(["head", "blocks.3", "blocks.10.mlp"].map(name_inside), ["head", "residual", "mlp"]);
    }
}
