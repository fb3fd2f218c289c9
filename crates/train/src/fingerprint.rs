//! What a run was trained with: its recipe and marks of its data. A checkpoint keeps it, so that a run that is resumed with
//! other data or another recipe is noticed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vitreous_data::dataset::Dataset;

use crate::recipe::Recipe;

/// Paths: the same data may lie elsewhere, and only a new run reads the model that it starts from.
const PATHS: [&str; 3] = ["data.path", "data.more", "finetune.init"];

/// Keys that change nothing in what is learned.
const FREE: [&str; 3] = ["output.", "train.shard", "train.bucket"];

/// The values of a recipe's keys but for paths: what processes that train together must have in common.
pub(crate) fn values_but_paths(recipe: &Recipe) -> BTreeMap<String, String> {
    let mut values = recipe.values();
    values.retain(|key, _| !PATHS.contains(&key.as_str()));
    values
}

/// The recipe and the data of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The values of the recipe's keys.
    pub recipe: BTreeMap<String, String>,
    /// A checksum of each aspect of the data, such as "labels of training images".
    pub data: BTreeMap<String, u32>,
}

impl Fingerprint {
    /// Of a recipe and of aspects of its data.
    pub fn new(recipe: &Recipe, data: Vec<(String, Mark)>) -> Fingerprint {
        let data = data.into_iter().map(|(aspect, mark)| (aspect, mark.0)).collect();
        let mut recipe = values_but_paths(recipe);
        recipe.retain(|key, _| !FREE.iter().any(|free| key.starts_with(free)));
        Fingerprint { recipe, data }
    }

    /// In what this one, of now, differs from that of a checkpoint. Keys that only one of the two versions has do not count.
    pub fn differences_from(&self, saved: &Fingerprint) -> Vec<String> {
        let mut found = Vec::new();
        for (key, was) in &saved.recipe {
            if let Some(is) = self.recipe.get(key).filter(|is| *is != was) {
                found.push(format!("`{key}` was {was}, and is {is}"));
            }
        }
        let is_other = |aspect: &&String| self.data.get(*aspect) != saved.data.get(*aspect);
        found.extend(saved.data.keys().filter(is_other).map(|aspect| format!("the {aspect} changed")));
        found
    }
}

/// A checksum of a list of texts and numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(u32);

impl Mark {
    /// Adds a text or other bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, &(bytes.len() as u64).to_le_bytes());
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The number.
    pub fn sum(&self) -> u32 {
        self.0
    }

    /// Of some texts.
    pub fn of<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Mark {
        let mut mark = Mark::default();
        items.into_iter().for_each(|item| mark.add(item.as_ref()));
        mark
    }
}

/// Names, labels and contents of images, by the sizes of their files: "names of training images" and so on. Names count from the folder that is common to all: data
/// may be moved as a whole.
pub fn of_images(which: &str, images: &dyn Dataset) -> Vec<(String, Mark)> {
    let all = 0..images.len();
    let names: Vec<String> = all.clone().map(|index| images.name(index)).collect();
    let common = common_folder(&names);
    let labels = all.clone().map(|index| images.labels(index).iter().flat_map(|label| label.to_le_bytes()).collect());
    vec![
        (format!("names of {which} images"), Mark::of(names.iter().map(|name| &name[common..]))),
        (format!("labels of {which} images"), Mark::of(labels.collect::<Vec<Vec<u8>>>())),
        (format!("contents of {which} images"), Mark::of(all.map(|index| images.content_mark(index).to_le_bytes()))),
    ]
}

/// The length of the path of the folder that all names begin with, up to its separator.
fn common_folder(names: &[String]) -> usize {
    let Some((first, others)) = names.split_first() else { return 0 };
    let mut common = first.len();
    for name in others {
        common = first.bytes().zip(name.bytes()).take(common).take_while(|(one, other)| one == other).count();
    }
    first.as_bytes()[..common].iter().rposition(|byte| matches!(byte, b'/' | b'\\')).map_or(0, |place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_from_their_common_folder() {
        let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(common_folder(&names(&["/a/data/cat/1.png", "/a/data/cow/1.png"])), "/a/data/".len());
        assert_eq!(common_folder(&names(&["train #0", "train #1"])), 0);
        assert_eq!(common_folder(&names(&["x/1.png"])), 2);
        assert_eq!(common_folder(&[]), 0);
    }

    #[test]
    fn a_mark_knows_where_an_item_ends() {
        assert_ne!(Mark::of(["ab", "c"]), Mark::of(["a", "bc"]));
        assert_ne!(Mark::of(["a", ""]), Mark::of(["a"]));
    }
}
