//! Tensors of the protocol: numbers and texts, as JSON or as bytes behind it.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::refusal::Refusal;

/// The values of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// `FP32`.
    Numbers(Vec<f32>),
    /// `BYTES`.
    Texts(Vec<Vec<u8>>),
}

/// A tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub values: Values,
}

/// A tensor of a request.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
pub struct GivenTensor {
    /// Its name
    pub name: String,
    /// Its sizes
    pub shape: Vec<usize>,
    /// `FP32` or `BYTES`
    pub datatype: String,
    /// `binary_data_size` says how many bytes behind the JSON it has
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Json>,
    /// Its values, if they are not behind the JSON
    #[schema(value_type = Option<Vec<Object>>)]
    pub data: Option<Json>,
}

impl GivenTensor {
    /// The bytes behind the JSON that are its values.
    pub fn binary_size(&self) -> Result<Option<usize>, Refusal> {
        match self.parameters.as_ref().and_then(|parameters| parameters.get("binary_data_size")) {
            None => Ok(None),
            Some(size) => match size.as_u64().and_then(|size| usize::try_from(size).ok()) {
                Some(size) => Ok(Some(size)),
                None => Err(Refusal::bad("`binary_data_size` is a number of bytes")),
            },
        }
    }

    /// Its values, of which there must be as many as its shape says.
    pub fn read(self, binary: Option<&[u8]>) -> Result<Tensor, Refusal> {
        let name: String = self.name.chars().take(60).collect();
        let wrong = |what: String| Refusal::bad(format!("input `{name}`: {what}"));
        let values = match (self.datatype.as_str(), binary, &self.data) {
            ("FP32", Some(bytes), _) => numbers_of(bytes).map_err(wrong)?,
            ("BYTES", Some(bytes), _) => texts_of(bytes).map_err(wrong)?,
            ("FP32", None, Some(data)) => {
                let mut numbers = Vec::new();
                flatten(data, &mut |value| {
                    numbers.push(value.as_f64().ok_or("a value is not a number")? as f32);
                    Ok(())
                })
                .map_err(|what| wrong(what.to_string()))?;
                Values::Numbers(numbers)
            }
            ("BYTES", None, Some(data)) => {
                let mut texts = Vec::new();
                flatten(data, &mut |value| {
                    texts.push(value.as_str().ok_or("a value is not a text")?.as_bytes().to_vec());
                    Ok(())
                })
                .map_err(|what| wrong(what.to_string()))?;
                Values::Texts(texts)
            }
            ("FP32" | "BYTES", None, None) => return Err(wrong("it has no `data`".to_string())),
            (other, ..) => {
                let other: String = other.chars().take(20).collect();
                return Err(wrong(format!("its datatype is `{other}`; FP32 and BYTES are understood")));
            }
        };
        let count = match &values {
            Values::Numbers(numbers) => numbers.len(),
            Values::Texts(texts) => texts.len(),
        };
        let wanted = self.shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        if wanted != Some(count) {
            let shape = &self.shape[..self.shape.len().min(8)];
            return Err(wrong(format!("its shape {shape:?} does not have {count} values")));
        }
        Ok(Tensor { shape: self.shape, values })
    }
}

fn numbers_of(bytes: &[u8]) -> Result<Values, String> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    match rest.is_empty() {
        true => Ok(Values::Numbers(chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())),
        false => Err(format!("{} bytes are no 32-bit numbers", bytes.len())),
    }
}

/// Each text has four bytes with its length in front.
fn texts_of(mut bytes: &[u8]) -> Result<Values, String> {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or("a text's length is cut off")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (text, rest) = rest.split_at_checked(length).ok_or("a text is shorter than its length says")?;
        texts.push(text.to_vec());
        bytes = rest;
    }
    Ok(Values::Texts(texts))
}

