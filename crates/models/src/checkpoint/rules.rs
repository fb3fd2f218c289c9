//! Rename rules: how a dialect names, lays out, joins and ties the parameters of a graph. A rule works in both
//! directions.
//!
//! In a pattern, `#` stands for a layer number, or two of them for a group and a layer, and a final `*` for the kind of tensor (`weight`, `bias`):
//!
//! ```text
//! blocks.#.norm1.*                         encoder.layer.#.layernorm_before.*            rename
//! blocks.#.mlp.gate.* + blocks.#.mlp.up.*  blocks.#.mlp.w12.*                            join
//! blocks.#.mlp.fc1.weight                  Transformer/encoderblock_#/Dense_0/kernel     transposed
//! blocks.#.norm1.weight                    Transformer/encoderblock/LayerNorm_0/scale    all layers stacked in one tensor
//! ```
//!
//! Several rules may match a parameter: a file is read by the first whose tensor exists (names changed over the years),
//! and written by the first.

use std::collections::{BTreeMap, HashMap, HashSet};

use vitreous_engine::Parameter;

use super::Inventory;
use super::entries::{Entry, GridTable, Presence, Storage};
use crate::settings::Settings;

/// How a library names and lays out the tensors of a model.
#[derive(Clone, Debug, Default)]
pub struct Dialect {
    /// Its name in messages: `Hugging Face`.
    pub library: &'static str,
    /// Prefix of all the model's tensor names: `module.`. Tensors without it are ignored.
    pub prefix: String,
    /// Prefixes of tensors that do not belong to the model although they have its prefix: the state of an optimizer.
    pub foreign: &'static [&'static str],
    /// The rules.
    pub rules: Vec<Rule>,
    /// Whether a parameter without a rule has the same name in the dialect.
    pub same_names: bool,
    /// Optional tensors that the library's files always have: written as zeros if there are no values.
    pub always: Vec<String>,
    /// The `config.json` of this model, if one is written; of GGUF its keys.
    pub config: Option<Settings>,
    /// Tensors that follow from the configuration and are written beside the others.
    pub constants: Vec<(String, Vec<f32>)>,
}

/// A correspondence between our parameters and a tensor.
#[derive(Clone, Debug)]
pub struct Rule {
    ours: Vec<String>,
    theirs: String,
    order: Order,
    axes: Axes,
    presence: Presence,
    grid: Option<GridTable>,
}

/// The order of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Same,
    Transposed,
    /// A convolution's kernel with its channels last: `[height, width, in, out]`.
    ChannelsLast,
    /// Rows of heads of this width, with those that are rotated together beside each other.
    RotaryPairs(usize),
    /// Ours plus 1.
    PlusOne,
}

/// The axes of a tensor.
#[derive(Clone, Debug, PartialEq)]
enum Axes {
    /// Those of our parameter.
    Ours,
    /// Ours with a leading axis of size 1.
    LeadingOne,
    /// These.
    Exactly(Vec<usize>),
}

impl Rule {
    /// The same elements under another name.
    pub fn rename(ours: &str, theirs: impl Into<String>) -> Rule {
        Rule::join(&[ours], theirs)
    }

    /// Several of ours are concatenated along the first axis of theirs.
    pub fn join(ours: &[&str], theirs: impl Into<String>) -> Rule {
        Rule {
            ours: ours.iter().map(ToString::to_string).collect(),
            theirs: theirs.into(),
            order: Order::Same,
            axes: Axes::Ours,
            presence: Presence::Needed,
            grid: None,
        }
    }

    /// A tensor that no result depends on, written back unchanged: a mask token. `ours` is the name that all dialects
    /// share for it.
    pub fn keep(ours: &str, theirs: impl Into<String>, shape: &[usize]) -> Rule {
        Rule { presence: Presence::Kept, ..Rule::rename(ours, theirs) }.axes(shape)
    }

