//! File formats of images: recognised by content or by file name extension, whether they can be decoded or not.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A file format of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FileFormat {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP.
    WebP,
    /// GIF; of an animation the first frame.
    Gif,
    /// BMP.
    Bmp,
    /// TIFF; the first page.
    Tiff,
    /// HEIF with HEVC, as iPhones write it. Not decoded.
    Heic,
    /// HEIF with AV1. Not decoded.
    Avif,
    /// JPEG XL. Not decoded.
    JpegXl,
    /// JPEG 2000. Not decoded.
    Jpeg2000,
    /// What a camera's sensor saw: CR2, CR3, NEF, ARW, DNG ... Not decoded.
    CameraRaw,
    /// A vector drawing. Not decoded.
    Svg,
    /// Photoshop. Not decoded.
    Photoshop,
    /// An icon. Not decoded.
    Icon,
    /// PBM, PGM, PPM. Not decoded.
    Netpbm,
    /// High dynamic range: Radiance, OpenEXR. Not decoded.
    HighDynamicRange,
    /// QOI. Not decoded.
    Qoi,
    /// A texture. Not decoded.
    Dds,
}

/// Extensions of files that are taken for images where a folder is searched.
pub const IMAGE_EXTENSIONS: [&str; 10] = ["jpg", "jpeg", "jfif", "png", "webp", "gif", "bmp", "dib", "tif", "tiff"];

/// Extensions of the formats that are not decoded.
const OTHER_EXTENSIONS: [(FileFormat, &[&str]); 12] = [
    (FileFormat::Heic, &["heic", "heif", "hif"]),
    (FileFormat::Avif, &["avif"]),
    (FileFormat::JpegXl, &["jxl"]),
    (FileFormat::Jpeg2000, &["jp2", "j2k", "jpx", "jpf"]),
    (
        FileFormat::CameraRaw,
        &[
            "cr2", "cr3", "crw", "nef", "nrw", "arw", "srf", "sr2", "dng", "raf", "rw2", "orf", "pef", "srw", "3fr",
            "iiq",
        ],
    ),
    (FileFormat::Svg, &["svg", "svgz"]),
    (FileFormat::Photoshop, &["psd", "psb"]),
    (FileFormat::Icon, &["ico"]),
    (FileFormat::Netpbm, &["pbm", "pgm", "ppm", "pnm"]),
    (FileFormat::HighDynamicRange, &["hdr", "exr"]),
    (FileFormat::Qoi, &["qoi"]),
    (FileFormat::Dds, &["dds"]),
];

/// Whether a file's extension is that of an image that can be decoded.
pub fn has_image_extension(path: &Path) -> bool {
    extension(path).is_some_and(|extension| IMAGE_EXTENSIONS.contains(&extension.as_str()))
}

fn extension(path: &Path) -> Option<String> {
    path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase)
}

