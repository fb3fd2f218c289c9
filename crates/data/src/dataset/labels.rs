//! Labels as they are written, names or numbers, and their classes.

use std::collections::HashMap;
use std::path::Path;

use super::DatasetError;
use super::files::some_of;

/// The maximum number of classes; a larger number is a mistake, and would need memory for names.
const MOST_CLASSES: usize = 1 << 20;

/// Collects the distinct labels while samples are read.
#[derive(Debug, Default)]
pub(super) struct Labels {
    indices: HashMap<String, u32>,
    spellings: Vec<String>,
}

impl Labels {
    /// An index for this label, which [`Labels::classes`] maps to its class.
    pub(super) fn add(&mut self, spelling: &str) -> u32 {
        if let Some(&place) = self.indices.get(spelling) {
            return place;
        }
        let place = self.spellings.len() as u32;
        self.indices.insert(spelling.to_string(), place);
        self.spellings.push(spelling.to_string());
        place
    }

    /// The classes, and the class of each label.
    ///
    /// With a list of names, labels are names of that list or indices of it. Without one, labels that are all numbers are class indices,
    /// from 0 on; others are the names of classes, which are sorted.
    pub(super) fn classes(
        &self,
        named: Option<Vec<String>>,
        path: &Path,
    ) -> Result<(Vec<String>, Vec<u32>), DatasetError> {
        let refused = |reason: String| DatasetError::Label { path: path.to_path_buf(), reason };
        if let Some(names) = named {
            let mut indices = HashMap::new();
            for (place, name) in names.iter().enumerate() {
                if indices.insert(name.as_str(), place as u32).is_some() {
                    return Err(refused(format!("classes.txt has `{name}` twice")));
                }
            }
            let place = |spelling: &String| {
                let number = || spelling.parse::<usize>().ok().filter(|&number| number < names.len());
                let place = indices.get(spelling.as_str()).copied().or_else(|| number().map(|number| number as u32));
                let names = || some_of(names.iter().map(String::as_str), 5);
                place.ok_or_else(|| {
                    let count = indices.len();
                    refused(format!(
                        "the label `{spelling}` is not one of the {count} classes in classes.txt ({})",
                        names()
                    ))
                })
            };
            let map = self.spellings.iter().map(place).collect::<Result<_, _>>()?;
            return Ok((names, map));
        }
        let numbers: Option<Vec<i128>> = self.spellings.iter().map(|spelling| spelling.parse().ok()).collect();
        if let Some(numbers) = numbers {
            let wrong = numbers.iter().find(|&&number| number < 0 || number >= MOST_CLASSES as i128);
            if let Some(number) = wrong {
                return Err(refused(format!(
                    "the label {number} is not a class: numbers count from 0, and at most {MOST_CLASSES} classes are supported"
                )));
            }
            let count = numbers.iter().max().map_or(0, |&most| most as usize + 1);
            let map = numbers.into_iter().map(|number| number as u32).collect();
            return Ok(((0..count).map(|class| class.to_string()).collect(), map));
        }
        if self.spellings.len() > MOST_CLASSES {
            let count = self.spellings.len();
            return Err(refused(format!("{count} different labels: at most {MOST_CLASSES} classes are supported")));
        }
        let mut order: Vec<usize> = (0..self.spellings.len()).collect();
        order.sort_by_key(|&place| &self.spellings[place]);
        let mut map = vec![0; order.len()];
        for (class, &place) in order.iter().enumerate() {
            map[place] = class as u32;
        }
        Ok((order.iter().map(|&place| self.spellings[place].clone()).collect(), map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(spellings: &[&str], named: Option<&[&str]>) -> Result<(Vec<String>, Vec<u32>), String> {
        let mut labels = Labels::default();
        let indices: Vec<u32> = spellings.iter().map(|spelling| labels.add(spelling)).collect();
        let named = named.map(|names| names.iter().map(|name| name.to_string()).collect());
        let (classes, map) = labels.classes(named, Path::new("x")).map_err(|error| error.to_string())?;
        Ok((classes, indices.iter().map(|&place| map[place as usize]).collect()))
    }

    #[test]
    fn names_are_sorted_and_numbers_are_indices() {
        assert_eq!(classes(&["dog", "cat", "dog"], None).unwrap(), (vec!["cat".into(), "dog".into()], vec![1, 0, 1]));
        assert_eq!(classes(&["2", "0"], None).unwrap(), (vec!["0".into(), "1".into(), "2".into()], vec![2, 0]));
        assert_eq!(classes(&["2", "x"], None).unwrap().1, [0, 1]);
        assert_eq!(classes(&["b", "0"], Some(&["a", "b"])).unwrap().1, [1, 0]);
        assert_eq!(classes(&[], None).unwrap().0.len(), 0);
    }

    #[test]
    fn labels_out_of_range_are_refused() {
        assert!(classes(&["1", "-1"], None).unwrap_err().contains("the label -1 is not a class"));
        assert!(classes(&["99999999999"], None).unwrap_err().contains("count from 0"));
        assert!(classes(&["2"], Some(&["a", "b"])).unwrap_err().contains("not one of the 2 classes"));
        assert!(classes(&["a"], Some(&["a", "a"])).unwrap_err().contains("twice"));
    }
}