    /// A tensor without information: a copy of a tied parameter, or a constant. It is neither read nor written.
    pub fn redundant(theirs: impl Into<String>) -> Rule {
        Rule { ours: Vec::new(), presence: Presence::Redundant, ..Rule::rename("", theirs) }
    }

    /// Theirs is `[in, out]` where ours is `[out, in]`.
    pub fn transposed(self) -> Rule {
        Rule { order: Order::Transposed, ..self }
    }

    /// In theirs, rows that rotary positions turn together are neighbours; in ours they lie half a head apart.
    pub fn rotary_pairs(self, head_dim: usize) -> Rule {
        Rule { order: Order::RotaryPairs(head_dim), ..self }
    }

    /// Theirs is ours plus 1: the weight of a norm that multiplies by 1 + weight.
    pub fn plus_one(self) -> Rule {
        Rule { order: Order::PlusOne, ..self }
    }

    /// Theirs is a kernel `[height, width, in, out]`.
    pub fn channels_last(self) -> Rule {
        Rule { order: Order::ChannelsLast, ..self }
    }

    /// Theirs has these axes.
    pub fn axes(self, axes: &[usize]) -> Rule {
        Rule { axes: Axes::Exactly(axes.to_vec()), ..self }
    }

    /// Theirs has a leading axis of size 1.
    pub fn leading_one(self) -> Rule {
        Rule { axes: Axes::LeadingOne, ..self }
    }

    /// It is a position table over a grid of patches.
    pub fn grid(self, grid: GridTable) -> Rule {
        Rule { grid: Some(grid), ..self }
    }

    /// The wildcards of the first of our patterns that matches a name.
    fn fits<'n>(&self, name: &'n str) -> Option<Wildcards<'n>> {
        self.ours.iter().find_map(|pattern| Wildcards::of(pattern, name))
    }

    /// Whether theirs stacks all layers in one tensor.
    fn is_stacked(&self) -> bool {
        !self.theirs.contains('#') && self.ours.iter().any(|pattern| pattern.contains('#'))
    }
}

/// The values of a pattern's wildcards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Wildcards<'n> {
    numbers: [Option<&'n str>; 2],
    kind: Option<&'n str>,
}

impl<'n> Wildcards<'n> {
    fn of(pattern: &str, name: &'n str) -> Option<Wildcards<'n>> {
        let mut found = Wildcards::default();
        let mut segments = name.split('.');
        let mut count = 0;
        for part in pattern.split('.') {
            let segment = segments.next()?;
            match part {
                "#" if segment.bytes().all(|byte| byte.is_ascii_digit()) => {
                    *found.numbers.get_mut(count)? = Some(segment);
                    count += 1;
                }
                "*" => found.kind = Some(segment),
                same if same == segment => {}
                _ => return None,
            }
        }
        segments.next().is_none().then_some(found)
    }

    fn put_into(self, pattern: &str) -> String {
        let numbers = self.numbers.into_iter().flatten();
        let numbered = numbers.fold(pattern.to_string(), |pattern, number| pattern.replacen('#', number, 1));
        match (numbered.strip_suffix('*'), self.kind) {
            (Some(start), Some(kind)) => format!("{start}{kind}"),
            _ => numbered,
        }
    }
}

impl Dialect {
    /// Our own: the names of the graph.
    pub fn own() -> Dialect {
        Dialect { library: "Vitreous", same_names: true, ..Dialect::default() }
    }

    /// The same with a prefix before all names of a file.
    pub fn with_prefix(mut self, prefix: &str) -> Dialect {
        for rule in &mut self.rules {
            rule.theirs.insert_str(0, prefix);
        }
        self.prefix = prefix.to_string();
        self
    }

    /// Whether a tensor without a rule belongs to the model, unlike other tensors in the file.
    pub fn concerns(&self, name: &str) -> bool {
        name.starts_with(&self.prefix) && !self.foreign.iter().any(|start| name.starts_with(start))
    }

