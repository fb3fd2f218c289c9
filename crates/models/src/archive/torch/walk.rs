//! From a checkpoint's pickle to its tensors: dictionaries are traversed, the few functions with which PyTorch builds
//! tensors are interpreted, and everything else is recorded by name and ignored.

use super::layout::{Rebuild, StorageId, depends};
use super::{CONVERT, Contents};
use crate::archive::error::{Fault, Parsed};
use crate::archive::pickle::{Call, Object, Pickle, Value};
use crate::archive::tensor::{ByteRange, Tensor};

/// Real checkpoints are nested less than ten levels deep.
const DEEPEST: usize = 64;
/// A pickle can use one dictionary in many places, and those in many more. The output is bounded, not only the input.
const MOST_VISITS: usize = 1 << 22;
const MOST_NAMES: usize = 1 << 18;
const MOST_NAME_BYTES: usize = 1 << 26;

/// The name of the tensor in a checkpoint that is a single tensor.
const NAMELESS: &str = "tensor";

/// Finds every tensor of a checkpoint.
pub(super) fn tensors(
    pickle: &Pickle,
    big_endian: bool,
    storage: &dyn Fn(&StorageId) -> Parsed<ByteRange>,
) -> Parsed<Contents> {
    let mut walk = Walk {
        pickle,
        big_endian,
        storage,
        contents: Contents::default(),
        path: String::new(),
        visits: 0,
        name_bytes: 0,
    };
    walk.value(pickle.root, 0)?;
    Ok(walk.contents)
}

struct Walk<'p, 'a> {
    pickle: &'p Pickle<'a>,
    big_endian: bool,
    storage: &'p dyn Fn(&StorageId) -> Parsed<ByteRange>,
    contents: Contents,
    path: String,
    visits: usize,
    name_bytes: usize,
}