impl FileFormat {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            FileFormat::Jpeg => "JPEG",
            FileFormat::Png => "PNG",
            FileFormat::WebP => "WebP",
            FileFormat::Gif => "GIF",
            FileFormat::Bmp => "BMP",
            FileFormat::Tiff => "TIFF",
            FileFormat::Heic => "HEIC",
            FileFormat::Avif => "AVIF",
            FileFormat::JpegXl => "JPEG XL",
            FileFormat::Jpeg2000 => "JPEG 2000",
            FileFormat::CameraRaw => "camera raw",
            FileFormat::Svg => "SVG",
            FileFormat::Photoshop => "Photoshop",
            FileFormat::Icon => "icon",
            FileFormat::Netpbm => "Netpbm",
            FileFormat::HighDynamicRange => "high dynamic range",
            FileFormat::Qoi => "QOI",
            FileFormat::Dds => "DDS",
        }
    }

    /// Whether such files can be decoded.
    pub fn is_decoded(self) -> bool {
        use FileFormat::{Bmp, Gif, Jpeg, Png, Tiff, WebP};
        matches!(self, Jpeg | Png | WebP | Gif | Bmp | Tiff)
    }

    /// The format that a file's extension names, if it is one that cannot be decoded.
    pub fn not_decoded(path: &Path) -> Option<FileFormat> {
        let extension = extension(path)?;
        OTHER_EXTENSIONS
            .into_iter()
            .find_map(|(format, extensions)| extensions.contains(&extension.as_str()).then_some(format))
    }

    /// The format of a file's content, by its first bytes.
    pub fn of_bytes(bytes: &[u8]) -> Option<FileFormat> {
        let starts = |magic: &[u8]| bytes.starts_with(magic);
        let at = |offset: usize, magic: &[u8]| bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic));
        Some(match () {
            () if starts(b"\xff\xd8\xff") => FileFormat::Jpeg,
            () if starts(b"\x89PNG\r\n\x1a\n") => FileFormat::Png,
            () if starts(b"RIFF") && at(8, b"WEBP") => FileFormat::WebP,
            () if starts(b"GIF87a") || starts(b"GIF89a") => FileFormat::Gif,
            () if starts(b"BM") => FileFormat::Bmp,
            () if at(4, b"ftyp") => return of_brands(bytes),
            () if starts(b"\xff\x0a") || starts(b"\0\0\0\x0cJXL \r\n\x87\n") => FileFormat::JpegXl,
            () if starts(b"\0\0\0\x0cjP  \r\n\x87\n") || starts(b"\xff\x4f\xff\x51") => FileFormat::Jpeg2000,
            () if is_camera_raw(bytes) => FileFormat::CameraRaw,
            () if is_tiff(bytes) => FileFormat::Tiff,
            () if starts(b"8BPS") => FileFormat::Photoshop,
            () if starts(b"\0\0\x01\0") => FileFormat::Icon,
            () if starts(b"#?RADIANCE") || starts(b"v/1\x01") => FileFormat::HighDynamicRange,
            () if starts(b"qoif") => FileFormat::Qoi,
            () if starts(b"DDS ") => FileFormat::Dds,
            () if matches!(bytes, [b'P', b'1'..=b'7', b' ' | b'\t' | b'\n' | b'\r', ..]) => FileFormat::Netpbm,
            () if is_svg(bytes) => FileFormat::Svg,
            () => return None,
        })
    }

    /// A command that converts such a file to one that can be decoded.
    pub(super) fn conversion(self, file: Option<&Path>) -> String {
        let name = file.and_then(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
        let name = name.unwrap_or_else(|| "FILE".to_string());
        let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
        // Photographs become JPEG files; what may have sharp edges or transparency becomes PNG.
        let to = match self {
            FileFormat::Heic | FileFormat::Avif | FileFormat::JpegXl | FileFormat::Jpeg2000 | FileFormat::CameraRaw => {
                "jpg"
            }
            _ => "png",
        };
        let mut converted = format!("{stem}.{to}");
        if converted == name {
            converted = format!("{stem}-converted.{to}");
        }
        format!("`magick {} {}` (ImageMagick)", quoted(&name), quoted(&converted))
    }
}