    /// The dialect's name for one of ours: the one in the file, or the usual one.
    pub fn name_of(&self, ours: &str, inventory: &Inventory) -> Option<String> {
        let mut fitting = self.rules.iter().filter_map(|rule| Some(rule.fits(ours)?.put_into(&rule.theirs)));
        let Some(first) = fitting.next() else { return self.same_names.then(|| ours.to_string()) };
        if inventory.contains_key(&first) {
            return Some(first);
        }
        Some(fitting.find(|name| inventory.contains_key(name)).unwrap_or(first))
    }

    /// The shape of the tensor that contains one of ours, if the file has it.
    pub fn shape_of<'i>(&self, ours: &str, inventory: &'i Inventory) -> Option<&'i [usize]> {
        inventory.get(&self.name_of(ours, inventory)?).map(Vec::as_slice)
    }

    /// Number of atoms joined in the tensor that contains one of ours.
    pub fn joins(&self, ours: &str, inventory: &Inventory) -> usize {
        let named = |rule: &&Rule| rule.fits(ours).is_some_and(|w| inventory.contains_key(&w.put_into(&rule.theirs)));
        self.rules.iter().find(named).map_or(1, |rule| rule.ours.len())
    }

    /// The entries of a model's tensors: as a file has them, or as they are written. An error names the parameter
    /// without a matching rule, or whose rule does not fit.
    pub fn entries(&self, parameters: &[Parameter], file: Option<&Inventory>) -> Result<Vec<Entry>, String> {
        let atoms = Atoms::new(parameters);
        let mut entries = Vec::new();
        let mut placed: HashSet<String> = HashSet::new();
        for parameter in parameters {
            let parts = parameter.part_names();
            if self.same_names && !self.rules.iter().any(|rule| rule.fits(&parts[0]).is_some()) {
                entries.push(Entry { atoms: parts, ..Entry::same(&parameter.name, parameter.shape.axes()) });
                continue;
            }
            for name in parts {
                if !placed.contains(&name) {
                    let entry = self.entry(&name, &atoms, file)?;
                    placed.extend(entry.atoms.iter().cloned());
                    entries.push(entry);
                }
            }
        }
        entries.extend(self.rules.iter().filter(|rule| rule.presence != Presence::Needed).map(Entry::beside));
        Ok(entries)
    }

    fn entry(&self, name: &str, atoms: &Atoms, file: Option<&Inventory>) -> Result<Entry, String> {
        let mut fitting = self.rules.iter().filter_map(|rule| Some((rule, rule.fits(name)?)));
        let first = fitting.next().ok_or_else(|| format!("`{name}` has no name in the dialect of {}", self.library))?;
        let is_there = |(rule, wildcards): &(&Rule, Wildcards)| {
            file.is_none_or(|file| file.contains_key(&wildcards.put_into(&rule.theirs)))
        };
        let (rule, wildcards) = match is_there(&first) {
            true => first,
            false => fitting.find(is_there).unwrap_or(first),
        };
        let own = match rule.is_stacked() {
            true => atoms.of_all_layers(&rule.ours[0], wildcards.kind),
            false => rule.ours.iter().map(|pattern| wildcards.put_into(pattern)).collect(),
        };
        rule.entry(wildcards.put_into(&rule.theirs), own, atoms)
    }
}