/// Values may lie flat, or in lists of lists.
fn flatten(data: &Json, take: &mut impl FnMut(&Json) -> Result<(), &'static str>) -> Result<(), &'static str> {
    match data {
        Json::Array(values) => values.iter().try_for_each(|value| flatten(value, take)),
        value => take(value),
    }
}

impl Tensor {
    /// Numbers in rows.
    pub fn of_rows(rows: Vec<Vec<f32>>) -> Tensor {
        let shape = vec![rows.len(), rows.first().map_or(0, Vec::len)];
        Tensor { shape, values: Values::Numbers(rows.concat()) }
    }

    /// Texts.
    pub fn of_texts(texts: Vec<String>) -> Tensor {
        let values: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
        Tensor { shape: vec![values.len()], values: Values::Texts(values) }
    }

    /// As an output of an answer; its bytes go to `binary`, if that is asked for.
    pub fn write(&self, name: &str, binary: Option<&mut Vec<u8>>) -> Json {
        let datatype = match self.values {
            Values::Numbers(_) => "FP32",
            Values::Texts(_) => "BYTES",
        };
        let mut object = json!({"name": name, "datatype": datatype, "shape": self.shape});
        match (binary, &self.values) {
            (Some(binary), values) => {
                let before = binary.len();
                match values {
                    Values::Numbers(numbers) => binary.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
                    Values::Texts(texts) => {
                        for text in texts {
                            binary.extend((text.len() as u32).to_le_bytes());
                            binary.extend(text);
                        }
                    }
                }
                object["parameters"] = json!({"binary_data_size": binary.len() - before});
            }
            (None, Values::Numbers(numbers)) => object["data"] = json!(numbers),
            (None, Values::Texts(texts)) => {
                let texts: Vec<String> = texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
                object["data"] = json!(texts);
            }
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(datatype: &str, shape: &[usize], data: Option<Json>) -> GivenTensor {
        let (name, datatype) = ("x".to_string(), datatype.to_string());
        GivenTensor { name, shape: shape.to_vec(), datatype, parameters: None, data }
    }

    #[test]
    fn values_are_read_flat_nested_and_as_bytes() {
        let numbers = Tensor { shape: vec![2, 2], values: Values::Numbers(vec![1.0, 2.0, 3.0, -4.5]) };
        for data in [json!([1, 2, 3, -4.5]), json!([[1, 2], [3, -4.5]])] {
            assert_eq!(given("FP32", &[2, 2], Some(data)).read(None), Ok(numbers.clone()));
        }
        let mut bytes = Vec::new();
        let told = numbers.write("x", Some(&mut bytes));
        assert_eq!(told["parameters"]["binary_data_size"], 16);
        assert_eq!(given("FP32", &[2, 2], None).read(Some(&bytes)), Ok(numbers));
        let texts = Tensor::of_texts(vec!["a".to_string(), String::new(), "\u{e9}".to_string()]);
        bytes.clear();
        texts.write("x", Some(&mut bytes));
        assert_eq!(bytes, b"\x01\0\0\0a\0\0\0\0\x02\0\0\0\xc3\xa9");
        assert_eq!(given("BYTES", &[3], None).read(Some(&bytes)), Ok(texts.clone()));
        assert_eq!(given("BYTES", &[3], Some(json!(["a", "", "\u{e9}"]))).read(None), Ok(texts));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let told = |tensor: GivenTensor, bytes: Option<&[u8]>| tensor.read(bytes).expect_err("wrong").message;
        assert!(told(given("FP32", &[3], Some(json!([1, 2]))), None).contains("does not have 2 values"));
        assert!(told(given("FP32", &[usize::MAX, 2], Some(json!([1]))), None).contains("does not have"));
        assert!(told(given("FP32", &[1], Some(json!(["a"]))), None).contains("not a number"));
        assert!(told(given("FP32", &[1], None), None).contains("no `data`"));
        assert!(told(given("FP32", &[1], None), Some(b"abc")).contains("3 bytes"));
        assert!(told(given("BYTES", &[1], None), Some(b"\x09\0\0\0a")).contains("shorter"));
        assert!(told(given("BYTES", &[1], None), Some(b"\x09\0")).contains("cut off"));
        assert!(told(given("INT8", &[1], Some(json!([1]))), None).contains("`INT8`"));
    }
}
