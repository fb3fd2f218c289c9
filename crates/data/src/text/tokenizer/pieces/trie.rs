//! Pieces of a vocabulary by their bytes: all that a text begins with.

/// A tree of bytes in which the children of a node lie beside each other, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Trie {
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    first_child: u32,
    children: u16,
    byte: u8,
    /// The piece that ends here; `NONE` if there is none.
    piece: u32,
}

const NONE: u32 = u32::MAX;

impl Trie {
    /// Of pieces with their numbers. Of equal pieces the first counts; empty ones are left out.
    pub(super) fn new(mut pieces: Vec<(&[u8], u32)>) -> Trie {
        pieces.retain(|(bytes, _)| !bytes.is_empty());
        pieces.sort();
        pieces.dedup_by_key(|(bytes, _)| *bytes);
        let mut nodes = vec![Node { first_child: 0, children: 0, byte: 0, piece: NONE }];
        // The pieces below each node that has no children yet, and how many of their bytes lead there.
        let mut open = std::collections::VecDeque::from([(0usize, 0..pieces.len(), 0usize)]);
        while let Some((node, range, depth)) = open.pop_front() {
            let first_child = nodes.len();
            let mut start = range.start;
            if start < range.end && pieces[start].0.len() == depth {
                nodes[node].piece = pieces[start].1;
                start += 1;
            }
            while start < range.end {
                let byte = pieces[start].0[depth];
                let end = start + pieces[start..range.end].partition_point(|(bytes, _)| bytes[depth] == byte);
                open.push_back((nodes.len(), start..end, depth + 1));
                nodes.push(Node { first_child: 0, children: 0, byte, piece: NONE });
                start = end;
            }
            nodes[node].first_child = first_child as u32;
            nodes[node].children = (nodes.len() - first_child) as u16;
        }
        Trie { nodes }
    }

    /// The pieces that a text begins with, the shortest first: their lengths and numbers.
    pub(super) fn prefixes<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = (usize, u32)> + 't {
        let mut node = self.nodes.first();
        text.iter()
            .enumerate()
            .map_while(move |(place, &byte)| {
                let parent = node?;
                let first = parent.first_child as usize;
                let children = self.nodes.get(first..first + usize::from(parent.children))?;
                let found = children.binary_search_by_key(&byte, |child| child.byte).ok()?;
                node = Some(&children[found]);
                Some((place + 1, children[found].piece))
            })
            .filter(|(_, piece)| *piece != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_beginnings_are_found() {
        let pieces: [&[u8]; 7] = [b"abc", b"a", b"", b"ab", b"b", b"abc", b"abd"];
        let trie = Trie::new(pieces.into_iter().zip(0..).collect());
        let found = |text: &str| trie.prefixes(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(found("abcd"), [(1, 1), (2, 3), (3, 0)]);
        assert_eq!(found("abd"), [(1, 1), (2, 3), (3, 6)]);
        assert_eq!(found("ba"), [(1, 4)]);
        assert_eq!(found("xa"), []);
        assert_eq!(Trie::new(Vec::new()).prefixes(b"a").count(), 0);
    }
}