impl Rule {
    fn entry(&self, theirs: String, own: Vec<String>, atoms: &Atoms) -> Result<Entry, String> {
        let mut shapes = own.iter().map(|atom| atoms.shape(atom));
        let missing = || format!("`{theirs}` joins {}, and one of them is not a parameter", own.join(" and "));
        let shape = shapes.next().flatten().ok_or_else(missing)?;
        if shapes.any(|other| other != Some(shape)) {
            return Err(missing());
        }
        let rest = || shape[1..].iter().product::<usize>();
        let storage = match self.order {
            Order::Same => Storage::Same,
            Order::PlusOne => Storage::PlusOne,
            Order::Transposed => Storage::Transposed { rows: shape[0], columns: rest() },
            Order::RotaryPairs(head_dim) if head_dim > 0 && shape[0].is_multiple_of(head_dim) => {
                Storage::RotaryPairs { rows: shape[0], head_dim }
            }
            Order::RotaryPairs(head_dim) => {
                return Err(format!("`{theirs}` {shape:?} has no whole heads of {head_dim} rows"));
            }
            Order::ChannelsLast => match self.axes {
                Axes::Exactly(ref axes) if axes.len() == 4 => {
                    Storage::Hwio { pixels: axes[0] * axes[1], inputs: axes[2], outputs: axes[3] }
                }
                _ => return Err(format!("`{theirs}` is a convolution kernel, whose four axes must be given")),
            },
        };
        let mut axes = match (&self.axes, self.order) {
            (Axes::Exactly(axes), _) => axes.clone(),
            (Axes::LeadingOne, _) => std::iter::once(1).chain(shape.iter().copied()).collect(),
            (Axes::Ours, Order::Transposed) => vec![rest(), shape[0]],
            (Axes::Ours, _) => shape.to_vec(),
        };
        match self.is_stacked() {
            true => axes.insert(0, own.len()),
            // A scalar has no axis to join along.
            false => axes.iter_mut().take(1).for_each(|first| *first = first.saturating_mul(own.len())),
        }
        let count = |axes: &[usize]| axes.iter().fold(1usize, |product, &axis| product.saturating_mul(axis));
        if count(&axes) != count(shape).saturating_mul(own.len()) {
            return Err(format!("`{theirs}` {axes:?} cannot hold {}, {shape:?} each", own.join(" and ")));
        }
        Ok(Entry { name: theirs, shape: axes, atoms: own, storage, presence: self.presence, grid: self.grid })
    }
}

impl Entry {
    /// A tensor with our name and layout.
    fn same(name: &str, shape: &[usize]) -> Entry {
        Entry {
            name: name.to_string(),
            shape: shape.to_vec(),
            atoms: vec![name.to_string()],
            storage: Storage::Same,
            presence: Presence::Needed,
            grid: None,
        }
    }

    /// A tensor without a parameter.
    fn beside(rule: &Rule) -> Entry {
        let shape = match &rule.axes {
            Axes::Exactly(axes) => axes.clone(),
            Axes::Ours | Axes::LeadingOne => Vec::new(),
        };
        Entry { presence: rule.presence, atoms: rule.ours.clone(), ..Entry::same(&rule.theirs, &shape) }
    }
}

/// The atoms of a model's parameters, in order, with their shapes.
struct Atoms {
    names: Vec<String>,
    shapes: HashMap<String, Vec<usize>>,
}

impl Atoms {
    fn new(parameters: &[Parameter]) -> Atoms {
        let (mut names, mut shapes) = (Vec::new(), HashMap::new());
        for parameter in parameters {
            let parts = parameter.part_names();
            let mut shape = parameter.shape.axes().to_vec();
            shape[0] /= parts.len();
            for name in parts {
                shapes.insert(name.clone(), shape.clone());
                names.push(name);
            }
        }
        Atoms { names, shapes }
    }

    fn shape(&self, name: &str) -> Option<&[usize]> {
        self.shapes.get(name).map(Vec::as_slice)
    }

