//! Shapes and dtypes of values.

use std::fmt;

/// The storage format of a value's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// The upper half of a 32-bit float.
    Bf16,
    /// 32-bit signed integer: labels, token ids, lengths, masks.
    I32,
}

impl DType {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::Bf16 => 2,
        }
    }

    /// Whether it is a floating-point format.
    pub fn is_float(self) -> bool {
        self != DType::I32
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::I32 => "i32",
        })
    }
}

/// The sizes of a value's axes, outermost first (row-major). A scalar has no axes.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape with these axes.
    pub fn new(axes: impl Into<Vec<usize>>) -> Self {
        Shape(axes.into())
    }

    /// The shape of a scalar.
    pub fn scalar() -> Self {
        Shape(Vec::new())
    }

    /// The axes.
    pub fn axes(&self) -> &[usize] {
        &self.0
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements. Shapes inside a graph are checked not to overflow.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Number of elements, or `None` if it overflows.
    pub fn checked_elements(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |product, &axis| product.checked_mul(axis))
    }

    /// Size of the last axis; 1 for a scalar.
    pub fn columns(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Product of all axes but the last.
    pub fn rows(&self) -> usize {
        self.0.split_last().map_or(1, |(_, leading)| leading.iter().product())
    }

    /// Whether this shape equals the trailing axes of `of`, so that it can be broadcast over its leading axes.
    pub fn is_suffix(&self, of: &Shape) -> bool {
        of.0.ends_with(&self.0)
    }

    /// The same shape with another last axis.
    pub fn with_columns(&self, columns: usize) -> Shape {
        let mut axes = self.0.clone();
        if let Some(last) = axes.last_mut() {
            *last = columns;
        }
        Shape(axes)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(axes: [usize; N]) -> Self {
        Shape(axes.to_vec())
    }
}

impl From<&[usize]> for Shape {
    fn from(axes: &[usize]) -> Self {
        Shape(axes.to_vec())
    }
}

/// A value's shape and dtype.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Type {
    /// Sizes of the axes.
    pub shape: Shape,
    /// The dtype.
    pub dtype: DType,
}

impl Type {
    /// A type.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        Type { shape: shape.into(), dtype }
    }

    /// A 32-bit float type.
    pub fn f32(shape: impl Into<Shape>) -> Self {
        Type::new(shape, DType::F32)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.shape.elements() * self.dtype.bytes()
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