/// A word of a command line, in quotes where it needs them.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./+,:@%".contains(letter);
    if word.chars().all(is_plain) { word.to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The format of an ISO media file: its major brand, or the first compatible one that says more.
fn of_brands(bytes: &[u8]) -> Option<FileFormat> {
    let length = u32::from_be_bytes(bytes.first_chunk().copied()?) as usize;
    let brands = bytes.get(8..length.clamp(8, 128).min(bytes.len()))?.chunks_exact(4);
    // The second word is a version.
    let mut brands = brands.enumerate().filter(|(index, _)| *index != 1).map(|(_, brand)| brand);
    brands.find_map(|brand| match brand {
        b"avif" | b"avis" => Some(FileFormat::Avif),
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" => Some(FileFormat::Heic),
        b"crx " => Some(FileFormat::CameraRaw),
        b"jxl " => Some(FileFormat::JpegXl),
        b"jp2 " => Some(FileFormat::Jpeg2000),
        _ => None,
    })
}

fn is_tiff(bytes: &[u8]) -> bool {
    [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|magic| bytes.starts_with(*magic))
}

/// Raw files of most cameras are TIFF files whose first image is a preview: they must not be taken for that.
fn is_camera_raw(bytes: &[u8]) -> bool {
    const NEW_SUBFILE_TYPE: u16 = 254;
    const SUB_DIRECTORIES: u16 = 330;
    const DNG_VERSION: u16 = 50706;
    let magics: [&[u8]; 6] = [b"FUJIFILMCCD-RAW", b"IIU\0", b"IIRO", b"IIRS", b"MMOR", b"\0MRM"];
    if magics.iter().any(|magic| bytes.starts_with(magic)) || bytes.get(8..10) == Some(b"CR") && is_tiff(bytes) {
        return true;
    }
    let big = bytes.starts_with(b"MM\0*");
    if !big && !bytes.starts_with(b"II*\0") {
        return false;
    }
    let number = |at: usize, length: usize| -> Option<usize> {
        let bytes = bytes.get(at..at.checked_add(length)?)?.iter().map(|&byte| usize::from(byte));
        Some(if big {
            bytes.fold(0, |sum, byte| sum << 8 | byte)
        } else {
            bytes.rev().fold(0, |sum, byte| sum << 8 | byte)
        })
    };
    let entries = |directory: usize| -> Option<Vec<(u16, usize)>> {
        let count = number(directory, 2)?.min(512);
        let entry =
            |index: usize| Some((number(directory + 2 + 12 * index, 2)? as u16, directory + 2 + 12 * index + 8));
        (0..count).map(entry).collect()
    };
    let Some(entries) = number(4, 4).and_then(entries) else { return false };
    let value = |tag: u16| entries.iter().find(|(there, _)| *there == tag).map(|&(_, at)| at);
    let is_preview = value(NEW_SUBFILE_TYPE).and_then(|at| number(at, 4)).is_some_and(|bits| bits & 1 == 1);
    value(DNG_VERSION).is_some() || is_preview && value(SUB_DIRECTORIES).is_some()
}

/// An XML file whose first element is `svg`.
fn is_svg(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    text.starts_with('<') && text.match_indices('<').any(|(at, _)| text[at + 1..].starts_with("svg"))
}

/// Images that a search of folders skipped, because their format cannot be decoded.
#[derive(Debug, Default)]
pub struct SkippedImages {
    /// How many of each format, and the first of them.
    formats: BTreeMap<FileFormat, (usize, PathBuf)>,
}

impl SkippedImages {
    /// Counts a file if its extension is that of an image that cannot be decoded; whether it is. Hidden files, among them the
    /// `._x.heic` that macOS writes beside images, do not count.
    pub fn add(&mut self, path: &Path) -> bool {
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let Some(format) = FileFormat::not_decoded(path).filter(|_| !hidden) else { return false };
        self.formats.entry(format).or_insert_with(|| (0, path.to_path_buf())).0 += 1;
        true
    }

    /// Whether none was skipped.
    pub fn is_empty(&self) -> bool {
        self.formats.is_empty()
    }

    /// How many of which format were skipped, and what to do: `3 HEIC images and 1 AVIF image were skipped: ...`
    pub fn note(&self) -> Option<String> {
        let (first_format, (_, first)) = self.formats.first_key_value()?;
        let count = |(format, (count, _)): (&FileFormat, &(usize, PathBuf))| {
            format!("{count} {} {}", format.name(), if *count == 1 { "image" } else { "images" })
        };
        let counts: Vec<String> = self.formats.iter().map(count).collect();
        let total: usize = self.formats.values().map(|(count, _)| count).sum();
        let counts = match &counts[..] {
            [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
            _ => counts.concat(),
        };
        let conversion = first_format.conversion(Some(first));
        Some(match (total, self.formats.len()) {
            (1, _) => {
                format!("{counts} was skipped: this format is not supported; convert it first, e.g. {conversion}")
            }
            (_, 1) => {
                format!("{counts} were skipped: this format is not supported; convert them first, e.g. {conversion}")
            }
            _ => {
                format!("{counts} were skipped: these formats are not supported; convert them first, e.g. {conversion}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised_by_content() {
        let ftyp = |brands: &[&[u8; 4]]| {
            let length = 8 + 4 * brands.len() as u32;
            let brands: Vec<u8> = brands.iter().flat_map(|brand| brand.iter().copied()).collect();
            [&length.to_be_bytes()[..], b"ftyp", &brands].concat()
        };
        for (bytes, format) in [
            (ftyp(&[b"heic", b"\0\0\0\0", b"mif1"]), Some(FileFormat::Heic)),
            (ftyp(&[b"mif1", b"\0\0\0\0", b"mif1", b"heic"]), Some(FileFormat::Heic)),
            (ftyp(&[b"avif", b"\0\0\0\0", b"mif1"]), Some(FileFormat::Avif)),
            (ftyp(&[b"crx ", b"\0\0\0\x01"]), Some(FileFormat::CameraRaw)),
            (ftyp(&[b"mp42", b"\0\0\0\0", b"isom"]), None),
            (b"\xff\x0a\xfa".to_vec(), Some(FileFormat::JpegXl)),
            (b"II*\0\x10\0\0\0CR\x02\0".to_vec(), Some(FileFormat::CameraRaw)),
            (b"II*\0\x08\0\0\0\0\0".to_vec(), Some(FileFormat::Tiff)),
            (b"8BPS\0\x01".to_vec(), Some(FileFormat::Photoshop)),
            (b"<?xml version=\"1.0\"?>\n<!-- drawn -->\n<svg xmlns=\"\">".to_vec(), Some(FileFormat::Svg)),
            (b"P5\n3 2\n255\n".to_vec(), Some(FileFormat::Netpbm)),
            (b"<html><p>svg</p></html>".to_vec(), None),
            (b"Plain words".to_vec(), None),
        ] {
            assert_eq!(FileFormat::of_bytes(&bytes), format, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn the_preview_of_a_raw_file_is_not_taken_for_the_image() {
        // A directory of one or two entries: tag, type, count, value.
        let tiff = |entries: &[(u16, u32)]| {
            let mut file = b"II*\0\x08\0\0\0".to_vec();
            file.extend((entries.len() as u16).to_le_bytes());
            for &(tag, value) in entries {
                file.extend(tag.to_le_bytes());
                file.extend([4, 0, 1, 0, 0, 0]);
                file.extend(value.to_le_bytes());
            }
            file
        };
        for (entries, format) in [
            (&[(254, 1), (330, 90)][..], FileFormat::CameraRaw),
            (&[(50706, 0x401)], FileFormat::CameraRaw),
            (&[(254, 0), (330, 90)], FileFormat::Tiff),
            (&[(254, 1)], FileFormat::Tiff),
            (&[], FileFormat::Tiff),
        ] {
            assert_eq!(FileFormat::of_bytes(&tiff(entries)), Some(format), "{entries:?}");
        }
        assert_eq!(FileFormat::of_bytes(b"II*\0\xff\xff\xff\xff"), Some(FileFormat::Tiff), "it ends too early");
    }

    #[test]
    fn skipped_images_are_counted_by_format() {
        let mut skipped = SkippedImages::default();
        assert_eq!(skipped.note(), None);
        assert!(!skipped.add(Path::new("a.jpg")) && !skipped.add(Path::new("notes.txt")));
        assert!(!skipped.add(Path::new("deep/._a.heic")));
        assert!(skipped.add(Path::new("deep/My photo.HEIC")));
        assert_eq!(
            skipped.note().unwrap(),
            "1 HEIC image was skipped: this format is not supported; convert it first, e.g. \
             `magick 'My photo.HEIC' 'My photo.jpg'` (ImageMagick)"
        );
        assert!(
            skipped.add(Path::new("b.heif")) && skipped.add(Path::new("c.avif")) && skipped.add(Path::new("d.nef"))
        );
        let note = skipped.note().unwrap();
        assert!(
            note.starts_with("2 HEIC images, 1 AVIF image and 1 camera raw image were skipped: these formats"),
            "{note}"
        );
    }
}
