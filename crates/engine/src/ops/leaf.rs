//! Leaves of the graph: inputs of a run, parameters, constants.
//!
//! They compute nothing and cost nothing; gradients end at them.

use crate::error::{Error, Result};
use crate::graph::{Graph, Value, check_sizes, padded};
use crate::ops::{Broken, Rules};
use crate::parameter::{Declaration, Init, Role};
use crate::types::{DType, Shape, Type};

/// A value passed to each run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its type.
    pub value: Type,
}

/// A trained value in the flat buffer of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Which parameter of the graph.
    pub index: usize,
    /// Its shape.
    pub shape: Shape,
}

/// A value fixed when the graph is built, e.g. the table of sinusoidal positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Which constant of the graph.
    pub index: usize,
    /// Its shape.
    pub shape: Shape,
    /// f32 or i32.
    pub dtype: DType,
}

macro_rules! leaf_rules {
    ($op:ident, $name:literal, $self:ident => $value:expr) => {
        impl Rules for $op {
            fn name(&self) -> &'static str {
                $name
            }
            fn infer(&$self, _inputs: &[Type]) -> Result<Vec<Type>, Broken> {
                Ok(vec![$value])
            }
        }
    };
}

leaf_rules!(Input, "input", self => self.value.clone());
leaf_rules!(Parameter, "parameter", self => Type::f32(self.shape.clone()));
leaf_rules!(Constant, "constant", self => Type::new(self.shape.clone(), self.dtype));

impl Graph {
    /// A value passed to each run by its path.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> Result<Value> {
        let path = self.path_of(name);
        let op = Input { value: Type::new(shape, dtype) };
        self.add_op_at(op.into(), &[], Vec::new(), path)
    }

    /// A plain weight matrix (or vector) initialised to zero: [`Graph::declare`] for tests and small graphs.
    pub fn parameter(&mut self, name: &str, shape: impl Into<Shape>) -> Result<Value> {
        self.declare(name, shape, Role::Weight.starting(Init::Constant(0.0)))
    }

    /// A parameter with its role and initial values. Its offset in the flat buffers follows from the order of these
    /// calls.
    pub fn declare(&mut self, name: &str, shape: impl Into<Shape>, declared: Declaration) -> Result<Value> {
        let (path, shared) = self.parameter_path(name);
        let shape = shape.into();
        let broken = |rule: String| Error::Rule { op: "parameter", path: path.clone(), inputs: Vec::new(), rule };
        if shared && let Some(there) = self.parameters.iter().find(|parameter| parameter.name == path) {
            return match there.shape == shape {
                true => self.find(&path),
                false => {
                    Err(broken(format!("it is shared, and was declared as {} before, not as {shape}", there.shape)))
                }
            };
        }
        // Checked before it is used: the sum of offsets must not overflow either.
        check_sizes(&[Type::f32(shape.clone())]).map_err(broken)?;
        let offset = self.parameter_floats();
        if offset.checked_add(padded(shape.elements())).is_none_or(|floats| floats > isize::MAX as usize / 4) {
            return Err(broken("all parameters together are too large for any machine".to_string()));
        }
        let index = self.parameters.len();
        let value = self.add_op_at(Parameter { index, shape: shape.clone() }.into(), &[], Vec::new(), path.clone())?;
        let (level, head) = (self.level(), self.is_in_head());
        self.parameters.push(crate::parameter::Parameter {
            name: path,
            shape,
            offset,
            gradient_offset: None,
            declared,
            level,
            head,
            blocks: None,
        });
        self.parameter_gradients.push(None);
        Ok(value)
    }

    /// A constant.
    pub fn constant(&mut self, name: &str, shape: impl Into<Shape>, values: Vec<f32>) -> Result<Value> {
        self.add_constant(name, shape.into(), DType::F32, values)
    }

    /// A constant of whole numbers (i32), e.g. the rows of a table that an embedding looks up.
    pub fn constant_i32(&mut self, name: &str, shape: impl Into<Shape>, values: &[i32]) -> Result<Value> {
        // All constants lie in one buffer of floats, which holds the bits of whole numbers as they are.
        let bits = values.iter().map(|&value| f32::from_bits(value as u32)).collect();
        self.add_constant(name, shape.into(), DType::I32, bits)
    }

    fn add_constant(&mut self, name: &str, shape: Shape, dtype: DType, values: Vec<f32>) -> Result<Value> {
        let path = self.next_path(name);
        if shape.checked_elements() != Some(values.len()) {
            let rule = format!("{} values do not fill the shape {shape}", values.len());
            return Err(Error::Rule { op: "constant", path, inputs: Vec::new(), rule });
        }
        let index = self.constants.len();
        let value = self.add_op_at(Constant { index, shape, dtype }.into(), &[], Vec::new(), path)?;
        self.constants.push(values);
        Ok(value)
    }
}