impl Walk<'_, '_> {
    fn value(&mut self, value: Value, depth: usize) -> Parsed<()> {
        self.visits += 1;
        if depth > DEEPEST || self.visits > MOST_VISITS {
            let what = if depth > DEEPEST { "nests deeper" } else { "repeats itself more often" };
            return Err(Fault::unsupported(format!("the pickle {what} than a checkpoint does"), CONVERT));
        }
        let pickle = self.pickle;
        match pickle.object(value) {
            Some(Object::Dict(items)) => self.items(items, depth),
            Some(Object::List(values) | Object::Tuple(values)) => {
                for (index, value) in values.iter().enumerate() {
                    self.below(&index.to_string(), *value, depth)?;
                }
                Ok(())
            }
            Some(Object::Call(call)) => self.call(value, call, depth),
            Some(Object::Global { .. }) => {
                self.refuse(Fault::unsupported(format!("it is {}, not a tensor", pickle.show(value)), CONVERT));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn items(&mut self, items: &[(Value, Value)], depth: usize) -> Parsed<()> {
        let pickle = self.pickle;
        for (key, value) in items {
            match key {
                Value::Int(number) => self.below(&number.to_string(), *value, depth)?,
                _ => match pickle.text(*key) {
                    Some(name) => self.below(name, *value, depth)?,
                    // Values without a name cannot be requested.
                    None => continue,
                },
            }
        }
        Ok(())
    }

    /// Visits a value under its own part of the name. Most values are numbers and text, for which no name is built.
    fn below(&mut self, part: &str, value: Value, depth: usize) -> Parsed<()> {
        if !matches!(value, Value::Object(_)) {
            self.visits += 1;
            return Ok(());
        }
        let length = self.path.len();
        if depth > 0 {
            self.path.push('.');
        }
        self.path.push_str(part);
        self.value(value, depth + 1)?;
        self.path.truncate(length);
        Ok(())
    }

    fn call(&mut self, value: Value, call: &Call, depth: usize) -> Parsed<()> {
        let pickle = self.pickle;
        let function = pickle.global(call.function).unwrap_or_default();
        if matches!(
            function.as_str(),
            "collections.OrderedDict" | "collections.defaultdict" | "builtins.dict" | "__builtin__.dict"
        ) {
            // Python 2 passes the items to the constructor, as pairs.
            let arguments = pickle.sequence(call.arguments).unwrap_or_default();
            let passed = arguments.first().and_then(|first| pickle.sequence(*first)).unwrap_or_default();
            for pair in passed {
                if let Some([key, value]) = pickle.sequence(*pair) {
                    self.items(&[(*key, *value)], depth)?;
                }
            }
            return self.items(&call.items, depth);
        }
        // A module of TorchScript: parameters, buffers and modules inside it are its attributes. Its code lies elsewhere in the file.
        if function.starts_with("__torch__.") {
            return match pickle.object(call.state) {
                Some(Object::Dict(attributes)) => self.items(attributes, depth),
                _ => Ok(()),
            };
        }
        let tensor = match self.tensor(value, 0) {
            Err(fault) if !fault.is_damage() => {
                self.refuse(fault);
                return Ok(());
            }
            tensor => tensor,
        };
        let name = self.name();
        self.name_bytes += name.len();
        if self.contents.tensors.len() == MOST_NAMES || self.name_bytes > MOST_NAME_BYTES {
            return Err(Fault::unsupported("the pickle names more tensors than a checkpoint has", CONVERT));
        }
        self.contents.note(name, tensor)
    }

    fn name(&self) -> String {
        if self.path.is_empty() { NAMELESS.to_string() } else { self.path.clone() }
    }

    /// Records what is not a tensor, so that requesting it gives a reason. Beyond a limit, the rest is dropped.
    fn refuse(&mut self, fault: Fault) {
        self.name_bytes += self.path.len();
        if self.contents.refused.len() < MOST_NAMES && self.name_bytes <= MOST_NAME_BYTES / 2 {
            let name = self.name();
            self.contents.refuse(name, fault);
        }
    }

    /// The tensor that a call would have built.
    fn tensor(&self, value: Value, depth: usize) -> Parsed<Tensor> {
        let pickle = self.pickle;
        let unknown = || Fault::unsupported(depends(pickle, value), CONVERT);
        let Some(Object::Call(call)) = pickle.object(value) else { return Err(unknown()) };
        let (Some(function), Some(arguments)) = (pickle.global(call.function), pickle.sequence(call.arguments)) else {
            return Err(unknown());
        };
        match (function.as_str(), arguments) {
            ("torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state", [data, ..])
                if depth < DEEPEST =>
            {
                self.tensor(*data, depth + 1)
            }
            // A tensor with attributes, or of a subclass: function and arguments are passed as arguments.
            ("torch._tensor._rebuild_from_type_v2", [function, _class, arguments, ..]) => {
                match (pickle.global(*function), pickle.sequence(*arguments)) {
                    (Some(function), Some(arguments)) => {
                        self.rebuilt(&function, arguments).unwrap_or_else(|| Err(unknown()))
                    }
                    _ => Err(unknown()),
                }
            }
            _ => self.rebuilt(&function, arguments).unwrap_or_else(|| Err(unknown())),
        }
    }

    /// The result of `_rebuild_tensor` in its versions. `None` for other functions.
    fn rebuilt(&self, function: &str, arguments: &[Value]) -> Option<Parsed<Tensor>> {
        let version = match function {
            "torch._utils._rebuild_tensor" => 1,
            "torch._utils._rebuild_tensor_v2" => 2,
            "torch._utils._rebuild_tensor_v3" => 3,
            _ => return None,
        };
        let malformed = || Fault::damaged(format!("`{function}` has invalid arguments"));
        let [storage, offset, size, stride, rest @ ..] = arguments else { return Some(Err(malformed())) };
        let (Some(size), Some(stride)) = (self.sizes(*size), self.sizes(*stride)) else {
            return Some(Err(malformed()));
        };
        let dtype = match (version, rest) {
            (3, [_requires_gradient, _hooks, dtype, ..]) => Some(*dtype),
            (3, _) => return Some(Err(malformed())),
            _ => None,
        };
        let rebuild = Rebuild { storage: *storage, offset: *offset, size, stride, dtype };
        Some(rebuild.tensor(self.pickle, self.big_endian, self.storage))
    }

    /// A tuple, or one wrapped in `torch.Size`.
    fn sizes(&self, value: Value) -> Option<&[Value]> {
        let pickle = self.pickle;
        match pickle.object(value)? {
            Object::Call(call) if pickle.global(call.function).as_deref() == Some("torch.Size") => {
                pickle.sequence(*pickle.sequence(call.arguments)?.first()?)
            }
            _ => pickle.sequence(value),
        }
    }
}
