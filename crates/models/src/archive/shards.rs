//! `model.safetensors.index.json`: which of several files in the same directory contains which tensor.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::{ArchiveError, Fault, Parsed, Result, shortened};
use super::json::Fields;
use super::source::Source;
use super::tensor::Tensor;
use super::{Archive, Contents, contents_of};

#[derive(Deserialize)]
struct Index {
    weight_map: Fields<String>,
}

/// Whether a file is JSON; the only supported JSON is an index.
pub(super) fn is_it(file: &[u8]) -> bool {
    file.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

/// Opens all shards of an index.
pub(super) fn read(index: &Source) -> Result<Archive> {
    let wrong = |fault: Fault| fault.in_file(&index.file);
    let json: Index = serde_json::from_slice(index.bytes()).map_err(|error| {
        let what = format!("this is JSON, but not an index of shards ({error})");
        wrong(Fault::unsupported(what, "name the file of weights, or its `*.index.json`"))
    })?;
    let directory = index.file.parent().unwrap_or(Path::new(""));
    let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, shard) in json.weight_map.0 {
        if !wanted.contains_key(&shard) {
            check_plain(&shard).map_err(|fault| wrong(fault.in_tensor(&name)))?;
        }
        wanted.entry(shard).or_default().push(name);
    }
    let mut archive = Archive::empty(index.file.clone());
    for (shard, names) in wanted {
        let source = open_shard(directory.join(&shard), index, &names)?;
        let contents = contents_of(&source).map_err(|fault| fault.in_file(&source.file))?;
        let chosen = choose(contents, &names, &shard).map_err(wrong)?;
        archive.add(source, chosen)?;
    }
    Ok(archive)
}

fn open_shard(path: PathBuf, index: &Source, names: &[String]) -> Result<Source> {
    Source::map(&path).map_err(|error| match error {
        ArchiveError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            let what =
                format!("the index says that it is in `{}`, which is not there", shortened(&path.to_string_lossy()));
            let fault = Fault::unsupported(what, "fetch all shards into the directory of their index");
            fault.in_tensor(names.first().map_or("", String::as_str)).in_file(&index.file)
        }
        other => other,
    })
}

/// An index may only name files beside it: a path could lead out of the directory, to any file of the machine.
fn check_plain(shard: &str) -> Parsed<()> {
    let plain = !shard.is_empty() && shard != "." && shard != ".." && !shard.contains(['/', '\\', ':', '\0']);
    if plain {
        return Ok(());
    }
    let what = format!("the index says that it is in `{}`", shortened(shard));
    Err(Fault::unsupported(what, "a shard must be a plain file name in the directory of its index"))
}

/// The tensors of a shard that the index lists. Others are not part of the model.
fn choose(shard_contents: Contents, names: &[String], shard: &str) -> Parsed<Contents> {
    let Contents { tensors, refused, metadata, gguf: _ } = shard_contents;
    let mut tensors: HashMap<String, (usize, Tensor)> =
        tensors.into_iter().enumerate().map(|(order, (name, tensor))| (name, (order, tensor))).collect();
    let mut refused: HashMap<String, Fault> = refused.into_iter().collect();
    let mut chosen = Vec::with_capacity(names.len());
    let mut contents = Contents { metadata, ..Contents::default() };
    for name in names {
        if let Some((order, tensor)) = tensors.remove(name) {
            chosen.push((order, name.clone(), tensor));
        } else if let Some(fault) = refused.remove(name) {
            contents.refuse(name.clone(), fault);
        } else {
            let what = format!("the index says that it is in `{}`, but it is not", shortened(shard));
            return Err(Fault::damaged(what).in_tensor(name));
        }
    }
    chosen.sort_by_key(|(order, ..)| *order);
    contents.tensors = chosen.into_iter().map(|(_, name, tensor)| (name, tensor)).collect();
    Ok(contents)
}
