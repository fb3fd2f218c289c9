//! What is no audio, or none that can be decoded, told by its first bytes: a decoder would look for audio in it and say something odd.

use super::error::AudioError;

/// The beginnings of files, after so many bytes.
const KNOWN: [(usize, &[u8], &str); 12] = [
    (0, b"\x89PNG\r\n\x1a\n", "a picture (PNG)"),
    (0, b"\xff\xd8\xff", "a picture (JPEG)"),
    (0, b"GIF8", "a picture (GIF)"),
    (8, b"WEBP", "a picture (WebP)"),
    (0, b"BM", "a picture (BMP)"),
    (0, b"II*\0", "a picture (TIFF)"),
    (0, b"MM\0*", "a picture (TIFF)"),
    (0, b"%PDF-", "a PDF"),
    (0, b"PK\x03\x04", "a zip file"),
    (0, b"\x1f\x8b", "a gzip file"),
    (8, b"AVI ", "a film (AVI)"),
    (0, b"<!DOCTYPE", "a web page"),
];

const UNSUPPORTED: [(usize, &[u8], &str); 4] = [
    (28, b"OpusHead", "Opus"),
    (0, b"\x1aE\xdf\xa3", "WebM or Matroska"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media"),
    (0, b"#!AMR", "AMR"),
];

/// The error for content that begins like this, if it is known to be something else.
pub(super) fn foreign(head: &[u8]) -> Option<AudioError> {
    let begins =
        |(at, with, _): &&(usize, &[u8], &'static str)| head.get(*at..).is_some_and(|rest| rest.starts_with(with));
    let known = KNOWN.iter().find(begins).map(|(_, _, what)| AudioError::SomethingElse(what));
    known.or_else(|| UNSUPPORTED.iter().find(begins).map(|(_, _, what)| AudioError::Format(what)))
}
