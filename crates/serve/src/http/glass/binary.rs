//! The form of a look's answer: the length of a JSON header (u32, little-endian), the header, zeros up to a multiple of 8, and then the arrays,
//! each at its `offset` from the first, a multiple of 8.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::models::watched::{ArrayKind, Looked};
use crate::refusal::Refusal;

/// The answer.
pub fn response(looked: Looked) -> Result<Response, Refusal> {
    let bytes = bytes(looked).ok_or_else(Refusal::internal)?;
    Ok(([(CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

fn bytes(looked: Looked) -> Option<Vec<u8>> {
    let Looked { mut header, arrays } = looked;
    let mut offset = 0usize;
    let mut listed = Vec::with_capacity(arrays.len());
    for array in &arrays {
        let mut about = array.about.clone();
        about["type"] = json!(match array.kind {
            ArrayKind::F32 => "f32",
            ArrayKind::U8 => "u8",
        });
        about["shape"] = json!(array.shape);
        about["offset"] = json!(offset);
        listed.push(about);
        offset += array.bytes.len().next_multiple_of(8);
    }
    header["arrays"] = json!(listed);
    let text = serde_json::to_vec(&header).ok()?;
    let mut bytes = Vec::with_capacity(offset + text.len() + 16);
    bytes.extend(u32::try_from(text.len()).ok()?.to_le_bytes());
    bytes.extend(text);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    for array in arrays {
        bytes.extend(array.bytes);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use crate::models::watched::Array;

    use super::*;

    #[test]
    fn arrays_begin_at_multiples_of_eight() {
        let array = |bytes: &[u8]| Array {
            about: json!({"name": "a"}),
            kind: ArrayKind::U8,
            shape: vec![bytes.len()],
            bytes: bytes.to_vec(),
        };
        let looked = Looked { header: json!({"x": 1}), arrays: vec![array(&[1, 2, 3]), array(&[4])] };
        let bytes = bytes(looked).expect("bytes");
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[4..4 + length]).expect("JSON");
        assert_eq!((&header["x"], &header["arrays"][1]["offset"]), (&json!(1), &json!(8)));
        let start = (4 + length).next_multiple_of(8);
        assert_eq!(bytes[start..], [1, 2, 3, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    }
}