    /// The atoms that match a pattern, in order of their layers.
    fn of_all_layers(&self, pattern: &str, kind: Option<&str>) -> Vec<String> {
        let fitting = self.names.iter().filter_map(|name| {
            let wildcards = Wildcards::of(pattern, name).filter(|wildcards| wildcards.kind == kind)?;
            Some((wildcards.numbers[0]?.parse::<usize>().ok()?, name.clone()))
        });
        fitting.collect::<BTreeMap<usize, String>>().into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use vitreous_engine::{Graph, Init, Role};

    use super::*;

    /// Two layers with a fused projection and a gated feed-forward block.
    fn parameters() -> Vec<Parameter> {
        let mut g = Graph::for_inference();
        let weight = Role::Weight.starting(Init::Constant(0.0));
        for layer in 0..2 {
            g.scope(&format!("blocks.{layer}"), |g| {
                g.scope("qkv", |g| g.declare("weight", [6, 4], weight.of_parts(&["query", "key", "value"])))?;
                g.scope("gate", |g| g.parameter("weight", [3, 4]))?;
                g.scope("up", |g| g.parameter("weight", [3, 4]))
            })
            .expect("declared");
        }
        g.parameters().to_vec()
    }

    fn names(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    fn dialect(rules: Vec<Rule>) -> Dialect {
        Dialect { library: "a peer", rules, ..Dialect::default() }
    }

    #[test]
    fn rules_rename_split_join_and_transpose() {
        let rules = vec![
            Rule::rename("blocks.#.query.*", "layer.#.q.*"),
            Rule::rename("blocks.#.key.*", "layer.#.k.*").transposed(),
            Rule::rename("blocks.#.value.*", "layer.#.v.*").leading_one(),
            Rule::join(&["blocks.#.gate.*", "blocks.#.up.*"], "layer.#.w12.*"),
        ];
        let entries = dialect(rules).entries(&parameters(), None).expect("covered");
        let first = ["layer.0.q.weight", "layer.0.k.weight", "layer.0.v.weight", "layer.0.w12.weight"];
        assert_eq!(names(&entries)[..4], first);
        let shapes: Vec<_> = entries[..4].iter().map(|entry| entry.shape.as_slice()).collect();
        assert_eq!(shapes, [&[2, 4][..], &[4, 2], &[1, 2, 4], &[6, 4]]);
        assert_eq!(entries[1].storage, Storage::Transposed { rows: 2, columns: 4 });
        assert_eq!(entries[3].atoms, ["blocks.0.gate.weight", "blocks.0.up.weight"]);
    }

    #[test]
    fn all_layers_can_be_stacked_in_one_tensor() {
        let stacked = |part: &str| Rule::rename(&format!("blocks.#.{part}.weight"), format!("all/{part}"));
        let entries = dialect(["query", "key", "value", "gate", "up"].map(stacked).to_vec());
        let entries = entries.entries(&parameters(), None).expect("covered");
        assert_eq!(names(&entries), ["all/query", "all/key", "all/value", "all/gate", "all/up"]);
        assert_eq!((entries[0].shape.as_slice(), entries[0].atoms.len()), (&[2, 2, 4][..], 2));
    }

    #[test]
    fn what_a_file_has_decides_between_spellings_and_the_first_is_written() {
        let rules = || {
            let one = |ours: &str| Rule::rename(&format!("blocks.#.{ours}.*"), format!("new.#.{ours}.*"));
            let old = |ours: &str| Rule::rename(&format!("blocks.#.{ours}.*"), format!("old.#.{ours}.*"));
            let parts = ["query", "key", "value", "gate", "up"];
            parts.map(one).into_iter().chain(parts.map(old)).collect()
        };
        let file: Inventory = BTreeMap::from([("old.1.key.weight".to_string(), vec![2, 4])]);
        let read = dialect(rules()).entries(&parameters(), Some(&file)).expect("covered");
        assert!(names(&read).contains(&"old.1.key.weight") && names(&read).contains(&"new.0.key.weight"));
        let written = dialect(rules()).entries(&parameters(), None).expect("covered");
        assert!(names(&written).iter().all(|name| name.starts_with("new.")));
        assert_eq!(dialect(rules()).name_of("blocks.1.key.weight", &file).as_deref(), Some("old.1.key.weight"));
    }

    #[test]
    fn a_parameter_without_a_rule_is_named() {
        let rules = vec![Rule::rename("blocks.#.query.*", "q.#.*")];
        let error = dialect(rules).entries(&parameters(), None).expect_err("key has none");
        assert_eq!(error, "`blocks.0.key.weight` has no name in the dialect of a peer");
        let shapes = vec![Rule::rename("blocks.#.query.*", "q.#.*").axes(&[3, 3])];
        let error = dialect(shapes).entries(&parameters(), None).expect_err("nine are not eight");
        assert!(error.contains("cannot hold"), "{error}");
    }
}
